"""How fast the data needed grows: laws for N*(M, K), fitted to some settings and tested on others.

A law says how log2 N*, the log of the number of trained combinations that reaches a target score,
depends on the number of modules M, the most active at a time K, and the number S of all
combinations. Laws are compared by how well they predict the largest settings from the smaller
ones, with seeds as the unit of replication; where the intervals of their errors overlap, no law
is named.

A threshold beyond the sizes tried is censored: only a limit is known. Leaving such points out
would bend every law down at its upper end, so they enter by their probability under the law
(the Tobit likelihood).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.combinations import subset_count
from recombine.errors import InvalidRequest, unknown
from recombine.lab.statistics import Interval, clustered_interval
from recombine.lab.thresholds import Censored, Threshold
from recombine.lab.tobit import Matrix, Sides, Vector, most_likely

Columns = dict[str, Vector]
Design = Callable[[Vector, Vector, Vector], Columns]

_SIDES: dict[Censored, int] = {"below": -1, "no": 0, "above": 1}


@dataclass(frozen=True)
class Point:
    """One seed's log2 N* at a setting (M, K), or the limit it lies above or below.

    >>> Point(modules=16, active=3, log2_size=7.5, seed=0).combinations
    696
    """

    modules: int
    active: int
    log2_size: float
    seed: int
    censored: Censored = "no"

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.modules:
            raise InvalidRequest(
                f"M={self.modules}, K={self.active}: expected 1 <= K <= M, such as M=16, K=3"
            )
        if not math.isfinite(self.log2_size):
            raise InvalidRequest(
                f"log2 N* = {self.log2_size} at M={self.modules}, K={self.active}: expected a "
                "number; a threshold out of reach is its limit with censored='above'"
            )
        if self.censored not in _SIDES:
            raise unknown("censoring", self.censored, _SIDES)

    @property
    def setting(self) -> tuple[int, int]:
        """(M, K)."""
        return self.modules, self.active

    @property
    def combinations(self) -> int:
        """The number S of all combinations."""
        return subset_count(self.modules, self.active)

    @classmethod
    def of(cls, modules: int, active: int, seed: int, found: Threshold) -> Point:
        """The point of a threshold that was read off one seed's curve."""
        return cls(modules, active, found.estimate, seed, found.censored)


@dataclass(frozen=True)
class Law:
    """How log2 N* depends on a setting, linear in its coefficients; `slope` is the telling one."""

    formula: str
    design: Design
    slope: str


def _each_k(active: Vector) -> Columns:
    return {f"K={int(k)}": (active == k).astype(np.float64) for k in np.unique(active)}


def _one(active: Vector) -> Columns:
    return {"intercept": np.ones(len(active))}


# The first three are compared by default. The laws that also fix the shape in K are close relatives
# of the first two, so comparing all five at once could never name one.
LAWS: dict[str, Law] = {
    "polynomial": Law(
        "log N* = a_K + b log M", lambda m, k, s: {**_each_k(k), "log M": np.log2(m)}, "log M"
    ),
    "exponential": Law("log N* = a_K + b M", lambda m, k, s: {**_each_k(k), "M": m}, "M"),
    "power of the whole": Law(
        "log N* = a + p log S", lambda m, k, s: {**_one(k), "log S": np.log2(s)}, "log S"
    ),
    "polynomial in both": Law(
        "log N* = a + b log M + c log K",
        lambda m, k, s: {**_one(k), "log M": np.log2(m), "log K": np.log2(k)},
        "log M",
    ),
    "exponential, polynomial in K": Law(
        "log N* = a + b M + c log K",
        lambda m, k, s: {**_one(k), "M": m, "log K": np.log2(k)},
        "M",
    ),
}
COMPARED = ("polynomial", "exponential", "power of the whole")


@dataclass(frozen=True)
class Growth:
    """A fitted law: its coefficients, its spread in log2 units and its AIC.

    `parameters` counts the coefficients the points determine; AIC counts the spread too. A
    coefficient they do not determine is NaN.
    """

    law: str
    coefficients: Mapping[str, float]
    spread: float
    log_likelihood: float
    parameters: int
    points: int
    censored: int

    @property
    def aic(self) -> float:
        return 2 * (self.parameters + 1) - 2 * self.log_likelihood

    @property
    def slope(self) -> float:
        """The coefficient that says how fast the law grows: b or p."""
        return self.coefficients[LAWS[self.law].slope]


