"""The arithmetic under the linear probes: sums over folds, and training sets by subtraction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from recombine.errors import InvalidRequest

Features = Float[np.ndarray, "row feature"]
Targets = Float[np.ndarray, "row target"]
Folds = Int[np.ndarray, " row"]


def matrix(name: str, values: ArrayLike) -> Float[np.ndarray, "row column"]:
    """A finite float64 matrix, rows first; a vector is one column."""
    found = np.asarray(values, dtype=np.float64)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or found.size == 0 or not np.isfinite(found).all():
        raise InvalidRequest(
            f"{name} has shape {found.shape}: expected rows x columns of finite numbers"
        )
    return found


def group_folds(groups: ArrayLike, folds: int, *, seed: int = 0) -> Folds:
    """A fold number per row, no group split and folds of nearly equal numbers of rows.

    Groups are shuffled first: dealt out in the order of their ranks, every fifth combination can
    share a module, and a fold would then hold out the module instead of combinations.
    """
    labels: Shaped[np.ndarray, " row"] = np.asarray(groups)
    _, group = np.unique(labels, return_inverse=True)
    sizes = np.bincount(group)
    if labels.ndim != 1 or folds < 2 or len(sizes) < folds:
        raise InvalidRequest(
            f"{len(sizes)} groups cannot be dealt into {folds} folds: ask for 2 to {len(sizes)}"
        )
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    load, fold_of = np.zeros(folds, dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    for one in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        lightest = int(np.argmin(load))
        fold_of[one] = lightest
        load[lightest] += sizes[one]
    return fold_of[group]


@dataclass(frozen=True)
class Decomposed:
    """A decomposed training set: regressions at any penalty are a product away."""

    axes: Float[np.ndarray, "feature axis"]
    projected: Float[np.ndarray, "axis target"]
    shrink: Float[np.ndarray, "penalty axis"]
    x_mean: Float[np.ndarray, " feature"]
    y_mean: Float[np.ndarray, " target"]

    def predict(self, x: Features, penalty: int, span: slice) -> Targets:
        """Predictions at one penalty, of the targets in a span of columns."""
        coef = self.axes @ (self.shrink[penalty][:, None] * self.projected[:, span])
        return (x - self.x_mean) @ coef + self.y_mean[span]

    def predict_all(self, x: Features) -> Float[np.ndarray, "row penalty target"]:
        """Predictions of every target at every penalty."""
        rows, (penalties, axis) = len(x), self.shrink.shape
        weighted = (self.shrink.T[:, :, None] * self.projected[:, None, :]).reshape(axis, -1)
        # The cheaper order of two products: rotate the rows or rotate the coefficients.
        if rows < weighted.shape[1]:
            flat = ((x - self.x_mean) @ self.axes) @ weighted
        else:
            flat = (x - self.x_mean) @ (self.axes @ weighted)
        return flat.reshape(rows, penalties, -1) + self.y_mean


class FoldSums:
    """Sums over each fold, from which any training set is a subtraction."""

    def __init__(
        self,
        features: Features,
        targets: Targets,
        fold: Folds,
        grid: Float[np.ndarray, " penalty"],
        relative: bool,
    ):
        if len(fold) != len(features):
            raise InvalidRequest(f"{len(fold)} groups for {len(features)} rows: give one per row")
        self.grid, self.relative, self.width = grid, relative, features.shape[1]
        # Centred once on all rows, so that the subtractions below lose no digits to a large mean.
        x = features - features.mean(axis=0)
        self.x = _row_space(x) if x.shape[1] > x.shape[0] else x
        self.y = targets
        self.rows = [np.flatnonzero(fold == a) for a in range(int(fold.max()) + 1)]
        self.y_centre = targets.mean(axis=0)
        y = targets - self.y_centre
        parts = [(self.x[rows], y[rows]) for rows in self.rows]
        self.count = np.array([len(rows) for rows in self.rows])
        self.x_sum = np.stack([a.sum(axis=0) for a, _ in parts])
        self.y_sum = np.stack([b.sum(axis=0) for _, b in parts])
        self.gram = np.stack([a.T @ a for a, _ in parts])
        self.cross = np.stack([a.T @ b for a, b in parts])

    def fitted_without(self, *left_out: int) -> Decomposed:
        """The decomposed training set of all folds but these."""
        kept = [a for a in range(len(self.rows)) if a not in left_out]
        count = int(self.count[kept].sum())
        x_mean, y_mean = self.x_sum[kept].sum(axis=0) / count, self.y_sum[kept].sum(axis=0) / count
        gram = self.gram[kept].sum(axis=0) - count * np.outer(x_mean, x_mean)
        cross = self.cross[kept].sum(axis=0) - count * np.outer(x_mean, y_mean)
        grid = (
            self.grid * penalty_unit(float(np.trace(gram)), self.width)
            if self.relative
            else self.grid
        )
        values, axes = np.linalg.eigh(gram)
        shrink = 1 / (np.maximum(values, 0) + grid[:, None])
        return Decomposed(axes, axes.T @ cross, shrink, x_mean, y_mean + self.y_centre)

    def squared_errors(self, model: Decomposed, fold: int) -> Float[np.ndarray, "penalty target"]:
        """The sums of squared errors on one fold."""
        rows = self.rows[fold]
        off = model.predict_all(self.x[rows]) - self.y[rows][:, None, :]
        return np.einsum("rpt,rpt->pt", off, off)


def penalty_unit(trace: float, width: int) -> float:
    """The mean eigenvalue of a centred Gram matrix: what a relative penalty of 1 amounts to."""
    # Features without any variance: every penalty gives the mean, but 0 / 0 must not arise.
    return trace / width if trace > 0 else 1.0


def _row_space(x: Features) -> Float[np.ndarray, "row axis"]:
    """The same rows in as many coordinates as they span; ridge cannot tell a rotation."""
    values, axes = np.linalg.eigh(x @ x.T)
    kept = values > len(x) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    return axes[:, kept] * np.sqrt(values[kept])
