"""Where does generalization end: does novelty predict error, and does scale help less there?

`recombine run boundary --preset standard` looks at every unseen combination by itself: how many of
its pairs were never trained together, how rare its rarest module is, and how large its error is, at
several widths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.instruments.generalization import Generalization
from recombine.lab.statistics import LeastSquares, least_squares, mean_interval
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.report.document import Section, Table
from recombine.report.figures import Panel, Series, curves, panels
from recombine.studies import _base as base
from recombine.supports import LEVELS

DRAWS = Generalization().draws


@dataclass(frozen=True)
class Grid(Seeded):
    """Widths by high held-out shares, where unseen combinations differ in novelty."""

    training: str = "quick"
    modules: int = 8
    active: int = 3
    width: tuple[int, ...] = (32, 64, 128)
    held_out: tuple[float, ...] = (0.8,)
    depth: int = 2
    seeds: int = 5


class Boundary(Study):
    """Novelty, scale and error, combination by combination."""

    name = "boundary"
    question = "Does novelty predict error, and does scale help less where novelty is high?"
    source = "The debate itself; novelty of a combination as defined in docs/architecture.md"
    cost = "quick: 0.5 min on two CPU cores; standard: 15 min for all five on one H200"
    not_shown = (
        "Novelty in other families: pairs and triples of modules mean something else there.",
        "Widths beyond the largest: an interaction may change sign outside the range.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", 6, 2, (16, 32), (0.6,), 2, 2),
        "quick": Grid(),
        "standard": Grid("standard", 16, 3, (128, 256, 512, 1024), (0.9, 0.95, 0.98), 4, 5),
        "paper": Grid(
            "paper", 16, 3, (128, 256, 512, 1024, 2048), (0.75, 0.9, 0.95, 0.98), 4, 5
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        return [
            base.cell(base.training_named(grid.training), modules=grid.modules, active=grid.active,
                      width=w, held_out=f, depth=grid.depth, seed=s)
            for w in grid.width
            for f in grid.held_out
            for s in grid.drawn(grid.seeds)
        ]  # fmt: skip

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            Claim(
                "novelty predicts error",
                "Among unseen combinations of one size in one network, each pair never trained "
                "together raises log10 of the relative error",
                effect("unseen_pairs"), above=0.0,
            ),
            Claim(
                "rarity predicts error",
                "Among unseen combinations of one size in one network, halving the usage of the "
                "rarest module raises log10 of the relative error",
                effect("rarity"), above=0.0,
            ),
            Claim(
                "scale helps less where novelty is high",
                "The fall of log10 relative error per doubling of parameters is smaller for each "
                "pair never trained together (interaction of log2 parameters and unseen pairs)",
                interaction("unseen_pairs"), above=0.0,
            ),
            Claim(
                "scale helps less where modules are rare",
                "The fall of log10 relative error per doubling of parameters is smaller for each "
                "halving of the rarest module's usage",
                interaction("rarity"), above=0.0,
            ),
            Claim(
                "scale helps at all on unseen pairs",
                "On combinations with a pair never trained together, log10 relative error falls "
                "with log2 parameters",
                slope_on_new_pairs, below=0.0,
            ),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        drawn = []
        for share in grid.held_out:
            lines = []
            for width in grid.width:
                chosen = results.where(width=width, held_out=share)
                series = error_by(chosen, "unseen_pairs", f"width {width}")
                lines.append(series)
            drawn.append(Panel(f"held-out {share:g}", lines))
        by_usage = [error_by(results.where(width=w), "rarity", f"width {w}") for w in grid.width]
        return [
            Section(
                "Error by pairs never trained",
                "Relative error: squared error over the targets' variance, averaged over "
                "combinations of a network, then over seeds.",
                (panels("Relative error by unseen pairs", "pairs never trained together",
                        "relative error", drawn, log_y=True),),
                (level_table(results, grid.width),),
            ),
            Section(
                "Error by the rarest module",
                "How often training used the rarest module of a combination, in halvings from "
                "the most used one.",
                (curves("Relative error by rarity", "halvings of usage", "relative error",
                        by_usage, log_y=True),),
            ),
            Section("Scores", "", (), (base.score_table(results, ("held_out", "width")),)),
        ]  # fmt: skip


def level_table(results: Results, widths: Sequence[int], metric: str = "R²") -> Table:
    """The unseen score at each level of novelty and width."""
    rows = []
    for level, name in enumerate(LEVELS):
        for width in widths:
            chosen = results.where(width=width)
            found = chosen.values("generalization", f"unseen_level{level}")
            if found.size:
                counts = chosen.values("generalization", f"unseen_count_level{level}")
                rows.append([name, width, base.interval_text(found), int(counts.sum())])
    columns = ["novelty", "width", f"unseen {metric}", "combinations"]
    return Table(f"Unseen {metric} by level of novelty", columns, rows)


def table_of(row: Row) -> dict[str, np.ndarray]:
    """The unseen combinations of a network with log error, pairs, rarity and size."""
    table = row.readings["generalization"].tables["unseen"]
    wrong, of = np.asarray(table["error"], float), np.asarray(table["variance"], float)
    if "whole" in table:
        # Counts of wrong actions can be zero: half a mistake more in all episodes drawn together.
        half = 0.5 / DRAWS
        error = (wrong + half) / (of + 2 * half)
    else:
        error = wrong / of.mean()
    usage = np.maximum(np.asarray(table["rarest_usage"], float), 0.5)
    return {
        "log_error": np.log10(np.maximum(error, 1e-8)),
        "unseen_pairs": np.asarray(table["unseen_pairs"], float),
        "rarity": np.log2(usage.max() / usage),
        "size": np.asarray(table["size"]),
    }


def stacked(results: Results) -> dict[str, np.ndarray]:
    """All combinations of all trained networks, with who they belong to."""
    rows = [row for row in base.trained(results) if not row.diverged]
    if len({row.labels["seed"] for row in rows}) < 2:
        raise NotTested("Needs trained networks of at least two seeds.")
    parts: dict[str, list[np.ndarray]] = {}
    for number, row in enumerate(rows):
        table = table_of(row)
        count = table["size"].size
        table["network"] = np.full(count, number)
        table["seed"] = np.full(count, row.labels["seed"])
        table["log_size"] = np.full(count, math.log2(row.labels["parameters"]))
        for name, values in table.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values minus their group's mean: the same as an intercept for every group."""
    _, index = np.unique(groups, return_inverse=True)
    sums = np.bincount(index, weights=values)
    return values - (sums / np.bincount(index))[index]


