"""Tables as people and spreadsheets read them: one number format, CSV, and aligned text."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Sequence

from .document import Cell, Report, Table, one_line, readable

# What a spreadsheet takes for the start of a formula, also in its full-width forms.
_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
_PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def number(value: float | None, decimals: int | None = None) -> str:
    """One number for a reader: fixed decimals where given, else three significant digits.

    >>> number(0.98123), number(-0.5, 2), number(None), number(1e-5)
    ('0.981', '-0.50', '', '1e-5')
    """
    if value is None:
        return ""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if decimals is not None:
        text = f"{value:.{decimals}f}"
        return text.removeprefix("-") if float(text) == 0 else text
    if abs(value) >= 1000 and abs(value) < 1e7:
        return f"{value:,.0f}"
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return mantissa + (f"e{int(exponent)}" if e else "")


def decimals_for(values: Sequence[float | None]) -> int | None:
    """The decimals that suit all values together; None where no one choice suits them.

    >>> decimals_for([0.912, 0.98, 0.4]), decimals_for([12.5, 3.0]), decimals_for([1e-6, 0.5])
    (3, 1, None)
    """
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    if not sizes:
        return 0
    largest = max(sizes)
    if largest >= 1e7 or largest < 1e-3:
        return None
    decimals = max(3 if largest < 10 else 0, 2 - math.floor(math.log10(largest)))
    if any(size < 10.0 ** (1 - decimals) and not _exact(size, decimals) for size in sizes):
        return None  # the smallest would lose its digits
    while decimals and all(_exact(size, decimals - 1) for size in sizes):
        decimals -= 1
    return decimals


def _exact(value: float, decimals: int) -> bool:
    return abs(round(value, decimals) - value) <= 1e-9 * value


def formatted(table: Table) -> tuple[list[list[str]], list[bool]]:
    """Every cell as text, column by column in one format, and which columns hold numbers."""
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    texts = [_column(values) for values in columns]
    numeric = [
        any(isinstance(v, int | float) for v in values)
        and not any(isinstance(v, str) for v in values)
        for values in columns
    ]
    return [list(row) for row in zip(*texts, strict=True)], numeric


def _column(values: Sequence[Cell]) -> list[str]:
    floats = [v for v in values if isinstance(v, float)]
    decimals = decimals_for(floats) if floats else None
    return [
        one_line(v)
        if isinstance(v, str)
        else ("yes" if v else "no")
        if isinstance(v, bool)
        else number(v, decimals if isinstance(v, float) else None)
        for v in values
    ]


def to_csv(table: Table) -> str:
    """The table as CSV at full precision, in which no text can become a spreadsheet formula.

    >>> print(to_csv(Table("t", ["a", "b"], [["=1+1", -0.5], ["-3", None]])), end="")
    a,b
    '=1+1,-0.5
    -3,
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_guarded(name) for name in table.columns])
    writer.writerows([_guarded(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def _guarded(cell: Cell) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return str(cell)
    if _PLAIN_NUMBER.fullmatch(cell):
        return cell
    # Some programs trim before they look, so leading spaces do not make a formula harmless.
    risky = cell.lstrip(" ").startswith(_FORMULA_STARTS) or cell.lstrip().startswith(
        _FORMULA_STARTS
    )
    return ("'" if risky else "") + readable(cell)


def to_text(table: Table, width: int = 100) -> str:
    """The table as aligned plain text; the widest text columns give way to fit `width`.

    >>> print(to_text(Table("Scores", ["model", "R²"], [["mlp", 0.912], ["flow", None]])))
    Scores
    model     R²
    ─────  ─────
    mlp    0.912
    flow       –
    """
    rows, numeric = formatted(table)
    names = [one_line(name) for name in table.columns]
    rows = [[cell or "–" for cell in row] for row in rows]
    widths = [max(map(columns_wide, column)) for column in zip(names, *rows, strict=True)]
    _shrink(widths, numeric, width - 2 * (len(widths) - 1))
    lines = [one_line(table.title)] if table.title else []
    for row in (names, ["─" * w for w in widths], *rows):
        cells = zip(row, widths, numeric, strict=True)
        lines.append("  ".join(_fit(cell, w, right) for cell, w, right in cells).rstrip())
    if table.note:
        lines.append(one_line(table.note))
    return "\n".join(lines)


def _shrink(widths: list[int], numeric: Sequence[bool], room: int) -> None:
    """Narrow the widest text columns in place until all fit, never below eight characters."""
    texts = [i for i, is_number in enumerate(numeric) if not is_number]
    while sum(widths) > room and texts:
        widest = max(texts, key=lambda i: widths[i])
        if widths[widest] <= 8:
            return
        widths[widest] -= 1


def columns_wide(text: str) -> int:
    """How many terminal columns a text takes (wide scripts take two, combining marks none).

    >>> columns_wide("abc"), columns_wide("模块")
    (3, 4)
    """
    return sum(
        0
        if unicodedata.combining(c) or unicodedata.category(c) == "Cf"
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


def _fit(text: str, width: int, right: bool) -> str:
    if columns_wide(text) > width:
        while text and columns_wide(text) > width - 1:
            text = text[:-1]
        text += "…"
    padding = " " * (width - columns_wide(text))
    return padding + text if right else text + padding


def interval(low: float | None, high: float | None, decimals: int | None = None) -> str:
    """An interval in brackets, open at an end that has no bound, empty when there is none.

    >>> interval(0.8, 0.91, 2), interval(None, 0.91, 2), interval(None, None)
    ('[0.80, 0.91]', '(-∞, 0.91]', '')
    """
    if low is None and high is None:
        return ""
    first = "(-∞" if low is None else f"[{number(low, decimals)}"
    last = "∞)" if high is None else f"{number(high, decimals)}]"
    return f"{first}, {last}"


def claims_table(report: Report) -> Table:
    """All claims of a report as one table, for a terminal or a CSV file."""
    columns = ("claim", "verdict", "estimate", "low", "high", "adjusted low", "adjusted high")
    rows = [
        (
            *(c.name, c.verdict, c.estimate, c.low, c.high, c.adjusted_low, c.adjusted_high),
            *(c.units, c.unit_name, c.criterion),
        )
        for c in report.claims
    ]
    return Table(report.title, (*columns, "units", "unit", "criterion"), rows)
