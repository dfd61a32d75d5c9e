"""How often the steps of a computation occurred together in one training example.

A weaker notion than the strict key, and the published one: an example counts for a node when it
holds the node's step and, anywhere in it, the steps of all the node's ancestors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8, UInt32, UInt64

from recombine.errors import InvalidRequest
from recombine.graphs.frequency import KeyTable, once_a_row
from recombine.graphs.graph import ComputationGraph

_COMMON = 16  # keys in more than one example of so many keep their bitmap while a batch is counted

_SORTED_BITS = 4


@dataclass(frozen=True, eq=False)
class CoOccurrence:
    """For each local key the training examples that hold it.

    >>> index = CoOccurrence.of([np.array([[5, 7], [5, 9]], np.uint64)])
    >>> index.holding(5).tolist(), index.examples
    ([0, 1], 2)
    """

    keys: UInt64[np.ndarray, " key"]
    starts: Int[np.ndarray, " key+1"]
    holders: UInt32[np.ndarray, " posting"]
    examples: int

    @staticmethod
    def of(batches: Iterable[KeyTable]) -> CoOccurrence:
        """Indexes batches of local keys, one row an example.

        Holds 4 bytes a posting (a key of one example), and about 32 while it is being made.
        """
        words, rows, examples = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint32)], 0
        for batch in batches:
            row, column = np.nonzero(ordered := once_a_row(batch))
            words.append(ordered[row, column])
            rows.append((row + examples).astype(np.uint32))
            examples += len(batch)
        flat, ids = np.concatenate(words), np.concatenate(rows)
        del words, rows
        keys, sizes, held = [flat[:0]], [np.zeros(1, np.int64)], [ids[:0]]
        top = (flat >> np.uint64(64 - _SORTED_BITS)).astype(np.uint8)
        for part in range(1 << _SORTED_BITS):  # by leading bits, to sort a little at a time
            chosen = np.flatnonzero(top == part)
            chosen = chosen[np.argsort(flat[chosen], kind="stable")]
            words_here = flat[chosen]
            first = np.flatnonzero(np.r_[True, words_here[1:] != words_here[:-1]][: len(chosen)])
            keys.append(words_here[first])
            sizes.append(np.diff(np.r_[first, len(chosen)]))
            held.append(ids[chosen])
        return CoOccurrence(
            np.concatenate(keys), np.cumsum(np.concatenate(sizes)), np.concatenate(held), examples
        )

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.starts.nbytes + self.holders.nbytes

    def holding(self, key: int) -> UInt32[np.ndarray, " example"]:
        """The examples that hold a key, in order."""
        place = int(np.searchsorted(self.keys, np.uint64(key)))
        if place == len(self.keys) or self.keys[place] != np.uint64(key):
            return self.holders[:0]
        return self.holders[self.starts[place] : self.starts[place + 1]]

    def count(
        self, graphs: Sequence[ComputationGraph], local: KeyTable
    ) -> Int[np.ndarray, "graph node"]:
        """For every node of graphs with these local keys: examples with all its steps."""
        if len(graphs) != len(local):
            raise InvalidRequest(
                f"{len(graphs)} graphs and {len(local)} rows of keys: expected as many"
            )
        found = np.zeros(local.shape, np.int64)
        common: dict[int, UInt8[np.ndarray, " byte"]] = {}
        for row, graph in enumerate(graphs):
            together: list[np.ndarray] = []
            for place, node in enumerate(graph.nodes):
                # Parents already stand for all of their own ancestors.
                with_it = self._bitmap(int(local[row, place]), common)
                for parent in node.parents:
                    with_it = with_it & together[parent]
                together.append(with_it)
                found[row, place] = int(np.bitwise_count(with_it).sum(dtype=np.int64))
        return found

    def _bitmap(self, key: int, common: dict[int, np.ndarray]) -> np.ndarray:
        if key in common:
            return common[key]
        held = self.holding(key)
        bitmap = np.zeros((self.examples + 7) // 8, np.uint8)
        if len(held) * _COMMON < self.examples:
            np.bitwise_or.at(bitmap, held >> 3, np.uint8(1) << (held & 7).astype(np.uint8))
            return bitmap
        flags = np.zeros(len(bitmap) * 8, bool)
        flags[held] = True
        common[key] = np.packbits(flags, bitorder="little")
        return common[key]
