"""Does it matter how a task is told, and can it be read off the network when the code hides it?

`recombine run encodings --preset standard` repeats the published table: six encodings of the same
tasks, with the unseen score, a probe on the deepest hidden layer and one on the code itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.errors import unknown
from recombine.instruments._instrument import Instrument
from recombine.instruments.decodability import Decodability
from recombine.instruments.generalization import Generalization
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.report.document import Section, Table
from recombine.report.figures import dots
from recombine.studies import _base as base
from recombine.studies._base import seen, unseen

READ: tuple[Instrument, ...] = (Generalization(), Decodability())
HIDING = ("invertible-network", "interval-shuffle", "few-shot")

# Task decoder R², input decoder R² and unseen R² as a summary of the paper reports them for its
# default setting (4x1024, 300,000 steps); which hidden layer it tabulates is not known.
PUBLISHED = {
    "identity": (0.95, 1.00, 1.00),
    "orthogonal": (0.96, 1.00, 1.00),
    "tokens": (0.99, 1.00, 1.00),
    "invertible-network": (0.94, 0.56, 0.95),
    "interval-shuffle": (0.96, 0.73, 0.98),
    "few-shot": (0.90, -0.23, 0.97),
}

NOTE = "Published: 4x1024 networks, 300,000 steps; which hidden layer it is, is not known."

# Annealed: the table is about trained networks, not about learning curves.
TRAINING = {
    "smoke": base.Training(40, 3e-3, 16, 4, 2, 8, schedule="cosine"),
    "quick": base.Training(1_500, 3e-3, 64, 8, 3, 8, schedule="cosine"),
    "standard": base.Training(40_000, 1e-3, 128, 16, 8, schedule="cosine"),
    "paper": base.PAPER,
}


@dataclass(frozen=True)
class Grid(Seeded):
    """Encodings at one width, depth and held-out share."""

    training: str = "quick"
    modules: int = 8
    active: int = 2
    width: int = 128
    depth: int = 2
    held_out: float = 0.25
    encoding: tuple[str, ...] = ("identity", "tokens", "interval-shuffle")
    seeds: int = 5


class EncodingsStudy(Study):
    """Six ways to tell a task."""

    name = "encodings"
    question = "Does it matter how a task is told, and is it decoded where the code hides it?"
    source = base.SOURCE
    cost = "quick: 2 min on two CPU cores (estimated); standard: 3 min on one H200"
    not_shown = (
        "The published training length and width: ours is shorter, narrower and annealed.",
        "Other permutations of the interval shuffle than those of the seeds.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", 6, 2, 16, 2, 0.25, ("identity", "interval-shuffle"), 2),
        "quick": Grid(),
        "standard": Grid("standard", 16, 3, 512, 4, 0.25, base.SIX_ENCODINGS, 5),
        "paper": Grid("paper", 16, 3, 1024, 4, 0.25, base.SIX_ENCODINGS, 3),
    }

    def cells(self, grid: Grid) -> list[Cell]:
        if grid.training not in TRAINING:
            raise unknown("training", grid.training, TRAINING)
        return [
            base.cell(TRAINING[grid.training], modules=grid.modules, active=grid.active,
                      width=grid.width, depth=grid.depth, held_out=grid.held_out, encoding=name,
                      seed=seed, instruments=READ)
            for name in grid.encoding
            for seed in grid.drawn(grid.seeds)
        ]  # fmt: skip

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            Claim("floor: every encoding is learnt", "The worst seen R² of the encodings is at "
                  "least .9 (mean over seeds of the worst)", worst(grid, seen), at_least=0.9),
            Claim("every encoding will do", "The worst unseen R² of the encodings is at least .9 "
                  "(mean over seeds of the worst)", worst(grid, unseen), at_least=0.9),
            Claim("decoded though the code hides it", "In the encodings that hide the task, the "
                  "probe of the deepest hidden layer is better than one of the code, by R² on "
                  "unseen combinations (mean over those of these encodings that were learnt)",
                  self._hidden(grid), above=0.0),
            Claim("task decoders as published", "The released probe of the deepest hidden layer "
                  "lies within .1 of the published value (mean absolute difference over the "
                  "encodings)", self._apart(grid, 0), at_most=0.1),
            Claim("input decoders as published", "The released probe of the code lies within .15 "
                  "of the published value (mean absolute difference over the encodings)",
                  self._apart(grid, 1), at_most=0.15),
            Claim("unseen scores as published", "Unseen R² lies within .05 of the published value "
                  "(mean absolute difference over the encodings)", self._apart(grid, 2),
                  at_most=0.05),
        ]  # fmt: skip

    @staticmethod
    def _hidden(grid: Grid) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            names = [name for name in grid.encoding if name in HIDING]
            if not names:
                raise NotTested("No encoding of this preset hides the task.")
            found = per_seed(
                grid, base.trained(results), names, lambda row: own(row, grid) - own_code(row),
                least=1,
            )  # fmt: skip
            return Evidence.of_values(base.require(found, "Seeds"), base.left_out(results))

        return measure

    @staticmethod
    def _apart(grid: Grid, column: int) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if set(grid.encoding) != set(PUBLISHED) or grid.modules != 16 or grid.active != 3:
                raise NotTested("Published for six encodings of 16 modules, at most 3 at a time.")
            number = (lambda row: released(row, grid), released_code, unseen)[column]
            found = per_seed(
                grid, results, grid.encoding,
                lambda row: abs(number(row) - PUBLISHED[row.labels["encoding"]][column]),
            )  # fmt: skip
            return Evidence.of_values(base.require(found, "Seeds"))

        return measure

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        def text(name: str, number: Callable[[Row], float]) -> str:
            rows = results.where(encoding=name)
            values = np.asarray([number(row) for row in rows if not row.diverged])
            return base.interval_text(values[np.isfinite(values)])

        def beside(title: str, column: int, **ours: Callable[[Row], float]) -> Table:
            heads = ["encoding", "published", *(name.replace("_", " ") for name in ours)]
            rows = [
                [name, PUBLISHED[name][column], *(text(name, number) for number in ours.values())]
                for name in grid.encoding
            ]
            return Table(title, heads, rows, NOTE if column == 0 else "")

        def task(row: Row) -> float:
            return own(row, grid)

        names = list(grid.encoding)
        kinds = (("unseen R²", unseen), ("task decoder", task),
                 ("input decoder", own_code))  # fmt: skip
        estimates = [
            base.estimates_over(results, "encoding", names, number, label)
            for label, number in kinds
        ]
        return [
            Section(
                "Six ways to tell a task",
                "Task decoder: a linear probe of the deepest hidden layer. Input decoder: a linear "
                "probe of the code the network is given. Both by R² on unseen combinations, by "
                "the released protocol (fitted on seen combinations, before the activation) and "
                "by ours (fitted across all combinations, after it).",
                (dots("By encoding", names, estimates, value_label="R²"),),
                (beside("Task decoder R²", 0, released_probe=lambda row: released(row, grid),
                        our_probe=task),
                 beside("Input decoder R²", 1, released_probe=released_code, our_probe=own_code),
                 beside("Unseen R²", 2, ours=unseen, seen_ours=seen)),
            ),
            Section("Scores", "", (), (base.score_table(results, ("encoding",)),)),
        ]  # fmt: skip


def own(row: Row, grid: Grid) -> float:
    return row.value("decodability", f"layer{grid.depth}/after/unseen")


def own_code(row: Row) -> float:
    return row.value("decodability", "code/unseen")


def released(row: Row, grid: Grid) -> float:
    return row.value("decodability", f"published/layer{grid.depth}/before/unseen")


def released_code(row: Row) -> float:
    return row.value("decodability", "published/code/unseen")


def per_seed(
    grid: Grid, results: Results, names: Sequence[str], number: Callable[[Row], float],
    least: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Mean over encodings for each seed that has at least so many of them, or all."""
    found = []
    for seed in grid.drawn(grid.seeds):
        rows = [row for row in results.where(seed=seed)
                if row.labels["encoding"] in names and not row.diverged]  # fmt: skip
        if len(rows) >= (least or len(names)):
            found.append(float(np.mean([number(row) for row in rows])))
    return np.asarray(found)


def worst(grid: Grid, number: Callable[[Row], float]) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        scores = {name: results.where(encoding=name).values("generalization", "seen")
                  for name in grid.encoding}  # fmt: skip
        behind = [n for n, found in scores.items() if found.size and found.mean() < base.SEEN_FLOOR]
        if behind and number is not seen:
            raise NotTested(
                f"Undertrained at this size (mean seen R² below {base.SEEN_FLOOR}): "
                f"{', '.join(behind)}. Needs wider networks or longer training."
            )
        found = []
        for seed in grid.drawn(grid.seeds):
            rows = [row for row in results.where(seed=seed) if not row.diverged]
            if len(rows) == len(grid.encoding):
                found.append(min(number(row) for row in rows))
        return Evidence.of_values(base.require(np.asarray(found), "Seeds"))

    return measure
