"""Disagreement of networks that were made to differ where we know, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import spearmanr

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families import Functions, Hyperteacher
from recombine.families.chains import Chains
from recombine.families.scenes import Scenes
from recombine.instruments import Reading, Subject, check_instrument
from recombine.instruments.sequence_subject import Judged, SequenceSubject
from recombine.instruments.uncertainty import Uncertainty, correlation, most_uncertain
from recombine.lab.engine import initial_state
from recombine.lab.identity import node_id
from recombine.learners import NextToken, Supervised
from recombine.learners._learner import Learner
from recombine.learners.flow import Flow
from recombine.learners.packing import decode
from recombine.models import MLP
from recombine.models.diffusion import DiT
from recombine.models.sequence import SequenceModel
from recombine.supports import Collected, SupportRule

pytestmark = pytest.mark.slow  # make test-all runs it

START = Collected(SupportRule("random", 0.7), "random", 0)
TEACHER: Any = Supervised(
    family=Hyperteacher(modules=7, active=2, input_units=4, hidden=(4,), output_units=4),
    support=START,  # pyright: ignore[reportArgumentType]
    model=MLP(width=16, depth=2), training_steps=20, tasks=16, samples=4,
)  # fmt: skip
SPEAKER = NextToken(
    family=Chains(START, functions=4, length=3, values=6, steps=True),
    model=SequenceModel(depth=1, width=16, heads=1, positions="learned"),
    training_steps=20, batch=8, row=32, rows=256, vocabulary=32,
)  # fmt: skip
ARTIST: Any = Flow(
    family=Scenes(shows="slots", size=16, cells=2, shapes=2, colours=2),
    support=START,  # pyright: ignore[reportArgumentType]
    model=DiT(depth=1, width=16, heads=1, patch=8), training_steps=20,
)  # fmt: skip
SMALL = Uncertainty(draws=3)


def first_weights(learner: Any) -> dict[str, np.ndarray]:
    given = {name: material.make() for name, material in learner.materials().items()}
    return learner.weights(initial_state(learner, learner.prepare(given), "float32"))


def ensemble(instrument: Uncertainty, learner: Learner) -> dict[str, Subject]:
    return {name: other.subject(first_weights(other))
            for name, other in instrument.cells(learner).items()}  # fmt: skip


@pytest.mark.parametrize("learner", [TEACHER, SPEAKER, ARTIST], ids=["numbers", "text", "pictures"])
def test_uncertainty_keeps_the_contract_of_instruments(learner):
    weights = first_weights(learner)
    check_instrument(SMALL, learner, weights, weights, ensemble(SMALL, learner))


def test_the_other_networks_differ_in_first_weights_and_order_alone():
    others = Uncertainty(networks=4).cells(TEACHER)
    assert len({node_id(learner) for learner in (TEACHER, *others.values())}) == 4
    for learner in others.values():
        own = replace(learner.seeds, init=0, train=0)  # pyright: ignore
        assert replace(learner, seeds=own) == TEACHER  # pyright: ignore


def test_networks_that_differ_in_one_module_disagree_on_the_combinations_with_it():
    weights = first_weights(TEACHER)
    changed = {path: array.copy() for path, array in weights.items()}
    changed["first/task/weight"][5] += 3.0
    subject, other = TEACHER.subject(weights), TEACHER.subject(changed)
    others = {"other1": other, "other2": subject}
    pool = Uncertainty(3).read(subject, subject, others).tables["pool"]
    with_five = np.asarray([5 in subject.support.space.describe(r) for r in pool["rank"]])
    apart = np.asarray(pool["disagreement"])
    assert with_five.any() and not with_five.all()
    assert (apart[with_five] > 0.01).all()
    np.testing.assert_allclose(apart[~with_five], 0, atol=1e-9)


def test_disagreement_is_twice_the_variance_over_networks():
    """The mean over pairs of squared differences, against numpy's variance of all answers."""
    subject, others = TEACHER.subject(first_weights(TEACHER)), ensemble(SMALL, TEACHER)
    pool = SMALL.read(subject, subject, others).tables["pool"]
    batch = subject.draw(np.repeat(pool["rank"], SMALL.draws), "uncertainty")
    answers = [np.asarray(one.answer(batch), np.float64) for one in (subject, *others.values())]
    spread = 2 * np.var(answers, axis=0, ddof=1)
    expected = spread.reshape(len(pool["rank"]), -1).mean(axis=1)
    np.testing.assert_allclose(pool["disagreement"], expected, rtol=1e-5)


def test_the_pool_is_what_may_be_collected_and_never_what_is_tested():
    subject = TEACHER.subject(first_weights(TEACHER))
    ranks = SMALL.read(subject, subject, ensemble(SMALL, TEACHER)).tables["pool"]["rank"]
    support = subject.support
    assert set(ranks) == set(support.held_out.tolist()) - set(support.tested.tolist())
    plain = replace(TEACHER, support=SupportRule("random", 0.7))
    other = plain.subject(first_weights(plain))
    assert SMALL.read(other, other, ensemble(SMALL, plain)).tables["pool"]["rank"] == (
        other.support.held_out.tolist()
    )


