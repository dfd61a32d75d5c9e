"""A run put against an earlier one over the same instances: another model, or other words."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recombine.constraints.problem import READABLE
from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import parse_json, read_bytes
from recombine.lab.study import Evidence, NotTested
from recombine.live.differences import mean_within
from recombine.live.kit import Answers, Kit, Question, enough
from recombine.live.page import SUMMARY, TABLE
from recombine.tables.sources import long_cells


@dataclass(frozen=True)
class Earlier:
    """A finished run: whose it is, how it was asked, and its scores by the id of the question."""

    model: str
    options: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, str]]

    def values(self, answers: Answers, score: str) -> list[float]:
        """What it scored on the questions of these answers, in their order."""
        return [float(self.scores[row.question.id][score]) for row in answers]


def earlier(folder: str | Path, kit: Kit, questions: Sequence[Question]) -> Earlier:
    """The run that a folder holds, once it is sure that it answered these instances.

    Answers to further instances do not matter.
    """
    if not kit.paired:
        raise InvalidRequest(f"runs of {kit.name} cannot be put against one another")
    summary, rows = _summary(Path(folder), kit), _rows(Path(folder))
    for name in ("id", *kit.paired):
        if any(name not in row for row in rows):
            raise InvalidRequest(f"{Path(folder) / TABLE} has no column {name!r}: run it again")
    there = {row["id"]: row for row in rows}
    same = [q for q in questions if q.id in there and _about(q, there[q.id], kit.paired)]
    if len(same) < len(questions):
        raise InvalidRequest(
            f"{folder} answered {len(same)} of these {len(questions)} instances, but all are "
            f"needed: ask as it was asked ({_asked(summary['options'])})"
        )
    return Earlier(summary["model"], summary["options"], {q.id: there[q.id] for q in questions})


def difference(answers: Answers, other: Earlier, score: str, on: str = "") -> Evidence:
    """How much more these answers score than the earlier ones, instance by instance."""
    enough(len(answers), f"answers{on}")
    read = sum(other.values(answers, "parsed")) / len(answers)
    if read < READABLE:
        raise NotTested(
            f"Only {read:.2f} of the earlier run's answers{on} could be read; it takes "
            f"{READABLE:.2f}."
        )
    own = np.asarray(answers.values(score), float)
    return mean_within(own - np.asarray(other.values(answers, score)), -1, 1)


def _summary(folder: Path, kit: Kit) -> dict[str, Any]:
    try:
        found = parse_json(read_bytes(folder / SUMMARY))
        whose = found["kit"]
        if not (isinstance(found["model"], str) and isinstance(found["options"], dict)):
            raise TypeError
    except (StoreError, KeyError, TypeError):
        raise InvalidRequest(
            f"{folder} holds no run: give the folder of a finished run of {kit.name}, its --to"
        ) from None
    if whose != kit.name:
        raise InvalidRequest(f"{folder} holds a run of {whose}: give one of {kit.name}")
    if not found.get("finished"):
        raise InvalidRequest(
            f"{folder} holds a run that is not finished ({found.get('answered')} of "
            f"{found.get('questions')} answered): run its command again first"
        )
    return found


def _rows(folder: Path) -> list[dict[str, str]]:
    try:
        text = read_bytes(folder / TABLE).decode()
        with long_cells():
            return list(csv.DictReader(io.StringIO(text, newline="")))
    except (StoreError, UnicodeDecodeError, csv.Error):
        raise InvalidRequest(f"{folder / TABLE} cannot be read: run its command again") from None


def _about(question: Question, row: Mapping[str, str], columns: Sequence[str]) -> bool:
    # A text that a spreadsheet would take for a formula was written with a quote in front.
    return all(row[name].removeprefix("'") == str(question.columns[name]) for name in columns)


def _asked(options: Mapping[str, Any]) -> str:
    """The options that say which instances a run was asked, as they are typed."""
    given = [f"--{name} {options[name]}" for name in ("items", "seed") if name in options]
    tasks = [f"--set tasks={','.join(options['tasks'])}"] if options.get("tasks") else []
    return " ".join([*given, *tasks])
