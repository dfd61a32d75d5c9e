"""Genomes that nobody selected: what mutation alone makes of them, at a size that is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from recombine.cppn.archive import worth
from recombine.cppn.genome import Genome
from recombine.cppn.graph import wiring
from recombine.cppn.mutation import Limits, minimal_genome, mutated
from recombine.errors import InvalidRequest

TRIES = 1_000  # walks, until one ends at the size that is asked for


def unselected(
    line: Sequence[Genome],
    seed: int | Sequence[int],
    *,
    may: Callable[[Genome], bool] = worth,
    limits: Limits | None = None,
) -> list[Genome]:
    """A line of as many mutations as the one given, ending with as many nodes that matter.

    Every child takes its parent's place whatever it looks like. Only whole walks are refused: those
    that end at another number of hidden nodes, or at a genome that `may` not be a target. Where
    none of a thousand ends at the number, the one that came nearest is taken.

    >>> from recombine.cppn import evolve, chosen
    >>> archive = evolve(0, 400, size=16)
    >>> line = [one.genome for one in archive.line(chosen(archive, 1, 0)[0])]
    >>> walk = unselected(line, 0)
    >>> len(walk) == len(line) and wiring(walk[-1]).hidden == wiring(line[-1]).hidden
    True
    """
    if not line:
        raise InvalidRequest("an empty line: expected genomes from the first ancestor on")
    rng = np.random.default_rng(seed)
    wanted, nearest, off = wiring(line[-1]).hidden, None, np.inf
    for _ in range(TRIES):
        walk = [minimal_genome(rng)]
        for born in range(1, len(line)):
            walk.append(mutated(walk[-1], rng, f"n{born}", limits))
        apart = abs(wiring(walk[-1]).hidden - wanted)
        if apart < off and may(walk[-1]):
            nearest, off = walk, apart
        if off == 0:
            break
    if nearest is None:
        raise InvalidRequest(
            f"none of {TRIES} walks of {len(line) - 1} mutations ends at a picture worth drawing: "
            "give a longer line"
        )
    return nearest
