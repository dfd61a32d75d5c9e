"""Ridge probes by sums: one pass over the rows, then every training set is a subtraction.

Rows are read in chunks at double precision, whatever type they are kept in, so memory holds the
activations as given and one square matrix of features per fold. Each fold is predicted by a probe
fitted on the others. Its penalty is the one with the least squared error when its two neighbours
are predicted, one at a time, by probes that saw neither of the two: the fold itself takes no part
in the choice. A penalty is relative to the mean eigenvalue of the training features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy import linalg

from recombine.errors import InvalidRequest
from recombine.instruments.gram import penalty_unit

PENALTIES: tuple[float, ...] = tuple(float(10.0**power) for power in range(-5, 3))
LARGEST = 16_384  # the side of a square matrix that can still be solved in reasonable time
_CHUNK = 4096

Features = Shaped[np.ndarray, "row feature"]
Columns = Float[np.ndarray, "row column"]


@dataclass(frozen=True, eq=False)
class FoldScores:
    """What the probe of one fold says about the fold's rows.

    `scores` are around the training mean. `within` has, for each span of columns, the sums of
    products of targets with their own fitted values on the training rows: with the counts of each
    value, all that a discriminant needs to know.
    """

    rows: Int[np.ndarray, " held"]
    scores: Float[np.ndarray, "held column"]
    mean: Float[np.ndarray, " column"]
    within: list[Float[np.ndarray, "own own"]]
    trained: int


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Scores of every row by a probe that did not see it; choices by span of columns and fold."""

    folds: list[FoldScores]
    penalty: Float[np.ndarray, "span fold"]
    validation: Float[np.ndarray, "span fold"]


