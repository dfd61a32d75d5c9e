"""From a probe's scores to its answers: a value, a set of labels, or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.probing.fitting import CrossFit, FoldScores
from recombine.probing.targets import Kind


@dataclass(frozen=True, eq=False)
class Answers:
    """What probes say about every row, none of which they saw.

    `equal` and `shares` are values (categorical) or sets of labels (multi-label): the answer if
    all values were equally common, and the one that counts on their training shares. `scores` are
    numbers, or for labels what their order is judged by; `usual` is the training mean.
    """

    equal: np.ndarray
    shares: np.ndarray
    scores: Float[np.ndarray, "row column"]
    usual: Float[np.ndarray, "row column"]


def answers_of(
    kind: Kind,
    rows: int,
    parts: Sequence[tuple[FoldScores, int, slice]],
) -> Answers:
    """Answers of all rows from one (fold's scores, number of the span, its columns) per fold."""
    width = parts[0][2].stop - parts[0][2].start
    shape = (rows, width) if kind == "multilabel" else (rows,)
    equal, shares = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    keep = 0 if kind == "categorical" else width
    scores, usual = np.zeros((rows, keep)), np.zeros((rows, keep))
    for part, number, span in parts:
        own, mean, within = part.scores[:, span], part.mean[span], part.within[number]
        if kind == "categorical":
            equal[part.rows], shares[part.rows] = _values(own, mean, within, part.trained)
            continue
        if kind == "multilabel":
            equal[part.rows], shares[part.rows] = _labels(own, mean, within, part.trained)
        scores[part.rows], usual[part.rows] = own + mean, mean
    return Answers(equal, shares, scores, usual)


def across_folds(fit: CrossFit, kind: Kind, rows: int, number: int, span: slice) -> Answers:
    """Answers by one set of features."""
    return answers_of(kind, rows, [(part, number, span) for part in fit.folds])


def _values(
    scores: np.ndarray, mean: np.ndarray, within: np.ndarray, trained: int
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"]]:
    """The nearest value by the linear discriminant whose covariance has the ridge added.

    Ridge regression on 0/1 columns followed by "the largest wins" hides a value that lies between
    two others on a line. The discriminant in the space of the regression's scores does not, and
    equals the regularised linear discriminant in the space of the features (Hastie, Tibshirani and
    Buja, 1994); it needs only the sums in `within` and the counts.
    """
    counts = mean * trained
    there = counts > 0.5  # a value that training lacks can never be the answer
    if not there.any():
        return np.zeros(len(scores), np.int32), np.zeros(len(scores), np.int32)
    means = within[there] / counts[there, None]
    spread = within - within[:, there] @ means
    size = max(float(np.trace(within)), 1e-300) / len(within)
    spread[np.diag_indices_from(spread)] += 1e-8 * size
    weights = np.linalg.solve(spread / trained, means.T)
    reach = scores @ weights - np.einsum("vc,cv->v", means, weights) / 2
    places = np.flatnonzero(there)
    return places[reach.argmax(axis=1)], places[(reach + np.log(mean[there])).argmax(axis=1)]


def _labels(
    scores: np.ndarray, mean: np.ndarray, within: np.ndarray, trained: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same for each label on its own: present or not."""
    own, ones = np.diag(within), mean * trained
    zeros = trained - ones
    varies = (ones > 0.5) & (zeros > 0.5) & (own > 1e-12 * trained)
    safe = np.where(varies, own, 1.0)
    high = safe / np.where(varies, ones, 1.0)
    low = -safe / np.where(varies, zeros, 1.0)
    spread = np.maximum(safe - safe * (high - low), 0.0) / trained
    odds = np.log(np.where(varies, zeros, 1.0) / np.where(varies, ones, 1.0))
    middle = (high + low) / 2
    equal = np.where(varies, scores > middle, mean > 0.5)
    return equal, np.where(varies, scores > middle + spread / (high - low) * odds, mean > 0.5)
