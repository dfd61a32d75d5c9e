"""How often tags are wrong, from a sheet that a person filled in: errors.json."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval
from recombine.tables.rows import MISSING
from recombine.tags.correction import DRAWS, SCHEMA, drawn_confusions, effective
from recombine.tags.sheet import Line, read_sheet

LEVEL = 0.95


def check_sheet(path: str | Path, *, seed: int = 0) -> dict[str, Any]:
    """The measured error of every factor on a sheet: confusion, precision, recall, kappa."""
    lines = read_sheet(path)
    factors = list(lines[0].tags) if lines else []
    checked = {f: [one for one in lines if one.truths[f] is not None] for f in factors}
    if not any(checked.values()):
        raise InvalidRequest(
            f"{path}: nothing is checked yet; in the columns that end in (yours) type the right "
            "value, ok where the tag is right, or none where the text has no value"
        )
    return {
        "schema": SCHEMA,
        "sheet": Path(path).name,
        "rows": len(lines),
        "factors": {f: factor_errors(f, on, seed=seed) for f, on in checked.items() if on},
        "not_checked": [f for f, on in checked.items() if not on],
    }


def new_values(errors: Mapping[str, Any]) -> list[str]:
    """A remark for each value a person wrote that is no tag on the sheet: new, or mistyped."""
    remarks = []
    for factor, found in errors["factors"].items():
        tags = [value for value, one in found["per_value"].items() if one["tagged"]]
        for value, one in found["per_value"].items():
            if not one["true"] or one["tagged"] or value == MISSING:
                continue
            near = difflib.get_close_matches(value, tags, n=1)
            rows = "1 row" if one["true"] == 1 else f"{one['true']} rows"
            hint = f"did you mean {near[0]!r}?" if near else f"tags are {', '.join(tags)}"
            remarks.append(f"{factor}: {value!r} ({rows}) is no tag on the sheet; {hint}")
    return remarks


def factor_errors(factor: str, lines: Sequence[Line], *, seed: int = 0) -> dict[str, Any]:
    """One factor's confusion matrix (tag x truth) and what follows from it."""
    tags = [line.tags[factor] for line in lines]
    truths = [line.truths[factor] or MISSING for line in lines]
    values = [*sorted({*tags, *truths} - {MISSING}), MISSING]
    place = {value: code for code, value in enumerate(values)}
    pairs = np.array([[place[t], place[s]] for t, s in zip(tags, truths, strict=True)])
    weights = np.array([line.weight for line in lines])
    shape = (len(values), len(values))
    counts, weighed, squared = np.zeros(shape, int), np.zeros(shape), np.zeros(shape)
    np.add.at(counts, tuple(pairs.T), 1)
    np.add.at(weighed, tuple(pairs.T), weights)
    np.add.at(squared, tuple(pairs.T), weights**2)
    seen = counts.sum(axis=1) > 0
    per_tag = weighed.sum(axis=1)
    share = effective(weighed, squared)
    draws = drawn_confusions(share[seen], np.flatnonzero(seen), DRAWS, seed)
    joint = draws * per_tag[seen][:, None]  # draws x tags seen x truths
    diagonal = joint[:, np.arange(seen.sum()), np.flatnonzero(seen)]
    truth_mass = joint.sum(axis=1)
    found: dict[str, Any] = {
        "values": values,
        "checked": len(lines),
        "counts": counts.tolist(),
        "weights": weighed.tolist(),
        "effective": share.tolist(),
        "accuracy": _told(
            float(np.trace(weighed) / weighed.sum()), diagonal.sum(axis=1) / truth_mass.sum(axis=1)
        ),
        "kappa": _told(kappa(weighed), np.array([kappa(_square(one, seen)) for one in joint])),
        "per_value": {},
    }
    for code, value in enumerate(values):
        true_mass = weighed[:, code].sum()
        where = np.flatnonzero(np.flatnonzero(seen) == code)
        right = joint[:, where[0], code] if len(where) else np.zeros(len(joint))
        with np.errstate(invalid="ignore"):
            recalled = right / truth_mass[:, code]
        found["per_value"][value] = {
            "tagged": int(counts[code].sum()),
            "true": int(counts[:, code].sum()),
            "precision": _precision(share[code], code),
            "recall": _told(float(weighed[code, code] / true_mass), recalled)
            if true_mass and np.isfinite(recalled).all()
            else None,
        }
    return found


def kappa(confusion: Float[np.ndarray, "tag truth"]) -> float:
    """Cohen's kappa of a (weighted) confusion matrix; 1 where there is nothing to disagree on."""
    shares = confusion / confusion.sum()
    chance = float(shares.sum(axis=0) @ shares.sum(axis=1))
    agreed = float(np.trace(shares))
    return 1.0 if chance >= 1 else (agreed - chance) / (1 - chance)


def _square(joint: np.ndarray, seen: np.ndarray) -> np.ndarray:
    whole = np.zeros((len(seen), len(seen)))
    whole[seen] = joint
    return whole


def _precision(line: np.ndarray, code: int) -> dict[str, float] | None:
    """Jeffreys' interval for the share of a tag's rows that are right."""
    total, right = line.sum(), line[code]
    if not total:
        return None
    tail = (1 - LEVEL) / 2
    low, high = stats.beta.ppf([tail, 1 - tail], right + 0.5, total - right + 0.5)
    return {
        "estimate": float(right / total),
        "low": 0.0 if right == 0 else float(low),
        "high": 1.0 if right == total else float(high),
    }


def _told(estimate: float, draws: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"estimate": estimate, "low": min(float(low), estimate),
            "high": max(float(high), estimate)}  # fmt: skip


def accuracy_of(errors: dict[str, Any], factor: str) -> Interval:
    """The share of a factor's tags that are right, with its interval."""
    found = errors["factors"][factor]
    one = found["accuracy"]
    return Interval(one["estimate"], one["low"], one["high"], found["checked"],
                    "redrawn sheet", LEVEL)  # fmt: skip