def fit(law: str, points: Sequence[Point]) -> Growth:
    """The law that makes the points most likely, with normal errors in log2 N*.

    Least squares where nothing is censored, else the Tobit likelihood.

    >>> points = [Point(m, 2, 3 + 1.5 * math.log2(m), seed=0) for m in (4, 8, 16)]
    >>> round(fit("polynomial", points).slope, 6)
    1.5
    """
    table = _Table.of(points, [law])
    names, design = table.designs[law]
    found = most_likely(design, table.y, table.side)
    if found is None:
        raise InvalidRequest(
            f"all {len(points)} points are censored: a law needs thresholds that were reached"
        )
    values = np.where(found.determines(np.eye(len(names))), found.coefficients, math.nan)
    return Growth(
        law,
        dict(zip(names, values.tolist(), strict=True)),
        found.spread,
        found.log_likelihood,
        found.basis.shape[1],
        len(points),
        int(np.count_nonzero(table.side)),
    )


def exponent(
    points: Sequence[Point], law: str = "polynomial", *, level: float = 0.95, seed: int = 0
) -> Interval:
    """A law's slope (b of M^b, for the polynomial law) with its interval over seeds.

    Where nothing is censored and every seed has every setting, this is the interval of the mean
    of the slopes fitted to each seed alone.
    """
    table = _Table.of(points, [law])
    names, design = table.designs[law]
    place = names.index(LAWS[law].slope)

    def slope(seeds: list[int]) -> float:
        rows = table.rows(seeds)
        found = most_likely(design[rows], table.y[rows], table.side[rows])
        if found is None or not found.determines(np.eye(len(names)))[place]:
            return math.nan
        return float(found.coefficients[place])

    return clustered_interval(slope, table.seeds, level=level, seed=seed)


@dataclass(frozen=True)
class Prediction:
    """What a law said about a setting it was not fitted to; both in log2 N*, means over seeds.

    `miss` is predicted minus observed, where a censored threshold counts as met by any
    prediction beyond its limit. `reached` is the share of seeds whose threshold is not censored.
    """

    modules: int
    active: int
    observed: float
    predicted: float
    miss: float
    reached: float


@dataclass(frozen=True)
class Extrapolation:
    """How far a law, fitted to the smaller settings, is off at the largest ones.

    `error` is the root mean square over the held-out settings, in log2 units (1 means a factor
    of two), with its interval over seeds. `differences` are this error minus each other law's,
    from the same resamples of seeds.
    """

    law: str
    growth: Growth
    predictions: tuple[Prediction, ...]
    error: Interval
    differences: Mapping[str, Interval]

    @property
    def parameters(self) -> int:
        return self.growth.parameters

    @property
    def aic(self) -> float:
        """On the fitted settings."""
        return self.growth.aic


def extrapolate(
    points: Sequence[Point],
    held_out: int = 2,
    level: float = 0.95,
    seed: int = 0,
    draws: int = 1000,
    laws: Sequence[str] = COMPARED,
) -> dict[str, Extrapolation]:
    """Fits each law without the `held_out` settings of largest S, and predicts those.

    Seeds are resampled whole, and all laws are refitted to the same resample: a bootstrap from 10
    seeds up, below that Student t on the jackknife (too few seeds have too few resamples).
    """
    table = _Table.of(points, laws)
    settings = sorted({p.setting for p in points}, key=lambda s: (subset_count(*s), s))
    if not 1 <= held_out < len(settings):
        raise InvalidRequest(
            f"held_out={held_out} of {len(settings)} settings (M, K): expected at least 1, and at "
            "least 1 setting left to fit"
        )
    largest = settings[-held_out:]
    kept = [p for p in points if p.setting not in largest]
    place = np.array([largest.index(p.setting) if p.setting in largest else -1 for p in points])
    seen: dict[tuple[int, ...], dict[str, Matrix]] = {}

    def predicted(seeds: list[int]) -> dict[str, Matrix]:
        """By law, a row for each held-out setting: observed, predicted, miss, reached."""
        key = tuple(sorted(seeds))
        if key not in seen:
            rows = table.rows(key)
            seen[key] = {law: _held_out(table, law, rows, place, held_out) for law in laws}
        return seen[key]

    def error(law: str, seeds: list[int]) -> float:
        return float(np.sqrt(np.mean(predicted(seeds)[law][:, 2] ** 2)))

    def interval(statistic: Callable[[list[int]], float]) -> Interval:
        return clustered_interval(statistic, table.seeds, level=level, seed=seed, resamples=draws)

    found = {}
    for law in laws:
        raw = interval(lambda seeds, law=law: error(law, seeds))
        found[law] = Extrapolation(
            law,
            fit(law, kept),
            tuple(
                Prediction(*setting, *(float(number) for number in row))
                for setting, row in zip(largest, predicted(table.seeds)[law], strict=True)
            ),
            dataclasses.replace(raw, low=max(0.0, raw.low)),  # no error is negative
            {
                o: interval(lambda seeds, law=law, o=o: error(law, seeds) - error(o, seeds))
                for o in laws
                if o != law
            },
        )
    return found


