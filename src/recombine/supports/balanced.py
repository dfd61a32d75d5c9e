"""A support in which every module is used equally often, to within one.

Of one value per factor, the values of each factor are used equally often.
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Int, UInt32

from recombine.combinations import Slots, Space, Subsets, blocks
from recombine.errors import RecombineError
from recombine.supports.drawing import (
    Draw,
    Limits,
    Rule,
    choose,
    connecting_limits,
    connects,
    redraw,
    subsets_only,
)
from recombine.supports.factors import varying
from recombine.supports.support import co_occurrence

_TRIES = 50
_BLOCK = 1 << 14


def _draw(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Every module is used equally often, up to one; a drawn set is swapped towards that."""
    space = _space(space)
    # Its own stream: evening out the very set that `random` draws at this seed would give two
    # supports that share most of what they hold out, and a comparison that leans to no difference.
    rng = np.random.Generator(np.random.Philox(key=int(rng.integers(2**63))))
    seen, constructed = redraw(
        lambda: even_out(space, choose(space.size, count, rng), rng),
        lambda ranks: connects(space, ranks),
        lambda: _build(space, count, rng),
        _TRIES,
    )
    return Draw(seen, constructed=constructed)


def _space(space: Space) -> Subsets | Slots:
    if isinstance(space, Slots):
        return varying(space, "balanced")
    return subsets_only(space, "balanced")


def even_out(
    space: Subsets | Slots, seen: UInt32[np.ndarray, " n"], rng: np.random.Generator
) -> UInt32[np.ndarray, " n"]:
    """Swaps combinations until the most and the least used module differ by at most one.

    Of `Slots`, modules of the same factor; changing its value leaves the other factors as they are.

    A swap replaces module i by module j in a seen combination whose image is held out. This can
    always be done: of the seen combinations with i and not j, only as many can have a seen image
    as there are seen combinations with j and not i, so at least usage(i) - usage(j) swaps are
    free. They do not touch one another, so each (i, j) is done in one go. Sizes never change.
    """
    inside = np.zeros(space.size, bool)
    inside[seen] = True
    # Shifting the held-out side the other way is the same swap; work on the smaller side.
    mirrored = 2 * len(seen) > space.size
    if mirrored:
        inside = ~inside
    side = np.flatnonzero(inside).astype(np.uint32)
    rng.shuffle(side)
    usage = np.diagonal(co_occurrence(space, side))
    if mirrored:
        usage = np.diagonal(space.together) - usage
    starts = space.starts.tolist() if isinstance(space, Slots) else [0]
    for first, end in itertools.pairwise([*starts, space.modules]):
        for source, target, amount in _flows(usage[first:end], rng):
            out, into = (target, source) if mirrored else (source, target)
            _shift(space, side, inside, first + out, first + into, amount, rng)
    return np.flatnonzero(~inside if mirrored else inside).astype(np.uint32)


