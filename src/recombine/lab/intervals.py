"""Intervals over units of replication: Student t for a few, a bootstrap over units for many.

Below `FEW` units a bootstrap has too few distinct resamples to be trusted, so the interval is
Student t on the jackknife (for a mean: the textbook interval). From `FEW` units up it is the
bias-corrected accelerated (BCa) bootstrap at an expanded level. The reasons for that choice:

- Plain BCa is too short for 10 to 40 units (about 90 % instead of 95 % at 10 normal units). Asking
  it for the normal quantile sqrt(n / (n - 1)) * t(n - 1) instead of z puts that back.
- The percentile-t bootstrap covers as well for skewed values, but explodes when resamples can lose
  the one unit that carries the spread: nine seeds at .99 and one at .2 is what we often see.
- BCa does not care on which scale a score is written, and at usual levels stays inside its range.

Beyond the last few resamples the distribution is continued as a normal with the bootstrap's own
spread, so very high (Holm-adjusted) levels do not saturate at the most extreme resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import special, stats

from recombine.errors import InvalidRequest

FEW = 10
RESAMPLES = 4000
_UNRESOLVED = 5  # resamples beyond which a tail is continued as a normal
_ROUNDING = 1e-12

Side = Literal["greater", "less", "two-sided"]
Unit = TypeVar("Unit")
Vector = Float[np.ndarray, " unit"]


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval, and what it was replicated over.

    >>> Interval(0.9, 0.8, 1.0, units=5, method="Student t", level=0.95).contains(0.85)
    True
    """

    estimate: float
    low: float
    high: float
    units: int
    method: str
    level: float

    @property
    def bounded(self) -> bool:
        """Whether it says anything: that of a single unit has no ends."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def contains(self, value: float) -> bool:
        """Whether a value lies in the interval, ends included."""
        return self.low <= value <= self.high

    def within(self, least: float, most: float) -> Interval:
        """The part of it that can be true: no share is above 1. It covers as often as before.

        >>> Interval(0.95, 0.51, 1.4, units=2, method="Student t", level=0.95).within(0, 1).high
        1
        """
        low, high = (min(max(end, least), most) for end in (self.low, self.high))
        return replace(self, low=low, high=high)


def mean_interval(values: ArrayLike, *, level: float = 0.95, seed: int = 0) -> Interval:
    """The interval of a mean, one value per unit of replication.

    >>> mean_interval([1.0, 2.0, 3.0]).method
    'Student t'
    """
    return _mean_evidence(values, seed).interval(level)


def median_interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """The interval of a median, between two of the values: nothing is assumed of their law.

    With fewer than six values no two of them enclose the median with 95 %.

    >>> found = median_interval([0.2, 0.95, 0.96, 0.97, 0.98, 0.99, 0.99, 0.99, 1.0])
    >>> found.estimate, found.low, found.high
    (0.98, 0.95, 0.99)
    >>> median_interval([0.9, 0.95, 0.96, 0.97, 0.98]).low
    -inf
    """
    found = np.sort(finite_vector("values", values))
    # So many values may lie beyond each end: the chance of more is that of heads in as many tosses.
    beyond = int(stats.binom.ppf((1 - level) / 2, found.size, 0.5))
    low, high = (found[beyond - 1], found[-beyond]) if beyond else (-math.inf, math.inf)
    estimate = float(np.median(found))
    return Interval(estimate, float(low), float(high), found.size, "order statistics", level)


def clustered_interval(
    statistic: Callable[[list[Unit]], float],
    units: Sequence[Unit],
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> Interval:
    """The interval of any statistic of a list of units, resampling whole units (clusters of rows).

    A resample on which the statistic is not finite is dropped; when one in twenty is, the
    interval falls back on Student t and the jackknife.

    >>> pooled = lambda units: float(np.concatenate(units).mean())
    >>> clustered_interval(pooled, [np.array([1.0, 2.0]), np.array([4.0])]).units
    2
    """
    count = len(units)
    if count == 0:
        raise InvalidRequest("an interval needs at least one unit of replication, got none")
    estimate = float(statistic(list(units)))
    if count == 1 or not math.isfinite(estimate):
        return _StudentEvidence(estimate, math.inf, count).interval(level)
    left_out = np.array(
        [statistic([*units[:i], *units[i + 1 :]]) for i in range(count)], dtype=np.float64
    )
    if count >= FEW:
        draws = _resampled(statistic, units, seed, resamples)
        finite = draws[np.isfinite(draws)]
        if len(finite) >= 0.95 * resamples and np.isfinite(left_out).all():
            return _bootstrap_evidence(estimate, finite, left_out).interval(level)
    spread = math.sqrt((count - 1) / count * float(np.sum((left_out - left_out.mean()) ** 2)))
    return _StudentEvidence(
        estimate, spread if math.isfinite(spread) else math.inf, count
    ).interval(level)


def p_value_against(
    evidence: ArrayLike | Interval, threshold: float, side: Side = "two-sided", *, seed: int = 0
) -> float:
    """The p-value of "the true mean is the threshold", dual to the interval.

    `side` is the alternative: "greater" asks whether the truth lies above the threshold. The
    two-sided value is the smallest p at which the interval of level 1 - p excludes the threshold.
    Given values (one per unit) it uses the method `mean_interval` would; given only an `Interval`
    it reads a standard error off the half that faces the threshold and uses t(units - 1).

    >>> round(p_value_against([1.0, 2.0, 3.0], 0.0), 4)
    0.0742
    """
    if isinstance(evidence, Interval):
        score = _score_of_interval(evidence, threshold)
        units = evidence.units
    else:
        gathered = _mean_evidence(evidence, seed)
        score, units = gathered.score(threshold), gathered.units
    if math.isnan(score) or units < 2:
        return 1.0
    above = float(stats.t.sf(score, units - 1))
    below = float(stats.t.cdf(score, units - 1))
    match side:
        case "greater":
            return above
        case "less":
            return below
        case "two-sided":
            return min(1.0, 2 * min(above, below))
    raise InvalidRequest(f"side {side!r}: expected 'greater', 'less' or 'two-sided'")


@dataclass(frozen=True)
class _StudentEvidence:
    """An estimate with a standard error on units - 1 degrees of freedom."""

    estimate: float
    error: float
    units: int
    method: str = "Student t"

    def interval(self, level: float) -> Interval:
        t = _t_quantile(level, self.units)
        reach = 0.0 if self.error == 0 else t * self.error
        if math.isnan(self.estimate):
            low, high = -math.inf, math.inf
        else:
            low, high = self.estimate - reach, self.estimate + reach
        return Interval(self.estimate, low, high, self.units, self.method, level)

    def score(self, threshold: float) -> float:
        return _ratio(self.estimate - threshold, self.error)


@dataclass(frozen=True)
class _BootstrapEvidence:
    """A bootstrap distribution with its bias correction and acceleration."""

    estimate: float
    draws: Vector
    bias: float
    acceleration: float
    units: int

    def interval(self, level: float) -> Interval:
        z = math.sqrt(self.units / (self.units - 1)) * _t_quantile(level, self.units)
        low, high = (self._value_at(self._shifted(signed)) for signed in (-z, z))
        return Interval(self.estimate, low, high, self.units, "bootstrap BCa", level)

    def score(self, threshold: float) -> float:
        """The t statistic whose interval would end exactly at the threshold."""
        off = self._normal_at(threshold) - self.bias
        stretch = 1 + self.acceleration * off
        z = math.copysign(math.inf, off) if stretch <= 0 else off / stretch - self.bias
        return -z * math.sqrt((self.units - 1) / self.units)

    def _shifted(self, z: float) -> float:
        w = self.bias + z
        stretch = 1 - self.acceleration * w
        return math.copysign(math.inf, w) if stretch <= 0 else self.bias + w / stretch

    def _edge(self) -> float:
        return -float(special.ndtri(_UNRESOLVED / len(self.draws)))

    def _value_at(self, z: float) -> float:
        edge = self._edge()
        inside = float(np.clip(z, -edge, edge))
        value = float(np.quantile(self.draws, special.ndtr(inside)))
        return value + (z - inside) * float(self.draws.std())

    def _normal_at(self, value: float) -> float:
        edge = self._edge()
        lowest, highest = self._value_at(-edge), self._value_at(edge)
        spread = float(self.draws.std())
        if value < lowest:
            return -edge - (lowest - value) / spread
        if value > highest:
            return edge + (value - highest) / spread
        # Among tied resamples take the rank that favours the threshold, so p errs upwards.
        last = value < self.estimate
        ordered = self.draws[::-1] if last else self.draws
        points, place = np.unique(ordered, return_index=True)
        rank = len(ordered) - 1 - place if last else place
        probability = float(np.interp(value, points, rank / (len(ordered) - 1)))
        return float(np.clip(special.ndtri(probability), -edge, edge))


def _mean_evidence(values: ArrayLike, seed: int) -> _StudentEvidence | _BootstrapEvidence:
    ordered = np.sort(finite_vector("values", values))  # so the order of units cannot matter
    count = len(ordered)
    mean = float(ordered.mean())
    if count == 1:
        return _StudentEvidence(mean, math.inf, 1)
    error = float(ordered.std(ddof=1)) / math.sqrt(count)
    if error <= _ROUNDING * abs(mean):
        return _StudentEvidence(mean, 0.0, count, "no spread")
    if count < FEW:
        return _StudentEvidence(mean, error, count)
    rng = np.random.default_rng(seed)
    rows = max(1, 2_000_000 // count)
    draws = np.concatenate(
        [
            ordered[rng.integers(0, count, (min(rows, RESAMPLES - done), count))].mean(axis=1)
            for done in range(0, RESAMPLES, rows)
        ]
    )
    return _bootstrap_evidence(mean, draws, (count * mean - ordered) / (count - 1))


def _bootstrap_evidence(
    estimate: float, draws: Vector, left_out: Vector
) -> _StudentEvidence | _BootstrapEvidence:
    units = len(left_out)
    slack = _ROUNDING * max(1e-300, float(np.abs(draws).max()))
    if float(np.ptp(draws)) <= slack:
        return _StudentEvidence(estimate, 0.0, units, "no spread")
    below = (np.mean(draws < estimate - slack) + np.mean(draws <= estimate + slack)) / 2
    resolved = float(np.clip(below, 1 / len(draws), 1 - 1 / len(draws)))
    influence = left_out.mean() - left_out
    cubes, squares = float(np.sum(influence**3)), float(np.sum(influence**2))
    acceleration = cubes / (6 * squares**1.5) if squares > 0 else 0.0
    return _BootstrapEvidence(
        estimate, np.sort(draws), float(special.ndtri(resolved)), acceleration, units
    )


def _resampled(
    statistic: Callable[[list[Unit]], float], units: Sequence[Unit], seed: int, resamples: int
) -> Vector:
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(units), (resamples, len(units)))
    return np.array([statistic([units[i] for i in pick]) for pick in picks], dtype=np.float64)


def _t_quantile(level: float, units: int) -> float:
    if not 0 < level < 1:
        raise InvalidRequest(f"level {level}: expected a number between 0 and 1, such as 0.95")
    return math.inf if units < 2 else float(stats.t.ppf((1 + level) / 2, units - 1))


def _score_of_interval(interval: Interval, threshold: float) -> float:
    off = interval.estimate - threshold
    half = interval.estimate - interval.low if off > 0 else interval.high - interval.estimate
    return _ratio(off, half) * _t_quantile(interval.level, interval.units)


def _ratio(off: float, error: float) -> float:
    if error == 0:
        return 0.0 if off == 0 else math.copysign(math.inf, off)
    return off / error


def finite_vector(name: str, values: ArrayLike) -> Vector:
    """A float64 vector with at least one number and nothing that is not finite."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0:
        raise InvalidRequest(
            f"{name} has shape {vector.shape}: expected one number per unit, at least one"
        )
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise InvalidRequest(
            f"{name} has {bad.size} of {vector.size} entries that are not finite (first at "
            f"{bad[0]}): leave diverged units out before, and report how many"
        )
    return vector
