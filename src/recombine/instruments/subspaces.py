"""Erasing from features what is linearly known about one concept, and nothing more than needed.

Least-squares concept erasure: with W the whitening of the features, S_xy their covariance with the
concept and Q an orthonormal basis of the columns of W S_xy, the map

    x  ->  x - W^+ Q Q^T W (x - mean)

makes the covariance with the concept zero, so no linear probe does better than a constant, and
among all affine maps that do so it changes x least in mean square. The projection is oblique in
the features' own metric and orthogonal in the whitened one.

Directions in which the features have a standard deviation below `rank_tolerance` times that of
their widest direction are taken as absent (dead or duplicated units, single-precision noise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from recombine.errors import InvalidRequest, unknown
from recombine.instruments.gram import Features, Targets, matrix

RANK_TOLERANCE = 1e-6
_CONCEPT_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Erasure:
    """An affine projection of low rank, to apply as x - ((x - mean) @ V.T) @ U.T on any device.

    `axes` and `scales` are the principal directions of the features and their standard deviations:
    the metric in which a random erasure of equal rank is drawn.
    """

    U: Float[np.ndarray, "feature rank"]
    V: Float[np.ndarray, "rank feature"]
    mean: Float[np.ndarray, " feature"]
    axes: Float[np.ndarray, "feature axis"]
    scales: Float[np.ndarray, " axis"]

    @property
    def rank(self) -> int:
        """How many directions are erased."""
        return self.U.shape[1]

    def __call__(self, x: ArrayLike) -> Features:
        """The features with the subspace erased."""
        rows = matrix("x", x)
        return rows - ((rows - self.mean) @ self.V.T) @ self.U.T


def concept_erasure(
    X: ArrayLike, Y: ArrayLike, *, rank_tolerance: float = RANK_TOLERANCE
) -> Erasure:
    """The least change of the features after which nothing linear is known about the concept.

    Y has one column per number of the concept (one-hot for classes); constant and redundant
    columns cost no rank.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3))
    >>> erase = concept_erasure(X, X[:, 0])
    >>> bool(np.ptp(erase(X)[:, 0]) < 1e-9), erase.rank
    (True, 1)
    """
    x, concept, mean, axes, scales = _prepared(X, Y, rank_tolerance)
    covariance = _whitened_covariance(x, concept, axes, scales)
    return _oblique(axes @ _column_space(covariance), mean, axes, scales)


def concept_erasures(
    X: ArrayLike, Y: ArrayLike, *, rank_tolerance: float = RANK_TOLERANCE
) -> list[Erasure]:
    """One erasure for each column of Y taken as a concept by itself, decomposing X only once."""
    x, concepts, mean, axes, scales = _prepared(X, Y, rank_tolerance)
    covariance = _whitened_covariance(x, concepts, axes, scales)
    return [
        _oblique(axes @ _column_space(covariance[:, i : i + 1]), mean, axes, scales)
        for i in range(concepts.shape[1])
    ]


def random_subspace(rng: np.random.Generator, like: Erasure) -> Erasure:
    """An erasure of equal rank along directions drawn at random in the whitened features.

    The control for "any subspace of this size would have hurt as much".
    """
    if like.rank == 0:
        return like
    drawn, _ = np.linalg.qr(rng.normal(size=(like.axes.shape[1], like.rank)))
    return _oblique(like.axes @ drawn, like.mean, like.axes, like.scales)


def orthogonal_erasure(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    along: Literal["regression", "covariance"] = "regression",
    rank_tolerance: float = RANK_TOLERANCE,
) -> Erasure:
    """The plain orthogonal projection that removes the concept's directions, as an alternative.

    Along "regression" the directions are the least-squares weights of the concept: that probe goes
    blind, but when features are correlated another may still read the concept. Along "covariance"
    they are the covariances of features and concept: every linear probe goes blind, at the price
    of a larger change than `concept_erasure` makes.
    """
    x, concept, mean, axes, scales = _prepared(X, Y, rank_tolerance)
    covariance = (x @ axes).T @ concept / len(x)
    if along == "regression":
        directions = covariance / (scales**2)[:, None]
    elif along == "covariance":
        directions = covariance
    else:
        raise unknown("direction", along, ["regression", "covariance"])
    basis = axes @ _column_space(directions)
    return Erasure(basis, basis.T, mean, axes, scales)


def _prepared(
    X: ArrayLike, Y: ArrayLike, rank_tolerance: float
) -> tuple[Features, Targets, np.ndarray, np.ndarray, np.ndarray]:
    features, concept = matrix("X", X), matrix("Y", Y)
    if len(features) != len(concept) or len(features) < 2:
        raise InvalidRequest(
            f"X has {len(features)} rows and Y has {len(concept)}: expected as many, at least two"
        )
    if not 0 < rank_tolerance < 1:
        raise InvalidRequest(f"rank_tolerance {rank_tolerance}: expected between 0 and 1, as 1e-6")
    mean = features.mean(axis=0)
    x, y = features - mean, concept - concept.mean(axis=0)
    # Unit variance, so that the rank does not depend on the units a concept is written in.
    spread, size = y.std(axis=0), np.abs(concept).max(axis=0)
    alive = spread > 1e-12 * size
    y = np.where(alive, y / np.where(alive, spread, 1.0), 0.0)
    _, lengths, rows = np.linalg.svd(x, full_matrices=False)
    # A column of equal numbers is centred only up to rounding; that is not variance.
    floor = max(rank_tolerance * lengths[0], 1e-12 * float(np.abs(features).max()))
    kept = lengths > floor
    return x, y, mean, rows[kept].T, lengths[kept] / np.sqrt(len(x))


def _whitened_covariance(
    x: Features, concept: Targets, axes: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    return ((x @ axes) / scales).T @ concept / len(x)


def _column_space(columns: Float[np.ndarray, "axis column"]) -> Float[np.ndarray, "axis rank"]:
    if columns.size == 0:
        return np.zeros((columns.shape[0], 0))
    basis, size, _ = np.linalg.svd(columns, full_matrices=False)
    return basis[:, size > max(_CONCEPT_TOLERANCE * size[0], 1e-300)]


def _oblique(
    basis: Float[np.ndarray, "feature rank"],
    mean: Float[np.ndarray, " feature"],
    axes: Float[np.ndarray, "feature axis"],
    scales: Float[np.ndarray, " axis"],
) -> Erasure:
    inside = axes.T @ basis
    return Erasure(
        axes @ (scales[:, None] * inside), (inside / scales[:, None]).T @ axes.T, mean, axes, scales
    )
