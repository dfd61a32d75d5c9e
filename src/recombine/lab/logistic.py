"""Logistic regression on z-scored predictors, also where the answers are perfectly separable.

Newton's method (IRLS) finds the maximum of the likelihood. Where a combination of the predictors
separates right from wrong there is none: coefficients run away and Wald's errors mean nothing. A
linear programme tells so exactly, and the fit then takes independent Cauchy priors, of scale 2.5
for the z-scored predictors and 10 for the intercept, after Gelman et al. (2008), the rule of
`bayesglm`; the result says that it did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval, clustered_interval, finite_vector
from recombine.lab.regression import Coefficient

Prior = Literal["auto", "none", "cauchy", "gaussian"]
SCALE, INTERCEPT_SCALE = 2.5, 10.0
_CERTAIN = 1e-6  # a fitted probability this close to 0 or 1 makes separation worth a proof
_ROUNDING = 1e-10
_STEPS = 500

Vector = Float[np.ndarray, " row"]
Matrix = Float[np.ndarray, "row column"]
Weights = Float[np.ndarray, " column"]


@dataclass(frozen=True)
class Logistic:
    """A table of log-odds, one coefficient a column in the order given, intercept first.

    In each coefficient `t` is Wald's z. `prior` is the one that was used: "none" unless asked for
    or `separated`. Deviances are those of the data alone, at the fitted coefficients.
    """

    coefficients: tuple[Coefficient, ...]
    rows: int
    deviance: float
    null_deviance: float
    separated: bool
    prior: Literal["none", "cauchy", "gaussian"]

    def __getitem__(self, name: str) -> Coefficient:
        for coefficient in self.coefficients:
            if coefficient.name == name:
                return coefficient
        raise InvalidRequest(
            f"no coefficient {name!r}: this regression has "
            + ", ".join(repr(one.name) for one in self.coefficients)
        )


@dataclass(frozen=True)
class LikelihoodRatio:
    """Twice the log-likelihood that columns add, against chi-squared."""

    statistic: float
    degrees_of_freedom: int
    p: float


def logistic(
    correct: ArrayLike,
    columns: ArrayLike,
    names: Sequence[str],
    *,
    standardise: bool = True,
    prior: Prior = "auto",
    level: float = 0.95,
) -> Logistic:
    """The regression of right (1) and wrong (0) on columns, with Wald errors and intervals.

    Coefficients are per standard deviation (n - 1) of their column unless `standardise` is off.
    "auto" means no prior, unless the data are separable: then Cauchy. With a prior, errors come
    from the likelihood's curvature plus that of the normal prior that touches the Cauchy there.

    >>> fit = logistic([0, 0, 1, 0, 1, 1], [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]], ["x"])
    >>> fit.separated, round(fit["x"].estimate, 2)
    (False, 2.27)
    """
    y, design, labels = _prepared(correct, columns, names, standardise)
    fit = _fitted(y, design, prior)
    if fit.separated and fit.prior == "none":
        errors = np.full(len(labels), math.inf)  # there is no maximum to take the curvature of
    else:
        errors = np.sqrt(np.diag(np.linalg.inv(fit.curvature)))
    share = float(y.mean())
    return Logistic(
        tuple(
            _coefficient(name, float(value), float(error), len(y), level)
            for name, value, error in zip(labels, fit.estimate, errors, strict=True)
        ),
        len(y),
        _deviance(y, design @ fit.estimate),
        -2 * len(y) * float(special.xlogy(share, share) + special.xlogy(1 - share, 1 - share)),
        fit.separated,
        fit.prior,
    )


def likelihood_ratio(
    correct: ArrayLike, columns: ArrayLike, names: Sequence[str], without: Sequence[str]
) -> LikelihoodRatio:
    """Whether the columns named in `without` add to the fit, by what the likelihood loses.

    Both likelihoods are maxima without a prior; on separable data, the limits they approach.
    """
    y, design, labels = _prepared(correct, columns, names, standardise=True)
    missing = [name for name in without if name not in labels[1:]]
    if missing or not without:
        raise InvalidRequest(f"without {list(without)}: expected some of {labels[1:]}")
    kept = [i for i, label in enumerate(labels) if label not in without]
    reduced = design[:, kept]
    full_deviance, less_deviance = (
        _deviance(y, part @ _newton(y, part, np.zeros(part.shape[1]))) for part in (design, reduced)
    )
    statistic = max(0.0, less_deviance - full_deviance)
    freedom = design.shape[1] - len(kept)
    return LikelihoodRatio(statistic, freedom, float(stats.chi2.sf(statistic, freedom)))


def coefficient_interval(
    correct: ArrayLike,
    columns: ArrayLike,
    names: Sequence[str],
    name: str,
    *,
    cluster: ArrayLike | None = None,
    standardise: bool = True,
    prior: Prior = "auto",
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 1000,
) -> Interval:
    """The interval of one coefficient by resampling whole clusters of rows (rows, without ids).

    Columns are z-scored once, before resampling, so that a unit stays a unit. A resample in which
    columns are constant or collinear has no answer and is left out; a separable one takes the
    prior.
    """
    y, design, labels = _prepared(correct, columns, names, standardise)
    if name not in labels:
        raise InvalidRequest(f"no column {name!r}: expected one of {labels}")
    place = labels.index(name)
    ids = np.arange(len(y)) if cluster is None else np.asarray(cluster)
    if ids.shape != y.shape:
        raise InvalidRequest(f"cluster has shape {ids.shape}: expected one id for {len(y)} rows")
    ids = np.unique(ids, return_inverse=True)[1]
    members = np.split(np.argsort(ids, kind="stable"), np.cumsum(np.bincount(ids))[:-1])

    def estimate(sample: list[Int[np.ndarray, " row"]]) -> float:
        chosen = np.concatenate(sample)
        if _redundant(design[chosen]).any():
            return math.nan
        return float(_fitted(y[chosen], design[chosen], prior).estimate[place])

    return clustered_interval(estimate, members, level=level, seed=seed, resamples=resamples)


def variance_inflation(columns: ArrayLike) -> Weights:
    """How much each column's variance is inflated by the others: 1 / (1 - R^2) of it on them.

    A combination of the others has inf, a constant NaN.

    >>> variance_inflation([[1.0, 1.0], [2.0, -1.0], [3.0, -1.0], [4.0, 1.0]])
    array([1., 1.])
    """
    given = np.asarray(columns, dtype=np.float64)
    centred = given - given.mean(axis=0)
    size = np.linalg.norm(centred, axis=0)
    constant = size <= _ROUNDING * np.maximum(np.linalg.norm(given, axis=0), 1e-300)
    unit = np.where(constant, 0.0, centred / np.where(constant, 1.0, size))
    found = np.full(given.shape[1], math.nan)
    for i in np.flatnonzero(~constant):
        others = np.delete(unit, i, axis=1)
        left = unit[:, i] - others @ np.linalg.lstsq(others, unit[:, i], rcond=None)[0]
        share = float(left @ left)
        found[i] = 1 / share if share > _ROUNDING else math.inf
    return found


def independent_columns(columns: ArrayLike) -> Bool[np.ndarray, " column"]:
    """Which columns to keep so that none is constant or a combination of those before it.

    >>> independent_columns([[1.0, 5.0, 2.0], [2.0, 5.0, 4.0], [4.0, 5.0, 8.0]])
    array([ True, False, False])
    """
    given = np.asarray(columns, dtype=np.float64)
    return ~_redundant(np.column_stack([np.ones(len(given)), given]))[1:]


def separable(correct: ArrayLike, columns: ArrayLike) -> bool:
    """Whether some combination of the columns (and a constant) parts right from wrong.

    Also where it only does so for some rows and leaves the others on the border: any maximum of
    the likelihood is then at infinity. A linear programme decides (Konis, 2007).

    >>> separable([0, 0, 1, 1], [[1.0], [2.0], [2.0], [3.0]])
    True
    """
    y, design, _ = _prepared(correct, columns, None, standardise=True)
    return _separable(y, design)


@dataclass(frozen=True)
class _Fit:
    estimate: Weights
    curvature: Float[np.ndarray, "column column"]
    separated: bool
    prior: Literal["none", "cauchy", "gaussian"]


def _fitted(y: Vector, design: Matrix, prior: Prior) -> _Fit:
    if prior not in ("auto", "none", "cauchy", "gaussian"):
        raise InvalidRequest(f"prior {prior!r}: expected 'auto', 'none', 'cauchy' or 'gaussian'")
    scale = np.full(design.shape[1], SCALE)
    scale[0] = INTERCEPT_SCALE
    flat = np.zeros(design.shape[1])
    estimate = _newton(y, design, flat)
    chance = special.expit(design @ estimate)
    uncertain = np.minimum(chance, 1 - chance).min() > _CERTAIN
    separated = not uncertain and _separable(y, design)
    used = ("cauchy" if separated else "none") if prior == "auto" else prior
    match used:
        case "none":
            precision = flat
        case "gaussian":
            precision = scale**-2
            estimate = _newton(y, design, precision)
        case "cauchy":
            estimate, precision = _cauchy_mode(y, design, scale)
    return _Fit(estimate, _curvature(design, estimate, precision), separated, used)


def _newton(y: Vector, design: Matrix, precision: Weights, start: Weights | None = None) -> Weights:
    """The mode under a normal prior (none where precision is 0), or the way to one at infinity."""

    def cost(at: Weights) -> float:
        return _deviance(y, design @ at) / 2 + float(precision @ at**2) / 2

    estimate = np.zeros(design.shape[1]) if start is None else start
    now = cost(estimate)
    for _ in range(_STEPS):
        chance = special.expit(design @ estimate)
        slope = design.T @ (y - chance) - precision * estimate
        curvature = _curvature(design, estimate, precision)
        # Far out on separable data the curvature vanishes; a least-norm step still goes there.
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        size = 1.0
        while (then := cost(estimate + size * step)) > now + 1e-13 * abs(now) and size > 1e-10:
            size /= 2
        estimate = estimate + size * step
        gained, now = now - then, then
        if gained <= 1e-14 * (abs(now) + 1e-9) and np.abs(size * step).max() < 1e-8:
            break
        # On separable data every step goes one on and gains e times less, for ever.
        if now < 1e-9 or (gained <= 1e-12 * now and np.abs(design @ estimate).max() > 30):
            break
    return estimate


def _cauchy_mode(y: Vector, design: Matrix, scale: Weights) -> tuple[Weights, Weights]:
    """The mode under Cauchy priors: each is bounded by the normal that touches it (MM)."""
    estimate = np.zeros(design.shape[1])
    precision = 2 / scale**2
    for _ in range(_STEPS):
        before = estimate
        estimate = _newton(y, design, precision, before)
        precision = 2 / (scale**2 + estimate**2)
        if np.abs(estimate - before).max() < 1e-10:
            break
    return estimate, precision


def _curvature(
    design: Matrix, estimate: Weights, precision: Weights
) -> Float[np.ndarray, "column column"]:
    chance = special.expit(design @ estimate)
    weight = chance * (1 - chance)
    return (design * weight[:, None]).T @ design + np.diag(precision)


def _deviance(y: Vector, log_odds: Vector) -> float:
    signed = np.where(y > 0, log_odds, -log_odds)
    return -2 * float(special.log_expit(signed).sum())


def _separable(y: Vector, design: Matrix) -> bool:
    signed = np.where(y > 0, 1.0, -1.0)[:, None] * design
    found = optimize.linprog(
        -signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(len(y)), bounds=(-1, 1), method="highs"
    )
    # Rows may lie on the border; one that lies off it, beyond the solver's tolerance, is enough.
    return bool(found.status == 0 and (signed @ found.x).max() > 1e-5)


def _prepared(
    correct: ArrayLike, columns: ArrayLike, names: Sequence[str] | None, standardise: bool
) -> tuple[Vector, Matrix, list[str]]:
    y = finite_vector("correct", correct)
    if not np.isin(y, (0.0, 1.0)).all():
        raise InvalidRequest("correct has values other than 0 and 1: expected right or wrong")
    given = np.asarray(columns, dtype=np.float64)
    given = given[:, None] if given.ndim == 1 else given
    if given.ndim != 2 or len(given) != len(y) or not np.isfinite(given).all():
        raise InvalidRequest(
            f"columns has shape {given.shape}: expected {len(y)} rows of finite numbers"
        )
    labels = [str(i) for i in range(given.shape[1])] if names is None else list(names)
    if len(labels) != given.shape[1]:
        raise InvalidRequest(f"{given.shape[1]} columns with {len(labels)} names: give one each")
    labels = ["intercept", *labels]
    if len(y) < len(labels):
        raise InvalidRequest(
            f"{len(y)} rows cannot fit {len(labels)} coefficients: add rows or drop columns"
        )
    design = np.column_stack([np.ones(len(y)), given])
    redundant = [labels[i] for i in np.flatnonzero(_redundant(design))]
    if redundant:
        raise InvalidRequest(
            f"columns {', '.join(redundant)} are combinations of the others (or constant): "
            "leave them out"
        )
    if standardise:
        design[:, 1:] = (given - given.mean(axis=0)) / given.std(axis=0, ddof=1)
    return y, design, labels


def _redundant(design: Matrix) -> Bool[np.ndarray, " column"]:
    """Which columns the ones before them make up; the first is the constant."""
    centred = design.copy()
    centred[:, 1:] -= centred[:, 1:].mean(axis=0)  # else a large mean hides a small variation
    size, whole = np.linalg.norm(centred, axis=0), np.linalg.norm(design, axis=0)
    constant = size <= _ROUNDING * np.maximum(whole, 1e-300)
    unit = np.where(constant, 0.0, centred / np.where(constant, 1.0, size))
    found = np.zeros(design.shape[1], dtype=bool)
    kept = np.zeros((len(design), 0))
    for i in range(design.shape[1]):
        left = unit[:, i] - kept @ (kept.T @ unit[:, i])
        left = left - kept @ (kept.T @ left)
        length = float(np.linalg.norm(left))
        found[i] = length <= 1e-8
        if not found[i]:
            kept = np.column_stack([kept, left / length])
    return found


def _coefficient(name: str, value: float, error: float, rows: int, level: float) -> Coefficient:
    if not 0 < level < 1:
        raise InvalidRequest(f"level {level}: expected a number between 0 and 1, such as 0.95")
    reach = float(special.ndtri((1 + level) / 2)) * error
    z = value / error
    interval = Interval(value, value - reach, value + reach, rows, "Wald z", level)
    return Coefficient(name, interval, error, z, 2 * float(stats.norm.sf(abs(z))))
