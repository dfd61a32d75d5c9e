"""Least squares where some answers are only known to lie beyond a limit (Tobit).

Points are settings with an answer (a threshold that was reached) or a limit it lies above or
below. Directions that no answer speaks about are left undetermined instead of guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, special

Vector = Float[np.ndarray, " row"]
Sides = Int[np.ndarray, " row"]
Matrix = Float[np.ndarray, "row column"]
Basis = Float[np.ndarray, "column rank"]

_ROUNDING = 1e-9  # the least spread, so that a perfect fit has a finite likelihood
_UNIT = 0.05  # the least spread a search for the Tobit likelihood starts from


@dataclass(frozen=True)
class LinearFit:
    """Coefficients, and an orthonormal basis of the directions the points determine."""

    coefficients: Float[np.ndarray, " column"]
    basis: Basis
    spread: float
    log_likelihood: float

    def determines(self, design: Matrix) -> Bool[np.ndarray, " row"]:
        """Which rows the fit can predict: those that lie in the span of the rows it saw."""
        return _spanned(design, self.basis)


def _spanned(design: Matrix, basis: Basis) -> Bool[np.ndarray, " row"]:
    left = design - design @ basis @ basis.T
    return np.linalg.norm(left, axis=1) <= 1e-6 * np.linalg.norm(design, axis=1)


def most_likely(design: Matrix, y: Vector, side: Sides) -> LinearFit | None:
    """Maximum likelihood with normal errors, or None when every point is censored.

    `side` is 0 where y is the answer, 1 where the answer lies above y and -1 where it lies below.

    >>> ones = np.ones((4, 1))
    >>> most_likely(ones, np.array([1.0, 2.0, 3.0, 2.0]), np.zeros(4, int)).coefficients
    array([2.])
    """
    reached = side == 0
    if not reached.any():
        return None
    size = np.abs(design).max(axis=0)
    size = np.where(size > 0, size, 1.0)
    _, strength, right = np.linalg.svd(design[reached] / size, full_matrices=False)
    rank = int(np.sum(strength > 1e-9 * strength[0]))
    basis = np.linalg.qr(right[:rank].T * size[:, None])[0]
    # A censored point in a direction no reached point speaks about (all of one K out of reach)
    # can be made certain at no cost to the others: its likelihood is 1, and it adds nothing.
    spoken = reached | _spanned(design, basis)
    design, y, side, reached = design[spoken], y[spoken], side[spoken], reached[spoken]
    q, r = np.linalg.qr(design[reached] @ basis)
    back = basis @ np.linalg.inv(r)
    count = int(reached.sum())
    start = q.T @ y[reached]
    off = y - design @ back @ start
    spread = max(float(np.sqrt(np.mean(off[reached] ** 2))), _ROUNDING)
    if reached.all():
        likelihood = -count * (math.log(spread) + 0.5 * math.log(2 * math.pi) + 0.5)
        return LinearFit(back @ start, basis, spread, likelihood)
    spread = max(spread, _UNIT)
    move, scale, likelihood = _tobit(design @ back * math.sqrt(count), off / spread, side)
    return LinearFit(
        back @ (start + move * math.sqrt(count) * spread),
        basis,
        scale * spread,
        likelihood - count * math.log(spread),
    )


def _tobit(design: Matrix, y: Vector, side: Sides) -> tuple[Vector, float, float]:
    """(coefficients, spread, log-likelihood); concave in coefficients / spread and 1 / spread."""
    reached = side == 0
    count = int(reached.sum())

    def negative(p: Vector) -> tuple[float, Vector]:
        inverse = p[-1]
        z = inverse * y - design @ p[:-1]
        beyond = -side * z  # P(the threshold lies on its side of the limit) = Phi(beyond)
        inside = special.log_ndtr(beyond)
        hazard = np.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - inside)
        value = np.where(reached, -0.5 * z**2 - 0.5 * math.log(2 * math.pi), inside)
        by_z = np.where(reached, -z, -side * hazard)
        gradient = np.append(-design.T @ by_z, by_z @ y + count / inverse)
        return -float(value.sum() + count * math.log(inverse)), -gradient

    start = np.append(np.zeros(design.shape[1]), 1.0)
    bounds = [(None, None)] * design.shape[1] + [(1e-4, 1e4)]
    found = optimize.minimize(
        negative, start, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return found.x[:-1] / found.x[-1], 1 / float(found.x[-1]), -float(found.fun)
