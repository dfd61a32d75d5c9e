"""How every figure looks: palette, markers, type, ticks, and the way from drawing to Figure."""

from __future__ import annotations

import hashlib
import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..errors import InvalidRequest
from .document import Figure, Table, one_line, readable
from .figures_svg import INK, clean
from .tables import number, to_csv

# Told apart by people with red-green blindness, and at least 3:1 against white and near-black.
PALETTE = ("#0F7AC2", "#D55E00", "#009E73", "#9A5B93", "#D11F43", "#009BC2", "#7C7F86")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
TEXT_SIZE = 12.0
SMALL_SIZE = 11.0
PAGE_WIDTH = 860  # figures are drawn no wider than this where their content allows


@contextmanager
def drawing_style() -> Iterator[None]:
    """Draw with this house's settings, whatever the user's own matplotlib settings say."""
    ours: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "recombine",
        "text.parse_math": False,
        "text.usetex": False,
        "font.family": ["DejaVu Sans"],  # ships with matplotlib: measures alike everywhere
        "font.size": TEXT_SIZE,
        "figure.dpi": 72,
        "savefig.dpi": 72,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.color": INK,
        "hatch.linewidth": 0.7,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "legend.frameon": False,
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(ours)
        # Names in other scripts are measured roughly here and drawn by the browser's own fonts.
        warnings.filterwarnings("ignore", message=".*Glyph .* missing")
        warnings.filterwarnings("ignore", message=".*does not support .* natively")
        yield


def canvas(width: float, height: float) -> Drawing:
    """An empty drawing whose plotting area is `width` by `height` pixels before its labels."""
    return Drawing(figsize=(width / 72, height / 72))


def finish(
    drawing: Drawing, title: str, caption: str, alt: str, data: Table, notes: Sequence[str] = ()
) -> Figure:
    """The finished figure: clean SVG with ids of its own, beside the numbers it shows."""
    out = io.StringIO()
    drawing.savefig(
        out,
        format="svg",
        bbox_inches="tight",
        pad_inches=4 / 72,
        metadata={"Date": None, "Creator": None},
    )
    described = one_line(alt)
    digest = hashlib.sha256(
        "\n".join((readable(title), to_csv(data), out.getvalue())).encode()
    ).hexdigest()
    svg = clean(out.getvalue(), prefix=f"g{digest[:10]}-", alt=described)
    return Figure(title, " ".join(part for part in (caption, *notes) if part), svg, described, data)


def colour(index: int) -> str:
    """The colour of the index-th series; colours come round again after the palette's end."""
    return PALETTE[index % len(PALETTE)]


def marker(index: int) -> str:
    """The marker of the index-th series: two series of one colour never share it."""
    return MARKERS[index % len(MARKERS)]


