"""At equal numbers of trained combinations, does it matter which ones they are?

`recombine run coverage --preset standard` compares supports of equal size on the combinations that
both hold out. Expected from the literature: disconnected and non-compositional supports fail, a
few popular modules do no harm, a few rare ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.combinations import Subsets
from recombine.lab.statistics import mean_interval
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, dots
from recombine.studies import _base as base

RULES = ("balanced", "popular", "unpopular", "disconnected", "non-compositional")


@dataclass(frozen=True)
class Grid(Seeded):
    """Rules by widths; every rule has a random twin of the same size and seeds."""

    training: str = "quick"
    modules: int = 8
    active: int = 3
    rule: tuple[str, ...] = RULES
    held_out: float = 0.4
    width: tuple[int, ...] = (64, 96, 128)
    depth: int = 2
    seeds: int = 5


class Coverage(Study):
    """Which combinations, at equal number."""

    name = "coverage"
    question = "At equal numbers of trained combinations, does it matter which ones they are?"
    source = base.SOURCE
    cost = "quick: 1.5 min on two CPU cores; standard: 15 min for all five on one H200"
    not_shown = (
        "Whether connected support is sufficient: only what happens when it is broken.",
        "Supports other than those compared, and other held-out shares.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", 6, 2, ("disconnected", "popular"), 0.5, (16,), 2, 2),
        "quick": Grid(),
        "standard": Grid("standard", 16, 3, RULES, 0.25, (128, 256, 512), 4, 5),
        "paper": Grid("paper", 16, 3, RULES, 0.25, (1024,), 4, 3),
    }

    def cells(self, grid: Grid) -> list[Cell]:
        training = base.training_named(grid.training)
        place: dict[str, Any] = {
            "modules": grid.modules, "active": grid.active, "depth": grid.depth
        }  # fmt: skip
        found = []
        for width in grid.width:
            for seed in grid.drawn(grid.seeds):
                for rule in grid.rule:
                    share = share_of(grid, rule)
                    for chosen in (rule, "random"):
                        found.append(
                            base.cell(training, rule=chosen, held_out=share, width=width,
                                      seed=seed, **place)
                        )  # fmt: skip
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        large = max(grid.width)

        def drop(rule: str, among: str) -> Callable[[Results], Evidence]:
            def measure(results: Results) -> Evidence:
                if rule not in grid.rule:
                    raise NotTested(f"The rule {rule} is not part of this preset.")
                values = drops(grid, results, rule, large, among)
                share = share_of(grid, rule)
                note = base.left_out(Results([
                    row for row in results.where(width=large, held_out=share)
                    if row.labels["rule"] in (rule, "random")
                ]))  # fmt: skip
                wanted = f"Seeds with trained networks and combinations held out by both ({among})"
                return Evidence.of_values(base.require(values, wanted), note)

            return measure

        words = (
            f"on combinations that both hold out (width {large}), the unseen R² lost against a "
            "random support of equal size"
        )
        return [
            Claim("connection matters", f"Disconnected support: {words} is at least .1 on "
                  "combinations across the groups", drop("disconnected", "across"), at_least=0.1),
            Claim("only across the groups", f"Disconnected support: {words} is at most .02 on "
                  "combinations within a group", drop("disconnected", "within"), at_most=0.02),
            Claim("every module must be seen", f"Non-compositional support: {words} is at least "
                  ".1", drop("non-compositional", "all"), at_least=0.1),
            Claim("popular modules do no harm", f"Popular modules: {words} is at most .02",
                  drop("popular", "all"), at_most=0.02),
            Claim("rare modules do harm", f"Unpopular modules: {words} is at least .02",
                  drop("unpopular", "all"), at_least=0.02),
            Claim("balance brings nothing more", f"Balanced support: {words} is at least -.01 and "
                  "at most .01", drop("balanced", "all"), at_least=-0.01, at_most=0.01),
            *([] if len(grid.width) < 2 else [
            Claim("width does not mend it", "The loss of the disconnected support across the "
                  f"groups is not smaller at width {large} than at {min(grid.width)}: it falls by "
                  "less than .05", self._mended(grid), below=0.05)]),
        ]  # fmt: skip

    @staticmethod
    def _mended(grid: Grid) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if "disconnected" not in grid.rule:
                raise NotTested("The rule disconnected is not part of this preset.")
            first = drops(grid, results, "disconnected", min(grid.width), "across")
            last = drops(grid, results, "disconnected", max(grid.width), "across")
            if len(first) != len(last):
                raise NotTested("Some seeds are missing or diverged.")
            return Evidence.of_values(base.require(first - last, "Seeds"))

        return measure

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        estimates, rows = [], []
        kinds = [
            (rule, among)
            for rule in grid.rule
            for among in (("across", "within") if rule == "disconnected" else ("all",))
        ]
        names = [rule if among == "all" else f"{rule}, {among} groups" for rule, among in kinds]
        for width in grid.width:
            found = [drops(grid, results, rule, width, among) for rule, among in kinds]
            intervals = [mean_interval(v) if v.size else None for v in found]
            estimates.append(
                Estimates(
                    f"width {width}",
                    [None if i is None else i.estimate for i in intervals],
                    [None if i is None or not np.isfinite(i.low) else i.low for i in intervals],
                    [None if i is None or not np.isfinite(i.high) else i.high for i in intervals],
                )
            )
            rows += [[name, width, base.interval_text(v), v.size]
                     for name, v in zip(names, found, strict=True)]  # fmt: skip
        sizes = list(range(1, grid.active + 1))
        by_size = [
            [name, width, *(
                base.interval_text(drops(grid, results, rule, width, among, size))
                for size in sizes
            )]
            for width in grid.width
            for (rule, among), name in zip(kinds, names, strict=True)
        ]  # fmt: skip
        return [
            Section(
                "What each support loses against a random one of equal size",
                "R² of the random support minus R² of the named one, on combinations that both "
                "hold out, same teachers and seeds. Zero: no loss.",
                (dots("Unseen R² lost", names, estimates, value_label="R² lost",
                      references=[(0.0, "no loss")]),),
                (Table("Loss by support and width", ["support", "width", "R² lost", "seeds"], rows),
                 Table("Loss by number of active modules",
                       ["support", "width", *[f"{s} active" for s in sizes]], by_size)),
            ),
            Section("Scores", "", (), (base.score_table(results, ("rule", "held_out", "width")),)),
        ]  # fmt: skip


def share_of(grid: Grid, rule: str) -> float:
    """The held-out share: non-compositional supports fix their own, and their twin follows."""
    if rule != "non-compositional":
        return grid.held_out
    total = Subsets(grid.modules, grid.active).size
    without_one = Subsets(grid.modules - 1, grid.active).size
    # The middle of the step, so that rounding down gives exactly as many as the rule holds out.
    return (total - without_one + 0.5) / total


def drops(
    grid: Grid, results: Results, rule: str, width: int, among: str, size: int | None = None
) -> np.ndarray:
    """Per seed: R² of the random twin minus R² of the rule, on combinations both hold out."""
    found = []
    for seed in results.labels("seed"):
        place = {"width": width, "seed": seed, "held_out": share_of(grid, rule)}
        left, right = (
            [r for r in base.trained(results.where(rule=name, **place)) if not r.diverged]
            for name in (rule, "random")
        )
        if not left or not right:
            continue
        both = shared(left[0], right[0], among, size)
        if both is not None:
            found.append(both)
    return np.asarray(found)


def shared(rule: Row, twin: Row, among: str, size: int | None) -> float | None:
    """The difference of two networks on the combinations that both hold out."""
    own = rule.readings["generalization"].tables["unseen"]
    other = twin.readings["generalization"].tables["unseen"]
    there = {rank: i for i, rank in enumerate(other["rank"])}
    pairs = []
    for i, rank in enumerate(own["rank"]):
        if rank not in there or (size is not None and own["size"][i] != size):
            continue
        if among == "all" or bool(own["across"][i]) == (among == "across"):
            pairs.append((i, there[rank]))
    if len(pairs) < 2:
        return None

    def score(table: dict[str, Any], index: list[int]) -> float:
        if "whole" in table:  # of a grid world: the share of episodes without a mistake
            return float(np.mean([table["whole"][i] for i in index]))
        error = sum(table["error"][i] for i in index)
        return 1 - error / sum(table["variance"][i] for i in index)

    return score(other, [j for _, j in pairs]) - score(own, [i for i, _ in pairs])
