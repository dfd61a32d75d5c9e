"""Of networks that do equally well on what they saw, what inside tells which one generalizes?

`recombine run anatomy --preset standard` trains over a hundred networks of one shape, and as many
of two others, keeps those whose seen scores lie within .01 of each other, and looks at each with
every instrument: decodability, erasure, subnetworks and fracture. Networks of one shape that learnt
from one teacher and lack the same combinations are compared with each other. Nobody has published
that table; each of its parts has been said to go with generalization.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import ClassVar, cast

from recombine.errors import InvalidRequest
from recombine.instruments.decodability import Decodability
from recombine.instruments.erasure import Erasure
from recombine.instruments.fracture import Fracture
from recombine.instruments.generalization import Generalization
from recombine.instruments.subnetworks import Subnetworks
from recombine.lab.intervals import Interval, p_value_against
from recombine.lab.statistics import holm
from recombine.lab.study import Cell, Claim, NotTested, Results, Study
from recombine.learners.masks import MaskLearner
from recombine.learners.supervised import Supervised
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Grid as Map
from recombine.report.figures import Points, heat_maps, scatter
from recombine.report.tables import interval as bounds
from recombine.seeds import host_seed
from recombine.studies import _base as base
from recombine.studies._anatomy import (
    GENERALIZATION,
    MEASURES,
    MODULARITY,
    SAID,
    Grid,
    alike,
    compared,
    enough,
    networks,
    together,
)


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
    cost = (
        "quick: 47 s on two CPU cores; "
        "standard: less than 10 min on one H200, beside two other studies"
    )
    not_shown = (
        "Causes: networks of one shape, one teacher and the same held-out combinations are "
        "compared, and what weight decay explains is taken out; what is left still only goes "
        "together.",
        "What makes one teacher, or one choice of combinations, easier than another: it is the "
        "same for all that are compared.",
        "Other families and models: these are MLPs that learn from hyperteachers.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", 6, 2, ("16x1",), (0.25, 0.5), (3e-3,), 2, 1, 20, 1.0, 2, 128),
        "quick": Grid(),
        "standard": Grid("standard", 8, 3, ("128x2", "128x3", "192x2"), (0.25, 0.5, 0.75),
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
                    for seed in grid.drawn(grid.seeds):
                        network = base.cell(
                            replace(training, weight_decay=decay), modules=grid.modules,
                            active=grid.active, width=width, depth=depth, held_out=share,
                            seed=seed, instruments=instruments, shape=shape, decay=decay,
                            part="network",
                        )  # fmt: skip
                        network = begun_apart(network)
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
                      "combinations (ranks), within networks of one shape, one teacher and the "
                      "same held-out combinations, given seen score and weight decay",
                      together(grid, measure, GENERALIZATION), above=0.0)
                for measure in SAID
            ),
            Claim("whole units, modular weights",
                  "Concordance of units correlates with modularity of weights by at least .4, "
                  "within and given the same",
                  together(grid, "concordance", MODULARITY), at_least=0.4),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        if not any(alike(results, grid, shape) for shape in grid.shape):
            return [Section("Nothing to show yet", "No network is finished.")]
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
            pairs_section(grid, results),
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


def begun_apart(network: Cell) -> Cell:
    """The same network with first weights and training data that no other of its seed has.

    Networks of one teacher and support would otherwise differ by their weight decay alone, which
    is taken out, and little would be left to compare.
    """
    learner, labels = cast(Supervised, network.learner), network.labels
    own = host_seed(labels["seed"], f"anatomy/{labels['held_out']}/{labels['decay']}") % 2**31
    seeds = replace(learner.seeds, init=own, train=own)
    return replace(network, learner=replace(learner, seeds=seeds))


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


def words() -> str:
    """What each measure is, in a sentence."""
    return "; ".join(f"{name}: {said}" for name, said in SAID.items()).capitalize() + "."


def pairs_section(grid: Grid, results: Results) -> Section:
    """All pairs of measures, or why none can be compared."""
    found: dict[tuple[str, str], tuple[Interval, Interval]] = {}
    reasons: dict[str, list[str]] = {}
    for first, second in combinations(MEASURES, 2):
        try:
            pair = compared(grid, results, first, second)
            found[first, second] = pair.correlation(), pair.over_teachers()
        except NotTested as why:
            reasons.setdefault(str(why), []).append(f"{first} and {second}")
    title = "Everything against everything"
    if not found:
        return Section(title, " ".join(reasons))
    table, figure = every_pair(found)
    missing = [f"Not compared: {', '.join(pairs)}. {why}" for why, pairs in reasons.items()]
    return Section(
        title,
        "Rank correlations over networks of like seen score, within networks of one shape, one "
        "teacher and the same held-out combinations, given seen score and weight decay. All "
        "measures point the same way: more is what has been said to be good. "
        + " ".join([words(), *missing]),
        figures=[figure], tables=[table],
    )  # fmt: skip


def every_pair(found: dict[tuple[str, str], tuple[Interval, Interval]]) -> tuple[Table, Figure]:
    """The table of all pairs, Holm-adjusted, and the same as a map."""
    adjusted = holm([p_value_against(within, 0.0) for within, _ in found.values()])
    table = Table(
        "All pairs", ["", "", "partial correlation", "95 % interval", "p, adjusted (Holm)",
                      "teachers mixed", "95 % interval"],
        [
            [*names, *_told(within), p, *_told(over)]
            for (names, (within, over)), p in zip(found.items(), adjusted.p, strict=True)
        ],
        "Teachers mixed: within networks of one shape and held-out share, whose teachers and "
        "held-out combinations differ. What makes one of these easier counts there, too.",
    )  # fmt: skip
    names = list(MEASURES)
    values: list[list[float | None]] = [[None] * len(names) for _ in names]
    for (first, second), (within, _) in found.items():
        a, b = names.index(first), names.index(second)
        values[a][b] = values[b][a] = round(within.estimate, 2)
    most = max(0.1, *(abs(within.estimate) for within, _ in found.values()))
    most = math.ceil(10 * most) / 10
    figure = heat_maps("Partial correlations", [Map("", names, names, values)],
                       value_label="correlation", scale=(-most, most),
                       missing="the same, or not compared")  # fmt: skip
    return table, figure


def _told(interval: Interval) -> tuple[float, str]:
    return round(interval.estimate, 3), bounds(interval.low, interval.high, 3)


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
