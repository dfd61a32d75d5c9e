"""Supports that hold out whole kinds: pairs never shown together, or too much changed at once."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, UInt32

from recombine.combinations import Slots, Space, Subsets, blocks, subset_count
from recombine.errors import InvalidRequest
from recombine.supports.drawing import (
    Draw,
    Limits,
    Rule,
    among,
    connecting_limits,
    connects,
    subsets_only,
)
from recombine.supports.factors import varying
from recombine.supports.support import component_labels

_TRIES = 20


def _draw_pairs(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Random pairs of modules are never shown together; whatever has none of them is seen.

    As many pairs as bring the held-out combinations nearest to the share, and none that would
    leave a module unseen or cut off from the others.
    """
    space = _pairable(space)
    target = space.size - count
    found = [0]
    for _ in range(_TRIES):
        seen = _withhold(space, target, rng)
        found.append(space.size - int(np.count_nonzero(seen)))
        if abs(found[-1] - target) <= _smallest(space):
            return Draw(np.flatnonzero(seen).astype(np.uint32))
    nearest = math.floor(max(found) / space.size * 1000) / 1000
    raise InvalidRequest(
        f"held-out {held_out} of {space.size} combinations: withholding whole pairs held out at "
        f"most {max(found)} in {_TRIES} tries; use held-out {nearest} or less, or another seed"
    )


def _withhold(
    space: Subsets | Slots, target: int, rng: np.random.Generator
) -> Bool[np.ndarray, " combinations"]:
    """What is still seen once random pairs are withheld that hold out about `target`."""
    together = space.together
    pairs = rng.permutation(np.argwhere(np.triu(together > 0, 1)))
    shape = space.levels if isinstance(space, Slots) else (space.size,)
    seen = np.ones(shape, bool)
    allowed = together > 0
    held, too_many = 0, space.size
    for a, b in pairs.tolist():
        if together[a, b] >= too_many:
            continue
        having = _having(space, a, b)
        before = seen[having].copy()
        gain = int(np.count_nonzero(before))
        if not gain:
            continue  # they no longer meet as it is
        if abs(held + gain - target) >= abs(held - target):
            too_many = int(together[a, b])  # from here on only pairs of fewer combinations
            continue
        seen[having] = False
        allowed[a, b] = allowed[b, a] = False
        if _connected(space, seen, allowed, a, b):
            held += gain
        else:
            seen[having] = before
            allowed[a, b] = allowed[b, a] = True
    return seen.ravel()


def _having(
    space: Subsets | Slots, a: int, b: int
) -> UInt32[np.ndarray, " n"] | tuple[int | slice, ...]:
    """Where the combinations with both modules are."""
    if isinstance(space, Subsets):
        others = np.delete(np.arange(space.modules), [a, b])
        return among(space, others, besides=(a, b))
    index: list[int | slice] = [slice(None)] * space.active
    for module in (a, b):
        factor = int(space.factors[module])
        index[factor] = module - int(space.starts[factor])
    return tuple(index)


def _connected(
    space: Subsets | Slots,
    seen: Bool[np.ndarray, "..."],
    allowed: Bool[np.ndarray, "modules modules"],
    a: int,
    b: int,
) -> bool:
    """Whether all modules are still connected, now that `a` and `b` no longer meet."""
    if isinstance(space, Slots):
        return connects(space, np.flatnonzero(seen).astype(np.uint32))
    # Modules alone are always seen, and so is each pair that is allowed: the pairs tell all.
    common = allowed[a] & allowed[b]
    common[[a, b]] = False
    return bool(common.any()) or int(component_labels(allowed).max()) == 0


def _pairable(space: Space) -> Subsets | Slots:
    if isinstance(space, Slots):
        return varying(space, "held-out-pairs")
    return subsets_only(space, "held-out-pairs")


def _smallest(space: Subsets | Slots) -> int:
    """The fewest combinations that share a pair of modules."""
    together = space.together
    return int(together[np.triu(together > 0, 1)].min())


def _limits_pairs(space: Space, held_out: float) -> Limits:
    space = _pairable(space)
    limits, pair = connecting_limits(space), _smallest(space)
    least, why = limits.least, limits.why_least
    if isinstance(space, Subsets):
        least = 2 * space.modules - 1
        why = f"each module alone, and the fewest pairs that connect them, make {least}"
    return Limits(least, space.size - pair, why, f"a single pair already holds out {pair}")


def _draw_few_changed(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """At most n modules at a time, or at most n factors with a value other than 0, are seen.

    n is the number for which the held-out share comes nearest.
    """
    options = _few(space)
    most = min(options, key=lambda n: abs(options[n] - count))
    if not isinstance(space, Slots):
        return Draw(np.arange(options[most], dtype=np.uint32))  # ranks go by size
    ranks = [np.arange(part.start, part.stop, dtype=np.uint32) for part in blocks(space.size)]
    changed = [np.count_nonzero(space.values(part), axis=1) for part in ranks]
    return Draw(np.concatenate([p[c <= most] for p, c in zip(ranks, changed, strict=True)]))


def _few(space: Space) -> dict[int, int]:
    """How many combinations have at most n modules, or n factors away from value 0, by n."""
    if isinstance(space, Slots):
        inner = varying(space, "few-changed")
        with_changes = np.ones(1, object)  # how many combinations have n changes, at index n
        for levels in inner.levels:
            with_changes = np.convolve(with_changes, np.asarray([1, levels - 1], object))
        return {n: int(with_changes[: n + 1].sum()) for n in range(1, inner.active)}
    inner = subsets_only(space, "few-changed")
    if inner.active < 3:
        raise InvalidRequest(
            f"rule 'few-changed' sees two modules at a time or more and holds out larger "
            f"combinations: active={inner.active} has none; use active=3 or more"
        )
    return {n: subset_count(inner.modules, n) for n in range(2, inner.active)}


def _limits_few_changed(space: Space, held_out: float) -> Limits:
    _few(space)
    return Limits()


HELD_OUT_PAIRS = Rule(_draw_pairs, _limits_pairs, exact=False)
FEW_CHANGED = Rule(_draw_few_changed, _limits_few_changed, random=False, exact=False)
