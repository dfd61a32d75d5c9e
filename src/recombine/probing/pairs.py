"""Conjunctions: is a pair of values readable beyond what the two values alone give?

Two single probes answer for a pair by answering for each of its values. A pair probe is asked for
the pair at once. Both are scored on the same combinations, which neither has seen. Where the pair
probe is better, activations hold something about the pair that is not a sum of its parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from recombine.lab.intervals import Interval
from recombine.probing.answers import Answers
from recombine.probing.scoring import Lots, Scorer, interval, scorers, whole
from recombine.probing.targets import Target, categorical
from recombine.probing.verdicts import Bars

MOST_VALUES = 400
MOST_PAIRS = 15
WORTH = 0.05  # a gain in balanced accuracy that counts


@dataclass(frozen=True)
class PairReading:
    """A pair of factors read at once, against its two halves read apart.

    `gain` is the balanced accuracy of the pair probe less that of the two single ones. `cells`
    lists pairs of values: in words, how many rows, the share read right by the pair probe and by
    the two single ones. `answer` may say why the pair cannot be probed.
    """

    factors: tuple[str, str]
    answer: str
    pair: float | None = None
    singles: float | None = None
    gain: Interval | None = None
    chance: float | None = None
    cells: tuple[tuple[str, int, float, float], ...] = ()


@dataclass(frozen=True, eq=False)
class PairQuestion:
    """A target made of two others; the halves are categorical targets that are probed as well."""

    halves: tuple[Target, Target]
    both: Target


def pair_questions(targets: Sequence[Target]) -> tuple[list[PairQuestion], list[str]]:
    """All pairs of categorical targets and of labels; and what was left out, and why."""
    parts = [one for one in targets if one.kind == "categorical"]
    for one in targets:
        if one.kind == "multilabel":
            parts += [
                categorical(f"{one.name}: {label}", ("no", "yes"), one.columns[:, i].astype(int))
                for i, label in enumerate(one.values)
                if 0 < one.columns[:, i].mean() < 1
            ]
    found, notes = [], []
    for a, b in itertools.combinations(parts, 2):
        size = len(a.values) * len(b.values)
        if size > MOST_VALUES:
            notes.append(f"{a.name} with {b.name}: {size} pairs of values, at most {MOST_VALUES}")
            continue
        names = [f"{a.name}={x}, {b.name}={y}" for x in a.values for y in b.values]
        codes = a.codes * len(b.values) + b.codes
        both = categorical(f"{a.name} with {b.name}", names, codes)
        found.append(PairQuestion((a, b), both))
    if len(found) > MOST_PAIRS:
        notes.append(f"only the first {MOST_PAIRS} of {len(found)} pairs were probed")
    if not found and not notes:
        notes.append("a pair probe needs two categorical targets, or labels")
    return found[:MOST_PAIRS], notes


def pair_reading(
    question: PairQuestion,
    pair: Answers,
    singles: tuple[Answers, Answers],
    fold: Int[np.ndarray, " row"],
    rows: Bool[np.ndarray, " row"],
    lots: Lots,
    bars: Bars,
    *,
    seed: int,
) -> PairReading:
    """The pair probe against the product of the two single probes."""
    (a, b), both = question.halves, question.both
    names = (a.name, b.name)
    if not rows.any():
        return PairReading(names, "not probed: every pair of values occurs in one combination "
                           "only, so none can be held out and still be learned; a third factor "
                           "is needed")  # fmt: skip
    product = _product(question, singles)
    by_pair, by_singles = (
        scorers(both, both.columns, one, fold, rows, lots)["balanced accuracy"]
        for one in (pair, product)
    )
    gain = interval(_difference(by_pair, by_singles), lots, "categorical", seed=seed)
    folds = int(fold.max()) + 1
    if len(np.unique(lots.of_row[rows])) < bars.per_fold * folds:
        answer = "too few combinations to say"
    elif gain.low > 0 and gain.estimate >= WORTH:
        answer = "readable as a pair, beyond its two values"
    elif gain.high < WORTH or gain.high - gain.low <= bars.width:
        answer = "no more readable as a pair than by its two values"
    else:
        answer = "too few combinations to say"
    return PairReading(
        names, answer, whole(by_pair, lots), whole(by_singles, lots), gain,
        1 / len(np.unique(both.codes[rows])), _cells(both, pair, product, rows),
    )  # fmt: skip


def _product(question: PairQuestion, singles: tuple[Answers, Answers]) -> Answers:
    (a, b), both = question.halves, question.both
    place = np.full(len(a.values) * len(b.values), -1)  # a pair that never occurs is never right
    place[np.unique(a.codes * len(b.values) + b.codes)] = np.arange(len(both.values))
    equal, shares = (
        place[one * len(b.values) + other]
        for one, other in (
            (singles[0].equal, singles[1].equal),
            (singles[0].shares, singles[1].shares),
        )
    )
    return Answers(equal, shares, singles[0].scores, singles[0].usual)


def _difference(one: Scorer, other: Scorer) -> Scorer:
    return lambda w: one(w) - other(w)


def _cells(
    both: Target, pair: Answers, product: Answers, rows: np.ndarray
) -> tuple[tuple[str, int, float, float], ...]:
    codes, found = both.codes, []
    for value, name in enumerate(both.values):
        own = rows & (codes == value)
        if own.any():
            shares = [float((one.equal[own] == value).mean()) for one in (pair, product)]
            found.append((name, int(own.sum()), *shares))
    return tuple(sorted(found, key=lambda cell: cell[3] - cell[2]))
