"""Where a written computation goes wrong: each node against its right value and its parents.

correct: right, and so is all that it is made of. restoration: right, though a parent is not
correct. propagation: wrong, but what follows from the parents as they were written. local: wrong,
and not even that. missing: not written, or wrong with a parent that was not written, so that
nobody can tell. unparseable: nothing could be read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, get_args

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
