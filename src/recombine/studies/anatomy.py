"""Of networks that do equally well on what they saw, what inside tells which one generalizes?

`recombine run anatomy --preset standard` trains over a hundred networks of one shape, and as many
of two others, keeps those whose seen scores lie within .01 of each other, and looks at each with
every instrument: decodability, erasure, subnetworks and fracture. Nobody has published that table;
each of its parts has been said to go with generalization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.instruments.decodability import Decodability, last_hidden
from recombine.instruments.erasure import Erasure
from recombine.instruments.fracture import Fracture
from recombine.instruments.generalization import Generalization
from recombine.instruments.subnetworks import Subnetworks
from recombine.lab.intervals import Interval, p_value_against
from recombine.lab.statistics import holm, within_group_correlation
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Study
from recombine.learners.masks import MaskLearner
from recombine.report.document import Section, Table
from recombine.report.figures import Grid as Map
from recombine.report.figures import Points, heat_maps, scatter
from recombine.studies import _base as base

GENERALIZATION = "unseen score"
FEWEST = 20  # networks without which no correlation is given


@dataclass(frozen=True)
class Grid:
    """Shapes by held-out shares by weight decays by seeds, each network with a few masks."""

    training: str = "quick"
    modules: int = 8
    active: int = 3
    shape: tuple[str, ...] = ("48x2",)  # width x depth
    held_out: tuple[float, ...] = (0.25, 0.75)
    decay: tuple[float, ...] = (3e-4, 3e-2)
    seeds: int = 6
    masks: int = 1  # modules of each network that get a mask
    mask_steps: int = 300
    window: float = 0.05  # how far apart seen scores may lie
    networks: int = 20  # wanted of every shape
    rows: int = 512


class Anatomy(Study):
    """One network, every instrument."""

    name = "anatomy"
    question = (
        "Among networks with the same score on what they saw, which looks inside tell how well "
        "they generalize, and do these agree?"
    )
    source = (
        "After Redhardt, Akram and Schug 2025 (decodability), Lepori, Serre and Pavlick 2023 "
        "(subnetworks) and Kumar, Clune, Lehman and Stanley 2025 (fracture)"
    )
    cost = "quick: 45 s on two CPU cores; standard: 5 min on one H200 (estimated)"
    not_shown = (
        "Causes: networks of one teacher are compared, and what its shape, held-out share and "
        "weight decay explain is taken out; what is left still only goes together.",
        "Other families and models: these are MLPs that learn from hyperteachers.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", 6, 2, ("16x1",), (0.25, 0.5), (3e-3,), 2, 1, 20, 1.0, 2, 128),
        "quick": Grid(),
        "standard": Grid("standard", 8, 3, ("64x2", "128x2", "128x3"), (0.25, 0.5, 0.75),
                         (0.0, 3e-3, 3e-2), 14, 2, 1_000, 0.01, 100, 1_024),
        "paper": Grid("paper", 16, 3, ("128x3", "256x3", "256x4"), (0.25, 0.5, 0.75, 0.9),
                      (0.0, 3e-3, 3e-2), 20, 16, 1_000, 0.01, 200, 2_048),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        training = base.training_named(grid.training)
        instruments = (
            Generalization(combinations=256),
            Decodability(rows=grid.rows, features=grid.rows // 16),
            Erasure(),
            Fracture(),
        )  # fmt: skip
        found = []
        for shape in grid.shape:
            width, depth = sizes_of(shape)
            for share in grid.held_out:
                for decay in grid.decay:
                    for seed in range(grid.seeds):
                        network = base.cell(
                            replace(training, weight_decay=decay), modules=grid.modules,
                            active=grid.active, width=width, depth=depth, held_out=share,
                            seed=seed, instruments=instruments, shape=shape, decay=decay,
                            part="network",
                        )  # fmt: skip
                        found += [network, *masks(grid, network)]
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            Claim("floor: enough alike",
                  f"Of every shape at least {grid.networks} networks have seen scores within "
                  f"{grid.window:g} of each other (the fewest, as a share of these)",
                  enough(grid), unit="networks", at_least=1.0),
            *(
                Claim(f"{measure} goes with generalization",
                      f"Among these, {SAID[measure]} correlates with the score on unseen "
                      "combinations (ranks), among students of one teacher, given shape, seen "
                      "score, held-out share and weight decay",
                      together(grid, measure, GENERALIZATION), above=0.0)
                for measure in SAID
            ),
            Claim("whole units, modular weights",
                  "Concordance of units correlates with modularity of weights by at least .4, "
                  "given the same",
                  together(grid, "concordance", "modularity"), at_least=0.4),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        rows = [row for shape in grid.shape for row in alike(results, grid, shape)]
        if len(rows) < FEWEST:
            return [Section("Nothing to show yet", f"{len(rows)} networks have like seen scores.")]
        try:
            table, maps = every_pair(grid, results)
        except NotTested as why:
            return [Section("Nothing to show yet", str(why))]
        points = [
            Points(f"held-out {share:g}", *columns_of(results, grid, "decodability", share))
            for share in grid.held_out
        ]
        counts = Table(
            "Networks", ["shape", "trained", "with like seen scores", "seen", "unseen"],
            [
                [shape, len(networks(results, shape)), len(found := alike(results, grid, shape)),
                 _range([base.seen(r) for r in found]), _range([base.unseen(r) for r in found])]
                for shape in grid.shape
            ],
            "Lowest and highest.",
        )  # fmt: skip
        return [
            Section("Everything against everything",
                    "Rank correlations over networks of like seen score, among students of one "
                    "teacher, given shape, seen score, held-out share and weight decay. All "
                    "measures point the same way: more is what has been said to be good. "
                    + words(), figures=[maps], tables=[table]),
            Section("The networks", "", figures=[
                scatter("Unseen score by decodability", "decodability", "unseen R²", points)],
                tables=[counts]),
        ]  # fmt: skip


def sizes_of(shape: str) -> tuple[int, int]:
    """(width, depth) of a shape such as 64x2."""
    parts = str(shape).split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InvalidRequest(f"shape={shape}: expected width x depth, such as 64x2")
    return int(parts[0]), int(parts[1])


def masks(grid: Grid, network: Cell) -> list[Cell]:
    """Masks for the first modules of a network."""
    labels = {**network.labels, "part": "mask"}
    return [
        Cell(
            MaskLearner(base=network.learner, part=module, mask_steps=grid.mask_steps,
                        seed=network.labels["seed"], evaluation_every=grid.mask_steps),
            {**labels, "module": module}, (Subnetworks(batches=2, draws=2, overlaps=False),),
        )
        for module in range(grid.masks)
    ]  # fmt: skip


Number = Callable[[Row, Results], float]


def _modularity(row: Row, results: Results) -> float:
    """How much more ablating a module's mask hurts that module than ablating other weights does."""
    mine = results.where(
        part="mask", **{k: row.labels[k] for k in ("shape", "held_out", "decay", "seed")}
    )
    found = [
        mask.value("subnetworks", "ablation_raw", "random")
        - mask.value("subnetworks", "ablation_raw")
        for mask in mine
        if "subnetworks" in mask.readings
    ]
    return float(np.mean(found)) if found else float("nan")


