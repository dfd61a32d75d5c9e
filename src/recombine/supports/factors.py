"""The rules for one value per factor: factors cut in two, a value never seen, or often, or rarely.

A factor with a single value is part of every combination and changes no rank, so the rules look
only at the factors that vary: what they connect is connected without its help.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt32

from recombine.combinations import Slots, Space
from recombine.errors import InvalidRequest
from recombine.supports.drawing import (
    Draw,
    Limits,
    Rule,
    choose,
    connecting_limits,
    connects,
    covers,
    draw_from,
    left,
)


def varying(space: Space, rule: str) -> Slots:
    """The space of the factors that have two values or more; its ranks are the same."""
    assert isinstance(space, Slots)
    levels = tuple(n for n in space.levels if n > 1)
    if len(levels) < 2:
        raise InvalidRequest(
            f"rule {rule!r} needs at least two factors with at least two values each, such as "
            f"levels=(2, 3); got levels={space.levels}"
        )
    return Slots(levels)


def box(space: Slots, low: Sequence[int], high: Sequence[int]) -> UInt32[np.ndarray, " n"]:
    """The ranks of all combinations with values from `low` up to but not `high`, ascending."""
    ranks = np.zeros(1, np.uint32)
    for levels, first, end in zip(space.levels, low, high, strict=True):
        values = np.arange(first, end, dtype=np.uint32)
        ranks = (ranks[:, None] * np.uint32(levels) + values).ravel()
    return ranks


def ranks_of(space: Slots, values: Sequence[Sequence[int]] | np.ndarray) -> UInt32[np.ndarray, "n"]:
    """The ranks of combinations given by the value of each factor."""
    return space.rank(np.asarray(values) + space.starts)


def _grown(space: Slots, most: Sequence[int]) -> list[tuple[int, ...]]:
    """Numbers of values of each factor, from one each up to `most`, one value more at a time.

    The next value is of the factor of which the smallest share is in.
    """
    sizes, chain = [1] * space.active, [(1,) * space.active]
    while growing := [f for f in range(space.active) if sizes[f] < most[f]]:
        sizes[min(growing, key=lambda factor: sizes[factor] / space.levels[factor])] += 1
        chain.append(tuple(sizes))
    return chain


def _crossing(space: Slots, cut: Sequence[int]) -> int:
    """How many combinations have values on both sides of the cut."""
    rest = (levels - size for levels, size in zip(space.levels, cut, strict=True))
    return space.size - math.prod(cut) - math.prod(rest)


def _cut(space: Slots, held_out: float) -> tuple[int, ...]:
    """How many values of each factor are in the first group: what fills most of the share."""
    cuts = _grown(space, [levels // 2 for levels in space.levels])
    room = space.size - left(space, held_out)
    # No group of values is ever the larger one, so that each step of the chain crosses more.
    return next((cut for cut in reversed(cuts) if _crossing(space, cut) <= room), cuts[0])


def _draw_disconnected(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """No combination mixes the first values of the factors with the others.

    The rest of the share is taken within the two groups; every value stays covered.
    """
    space = varying(space, "disconnected")
    cut = _cut(space, held_out)
    corners = ((0,) * space.active, cut), (cut, space.levels)
    within = np.sort(np.concatenate([box(space, *corner) for corner in corners]))

    def needed() -> UInt32[np.ndarray, " n"]:
        return np.concatenate([_covering(space, low, high, rng) for low, high in corners])

    seen, constructed = draw_from(within, count, rng, lambda ranks: covers(space, ranks), needed)
    value = np.arange(space.modules) - space.starts[space.factors]
    return Draw(seen, value >= np.asarray(cut)[space.factors], constructed)


def _covering(
    space: Slots, low: Sequence[int], high: Sequence[int], rng: np.random.Generator
) -> UInt32[np.ndarray, " n"]:
    """The fewest combinations that use every value from `low` up to but not `high`."""
    sizes = [end - first for first, end in zip(low, high, strict=True)]
    columns = [
        first + np.concatenate([rng.permutation(size), rng.integers(size, size=max(sizes) - size)])
        for first, size in zip(low, sizes, strict=True)
    ]
    return ranks_of(space, np.stack(columns, axis=1))


def _limits_disconnected(space: Space, held_out: float) -> Limits:
    inner = varying(space, "disconnected")
    if inner != space:
        raise InvalidRequest(
            f"rule 'disconnected' cuts the values of every factor in two: a factor with one value "
            f"connects all combinations; leave it out: levels={inner.levels}"
        )
    cut = _cut(inner, held_out)
    crossing = _crossing(inner, cut)
    rest = [levels - size for levels, size in zip(inner.levels, cut, strict=True)]
    least = max(cut) + max(rest)
    return Limits(
        least,
        inner.size - crossing,
        f"covering groups of {sum(cut)} and {sum(rest)} values needs at least {least}",
        f"cutting off one value of each factor already holds out {crossing}",
    )


def _draw_non_compositional(
    space: Space, held_out: float, count: int, rng: np.random.Generator
) -> Draw:
    """The last value of the first factor with the most values is never seen, all else is."""
    space = varying(space, "non-compositional")
    high = list(space.levels)
    high[high.index(max(high))] -= 1
    return Draw(box(space, [0] * space.active, high))


def _limits_non_compositional(space: Space, held_out: float) -> Limits:
    varying(space, "non-compositional")
    return Limits()


def _draw_popular(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Whatever has value 0 of one of the first n factors is seen, then some with that of the next.

    Once all factors are among these, the rest is drawn from all other combinations.
    """
    space = varying(space, "popular")
    levels, factors = space.levels, space.active
    untouched = [math.prod((*(m - 1 for m in levels[:n]), *levels[n:])) for n in range(factors + 1)]
    n = max(n for n, others in enumerate(untouched) if space.size - others <= count)
    if n == 1 and count - (space.size - untouched[1]) < levels[0] - 1:
        n = 0  # too few are left to show the other values of the first factor
    without = box(space, [1] * n + [0] * (factors - n), levels)
    popular = _others(space.size, without)
    if n == 0:
        pool = _others(space.size, box(space, [1] * factors, levels))
    elif n < factors:
        pool = box(space, [1] * n + [0] * (factors - n), (*levels[:n], 1, *levels[n + 1 :]))
    else:
        pool = without

    def good(ranks: UInt32[np.ndarray, " n"]) -> bool:
        if n == 0:
            return connects(space, ranks)
        # All that has value 0 of one factor shows each value of the others; of two, it connects.
        return n > 1 or len(np.unique(space.values(ranks)[:, 0])) == levels[0] - 1

    def needed() -> UInt32[np.ndarray, " n"]:
        if n == 0:
            return _star(space, rng)
        rows = rng.integers(levels, size=(levels[0] - 1, factors))
        rows[:, 0], rows[:, 1] = np.arange(1, levels[0]), 0
        return ranks_of(space, rows)

    chosen, constructed = draw_from(pool, count - len(popular), rng, good, needed)
    return Draw(np.concatenate([popular, chosen]), constructed=constructed)


