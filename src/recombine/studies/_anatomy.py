"""What the anatomy compares: networks of like seen score, their measures, and what is held."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from recombine.checks import at_least, each_once
from recombine.errors import InvalidRequest
from recombine.instruments.decodability import last_hidden
from recombine.lab.intervals import Interval
from recombine.lab.statistics import within_group_correlation
from recombine.lab.study import Evidence, NotTested, Results, Row, Seeded
from recombine.studies import _base as base
from recombine.studies._subnetworks import LEARNT, hurts_beyond_random

GENERALIZATION, MODULARITY = "unseen score", "modularity"
FEWEST = 20  # networks without which no correlation is given
SPARED = 0.5  # of their score, that ablating one module's weights must leave the other modules


@dataclass(frozen=True)
class Grid(Seeded):
    """Shapes by held-out shares by weight decays by seeds, each network with a few masks."""

    training: str = "quick"
    modules: int = 8
    active: int = 3
    shape: tuple[str, ...] = ("48x2",)  # width x depth
    held_out: tuple[float, ...] = (0.5,)
    decay: tuple[float, ...] = (3e-4, 3e-3, 3e-2)
    seeds: int = 8
    masks: int = 1  # modules of each network that get a mask
    mask_steps: int = 300
    window: float = 0.05  # how far apart seen scores may lie
    networks: int = 20  # wanted of every shape
    rows: int = 512

    def __post_init__(self):
        if not 0 < self.window < math.inf:
            raise InvalidRequest(f"window={self.window}: expected a number above 0, such as 0.01")
        at_least(self, seeds=1, networks=1, mask_steps=1, rows=1)
        if not 0 <= self.masks <= self.modules:
            raise InvalidRequest(
                f"masks={self.masks}: expected 0 to {self.modules}, the modules of the teacher"
            )
        each_once(self, "shape", "held_out", "decay")


Number = Callable[[Row, Results], float]


def masks_of(row: Row, results: Results) -> list[Row]:
    """The finished masks over a network."""
    same = {name: row.labels[name] for name in ("shape", "held_out", "decay", "seed")}
    found = results.where(part="mask", **same)
    return [mask for mask in found if not mask.diverged and "subnetworks" in mask.readings]


def _modularity(row: Row, results: Results) -> float:
    """How selective the masks of a network are, mean over its modules."""
    found = [hurts_beyond_random(mask) for mask in masks_of(row, results)]
    return float(np.mean(found)) if found else math.nan


def spares(row: Row, results: Results) -> bool:
    """Whether the other modules keep enough of their score when one module's weights are gone."""
    kept = []
    for mask in masks_of(row, results):
        chance = mask.value("subnetworks", "ablation_own", "planted")
        whole = mask.value("subnetworks", "whole_other") - chance
        kept.append((mask.value("subnetworks", "ablation_other") - chance) / max(whole, 1e-9))
    return bool(kept) and float(np.mean(kept)) >= SPARED


MEASURES: dict[str, Number] = {
    GENERALIZATION: lambda row, _: base.unseen(row),
    "decodability": lambda row, _: row.value(
        "decodability", last_hidden(row.readings["decodability"].values)
    ),
    "erasure": lambda row, _: row.value("erasure", "beyond_random"),
    MODULARITY: _modularity,
    "concordance": lambda row, _: row.value("fracture", "concordance"),
    "purity": lambda row, _: row.value("fracture", "disentanglement"),
    "selectivity": lambda row, _: row.value("fracture", "selectivity"),
}
SAID = {
    "decodability": "linear decodability of the task in the deepest hidden layer",
    "erasure": "the harm that erasing a module's subspace in the first hidden layer does to it "
    "alone",
    MODULARITY: "how many times more ablating a module's subnetwork multiplies the error on its "
    "own tasks than on others (beyond as many weights at random)",
    "concordance": "how alike units answer to a module in different company",
    "purity": "how far units tell of single modules",
    "selectivity": "how far single weights change single modules",
}
INSTRUMENTS = ("generalization", "decodability", "erasure", "fracture")


def networks(results: Results, shape: str) -> Results:
    """Networks of a shape that every instrument has looked at."""
    return Results([
        row for row in results.where(part="network", shape=shape)
        if not row.diverged and all(name in row.readings for name in INSTRUMENTS)
        and math.isfinite(base.seen(row))
    ])  # fmt: skip


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


def counted(grid: Grid, results: Results) -> dict[str, int]:
    """How many networks of each shape are alike."""
    return {shape: len(alike(results, grid, shape)) for shape in grid.shape}


def enough(grid: Grid) -> Callable[[Results], Evidence]:
    """The fewest networks alike of any shape, as a share of those wanted."""

    def measure(results: Results) -> Evidence:
        found = counted(grid, results)
        note = ", ".join(f"{shape}: {count}" for shape, count in found.items())
        if len(found) < 2:
            raise NotTested(f"One shape alone ({note}).")
        # A count, not an estimate: it has no interval.
        least = min(found.values()) / grid.networks
        return Evidence.of_interval(
            lambda level: Interval(least, least, least, sum(found.values()), "count", level), note
        )

    return measure


