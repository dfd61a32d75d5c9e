"""What a table of tasks would need, where a network computes: cells, the price, its figures."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from recombine.encodings.linear import Identity
from recombine.families.hyperteacher import Hyperteacher
from recombine.instruments.generalization import Generalization
from recombine.lab.statistics import matched
from recombine.lab.study import Cell, Evidence, NotTested, Results, Row
from recombine.learners._tasks import build_support, draw_content
from recombine.learners.recall import Recall
from recombine.models._model import Setting
from recombine.models.constructed import (
    DISCRETE,
    Constructed,
    amplification,
    constructed_for,
    roundoff,
)
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Points, scatter
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.supports import SupportRule

LEARNT = 0.95  # the seen R² at which a memoriser's entries are counted
TOLERANCE = 0.05  # how far an answer of the constructed network may be off


@dataclass(frozen=True)
class Tables:
    """Tables of one size for families of several (M, K): how many entries does each take?"""

    entries: int
    steps: int
    tasks: int
    samples: int
    teacher: int
    held_out: float
    seeds: range
    settings: tuple[tuple[int, int], ...]

    def family(self, modules: int, active: int) -> Hyperteacher:
        size = self.teacher
        return Hyperteacher(
            modules=modules, active=active, input_units=size, hidden=(size,), output_units=size
        )

    def cell(
        self, method: Literal["nearest", "exact"], modules: int, active: int, share: float,
        seed: int,
    ) -> Cell:  # fmt: skip
        """A table; it has no rate to be chosen, and counts the numbers its entries stand for."""
        learner = Recall(
            family=self.family(modules, active),
            support=SupportRule(held_out=share),
            seeds=Seeds.all(seed),
            method=method,
            entries=self.entries,
            training_steps=self.steps,
            tasks=self.tasks,
            samples=self.samples,
            evaluation_every=max(10, self.steps // 15 // 10 * 10),
            evaluation_tasks=512,
        )
        labels = {
            "part": "table", "model": method, "modules": modules, "active": active,
            "held_out": share, "seed": seed, "rate": "–",
            "parameters": self.entries * self.entry_numbers(modules),
        }  # fmt: skip
        return Cell(learner, labels, (Generalization(),))

    def entry_numbers(self, modules: int) -> int:
        """Numbers an entry stands for: a code, and the composed weights and biases."""
        return modules + self.teacher * self.teacher + self.teacher

    def cells(self) -> list[Cell]:
        return [
            self.cell("exact", modules, active, self.held_out, seed)
            for modules, active in self.settings
            for seed in self.seeds
        ]

    def rows(self, results: Results, setting: tuple[int, int]) -> Results:
        modules, active = setting
        return results.where(
            part="table", model="exact", held_out=self.held_out, modules=modules, active=active
        )

    def entries_needed(self, row: Row) -> float:
        """Entries when the memoriser's seen R² first reached `LEARNT`, or NaN."""
        return matched(row.curve("seen")[1], row.curve("entries")[1], LEARNT)

    def neurons(self, row: Row) -> float:
        return self.constructed(row).units

    def constructed(self, row: Row) -> Constructed:
        """The network that computes the teacher a table was filled from."""
        family = self.family(row.labels["modules"], row.labels["active"])
        return constructed_within(family, row.labels["seed"])

    def seen_tasks(self, row: Row) -> int:
        """How many tasks training can meet: every weight of every module of a combination."""
        family = self.family(row.labels["modules"], row.labels["active"])
        support = build_support(
            family, SupportRule(held_out=row.labels["held_out"]), row.labels["seed"]
        )
        weights = len(DISCRETE) - 1  # without zero
        return int(np.sum(float(weights) ** family.space.sizes(support.seen)))

    def slope(self, number: Callable[[Row], float]) -> Callable[[Results], Evidence]:
        """Per seed: the power of the number of seen tasks with which a number grows."""

        def measure(results: Results) -> Evidence:
            if len(self.settings) < 3:
                raise NotTested("Needs families of at least three sizes.")
            found = []
            for seed in self.seeds:
                rows = [
                    row
                    for setting in self.settings
                    for row in self.rows(results, setting).where(seed=seed)
                ]
                x = np.log([self.seen_tasks(row) for row in rows])
                y = np.log([number(row) for row in rows])
                if len(rows) == len(self.settings) and np.isfinite(y).all():
                    found.append(np.polyfit(x, y, 1)[0])
            what = f"Seeds whose tables all reached a seen R² of {LEARNT:g}"
            return Evidence.of_values(base.require(np.asarray(found), what))

        return measure

    def section(self, results: Results) -> Section:
        return Section(
            "What a table would need",
            "A memoriser answers a task if it has met that very task: the same modules with the "
            "same weights. The constructed network is written down, not trained: it computes the "
            "weighted sum of modules, so more tasks cost it next to nothing.",
            (self._figure(results),),
            (self._table(results),),
        )

    def _figure(self, results: Results) -> Figure:
        rows = [row for setting in self.settings for row in self.rows(results, setting)]
        tasks = [self.seen_tasks(row) for row in rows]
        needed = [self.entries_needed(row) for row in rows]
        return scatter(
            "The price of memorising", "seen tasks", "entries or neurons",
            [
                Points("entries of the memoriser", tasks,
                       [n if math.isfinite(n) else None for n in needed]),
                Points("neurons of the constructed network", tasks,
                       [self.neurons(row) for row in rows]),
            ],
            fit=True, log_x=True, log_y=True,
            caption=f"Entries when seen R² first reaches {LEARNT:g}; neurons for every answer to "
            f"be within {TOLERANCE:g}. One point a seed; lines are fitted to the logarithms.",
        )  # fmt: skip

    def _table(self, results: Results) -> Table:
        found = []
        for modules, active in self.settings:
            rows = self.rows(results, (modules, active))
            if not rows:
                continue
            needed = np.asarray([self.entries_needed(row) for row in rows])
            reached = needed[np.isfinite(needed)]
            entries = float(reached.mean()) if reached.size else None
            specs = [self.constructed(row) for row in rows]
            sizes = (modules, self.teacher, self.teacher)
            found.append([
                modules, active, round(np.mean([self.seen_tasks(row) for row in rows])),
                None if entries is None else round(entries),
                None if entries is None else round(entries * self.entry_numbers(modules)),
                round(np.mean([spec.units for spec in specs])),
                round(np.mean([spec.parameters(*sizes) for spec in specs])),
                f"{reached.size} of {len(rows)}",
            ])  # fmt: skip
        columns = [
            "modules", "active", "seen tasks", "entries", "numbers in the table", "neurons",
            "parameters of the network", f"reached {LEARNT:g}",
        ]  # fmt: skip
        return Table(
            "A table against a constructed network", columns, found,
            "Means over seeds. An entry stands for a code and the composed weights and biases.",
        )  # fmt: skip


@functools.lru_cache(maxsize=256)
def constructed_within(family: Hyperteacher, seed: int) -> Constructed:
    """The smallest construction whose answers are within `TOLERANCE` for this seed's teacher."""
    content, code = draw_content(family, Identity(), seed, seed)
    setting = Setting(family, Identity(), *jax.tree.map(jnp.asarray, (content, code)))
    scale = float(amplification(setting))
    segments = math.ceil(math.sqrt(scale / (TOLERANCE - scale * roundoff(setting))))
    return constructed_for(family, segments=max(2, segments))