def best(extrapolations: Mapping[str, Extrapolation]) -> tuple[str | None, str]:
    """The law that predicts the held-out settings best, if one does, with a sentence that says so.

    A law is named only when the interval of its error overlaps no other law's, and most seeds
    reached the target at every held-out setting. The paired difference, which is often sharper,
    is told beside it and decides nothing.
    """
    if len(extrapolations) < 2:
        raise InvalidRequest(f"{len(extrapolations)} laws: a comparison needs at least 2")
    for one in extrapolations.values():
        if gaps := _named(p for p in one.predictions if math.isnan(p.miss)):
            return None, f"inconclusive: what {one.law} predicts at {gaps} is not determined"
        if gaps := _named(p for p in one.predictions if p.reached <= 0.5):
            return None, (
                f"inconclusive: most thresholds at {gaps} are censored, which cannot tell a law "
                "that goes too far from one that is right"
            )
    first, *others = sorted(extrapolations.values(), key=lambda one: one.error.estimate)
    rival = next((one for one in others if overlap(first.error, one.error)), None)
    if rival is not None:
        return None, (
            f"inconclusive: the intervals of {first.law} and {rival.law} overlap "
            f"({_told(first.error)} and {_told(rival.error)}; paired difference "
            f"{_told(first.differences[rival.law])})"
        )
    return first.law, (
        f"{first.law} predicts best: it is off by {_told(first.error)} in log2 N*, the next, "
        f"{others[0].law}, by {_told(others[0].error)} (paired difference "
        f"{_told(first.differences[others[0].law])})"
    )


def overlap(one: Interval, other: Interval) -> bool:
    """Whether two intervals share a point."""
    return one.low <= other.high and other.low <= one.high


def _named(predictions: Iterable[Prediction]) -> str:
    return " and ".join(f"M={p.modules}, K={p.active}" for p in predictions)


def _told(interval: Interval) -> str:
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


@dataclass(frozen=True)
class _Table:
    """Points as arrays, with each law's columns, so that seeds can be resampled by row."""

    y: Vector
    side: Sides
    seeds: list[int]
    by_seed: dict[int, Int[np.ndarray, " row"]]
    designs: dict[str, tuple[list[str], Matrix]]

    @staticmethod
    def of(points: Sequence[Point], laws: Sequence[str]) -> _Table:
        if not points:
            raise InvalidRequest("no points: a law needs thresholds at several settings (M, K)")
        if len({(p.setting, p.seed) for p in points}) < len(points):
            raise InvalidRequest(
                "two points with the same M, K and seed: fit one model's thresholds at a time"
            )
        sizes = [(p.modules, p.active, p.combinations) for p in points]
        m, k, s = np.array(sizes, dtype=np.float64).T
        designs = {}
        for law in laws:
            if law not in LAWS:
                raise unknown("law", law, LAWS)
            columns = LAWS[law].design(m, k, s)
            designs[law] = (list(columns), np.column_stack(list(columns.values())))
        ids = np.array([p.seed for p in points])
        seeds = sorted({p.seed for p in points})
        return _Table(
            np.array([p.log2_size for p in points], dtype=np.float64),
            np.array([_SIDES[p.censored] for p in points]),
            seeds,
            {one: np.flatnonzero(ids == one) for one in seeds},
            designs,
        )

    def rows(self, seeds: Sequence[int]) -> Int[np.ndarray, " row"]:
        return np.concatenate([self.by_seed[one] for one in seeds])


def _held_out(
    table: _Table, law: str, rows: Sides, place: Sides, settings: int
) -> Float[np.ndarray, "setting 4"]:
    """The fields of a `Prediction` for each held-out setting, means over the seeds in `rows`."""
    fitted, tested = rows[place[rows] < 0], rows[place[rows] >= 0]
    design = table.designs[law][1]
    found = most_likely(design[fitted], table.y[fitted], table.side[fitted])
    told = np.full((settings, 4), math.nan)
    if found is None:
        return told
    known = found.determines(design[tested])
    predicted = np.where(known, design[tested] @ found.coefficients, math.nan)
    side = table.side[tested]
    miss = predicted - table.y[tested]
    miss = np.where(side > 0, np.minimum(miss, 0), np.where(side < 0, np.maximum(miss, 0), miss))
    each = np.column_stack([table.y[tested], predicted, miss, side == 0])
    for setting in np.unique(place[tested]):
        told[setting] = each[place[tested] == setting].mean(axis=0)
    return told
