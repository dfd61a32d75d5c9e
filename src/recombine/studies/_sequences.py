"""How the sequences study reads its rows, and what its report shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.study import Results, Row
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Grid as Heat
from recombine.report.figures import Panel, Series, heat_maps, panels
from recombine.studies import _base as base
from recombine.studies._base import series_over, share_interval
from recombine.studies._sequence_tasks import KINDS, MORE, task_named

EXACT = "share of exact answers"
WHOLE = (-0.03, 1.03)  # markers at 0 and 1 stay whole
RENUMBERED = "renumbered"  # a right formula but for the numbers of its variables
LEVELS = 12  # of novelty at most in a figure: what has more is measured, not counted


def right(row: Row, split: str) -> float:
    """The share of right answers: exact ones, or good ones where the task can tell."""
    judged = task_named(row.labels["task"]).judged
    return row.value("exact-match", f"{split}_{judged}" if judged else split)


def seen(row: Row) -> float:
    return right(row, "seen")


def beyond(row: Row) -> float:
    """The mean over the task's ways of going beyond training."""
    splits = task_named(row.labels["task"]).beyond
    return float(np.mean([right(row, f"unseen_{split}") for split in splits]))


def gap(row: Row) -> float:
    return seen(row) - beyond(row)


def best(results: Results, task: str, configurations: Sequence[str]) -> str:
    """The configuration that does best on validation items, among those that learn the task.

    Where none gets any of them right, the one least surprised by the right answers.
    """

    def key(configuration: str) -> tuple[bool, float, float]:
        rows = results.where(part="pilot", task=task, configuration=configuration)
        rows = [row for row in rows if not row.diverged]
        if not rows:
            return (False, -1.0, 0.0)
        surprise = float(np.mean([row.value("exact-match", "validation_surprise") for row in rows]))
        able = float(np.mean([seen(row) for row in rows])) >= base.SEEN_FLOOR
        validation = float(np.mean([right(row, "validation") for row in rows]))
        return (able, round(validation, 2), -surprise)

    return max(configurations, key=key)


def given_up(grid: Any, results: Results, task: str) -> str:
    """Why a task is not trained beyond its pilots, or nothing."""
    pilots = results.where(part="pilot", task=task)
    most = max((seen(row) for row in pilots if not row.diverged), default=0.0)
    if not pilots or most >= grid.pilot_floor:
        return ""
    return (
        f"No configuration had {grid.pilot_floor:g} of the items like those of training right on "
        f"pilot seeds ({most:.2f} at most): {task} was trained no further."
    )


def left_at_pilots(grid: Any, results: Results, *kinds: str) -> str:
    """A note on tasks given up, which no mean over tasks holds: those with all these kinds."""
    asked = [task for task in grid.tasks if all(of_kind(task, kind) for kind in kinds)]
    names = [task for task in asked if given_up(grid, results, task)]
    return f"Trained no further than pilots: {', '.join(names)}." if names else ""


def sections(grid: Any, results: Results) -> list[Section]:
    final, pilot = results.where(part="final"), results.where(part="pilot")
    heats, chosen = _configurations(grid, results, pilot)
    without = " ".join(filter(None, (given_up(grid, results, task) for task in grid.tasks)))
    found = [
        Section(
            "Configurations",
            "Each task was first tried in every configuration, on seeds that nothing else uses. "
            "The one that answers most validation items rightly, among those that learn the task "
            "(among all, where none does), was then trained at every size; of those that are alike "
            f"to .01, the one least surprised by the right answers. {without}".strip(),
            figures=[heats], tables=[chosen],
        )
    ]  # fmt: skip
    if not final:
        return found
    return [
        Section("What size buys",
                "Fresh items like those of training, known pieces put together anew, and more of "
                "them than ever: longer, deeper, larger.", figures=[_sizes(grid, final)],
                tables=[_table(grid, results, final), _kinds(grid, final)]),
        Section("How far beyond training",
                "The same by how far an item lies beyond training: so many new pairs, levels or "
                "words more than any trained item had.", figures=_novelty(grid, final)),
        *found,
    ]  # fmt: skip


def of_kind(task: str, kind: str) -> list[str]:
    return [split for split, new in task_named(task).beyond.items() if new == kind]


def beyond_by(kind: str) -> Callable[[Row], float]:
    """The mean over a task's splits with one kind of novelty, or NaN."""

    def number(row: Row) -> float:
        splits = of_kind(row.labels["task"], kind)
        values = [right(row, f"unseen_{split}") for split in splits]
        return float(np.mean(values)) if values else float("nan")

    return number


def _sizes(grid: Any, final: Results) -> Figure:
    shown = []
    for task in grid.tasks:
        rows = final.where(task=task)
        if not rows:
            continue
        lines = [series_over(rows, "width", seen, "like training", shares=True)]
        lines += [
            series_over(rows, "width", beyond_by(kind), kind, shares=True)
            for kind in KINDS
            if of_kind(task, kind)
        ]
        shown.append(Panel(task, lines))
    return panels(
        "Exact answers by width, in each task's best configuration", "width", EXACT, shown,
        log_x=True, y_range=WHOLE,
    )  # fmt: skip


