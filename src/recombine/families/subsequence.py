"""Choosing numbers that are no neighbours for the largest sum: trained on short lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily
from recombine.graphs.choices import best_marks, best_sums, subsequence_graph
from recombine.graphs.scratchpads import write_subsequence

MOST_LISTS = 1_000_000
MOST_RANKS = 1 << 62
SUFFIX = 3  # numbers of an ending that training may favour
_SOURCE = re.compile(r"-?\d+( -?\d+)*")
_YES_NO = ("no", "yes")


@dataclass(frozen=True)
class Subsequence(SequenceFamily):
    """Which numbers of a list to take, no two of them neighbours, for the largest sum.

    The answer marks each number with 1 (taken) or 2 (not); among choices of equal sum it is the
    one that comes first in order. Numbers are whole, from -`reach` to `reach`. Training sees
    `train_share` of all lists up to `train_length`, 141,724 by default; beyond is one split for
    each of the next `longer` lengths.

    With `scratchpad` the answer follows the best sums from each place on, and the choices (see
    `recombine.graphs.scratchpads`). Question and answer have at most 20 words for lists of 10, and
    126 with steps; there are 11 different words, and 21 with steps.

    The last `SUFFIX` numbers of a list settle a part of its computation. All such endings are
    parted at random, by the seed, into halves 1 and 2. With `favours` 1 or 2, lists that end in
    that half are `odds` times as common in training as the others; nothing else differs, and
    all other splits are the same.

    >>> Subsequence().solve("3 2 1 5 2")
    '1 2 2 1 2'
    >>> Subsequence(scratchpad=True).solve("3 -2")
    '-2 : 0 , 3 : 3 | yes yes yes 1 , no no no 2 = 1 2'
    """

    name: ClassVar[str] = "subsequence"
    unit: ClassVar[str] = "numbers more than the longest trained list"
    instruction: ClassVar[str] = (
        "Choose numbers from the list, no two of them neighbours, so that their sum is as large as "
        "it can be; choosing none is allowed, with sum 0. Mark each number with 1 if it is chosen "
        "and 2 if not; if several choices are best, give the list of marks that comes first in "
        "order. Answer in exactly the form of the examples: where they show steps, write the "
        "steps, then the marks."
    )

    train_length: int = 5
    scratchpad: bool = False
    reach: int = 5
    longer: int = 5
    train_share: float = 0.8
    test_items: int = 2_000
    validation_items: int = 500
    beyond_items: int = 1_000
    favours: Literal[0, 1, 2] = 0
    odds: int = 20

    def check(self) -> None:
        if min(self.train_length, self.longer) < 1:
            raise InvalidRequest(
                f"train_length {self.train_length}, longer {self.longer}: expected 1 or more"
            )
        if not 1 <= self.reach <= 9:
            raise InvalidRequest(f"reach {self.reach}: numbers go from -reach to reach, 1 to 9")
        if self._base**self._longest > MOST_RANKS:
            raise InvalidRequest(
                f"lists of {self._longest} numbers from -{self.reach} to {self.reach} are too many "
                "to be numbered: lower longer, train_length or reach"
            )
        if self._lists > MOST_LISTS:
            raise InvalidRequest(
                f"train_length {self.train_length} has {self._lists} lists: expected no more than "
                f"{MOST_LISTS}, so train on shorter ones or lower reach"
            )
        few = min(self.test_items, self.validation_items, self.beyond_items)
        if few < 1:
            raise InvalidRequest(f"a split of {few} items: every split needs at least one")
        left = self._lists - self._train_items
        if self._train_items < 1 or self.test_items > left:
            raise InvalidRequest(
                f"train_share {self.train_share} of {self._lists} lists leaves {max(left, 0)}: "
                f"expected some to train on, and {self.test_items} to test"
            )
        if self.beyond_items + self._validated_each > self._base ** (self.train_length + 1):
            raise InvalidRequest(
                f"{self.beyond_items} items beyond training and {self._validated_each} to validate "
                f"on: there are {self._base ** (self.train_length + 1)} lists of "
                f"{self.train_length + 1} numbers"
            )
        if self.favours not in (0, 1, 2) or self.odds < 1:
            raise InvalidRequest(
                f"favours {self.favours}, odds {self.odds}: expected half 1 or 2, or 0 for "
                "neither, and odds of at least 1"
            )
        if self.favours:
            self._check_favours()

    def _check_favours(self) -> None:
        if self.train_length < SUFFIX:
            raise InvalidRequest(
                f"train_length {self.train_length}: endings to favour have {SUFFIX} numbers"
            )
        # Half of all lists less those to test on, all of which may be of one half.
        most = (self._base**SUFFIX // 2) * self._each - self.test_items
        if self._of_half(True) > most:
            raise InvalidRequest(
                f"train_share {self.train_share} at odds {self.odds} takes {self._of_half(True)} "
                f"lists that end in one half, where {max(most, 0)} are sure to be there: lower "
                "train_share, odds or test_items"
            )

    @property
    def _each(self) -> int:
        """Lists that end in the same way."""
        return sum(self._base**n for n in range(self.train_length - SUFFIX + 1))

    def _of_half(self, favoured: bool) -> int:
        """How many training lists end in the favoured half, or in the other."""
        ended = round(self.train_share * self._base**SUFFIX * self._each)
        more = round(ended * self.odds / (self.odds + 1))
        return more if favoured else ended - more

    @property
    def _base(self) -> int:
        return 2 * self.reach + 1

    @property
    def _longest(self) -> int:
        return self.train_length + self.longer

    @property
    def _lists(self) -> int:
        return sum(self._base**n for n in range(1, self.train_length + 1))

    @property
    def _train_items(self) -> int:
        return round(self.train_share * self._lists)

    @property
    def _validated_each(self) -> int:
        return -(-self.validation_items // self.longer)

    def corpus(self, seed: int) -> Corpus:
        self.check()
        order = self.rng(seed, "lists").permutation(self._lists)
        tested = order[self._train_items :][: self.test_items]
        trained = order[: self._train_items]
        if self.favours:
            trained = self._favoured(np.setdiff1d(order, tested), seed)
        held: list[list[Item]] = []
        beyond: dict[str, list[Item]] = {}
        for n in range(self.train_length + 1, self._longest + 1):
            ranks = self.rng(seed, f"length {n}").choice(
                self._base**n, self.beyond_items + self._validated_each, replace=False
            )
            items = self._items(self._of_rank(ranks, n))
            beyond[f"length-{n}"] = items[: self.beyond_items]
            held.append(items[self.beyond_items :])
        in_turn = [item for row in zip(*held, strict=True) for item in row]
        return Corpus(
            {
                TRAIN: self._short(trained),
                TEST: self._short(tested),
                VALIDATION: in_turn[: self.validation_items],
                **beyond,
            }
        )

    def _favoured(self, left: Int[np.ndarray, " list"], seed: int) -> Int[np.ndarray, " list"]:
        """Training lists of which those that end in the favoured half are more common."""
        order = self.rng(seed, f"favours {self.favours}").permutation(left)
        n, rank = self._length_and_rank(order)
        half = np.where(n < SUFFIX, 0, self._half(seed)[rank % self._base**SUFFIX])
        more, less = self._of_half(True), self._of_half(False)
        wanted = {0: self._train_items - more - less, self.favours: more, 3 - self.favours: less}
        taken = [np.flatnonzero(half == one)[:count] for one, count in wanted.items()]
        return order[np.sort(np.concatenate(taken))]

    def _half(self, seed: int) -> Int[np.ndarray, " ending"]:
        endings = self._base**SUFFIX
        half = np.ones(endings, int)
        half[self.rng(seed, "halves").permutation(endings)[: endings // 2]] = 2
        return half

    def halves(self, sources: Sequence[str], seed: int) -> Int[np.ndarray, " list"]:
        """The half (1 or 2) in which each list ends under a seed; 0 for lists that are too short.

        >>> Subsequence().halves(["3 -2 5", "1 3 -2 5", "5"], seed=0).tolist()
        [1, 1, 0]
        """
        half, found = self._half(seed), np.zeros(len(sources), int)
        for place, source in enumerate(sources):
            numbers = [int(word) + self.reach for word in source.split(" ")[-SUFFIX:]]
            if len(numbers) == SUFFIX:
                rank = sum(n * self._base**i for i, n in enumerate(reversed(numbers)))
                found[place] = half[rank]
        return found

    def solve(self, source: str) -> str:
        if not _SOURCE.fullmatch(source):
            raise InvalidRequest(
                f"{source[:60]!r} is no list of numbers: expected a question such as '3 -2 5'"
            )
        graph = subsequence_graph([int(word) for word in source.split(" ")])
        return write_subsequence(graph.values) if self.scratchpad else " ".join(str(graph.answer))

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer`: all marks are right, whatever the steps; `marks`, the share of right ones; and
        `best`, whether the marked numbers are a choice with the largest sum."""
        wanted, said = self.marks(item.target), self.marks(answer)
        fits = len(said) == len(wanted)
        values = [int(word) for word in item.source.split(" ")]
        return {
            "exact": float(answer == item.target),
            "answer": float(said == wanted),
            "marks": sum(a == b for a, b in zip(said, wanted, strict=False)) * fits / len(wanted),
            "best": float(fits and _allowed(said) and _sum(values, said) == _sum(values, wanted)),
        }

    def marks(self, answer: str) -> list[str]:
        """The marks that an answer ends with."""
        return (answer.partition("=")[2] if self.scratchpad else answer).split()

    def _length_and_rank(
        self, numbers: Int[np.ndarray, " list"]
    ) -> tuple[Int[np.ndarray, " list"], Int[np.ndarray, " list"]]:
        """Lists are numbered from the shortest on; of each its length and its number there."""
        starts = np.cumsum([0, *(self._base**n for n in range(1, self.train_length + 1))])
        n = np.searchsorted(starts, numbers, side="right")
        return n, numbers - starts[n - 1]

    def _short(self, numbers: Int[np.ndarray, " list"]) -> list[Item]:
        """The lists with these numbers, in their order."""
        lengths, ranks = self._length_and_rank(numbers)
        found: dict[int, Item] = {}
        for n in np.unique(lengths):
            mine = np.flatnonzero(lengths == n)
            items = self._items(self._of_rank(ranks[mine], int(n)))
            found.update(zip(mine.tolist(), items, strict=True))
        return [found[place] for place in range(len(numbers))]

    def _of_rank(self, ranks: Int[np.ndarray, " list"], n: int) -> Int[np.ndarray, "list place"]:
        places = self._base ** np.arange(n - 1, -1, -1)
        return ranks[:, None] // places % self._base - self.reach

    def _items(self, values: Int[np.ndarray, "list place"]) -> list[Item]:
        n = values.shape[1]
        part, novelty = f"{n} numbers", max(0, n - self.train_length)
        marks = best_marks(values)
        answers = [" ".join(map(str, row)) for row in marks.tolist()]
        if self.scratchpad:
            steps = _steps(values, marks)
            answers = [f"{one} = {answer}" for one, answer in zip(steps, answers, strict=True)]
        return [
            Item(" ".join(map(str, row)), answer, part, novelty)
            for row, answer in zip(values.tolist(), answers, strict=True)
        ]


