"""The decision a card opens with: the model composes, it does not, or there is too little data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from recombine.lab.intervals import Interval, mean_interval

Verdict = Literal["composes", "does not compose", "does not know the parts", "not enough data"]

FEWEST = 5  # combinations on either side; with fewer nothing is decided
FINEST = 0.25  # of the tolerance: a gap nearer to the line than this is called on the line
POWER = 0.8  # the chance that as many rows as are asked for settle it
MOST = 1e9  # times the combinations there are: nobody is asked for more

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


@dataclass(frozen=True)
class Left:
    """How many combinations exist that were not evaluated; infinite where nobody knows."""

    new: float = math.inf
    trained: float = math.inf


def decide(
    score: Scores,
    new: Bool[np.ndarray, " combination"],
    rows: Float[np.ndarray, " combination"],
    *,
    tolerance: float = 0.05,
    floor: float = 0.8,
    level: float = 0.95,
    left: Left | None = None,
) -> Decision:
    """Whether new combinations are handled as well as trained ones, to within a tolerance.

    `score` is the mean outcome of each combination, from 0 to 1, `new` whether training never had
    it, `rows` how many rows that mean is of, `left` what else could be evaluated. A model below
    `floor` on trained combinations does not know the parts, and says nothing about putting them
    together.

    >>> score, new = np.r_[np.ones(60), np.ones(60)], np.arange(120) >= 60
    >>> decide(score, new, np.full(120, 5.0)).verdict
    'composes'
    >>> decide(np.where(new, 0.4, 1.0), new, np.full(120, 5.0)).verdict
    'does not compose'
    """
    left = left or Left()
    if min((~new).sum(), new.sum()) < FEWEST:
        return _too_few(new, rows, left)
    old, fresh = (
        _Side(score[which], rows[which], more)
        for which, more in ((~new, left.trained), (new, left.new))
    )
    seen, unseen = (_bounded(mean_interval(s.score, level=level), 0.0) for s in (old, fresh))
    if _above(old, floor, level).high < 0:
        return Decision(
            "does not know the parts",
            f"Does not know the parts: it scores {seen.estimate:.2f} on combinations it was "
            f"trained on ({seen.low:.2f} to {seen.high:.2f}), below {floor:g}, so that its score "
            f"of {unseen.estimate:.2f} on new ones says nothing about combining.",
            seen, unseen,
        )  # fmt: skip
    gap = _bounded(_gap(old, fresh, level), -1.0)
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
    needed = _needed(old, fresh, gap, tolerance, level)
    sentence = (
        f"Not enough data to say: {numbers}, and {tolerance:g} is allowed. "
        f"{_advice(needed, old, fresh)}"
    )
    return Decision("not enough data", sentence, seen, unseen, gap, needed.new, needed.rows)


def decide_answered(
    right: Scores,
    answered: Scores,
    unanswered: Scores,
    new: Bool[np.ndarray, " combination"],
    *,
    tolerance: float = 0.05,
    floor: float = 0.8,
    level: float = 0.95,
    left: Left | None = None,
) -> Decision:
    """The decision where some rows have no answer; it stands only if these cannot change it.

    For each combination: the sum of the outcomes of its answered rows, how many these are, and how
    many have no answer. Rows without an answer are left out, then counted against composing (wrong
    where new, right where trained), then for it. A verdict is given where the last two agree.

    >>> full, new = np.full(120, 5.0), np.arange(120) >= 60
    >>> decide_answered(full, full, 0 * full, new).verdict
    'composes'
    >>> half = np.where(np.arange(120) < 90, 5.0, 0.0)  # half of the new ones have no answer
    >>> print(decide_answered(half, half, 5 - half, new).sentence.partition(":")[0])
    Not enough answers to say
    """
    there, every = answered > 0, answered + unanswered

    def judged(fill: Scores) -> Decision:
        return decide(
            (right + fill * unanswered) / every, new, every, tolerance=tolerance, floor=floor,
            level=level, left=left,
        )  # fmt: skip

    told = f" {_without_answer(new, every, unanswered)}"
    # A combination without any answer exists, and is not among those whose score is known.
    further = left and Left(
        left.new + int((new & ~there).sum()), left.trained + int((~new & ~there).sum())
    )
    plain = decide(
        right[there] / answered[there], new[there], answered[there], tolerance=tolerance,
        floor=floor, level=level, left=further,
    )  # fmt: skip
    if not unanswered.any():
        return plain
    against, favour = judged(np.where(new, 0.0, 1.0)), judged(np.where(new, 1.0, 0.0))
    if min(new.sum(), (~new).sum()) < FEWEST:  # answers alone cannot make them enough
        return replace(against, sentence=against.sentence + told)
    if against.verdict == favour.verdict == "not enough data":
        if plain.verdict == "not enough data" and plain.unseen is not None:
            again = " Combinations without any answer count as still to be had."
            return replace(
                plain, sentence=plain.sentence + told + ("" if there.all() else again)
            )  # fmt: skip
    elif against.verdict == favour.verdict:  # whatever the missing answers are
        stands = plain if plain.verdict == against.verdict else against
        return replace(stands, sentence=stands.sentence + told)
    return Decision(
        "not enough data",
        f"Not enough answers to say:{told} Counted against composing, {_reading(against)}; "
        f"counted for it, {_reading(favour)}.",
    )


def _reading(found: Decision) -> str:
    assert found.seen is not None and found.unseen is not None  # enough of both were evaluated
    return (
        f"new combinations score {found.unseen.estimate:.2f} and trained ones "
        f"{found.seen.estimate:.2f} ({found.verdict})"
    )


def _without_answer(
    new: Bool[np.ndarray, " combination"], every: Scores, unanswered: Scores
) -> str:  # fmt: skip
    """How many rows have no answer, in words."""
    total, missing = int(every[new].sum()), int(unanswered[new].sum())
    trained = int(unanswered[~new].sum())
    also = f", and {trained:,} of the {int(every[~new].sum()):,} rows of trained ones"
    if not total:
        return f"No row is of a new combination{also} have no answer."
    return (
        f"{missing:,} of the {total:,} rows of new combinations have no answer"
        f"{also if trained else ''}."
    )


class _Side(NamedTuple):
    """The evaluated combinations of one kind, their rows, and how many more of it exist."""

    score: Scores
    rows: Scores
    left: float = math.inf

    def error(self, more: int = 0) -> float:
        """The squared error of the mean, with so many `more` combinations like these.

        Combinations are drawn without replacement from as many as there are, and rows within
        each: the first part falls to nothing where all are evaluated, the second with rows. The
        spread is at least what one more combination that fails altogether would make it, as long
        as there is one more: where a few fail and none of these was drawn, the others' spread
        says nothing of them.
        """
        there = len(self.score)
        worst = np.var(np.append(self.score, 0.0), ddof=1) if self.left else 0.0
        spread = max(float(np.var(self.score, ddof=1)), float(worst))
        among = spread / (there + more)
        if math.isinf(self.left):
            return among
        drawn = (there + more) / (there + self.left)
        return (1 - drawn) * among + drawn * min(among, self._within() * there / (there + more))

    def _within(self) -> float:
        """The squared error of the mean that rows make within combinations.

        A score p of 0 to 1 has a variance of at most p (1 - p). A single row has none to see, so
        that no combination's is put below what all rows together have with one more that fails.
        """
        total = self.rows.sum()
        rate = float((self.score * self.rows).sum() / (total + 1))
        each = np.maximum(self.score * (1 - self.score), rate * (1 - rate))
        return float((each / self.rows).sum()) / len(self.score) ** 2

    @property
    def free(self) -> int:
        """The degrees of freedom of its error."""
        return len(self.score) - 1

    @property
    def usual(self) -> float:
        """How many rows a combination has."""
        return max(1.0, float(np.mean(self.rows)))

    def share(self, times: float) -> int:
        """So many times the combinations there are, but no more than exist."""
        return int(min(math.ceil(times * len(self.score)), self.left))


def _several(count: float, kind: str) -> str:
    return f"{count:,.0f} more {kind} combination{'' if count == 1 else 's'}"


def _too_few(
    new: Bool[np.ndarray, " combination"], rows: Float[np.ndarray, " combination"], left: Left
) -> Decision:
    """Too few of either kind: how many are missing, or that there are no more to be had."""
    fresh = int(new.sum())
    side, there, further = (
        ("new", fresh, left.new) if fresh < FEWEST else ("trained", len(new) - fresh, left.trained)
    )
    each = max(1.0, float(np.mean(rows))) if len(rows) else 1.0
    more = FEWEST - there
    told = f"Not enough data to say: only {there} of the evaluated combinations are {side}"
    if further < more:
        holds = (
            f"the values allow {_none(further)}: more values of a factor, or fewer trained "
            "combinations, would make room"
            if side == "new"
            else f"training has {_none(further)}: it must be trained on more"
        )
        return Decision("not enough data", f"{told}; at least {FEWEST} are needed, and {holds}.")
    total = math.ceil(more * each)
    sentence = (
        f"{told}; at least {FEWEST} are needed, that is about {total} rows in "
        f"{_several(more, side)}."
    )
    return Decision(
        "not enough data", sentence, more_combinations=more, more_rows=total
    )  # fmt: skip


def _none(further: float) -> str:
    return f"only {further:.0f} more" if further else "no more"


class _Needed(NamedTuple):
    """What would settle it: more combinations of either kind, and how many rows that makes.

    `each` is more than 1 where all combinations there are would be too few: so many times the rows
    would each need. `line` is whether the gap lies on the line.
    """

    new: int
    trained: int
    each: float
    rows: int
    line: bool


def _needed(old: _Side, fresh: _Side, gap: Interval, tolerance: float, level: float) -> _Needed:
    """What would bring the interval clear of the line four times in five, if the gap stays.

    New combinations make only their own side surer: where the trained side alone is too unsure,
    more of both are asked for, but never more than there are. Where all of them are too few, only
    the scores themselves can still become surer, by more rows.
    """
    away = max(abs(gap.estimate - tolerance), FINEST * tolerance)
    line = abs(gap.estimate - tolerance) < FINEST * tolerance
    wanted = (away / float(stats.norm.ppf(0.5 + level / 2) + stats.norm.ppf(POWER))) ** 2
    more = None
    if old.error() < 0.5 * wanted:
        more = _fewest(wanted, fresh, old, both=False)
    more, each = more or _fewest(wanted, fresh, old, both=True), 1.0
    if more is None:
        more = _all(fresh), _all(old)
        each = (fresh.error(more[0]) + old.error(more[1])) / wanted
    if more == (0, 0) and each <= 1:  # sure enough, and on the line
        more, each = ((1, 0), 1.0) if fresh.left else ((0, 0), 2.0)
    rows = sum(
        (each * (len(side.score) + extra) - len(side.score)) * side.usual
        for side, extra in zip((fresh, old), more, strict=True)
    )
    return _Needed(*more, each, math.ceil(rows), line)


def _fewest(wanted: float, fresh: _Side, old: _Side, *, both: bool) -> tuple[int, int] | None:
    """The fewest more combinations, new or in proportion of both kinds, for a squared error."""

    def asked(share: float) -> tuple[int, int]:
        return fresh.share(share), old.share(share) if both else 0

    def enough(share: float) -> bool:
        extra, trained = asked(share)
        return fresh.error(extra) + old.error(trained) <= wanted

    high = 1.0
    while not enough(high):
        if asked(2 * high) == asked(high) or high > MOST:  # there are no more
            return None
        high *= 2
    low = 0.0
    while high - low > 0.5 / max(len(fresh.score), len(old.score)):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return asked(high)


def _all(side: _Side) -> int:
    return 0 if math.isinf(side.left) else int(side.left)


def _advice(needed: _Needed, old: _Side, fresh: _Side) -> str:
    """What would settle it, in words."""
    edge = " (it lies on the line: this many would tell which side, if any)" if needed.line else ""
    kinds = [(needed.new, "new"), (needed.trained, "trained")]
    several = " and ".join(_several(count, kind) for count, kind in kinds if count)
    if needed.each <= 1:
        return f"About {needed.rows:,} more rows in {several} would settle it{edge}."
    first = (
        f"Even all there are, {several}, would be too few"
        if several
        else "All combinations of these values are evaluated, so that no further ones can be had"
    )
    usual = float(np.mean(np.r_[old.rows, fresh.rows]))
    return (
        f"{first}: what would settle it is about {math.ceil(needed.each * usual):,} rows in each "
        f"combination instead of {usual:.0f}, {needed.rows:,} more in all{edge}, or more values."
    )


def _gap(a: _Side, b: _Side, level: float) -> Interval:
    """The interval of mean(a) - mean(b) for samples of unequal spread (Welch)."""
    parts = [(side.error(), side.free) for side in (a, b)]
    off = float(np.mean(a.score) - np.mean(b.score))
    return _welch(off, parts, len(a.score) + len(b.score), level)


def _above(side: _Side, line: float, level: float) -> Interval:
    """The interval of how far a mean lies above a line."""
    off = float(np.mean(side.score)) - line
    return _welch(off, [(side.error(), side.free)], len(side.score), level)


def _welch(off: float, parts: list[tuple[float, int]], units: int, level: float) -> Interval:
    total = sum(error for error, _ in parts)
    free = total**2 / sum(error**2 / free for error, free in parts if error) if total else math.inf
    half = float(stats.t.ppf(0.5 + level / 2, free)) * math.sqrt(total)
    return Interval(off, off - half, off + half, units, "Welch t", level)


def _bounded(interval: Interval, lowest: float) -> Interval:
    """An interval cut to what is possible.

    Scores lie in 0..1 and their differences in -1..1: what an interval holds beyond that holds no
    value that could be true, so that cutting it off changes neither coverage nor a verdict.
    """
    return replace(interval, low=max(interval.low, lowest), high=min(interval.high, 1.0))
