"""How a score grows with the number of combinations that a probe is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from recombine.lab.intervals import Interval

FRACTIONS = (1 / 8, 1 / 4, 1 / 2)
FLAT = 0.02  # a doubling that adds less is called flat
_POWERS = (0.25, 0.5, 1.0, 1.5, 2.0)
_CLOSE = 0.03


@dataclass(frozen=True)
class Curve:
    """Scores at growing numbers of training combinations, and what they say in words.

    `extrapolated` is the score at twice the last number, where the curve bears it.
    """

    combinations: tuple[int, ...]
    scores: tuple[Interval, ...]
    said: str
    extrapolated: float | None


def kept_rows(
    group: Int[np.ndarray, " row"],
    fold: Int[np.ndarray, " row"],
    fraction: float,
    rng: np.random.Generator,
) -> tuple[Bool[np.ndarray, " row"], int]:
    """Rows of a random part of each fold's combinations; and how many combinations train a probe.

    Smaller parts drawn with an equal generator lie within larger ones.
    """
    count, folds = int(group.max()) + 1, int(fold.max()) + 1
    fold_of = np.zeros(count, np.int64)
    fold_of[group] = fold
    order, kept = rng.permutation(count), np.zeros(count, bool)
    for a in range(folds):
        own = order[fold_of[order] == a]
        kept[own[: max(1, round(fraction * len(own)))]] = True
    return kept[group], round(int(kept.sum()) * (folds - 1) / folds)


def described(combinations: Sequence[int], scores: Sequence[Interval], metric: str) -> Curve:
    """The curve in words: flat, rising (with an estimate at twice the size), or too short."""
    sizes, values = np.asarray(combinations, float), np.array([s.estimate for s in scores])
    told = (tuple(combinations), tuple(scores))
    if len(sizes) < 3 or not np.isfinite(values).all():
        return Curve(*told, "too few sizes to see a curve; nothing is extrapolated", None)
    step = float(values[-1] - values[-2])
    last = f"from {combinations[-2]} to {combinations[-1]} training combinations"
    noise = (scores[-1].high - scores[-1].low) / 2
    if FLAT <= abs(step) < noise:
        said = f"{metric} changed by {step:+.3f} {last}, which is within the noise ({noise:.3f})"
        return Curve(*told, f"{said}; nothing is extrapolated", None)
    if abs(step) < FLAT:
        return Curve(*told, f"flat: {metric} changed by {step:+.3f} {last}", None)
    if step < 0:
        said = f"not rising: {metric} changed by {step:+.3f} {last}; nothing is extrapolated"
        return Curve(*told, said, None)
    ahead, off = _power_law(sizes, values)
    said = f"still rising: {metric} gained {step:.3f} {last}"
    if len(sizes) < 4 or off > _CLOSE or not values[-1] <= ahead <= 1:
        return Curve(*told, f"{said}; nothing is extrapolated", None)
    said += f"; a power law through the sizes says {ahead:.2f} at twice as many (not measured)"
    return Curve(*told, said, ahead)


def _power_law(sizes: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The best of a few curves ceiling - loss / size^power: its value at twice the last size, and
    how far off it is at the sizes seen."""
    best, ahead = np.inf, float("nan")
    for power in _POWERS:
        design = np.column_stack([np.ones_like(sizes), -((sizes / sizes[-1]) ** -power)])
        found = np.linalg.lstsq(design, values, rcond=None)[0]
        off = float(np.abs(design @ found - values).max())
        if off < best and found[1] >= 0:
            best, ahead = off, float(found[0] - found[1] * 2**-power)
    return ahead, best
