"""Means over few answers, with intervals that stay open where all of them are alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from scipy import stats

from recombine.lab.intervals import Interval
from recombine.lab.study import Evidence
from recombine.live.kit import Answers, readable

Marks = Mapping[Hashable, bool]  # by question: whether it was answered right


def right_of(answers: Answers, *same: str) -> Marks:
    """Which of these answers are right; `same` are columns that tell a question in any words.

    Without them, every answer is to a question of its own.
    """
    return {
        tuple(row[name] for name in same) or row.question.id: row["correct"] == 1 for row in answers
    }


def rate_of(marks: Marks) -> float:
    """The share that is right."""
    return sum(marks.values()) / len(marks)


def mean_difference(pairs: Sequence[tuple[Marks, Marks]], level: float = 0.95) -> Interval:
    """The mean over pairs of the first rate minus the second, with Agresti and Caffo's interval.

    Their further success and failure on each side, which keep it open at 0 and 1, are shared among
    the pairs: one in each would draw the mean of many towards 0, and away from what was seen. A
    question that several pairs hold, put in other words, is one question: what its answers have in
    common does not average out.

    >>> first, second = ({(right, n): n < right for n in range(30)} for right in (24, 9))
    >>> found = mean_difference([(first, second)])
    >>> found.estimate, round(found.low, 3), round(found.high, 3)
    (0.5, 0.254, 0.684)
    """
    gaps, centre, square = Fraction(), 0.0, 0.0
    more = 1 / len(pairs)
    pull: dict[Hashable, float] = defaultdict(float)  # of each question on the mean
    for pair in pairs:
        for sign, marks in zip((1, -1), pair, strict=True):
            right, count = sum(marks.values()), len(marks)
            gaps += sign * Fraction(right, count)
            rate = (right + more) / (count + 2 * more)
            centre += sign * rate
            square += more * (rate**2 + (1 - rate) ** 2) / (count + 2 * more) ** 2
            for question, mark in marks.items():
                pull[question] += sign * (mark - rate) / (count + 2 * more)
    square += math.fsum(each**2 for each in pull.values())
    reach = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt(square) / len(pairs)
    middle = centre / len(pairs)
    low, high = max(-1.0, middle - reach), min(1.0, middle + reach)
    return Interval(float(gaps / len(pairs)), low, high, len(pull), "Agresti-Caffo", level)


def fall(
    ends: Sequence[tuple[Answers, Answers]], same: Sequence[str], named: tuple[str, str]
) -> Evidence:
    """How much less is right at the second end than at the first, mean over pairs of ends.

    `same` are columns that tell a question in any words; `named` is what the ends are called.
    """
    for parts, name in zip(zip(*ends, strict=True), named, strict=True):
        readable([row for part in parts for row in part], f" at the {name}")
    marks = [(right_of(first, *same), right_of(second, *same)) for first, second in ends]
    return Evidence.of_interval(lambda level: mean_difference(marks, level))


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
