"""Heat maps with their numbers printed in the cells, alone or several in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import Rectangle

from ..errors import InvalidRequest
from .document import Cell, Figure, Table
from .figures_style import (
    INK,
    PAGE_WIDTH,
    SMALL_SIZE,
    TEXT_SIZE,
    canvas,
    drawing_style,
    finish,
    short,
    text_width,
    wrapped,
)
from .tables import decimals_for, number

_RAMP = LinearSegmentedColormap.from_list(
    "recombine", ["#F1F5F9", "#C3D9EA", "#84B4D8", "#3E86BC", "#1A5A94", "#0D3A6B"]
)
_SIGNED = LinearSegmentedColormap.from_list(
    "recombine signed",
    ["#8F3B00", "#D9772B", "#F3C9A5", "#F7F7F7", "#A9CBE5", "#3E86BC", "#0D3A6B"],
)
_ROW = 32.0  # the height of one cell in pixels
_LINE = 15.0


@dataclass(frozen=True)
class Grid:
    """One heat map: a value for each row and column; None marks a cell that cannot exist."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]

    def __post_init__(self) -> None:
        shape = [len(row) for row in self.values]
        if shape != [len(self.columns)] * len(self.rows) or not self.rows or not self.columns:
            raise InvalidRequest(
                f"heat map {self.title!r}: rows of {shape} values given, expected "
                f"{len(self.rows)} rows of {len(self.columns)}, at least one of each"
            )


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    row_label: str = "",
    column_label: str = "",
    value_label: str = "",
    scale: tuple[float, float] | None = None,
    missing: str = "infeasible",
    caption: str = "",
    alt: str = "",
) -> Figure:
    """One heat map; a None is hatched and the key says what that means.

    >>> heat_map("Unseen", ["M=4"], ["K=1", "K=8"], [[0.9, None]], value_label="R²").data.rows
    [('M=4', 'K=1', 0.9), ('M=4', 'K=8', None)]
    """
    grid = Grid("", rows, columns, values)
    labels = {"row_label": row_label, "column_label": column_label, "value_label": value_label}
    return heat_maps(
        title, [grid], **labels, scale=scale, missing=missing, caption=caption, alt=alt
    )


def heat_maps(
    title: str,
    grids: Sequence[Grid],
    *,
    row_label: str = "",
    column_label: str = "",
    value_label: str = "",
    scale: tuple[float, float] | None = None,
    missing: str = "infeasible",
    caption: str = "",
    alt: str = "",
) -> Figure:
    """Several heat maps on one colour scale, in a row that wraps where the page ends.

    A scale from -x to x gets two colours that meet at 0.
    """
    if not grids:
        raise InvalidRequest(f"figure {title!r}: no heat maps given, expected at least one")
    flat = [v for grid in grids for row in grid.values for v in row]
    finite = [v for v in flat if v is not None and math.isfinite(v)]
    low, high = map(float, scale or (min(finite, default=0.0), max(finite, default=1.0)))
    decimals = decimals_for(finite)
    decimals = None if decimals is None else min(decimals, 2) if high < 10 else decimals
    with drawing_style():
        cell = max(
            [40.0]
            + [text_width(number(v, decimals)) + 12 for v in finite]
            + [text_width(wrapped(c, 12)) + 8 for grid in grids for c in grid.columns]
        )
        gutter = 34 + max(text_width(wrapped(r, 20, 2)) for grid in grids for r in grid.rows)
        gutter = max(gutter, text_width(f"{short(row_label, 20)} ↓") + 24)
        rows_of_grids = _packed(grids, cell, gutter)
        width = max(sum(_width(g, cell) + gutter for g in row) for row in rows_of_grids)
        heights = [max(map(_height, row)) for row in rows_of_grids]
        total = sum(heights) + 40
        drawing = canvas(width, total)
        axes = drawing.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(total, 0))
        axes.axis("off")
        top = 0.0
        for row, height in zip(rows_of_grids, heights, strict=True):
            left = 0.0
            for grid in row:
                _draw(axes, grid, left + gutter, top, cell, (low, high), decimals, missing)
                _name_axes(axes, grid, left, gutter, top, cell, row_label, column_label)
                left += _width(grid, cell) + gutter
            top += height
        holes = len(finite) < len(flat)
        _key(axes, gutter, top, (low, high), decimals, value_label, missing if holes else "")
        data = _data(title, grids, row_label, column_label, value_label)
        words = alt or _described(grids, finite, value_label, row_label, column_label, missing)
        return finish(drawing, title, caption, words, data)


def _width(grid: Grid, cell: float) -> float:
    return cell * len(grid.columns)


def _height(grid: Grid) -> float:
    return _above(grid) + _ROW * len(grid.rows) + 22


def _above(grid: Grid) -> float:
    """The room over the cells: the title, the axis names and the column names."""
    title = _LINE * (wrapped(grid.title, 30).count("\n") + 1) + 8 if grid.title else 0.0
    names = max(wrapped(c, 12).count("\n") + 1 for c in grid.columns)
    return title + 20 + _LINE * names + 4


def _packed(grids: Sequence[Grid], cell: float, gutter: float) -> list[list[Grid]]:
    rows: list[list[Grid]] = [[]]
    room = float(PAGE_WIDTH)
    for grid in grids:
        need = _width(grid, cell) + gutter
        if rows[-1] and need > room:
            rows.append([])
            room = float(PAGE_WIDTH)
        rows[-1].append(grid)
        room -= need
    return rows


