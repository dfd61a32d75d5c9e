"""Tag errors carried into counts: what coverage would be if the tags were right.

A sheet says how rows with a tag divide over true values. Each draw makes a confusion matrix that
the sheet allows, moves every observed row to a true value by it, and counts again. A wrong tag can
hide that a combination was trained, and can pretend that one was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from recombine.errors import InvalidRequest
from recombine.lab.files import read_json
from recombine.lab.intervals import Interval
from recombine.seeds import host_seed

SCHEMA = "recombine.tag-errors/1"
DRAWS = 1000
_PRIOR = 0.5  # of a right and of a wrong tag (Jeffreys); wrong values share the latter


def read_errors(path: str | Path) -> dict[str, Any]:
    """Reads errors.json as `recombine tag --check` wrote it."""
    found = read_json(Path(path))
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        given = found.get("schema") if isinstance(found, dict) else type(found).__name__
        raise InvalidRequest(
            f"{path}: expected {SCHEMA}, as `recombine tag --check sheet.csv` writes it, "
            f"got {given!r}"
        )
    return found


def effective(
    weighed: Float[np.ndarray, "tag truth"], squared: Float[np.ndarray, "tag truth"]
) -> Float[np.ndarray, "tag truth"]:
    """Counts that weigh as much as rows of unequal weights do, tag by tag (Kish)."""
    total, squares = weighed.sum(axis=1), squared.sum(axis=1)
    rows = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)
    share = np.divide(weighed, total[:, None], out=np.zeros_like(weighed), where=total[:, None] > 0)
    return share * rows[:, None]


def drawn_confusions(
    counts: Float[np.ndarray, "tag truth"],
    own: Sequence[int] | np.ndarray,
    draws: int = DRAWS,
    seed: int = 0,
) -> Float[np.ndarray, "draw tag truth"]:
    """Confusion matrices the sheet allows: each tag's shares of true values, drawn anew.

    `own` is the place of each tag's own value among the truths. Half a row is added to right tags
    and half a row to all wrong ones together, so that a sheet without errors does not claim that
    there are none.
    """
    counts = np.asarray(counts, np.float64)
    tags, truths = counts.shape
    prior = np.full((tags, truths), _PRIOR / max(1, truths - 1))
    prior[np.arange(tags), np.asarray(own)] = _PRIOR
    rng = np.random.default_rng(host_seed(seed, "tags/confusion"))
    gamma = rng.standard_gamma(np.broadcast_to(counts + prior, (draws, tags, truths)))
    gamma = np.maximum(gamma, 1e-300)
    return gamma / gamma.sum(axis=2, keepdims=True)


def corrected_counts(
    counts: np.ndarray, confusions: Sequence[Float[np.ndarray, "tag truth"] | None]
) -> Float[np.ndarray, "..."]:
    """The expected counts of true values, from counts of tags: one axis, one confusion a factor.

    A confusion's lines are tags and sum to one. None leaves an axis as it is. Errors in different
    factors are taken to be independent.

    >>> corrected_counts(np.array([10, 0]), [np.array([[0.9, 0.1], [0.0, 1.0]])]).tolist()
    [9.0, 1.0]
    """
    found = np.asarray(counts, np.float64)
    for axis, confusion in enumerate(_fitting(found, confusions)):
        if confusion is not None:
            found = np.moveaxis(np.tensordot(found, confusion, axes=(axis, 0)), -1, axis)
    return found


def corrected_coverage(
    counts: np.ndarray,
    factors: Sequence[str],
    values: Sequence[Sequence[str]],
    errors: Mapping[str, Any],
    *,
    at_least: int = 1,
    possible: Bool[np.ndarray, "..."] | None = None,
    draws: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The covered share of a table of counts, with an interval for wrong tags.

    `counts` has one axis per factor, over its `values`. A cell is covered by `at_least` rows;
    cells that are not `possible` do not count. Factors that `errors` does not name are taken to be
    right. The estimate is the share as observed.
    """
    counts = np.asarray(counts)
    if counts.shape != tuple(map(len, values)) or len(factors) != counts.ndim:
        raise InvalidRequest(
            f"counts of shape {counts.shape} for factors with {[len(v) for v in values]} values"
        )
    allowed = np.ones(counts.shape, bool) if possible is None else np.asarray(possible, bool)
    if not allowed.any():
        raise InvalidRequest("no cell is possible, so there is no share of them to cover")
    drawn, checked = [], []
    for factor, names in zip(factors, values, strict=True):
        known = errors["factors"].get(factor)
        drawn.append(None if known is None else confusion_draws(known, names, draws, seed))
        checked += [] if known is None else [int(known["checked"])]

    def covered(table: np.ndarray) -> float:
        return float((table >= at_least)[allowed].mean())

    rng = np.random.default_rng(host_seed(seed, "tags/coverage"))
    found = np.empty(draws)
    for draw in range(draws):
        table = counts.astype(np.int64)
        for axis, confusion in enumerate(drawn):
            if confusion is not None:
                table = _moved(table, confusion[draw], axis, rng)
        found[draw] = covered(table)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    estimate = covered(counts)
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate),
                    min(checked, default=0), "redrawn confusion matrices", level)  # fmt: skip


def confusion_draws(
    known: Mapping[str, Any], values: Sequence[str], draws: int, seed: int = 0
) -> Float[np.ndarray, "draw tag truth"]:
    """A factor's confusion matrices over the values of a table.

    A tag that is not on the sheet errs like all others together; a true value that the table does
    not have is left with its tag, where it does no harm to coverage.
    """
    place = {value: code for code, value in enumerate(known["values"])}
    sheet = np.array(known["effective"], np.float64)
    right = float(np.trace(sheet))
    counts = np.zeros((len(values), len(values)))
    for row, tag in enumerate(values):
        line = sheet[place[tag]] if tag in place else np.zeros(len(place))
        if not line.sum():
            counts[row, row] = right
            others = np.arange(len(values)) != row
            counts[row, others] = (sheet.sum() - right) / max(1, len(values) - 1)
            continue
        for truth, code in place.items():
            counts[row, values.index(truth) if truth in values else row] += line[code]
    return drawn_confusions(counts, np.arange(len(values)), draws, seed)


def _moved(
    table: np.ndarray, confusion: np.ndarray, axis: int, rng: np.random.Generator
) -> np.ndarray:
    """Every row of the table under a true value drawn for its tag."""
    first = np.moveaxis(table, axis, -1)
    # The last share is what remains: rounding must not make the sum exceed one.
    moved = rng.multinomial(first, confusion * (1 - 1e-12))
    return np.moveaxis(moved.sum(axis=-2), -1, axis)


def _fitting(
    counts: np.ndarray, confusions: Sequence[np.ndarray | None]
) -> list[np.ndarray | None]:
    if len(confusions) != counts.ndim:
        raise InvalidRequest(f"{counts.ndim} axes of counts and {len(confusions)} confusions")
    for axis, one in enumerate(confusions):
        if one is not None and np.shape(one)[0] != counts.shape[axis]:
            raise InvalidRequest(
                f"axis {axis} has {counts.shape[axis]} tags and its confusion {np.shape(one)[0]}"
            )
    return [None if one is None else np.asarray(one, np.float64) for one in confusions]