def _others(size: int, ranks: UInt32[np.ndarray, " n"]) -> UInt32[np.ndarray, " others"]:
    kept = np.ones(size, bool)
    kept[ranks] = False
    return np.flatnonzero(kept).astype(np.uint32)


def _star(space: Slots, rng: np.random.Generator) -> UInt32[np.ndarray, " n"]:
    """The fewest combinations that connect all values, through the values 0."""
    waiting = [[int(value) for value in 1 + rng.permutation(n - 1)] for n in space.levels]
    rows = [[0] * space.active]
    while any(waiting):
        # Longest queue first, and one factor held back at 0 to link with what is there already.
        length = np.asarray([len(values) for values in waiting])
        queue = np.lexsort((rng.random(space.active), -length))
        row = [0] * space.active
        for factor in queue[:-1]:
            row[factor] = waiting[factor].pop() if waiting[factor] else 0
        rows.append(row)
    return ranks_of(space, rows)


def _limits_popular(space: Space, held_out: float) -> Limits:
    return connecting_limits(varying(space, "popular"))


def _draw_unpopular(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """All of a core of first values, and each value outside it once, with the values 0.

    The core is the largest that leaves room for these links; what is left is drawn from the
    combinations of the core with the value that would join it next.
    """
    space = varying(space, "unpopular")
    cores = _grown(space, space.levels)
    place = max(n for n, core in enumerate(cores) if _core_count(space, core) <= count)
    core, larger = cores[place], cores[place + 1]
    outside = [(f, v) for f, size in enumerate(core) for v in range(size, space.levels[f])]
    rows = np.zeros((len(outside), space.active), int)
    for row, (factor, value) in enumerate(outside):
        rows[row, factor] = value
    links = ranks_of(space, rows)
    kept = np.concatenate([box(space, [0] * space.active, core), links])
    next_low = [size if more > size else 0 for size, more in zip(core, larger, strict=True)]
    pool = np.setdiff1d(box(space, next_low, larger), links)
    return Draw(np.concatenate([kept, pool[choose(len(pool), count - len(kept), rng)]]))


def _core_count(space: Slots, core: Sequence[int]) -> int:
    """Combinations of a core, and one link for each value outside it."""
    return math.prod(core) + space.modules - sum(core)


def _limits_unpopular(space: Space, held_out: float) -> Limits:
    inner = varying(space, "unpopular")
    least = _core_count(inner, [1] * inner.active)
    return Limits(
        least, why_least=f"a combination and a link to each other value needs at least {least}"
    )


DISCONNECTED_SLOTS = Rule(_draw_disconnected, _limits_disconnected, connected=False)
NON_COMPOSITIONAL_SLOTS = Rule(
    _draw_non_compositional,
    _limits_non_compositional,
    connected=False,
    covered=False,
    random=False,
    by_share=False,
)
POPULAR_SLOTS = Rule(_draw_popular, _limits_popular)
UNPOPULAR_SLOTS = Rule(_draw_unpopular, _limits_unpopular)
