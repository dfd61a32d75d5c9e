"""The combinations that training sees, and what follows from them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt32
from numpy.typing import ArrayLike

from recombine.combinations import Slots, Space, blocks
from recombine.errors import InvalidRequest
from recombine.supports._triples import MOST_TRIPLES, seen_triples, triangles

_MOST_LOOKS = 10**8


@dataclass(frozen=True, eq=False)
class Support:
    """Which combinations of a space training sees; all others are held out.

    Where tasks take one value per factor (`Slots`), a module is a value of a factor: covered means
    that every value of every factor was seen, connected that values which were seen together link
    all of them.

    `groups` tells the side of each module where a rule cuts the modules in two. `constructed` is
    True where drawing at random found no connected set and one was built up instead, so that the
    seen set is not uniform among the connected ones. `again` are seen combinations that training
    meets once more each time they are listed; `asked` are the held-out combinations that evaluation
    may ask for, where it must not ask for all.

    >>> from recombine.combinations import Subsets
    >>> support = Support(Subsets(4, 2), seen=[4, 5, 6])  # {0, 1}, {0, 2}, {1, 2}
    >>> support.covered, support.connected, support.usage.tolist()
    (False, False, [2, 2, 2, 0])
    """

    space: Space
    seen: UInt32[np.ndarray, " seen"]
    rule: str = "given"
    groups: Bool[np.ndarray, " modules"] | None = None
    constructed: bool = False
    again: tuple[int, ...] = ()
    asked: UInt32[np.ndarray, " asked"] | None = None

    def __post_init__(self) -> None:
        seen = np.asarray(self.seen)
        if seen.ndim != 1 or not np.issubdtype(seen.dtype, np.integer) or seen.size == 0:
            raise InvalidRequest(f"seen={self.seen!r}: expected a list of at least one rank")
        if np.any(seen[1:] <= seen[:-1]):
            seen = np.unique(seen)
        if seen[0] < 0 or seen[-1] >= self.space.size:
            raise InvalidRequest(
                f"seen ranks from {seen[0]} to {seen[-1]}: expected 0 to {self.space.size - 1}"
            )
        seen = seen.astype(np.uint32)
        seen.flags.writeable = False
        object.__setattr__(self, "seen", seen)

    @cached_property
    def held_out(self) -> UInt32[np.ndarray, " held_out"]:
        """The ranks of all combinations that training never sees, ascending."""
        unseen = np.ones(self.space.size, bool)
        unseen[self.seen] = False
        ranks = np.flatnonzero(unseen).astype(np.uint32)
        ranks.flags.writeable = False
        return ranks

    @property
    def drawn(self) -> UInt32[np.ndarray, " drawn"]:
        """What training draws from, each as often as it is listed."""
        return np.concatenate([self.seen, np.asarray(self.again, np.uint32)])

    @property
    def tested(self) -> UInt32[np.ndarray, " tested"]:
        """The held-out combinations that evaluation asks for."""
        return self.held_out if self.asked is None else self.asked

    @cached_property
    def together(self) -> Int[np.ndarray, "modules modules"]:
        """In how many seen combinations two modules meet; the diagonal is `usage`."""
        # The whole space is known in closed form, so only the smaller side needs counting.
        if 2 * len(self.seen) <= self.space.size:
            return co_occurrence(self.space, self.seen)
        return self.space.together - co_occurrence(self.space, self.held_out)

    @property
    def usage(self) -> Int[np.ndarray, " modules"]:
        """In how many seen combinations each module is active."""
        return np.diagonal(self.together)

    @property
    def covered(self) -> bool:
        """Whether training uses every module."""
        return bool(np.all(self.usage > 0))

    @cached_property
    def components(self) -> Int[np.ndarray, " modules"]:
        """The number of the co-occurrence graph's component that each module lies in."""
        return component_labels(self.together > 0)

    @property
    def connected(self) -> bool:
        """Whether training uses every module and links them all through shared combinations."""
        return self.covered and int(self.components.max()) == 0

    @property
    def unseen_pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """The pairs of modules that the space can make and training never showed together."""
        return np.argwhere(_pairs(self.space) & (self.together == 0))

    @property
    def pair_coverage(self) -> float | None:
        """The share of the pairs that the space can make which training showed.

        None if it can make no pair.
        """
        pairs = int(np.count_nonzero(_pairs(self.space)))
        return 1 - len(self.unseen_pairs) / pairs if pairs else None

    @cached_property
    def triple_coverage(self) -> float | None:
        """The share of the triples that the space can make which training showed.

        None if it can make no triple, or if counting them takes too long.
        """
        space = self.space
        possible = triangles(space.together > 0) if space.active >= 3 else 0
        if not possible or math.comb(space.modules, 3) > MOST_TRIPLES:
            return None
        found = seen_triples(space, self.seen, self.together > 0, _MOST_LOOKS)
        return None if found is None else int(np.count_nonzero(found)) / possible

    @cached_property
    def usage_by_factor(self) -> list[list[int]] | None:
        """The usage of each value of each factor; None where there are no factors."""
        if not isinstance(self.space, Slots):
            return None
        values = np.split(self.usage, self.space.starts[1:])
        return [usage.tolist() for usage in values]

    @cached_property
    def held_out_by_size(self) -> dict[int, int]:
        """How many held-out combinations there are of each number of modules."""
        counts = np.bincount(self.space.sizes(self.held_out), minlength=self.space.active + 1)
        return {size: int(n) for size, n in enumerate(counts) if n}

    @cached_property
    def latent_rank(self) -> int:
        """The rank of the seen 0/1 task matrix; below `modules`, tasks cannot tell them apart."""
        gram = self.together.astype(np.float64)
        scale = np.sqrt(np.maximum(np.diagonal(gram), 1.0))  # the same rank, better conditioned
        return int(np.linalg.matrix_rank(gram / np.outer(scale, scale), hermitian=True))

    def summary(self) -> dict[str, Any]:
        """Everything above as plain numbers and lists, ready for JSON."""
        factors: dict[str, Any] = {}
        if isinstance(self.space, Slots):
            factors = {"levels": list(self.space.levels), "usage_by_factor": self.usage_by_factor}
        return {
            "rule": self.rule,
            "constructed": self.constructed,
            "modules": self.space.modules,
            "active": self.space.active,
            "combinations": self.space.size,
            "seen": len(self.seen),
            "held_out": len(self.held_out),
            "held_out_share": len(self.held_out) / self.space.size,
            "held_out_by_size": {str(size): n for size, n in self.held_out_by_size.items()},
            "covered": self.covered,
            "connected": self.connected,
            "components": self.components.tolist(),
            "usage": self.usage.tolist(),
            **factors,
            "unseen_pairs": len(self.unseen_pairs),
            "pair_coverage": self.pair_coverage,
            "triple_coverage": self.triple_coverage,
            "latent_rank": self.latent_rank,
            "groups": None if self.groups is None else self.groups.astype(int).tolist(),
        }


