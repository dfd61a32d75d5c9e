"""What a reading amounts to, in one of four answers, by bars that are stated in advance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval

Answer = Literal[
    "readable for combinations never seen",
    "readable only within combinations seen (memorised)",
    "not readable",
    "too few combinations to say",
]
READABLE: Answer = "readable for combinations never seen"
MEMORISED: Answer = "readable only within combinations seen (memorised)"
NOT_READABLE: Answer = "not readable"
TOO_FEW: Answer = "too few combinations to say"


@dataclass(frozen=True)
class Bars:
    """What counts as readable, and when there is too little to say.

    `least` is on the scale of skill: 0 is chance (or the control task, if that is higher), 1 is
    perfect. An interval of skill that holds `least` and is wider than `width` says nothing, nor
    do fewer than `per_fold` combinations a fold, nor a score on less than `scored` of the rows.
    """

    least: float = 0.1
    width: float = 0.2
    per_fold: int = 5
    scored: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.least < 1 and self.width > 0 and self.per_fold >= 2):
            raise InvalidRequest(
                f"{self}: expected least between 0 and 1, width above 0, per_fold of at least 2"
            )
        if not 0 <= self.scored <= 1:
            raise InvalidRequest(f"{self}: expected scored from 0 to 1")

    def enough(self, scored: Scored | None) -> bool:
        """Whether the rows that can be scored stand for all of them."""
        return scored is None or scored.rows >= self.scored * scored.of

    def sentence(self, folds: int) -> str:
        """The bars in words."""
        return (
            f"Skill is 0 at chance or the control task, whichever is higher, and 1 when perfect; "
            f"readable means above {self.least:g}. There is too little to say with fewer than "
            f"{self.per_fold * folds} combinations ({self.per_fold} for each of {folds} folds), "
            f"where less than {self.scored:.0%} of the rows can be scored, or where the 95 % "
            f"interval of skill holds {self.least:g} and is wider than {self.width:g}."
        )


@dataclass(frozen=True)
class Scored:
    """How many rows can be scored, of how many, and how many combinations have such a row.

    A row cannot where no training fold holds its value: a probe cannot learn what it never sees.
    """

    rows: int
    of: int
    combinations: int


@dataclass(frozen=True)
class Verdict:
    """One of the four answers, why, and how many more combinations would settle an open one."""

    answer: Answer
    why: str
    more: int | None = None


def skill(score: Interval, floor: float) -> Interval:
    """A score as skill: 0 at the floor, 1 when perfect.

    >>> skill(Interval(0.75, 0.7, 0.8, 9, "", 0.95), 0.5).estimate
    0.5
    """
    room = 1 - floor if floor < 1 else math.nan

    def scaled(value: float) -> float:
        return (value - floor) / room

    return replace(
        score, estimate=scaled(score.estimate), low=scaled(score.low), high=scaled(score.high)
    )


def judged(
    bars: Bars,
    across: Interval,
    within: Interval | None,
    combinations: int,
    folds: int,
    scored: Scored | None = None,
) -> Verdict:
    """The answer, from the skill on unseen combinations and on unseen rows of seen ones.

    Without `scored`, every row can be.

    >>> sure = Interval(0.8, 0.7, 0.9, 40, "", 0.95)
    >>> judged(Bars(), sure, sure, 40, 5).answer
    'readable for combinations never seen'
    >>> judged(Bars(), sure, sure, 40, 5, Scored(8, 800, 8)).why
    'only 8 of 800 rows can be scored'
    """
    needed = bars.per_fold * folds
    if combinations < needed:
        why = f"there are {combinations}, and {folds} folds need at least {needed}"
        return Verdict(TOO_FEW, why, max(needed - combinations, _more(bars, across, combinations)))
    if not math.isfinite(across.estimate):
        why = "fewer than two values occur in two combinations, so none can be held out and learned"
        return Verdict(TOO_FEW, why, None)
    if scored is not None and not bars.enough(scored):
        return Verdict(TOO_FEW, f"only {scored.rows} of {scored.of} rows can be scored", None)
    if scored is not None and scored.combinations < needed:
        why = f"{scored.combinations} have rows that can be scored, and {folds} folds need {needed}"
        return Verdict(TOO_FEW, why, None)
    clear, wide = _clear(bars, across), across.high - across.low
    if clear is None and wide > bars.width:
        why = (
            f"skill lies between {across.low:.2f} and {across.high:.2f}, and {bars.least:g} is "
            "what counts"
        )
        return Verdict(TOO_FEW, why, _more(bars, across, combinations))
    readable = across.estimate > bars.least if clear is None else clear
    if readable:
        return Verdict(READABLE, f"skill is {across.estimate:.2f} where {bars.least:g} counts")
    if within is not None and within.low > bars.least:
        why = (
            f"skill is {within.estimate:.2f} on new rows of combinations seen and "
            f"{across.estimate:.2f} on combinations never seen"
        )
        return Verdict(MEMORISED, why)
    return Verdict(NOT_READABLE, f"skill is {across.estimate:.2f} where {bars.least:g} counts")


def _clear(bars: Bars, skill: Interval) -> bool | None:
    if skill.low > bars.least:
        return True
    return False if skill.high < bars.least else None


def _more(bars: Bars, skill: Interval, combinations: int) -> int:
    """How many more combinations: an interval narrows with the root of their number."""
    wide = skill.high - skill.low
    if not math.isfinite(wide) or _clear(bars, skill) is not None:
        return 0
    narrow = (wide / bars.width) ** 2
    half = (skill.high - skill.low) / 2
    away = abs(skill.estimate - bars.least)
    decided = (half / away) ** 2 if away > 0 else math.inf
    return max(1, math.ceil(combinations * min(narrow, decided)) - combinations)
