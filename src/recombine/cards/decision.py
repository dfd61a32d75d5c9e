"""The decision a card opens with: the model composes, it does not, or there is too little data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from recombine.lab.intervals import Interval, mean_interval

Verdict = Literal["composes", "does not compose", "does not know the parts", "not enough data"]

FEWEST = 5  # combinations on either side; with fewer nothing is decided
FINEST = 0.25  # of the tolerance: a gap nearer to the line than this is called on the line
POWER = 0.8  # the chance that as many rows as are asked for settle it

Scores = Float[np.ndarray, " combination"]


@dataclass(frozen=True)
class Decision:
    """What was decided, from which numbers, and what would settle it where nothing was.

    Each combination counts once, however many rows it has: the question is about combinations.
    """

    verdict: Verdict
    sentence: str
    seen: Interval | None = None
    unseen: Interval | None = None
    gap: Interval | None = None
    more_combinations: int | None = None
    more_rows: int | None = None


def decide(
    score: Scores,
    new: Bool[np.ndarray, " combination"],
    rows: Float[np.ndarray, " combination"],
    *,
    tolerance: float = 0.05,
    floor: float = 0.8,
    level: float = 0.95,
) -> Decision:
    """Whether new combinations are handled as well as trained ones, to within a tolerance.

    `score` is the mean outcome of each combination, from 0 to 1, `new` whether training never had
    it, `rows` how many rows that mean is of. A model below `floor` on trained combinations does not
    know the parts, and says nothing about putting them together.

    >>> score, new = np.r_[np.ones(60), np.ones(60)], np.arange(120) >= 60
    >>> decide(score, new, np.full(120, 5.0)).verdict
    'composes'
    >>> decide(np.where(new, 0.4, 1.0), new, np.full(120, 5.0)).verdict
    'does not compose'
    """
    old = ~new
    if min(old.sum(), new.sum()) < FEWEST:
        return _too_few(old, new, rows)
    seen, unseen = (mean_interval(score[which], level=level) for which in (old, new))
    if _welch(score[old], np.full(2, floor), level, one_sample=True).high < 0:
        return Decision(
            "does not know the parts",
            f"Does not know the parts: it scores {seen.estimate:.2f} on combinations it was "
            f"trained on ({seen.low:.2f} to {seen.high:.2f}), below {floor:g}, so that its score "
            f"of {unseen.estimate:.2f} on new ones says nothing about combining.",
            seen, unseen,
        )  # fmt: skip
    gap = _welch(score[old], score[new], level)
    off = f"{abs(gap.estimate):.2f} {'less' if gap.estimate >= 0 else 'more'}"
    numbers = (
        f"{unseen.estimate:.2f} on {unseen.units} new combinations against {seen.estimate:.2f} on "
        f"{seen.units} trained ones, {off} (from {gap.low:.2f} to {gap.high:.2f} less)"
    )
    if gap.high <= tolerance:
        sentence = f"Composes: {numbers}; at most {tolerance:g} less was to be shown."
        return Decision("composes", sentence, seen, unseen, gap)
    if gap.low > tolerance:
        sentence = f"Does not compose: {numbers}; more than the {tolerance:g} that is allowed."
        return Decision("does not compose", sentence, seen, unseen, gap)
    needed = _needed(score[old], score[new], gap, tolerance, level)
    each, trained_each = (max(1.0, float(np.mean(rows[which]))) for which in (new, old))
    total = math.ceil(needed.new * each + needed.trained * trained_each)
    edge = " (it lies on the line: this many would tell which side, if any)" if needed.line else ""
    also = f" and {_several(needed.trained, 'trained')}" if needed.trained else ""
    sentence = (
        f"Not enough data to say: {numbers}, and {tolerance:g} is allowed. About {total:,} more "
        f"rows in {_several(needed.new, 'new')}{also} would settle it{edge}."
    )
    return Decision("not enough data", sentence, seen, unseen, gap, needed.new, total)


def _several(count: int, kind: str) -> str:
    return f"{count:,} more {kind} combination{'' if count == 1 else 's'}"


def _too_few(
    old: Bool[np.ndarray, " combination"],
    new: Bool[np.ndarray, " combination"],
    rows: Float[np.ndarray, " combination"],
) -> Decision:
    side, there = ("new", int(new.sum())) if new.sum() < FEWEST else ("trained", int(old.sum()))
    each = max(1.0, float(np.mean(rows))) if len(rows) else 1.0
    more = FEWEST - there
    total = math.ceil(more * each)
    sentence = (
        f"Not enough data to say: only {there} of the evaluated combinations are {side}; at least "
        f"{FEWEST} are needed, that is about {total} rows in {_several(more, side)}."
    )
    return Decision(
        "not enough data", sentence, more_combinations=more, more_rows=total
    )  # fmt: skip


class _Needed(NamedTuple):
    """How many more combinations of either kind, and whether the gap lies on the line."""

    new: int
    trained: int
    line: bool


def _needed(
    old: Scores, new: Scores, gap: Interval, tolerance: float, level: float
) -> _Needed:  # fmt: skip
    """What would bring the interval clear of the line four times in five, if the gap stays.

    New combinations make only their own side surer: where the trained side alone is too unsure,
    more of both are asked for.
    """
    away = max(abs(gap.estimate - tolerance), FINEST * tolerance)
    line = abs(gap.estimate - tolerance) < FINEST * tolerance
    wanted = (away / float(stats.norm.ppf(0.5 + level / 2) + stats.norm.ppf(POWER))) ** 2
    trained, fresh = _error(old)[0], _error(new)[0]
    if trained < 0.5 * wanted:
        total = len(new) * fresh / (wanted - trained)
        return _Needed(max(1, math.ceil(total) - len(new)), 0, line)
    times = (trained + fresh) / wanted
    more = (math.ceil(max(times - 1, 0) * len(side)) for side in (new, old))
    return _Needed(max(1, next(more)), next(more), line)


def _welch(a: Scores, b: Scores, level: float, one_sample: bool = False) -> Interval:
    """The interval of mean(a) - mean(b) for samples of unequal spread (Welch)."""
    parts = [_error(a), (0.0, math.inf) if one_sample else _error(b)]
    total = sum(error for error, _ in parts)
    free = total**2 / sum(error**2 / free for error, free in parts if error) if total else math.inf
    half = float(stats.t.ppf(0.5 + level / 2, free)) * math.sqrt(total)
    off = float(np.mean(a) - np.mean(b))
    return Interval(off, off - half, off + half, len(a) + len(b), "Welch t", level)


def _error(values: Scores) -> tuple[float, float]:
    """The squared error of a mean, and its degrees of freedom.

    The spread is at least what one more combination that fails altogether would make it: where a
    few combinations fail and none of these was drawn, the others' spread says nothing of them.
    """
    count = len(values)
    spread = max(float(np.var(values, ddof=1)), float(np.var(np.append(values, 0.0), ddof=1)))
    return spread / count, count - 1
