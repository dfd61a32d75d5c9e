"""How much is needed to reach a target score: where to look next, and where the curve crosses.

A score rises with the number N of trained combinations, roughly as a logistic in log N. Training
at every N is wasteful, so `first_sizes` spans the range, `next_sizes` narrows in on the crossing
round by round, and `threshold` reads N* off a curve fitted to one seed. Seeds are the unit of
replication: there is no interval within a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import optimize, special

from recombine.errors import InvalidRequest

Censored = Literal["no", "above", "below"]
Vector = Float[np.ndarray, " size"]

FEWEST = 6  # sizes a curve of three parameters is fitted to
_FLOOR = -0.5  # below it a score says no more than "nothing was learned"
_ROBUST = 0.02  # residuals beyond it count linearly: one failed run must not move the crossing
_LOWEST_TOP, _SLOPES = 0.05, (0.02, 60.0)
_STARTS = 3


def first_sizes(low: int, high: int, count: int) -> list[int]:
    """Whole numbers evenly spread in log N, both ends included, to begin a search with.

    Where rounding would make two of them equal the later one moves up, so there are `count` of
    them whenever the range holds that many.

    >>> first_sizes(4, 128, 6)
    [4, 8, 16, 32, 64, 128]
    """
    _check_range(low, high)
    if count < 2:
        raise InvalidRequest(f"count={count}: both ends need at least 2 sizes, such as count=6")
    count = min(count, high - low + 1)
    sizes: list[int] = []
    for place, ideal in enumerate(np.geomspace(low, high, count)):
        least = sizes[-1] + 1 if sizes else low
        sizes.append(min(max(round(ideal), least), high - (count - 1 - place)))
    return sizes


def next_sizes(
    sizes: Sequence[int],
    scores: ArrayLike,
    *,
    target: float,
    low: int,
    high: int,
    parts: int,
    most: int,
) -> list[int]:
    """The sizes to train next, given the mean score at each size tried: one round of k-section.

    Scores need not rise steadily: every pair of neighbours on different sides of the target is
    a bracket, and each is cut into `parts` equal parts in log N. When there is room for only
    `most` new sizes, brackets take one each in turn, the first crossing first. Without a crossing
    the search goes on towards `high` (all below the target) or `low` (all above), and that end is
    tried first. An empty list means that nothing is left to try. A score of NaN (every seed
    diverged) is a size not to try again, and no evidence for either side.

    >>> next_sizes([4, 64], [0.2, 0.99], target=0.95, low=4, high=64, parts=4, most=8)
    [8, 16, 32]
    """
    _check_range(low, high)
    if parts < 2 or most < 1:
        raise InvalidRequest(
            f"parts={parts}, most={most}: expected at least 2 parts and 1 new size a round"
        )
    tried, means = _curve(sizes, scores)
    seen = [(n, mean >= target) for n, mean in zip(tried, means, strict=True) if mean == mean]
    if not seen:
        return []

    def untried(candidates: Iterable[int]) -> list[int]:
        return sorted({n for n in candidates if low <= n <= high} - set(tried))

    brackets = [(a, b) for (a, side), (b, other) in pairwise(seen) if side != other]
    if brackets:
        cuts = [untried(_cuts(a, b, parts)) for a, b in brackets]
        shares = _in_turn([len(found) for found in cuts], most)
        chosen = [_spread(found, share) for found, share in zip(cuts, shares, strict=True)]
        return sorted({n for found in chosen for n in found})
    reached = seen[0][1]
    end, edge = (low, seen[0][0]) if reached else (high, seen[-1][0])
    if (edge <= low) if reached else (edge >= high):
        return []
    first = untried([end])
    between = untried(_cuts(min(end, edge), max(end, edge), parts))
    return sorted([*first, *_spread(between, most - len(first))])


@dataclass(frozen=True)
class Threshold:
    """Where one seed's curve reaches the target, and how well the curve fits.

    `estimate` is log2 N*. When `censored` it is the limit that N* is known to lie "above" (the
    largest size tried) or "below" (the smallest). `slope` is per unit of natural log N.
    """

    estimate: float
    censored: Censored
    slope: float
    top: float
    rmse: float
    sizes: tuple[int, ...]


def threshold(sizes: Sequence[int], scores: ArrayLike, *, target: float, largest: int) -> Threshold:
    """The number of trained combinations at which one seed's score reaches the target.

    Fits score(N) = top / (1 + exp(-slope (log N - middle))) with top at most 1, by robust least
    squares from several starts, to scores clipped to [-0.5, 1]; NaN scores are left out. N* is
    "above" when no score reaches the target or the fitted curve does not by `largest` (the most
    combinations that could be trained on), "below" when every score, or the curve at the smallest
    size tried, has reached it already.

    >>> n = [4, 8, 16, 32, 64, 128]
    >>> found = threshold(n, [1 / (1 + (16 / k) ** 2) for k in n], target=0.8, largest=128)
    >>> round(2**found.estimate, 3), found.censored
    (32.0, 'no')
    """
    if not 0 < target < 1:
        raise InvalidRequest(f"target={target}: expected a score between 0 and 1, such as 0.95")
    tried, raw = _curve(sizes, scores)
    used = [n for n, score in zip(tried, raw, strict=True) if score == score]
    if len(used) < FEWEST:
        raise InvalidRequest(
            f"{len(used)} sizes with a score: a threshold needs at least {FEWEST}; train at "
            f"{FEWEST - len(used)} more"
        )
    if largest < used[-1]:
        raise InvalidRequest(
            f"largest={largest} with a score at N={used[-1]}: expected the most combinations that "
            f"could be trained on, at least {used[-1]}"
        )
    observed = np.clip(raw[~np.isnan(raw)], _FLOOR, 1.0)
    x = np.log(np.asarray(used, dtype=np.float64))
    top, middle, slope = _fitted(x, observed)
    rmse = float(np.sqrt(np.mean((_logistic(x, top, middle, slope) - observed) ** 2)))
    crossing = middle - math.log(top / target - 1) / slope if top > target else math.inf
    reached = observed >= target
    censored: Censored = "no"
    if not reached.any():
        censored, crossing = "above", float(x[-1])
    elif reached.all() or crossing <= x[0]:
        censored, crossing = "below", float(x[0])
    elif crossing > math.log(largest):
        censored, crossing = "above", float(x[-1])
    return Threshold(crossing / math.log(2), censored, slope, top, rmse, tuple(used))


def savings(used: int, feasible: int) -> str:
    """The sentence that compares a search with training every feasible cell of the grid.

    >>> savings(180, 1464)
    'used 180 runs; the full grid of feasible cells has 1,464: 88 % saved.'
    """
    if used < 0 or feasible < 1:
        raise InvalidRequest(
            f"{used} runs used of {feasible} feasible cells: expected at least 0 and at least 1"
        )
    share = 100 * (1 - used / feasible)
    if share <= 0:
        saved = "nothing"
    elif share >= 99.5 and used > 0:  # would round to all of it, though something was run
        saved = "over 99 %"
    elif share < 0.5:
        saved = "under 1 %"
    else:
        saved = f"{share:.0f} %"
    runs = "run" if used == 1 else "runs"
    return f"used {used:,} {runs}; the full grid of feasible cells has {feasible:,}: {saved} saved."


def _logistic(x: Vector, top: float, middle: float, slope: float) -> Vector:
    return top * special.expit(slope * (x - middle))


def _fitted(x: Vector, y: Vector) -> tuple[float, float, float]:
    """(top, middle, slope) of the robust fit: a coarse grid finds the starts, trust-region ends."""
    span = x[-1] - x[0]
    lower = np.array([_LOWEST_TOP, x[0] - 3 * span, _SLOPES[0]])
    upper = np.array([1.0, x[-1] + 3 * span, _SLOPES[1]])

    def residual(p: Float[np.ndarray, "3"]) -> Vector:
        return _logistic(x, p[0], p[1], p[2]) - y

    def jacobian(p: Float[np.ndarray, "3"]) -> Float[np.ndarray, "size 3"]:
        share = special.expit(p[2] * (x - p[1]))
        steep = p[0] * share * (1 - share)
        return np.column_stack([share, -p[2] * steep, (x - p[1]) * steep])

    best = float(np.clip(y.max(), 0.1, 1.0))
    tops = np.unique([best, (best + 1) / 2, 1.0])
    middles = np.linspace(x[0] - span / 2, x[-1] + span / 2, 17)
    slopes = np.geomspace(0.2, 30.0, 10)
    grid = np.stack(np.meshgrid(tops, middles, slopes, indexing="ij"), axis=-1).reshape(-1, 3)
    curves = grid[:, :1] * special.expit(grid[:, 2:] * (x - grid[:, 1:2]))
    cost = np.sum(np.sqrt(1 + ((curves - y) / _ROBUST) ** 2), axis=1)
    fits = [
        optimize.least_squares(
            residual,
            start,
            jac=jacobian,  # pyright: ignore[reportArgumentType]  # scipy also takes functions
            bounds=(lower, upper),
            loss="soft_l1",
            f_scale=_ROBUST,
        )
        for start in grid[np.argsort(cost, kind="stable")[:_STARTS]]
    ]
    top, middle, slope = min(fits, key=lambda fit: fit.cost).x
    return float(top), float(middle), float(slope)


def _cuts(a: int, b: int, parts: int) -> list[int]:
    """The whole numbers nearest to the inner borders of `parts` equal parts of log [a, b]."""
    return [n for n in (round(a * (b / a) ** (i / parts)) for i in range(1, parts)) if a < n < b]


def _in_turn(capacities: list[int], most: int) -> list[int]:
    """How many each bracket gets when they take one each in turn, until `most` are taken."""
    shares = [0] * len(capacities)
    left = min(most, sum(capacities))
    while left:
        for place, capacity in enumerate(capacities):
            if left and shares[place] < capacity:
                shares[place] += 1
                left -= 1
    return shares


def _spread(candidates: list[int], count: int) -> list[int]:
    """`count` of the candidates, spread evenly over them; the middle one when only one fits."""
    if count >= len(candidates):
        return candidates
    return [candidates[i * (len(candidates) + 1) // (count + 1) - 1] for i in range(1, count + 1)]


def _curve(sizes: Sequence[int], scores: ArrayLike) -> tuple[list[int], Vector]:
    """Sizes in rising order with their scores."""
    values = np.asarray(scores, dtype=np.float64)
    numbers = [int(n) for n in sizes]
    if values.shape != (len(numbers),) or not numbers:
        raise InvalidRequest(
            f"{len(numbers)} sizes with scores of shape {values.shape}: expected one score for "
            "each size tried, at least one (begin with first_sizes)"
        )
    if len(set(numbers)) < len(numbers) or any(n != m for n, m in zip(numbers, sizes, strict=True)):
        raise InvalidRequest(f"sizes {list(sizes)}: expected different whole numbers")
    if min(numbers) < 1:
        raise InvalidRequest(f"size {min(numbers)}: expected at least 1 trained combination")
    order = np.argsort(numbers)
    return [numbers[i] for i in order], values[order]


def _check_range(low: int, high: int) -> None:
    if not 1 <= low <= high:
        raise InvalidRequest(f"sizes from {low} to {high}: expected 1 <= low <= high")
