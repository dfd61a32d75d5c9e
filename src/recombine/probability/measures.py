"""What probability does to answers: gaps, areas, coefficients and the pull towards the likely.

Everything is a function of a table with one row an item: right or wrong, how likely input and
output are, how long, in which condition and task, and of which sentence it was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import ArrayLike
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.families._sequence import Item
from recombine.lab.intervals import Interval
from recombine.lab.logistic import Logistic, independent_columns, logistic, variance_inflation

INPUT, OUTPUT = "input_log_probability", "output_log_probability"
_LENGTHS = ("input_length", "output_length")


@dataclass(frozen=True, eq=False)
class Table:
    """Items with their answers scored; log-probabilities in nats, lengths in characters."""

    correct: Float[np.ndarray, " item"]
    input_log_probability: Float[np.ndarray, " item"]
    output_log_probability: Float[np.ndarray, " item"]
    input_length: Int[np.ndarray, " item"]
    output_length: Int[np.ndarray, " item"]
    condition: Shaped[np.ndarray, " item"]
    task: Shaped[np.ndarray, " item"]
    sentence: Int[np.ndarray, " item"]  # the same number for items made of one sentence

    def __post_init__(self) -> None:
        sizes = {one.name: len(getattr(self, one.name)) for one in fields(self)}
        if len(set(sizes.values())) > 1:
            raise InvalidRequest(f"columns of unlike lengths: {sizes}; expected one value an item")

    def __len__(self) -> int:
        return len(self.correct)

    def rows(self, chosen: Bool[np.ndarray, " item"]) -> Table:
        """Some of the items."""
        return Table(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def where(self, *, condition: str | None = None, task: str | None = None) -> Table:
        """The items of a condition, a task, or both."""
        chosen = np.ones(len(self), dtype=bool)
        if condition is not None:
            chosen &= self.condition == condition
        if task is not None:
            chosen &= self.task == task
        return self.rows(chosen)


def tabulated(
    items: Sequence[Item],
    correct: ArrayLike,
    log_probabilities: Callable[[Item], tuple[float, float]],
) -> Table:
    """The table of items whose parts end in their condition, such as "decode common high".

    What stands before the condition is the task. The n-th item of a part is made of sentence n,
    in every part. `correct` says of every item whether its answer is right.
    """
    right = np.asarray(correct, dtype=np.float64)
    if right.shape != (len(items),):
        raise InvalidRequest(f"{right.size} answers to {len(items)} items: expected one each")
    met: dict[str, int] = {}
    sentence = []
    for item in items:
        sentence.append(met.get(item.part, 0))
        met[item.part] = sentence[-1] + 1
    likely = np.array([log_probabilities(item) for item in items], dtype=np.float64).reshape(-1, 2)
    ends = [item.part.rpartition(" ") for item in items]
    return Table(
        right,
        likely[:, 0],
        likely[:, 1],
        np.array([len(item.source) for item in items], dtype=np.int64),
        np.array([len(item.target) for item in items], dtype=np.int64),
        np.array([condition for _, _, condition in ends]),
        np.array([task for task, _, _ in ends]),
        np.array(sentence, dtype=np.int64),
    )


def gap_when(upper: ArrayLike, lower: ArrayLike, at: float = 0.5) -> float:
    """The gap between two learning curves at the first checkpoint where the upper exceeds `at`.

    NaN when it never does.

    >>> round(gap_when([0.1, 0.6, 0.9], [0.1, 0.3, 0.9]), 2)
    0.3
    """
    a, b = _curves(upper, lower)
    above = np.flatnonzero(a > at)
    return float(a[above[0]] - b[above[0]]) if above.size else math.nan


def area_between(steps: ArrayLike, upper: ArrayLike, lower: ArrayLike) -> float:
    """The mean gap between two learning curves over the steps they span (trapezoids).

    A gap that training closes again still has an area.

    >>> area_between([0, 1, 2], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0])
    0.5
    """
    a, b = _curves(upper, lower)
    at = np.asarray(steps, dtype=np.float64)
    if at.shape != a.shape or len(at) < 2 or np.any(np.diff(at) <= 0):
        raise InvalidRequest(
            f"steps of shape {at.shape} for curves of {len(a)} points: expected as many, rising, "
            "at least two"
        )
    return float(np.trapezoid(a - b, at) / (at[-1] - at[0]))


@dataclass(frozen=True)
class Effects:
    """The regression of right and wrong on probabilities, and what to know of its columns."""

    fit: Logistic
    dropped: tuple[str, ...]  # constant, or made up by the columns before them
    inflation: Mapping[str, float]

    @property
    def output(self) -> float:
        """Log-odds for one standard deviation more of the output's log-probability."""
        return self.fit[OUTPUT].estimate

    @property
    def input(self) -> float:
        """Log-odds for one standard deviation more of the input's log-probability."""
        return self.fit[INPUT].estimate


