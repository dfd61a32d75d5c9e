"""How errors must compound: bounds for wide and for deep computations, and their two rates.

`error` is the chance that a step goes wrong though its parents are right, `repair` the chance
that it comes out right though some parent is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from recombine.errors import InvalidRequest
from recombine.graphs.errors import parents_written
from recombine.graphs.graph import ComputationGraph, Written


def width_bound(error: float, parts: int, collision: float = 0.0) -> float:
    """The least chance of a wrong answer made of so many independent parts.

    `collision` is the chance that wrong parts still combine to the right answer.

    >>> round(width_bound(0.1, 2), 4)
    0.19
    """
    _probabilities(error=error, collision=collision)
    return 1 - collision - (1 - error) ** parts * (1 - collision)


def depth_bound(error: float, repair: float, steps: int) -> float:
    """The greatest chance of a right answer after so many steps, each from the one before.

    With b = 1 - error - repair it is b^n + (1 - b^n) repair / (repair + error), which falls to
    repair / (repair + error) however long the computation.

    >>> round(depth_bound(0.1, 0.0, 2), 4), round(depth_bound(0.1, 0.1, 1000), 4)
    (0.81, 0.5)
    """
    _probabilities(error=error, repair=repair)
    if error + repair == 0:
        return 1.0
    kept = (1 - error - repair) ** steps
    return kept + (1 - kept) * repair / (repair + error)


@dataclass(frozen=True)
class Rates:
    """How often steps fail of themselves, and how often they mend what came before."""

    error: float  # nan where no node had right parents
    repair: float  # nan where no node had a wrong parent
    with_right_parents: int
    with_a_wrong_parent: int
    left_out: int  # nodes that were not written, or with a parent that was not


def estimate_rates(graphs: Sequence[ComputationGraph], written: Sequence[Written]) -> Rates:
    """Both rates over all nodes whose own value and parents' values were written.

    >>> from recombine.graphs import multiplication_graph
    >>> graph = multiplication_graph(7, 9)
    >>> estimate_rates([graph], [graph.values]).error
    0.0
    """
    seen, right, left_out = [0, 0], [0, 0], 0
    for _, spoilt, done in _steps(graphs, written):
        if spoilt is None:
            left_out += 1
            continue
        seen[spoilt] += 1
        right[spoilt] += done
    return Rates(
        error=1 - right[0] / seen[0] if seen[0] else float("nan"),
        repair=right[1] / seen[1] if seen[1] else float("nan"),
        with_right_parents=seen[0],
        with_a_wrong_parent=seen[1],
        left_out=left_out,
    )


def errors_by_operation(
    graphs: Sequence[ComputationGraph], written: Sequence[Written]
) -> dict[str, float]:
    """How often each operation fails though its parents are right; none that was never tried.

    >>> from recombine.graphs import multiplication_graph
    >>> graph = multiplication_graph(7, 9)
    >>> sum(errors_by_operation([graph], [graph.values]).values())
    0.0
    """
    tried: dict[str, list[bool]] = {}
    for op, spoilt, done in _steps(graphs, written):
        if spoilt == 0:
            tried.setdefault(op, []).append(done)
    return {op: 1 - float(np.mean(found)) for op, found in tried.items()}


def _steps(
    graphs: Sequence[ComputationGraph], written: Sequence[Written]
) -> Iterator[tuple[str, int | None, bool]]:
    """Each step's operation, whether a parent was wrong (None if unknown), and if it is right."""
    for graph, values in zip(graphs, written, strict=True):
        for node in graph.nodes:
            if not node.parents:
                continue
            given = parents_written(graph, node, values)
            if values is None or given is None or node.name not in values:
                yield node.op, None, False
                continue
            wanted = tuple(graph.nodes[parent].value for parent in node.parents)
            yield node.op, int(given != wanted), values[node.name] == node.value


@dataclass(frozen=True)
class Decay:
    """A straight line through the logarithm of accuracy against depth."""

    slope: float
    r_squared: float  # 0 where accuracy rises, nan where it stays: neither is a decay


def accuracy_decay(depths: ArrayLike, accuracy: ArrayLike, items: ArrayLike) -> Decay:
    """How fast accuracy falls with depth, if it falls as if every step failed alike.

    Where none of so many `items` is right, half an item is taken to be.

    >>> found = accuracy_decay([1, 2, 3], [0.9, 0.81, 0.729], [100, 100, 100])
    >>> round(found.slope, 3), round(found.r_squared, 3)
    (-0.105, 1.0)
    """
    depth, right = np.asarray(depths, float), np.asarray(accuracy, float)
    logs = np.log(np.maximum(right, 0.5 / np.asarray(items, float)))
    if len(np.unique(depth)) < 2:
        return Decay(float("nan"), float("nan"))
    slope, start = np.polyfit(depth, logs, 1)
    spread = float(np.var(logs))
    if spread == 0:
        return Decay(0.0, float("nan"))
    if slope >= 0:
        return Decay(float(slope), 0.0)
    return Decay(float(slope), 1 - float(np.var(logs - start - slope * depth)) / spread)


def _probabilities(**given: float) -> None:
    for name, value in given.items():
        if not 0 <= value <= 1:
            raise InvalidRequest(f"{name} {value}: expected a probability, from 0 to 1")
