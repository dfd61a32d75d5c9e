"""Linear probes: ridge regression from features to several targets, scored on unseen groups.

Features and targets are centred on the rows fitted and the intercept is not penalised. One
eigendecomposition of the centred Gram matrix serves every penalty and every target, and the Gram
matrix of a training set is that of all rows minus those of the folds left out.

A *relative* penalty is in units of the mean eigenvalue of the centred Gram matrix (rows times mean
feature variance), so that one grid suits features of any scale and any number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from recombine.errors import InvalidRequest
from recombine.instruments.gram import (
    Features,
    Folds,
    FoldSums,
    Targets,
    group_folds,
    matrix,
    penalty_unit,
)

__all__ = [
    "PENALTIES",
    "CrossFit",
    "Ridge",
    "Scored",
    "cross_fit",
    "fit",
    "fit_on",
    "group_folds",
    "published_probe",
]

PENALTIES: tuple[float, ...] = tuple(float(10.0**power) for power in range(-6, 4))
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Ridge:
    """Fitted ridge regressions, one per penalty."""

    penalties: Float[np.ndarray, " penalty"]
    coef: Float[np.ndarray, "penalty feature target"]
    intercept: Float[np.ndarray, "penalty target"]

    def predict(self, X: ArrayLike) -> Float[np.ndarray, "penalty row target"]:
        """What each penalty's regression says about these rows."""
        return matrix("X", X) @ self.coef + self.intercept[:, None, :]


@dataclass(frozen=True)
class Scored:
    """How well targets were predicted on rows the probe did not see.

    `mean` is over living targets; `dead` counts those without variance, whose r2 is NaN.
    """

    r2: Float[np.ndarray, " target"]
    mean: float
    dead: int
    penalty: float
    predictions: Targets


@dataclass(frozen=True)
class CrossFit:
    """Out-of-fold predictions of every row, and how good they are.

    r2 of a target is 1 - SSE / SST pooled over the folds, where a row's SST is taken around the
    mean of the rows its probe was fitted on: predicting that mean scores exactly 0. `mean` is over
    living targets; `dead` counts those without variance, whose r2 is NaN.
    """

    r2: Float[np.ndarray, " target"]
    mean: float
    dead: int
    penalties: Float[np.ndarray, " fold"]
    predictions: Targets
    folds: Folds


def fit(X: ArrayLike, Y: ArrayLike, penalties: ArrayLike, *, relative: bool = False) -> Ridge:
    """Ridge regressions of all targets at every penalty, from one eigendecomposition.

    Absolute penalties mean what scikit-learn's `alpha` means. The dual form is used when features
    outnumber rows.

    >>> fit([[0.0], [1.0], [2.0]], [[0.0], [1.0], [2.0]], [2.0]).coef.tolist()
    [[[0.5]]]
    """
    features, targets = _pair(X, Y)
    grid = _grid(penalties)
    x_mean, y_mean = features.mean(axis=0), targets.mean(axis=0)
    x, y = features - x_mean, targets - y_mean
    if relative:
        grid = grid * penalty_unit(float(np.sum(x**2)), x.shape[1])
    dual = x.shape[1] > x.shape[0]
    values, axes = np.linalg.eigh(x @ x.T if dual else x.T @ x)
    projected = axes.T @ (y if dual else x.T @ y)
    shrink = 1 / (np.maximum(values, 0) + grid[:, None])
    coef = axes @ (shrink[:, :, None] * projected)
    if dual:
        coef = x.T @ coef
    return Ridge(grid, coef, y_mean - x_mean @ coef)


