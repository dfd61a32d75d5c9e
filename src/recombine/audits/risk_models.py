"""The models behind risk: a penalised logistic regression, and four baselines it must beat.

Each is a function of evaluated combinations (what is known of them, failures and rows) that
returns a predictor of the chance of failure for other combinations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, sparse, special, stats

from recombine.lab.intervals import Interval
from recombine.tables.rows import NONE

VALUE_SPREAD = 1.0  # prior standard deviations, on the scale of log-odds
NUMBER_SPREAD = 1.0
# Pairs that stand out by so many standard errors get an effect of their own, of so much prior
# spread; a part of the data chooses. Effects of a few pairs and of very many look different.
SCREENS = ((math.inf, 1.0), (3.0, 1.0), (1.5, 0.5))
_NEWTON = 60
_MOST_PAIRS = 4_000_000  # entries of the pair columns; beyond, pairs are left out
_REFERENCES = 16_000  # combinations among which neighbours are looked for

Chances = Float[np.ndarray, " combination"]
Sparse = Any  # a csr_array; what its methods return has no useful type
Items = Int[np.ndarray, "combination place"]


@dataclass(frozen=True, eq=False)
class Described:
    """What is known of combinations without any outcome.

    An item is one value of one factor, numbered through all factors; -1 fills up lists. `numbers`
    are counts in training and the like, one column each.
    """

    items: Items
    factor_of: Int[np.ndarray, " place"]
    values: int
    level: Int[np.ndarray, " combination"]
    levels: int
    rarest_pair: Float[np.ndarray, " combination"]
    numbers: Float[np.ndarray, "combination number"]

    def __len__(self) -> int:
        return len(self.items)

    def take(self, where: np.ndarray) -> Described:
        """Some of the combinations."""
        return replace(
            self, items=self.items[where], level=self.level[where],
            rarest_pair=self.rarest_pair[where], numbers=self.numbers[where],
        )  # fmt: skip


Predictor = Callable[[Described], Chances]


def fit_logistic(
    design: Sparse,
    bad: Chances,
    size: Chances,
    spread: Float[np.ndarray, " column"],
    start: Float[np.ndarray, " column"] | None = None,
) -> Float[np.ndarray, " column"]:
    """Log-odds per column: the most probable ones under normal priors of these spreads.

    `bad` of `size` rows fail in each line; shares of a failure are allowed.

    >>> one = sparse.csr_array(np.ones((1, 1)))
    >>> fit_logistic(one, np.array([3.0]), np.array([4.0]), np.array([1e6])).round(3)
    array([1.099])
    """
    precision = spread**-2.0
    # In these units every direction is about as curved as every other.
    stretch = 1 / np.sqrt(precision + 0.15 * (size @ design.power(2)))
    scaled = design @ sparse.diags_array(stretch)
    turned = scaled.T.tocsr()
    prior = precision * stretch**2

    def cost(at: np.ndarray, odds: np.ndarray) -> float:
        # Sums, not products of vectors: those start threads, which costs more than it saves here.
        return float(np.sum(size * np.logaddexp(0, odds) - bad * odds) + np.sum(prior * at**2) / 2)

    at = np.zeros(design.shape[1]) if start is None else start / stretch
    odds = scaled @ at
    now = cost(at, odds)
    for _ in range(_NEWTON):
        chance = special.expit(odds)
        slope = turned @ (size * chance - bad) + prior * at
        curve = size * chance * (1 - chance)
        step = _conjugate(lambda v, c=curve: turned @ (c * (scaled @ v)) + prior * v, -slope)
        ahead, length = scaled @ step, 1.0
        promised = -float(slope @ step)
        while (then := cost(at + length * step, odds + length * ahead)) > now and length > 1e-6:
            length /= 2
        at, odds, now = at + length * step, odds + length * ahead, min(now, then)
        if promised < 1e-9:
            break
    return at * stretch


def value_design(items: Items, values: int) -> Sparse:
    """A constant, then one column per value: whether the combination holds it."""
    there = items != NONE
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1) + 1)])
    columns = np.column_stack([np.zeros(len(items), np.int64), items + 1])
    kept = columns[np.column_stack([np.ones(len(items), bool), there])]
    return sparse.csr_array((np.ones(len(kept)), kept, ends), shape=(len(items), values + 1))


@dataclass(frozen=True, eq=False)
class Columns:
    """How combinations become lines of numbers: constant, values, facts of training, pairs."""

    values: int
    levels: int
    low: Float[np.ndarray, " number"]
    high: Float[np.ndarray, " number"]
    centre: Float[np.ndarray, " number"]
    scale: Float[np.ndarray, " number"]
    pairs: Int[np.ndarray, " pair"]

    @staticmethod
    def of(known: Described) -> Columns:
        """The columns that evaluated combinations give a meaning to; outcomes play no part."""
        numbers = known.numbers
        scale = numbers.std(axis=0)
        places = known.items.shape[1]
        pairs = np.zeros(0, np.int64)
        if len(known) * places * (places - 1) // 2 <= _MOST_PAIRS and places > 1:
            keys, times = np.unique(_pair_keys(known), return_counts=True)
            pairs = keys[(keys != NONE) & (times > 1)]
        return Columns(
            known.values, known.levels, numbers.min(axis=0), numbers.max(axis=0),
            numbers.mean(axis=0), np.where(scale > 0, scale, 1.0), pairs,
        )  # fmt: skip

    def additive(self, asked: Described) -> Sparse:
        """Constant and values; a value that was never evaluated has no column."""
        return value_design(np.where(asked.items < self.values, asked.items, NONE), self.values)

    def base(self, asked: Described) -> Sparse:
        """All but the pairs. Numbers beyond those evaluated are held at the nearest of them."""
        numbers = (np.clip(asked.numbers, self.low, self.high) - self.centre) / self.scale
        facts = sparse.csr_array(np.hstack([numbers, np.eye(self.levels)[asked.level]]))
        return _beside(self.additive(asked), facts)

    def together(self, asked: Described) -> Sparse:
        """One column per pair: whether the combination holds it."""
        shape = (len(asked), len(self.pairs))
        if not len(self.pairs):
            return sparse.csr_array(shape)
        keys = _pair_keys(asked)
        at = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        line, place = np.nonzero(self.pairs[at] == keys)
        return sparse.csr_array((np.ones(len(line)), (line, at[line, place])), shape=shape)

    def spread(self) -> Float[np.ndarray, " column"]:
        """Prior spreads of all columns but the pairs."""
        facts = len(self.centre) + self.levels
        parts = (1, 1e3), (self.values, VALUE_SPREAD), (facts, NUMBER_SPREAD)
        return np.concatenate([np.full(many, spread) for many, spread in parts])


def fit_risk(
    known: Described, bad: Chances, size: Chances, columns: Columns, rng: np.random.Generator
) -> Predictor:
    """Values, facts of training, and the pairs that stand out, shrunk to what those say."""
    base, pairs = columns.base(known), columns.together(known)
    screen = SCREENS[0]
    if len(columns.pairs) and len(known) >= 8:
        apart = rng.permutation(len(known)) < len(known) // 4
        told = _fit_screens(
            base[~apart], pairs[~apart], bad[~apart], size[~apart], columns, SCREENS
        )
        losses = []
        for weights, chosen in told:
            odds = _beside(base[apart], pairs[apart][:, chosen]) @ weights
            losses.append(float(size[apart] @ np.logaddexp(0, odds) - bad[apart] @ odds))
        screen = SCREENS[int(np.argmin(losses))]
    ((weights, chosen),) = _fit_screens(base, pairs, bad, size, columns, (screen,))
    found = replace(columns, pairs=columns.pairs[chosen])
    return lambda asked: special.expit(_beside(found.base(asked), found.together(asked)) @ weights)


def fit_additive(known: Described, bad: Chances, size: Chances, columns: Columns) -> Predictor:
    """One effect per value and nothing else, under the same prior as in the risk model."""
    spread = columns.spread()[: columns.values + 1]
    weights = fit_logistic(columns.additive(known), bad, size, spread)
    return lambda asked: special.expit(columns.additive(asked) @ weights)


def row_weight(known: Described, bad: Chances, size: Chances, columns: Columns) -> Chances:
    """How much one row of each combination counts: less, where rows of a combination are alike.

    A model often fails on all rows of a combination or on none; ten such rows are one finding, not
    ten. How alike they are is read off what additive marginals leave open (Williams, 1982).
    """
    chance = np.clip(fit_additive(known, bad, size, columns)(known), 0.01, 0.99)
    used = len(np.unique(known.items)) - known.items.shape[1] + 1
    spare = len(known) - used if len(known) > 1.5 * used else len(known)
    misfit = np.sum((bad - size * chance) ** 2 / (size * chance * (1 - chance)))
    alike = (misfit * len(known) / spare - len(known)) / max(float(np.sum(size - 1)), 1e-9)
    return 1 / (1 + (size - 1) * min(max(float(alike), 0.0), 1.0))


def fit_overall(bad: Chances, size: Chances) -> Predictor:
    """The same chance for all."""
    rate = overall_rate(bad, size)
    return lambda asked: np.full(len(asked), rate)


def fit_rarest_pair(known: Described, bad: Chances, size: Chances) -> Predictor:
    """A chance that only falls as the rarest pair was trained more often (isotonic)."""
    counts, place = np.unique(known.rarest_pair, return_inverse=True)
    rows = np.bincount(place, size, len(counts))
    wrong = np.bincount(place, bad, len(counts))
    found = optimize.isotonic_regression(
        wrong / np.maximum(rows, 1e-12), weights=np.maximum(rows, 1e-12), increasing=False
    )
    # A step of few rows is drawn towards the overall rate, so that no chance is 0 or 1.
    step = np.repeat(np.arange(len(found.blocks) - 1), np.diff(found.blocks))
    chances = _shrunk(np.bincount(step, wrong), np.bincount(step, rows), overall_rate(bad, size))
    return lambda asked: chances[step][_nearest_place(counts, asked.rarest_pair)]


def fit_nearest(
    known: Described, bad: Chances, size: Chances, rng: np.random.Generator
) -> Predictor:
    """The failure rate of the nearest evaluated combinations, ties taken together."""
    rate = overall_rate(bad, size)
    if len(known) > _REFERENCES:
        some = np.sort(rng.choice(len(known), _REFERENCES, replace=False))
        known, bad, size = known.take(some), bad[some], size[some]
    both = np.stack([bad, size], axis=1).astype(np.float32)

    def predict(asked: Described) -> Chances:
        found = np.zeros((len(asked), 2))
        chunk = max(1, 8_000_000 // max(len(known), 1))
        for start in range(0, len(asked), chunk):
            part = slice(start, start + chunk)
            apart = distances(asked.take(np.arange(len(asked))[part]), known)
            found[part] = (apart == apart.min(axis=1, keepdims=True)).astype(np.float32) @ both
        return _shrunk(found[:, 0], found[:, 1], rate)

    return predict


def distances(some: Described, others: Described) -> Int[np.ndarray, "combination other"]:
    """In how many values combinations differ (for lists: those only one of them holds)."""
    wide = np.uint8 if some.items.shape[1] + others.items.shape[1] < 256 else np.uint16
    found = np.zeros((len(some), len(others)), wide)
    for factor in np.unique(others.factor_of):
        one, other = (side.items[:, side.factor_of == factor] for side in (some, others))
        if one.shape[1] == other.shape[1] == 1:
            found += one != other[:, 0]
            continue
        shared = np.zeros_like(found)
        for i, j in np.ndindex(one.shape[1], other.shape[1]):
            shared += (one[:, i, None] == other[:, j]) & (one[:, i, None] != NONE)
        both = (one != NONE).sum(axis=1)[:, None] + (other != NONE).sum(axis=1)
        found += (both - 2 * shared.astype(int)).astype(wide)
    return found


def overall_rate(bad: Chances, size: Chances) -> float:
    """The failure rate of all rows, kept off 0 and 1 by half a row each."""
    return float((bad.sum() + 0.5) / (size.sum() + 1))


def clustered_auroc(
    chance: Chances, bad: Chances, size: Chances, fold: Int[np.ndarray, " combination"]
) -> tuple[float, Chances]:
    """The chance that of a failing and a right row of one fold the failing one is rated riskier,
    and each combination's pull on it.

    Folds are not compared with each other: a model that is told of more failures says more of
    them, and the fold held out has less, so a constant would seem worse than nothing. The pulls
    are DeLong's, summed within clusters (Obuchowski, 1997).
    """
    won, pull, pairs = 0.0, np.zeros(len(bad)), 0.0
    for number in np.unique(fold):
        here = np.flatnonzero(fold == number)
        wrong, right = bad[here], (size - bad)[here]
        _, place = np.unique(chance[here], return_inverse=True)
        failing, passing = np.bincount(place, wrong), np.bincount(place, right)
        beaten = (np.cumsum(passing) - passing / 2)[place]  # right rows below, ties by half
        beating = (wrong.sum() - np.cumsum(failing) + failing / 2)[place]
        won += float(wrong @ beaten)
        pairs += float(wrong.sum() * right.sum())
        # What the pairs won would lose without this combination, before the mean is taken off.
        pull[here] = wrong * beaten + right * beating
    if pairs <= 0:
        return math.nan, np.zeros(len(bad))
    area = won / pairs
    for number in np.unique(fold):
        here = fold == number
        wrong, right = bad[here], (size - bad)[here]
        pull[here] -= area * (wrong * right.sum() + right * wrong.sum())
    return area, pull / pairs


def clustered_mean(part: Chances, size: Chances) -> Interval:
    """A mean over rows, with an interval over combinations."""
    mean = float(part.sum() / size.sum())
    return clustered_estimate(mean, (part - mean * size) / size.sum())


def clustered_estimate(
    estimate: float, pull: Chances, within: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """Student t on what each combination adds to the estimate (the linearised jackknife)."""
    units, method = len(pull), "Student t over combinations"
    if units < 2 or math.isnan(estimate):
        return Interval(estimate, *within, units, method, 0.95)
    error = math.sqrt(units / (units - 1) * float(pull @ pull))
    reach = float(stats.t.ppf(0.975, units - 1)) * error
    ends = (max(within[0], estimate - reach), min(within[1], estimate + reach))
    return Interval(estimate, *ends, units, method, 0.95)


def _conjugate(
    times: Callable[[np.ndarray], np.ndarray], target: np.ndarray
) -> Float[np.ndarray, " column"]:
    """Conjugate gradients, as exactly as the distance from the goal deserves."""
    found, left = np.zeros_like(target), target.copy()
    way, size = left.copy(), float(target @ target)
    enough = size * min(0.01, size)
    for _ in range(200):
        if size <= enough or size < 1e-24:
            break
        image = times(way)
        length = size / float(way @ image)
        found += length * way
        left -= length * image
        size, before = float(left @ left), size
        way = left + size / before * way
    return found


def _fit_screens(
    base: Sparse,
    pairs: Sparse,
    bad: Chances,
    size: Chances,
    columns: Columns,
    screens: Sequence[tuple[float, float]],
) -> list[tuple[Float[np.ndarray, " column"], Int[np.ndarray, " pair"]]]:
    """Weights, and the pairs that got one, for each bar that a pair must pass."""
    first = fit_logistic(base, bad, size, columns.spread())
    chance = special.expit(base @ first)
    turned = pairs.T.tocsr()
    beyond = np.abs(turned @ (bad - size * chance))
    error = np.sqrt(np.maximum(turned @ (size * chance * (1 - chance)), 1e-9))
    found = []
    for bar, spread in screens:
        chosen = np.flatnonzero(beyond > bar * error)
        if len(chosen):
            spreads = np.concatenate([columns.spread(), np.full(len(chosen), spread)])
            start = np.concatenate([first, np.zeros(len(chosen))])
            design = _beside(base, pairs[:, chosen])
            found.append((fit_logistic(design, bad, size, spreads, start), chosen))
        else:
            found.append((first, chosen))
    return found


def _beside(one: Sparse, other: Sparse) -> Sparse:
    return sparse.csr_array(sparse.hstack([one, other], format="csr"))


def _pair_keys(combinations: Described) -> Int[np.ndarray, "combination pair"]:
    items, values = combinations.items, combinations.values
    pairs = list(itertools.combinations(range(items.shape[1]), 2))
    one, other = (items[:, [pair[side] for pair in pairs]] for side in (0, 1))
    # Values that appear first in what is asked have no pair among those evaluated.
    known = (one != NONE) & (other != NONE) & (one < values) & (other < values)
    return np.where(known, one * values + other, NONE)


def _shrunk(bad: np.ndarray, size: np.ndarray, rate: float) -> np.ndarray:
    return (bad + rate) / (size + 1)


def _nearest_place(points: np.ndarray, at: np.ndarray) -> np.ndarray:
    right = np.clip(np.searchsorted(points, at), 0, len(points) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(at - points[left]) <= np.abs(points[right] - at), left, right)
