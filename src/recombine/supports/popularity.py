"""Supports in which a few modules are used far more often than the others, or far less."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32

from recombine.combinations import Space, Subsets, subset_count
from recombine.supports.drawing import (
    Draw,
    Limits,
    Rule,
    among,
    connecting_limits,
    covers,
    draw_from,
    random_blocks,
    subsets_only,
)
from recombine.supports.factors import POPULAR_SLOTS, UNPOPULAR_SLOTS


def _draw_popular(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Whatever touches the first n modules is seen, and some of what touches the next one."""
    space = subsets_only(space, "popular")
    n = _popular(space, count)
    if n:
        seen = np.ones(space.size, bool)
        seen[among(space, np.arange(n, space.modules))] = False
        popular = np.flatnonzero(seen).astype(np.uint32)
        # With one popular module every pair with it is seen: connected whatever is drawn next.
        wanted = count - len(popular)
        if not wanted:
            return Draw(popular)
    else:
        popular, wanted = np.empty(0, np.uint32), count
    others = np.arange(n + 1, space.modules)
    more = np.sort(among(space, others, besides=(n,)))

    def needed() -> UInt32[np.ndarray, " n"]:
        rows = random_blocks(others, space.active - 1, rng)
        return space.rank(np.pad(rows, ((0, 0), (1, 0)), constant_values=n))

    # All share module n, so that covering the others also connects them.
    chosen, constructed = draw_from(
        more, wanted, rng, lambda ranks: n > 0 or covers(space, ranks), needed
    )
    return Draw(np.concatenate([popular, chosen]), constructed=constructed)


def _popular(space: Subsets, count: int) -> int:
    """The most modules whose combinations, taken together, are at most `count`."""
    untouched = [subset_count(space.modules - n, space.active) for n in range(space.modules)]
    return max(n for n, others in enumerate(untouched) if space.size - others <= count)


def _draw_unpopular(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """All of a core, one pair {0, m} for each module outside it, then combinations of the first.

    What is added last joins the first module outside the core with the core, in rank order.
    """
    space = subsets_only(space, "unpopular")
    return Draw(_core_and_links(space, count, _SMALLEST_CORE, through_zero=False))


def _draw_minimal(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """As unpopular, with a core of one module or more, and adding first what uses module 0."""
    space = subsets_only(space, "minimal")
    return Draw(_core_and_links(space, count, 1, through_zero=True))


def _core_and_links(
    space: Subsets, count: int, smallest: int, through_zero: bool
) -> UInt32[np.ndarray, " count"]:
    sizes = range(min(smallest, space.modules - 1), space.modules)
    core = max(n for n in sizes if _core_count(space, n) <= count)
    outside = np.arange(core, space.modules)
    links = space.rank(np.stack([np.zeros_like(outside), outside], axis=1))
    kept = np.concatenate([among(space, np.arange(core)), links])
    more = np.sort(among(space, np.arange(core), besides=(core,)))
    more = more[more != links[0]]
    if through_zero:
        uses_zero = np.isin(more, among(space, np.arange(1, core), besides=(0, core)))
        more = np.concatenate([more[uses_zero], more[~uses_zero]])
    return np.concatenate([kept, more[: count - len(kept)]])


def _core_count(space: Subsets, core: int) -> int:
    """Combinations of a core, and one link for each module outside it."""
    return subset_count(core, space.active) + space.modules - core


def _limits_popular(space: Space, held_out: float) -> Limits:
    return connecting_limits(subsets_only(space, "popular"))


def _limits_unpopular(space: Space, held_out: float) -> Limits:
    return _core_limits(subsets_only(space, "unpopular"), _SMALLEST_CORE)


def _limits_minimal(space: Space, held_out: float) -> Limits:
    return _core_limits(subsets_only(space, "minimal"), 1)


def _core_limits(space: Subsets, smallest: int) -> Limits:
    smallest = min(smallest, space.modules - 1)
    least = _core_count(space, smallest)
    return Limits(
        least,
        why_least=f"a core of {smallest} and a link to each other module needs at least {least}",
    )


_SMALLEST_CORE = 2

POPULAR = Rule(_draw_popular, _limits_popular, slots=POPULAR_SLOTS)
UNPOPULAR = Rule(_draw_unpopular, _limits_unpopular, random=False, slots=UNPOPULAR_SLOTS)
MINIMAL = Rule(_draw_minimal, _limits_minimal, random=False)
