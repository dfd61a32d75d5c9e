"""How the study of constraints reads its rows, and what its report shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recombine.constraints.problem import KINDS, READABLE
from recombine.constraints.tasks import WHOLE_NUMBERS, task_named
from recombine.instruments.constraints import NETWORK
from recombine.lab.study import SHARE, Results, Row
from recombine.report.document import Cell, Figure, Section, Table
from recombine.report.figures import Grid as Heat
from recombine.report.figures import Panel, Series, heat_maps, panels
from recombine.studies._base import interval_text, mean, series_over

# Its squared error, as a share of that of the best null answer: the optimum of other data, or the
# guess where that is nearer, as it is for portfolios and schedules. On power flow the optimum of
# other data is about the mean, so half of the variance is explained; in whole numbers it is another
# draw, with twice the variance, so no constant answer that can be written is as good.
NEAR = 0.5
WITHOUT_OPTIMUM = ("copied", "guess")  # null answers for which this optimum need not be known
LEAST_ERROR = 1e-12  # far below what rounding leaves of any right answer

SATISFIED = "share of constraints satisfied"
FEASIBLE = "share of answers that satisfy every constraint"

# The rows of the table of answers, with the words a reader knows them by.
NULL_ROWS = {
    "guess": "a guess without thought",
    "copied": "optimum of other data",
    "noise": "optimum with 1 % noise",
    "rounded to 2": "optimum, 2 decimals",
    "rounded to 3": "optimum, 3 decimals",
    "rounded": "optimum as answers write it",
}
OTHER_ROWS = {"shuffled": "answers to other instances", "untrained": "untrained network"}


def seen(row: Row, metric: str, control: str | None = None) -> float:
    return row.value("constraints", f"seen_{metric}", control)


def strict(row: Row) -> float:
    return seen(row, "strict")


def best_null(row: Row) -> str:
    """The null answer that comes closest to the optimum without knowing it."""
    return min(WITHOUT_OPTIMUM, key=lambda name: seen(row, "squared_error", name))


def learnt(row: Row) -> bool:
    """The floor: answers can be read, and come much closer to the optimum than any null answer.

    Exact answers are no measure: on power flow a good one differs in its last digits.
    """
    nearer = seen(row, "squared_error") <= NEAR * seen(row, "squared_error", best_null(row))
    return seen(row, "parsed") >= READABLE and nearer


def sections(grid: Any, results: Results) -> list[Section]:
    whole = Results([row for row in results.where(length=1.0) if not row.diverged])
    found = [
        Section(
            "Who satisfies what",
            "Each row is somebody who answers the same instances: the networks, and below them "
            "answers that take no competence. A share of satisfied constraints is not a grade: "
            "boxes are nearly free, an equality forgives nothing. Read the networks against the "
            "rows below, and read “every constraint” before “all”.",
            figures=[_who(grid, whole)], tables=[_table(grid, whole)],
        ),
        Section(
            "What size buys",
            "All constraints counted alike (all), those of two kinds, and the answers that satisfy "
            "every constraint. The two flat lines are what answers without competence satisfy of "
            "all constraints.",
            figures=[_sizes(grid, whole)],
        ),
    ]  # fmt: skip
    lengths = Results([r for r in results.where(width=grid.middle) if not r.diverged])
    if len(lengths.labels("length")) > 1:
        found.append(Section(
            "What training buys",
            f"Networks of width {grid.middle} trained for several lengths, each to the end of its "
            "own schedule: none is a longer one interrupted. Compare how the error falls with "
            "how answers become feasible.",
            figures=_lengths(grid, lengths),
        ))  # fmt: skip
    found.append(Section(
        "Beyond training",
        "Heavier or lighter loads than any in training; instances larger than any, or under a pair "
        "of rules never seen together.",
        tables=[_beyond(grid, whole)],
    ))  # fmt: skip
    found.append(Section(
        "Which networks may speak",
        f"A network speaks for or against a claim if at least {READABLE:g} of its answers can be "
        "read and its squared error is at most half that of the best null answer: the optimum of "
        "other data or a guess without thought, whichever is closer to the right answer. Exact "
        "answers, the usual floor, are no measure where a good answer differs in its last digits.",
        tables=[_floor(grid, results)],
    ))  # fmt: skip
    return found


def answer_row(row: Row, answer: str, metric: str, split: str = "seen") -> float | None:
    """A number of the table behind a reading; None where the instances have none of this kind."""
    reading = row.readings.get("constraints")
    if reading is None:
        return None
    table = reading.tables["rows"]
    for at, (part, name) in enumerate(zip(table["split"], table["answer"], strict=True)):
        if (part, name) == (split, answer):
            return table[metric][at]
    return None


def _values(rows: Results, answer: str, metric: str, split: str = "seen") -> np.ndarray:
    found = [answer_row(row, answer, metric, split) for row in rows]
    return np.asarray([value for value in found if value is not None], dtype=float)


def _people(grid: Any, task: str, whole: Results) -> list[tuple[str, str, Results]]:
    """(words, answer, rows) of everybody who answers a task."""
    rows = whole.where(task=task)
    networks = [(f"network, width {w}", NETWORK, rows.where(width=w)) for w in grid.width]
    middle = rows.where(width=grid.middle)
    others = {**NULL_ROWS, **OTHER_ROWS}
    if task_named(task).kind == WHOLE_NUMBERS:  # which lose nothing by rounding
        others = {name: words for name, words in others.items() if "rounded to" not in name}
    return networks + [(words, name, middle) for name, words in others.items()]


COLUMNS = {**{kind: kind for kind in KINDS}, "micro": "all", "macro": "mean of kinds",
           "strict": "every constraint"}  # fmt: skip


def _who(grid: Any, whole: Results) -> Figure:
    heats = []
    for task in grid.tasks:
        people = _people(grid, task, whole)
        values = [
            [mean(_values(rows, name, metric)) for metric in COLUMNS] for _, name, rows in people
        ]
        heats.append(Heat(task, [words for words, _, _ in people], list(COLUMNS.values()), values))
    return heat_maps(
        "Constraints satisfied, by kind and by who answers", heats, row_label="who answers",
        column_label="kind of constraint", value_label="share satisfied", scale=(0.0, 1.0),
        missing="no such constraint",
    )  # fmt: skip


def _table(grid: Any, whole: Results) -> Table:
    rows: list[list[Cell]] = []
    for task in grid.tasks:
        for words, name, here in _people(grid, task, whole):
            if not here:
                continue
            interval = name == NETWORK
            cells = []
            for metric in ("micro", "strict"):
                values = _values(here, name, metric)
                cells.append(interval_text(values, within=SHARE) if interval else _short(values))
            cells.append(_short(_values(here, name, "parsed")))
            error, gap = (_values(here, name, metric) for metric in ("squared_error", "gap"))
            cells += [_small(error), _small(gap)]
            rows.append([task, words, *cells])
    return Table(
        "Who satisfies what, in numbers",
        ["task", "who answers", "all constraints", "every constraint", "readable", "squared error",
         "gap"],
        rows,
        "Means over seeds, with 95 % intervals for networks. Squared error: mean over variables, "
        "in units of their range, of answers that can be read. Gap: how much worse than the "
        "optimum, as a share of it, among answers that satisfy every constraint; a dash where "
        "there are none.",
    )  # fmt: skip


def _short(values: np.ndarray) -> str:
    return f"{values.mean():.3f}" if values.size else "–"


def _small(values: np.ndarray) -> str:
    return f"{values.mean():.2g}" if values.size else "–"


def _sizes(grid: Any, whole: Results) -> Figure:
    shown = []
    for task in grid.tasks:
        rows = whole.where(task=task)
        lines = [
            series_over(rows, "parameters", lambda row, m=metric: seen(row, m), words, shares=True)
            for metric, words in (("micro", "all"), ("box", "box"), ("equality", "equality"),
                                  ("strict", "every constraint"))
        ]  # fmt: skip
        lines += [
            series_over(rows, "parameters", lambda row, n=name: seen(row, "micro", n),
                        f"all, {NULL_ROWS[name]}", shares=True)
            for name in ("guess", "noise")
        ]  # fmt: skip
        shown.append(Panel(task, [line for line in lines if len(line.x)]))
    return panels("Constraints satisfied by parameters", "parameters", SATISFIED, shown,
                  log_x=True, y_range=(-0.02, 1.02))  # fmt: skip


def _lengths(grid: Any, lengths: Results) -> list[Figure]:
    shares, errors = [], []
    for task in grid.tasks:
        rows = lengths.where(task=task)
        shares.append(Panel(task, [
            series_over(rows, "steps", lambda row: seen(row, "micro"), "all constraints",
                        shares=True),
            series_over(rows, "steps", strict, "every constraint", shares=True),
        ]))  # fmt: skip
        copied = series_over(
            rows, "steps", lambda row: seen(row, "squared_error", "copied"), NULL_ROWS["copied"]
        )
        errors.append(Panel(task, [_error(rows), copied]))
    return [
        panels("Constraints satisfied by length of training", "steps", SATISFIED, shares,
               log_x=True, y_range=(-0.02, 1.02)),
        panels("Squared error by length of training", "steps",
               "squared error, in units of each variable's range", errors, log_x=True, log_y=True),
    ]  # fmt: skip


def _error(rows: Results) -> Series:
    """The geometric mean over seeds, on a logarithmic axis."""
    found = series_over(
        rows, "steps", lambda row: np.log(max(seen(row, "squared_error"), LEAST_ERROR)), "network"
    )

    def back(values: Sequence[float | None] | None) -> list[float | None] | None:
        if values is None:
            return None
        return [None if value is None else float(np.exp(value)) for value in values]

    return Series(found.name, found.x, back(found.y) or [], back(found.low), back(found.high))


def _beyond(grid: Any, whole: Results) -> Table:
    rows: list[list[Cell]] = []
    for task in grid.tasks:
        here = whole.where(task=task, width=max(grid.width))
        if not here:
            continue
        table = here[0].readings["constraints"].tables["rows"]
        for split in dict.fromkeys(table["split"]):
            told = "like training" if split == "seen" else split.removeprefix("unseen_")
            numbers = [
                _short(_values(here, NETWORK, metric, split))
                for metric in ("parsed", "micro", "strict")
            ]
            nulls = [
                _short(_values(here, name, "micro", split)) for name in ("guess", "copied", "noise")
            ]
            rows.append([task, told, *numbers, *nulls])
    return Table(
        f"Beyond training, width {max(grid.width)}",
        ["task", "instances", "readable", "all constraints", "every constraint",
         "all: guess", "all: optimum of other data", "all: 1 % noise"],
        rows, "Means over seeds. An answer that cannot be read satisfies nothing.",
    )  # fmt: skip


def _floor(grid: Any, results: Results) -> Table:
    rows: list[list[Cell]] = []
    for task in grid.tasks:
        for width in grid.width:
            for length in results.labels("length"):
                here = results.where(task=task, width=width, length=length)
                if not here:
                    continue
                alive = Results([row for row in here if not row.diverged])
                nulls = [best_null(row) for row in alive]
                own = np.asarray([seen(row, "squared_error") for row in alive])
                theirs = np.asarray([
                    seen(row, "squared_error", name) for row, name in zip(alive, nulls, strict=True)
                ])  # fmt: skip
                rows.append([
                    task, width, here[0].labels["parameters"], here[0].labels["steps"],
                    _short(np.asarray([seen(row, "parsed") for row in alive])),
                    _small(own[np.isfinite(own)]), _small(theirs[np.isfinite(theirs)]),
                    " or ".join(NULL_ROWS[name] for name in dict.fromkeys(nulls)),
                    f"{sum(learnt(row) for row in alive)} of {len(here)}",
                ])  # fmt: skip
    return Table(
        "Networks above the floor",
        ["task", "width", "parameters", "steps", "readable", "squared error",
         "of the best null answer", "which is", "above the floor"],
        rows, "Only networks trained to the end speak about sizes.",
    )  # fmt: skip
