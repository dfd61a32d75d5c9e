"""Means over few answers, with intervals that stay open where all of them are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy import stats

from recombine.lab.intervals import Interval
from recombine.lab.study import Evidence
from recombine.live.kit import Answers

Counts = tuple[int, int]  # right, of so many


def right_of(answers: Answers) -> Counts:
    """How many of these answers are right."""
    return sum(value == 1 for value in answers.values("correct")), len(answers)


def mean_difference(pairs: Sequence[tuple[Counts, Counts]], level: float = 0.95) -> Interval:
    """The mean over pairs of the first rate minus the second, with Agresti and Caffo's interval.

    Their further success and failure on each side, which keep it open at 0 and 1, are shared among
    the pairs: one in each would draw the mean of many towards 0, and away from what was seen.

    >>> found = mean_difference([((24, 30), (9, 30))])
    >>> found.estimate, round(found.low, 3), round(found.high, 3)
    (0.5, 0.254, 0.684)
    """
    gaps = [Fraction(*first) - Fraction(*second) for first, second in pairs]
    centres, squares = [], []
    more = 1 / len(pairs)
    for ends in pairs:
        rates = [(right + more) / (count + 2 * more) for right, count in ends]
        centres.append(rates[0] - rates[1])
        squares += [
            p * (1 - p) / (count + 2 * more) for p, (_, count) in zip(rates, ends, strict=True)
        ]
    centre, error = math.fsum(centres) / len(pairs), math.sqrt(math.fsum(squares)) / len(pairs)
    reach = float(stats.norm.ppf((1 + level) / 2)) * error
    low, high = max(-1.0, centre - reach), min(1.0, centre + reach)
    units = sum(count for ends in pairs for _, count in ends)
    return Interval(float(sum(gaps) / len(gaps)), low, high, units, "Agresti-Caffo", level)


def mean_within(
    values: Sequence[float] | np.ndarray, lowest: float, highest: float, note: str = ""
) -> Evidence:
    """The mean of a number that lies between two ends; equal values do not make it certain.

    If all of n instances agree, up to 1 - .05^(1/n) of all instances may still be others, and these
    may differ by as much as there is room for.

    >>> found = mean_within([0.0] * 20, -1, 1).interval(0.95)
    >>> found.estimate, round(found.low, 3), round(found.high, 3)
    (0.0, -0.139, 0.139)
    """
    numbers = np.asarray(values, float)
    if not numbers.size or np.ptp(numbers) > 1e-12:
        return Evidence.of_values(numbers, note)
    one, count = float(numbers[0]), len(numbers)

    def interval(level: float) -> Interval:
        others = 1 - (1 - level) ** (1 / count)
        low, high = one - others * (one - lowest), one + others * (highest - one)
        return Interval(one, low, high, count, "all equal", level)

    return Evidence.of_interval(interval, note)
