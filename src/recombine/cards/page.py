"""The page of a card: the decision first, then the worst, why, and what to collect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from recombine.audits.page import levels_figure
from recombine.cards.card import Card
from recombine.cards.gates import SCHEMA, Change
from recombine.probing.words import sentence
from recombine.report.document import Cell, Report, Section, Table

SHOWN = 20

SILENT = (
    "No slice with rows enough to tell fails more than the rest beyond chance; what fails at all "
    "follows."
)

NOT_SHOWN = (
    "Why the model fails: the reasons given are what training had of a combination, which is a "
    "likely cause and not a proven one.",
    "Combinations that were not evaluated, and rows of another kind than these.",
    "That a factor which can be read off activations is used.",
)


def report_of(
    card: Card, command: str = "", changes: Sequence[Change] = (), broken: Sequence[str] = ()
) -> Report:
    """The whole card as a report."""
    sections = [
        *_rules(broken, changes), _worst(card), _levels(card), _collect(card), _swaps(card),
        _probes(card), _training(card), _problems(card), _absent(card),
    ]  # fmt: skip
    return Report(
        study="card",
        title=f"{card.model} on {card.rows.source}",
        question="Does this model handle combinations it was never trained on?",
        source="",
        preset=f"{len(card.rows):,} rows, {len(card.rows.factors)} factors",
        verdict_sentence=card.decision.sentence,
        sections=[section for section in sections if section is not None],
        not_shown=NOT_SHOWN,
        repeat=(("command", command),) if command else (),
    )


def document_of(
    card: Card, changes: Sequence[Change] = (), broken: Sequence[str] = ()
) -> dict[str, Any]:
    """The card for machines; `schema` changes when a field changes its meaning."""
    d = card.decision
    return {
        "kind": "recombine card",
        "schema": SCHEMA,
        "model": card.model,
        **card.subject,
        "decision": {
            "verdict": d.verdict, "sentence": d.sentence,
            "more_combinations": d.more_combinations, "more_rows": d.more_rows,
        },
        "numbers": {name: asdict(number) for name, number in card.numbers.items()},
        "worst": [
            {"combination": w.label, "rows": w.size, "failures": w.failures,
             "adjusted_p": w.adjusted_p, "failing_rows": list(w.ids),
             "why": card.reasons[w.label].sentence, "level": card.reasons[w.label].level}
            for w in card.worst
        ],
        "slices": [
            {"where": s.label, "rows": s.size, "failures": s.failures, "expected": s.expected,
             "adjusted_p": s.adjusted_p, "failing_rows": list(s.ids)}
            for s in card.slices
        ],
        "collect": card.recommended,
        "swaps": [
            {"factor": s.factor, "pairs": s.pairs,
             "leaks": None if s.leaks is None else s.leaks.estimate,
             "responds": None if s.responds is None else s.responds.estimate,
             "examples": [list(each) for each in s.examples]}
            for s in card.swaps.found
        ],
        "probes": [] if card.probe is None else [
            {"factor": t.name, "verdict": t.verdict.answer, "layer": t.layer}
            for t in card.probe.targets
        ],
        "problems": [str(problem) for problem in card.answered.problems],
        "why_not": dict(card.why_not),
        "broken_rules": list(broken),
        "changes": [asdict(change) for change in changes],
    }  # fmt: skip


def _rules(broken: Sequence[str], changes: Sequence[Change]) -> list[Section]:
    found = []
    if broken:
        found.append(Section("Rules that do not hold", "\n\n".join(broken)))
    if changes:
        lines: list[Sequence[Cell]] = [
            (c.name, c.then, c.now, "worse" if c.worse else "") for c in changes
        ]
        text = (
            "Worse: the two intervals do not touch, or a number without one is worse at all."
            if any(c.worse for c in changes)
            else "Nothing is worse than its interval and the older one's allow."
        )
        found.append(
            Section("Since the older card", text,
                    tables=[Table("Then and now", ("number", "then", "now", ""), lines)])
        )  # fmt: skip
    return found


def _worst(card: Card) -> Section | None:
    if card.outcome is None:
        return None
    if not card.worst:
        return Section("Where it fails", "No row fails.")
    lines = [
        (w.label, w.size, w.failures, w.rate.low, card.reasons[w.label].sentence, ", ".join(w.ids))
        for w in card.worst[:SHOWN]
    ]
    columns = ("combination", "rows", "fail", "rate at least", "why, probably", "failing rows")
    tables = []
    if card.slices:
        tables.append(
            Table(
                "Slices that fail more than the rest",
                ("slice", "rows", "fails", "expected", "adjusted p", "failing rows"),
                [(s.label, s.size, s.rate, s.expected, s.adjusted_p, ", ".join(s.ids))
                 for s in card.slices[:SHOWN]],
                "At most one in twenty by chance alone.",
            )
        )  # fmt: skip
    tables.append(Table("Worst combinations", columns, lines))
    text = (
        "Slices are the shortest descriptions of what fails; then single combinations, ranked by "
        "the lower bound of their failure rate."
        if card.slices
        else SILENT
    )
    return Section("Where it fails", text, tables=tables)


def _levels(card: Card) -> Section | None:
    if not card.levels:
        return None
    text = card.audit.evaluation.risk.sentence if card.audit and card.audit.evaluation else ""
    return Section("Trained and new combinations", text, [levels_figure(card.levels)])


def _collect(card: Card) -> Section | None:
    if card.audit is None or "what to collect" in card.why_not:
        return None
    if not card.plans:
        return Section("What to collect next", "All pairs and triples are trained already.")
    text = " ".join(plan.summary for plan in card.plans)
    return Section(
        "What to collect next",
        f"{text} What fails counts by how much it fails; pairs that training lacks come first, "
        "then triples.",
        tables=[plan.combinations_table() for plan in card.plans],
    )


def _swaps(card: Card) -> Section | None:
    found = card.swaps.found
    if not found:
        return None
    lines = [
        (s.factor, s.pairs, *_ends(s.leaks), *_ends(s.responds)) for s in found
    ]  # fmt: skip
    columns = ("factor changed", "pairs", "leaks", "from", "to", "responds", "from", "to")
    tables = [
        Table("Change one factor", columns, lines,
              "Leaks: an answer about something else changed (0 is right). Responds: the answer "
              "about the factor itself changed (1 is right).")
    ]  # fmt: skip
    examples = [(s.factor, *each) for s in found for each in s.examples[:5]]
    if examples:
        tables.append(
            Table("What changed and should not", ("factor", "row", "row", "what"),
                  examples[:SHOWN])
        )  # fmt: skip
    how = "by putting other values into rows" if card.swaps.made else "in rows that are there"
    text = f"Changed {how}; no labels are needed."
    return Section("Swap and invariance", text, tables=tables)


def _probes(card: Card) -> Section | None:
    if card.probe is None:
        return None
    lines = []
    for one in card.probe.targets:
        score = one.scores[0] if one.scores else None
        lines.append((
            one.name, one.verdict.answer, one.layer,
            *((None,) * 4 if score is None else
              (score.across.estimate, score.within.estimate if score.within else None,
               score.chance, score.control)),
        ))  # fmt: skip
    columns = ("factor", "answer", "layer", "new combinations", "known ones", "chance", "control")
    table = Table("Linear probes", columns, lines)
    return Section(
        "What its activations tell", " ".join(sentence(t) for t in card.probe.targets),
        tables=[table],
    )  # fmt: skip


def _training(card: Card) -> Section | None:
    if card.audit is None:
        return None
    lines = [(f.kind, f.sentence) for f in card.audit.findings if f.kind != "failing slice"]
    tables = [Table("Alarms of the training data", ("kind", "what"), lines[:SHOWN])]
    return Section(
        "What it was trained on", card.audit.sentence(), tables=tables if lines else []
    )  # fmt: skip


def _problems(card: Card) -> Section | None:
    problems = card.answered.problems
    if not problems:
        return None
    lines = [(problem.kind, str(problem)) for problem in problems[:SHOWN]]
    more = len(problems) - len(lines)
    return Section(
        "What went wrong on the way",
        f"And {more:,} more, which card.json lists." if more else "",
        tables=[Table("Problems", ("kind", "what"), lines)],
    )


def _absent(card: Card) -> Section:
    lines = list(card.why_not.items())
    return Section(
        "What did not apply", tables=[Table("Not applied", ("instrument", "why"), lines)]
    )  # fmt: skip


def _ends(interval: Any) -> tuple[Cell, Cell, Cell]:
    if interval is None:
        return (None, None, None)
    return (interval.estimate, interval.low, interval.high)
