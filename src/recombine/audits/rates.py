"""Intervals of mean rates over combinations: what they hold lies between 0 and 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from recombine.audits.association import wilson
from recombine.audits.risk_models import clustered_estimate
from recombine.lab.intervals import Interval, mean_interval

MANY = 10_000  # combinations from which a mean is as good as normal

Rates = Float[np.ndarray, " combination"]


def mean_rate(rates: Rates) -> Interval:
    """The mean of one rate per combination.

    >>> mean_rate(np.ones(5)).high, round(mean_rate(np.ones(5)).low, 2)
    (1.0, 0.57)
    """
    if len(rates) > MANY:  # no bootstrap is needed, and it would take a while
        return clustered_rate(rates, np.ones(len(rates)))
    found = mean_interval(rates)
    if len(rates) < 2 or found.low == found.high:
        return _alike(found.estimate, len(rates))
    # What lies beyond 0 and 1 holds no rate that could be true.
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def clustered_rate(part: Rates, size: Rates) -> Interval:
    """A rate over rows (`part` of `size` in each combination), its interval over combinations."""
    rate = float(part.sum() / size.sum())
    pull = (part - rate * size) / size.sum()
    if len(part) < 2 or np.abs(pull).max() < 1e-12:
        return _alike(rate, len(part))
    return clustered_estimate(rate, pull, (0.0, 1.0))


def _alike(rate: float, combinations: int) -> Interval:
    """Wilson's bounds, with each combination as one draw.

    Combinations that all score the same have no spread to judge others by. Of all rates with this
    mean, those that are 0 or 1 spread most, so that the bounds are wide enough for any.
    """
    low, high = (float(end) for end in wilson(np.array(rate * combinations), combinations))
    return Interval(rate, low, high, combinations, "Wilson over combinations", 0.95)