MEASURES: dict[str, Number] = {
    GENERALIZATION: lambda row, _: base.unseen(row),
    "decodability": lambda row, _: row.value(
        "decodability", last_hidden(row.readings["decodability"].values)
    ),
    "erasure": lambda row, _: row.value("erasure", "beyond_random"),
    "modularity": _modularity,
    "concordance": lambda row, _: row.value("fracture", "concordance"),
    "purity": lambda row, _: row.value("fracture", "disentanglement"),
    "selectivity": lambda row, _: row.value("fracture", "selectivity"),
}
SAID = {
    "decodability": "linear decodability of the task in the deepest hidden layer",
    "erasure": "the harm that erasing a module's subspace does to it alone",
    "modularity": "the harm that ablating a module's subnetwork does to it alone",
    "concordance": "how alike units answer to a module in different company",
    "purity": "how far units tell of single modules",
    "selectivity": "how far single weights change single modules",
}


def words() -> str:
    """What each measure is, in a sentence."""
    return "; ".join(f"{name}: {said}" for name, said in SAID.items()).capitalize() + "."


def networks(results: Results, shape: str) -> Results:
    rows = results.where(part="network", shape=shape)
    return Results([row for row in rows if not row.diverged and "fracture" in row.readings])


def alike(results: Results, grid: Grid, shape: str) -> list[Row]:
    """The most networks of a shape whose seen scores lie within the window of each other."""
    rows = sorted(networks(results, shape), key=base.seen)
    scores = np.asarray([base.seen(row) for row in rows])
    if not len(rows):
        return []
    ends = np.searchsorted(scores, scores + grid.window, side="right")
    # Of windows with equally many the one of the highest scores.
    first = max(range(len(rows)), key=lambda n: (ends[n] - n, n))
    return rows[first : ends[first]]


