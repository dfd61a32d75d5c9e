"""Does the score on unseen combinations grow with what training covers?

`recombine run data-scaling --preset standard` trains networks on more or fewer of the combinations
of M modules, at most K at a time, and looks at those held out. Expected: at held-out .25 the unseen
R² is close to the seen one; towards .98 it breaks while the seen score stays high.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.combinations import Subsets
from recombine.errors import InvalidRequest
from recombine.lab.statistics import least_squares
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.report.document import Section
from recombine.report.figures import Grid as HeatGrid
from recombine.report.figures import Series, curves, heat_maps
from recombine.studies import _base as base
from recombine.studies._base import gap, seen, series_over, unseen


@dataclass(frozen=True)
class Grid(Seeded):
    """Module counts by combination sizes by held-out shares, and a headline at larger width."""

    training: str = "quick"
    modules: tuple[int, ...] = (8,)
    active: tuple[int, ...] = (3,)
    held_out: tuple[float, ...] = (0.25, 0.75, 0.9)
    width: tuple[int, ...] = (64, 128)
    depth: int = 2
    seeds: int = 5
    headline_width: int = 0  # 0: no headline
    headline_held_out: tuple[float, ...] = (0.25, 0.98)
    headline_seeds: tuple[int, ...] = (5, 10)


class DataScaling(Study):
    """Scaling with data: more combinations trained, more combinations mastered?"""

    name = "data-scaling"
    question = "Does the score on unseen combinations grow with what training covers?"
    source = base.SOURCE
    cost = "quick: 1 min on two CPU cores; standard: 15 min for all five on one H200"
    not_shown = (
        "Whether larger networks or longer training would mend the failures at high held-out "
        "shares: see model-scaling.",
        "Anything about families other than the hyperteacher.",
        "Whether the combinations are covered well or badly at equal number: see coverage.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", (6,), (2,), (0.25, 0.5), (16,), 2, 2),
        "quick": Grid(),
        "standard": Grid(
            "standard", (8, 16, 24), (2, 3, 4), (0.25, 0.5, 0.75, 0.9, 0.95, 0.98), (256,), 4, 5,
            1024, (0.25, 0.9, 0.95, 0.98), (5, 5, 10, 10),
        ),
        "paper": Grid(
            "paper", (8, 16, 24, 32), (2, 3, 4, 5, 6, 7),
            (0.125, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99), (1024,), 4, 3,
            1024, (0.25, 0.98), (3, 3),
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        training = base.training_named(grid.training)
        common: dict[str, Any] = {"depth": grid.depth}
        found = [
            base.cell(training, modules=m, active=k, held_out=f, width=w, seed=s, **common)
            for w in grid.width
            for m in grid.modules
            for k in grid.active
            for f in grid.held_out
            for s in grid.drawn(grid.seeds)
        ]
        if grid.headline_width:
            if len(grid.headline_held_out) != len(grid.headline_seeds):
                raise InvalidRequest(
                    f"headline_held_out has {len(grid.headline_held_out)} values and "
                    f"headline_seeds {len(grid.headline_seeds)}: give as many"
                )
            found += [
                base.cell(training, held_out=f, width=grid.headline_width, seed=s, **common)
                for f, seeds in zip(grid.headline_held_out, grid.headline_seeds, strict=True)
                for s in grid.drawn(seeds)
            ]
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        at = base.training_named(grid.training).matched
        low, high = min(grid.held_out), max(grid.held_out)
        middle: dict[str, Any] = {
            "modules": grid.modules[len(grid.modules) // 2],
            "active": grid.active[len(grid.active) // 2],
            "width": max(grid.width),
        }
        where = (f"{middle['modules']} modules, at most {middle['active']} at a time, width "
                 f"{middle['width']}")  # fmt: skip

        def headline(share: float, number: Callable[[Row], float]):
            def measure(results: Results) -> Evidence:
                if not grid.headline_width:
                    raise NotTested("Not tested at this size: needs preset standard, width 1024.")
                place = {"modules": 16, "active": 3, "width": grid.headline_width}
                rows = base.require_labels(results, **place, held_out=share)
                found = np.asarray([number(r) for r in base.trained(rows) if not r.diverged])
                return Evidence.of_values(
                    base.require(found, "Trained networks"), base.left_out(rows)
                )

            return measure

        def gap_at(share: float):
            def measure(results: Results) -> Evidence:
                rows = base.trained(results).where(**middle, held_out=share)
                found = np.asarray([gap(r) for r in rows if not r.diverged])
                return Evidence.of_values(base.require(found, "Trained networks"))

            return measure

        return [
            Claim(
                "covered combinations are enough",
                "With a quarter of the combinations held out (16 modules, at most 3 at a time, "
                f"width {grid.headline_width or 1024}), unseen R² is at least .98",
                headline(0.25, unseen), at_least=0.98,
            ),
            Claim(
                "too few combinations are not",
                "With .98 held out, unseen R² stays below .8",
                headline(0.98, unseen), below=0.8,
            ),
            Claim(
                "the failure is not a failure to fit",
                "With .98 held out, seen R² is at least .98",
                headline(0.98, seen), at_least=0.98,
            ),
            Claim(
                "a small gap when much is covered",
                f"With {low:g} of the combinations held out ({where}), unseen R² is at most .05 "
                "below seen R²",
                gap_at(low), at_most=0.05,
            ),
            Claim(
                "a large gap when little is covered",
                f"With {high:g} held out, unseen R² is at least .1 below seen R²",
                gap_at(high), at_least=0.1,
            ),
            Claim(
                "the gap closes with data",
                "The gap between seen and unseen R² falls with the logarithm of the number of "
                "trained combinations (slope within each family size)",
                gap_slope(gap), below=0.0,
            ),
            Claim(
                "the gap closes with data, also earlier",
                "The same a third of the way through training",
                gap_slope(gap_at_third), below=0.0,
            ),
            Claim(
                "also at matched seen score",
                f"At the step where seen R² first reaches {at:g}, unseen R² is higher with {low:g} "
                f"than with {high:g} held out ({where})",
                self._matched(middle, low, high, at), above=0.0,
            ),
            *self._by_modules(grid, middle["active"]),
        ]  # fmt: skip

    def _by_modules(self, grid: Grid, k: int) -> list[Claim]:
        if len(grid.modules) < 2:
            return []
        return [
            Claim(
                "more modules help at equal share",
                f"At an equal held-out share of .9, unseen R² is higher with {max(grid.modules)} "
                f"modules than with {min(grid.modules)} (at most {k} at a time)",
                self._more_modules(grid, k), above=0.0,
            )
        ]  # fmt: skip

    @staticmethod
    def _matched(place: dict[str, Any], low: float, high: float, at: float):
        def measure(results: Results) -> Evidence:
            if low == high:
                raise NotTested("Needs two held-out shares.")
            values = results.paired(
                "seed", {**place, "held_out": high}, {**place, "held_out": low},
                lambda row: base.unseen_at_matched(row, at),
            )  # fmt: skip
            return Evidence.of_values(base.require(values, f"Networks that reach seen R² {at:g}"))

        return measure

    @staticmethod
    def _more_modules(grid: Grid, k: int):
        def measure(results: Results) -> Evidence:
            if 0.9 not in grid.held_out:
                raise NotTested("Needs a held-out share of .9.")
            first, last = min(grid.modules), max(grid.modules)
            same = {"active": k, "held_out": 0.9, "width": grid.width[0]}
            values = base.trained(results).paired(
                "seed", {**same, "modules": first}, {**same, "modules": last}, unseen
            )
            return Evidence.of_values(base.require(values, "Pairs of trained networks"))

        return measure

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        widths = results.labels("width")
        m, k = (16, 3) if grid.headline_width else (grid.modules[0], grid.active[0])
        main = results.where(modules=m, active=k)
        lines = []
        for width in widths:
            rows = main.where(width=width)
            lines.append(series_over(rows, "held_out", unseen, f"unseen, width {width}"))
            lines.append(series_over(rows, "held_out", seen, f"seen, width {width}"))
        found = [
            Section(
                "Unseen and seen against the held-out share",
                f"{m} modules, at most {k} at a time.",
                (curves("R² by held-out share", "held-out share", "R²", lines,
                        y_range=(-0.1, 1.02), references=[(0.98, "criterion .98")],
                        caption="Means over seeds with 95 % intervals."),),
            )
        ]  # fmt: skip
        if len(grid.modules) * len(grid.active) > 1:
            found.append(self._maps(grid, results))
        learning = [
            series_over_steps(main.where(width=w, held_out=f), f"width {w}, held-out {f:g}")
            for w in widths[-1:]
            for f in main.where(width=w).labels("held_out")
        ]
        found.append(
            Section(
                "Along training",
                "Unseen R² at each evaluation.",
                (curves("Unseen R² along training", "step", "unseen R²", learning,
                        y_range=(-0.1, 1.02)),),
                (base.score_table(results, ("modules", "active", "width", "held_out")),),
            )
        )  # fmt: skip
        return found

    @staticmethod
    def _maps(grid: Grid, results: Results) -> Section:
        grids = []
        for share in grid.held_out:
            values = []
            for m in grid.modules:
                line = []
                for k in grid.active:
                    chosen = results.where(
                        modules=m, active=k, held_out=share, width=grid.width[0]
                    ).values("generalization", "unseen")
                    line.append(float(chosen.mean()) if chosen.size else None)
                values.append(line)
            grids.append(
                HeatGrid(f"held-out {share:g}", [str(m) for m in grid.modules],
                         [str(k) for k in grid.active], values)
            )  # fmt: skip
        figure = heat_maps(
            "Unseen R² by modules and combination size", grids, row_label="modules M",
            column_label="at most K active", value_label="unseen R²", scale=(0.0, 1.0),
        )  # fmt: skip
        return Section("Modules by combination size", "", (figure,))


def series_over_steps(results: Results, name: str) -> Series:
    """Mean unseen R² over seeds at each evaluation step."""
    rows = [row for row in results if not row.diverged]
    if not rows:
        return Series(name, [], [])
    length = min(len(row.curve("unseen")[1]) for row in rows)
    steps = rows[0].curve("unseen")[0][:length]
    stacked = np.stack([row.curve("unseen")[1][:length] for row in rows])
    return Series(name, steps.tolist(), stacked.mean(axis=0).tolist())


def gap_at_third(row: Row) -> float:
    return base.at_third(row, "seen") - base.at_third(row, "unseen")


def gap_slope(number: Callable[[Row], float]) -> Callable[[Results], Evidence]:
    """The slope of a gap on log2(trained combinations), with an intercept per family and width."""

    def family(row: Row) -> tuple[int, int, int]:
        return (row.labels["modules"], row.labels["active"], row.labels["width"])

    def trained_count(row: Row) -> float:
        size = Subsets(row.labels["modules"], row.labels["active"]).size
        return math.log2(size - int(size * row.labels["held_out"]))

    def measure(results: Results) -> Evidence:
        rows = [row for row in base.trained(results) if not row.diverged]
        families = sorted({family(row) for row in rows})
        seeds = np.array([row.labels["seed"] for row in rows])
        if len(set(seeds)) < 2 or len(rows) < len(families) + 3:
            raise NotTested("Too few trained networks to fit a slope.")
        if len({row.labels["held_out"] for row in rows}) < 2:
            raise NotTested("Needs two held-out shares.")
        dummies = np.array([[float(family(row) == f) for f in families] for row in rows])
        columns = np.column_stack([[trained_count(row) for row in rows], dummies])
        names = ["slope", *[str(f) for f in families]]
        y = np.array([number(row) for row in rows])
        return Evidence.of_interval(
            lambda level: (
                least_squares(y, columns, names, cluster=seeds, intercept=False, level=level)[
                    "slope"
                ].interval
            ),
            f"{len(rows)} trained networks. {base.left_out(results)}".strip(),
        )

    return measure
