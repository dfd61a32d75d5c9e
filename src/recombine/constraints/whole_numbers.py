"""Families in whole numbers: digits for words, larger instances and new pairs of rules beyond."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from recombine.constraints.family import Answer, Case, ConstrainedFamily
from recombine.constraints.integer import IntegerProblem, optimum
from recombine.errors import InvalidRequest

N = TypeVar("N", bound=IntegerProblem)

Widths = Mapping[str, tuple[int, ...]]
"""For each word that opens a clause, how many digits each of its numbers has."""


def clause(widths: Widths, word: str, *numbers: int) -> str:
    """
    >>> clause({"cap": (1, 2)}, "cap", 3, 7)
    'cap 3 0 7'
    """
    digits = [f"{n:0{width}d}" for n, width in zip(numbers, widths[word], strict=True)]
    return " ".join([word, *"".join(digits)])


def clauses(widths: Widths, source: str) -> dict[str, list[tuple[int, ...]]]:
    """The numbers of each clause of a text; refuses what is no sequence of clauses.

    >>> clauses({"cap": (1, 2)}, "cap 3 0 7 cap 4 1 2")
    {'cap': [(3, 7), (4, 12)]}
    """
    found: dict[str, list[tuple[int, ...]]] = {word: [] for word in widths}
    words, place = source.split(" "), 0
    while place < len(words):
        word = words[place]
        if word not in widths:
            raise InvalidRequest(
                f"{word!r} is word {place + 1} of the source: expected one of {', '.join(widths)}"
            )
        place, numbers = place + 1, []
        for width in widths[word]:
            digits = words[place : place + width]
            if len(digits) < width or any(len(d) != 1 or not d.isdecimal() for d in digits):
                need = sum(widths[word])
                raise InvalidRequest(f"{word!r} is not followed by {need} digits in {source!r}")
            numbers.append(int("".join(digits)))
            place += width
        found[word].append(tuple(numbers))
    return found


def only(found: Mapping[str, list[tuple[int, ...]]], word: str) -> tuple[int, ...]:
    """The numbers of the one clause that has to be there."""
    if len(found[word]) != 1:
        raise InvalidRequest(f"the source has {len(found[word])} clauses {word!r}: it needs one")
    return found[word][0]


@dataclass(frozen=True)
class WholeNumbers(ConstrainedFamily[N], Generic[N]):
    """Families in whole numbers below 10, digits being the words of the answer.

    Training has instances of `fewest` to `most` things under up to two of three further rules;
    one pair of rules is never trained together. Beyond training: instances of up to `beyond_most`
    things (`larger`), and those under the pair of rules never trained together (`rules`).
    """

    train_items: int = 20_000

    fewest: int = 4
    most: int = 5
    beyond_most: int = 7

    @property
    def ways(self) -> tuple[str, ...]:
        return ("larger", "rules")

    @property
    @abc.abstractmethod
    def rules(self) -> tuple[str, str, str]:
        """The further rules; the first two are never trained together."""

    @abc.abstractmethod
    def instance(self, rng: np.random.Generator, size: int, rules: frozenset[str]) -> N:
        """One random instance of a size under some rules."""

    def check(self) -> None:
        super().check()
        if not 4 <= self.fewest <= self.most < self.beyond_most <= 9:
            raise InvalidRequest(
                f"sizes are fewest={self.fewest}, most={self.most}, beyond_most={self.beyond_most}:"
                " they must rise from at least 4 to at most 9, with beyond_most above most"
            )

    def draw(self, rng: np.random.Generator, way: str) -> Case[N]:
        first, second, third = self.rules
        trained = [(), (first,), (second,), (third,), (first, third), (second, third)]
        size = int(rng.integers(self.fewest, self.most + 1))
        chosen = trained[rng.integers(len(trained))]
        novelty = 0
        if way == "larger":
            size = int(rng.integers(self.most + 1, self.beyond_most + 1))
            novelty = size - self.most
        elif way == "rules":
            chosen, novelty = (first, second), 1
        part = f"size {size}" if way == "larger" else " and ".join(chosen) or "plain"
        return Case(self.instance(rng, size, frozenset(chosen)), part, novelty)

    def optima(self, problems: Sequence[N]) -> list[Answer | None]:
        return [optimum(problem) for problem in problems]

    def write_answer(self, x: Answer) -> str:
        return " ".join(str(round(value)) for value in x)

    def read_answer(self, problem: N, answer: str) -> Answer:
        words, size = answer.split(" "), len(problem.variables)
        if len(words) != size:
            raise InvalidRequest(f"the answer has {len(words)} words: it needs {size} digits")
        if wrong := _not_digits(words):
            raise InvalidRequest(f"{wrong!r} is no digit: an answer is digits parted by spaces")
        return np.array(words, float)

    def copied(self, problems: Sequence[N], optima: Sequence[Answer]) -> list[Answer]:
        """The optimum of the next instance that has as many variables."""
        out: list[Answer] = []
        for i, problem in enumerate(problems):
            others = (*optima[i + 1 :], *optima[:i])
            alike = (x for x in others if len(x) == len(problem.variables))
            out.append(next(alike, problem.guess()))
        return out


def _not_digits(words: Iterable[str]) -> str:
    return next((word for word in words if len(word) != 1 or word not in "0123456789"), "")
