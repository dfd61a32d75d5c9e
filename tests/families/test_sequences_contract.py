"""Every family of sequences, and one written by a user, keeps the contract; broken ones are told why."""  # noqa: E501

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recombine._lazy import load
from recombine.errors import RecombineError
from recombine.families import SEQUENCES, Corpus, Item, SequenceFamily, check_sequence_family
from recombine.families._sequence import shares

FOLDERS = [os.environ.get(name, "") for name in ("RECOMBINE_TEST_DATA", "RECOMBINE_DATA")]
COGS = [Path(folder) / "cogs" for folder in FOLDERS if folder]
# Sizes that most families have, and further ones; what a family does not have is left out.
FEW = {"test_items": 30, "beyond_items": 30, "validation_items": 20}
SMALL: dict[str, Mapping[str, Any]] = {
    "arithmetic": {"train_items": 600},
    "functions": {"train_items": 500},
    "listops": {"train_items": 200},
    "pcfg": {"train_items": 300},
    "programs": {"train_items": 400},
    "zebra": {"train_items": 60},
    "multiplication": {"train_items": 300},
    "subsequence": {"train_length": 4, "longer": 2, "reach": 3},
    "strings": {"train_items": 300, "sentences": 10},
    "power-flow": {"train_items": 10, "test_items": 4, "beyond_items": 4, "validation_items": 4},
    "portfolio": {"train_items": 40},
    "scheduling": {"train_items": 40},
    "knapsack": {"train_items": 40},
}


def small(name: str) -> SequenceFamily:
    try:
        kind = load(SEQUENCES[name])
    except ModuleNotFoundError as error:
        if str(error.name).startswith("recombine"):
            raise
        pytest.skip(f"{name} needs {error.name}")
    fields = {field.name for field in dataclasses.fields(kind)}
    family = kind(**{k: v for k, v in {**FEW, **SMALL.get(name, {})}.items() if k in fields})
    if name == "cogs":
        folder = next((folder for folder in COGS if (folder / "train.tsv").is_file()), None)
        if folder is None:
            pytest.skip("RECOMBINE_TEST_DATA and RECOMBINE_DATA name no folder with cogs/")
        family = dataclasses.replace(
            family, folder=str(folder), train_items=200, items_per_case=5, validation_per_case=2
        )
    return family


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_a_registered_family_of_sequences_keeps_the_contract(name):
    family = small(name)
    check_sequence_family(family)
    assert family.name.replace("_", "-") == name
    assert family.instruction.endswith(".")


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_another_seed_asks_other_questions(name):
    family = small(name)
    first, second = ({item.source for item in family.corpus(seed)["test"]} for seed in (0, 1))
    assert len(first & second) < len(first)


# A user's own family, complete: 20 lines.
@dataclass(frozen=True)
class Backwards(SequenceFamily):
    """Says letters backwards; beyond training are longer rows of letters."""

    name: ClassVar[str] = "backwards"
    unit: ClassVar[str] = "letters more than trained"
    instruction: ClassVar[str] = "Say the letters backwards."
    longest: int = 4

    def corpus(self, seed: int) -> Corpus:
        rows = [row for n in range(1, self.longest + 2) for row in product("xyz", repeat=n)]
        items = [
            Item(" ".join(row), " ".join(row[::-1]), novelty=max(0, len(row) - self.longest))
            for row in rows
        ]
        known, new = ([i for i in items if bool(i.novelty) == n] for n in (False, True))
        test, train = shares(known, self.rng(seed, "known"), 20)
        validation, longer = shares(new, self.rng(seed, "new"), 30)
        return Corpus({"train": train, "test": test, "validation": validation, "longer": longer})

    def solve(self, source: str) -> str:
        return " ".join(source.split(" ")[::-1])


def test_a_users_own_family_keeps_it():
    check_sequence_family(Backwards())
    check_sequence_family(Backwards(longest=3), seed=5)


@dataclass(frozen=True)
class Altered(Backwards):
    """One item is not as it should be."""

    split: str = "train"
    place: int = 0
    source: str | None = None
    target: str | None = None
    novelty: int | None = None

    def corpus(self, seed: int) -> Corpus:
        splits = {name: list(part) for name, part in super().corpus(seed).splits.items()}
        item = splits[self.split][self.place]
        splits[self.split][self.place] = item._replace(
            source=item.source if self.source is None else self.source,
            target=item.target if self.target is None else self.target,
            novelty=item.novelty if self.novelty is None else self.novelty,
        )
        return Corpus(splits)


@dataclass(frozen=True)
class Forward(Backwards):
    def solve(self, source: str) -> str:
        return source


@dataclass(frozen=True)
class Shared(Backwards):
    def corpus(self, seed: int) -> Corpus:
        splits = dict(super().corpus(seed).splits)
        splits["test"] = [*splits["test"], splits["train"][3]]
        return Corpus(splits)


@dataclass(frozen=True)
class Fickle(Backwards):
    """Draws from a generator nobody seeded."""

    drawn: ClassVar[list[int]] = []

    def corpus(self, seed: int) -> Corpus:
        self.drawn.append(seed)
        return super().corpus(len(self.drawn))


@dataclass(frozen=True)
class Within(Backwards):
    """Nothing goes beyond training."""

    def corpus(self, seed: int) -> Corpus:
        splits = dict(super().corpus(seed).splits)
        del splits["longer"]
        return Corpus(splits)


@dataclass(frozen=True)
class Unchosen(Backwards):
    def corpus(self, seed: int) -> Corpus:
        return Corpus({**super().corpus(seed).splits, "validation": []})


@dataclass(frozen=True)
class Lenient(Backwards):
    def scores(self, item: Item, answer: str) -> dict[str, float]:
        return {"exact": 1.0}


@dataclass(frozen=True)
class Strict(Backwards):
    def scores(self, item: Item, answer: str) -> dict[str, float]:
        return {"exact": 0.0}


@dataclass(frozen=True)
class Unsaid(Backwards):
    instruction: ClassVar[str] = ""


@dataclass(frozen=True)
class Listed(Backwards):
    letters: Any = dataclasses.field(default_factory=lambda: ["x", "y"])


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        (Shared(), "is both in 'train' and in 'test'"),
        (Forward(), r"the solver answers '.*' to '.*', where '.*' is right"),
        (
            Altered(split="train", place=0, source="x  y", target="y  x"),
            "single spaces, got 'x  y'",
        ),
        (Altered(split="test", place=0, target="x y "), "single spaces, got 'x y '"),
        (Altered(split="longer", place=1, novelty=0), "positive beyond, got .* in 'longer'"),
        (
            Altered(split="validation", place=1, novelty=0),
            "positive beyond, got .* in 'validation'",
        ),
        (Altered(split="train", place=5, novelty=1), "novelty must be 0 in train and test"),
        (
            Altered(split="longer", place=2, novelty=-1),
            "novelty must be 0 in train and test and positive",
        ),
        (Fickle(), "a corpus must follow its seed"),
        (Within(), "needs a split that goes beyond training"),
        (Unchosen(), "needs items in its split 'validation'"),
        (Lenient(), "an empty answer to '.*' must not score as exact"),
        (Strict(), "the right answer must score 1"),
        (Unsaid(), "must state its instruction"),
        (Listed(), "must be hashable"),
    ],
    ids=lambda given: "" if isinstance(given, str) else type(given).__name__,
)
def test_a_broken_family_is_told_what_is_wrong(family, sentence):
    with pytest.raises(RecombineError, match=sentence):
        check_sequence_family(family)
