"""What the study of subnetworks measures, and what its report shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from recombine.lab.intervals import mean_interval
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Estimates, Series, curves, dots
from recombine.studies import _base as base

MODULES, PLANTED = "modules", "planted"
LEARNT = 0.9  # of the part's own items, under its mask
WHOLE = 0.98  # of test items, by the network without any mask
NAMES = {"planted": "planted halves", "mixed": "planted, rotated weights",
         "untrained": "never trained", "scratch": "from scratch",
         "decayed": "from scratch, with decay"}  # fmt: skip
Number = Callable[[Row], float]


def dosed(dose: float) -> str:
    return f"dose {dose:g}"


def dose_of(condition: str) -> float:
    return float(condition.removeprefix("dose ")) if condition.startswith("dose") else 0.0


def told(condition: str) -> str:
    return NAMES.get(condition, f"pretrained, {condition}")


def ablation(row: Row) -> float:
    return row.value("subnetworks", "ablation")


def beyond_random(row: Row) -> float:
    """Beside as many weights at random. As many that the mask does *not* keep are no fair measure:
    they spare what the part needs, so that any mask looks selective beside them."""
    return ablation(row) - row.value("subnetworks", "ablation", "random")


def raw_beyond_random(row: Row) -> float:
    """The same for scores without a floor."""
    other = row.value("subnetworks", "ablation_raw", "random")
    return row.value("subnetworks", "ablation_raw") - other


def knows(row: Row) -> bool:
    """Whether the network does both rules (or the module's student its task)."""
    least = min(row.value("subnetworks", f"whole_{which}") for which in ("own", "other"))
    return least >= (WHOLE if row.labels["task"] != MODULES else 0.8)


def usable(results: Results, condition: str, task: str, **labels: Any) -> tuple[list[Row], str]:
    """Masks that learnt their part, over networks that know their task; and what is left out.

    Networks that were never trained know nothing: of them only the masks must have learnt. Of
    students no more is asked than that they know their task: masks learn single modules from few
    combinations, and their score is R². Masks over a planted network must find its parts, so none
    of them is left out for not having learnt.
    """
    rows = [row for row in results.where(condition=condition, task=task, **labels)
            if not row.diverged and "subnetworks" in row.readings]  # fmt: skip
    able = [row for row in rows if condition == "untrained" or knows(row)]
    learnt = [
        row for row in able
        if task == MODULES or condition == PLANTED
        or row.value("subnetworks", "learnt") >= LEARNT
    ]  # fmt: skip
    words = []
    if len(able) < len(rows):
        words.append(f"{len(rows) - len(able)} masks over networks that do not know their task")
    if len(learnt) < len(able):
        words.append(f"{len(able) - len(learnt)} masks that did not learn their part")
    return learnt, f"Left out: {', '.join(words)}." if words else ""


def by_seed(rows: Sequence[Row], number: Number) -> dict[int, float]:
    """The mean over parts and mask seeds, for each network."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row.labels["seed"], []).append(number(row))
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def by_rule(rows: Sequence[Row], number: Number) -> dict[int, list[float]]:
    """For each network its rules, each the mean over mask seeds."""
    found: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        found.setdefault((row.labels["seed"], row.labels["rule"]), []).append(number(row))
    by_network: dict[int, list[float]] = {}
    for (seed, _), values in found.items():
        by_network.setdefault(seed, []).append(float(np.mean(values)))
    return by_network


def over_rules(
    condition: str, task: str, combine: Callable[[list[float]], float], number: Number = ablation
) -> Callable[[Results], Evidence]:
    """One number for each network, from those of its rules: the worse one, or a share."""

    def measure(results: Results) -> Evidence:
        rows, note = usable(results, condition, task)
        values = [combine(rules) for rules in by_rule(rows, number).values()]
        return Evidence.of_values(base.require(np.asarray(values), f"Networks. {note}"), note)

    return measure


def mean(condition: str, task: str, number: Number, **labels: Any) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        rows, note = usable(results, condition, task, **labels)
        values = np.asarray(list(by_seed(rows, number).values()))
        return Evidence.of_values(base.require(values, f"Networks. {note}"), note)

    return measure


def difference(
    task: str, first: str, second: str, number: Number, **labels: Any
) -> Callable[[Results], Evidence]:
    """One condition minus another, for each seed that has both."""

    def measure(results: Results) -> Evidence:
        found, notes = [], []
        for condition in (first, second):
            rows, note = usable(results, condition, task, **labels)
            found.append(by_seed(rows, number))
            notes += [f"{told(condition).capitalize()}: {note}"] if note else []
        both = sorted(found[0].keys() & found[1].keys())
        if len(both) < 2:
            raise NotTested(f"Needs two networks of both kinds. {' '.join(notes)}")
        return Evidence.of_values([found[0][s] - found[1][s] for s in both], " ".join(notes))

    return measure


def by_dose(task: str, conditions: Sequence[str]) -> Callable[[Results], Evidence]:
    """The rank correlation of ablation with the dose of pretraining, for each seed."""

    def measure(results: Results) -> Evidence:
        found: dict[int, list[tuple[float, float]]] = {}
        notes = set()
        for condition in conditions:
            rows, note = usable(results, condition, task)
            notes |= {note} if note else set()
            for seed, value in by_seed(rows, ablation).items():
                found.setdefault(seed, []).append((dose_of(condition), value))
        whole = [np.asarray(pairs) for pairs in found.values() if len(pairs) > 2]
        values = [_rank_correlation(*pairs.T) for pairs in whole]
        said = " ".join(sorted(notes))
        return Evidence.of_values(base.require(np.asarray(values), f"Networks. {said}"), said)

    return measure


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


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
            "weights that the mask does not keep, and of as many at random. Masks learn even over "
            "networks that know nothing, so what a subnetwork can do says little by itself.",
            figures=[_ablations(results, task) for task in odd],
            tables=[_scores(results, odd)],
        ))  # fmt: skip
    if grid.width and results.where(task=MODULES):
        found.append(Section(
            "Modules of a teacher",
            "R² on unseen combinations with the module minus that on those without, when the "
            "module's mask is taken out, less the same for as many weights at random.",
            figures=[_widths(grid, results)], tables=[_scores(results, [MODULES])],
        ))  # fmt: skip
    lie = "Shares of each layer's weights that masks keep; how far those of two parts overlap."
    tables = [_overlaps(results, [*odd, MODULES]), _layers(results, odd)]
    found.append(Section("Where the masks lie", lie, tables=tables))
    return found


def _conditions(results: Results, task: str) -> list[str]:
    there = results.where(task=task).labels("condition")
    order = ["planted", "mixed", "untrained", "scratch", "decayed"]
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
            _estimate(list(by_seed(
                usable(results, condition, task)[0],
                lambda row, control=control: row.value("subnetworks", "ablation", control),
            ).values()))
            for condition in conditions
        ]  # fmt: skip
        series.append(Estimates(name, *zip(*columns, strict=True)))
    return dots(f"Ablation, {task}", [told(c) for c in conditions], series,
                value_label="own rule minus the other", references=[(0.0, "none")])  # fmt: skip


def _widths(grid: Any, results: Results) -> Figure:
    lines = []
    for condition in ("scratch", "untrained"):
        columns = [
            _estimate(list(by_seed(
                usable(results, condition, MODULES, width=width)[0], raw_beyond_random
            ).values()))
            for width in grid.width
        ]  # fmt: skip
        y, low, high = zip(*columns, strict=True)
        lines.append(Series(told(condition), list(grid.width), y, low, high))
    return curves(
        "Ablation of a module's mask, by width", "width of the student",
        "R² with the module minus without, beyond random weights", lines, log_x=True,
    )  # fmt: skip


def _scores(results: Results, tasks: Sequence[str]) -> Table:
    """Accuracies (or R²) with no mask, under the mask and without what it keeps."""
    names = ("whole_own", "subnetwork_own", "subnetwork_other", "ablation_own", "ablation_other")
    rows = []
    for task in tasks:
        for condition in _conditions(results, task):
            here, _ = usable(results, condition, task)
            everyone = [row for row in results.where(task=task, condition=condition)
                        if "subnetworks" in row.readings]  # fmt: skip
            means = [base.mean([row.value("subnetworks", name) for row in here]) for name in names]
            density = base.mean([row.value("subnetworks", "density") for row in here])
            rows.append([task, told(condition), f"{len(here)} of {len(everyone)}", *means, density])
    return Table(
        "Scores by mask",
        ["task", "network", "masks in use", "whole network", "mask alone: own", "other",
         "without it: own", "other ", "density"],
        rows, "Masks that learnt their part, over networks that know their task.",
    )  # fmt: skip


def _overlaps(results: Results, tasks: Sequence[str]) -> Table:
    rows = []
    for task in tasks:
        for condition in _conditions(results, task):
            here, _ = usable(results, condition, task)
            if here:
                found = [base.mean([row.value("subnetworks", name) for row in here])
                         for name in ("overlap", "overlap_by_chance")]  # fmt: skip
                rows.append([task, told(condition), *found])
    return Table("Overlap of the masks of two parts",
                 ["task", "network", "intersection over union", "by chance"], rows,
                 "By chance: drawn apart, with the densities they have in each layer.")  # fmt: skip


def _layers(results: Results, tasks: Sequence[str]) -> Table:
    rows = []
    for task in tasks:
        here, _ = usable(results, "scratch", task)
        if not here:
            continue
        tables = [row.readings["subnetworks"].tables["layers"] for row in here]
        for number, layer in enumerate(tables[0]["layer"]):
            densities = [table["density"][number] for table in tables]
            rows.append([task, layer, tables[0]["weights"][number], base.mean(densities)])
    return Table("Density by layer, networks from scratch",
                 ["task", "layer", "weights", "kept"], rows)  # fmt: skip
