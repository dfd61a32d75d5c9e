"""Constrained problems as sequences: an instance told in words, its optimum as the answer."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from recombine.constraints.problem import Problem, Verdict, judge
from recombine.errors import InvalidRequest
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily

P = TypeVar("P", bound=Problem)
Answer = Float[np.ndarray, "variable"]


class Case(NamedTuple, Generic[P]):
    """An instance, the kind it is of and how far from training it is."""

    problem: P
    part: str
    novelty: int


@dataclass(frozen=True)
class ConstrainedFamily(SequenceFamily, Generic[P]):
    """A family of sequences whose answers have to obey constraints and should be optimal.

    An answer is scored by `exact`, `parsed`, `strict` (every constraint holds), `micro` and
    `macro` (shares of constraints, plain and averaged over kinds), one score for each kind the
    instance has, `gap` (how much worse than the optimum, as a share of it: 1 if more than that or
    not feasible) and `squared_error` (mean over variables in units of their range: 1 if more than
    that or not readable).
    """

    train_items: int = 5_000
    test_items: int = 500
    validation_items: int = 200
    beyond_items: int = 300

    def check(self) -> None:
        for name in ("train_items", "test_items", "validation_items", "beyond_items"):
            if getattr(self, name) < 1:
                raise InvalidRequest(
                    f"{name} is {getattr(self, name)}: every split needs at least 1 item"
                )

    @property
    @abc.abstractmethod
    def ways(self) -> tuple[str, ...]:
        """The splits beyond training."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, way: str) -> Case[P]:
        """One random instance; `way` is a split beyond training, or "train" for one like those."""

    @abc.abstractmethod
    def optima(self, problems: Sequence[P]) -> list[Answer | None]:
        """The optimum of each instance; None where there is none."""

    @abc.abstractmethod
    def write(self, problem: P) -> str:
        """The instance in words."""

    @abc.abstractmethod
    def read(self, source: str) -> P:
        """The instance that was written; InvalidRequest says what is wrong with the text."""

    @abc.abstractmethod
    def write_answer(self, x: Answer) -> str:
        """An answer in words."""

    @abc.abstractmethod
    def read_answer(self, problem: P, answer: str) -> Answer:
        """The answer that was written; InvalidRequest says what is wrong with the text."""

    @abc.abstractmethod
    def copied(self, problems: Sequence[P], optima: Sequence[Answer]) -> list[Answer]:
        """What somebody would answer to each instance who knows the optimum of another one."""

    def settled(self, x: Answer) -> bool:
        """Whether the optimum's text cannot depend on the last bits of a computation."""
        return True

    def cases(self, rng: np.random.Generator, way: str, count: int) -> list[tuple[Case[P], Answer]]:
        """Instances that have an optimum, all different, with it."""
        seen: set[str] = set()
        return [(case, x) for case, x, _ in self._fresh(rng, way, count, seen)]

    def corpus(self, seed: int) -> Corpus:
        return _corpus(self, seed)

    def solve(self, source: str) -> str:
        (x,) = self.optima([self.read(source)])
        if x is None:
            raise InvalidRequest(f"nothing satisfies every constraint of {source!r}")
        return self.write_answer(x)

    def verdict(self, item: Item, answer: str) -> Verdict:
        """How an answer fares, constraint by constraint."""
        problem = self.read(item.source)
        best = self.read_answer(problem, item.target)
        try:
            x = self.read_answer(problem, answer)
        except InvalidRequest:
            x = None
        return judge(problem, x, best)

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        return {"exact": float(answer == item.target), **verdict_scores(self.verdict(item, answer))}

    def _fresh(
        self, rng: np.random.Generator, way: str, count: int, seen: set[str]
    ) -> list[tuple[Case[P], Answer, str]]:
        found: list[tuple[Case[P], Answer, str]] = []
        for _ in range(50):
            if len(found) >= count:
                return found[:count]
            lot: dict[str, Case[P]] = {}
            for _ in range(min(count - len(found) + count // 20 + 8, 4096)):
                mixed = self.ways[rng.integers(len(self.ways))] if way == VALIDATION else way
                case = self.draw(rng, mixed)
                lot.setdefault(self.write(case.problem), case)
            lot = {source: case for source, case in lot.items() if source not in seen}
            for (source, case), x in zip(
                lot.items(), self.optima([c.problem for c in lot.values()]), strict=True
            ):
                if x is not None and self.settled(x) and len(found) < count:
                    seen.add(source)
                    found.append((case, x, source))
        if len(found) < count:
            raise InvalidRequest(
                f"{self.name} has no {count} different instances for {way!r}: "
                f"only {len(found)} were found; ask for fewer items or larger instances"
            )
        return found


def verdict_scores(verdict: Verdict) -> dict[str, float]:
    """A verdict as scores between 0 and 1, the same ones whatever the answer."""

    def capped(value: float) -> float:
        return 1.0 if math.isnan(value) else min(max(value, 0.0), 1.0)

    return {
        "parsed": float(verdict.parsed),
        "strict": float(verdict.strict),
        "micro": verdict.micro,
        "macro": verdict.macro,
        **verdict.by_kind,
        "gap": capped(verdict.gap),
        "squared_error": capped(verdict.squared_error),
    }


@functools.lru_cache(maxsize=16)
def _corpus(family: ConstrainedFamily[Any], seed: int) -> Corpus:
    """Kept in memory: the solver's work is worth doing once."""
    family.check()
    seen: set[str] = set()
    sizes = {
        TRAIN: family.train_items,
        TEST: family.test_items,
        VALIDATION: family.validation_items,
        **dict.fromkeys(family.ways, family.beyond_items),
    }
    splits: dict[str, tuple[Item, ...]] = {}
    for split, count in sizes.items():
        way = TRAIN if split == TEST else split
        fresh = family._fresh(family.rng(seed, split), way, count, seen)
        splits[split] = tuple(
            Item(source, family.write_answer(x), case.part, case.novelty)
            for case, x, source in fresh
        )
    return Corpus(splits)