def _draw(
    axes: Axes,
    grid: Grid,
    left: float,
    top: float,
    cell: float,
    scale: tuple[float, float],
    decimals: int | None,
    missing: str,
) -> None:
    first = top + _above(grid)
    for i, values in enumerate(grid.values):
        y = first + i * _ROW
        middle = y + _ROW / 2
        name = wrapped(grid.rows[i], 20, 2)
        axes.text(left - 8, middle, name, fontsize=SMALL_SIZE, ha="right", va="center")
        for j, value in enumerate(values):
            x = left + j * cell
            if value is None or not math.isfinite(value):
                _hatched(axes, x, y, cell)
                continue
            fill = to_hex(_colours(scale)(_share(value, scale)))
            box = Rectangle(
                (x + 1, y + 1), cell - 2, _ROW - 2, facecolor=fill, edgecolor=INK, linewidth=0.4
            )
            box.set_edgecolor((*_rgb(INK), 0.3))
            axes.add_patch(box)
            axes.text(
                x + cell / 2,
                middle,
                number(value, decimals).replace("-", "\u2212"),
                fontsize=SMALL_SIZE,
                ha="center",
                va="center",
                color="#FFFFFF" if _luminance(fill) < 0.25 else "#14202B",
            )
    for j, name in enumerate(grid.columns):
        x = left + (j + 0.5) * cell
        axes.text(x, first - 6, wrapped(name, 12), fontsize=SMALL_SIZE, ha="center", va="bottom")


def _hatched(axes: Axes, x: float, y: float, cell: float) -> None:
    box = Rectangle(
        (x + 1, y + 1), cell - 2, _ROW - 2, facecolor="none", hatch="///", linewidth=0.4
    )
    box.set_edgecolor((*_rgb(INK), 0.45))
    axes.add_patch(box)


def _name_axes(
    axes: Axes,
    grid: Grid,
    left: float,
    gutter: float,
    top: float,
    cell: float,
    row_label: str,
    column_label: str,
) -> None:
    if grid.title:
        title = wrapped(grid.title, 30)
        place = {"ha": "left", "va": "top", "fontsize": TEXT_SIZE}
        axes.text(left + gutter, top, title, fontweight="bold", **place)
    names = max(wrapped(c, 12).count("\n") + 1 for c in grid.columns)
    base = top + _above(grid) - _LINE * names - 10
    muted = {"fontsize": SMALL_SIZE, "alpha": 0.75, "va": "bottom"}
    if column_label:
        axes.text(left + gutter, base, f"{short(column_label, 24)} →", ha="left", **muted)
    if row_label:
        below = top + _above(grid) - 6
        axes.text(left + gutter - 8, below, f"{short(row_label, 20)} ↓", ha="right", **muted)


def _key(
    axes: Axes,
    left: float,
    top: float,
    scale: tuple[float, float],
    decimals: int | None,
    value_label: str,
    missing: str,
) -> None:
    """The colour scale from its low to its high end, and what a hatched cell means."""
    steps, step = 12, 10.0
    low = number(scale[0], decimals).replace("-", "\u2212")
    high = number(scale[1], decimals).replace("-", "\u2212")
    x = left + text_width(low) + 8
    axes.text(left, top + 7, low, fontsize=SMALL_SIZE, va="center")
    for i in range(steps):
        fill = to_hex(_colours(scale)(i / (steps - 1)))
        axes.add_patch(Rectangle((x + i * step, top), step, 14, facecolor=fill, lw=0))
    x += steps * step + 8
    text = f"{high}  {short(value_label)}".strip()
    axes.text(x, top + 7, text, fontsize=SMALL_SIZE, va="center")
    if missing:
        # Beside the scale where there is room, else on a line of its own.
        x += text_width(text) + 26
        if x + text_width(short(missing)) + 30 > max(axes.get_xlim()):
            x, top = left, top + 22
        box = Rectangle((x, top), 22, 14, facecolor="none", hatch="///", linewidth=0.4)
        box.set_edgecolor((*_rgb(INK), 0.45))
        axes.add_patch(box)
        axes.text(x + 30, top + 7, short(missing), fontsize=SMALL_SIZE, va="center")


def _colours(scale: tuple[float, float]) -> LinearSegmentedColormap:
    return _SIGNED if scale[0] == -scale[1] < 0 else _RAMP


def _share(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return 0.5 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _data(
    title: str, grids: Sequence[Grid], row_label: str, column_label: str, value_label: str
) -> Table:
    titled = any(grid.title for grid in grids)
    rows: list[tuple[Cell, ...]] = [
        ((grid.title,) if titled else ()) + (row, column, value)
        for grid in grids
        for row, values in zip(grid.rows, grid.values, strict=True)
        for column, value in zip(grid.columns, values, strict=True)
    ]
    names = (row_label or "row", column_label or "column", value_label or "value")
    return Table(title, (("map",) if titled else ()) + names, rows)


def _described(
    grids: Sequence[Grid],
    finite: Sequence[float],
    value_label: str,
    row_label: str,
    column_label: str,
    missing: str,
) -> str:
    count = "Heat map" if len(grids) == 1 else f"{len(grids)} heat maps"
    total = sum(len(g.rows) * len(g.columns) for g in grids)
    reach = f"from {number(min(finite))} to {number(max(finite))}" if finite else "with no values"
    axes = f" by {row_label or 'row'} and {column_label or 'column'}"
    holes = f"; {total - len(finite)} of {total} cells {missing}" if len(finite) < total else ""
    return f"{count} of {value_label or 'values'}{axes}, {reach}{holes}."
