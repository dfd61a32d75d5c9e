"""What is written of a run: the table of answers, the page for people, the summary for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine._version import __version__
from recombine.lab.files import canonical_json, write_bytes
from recombine.lab.judge import Judgement, judge
from recombine.lab.study import Results
from recombine.live.kit import Answers, Kit, Question, shuffled
from recombine.report.document import Cell, ClaimRow, Report, Section, Table
from recombine.report.html import render
from recombine.report.tables import to_csv

if TYPE_CHECKING:
    from recombine.live.comparing import Earlier

PAGE, SUMMARY, TABLE = "report.html", "report.json", "table.csv"


def write_page(
    kit: Kit,
    answers: Answers,
    model: str,
    options: Any,
    folder: Path,
    notes: tuple[str, ...] = (),
    command: str = "",
    against: Earlier | None = None,
) -> dict[str, Any]:
    """Writes table.csv, report.html and report.json, and returns what the last holds."""
    compared = kit.compared(answers, against) if against else ()
    judgements = judge([*kit.claims(answers), *compared], Results([]))
    controls = controls_of(kit, answers)
    sections = (*kit.sections(answers), Section("Controls", CONTROLS, tables=[controls]))
    warnings = _warnings(answers, notes)
    verdict = kit.conclusion(answers, judgements)
    report = Report(
        study=kit.name,
        title=(kit.__doc__ or kit.name).split("\n")[0].rstrip("."),
        question=kit.question,
        source=kit.source,
        preset=f"{options.items} items a condition",
        verdict_sentence=verdict,
        claims=tuple(_row(one) for one in judgements),
        sections=sections,
        not_shown=kit.not_shown,
        repeat=(
            ("model", model),
            *((("command", command),) if command else ()),
            ("version", f"recombine {__version__}"),
            ("options", _options(dataclasses.asdict(options))),
            *((("against", f"{against.model}, {_options(against.options)}"),) if against else ()),
        ),
        warnings=warnings,
    )
    summary = {
        "kit": kit.name,
        "model": model,
        "options": dataclasses.asdict(options),
        "recombine": __version__,
        "questions": answers.asked,
        "answered": len(answers),
        "finished": not answers.missing,
        "score": {kit.main: answers.mean(kit.main)},
        "verdict": verdict,
        "warnings": warnings,
        "claims": [one.document() for one in judgements],
        "tables": [_table(table) for section in sections for table in section.tables],
    }
    if against:
        summary["against"] = {"model": against.model, "options": dict(against.options)}
    write_bytes(folder / TABLE, to_csv(answers.table()).encode())
    write_bytes(folder / PAGE, render(report).encode())
    write_bytes(folder / SUMMARY, canonical_json(summary))
    return summary


CONTROLS = (
    "A perfect answerer goes through the same scorer and must get 1; an empty answer must get "
    "nothing. Where the same answers are marked against the gold of other questions, what they "
    "still score comes from their form alone."
)


def controls_of(kit: Kit, answers: Answers) -> Table:
    """The answers beside a perfect answerer, an empty answer and shuffled gold."""

    def mean(say: Any) -> float:
        scores = [kit.score(row.question, say(row.question))[kit.main] for row in answers]
        return sum(scores) / len(scores)

    def nothing(_: Question) -> str:
        return ""

    rows: list[tuple[Cell, ...]] = [
        ("the model", answers.mean(kit.main)),
        ("a perfect answerer", mean(kit.solve)),
        ("an empty answer", mean(nothing)),
    ]
    if kit.within is not None and len(control := shuffled(kit, answers)):
        rows.append(("the model, shuffled gold", control.mean(kit.main)))
    return Table("Controls", ("who", f"mean {kit.main}"), rows)


def _warnings(answers: Answers, notes: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    if answers.missing:
        found.append(
            f"Partial: {answers.missing} of {answers.asked} questions are not answered yet. They "
            "are asked in a mixed order, so what is here is a fair sample, but the intervals are "
            "wider than they will be."
        )
    if cut := sum(row.answer.cut for row in answers):
        found.append(
            f"{cut} answers were cut off at the longest length allowed (--longest); those not "
            "right by then count as ones that could not be read."
        )
    if refused := sum(bool(row.answer.refusal) for row in answers):
        found.append(f"{refused} questions were refused by the model, and count as wrong.")
    if unread := sum(not row.could_be_read for row in answers):
        among = ", those refused among them" if refused else ""
        found.append(
            f"{unread} of {len(answers)} answers could not be read{among}, and count as wrong."
        )
    return (*found, *notes)


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _row(judgement: Judgement) -> ClaimRow:
    claim, told = judgement.claim, judgement.document()
    estimate, low, high = told["interval"] or (None, None, None)
    _, adjusted_low, adjusted_high = told["adjusted"] or (None, None, None)
    return ClaimRow(
        claim.name, claim.sentence, claim.criterion, judgement.verdict,  # type: ignore[arg-type]
        estimate, low, high, adjusted_low, adjusted_high, told["units"], claim.unit,
        judgement.note, claim.meets,
    )  # fmt: skip


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [list(r) for r in table.rows],
    }