@dataclass(frozen=True)
class Compared:
    """Two measures (ranks) over networks alike, what is given, and what they have in common."""

    first: Float[np.ndarray, " network"]
    second: Float[np.ndarray, " network"]
    given: Float[np.ndarray, "network covariate"]
    groups: Int[np.ndarray, " network"]
    kinds: Int[np.ndarray, " network"]  # shape and held-out share
    seeds: Int[np.ndarray, " network"]
    note: str

    def correlation(self, level: float = 0.95) -> Interval:
        """Within groups; seeds, which draw teacher and support, are resampled as wholes."""
        return within_group_correlation(
            self.first, self.second, self.groups, given=self.given, cluster=self.seeds, level=level
        )

    def over_teachers(self) -> Interval:
        """The same with teachers mixed: also whatever makes one of them easier than another."""
        return within_group_correlation(
            self.first, self.second, self.kinds, given=self.given, cluster=self.seeds
        )


def group_of(row: Row) -> tuple[int, float, str]:
    """Teacher and held-out combinations (both drawn by the seed), how many of them, and shape."""
    return row.labels["seed"], row.labels["held_out"], row.labels["shape"]


def compared(grid: Grid, results: Results, first: str, second: str) -> Compared:
    """Two measures side by side, or why they cannot be compared."""
    short = {s: count for s, count in counted(grid, results).items() if count < grid.networks}
    if short:
        told = ", ".join(f"{shape}: {count}" for shape, count in short.items())
        raise NotTested(
            f"Too few networks have like seen scores ({told}); {grid.networks} of every shape "
            "are needed."
        )
    found = [
        (row, MEASURES[first](row, results), MEASURES[second](row, results))
        for shape in grid.shape for row in alike(results, grid, shape)
    ]  # fmt: skip
    found = [entry for entry in found if math.isfinite(entry[1]) and math.isfinite(entry[2])]
    # A network without another of its group has nothing to be compared with.
    sizes = Counter(group_of(row) for row, *_ in found)
    found = [entry for entry in found if sizes[group_of(entry[0])] > 1]
    rows = [row for row, *_ in found]
    if len(rows) < FEWEST:
        raise NotTested(
            f"{len(rows)} networks have like seen scores, both readings and another network of "
            f"their shape, teacher and held-out combinations; {FEWEST} are needed."
        )
    groups, kinds = (_numbered(names) for names in (
        [group_of(row) for row in rows], [group_of(row)[1:] for row in rows]
    ))  # fmt: skip
    count = int(groups.max()) + 1
    note = f"{len(rows)} networks, in {count} groups."
    if MODULARITY in (first, second):
        note = f"{note} {_parted(rows, results)}"
    # Ranks: what was said is that they go together, not that they do in a straight line.
    x, y = (stats.rankdata([entry[n] for entry in found]) for n in (1, 2))
    for name, ranks in ((first, x), (second, y)):
        if all(np.ptp(ranks[groups == group]) == 0 for group in range(count)):
            raise NotTested(f"{name.capitalize()} is the same in all networks of a group.")
    seeds = np.asarray([row.labels["seed"] for row in rows])
    return Compared(x, y, _given(grid, rows), groups, kinds, seeds, note)


def _numbered(names: Sequence[tuple]) -> Int[np.ndarray, " name"]:
    """Equal names get the same number."""
    known = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.asarray([known[name] for name in names])


def _parted(rows: list[Row], results: Results) -> str:
    """A note on how many networks an ablation leaves something to."""
    parted = sum(spares(row, results) for row in rows)
    masks = [mask for row in rows for mask in masks_of(row, results)]
    able = sum(mask.value("subnetworks", "learnt") >= LEARNT for mask in masks)
    return (
        f"{able} of {len(masks)} masks learnt their module (R² from {LEARNT:g}). In {parted} of "
        f"{len(rows)} networks ablating a module's subnetwork leaves the other modules "
        f"{SPARED:g} of their score."
    )


def _given(grid: Grid, rows: list[Row]) -> Float[np.ndarray, "network covariate"]:
    """Seen score, and weight decay apart for every shape and held-out share."""
    settings = [(s, h, d) for s in grid.shape for h in grid.held_out for d in grid.decay[1:]]
    own = [tuple(row.labels[k] for k in ("shape", "held_out", "decay")) for row in rows]
    return np.asarray([
        [base.seen(row), *(float(mine == one) for one in settings)]
        for row, mine in zip(rows, own, strict=True)
    ])  # fmt: skip


def together(grid: Grid, first: str, second: str) -> Callable[[Results], Evidence]:
    """The partial rank correlation of two measures."""

    def measure(results: Results) -> Evidence:
        found = compared(grid, results, first, second)
        return Evidence.of_interval(found.correlation, found.note)

    return measure
