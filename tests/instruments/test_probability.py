"""What probability does to answers, read off answerers whose leaning is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy import special

from recombine.errors import NotApplicable
from recombine.families.listops import ListOps
from recombine.families.strings import Strings
from recombine.instruments import Probability, Reading, check_instrument
from recombine.instruments.probability import PLANTED, PULL
from recombine.instruments.sequence_subject import Judged, SequenceSubject
from recombine.learners.next_token import NextToken
from recombine.learners.packing import decode, encode
from recombine.models.sequence import SequenceModel
from recombine.seeds import Seeds
from recombine.trees import named

FAMILY = Strings(
    tasks=("cipher",), text="free", lexicon=40, shifts=8, words=3, train_items=300, test_items=50,
    sentences=100, validation_items=8,
)  # fmt: skip
LEARNER = NextToken(
    family=FAMILY, model=SequenceModel(depth=1, width=16, heads=2), row=64, rows=512,
    seeds=Seeds.all(0),
)  # fmt: skip


class Scripted(SequenceSubject):
    """Answers as it is told, source by source."""

    def __init__(self, learner: NextToken, answer: Callable[[str], str]):
        self.learner = learner
        self.corpus = decode(encode(learner.family.corpus(0), learner.family))
        self.said: dict[str, str] = {}
        self.give = answer

    def judge(self, sources, targets) -> Judged:
        exact = np.zeros(len(sources), bool)
        for n, (source, target) in enumerate(zip(sources, targets, strict=True)):
            text = self.text(source)
            if text not in self.said:
                self.said[text] = self.give(text)
            exact[n] = self.said[text] == self.text(target)
        return Judged(exact, exact, np.zeros(len(sources)), np.ones(len(sources), int))


def read(answer: Callable[[str], str], family: Strings = FAMILY) -> Reading:
    learner = dataclasses.replace(LEARNER, family=family)
    untrained = Scripted(learner, lambda source: "nothing")
    return Probability(sentences=100).read(Scripted(learner, answer), untrained, {})


def leaning(family: Strings, likely: Callable[[str], float], seed: int = 0) -> Callable[[str], str]:
    """Right with a chance that rises with something of the item."""
    rng = np.random.default_rng(seed)

    def answer(source: str) -> str:
        right = rng.random() < special.expit((likely(source) + 45) / 25)
        return family.solve(source) if right else "wrong"

    return answer


def of_output(source: str) -> float:
    return FAMILY._text_language.log_probability(FAMILY.solve(source))


def of_input(source: str) -> float:
    return FAMILY._text_language.log_probability(source.partition(" ")[2])


def test_one_who_follows_the_output_has_its_coefficient():
    found = read(leaning(FAMILY, of_output)).values
    sizes = [of_output(i.source) for s in FAMILY.corpus(0).beyond for i in FAMILY.corpus(0)[s]]
    wanted = np.std(sizes, ddof=1) / 25
    assert found["output"] == pytest.approx(wanted, abs=0.25) and found["output_p"] < 1e-4
    assert abs(found["input"]) < 0.25
    assert found["decode common high"] > found["decode common low"] + 0.3
    assert abs(found["encode common high"] - found["encode common low"]) < 0.2


def test_one_who_follows_the_input_has_the_other():
    found = read(leaning(FAMILY, of_input)).values
    assert found["input"] > 0.8 and abs(found["output"]) < 0.25


def test_the_placebo_is_measured_by_the_language_it_never_met():
    placebo = dataclasses.replace(FAMILY, uniform=True)
    assert read(leaning(placebo, of_output), placebo).values["output"] > 0.8


def test_the_scripted_answerer_is_recovered_and_shuffling_leaves_nothing():
    for seed in range(3):
        found = read(leaning(FAMILY, of_output, seed)).controls
        assert found["planted"]["output"] == pytest.approx(PLANTED, abs=0.3)
        assert abs(found["planted"]["input"]) < 0.3
        assert found["planted"]["ratio"] == pytest.approx(PULL, rel=0.5)
        assert abs(found["shuffled"]["output"]) < 0.15 and abs(found["shuffled"]["input"]) < 0.15
        assert found["untrained"]["decode common high"] == 0.0


def drawn_to_original(weight: float) -> Callable[[str], str]:
    rng, swaps = np.random.default_rng(0), FAMILY.swaps(0)

    def answer(source: str) -> str:
        if source not in swaps:
            return FAMILY.solve(source)
        swap = swaps[source]
        chances = np.asarray([weight, *[1.0] * len(swap.others)])
        return (swap.original, *swap.others)[rng.choice(len(chances), p=chances / chances.sum())]

    return answer


def test_wrong_answers_that_give_the_likely_sentence_are_counted_against_other_neighbours():
    likely, alike = read(drawn_to_original(20.0)), read(drawn_to_original(1.0))
    assert likely.values["adversarial_wrong"] == alike.values["adversarial_wrong"] == 200
    assert likely.values["ratio"] > 8 and likely.values["original"] > 0.7
    assert alike.values["ratio"] == pytest.approx(1, abs=0.5)
    shown = likely.tables["drawn"]
    assert shown["asked"] and not set(shown["right"]) & set(shown["said"])
    solved = [FAMILY.solve(source) for source in shown["asked"]]
    assert solved == shown["right"]


def test_one_who_is_always_right_has_no_ratio_to_speak_of():
    found = read(FAMILY.solve)
    assert found.values["seen"] == 1.0 and found.values["wrong"] == 0
    assert found.values["adversarial_wrong"] == 0 and found.values["ratio"] == 1.0
    assert np.isfinite(list(found.values.values())).all()
    assert len(found.tables["parts"]["task"]) == 16 and set(found.tables["parts"]["exact"]) == {1.0}


def test_networks_of_other_tasks_are_refused():
    learner = dataclasses.replace(LEARNER, family=ListOps(train_items=200, test_items=20))
    subject = Scripted(learner, lambda source: "")
    with pytest.raises(NotApplicable, match="trained on listops"):
        Probability().read(subject, subject, {})


def test_the_contract_holds_for_a_network():
    few = dataclasses.replace(LEARNER, family=dataclasses.replace(FAMILY, sentences=40))
    first, second = (
        named(few.model.draw(jax.random.key(n), vocabulary=few.vocabulary, length=few.row))
        for n in (0, 1)
    )
    check_instrument(Probability(sentences=40), few, first, second)