class Scripted(SequenceSubject):
    """Solves every chain, but for those that begin with a function it gets wrong."""

    def __init__(self, wrong: str, word: str = "a0"):
        corpus = decode({name: m.make() for name, m in SPEAKER.materials().items()}["corpus"])
        super().__init__(SPEAKER, first_weights(SPEAKER), corpus)
        self.wrong, self.word = wrong, word

    def said(self, source: Any) -> list[int]:
        text = self.text(source)
        fails = text.split(" ")[1] == self.wrong
        return self.numbers(self.word if fails else self.family.solve(text))

    def written(self, sources, longest=None, ends=None):
        return [self.said(source) for source in sources]

    def judge(self, sources, targets) -> Judged:
        same = [self.said(s) == list(t) for s, t in zip(sources, targets, strict=True)]
        likely = np.where(same, np.log(0.9), np.log(0.001))
        return Judged(np.asarray(same), np.asarray(same), likely, np.ones(len(same), int))


def test_scripted_networks_disagree_where_one_of_them_errs_and_know_it():
    right, errs = Scripted("none"), Scripted("f2")
    reading = SMALL.read(errs, right, {"other1": errs, "other2": right})
    pool = reading.tables["pool"]
    begins = np.asarray([errs.learner.family.chain(r).startswith("f2") for r in pool["rank"]])
    apart = np.asarray(pool["disagreement"])
    # Two of three networks agree: four of six ordered pairs are surprised.
    np.testing.assert_allclose(apart[begins], (4 * -np.log(0.001) - 2 * np.log(0.9)) / 6)
    np.testing.assert_allclose(apart[~begins], -np.log(0.9))
    assert pool["error"] == begins.astype(float).tolist()
    assert reading.values["warranted"] == pytest.approx(1)
    assert abs(reading.controls["shuffled"]["warranted"]) < 0.2
    assert reading.controls["planted"]["warranted"] > 0.5
    # A twin that errs nowhere has no errors to foretell.
    assert reading.controls["untrained"]["warranted"] == 0
    wanted = most_uncertain(reading, int(begins.sum()))
    assert wanted == tuple(np.asarray(pool["rank"])[begins].tolist())


def test_a_network_that_errs_alone_is_not_foretold_by_the_others():
    right, errs = Scripted("none"), Scripted("f2")
    reading = SMALL.read(errs, right, {"other1": right, "other2": right})
    apart, error = (np.asarray(reading.tables["pool"][n]) for n in ("disagreement", "error"))
    # It disagrees with them where it errs, by what it says itself.
    assert correlation(apart, error) == pytest.approx(1)
    assert reading.values["warranted"] == 0


def test_networks_that_err_alike_are_sure_and_wrong():
    alike = {f"other{n}": Scripted("f2") for n in (1, 2)}
    reading = SMALL.read(Scripted("f2"), Scripted("none"), alike)
    assert reading.values["disagreement"] == pytest.approx(-np.log(0.9))
    assert reading.values["warranted"] == 0 and max(reading.tables["pool"]["error"]) == 1


def test_the_correlation_is_that_of_ranks_and_nothing_where_nothing_varies():
    rng = np.random.default_rng(0)
    a = rng.normal(size=50)
    b = a + rng.normal(size=50)
    assert correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert correlation(a, np.ones(50)) == 0


def test_ties_go_to_the_combination_that_comes_first():
    pool = {"rank": [9, 2, 4, 7], "disagreement": [0.5, 0.5, 0.1, 0.5], "error": [0.0] * 4}
    assert most_uncertain(Reading({}, {}, {"pool": pool}), 2) == (2, 7)
    with pytest.raises(InvalidRequest, match="combinations=5 or more"):
        most_uncertain(Reading({}, {}, {"pool": pool}), 5)


def test_only_some_of_a_large_pool_are_looked_at():
    subject = TEACHER.subject(first_weights(TEACHER))
    few = replace(SMALL, combinations=4)
    ranks = few.read(subject, subject, ensemble(few, TEACHER)).tables["pool"]["rank"]
    assert len(ranks) == len(set(ranks)) == 4 and ranks == sorted(ranks)


@dataclass(frozen=True)
class Seedless(Learner):
    steps: ClassVar[int] = 1  # pyright: ignore

    def program(self, precision="float32"): ...
    def prepare(self, given): ...
    def weights(self, state): ...
    def subject(self, weights, given=None): ...


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(InvalidRequest, match="no seeds to change"):
        SMALL.cells(Seedless())
    with pytest.raises(InvalidRequest, match="networks=2"):
        Uncertainty(networks=2)
    speaker = replace(SPEAKER, family=Functions(train_items=500, test_items=30))
    subject = speaker.subject(first_weights(speaker))
    with pytest.raises(NotApplicable, match="learns functions"):
        SMALL.read(subject, subject, {})
    chains = SPEAKER.subject(first_weights(SPEAKER))
    with pytest.raises(InvalidRequest, match="use draws=6 or less"):
        Uncertainty(draws=7).read(chains, chains, {})
