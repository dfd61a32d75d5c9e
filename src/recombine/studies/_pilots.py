"""Choosing a learning rate on seeds that are used for nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recombine.lab.study import Results
from recombine.report.document import Table
from recombine.studies._base import unseen

FIRST_SEED = 1_000  # pilots are counted from here, far from the seeds that claims are judged on


def pilot_score(results: Results, rate: float, **setting: Any) -> float:
    """Mean unseen score over pilot seeds; a rate at which any of them failed is never chosen."""
    rows = results.where(part="pilot", rate=rate, **setting)
    scores = [unseen(row) for row in rows]
    if not scores or rows.diverged or not np.isfinite(scores).all():
        return -math.inf
    return float(np.mean(scores))


def best_rate(results: Results, rates: Sequence[float], **setting: Any) -> float:
    """The rate that did best on pilot seeds; the smallest of equals."""
    return max(sorted(rates), key=lambda rate: pilot_score(results, rate, **setting))


def rate_table(
    results: Results, rates: Sequence[float], networks: dict[str, str], shares: Iterable[float],
    metric: str = "R²",
) -> Table:  # fmt: skip
    """What every rate scored on the pilot seeds, for each of the networks (label: title)."""
    rows = []
    for name, title in networks.items():
        for share in shares:
            setting = {"model": name, "held_out": share}
            scores = [pilot_score(results, rate, **setting) for rate in rates]
            best = best_rate(results, rates, **setting)
            ends = len(rates) > 1 and best in (min(rates), max(rates))
            told = [f"{score:.3f}" if math.isfinite(score) else "failed" for score in scores]
            rows.append([title, share, *told, f"{best:g}", "at the end" if ends else ""])
    return Table(
        f"Unseen {metric} on pilot seeds, by learning rate",
        ["network", "held out", *(f"rate {rate:g}" for rate in rates), "best", "note"], rows,
        "At the end: the best rate is the smallest or largest tried, and a better one may lie "
        "beyond.",
    )  # fmt: skip
