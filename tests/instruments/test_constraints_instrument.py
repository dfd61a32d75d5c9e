"""The instrument of constraints, on answers whose worth is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.constraints.baselines import moved
from recombine.errors import NotApplicable
from recombine.families._sequence import Item, SequenceFamily
from recombine.families.knapsack import KnapsackFamily
from recombine.families.listops import ListOps
from recombine.families.power_flow import PowerFlowFamily
from recombine.instruments import Constraints, check_instrument
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.lab import engine
from recombine.learners.next_token import NextToken
from recombine.learners.packing import decode
from recombine.models.sequence import SequenceModel

FEW = {"train_items": 20, "test_items": 30, "validation_items": 1, "beyond_items": 8}
KNAPSACK = KnapsackFamily(**FEW)
SMALL = SequenceModel(depth=1, width=8, heads=1, positions="learned")


def learner(family: SequenceFamily) -> NextToken:
    return NextToken(family=family, model=SMALL, row=96, rows=32, vocabulary=128, batch=2,
                     training_steps=10, evaluation_every=10, looks=("seen",))  # fmt: skip


class Says(SequenceSubject):
    """Answers by a script, in place of its network."""

    def __init__(self, spec: NextToken, weights: Any, corpus: Any, say: Callable[[str], str]):
        super().__init__(spec, weights, corpus)
        self.say = say

    def written(
        self, sources: Sequence[Any], longest: int | None = None, ends: Sequence[int] | None = None
    ) -> list[list[int]]:
        texts = [self.say(self.text(source)) for source in sources]
        return [self.numbers(text) if text else [] for text in texts]


@dataclasses.dataclass(frozen=True)
class Asked:
    """A family's corpus with a network that nobody trained, to put scripts in place of."""

    spec: NextToken
    weights: dict[str, np.ndarray]
    corpus: Any

    def says(self, say: Callable[[str], str]) -> Says:
        return Says(self.spec, self.weights, self.corpus, say)

    def read(self, say: Callable[[str], str], **settings: Any):
        return Constraints(**settings).read(self.says(say), self.says(lambda _: ""), {})


def asked(family: SequenceFamily) -> Asked:
    spec = learner(family)
    given = {name: material.make() for name, material in spec.materials().items()}
    weights = spec.weights(engine.initial_state(spec, spec.prepare(given), "float32"))
    return Asked(spec, weights, decode(given["corpus"]))


@pytest.fixture(scope="module")
def knapsack() -> Asked:
    return asked(KNAPSACK)


@pytest.fixture(scope="module")
def case9() -> Asked:
    return asked(PowerFlowFamily(train_items=4, test_items=12, validation_items=1, beyond_items=3))


@pytest.mark.parametrize("name", ["knapsack", "case9"])
def test_the_solver_satisfies_every_constraint_everywhere(name, request):
    subject = request.getfixturevalue(name)
    values = subject.read(subject.spec.family.solve).values
    splits = ["seen", *(f"unseen_{way}" for way in subject.spec.family.ways)]
    for split in splits:
        for metric in ("parsed", "exact", "strict", "micro", "macro", "box"):
            assert values[f"{split}_{metric}"] == 1
        assert values[f"{split}_squared_error"] == values[f"{split}_gap"] == 0


def test_shares_pool_the_constraints_of_all_instances(knapsack):
    """Every item is put into the knapsack: the guess, counted here by hand."""

    def everything(source: str) -> str:
        return " ".join("1" * source.split(" ").count("item"))

    reading = knapsack.read(everything)
    part = knapsack.corpus.splits["test"]
    subject = knapsack.says(everything)
    held: dict[str, list[bool]] = {}
    for source, target in zip(part.sources, part.targets, strict=True):
        item = Item(subject.text(source), subject.text(target))
        verdict = KNAPSACK.verdict(item, everything(item.source))
        for rule, holds in zip(verdict.constraints, verdict.satisfied, strict=True):
            held.setdefault(rule.kind, []).append(bool(holds))
    for kind, each in held.items():
        assert reading.values[f"seen_{kind}"] == pytest.approx(np.mean(each))
        assert reading.controls["guess"][f"seen_{kind}"] == pytest.approx(np.mean(each))
    everyone = np.concatenate(list(held.values()))
    assert reading.values["seen_micro"] == pytest.approx(everyone.mean())
    assert reading.values["seen_macro"] == pytest.approx(
        np.mean([np.mean(v) for v in held.values()])
    )
    assert reading.values["seen_strict"] == 0 and "seen_gap" not in reading.values


def test_what_cannot_be_read_satisfies_nothing_and_has_no_error(knapsack):
    reading = knapsack.read(lambda _: "")
    for metric in ("parsed", "strict", "micro", "box", "exact"):
        assert reading.values[f"seen_{metric}"] == 0
    assert "seen_squared_error" not in reading.values


def test_the_rows_without_competence_are_of_the_same_instances(case9):
    reading = case9.read(case9.spec.family.solve)
    controls = reading.controls
    assert controls["guess"]["seen_micro"] == pytest.approx(39 / 51)
    assert controls["rounded"]["seen_strict"] == controls["planted"]["seen_strict"] == 1
    assert controls["noise"]["seen_strict"] == controls["shuffled"]["seen_strict"] == 0
    assert controls["copied"]["seen_squared_error"] < controls["noise"]["seen_squared_error"]
    rows = reading.tables["rows"]
    assert {"network", "guess", "copied", "noise", "rounded", "rounded to 2", "shuffled"} <= set(
        rows["answer"]
    )
    assert len({len(column) for column in rows.values()}) == 1


def test_right_answers_to_other_instances_are_feasible_by_chance_only(knapsack):
    shuffled = knapsack.read(KNAPSACK.solve).controls["shuffled"]["seen_strict"]
    assert 0 <= shuffled < 0.6


def test_without_beyond_only_instances_like_training_are_read(knapsack):
    reading = knapsack.read(KNAPSACK.solve, beyond=False, items=5)
    assert set(reading.tables["rows"]["split"]) == {"seen"}


def test_a_family_without_constraints_is_refused():
    sums = asked(ListOps(train_items=20, test_items=5, beyond_items=5, validation_items=5, depth=1))
    with pytest.raises(NotApplicable, match="family of constrained problems"):
        sums.read(lambda _: "1")


def test_the_contract_is_kept_by_a_network(knapsack):
    instrument = Constraints(items=12, beyond=False, planted=4)
    check_instrument(instrument, knapsack.spec, knapsack.weights, knapsack.weights)


@given(st.lists(st.integers(1, 3), max_size=12))
def test_an_answer_is_handed_to_another_instance_of_its_size_and_never_stays(sizes):
    given_ = [np.full(size, float(n)) for n, size in enumerate(sizes)]
    found = moved(given_, sizes)
    for n, (size, x) in enumerate(zip(sizes, found, strict=True)):
        if sizes.count(size) == 1:
            assert x is None
        else:
            assert x is not None and len(x) == size and x[0] != n
    kept = [x[0] for x in found if x is not None]
    assert len(set(kept)) == len(kept)