def enough(grid: Grid) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        found = [len(alike(results, grid, shape)) / grid.networks for shape in grid.shape]
        note = ", ".join(
            f"{shape}: {round(n * grid.networks)}"
            for shape, n in zip(grid.shape, found, strict=True)
        )
        if len(found) < 2:
            raise NotTested(f"One shape alone ({note}).")
        # A count, not an estimate: it has no interval.
        least = min(found)
        count = int(sum(found) * grid.networks)
        return Evidence.of_interval(
            lambda level: Interval(least, least, least, count, "count", level), note
        )

    return measure


def gathered(
    grid: Grid, results: Results, first: str, second: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """Two measures over networks of like seen score, what is given, and their seeds."""
    rows = [row for shape in grid.shape for row in alike(results, grid, shape)]
    x, y = (np.asarray([MEASURES[m](row, results) for row in rows]) for m in (first, second))
    whole = np.isfinite(x) & np.isfinite(y)
    rows = [row for row, keep in zip(rows, whole, strict=True) if keep]
    if len(rows) < FEWEST:
        raise NotTested(
            f"{len(rows)} networks have like seen scores and both readings; {FEWEST} are needed."
        )
    settings = [tuple(row.labels[k] for k in ("shape", "held_out", "decay")) for row in rows]
    known = sorted(set(settings))
    given = [
        [base.seen(row), *(float(own == one) for one in known[1:])]
        for row, own in zip(rows, settings, strict=True)
    ]
    # Ranks: a score that an ablation ruins can fall far below zero.
    x, y = (stats.rankdata(values[whole]) for values in (x, y))
    return x, y, np.asarray(given), [row.labels["seed"] for row in rows]


def together(grid: Grid, first: str, second: str) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        x, y, given, seeds = gathered(grid, results, first, second)
        return Evidence.of_interval(
            lambda level: within_group_correlation(
                x, y, seeds, given=given, cluster=seeds, level=level
            ),
            f"{len(x)} networks.",
        )

    return measure


def every_pair(grid: Grid, results: Results):
    """The table of all pairs, Holm-adjusted, and the same as a map."""
    pairs, found = list(combinations(MEASURES, 2)), []
    for first, second in pairs:
        x, y, given, seeds = gathered(grid, results, first, second)
        found.append(within_group_correlation(x, y, seeds, given=given, cluster=seeds))
    adjusted = holm([p_value_against(interval, 0.0) for interval in found])
    table = Table(
        "All pairs", ["", "", "partial correlation", "95 % interval", "p, adjusted (Holm)"],
        [
            [first, second, interval.estimate, f"[{interval.low:.2f}, {interval.high:.2f}]", p]
            for (first, second), interval, p in zip(pairs, found, adjusted.p, strict=True)
        ],
    )  # fmt: skip
    names = list(MEASURES)
    values: list[list[float | None]] = [[None] * len(names) for _ in names]
    for (first, second), interval in zip(pairs, found, strict=True):
        a, b = names.index(first), names.index(second)
        values[a][b] = values[b][a] = interval.estimate
    maps = heat_maps("Partial correlations", [Map("", names, names, values)],
                     value_label="correlation", scale=(-1.0, 1.0), missing="the same")  # fmt: skip
    return table, maps


def columns_of(
    results: Results, grid: Grid, measure: str, share: float
) -> tuple[list[float], list[float]]:
    rows = [
        row for shape in grid.shape for row in alike(results, grid, shape)
        if row.labels["held_out"] == share
    ]  # fmt: skip
    return [MEASURES[measure](row, results) for row in rows], [base.unseen(row) for row in rows]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}" if values else "–"
