"""The cells of study `collection`: a family, a start, and what was collected after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from recombine.combinations import Slots, Space, Subsets
from recombine.encodings.linear import Identity
from recombine.errors import InvalidRequest, unknown
from recombine.families.chains import Chains
from recombine.families.hyperteacher import Hyperteacher
from recombine.families.scenes import Scenes
from recombine.instruments._instrument import Instrument
from recombine.instruments.composition import Composition
from recombine.instruments.exact_match import ExactMatch
from recombine.instruments.generalization import Generalization
from recombine.instruments.uncertainty import Uncertainty, most_uncertain
from recombine.lab.study import Cell, Results, Row, Seeded
from recombine.learners.flow import Flow
from recombine.learners.next_token import NextToken
from recombine.learners.supervised import Supervised
from recombine.models.diffusion import DiT
from recombine.models.mlp import MLP
from recombine.models.sequence import SequenceModel
from recombine.seeds import Seeds, host_seed
from recombine.supports import Collected, Support, SupportRule
from recombine.supports.collected import STRATEGIES
from recombine.supports.drawing import left

NOTHING, COLLECT, RANDOM, SAME = "nothing", "collect", "random", "more of the same"
UNCERTAINTY = "uncertainty"
SIMPLE = (RANDOM, "most frequent", "balanced", "pairwise")
FEW = (COLLECT, RANDOM, SAME)  # strategies of families that are only sketched
ROW = 64  # tokens of a row of chains
STARTS = ("disconnected", "correlated", "unpopular", "random")


class Kind(NamedTuple):
    """How a family's networks are judged."""

    instrument: str
    unseen: str
    metric: str


KINDS = {
    "hyperteacher": Kind("generalization", "unseen", "R²"),
    "scenes": Kind("composition", "unseen", "success"),
    "chains": Kind("exact-match", "unseen_collected", "share of exact answers"),
}
LEAST_SEEN = 0.9  # the seen score below which a network is undertrained
MOST_LOSS = 0.01  # of chains, in nats a token: an answer of six tokens then has .94


@dataclass(frozen=True)
class Grid(Seeded):
    """Families by starts by strategies; then what a network is unsure of, and other budgets."""

    families: tuple[str, ...] = ("hyperteacher", "chains")
    starts: tuple[str, ...] = STARTS
    strategies: tuple[str, ...] = (COLLECT, *SIMPLE, SAME)
    sketched: tuple[str, ...] = ("chains",)  # only from the first start, with few strategies
    networks: int = 3  # of an ensemble whose disagreement is a strategy; 0: it is left out
    budget: float = 0.5  # new combinations, for each one of the start
    budgets: tuple[float, ...] = (0.25, 1.0)  # further ones, of the first family and start
    tested: float = 0.3  # share of all combinations that is set apart for testing
    seeds: int = 5

    modules: int = 8
    active: int = 3
    units: int = 8
    held_out: float = 0.75
    width: int = 64
    depth: int = 2
    steps: int = 1_000
    rate: float = 5e-3
    tasks: int = 64
    samples: int = 8

    functions: int = 4
    length: int = 4
    symbols: int = 8
    chain_held_out: float = 0.875
    chain_width: int = 32
    chain_depth: int = 2
    chain_steps: int = 300
    chain_rate: float = 5e-3
    chain_batch: int = 16
    chain_items: int = 400  # of each split that are read

    shapes: int = 5
    colours: int = 5
    size: int = 16
    scene_held_out: float = 0.85
    scene_width: int = 64
    scene_depth: int = 3
    scene_steps: int = 2_000
    scene_rate: float = 2e-3
    scene_tasks: int = 64
    scene_combinations: int = 60  # of each kind that are asked for
    scene_draws: int = 12


