"""Supports with a built-in shape: modules cut in two, a ring, a module never seen."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt32

from recombine.combinations import Space, Subsets, subset_count
from recombine.errors import InvalidRequest
from recombine.supports.drawing import (
    Draw,
    Limits,
    Rule,
    among,
    covers,
    draw_from,
    random_blocks,
    subsets_only,
)
from recombine.supports.factors import DISCONNECTED_SLOTS, NON_COMPOSITIONAL_SLOTS


def _crossing(space: Subsets, split: int) -> int:
    """How many combinations use modules both below `split` and from `split` on."""
    first = subset_count(split, space.active)
    return space.size - first - subset_count(space.modules - split, space.active)


def _split(space: Subsets, held_out: float) -> int:
    """The size of the first group: the one whose crossings fill most of the held-out share."""
    crossing = {s: _crossing(space, s) for s in range(1, space.modules // 2 + 1)}
    fits = [s for s, combinations in crossing.items() if combinations / space.size <= held_out]
    return max(fits, key=crossing.__getitem__, default=1)


def _count_disconnected(space: Space, held_out: float) -> int:
    space = subsets_only(space, "disconnected")
    crossing = _crossing(space, _split(space, held_out))
    # Rounded as published: at 16 modules, 3 active, share 0.25 this is 120 + 53, not 120 + 54.
    return space.size - crossing - math.floor((held_out - crossing / space.size) * space.size)


def _draw_disconnected(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """No combination crosses between the groups; the rest of the share is taken within them.

    Every module stays covered: a draw that loses one is drawn again.
    """
    space = subsets_only(space, "disconnected")
    split = _split(space, held_out)
    halves = np.arange(split), np.arange(split, space.modules)
    within = np.sort(np.concatenate([among(space, half) for half in halves]))

    def needed() -> UInt32[np.ndarray, " n"]:
        return space.rank(np.concatenate([random_blocks(h, space.active, rng) for h in halves]))

    seen, constructed = draw_from(within, count, rng, lambda ranks: covers(space, ranks), needed)
    return Draw(seen, np.arange(space.modules) >= split, constructed)


def _limits_disconnected(space: Space, held_out: float) -> Limits:
    space = subsets_only(space, "disconnected")
    split = _split(space, held_out)
    crossing = _crossing(space, split)
    groups = (split, space.modules - split)
    least = sum(-(-group // space.active) for group in groups)
    return Limits(
        least,
        space.size - crossing,
        f"covering groups of {groups[0]} and {groups[1]} modules with at most {space.active} at a "
        f"time needs at least {least}",
        f"cutting off a single module already holds out {crossing}",
    )


def _draw_half_disconnected(
    space: Space, held_out: float, count: int, rng: np.random.Generator
) -> Draw:
    """Every module alone, and every pair inside each half."""
    space = subsets_only(space, "half-disconnected")
    second = np.arange(space.modules) >= space.modules // 2
    a, b = np.triu_indices(space.modules, 1)
    return Draw(_ones_and_pairs(space, a, b, second[a] == second[b]), second)


def _limits_half_disconnected(space: Space, held_out: float) -> Limits:
    space = subsets_only(space, "half-disconnected")
    if space.modules % 2:
        raise InvalidRequest(
            f"rule 'half-disconnected' cuts the modules in two halves: modules={space.modules} is "
            f"odd; use {space.modules + 1}"
        )
    return Limits()


def _draw_ring(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Every module alone, and with each of its next two neighbours on a ring."""
    space = subsets_only(space, "ring-connected")
    a, b = np.triu_indices(space.modules, 1)
    gap = np.minimum(b - a, space.modules - (b - a))
    return Draw(_ones_and_pairs(space, a, b, gap <= 2))


def _limits_ring(space: Space, held_out: float) -> Limits:
    space = subsets_only(space, "ring-connected")
    if space.active == 2 and space.modules <= 5:
        raise InvalidRequest(
            f"rule 'ring-connected' sees every pair of {space.modules} modules, so that nothing is "
            f"held out; use modules=6 or more, or active=3"
        )
    return Limits()


def _ones_and_pairs(
    space: Subsets, a: np.ndarray, b: np.ndarray, wanted: np.ndarray
) -> UInt32[np.ndarray, " n"]:
    pairs = space.rank(np.stack([a[wanted], b[wanted]], axis=1))
    return np.concatenate([np.arange(space.modules, dtype=np.uint32), pairs])


def _draw_non_compositional(
    space: Space, held_out: float, count: int, rng: np.random.Generator
) -> Draw:
    """Whatever uses the last module is held out, all else is seen."""
    space = subsets_only(space, "non-compositional")
    return Draw(among(space, np.arange(space.modules - 1)))


def _limits_non_compositional(space: Space, held_out: float) -> Limits:
    subsets_only(space, "non-compositional")
    return Limits()


DISCONNECTED = Rule(
    _draw_disconnected,
    _limits_disconnected,
    connected=False,
    count=_count_disconnected,
    slots=DISCONNECTED_SLOTS,
)
HALF_DISCONNECTED = Rule(
    _draw_half_disconnected,
    _limits_half_disconnected,
    connected=False,
    random=False,
    by_share=False,
)
RING_CONNECTED = Rule(_draw_ring, _limits_ring, random=False, by_share=False)
NON_COMPOSITIONAL = Rule(
    _draw_non_compositional,
    _limits_non_compositional,
    connected=False,
    covered=False,
    random=False,
    by_share=False,
    slots=NON_COMPOSITIONAL_SLOTS,
)