def _table(grid: Any, results: Results, final: Results) -> Table:
    rows = []
    for task in grid.tasks:
        for width in grid.width:
            here = final.where(task=task, width=width)
            if not here:
                continue
            numbers = {"like training": [seen(row) for row in here]}
            for split in task_named(task).beyond:
                numbers[split] = [right(row, f"unseen_{split}") for row in here]
            ended = {split: _scores(here, f"unseen_{split}_ended") for split in of_kind(task, MORE)}
            loose = {split: _scores(here, f"unseen_{split}_{RENUMBERED}")
                     for split in task_named(task).beyond}  # fmt: skip
            rows.append([task, best(results, task, grid.configurations), width,
                         here[0].labels["parameters"],
                         *(_listed(found) for found in (numbers, ended, loose))])  # fmt: skip
    columns = ["task", "configuration", "width", "parameters", EXACT, "with the end given",
               "whatever the numbers of variables"]  # fmt: skip
    told = [n for n, _ in enumerate(columns) if any(row[n] for row in rows)]
    return Table(
        "Exact answers by task and width", [columns[n] for n in told],
        [[row[n] for n in told] for row in rows],
        "Means over seeds with 95 % intervals. Tasks are not averaged into one score. With the end "
        "given: exact if the network were told where to stop, where there is more than ever. "
        "Logical forms name their variables by numbers, and one with other numbers can say the "
        f"same.{_judged_otherwise(grid.tasks)}",
    )  # fmt: skip


def _judged_otherwise(tasks: Sequence[str]) -> str:
    """Which tasks' answers need not be exact to be right, for a table that speaks of exact ones."""
    judged = [f"{name} if {task_named(name).right}" for name in tasks if task_named(name).judged]
    return f" Answers count that need not be exact: to {', to '.join(judged)}." if judged else ""


def _scores(rows: Results, name: str) -> list[float]:
    """A further score of exact match, where the task has it."""
    there = [row for row in rows if name in row.readings["exact-match"].values]
    return [row.value("exact-match", name) for row in there]


def _listed(numbers: dict[str, list[float]]) -> str:
    return "; ".join(f"{name} {_told(values)}" for name, values in numbers.items() if values)


def _kinds(grid: Any, final: Results) -> Table:
    """Items like those of training, by their kind: which of them a small network lacks."""
    rows = []
    for task in grid.tasks:
        found = [
            _grouped(final.where(task=task, width=width), lambda split, part, _: (split, part))
            for width in grid.width
        ]
        kinds = sorted({kind for shares in found for split, kind in shares if split == "seen"})
        if len(kinds) > 1:
            rows += [
                [task, kind, *(shares.get(("seen", kind)) for shares in found)] for kind in kinds
            ]
    return Table(
        "Exact answers like training, by kind of item",
        ["task", "kind", *(f"width {width}" for width in grid.width)], rows,
        "Means over seeds, in each task's best configuration.",
    )  # fmt: skip


def _told(values: Sequence[float]) -> str:
    interval = share_interval(np.asarray(values))
    if not interval.bounded:
        return f"{interval.estimate:.2f}"
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _novelty(grid: Any, final: Results) -> list[Figure]:
    """Exact answers by how far an item is from training, at the largest width."""
    shown = []
    for task in grid.tasks:
        largest = final.where(task=task, width=max(grid.width))
        found = _by_novelty(largest, task_named(task).beyond)
        steps = {kind: sorted(n for k, n in found if k == kind) for kind in KINDS}
        if not 0 < len({n for levels in steps.values() for n in levels}) <= LEVELS:
            continue
        lines = [Series("like training", [0], [float(np.mean([seen(row) for row in largest]))])]
        lines += [
            Series(kind, levels, [found[kind, n] for n in levels])
            for kind, levels in steps.items()
            if levels
        ]
        shown.append(Panel(task, lines))
    if not shown:
        return []
    return [
        panels(f"Exact answers by novelty, at width {max(grid.width)}",
               "novelty, in the unit of each task", EXACT, shown, y_range=WHOLE)
    ]  # fmt: skip


def _configurations(grid: Any, results: Results, pilot: Results) -> tuple[Figure, Table]:
    heats, whole = [], Results([row for row in pilot if not row.diverged])
    for title, number in (("like training", seen), ("validation", _validation), ("beyond", beyond)):
        values = [
            [base.mean([number(row) for row in whole.where(task=task, configuration=name)])
             for name in grid.configurations] for task in grid.tasks
        ]  # fmt: skip
        heats.append(Heat(title, list(grid.tasks), list(grid.configurations), values))
    rows = [[task, best(results, task, grid.configurations)] for task in grid.tasks]
    return (
        heat_maps("Exact answers on pilot seeds", heats, row_label="task", value_label=EXACT,
                  column_label="configuration", scale=(0.0, 1.0), missing="not trained"),
        Table("The configuration of each task", ["task", "best on validation items"], rows,
              "Chosen on items from beyond training that nothing else uses."),
    )  # fmt: skip


def _by_novelty(rows: Results, kinds: dict[str, str]) -> dict[tuple[str | None, int], float]:
    return _grouped(
        rows, lambda split, _, novelty: (kinds.get(split.removeprefix("unseen_")), novelty)
    )


def _grouped(rows: Results, key: Callable[[str, str, int], Any]) -> dict[Any, float]:
    """Exact answers of several networks, by what `key` makes of split, part and novelty."""
    found: dict[Any, list[tuple[float, int]]] = {}
    for row in rows:
        table = row.readings["exact-match"].tables["parts"]
        columns = (table[name] for name in ("split", "part", "novelty", "items", "exact"))
        for split, part, novelty, count, exact in zip(*columns, strict=True):
            found.setdefault(key(split, part, novelty), []).append((exact, count))
    return {
        group: float(np.average([e for e, _ in pairs], weights=[n for _, n in pairs]))
        for group, pairs in found.items()
    }


def _validation(row: Row) -> float:
    return right(row, "validation")
