"""What every family of sequences provides: items of text, what is new in them, a solver."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from recombine.errors import InvalidRequest
from recombine.seeds import host_seed

TRAIN, TEST, VALIDATION = "train", "test", "validation"
ALWAYS = 0  # the seed of what is drawn alike for every seed


class Item(NamedTuple):
    """A question and its answer, as text; words are parted by single spaces."""

    source: str
    target: str
    part: str = ""  # which kind of item it is: a COGS case, "depth 4"
    novelty: int = 0  # how far from training, in the family's own unit; 0 for nothing new


@dataclass(frozen=True, eq=False)
class Corpus:
    """The items of a family under one seed, by split.

    `train`; `test`, fresh items like those of training; one split for each way of going `beyond`
    training; and `validation`, items from beyond training that nothing else uses, on which a
    configuration may be chosen. Where all items there are come from one pool, whatever the seed,
    these are the same ones for every seed (drawn by `ALWAYS`).
    """

    splits: Mapping[str, Sequence[Item]] = field(default_factory=dict)

    def __getitem__(self, split: str) -> Sequence[Item]:
        return self.splits[split]

    @property
    def beyond(self) -> tuple[str, ...]:
        """The splits that go beyond training, in the family's order."""
        return tuple(s for s in self.splits if s not in (TRAIN, TEST, VALIDATION))


@dataclass(frozen=True)
class SequenceFamily(abc.ABC):
    """Tasks whose questions and answers are text, built from known pieces.

    A subclass is a frozen dataclass: sizes and the kind of split are its fields, and everything is
    a function of those and a seed. Text is cut into words (at spaces) or into characters.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str]
    tokens: ClassVar[Literal["word", "character"]] = "word"
    unit: ClassVar[str]  # what one step of novelty is: "levels deeper than trained"
    # What a live model is told before it sees examples; ends with a full stop.
    instruction: ClassVar[str]

    def check(self) -> None:  # noqa: B027, most cannot be asked for the impossible
        """Refuses sizes that cannot be, with a sentence."""

    @abc.abstractmethod
    def corpus(self, seed: int) -> Corpus:
        """All items; the same for the same seed, and no source in two splits."""

    @abc.abstractmethod
    def solve(self, source: str) -> str:
        """The right answer, by rule; InvalidRequest for a source that is none."""

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """How good an answer is, all in [0, 1]: `exact`, the very text, and further scores by name,
        such as `answer` where only the end of it counts."""
        return {"exact": float(answer == item.target)}

    def rng(self, seed: int, what: str) -> np.random.Generator:
        """A stream of its own for each thing that is drawn."""
        return np.random.default_rng(host_seed(seed, f"{self.name}/{what}"))


def tokenize(text: str, tokens: Literal["word", "character"]) -> list[str]:
    """
    >>> tokenize("jump twice", "word"), tokenize("ab c", "character")
    (['jump', 'twice'], ['a', 'b', ' ', 'c'])
    """
    return text.split(" ") if tokens == "word" and text else list(text)


def untokenize(found: Sequence[str], tokens: Literal["word", "character"]) -> str:
    return (" " if tokens == "word" else "").join(found)


def shares(
    items: Sequence[Item], rng: np.random.Generator, *sizes: int
) -> list[list[Item]]:  # fmt: skip
    """Disjoint random parts of given sizes, and last what is left."""
    if sum(sizes) > len(items):
        raise InvalidRequest(f"{sum(sizes)} items are wanted of {len(items)}")
    order = rng.permutation(len(items))
    borders = np.cumsum([0, *sizes, len(items) - sum(sizes)])
    return [[items[i] for i in order[a:b]] for a, b in pairwise(borders)]
