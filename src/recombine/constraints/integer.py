"""Problems in whole numbers, and the proof of their optimum.

Of several equally good answers the canonical one comes first in dictionary order, so that every
instance has one right answer. Small instances are enumerated; larger ones are solved as mixed
integer programs by HiGHS, which has to prove optimality with a gap of zero.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.constraints.problem import Problem
from recombine.errors import RecombineError

ENUMERATED = 5_000
"""The most candidate answers that are all looked at."""


@dataclass(frozen=True, eq=False)
class Program:
    """A mixed integer program: minimise cost . y, low <= rows y <= high, y whole and bounded.

    The first columns are the problem's variables, in order; any others only help to state it.
    """

    cost: Float[np.ndarray, "column"]
    rows: Float[np.ndarray, "row column"]
    low: Float[np.ndarray, "row"]
    high: Float[np.ndarray, "row"]
    least: Float[np.ndarray, "column"]
    most: Float[np.ndarray, "column"]


class IntegerProblem(Problem):
    """A problem whose variables are whole numbers within bounds and whose objective is whole."""

    @abc.abstractmethod
    def program(self) -> Program:
        """The same problem in the form a solver takes."""

    @property
    def levels(self) -> Int[np.ndarray, "variable"]:
        """How many values each variable can take."""
        return np.array([int(v.high - v.low) + 1 for v in self.variables])


def optimum(problem: IntegerProblem) -> Float[np.ndarray, "variable"] | None:
    """The first in dictionary order of the best answers; None if no answer is feasible."""
    small = np.prod(problem.levels.astype(float)) <= ENUMERATED
    return enumerate_all(problem) if small else prove(problem)


def enumerate_all(problem: IntegerProblem) -> Float[np.ndarray, "variable"] | None:
    """The optimum by looking at every answer within the bounds."""
    levels = problem.levels
    if (levels < 1).any():
        return None
    low = np.array([v.low for v in problem.variables])
    places = np.unravel_index(np.arange(np.prod(levels)), tuple(levels))
    x = np.stack(places, axis=-1) + low
    tolerance = np.array([rule.tolerance for rule in problem.constraints])
    x = x[(problem.excess(x) <= tolerance).all(-1)]
    if not len(x):
        return None
    value = problem.objective(x)
    return x[np.argmax(value) if problem.maximise else np.argmin(value)]  # the first of the best


def prove(problem: IntegerProblem) -> Float[np.ndarray, "variable"] | None:
    """The optimum by branch and bound, proved with a gap of zero."""
    from scipy.optimize import milp

    program, levels = problem.program(), problem.levels
    if (levels < 1).any():
        return None
    # Whole objectives differ by 1 or more, and all of the tie-breaking weights together stay below.
    ties = np.concatenate([np.cumprod(levels[::-1].astype(float))[::-1], [1.0]])
    cost = program.cost * ties[0]
    cost[: len(levels)] += ties[1:]
    found = milp(
        cost,
        constraints=(program.rows, program.low, program.high),
        bounds=(program.least, program.most),
        integrality=np.ones(len(cost)),
        options={"mip_rel_gap": 0.0},
    )
    if found.status == 2:
        return None
    if found.status != 0 or found.mip_gap != 0:
        raise RecombineError(f"HiGHS did not prove an optimum: {found.message}")
    return np.round(found.x[: len(levels)]) + 0.0


class Rows:
    """Collects the rows of a program one sentence at a time."""

    def __init__(self, columns: int):
        self.columns = columns
        self.found: list[tuple[np.ndarray, float, float]] = []

    def add(
        self, columns: list[int], weights: list[float], low: float = -np.inf, high: float = np.inf
    ) -> None:
        row = np.zeros(self.columns)
        np.add.at(row, columns, weights)
        self.found.append((row, low, high))

    def program(
        self,
        cost: Float[np.ndarray, "column"],
        least: Float[np.ndarray, "column"],
        most: Float[np.ndarray, "column"],
    ) -> Program:
        rows = np.array([row for row, _, _ in self.found]).reshape(-1, self.columns)
        low, high = (np.array([entry[i] for entry in self.found], float) for i in (1, 2))
        return Program(cost.astype(float), rows, low, high, least.astype(float), most.astype(float))
