"""The page of a reading: the verdict first, then layers, controls, curve and pairs."""

from __future__ import annotations

import math
from pathlib import Path

from recombine._version import __version__
from recombine.lab.files import canonical_json, make_folder, write_bytes
from recombine.lab.intervals import Interval
from recombine.probing.readings import ProbeReading, TargetReading
from recombine.probing.verdicts import READABLE, TOO_FEW
from recombine.probing.words import document, pair_sentence, remarks, sentence
from recombine.report.document import Cell, ClaimRow, Figure, Report, Section, Table, Verdict
from recombine.report.figures import Estimates, Series, curves, dots
from recombine.report.html import render
from recombine.report.tables import to_csv

PAGE, SUMMARY, TABLE = "report.html", "report.json", "layers.csv"
CELLS = 12
NOT_SHOWN = (
    "A factor that is readable need not be used: a probe says what is there, not what the model "
    "does with it.",
    "A factor that is not readable by a linear probe may still be there in another form.",
    "Combinations are held out of the probe. Whether the model itself was trained on them is not "
    "known here.",
)


def write_page(
    reading: ProbeReading, folder: str | Path, *, source: str = "", command: str = ""
) -> Path:
    """Writes report.html, report.json and layers.csv, and gives the page's path."""
    place = Path(folder)
    make_folder(place)
    write_bytes(place / TABLE, to_csv(layer_table(reading)).encode())
    write_bytes(place / SUMMARY, canonical_json(document(reading)))
    write_bytes(place / PAGE, render(report(reading, source=source, command=command)).encode())
    return place / PAGE


def report(reading: ProbeReading, *, source: str = "", command: str = "") -> Report:
    """The reading as a report."""
    told = [sentence(one) for one in reading.targets]
    told += [pair_sentence(one) for one in reading.pairs]
    sections = [section for one in reading.targets for section in _sections(one)]
    if reading.pairs:
        sections.append(_pairs(reading))
    return Report(
        study="probe",
        title="What can be read off the activations",
        question="Is a factor linearly readable, also in combinations the probe has never seen?",
        source=source,
        preset=f"{reading.folds} folds of combinations",
        verdict_sentence=" ".join(told),
        claims=tuple(_claim(one, reading) for one in reading.targets),
        sections=tuple(sections),
        not_shown=NOT_SHOWN,
        repeat=(
            *((("command", command),) if command else ()),
            ("version", f"recombine {__version__}"),
            ("seed", str(reading.seed)),
            ("rows and combinations", f"{reading.rows}, {reading.combinations}"),
            ("bars", reading.bars.sentence(reading.folds)),
        ),
        warnings=(*reading.notes, *(r for one in reading.targets for r in remarks(one))),
    )


def layer_table(reading: ProbeReading) -> Table:
    """Every target in every layer: scores with intervals, and the control task's."""
    rows: list[tuple[Cell, ...]] = []
    for one in reading.targets:
        for layer in one.layers:
            rows.append(
                (one.name, layer.layer, layer.features, one.scores[0].metric,
                 *_three(layer.across), *_three(layer.within), layer.control)
            )  # fmt: skip
    columns = ("target", "layer", "features", "metric", "never seen", "low", "high",
               "seen", "seen low", "seen high", "control")  # fmt: skip
    return Table("Scores by layer", columns, rows)


def _claim(one: TargetReading, reading: ProbeReading) -> ClaimRow:
    answer = one.verdict.answer
    verdict: Verdict = "refuted"
    if answer in (READABLE, TOO_FEW):
        verdict = "supported" if answer == READABLE else "inconclusive"
    estimate, low, high = _three(one.skill)
    return ClaimRow(
        name=one.name,
        sentence=f"{one.name} is readable for combinations never seen.",
        criterion=f"skill above {reading.bars.least:g}",
        verdict=verdict,
        estimate=estimate,
        low=low,
        high=high,
        units=reading.combinations,
        unit_name="combinations",
        note=f"{answer}: {one.verdict.why}",
        meets=(reading.bars.least, None),
    )