@overload
def cross_fit(
    X: ArrayLike,
    Y: np.ndarray,
    groups: ArrayLike,
    *,
    penalties: ArrayLike = ...,
    relative: bool = ...,
    folds: int = ...,
    seed: int = ...,
) -> CrossFit: ...
@overload
def cross_fit(
    X: ArrayLike,
    Y: Mapping[str, np.ndarray],
    groups: ArrayLike,
    *,
    penalties: ArrayLike = ...,
    relative: bool = ...,
    folds: int = ...,
    seed: int = ...,
) -> dict[str, CrossFit]: ...
def cross_fit(
    X: ArrayLike,
    Y: np.ndarray | Mapping[str, np.ndarray],
    groups: ArrayLike,
    *,
    penalties: ArrayLike = PENALTIES,
    relative: bool = True,
    folds: int = 5,
    seed: int = 0,
) -> CrossFit | dict[str, CrossFit]:
    """How well features predict targets for groups (combinations) the probe never saw.

    Each fold is predicted by a probe fitted on the other folds. Its penalty, one for all targets,
    is the one with the best mean r2 when each of those other folds is predicted in turn from the
    rest of them (so the inner folds number `folds - 1`, and each pair of folds left out needs one
    eigendecomposition, not two). Several target matrices under names, such as the true and the
    shuffled ones, share all decompositions and choose their penalties apart.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> round(cross_fit(X, X[:, :1] - X[:, 1:2], np.arange(100)).mean, 3)
    1.0
    """
    if folds < 3:
        raise InvalidRequest(f"folds={folds}: choosing a penalty inside needs at least 3")
    named = dict(Y) if isinstance(Y, Mapping) else {"": Y}
    features, stacked, spans = _stacked(X, named)
    fold = group_folds(groups, folds, seed=seed)
    search = FoldSums(features, stacked, fold, _grid(penalties), relative)
    inner = np.zeros((folds, len(search.grid), stacked.shape[1]))
    for a in range(folds):
        for b in range(a):
            model = search.fitted_without(a, b)
            inner[a] += search.squared_errors(model, b)
            inner[b] += search.squared_errors(model, a)
    results = {name: np.zeros((len(features), s.stop - s.start)) for name, s in spans.items()}
    baseline = np.zeros_like(stacked)
    chosen = {name: np.zeros(folds, dtype=np.int64) for name in spans}
    for a in range(folds):
        model = search.fitted_without(a)
        rows = search.rows[a]
        baseline[rows] = model.y_mean
        for name, span in spans.items():
            best = _best(inner[a][:, span], stacked[fold != a][:, span])
            chosen[name][a] = best
            results[name][rows] = model.predict(search.x[rows], best, span)
    found = {}
    for name, span in spans.items():
        truth = stacked[:, span]
        r2 = _r2(truth, results[name], baseline[:, span])
        found[name] = CrossFit(
            r2, _living_mean(r2), _dead(r2), search.grid[chosen[name]], results[name], fold
        )
    return found if isinstance(Y, Mapping) else found[""]


@overload
def fit_on(
    X_train: ArrayLike,
    Y_train: np.ndarray,
    groups: ArrayLike,
    X_test: ArrayLike,
    Y_test: np.ndarray,
    *,
    penalties: ArrayLike = ...,
    relative: bool = ...,
    folds: int = ...,
    seed: int = ...,
) -> Scored: ...
@overload
def fit_on(
    X_train: ArrayLike,
    Y_train: Mapping[str, np.ndarray],
    groups: ArrayLike,
    X_test: ArrayLike,
    Y_test: Mapping[str, np.ndarray],
    *,
    penalties: ArrayLike = ...,
    relative: bool = ...,
    folds: int = ...,
    seed: int = ...,
) -> dict[str, Scored]: ...
def fit_on(
    X_train: ArrayLike,
    Y_train: np.ndarray | Mapping[str, np.ndarray],
    groups: ArrayLike,
    X_test: ArrayLike,
    Y_test: np.ndarray | Mapping[str, np.ndarray],
    *,
    penalties: ArrayLike = PENALTIES,
    relative: bool = True,
    folds: int = 4,
    seed: int = 0,
) -> Scored | dict[str, Scored]:
    """Fit a probe on one set of rows, its penalty chosen across groups inside, score it on another.

    The published protocol fits on seen tasks and scores on others. As there, SST is taken around
    the mean of the rows scored, so a shift of the mean between the two sets costs r2.
    """
    named = dict(Y_train) if isinstance(Y_train, Mapping) else {"": Y_train}
    scored = dict(Y_test) if isinstance(Y_test, Mapping) else {"": Y_test}
    if named.keys() != scored.keys():
        raise InvalidRequest(f"targets {list(named)} to fit and {list(scored)} to score differ")
    features, stacked, spans = _stacked(X_train, named)
    fold = group_folds(groups, folds, seed=seed)
    search = FoldSums(features, stacked, fold, _grid(penalties), relative)
    errors = np.zeros((len(search.grid), stacked.shape[1]))
    for a in range(folds):
        errors += search.squared_errors(search.fitted_without(a), a)
    found = {}
    for name, span in spans.items():
        penalty = float(search.grid[_best(errors[:, span], stacked[:, span])])
        probe = fit(features, stacked[:, span], [penalty], relative=relative)
        found[name] = _scored(matrix("Y_test", scored[name]), probe.predict(X_test)[0], penalty)
    return found if isinstance(Y_train, Mapping) else found[""]


