"""One question of what to collect, and how it stands while combinations are chosen."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.collecting.goals import Goals, Space
from recombine.collecting.needs import Needs, counted
from recombine.collecting.permits import Permits
from recombine.tables.rows import NONE, Rows


@dataclass(frozen=True, eq=False)
class Problem:
    """What is lacking, what a combination costs, and what each goal is worth.

    `labels` numbers the part of the value graph that each value lies in before anything is
    collected (-1 for a value that cannot be collected), `usage` the rows it has.
    """

    space: Space
    permits: Permits
    needs: Needs
    labels: Int[np.ndarray, "node"]
    usage: Float[np.ndarray, "node"]
    node_costs: Float[np.ndarray, "node"]
    goals: Goals
    budget: float
    per_combination: int = 1

    @property
    def parts(self) -> int:
        """How many parts the value graph has."""
        return len(np.unique(self.labels[self.labels >= 0]))

    @property
    def lacking(self) -> float:
        """All that could be gained for the goal to cover: weight x rows lacking."""
        return float(self.needs.weight @ self.needs.lack)

    def weights(self) -> dict[str, float]:
        """What one unit of each goal is worth: a row of an interaction, a join, a use."""
        lacking, joins = self.lacking, max(1, self.parts - 1)
        worth = self.needs.weight[self.needs.lack > 0]
        least = float(worth.min()) / lacking if len(worth) else 1.0
        goals = self.goals.weights({"cover": least, "connect": 1 / joins, "balance": 1.0})
        rows = self.budget if np.isfinite(self.budget) else 100.0
        uses = len(self.space.places) * np.log(2) * max(1.0, rows / self.per_combination)
        return {
            "cover": goals["cover"] / lacking if lacking else 0.0,
            "connect": goals["connect"] / joins,
            "balance": goals["balance"] / uses,
        }

    def costs(self, matrix: Int[np.ndarray, "row place"]) -> Float[np.ndarray, "row"]:
        """What each combination costs: 1 a row and the extra cost of its values, for all rows."""
        nodes = self.space.nodes(matrix)
        extra = np.where(nodes == NONE, 0.0, self.node_costs[nodes]).sum(1)
        return self.per_combination * (1 + extra)

    @property
    def repeats(self) -> int:
        """How often one combination may be taken: as often as an interaction needs its rows.

        For the sake of balance the same one could be taken again and again, which is nothing new:
        that is for those who ask for balance and nothing else.
        """
        if self.goals.asked == ("balance",):
            return 1 << 30
        return max(1, -(-int(self.needs.lack.max(initial=0)) // self.per_combination))

    def key(self, line: Int[np.ndarray, "place"]) -> bytes:
        """The same for the same combination, in whatever order a list has its values."""
        return np.sort(self.space.nodes(line[None])[0]).tobytes()


class State:
    """What the chosen combinations have brought so far; changed by `add` alone."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.unit = problem.weights()
        self.labels = problem.labels.copy()
        self.usage = problem.usage.copy()
        self.left = problem.needs.lack.copy()
        self.worth = self._worth(slice(None))

    def _worth(self, cells: np.ndarray | slice) -> np.ndarray:
        rows = np.minimum(self.left[cells], self.problem.per_combination)
        return self.problem.needs.weight[cells] * rows * self.unit["cover"]

    def joins(self, matrix: Int[np.ndarray, "row place"]) -> Int[np.ndarray, "row"]:
        """How many parts of the value graph each combination would join, less one."""
        nodes = self.problem.space.nodes(matrix)
        labels = np.where(nodes == NONE, self.labels[nodes[:, :1]], self.labels[nodes])
        labels.sort(axis=1)
        return (np.diff(labels, axis=1) != 0).sum(1)

    def liking(self) -> Float[np.ndarray, "node"]:
        """What using each value once more is worth for balance."""
        return self.unit["balance"] * np.log1p(self.problem.per_combination / (self.usage + 1))

    def gains(
        self, matrix: Int[np.ndarray, "row place"], cells: np.ndarray | None = None
    ) -> Float[np.ndarray, "row"]:
        """What each combination would add, all goals together."""
        if cells is None:
            cells = self.problem.needs.interactions.cells(matrix)
        nodes = self.problem.space.nodes(matrix)
        found = self.news(matrix, cells)
        return found + np.where(nodes == NONE, 0.0, self.liking()[nodes]).sum(1)

    def news(
        self, matrix: Int[np.ndarray, "row place"], cells: np.ndarray
    ) -> Float[np.ndarray, "row"]:
        """What each combination would add, balance apart."""
        return self.worth[cells].sum(1) + self.unit["connect"] * self.joins(matrix)

    def add(self, line: Int[np.ndarray, "place"]) -> None:
        """Takes a combination into the plan."""
        problem = self.problem
        cells = problem.needs.interactions.cells(line[None])[0]
        self.left[cells] = np.maximum(self.left[cells] - problem.per_combination, 0)
        self.worth[cells] = self._worth(cells)
        nodes = problem.space.nodes(line[None])[0]
        nodes = nodes[nodes != NONE]
        self.labels[np.isin(self.labels, self.labels[nodes])] = self.labels[nodes].min()
        self.usage[nodes] += problem.per_combination

    @property
    def covered(self) -> int:
        """Interactions that have all the rows they need."""
        needs = self.problem.needs
        return needs.covered + int(((needs.lack > 0) & (self.left == 0)).sum())

    @property
    def share(self) -> float:
        """The share of the weight of all interactions that is covered."""
        needs = self.problem.needs
        return 1 - float(needs.weight[self.left > 0].sum()) / (float(needs.weight.sum()) or 1.0)

    @property
    def parts(self) -> int:
        """How many parts the value graph has now."""
        return len(np.unique(self.labels[self.labels >= 0]))

    @property
    def done(self) -> bool:
        """Whether nothing is left of what was asked: to cover, and to connect."""
        covering = not self.unit["cover"] or not self.left.any()
        connecting = not self.unit["connect"] or self.parts <= 1
        return covering and connecting and self.problem.goals.asked != ("balance",)

    @property
    def balance(self) -> float:
        """How evenly values are used: entropy as a share of the most, averaged over factors."""
        space, shares = self.problem.space, []
        for start, size in zip(space.first_node, space.sizes, strict=True):
            kept = space.can_collect[start : start + size]
            used = self.usage[start : start + size][kept]
            if len(used) < 2 or not used.sum():
                continue
            p = used[used > 0] / used.sum()
            shares.append(max(0.0, -float(p @ np.log(p)) / np.log(len(used))))
        return float(np.mean(shares)) if shares else 0.0


def value_graph(
    space: Space, permits: Permits, rows: Rows | None, at_least: int
) -> tuple[Int[np.ndarray, "node"], Float[np.ndarray, "node"]]:
    """The part of the value graph that each value lies in, and how many rows have the value.

    Values are joined that share at least so many rows. Rules may keep values out: those that can
    never occur have part -1.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size, starts = sum(space.sizes), space.first_node
    usage, edges = np.zeros(size), [np.zeros((0, 2), np.int64)]
    can = np.concatenate([permits.possible((f,)) for f in range(len(space.names))])
    for (f,), used in counted(rows, [(f,) for f in range(len(space.names))]).items():
        usage[starts[f] : starts[f] + len(used)] = used
    pairs = itertools.combinations_with_replacement(range(len(space.names)), 2)
    for (f, g), shared in counted(rows, pairs).items():
        edges.append(np.argwhere(shared >= at_least) + starts[[f, g]])
    ends = np.concatenate(edges).T
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(size, size))
    labels = connected_components(graph, directed=False)[1]
    return np.where(can, labels, NONE), usage
