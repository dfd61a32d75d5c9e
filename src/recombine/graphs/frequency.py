"""How often training saw a computation: keys of subgraphs, and an index that counts them.

The strict key of a node is a hash of its op, its value and the keys of its parents in order: two
nodes have the same key just when everything from which they are computed is the same. The local
key hashes op, value and the values of the parents: one step. Places in the input are ignored.

Keys are 64 bits. Among n different subgraphs the chance that any two share a key is about
n^2 / 2^65: 3e-8 for a million. Key 0 stands for "no node here".
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt64
from numpy.typing import ArrayLike

from recombine.graphs.graph import ComputationGraph

GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1
_LONGEST = 18  # digits that fit a word with a 1 in front

KeyTable = UInt64[np.ndarray, "graph node"]


class Keys(NamedTuple):
    """The keys of many graphs, one row each; 0 where a graph has no such node."""

    strict: KeyTable
    local: KeyTable


def graph_keys(graphs: Sequence[ComputationGraph]) -> Keys:
    """The keys of graphs of any kind, in the order of their nodes, rows filled up with 0.

    >>> from recombine.graphs import multiplication_graph
    >>> graph_keys([multiplication_graph(3, 4), multiplication_graph(35, 9)]).strict.shape
    (2, 12)
    """
    size = max((len(graph.nodes) for graph in graphs), default=0)
    found = Keys(*(np.zeros((len(graphs), size), np.uint64) for _ in Keys._fields))
    for row, graph in enumerate(graphs):
        strict: list[int] = []
        codes = [value_code(node.value) for node in graph.nodes]
        for place, node in enumerate(graph.nodes):
            above = [strict[parent] for parent in node.parents]
            strict.append(_key(op_code(node.op), codes[place], above))
            near = [codes[parent] for parent in node.parents]
            found.local[row, place] = _key(op_code(node.op), codes[place], near)
        found.strict[row, : len(strict)] = strict
    return found


def value_code(value: Hashable) -> int:
    """A word for a value: whole numbers as they are, strings of digits with their zeros."""
    if isinstance(value, int):
        return value & _WORD
    if isinstance(value, str) and value.isdecimal() and len(value) <= _LONGEST:
        return int(f"1{value}")
    return _digest(_spelled(value))


@cache
def op_code(op: str) -> int:
    """Where the key of a node with this op begins."""
    return _mixed(_digest(op))


def _spelled(value: object) -> str:
    # Sets come in no order, and in another one in every process.
    if isinstance(value, (frozenset, set)):
        return f"{{{','.join(sorted(map(_spelled, value)))}}}"
    if isinstance(value, tuple):
        return f"({','.join(map(_spelled, value))})"
    return repr(value)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mixed(word: int) -> int:
    """The finaliser of splitmix64: every bit of the word changes half of the bits."""
    word = (word + GAMMA) & _WORD
    word = ((word ^ (word >> 30)) * FIRST) & _WORD
    word = ((word ^ (word >> 27)) * SECOND) & _WORD
    return word ^ (word >> 31)


def _key(op: int, value: int, parents: Iterable[int]) -> int:
    key = _mixed(op ^ value)
    for parent in parents:
        key = _mixed(key ^ parent)
    return key or 1


def once_a_row(keys: KeyTable) -> KeyTable:
    """The same keys, sorted in each row, with repeats in a row replaced by 0."""
    ordered = np.sort(keys, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0
    return ordered


@dataclass(frozen=True, eq=False)
class SubgraphIndex:
    """In how many training examples each key occurs.

    >>> index = SubgraphIndex.of([np.array([[5, 7], [5, 5]], np.uint64)])
    >>> index.count(np.array([5, 7, 9], np.uint64)).tolist(), index.examples
    ([2, 1, 0], 2)
    """

    keys: UInt64[np.ndarray, " key"]
    counts: Int[np.ndarray, " key"]
    examples: int

    @staticmethod
    def of(batches: Iterable[KeyTable]) -> SubgraphIndex:
        """Counts batches of rows as they come; memory grows with distinct keys, not with rows."""
        keys, counts, examples = np.zeros(0, np.uint64), np.zeros(0, np.int64), 0
        for batch in batches:
            examples += len(batch)
            flat = once_a_row(batch).ravel()
            fresh, times = np.unique(flat[flat != 0], return_counts=True)
            keys, counts = _merged(keys, counts, fresh, times)
        return SubgraphIndex(keys, counts, examples)

    def count(self, keys: ArrayLike) -> Int[np.ndarray, "..."]:
        """In how many examples each of these keys occurs; 0 for those never seen."""
        asked = np.asarray(keys, np.uint64)
        if not len(self.keys):
            return np.zeros(asked.shape, np.int64)
        near = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        return np.where(self.keys[near] == asked, self.counts[near], 0)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.counts.nbytes


def _merged(
    keys: np.ndarray, counts: np.ndarray, fresh: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two sorted tables of counts as one; new keys are inserted, known ones added to."""
    near = np.searchsorted(keys, fresh)
    known = np.zeros(len(fresh), bool)
    inside = near < len(keys)
    known[inside] = keys[near[inside]] == fresh[inside]
    counts[near[known]] += times[known]
    return (
        np.insert(keys, near[~known], fresh[~known]),
        np.insert(counts, near[~known], times[~known]),
    )
