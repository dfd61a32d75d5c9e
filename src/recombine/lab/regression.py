"""Correlations and least squares with intervals that know their degrees of freedom and clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike
from scipy import linalg, special, stats

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval, clustered_interval, finite_vector

Vector = Float[np.ndarray, " row"]
Matrix = Float[np.ndarray, "row column"]
_ROUNDING = 1e-10


def pearson(
    x: ArrayLike,
    y: ArrayLike,
    *,
    cluster: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The correlation of two vectors, by Fisher's z or, given cluster ids, by resampling clusters.

    A vector without variance has no correlation: the estimate is NaN and the interval [-1, 1].

    >>> round(pearson([1, 2, 3, 4], [1, 3, 2, 4]).estimate, 2)
    0.8
    """
    return _correlation(x, y, None, None, cluster, level, seed)


def partial_correlation(
    x: ArrayLike,
    y: ArrayLike,
    given: ArrayLike,
    *,
    cluster: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The correlation left between x and y once both are regressed on `given` (row, covariate).

    Fisher's z has standard error 1 / sqrt(n - k - 3), with k the rank of the covariates. With
    cluster ids, whole clusters are resampled and the regression is made anew each time.
    """
    return _correlation(x, y, given, None, cluster, level, seed)


def within_group_correlation(
    x: ArrayLike,
    y: ArrayLike,
    groups: ArrayLike,
    *,
    given: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The correlation of x and y inside groups (cells), pooled after centring in each group.

    What differs between groups (a design everyone shares) cannot produce it. Fisher's z has
    standard error 1 / sqrt(n - groups - k - 2); a group of one row adds nothing. `cluster` names
    the units to resample when rows are not independent inside a group, for instance one model
    read at several layers; do not pass one id per row, Fisher's z is exact enough and faster.
    """
    return _correlation(x, y, given, groups, cluster, level, seed)


@dataclass(frozen=True)
class Coefficient:
    """One line of a regression table."""

    name: str
    interval: Interval
    standard_error: float
    t: float
    p: float

    @property
    def estimate(self) -> float:
        """The fitted coefficient."""
        return self.interval.estimate


@dataclass(frozen=True)
class LeastSquares:
    """A regression table: one coefficient a column, in the order given, intercept first."""

    coefficients: tuple[Coefficient, ...]
    rows: int
    clusters: int | None
    degrees_of_freedom: int
    r2: float

    def __getitem__(self, name: str) -> Coefficient:
        for coefficient in self.coefficients:
            if coefficient.name == name:
                return coefficient
        raise InvalidRequest(
            f"no coefficient {name!r}: this regression has "
            + ", ".join(repr(one.name) for one in self.coefficients)
        )


def least_squares(
    y: ArrayLike,
    columns: ArrayLike,
    names: Sequence[str],
    *,
    cluster: ArrayLike | None = None,
    intercept: bool = True,
    level: float = 0.95,
) -> LeastSquares:
    """Ordinary least squares with cluster-robust (CR1) errors and t(clusters - 1) intervals.

    An interaction is a column of products (centre both factors first, so that the main effects
    stay readable). Without clusters: classical errors and t(rows - columns).

    >>> table = least_squares([1.0, 3.0, 5.0, 7.1], [[0.0], [1.0], [2.0], [3.0]], ["x"])
    >>> round(table["x"].estimate, 3)
    2.03
    """
    target = finite_vector("y", y)
    design, labels = _design(target, columns, names, intercept)
    rows, width = design.shape
    q, r = np.linalg.qr(design)
    estimate = linalg.solve_triangular(r, q.T @ target)
    residual = target - design @ estimate
    inverse = linalg.solve_triangular(r, np.eye(width))
    bread = inverse @ inverse.T
    if cluster is None:
        units, clusters, freedom = rows, None, rows - width
        covariance = bread * (residual @ residual / freedom if freedom > 0 else math.inf)
    else:
        ids = _ids("cluster", cluster, rows)
        units = clusters = int(ids.max()) + 1
        freedom = clusters - 1 if rows > width else 0
        scores = np.zeros((clusters, width))
        np.add.at(scores, ids, design * residual[:, None])
        small = clusters / freedom * (rows - 1) / (rows - width) if freedom > 0 else math.inf
        covariance = bread @ (scores.T @ scores) @ bread * small
    around = target - target.mean() if intercept else target
    total = float(around @ around)
    method = "classical t" if cluster is None else "CR1 t"
    errors = np.sqrt(np.diag(covariance)) if freedom > 0 else np.full(width, math.inf)
    return LeastSquares(
        tuple(
            _coefficient(name, float(value), float(error), units, freedom, method, level)
            for name, value, error in zip(labels, estimate, errors, strict=True)
        ),
        rows,
        clusters,
        freedom,
        1 - float(residual @ residual) / total if total > 0 else math.nan,
    )


def matched(score: ArrayLike, value: ArrayLike, at: float) -> float:
    """What `value` was when `score` first rose to `at` along a learning curve.

    Both are read at the same steps; between two steps the curves are taken as straight. NaN when
    the score never rises to `at`, also when it starts above it: nothing was observed at that
    score. Steps where either curve is NaN match nothing.

    >>> matched([0.0, 0.5, 1.0], [0.0, 0.1, 0.3], at=0.75)
    0.2
    """
    x, y = np.asarray(score, dtype=np.float64), np.asarray(value, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise InvalidRequest(
            f"learning curves of shapes {x.shape} and {y.shape}: expected two vectors read at "
            "the same steps"
        )
    if x.size and x[0] == at and np.isfinite(y[0]):
        return float(y[0])
    known = np.isfinite(x) & np.isfinite(y)
    rises = (x[:-1] < at) & (x[1:] >= at) & known[:-1] & known[1:]
    if not rises.any():
        return math.nan
    i = int(np.argmax(rises))
    share = (at - x[i]) / (x[i + 1] - x[i])
    return float(y[i] + share * (y[i + 1] - y[i]))


def _correlation(
    x: ArrayLike,
    y: ArrayLike,
    given: ArrayLike | None,
    groups: ArrayLike | None,
    cluster: ArrayLike | None,
    level: float,
    seed: int,
) -> Interval:
    a, b = finite_vector("x", x), finite_vector("y", y)
    if len(a) != len(b):
        raise InvalidRequest(f"x has {len(a)} rows and y has {len(b)}: expected as many")
    rows = len(a)
    covariates = np.zeros((rows, 0)) if given is None else _matrix("given", given, rows)
    cells = np.zeros(rows, dtype=np.int64) if groups is None else _ids("groups", groups, rows)
    if cluster is not None:
        ids = _ids("cluster", cluster, rows)
        members = np.split(np.argsort(ids, kind="stable"), np.cumsum(np.bincount(ids))[:-1])

        # On Fisher's scale, where the jackknife's t interval is close to symmetric and the ends
        # cannot leave [-1, 1]. The regression is part of what is resampled.
        def transformed(sample: list[Int[np.ndarray, " row"]]) -> float:
            chosen = np.concatenate(sample)
            r, _ = _residual_correlation(a[chosen], b[chosen], covariates[chosen], cells[chosen])
            return math.atanh(float(np.clip(r, -1 + 1e-12, 1 - 1e-12)))

        z = clustered_interval(transformed, members, level=level, seed=seed)
        ends = (math.tanh(z.estimate), math.tanh(z.low), math.tanh(z.high))
        return Interval(*ends, z.units, f"{z.method} over clusters, Fisher z", level)
    r, freedom = _residual_correlation(a, b, covariates, cells)
    if freedom <= 2 or math.isnan(r):
        return Interval(r, -1.0, 1.0, rows, "Fisher z", level)
    reach = float(special.ndtri((1 + level) / 2)) / math.sqrt(freedom - 2)
    centre = math.atanh(float(np.clip(r, -1 + 1e-15, 1 - 1e-15)))
    return Interval(
        r, math.tanh(centre - reach), math.tanh(centre + reach), rows, "Fisher z", level
    )


def _residual_correlation(
    x: Vector, y: Vector, given: Matrix, cells: Int[np.ndarray, " row"]
) -> tuple[float, int]:
    """The correlation of residuals, and the degrees of freedom the residuals keep."""
    both = np.column_stack([x, y, given])
    _, place = np.unique(cells, return_inverse=True)
    counts = np.bincount(place)
    sums = np.zeros((len(counts), both.shape[1]))
    np.add.at(sums, place, both)
    centred = both - (sums / counts[:, None])[place]
    pair, covariates = centred[:, :2], centred[:, 2:]
    rank = 0
    if covariates.shape[1]:
        basis, size, _ = np.linalg.svd(covariates, full_matrices=False)
        basis = basis[:, size > _ROUNDING * max(float(size[0]), 1e-300)]
        rank = basis.shape[1]
        pair = pair - basis @ (basis.T @ pair)
    left = np.sum(pair**2, axis=0)
    # Rounding leaves a little of a vector that the covariates or groups explain fully.
    if np.any(left <= _ROUNDING**2 * np.sum(both[:, :2] ** 2, axis=0)):
        return math.nan, len(x) - len(counts) - rank
    r = float(pair[:, 0] @ pair[:, 1] / math.sqrt(float(left[0]) * float(left[1])))
    return float(np.clip(r, -1, 1)), len(x) - len(counts) - rank


def _design(
    y: Vector, columns: ArrayLike, names: Sequence[str], intercept: bool
) -> tuple[Matrix, list[str]]:
    design = _matrix("columns", columns, len(y))
    labels = list(names)
    if design.shape[1] != len(labels):
        raise InvalidRequest(f"{design.shape[1]} columns with {len(labels)} names: give one each")
    if intercept:
        design = np.column_stack([np.ones(len(y)), design])
        labels = ["intercept", *labels]
    if len(y) < design.shape[1]:
        raise InvalidRequest(
            f"{len(y)} rows cannot fit {design.shape[1]} coefficients: add rows or drop columns"
        )
    size = np.linalg.norm(design, axis=0)
    r = np.linalg.qr(design / np.where(size > 0, size, 1), mode="r")
    redundant = [labels[i] for i in np.flatnonzero(np.abs(np.diag(r)) <= _ROUNDING)]
    if redundant:
        raise InvalidRequest(
            f"columns {', '.join(redundant)} are combinations of the others (or constant): "
            "leave them out"
        )
    return design, labels


def _coefficient(
    name: str, value: float, error: float, units: int, freedom: int, method: str, level: float
) -> Coefficient:
    if freedom < 1:
        unknown = Interval(value, -math.inf, math.inf, units, method, level)
        return Coefficient(name, unknown, math.inf, 0.0, 1.0)
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    t = value / error if error > 0 else math.copysign(math.inf, value)
    interval = Interval(value, value - reach, value + reach, units, method, level)
    return Coefficient(name, interval, error, t, 2 * float(stats.t.sf(abs(t), freedom)))


def _matrix(name: str, values: ArrayLike, rows: int) -> Matrix:
    matrix = np.asarray(values, dtype=np.float64)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or len(matrix) != rows or not np.isfinite(matrix).all():
        raise InvalidRequest(
            f"{name} has shape {matrix.shape}: expected {rows} rows of finite numbers"
        )
    return matrix


def _ids(name: str, values: ArrayLike, rows: int) -> Int[np.ndarray, " row"]:
    labels: Shaped[np.ndarray, " row"] = np.asarray(values)
    if labels.shape != (rows,):
        raise InvalidRequest(f"{name} has shape {labels.shape}: expected one id for {rows} rows")
    return np.unique(labels, return_inverse=True)[1]
