"""Judging claims: intervals, tests, Holm's adjustment and verdicts, under one name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from recombine.errors import InvalidRequest
from recombine.lab.intervals import (
    Interval,
    Side,
    clustered_interval,
    finite_vector,
    mean_interval,
    median_interval,
    p_value_against,
)
from recombine.lab.regression import (
    Coefficient,
    LeastSquares,
    least_squares,
    matched,
    partial_correlation,
    pearson,
    within_group_correlation,
)

__all__ = [
    "Coefficient",
    "Dependence",
    "Holm",
    "Interval",
    "LeastSquares",
    "Side",
    "Verdict",
    "clustered_interval",
    "false_discovery",
    "holm",
    "holm_levels",
    "least_squares",
    "matched",
    "mean_interval",
    "median_interval",
    "p_value_against",
    "partial_correlation",
    "pearson",
    "permutation_p",
    "verdict",
    "within_group_correlation",
]

Verdict = Literal["supported", "refuted", "inconclusive"]
Dependence = Literal["positive", "any"]  # between tests
_EXACT = 18  # units up to which all 2^n sign patterns are enumerated


def permutation_p(
    values: ArrayLike,
    *,
    side: Side = "two-sided",
    threshold: float = 0.0,
    seed: int = 0,
    resamples: int = 20_000,
) -> float:
    """The sign-flip p-value of "values are symmetric around the threshold", one value per unit.

    Exact up to 18 units: the share of the 2^n sign patterns whose mean is at least as extreme.
    Beyond, random patterns with the observed one counted among them.

    >>> permutation_p([1.0, 2.0, 3.0, 4.0, 5.0], side="greater")
    0.03125
    """
    off = finite_vector("values", values) - threshold
    if len(off) <= _EXACT:
        sums = np.zeros(1)
        for value in off:
            sums = np.concatenate([sums + value, sums - value])
    else:
        signs = np.random.default_rng(seed).integers(0, 2, (resamples, len(off)), dtype=np.int8)
        sums = np.concatenate([[off.sum()], (2.0 * signs - 1.0) @ off])
    slack = 1e-12 * float(np.abs(off).sum())  # the same sum in another order still counts as equal
    observed = float(off.sum())
    match side:
        case "greater":
            extreme = sums >= observed - slack
        case "less":
            extreme = sums <= observed + slack
        case "two-sided":
            extreme = np.abs(sums) >= abs(observed) - slack
        case _:
            raise InvalidRequest(f"side {side!r}: expected 'greater', 'less' or 'two-sided'")
    return float(extreme.mean())


@dataclass(frozen=True)
class Holm:
    """Holm's adjustment of a family of claims, in the order the claims were given."""

    levels: list[float]
    p: list[float]
    rejected: list[bool]


def holm(p_values: Sequence[float], alpha: float = 0.05) -> Holm:
    """Holm's step-down adjustment, so that all claims of a report err together at most alpha.

    Among m claims the one with the i-th smallest p is tested at alpha / (m - i + 1), and its
    interval has level 1 - alpha / (m - i + 1). The descent ends at the first claim that fails;
    the claims after it keep the level of that claim. So an interval at its adjusted level excludes
    the claim's threshold exactly when Holm's procedure rejects it (p two-sided, as from
    `p_value_against`).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03]).p]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise InvalidRequest(
            f"p-values {list(p_values)}: expected numbers from 0 to 1; leave untested claims out"
        )
    if not 0 < alpha < 1:
        raise InvalidRequest(f"alpha {alpha}: expected a number between 0 and 1, such as 0.05")
    count = len(p)
    levels, adjusted, rejected = [math.nan] * count, [math.nan] * count, [False] * count
    running, failed_at = 0.0, None
    for rank, claim in enumerate(np.argsort(p, kind="stable")):
        left = count - rank
        running = max(running, min(1.0, left * float(p[claim])))
        if failed_at is None and p[claim] > alpha / left:
            failed_at = left
        levels[claim] = 1 - alpha / (failed_at or left)
        adjusted[claim] = running
        rejected[claim] = failed_at is None
    return Holm(levels, adjusted, rejected)


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """The level of each claim's Holm-adjusted interval, in the order the claims were given.

    >>> holm_levels([0.001, 0.9])
    [0.975, 0.95]
    """
    return holm(p_values, alpha).levels


def false_discovery(
    p_values: ArrayLike, *, tests: int | None = None, dependence: Dependence = "positive"
) -> Float[np.ndarray, " test"]:
    """p-values adjusted so that at most that share of what is listed is false, on average.

    Benjamini and Hochberg's (1995), or Benjamini and Yekutieli's (2001) for any dependence. Of
    many `tests` the smallest p-values may be given alone: those left out count as 1.

    >>> false_discovery([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.04, 0.04]
    >>> (false_discovery([0.001, 0.04, 0.02], tests=10) <= 0.05).tolist()
    [True, False, False]
    """
    p = np.asarray(p_values, float)
    count = len(p) if tests is None else tests
    if dependence not in ("positive", "any"):
        raise InvalidRequest(f"dependence {dependence!r}: expected 'positive' or 'any'")
    if count < len(p):
        raise InvalidRequest(f"{len(p)} p-values were given of only {count} tests")
    order = np.argsort(p, kind="stable")
    price = float(np.sum(1 / np.arange(1, count + 1))) if dependence == "any" else 1.0
    scaled = p[order] * count * price / np.arange(1, len(p) + 1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted


def verdict(
    interval: Interval,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    minimum_units: int = 5,
) -> Verdict:
    """What an interval says about a criterion fixed in advance.

    Supported when the whole interval meets every bound and there are enough units; refuted when
    the whole interval misses some bound, over three units or more (two can agree by chance);
    otherwise inconclusive.

    >>> verdict(Interval(0.9, 0.85, 0.95, units=5, method="Student t", level=0.95), at_least=0.8)
    'supported'
    """
    bounds = [bound for bound in (at_least, at_most, above, below) if bound is not None]
    if not bounds or not np.isfinite(bounds).all():
        raise InvalidRequest(
            f"bounds {bounds}: a criterion needs at least one finite bound, such as at_least=0.9"
        )
    floor = max((b for b in (at_least, above) if b is not None), default=-math.inf)
    ceiling = min((b for b in (at_most, below) if b is not None), default=math.inf)
    if floor > ceiling:
        raise InvalidRequest(
            f"no number is over {floor} and under {ceiling}: the bounds contradict each other"
        )
    low, high = interval.low, interval.high
    if any(math.isnan(number) for number in (interval.estimate, low, high)):
        return "inconclusive"
    met, missed = [], []
    if at_least is not None:
        met.append(low >= at_least)
        missed.append(high < at_least)
    if above is not None:
        met.append(low > above)
        missed.append(high <= above)
    if at_most is not None:
        met.append(high <= at_most)
        missed.append(low > at_most)
    if below is not None:
        met.append(high < below)
        missed.append(low >= below)
    if any(missed):
        return "refuted" if interval.units >= min(3, minimum_units) else "inconclusive"
    return "supported" if all(met) and interval.units >= minimum_units else "inconclusive"