def _steps(
    values: Int[np.ndarray, "list place"], marks: Int[np.ndarray, "list place"]
) -> Iterable[str]:
    """The steps of many lists at once, from their tables rather than one after another."""
    best, with_it = best_sums(values)
    chosen = marks == 1
    free = np.ones_like(chosen)
    free[:, 1:] = ~chosen[:, :-1]
    facts = np.stack([best == with_it, free, chosen], axis=2).reshape(len(values), -1)
    # Few ways to choose are possible: each is put into words once.
    ways, way = np.unique(facts, axis=0, return_inverse=True)
    choices = [" , ".join(_place(*row[i : i + 3]) for i in range(0, len(row), 3)) for row in ways]
    sums = np.stack([with_it, best], axis=2)[:, ::-1].reshape(len(values), -1).tolist()
    for row, which in zip(sums, way.ravel().tolist(), strict=True):
        pairs = " , ".join(map(_pair, row[::2], row[1::2]))
        yield f"{pairs} | {choices[which]}"


def _place(equal: bool, free: bool, chosen: bool) -> str:
    return f"{_YES_NO[int(equal)]} {_YES_NO[int(free)]} {_YES_NO[int(chosen)]} {1 if chosen else 2}"


@lru_cache(maxsize=10_000)
def _pair(with_it: int, best: int) -> str:
    return " : ".join(" ".join(str(n)) if n > 9 else str(n) for n in (with_it, best))


def _allowed(marks: list[str]) -> bool:
    return set(marks) <= {"1", "2"} and "11" not in "".join(marks)


def _sum(values: list[int], marks: list[str]) -> int:
    return sum(value for value, mark in zip(values, marks, strict=True) if mark == "1")