def cross_fit(
    x: Features,
    y: Columns,
    spans: Sequence[slice],
    fold: Int[np.ndarray, " row"],
    *,
    train: Bool[np.ndarray, " row"] | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> CrossFit:
    """Probes of all columns; each span chooses its penalty apart. `train` limits what is fitted.

    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> fit = cross_fit(x, x[:, :1], [slice(0, 1)], np.arange(60) % 5)
    >>> fit.validation.round(2).tolist()
    [[1.0, 1.0, 1.0, 1.0, 1.0]]
    """
    sums = _Sums(x, y, fold, np.ones(len(y), bool) if train is None else train)
    grid, count = np.asarray(penalties), sums.folds
    inner = np.zeros((len(grid), 2, count, y.shape[1]))  # squared errors, and those of the mean
    for a in range(count):
        b = (a + 1) % count
        model = sums.training(a, b)
        for p, penalty in enumerate(grid):
            coef = model.solve(penalty, slice(None))
            inner[p, :, a] += sums.errors(model, coef, b)
            inner[p, :, b] += sums.errors(model, coef, a)
    chosen = np.zeros((len(spans), count), np.int64)
    validation = np.zeros((len(spans), count))
    for s, span in enumerate(spans):
        wrong, total = inner[:, 0, :, span], inner[:, 1, :, span]
        alive = total > 1e-12
        r2 = np.where(alive, 1 - wrong / np.where(alive, total, 1.0), 0.0).sum(axis=2)
        r2 = r2 / np.maximum(alive.sum(axis=2), 1)
        # Ties (nothing to read at all) go to the strongest penalty.
        chosen[s] = len(grid) - 1 - r2[::-1].argmax(axis=0)
        validation[s] = r2.max(axis=0)
    held = [sums.held_out(a, [(s, float(grid[chosen[i, a]])) for i, s in enumerate(spans)])
            for a in range(count)]  # fmt: skip
    return CrossFit(held, grid[chosen], validation)


@dataclass(frozen=True, eq=False)
class _Training:
    """The centred sums of a training set."""

    count: float
    x_mean: np.ndarray
    y_mean: np.ndarray
    gram: Float[np.ndarray, "axis axis"]
    cross: Float[np.ndarray, "axis column"]
    width: int

    def solve(self, penalty: float, span: slice) -> Float[np.ndarray, "axis column"]:
        own = self.gram.copy()
        own[np.diag_indices_from(own)] += penalty * penalty_unit(
            float(np.trace(self.gram)), self.width
        )
        # Symmetric, so the transpose is itself, in the order of memory that LAPACK takes as it is.
        factor = linalg.cho_factor(own.T, lower=True, overwrite_a=True, check_finite=False)
        return linalg.cho_solve(factor, self.cross[:, span], check_finite=False)


class _Sums:
    """Sums over each fold of the rows trained on."""

    def __init__(
        self,
        x: Features,
        y: Columns,
        fold: Int[np.ndarray, " row"],
        train: Bool[np.ndarray, " row"],
    ):
        self.width = x.shape[1]
        if min(x.shape) > LARGEST:
            raise InvalidRequest(
                f"{x.shape[0]} rows of {x.shape[1]} features: one of the two must be at most "
                f"{LARGEST}; project the features to fewer first"
            )
        self.x = _row_space(x) if x.shape[1] > x.shape[0] else x
        self.folds, axes = int(fold.max()) + 1, self.x.shape[1]
        self.rows = [np.flatnonzero(fold == a) for a in range(self.folds)]
        # Centred once, so that the subtractions below lose no digits to a large common mean.
        self.x_centre = _mean(self.x)
        self.y_centre, self.y = y.mean(axis=0), y - y.mean(axis=0)
        self.count = np.zeros(self.folds)
        self.x_sum, self.y_sum = np.zeros((self.folds, axes)), np.zeros((self.folds, y.shape[1]))
        self.y_square = np.zeros((self.folds, y.shape[1]))
        self.gram = np.zeros((self.folds, axes, axes))
        self.cross = np.zeros((self.folds, axes, y.shape[1]))
        for a in range(self.folds):
            for rows in _chunks(self.rows[a][train[self.rows[a]]]):
                own, target = self._centred(rows), self.y[rows]
                self.count[a] += len(rows)
                self.x_sum[a] += own.sum(axis=0)
                self.y_sum[a] += target.sum(axis=0)
                self.y_square[a] += (target**2).sum(axis=0)
                self.gram[a] += own.T @ own
                self.cross[a] += own.T @ target

    def _centred(self, rows: np.ndarray) -> Float[np.ndarray, "row axis"]:
        return self.x[rows].astype(np.float64) - self.x_centre

    def training(self, *left_out: int) -> _Training:
        """The training set of all folds but these."""
        kept = [a for a in range(self.folds) if a not in left_out]
        count = max(float(self.count[kept].sum()), 1.0)
        x_mean, y_mean = self.x_sum[kept].sum(axis=0) / count, self.y_sum[kept].sum(axis=0) / count
        gram = -count * np.outer(x_mean, x_mean)
        cross = -count * np.outer(x_mean, y_mean)
        for a in kept:  # one at a time: a stack of square matrices would double the memory
            gram += self.gram[a]
            cross += self.cross[a]
        return _Training(count, x_mean, y_mean, gram, cross, self.width)

    def errors(self, model: _Training, coef: np.ndarray, fold: int) -> np.ndarray:
        """Squared errors on a fold, and those of predicting the training mean; by column."""
        count, x_sum, y_sum = self.count[fold], self.x_sum[fold], self.y_sum[fold]
        y_mean, shift = model.y_mean, model.x_mean @ coef
        total = self.y_square[fold] - 2 * y_mean * y_sum + count * y_mean**2
        off = y_mean - shift  # the prediction is x @ coef + off
        square = (coef * (self.gram[fold] @ coef)).sum(axis=0) + count * off**2
        square += 2 * off * (x_sum @ coef)
        both = (coef * self.cross[fold]).sum(axis=0) + off * y_sum
        return np.stack([self.y_square[fold] - 2 * both + square, total])

    def held_out(self, fold: int, choices: Sequence[tuple[slice, float]]) -> FoldScores:
        """The fold's rows scored by the probe of all others, each span at its own penalty."""
        model = self.training(fold)
        coef, within = np.zeros_like(model.cross), []
        for penalty in sorted({penalty for _, penalty in choices}):
            spans = [span for span, chosen in choices if chosen == penalty]
            # Not by one index of all columns: that would copy them, and the spans are few.
            solved = model.solve(penalty, slice(None)) if len(spans) > 1 else None
            for span in spans:
                coef[:, span] = model.solve(penalty, span) if solved is None else solved[:, span]
        for span, _ in choices:
            own = coef[:, span].T @ model.cross[:, span]
            within.append((own + own.T) / 2)
        scores = np.zeros((len(self.rows[fold]), coef.shape[1]))
        for at, rows in zip(_starts(len(scores)), _chunks(self.rows[fold]), strict=True):
            scores[at : at + len(rows)] = (self._centred(rows) - model.x_mean) @ coef
        return FoldScores(
            self.rows[fold], scores, model.y_mean + self.y_centre, within, int(model.count)
        )


def memory_needed(rows: int, features: int, folds: int, itemsize: int = 8) -> int:
    """About how many bytes probes of these activations take.

    That is the activations, as many random features (float32) to compare with, and a square matrix
    per fold.
    """
    side = min(rows, features)
    reduced = 8 * rows * side + 3 * 8 * rows * rows if features > rows else 0
    return (
        rows * features * (itemsize + 4) + reduced + (folds + 3) * 8 * side**2 + _CHUNK * side * 16
    )


def _starts(count: int) -> range:
    return range(0, count, _CHUNK)


def _chunks(rows: Int[np.ndarray, " row"]) -> Iterator[Int[np.ndarray, " part"]]:
    return (rows[start : start + _CHUNK] for start in _starts(len(rows)))


def _mean(x: Features) -> Float[np.ndarray, " feature"]:
    total = np.zeros(x.shape[1])
    for start in _starts(len(x)):
        total += x[start : start + _CHUNK].astype(np.float64).sum(axis=0)
    return total / len(x)


def _row_space(x: Features) -> Float[np.ndarray, "row axis"]:
    """The same rows in as many coordinates as they span; ridge cannot tell a rotation."""
    products = np.zeros((len(x), len(x)))
    for start in _starts(x.shape[1]):
        part = x[:, start : start + _CHUNK].astype(np.float64)
        part -= part.mean(axis=0)
        products += part @ part.T
    values, axes = np.linalg.eigh(products)
    kept = values > len(x) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    kept[-1] = True  # features without variance still make a column
    return axes[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))
