"""The figures and tables of the studies of growth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from recombine.lab import growth
from recombine.lab.growth import Extrapolation, Growth, Point
from recombine.lab.statistics import Interval, mean_interval
from recombine.lab.study import Results
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Panel, Series, curves, panels
from recombine.studies import _base as base
from recombine.studies._law import (
    FEWEST,
    LEFT_OUT,
    NAMES,
    Grid,
    Setting,
    fit_at_most,
    located,
    mean_curve,
    network,
    points,
    reached,
    saved,
    settings,
    undertrained,
    usable,
)

Laws = Mapping[str, Mapping[str, Extrapolation] | str]
"""For each model its laws at the largest settings, or the reason why there are none."""


def sections(grid: Grid, results: Results, laws: Laws) -> list[Section]:
    """What the report shows, in reading order."""
    found = {model: points(grid, results, model) for model in grid.model}
    return [
        Section(
            "How many combinations are needed",
            f"N* is the number of trained combinations at which the unseen {grid.metric} of a seed "
            f"reaches {grid.target:g}, read off a logistic curve in log N fitted to that seed's "
            f"scores.\n\n{saved(grid, results)}",
            (need_figure(grid, found, laws), share_figure(grid, found)),
            (need_table(grid, found), model_table(grid, results)),
        ),
        law_section(laws),
        Section(
            f"Unseen {grid.metric} by number of trained combinations",
            "The curves behind N*, with every size that the rounds asked for.",
            (curve_figure(grid, results),),
            (used_table(grid, results, found),),
        ),
    ]


def predicted(law: Growth, setting: Setting) -> float:
    """N* by a fitted law; NaN where the fit does not determine it."""
    sizes = (setting.modules, setting.active, setting.combinations)
    columns = growth.LAWS[law.law].design(*(np.array([n], dtype=np.float64) for n in sizes))
    return 2 ** sum(
        law.coefficients.get(name, math.nan) * float(column[0]) for name, column in columns.items()
    )


def need(found: Sequence[Point], setting: Setting) -> Interval | None:
    """Mean log2 N* over the seeds that cross the target, if most do."""
    if not located(found, setting.place):
        return None
    return mean_interval([p.log2_size for p in reached(found, setting.place)])


def end(interval: Interval | None, side: str = "estimate") -> float | None:
    """A number of an interval in log2 units, as a number of combinations."""
    value = math.nan if interval is None else getattr(interval, side)
    return 2**value if math.isfinite(value) else None


def beyond(found: Sequence[Point], setting: Setting) -> float | None:
    """The largest N tried where most seeds stay below the target."""
    above = [p.log2_size for p in found if p.setting == setting.place and p.censored == "above"]
    return 2 ** max(above) if above and not located(found, setting.place) else None


def with_values(series: Sequence[Series]) -> list[Series]:
    """Series that have something to show."""
    return [line for line in series if any(y is not None and math.isfinite(y) for y in line.y)]


def need_figure(grid: Grid, found: Mapping[str, list[Point]], laws: Laws) -> Figure:
    """N* against M, a panel for each model and K, with the laws behind it."""
    drawn, fitted = [], False
    for model, told in laws.items():
        fits = [] if isinstance(told, str) else [one.growth for one in told.values()]
        fitted = fitted or bool(fits)
        for k in sorted(set(grid.active)):
            line = [s for s in settings(grid) if (s.model, s.active) == (model, k)]
            at = [s.modules for s in line]
            series = [
                Series(f"{fit.law} law", at, [predicted(fit, s) for s in line]) for fit in fits
            ]
            limits = [beyond(found[model], s) for s in line]
            series.append(Series("tried, target not reached", at, limits))
            needs = [need(found[model], s) for s in line]
            lows, highs = [end(i, "low") for i in needs], [end(i, "high") for i in needs]
            series.append(Series("measured", at, [end(i) for i in needs], lows, highs))
            drawn.append(Panel(f"{NAMES[model]}, K = {k}", with_values(series)))
    caption = "Means over seeds with 95 % intervals."
    if fitted:
        caption += f" The laws are fitted without the {LEFT_OUT} settings of most combinations."
    return panels(
        "Combinations needed by number of modules", "modules M", "combinations needed, N*", drawn,
        log_x=True, log_y=True, columns=2 if len(drawn) == 4 else 3, caption=caption,
    )  # fmt: skip


def share_figure(grid: Grid, found: Mapping[str, list[Point]]) -> Figure:
    """N* as a share of all combinations: does it vanish?"""
    lines = []
    for model in grid.model:
        for k in sorted(set(grid.active)):
            line = [s for s in settings(grid) if (s.model, s.active) == (model, k)]
            needs = [need(found[model], s) for s in line]
            parts = [
                [None if (n := end(i, side)) is None else n / s.combinations
                 for i, s in zip(needs, line, strict=True)]
                for side in ("estimate", "low", "high")
            ]  # fmt: skip
            at = [s.combinations for s in line]
            lines.append(Series(f"{NAMES[model]}, K = {k}", at, *parts))
    return curves(
        "Share of all combinations needed", "all combinations S", "share needed, N* / S",
        with_values(lines), log_x=True, log_y=True,
        caption="A level line is a fixed share; one that falls is a share that vanishes.",
    )  # fmt: skip


def need_table(grid: Grid, found: Mapping[str, list[Point]]) -> Table:
    rows: list[list[Any]] = []
    for s in settings(grid):
        interval = need(found[s.model], s)
        estimate, low, high = (end(interval, side) for side in ("estimate", "low", "high"))
        limit = beyond(found[s.model], s)
        if estimate is not None:
            words = f"{estimate:.0f}" + (f" [{low:.0f}, {high:.0f}]" if low and high else "")
        else:
            words = "–" if limit is None else f"over {limit:.0f}"
        share = None if estimate is None else f"{100 * estimate / s.combinations:.1f} %"
        rows.append([NAMES[s.model], s.active, s.modules, s.combinations, words, share])
    return Table(
        "Combinations needed", ["model", "K", "M", "all combinations S", "N*", "N* / S"], rows,
        "Geometric means over the seeds that cross the target, with 95 % intervals. No number "
        "where fewer than half of the seeds cross it.",
    )  # fmt: skip


def model_table(grid: Grid, results: Results) -> Table:
    rows: list[list[Any]] = []
    for model in grid.model:
        spec, rate = network(grid, model)
        counts = results.where(model=model).labels("parameters")
        told = "–" if not counts else f"{counts[0]:,}"
        if len(counts) > 1:
            told += f" to {counts[-1]:,}"
        size = f"{spec.layers} x {grid.width if model == 'mlp' else grid.transformer_width}"
        rows.append([NAMES[model], size, told, rate])
    return Table(
        "Models", ["model", "layers x width", "parameters", "learning rate"], rows,
        "Parameters grow with M: the code of a task has one number for each module.",
    )  # fmt: skip


def law_section(laws: Laws) -> Section:
    """How well each law predicts the settings it was not fitted to."""
    paragraphs, rows, columns = [], [], []
    for model, told in laws.items():
        if isinstance(told, str):
            paragraphs.append(f"{NAMES[model]}: {told}")
            continue
        paragraphs.append(f"{NAMES[model]}: {growth.best(told)[1]}.")
        for law, one in told.items():
            error = one.error
            ends = f" [{error.low:.2f}, {error.high:.2f}]" if math.isfinite(error.high) else ""
            symbol = "p" if law == "power of the whole" else "b"
            columns = [f"predicted / found, M={p.modules} K={p.active}" for p in one.predictions]
            rows.append(
                [NAMES[model], law, f"{symbol} = {one.growth.slope:.3g}", f"{one.aic:.1f}",
                 f"{error.estimate:.2f}{ends}",
                 *(f"{2**p.predicted:.0f} / {2**p.observed:.0f}" for p in one.predictions)]
            )  # fmt: skip
    forms = "; ".join(f"{law}: {growth.LAWS[law].formula}" for law in growth.COMPARED)
    tables = []
    if rows:
        tables.append(Table(
            "Laws at the largest settings",
            ["model", "law", "fitted", "AIC", "error in log2 units", *columns],
            rows,
            f"Fitted to all other settings. {forms}. The error is the root mean square over the "
            "settings left out, with its 95 % interval over seeds: 1 is a factor of two. AIC is "
            "of the fit, lower is better. A law is named best only where its interval overlaps "
            "no other's.",
        ))  # fmt: skip
    return Section("Which law predicts the largest settings", "\n\n".join(paragraphs), (), tables)


def curve_figure(grid: Grid, results: Results) -> Figure:
    """Unseen scores against N for every setting."""
    drawn = []
    for k in sorted(set(grid.active)):
        for m in sorted(set(grid.modules)):
            rows = usable(grid, results).where(active=k, modules=m)
            drawn.append(Panel(f"M = {m}, K = {k}", [
                base.series_over(rows.where(model=model), "size", base.unseen, NAMES[model])
                for model in grid.model
            ]))  # fmt: skip
    return panels(
        f"Unseen {grid.metric} by trained combinations", "trained combinations N",
        f"unseen {grid.metric}", drawn,
        log_x=True, y_range=(-0.1, 1.02), references=[(grid.target, f"target {grid.target:g}")],
        caption="Means over seeds with 95 % intervals; undertrained networks are left out.",
    )  # fmt: skip


def used_table(grid: Grid, results: Results, found: Mapping[str, list[Point]]) -> Table:
    """What each threshold rests on, and what was set aside."""
    rows: list[list[Any]] = []
    for s in settings(grid):
        cells = s.of(results)
        sizes, means = mean_curve(grid, cells)
        here = [p.censored for p in found[s.model] if p.setting == s.place]
        sides = [mean >= grid.target for mean in means if math.isfinite(mean)]
        crossings = sum(a != b for a, b in pairwise(sides))
        seen, notes = fit_at_most(s, results), []
        if len(here) < grid.seeds:
            notes.append(f"{grid.seeds - len(here)} seeds set aside")
        if crossings > 1:
            notes.append(f"the mean curve crosses the target {crossings} times")
        if seen < grid.target:
            notes.append(f"limited by training: seen {grid.metric} is below the target itself")
        rows.append(
            [NAMES[s.model], s.active, s.modules, len(sizes), here.count("no"),
             here.count("above"), here.count("below"),
             undertrained(grid, cells), cells.diverged,
             seen if math.isfinite(seen) else None, "; ".join(notes)]
        )  # fmt: skip
    return Table(
        "What the thresholds rest on",
        ["model", "K", "M", "sizes tried", "seeds that cross", "not reached (censored)",
         "reached at once (censored)", "undertrained cells", "diverged",
         f"seen {grid.metric} at largest N", "note"],
        rows,
        f"Undertrained: seen {grid.metric} below {grid.floor:g}; such cells are set aside. So are "
        f"seeds with fewer than {FEWEST} trained networks, and seeds that miss the target where "
        f"their seen {grid.metric} at the largest N misses it too. A censored threshold enters "
        "the laws as a limit, by its probability.",
    )  # fmt: skip
