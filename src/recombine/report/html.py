"""One self-contained HTML file from a Report: no script, no request, nothing that changes."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..studies import PRESETS
from .document import VERDICTS, ClaimRow, Figure, Report, Table, overall, readable
from .figures_interval import interval_bar
from .figures_svg import clean
from .tables import decimals_for, formatted, interval, number

SYMBOLS = {
    "supported": "✓",
    "refuted": "✕",
    "inconclusive": "?",
    "not tested here": "○",
    "mixed": "±",
}


def render(report: Report) -> str:
    """The report as HTML; the same report always gives the same bytes.

    >>> page = render(Report("s", "Title", "Why?", "", "quick", "Nothing was tested."))
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    style = _resource("style.css")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.from_string(_resource("template.html.j2"))
    drawings = _Drawings()
    return template.render(
        report=report,
        style=Markup(style),
        policy=_policy(style),
        overall=overall(report.claims),
        presets=PRESETS,
        counts=[(v, n) for v in VERDICTS if (n := sum(c.verdict == v for c in report.claims))],
        symbols=SYMBOLS,
        claims=[_claim(claim) for claim in report.claims],
        sections=[
            (f"s{i}-{_slug(section.title)}", section)
            for i, section in enumerate(report.sections, start=1)
        ],
        paragraphs=_paragraphs,
        cells=_cells,
        drawing=drawings.next,
        base64=lambda data: base64.b64encode(data).decode(),
    )


def _resource(name: str) -> str:
    text = resources.files("recombine.report").joinpath(name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _finalize(value: object) -> object:
    """Every text that reaches the page goes through here: nothing unreadable gets past."""
    return readable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40] or "section"


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


@dataclass
class _Drawings:
    """Numbers the drawings of one page, so that even the same one shown twice shares no id."""

    count: int = 0

    def next(self, figure: Figure) -> Markup:
        self.count += 1
        return Markup(clean(figure.svg, prefix=f"f{self.count}-", alt=readable(figure.alt)))


@dataclass(frozen=True)
class _Claim:
    row: ClaimRow
    slug: str
    estimate: str
    raw: str
    adjusted: str
    bar: Markup


def _claim(claim: ClaimRow) -> _Claim:
    values = (claim.estimate, claim.low, claim.high, claim.adjusted_low, claim.adjusted_high)
    decimals = decimals_for([None if v is None else float(v) for v in values])
    return _Claim(
        claim,
        claim.verdict.replace(" ", "-"),
        _minus(number(None if claim.estimate is None else float(claim.estimate), decimals)),
        _minus(interval(claim.low, claim.high, decimals)),
        _minus(interval(claim.adjusted_low, claim.adjusted_high, decimals)),
        Markup(interval_bar(claim)),
    )


def _cells(table: Table) -> tuple[list[list[tuple[str, bool]]], list[bool]]:
    """Rows of (text, is a number) and, for the head, which columns hold numbers."""
    rows, numeric = formatted(table)
    marked = [
        [
            (_minus(text) if isinstance(value, int | float) else text or "–", is_number)
            for text, value, is_number in zip(row, values, numeric, strict=True)
        ]
        for row, values in zip(rows, table.rows, strict=True)
    ]
    return marked, numeric


def _minus(text: str) -> str:
    """A true minus sign before digits, as numbers are set in print."""
    return text.replace("-", "\u2212")
