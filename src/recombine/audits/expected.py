"""How often values would occur together if factors had nothing to do with one another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

ROUNDS, CLOSE = 200, 1e-6


def expected_counts(
    table: np.ndarray, possible: Bool[np.ndarray, "..."], chosen: Sequence[int]
) -> Float[np.ndarray, "..."]:
    """The counts of a table under independence, with the same sums along each of its factors.

    Without rules this is the product of the factors' shares times the rows. Where cells are
    impossible their rows would have gone elsewhere, so the product is fitted to the possible cells
    (quasi-independence, by proportional fitting). Values of one list are treated alike: the table
    is made symmetric, and a value does not meet itself. So lists of exactly two of M values are
    expected to hold each pair equally often, and not half as often as they do.

    >>> table = np.array([[30, 10], [30, 30]])
    >>> expected_counts(table, np.ones((2, 2), bool), (0, 1)).tolist()
    [[24.0, 16.0], [36.0, 24.0]]
    """
    kept = np.where(possible, table, 0).astype(float)
    free = possible
    orders = _orders(chosen)
    if len(orders) > 1:
        kept = np.sum([np.transpose(kept, order) for order in orders], axis=0)
        free = np.logical_or.reduce([np.transpose(possible, order) for order in orders])
    fitted = _fitted(kept, free)
    return np.where(possible, fitted, 0.0)


def explained_counts(
    table: np.ndarray, possible: Bool[np.ndarray, "..."], chosen: Sequence[int]
) -> Float[np.ndarray, "..."]:
    """The least of what is expected under independence and given the cell's own parts.

    Three values whose pair is rare are rare themselves, which is no news beyond the pair. So one
    value at a time is taken as independent of the rest, seen as often together as they are, and
    then two values at a time as independent of each other given the rest: where a follows b and b
    follows c, values that avoid each other twice are rarer than either pair tells.
    """
    least = expected_counts(table, possible, chosen)
    if table.ndim < 3:
        return least
    orders = _orders(chosen)
    kept = np.sum([np.transpose(table, order) for order in orders], axis=0).astype(float)
    axes = range(table.ndim)
    without = {(axis,): kept.sum(axis=axis, keepdims=True) for axis in axes}
    for axis in axes:
        others = tuple(other for other in axes if other != axis)
        alone = kept.sum(axis=others, keepdims=True)
        least = np.minimum(least, without[axis,] * alone / max(kept.sum(), 1.0))
    for one, other in itertools.combinations(axes, 2):
        rest = kept.sum(axis=(one, other), keepdims=True)
        given = without[one,] * without[other,] / np.maximum(rest, 1.0)
        least = np.minimum(least, given)
    return np.where(possible, least, 0.0)


def _orders(chosen: Sequence[int]) -> list[tuple[int, ...]]:
    """The orders of the axes that leave the chosen factors as they are."""
    return [
        order
        for order in itertools.permutations(range(len(chosen)))
        if all(chosen[axis] == factor for axis, factor in zip(order, chosen, strict=True))
    ]


def _fitted(kept: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Products of one number per value, zero where not free, with the sums of `kept`."""
    axes = range(kept.ndim)
    sums = [kept.sum(axis=tuple(b for b in axes if b != a), keepdims=True) for a in axes]
    total = kept.sum()
    if not total:
        return np.zeros(kept.shape)
    fitted = np.where(free, total, 0.0)
    for wanted in sums:
        fitted = fitted * (wanted / total)
    if free.all():
        return fitted
    for _ in range(ROUNDS):
        worst = 0.0
        for axis, wanted in enumerate(sums):
            now = fitted.sum(axis=tuple(b for b in axes if b != axis), keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                scale = np.where(now > 0, wanted / now, 0.0)
            worst = max(worst, float(np.abs(now - wanted).max() / total))
            fitted *= scale
        if worst < CLOSE:
            break
    return fitted
