"""Executors whose faults are known: controls for everything that reads faults off a scratchpad."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest
from recombine.graphs.errors import Label, reworked
from recombine.graphs.graph import ComputationGraph, Node

_TRIES = 50


@dataclass(frozen=True)
class Execution:
    """What an executor wrote for each node (the input too), and what it knows to be wrong."""

    written: dict[str, Hashable]
    labels: tuple[Label, ...]


def noisy_executor(
    graph: ComputationGraph,
    rng: np.random.Generator,
    *,
    error: float | Mapping[str, float],
    repair: float = 0.0,
) -> Execution:
    """Does every step right but for errors at random, blind to what training may have seen.

    From right parents a step fails with chance `error` (one for all, or by operation). From a
    wrong parent it is mended with chance `repair`; else it goes on from what was written, and
    fails anew with chance `error`.

    >>> from recombine.graphs import multiplication_graph
    >>> noisy_executor(multiplication_graph(35, 9), np.random.default_rng(0), error=0.0).labels[-1]
    'correct'
    """
    chances = error if isinstance(error, Mapping) else {node.op: error for node in graph.nodes}
    if not all(0 <= chance <= 1 for chance in (repair, *chances.values())):
        raise InvalidRequest(f"error {error} and repair {repair}: both are chances, from 0 to 1")
    written: dict[str, Hashable] = {}
    labels: list[Label] = []
    for node in graph.nodes:
        value, name = node.value, "correct"
        if node.parents:
            spoilt = any(written[graph.nodes[p].name] != graph.nodes[p].value for p in node.parents)
            follows = _from_written(graph, node, written)
            fails = rng.random() < chances[node.op]
            if spoilt and rng.random() < repair:
                value = node.value
            else:
                value = _other_than(rng, node.value, follows) if fails else follows
            name = _injected(graph, labels, node, value, follows)
        written[node.name] = value
        labels.append(name)
    return Execution(written, tuple(labels))


def memorising_executor(
    graph: ComputationGraph,
    seen: Int[np.ndarray, " node"],
    rng: np.random.Generator,
    *,
    at_least: int | Int[np.ndarray, " node"] = 1,
) -> Execution:
    """Gets a node right just when training saw it (by whichever key `seen` counts) often enough.

    `at_least` is how often, for all nodes or for each; where it is 0 nothing was memorised, and
    the node is made from its parents as they were written.

    >>> from recombine.graphs import multiplication_graph
    >>> graph = multiplication_graph(7, 9)
    >>> seen = np.array([9, 9, 4, 0, 0, 0])
    >>> memorising_executor(graph, seen, np.random.default_rng(0)).labels[2]
    'correct'
    """
    enough = np.broadcast_to(at_least, len(graph.nodes))
    written: dict[str, Hashable] = {}
    labels: list[Label] = []
    for place, node in enumerate(graph.nodes):
        value, name = node.value, "correct"
        if node.parents:
            follows = _from_written(graph, node, written)
            if enough[place] == 0:
                value = follows
            elif seen[place] < enough[place]:
                value = _other_than(rng, node.value, follows)
            name = _injected(graph, labels, node, value, follows)
        written[node.name] = value
        labels.append(name)
    return Execution(written, tuple(labels))


def _from_written(graph: ComputationGraph, node: Node, written: dict[str, Hashable]) -> Hashable:
    return reworked(node, [written[graph.nodes[parent].name] for parent in node.parents])


def _injected(
    graph: ComputationGraph, labels: list[Label], node: Node, value: Hashable, follows: Hashable
) -> Label:
    if value == node.value:
        # A fault upstream can also cancel out, as where a maximum hides it: that is a repair.
        whole = all(labels[parent] == "correct" for parent in node.parents)
        return "correct" if whole else "restoration"
    return "propagation" if value == follows else "local"


def _other_than(rng: np.random.Generator, right: Hashable, follows: Hashable) -> Hashable:
    """A wrong value of the same kind, and not what follows from the parents if it can be helped."""
    if isinstance(right, bool):
        return not right
    value = right
    for _ in range(_TRIES):
        value = _near(rng, right)
        if value not in (right, follows):
            break
    return value


def _near(rng: np.random.Generator, right: Hashable) -> Hashable:
    off = int(rng.integers(1, 10))
    if isinstance(right, int):
        if 0 <= right <= 9:
            return (right + off) % 10  # a digit stays a digit
        return right + off if rng.random() < 0.5 else right - off
    if isinstance(right, str) and right.isdecimal():
        place = int(rng.integers(len(right)))
        digit = (int(right[place]) + off) % 10
        return f"{right[:place]}{digit}{right[place + 1 :]}"
    return ("wrong", off, right)
