"""Long multiplication: trained on small numbers, asked for longer ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from recombine.errors import InvalidRequest
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily
from recombine.graphs.arithmetic import multiplication_graph
from recombine.graphs.scratchpads import write_multiplication

MOST_DIGITS = 6
_SOURCE = re.compile(r"([1-9]\d*)\*([1-9]\d*)")
_FINAL = re.compile(r"=(\d+)$")

Size = tuple[int, int]  # digits of the first number, and of the second


@dataclass(frozen=True)
class Multiplication(SequenceFamily):
    """Products of whole numbers, with the steps of long multiplication or the answer alone.

    Training draws evenly from all pairs of the sizes in `train_sizes` (98,091 by default). Beyond
    is one split for each of `beyond_sizes`, named by its size; an item's part says whether the
    graph of its computation is wider than any trained one (more steps at once), deeper (more one
    after another) or both.

    An answer alone is written as usual. With `scratchpad` it follows its steps, and long numbers
    are written units first, so that each digit follows from what stands before it (see
    `recombine.graphs.scratchpads`). Question and answer have at most 114 characters in training
    (3 x 2 digits), 169 for 3 x 3 and 225 for 4 x 3; there are 18 different characters.

    >>> Multiplication().solve("35*9")
    '9(5:45+0=45>5>5,3:27+4=31>513)513=513'
    >>> Multiplication(scratchpad=False).solve("35*9")
    '315'
    """

    version: ClassVar[int] = 2  # digits are judged as a product is written, without a zero in front
    name: ClassVar[str] = "multiplication"
    tokens: ClassVar[Literal["word", "character"]] = "character"
    unit: ClassVar[str] = "digits away from the nearest trained size"
    instruction: ClassVar[str] = (
        "Multiply the two numbers. Answer in exactly the form of the examples: where they show "
        "the steps of long multiplication, write the steps, then the product."
    )

    train_sizes: tuple[Size, ...] = ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2))
    beyond_sizes: tuple[Size, ...] = ((3, 3), (4, 1), (4, 2), (4, 3))
    scratchpad: bool = True
    train_items: int = 78_472
    test_items: int = 2_000
    validation_items: int = 600
    beyond_items: int = 1_000

    def check(self) -> None:
        if not self.train_sizes or not self.beyond_sizes:
            raise InvalidRequest("train_sizes and beyond_sizes need at least one size, such as 3x2")
        sizes = (*self.train_sizes, *self.beyond_sizes)
        for size in sizes:
            if len(size) != 2 or not 1 <= size[1] <= size[0] <= MOST_DIGITS:
                raise InvalidRequest(
                    f"size {'x'.join(map(str, size))}: the first number has 1 to {MOST_DIGITS} "
                    "digits, the second at least one and no more than the first"
                )
            if sizes.count(size) > 1:
                raise InvalidRequest(
                    f"size {_named(size)} is given twice: each is either trained on or beyond"
                )
        few = min(self.train_items, self.test_items, self.validation_items, self.beyond_items)
        if few < 1:
            raise InvalidRequest(f"a split of {few} items: every split needs at least one")
        pairs = sum(map(_pairs, self.train_sizes))
        if self.train_items + self.test_items > pairs:
            raise InvalidRequest(
                f"{self.train_items} items to train on and {self.test_items} to test: the trained "
                f"sizes have {pairs} pairs in all"
            )
        scarce = min(self.beyond_sizes, key=_pairs)
        if self.beyond_items + self._validated_each > _pairs(scarce):
            raise InvalidRequest(
                f"{self.beyond_items} items beyond training and {self._validated_each} to validate "
                f"on: size {_named(scarce)} has {_pairs(scarce)} pairs"
            )

    @property
    def _validated_each(self) -> int:
        return -(-self.validation_items // len(self.beyond_sizes))

    def corpus(self, seed: int) -> Corpus:
        self.check()
        near = self.rng(seed, "pairs").choice(
            sum(map(_pairs, self.train_sizes)), self.train_items + self.test_items, replace=False
        )
        borders = np.cumsum([0, *map(_pairs, self.train_sizes)])
        which = np.searchsorted(borders, near, side="right") - 1
        known = [
            self._item(size := self.train_sizes[w], int(rank), _named(size), 0)
            for w, rank in zip(which, near - borders[which], strict=True)
        ]
        splits = {TRAIN: known[: self.train_items], TEST: known[self.train_items :]}
        held: list[list[Item]] = []
        beyond: dict[str, list[Item]] = {}
        for size in self.beyond_sizes:
            part, novelty = self._what_is_new(size), _distance(size, self.train_sizes)
            ranks = self.rng(seed, f"beyond {_named(size)}").choice(
                _pairs(size), self.beyond_items + self._validated_each, replace=False
            )
            items = [self._item(size, int(rank), part, novelty) for rank in ranks]
            beyond[_named(size)] = items[: self.beyond_items]
            held.append(items[self.beyond_items :])
        in_turn = [item for row in zip(*held, strict=True) for item in row]
        return Corpus({**splits, VALIDATION: in_turn[: self.validation_items], **beyond})

    def solve(self, source: str) -> str:
        found = _SOURCE.fullmatch(source)
        if found is None:
            raise InvalidRequest(f"{source[:60]!r} is no product: expected a question such as 35*9")
        graph = multiplication_graph(int(found[1]), int(found[2]), zeros=True)
        return write_multiplication(graph.values) if self.scratchpad else str(graph.answer)

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer`: the product is right, whatever the steps; `first_digit`, `last_digit`; and
        `digits`, the share of right ones."""
        digits = self.digits_right(item, answer)
        return {
            "exact": float(answer == item.target),
            "answer": float(self.product(answer) == self.product(item.target)),
            "first_digit": float(digits[0]),
            "last_digit": float(digits[-1]),
            "digits": sum(digits) / len(digits),
        }

    def digits_right(self, item: Item, answer: str) -> tuple[bool, ...]:
        """Which digits of the product are right, as it is written, leftmost first.

        Of an answer that has another number of digits none is: which of them stands for which
        nobody can tell, and a zero put in front would be right wherever the product begins so.

        >>> family = Multiplication(scratchpad=False)
        >>> family.digits_right(Item("25*3", "75"), "65")
        (False, True)
        """
        said, wanted = self.product(answer), self.product(item.target)
        if len(said) != len(wanted):
            return (False,) * len(wanted)
        return tuple(a == b for a, b in zip(said, wanted, strict=True))

    def product(self, answer: str) -> str:
        """The product that an answer ends with, as usually written; "" if there is none."""
        if not self.scratchpad:
            return answer if answer.isascii() and answer.isdecimal() else ""
        found = _FINAL.search(answer)
        return found[1][::-1] if found else ""

    def _item(self, size: Size, rank: int, part: str, novelty: int) -> Item:
        (low, _), (lower, high) = _range(size[0]), _range(size[1])
        x, y = low + rank // (high - lower), lower + rank % (high - lower)
        target = _steps(x, y) if self.scratchpad else str(x * y)
        return Item(f"{x}*{y}", target, part, novelty)

    def _what_is_new(self, size: Size) -> str:
        """Which of width and depth exceed those of all trained graphs, at their fullest."""
        trained = [_fullest(one) for one in self.train_sizes]
        width, depth = _fullest(size)
        new = []
        if width > max(one[0] for one in trained):
            new.append("wider")
        if depth > max(one[1] for one in trained):
            new.append("deeper")
        return " and ".join(new) or "new size"