def _pairs(space: Space) -> Bool[np.ndarray, "modules modules"]:
    """Which pairs of modules the space can make, the smaller number first."""
    return np.triu(space.together > 0, 1)


def co_occurrence(space: Space, ranks: ArrayLike) -> Int[np.ndarray, "modules modules"]:
    """In how many of these combinations two modules meet; the diagonal counts each module."""
    ranks = np.asarray(ranks)
    counts = np.zeros((space.modules, space.modules), np.int64)
    # Few of many modules: numbering the pairs beats a product of rows that are nearly all zero.
    sparse = space.modules**2 > 20 * space.active * (space.active + 1)
    for block in blocks(len(ranks)):
        if sparse:
            counts += _pairs_in(space.unrank(ranks[block]), space.modules)
            continue
        # Exact: a block has fewer rows than the 2**24 up to which float32 counts without gaps.
        rows = space.indicator(ranks[block]).astype(np.float32)
        counts += (rows.T @ rows).astype(np.int64)
    return counts


def _pairs_in(
    members: Int[np.ndarray, "n active"], modules: int
) -> Int[np.ndarray, "modules modules"]:
    """In how many rows two modules meet, for rows that are ascending and padded with -1."""
    wide = np.where(members < 0, modules, members).astype(np.int64)  # padding counts in a margin
    counts = np.zeros((modules + 1) ** 2, np.int64)
    for i, j in itertools.combinations_with_replacement(range(members.shape[1]), 2):
        counts += np.bincount(wide[:, i] * (modules + 1) + wide[:, j], minlength=len(counts))
    upper = counts.reshape(modules + 1, modules + 1)[:-1, :-1]
    return upper + np.triu(upper, 1).T


def component_labels(adjacent: Bool[np.ndarray, "modules modules"]) -> Int[np.ndarray, " modules"]:
    """The connected component of each module, numbered from 0."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    return connected_components(csr_array(adjacent), directed=False)[1]
