"""At equal parameters and equal steps, does it matter what network learns?

`recombine run architectures --preset standard` first finds a learning rate for each network on
teachers that are used for nothing else, then trains each at its own best one. Beside them stand a
linear model, a nearest neighbour and a memoriser. Expected from the literature: a transformer needs
fewer combinations than an MLP; memorising takes an entry for every task, computing does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.encodings.linear import Identity
from recombine.errors import unknown
from recombine.instruments.generalization import Generalization
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.models._model import Model
from recombine.models.affine import Affine
from recombine.models.hypernetwork import Hypernetwork
from recombine.models.mlp import MLP, WIDTH_BUCKETS
from recombine.models.transformer import Transformer
from recombine.report.document import Section
from recombine.studies import _base as base
from recombine.studies._architectures_sections import (
    MODELS,
    TABLES,
    TITLES,
    curve_figure,
    score_table,
    who_figure,
)
from recombine.studies._base import seen, unseen
from recombine.studies._pilots import FIRST_SEED, best_rate, rate_table
from recombine.studies._tables import LEARNT, TOLERANCE, Tables
from recombine.supports import SupportRule

CLOSE = 0.05  # how far apart "equal" numbers of parameters may be


@dataclass(frozen=True)
class Grid(Seeded):
    """Networks by held-out shares, each at its own rate; tables for several sizes of family."""

    models: tuple[str, ...] = MODELS
    modules: int = 8
    active: int = 3
    held_out: tuple[float, ...] = (0.5, 0.75)
    teacher: int = 8
    depth: int = 2  # of the transformer
    width: int = 32
    heads: int = 2
    mlp_depth: int = 4  # its width is such that it has as many parameters as the transformer
    hyper_width: int = 64
    rates: tuple[float, ...] = (3e-3, 1e-2, 3e-2)
    steps: int = 1_200
    tasks: int = 64
    samples: int = 8
    matched: float = 0.9  # the seen R² at which learning curves are compared
    pilot_seeds: int = 1
    seeds: int = 5
    entries: int = 3_072  # of every table
    table_steps: int = 300
    table_modules: tuple[int, ...] = (4, 6)
    table_active: tuple[int, ...] = (2, 3)

    @property
    def tables(self) -> Tables:
        """The tables of this grid, at the share where most tasks are seen."""
        settings = tuple((m, k) for m in self.table_modules for k in self.table_active)
        return Tables(
            self.entries, self.table_steps, self.tasks, self.samples, self.teacher, self.easiest,
            self.drawn(self.seeds), settings,
        )  # fmt: skip

    @property
    def hardest(self) -> float:
        return max(self.held_out)

    @property
    def easiest(self) -> float:
        return min(self.held_out)


class Architectures(Study):
    """Transformer, MLP, hypernetwork and linear model against tables."""

    name = "architectures"
    question = (
        "At equal parameters and equal steps, each at its own best learning rate, does it matter "
        "what network learns, and what would a table need?"
    )
    source = base.SOURCE
    cost = "quick: 2 min on two CPU cores (estimated); standard: 2 min on one H200"
    not_shown = (
        "Equal time: a step of the transformer costs more than one of the MLP.",
        "Rates between those tried, other schedules, or training until nothing improves any more.",
        "How few entries a cleverer table could do with: only what keeping every task takes.",
    )
    presets: ClassVar = {
        "smoke": Grid(
            models=("transformer", "mlp"), modules=6, active=2, held_out=(0.5,), depth=1, width=16,
            mlp_depth=1, hyper_width=8, rates=(3e-3, 1e-2), steps=40, tasks=16, samples=4, seeds=2,
            entries=256, table_steps=40, table_active=(2,),
        ),
        "quick": Grid(),
        # As many final cells of each network as pilots, so that both rounds share a compilation.
        "standard": Grid(
            modules=16, held_out=(0.5, 0.9), width=128, heads=4, hyper_width=256,
            rates=(3e-4, 1e-3, 3e-3, 1e-2), steps=10_000, tasks=128, matched=0.95, pilot_seeds=2,
            seeds=8, entries=16_384, table_steps=800, table_modules=(6, 8, 10),
        ),
        "paper": Grid(
            modules=16, held_out=(0.5, 0.9), teacher=16, depth=4, width=256, heads=4,
            hyper_width=1_024, rates=(1e-4, 3e-4, 1e-3), steps=300_000, tasks=128, samples=16,
            matched=0.95, pilot_seeds=2, seeds=3, entries=16_384, table_steps=800,
            table_modules=(6, 8, 10),
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        pilots = [
            network_cell(grid, "pilot", name, share, rate, FIRST_SEED + seed)
            for name in grid.models
            for share in grid.held_out
            for rate in grid.rates
            for seed in grid.drawn(grid.pilot_seeds)
        ]
        baselines = [
            grid.tables.cell(method, grid.modules, grid.active, share, seed)
            for method in TABLES
            for share in grid.held_out
            for seed in grid.drawn(grid.seeds)
        ]
        return [*pilots, *baselines, *grid.tables.cells()]

    def next_cells(self, grid: Grid, results: Results, number: int) -> list[Cell]:
        if number > 1:
            return []
        found = []
        for name in grid.models:
            for share in grid.held_out:
                rate = best_rate(results, grid.rates, model=name, held_out=share)
                found += [
                    network_cell(grid, "final", name, share, rate, seed)
                    for seed in grid.drawn(grid.seeds)
                ]
        return found

    def most_further_cells(self, grid: Grid) -> int:
        return len(grid.models) * len(grid.held_out) * grid.seeds

    def claims(self, grid: Grid) -> list[Claim]:
        where = f"with {grid.hardest:g} held out"
        found = [
            Claim(
                f"transformer over MLP, {share:g}",
                "At equal numbers of parameters, unseen R² is higher for the transformer than for "
                f"the MLP with {share:g} held out",
                alike(grid, share, unseen), above=0.0,
            )
            for share in grid.held_out
        ]  # fmt: skip
        return [
            *found,
            Claim(
                "also at matched seen score",
                f"At the step where seen R² first reaches {grid.matched:g}, unseen R² is higher "
                f"for the transformer than for the MLP {where}",
                alike(grid, grid.hardest, lambda row: base.unseen_at_matched(row, grid.matched)),
                above=0.0,
            ),
            Claim(
                "more than the nearest task",
                f"Unseen R² of the worse of transformer and MLP exceeds that of a nearest "
                f"neighbour with {grid.entries} tasks by at least .1 {where}",
                over_nearest(grid), at_least=0.1,
            ),
            Claim(
                "little without composing",
                f"The linear baseline's unseen R² is at most .2 with {grid.easiest:g} held out",
                linear(grid), at_most=0.2,
            ),
            Claim(
                "better if built like the teacher",
                f"Unseen R² is higher for the hypernetwork than for the MLP {where}",
                difference(grid, grid.hardest, "mlp", "hypernetwork", unseen), above=0.0,
            ),
            Claim(
                "memorising takes an entry a task",
                f"The entries with which a memoriser reaches a seen R² of {LEARNT:g} grow with the "
                "number of seen tasks with a power of at least .8",
                grid.tables.slope(grid.tables.entries_needed), at_least=0.8,
            ),
            Claim(
                "computing does not",
                "The neurons with which a constructed network answers every task to within "
                f"{TOLERANCE:g} grow with the number of seen tasks with a power of at most .2",
                grid.tables.slope(grid.tables.neurons), at_most=0.2,
            ),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        shown = compared(grid, results)
        titles = {name: TITLES[name] for name in grid.models}
        return [
            Section(
                "Who generalizes",
                "Unseen R² of every network at its best rate, on seeds that had no say in choosing "
                "it. The memoriser says nothing about a task it does not have, an R² below 0: it "
                "is in the table only.",
                (who_figure(shown, grid.models, grid.held_out),),
                (score_table(shown, grid.entries),),
            ),
            Section(
                "Learning rates",
                f"Mean unseen R² over pilot seeds ({grid.pilot_seeds} of them), which have "
                "teachers, supports and streams of their own.",
                (),
                (rate_table(results, grid.rates, titles, grid.held_out),),
            ),
            Section(
                "Along training",
                "Unseen R² at each network's best rate.",
                (curve_figure(results.where(part="final"), grid.models, grid.held_out),),
            ),
            grid.tables.section(results),
        ]


def model_of(grid: Grid, name: str) -> Model:
    """The network behind a name; the MLP is as large as the transformer."""
    transformer = Transformer(grid.depth, grid.width, grid.heads)
    match name:
        case "transformer":
            return transformer
        case "mlp":
            sizes = (grid.modules, grid.teacher, grid.teacher)
            return mlp_of(transformer.parameters(*sizes), grid.mlp_depth, sizes)
        case "hypernetwork":
            return Hypernetwork(grid.hyper_width)
        case "affine":
            return Affine()
    raise unknown("model", name, MODELS)


def mlp_of(parameters: int, depth: int, sizes: tuple[int, int, int]) -> MLP:
    """The MLP with about so many parameters, at a usual width where one is close enough.

    >>> mlp_of(3_160_832, depth=4, sizes=(16, 16, 16))
    MLP(width=1024, depth=4)
    """

    def count(width: int) -> int:
        return MLP(width, depth).parameters(*sizes)

    def off(width: int) -> float:
        return abs(count(width) / parameters - 1)

    usual = min(WIDTH_BUCKETS, key=off)
    if off(usual) <= CLOSE:
        return MLP(usual, depth)
    # The first width with at least so many; the one before may come closer.
    above = 1 + bisect_left(range(1, parameters), parameters, key=count)
    return MLP(min(max(1, above - 1), above, key=off), depth)


def network_cell(grid: Grid, part: str, name: str, share: float, rate: float, seed: int) -> Cell:
    training = base.Training(
        grid.steps, rate, grid.tasks, grid.samples, teacher=grid.teacher, matched=grid.matched
    )
    labels = {"part": part, "model": name, "held_out": share, "rate": rate, "seed": seed}
    return base.family_cell(
        training, grid.tables.family(grid.modules, grid.active), SupportRule(held_out=share),
        Identity(), model_of(grid, name), seed, (Generalization(),), labels,
    )  # fmt: skip


def compared(grid: Grid, results: Results) -> Results:
    """Networks at their best rates, and the tables of the same families and seeds."""
    tables = results.where(part="table", modules=grid.modules, active=grid.active)
    return Results([*results.where(part="final"), *tables])


def usable(results: Results, names: Iterable[str]) -> Results:
    """Rows of these models; of the networks that could learn their tasks, those that did."""
    exempt = {"affine", *TABLES}
    return Results([
        row for row in results
        if (model := row.labels["model"]) in names
        and (model in exempt or seen(row) >= base.SEEN_FLOOR)
    ])  # fmt: skip


def difference(
    grid: Grid, share: float, first: str, second: str, number: Callable[[Row], float]
) -> Callable[[Results], Evidence]:
    """The second model minus the first, of one seed."""

    def measure(results: Results) -> Evidence:
        absent = [TITLES[name] for name in (first, second) if name not in grid.models]
        if absent:
            raise NotTested(f"Not part of this preset: {', '.join(absent)}.")
        rows = compared(grid, results).where(held_out=share)
        values = usable(rows, (first, second)).paired(
            "seed", {"model": first}, {"model": second}, number
        )
        mine = Results([row for row in rows if row.labels["model"] in (first, second)])
        extremes = (min(grid.rates), max(grid.rates))
        ends = [
            TITLES[name] for name in (first, second)
            if any(row.labels["rate"] in extremes for row in mine.where(model=name))
        ]  # fmt: skip
        note = f"Best rate at the end of those tried: {', '.join(ends)}." if ends else ""
        note = f"{base.left_out(mine)} {note}".strip()
        return Evidence.of_values(base.require(values, "Pairs of trained networks"), note)

    return measure


def alike(
    grid: Grid, share: float, number: Callable[[Row], float]
) -> Callable[[Results], Evidence]:
    """The transformer minus the MLP, if they are of equal size."""

    def measure(results: Results) -> Evidence:
        sizes = (grid.modules, grid.teacher, grid.teacher)
        one, other = (model_of(grid, name).parameters(*sizes) for name in ("transformer", "mlp"))
        if abs(other / one - 1) > CLOSE:
            raise NotTested(
                f"No MLP of depth {grid.mlp_depth} has about as many parameters as this "
                f"transformer: {other} against {one}."
            )
        return difference(grid, share, "mlp", "transformer", number)(results)

    return measure


def over_nearest(grid: Grid) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        names = [name for name in ("mlp", "transformer") if name in grid.models]
        rows = compared(grid, results).where(held_out=grid.hardest)
        rows = usable(rows, (*names, "nearest"))
        found = []
        for seed in rows.labels("seed"):
            scores = {r.labels["model"]: unseen(r) for r in rows.where(seed=seed) if not r.diverged}
            if names and scores.keys() >= {*names, "nearest"}:
                found.append(min(scores[name] for name in names) - scores["nearest"])
        return Evidence.of_values(base.require(np.asarray(found), "Seeds with trained networks"))

    return measure


def linear(grid: Grid) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        rows = results.where(part="final", model="affine", held_out=grid.easiest)
        values = rows.values("generalization", "unseen")
        return Evidence.of_values(base.require(values, "Linear baselines"))

    return measure
