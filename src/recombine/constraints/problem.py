"""What every constrained problem has in common: named variables, tagged constraints, a verifier.

A constraint is of one of four kinds, and a share of satisfied constraints means little unless it
is told by kind: a `box` is nearly free, an `equality` forgives nothing.

- box: one variable within its bounds (and whole, if it counts something);
- inequality: a weighted sum of variables below a limit;
- equality: something that must come out exactly;
- coupling: variables tied to one another by products, order or counts (the power through a line,
  one job before another, how many assets are held at all).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from recombine.errors import InvalidRequest

Kind = Literal["box", "inequality", "equality", "coupling"]
KINDS: tuple[Kind, ...] = get_args(Kind)
READABLE = 0.95  # of the answers of a network that may speak for or against a claim

EXACT = 1e-6
"""The tolerance of constraints on whole numbers."""


@dataclass(frozen=True)
class Variable:
    """A number to be chosen; `scale` is how far apart two values of it can sensibly be."""

    name: str
    low: float
    high: float
    scale: float
    whole: bool = False


@dataclass(frozen=True)
class Constraint:
    """What has to hold, up to `tolerance`; `scale` is the size of the quantity it limits."""

    name: str
    kind: Kind
    tolerance: float = EXACT
    scale: float = 1.0


class Problem(abc.ABC):
    """A problem with named variables, tagged constraints and an objective.

    Answers are rows of numbers in the order of `variables`; everything takes any number of them
    at once, along leading axes.
    """

    maximise: ClassVar[bool] = False
    statement: ClassVar[str]  # what a live model is told about the data it sees

    @property
    @abc.abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """What is to be chosen, in order."""

    @property
    @abc.abstractmethod
    def constraints(self) -> tuple[Constraint, ...]:
        """What has to hold, in order."""

    @abc.abstractmethod
    def excess(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch rule"]:
        """By how much each constraint is broken; 0 where it holds, whatever the tolerance."""

    @abc.abstractmethod
    def objective(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch"]:
        """What is to be made as small (or, if `maximise`, as large) as possible."""

    @abc.abstractmethod
    def guess(self) -> Float[np.ndarray, "variable"]:
        """An answer that takes no thought."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """The instance, for a reader or a live model; plain JSON."""

    def vector(self, solution: Mapping[str, float]) -> Float[np.ndarray, "variable"]:
        """The named values in order; refuses missing, unknown and unusable ones by name."""
        names = [variable.name for variable in self.variables]
        missing = [name for name in names if name not in solution]
        extra = [name for name in solution if name not in names]
        if missing or extra:
            wrong = f"lacks {', '.join(missing)}" if missing else f"names {', '.join(extra)}"
            raise InvalidRequest(
                f"the solution {wrong}: give one number for each of {', '.join(names)}"
            )
        for name in names:
            value = solution[name]
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            try:
                usable = number and math.isfinite(float(value))
            except OverflowError:
                usable = False
            if not usable:
                raise InvalidRequest(f"{name} is {value!r:.40}: it must be a finite number")
        return np.array([float(solution[name]) for name in names])

    def check(self, solution: Mapping[str, float]) -> dict[str, float]:
        """By how much each constraint is broken beyond its tolerance (0: it holds), by name."""
        verdict = judge(self, self.vector(solution))
        return {
            rule.name: 0.0 if holds else float(amount)
            for rule, holds, amount in zip(
                self.constraints, verdict.satisfied, verdict.violation, strict=True
            )
        }


@dataclass(frozen=True, eq=False)
class Verdict:
    """How one answer fares: each constraint's violation, and the shares that hold.

    An answer that could not be read satisfies nothing; its violations are infinite. `gap` and
    `squared_error` are NaN where there is nothing to compare with.
    """

    constraints: tuple[Constraint, ...]
    violation: Float[np.ndarray, "rule"]
    parsed: bool = True
    gap: float = math.nan  # how much worse than the optimum, as a share of it
    squared_error: float = math.nan  # mean over variables, each in units of its scale

    @property
    def satisfied(self) -> Bool[np.ndarray, "rule"]:
        return self.violation <= np.array([rule.tolerance for rule in self.constraints])

    @property
    def strict(self) -> bool:
        """Whether every constraint holds."""
        return bool(self.satisfied.all())

    @property
    def micro(self) -> float:
        """The share of all constraints that hold."""
        return float(self.satisfied.mean())

    @property
    def by_kind(self) -> dict[Kind, float]:
        """The share that holds of each kind the problem has."""
        satisfied, kinds = self.satisfied, np.array([rule.kind for rule in self.constraints])
        return {kind: float(satisfied[kinds == kind].mean()) for kind in KINDS if kind in kinds}

    @property
    def macro(self) -> float:
        """The mean over kinds of the share that holds."""
        return float(np.mean(list(self.by_kind.values())))

    @property
    def normalised_violation(self) -> float:
        """The mean violation, each in units of the quantity its constraint limits."""
        return float((self.violation / [rule.scale for rule in self.constraints]).mean())


def judge(
    problem: Problem,
    x: Float[np.ndarray, "variable"] | None,
    best: Float[np.ndarray, "variable"] | None = None,
) -> Verdict:
    """The verdict on an answer (None: it could not be read), against the optimum if it is known.

    A feasible answer can beat the optimum by what the tolerances allow: its gap is then negative.
    """
    if x is None:
        unread = np.full(len(problem.constraints), np.inf)
        return Verdict(problem.constraints, unread, parsed=False)
    verdict = Verdict(problem.constraints, problem.excess(x))
    if best is None:
        return verdict
    scale = np.array([variable.scale for variable in problem.variables])
    error = float(np.mean(((x - best) / scale) ** 2))
    gap = math.nan
    if verdict.strict:
        reached, optimum = float(problem.objective(x)), float(problem.objective(best))
        worse = optimum - reached if problem.maximise else reached - optimum
        gap = worse / max(abs(optimum), EXACT)
    return Verdict(problem.constraints, verdict.violation, gap=gap, squared_error=error)


def summary(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """One row of a table over many answers.

    `micro` and each kind pool the constraints of all answers, read or not; `macro` is the mean of
    the kinds; `violation` and `squared_error` are means over answers that could be read; `gap` is
    the mean over those that hold strictly. NaN where there are none.
    """
    if not verdicts:
        raise InvalidRequest("there are no answers to sum up: give at least one verdict")
    kinds = np.array([rule.kind for verdict in verdicts for rule in verdict.constraints])
    satisfied = np.concatenate([verdict.satisfied for verdict in verdicts])
    read = [verdict for verdict in verdicts if verdict.parsed]
    by_kind = {kind: float(satisfied[kinds == kind].mean()) for kind in KINDS if kind in kinds}
    return {
        "parsed": len(read) / len(verdicts),
        "strict": sum(verdict.strict for verdict in verdicts) / len(verdicts),
        "micro": float(satisfied.mean()),
        "macro": float(np.mean(list(by_kind.values()))),
        **by_kind,
        "violation": _mean([verdict.normalised_violation for verdict in read]),
        "squared_error": _mean([verdict.squared_error for verdict in read]),
        "gap": _mean([verdict.gap for verdict in verdicts if verdict.strict]),
    }


def outside(
    x: Float[np.ndarray, "*batch variable"], variables: Sequence[Variable]
) -> Float[np.ndarray, "*batch variable"]:
    """How far each value is from its bounds, and from a whole number if it has to be one."""
    low, high = np.array([(v.low, v.high) for v in variables]).T
    whole = np.array([v.whole for v in variables])
    beyond = np.maximum(np.maximum(low - x, x - high), 0.0)
    return np.maximum(beyond, np.where(whole, np.abs(x - np.round(x)), 0.0))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