def fitted(
    data: dict[str, np.ndarray], columns: dict[str, np.ndarray]
) -> Callable[[float], LeastSquares]:
    """Least squares within networks and combination sizes, errors clustered by seed."""
    groups = data["network"] * 100 + data["size"]
    y = centred(data["log_error"], groups)
    design = np.column_stack([centred(column, groups) for column in columns.values()])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise NotTested("Novelty does not vary enough among the unseen combinations.")

    def at(level: float) -> LeastSquares:
        return least_squares(
            y, design, list(columns), cluster=data["seed"], intercept=False, level=level
        )

    return at


def effect(measure: str) -> Callable[[Results], Evidence]:
    def found(results: Results) -> Evidence:
        data = stacked(results)
        fit = fitted(data, {measure: data[measure]})
        return Evidence.of_interval(
            lambda level: fit(level)[measure].interval,
            f"{data['size'].size} combinations of {len(np.unique(data['network']))} networks.",
        )

    return found


def interaction(measure: str) -> Callable[[Results], Evidence]:
    def found(results: Results) -> Evidence:
        data = stacked(results)
        if len(np.unique(data["log_size"])) < 2:
            raise NotTested("Needs trained networks of two sizes.")
        size = data["log_size"] - data["log_size"].mean()
        fit = fitted(data, {measure: data[measure], "interaction": size * data[measure]})
        return Evidence.of_interval(lambda level: fit(level)["interaction"].interval)

    return found


def slope_on_new_pairs(results: Results) -> Evidence:
    """Per seed: the slope of mean log error on log2 parameters, at equal shares."""
    slopes = []
    rows = [row for row in base.trained(results) if not row.diverged]
    for seed in sorted({row.labels["seed"] for row in rows}):
        points = []
        for row in [r for r in rows if r.labels["seed"] == seed]:
            table = table_of(row)
            new = table["unseen_pairs"] > 0
            if new.any():
                points.append((row.labels["held_out"], math.log2(row.labels["parameters"]),
                               table["log_error"][new].mean()))  # fmt: skip
        if len({p[1] for p in points}) < 2:
            continue
        shares, x, y = (np.asarray(column) for column in zip(*points, strict=True))
        x, y = centred(x, shares), centred(y, shares)
        slopes.append(float((x * y).sum() / (x * x).sum()))
    return Evidence.of_values(base.require(np.asarray(slopes), "Seeds with new pairs"))


def error_by(results: Results, measure: str, name: str) -> Series:
    """Mean relative error over seeds for each value of a measure of novelty, with intervals."""
    found: dict[int, list[float]] = {}
    for row in results:
        if row.diverged:
            continue
        table = table_of(row)
        level = np.round(table[measure]).astype(int)
        for value in np.unique(level):
            mean = float((10 ** table["log_error"][level == value]).mean())
            found.setdefault(int(value), []).append(mean)
    xs, ys, lows, highs = [], [], [], []
    for value in sorted(found):
        interval = mean_interval(np.log10(found[value]))
        xs.append(value)
        ys.append(10**interval.estimate)
        finite = math.isfinite(interval.low)
        lows.append(10**interval.low if finite else None)
        highs.append(10**interval.high if finite else None)
    return Series(name, xs, ys, lows, highs)
