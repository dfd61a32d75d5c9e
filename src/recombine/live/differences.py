"""How far apart the rates of pairs of cells are, on average, with an interval for few answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from scipy import stats

from recombine.lab.intervals import Interval
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
