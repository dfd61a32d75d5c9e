"""What the instrument of subgraphs tells row by row: sizes, layers of steps, digits of products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from recombine.families._sequence import Item
from recombine.families.multiplication import Multiplication
from recombine.families.subsequence import Subsequence
from recombine.graphs.bounds import depth_bound, estimate_rates, width_bound
from recombine.graphs.errors import LABELS, label
from recombine.graphs.graph import ComputationGraph, Written

Table = dict[str, list[Any]]


class Trace(NamedTuple):
    """One item as it was answered: what each node was said to be, and which ending it has."""

    item: Item
    split: str
    size: str
    graph: ComputationGraph
    answer: str
    written: Written
    exact: bool
    ended: bool  # exact, or exact once it is told where to end
    excess: int  # digits or marks more than the right answer has; fewer if below 0
    half: int  # of the endings that training may favour; 0 where there are none


def excess(family: Multiplication | Subsequence, item: Item, answer: str) -> int:
    """By how many digits or marks an answer is too long; one that never comes to them has none."""
    if isinstance(family, Multiplication):
        return len(family.product(answer)) - len(family.product(item.target))
    return len(family.marks(answer)) - len(family.marks(item.target))


SIZE_COLUMNS = (
    "split", "size", "part", "items", "depth", "width", "exact", "ended", "short", "long",
    "error", "repair", "bound", "at_once", "width_bound",
)  # fmt: skip


def by_size(traces: Sequence[Trace], scratchpad: bool) -> Table:
    """Exact answers by size; with scratchpads also what errors of steps must compound to.

    `bound` is for steps one after another, `width_bound` for the `at_once` steps of the fullest
    layer if all must be right: the input is no step, so its layer does not count.
    """
    table: Table = {name: [] for name in SIZE_COLUMNS}
    for split, size in dict.fromkeys((trace.split, trace.size) for trace in traces):
        mine = [t for t in traces if (t.split, t.size) == (split, size)]
        graph, part = mine[0].graph, mine[0].item.part
        at_once = max(Counter(layer for layer in graph.layers if layer).values())
        error = repair = bound = wide = None
        if scratchpad:
            rates = estimate_rates([t.graph for t in mine], [t.written for t in mine])
            if np.isfinite(rates.error):
                error, repair = rates.error, float(np.nan_to_num(rates.repair))
                bound = depth_bound(error, repair, graph.depth)
                wide = 1 - width_bound(error, at_once, repair)
        exact, ended, short, long = (
            float(np.mean([which(t) for t in mine]))
            for which in (lambda t: t.exact, lambda t: t.ended, is_short, is_long)
        )
        row = (split, size, part, len(mine), graph.depth, graph.width, exact, ended, short, long,
               error, repair, bound, at_once, wide)  # fmt: skip
        _append(table, row)
    return table


def is_short(trace: Trace) -> bool:
    return trace.excess < 0


def is_long(trace: Trace) -> bool:
    return trace.excess > 0


LAYER_COLUMNS = ("split", "size", "layer", *LABELS, "written", "frequency_right", "frequency_wrong")


def by_layer(traces: Sequence[Trace], counts: Sequence[np.ndarray]) -> Table:
    """Labels of nodes by size and layer, how many of them were written at all, and how often
    training saw the right and wrong ones."""
    table: Table = {name: [] for name in LAYER_COLUMNS}
    found: dict[tuple[str, str, int], list[tuple[str, bool, bool, int]]] = {}
    for trace, row in zip(traces, counts, strict=True):
        names, said = label(trace.graph, trace.written), trace.written or {}
        for node, layer, name, count in zip(
            trace.graph.nodes, trace.graph.layers, names, row, strict=True
        ):
            if node.parents:
                there = node.name in said
                right = there and said[node.name] == node.value
                key = (trace.split, trace.size, layer)
                found.setdefault(key, []).append((name, there, right, int(count)))
    for key, rows in found.items():
        labels = [sum(name == one for name, *_ in rows) for one in LABELS]
        written = sum(there for _, there, _, _ in rows)
        frequency = [[count for *_, right, count in rows if right == which]
                     for which in (True, False)]  # fmt: skip
        means = [float(np.mean(some)) if some else None for some in frequency]
        _append(table, (*key, *labels, written, *means))
    return table


LENGTH_COLUMNS = ("split", "size", "digits", "wrong", "short", "long")
DIGIT_COLUMNS = ("split", "size", "digits", "place", "wrong", "right", "other")


def by_digit(family: Multiplication, traces: Sequence[Trace]) -> dict[str, Table]:
    """Of wrong products with as many digits as the right one: how many have each digit right.

    Products are told apart by how many digits they are written with (`digits`), leftmost digit
    first. `other` is the share that the same answers would have right if they were given to other
    items: what comes of how common a digit is in its place. `lengths` counts the wrong answers
    that are too short or too long, of which no digit is judged.
    """
    lengths: Table = {name: [] for name in LENGTH_COLUMNS}
    digits: Table = {name: [] for name in DIGIT_COLUMNS}
    wrong: dict[tuple[str, str, int], list[Trace]] = {}
    for trace in traces:
        if not trace.exact:
            key = (trace.split, trace.size, len(family.product(trace.item.target)))
            wrong.setdefault(key, []).append(trace)
    for key, mine in wrong.items():
        told = [float(np.mean([which(t) for t in mine])) for which in (is_short, is_long)]
        _append(lengths, (*key, len(mine), *told))
        judged = [t for t in mine if t.excess == 0]
        if not judged:
            continue
        said, wanted = (
            np.asarray([[int(digit) for digit in family.product(text)] for text in texts])
            for texts in ([t.answer for t in judged], [t.item.target for t in judged])
        )
        for place, right in enumerate((said == wanted).mean(axis=0)):
            other = of_others(said[:, place], wanted[:, place])
            _append(digits, (*key, place + 1, len(judged), float(right), other))
    return {"lengths": lengths, "digits": digits}


def of_others(said: np.ndarray, wanted: np.ndarray) -> float | None:
    """How often what was said is what another item wanted, over all pairs of items.

    >>> of_others(np.array([1, 2]), np.array([2, 2]))
    0.5
    """
    count = len(said)
    if count < 2:
        return None
    said_by, wanted_by = (np.bincount(one, minlength=10) for one in (said, wanted))
    return float((said_by @ wanted_by - np.sum(said == wanted)) / (count * (count - 1)))


def _append(table: Table, row: Sequence[Any]) -> None:
    for column, value in zip(table, row, strict=True):
        table[column].append(value)