def published_probe(
    X_fit: ArrayLike, Y_fit: ArrayLike, X_score: ArrayLike, Y_score: ArrayLike
) -> Scored:
    """The probe as released with the scaling results, kept so that numbers can be compared.

    Penalty 1 whatever the scale of the features; ten conjugate-gradient steps from zero, converged
    or not, one solve per target; the intercept is a column that is 1 only in rows where no feature
    is exactly zero, and it is penalised. SST is around the mean of the rows scored. Two liberties:
    double precision, and dead targets (NaN) are left out of the mean and counted. On features with
    a large common mean rounding steers the later steps, so predictions differ between machines.
    """
    features, targets = _pair(X_fit, Y_fit)
    x = _with_published_intercept(features)
    weights = _conjugate_gradient(x.T @ x + np.eye(x.shape[1]), x.T @ targets, steps=10)
    predictions = _with_published_intercept(matrix("X_score", X_score)) @ weights
    return _scored(matrix("Y_score", Y_score), predictions, 1.0)


def _best(errors: Float[np.ndarray, "penalty target"], truth: Targets) -> int:
    """The penalty with the best mean r2 over living targets (the first, if all are dead)."""
    living = _alive(truth)
    variance = truth[:, living].var(axis=0)
    return int(np.argmin(np.sum(errors[:, living] / variance, axis=1)))


def _alive(truth: Targets) -> np.ndarray:
    return truth.std(axis=0) > _ROUNDING * np.maximum(np.abs(truth).max(axis=0), 1e-300)


def _r2(truth: Targets, predictions: Targets, baseline: ArrayLike) -> np.ndarray:
    errors, total = np.sum((truth - predictions) ** 2, axis=0), np.sum((truth - baseline) ** 2, 0)
    living = _alive(truth)
    return np.where(living, 1 - errors / np.where(living, total, 1.0), np.nan)


def _scored(truth: Targets, predictions: Targets, penalty: float) -> Scored:
    if truth.shape != predictions.shape:
        raise InvalidRequest(f"scored targets have shape {truth.shape}, not {predictions.shape}")
    r2 = _r2(truth, predictions, truth.mean(axis=0))
    return Scored(r2, _living_mean(r2), _dead(r2), penalty, predictions)


def _living_mean(r2: np.ndarray) -> float:
    return float(np.nanmean(r2)) if np.isfinite(r2).any() else float("nan")


def _dead(r2: np.ndarray) -> int:
    return int(np.isnan(r2).sum())


def _grid(penalties: ArrayLike) -> Float[np.ndarray, " penalty"]:
    grid = np.atleast_1d(np.asarray(penalties, dtype=np.float64))
    if grid.ndim != 1 or not np.all((grid > 0) & np.isfinite(grid)):
        raise InvalidRequest(f"penalties {penalties}: expected positive numbers, such as 1e-3")
    return grid


def _pair(X: ArrayLike, Y: ArrayLike) -> tuple[Features, Targets]:
    features, targets = matrix("X", X), matrix("Y", Y)
    if len(features) != len(targets):
        raise InvalidRequest(f"X has {len(features)} rows and Y has {len(targets)}: give as many")
    return features, targets


def _stacked(
    X: ArrayLike, named: Mapping[str, np.ndarray]
) -> tuple[Features, Targets, dict[str, slice]]:
    if not named:
        raise InvalidRequest("no targets given: pass a matrix, or names with a matrix each")
    pairs = {name: _pair(X, one) for name, one in named.items()}
    features = next(iter(pairs.values()))[0]
    ends = np.cumsum([targets.shape[1] for _, targets in pairs.values()]).tolist()
    spans = dict(zip(pairs, map(slice, [0, *ends], ends), strict=False))
    return features, np.concatenate([targets for _, targets in pairs.values()], axis=1), spans


def _with_published_intercept(x: Features) -> Features:
    return np.column_stack([x, np.all(x != 0, axis=1).astype(np.float64)])


def _conjugate_gradient(
    a: Float[np.ndarray, "feature feature"], b: Float[np.ndarray, "feature target"], steps: int
) -> Float[np.ndarray, "feature target"]:
    """A fixed number of steps from zero, each column a solve of its own."""
    x, residual = np.zeros_like(b), b.copy()
    direction, size = residual.copy(), np.sum(residual**2, axis=0)
    for _ in range(steps):
        along = a @ direction
        curvature = np.sum(direction * along, axis=0)
        step = np.divide(size, curvature, out=np.zeros_like(size), where=curvature > 0)
        x, residual = x + step * direction, residual - step * along
        last, size = size, np.sum(residual**2, axis=0)
        turn = np.divide(size, last, out=np.zeros_like(size), where=last > 0)
        direction = residual + turn * direction
    return x
