"""How far an unseen combination is from what training saw."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, UInt32
from numpy.typing import ArrayLike

from recombine.combinations import Slots, blocks
from recombine.errors import InvalidRequest
from recombine.supports._triples import MOST_TRIPLES, seen_triples, triples
from recombine.supports.support import Support

LEVELS = (
    "nothing new inside",
    "a new triple",
    "a new pair",
    "modules never linked",
    "a new module",
)
"""The names of the levels of novelty, from the mildest on."""

UNREACHABLE = -1
MOST_COMPARISONS = 200_000_000


@dataclass(frozen=True, eq=False)
class Novelty:
    """How new each combination is, in several ways; one entry a combination in every array.

    - `unseen_pairs`, `unseen_triples`: how many of its pairs and triples training never showed
      together.
    - `rarest_usage`: in how many seen combinations its rarest module is active.
    - `distance`: the longest of the shortest paths between its modules in the co-occurrence
      graph; 0 for a single module, 1 if all pairs were seen, -1 (`UNREACHABLE`) if there is no
      path or a module was never seen.
    - `nearest`: how many changes away the nearest seen combination is: of `Subsets`, how many
      modules to add or take away; of `Slots`, how many factors to give another value. None if
      that took too many comparisons.
    - `level`: an index into `LEVELS`. A single module that training only saw in company has
      nothing new inside: level 0. The module of `Slots` is a value of a factor.
    """

    ranks: UInt32[np.ndarray, " n"]
    unseen_pairs: Int[np.ndarray, " n"]
    unseen_triples: Int[np.ndarray, " n"]
    rarest_usage: Int[np.ndarray, " n"]
    distance: Int[np.ndarray, " n"]
    nearest: Int[np.ndarray, " n"] | None
    level: Int[np.ndarray, " n"]

    def counts(self) -> dict[str, int]:
        """How many combinations there are of each level, by name."""
        counts = np.bincount(self.level, minlength=len(LEVELS))
        return {name: int(n) for name, n in zip(LEVELS, counts, strict=True)}


def novelty(
    support: Support, ranks: ArrayLike | None = None, limit: int = MOST_COMPARISONS
) -> Novelty:
    """The novelty of these combinations, or of all held-out ones.

    `nearest` compares each with every seen combination, and is left out where that makes more
    than `limit` comparisons.

    >>> from recombine.combinations import Subsets
    >>> support = Support(Subsets(4, 2), seen=[0, 4, 6])  # {0}, {0, 1}, {1, 2}
    >>> novelty(support, [5, 3]).distance.tolist()  # {0, 2} by way of 1; {3} never seen
    [2, -1]
    """
    space = support.space
    given = support.held_out if ranks is None else np.asarray(ranks)
    usage = np.append(support.usage, np.iinfo(np.int64).max)  # -1, padding, is never the rarest
    unseen = np.pad(support.together == 0, (0, 1))
    apart = np.pad(_paths(support), (0, 1))
    new_triples = _unseen_triples(support)
    count = len(given)
    pairs, threes = np.zeros(count, np.int32), np.zeros(count, np.int32)
    distance, rarest = np.zeros(count, np.int32), np.zeros(count, np.int64)
    far = space.modules  # longer than any path
    for block in blocks(count):
        members = space.unrank(given[block])
        rarest[block] = usage[members].min(axis=1)
        for i, j in itertools.combinations(range(space.active), 2):
            a, b = members[:, i], members[:, j]
            pairs[block] += unseen[a, b]
            distance[block] = np.maximum(distance[block], apart[a, b])
        if new_triples is not None:
            for inside, number in triples(members):
                threes[block] += inside & new_triples[number]
    distance[(distance >= far) | (rarest == 0)] = UNREACHABLE
    level = np.select(
        [rarest == 0, distance == UNREACHABLE, pairs > 0, threes > 0], [4, 3, 2, 1], default=0
    )
    small = count * len(support.seen) <= limit
    return Novelty(
        ranks=given.astype(np.uint32),
        unseen_pairs=pairs,
        unseen_triples=threes,
        rarest_usage=rarest,
        distance=distance,
        nearest=_nearest(support, given) if small else None,
        level=level.astype(np.int8),
    )


def _paths(support: Support) -> Int[np.ndarray, "modules modules"]:
    """Shortest path lengths in the co-occurrence graph, `modules` where there is none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    paths = shortest_path(csr_array(support.together > 0), directed=False, unweighted=True)
    return np.where(np.isinf(paths), support.space.modules, paths).astype(np.int32)


def _unseen_triples(support: Support) -> Bool[np.ndarray, " triples"] | None:
    """Which triples training never showed together; None where no combination has three modules."""
    space = support.space
    if space.active < 3:
        return None
    if math.comb(space.modules, 3) > MOST_TRIPLES:
        raise InvalidRequest(
            f"novelty keeps a table of all triples, and {space.modules} modules have "
            f"{math.comb(space.modules, 3)}: group the modules into at most 1170"
        )
    found = seen_triples(space, support.seen, support.together > 0)
    return None if found is None else ~found


def _nearest(support: Support, ranks: np.ndarray) -> Int[np.ndarray, " n"]:
    """The fewest changes between each combination and any seen one."""
    space = support.space
    nearest = np.full(len(ranks), 2 * space.active, np.int16)
    for block in blocks(len(ranks), 1024):
        rows = space.indicator(ranks[block]).astype(np.float32)
        best = np.full(len(rows), np.inf, np.float32)
        for part in blocks(len(support.seen), 1 << 13):
            seen = space.indicator(support.seen[part]).astype(np.float32)
            # Some BLAS kernels raise the flag of an invalid number for products of zeros and ones.
            with np.errstate(invalid="ignore"):
                gap = seen.sum(axis=1) - 2 * (rows @ seen.T)
            best = np.minimum(best, gap.min(axis=1))
        nearest[block] = best + rows.sum(axis=1)
    # Another value of a factor takes one module away and adds one, but it is one change.
    return nearest // 2 if isinstance(space, Slots) else nearest
