"""The same sentence in two conditions, or in two ciphers: what is compared, and how far apart."""

from __future__ import annotations

import math

from scipy import stats

from recombine.lab.intervals import Interval
from recombine.live.embers_stimuli import FREQUENT_AND_RARE, HIGH, LOW
from recombine.live.kit import Answers
from recombine.probability.scoring import paired_difference

FEW_DIFFER = 5  # a bootstrap with fewer pairs unlike the rest believes too much in what it saw

Pairs = list[tuple[float, float]]


def main_task(answers: Answers) -> str:
    """The task that is compared over conditions: the first with both ends, or the first of all."""
    tasks = answers.labels("task")
    both = [t for t in tasks if {HIGH, LOW} <= set(answers.where(task=t).labels("condition"))]
    return (both or tasks)[0]


def pairs(
    answers: Answers, first: dict[str, str], second: dict[str, str], score: str = "correct"
) -> Pairs:
    """A score in two conditions or tasks, for each sentence that was answered in both."""
    a, b = (
        {row["sentence"]: row[score] for row in answers.where(**where)} for where in (first, second)
    )
    return [(a[key], b[key]) for key in a if key in b]


def difference(found: Pairs, level: float = 0.95) -> Interval:
    """How much more often the first of each pair is 1 than the second.

    By resampling pairs; where almost all are alike, because hardly any differ or hardly any do
    not, Bonett and Price's interval, which does not take the few for all that could be.

    >>> nothing = difference([(1.0, 1.0)] * 100)
    >>> nothing.estimate, round(nothing.high, 3), round(difference([(1.0, 1.0)] * 10).high, 3)
    (0.0, 0.027, 0.231)
    >>> always = difference([(1.0, 0.0)] * 5)
    >>> always.estimate, round(always.low, 3), always.high
    (1.0, 0.196, 1.0)
    """
    count = len(found)
    firsts, seconds = sum(a > b for a, b in found), sum(a < b for a, b in found)
    if count - max(firsts, seconds, count - firsts - seconds) >= FEW_DIFFER:
        return paired_difference([a for a, _ in found], [b for _, b in found], level=level)
    p, q = (firsts + 1) / (count + 2), (seconds + 1) / (count + 2)
    reach = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((p + q - (p - q) ** 2) / (count + 2))
    low, high = max(-1.0, p - q - reach), min(1.0, p - q + reach)
    return Interval((firsts - seconds) / count, low, high, count, "Bonett-Price", level)


def frequent_and_rare(answers: Answers) -> tuple[str, str] | None:
    """The two tasks that differ in how often they are met, where both were asked."""
    tasks = set(answers.labels("task"))
    return next((pair for pair in FREQUENT_AND_RARE if set(pair) <= tasks), None)