def check(grid: Grid) -> None:
    """Refuses names that nobody knows, and numbers that no study can have."""
    for name in (*grid.families, *grid.sketched):
        if name not in KINDS:
            raise unknown("family", name, KINDS)
    for name in grid.strategies:
        if name not in STRATEGIES:
            raise unknown("strategy", name, STRATEGIES)
    if not 0 < grid.budget <= 4 or any(not 0 < b <= 4 for b in grid.budgets):
        raise InvalidRequest(
            f"budget={grid.budget:g}, budgets={grid.budgets}: expected new combinations for each "
            "one of the start, such as 0.5"
        )
    if grid.networks and grid.networks < 3:
        raise InvalidRequest(
            f"networks={grid.networks}: expected 0 to leave uncertainty out, or 3 or more"
        )


def space(grid: Grid, family: str) -> Space:
    """The combinations of a family."""
    if family == "hyperteacher":
        return Subsets(grid.modules, grid.active)
    if family == "chains":
        return Slots((grid.functions,) * grid.length)
    return scenes(grid).space


def scenes(grid: Grid) -> Scenes:
    return Scenes(
        shows="slots", size=grid.size, cells=2, shapes=grid.shapes, colours=grid.colours
    )  # fmt: skip


def new(grid: Grid, family: str, budget: float) -> int:
    """How many combinations a budget buys: the same from every start."""
    return max(1, round(budget * begun(grid, family)))


def begun(grid: Grid, family: str) -> int:
    """How many combinations a start has, give or take one where a rule rounds otherwise."""
    return left(space(grid, family), share(grid, family))


def share(grid: Grid, family: str) -> float:
    """The share of a family's combinations that its starts hold out."""
    shares: dict[str, float] = {
        "hyperteacher": grid.held_out,
        "chains": grid.chain_held_out,
        "scenes": grid.scene_held_out,
    }
    return shares[family]


def rule(
    grid: Grid, family: str, start: str, strategy: str, count: int,
    chosen: tuple[int, ...] | None = None,
) -> Collected:  # fmt: skip
    """What training sees."""
    first = SupportRule(start, share(grid, family))
    how = RANDOM if strategy == NOTHING else strategy
    return Collected(first, how, count, grid.tested, chosen)


def support(grid: Grid, family: str, seed: int, collected: Collected) -> Support:
    """The support of a cell, as its learner draws it."""
    named = Chains.support_seed(seed) if family == "chains" else host_seed(seed, "support")
    return collected.build(space(grid, family), named)


def cell(
    grid: Grid, family: str, start: str, strategy: str, count: int, seed: int,
    chosen: tuple[int, ...] | None = None,
) -> Cell:  # fmt: skip
    """A network that learns from a start and what was collected; all is drawn anew by seed."""
    collected = rule(grid, family, start, strategy, count, chosen)
    make = {"hyperteacher": _hyperteacher, "chains": _chains, "scenes": _scenes}[family]
    learner, read = make(grid, collected, Seeds.all(seed))
    instruments: tuple[Instrument, ...] = (read,)
    if strategy == NOTHING and grid.networks and family not in grid.sketched:
        # Everything that may be collected is asked about: no pool is larger than its space.
        most = max(Uncertainty.combinations, space(grid, family).size)
        instruments += (Uncertainty(grid.networks, combinations=most),)
    labels = {"family": family, "start": start, "strategy": strategy, "budget": count,
              "seed": seed, "parameters": learner.size}  # fmt: skip
    return Cell(learner, labels, instruments)


def _hyperteacher(
    grid: Grid, collected: Collected, seeds: Seeds
) -> tuple[Supervised, Generalization]:
    family = Hyperteacher(
        modules=grid.modules, active=grid.active, input_units=grid.units, hidden=(grid.units,),
        output_units=grid.units,
    )  # fmt: skip
    learner = Supervised(
        family=family,
        support=collected,
        model=MLP(width=grid.width, depth=grid.depth), seeds=seeds, training_steps=grid.steps,
        tasks=grid.tasks, samples=grid.samples, learning_rate=grid.rate, schedule="cosine",
        evaluation_every=_looks(grid.steps),
    )  # fmt: skip
    return learner, Generalization(combinations=256)


