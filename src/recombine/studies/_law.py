"""The search behind the studies of growth: settings, sizes by rounds, and the thresholds found."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from recombine.combinations import Subsets
from recombine.errors import InvalidRequest, unknown
from recombine.families._family import Family
from recombine.families.hyperteacher import Hyperteacher
from recombine.instruments.generalization import Generalization
from recombine.lab import thresholds
from recombine.lab.growth import Point
from recombine.lab.study import Cell, Results, Seeded
from recombine.lab.thresholds import FEWEST, Threshold
from recombine.models._model import Model
from recombine.models.mlp import MLP
from recombine.models.transformer import Transformer
from recombine.studies import _base as base
from recombine.supports import SupportRule

NAMES = {"mlp": "MLP", "transformer": "transformer"}

# Of study `law` alone: thousands of cells ask for short runs at a high rate.
TRAINING = {
    "smoke": base.SMOKE,
    "quick": base.Training(2_000, 3e-3, 64, 8, 4, 8),
    "standard": base.Training(6_000, 3e-3, 128, 8, 6, 8),
    "paper": base.PAPER,
}

LEFT_OUT = 2  # the largest settings, which laws must predict
FEWEST_MODULES, FEWEST_ACTIVE = 5, 2  # values of M and of K that a comparison of laws needs
# A support must leave enough to score: this many combinations, and this share of them.
SCORED, SCORED_SHARE = 8, 0.02


@dataclass(frozen=True)
class Published:
    """A published sweep, for comparison: every setting at every held-out share."""

    modules: tuple[int, ...]
    active: tuple[int, ...]
    shares: tuple[float, ...]
    models: int = 2
    seeds: int = 3

    @property
    def cells(self) -> int:
        return len(self._supports()) * self.models * self.seeds

    @property
    def feasible(self) -> int:
        """How many of the cells can exist: in the others too little is left to connect modules."""
        can = sum(rule.feasible(space) is None for space, rule in self._supports())
        return can * self.models * self.seeds

    def _supports(self) -> list[tuple[Subsets, SupportRule]]:
        return [
            (Subsets(m, k), SupportRule("random", held_out=share))
            for m in self.modules
            for k in self.active
            for share in self.shares
        ]


PUBLISHED = Published(
    tuple(range(10, 29, 2)), (4, 5, 6),
    (0.9, 0.95, 0.98, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.99975, 0.9999, 0.99995, 0.999975,
     0.99999, 0.999995, 0.999999),
)  # fmt: skip


@dataclass(frozen=True)
class Grid(Seeded):
    """Settings (M, K) by models; sizes N are chosen round by round within each.

    This one is on the hyperteacher. A grid on another family derives from it and says what its
    tasks are, what their score is called, and how long networks train.
    """

    metric: ClassVar[str] = Hyperteacher.metric
    lengths: ClassVar[Mapping[str, base.Training]] = TRAINING
    published: ClassVar[Published] = PUBLISHED

    training: str = "quick"
    modules: tuple[int, ...] = (6, 8, 12)
    active: tuple[int, ...] = (3,)
    model: tuple[str, ...] = ("mlp",)
    width: int = 96  # of the MLP
    depth: int = 2
    transformer_width: int = 16
    transformer_depth: int = 1
    transformer_heads: int = 2
    transformer_hidden: int = 0  # 0: four times the width
    mlp_rate: float = 3e-3
    transformer_rate: float = 3e-3
    target: float = 0.9
    first: int = 3  # sizes in the first round
    parts: int = 2  # parts a bracket is cut into: a further round adds one size fewer
    rounds: int = 3  # after the first
    seeds: int = 5

    def family(self, modules: int, active: int) -> Family:
        """The tasks at a setting (M, K)."""
        units = self.lengths[self.training].teacher
        return Hyperteacher(
            modules=modules, active=active, input_units=units, hidden=(units,), output_units=units
        )

    def first_sizes(self, setting: Setting) -> list[int]:
        """The sizes of the first round."""
        return thresholds.first_sizes(*setting.span, self.first)

    @property
    def first_count(self) -> int:
        """How many those are, where there is room."""
        return self.first

    @property
    def floor(self) -> float:
        """The seen score below which a network is undertrained: one that reaches the target on
        unseen combinations never is."""
        return min(base.SEEN_FLOOR, self.target)


@dataclass(frozen=True)
class Setting:
    """One curve of scores over N: a model that learns M modules, at most K at a time."""

    model: str
    modules: int
    active: int

    @property
    def place(self) -> tuple[int, int]:
        """(M, K)."""
        return self.modules, self.active

    def of(self, results: Results) -> Results:
        """The rows of this curve."""
        return results.where(**dataclasses.asdict(self))

    @property
    def space(self) -> Subsets:
        return Subsets(self.modules, self.active)

    @property
    def combinations(self) -> int:
        return self.space.size

    @property
    def span(self) -> tuple[int, int]:
        """The fewest and the most combinations to train on."""
        space = self.space
        fewest = space.fewest_connected
        most = space.size - max(SCORED, math.ceil(SCORED_SHARE * space.size))
        if fewest is None or most < fewest:
            raise InvalidRequest(
                f"M={self.modules}, K={self.active} has {space.size} combinations: too few to "
                f"train on a connected part and score {SCORED} others; use more modules, two or "
                "more at a time"
            )
        return min(math.ceil(1.5 * fewest), most), most


def check(grid: Grid) -> None:
    """Refuses a search that could not end in a threshold."""
    for model in grid.model:
        if model not in NAMES:
            raise unknown("model", model, NAMES)
    if grid.training not in grid.lengths:
        raise unknown("training", grid.training, grid.lengths)
    if not 0 < grid.target < 1 or grid.seeds < 1:
        raise InvalidRequest(
            f"target={grid.target:g}, seeds={grid.seeds}: expected an {grid.metric} between 0 and "
            "1, such as 0.95, and at least 1 seed"
        )
    if grid.first < 2 or grid.parts < 2 or grid.rounds < 0:
        raise InvalidRequest(
            f"first={grid.first}, parts={grid.parts}, rounds={grid.rounds}: expected at least 2 "
            "first sizes, 2 parts and 0 rounds"
        )
    sizes = grid.first_count + grid.rounds * (grid.parts - 1)
    if sizes < FEWEST:
        raise InvalidRequest(
            f"first={grid.first}, parts={grid.parts}, rounds={grid.rounds} train {sizes} sizes: "
            f"a threshold needs {FEWEST}; use first={grid.first + FEWEST - sizes}"
        )
    for m, k in ranked(grid):
        grid.family(m, k).check()


def ranked(grid: Grid) -> list[tuple[int, int]]:
    """The settings (M, K), the one with most combinations last."""
    found = {(m, k) for m in grid.modules for k in grid.active}
    return sorted(found, key=lambda setting: (Subsets(*setting).size, setting))


def settings(grid: Grid) -> list[Setting]:
    return [Setting(model, m, k) for model in grid.model for k in sorted(set(grid.active))
            for m in sorted(set(grid.modules))]  # fmt: skip


def network(grid: Grid, model: str) -> tuple[Model, float]:
    """A model with its learning rate."""
    if model == "mlp":
        return MLP(width=grid.width, depth=grid.depth), grid.mlp_rate
    sizes = (grid.transformer_depth, grid.transformer_width, grid.transformer_heads)
    return Transformer(*sizes, grid.transformer_hidden or None), grid.transformer_rate


def cell(grid: Grid, setting: Setting, size: int, seed: int) -> Cell:
    """A network that is trained on `size` combinations."""
    model, rate = network(grid, setting.model)
    training = dataclasses.replace(grid.lengths[grid.training], learning_rate=rate)
    labels = {**dataclasses.asdict(setting), "size": size, "seed": seed}
    return base.family_cell(
        training, grid.family(*setting.place), SupportRule("fixed-size", count=size),
        base.encoding_named("identity"), model, seed, (Generalization(combinations=256),), labels,
    )  # fmt: skip


def size_ratio(grid: Grid) -> float:
    """Parameters of the transformer for each one of the MLP, where the two differ most."""
    found = []
    for m, k in ranked(grid):
        family = grid.family(m, k)
        sizes = (base.encoding_named("identity").size(family), family.input_size,
                 family.output_size)  # fmt: skip
        mlp, transformer = (network(grid, model)[0].parameters(*sizes) for model in NAMES)
        found.append(transformer / mlp)
    return max(found, key=lambda ratio: abs(math.log(ratio)))


def usable(grid: Grid, rows: Results) -> Results:
    """Networks that count: neither diverged nor undertrained."""
    return Results([row for row in rows if not row.diverged and base.seen(row) >= grid.floor])


def undertrained(grid: Grid, rows: Results) -> int:
    """How many networks have not learnt what they were trained on."""
    return sum(not base.seen(row) >= grid.floor for row in rows if not row.diverged)


def mean_curve(grid: Grid, rows: Results) -> tuple[list[int], list[float]]:
    """The sizes tried and the mean unseen score at each; NaN where no network learnt its tasks."""
    sizes = rows.labels("size")
    found = [usable(grid, rows.where(size=n)).values("generalization", "unseen") for n in sizes]
    return sizes, [float(v.mean()) if v.size else math.nan for v in found]


def further_sizes(
    grid: Grid, setting: Setting, tried: Sequence[int], means: Sequence[float]
) -> list[int]:
    """The sizes of the next round, always as many: stacks of one width compile once.

    Where the search asks for fewer (no crossing, or one that is narrowed down to neighbours),
    the rest fall into the widest gaps in log N.
    """
    low, high = setting.span
    most = grid.parts - 1
    chosen = thresholds.next_sizes(
        tried, means, target=grid.target, low=low, high=high, parts=grid.parts, most=most
    )
    while len(chosen) < most:
        gaps = [(b / a, b, a) for a, b in pairwise(sorted({*tried, *chosen})) if b - a > 1]
        if not gaps:
            break
        _, b, a = max(gaps)
        chosen.append(min(max(round(math.sqrt(a * b)), a + 1), b - 1))
    return sorted(chosen)


@functools.lru_cache(maxsize=4096)
def _threshold(
    sizes: tuple[int, ...], scores: tuple[float, ...], target: float, largest: int
) -> Threshold:
    """Kept, because every claim and figure reads the same curves."""
    return thresholds.threshold(sizes, scores, target=target, largest=largest)


def points(grid: Grid, results: Results, model: str) -> list[Point]:
    """N* of each seed at each setting, where the seed has one.

    Set aside: seeds with too few trained networks, and those that miss the target although their
    seen score at the largest N misses it too. There training is the limit, not data.
    """
    found = []
    for setting in settings(grid):
        rows = usable(grid, setting.of(results)) if setting.model == model else Results([])
        for seed in rows.labels("seed"):
            own = {r.labels["size"]: r for r in rows.where(seed=seed)}
            scores = {n: base.unseen(own[n]) for n in sorted(own)}
            scores = {n: score for n, score in scores.items() if math.isfinite(score)}
            if len(scores) < FEWEST:
                continue
            curve = (tuple(scores), tuple(scores.values()))
            one = _threshold(*curve, grid.target, setting.span[1])
            if one.censored != "above" or fitted(setting.of(results).where(seed=seed), grid):
                found.append(Point.of(setting.modules, setting.active, seed, one))
    return found


def fitted(rows: Results, grid: Grid) -> bool:
    """Whether the network trained on most combinations reaches the target on those."""
    most = max(rows, key=lambda row: row.labels["size"])
    return not most.diverged and base.seen(most) >= grid.target


def reached(found: Sequence[Point], setting: tuple[int, int]) -> list[Point]:
    """The seeds whose curve crosses the target at a setting."""
    return [p for p in found if p.setting == setting and p.censored == "no"]


def located(found: Sequence[Point], setting: tuple[int, int]) -> bool:
    """Whether most seeds cross the target at a setting."""
    return 2 * len(reached(found, setting)) > sum(p.setting == setting for p in found)


def fit_at_most(setting: Setting, results: Results) -> float:
    """The mean seen score at the largest size tried."""
    rows = setting.of(results)
    sizes = rows.labels("size")
    found = rows.where(size=sizes[-1]).values("generalization", "seen") if sizes else np.empty(0)
    return float(found.mean()) if found.size else math.nan


def finest(grid: Grid, setting: Setting) -> int:
    """How many sizes a plain grid needs to be nowhere coarser than the rounds at the crossing."""
    steps = (grid.first_count - 1) * grid.parts**grid.rounds
    return len(thresholds.first_sizes(*setting.span, steps + 1))


def saved(grid: Grid, results: Results) -> str:
    """What the rounds cost against grids of evenly spread sizes."""
    sweep = grid.published
    told = f"The published sweep has {sweep.cells:,} cells, {sweep.feasible:,} of which can exist"
    if not grid.rounds:
        words = f"All sizes were chosen in advance, for {len(results):,} runs."
        return f"{words} {told}." if grid.training == "paper" else words
    full = grid.seeds * sum(finest(grid, setting) for setting in settings(grid))
    words = (
        "Against evenly spread sizes, as close in log N as the rounds come around the crossing, "
        f"for all settings and seeds, the search {thresholds.savings(len(results), full)}"
    )
    if grid.training == "paper":
        against = thresholds.savings(len(results), sweep.feasible)
        words += f" {told}; against those the search {against}"
    return words
