"""Which triples of modules training showed together, by colexicographic number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int, UInt32

from recombine.combinations import Space

MOST_TRIPLES = 2**28
"""The largest table of triples that is kept, in bytes: 1170 modules."""

_PART = 1 << 16


def triples(
    members: Int[np.ndarray, "n active"],
) -> Iterator[tuple[Bool[np.ndarray, " n"], Int[np.ndarray, " n"]]]:
    """For each way to pick three places: which rows have all three, and the triples' numbers."""
    wide = members.astype(np.int64)
    two, three = wide * (wide - 1) // 2, wide * (wide - 1) * (wide - 2) // 6
    for i, j, k in itertools.combinations(range(members.shape[1]), 3):
        inside = members[:, k] >= 0  # ascending with -1 at the end, so the last tells for all
        yield inside, np.where(inside, wide[:, i] + two[:, j] + three[:, k], 0)


def triangles(met: Bool[np.ndarray, "modules modules"]) -> int:
    """How many triples have three pairs that met: all that can have met themselves."""
    edges = met.astype(np.float64)  # counts are exact up to 2**53
    np.fill_diagonal(edges, 0)
    return round(float(np.sum((edges @ edges) * edges)) / 6)


def seen_triples(
    space: Space,
    seen: UInt32[np.ndarray, " seen"],
    met: Bool[np.ndarray, "modules modules"],
    most: int | None = None,
) -> Bool[np.ndarray, " triples"] | None:
    """Which triples these combinations have; None if that takes a look at over `most` of them.

    `met` says which pairs they have: once every triple whose pairs all met is found, no more are.
    """
    found = np.zeros(max(1, math.comb(space.modules, 3)), bool)
    possible = triangles(met) if space.active >= 3 else 0
    parts = max(1, len(seen) // _PART)
    looked = 0
    for start in range(parts):
        if np.count_nonzero(found) == possible:
            break
        part = seen[start::parts]
        looked += len(part) * math.comb(space.active, 3)
        if most is not None and looked > most:
            return None
        for inside, number in triples(space.unrank(part)):
            found[number[inside]] = True
    return found