def _steps(x: int, y: int) -> str:
    rows = [_row(x, int(d)) for d in reversed(str(y))]
    shifted = [f"{row}{'0' * j}{row[:-1].rpartition('>')[2]}" for j, row in enumerate(rows)]
    return f"{'+'.join(shifted)}={str(x * y)[::-1]}"


@lru_cache(maxsize=100_000)
def _row(x: int, y: int) -> str:
    """One row of the scratchpad, each number by a formula of its own rather than step by step."""
    digits = len(str(x))
    steps = []
    for i in range(digits):
        digit = x // 10**i % 10
        carry = x % 10**i * y // 10**i
        result = digit * y + carry
        if i + 1 < digits:
            output = str(x * y % 10 ** (i + 1)).zfill(i + 1)
            written = f"{result % 10}>{output[::-1]}"
        else:
            written = str(x * y).zfill(digits)[::-1]
        steps.append(f"{digit}:{digit * y}+{carry}={result}>{written}")
    return f"{y}({','.join(steps)})"


@lru_cache
def _fullest(size: Size) -> tuple[int, int]:
    """Width and depth of the graph in which every step that can occur does: all digits are 9."""
    graph = multiplication_graph(10 ** size[0] - 1, 10 ** size[1] - 1)
    return graph.width, graph.depth


def _range(digits: int) -> tuple[int, int]:
    return 10 ** (digits - 1), 10**digits


def _pairs(size: Size) -> int:
    return 81 * 10 ** (size[0] + size[1] - 2)


def _named(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _distance(size: Size, others: Sequence[Size]) -> int:
    return min(abs(size[0] - other[0]) + abs(size[1] - other[1]) for other in others)
