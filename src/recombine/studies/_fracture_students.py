"""How the fracture study reads its students: steps to a new module beside what is inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from recombine.lab.statistics import within_group_correlation
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base
from recombine.studies._fracture import Measure


def module_steps(
    grid: Any, results: Results, seed: int, share: float, student: int = 0
) -> float:  # fmt: skip
    """log2 steps to a new module, mean over the modules that were exchanged."""
    rows = results.where(part="module", seed=seed, held_out=share, student=student)
    found = [base.log_steps(r, "seen", grid.learnt, falling=False)[0] for r in rows]
    return float(np.mean(found)) if found else float("nan")


def steps_of(grid: Any, results: Results, row: Row) -> float:
    """The same for the row of a student."""
    return module_steps(grid, results, *(row.labels[n] for n in ("seed", "held_out", "student")))


def able_students(results: Results) -> Results:
    return base.trained(results.where(part="student"))


def from_scratch(grid: Any) -> Measure:
    def measure(results: Results) -> Evidence:
        rows, values = able_students(results), []
        for seed in rows.labels("seed"):
            known = [steps_of(grid, results, row) for row in rows.where(seed=seed)]
            values.append(module_steps(grid, results, seed, -1.0) - float(np.mean(known)))
        note = base.left_out(results.where(part="student"))
        found = base.require(np.asarray(values), f"{note} Seeds".strip())
        return Evidence.of_values(found, note)

    return measure


def alike(rows: Results) -> list[Results]:
    """Students of one teacher that saw the same combinations, where there are several."""
    groups = [rows.where(seed=seed, held_out=share)
              for seed in rows.labels("seed") for share in rows.labels("held_out")]  # fmt: skip
    return [group for group in groups if len(group) > 1]


def new_module(grid: Any, measure_name: str, beyond: bool = False) -> Measure:
    """Correlation of a measure of fracture and log2 steps to a new module, within seed and share.

    Not across shares: who saw fewer combinations differs in everything.
    """

    def measure(results: Results) -> Evidence:
        able = [r for r in able_students(results) if np.isfinite(r.value("fracture", measure_name))]
        note = base.left_out(results.where(part="student"))
        found = alike(Results(able))
        rows = [row for group in found for row in group]
        clusters = [row.labels["seed"] for row in rows]
        # Of each group its mean is lost, and what is given beside.
        if len(set(clusters)) < 2 or len(rows) - len(found) - beyond < 2:
            raise NotTested(
                "Needs two seeds with several trained students of one share "
                f"(students=2 or more). {note}".strip()
            )
        x = [row.value("fracture", measure_name) for row in rows]
        y = [steps_of(grid, results, row) for row in rows]
        groups = [number for number, group in enumerate(found) for _ in group]
        given = np.asarray([base.unseen(row) for row in rows])[:, None] if beyond else None

        def interval(level: float) -> Any:
            return within_group_correlation(x, y, groups, given=given, cluster=clusters,
                                            level=level)  # fmt: skip

        if not np.isfinite(interval(0.95).estimate):
            raise NotTested(
                "Steps, or the measure, do not differ among the students of a seed and share."
            )
        told = f"{len(rows)} students, {len(found)} pairs of seed and share."
        return Evidence.of_interval(interval, f"{note} {told}".strip())

    return measure
