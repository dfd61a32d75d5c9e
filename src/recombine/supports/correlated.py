"""Values that go together: training sees the combinations whose modules lie near one another."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt32

from recombine.combinations import Slots, Space, blocks
from recombine.supports.drawing import Draw, Limits, Rule, choose, connecting_limits, connects

NEAR = 1.5
"""How many combinations lie near enough, for each one that is seen."""


def spread(space: Space, ranks: np.ndarray) -> Float[np.ndarray, " n"]:
    """How far apart the modules of a combination lie, from 0 to 1.

    A value lies at its place among the values of its factor, a module at its number.
    """
    if isinstance(space, Slots):
        places = (space.values(ranks) + 0.5) / np.asarray(space.levels)
        return np.ptp(places, axis=1)
    members = space.unrank(ranks)
    return (members.max(axis=1) - np.where(members < 0, space.modules, members).min(axis=1)) / (
        space.modules
    )


def _draw_correlated(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Drawn from the combinations that spread least, and what it takes to connect them.

    The line itself comes first: it is what links near values to those beside them.
    """
    distance = np.concatenate(
        [spread(space, np.arange(block.start, block.stop)) for block in blocks(space.size)]
    )
    order = np.lexsort((rng.random(space.size), distance)).astype(np.uint32)
    near = order[: max(count, min(space.size - 1, int(NEAR * count)))]
    seen = near[choose(len(near), count, rng)]
    if connects(space, seen):
        return Draw(seen)
    return Draw(_joined(space, order, count), constructed=True)


def _joined(
    space: Space, order: UInt32[np.ndarray, " n"], count: int
) -> UInt32[np.ndarray, " count"]:
    """The nearest combinations that join what was apart, then the nearest of all others."""
    component = np.arange(space.modules)
    links = []
    for rank in order:
        members = space.unrank([rank])[0]
        labels = np.unique(component[members[members >= 0]])
        if len(labels) > 1:
            component[np.isin(component, labels)] = labels[0]
            links.append(rank)
        if len(links) == count or np.all(component == component[0]):
            break
    rest = order[~np.isin(order, links)]
    return np.concatenate([np.asarray(links, np.uint32), rest[: count - len(links)]])


def _limits(space: Space, held_out: float) -> Limits:
    connecting_limits(space)  # refuses a space that cannot be connected at all
    least = space.modules  # each link joins two modules at the least
    return Limits(
        least, why_least=f"joining {space.modules} modules to their neighbours takes {least}"
    )


CORRELATED = Rule(_draw_correlated, _limits)