def coefficients(table: Table, *, level: float = 0.95) -> Effects:
    """The standardised effects of input and output probability, with lengths and tasks beside them.

    A column that is constant or that earlier ones make up (a cipher's two lengths are one) is left
    out and named. Tasks enter as one column each, but for the first.
    """
    names = [OUTPUT, INPUT, *_LENGTHS]
    columns = [np.asarray(getattr(table, name), dtype=np.float64) for name in names]
    for task in sorted(set(table.task.tolist()))[1:]:
        names.append(task)
        columns.append((table.task == task).astype(np.float64))
    design = np.column_stack(columns)
    kept = independent_columns(design)
    if not kept.any():
        raise InvalidRequest("nothing varies between these items: expected several conditions")
    chosen = [name for name, keep in zip(names, kept, strict=True) if keep]
    return Effects(
        logistic(table.correct, design[:, kept], chosen, level=level),
        tuple(name for name, keep in zip(names, kept, strict=True) if not keep),
        dict(zip(chosen, variance_inflation(design[:, kept]).tolist(), strict=True)),
    )


@dataclass(frozen=True)
class Regularisation:
    """How wrong answers to adversarial items are drawn to the likely original.

    `original` and `chance` are shares of the wrong answers: those that give the original, and
    those that give one other neighbour of the right answer, on average over neighbours. `ratio`
    is the first over the second, with Clopper and Pearson's interval over answers that give any
    neighbour; `p` is exact, for at least as many originals if all neighbours were alike.
    """

    wrong: int
    original: float
    chance: float
    ratio: Interval
    p: float


def regularisation(
    answers: Sequence[str],
    targets: Sequence[str],
    originals: Sequence[str],
    others: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
) -> Regularisation:
    """Whether wrong answers give the likely original more often than other neighbours.

    >>> found = regularisation(["cat", "bat", "cat"], ["hat", "bat", "hat"],
    ...                        ["cat", "cat", "cat"], [["rat", "mat"]] * 3)
    >>> found.wrong, found.original, found.chance, round(found.p, 3)
    (2, 1.0, 0.0, 0.111)
    """
    sizes = {len(answers), len(targets), len(originals), len(others)}
    if len(sizes) != 1 or any(not near for near in others):
        raise InvalidRequest(
            f"{len(answers)} answers, {len(targets)} targets, {len(originals)} originals and "
            f"{len(others)} lists of others: expected one each, with at least one other neighbour"
        )
    wrong = drawn = 0
    chance, odds, counts = 0.0, [], []
    for answer, target, original, near in zip(answers, targets, originals, others, strict=True):
        if answer == target:
            continue
        wrong += 1
        counts.append(len(near))
        if answer == original or answer in near:
            drawn += answer == original
            chance += (answer in near) / len(near)
            odds.append(1 / (1 + len(near)))
    if not wrong:
        return Regularisation(
            0, math.nan, math.nan, Interval(math.nan, 0.0, math.inf, 0, "none wrong", level), 1.0
        )
    tail = np.ones(1)
    for one in odds:  # the exact distribution of how many of unlike coins fall heads
        tail = np.convolve(tail, [1 - one, one])
    ratio = _ratio(drawn, len(odds), float(np.mean(counts)), drawn / wrong, chance / wrong, level)
    return Regularisation(
        wrong, drawn / wrong, chance / wrong, ratio, min(1.0, float(tail[drawn:].sum()))
    )


def _ratio(
    drawn: int, near: int, others: float, original: float, chance: float, level: float
) -> Interval:
    method = "Clopper-Pearson"
    if not near:
        return Interval(math.nan, 0.0, math.inf, 0, method, level)
    ends = stats.binomtest(drawn, near).proportion_ci(level, "exact")
    low, high = (
        share / (1 - share) * others if share < 1 else math.inf for share in (ends.low, ends.high)
    )
    return Interval(original / chance if chance else math.inf, low, high, near, method, level)


def _curves(
    upper: ArrayLike, lower: ArrayLike
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    a, b = np.asarray(upper, dtype=np.float64), np.asarray(lower, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise InvalidRequest(
            f"learning curves of shapes {a.shape} and {b.shape}: expected two vectors read at "
            "the same steps"
        )
    return a, b
