"""From a study's outcome in a store to its report: the only glue between the lab and the page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from recombine._version import __version__
from recombine.instruments._instrument import check_controls
from recombine.lab.files import canonical_json, write_bytes
from recombine.lab.identity import canonical, node_id
from recombine.lab.judge import Judgement
from recombine.lab.run import Outcome, Request
from recombine.lab.statistics import Interval
from recombine.lab.store import Store
from recombine.report.document import ClaimRow, Report
from recombine.report.html import render


def report_of(outcome: Outcome) -> Report:
    """A study's report. It holds nothing volatile, so the same store gives the same bytes."""
    request = outcome.request
    study, grid = request.study, request.grid
    _check_controls(outcome)
    sections = study.sections(grid, outcome.results) if len(outcome.results) else []
    return Report(
        study=study.name,
        title=(study.__doc__ or study.name).split("\n")[0].rstrip("."),
        question=study.question,
        source=study.source,
        preset=" with ".join(filter(None, [request.preset, _settings(request)])),
        verdict_sentence=study.conclusion(outcome.judgements),
        claims=tuple(_row(j) for j in sorted(outcome.judgements, key=_untested)),
        sections=tuple(sections),
        not_shown=study.not_shown,
        repeat=_repeat(outcome),
        warnings=tuple(what_is_missing(outcome)),
    )


def what_is_missing(outcome: Outcome) -> list[str]:
    """What of the grid is missing, diverged, failed or cannot be."""
    warnings = []
    if outcome.missing:
        warnings.append(
            f"{outcome.missing} cells are not finished: the verdicts below are preliminary."
        )
    if outcome.results.diverged:
        warnings.append(f"{outcome.results.diverged} members diverged and are left out of means.")
    warnings += [f"{name} failed: {reason}" for name, reason in outcome.failed[:10]]
    if outcome.infeasible:
        reasons = sorted({reason for _, reason in outcome.infeasible})
        shown = "; ".join(reasons[:3]) + (" …" if len(reasons) > 3 else "")
        warnings.append(f"{len(outcome.infeasible)} cells of the grid cannot exist: {shown}")
    return warnings


def summary_of(outcome: Outcome) -> dict[str, Any]:
    """The same for machines: verdicts, intervals and where they come from."""
    request = outcome.request
    return {
        "study": request.study.name,
        "preset": request.preset,
        "settings": dict(request.settings),
        "command": dict(_repeat(outcome))["command"],
        "grid": canonical(request.grid),
        "recombine": __version__,
        "finished": outcome.finished,
        "cells": len(outcome.results),
        "missing": outcome.missing,
        "failed": len(outcome.failed),
        "infeasible": len(outcome.infeasible),
        "diverged": outcome.results.diverged,
        "devices": _devices(outcome),
        "verdict": request.study.conclusion(outcome.judgements),
        "claims_id": claims_id(outcome),
        "claims": [j.document() for j in outcome.judgements],
    }


def write_report(store: Store, outcome: Outcome, to: Path | None = None) -> tuple[Path, Path]:
    """Writes the page and the summary; returns both paths."""
    folder = to or store.path / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{outcome.request.name}.html"
    numbers = folder / f"{outcome.request.name}.json"
    write_bytes(page, render(report_of(outcome)).encode())
    write_bytes(numbers, canonical_json(summary_of(outcome)))
    return page, numbers


def claims_id(outcome: Outcome) -> str:
    """A fingerprint of the claims and criteria, to show that they did not change after the run."""
    told = [(j.claim.name, j.claim.sentence, j.claim.criterion) for j in outcome.judgements]
    return node_id(told)[:12]


def _check_controls(outcome: Outcome) -> None:
    instruments = {i.name: i for cell in outcome.request.cells()
                   for i in cell.instruments}  # fmt: skip
    for row in outcome.results:
        for name, reading in row.readings.items():
            if name in instruments:
                check_controls(instruments[name], reading)


def _untested(judgement: Judgement) -> bool:
    """What was tested comes first; the order of the claims is kept otherwise."""
    return judgement.verdict == "not tested here"


def _row(judgement: Judgement) -> ClaimRow:
    claim = judgement.claim

    def ends(interval: Interval | None) -> tuple[float | None, float | None]:
        if interval is None:
            return None, None
        low, high = interval.low, interval.high
        return (low if math.isfinite(low) else None, high if math.isfinite(high) else None)

    low, high = ends(judgement.interval)
    adjusted_low, adjusted_high = ends(judgement.adjusted)
    estimate = None if judgement.interval is None else judgement.interval.estimate
    return ClaimRow(
        claim.name, claim.sentence, claim.criterion, judgement.verdict,  # type: ignore[arg-type]
        estimate if estimate is not None and math.isfinite(estimate) else None,
        low, high, adjusted_low, adjusted_high,
        0 if judgement.interval is None else judgement.interval.units, claim.unit,
        judgement.note, claim.meets,
    )  # fmt: skip


def _devices(outcome: Outcome) -> list[str]:
    return sorted(
        {f"{row.compute.get('kind', '?')} ({row.compute.get('precision', '?')})"
         for row in outcome.results}
    )  # fmt: skip


def _settings(request: Request) -> str:
    """What was set otherwise than the preset has it, as it is typed."""
    return " ".join(f"{name}={value}" for name, value in sorted(request.settings.items()))


def _repeat(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    request = outcome.request
    command = f"recombine run {request.study.name} --preset {request.preset}"
    if settings := _settings(request):
        command += f" --set {settings}"
    return (
        ("command", command),
        ("version", f"recombine {__version__}"),
        ("devices", ", ".join(_devices(outcome)) or "none yet"),
        ("cells", str(len(outcome.results))),
        ("claims", f"fingerprint {claims_id(outcome)}, fixed in the study's source"),
        ("grid", ", ".join(f"{k}={v}" for k, v in canonical(request.grid).items()
                           if k not in ("kind", "version"))),
    )  # fmt: skip
