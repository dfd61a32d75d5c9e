"""Figures are legible on light and dark, honest about what they leave out, and inert."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.report.document import ClaimRow, Figure
from recombine.report.figures import (
    Estimates,
    Grid,
    Panel,
    Points,
    Series,
    curves,
    dots,
    heat_map,
    panels,
    scatter,
)
from recombine.report.figures_interval import interval_bar
from recombine.report.figures_style import MARKERS, PALETTE, marker, spread, tick_label
from recombine.report.figures_svg import clean

from .example import HOSTILE, draw, figures, scaling_curve

LINE = Series("a", [1, 2, 3], [0.1, 0.2, 0.4])


def texts(figure: Figure) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(figure.svg).iter("text")]


def one_of_each(name: str) -> list[Figure]:
    series = [Series(name, [1, 2], [1, 2])]
    return [
        curves(name, name, name, series, references=[(1.5, name)]),
        panels(name, name, name, [Panel(name, series)]),
        heat_map(name, [name], [name], [[1.0]], row_label=name, value_label=name),
        scatter(name, name, name, [Points(name, [1, 2], [1, 2]), Points(name, [], [])]),
        dots(name, [name], [Estimates(name, [1])], value_label=name, category_label=name),
    ]


def luminance(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#14171a"])
def test_every_series_colour_stands_out_on_light_and_on_dark(ground: str) -> None:
    assert all(contrast(colour, ground) >= 3 for colour in PALETTE)


def test_series_that_share_a_colour_never_share_a_marker() -> None:
    looks = [(i % len(PALETTE), marker(i)) for i in range(len(PALETTE) * len(MARKERS))]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.title[:30])
def test_a_drawing_needs_nothing_from_outside_and_no_inline_style(figure: Figure) -> None:
    root = ElementTree.fromstring(figure.svg)
    assert root.tag == "svg" and root.get("viewBox")
    assert not figure.svg.startswith("<?") and "<!" not in figure.svg
    assert "http" not in figure.svg and "metadata" not in figure.svg
    for element in root.iter():
        assert element.tag in {"svg", "g", "defs", "clipPath", "pattern", "path", "rect", "use"} | {
            "text"
        }
        assert "style" not in element.attrib and "class" not in element.attrib
        assert element.get("href", "#").startswith("#")
    assert root.get("aria-label") == figure.alt and figure.alt
    assert figure.data is not None


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.title[:30])
def test_every_reference_in_a_drawing_finds_its_target(figure: Figure) -> None:
    ids = re.findall(r' id="([^"]+)"', figure.svg)
    wanted = set(re.findall(r"url\(#([^)]+)\)", figure.svg))
    wanted |= set(re.findall(r'href="#([^"]+)"', figure.svg))
    assert len(ids) == len(set(ids)) and wanted == set(ids)


def test_ink_takes_the_colour_of_the_page_and_the_ground_is_clear() -> None:
    svg = scaling_curve().svg
    assert "currentColor" in svg and "#010203" not in svg
    fills = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg))
    assert {f.upper() for f in fills if f.startswith("#")} <= set(PALETTE)


def test_drawing_twice_gives_the_same_bytes_whatever_the_users_settings() -> None:
    first = [figure.svg for figure in draw()]
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9}):
        assert [figure.svg for figure in draw()] == first


def test_two_figures_share_no_ids() -> None:
    drawn = figures()
    ids = [set(re.findall(r' id="([^"]+)"', figure.svg)) for figure in drawn]
    assert all(not one & other for one, other in itertools.combinations(ids, 2))


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_can_be_drawn_and_stays_text(name: str) -> None:
    for figure in one_of_each(name):
        tags = {element.tag for element in ElementTree.fromstring(figure.svg).iter()}
        assert not tags & {"script", "img", "image", "style", "foreignObject"}
        assert "onload=" not in re.sub(r">[^<]*<|aria-label=\"[^\"]*\"", "", figure.svg)
        figure.svg.encode()


def test_dollars_and_braces_are_shown_as_written() -> None:
    figure = curves("t", "x", "$\\frac{1}{2}$ {{7*7}}", [LINE])
    assert "$\\frac{1}{2}$ {{7*7}}" in texts(figure)


def test_an_infeasible_cell_is_hatched_and_the_key_says_so() -> None:
    figure = heat_map("t", ["r"], ["a", "b"], [[0.5, None]], missing="K is larger than M")
    assert "<pattern" in figure.svg and "K is larger than M" in texts(figure)
    assert "1 of 2 cells K is larger than M" in figure.alt
    whole = heat_map("t", ["r"], ["a", "b"], [[0.5, 0.25]])
    assert "<pattern" not in whole.svg and "infeasible" not in texts(whole)
    assert {"0.50", "0.25"} <= set(texts(whole))


def test_on_a_scale_around_0_signs_have_colours_of_their_own() -> None:
    def fills(values: list[float | None]) -> list[str]:
        figure = heat_map("t", ["r"], ["a", "b", "c"], [values], scale=(-1, 1))
        paths = ElementTree.fromstring(figure.svg).iter("path")
        return [p.get("fill", "") for p in paths if p.get("stroke") == "currentColor"]

    less, none, more = (
        [int(fill[i : i + 2], 16) for i in (1, 3, 5)] for fill in fills([-1.0, 0.0, 1.0])
    )
    assert less[0] > less[2] and more[0] < more[2]  # orange, blue
    assert min(none) > 240


@pytest.mark.parametrize("low", [0, -1])
def test_numbers_in_cells_can_be_read_against_their_cell(low: int) -> None:
    values = [[low + (1 - low) * i / 20 for i in range(21)]]
    figure = heat_map("t", ["r"], [str(i) for i in range(21)], values)
    root = ElementTree.fromstring(figure.svg)
    cells = [p.get("fill", "") for p in root.iter("path") if p.get("stroke") == "currentColor"]
    inks = [t.get("fill", "") for t in root.iter("text") if (t.get("fill") or "").startswith("#")]
    assert len(cells) == len(inks) == 21
    assert min(contrast(c, i) for c, i in zip(cells, inks, strict=True)) >= 3.8


def test_points_a_log_axis_cannot_show_are_counted_in_the_caption() -> None:
    line = Series("a", [0, 1, 10], [1, 2, 3])
    assert "1 point at or below zero" in curves("t", "x", "y", [line], log_x=True).caption
    assert curves("t", "x", "y", [line]).caption == ""


def test_gaps_are_kept_as_gaps_and_in_the_numbers() -> None:
    figure = curves("t", "x", "y", [Series("a", [1, 2, 3, 4], [1, None, float("inf"), 2])])
    assert figure.data is not None and figure.data.rows[1][2] is None


def test_a_figure_without_values_says_so() -> None:
    assert "no values to show" in texts(curves("t", "x", "y", [Series("a", [], [])]))
    assert "no value" in texts(dots("t", ["c"], [Estimates("a", [None])], value_label="v"))


def test_a_series_keeps_its_looks_across_panels() -> None:
    other = Series("b", [1, 2], [0, 1])
    drawn = panels("t", "x", "y", [Panel("p", [LINE]), Panel("q", [other, LINE])])
    clipped = (p for p in ElementTree.fromstring(drawn.svg).iter("path") if p.get("clip-path"))
    lines = [stroke for p in clipped if (stroke := p.get("stroke", "")).startswith("#")]
    assert [line.upper() for line in lines] == [PALETTE[0], PALETTE[1], PALETTE[0]]


def test_the_fitted_line_is_the_least_squares_line() -> None:
    x, y = [0.0, 1.0, 2.0, 3.0], [1.0, 3.1, 4.9, 7.2]
    slope, intercept = np.linalg.lstsq(np.c_[x, np.ones(4)], np.array(y), rcond=None)[0]
    ends = [intercept, slope * 3 + intercept]
    fitted = scatter("t", "x", "y", [Points("a", x, y)], fit=True)
    drawn = scatter("t", "x", "y", [Points("a", x, y), Points("b", [0, 3], ends)], fit=False)
    line = re.search(
        r'd="M ([\d.]+) ([\d.]+) L ([\d.]+) ([\d.]+)"[^>]*stroke="#0F7AC2"', _low(fitted)
    )
    assert line is not None
    uses = ElementTree.fromstring(fitted.svg).iter("use")
    dots_at = [(float(u.get("x", 0)), float(u.get("y", 0))) for u in uses if _blue(u)]
    (x0, y0), (x3, y3) = dots_at[0], dots_at[3]
    scale = (y3 - y0) / (y[3] - y[0])
    wanted = [y0 + (end - y[0]) * scale for end in ends]
    got = [float(line[2]), float(line[4])]
    assert got == pytest.approx(wanted, abs=0.1) and (x0, x3) == pytest.approx(
        (float(line[1]), float(line[3])), abs=0.1
    )
    assert drawn.svg != fitted.svg


def _low(figure: Figure) -> str:
    return figure.svg.replace("#0f7ac2", "#0F7AC2")


def _blue(element: ElementTree.Element) -> bool:
    return (element.get("fill") or "").upper() == "#0F7AC2"


@given(
    st.lists(st.tuples(st.floats(0, 300), st.sampled_from([18.0, 33.0])), min_size=1, max_size=7)
)
def test_labels_never_overlap_and_stay_inside(labels: list[tuple[float, float]]) -> None:
    wanted, heights = [w for w, _ in labels], [h for _, h in labels]
    placed = spread(wanted, heights, 330)
    boxes = sorted((p - h / 2, p + h / 2) for p, h in zip(placed, heights, strict=True))
    assert boxes[0][0] >= -1e-6 and boxes[-1][1] <= 330 + 1e-6
    assert all(one[1] <= other[0] + 1e-6 for one, other in itertools.pairwise(boxes))


def test_labels_with_room_stay_where_they_are_wanted() -> None:
    assert spread([200.0, 50.0], [18.0, 18.0], 330) == [200.0, 50.0]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (-0.5, "−0.5"), (1e9, "10⁹"), (2.5e-4, "2.5×10⁻⁴"), (1.5e6, "1.5M"), (128, "128")],
)
def test_ticks_are_written_as_people_write_them(value: float, shown: str) -> None:
    assert tick_label(value) == shown


@pytest.mark.parametrize(
    "draw",
    [
        lambda: curves("t", "x", "y", [Series("a", [1, 2], [1])]),
        lambda: scatter("t", "x", "y", [Points("a", [1, 2], [1])]),
        lambda: dots("t", ["c"], [Estimates("a", [1, 2])], value_label="v"),
        lambda: dots("t", [], [], value_label="v"),
        lambda: panels("t", "x", "y", []),
        lambda: Grid("g", ["r"], ["c"], [[1.0, 2.0]]),
    ],
)
def test_numbers_that_do_not_fit_are_refused_with_what_was_expected(
    draw: Callable[[], object],
) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        draw()


ATTACKS = (
    '<svg viewBox="0 0 1 1" onload="x()"><script>x()</script><path d="M 0 0"/></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg"><foreignObject><b>x</b></foreignObject></svg>',
    '<svg><a href="javascript:x()"><text>t</text></a><use href="https://e.org/#a"/></svg>',
    '<svg><rect fill="url(https://e.org/p)" style="background: url(//e.org); fill: red"/></svg>',
    "<svg><style>@import url(//e.org)</style><image href='data:,'/><set onbegin='x()'/></svg>",
)


@pytest.mark.parametrize("svg", ATTACKS)
def test_a_foreign_drawing_keeps_only_what_is_inert(svg: str) -> None:
    kept = clean(svg, "p-")
    tags = {element.tag for element in ElementTree.fromstring(kept).iter()}
    assert tags <= {"svg", "path", "rect", "use", "text"}
    assert not re.search(r"script|onload|onbegin|e\.org|javascript|@import|style", kept)


@pytest.mark.parametrize(
    "svg", ["", "hello", "<p>x</p>", '<!DOCTYPE s [<!ENTITY a "b">]><svg>&a;</svg>']
)
def test_what_is_no_drawing_is_refused(svg: str) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        clean(svg, "p-")


def test_an_interval_with_one_bound_is_drawn_to_the_border():
    known = ClaimRow("a", "A.", "at least 0.5", "inconclusive", 0.4, None, 0.7, None, None,
                     5, "seeds", "", (0.5, None))  # fmt: skip
    (line,) = re.findall(r'class="raw" d="M (\S+) 15 H (\S+)"', interval_bar(known))
    assert float(line[0]) == 10.0 < float(line[1]) < 270.0
    assert "adjusted" not in interval_bar(known)
