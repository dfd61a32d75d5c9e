"""How good a plan can be at all: upper bounds on what a budget covers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from recombine.collecting.problem import Problem, State


def most_covered(
    problem: Problem,
    plan: Int[np.ndarray, "row place"],
    everything: Int[np.ndarray, "row place"] | None,
    min_count: int,
) -> float:
    """A share of all interactions that no plan within the budget can pass.

    Two arguments, and the better of them. A row is in one cell of each choice of places, so so
    many rows cover at most the so many heaviest cells of each table. And where every combination
    was looked at: what a plan adds to another one is at most the budget times the best gain per
    cost that is left (coverage is submodular).
    """
    lacking, weight = problem.lacking, float(problem.needs.weight.sum())
    if not weight:
        return 1.0
    reach = min(lacking, _by_table(problem))
    if everything is not None and len(everything) and np.isfinite(problem.budget):
        reach = min(reach, _by_gain(problem, plan, everything))
    return min(1.0, 1 - (lacking - reach) / (min_count * weight))


def _by_table(problem: Problem) -> float:
    if not np.isfinite(problem.budget):
        return problem.lacking
    needs, per = problem.needs, problem.per_combination
    inter = needs.interactions
    taken = int(problem.budget / _cheapest(problem) + 1e-9)
    times = np.bincount(inter.table_of, minlength=len(inter.tables))
    ends = [*inter.starts[1:], inter.size - 1]
    total = 0.0
    for start, end, choices in zip(inter.starts, ends, times, strict=True):
        lack, weight = needs.lack[start:end], needs.weight[start:end]
        steps = np.concatenate([np.repeat(weight * per, lack // per), weight * (lack % per)])
        total += float(np.sort(steps)[::-1][: taken * int(choices)].sum())
    return total


def _cheapest(problem: Problem) -> float:
    """The least a combination can cost."""
    space, extra = problem.space, 0.0
    for name, start, size in zip(space.names, space.first_node, space.sizes, strict=True):
        if name not in space.lists:  # a list may be short
            extra += float(problem.node_costs[start : start + size].min())
    return problem.per_combination * (1 + extra)


def _by_gain(problem: Problem, plan: np.ndarray, everything: np.ndarray) -> float:
    cells, costs = problem.needs.interactions.cells(everything), problem.costs(everything)
    state, per = State(problem), problem.per_combination
    best, lacking = problem.lacking, problem.lacking
    for line in [*plan, None]:
        worth = problem.needs.weight * np.minimum(state.left, per)
        got = lacking - float(problem.needs.weight @ state.left)
        best = min(best, got + problem.budget * float((worth[cells].sum(1) / costs).max()))
        if line is not None:
            state.add(line)
    return best
