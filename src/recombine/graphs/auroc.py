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
from scipy import sparse

from recombine.errors import InvalidRequest
from recombine.graphs.errors import label, parents_written
from recombine.graphs.graph import ComputationGraph, Written
from recombine.lab.intervals import Interval, clustered_interval

# step: is the node right, of those whose parents were all written right. value: is it right, of
# all. whole: is it right with all that it is made of (the published notion; a node with more
# ancestors is then rarer *and* more often wrong whatever the model, so it proves less).
Outcome = Literal["step", "value", "whole"]
By = Literal["layer", "layer and op"]


@dataclass(frozen=True, eq=False)
class NodeTable:
    """One row a node that could be judged: what it scored, whether it is right, where it was."""

    score: Float[np.ndarray, " node"]
    right: Bool[np.ndarray, " node"]
    stratum: Int[np.ndarray, " node"]
    example: Int[np.ndarray, " node"]
    layer: Int[np.ndarray, " node"]
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
    rows: list[tuple[int, bool, int, int, int]] = []
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
            layer = graph.layers[place]
            stratum = strata.setdefault(
                (layer, node.op if by == "layer and op" else ""), len(strata)
            )
            rows.append((int(counts[example, place]), right, stratum, example, layer))
    seen, right, stratum, example, layer = np.array(rows, np.int64).reshape(-1, 5).T
    return NodeTable(np.log1p(seen), right.astype(bool), stratum, example, layer, left_out)


def merged(tables: Sequence[NodeTable]) -> NodeTable:
    """Several tables as one, with strata and examples of their own each."""
    strata = examples = 0
    shifted: list[tuple[np.ndarray, np.ndarray]] = []
    for table in tables:
        shifted.append((table.stratum + strata, table.example + examples))
        strata += int(table.stratum.max(initial=-1)) + 1
        examples += int(table.example.max(initial=-1)) + 1
    return NodeTable(
        np.concatenate([table.score for table in tables]),
        np.concatenate([table.right for table in tables]),
        np.concatenate([stratum for stratum, _ in shifted]),
        np.concatenate([example for _, example in shifted]),
        np.concatenate([table.layer for table in tables]),
        sum(table.left_out for table in tables),
    )


@dataclass(frozen=True)
class Auroc:
    """The chance that of a right and a wrong node of one stratum the right one scores higher."""

    interval: Interval
    pairs: int  # right against wrong, within strata
    by_layer: dict[int, float]  # nan for layers where all are right, or all wrong


def auroc_by_layer(
    table: NodeTable, *, level: float = 0.95, seed: int = 0, resamples: int = 1000
) -> Auroc:
    """The stratified area under the ROC curve, with an interval that resamples whole examples.

    >>> table = NodeTable(np.array([0.0, 1.0, 1.0]), np.array([False, True, True]),
    ...                   np.zeros(3, int), np.array([0, 0, 1]), np.ones(3, int), 0)
    >>> auroc_by_layer(table).interval.estimate
    1.0
    """
    if not len(table.score):
        raise InvalidRequest("no node could be judged: every scratchpad is missing or unreadable")
    pooled = _Concordance(table, np.ones(len(table.score), bool))
    examples = len(pooled.ids)
    interval = clustered_interval(
        lambda drawn: pooled.auroc(np.bincount(drawn, minlength=examples)),
        range(examples),
        level=level,
        seed=seed,
        resamples=resamples,
    )
    by_layer = {
        int(layer): _Concordance(table, table.layer == layer).everything()
        for layer in np.unique(table.layer)
    }
    return Auroc(interval, pooled.pairs(), by_layer)


def stratified_auroc(table: NodeTable) -> tuple[float, int]:
    """The estimate alone, with the number of pairs behind it; nan where there is no pair.

    >>> table = NodeTable(np.array([0.0, 1.0]), np.array([False, True]), np.zeros(2, int),
    ...                   np.arange(2), np.ones(2, int), 0)
    >>> stratified_auroc(table)
    (1.0, 1)
    """
    if not len(table.score):
        return float("nan"), 0
    pooled = _Concordance(table, np.ones(len(table.score), bool))
    return pooled.everything(), pooled.pairs()


class _Concordance:
    """Right against wrong within strata, for any weights on the examples."""

    def __init__(self, table: NodeTable, rows: Bool[np.ndarray, " node"]):
        self.ids, example = np.unique(table.example[rows], return_inverse=True)
        stratum, right = table.stratum[rows], table.right[rows]
        levels, tied = np.unique(
            np.stack([stratum, table.score[rows]]), axis=1, return_inverse=True
        )
        # Levels come sorted by stratum, then score; nodes of one level are ties.
        shape = (levels.shape[1], len(self.ids))
        self._right, self._wrong = (
            sparse.csr_array((chosen.astype(float), (tied.ravel(), example)), shape=shape)
            for chosen in (right, ~right)
        )
        self._starts = np.flatnonzero(np.r_[True, levels[0, 1:] != levels[0, :-1]])
        self._sizes = np.diff(np.r_[self._starts, shape[0]])

    def _of(self, weights: np.ndarray) -> tuple[float, float]:
        right, wrong = self._right @ weights, self._wrong @ weights
        before = np.cumsum(wrong) - wrong
        before -= np.repeat(before[self._starts], self._sizes)
        won = float(right @ (before + wrong / 2))
        pairs = np.add.reduceat(right, self._starts) @ np.add.reduceat(wrong, self._starts)
        return won, float(pairs)

    def auroc(self, weights: np.ndarray) -> float:
        won, pairs = self._of(weights)
        return won / pairs if pairs else float("nan")

    def everything(self) -> float:
        return self.auroc(np.ones(len(self.ids)))

    def pairs(self) -> int:
        return round(self._of(np.ones(len(self.ids)))[1])