def dashes(index: int) -> tuple[float, Sequence[float]]:
    """A solid line in the first round of colours, then dashed, then dotted."""
    return (0, ((), (5, 2), (1.2, 1.8))[min(2, index // len(PALETTE))])


def numbers(values: Sequence[float | None], what: str, expected: int | None = None) -> np.ndarray:
    """Values as floats, anything missing or not finite as NaN (a gap)."""
    if expected is not None and len(values) != expected:
        raise InvalidRequest(f"{what}: {len(values)} values given, expected {expected}")
    out = np.array([math.nan if v is None else float(v) for v in values], dtype=float)
    return np.where(np.isfinite(out), out, math.nan)


def text_width(text: str, size: float = SMALL_SIZE) -> float:
    """The width of the longest line in pixels, measured with the font that ships."""
    font = FontProperties(family="DejaVu Sans", size=size)
    measure = TextToPath().get_text_width_height_descent
    return max(measure(line, font, False)[0] for line in (text or " ").split("\n"))


def wrapped(text: str, characters: int = 26, lines: int = 3) -> str:
    """A name broken into few short lines, cut with an ellipsis where it is longer still.

    >>> wrapped("a rather long name of a model", 12)
    'a rather\\nlong name of\\na model'
    """
    parts = textwrap.wrap(one_line(text), characters, max_lines=lines, placeholder=" …")
    return "\n".join(parts)


def short(text: str, characters: int = 44) -> str:
    """A label kept to one line, cut with an ellipsis where it is longer."""
    line = one_line(text)
    return line if len(line) <= characters else line[: characters - 1].rstrip() + "…"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def tick_label(value: float) -> str:
    """A tick as people write it.

    >>> tick_label(2048), tick_label(20000), tick_label(1e-5), tick_label(0.25)
    ('2048', '20k', '10⁻⁵', '0.25')
    """
    size = abs(value)
    if size != 0 and (size < 1e-3 or size >= 1e9):
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
        short = mantissa.rstrip("0").rstrip(".")
        text = power if short == "1" else f"{short}×{power}"
    elif size >= 10_000:
        scale, letter = (1e6, "M") if size >= 1e6 else (1e3, "k")
        text = f"{value / scale:.6g}{letter}"
    else:
        text = f"{value:.6g}"
    return text.replace("-", "\u2212")


def style_axes(axes: Axes, x_label: str = "") -> None:
    """Two thin axes, faint horizontal rules, plain tick labels."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_alpha(0.55)
        axes.spines[side].set_linewidth(0.9)
    axes.tick_params(labelsize=SMALL_SIZE, width=0.9, length=4, pad=4)
    axes.grid(axis="y", color=INK, alpha=0.13, linewidth=0.8)
    axes.set_axisbelow(True)
    if x_label:
        axes.set_xlabel(wrapped(x_label, 60), fontsize=TEXT_SIZE, labelpad=8)


def scale_axis(
    axes: Axes, which: str, log: bool, values: np.ndarray, pixels: float, exact: bool
) -> None:
    """Set one axis to linear or log; where few x values occur, the ticks are those values."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    shown = np.unique(values[np.isfinite(values) & ((values > 0) | (not log))])
    if exact and 0 < len(shown) <= 10 and _apart(shown, log, pixels):
        axis.set_major_locator(FixedLocator([float(v) for v in shown]))
    elif not log:
        bins = max(3, min(7, int(pixels / (60 if which == "x" else 40))))
        axis.set_major_locator(MaxNLocator(nbins=bins, steps=[1, 2, 5, 10]))
    else:
        narrow = len(shown) > 0 and shown[-1] / shown[0] < 300
        subs = (1.0, 2.0, 5.0) if narrow else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))


def _apart(shown: np.ndarray, log: bool, pixels: float) -> bool:
    """Whether labels at exactly these values would stand clear of one another."""
    places = np.log(shown) if log else shown
    span = places[-1] - places[0]
    if span == 0:
        return True
    centres = (places - places[0]) / span * pixels * 0.94
    half = np.array([text_width(tick_label(float(v))) / 2 for v in shown])
    return bool(np.all(np.diff(centres) > half[1:] + half[:-1] + 8))


def legend_above(axes: Axes, handles: Sequence[Line2D], width: float, raise_by: float) -> None:
    """A legend above the plot in as many columns as fit: it can never cover a curve."""
    if not handles:
        return
    names = [wrapped(str(handle.get_label()), 34) for handle in handles]
    widest = max(text_width(name) for name in names)
    axes.legend(
        list(handles),
        names,
        loc="lower left",
        bbox_to_anchor=(0, 1 + raise_by / axes.bbox.height),
        borderaxespad=0,
        borderpad=0,
        ncols=max(1, min(len(names), int((width + 22) // (widest + 56)))),
        fontsize=SMALL_SIZE,
        handlelength=2.2,
        handletextpad=0.6,
        columnspacing=2.0,
        labelspacing=0.5,
    )


def spread(wanted: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Centres of labels as near as can be to where each is wanted, none on top of another.

    Least-squares: with the gaps subtracted, the places must not decrease, which pooling
    neighbours that disagree solves exactly.

    >>> spread([10.0, 11.0, 50.0], [8, 8, 8], 60)
    [6.5, 14.5, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], -i))
    offsets, at = [], 0.0
    for i in order:
        offsets.append(at + heights[i] / 2)
        at += heights[i]
    pools: list[list[float]] = []
    for i, offset in zip(order, offsets, strict=True):
        pools.append([wanted[i] - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            before, n = pools[-1]
            pools[-1] = [(before * n + mean * count) / (n + count), n + count]
    flat = [mean for mean, count in pools for _ in range(int(count))]
    placed = [0.0] * len(wanted)
    for i, offset, base in zip(order, offsets, flat, strict=True):
        placed[i] = offset + min(max(base, 0.0), max(room - at, 0.0))
    return placed


def ends(values: np.ndarray) -> str:
    """From the first to the last finite value, in words, for alternative text."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "no values"
    if len(finite) == 1:
        return number(float(finite[0]))
    return f"{number(float(finite[0]))} to {number(float(finite[-1]))}"