def _sections(one: TargetReading) -> list[Section]:
    if not one.scores:
        return [Section(one.name, f"{sentence(one)} It is {one.said}.")]
    first = one.scores[0]
    text = (
        f"It is {one.said}. Layers are chosen by the training folds alone; the layer preferred "
        f"most is {one.layer}."
    )
    table = Table(
        "Scores of the chosen layer",
        ("metric", "never seen", "low", "high", "seen", "chance", "control task", "selectivity"),
        [(s.metric, *_three(s.across), None if s.within is None else _plain(s.within.estimate),
          _plain(s.chance), _plain(s.control), _plain(s.across.estimate - s.control))
         for s in one.scores],
        note="On combinations never seen, and on new rows of combinations seen. Selectivity is the "
        "score on the former less that of the control task.",
    )  # fmt: skip
    controls = Table(
        "Controls",
        ("control", first.metric, "what it means"),
        [(c.name, None if c.score is None else _plain(c.score), c.means) for c in one.controls],
    )
    figures = [_layers(one)]
    if one.curve is not None and len(one.curve.scores) > 1:
        figures.append(_curve(one))
    return [Section(one.name, text, figures=figures, tables=[table, controls])]


def _layers(one: TargetReading) -> Figure:
    names = [layer.layer for layer in one.layers]
    first = one.scores[0]
    series = [_estimates("combinations never seen", [layer.across for layer in one.layers])]
    within = [layer.within for layer in one.layers]
    if any(within):
        series.append(_estimates("new rows of combinations seen", within))
    control = [_plain(layer.control) for layer in one.layers]
    series.append(Estimates("control task, never seen", control))
    return dots(
        f"{one.name} by layer", names, series, value_label=first.metric, category_label="layer",
        references=[(first.chance, "chance")] if math.isfinite(first.chance) else [],
        caption="Bars are 95 % intervals over combinations.",
    )  # fmt: skip


def _curve(one: TargetReading) -> Figure:
    assert one.curve is not None
    threes = [_three(score) for score in one.curve.scores]
    line = Series(
        "combinations never seen",
        [float(size) for size in one.curve.combinations],
        [t[0] for t in threes],
        [t[1] for t in threes],
        [t[2] for t in threes],
    )
    return curves(
        f"{one.name} by number of combinations", "training combinations", one.scores[0].metric,
        [line], log_x=True, references=[(one.scores[0].chance, "chance")],
        caption=f"Layer {one.layer}; {one.curve.said}.",
    )  # fmt: skip


def _pairs(reading: ProbeReading) -> Section:
    rows: list[tuple[Cell, ...]] = [
        (" with ".join(p.factors), p.answer, p.pair, p.singles, *_three(p.gain))
        for p in reading.pairs
    ]
    tables = [Table("Pairs", ("pair", "answer", "at once", "apart", "gain", "low", "high"), rows)]
    tables += [
        Table(
            f"{' with '.join(p.factors)}: where the pair probe gains most",
            ("pair of values", "rows", "right at once", "right apart"),
            p.cells[:CELLS],
        )
        for p in reading.pairs
        if p.cells and p.answer.startswith("readable")
    ]
    text = (
        "A pair probe is asked for both values at once; two single probes are right if both are. "
        "All are scored on combinations they have not seen. A gain means that activations hold "
        "something about the pair that is not a sum of its parts."
    )
    return Section("Pairs", text, tables=tables)


def _estimates(name: str, found: list[Interval] | list[Interval | None]) -> Estimates:
    threes = [_three(one) for one in found]
    return Estimates(
        name, [t[0] for t in threes], [t[1] for t in threes], [t[2] for t in threes]
    )  # fmt: skip


def _three(one: Interval | None) -> tuple[float | None, float | None, float | None]:
    if one is None:
        return None, None, None
    return _plain(one.estimate), _plain(one.low), _plain(one.high)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
