"""Intervals where units share members: combinations of the same concepts are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval


@dataclass(frozen=True, eq=False)
class Crossed:
    """Numbers of some units (combinations), and which members (concepts) each unit has.

    `draw` says whose members these are: groups of one draw share them.
    """

    x: Float[np.ndarray, " unit"]
    y: Float[np.ndarray, " unit"]
    controls: Float[np.ndarray, "unit control"]
    members: Bool[np.ndarray, "unit member"]
    draw: int = 0


def partial(group: Crossed, weights: Float[np.ndarray, " unit"] | None = None) -> float:
    """The correlation of x and y after both were freed from the controls; NaN where one does not
    vary.

    >>> rng = np.random.default_rng(0)
    >>> x, y, z = rng.normal(size=(3, 200))
    >>> one = Crossed(z + x, z + y, z[:, None], np.eye(200, dtype=bool))
    >>> print(f"{np.corrcoef(one.x, one.y)[0, 1]:.2f}, {partial(one):.2f}")
    0.50, -0.07
    """
    w = np.ones(len(group.x)) if weights is None else np.asarray(weights, float)
    kept = w > 0
    if kept.sum() < group.controls.shape[1] + 3:
        return float("nan")
    root = np.sqrt(w[kept])
    design = np.column_stack([np.ones(kept.sum()), group.controls[kept]]) * root[:, None]
    left, right = (
        side[kept] * root - design @ np.linalg.lstsq(design, side[kept] * root, rcond=None)[0]
        for side in (group.x, group.y)
    )
    scale = np.sqrt((left @ left) * (right @ right))
    spread = np.sqrt(np.sum((group.x[kept] * root) ** 2) * np.sum((group.y[kept] * root) ** 2))
    # What is left of a number that the controls explain wholly is rounding.
    return float(left @ right / scale) if scale > 1e-12 * max(spread, 1e-300) else float("nan")


def crossed_partial(groups: Sequence[Crossed]) -> tuple[Callable[[float], Interval], int]:
    """The mean over groups of a partial correlation, with an interval clustered by members.

    Correlations are averaged on Fisher's scale. Every member of every draw is left out in turn,
    with all its units in all groups of that draw. Returns the interval at any level, and the
    number of groups in which both numbers vary.
    """
    alive = [group for group in groups if np.isfinite(partial(group))]
    if not alive:
        raise InvalidRequest("no group in which both numbers vary: nothing to correlate")
    whole = np.arctanh([_bounded(partial(group)) for group in alive])
    left_out = []
    for draw in sorted({group.draw for group in alive}):
        mine = [n for n, group in enumerate(alive) if group.draw == draw]
        for member in np.flatnonzero(np.any([alive[n].members.any(axis=0) for n in mine], axis=0)):
            without = whole.copy()
            for n in mine:
                kept = ~alive[n].members[:, member]
                without[n] = np.arctanh(_bounded(partial(alive[n], kept.astype(float))))
            left_out.append(np.nan if np.isnan(without).all() else np.nanmean(without))
    return jackknife(float(whole.mean()), left_out, fisher=True), len(alive)


def clustered(
    statistic: Callable[[np.ndarray], float], members: Bool[np.ndarray, "unit member"], *,
    fisher: bool = False,
) -> Callable[[float], Interval]:  # fmt: skip
    """The interval of a statistic of units (rows), clustered by the members they share.

    `fisher` is for correlations, and works on Fisher's scale.
    """

    def of(rows: np.ndarray) -> float:
        value = statistic(rows) if len(rows) >= 3 else float("nan")
        return float(np.arctanh(_bounded(value))) if fisher else value

    used = np.flatnonzero(members.any(axis=0))
    left_out = [of(np.flatnonzero(~members[:, member])) for member in used]
    return jackknife(of(np.arange(len(members))), left_out, fisher=fisher)


def jackknife(
    estimate: float, left_out: Sequence[float], *, fisher: bool = False
) -> Callable[[float], Interval]:
    """Student's interval from what a statistic becomes when each member is left out in turn.

    A unit has several members, so members are no clusters that could be resampled one by one.
    Leaving each out with all its units covers at least what it says, also where the numbers are
    nothing but sums of effects of members, where intervals over units miss one time in four.
    """
    values, count = np.asarray(left_out, float), len(left_out)
    spread = np.sqrt((count - 1) / count * np.sum((values - values.mean()) ** 2))
    method = "Student t, members left out" + (", Fisher z" if fisher else "")

    def interval(level: float) -> Interval:
        low, high = -np.inf, np.inf
        if np.isfinite(spread) and np.isfinite(estimate):
            reach = stats.t.ppf((1 + level) / 2, count - 1) * spread
            low, high = estimate - reach, estimate + reach
        shown = np.tanh([estimate, low, high]) if fisher else [estimate, low, high]
        middle, low, high = (float(x) for x in shown)
        return Interval(middle, low, high, count, method, level)

    return interval


def _bounded(correlation: float) -> float:
    return float(np.clip(correlation, -1 + 1e-12, 1 - 1e-12))
