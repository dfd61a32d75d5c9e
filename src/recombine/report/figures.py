"""Figures for reports: each function takes plain numbers and returns a document Figure.

Every drawing is deterministic SVG in the page's own text colour on a transparent ground, with
series told apart by marker as well as colour, and carries its numbers as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import InvalidRequest
from .document import Cell, Figure, Table, one_line
from .figures_grid import Grid, heat_map, heat_maps
from .figures_points import Estimates, Points, dots, scatter
from .figures_style import (
    INK,
    PAGE_WIDTH,
    SMALL_SIZE,
    TEXT_SIZE,
    canvas,
    colour,
    dashes,
    drawing_style,
    ends,
    finish,
    legend_above,
    marker,
    numbers,
    scale_axis,
    spread,
    style_axes,
    text_width,
    wrapped,
)

__all__ = [
    "Estimates",
    "Grid",
    "Panel",
    "Points",
    "Series",
    "curves",
    "dots",
    "heat_map",
    "heat_maps",
    "panels",
    "scatter",
]

Reference = tuple[float, str]


@dataclass(frozen=True)
class Series:
    """One line: a value for each x, with an optional interval; None leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True)
class Panel:
    """One small plot among several that share their axes."""

    title: str
    series: Sequence[Series]


@dataclass(frozen=True)
class _Scales:
    log_x: bool
    log_y: bool
    y_range: tuple[float, float] | None
    references: Sequence[Reference]


def curves(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    references: Sequence[Reference] = (),
    caption: str = "",
    alt: str = "",
) -> Figure:
    """Lines with interval bands, named at their right ends or, where crowded, above the plot.

    >>> line = Series("unseen", [128, 256, 512], [0.90, 0.96, 0.98])
    >>> curves("Scaling", "width", "R²", [line], log_x=True).data.columns
    ('series', 'width', 'R²', 'low', 'high')
    """
    scales = _Scales(log_x, log_y, y_range, references)
    width, height = 600.0, 330.0
    with drawing_style():
        drawing = canvas(width, height)
        axes = drawing.add_axes((0, 0, 1, 1))
        _plot(axes, series, list(range(len(series))), scales)
        _scale(axes, [series], scales, width, height)
        style_axes(axes, x_label)
        axes.set_title(wrapped(y_label, 80), loc="left", fontsize=TEXT_SIZE, pad=10)
        handles = _handles(series, references)
        _say_if_empty(axes, [series])
        if not _label_ends(axes, series, scales, handles, width, height):
            legend_above(axes, handles, width, raise_by=14 + 16 * _lines(y_label))
        data = _data(title, x_label, y_label, [("", series)])
        words = alt or _described("Line chart", x_label, y_label, series)
        return finish(drawing, title, caption, words, data, _lost(scales, [series]))


