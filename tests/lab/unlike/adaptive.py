"""A study of two rounds: the better learning rate is found, then run with more seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.lab.study import Cell, Claim, Evidence, Results, Study
from recombine.report.document import Section, Table
from unlike.exam import Exam
from unlike.line import Line


@dataclass(frozen=True)
class Rates:
    rate: tuple[float, ...] = (0.0005, 0.02)
    seeds: int = 3
    steps: int = 400


class Adaptive(Study):
    """Chooses a learning rate on the first seed, then looks at others."""

    name = "adaptive"
    question = "Is the slope found?"
    source = "none"
    cost = "none"
    presets: ClassVar = {name: Rates() for name in ("smoke", "quick", "standard", "paper")}

    def cells(self, grid: Rates) -> list[Cell]:
        return [self.cell(grid, rate, 0) for rate in grid.rate]

    def cell(self, grid: Rates, rate: float, seed: int) -> Cell:
        learner = Line(seed=seed, rate=rate, training_steps=grid.steps)
        return Cell(learner, {"rate": rate, "seed": seed}, (Exam(),))

    def next_cells(self, grid: Rates, results: Results, number: int) -> list[Cell]:
        if number > 1:
            return []
        best = max(results, key=lambda row: row.value("exam", "right"))
        return [self.cell(grid, best.labels["rate"], seed) for seed in range(1, grid.seeds)]

    def most_further_cells(self, grid: Rates) -> int:
        return grid.seeds - 1

    def claims(self, grid: Rates) -> list[Claim]:
        def measure(results: Results) -> Evidence:
            later = [row.value("exam", "right") for row in results if row.labels["seed"] > 0]
            return Evidence.of_values(np.asarray(later))

        return [Claim("found", "The slope is found", measure, at_least=0.9)]

    def sections(self, grid: Any, results: Results) -> list[Section]:
        rows = [[r.labels["rate"], r.labels["seed"], r.value("exam", "right")] for r in results]
        return [Section("Scores", "", (), (Table("Scores", ["rate", "seed", "right"], rows),))]
