"""What the report of the study of symmetries shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.study import Results, Row
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Points, scatter
from recombine.studies import _base as base

Able = Callable[[Results, str], tuple[Results, str]]
Steps = Callable[..., tuple[float, bool]]
NAMES = ("concordance", "disentanglement", "selectivity")


def sections(grid: Any, results: Results, able: Able, steps: Steps) -> list[Section]:
    there = [task for task in grid.tasks if able(results, task)[0]]
    if not there:
        return [Section("Nothing to show yet", "No network has learnt its two rules.")]
    return [
        Section(
            "Whole or fractured",
            "Every unit is asked about items and about the same items after a change that leaves "
            "both rules as they are. Concordance: how alike it answers. Disentanglement: whether "
            "it tells of one rule. Selectivity: whether moving one weight changes the answers by "
            "one rule. Shuffled: other items in place of the changed ones, rules dealt out anew. "
            "Planted: one unit a rule.",
            tables=[_measures(grid, results, there, able),
                    _symmetries(results, there, able)],
        ),
        Section(
            "Who learns a new rule sooner",
            "One of the two rules is exchanged for a new one, and all networks of a task learn it "
            f"from the same examples, until a score of {grid.learnt:g}. Networks are compared with "
            "others of their weight decay: a point is a network, less the mean of its decay.",
            figures=[_cloud(grid, results, able(results, task)[0], task, steps)
                     for task in there],
            tables=[_steps(grid, results, there, able, steps)],
        ),
    ]  # fmt: skip


def _measures(grid: Any, results: Results, tasks: Sequence[str], able: Able) -> Table:
    rows = []
    for task in tasks:
        mine, _ = able(results, task)
        for decay in grid.decay:
            here = mine.where(decay=decay)
            cells = [base.interval_text(here.values("symmetry", name)) for name in NAMES]
            rows.append([task, f"weight decay {decay:g}", *cells, len(here)])
        for control in ("untrained", "shuffled", "planted"):
            cells = [base.mean(_finite(mine.values("symmetry", name, control))) for name in NAMES]
            rows.append([task, control, *cells, len(mine)])
    return Table("What is inside", ["task", "networks", *NAMES, "number"], rows,
                 "Means over networks that learnt both rules, with 95 % intervals.")  # fmt: skip


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _symmetries(results: Results, tasks: Sequence[str], able: Able) -> Table:
    rows = []
    for task in tasks:
        found: dict[tuple[str, str], list[float]] = {}
        for row in able(results, task)[0]:
            table = row.readings["symmetry"].tables["concordance"]
            columns = (table[name] for name in ("layer", "symmetry", "concordance"))
            for layer, symmetry, value in zip(*columns, strict=True):
                found.setdefault((symmetry, layer), []).append(value)
        rows += [[task, symmetry, layer, base.mean(values)]
                 for (symmetry, layer), values in found.items()]  # fmt: skip
    columns = ["task", "symmetry", "layer", "concordance"]
    return Table("Concordance by symmetry and layer", columns, rows, "Means over networks.")


def _cloud(grid: Any, results: Results, rows: Results, task: str, steps: Steps) -> Figure:
    """Steps to the new rule by concordance, each less the mean of its decay."""

    def apart(row: Row) -> tuple[float, float]:
        return row.value("symmetry", "concordance"), steps(grid, results, row)[0]

    groups = []
    for decay in grid.decay:
        pairs = np.asarray([apart(row) for row in rows.where(decay=decay)])
        if len(pairs) > 1:
            x, y = (pairs - pairs.mean(axis=0)).T
            groups.append(Points(f"weight decay {decay:g}", x.tolist(), (2**y).tolist()))
    return scatter(
        f"Steps to a new rule by concordance, {task}", "concordance, less the mean of its decay",
        "steps, as a multiple of that mean", groups,
    )  # fmt: skip


def _steps(
    grid: Any, results: Results, tasks: Sequence[str], able: Able, steps: Steps
) -> Table:  # fmt: skip
    rows = []
    for task in tasks:
        mine, _ = able(results, task)
        for part, words in (("new", "knows two rules"), ("scratch", "first weights")):
            found = [steps(grid, results, row, part) for row in mine]
            there = [one for one in found if np.isfinite(one[0])]
            if there:
                middle = float(np.median([2**log2 for log2, _ in there]))
                reached = sum(got for _, got in there)
                rows.append([task, words, round(middle), f"{reached} of {len(there)}"])
    return Table("Steps to a new rule", ["task", "network", "steps (median)", "got there"], rows,
                 "Those that never got there count with all steps.")  # fmt: skip
