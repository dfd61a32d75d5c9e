"""Reading concepts off features with a linear probe, combination by combination.

The probe learns from some combinations and is scored on others; every choice is made before the
test combinations are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.combinations import Slots, Space
from recombine.instruments import ridge

Features = Float[np.ndarray, "row feature"]
Labels = Float[np.ndarray, "row module"]
Rows = Float[np.ndarray, " row"]


@dataclass(frozen=True)
class Scores:
    """How well each row's combination was read off its features.

    `skill` is 1 for a perfect reading and 0 for one no better than how common each concept is.
    `named` is the share of the combination's concepts among the probe's best guesses.
    """

    skill: Rows
    named: Rows


def read_off(
    X_fit: Features,
    Y_fit: Mapping[str, Labels],
    groups: Int[np.ndarray, " row"],
    X: Features,
    Y: Labels,
    space: Space,
) -> dict[str, Scores]:
    """Probes fitted on some rows, one for each set of labels, and scored on others.

    The penalty is chosen by leaving out whole combinations (`groups`) of the rows fitted.
    """
    centre, scale = X_fit.mean(axis=0), X_fit.std(axis=0)
    living = scale > 1e-6 * np.abs(X_fit).max(axis=0)
    scale = np.where(living, scale, 1.0)
    fitted = np.where(living, (X_fit - centre) / scale, 0.0)
    scored = np.where(living, (X - centre) / scale, 0.0)
    folds = min(4, len(np.unique(groups)))
    found = ridge.fit_on(fitted, dict(Y_fit), groups, scored, dict.fromkeys(Y_fit, Y), folds=folds)
    return {
        name: Scores(
            # A label is 0 or 1, so a guess beyond is clipped; one wild row would else hide all.
            _skill(Y, np.clip(one.predictions, 0, 1), Y_fit[name].mean(axis=0)),
            _named(Y, one.predictions, space),
        )
        for name, one in found.items()
    }


def _skill(truth: Labels, guess: Labels, usual: Float[np.ndarray, " module"]) -> Rows:
    return 1 - np.sum((truth - guess) ** 2, axis=1) / np.sum((truth - usual) ** 2, axis=1)


def _named(truth: Labels, guess: Labels, space: Space) -> Rows:
    if isinstance(space, Slots):
        best = [
            truth[:, columns][np.arange(len(truth)), guess[:, columns].argmax(axis=1)]
            for columns in (np.flatnonzero(space.factors == f) for f in range(space.active))
        ]
        return np.mean(best, axis=0)
    best = np.argsort(-guess, axis=1, kind="stable")[:, : space.active]
    return np.take_along_axis(truth, best, axis=1).mean(axis=1)


def shuffled_labels(
    labels: Labels, groups: Int[np.ndarray, " row"], rng: np.random.Generator
) -> Labels:
    """Each combination labelled as another one, all its images alike."""
    ranks, first, which = np.unique(groups, return_index=True, return_inverse=True)
    return labels[first][rng.permutation(len(ranks))][which]


def by_combination(rows: Rows, groups: Int[np.ndarray, " row"]) -> Float[np.ndarray, " group"]:
    """The mean over the rows of each combination, in the order of their ranks."""
    _, which = np.unique(groups, return_inverse=True)
    return np.bincount(which, rows) / np.bincount(which)


def split_half(
    successes: Bool[np.ndarray, "combination image"], rng: np.random.Generator, splits: int = 200
) -> float:
    """How far success rates would repeat with new images: Spearman-Brown's corrected correlation.

    The mean over random halves of a combination's images; NaN with fewer than two images, or if
    success does not vary.

    >>> varied = np.repeat([[True], [False], [True], [False]], 4, axis=1)
    >>> split_half(varied, np.random.default_rng(0))
    1.0
    """
    images = successes.shape[1]
    found = []
    for _ in range(splits if images > 1 else 0):
        order = rng.permutation(images)
        a, b = (successes[:, part].mean(axis=1) for part in np.array_split(order, 2))
        if a.std() > 0 and b.std() > 0:
            found.append(float(np.corrcoef(a, b)[0, 1]))
    if not found:
        return float("nan")
    half = float(np.mean(found))
    # Below -1/2 the correction runs away; unreliable is unreliable.
    return 2 * half / (1 + half) if half > 0 else half
