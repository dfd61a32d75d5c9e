"""The graph of choosing numbers, no two of them neighbours, with the largest sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest
from recombine.graphs.graph import ComputationGraph, GraphBuilder


def subsequence_graph(values: Sequence[int]) -> ComputationGraph:
    """The best sums from each place on, last place first; then which places are chosen.

    Among choices of equal sum, the one that takes earlier places: its list of marks (1 for
    chosen, 2 for not) is the smallest.

    >>> subsequence_graph([3, 2, 1, 5, 2]).answer
    '12212'
    """
    if not len(values):
        raise InvalidRequest("an empty list has no subsequence: give at least one number")
    n = len(values)
    grown = GraphBuilder()
    a = [grown.source(f"a{i}", int(value)) for i, value in enumerate(values)]
    best, with_it = _best_sums(grown, a)
    marks, free = [], None
    for i in range(n):
        chosen = grown.step(f"equal[{i}]", "equal", _equal, best[i], with_it[i])
        if free is not None:
            chosen = grown.step(f"chosen[{i}]", "and", _both, chosen, free)
        marks.append(grown.step(f"mark[{i}]", "mark", _mark, chosen))
        if i + 1 < n:
            free = grown.step(f"free[{i + 1}]", "not", _not, chosen)
    grown.step("answer", "concat", _joined, *marks)
    return grown.graph()


def _best_sums(grown: GraphBuilder, a: list[str]) -> tuple[list[str], list[str]]:
    """For each place the best sum from there on, and the best that takes this place."""
    n = len(a)
    best, with_it = [""] * n, list(a)
    for i in reversed(range(n)):
        if i + 2 < n:
            with_it[i] = grown.step(f"sum[{i}]", "add", _add, a[i], best[i + 2])
            of = (best[i + 1], with_it[i])
        else:
            of = tuple(a[i:])
        best[i] = grown.step(f"best[{i}]", "max", _max_or_zero, *of)
    return best, with_it


def _add(a: int, b: int) -> int:
    return a + b


def _max_or_zero(*of: int) -> int:
    return max(*of, 0)


def _equal(a: int, b: int) -> bool:
    return a == b


def _both(a: bool, b: bool) -> bool:
    return a and b


def _not(a: bool) -> bool:
    return not a


def _mark(chosen: bool) -> int:
    return 1 if chosen else 2


def _joined(*marks: int) -> str:
    return "".join(map(str, marks))


def best_sums(values: Int[np.ndarray, "list place"]) -> Int[np.ndarray, "2 list place"]:
    """For many lists at once: the best sum from each place on, and the best that takes the place.

    >>> best_sums(np.array([[3, -2, 5]])).tolist()
    [[[8, 5, 5]], [[8, -2, 5]]]
    """
    count, n = values.shape
    best = np.zeros((count, n + 2), np.int64)  # beyond the end the best sum is 0
    with_it = np.zeros((count, n), np.int64)
    for i in reversed(range(n)):
        with_it[:, i] = values[:, i] + best[:, i + 2]
        best[:, i] = np.maximum(np.maximum(best[:, i + 1], with_it[:, i]), 0)
    return np.stack([best[:, :n], with_it])


def best_marks(values: Int[np.ndarray, "list place"]) -> Int[np.ndarray, "list place"]:
    """For many lists at once: 1 where a number is chosen, 2 where it is not.

    >>> best_marks(np.array([[3, 2, 1, 5, 2]])).tolist()
    [[1, 2, 2, 1, 2]]
    """
    best, with_it = best_sums(values)
    marks = np.full(values.shape, 2)
    free = np.ones(len(values), bool)
    for i in range(values.shape[1]):
        chosen = free & (best[:, i] == with_it[:, i])
        marks[chosen, i] = 1
        free = ~chosen
    return marks