def panels(
    title: str,
    x_label: str,
    y_label: str,
    panels: Sequence[Panel],
    *,
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
    references: Sequence[Reference] = (),
    columns: int = 3,
    caption: str = "",
    alt: str = "",
) -> Figure:
    """Small multiples with shared axes; a series keeps its colour and marker in every panel.

    >>> part = Panel("one-hot", [Series("width 128", [0, 1], [0.2, 0.9])])
    >>> panels("By encoding", "steps", "R²", [part]).data.columns[0]
    'panel'
    """
    if not panels:
        raise InvalidRequest(f"figure {title!r}: no panels given, expected at least one")
    scales = _Scales(log_x, log_y, y_range, references)
    by_name = {one_line(s.name): s for panel in panels for s in panel.series}
    places = {name: index for index, name in enumerate(by_name)}
    down = -(-len(panels) // max(1, columns))
    across = -(-len(panels) // down)  # rows of even length
    width = min(360.0, (PAGE_WIDTH - 60 - 24 * (across - 1)) / across)
    height = 190.0
    total_width = across * width + (across - 1) * 24
    gap = 42 + 15 * max(_lines(panel.title, 34) for panel in panels)
    total_height = down * height + (down - 1) * gap
    with drawing_style():
        drawing = canvas(total_width, total_height)
        everything = [panel.series for panel in panels]
        first: Axes | None = None
        for index, panel in enumerate(panels):
            row, column = divmod(index, across)
            box = (
                column * (width + 24) / total_width,
                1 - (row * (height + gap) + height) / total_height,
                width / total_width,
                height / total_height,
            )
            axes = drawing.add_axes(box, sharex=first, sharey=first)
            _plot(axes, panel.series, [places[one_line(s.name)] for s in panel.series], scales)
            if first is None:
                first = axes
                _scale(axes, everything, scales, width, height)
            style_axes(axes)
            axes.tick_params(axis="y", labelleft=column == 0, length=4 if column == 0 else 0)
            _say_if_empty(axes, [panel.series])
            axes.set_title(
                wrapped(panel.title, 34), loc="left", fontsize=TEXT_SIZE, fontweight="bold", pad=8
            )
        assert first is not None
        lift = 22 + 15 * max(_lines(panel.title, 34) for panel in panels[:across])
        first.text(
            0,
            1 + lift / height,
            wrapped(y_label, 80),
            transform=first.transAxes,
            fontsize=TEXT_SIZE,
        )
        under = {"ha": "center", "va": "top", "fontsize": TEXT_SIZE}
        drawing.text(0.5, -30 / total_height, wrapped(x_label, 80), **under)
        handles = _handles(list(by_name.values()), references)
        legend_above(first, handles, total_width, raise_by=lift + 8 + 16 * _lines(y_label))
        data = _data(title, x_label, y_label, [(p.title, p.series) for p in panels])
        names = ", ".join(one_line(p.title) for p in panels)
        words = alt or _described(f"{len(panels)} line charts ({names})", x_label, y_label, [])
        return finish(drawing, title, caption, words, data, _lost(scales, everything))


def _lines(text: str, characters: int = 80) -> int:
    return wrapped(text, characters).count("\n") + 1


def _arrays(line: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    what = f"series {line.name!r}"
    x = numbers(line.x, f"{what}, x")
    y = numbers(line.y, f"{what}, y", len(x))
    low = None if line.low is None else numbers(line.low, f"{what}, low", len(x))
    high = None if line.high is None else numbers(line.high, f"{what}, high", len(x))
    return x, y, low, high


def _plot(axes: Axes, series: Sequence[Series], places: Sequence[int], scales: _Scales) -> None:
    for line, place in zip(series, places, strict=True):
        x, y, low, high = _arrays(line)
        if len(x) == 0:
            continue
        if low is not None and high is not None:
            axes.fill_between(x, low, high, color=colour(place), alpha=0.17, linewidth=0)
            # A band needs two neighbours; a lone point shows its interval as a bar.
            alone = ~np.isfinite(np.r_[np.nan, y[:-1]]) & ~np.isfinite(np.r_[y[1:], np.nan])
            axes.vlines(x[alone], low[alone], high[alone], color=colour(place), linewidth=1.6)
        many = np.isfinite(y).sum() > 25
        axes.plot(
            x,
            y,
            color=colour(place),
            marker=marker(place),
            linestyle=dashes(place),
            markersize=6,
            linewidth=1.9,
            markevery=max(1, len(x) // 12) if many else None,
        )
    for value, _ in scales.references:
        axes.axhline(value, color=INK, alpha=0.6, linewidth=1.1, linestyle=(0, (4, 3)))


def _scale(
    axes: Axes, groups: Sequence[Sequence[Series]], scales: _Scales, width: float, height: float
) -> None:
    lines = [_arrays(line) for series in groups for line in series]
    x = np.concatenate([line[0] for line in lines] or [np.array([])])
    y = np.concatenate([line[1] for line in lines] or [np.array([])])
    axes.margins(x=0.03, y=0.06)
    scale_axis(axes, "x", scales.log_x and bool((x > 0).any()), x, width, exact=True)
    scale_axis(axes, "y", scales.log_y and bool((y > 0).any()), y, height, exact=False)
    if scales.y_range is not None:
        axes.set_ylim(*scales.y_range)
    alone = np.unique(x[np.isfinite(x)])
    if len(alone) == 1:
        at = float(alone[0])
        wide = abs(at) / 2 or 1.0
        axes.set_xlim((at / 2, at * 2) if scales.log_x and at > 0 else (at - wide, at + wide))


def _say_if_empty(axes: Axes, groups: Sequence[Sequence[Series]]) -> None:
    if not any(np.isfinite(_arrays(line)[1]).any() for series in groups for line in series):
        middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.tick_params(axis="both", length=0, labelcolor="none")
        axes.text(0.5, 0.5, "no values to show", fontsize=TEXT_SIZE, alpha=0.7, **middle)


def _handles(series: Sequence[Series], references: Sequence[Reference]) -> list[Line2D]:
    lines = [
        Line2D(
            [],
            [],
            color=colour(i),
            marker=marker(i),
            linestyle=dashes(i),
            markersize=6,
            linewidth=1.9,
            label=one_line(line.name),
        )
        for i, line in enumerate(series)
    ]
    rules = [
        Line2D(
            [], [], color=INK, alpha=0.6, linewidth=1.1, linestyle=(0, (4, 3)), label=one_line(n)
        )
        for _, n in references
    ]
    return lines + rules


def _label_ends(
    axes: Axes,
    series: Sequence[Series],
    scales: _Scales,
    handles: Sequence[Line2D],
    width: float,
    height: float,
) -> bool:
    """Name every line beside its right end; False, and nothing drawn, where that is unclear."""
    xs = [_arrays(line)[0] for line in series]
    wanted_at: list[float] = []
    furthest = max((float(np.nanmax(x)) for x in xs if np.isfinite(x).any()), default=0.0)
    low, high = axes.get_ylim()
    for line in series:
        x, y, _, _ = _arrays(line)
        shown = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not scales.log_y))
        if not shown.any() or x[shown][-1] != furthest:
            return False
        wanted_at.append(float(y[shown][-1]))
    wanted_at += [value for value, _ in scales.references]
    names = [wrapped(str(handle.get_label()), 24) for handle in handles]
    heights = [15.0 * (name.count("\n") + 1) + 3 for name in names]
    if not 1 <= len(names) <= 7 or sum(heights) > height:
        return False
    if not all(low <= value <= high for value in wanted_at):
        return False
    fractions = axes.transAxes.inverted().transform(
        axes.transData.transform([(furthest, value) for value in wanted_at])
    )[:, 1]
    places = spread([float(f) * height for f in fractions], heights, height + 12)
    for handle, name, exact, place in zip(handles, names, fractions, places, strict=True):
        ink = handle.get_color()
        knots = ([1.004, 1 + 12 / width, 1 + 17 / width], [exact, place / height, place / height])
        axes.plot(*knots, transform=axes.transAxes, color=ink, alpha=0.7, lw=0.9, clip_on=False)
        if handle.get_marker() not in (None, "None"):
            dot = ([1 + 24 / width], [place / height])
            axes.plot(
                *dot,
                transform=axes.transAxes,
                color=ink,
                marker=str(handle.get_marker()),
                markersize=6,
                clip_on=False,
            )
        axes.text(
            1 + 33 / width,
            place / height,
            name,
            transform=axes.transAxes,
            fontsize=SMALL_SIZE,
            verticalalignment="center",
        )
    return max(map(text_width, names)) > 0


def _data(
    title: str, x_label: str, y_label: str, groups: Sequence[tuple[str, Sequence[Series]]]
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    grouped = any(name for name, _ in groups)
    for group, series in groups:
        for line in series:
            low = line.low if line.low is not None else [None] * len(line.x)
            high = line.high if line.high is not None else [None] * len(line.x)
            points = zip(line.x, line.y, low, high, strict=True)
            rows += [((group,) if grouped else ()) + (line.name, *point) for point in points]
    columns = (("panel",) if grouped else ()) + ("series", x_label, y_label, "low", "high")
    return Table(title, columns, rows)


def _described(kind: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    parts = [f"{s.name}: {ends(_arrays(s)[1])}" for s in series]
    return f"{kind} of {y_label} against {x_label}." + (f" {'; '.join(parts)}." if parts else "")


def _lost(scales: _Scales, groups: Sequence[Sequence[Series]]) -> list[str]:
    """A sentence about points a logarithmic axis cannot show, so that none goes silently."""
    lost = 0
    for series in groups:
        for line in series:
            x, y, _, _ = _arrays(line)
            lost += int(((scales.log_x & (x <= 0)) | (scales.log_y & (y <= 0))).sum())
    points = "1 point" if lost == 1 else f"{lost} points"
    return [f"{points} at or below zero cannot be shown on a logarithmic axis."] if lost else []
