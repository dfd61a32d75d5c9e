"""Scatter plots, and dots with intervals beside named categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import InvalidRequest
from .document import Cell, Figure, Table, one_line
from .figures_style import (
    INK,
    SMALL_SIZE,
    TEXT_SIZE,
    canvas,
    colour,
    drawing_style,
    ends,
    finish,
    legend_above,
    marker,
    numbers,
    scale_axis,
    short,
    style_axes,
    wrapped,
)


@dataclass(frozen=True)
class Points:
    """A named group of points."""

    name: str
    x: Sequence[float | None]
    y: Sequence[float | None]


@dataclass(frozen=True)
class Estimates:
    """One estimate for each category, with an optional interval; None leaves it out."""

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


def scatter(
    title: str,
    x_label: str,
    y_label: str,
    groups: Sequence[Points],
    *,
    fit: bool = False,
    diagonal: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    caption: str = "",
    alt: str = "",
) -> Figure:
    """Groups of points, each with its least-squares line where `fit` asks for one.

    The line is fitted on the scales shown: on a logarithmic axis, to the logarithms.

    >>> scatter("Probes", "seen", "unseen", [Points("trained", [0, 1], [0, 1])]).data.rows
    [('trained', 0, 0), ('trained', 1, 1)]
    """
    width, height = 500.0, 360.0
    with drawing_style():
        drawing = canvas(width, height)
        axes = drawing.add_axes((0, 0, 1, 1))
        handles: list[Line2D] = []
        words: list[str] = []
        pairs = [_finite(group) for group in groups]
        for i, (group, (x, y)) in enumerate(zip(groups, pairs, strict=True)):
            shown = ((x > 0) | (not log_x)) & ((y > 0) | (not log_y))
            style = {"color": colour(i), "marker": marker(i), "linestyle": "none", "markersize": 6}
            axes.plot(x[shown], y[shown], alpha=0.75, markeredgewidth=0, **style)
            handles.append(Line2D([], [], label=one_line(group.name), markeredgewidth=0, **style))
            words.append(f"{group.name}: {len(x)} points")
            if fit:
                _fit_line(axes, x[shown], y[shown], log_x, log_y, colour(i))
        for i, (which, log, pixels) in enumerate((("x", log_x, width), ("y", log_y, height))):
            values = np.concatenate([pair[i] for pair in pairs] or [np.array([])])
            scale_axis(axes, which, log and bool((values > 0).any()), values, pixels, exact=False)
        if diagonal:
            axes.axline((0.5, 0.5), (1, 1), color=INK, alpha=0.5, lw=1, linestyle=(0, (4, 3)))
            rule = Line2D([], [], color=INK, alpha=0.5, lw=1, linestyle=(0, (4, 3)), label="equal")
            handles.append(rule)
        if fit:
            line = Line2D([], [], color=INK, alpha=0.7, linewidth=1.4, label="least-squares line")
            handles.append(line)
        style_axes(axes, x_label)
        axes.grid(axis="x", color=INK, alpha=0.13, linewidth=0.8)
        label = wrapped(y_label, 70)
        axes.set_title(label, loc="left", fontsize=TEXT_SIZE, pad=10)
        if len(handles) > 1:
            legend_above(axes, handles, width, 14 + 16 * (label.count("\n") + 1))
        rows: list[tuple[Cell, ...]] = [
            (group.name, x, y) for group in groups for x, y in zip(group.x, group.y, strict=True)
        ]
        data = Table(title, ("group", x_label, y_label), rows)
        described = alt or f"Scatter plot of {y_label} against {x_label}. {'; '.join(words)}."
        return finish(drawing, title, caption, described, data)


def _finite(group: Points) -> tuple[np.ndarray, np.ndarray]:
    x = numbers(group.x, f"group {group.name!r}, x")
    y = numbers(group.y, f"group {group.name!r}, y", len(x))
    both = np.isfinite(x) & np.isfinite(y)
    return x[both], y[both]


def _fit_line(axes: Axes, x: np.ndarray, y: np.ndarray, log_x: bool, log_y: bool, ink: str) -> None:
    across = np.log(x) if log_x else x
    up = np.log(y) if log_y else y
    if len(across) < 2 or np.ptp(across) == 0:
        return
    slope, intercept = np.polyfit(across, up, 1)
    ends_x = np.linspace(across.min(), across.max(), 2)
    ends_y = slope * ends_x + intercept
    axes.plot(
        np.exp(ends_x) if log_x else ends_x,
        np.exp(ends_y) if log_y else ends_y,
        color=ink,
        linewidth=1.8,
    )


def dots(
    title: str,
    categories: Sequence[str],
    series: Sequence[Estimates],
    *,
    value_label: str,
    category_label: str = "",
    log: bool = False,
    value_range: tuple[float, float] | None = None,
    references: Sequence[tuple[float, str]] = (),
    caption: str = "",
    alt: str = "",
) -> Figure:
    """Estimates with intervals beside named categories, first category on top.

    >>> dots("Error", ["1 new pair"], [Estimates("width 128", [0.2])], value_label="error").title
    'Error'
    """
    if not categories:
        raise InvalidRequest(f"figure {title!r}: no categories given, expected at least one")
    count = max(1, len(series))
    lane = max(16.0, 34.0 - 4 * count)  # pixels between the series of one category
    band = max(30.0, lane * count + 12)
    width, height = 520.0, band * len(categories)
    with drawing_style():
        drawing = canvas(width, height)
        axes = drawing.add_axes((0, 0, 1, 1))
        shown: list[np.ndarray] = []
        handles: list[Line2D] = []
        for i, part in enumerate(series):
            y = np.arange(len(categories)) + (i - (count - 1) / 2) * lane / band
            shown.append(_draw_estimates(axes, part, y, i, len(categories)))
            style = {"color": colour(i), "marker": marker(i), "markersize": 7, "linewidth": 1.6}
            handles.append(Line2D([], [], label=one_line(part.name), **style))
        for value, name in references:
            style = {"color": INK, "alpha": 0.6, "linewidth": 1.1, "linestyle": (0, (4, 3))}
            axes.axvline(value, **style)
            handles.append(Line2D([], [], label=one_line(name), **style))
        values = np.concatenate(shown or [np.array([])])
        scale_axis(axes, "x", log and bool((values > 0).any()), values, width, exact=False)
        if value_range is not None:
            axes.set_xlim(*value_range)
        style_axes(axes, value_label)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=INK, alpha=0.13, linewidth=0.8)
        axes.set_ylim(len(categories) - 0.5, -0.5)
        axes.set_yticks(range(len(categories)), [wrapped(c, 30) for c in categories])
        axes.tick_params(axis="y", length=0, pad=8, labelsize=SMALL_SIZE)
        for edge in np.arange(1, len(categories)) - 0.5:
            axes.axhline(edge, color=INK, alpha=0.13, linewidth=0.8)
        if category_label:
            place = {"transform": axes.transAxes, "fontsize": SMALL_SIZE, "alpha": 0.75}
            axes.text(-12 / width, 1 + 8 / height, short(category_label, 30), ha="right", **place)
        if len(handles) > 1:
            legend_above(axes, handles, width, raise_by=10)
        data = _data(title, categories, series, value_label, category_label)
        words = [f"{part.name}: {ends(values)}" for part, values in zip(series, shown, strict=True)]
        names = ", ".join(one_line(c) for c in categories)
        described = alt or f"Dot plot of {value_label} for {names}. {'; '.join(words)}."
        return finish(drawing, title, caption, described, data)


def _draw_estimates(
    axes: Axes, part: Estimates, y: np.ndarray, index: int, expected: int
) -> np.ndarray:
    values = numbers(part.values, f"estimates {part.name!r}", expected)
    ink = colour(index)
    if part.low is not None and part.high is not None:
        low = numbers(part.low, f"estimates {part.name!r}, low", expected)
        high = numbers(part.high, f"estimates {part.name!r}, high", expected)
        axes.hlines(y, low, high, color=ink, linewidth=2.2, alpha=0.55)
    axes.plot(values, y, color=ink, marker=marker(index), linestyle="none", markersize=7)
    for place in y[~np.isfinite(values)]:
        at_left = {"transform": axes.get_yaxis_transform(), "va": "center"}
        axes.text(0.01, place, "no value", fontsize=SMALL_SIZE, alpha=0.6, **at_left)
    return values


def _data(
    title: str,
    categories: Sequence[str],
    series: Sequence[Estimates],
    value_label: str,
    category_label: str,
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for part in series:
        low = part.low if part.low is not None else [None] * len(categories)
        high = part.high if part.high is not None else [None] * len(categories)
        cells = zip(categories, part.values, low, high, strict=True)
        rows += [(part.name, *cell) for cell in cells]
    return Table(title, ("series", category_label or "category", value_label, "low", "high"), rows)
