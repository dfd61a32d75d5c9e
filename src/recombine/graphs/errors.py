"""Where a written computation goes wrong: each node against its right value and its parents.

correct: right, and so is all that it is made of. restoration: right, though a parent is not
correct. propagation: wrong, but what follows from the parents as they were written. local: wrong,
and not even that. missing: not written, or wrong with a parent that was not written, so that
nobody can tell. unparseable: nothing could be read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int

from recombine.errors import InvalidRequest
from recombine.graphs.graph import ComputationGraph, Node, Written

Label = Literal["correct", "restoration", "propagation", "local", "missing", "unparseable"]
LABELS: tuple[Label, ...] = get_args(Label)

_NOTHING = object()


def label(graph: ComputationGraph, written: Written) -> tuple[Label, ...]:
    """What became of each node, given what was written; the input itself is always correct.

    >>> from recombine.graphs import multiplication_graph
    >>> graph = multiplication_graph(7, 9)
    >>> wrong = {"product[0,0]": 64, "output[0,0]": "64", "partial[0]": 64, "answer": 63}
    >>> label(graph, wrong)[2:]
    ('local', 'propagation', 'propagation', 'restoration')
    """
    found: list[Label] = []
    for node in graph.nodes:
        if not node.parents:
            found.append("correct")
        elif written is None:
            found.append("unparseable")
        elif node.name not in written:
            found.append("missing")
        elif written[node.name] == node.value:
            whole = all(found[parent] == "correct" for parent in node.parents)
            found.append("correct" if whole else "restoration")
        else:
            given = parents_written(graph, node, written)
            if given is None:
                found.append("missing")
            else:
                follows = written[node.name] == reworked(node, given)
                found.append("propagation" if follows else "local")
    return tuple(found)


def parents_written(
    graph: ComputationGraph, node: Node, written: Written
) -> tuple[Hashable, ...] | None:
    """The values of a node's parents as they were written; None if one was not."""
    values: list[Hashable] = []
    for place in node.parents:
        parent = graph.nodes[place]
        if not parent.parents:
            values.append(parent.value)
        elif written is None or parent.name not in written:
            return None
        else:
            values.append(written[parent.name])
    return tuple(values)


def reworked(node: Node, given: Sequence[Hashable]) -> Hashable:
    """What a node should be, given its parents; nothing equals it where the rule cannot apply."""
    if node.rule is None:
        raise InvalidRequest(
            f"node {node.name!r} has no rule, so errors that only spread cannot be told from new "
            "ones: build the graph with GraphBuilder.step"
        )
    try:
        return node.rule(*given)
    except (TypeError, ValueError):
        return _NOTHING


@dataclass(frozen=True, eq=False)
class Breakdown:
    """How many nodes of each layer got each label; the input (layer 0) is left out."""

    layers: tuple[int, ...]
    counts: Int[np.ndarray, "layer label"]

    @property
    def shares(self) -> Float[np.ndarray, "layer label"]:
        """Of each layer the share of every label, in the order of LABELS."""
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    def share(self, name: Label) -> Float[np.ndarray, " layer"]:
        return self.shares[:, LABELS.index(name)]


def breakdown(graphs: Sequence[ComputationGraph], labels: Sequence[Sequence[Label]]) -> Breakdown:
    """Counts labels by layer over many graphs.

    >>> from recombine.graphs import multiplication_graph
    >>> graph = multiplication_graph(7, 9)
    >>> breakdown([graph], [label(graph, graph.values)]).share("correct").tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if len(graphs) != len(labels):
        raise InvalidRequest(
            f"{len(graphs)} graphs and {len(labels)} lists of labels: expected as many"
        )
    deepest = max((max(graph.layers) for graph in graphs), default=0)
    counts = np.zeros((deepest + 1, len(LABELS)), np.int64)
    for graph, names in zip(graphs, labels, strict=True):
        for layer, name in zip(graph.layers, names, strict=True):
            counts[layer, LABELS.index(name)] += 1
    return Breakdown(tuple(range(1, deepest + 1)), counts[1:])