def _flows(
    usage: Int[np.ndarray, " modules"], rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    """How many uses to move from which module to which, (from, to, amount), to level `usage`."""
    modules = len(usage)
    low, rest = divmod(int(usage.sum()), modules)
    order = np.lexsort((rng.random(modules), -usage))
    wanted = np.full(modules, low)
    wanted[order[:rest]] += 1
    surplus = {int(m): int(usage[m] - wanted[m]) for m in rng.permutation(modules)}
    givers = [m for m, extra in surplus.items() if extra > 0]
    takers = [m for m, extra in surplus.items() if extra < 0]
    flows = []
    while givers:
        giver, taker = givers[-1], takers[-1]
        amount = min(surplus[giver], -surplus[taker])
        flows.append((giver, taker, amount))
        surplus[giver] -= amount
        surplus[taker] += amount
        if not surplus[giver]:
            givers.pop()
        if not surplus[taker]:
            takers.pop()
    return flows


def _shift(
    space: Subsets | Slots,
    side: UInt32[np.ndarray, " n"],
    inside: np.ndarray,
    out: int,
    into: int,
    amount: int,
    rng: np.random.Generator,
) -> None:
    """Replaces `out` by `into` in `amount` combinations of `side`, keeping `inside` in step."""
    start = int(rng.integers(len(side)))
    for part in blocks(len(side), _BLOCK):
        index = (np.arange(part.start, part.stop) + start) % len(side)
        members = space.unrank(side[index])
        has_out, has_into = (members == out).any(axis=1), (members == into).any(axis=1)
        fits = has_out & ~has_into
        index, members = index[fits], members[fits]
        images = space.rank(np.where(members == out, np.asarray(into, members.dtype), members))
        free = np.flatnonzero(~inside[images])[:amount]
        index, images = index[free], images[free]
        inside[side[index]] = False
        inside[images] = True
        side[index] = images
        amount -= len(free)
        if not amount:
            return


def _build(
    space: Subsets | Slots, count: int, rng: np.random.Generator
) -> UInt32[np.ndarray, " count"]:
    """A balanced connected set grown one combination at a time, for a handful of combinations."""
    for _ in range(_TRIES):
        if isinstance(space, Slots):
            taken = _grow_slots(space, count, rng)
        else:
            taken = _grow_subsets(space, count, rng)
        if taken is not None:
            return np.asarray(sorted(taken), np.uint32)
    raise RecombineError(
        f"found no balanced connected support of {count} combinations of {space.modules} modules "
        f"in {_TRIES} tries; use another support seed or a smaller held-out share"
    )


def _grow_subsets(space: Subsets, count: int, rng: np.random.Generator) -> set[int] | None:
    """A chain that links through the least used modules, so that all are connected.

    Then the least used modules are combined again and again, which never lets usage differ by
    more than one.
    """
    shares = np.asarray([space.count(h) for h in range(1, space.active + 1)]) / space.size
    usage = np.zeros(space.modules, int)
    taken: set[int] = set()
    order = [int(m) for m in rng.permutation(space.modules)]
    fresh, order = order[: space.active], order[space.active :]
    taken.add(_add(space, fresh, usage))
    while order:
        fresh, order = order[: space.active - 1], order[space.active - 1 :]
        ends = np.flatnonzero(usage == usage[usage > 0].min())
        taken.add(_add(space, [int(rng.choice(ends)), *fresh], usage))
    for _ in range(200 * count):
        if len(taken) == count:
            return taken
        members = 1 + int(rng.choice(space.active, p=shares))
        chosen = np.lexsort((rng.random(space.modules), usage))[:members]
        rank = int(space.rank(chosen[None])[0])
        if rank not in taken:
            taken.add(rank)
            usage[chosen] += 1
    return None


def _grow_slots(space: Slots, count: int, rng: np.random.Generator) -> set[int] | None:
    """The least used value of each factor again and again, joining what is not yet connected."""
    usage = np.zeros(space.modules, int)
    parts = np.arange(space.modules)  # the component of each module
    taken: set[int] = set()
    for _ in range(200 * count):
        if len(taken) == count:
            return taken if np.ptp(parts) == 0 else None
        chosen = _joining(space, usage, parts, rng)
        rank = int(space.rank(chosen[None])[0])
        if rank not in taken:
            taken.add(rank)
            usage[chosen] += 1
            parts[np.isin(parts, parts[chosen])] = parts[chosen[0]]
    return None


def _joining(
    space: Slots,
    usage: Int[np.ndarray, " modules"],
    parts: Int[np.ndarray, " modules"],
    rng: np.random.Generator,
) -> Int[np.ndarray, " factors"]:
    """A least used value of each factor, from as many different components as can be."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    ready = usage == np.minimum.reduceat(usage, space.starts)[space.factors]
    shuffled = rng.permutation(space.modules)[parts]
    offered = np.zeros((space.active, space.modules), bool)
    offered[space.factors[ready], shuffled[ready]] = True
    matched = maximum_bipartite_matching(csr_array(offered), perm_type="column")
    wanted = ready & (shuffled == matched[space.factors])
    # A factor that was matched takes a value of that component, any other one a value at random.
    order = np.lexsort((rng.random(space.modules), ~wanted, ~ready, space.factors))
    return order[space.starts]


def _add(space: Subsets, members: list[int], usage: Int[np.ndarray, " modules"]) -> int:
    usage[members] += 1
    return int(space.rank([members])[0])


def _limits(space: Space, held_out: float) -> Limits:
    return connecting_limits(_space(space))


BALANCED = Rule(_draw, _limits, by_count=True, version=2)
