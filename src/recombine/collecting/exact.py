"""The best plan there is, for small cases: an integer programme over all combinations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.collecting.problem import Problem, State
from recombine.tables.rows import NONE

MOST_COMBINATIONS = 2_000
MOST_ENTRIES = 60_000
MOST_PARTS = 10  # of the value graph: every set of them is a constraint
NODES = 400  # of the search tree; a number of nodes, not of seconds, so that plans repeat
SCALE = 1e4  # the solver's tolerances are absolute


@dataclass(frozen=True, eq=False)
class Optimum:
    """Combinations an integer programme chose, and whether nothing can be better."""

    matrix: Int[np.ndarray, "row place"]
    proven: bool


def small(problem: Problem, matrix: Int[np.ndarray, "row place"] | None) -> bool:
    """Whether the programme is small enough to be solved in seconds."""
    if matrix is None or not len(matrix) or len(matrix) > MOST_COMBINATIONS:
        return False
    entries = len(matrix) * len(problem.needs.interactions.chosen)
    connecting = problem.weights()["connect"] > 0
    return entries <= MOST_ENTRIES and not (connecting and problem.parts > MOST_PARTS)


def best(problem: Problem, matrix: Int[np.ndarray, "row place"], cap: int) -> Optimum | None:
    """The combinations (of `matrix`, at most `cap` of them) that bring most within the budget.

    Where they bring everything that is lacking, the cheapest that do. None if the solver found
    nothing.
    """
    programme = _Programme(problem, matrix, cap)
    goals = problem.goals.order or ("",)
    floors: list[tuple[np.ndarray, float]] = []
    proven, chosen = True, None
    for goal in goals:
        worth = programme.worth(goal)
        found = programme.solve(-worth, floors)
        if found is None:
            return None
        chosen, sure = found
        proven &= sure
        floors.append((worth, float(worth @ chosen) * (1 - 1e-9)))
    assert chosen is not None
    picked = programme.picked(chosen)
    state = State(problem)
    for line in picked:
        state.add(line)
    if state.done:
        everything = programme.everything()
        floor = float(everything @ chosen) * (1 - 1e-9)
        found = programme.solve(programme.price(), [(everything, floor)])
        if found is not None:
            return Optimum(programme.picked(found[0]), proven and found[1])
    return Optimum(picked, proven)


class _Programme:
    """Columns: how often each combination is taken, rows gained by each interaction, joins of
    parts of the value graph, uses of each value one by one."""

    def __init__(self, problem: Problem, matrix: np.ndarray, cap: int):
        from scipy.sparse import coo_array

        self.problem, self.matrix = problem, matrix
        self.unit, per = problem.weights(), problem.per_combination
        needs, count = problem.needs, len(matrix)
        cells = needs.interactions.cells(matrix)
        self.open = np.flatnonzero(needs.lack > 0)
        place = np.full(len(needs.lack), -1)
        place[self.open] = np.arange(len(self.open))
        self.edges = self._edges()
        nodes = problem.space.nodes(matrix)
        used = np.unique(nodes[nodes != NONE])
        self.uses = [(int(v), j) for v in used for j in range(cap)] if self.unit["balance"] else []
        self.blocks = np.cumsum([0, count, len(self.open), len(self.edges), len(self.uses)])
        self.costs = problem.costs(matrix)
        upper = np.ones(self.blocks[-1])
        upper[:count] = min(cap, problem.repeats)
        upper[count : self.blocks[2]] = needs.lack[self.open]
        self.upper = upper
        entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        highs: list[np.ndarray] = []
        height = 0

        def constrain(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, high) -> None:
            nonlocal height
            entries.append((rows + height, columns, values))
            highs.append(np.atleast_1d(np.asarray(high, float)))
            height += len(highs[-1])

        # A row gained must be in a combination that is taken.
        line, choice = np.nonzero(place[cells] >= 0)
        which = place[cells[line, choice]]
        constrain(
            np.concatenate([which, np.arange(len(self.open))]),
            np.concatenate([line, count + np.arange(len(self.open))]),
            np.concatenate([np.full(len(which), -float(per)), np.ones(len(self.open))]),
            np.zeros(len(self.open)),
        )
        for number, edge in enumerate(self.edges):
            has = self._has(nodes, edge[0]) & self._has(nodes, edge[1])
            columns = np.append(np.flatnonzero(has), self.blocks[2] + number)
            values = np.append(np.full(int(has.sum()), -1.0), 1.0)
            constrain(np.zeros(len(columns), int), columns, values, 0.0)
        # Joins that form no circle: within any set of parts fewer than there are parts.
        parts = sorted({p for edge in self.edges for p in edge})
        for size in range(3, len(parts) + 1):
            for group in itertools.combinations(parts, size):
                inner = [i for i, edge in enumerate(self.edges) if set(edge) <= set(group)]
                columns = self.blocks[2] + np.array(inner)
                constrain(np.zeros(len(inner), int), columns, np.ones(len(inner)), size - 1)
        for v in used if self.uses else []:
            mine = [i for i, (other, _) in enumerate(self.uses) if other == v]
            times = (nodes == v).any(1)
            columns = np.append(np.flatnonzero(times), self.blocks[3] + np.array(mine))
            values = np.append(np.full(int(times.sum()), -1.0), np.ones(len(mine)))
            constrain(np.zeros(len(columns), int), columns, values, 0.0)
        if np.isfinite(problem.budget):
            constrain(np.zeros(count, int), np.arange(count), self.costs, problem.budget + 1e-9)
        rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        self.matrix_of = coo_array((values, (rows, columns)), shape=(height, self.blocks[-1]))
        self.high = np.concatenate(highs)

    def _edges(self) -> list[tuple[int, int]]:
        if not self.unit["connect"]:
            return []
        labels = np.unique(self.problem.labels[self.problem.labels >= 0])
        return list(itertools.combinations([int(label) for label in labels], 2))

    def _has(self, nodes: np.ndarray, part: int) -> np.ndarray:
        return ((nodes != NONE) & (self.problem.labels[nodes] == part)).any(1)

    def worth(self, goal: str = "") -> Float[np.ndarray, "column"]:
        """What each column brings: for one goal, or for all together."""
        problem, found = self.problem, np.zeros(self.blocks[-1])
        per = problem.per_combination
        if goal in ("", "cover"):
            weight = problem.needs.weight[self.open] * self.unit["cover"]
            found[self.blocks[1] : self.blocks[2]] = weight
        if goal in ("", "connect"):
            found[self.blocks[2] : self.blocks[3]] = self.unit["connect"]
        if goal in ("", "balance"):
            used = np.array([problem.usage[v] + per * j + 1 for v, j in self.uses])
            found[self.blocks[3] :] = self.unit["balance"] * np.log1p(per / used)
        # Each goal of an order is solved for alone, so its own scale is free.
        return found * (SCALE if goal == "" else SCALE / max(found.max(initial=0.0), 1e-300))

    def everything(self) -> Float[np.ndarray, "column"]:
        """1 for each row gained and each join."""
        found = np.zeros(self.blocks[-1])
        found[self.blocks[1] : self.blocks[3]] = 1.0
        found[self.blocks[2] : self.blocks[3]] *= bool(self.unit["connect"])
        found[self.blocks[1] : self.blocks[2]] *= bool(self.unit["cover"])
        return found

    def price(self) -> Float[np.ndarray, "column"]:
        """What each column costs."""
        return np.concatenate([self.costs, np.zeros(self.blocks[-1] - len(self.costs))])

    def solve(
        self, objective: np.ndarray, floors: list[tuple[np.ndarray, float]]
    ) -> tuple[np.ndarray, bool] | None:
        """The columns with the smallest objective that keep above the floors."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        whole = np.zeros(self.blocks[-1])
        whole[: len(self.costs)] = 1
        high, upper = self.high, self.upper
        constraints = [LinearConstraint(self.matrix_of.tocsc(), -np.inf, high)]  # pyright: ignore
        constraints += [LinearConstraint(row[None], floor, np.inf) for row, floor in floors]
        found = milp(
            objective, integrality=whole, bounds=Bounds(0, upper),  # pyright: ignore
            constraints=constraints,
            options={"node_limit": NODES, "mip_rel_gap": 1e-9},
        )  # fmt: skip
        if found.x is None:
            return None
        return found.x, found.status == 0

    def picked(self, columns: np.ndarray) -> Int[np.ndarray, "row place"]:
        """The combinations taken, each as often as it is."""
        return np.repeat(self.matrix, np.round(columns[: len(self.matrix)]).astype(int), axis=0)
