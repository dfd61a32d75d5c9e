"""Scores of answers, and their intervals by drawing whole combinations again.

Everything a score needs is summed by combination once; a resample is then a weight per combination.
Labels are ranked among the rows of one fold only: scores of two folds come from two probes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.lab.intervals import Interval, clustered_interval
from recombine.probing.answers import Answers
from recombine.probing.targets import Kind, Target

LOTS = 200  # beyond so many combinations, several are drawn together
RESAMPLES = {"categorical": 1_000, "numbers": 1_000, "multilabel": 300}  # ranks are slow to redo
Weights = Float[np.ndarray, " lot"]


@dataclass(frozen=True, eq=False)
class Lots:
    """The units that intervals draw again: combinations, or random lots of many of them."""

    of_row: Int[np.ndarray, " row"]
    count: int
    combinations: int

    @staticmethod
    def of(group: Int[np.ndarray, " row"], seed: int) -> Lots:
        combinations = int(group.max()) + 1
        if combinations <= LOTS:
            return Lots(group, combinations, combinations)
        mixed = np.random.default_rng(seed).permutation(combinations) % LOTS
        return Lots(mixed[group], LOTS, combinations)

    def sums(self, values: np.ndarray, rows: Bool[np.ndarray, " row"]) -> np.ndarray:
        """The values of these rows summed by lot."""
        shape = (self.count, *values.shape[1:])
        total = np.zeros(shape)
        np.add.at(total, self.of_row[rows], values[rows])
        return total


Scorer = Callable[[Weights], float]


def scorers(
    target: Target,
    truth: np.ndarray,
    answers: Answers,
    fold: Int[np.ndarray, " row"],
    rows: Bool[np.ndarray, " row"],
    lots: Lots,
) -> dict[str, Scorer]:
    """For each metric of the target's kind, its score on some rows as a function of weights.

    `truth` has the target's columns, true or random.
    """
    if target.kind == "categorical":
        return _categorical(truth, answers, rows, lots)
    if target.kind == "numbers":
        wrong = lots.sums((truth - answers.scores) ** 2, rows)
        total = lots.sums((truth - answers.usual) ** 2, rows)
        return {"R²": lambda w: _mean_ratio(total - wrong, total, w)}
    ranks = [_Ranked(truth, answers.scores, lots, rows & (fold == a)) for a in np.unique(fold)]
    exact = lots.sums((truth == answers.shares).all(axis=1).astype(float), rows)
    size = lots.sums(np.ones(len(truth)), rows)
    return {
        "AUROC": lambda w: _pooled([one.auroc(w) for one in ranks]),
        "mean average precision": lambda w: _pooled([one.precision(w) for one in ranks]),
        "exact set": lambda w: _ratio(exact, size, w),
    }


def label_scorers(
    target: Target,
    answers: Answers,
    fold: Int[np.ndarray, " row"],
    rows: Bool[np.ndarray, " row"],
    lots: Lots,
) -> list[Scorer]:
    """The AUROC of each label of a multi-label target as a function of weights."""

    def of_label(place: int) -> Scorer:
        column = slice(place, place + 1)
        ranks = [
            _Ranked(target.columns[:, column], answers.scores[:, column], lots, rows & (fold == a))
            for a in np.unique(fold)
        ]
        return lambda w: _pooled([one.auroc(w) for one in ranks])

    return [of_label(place) for place in range(len(target.values))]


def _categorical(
    truth: np.ndarray, answers: Answers, rows: np.ndarray, lots: Lots
) -> dict[str, Scorer]:
    right_value = truth * (truth.argmax(axis=1) == answers.equal)[:, None]
    right, there = lots.sums(right_value, rows), lots.sums(truth, rows)
    plain = lots.sums((truth.argmax(axis=1) == answers.shares).astype(float), rows)
    size = lots.sums(np.ones(len(truth)), rows)
    return {
        "balanced accuracy": lambda w: _mean_ratio(right, there, w),
        "accuracy": lambda w: _ratio(plain, size, w),
    }


def chance(target: Target, metric: str, rows: Bool[np.ndarray, " row"]) -> float:
    """The score of an answer that looks at nothing."""
    shares = target.columns[rows].mean(axis=0) if rows.any() else np.zeros(len(target.values))
    match metric:
        case "balanced accuracy":
            there = int((shares > 0).sum())
            return 1 / there if there > 1 else float("nan")
        case "accuracy":
            return float(shares.max())
        case "AUROC":
            return 0.5
        case "mean average precision":
            alive = (shares > 0) & (shares < 1)
            return float(shares[alive].mean()) if alive.any() else float("nan")
        case "exact set":
            _, counts = np.unique(target.columns[rows], axis=0, return_counts=True)
            return float(counts.max(initial=0) / max(counts.sum(), 1))
    return 0.0


def interval(
    score: Scorer, lots: Lots, kind: Kind, *, level: float = 0.95, seed: int = 0
) -> Interval:
    """The interval of a score over combinations."""

    def drawn(picks: list[int]) -> float:
        return score(np.bincount(picks, minlength=lots.count).astype(float))

    return clustered_interval(
        drawn, range(lots.count), level=level, seed=seed, resamples=RESAMPLES[kind]
    )


def whole(score: Scorer, lots: Lots) -> float:
    """The score on all rows."""
    return score(np.ones(lots.count))


def _ratio(part: np.ndarray, total: np.ndarray, w: Weights) -> float:
    below = float(w @ total)
    return float(w @ part) / below if below > 0 else float("nan")


def _mean_ratio(part: np.ndarray, total: np.ndarray, w: Weights) -> float:
    """The mean over the columns that occur."""
    above, below = w @ part, w @ total
    alive = below > 1e-12
    return float(np.mean(above[alive] / below[alive])) if alive.any() else float("nan")


Parts = tuple[Float[np.ndarray, " label"], Float[np.ndarray, " label"]]


def _pooled(parts: Sequence[Parts]) -> float:
    """The mean over labels of what folds say, each by its weight there."""
    above = np.sum([value for value, _ in parts], axis=0)
    below = np.sum([weight for _, weight in parts], axis=0)
    alive = below > 0
    return float(np.mean(above[alive] / below[alive])) if alive.any() else float("nan")


class _Ranked:
    """The rows of one fold in the order of each label's scores, best first."""

    def __init__(self, truth: np.ndarray, scores: np.ndarray, lots: Lots, rows: np.ndarray):
        places = np.flatnonzero(rows)
        order = np.argsort(-scores[places], axis=0, kind="stable")
        ordered = np.take_along_axis(scores[places], order, axis=0)
        self.ones = np.take_along_axis(truth[places], order, axis=0)
        self.lot = lots.of_row[places][order]
        # Rows with equal scores share a rank: sums are read off at the last of them.
        count = np.arange(len(places))[:, None]
        ends = np.ones_like(ordered, bool)
        ends[:-1] = ordered[1:] != ordered[:-1]
        following = np.where(ends, count, len(places))
        self.last = np.minimum.accumulate(following[::-1], axis=0)[::-1]

    def _sums(self, w: Weights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weight = w[self.lot]
        right = weight * self.ones
        hits, seen = np.cumsum(right, axis=0), np.cumsum(weight, axis=0)
        return (
            right,
            np.take_along_axis(hits, self.last, axis=0),
            np.take_along_axis(seen, self.last, axis=0),
        )

    def auroc(self, w: Weights) -> Parts:
        """For each label, ordered pairs that are right and all pairs (a tie is half right)."""
        if not len(self.lot):
            return np.zeros(self.ones.shape[1]), np.zeros(self.ones.shape[1])
        weight = w[self.lot]
        wrong = weight * (1 - self.ones)
        right = weight * self.ones
        below = np.cumsum(wrong, axis=0)
        at = np.take_along_axis(below, self.last, axis=0)
        # Those ahead of a row's block of ties, and half of those inside it.
        first = np.vstack([np.zeros(at.shape[1]), at[:-1]])
        start = np.where(np.vstack([np.ones(at.shape[1], bool), self.last[1:] != self.last[:-1]]),
                         first, 0.0)  # fmt: skip
        start = np.maximum.accumulate(start, axis=0)
        ahead = (start + at) / 2
        total = wrong.sum(axis=0)
        return (right * (total - ahead)).sum(axis=0), right.sum(axis=0) * total

    def precision(self, w: Weights) -> Parts:
        """For each label, the precision summed over its positives, and their weight.

        A label that all rows of the fold have, or none, says nothing there.
        """
        if not len(self.lot):
            return np.zeros(self.ones.shape[1]), np.zeros(self.ones.shape[1])
        right, hits, seen = self._sums(w)
        ones, everything = right.sum(axis=0), seen[-1]
        varies = (ones > 0) & (ones < everything)
        parts = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
        return np.where(varies, (right * parts).sum(axis=0), 0.0), np.where(varies, ones, 0.0)