def _chains(grid: Grid, collected: Collected, seeds: Seeds) -> tuple[NextToken, ExactMatch]:
    family = Chains(
        collected, functions=grid.functions, length=grid.length, values=grid.symbols, steps=True,
        content=seeds.content,
    )  # fmt: skip
    model = SequenceModel(
        depth=grid.chain_depth, width=grid.chain_width, heads=max(1, grid.chain_width // 16),
        positions="learned",
    )  # fmt: skip
    learner = NextToken(
        family=family, model=model, seeds=seeds, training_steps=grid.chain_steps,
        batch=grid.chain_batch, learning_rate=grid.chain_rate,
        warmup=max(10, grid.chain_steps // 20), row=ROW, rows=_rows(grid),
        vocabulary=max(32, _power(grid.functions + grid.symbols + 8)),
        evaluation_every=_looks(grid.chain_steps), looks=("seen", "unseen"),
    )  # fmt: skip
    return learner, ExactMatch(items=grid.chain_items)


def _scenes(grid: Grid, collected: Collected, seeds: Seeds) -> tuple[Flow, Composition]:
    learner = Flow(
        family=scenes(grid),
        support=collected,
        encoding=Identity(), seeds=seeds,
        model=DiT(depth=grid.scene_depth, width=grid.scene_width,
                  heads=max(1, grid.scene_width // 32), patch=4),
        training_steps=grid.scene_steps, tasks=grid.scene_tasks, samples=2,
        learning_rate=grid.scene_rate, weight_decay=1e-3, average=0.995,
        evaluation_every=_looks(grid.scene_steps), evaluation_tasks=128,
    )  # fmt: skip
    return learner, Composition(
        combinations=grid.scene_combinations, draws=grid.scene_draws, steps=16,
        training_images=256,
    )  # fmt: skip


def _rows(grid: Grid) -> int:
    """Rows that hold the items of the largest budget: one number, so that all share a program."""
    chains = begun(grid, "chains") + new(grid, "chains", max(grid.budget, *grid.budgets, 0.0))
    items = chains * grid.symbols + 2 * grid.functions * grid.symbols
    return _power(-(-items // max(1, ROW // (2 * grid.length + 3))) + 32)


def _power(count: int) -> int:
    return 2 ** (count - 1).bit_length()


def _looks(steps: int) -> int:
    """Two looks along training are enough where only the end is compared."""
    return max(10, steps // 2 // 10 * 10)


def first_cells(grid: Grid) -> list[Cell]:
    """All that needs no network to choose."""
    check(grid)
    found = []
    for family in grid.families:
        count = new(grid, family, grid.budget)
        for start in starts(grid, family):
            for strategy in (NOTHING, *strategies(grid, family)):
                found += [
                    cell(grid, family, start, strategy, 0 if strategy == NOTHING else count, seed)
                    for seed in grid.drawn(grid.seeds)
                ]
    for budget in grid.budgets:
        family, start = grid.families[0], grid.starts[0]
        found += [
            cell(grid, family, start, strategy, new(grid, family, budget), seed)
            for strategy in (COLLECT, RANDOM)
            for seed in grid.drawn(grid.seeds)
        ]
    return found


def uncertain_cells(grid: Grid, results: Results) -> list[Cell]:
    """What networks that learnt from the start alone want to see next."""
    found = []
    for row in results.where(strategy=NOTHING):
        wanted = chosen(grid, row)
        if wanted is not None:
            place = {name: row.labels[name] for name in ("family", "start", "seed")}
            found.append(
                cell(grid, place["family"], place["start"], UNCERTAINTY, len(wanted),
                     place["seed"], wanted)
            )  # fmt: skip
    return found


def chosen(grid: Grid, row: Row) -> tuple[int, ...] | None:
    """The combinations that the networks of a row disagree on most."""
    reading = row.readings.get("uncertainty")
    if reading is None:
        return None
    return most_uncertain(reading, new(grid, row.labels["family"], grid.budget))


def starts(grid: Grid, family: str) -> Sequence[str]:
    return grid.starts[:1] if family in grid.sketched else grid.starts


def strategies(grid: Grid, family: str) -> Sequence[str]:
    if family in grid.sketched:
        return [name for name in grid.strategies if name in FEW]
    return grid.strategies


def seen(row: Row) -> float:
    return row.value(KINDS[row.labels["family"]].instrument, "seen")


def unseen(row: Row) -> float:
    kind = KINDS[row.labels["family"]]
    return row.value(kind.instrument, kind.unseen)


def untrained(row: Row) -> float:
    """What the same network scores before training."""
    kind = KINDS[row.labels["family"]]
    return row.value(kind.instrument, kind.unseen, "untrained")


def trained(row: Row) -> bool:
    """Whether a network learnt what it was shown.

    A chain has as many items as there are inputs, eight: what is held back of known chains asks
    for inputs that narrow data never show, of a network that may know every item of training. So
    chains are judged by their training loss.
    """
    learnt = row.loss <= MOST_LOSS if row.labels["family"] == "chains" else seen(row) >= LEAST_SEEN
    return learnt and not row.diverged


def of_budget(grid: Grid, results: Results) -> Results:
    """Rows of the one budget that claims are about, and those that collected nothing."""
    return Results(
        [
            row
            for row in results
            if row.labels["strategy"] == NOTHING
            or row.labels["budget"] == new(grid, row.labels["family"], grid.budget)
        ]
    )


def covered(grid: Grid, row: Row, alone: dict[tuple[Any, ...], Row]) -> Support:
    """What a row's training saw; `alone` are the rows that collected nothing, by place."""
    family, start, strategy, count, seed = (
        row.labels[name] for name in ("family", "start", "strategy", "budget", "seed")
    )
    wanted = chosen(grid, alone[family, start, seed]) if strategy == UNCERTAINTY else None
    return support(grid, family, seed, rule(grid, family, start, strategy, count, wanted))


def presets() -> dict[str, Grid]:
    """The four sizes."""
    every = ("hyperteacher", "scenes", "chains")
    return {
        "smoke": Grid(
            starts=("disconnected",), strategies=FEW, sketched=("chains",), budgets=(), seeds=2,
            modules=6, active=2, held_out=0.7, width=16, steps=40, tasks=16, samples=4,
            functions=3, length=3, chain_held_out=0.7, chain_width=16, chain_depth=1,
            chain_steps=20, chain_batch=8, chain_items=40,
        ),
        "quick": Grid(),
        "standard": Grid(
            families=every, sketched=(), budgets=(0.125, 0.25, 1.0), modules=16, width=256,
            depth=4, steps=6_000, rate=3e-3, tasks=128, held_out=0.94, length=5,
            chain_held_out=0.98, chain_width=64, chain_depth=3, chain_steps=1_500,
            chain_rate=2e-3, chain_batch=32, chain_items=1_000, shapes=6, colours=6,
        ),
        "paper": dataclasses.replace(
            Grid(), families=every, sketched=(), networks=5, budgets=(0.125, 0.25, 1.0, 2.0),
            seeds=10, modules=24, units=16, width=1_024, depth=4, steps=100_000, rate=3e-4,
            tasks=128, samples=16, held_out=0.95, functions=6, length=5, symbols=12,
            chain_held_out=0.98, chain_width=256, chain_depth=6, chain_steps=20_000,
            chain_rate=3e-4, chain_batch=64, chain_items=3_000, shapes=8, colours=8, size=32,
            scene_held_out=0.88, scene_width=256, scene_depth=6, scene_steps=50_000,
            scene_rate=3e-4, scene_tasks=128, scene_combinations=192, scene_draws=32,
        ),
    }  # fmt: skip
