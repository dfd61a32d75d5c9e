"""What answers without competence satisfy on the same instances, and what the page shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.constraints import baselines
from recombine.constraints.family import Answer, ConstrainedFamily
from recombine.constraints.problem import KINDS, Problem, judge
from recombine.constraints.prompts import parse
from recombine.constraints.tasks import task_named
from recombine.live.kit import Answers, Question
from recombine.report.document import Cell, Section, Table
from recombine.report.figures import Grid, heat_maps

WORDS = {
    "guess": "a guess without thought",
    "copied": "optimum of other data",
    "noise": "optimum with 1 % noise",
    "rounded to 2": "optimum, 2 decimals",
    "rounded to 4": "optimum, 4 decimals",
    "optimum": "the optimum",
}
COLUMNS = {
    **{kind: kind for kind in KINDS}, "micro": "all", "macro": "mean of kinds",
    "strict": "every constraint",
}  # fmt: skip
WRONG_SHOWN = 6


@cache
def family_of(task: str) -> ConstrainedFamily[Any]:
    return task_named(task).made()


def problem_of(question: Question) -> Problem:
    """The instance a question is about."""
    columns: Mapping[str, Any] = question.columns
    return family_of(columns["task"]).read(columns["instance"])


def null_answers(answers: Answers) -> dict[str, list[Answer]]:
    """What would be answered to the instances of one task without competence."""
    family = family_of(answers[0]["task"])
    problems, optima = _instances(answers)
    rng = family.rng(0, "live/noise")
    return baselines.answers(family, problems, optima, rng, decimals=(2, 4))


def null_shares(answers: Answers) -> dict[str, Float[np.ndarray, "item"]]:
    """The share of constraints that each null answer satisfies, item by item, over all tasks."""
    found: dict[str, dict[str, float]] = {}
    for task in answers.labels("task"):
        part = answers.where(task=task)
        problems, _ = _instances(part)
        for name, given in null_answers(part).items():
            shares = [judge(p, x).micro for p, x in zip(problems, given, strict=True)]
            ids = [row.question.id for row in part]
            found.setdefault(name, {}).update(zip(ids, shares, strict=True))
    return {
        name: np.asarray([each[row.question.id] for row in answers]) for name, each in found.items()
    }


def told(answers: Answers) -> str:
    """One task in a few words: the model, beside the better of a guess and of noise."""
    rows = rows_of(answers)
    model = rows["the model"]
    null = max((WORDS["guess"], WORDS["noise"]), key=lambda words: rows[words]["micro"])
    return (
        f"{answers[0]['task']} {model['micro']:.2f} of the constraints ({null}: "
        f"{rows[null]['micro']:.2f}), every one in {model['strict']:.2f} of the answers"
    )


def sections(answers: Answers) -> list[Section]:
    found = [
        Section(
            "Who satisfies what",
            "Each row is somebody who answers the same instances: the model, and below it answers "
            "that take no competence. A share of satisfied constraints is not a grade: boxes are "
            "nearly free, an equality forgives nothing. Read the model against the rows below, and "
            "read “every constraint” before “all”. An answer that cannot be read satisfies "
            "nothing.",
            figures=[_figure(answers)],
            tables=[_table(answers)],
        )
    ]
    if wrong := [row for row in answers if row["strict"] != 1]:
        found.append(Section("Some answers that break constraints", tables=[_wrong(wrong)]))
    return found


def _instances(answers: Answers) -> tuple[list[Problem], list[Answer]]:
    problems = [problem_of(row.question) for row in answers]
    optima = [parse(p, row.question.gold) for p, row in zip(problems, answers, strict=True)]
    return problems, optima


def _model(answers: Answers) -> dict[str, float]:
    """The model's own row; kinds are pooled over all instances."""
    kinds = {}
    for kind in KINDS:
        asked = sum(answers.values(f"{kind} asked"))
        if asked:
            kinds[kind] = sum(answers.values(f"{kind} held")) / asked
    asked, held = (
        sum(sum(answers.values(f"{kind} {what}")) for kind in KINDS) for what in ("asked", "held")
    )
    return {**kinds, "micro": held / asked, "macro": float(np.mean(list(kinds.values()))),
            "strict": answers.mean("strict"), "parsed": answers.mean("parsed")}  # fmt: skip


def rows_of(answers: Answers) -> dict[str, dict[str, float]]:
    """Everybody who answers the instances of one task."""
    problems, optima = _instances(answers)
    nulls = null_answers(answers)
    whole = all(variable.whole for variable in problems[0].variables)
    rated = {
        words: baselines.rated(problems, optima, nulls[name])
        for name, words in WORDS.items()
        if not (whole and name.startswith("rounded"))  # whole numbers lose nothing
    }
    return {"the model": _model(answers), **rated}


def _figure(answers: Answers) -> Any:
    heats = []
    for task in answers.labels("task"):
        rows = rows_of(answers.where(task=task))
        values = [[numbers.get(column) for column in COLUMNS] for numbers in rows.values()]
        heats.append(Grid(task, list(rows), list(COLUMNS.values()), values))
    return heat_maps(
        "Constraints satisfied, by kind and by who answers", heats, row_label="who answers",
        column_label="kind of constraint", value_label="share satisfied", scale=(0.0, 1.0),
        missing="no such constraint",
    )  # fmt: skip


def _table(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in answers.labels("task"):
        part = answers.where(task=task)
        whole = part.rate("strict")
        feasible = part.where(strict=1.0)
        for words, numbers in rows_of(part).items():
            own = words == "the model"
            gap = feasible.mean("gap") if own and len(feasible) else numbers.get("gap")
            read = [row["squared_error"] for row in part if row["parsed"]]
            error = (float(np.mean(read)) if read else None) if own else numbers["squared_error"]
            every = f"{numbers['strict']:.2f}"
            every += f" [{whole.low:.2f}, {whole.high:.2f}]" if own else ""
            rows.append((task, words, f"{numbers['micro']:.2f}", every, f"{numbers['parsed']:.2f}",
                         _small(error), _small(gap), len(part)))  # fmt: skip
    columns = ("task", "who answers", "all constraints", "every constraint", "readable",
               "squared error", "gap", "items")  # fmt: skip
    note = (
        "The interval of the share of answers that satisfy everything is Clopper and Pearson's. "
        "Squared error: mean over variables in units of their range, at most 1, of answers that "
        "can be read. Gap: how much worse than the optimum, among answers that satisfy everything."
    )
    return Table("Who satisfies what, in numbers", columns, rows, note)


def _small(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _wrong(rows: list[Any]) -> Table:
    by_task = {}
    for row in reversed(rows):
        by_task[row["task"], row["part"]] = row
    shown = []
    for row in list(by_task.values())[::-1][:WRONG_SHOWN]:
        broken = [
            f"{row[f'{kind} asked'] - row[f'{kind} held']:.0f} {kind}"
            for kind in KINDS
            if row[f"{kind} asked"] > row[f"{kind} held"]
        ]
        what = ", ".join(broken) if row["parsed"] else "could not be read"
        shown.append((row.question.id, what, row.answer.text[-160:]))
    return Table(
        "Some answers that break constraints", ("question", "broken", "said"), shown,
        "The end of each answer; all of them, with their prompts, are in table.csv.",
    )  # fmt: skip
