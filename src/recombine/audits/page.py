"""The page of an audit: what is covered, what is missing, what it may cost, how it was read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from recombine.audits.auditing import Audit, Evaluation, Level
from recombine.audits.echoes import cell_of
from recombine.audits.holes import FALSE_ALARMS, Hole
from recombine.audits.known import KNOWN
from recombine.audits.risk_table import risk_table
from recombine.audits.slice_grid import Grid as SliceGrid
from recombine.audits.slices import Worst
from recombine.lab.intervals import Interval
from recombine.report.document import Cell, Figure, Report, Section, Table
from recombine.report.figures import Estimates, Grid, Series, curves, dots, heat_map, heat_maps
from recombine.tables.counting import count

SHOWN = 50  # lines of a table; the CSV has all
NAMED = 10  # rows that a line of the alarms names
WORST = 20
MAPS, WIDEST = 8, 24  # heat maps on a page, and values along one side

ALL_ROWS = "All failing rows are in failing-rows.csv."
NOT_SHOWN = (
    "That what is covered and connected will be handled: both are necessary conditions, known from "
    "networks that learn to combine K of M modules, and neither is sufficient.",
    "Causes: a slice that fails may differ from the rest in something that no column holds.",
    "Anything about values that are in none of the files.",
)


def report_of(audit: Audit, command: str = "", more: Sequence[Section] = ()) -> Report:
    """The whole audit as a report."""
    sections = [
        _alarms(audit), _coverage(audit), _holes(audit), _structure(audit), _exposed(audit),
        *([_evaluated(audit, audit.evaluation)] if audit.evaluation is not None else []),
        _together(audit), *more, _reading(audit),
    ]  # fmt: skip
    return Report(
        study="audit",
        title=f"Audit of {audit.train.source}",
        question="Which combinations does this data cover, which does it lack, and what of it?",
        source="",
        preset=f"{len(audit.train):,} rows, {len(audit.train.factors)} factors",
        verdict_sentence=audit.sentence(),
        sections=[section for section in sections if section is not None],
        not_shown=(KNOWN, *NOT_SHOWN),
        repeat=(("command", command),) if command else (),
        warnings=[f"{what}: {why}" for what, why in audit.why_not.items()],
    )


def document_of(audit: Audit) -> dict[str, Any]:
    """The audit as plain numbers and lists, ready for JSON."""
    evaluation = audit.evaluation
    return {
        "kind": "recombine audit",
        "schema": 1,
        "source": audit.train.source,
        "rows": len(audit.train),
        "factors": {f.name: {"values": f.size, "rule": f.rule} for f in audit.train.factors},
        "sentence": audit.sentence(),
        "min_count": audit.min_count,
        "coverage": [
            {
                "t": c.t, "min_count": c.min_count, "possible": c.possible, "covered": c.covered,
                "share": c.share, "seen_impossible": c.seen_impossible, "why_not": list(c.why_not),
            }
            for c in audit.coverage
        ],
        "connected": [
            {"min_count": c.min_count, "covered": c.covered,
             "connected": c.connected if audit.combines else None,
             "largest_part": c.largest if audit.combines else None}
            for c in audit.connected
        ],
        "findings": [
            {"kind": f.kind, "where": f.where, "sentence": f.sentence, "rows": list(f.rows),
             "more_rows": f.more_rows}
            for f in audit.findings
        ],
        "holes": [_hole_document(audit, hole) for each in audit.holes.values() for hole in each],
        "exposure": None if audit.exposure is None else vars(audit.exposure),
        "overlap": None if audit.overlap is None else vars(audit.overlap),
        "divergences": {name: vars(d) for name, d in audit.divergences.items()},
        "associations": [
            {"first": a.first, "second": a.second, "v": a.strength, "adjusted_p": a.adjusted_p,
             "confounded": a.confounded}
            for a in audit.associations.pairs
        ],
        "evaluation": None if evaluation is None else {
            "levels": [
                {"level": level.name, "rows": level.rows, "combinations": level.combinations,
                 **_ends(level.score)}
                for level in evaluation.levels
            ],
            "risk": evaluation.risk.sentence,
            "beats_additive": evaluation.risk.beats_additive,
            "validated_levels": list(evaluation.risk.validated),
            "validation": [
                {"level": s.level, "model": s.model, "combinations": s.combinations,
                 "rows": s.rows, "log_loss": _ends(s.log_loss), "brier": _ends(s.brier),
                 "auroc": _ends(s.auroc), "log_loss_against_additive": _ends(s.gain)}
                for s in evaluation.risk.scores
            ],
            "calibration": [
                {"predicted": b.predicted, "observed": _ends(b.observed),
                 "combinations": b.combinations, "rows": b.rows}
                for b in evaluation.risk.calibration
            ],
            "slices": [
                {"where": s.label, "rows": s.size, "failures": s.failures, "expected": s.expected,
                 "effect": _ends(s.effect), "adjusted_p": s.adjusted_p,
                 "failing_rows": list(s.ids), "more_failing_rows": s.failures - len(s.ids)}
                for s in evaluation.slices
            ],
            "worst": [
                {"where": w.label, "rows": w.size, "failures": w.failures,
                 "adjusted_p": w.adjusted_p, "expected": w.expected, "beyond_p": w.beyond_p,
                 "failing_rows": list(w.ids), "more_failing_rows": w.failures - len(w.ids)}
                for w in evaluation.worst
            ],
        },
        "rules": {
            "texts": list(audit.rules.texts), "never_possible": list(audit.never_possible),
        },
        "left_out": {
            kind: [[audit.train.names[f] for f in chosen] for chosen in several]
            for kind, several in audit.left_out.items()
        },
        "why_not": dict(audit.why_not),
    }  # fmt: skip


def tables_of(audit: Audit) -> dict[str, Table]:
    """The tables that go to files of their own, by the names of these without .csv.

    The page and the JSON show their first lines alone.
    """
    found = {"holes": holes_table(audit)}
    if audit.evaluation is not None:
        found["failing-rows"] = _failing_rows(audit.evaluation)
    if audit.labels is not None and audit.labels.alarm:
        suspects = [(name,) for name in audit.labels.suspects]
        found["suspect-labels"] = Table("Suspect labels", ("row",), suspects)
    risks = risk_table(audit)
    return found if risks is None else found | {"risk": risks}


def _failing_rows(evaluation: Evaluation) -> Table:
    """Every failing row of every slice and combination that is listed."""
    rows, failed = evaluation.rows, evaluation.outcome < 0.5
    lines: list[Sequence[Cell]] = []

    def note(label: str, inside: np.ndarray) -> None:
        lines.extend((label, name) for name in rows.name_of(np.flatnonzero(inside & failed)))

    grid = SliceGrid.of(rows, failed)
    for one in evaluation.slices:
        items = tuple(
            code + int(grid.starts[place])
            for place, codes in one.assignment.items()
            for code in codes
        )
        note(one.label, grid.holding(items)[grid.inverse])
    numbers = {tuple(codes): number for number, codes in enumerate(grid.codes.tolist())}
    for worst in evaluation.worst:
        note(worst.label, grid.inverse == numbers[worst.codes])
    return Table("Failing rows", ("slice", "row"), lines)


def _listed(names: Sequence[str], total: int) -> str:
    """Names of rows, and how many more there are."""
    left = total - len(names)
    return ", ".join(names) + (f" and {left:,} more" if left else "")


def holes_table(audit: Audit, most: int | None = None) -> Table:
    """The holes, worst first, with what was expected and what is known of each."""
    rows: list[Sequence[Cell]] = []
    for several in audit.holes.values():
        for h in several[:most]:
            rows.append((
                audit.train.label(h.assignment), h.count, h.expected, h.traffic, h.risk,
                h.surprise, _standing(audit, h),
            ))  # fmt: skip
    ranked = next((h.ranked_by for each in audit.holes.values() for h in each), "surprise")
    columns = ("missing", "saw", "expected", "traffic", "risk", "surprise", "standing")
    return Table(
        "Holes", columns, rows,
        f"Ranked by {ranked}. Expected: rows that would hold it if factors were independent. "
        "Surprise: minus the logarithm (base 10) of the chance of so few.",
    )  # fmt: skip


def _standing(audit: Audit, hole: Hole) -> str:
    if not hole.alarm:
        return "may be chance"
    for one in audit.nested:
        if one.pair == frozenset(hole.chosen):
            return one.label(audit.train)
    cause = audit.echoes.get(cell_of(hole))
    if cause is None:
        return "alarm"
    return f"follows from {audit.train.label(dict(zip(*cause, strict=True)))}"


def _alarms(audit: Audit) -> Section:
    found = audit.findings
    table = Table(
        "Alarms", ("kind", "what", "rows"),
        [(f.kind, f.sentence, _listed(f.rows[:NAMED], len(f.rows) + f.more_rows))
         for f in found[:SHOWN]],
        "" if len(found) <= SHOWN else f"{len(found) - SHOWN} more are in audit.json.",
    )  # fmt: skip
    text = "Nothing stands out: no hole that is more than chance, no thin value, one part."
    if not audit.combines:
        text = "Nothing stands out: no thin value. With one factor there is nothing to combine."
    if found:
        text = (
            "Each line is a defect that is no chance: of holes and failing slices at most one in "
            "twenty is expected to be a false alarm."
        )
    return Section("Alarms", text, tables=[table] if found else [])


def _coverage(audit: Audit) -> Section:
    strengths = sorted({c.t for c in audit.coverage})
    lines = [c for t in strengths if (c := audit.covered(t)) is not None and c.possible]
    table = Table(
        f"Coverage, {audit.min_count} or more rows each",
        ("values together", "possible", "covered", "share", "seen though impossible"),
        [(c.t, c.possible, c.covered, c.share, c.seen_impossible) for c in lines],
    )
    series = []
    for t in strengths:
        several = sorted(
            (c for c in audit.coverage if c.t == t and c.share is not None),
            key=lambda c: c.min_count,
        )
        name = {1: "values", 2: "pairs", 3: "triples"}.get(t, f"{t} values")
        series.append(Series(name, [c.min_count for c in several], [c.share for c in several]))
    state = sorted(audit.connected, key=lambda c: c.min_count)
    caption = ""
    if audit.combines:
        series.append(
            Series("values in the largest part", [c.min_count for c in state],
                   [c.largest for c in state])
        )  # fmt: skip
        caption = (
            "Values in the largest part: those that hang together through pairs with at least so "
            "many rows."
        )
    figure = curves(
        "Coverage by how many rows are asked for", "rows at least", "share", series,
        log_x=True, y_range=(0.0, 1.0), caption=caption,
    )  # fmt: skip
    first = next(c for c in state if c.min_count == audit.min_count)
    text = (
        f"With at least {audit.min_count} row each, training "
        f"{'covers every value' if first.covered else 'does not cover every value'} "
        f"({first.covered_values} of {first.possible_values})"
    )
    if audit.combines:
        text += f" and its values are {'connected' if first.connected else 'not connected'}."
    else:
        text += "; with one factor there is nothing to combine."
    maps = _maps(audit)
    return Section("What is covered", text, [figure, *maps], [table])


def _maps(audit: Audit) -> list[Figure]:
    """The pairs of factors with the smallest coverage, as maps of counts."""
    pairs = audit.covered(2)
    if pairs is None:
        return []
    small = [
        part for part in pairs.parts
        if len(set(part.chosen)) == 2
        and max(audit.train.factors[f].size for f in part.chosen) <= WIDEST
    ]  # fmt: skip
    grids = []
    for part in sorted(small, key=lambda part: part.share)[:MAPS]:
        a, b = (audit.train.factors[f] for f in part.chosen)
        table = count(audit.train, part.chosen)
        possible = audit.rules.possible_table(part.chosen)
        values = [
            [int(n) if can else None for n, can in zip(line, row, strict=True)]
            for line, row in zip(table, possible, strict=True)
        ]
        grids.append(Grid(f"{a.name} x {b.name}", a.values, b.values, values))
    if not grids:
        return []
    left = len(pairs.parts) - len(grids)
    more = f" {left} further pairs of factors are not drawn." if left else ""
    return [
        heat_maps(
            "Rows for each pair of values", grids, value_label="rows",
            missing="impossible", caption=f"The least covered pairs of factors first.{more}",
        )
    ]  # fmt: skip


def _holes(audit: Audit) -> Section | None:
    if not audit.combines:
        return None
    if not any(audit.holes.values()):
        searched = "holes" not in audit.left_out
        return Section(
            "What is missing",
            "Every possible pair is there." if searched else "No hole was found among the others.",
        )
    table = holes_table(audit, SHOWN)
    return Section(
        "What is missing",
        "A hole that was expected to have 50 rows is a gap in how data was collected; one that was "
        "expected to have a tenth of a row is what a small file looks like.",
        tables=[table],
    )


def _structure(audit: Audit) -> Section | None:
    rows, tables = audit.train, []
    if audit.thin:
        lines = [(rows.label({t.factor: t.value}), t.count) for t in audit.thin[:SHOWN]]
        tables.append(
            Table(f"Values in fewer than {audit.thin_rows} rows", ("value", "rows"), lines)
        )
    if len(audit.parts) > 1:
        lines = [
            (n, rows.label({f: tuple(v) for f, v in part.items()}))
            for n, part in enumerate(audit.parts[:SHOWN], start=1)
        ]
        tables.append(Table("Parts that never meet", ("part", "values"), lines))
    if audit.forbidden:
        lines = [(rows.label(b.assignment), b.count, b.rule) for b in audit.forbidden[:SHOWN]]
        tables.append(
            Table("Seen though a rule forbids it", ("what", "rows", "rule"), lines,
                  "Either the rule is wrong or these rows are.")
        )  # fmt: skip
    text = " ".join(audit.never_possible)
    return Section("Thin, apart, forbidden", text, tables=tables) if tables or text else None


def _exposed(audit: Audit) -> Section | None:
    if audit.exposure is None and not audit.divergences:
        return None
    tables = []
    if audit.exposure is not None:
        e = audit.exposure
        lines = [("combinations", e.combinations), ("triples", e.triples), ("pairs", e.pairs),
                 ("values", e.values)]  # fmt: skip
        tables.append(Table("Target traffic never trained", ("what is new", "share"), lines))
    if audit.divergences:
        lines = [(name, d.atoms, d.compounds) for name, d in audit.divergences.items()]
        tables.append(
            Table("Divergence from training", ("rows", "of values", "of pairs"), lines,
                  "0: the same frequencies; 1: nothing in common.")
        )  # fmt: skip
    text = "" if audit.exposure is None else f"{audit.exposure.sentence()}."
    return Section("What the target asks for", text, tables=tables)


def levels_figure(levels: Sequence[Level]) -> Figure:
    """The score at each level of novelty; each combination counts once."""
    return dots(
        "Score by how new a combination is", [level.name for level in levels],
        [Estimates(
            "score", [level.score.estimate for level in levels],
            [level.score.low for level in levels], [level.score.high for level in levels],
        )],
        value_label="mean score of a combination", value_range=(0.0, 1.0),
        caption="Each combination counts once. "
        + "; ".join(f"{n.name}: {n.combinations} combinations, {n.rows} rows" for n in levels),
    )  # fmt: skip


def _evaluated(audit: Audit, evaluation: Evaluation) -> Section:
    figure = levels_figure(evaluation.levels)
    risk = evaluation.risk
    tables = []
    if evaluation.slices:
        lines = [
            (s.label, s.size, s.failures / s.size, s.expected, s.effect.low, s.effect.high,
             s.adjusted_p, _listed(s.ids, s.failures))
            for s in evaluation.slices[:SHOWN]
        ]  # fmt: skip
        columns = ("slice", "rows", "fails", "expected", "more, from", "to", "adjusted p",
                   "failing rows")  # fmt: skip
        tables.append(
            Table("Slices that fail", columns, lines,
                  f"At most one in twenty by chance alone. {ALL_ROWS}")
        )  # fmt: skip
    if evaluation.worst:
        lines = [
            (w.label, w.size, w.failures, w.rate.low,
             None if math.isnan(w.expected) else w.expected, _blamed(w),
             _listed(w.ids, w.failures))
            for w in evaluation.worst[:WORST]
        ]  # fmt: skip
        columns = ("combination", "rows", "fail", "failure rate at least", "its values explain",
                   "blame", "failing rows")  # fmt: skip
        tables.append(
            Table("Worst combinations", columns, lines,
                  "A combination is to blame if it fails more than the rest, and more than its "
                  f"values explain one by one. {ALL_ROWS}")
        )  # fmt: skip
    if risk.scores:
        tables.append(risk.table())
    if risk.calibration:
        lines = [
            (b.predicted, b.observed.estimate, b.observed.low, b.observed.high, b.combinations)
            for b in risk.calibration
        ]
        columns = ("predicted", "observed", "from", "to", "combinations")
        tables.append(
            Table("Is the predicted risk right?", columns, lines,
                  "The risk of every combination is in risk.csv.")
        )  # fmt: skip
    return Section(
        "Where it fails", "\n\n".join([risk.sentence, *risk.notes]), [figure], tables
    )  # fmt: skip


def _blamed(worst: Worst) -> str:
    if worst.beyond_p <= FALSE_ALARMS:
        return "the combination"
    return "its values" if worst.adjusted_p <= FALSE_ALARMS else "may be chance"


def _together(audit: Audit) -> Section | None:
    found = audit.associations
    if len(found.names) < 2:
        return None
    matrix = found.matrix()
    shown = [
        [None if i == j or math.isnan(v) else float(v) for j, v in enumerate(row)]
        for i, row in enumerate(matrix)
    ]
    figure = heat_map(
        "How strongly factors go together", found.names, found.names, shown,
        value_label="Cramér's V, corrected for bias", scale=(0.0, 1.0), missing="not compared",
    )  # fmt: skip
    words = [a.sentence for a in found.confounded]
    if audit.labels is not None:
        words.append(audit.labels.sentence())
    text = " ".join(words) or "No two factors are confounded."
    return Section("What goes together", text, [figure], [found.table(SHOWN)])


def _reading(audit: Audit) -> Section:
    lines = [(f.name, f.size, "several a row" if f.many else "one a row", f.rule)
             for f in audit.train.factors]  # fmt: skip
    table = Table("Factors", ("factor", "values", "", "how its values were made"), lines)
    rules = [(text,) for text in audit.rules.texts]
    tables = [table, *([Table("Rules", ("never",), rules)] if rules else [])]
    return Section("How it was read", tables=tables)


def _hole_document(audit: Audit, hole: Hole) -> dict[str, Any]:
    return {
        "what": audit.train.label(hole.assignment), "saw": hole.count, "expected": hole.expected,
        "p_value": hole.p_value, "surprise": hole.surprise, "traffic": hole.traffic,
        "risk": hole.risk, "score": hole.score, "alarm": hole.alarm,
    }  # fmt: skip


def _ends(interval: Interval) -> dict[str, float]:
    return {"value": interval.estimate, "low": interval.low, "high": interval.high}
