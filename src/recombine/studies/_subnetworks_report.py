"""What the report of the study of subnetworks shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from recombine.lab.intervals import mean_interval
from recombine.lab.study import Results
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Estimates, Series, curves, dots
from recombine.studies import _base as base
from recombine.studies._subnetworks import (
    LEARNT,
    MODULES,
    by_network,
    dose_of,
    hurts_beyond_random,
    learnt,
    told,
    usable,
)


def sections(grid: Any, results: Results) -> list[Section]:
    if not any("subnetworks" in row.readings for row in results):
        return [Section("Nothing to show yet")]
    odd = [task for task in grid.tasks if results.where(task=task)]
    found = []
    if odd:
        found.append(Section(
            "What ablation takes away",
            "Accuracy on the rule whose mask was taken out, minus accuracy on the other rule. "
            "Below zero: the weights of the mask did that rule. Beside it, ablations of as many "
            "weights that the mask does not keep (all there are, where it keeps more than half of "
            "a layer), and of as many at random (whose own minus other is zero in the mean of two "
            "rules: what they do to each rule is in the table). Masks "
            "learn even over networks that know nothing, so what a subnetwork can do says little "
            "by itself. Where the other rule is ruined as well, a difference of zero says nothing.",
            figures=[_ablations(results, task) for task in odd],
            tables=[_scores(results, odd, [{}])],
        ))  # fmt: skip
    if grid.width and results.where(task=MODULES):
        found.append(Section(
            "Modules of a teacher",
            "How many times larger the error (1 - R²) on unseen combinations with the module is "
            "than on those without, when the module's mask is taken out, over the same for as many "
            f"weights at random, as log2. Means over {grid.masked_modules} of {grid.modules} "
            "modules. Masks leave out the matrix that looks a task's code up: a row of it acts "
            "where its module is present and nowhere else.",
            figures=[_widths(grid, results)],
            tables=[_scores(results, [MODULES], [{"width": width} for width in grid.width])],
        ))  # fmt: skip
    lie = "Shares of each layer's weights that masks keep; how far those of two parts overlap."
    tables = [_overlaps(results, [*odd, MODULES]), _layers(grid, results, odd)]
    found.append(Section("Where the masks lie", lie, tables=tables))
    return found


def _conditions(results: Results, task: str) -> list[str]:
    there = results.where(task=task).labels("condition")
    order = ["planted", "mixed", "untrained", "scratch", "rotated", "decayed", "decayed-rotated"]
    doses = sorted((c for c in there if c.startswith("dose")), key=dose_of)
    return [c for c in order if c in there] + doses


def _estimate(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    numbers = np.asarray([v for v in values if np.isfinite(v)])
    if not numbers.size:
        return None, None, None
    if numbers.size < 2:
        return float(numbers[0]), None, None
    interval = mean_interval(numbers)
    return interval.estimate, interval.low, interval.high


def _ablations(results: Results, task: str) -> Figure:
    conditions = _conditions(results, task)
    series = []
    for name, control in (("its mask", None), ("as many others", "complement"),
                          ("as many at random", "random")):  # fmt: skip
        columns = [
            _estimate(list(by_network(
                usable(results, condition, task=task)[0],
                lambda row, control=control: row.value("subnetworks", "ablation", control),
            ).values()))
            for condition in conditions
        ]  # fmt: skip
        series.append(Estimates(name, *zip(*columns, strict=True)))
    return dots(f"Ablation, {task}", [told(c) for c in conditions], series,
                value_label="own rule minus the other", references=[(0.0, "none")])  # fmt: skip


def _widths(grid: Any, results: Results) -> Figure:
    lines = []
    for condition in _conditions(results, MODULES):
        columns = [
            _estimate(list(by_network(
                usable(results, condition, task=MODULES, width=width)[0], hurts_beyond_random
            ).values()))
            for width in grid.width
        ]  # fmt: skip
        y, low, high = zip(*columns, strict=True)
        lines.append(Series(told(condition), list(grid.width), y, low, high))
    return curves(
        "Ablation of a module's mask, by width", "width of the student",
        "error with the module over without, beyond random weights (log2)", lines, log_x=True,
    )  # fmt: skip


def _scores(results: Results, tasks: Sequence[str], slices: Sequence[dict[str, Any]]) -> Table:
    """Accuracies (or R²) with no mask, under the mask and without what it keeps."""
    names = [("whole_own", None), ("subnetwork_own", None), ("subnetwork_other", None),
             ("ablation_own", None), ("ablation_other", None), ("ablation_own", "random"),
             ("ablation_other", "random"), ("density", None)]  # fmt: skip
    rows = []
    for task in tasks:
        for condition, cut in itertools.product(_conditions(results, task), slices):
            here, _ = usable(results, condition, task=task, **cut)
            everyone = [row for row in results.where(task=task, condition=condition, **cut)
                        if "subnetworks" in row.readings]  # fmt: skip
            means = [base.mean([row.value("subnetworks", *pair) for row in here]) for pair in names]
            label = " ".join([task, *(str(value) for value in cut.values())])
            counts = [f"{number} of {len(everyone)}" for number in (learnt(everyone), len(here))]
            rows.append([label, told(condition), *counts, *means])
    students = tasks == [MODULES]
    used = (
        "In use are all masks over students that know their task, learnt or not." if students
        else "In use are masks that learnt their part, over networks that know their task."
    )  # fmt: skip
    return Table(
        "Scores by mask",
        ["task and width" if students else "task", "network", "masks that learnt", "masks in use",
         "whole network", "mask alone: own", "mask alone: other", "without it: own",
         "without it: other", "without as many at random: own", "without as many: other",
         "density"],
        rows, f"Learnt: at least {LEARNT:g} on items like those a mask was learnt from. {used}",
    )  # fmt: skip


def _overlaps(results: Results, tasks: Sequence[str]) -> Table:
    rows = []
    for task in tasks:
        for condition in _conditions(results, task):
            here, _ = usable(results, condition, task=task)
            if here:
                found = [base.mean([row.value("subnetworks", name) for row in here])
                         for name in ("overlap", "overlap_by_chance")]  # fmt: skip
                rows.append([task, told(condition), *found])
    return Table("Overlap of the masks of two parts",
                 ["task", "network", "intersection over union", "by chance"], rows,
                 "By chance: drawn apart, with the densities they have in each layer.")  # fmt: skip


def _layers(grid: Any, results: Results, odd: Sequence[str]) -> Table:
    rows = []
    slices = [(task, {"task": task}) for task in odd]
    slices += [(f"{MODULES} {width}", {"task": MODULES, "width": width}) for width in grid.width]
    for task, cut in slices:
        here, _ = usable(results, "scratch", **cut)
        if not here:
            continue
        tables = [row.readings["subnetworks"].tables["layers"] for row in here]
        for number, layer in enumerate(tables[0]["layer"]):
            densities = [table["density"][number] for table in tables]
            rows.append([task, layer, tables[0]["weights"][number], base.mean(densities)])
    return Table("Density by layer, networks from scratch",
                 ["task", "layer", "weights", "kept"], rows)  # fmt: skip
