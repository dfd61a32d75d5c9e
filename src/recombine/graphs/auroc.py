"""Whether steps that training saw more often come out right more often, layer by layer.

Small values are both commoner and easier, and early layers hold small values: so right nodes are
compared with wrong ones of their own layer only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.errors import InvalidRequest
from recombine.graphs.errors import label, parents_written
from recombine.graphs.graph import ComputationGraph, Written

# step: is the node right, of those whose parents were all written right. value: is it right, of
# all. whole: is it right with all that it is made of (the published notion; a node with more
# ancestors is then rarer *and* more often wrong whatever the model, so it proves less).
Outcome = Literal["step", "value", "whole"]
By = Literal["layer", "layer and op"]


@dataclass(frozen=True, eq=False)
class NodeTable:
    """One row a node that could be judged: what it scored, whether it is right, and its stratum."""

    score: Float[np.ndarray, " node"]
    right: Bool[np.ndarray, " node"]
    stratum: Int[np.ndarray, " node"]
    left_out: int  # nodes that were not written, or unjudgeable without their parents


def node_table(
    graphs: Sequence[ComputationGraph],
    written: Sequence[Written],
    counts: Int[np.ndarray, "graph node"],
    *,
    outcome: Outcome = "step",
    by: By = "layer",
) -> NodeTable:
    """All judged nodes of many examples, scored by log(1 + count); input nodes are left out."""
    if not len(graphs) == len(written) == len(counts):
        raise InvalidRequest(
            f"{len(graphs)} graphs, {len(written)} scratchpads, {len(counts)} rows of counts: "
            "expected as many of each"
        )
    if outcome not in ("step", "value", "whole"):
        raise InvalidRequest(f"outcome {outcome!r}: expected 'step', 'value' or 'whole'")
    if by not in ("layer", "layer and op"):
        raise InvalidRequest(f"by {by!r}: expected 'layer' or 'layer and op'")
    strata: dict[tuple[int, str], int] = {}
    rows: list[tuple[int, bool, int]] = []
    left_out = 0
    for example, (graph, values) in enumerate(zip(graphs, written, strict=True)):
        labels = label(graph, values) if outcome == "whole" else ()
        for place, node in enumerate(graph.nodes):
            if not node.parents:
                continue
            if values is None or node.name not in values:
                left_out += 1
                continue
            if outcome == "step":
                given = parents_written(graph, node, values)
                if given != tuple(graph.nodes[p].value for p in node.parents):
                    left_out += given is None
                    continue
            right = labels[place] == "correct" if labels else values[node.name] == node.value
            kind = (graph.layers[place], node.op if by == "layer and op" else "")
            stratum = strata.setdefault(kind, len(strata))
            rows.append((int(counts[example, place]), right, stratum))
    seen, right, stratum = np.array(rows, np.int64).reshape(-1, 3).T
    return NodeTable(np.log1p(seen), right.astype(bool), stratum, left_out)


def merged(tables: Sequence[NodeTable]) -> NodeTable:
    """Several tables as one, with strata of their own each."""
    strata = 0
    shifted: list[np.ndarray] = []
    for table in tables:
        shifted.append(table.stratum + strata)
        strata += int(table.stratum.max(initial=-1)) + 1
    return NodeTable(
        np.concatenate([table.score for table in tables]),
        np.concatenate([table.right for table in tables]),
        np.concatenate(shifted),
        sum(table.left_out for table in tables),
    )


def stratified_auroc(table: NodeTable) -> tuple[float, int]:
    """The chance that of a right and a wrong node of one stratum the right one scores higher.

    With the number of pairs behind it; nan where there is no pair.

    >>> table = NodeTable(np.array([0.0, 1.0]), np.array([False, True]), np.zeros(2, int), 0)
    >>> stratified_auroc(table)
    (1.0, 1)
    """
    if not len(table.score):
        return float("nan"), 0
    levels, tied = np.unique(np.stack([table.stratum, table.score]), axis=1, return_inverse=True)
    # Levels come sorted by stratum, then score; nodes of one level are ties.
    right, wrong = (
        np.bincount(tied.ravel(), chosen, levels.shape[1]) for chosen in (table.right, ~table.right)
    )
    starts = np.flatnonzero(np.r_[True, levels[0, 1:] != levels[0, :-1]])
    before = np.cumsum(wrong) - wrong
    before -= np.repeat(before[starts], np.diff(np.r_[starts, levels.shape[1]]))
    won = float(right @ (before + wrong / 2))
    pairs = float(np.add.reduceat(right, starts) @ np.add.reduceat(wrong, starts))
    return won / pairs if pairs else float("nan"), round(pairs)
