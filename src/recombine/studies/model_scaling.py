"""Do larger networks generalize better to unseen combinations, or do they only fit better?

`recombine run model-scaling --preset standard` varies width at several held-out shares, and depth
and encoding at one. Unseen R² that rises with width at held-out .25 is mostly better fit, so the
claims are judged at .9 and .95, on the gap, and at matched seen score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.report.document import Section
from recombine.report.figures import Panel, dots, panels
from recombine.studies import _base as base
from recombine.studies._base import gap, seen, series_over, unseen


@dataclass(frozen=True)
class Grid(Seeded):
    """Widths by held-out shares; depths and encodings at one width and share."""

    training: str = "quick"
    modules: int = 8
    active: int = 3
    width: tuple[int, ...] = (32, 64, 128)
    held_out: tuple[float, ...] = (0.25, 0.9)
    depth: tuple[int, ...] = (2,)
    encoding: tuple[str, ...] = ("identity",)
    seeds: int = 5
    side_width: int = 64  # where depths and encodings are compared
    side_held_out: float = 0.25


class ModelScaling(Study):
    """Scaling with size: width, depth and encoding."""

    name = "model-scaling"
    question = "Do larger networks generalize better to unseen combinations, or only fit better?"
    source = base.SOURCE
    cost = "quick: 0.5 min on two CPU cores; standard: 15 min for all five on one H200"
    not_shown = (
        "Sizes beyond those of the grid, or other learning rates for each size.",
        "That gradient descent finds the compositional solution for a reason: only that it does "
        "or does not at these sizes.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", 6, 2, (16, 32), (0.25, 0.5), (2,), ("identity", "tokens"), 2, 16),
        "quick": Grid(),
        "standard": Grid(
            "standard", 16, 3, (64, 128, 256, 512, 1024), (0.25, 0.9, 0.95), (2, 4),
            base.SIX_ENCODINGS, 5, 256,
        ),
        "paper": Grid(
            "paper", 16, 3, (128, 256, 512, 1024, 2048), (0.25, 0.9, 0.95), (2, 4),
            base.SIX_ENCODINGS, 3, 1024,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        training = base.training_named(grid.training)
        place: dict[str, Any] = {"modules": grid.modules, "active": grid.active}
        main = max(grid.depth)
        found = [
            base.cell(training, width=w, held_out=f, depth=main, seed=s, **place)
            for w in grid.width
            for f in grid.held_out
            for s in grid.drawn(grid.seeds)
        ]
        side: dict[str, Any] = {"width": grid.side_width, "held_out": grid.side_held_out}
        found += [
            base.cell(training, depth=d, seed=s, **place, **side)
            for d in grid.depth
            for s in grid.drawn(grid.seeds)
        ]
        found += [
            base.cell(training, depth=main, encoding=e, seed=s, **place, **side)
            for e in grid.encoding
            for s in grid.drawn(grid.seeds)
        ]
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        small, large = sorted(grid.width)[max(0, len(grid.width) // 2 - 1)], max(grid.width)
        at = base.training_named(grid.training).matched
        hard = [share for share in grid.held_out if share >= 0.5] or [max(grid.held_out)]
        found = []
        for share in hard:
            where = f"with {share:g} held out"
            found += [
                Claim(
                    f"wider is better on unseen, {share:g}",
                    f"Unseen R² is higher at width {large} than at {small} {where}",
                    self._wider(grid, share, small, large, unseen), above=0.0,
                ),
                Claim(
                    f"the gap closes with width, {share:g}",
                    f"The gap between seen and unseen R² is smaller at width {large} than at "
                    f"{small} {where}",
                    self._wider(grid, share, small, large, gap), below=0.0,
                ),
                Claim(
                    f"also at matched seen score, {share:g}",
                    f"At the step where seen R² first reaches {at:g}, unseen R² is higher at width "
                    f"{large} than at {small} {where}",
                    self._wider(grid, share, small, large,
                                lambda row: base.unseen_at_matched(row, at)), above=0.0,
                ),
                Claim(
                    f"also after a third of the training, {share:g}",
                    f"Unseen R² is higher at width {large} than at {small} {where}, a third of "
                    "the way through training",
                    self._wider(grid, share, small, large,
                                lambda row: base.at_third(row, "unseen")), above=0.0,
                ),
            ]  # fmt: skip
        found += [
            Claim(
                "deeper is better",
                f"At width {grid.side_width} and held-out {grid.side_held_out:g}, unseen R² is "
                f"higher with {max(grid.depth)} hidden layers than with {min(grid.depth)}",
                self._deeper(grid), above=0.0,
            ),
            Claim(
                "every encoding will do",
                f"At width {grid.side_width} and held-out {grid.side_held_out:g}, the worst of "
                "the six encodings reaches an unseen R² of .9 (mean over seeds of the worst)",
                self._encodings(grid), at_least=0.9,
            ),
        ]  # fmt: skip
        return found

    @staticmethod
    def _wider(
        grid: Grid, share: float, small: int, large: int, number: Callable[[Row], float]
    ) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if small == large:
                raise NotTested("Needs two widths.")
            same = {"held_out": share, "depth": max(grid.depth), "encoding": "identity"}
            values = base.trained(results).paired(
                "seed", {**same, "width": small}, {**same, "width": large}, number
            )
            note = base.left_out(results.where(**same))
            return Evidence.of_values(base.require(values, "Pairs of trained networks"), note)

        return measure

    @staticmethod
    def _deeper(grid: Grid) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if len(grid.depth) < 2:
                raise NotTested("Needs two depths.")
            same = {
                "width": grid.side_width, "held_out": grid.side_held_out, "encoding": "identity"
            }  # fmt: skip
            values = base.trained(results).paired(
                "seed", {**same, "depth": min(grid.depth)}, {**same, "depth": max(grid.depth)},
                unseen,
            )  # fmt: skip
            return Evidence.of_values(base.require(values, "Pairs of trained networks"))

        return measure

    @staticmethod
    def _encodings(grid: Grid) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if set(grid.encoding) != set(base.SIX_ENCODINGS):
                raise NotTested("Needs all six encodings.")
            same = {
                "width": grid.side_width, "held_out": grid.side_held_out,
                "depth": max(grid.depth),
            }  # fmt: skip
            side = Results([row for row in results.where(**same) if not row.diverged])
            behind = [
                name for name in grid.encoding
                if np.mean(side.where(encoding=name).values("generalization", "seen"))
                < base.SEEN_FLOOR
            ]  # fmt: skip
            if behind:
                raise NotTested(
                    f"Undertrained at this size (mean seen R² below {base.SEEN_FLOOR}): "
                    f"{', '.join(behind)}. Needs wider networks or longer training."
                )
            worst = []
            for seed in grid.drawn(grid.seeds):
                rows = side.where(seed=seed)
                if {row.labels["encoding"] for row in rows} == set(base.SIX_ENCODINGS):
                    worst.append(min(unseen(row) for row in rows))
            return Evidence.of_values(base.require(np.asarray(worst), "Seeds"))

        return measure

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        main = results.where(depth=max(grid.depth), encoding="identity")
        at = base.training_named(grid.training).matched
        drawn = []
        for share in grid.held_out:
            rows = main.where(held_out=share)
            drawn.append(
                Panel(f"held-out {share:g}", [
                    series_over(rows, "width", seen, "seen"),
                    series_over(rows, "width", unseen, "unseen"),
                    series_over(rows, "width",
                                lambda row: base.unseen_at_matched(row, at),
                                f"unseen when seen is {at:g}"),
                ])
            )  # fmt: skip
        found = [
            Section(
                "Width",
                "Seen and unseen R² at the end of training, and unseen R² at the step where seen "
                f"R² first reached {at:g}.",
                (panels("R² by width", "width", "R²", drawn, log_x=True, y_range=(-0.1, 1.02)),),
                (base.score_table(main, ("held_out", "width"), "Widths"),),
            )
        ]
        side = results.where(width=grid.side_width, held_out=grid.side_held_out)
        if len(grid.encoding) > 1:
            chosen = side.where(depth=max(grid.depth))
            found.append(
                Section(
                    "Encodings",
                    f"Width {grid.side_width}, held-out {grid.side_held_out:g}.",
                    (encoding_figure(grid, chosen),),
                    (base.score_table(chosen, ("encoding",), "Encodings"),),
                )
            )
        if len(grid.depth) > 1:
            found.append(
                Section("Depth", "", (), (base.score_table(
                    side.where(encoding="identity"), ("depth",), "Depths"),))
            )  # fmt: skip
        return found


def encoding_figure(grid: Grid, rows: Results):
    """Seen and unseen R² of each encoding, with intervals."""
    series = [
        base.estimates_over(rows, "encoding", grid.encoding, number, name)
        for name, number in (("seen", seen), ("unseen", unseen))
    ]
    return dots("R² by encoding", list(grid.encoding), series, value_label="R²")
