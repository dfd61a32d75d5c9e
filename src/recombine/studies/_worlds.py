"""What the two grid worlds ask alike: floors, data, size, supports, encodings and novelty."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from recombine.encodings._encoding import Encoding
from recombine.errors import unknown
from recombine.families._world import World
from recombine.instruments._instrument import Instrument
from recombine.instruments.decodability import Decodability
from recombine.instruments.generalization import Generalization
from recombine.instruments.rollout import Rollout
from recombine.lab.statistics import mean_interval
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.models.mlp import MLP
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, Panel, dots, panels
from recombine.studies import _base as base
from recombine.studies import boundary
from recombine.studies._base import Training, gap, seen, series_over, unseen
from recombine.studies._worlds_sections import (
    METRIC,
    encodings_section,
    novelty_section,
    rollout_table,
)
from recombine.studies.coverage import shared
from recombine.supports import SupportRule

Place = dict[str, int]
READ: tuple[Instrument, ...] = (Generalization(), Rollout())


@dataclass(frozen=True)
class WorldGrid(Seeded):
    """Shares, widths and depths; supports and encodings at one width and share."""

    training: str = "quick"
    width: tuple[int, ...] = (32, 128)
    held_out: tuple[float, ...] = (0.25, 0.75)
    depth: tuple[int, ...] = (2,)
    rule: tuple[str, ...] = ()
    rule_held_out: float = 0.65  # where supports are compared
    encoding: tuple[str, ...] = ("identity",)
    seeds: int = 5
    encoding_width: tuple[int, ...] = ()  # where encodings are compared; none: the largest alone

    @property
    def large(self) -> int:
        return max(self.width)


def earned(row: Row) -> float:
    """The closed-loop return on unseen combinations, as a share of the expert's."""
    return row.value("rollout", "unseen_return")


def earned_seen(row: Row) -> float:
    return row.value("rollout", "seen_return")


class Worlds(Study):
    """A study of one grid world; subclasses say which."""

    training: ClassVar[dict[str, Training]]
    # Supports whose loss against a random twin of equal size is claimed, with the criterion.
    harmful: ClassVar[dict[str, float]]

    @abc.abstractmethod
    def family(self, grid: Any, place: Place) -> World:
        """The world of a grid at one of its places."""

    def places(self, grid: Any) -> list[Place]:
        """The sizes of the family that are compared; the first is where all else is asked."""
        return [{}]

    @abc.abstractmethod
    def encoding(self, name: str) -> Encoding:
        """An encoding as this world uses it."""

    def cells(self, grid: Any) -> list[Cell]:
        main = [
            self.cell(grid, width=width, held_out=share, seed=seed)
            for width in grid.width
            for share in grid.held_out
            for seed in grid.drawn(grid.seeds)
        ]
        main += [
            self.cell(grid, place=place, width=grid.large, held_out=share, seed=seed)
            for place in self.places(grid)[1:]
            for share in grid.held_out
            for seed in grid.drawn(grid.seeds)
        ]
        main += [
            self.cell(grid, width=width, depth=depth, held_out=grid.held_out[0], seed=seed)
            for depth in grid.depth[1:]
            for width in grid.width
            for seed in grid.drawn(grid.seeds)
        ]
        supports = [
            self.cell(grid, width=grid.large, held_out=self.share(grid, rule), rule=chosen,
                      seed=seed)
            for rule in grid.rule
            for chosen in (rule, "random")
            for seed in grid.drawn(grid.seeds)
        ]  # fmt: skip
        told = [
            self.cell(grid, width=width, depth=depth, held_out=grid.held_out[0], encoding=name,
                      seed=seed, instruments=(*READ, Decodability()))
            for name in grid.encoding
            for width in grid.encoding_width or (grid.large,)
            for depth in (grid.depth if grid.encoding_width else grid.depth[:1])
            for seed in grid.drawn(grid.seeds)
        ]  # fmt: skip
        # Cells that two parts share come first with all their instruments.
        return told + main + supports

    def cell(
        self, grid: Any, *, width: int, held_out: float, seed: int, rule: str = "random",
        encoding: str = "identity", instruments: tuple[Instrument, ...] = READ,
        place: Place | None = None, depth: int = 0,
    ) -> Cell:  # fmt: skip
        place = place or self.places(grid)[0]
        depth = depth or grid.depth[0]
        if grid.training not in self.training:
            raise unknown("training", grid.training, self.training)
        labels = {
            "width": width, "depth": depth, "held_out": held_out, "rule": rule,
            "encoding": encoding, "seed": seed, **place,
        }  # fmt: skip
        return base.family_cell(
            self.training[grid.training], self.family(grid, place), SupportRule(rule, held_out),
            self.encoding(encoding), MLP(width=width, depth=depth), seed, instruments, labels,
        )  # fmt: skip

    def share(self, grid: Any, rule: str) -> float:
        """The held-out share of a rule and of its random twin, so that both see equally many."""
        space = self.family(grid, self.places(grid)[0]).space
        seen = SupportRule(rule, grid.rule_held_out).build(space, 0).seen.size
        # The middle of the step, so that rounding down gives exactly as many.
        return (space.size - seen + 0.5) / space.size

    def claims(self, grid: Any) -> list[Claim]:
        low, high = min(grid.held_out), max(grid.held_out)
        small, large = min(grid.width), grid.large
        at = f"at width {large} with {low:g} held out"
        found = [
            Claim("floor: imitates what it was shown",
                  f"Seen {METRIC} {at} is at least .9", mean_of(large, low, seen), at_least=0.9),
            Claim("floor: acts by itself",
                  f"The closed-loop return on seen combinations {at} is at least .9 of the "
                  "expert's", mean_of(large, low, earned_seen), at_least=0.9),
            Claim("composes", f"Unseen {METRIC} {at} is less than .1 below seen",
                  mean_of(large, low, gap), below=0.1),
            Claim("composes in closed loop",
                  f"The closed-loop return on unseen combinations {at} is at least .9 of the "
                  "expert's", mean_of(large, low, earned), at_least=0.9),
            Claim("the gap closes with data",
                  f"The gap between seen and unseen {METRIC} at width {large} is larger with "
                  f"{high:g} held out than with {low:g}",
                  difference({"width": large, "held_out": low}, {"width": large, "held_out": high},
                             gap), above=0.0),
            Claim("wider is better on unseen",
                  f"Unseen {METRIC} with {low:g} held out is higher at width {large} than at "
                  f"{small}", difference({"width": small, "held_out": low},
                                         {"width": large, "held_out": low}, unseen),
                  above=0.0),
            Claim("the gap closes with width",
                  f"The gap with {high:g} held out is smaller at width {large} than at {small}",
                  difference({"width": small, "held_out": high},
                             {"width": large, "held_out": high}, gap), below=0.0),
        ]  # fmt: skip
        for rule, bound in self.harmful.items():
            words = (
                f"{rule.capitalize()} support: on combinations that both hold out (width {large})"
                f", the unseen {METRIC} lost against a random support of equal size is at "
            )
            measure = self._lost(grid, rule)
            if bound > 0:
                found.append(Claim(f"{rule} support does harm", f"{words}least {bound:g}",
                                   measure, at_least=bound))  # fmt: skip
            else:
                found.append(Claim(f"{rule} support does no harm", f"{words}most {-bound:g}",
                                   measure, at_most=-bound))  # fmt: skip
        found += [
            Claim("every encoding will do",
                  f"The worst of the encodings reaches an unseen {METRIC} of .8 (mean over seeds "
                  "of the worst)", self._encodings(grid), at_least=0.8),
            Claim("novelty predicts error",
                  "Among unseen combinations of one size in one network, each pair never trained "
                  "together raises log10 of the share of wrong actions",
                  of_main(grid, boundary.effect("unseen_pairs")), above=0.0),
            Claim("scale helps less where novelty is high",
                  "The fall of log10 of the share of wrong actions per doubling of parameters is "
                  "smaller for each pair never trained together",
                  of_main(grid, boundary.interaction("unseen_pairs")), above=0.0),
        ]  # fmt: skip
        return [replace(claim, measure=self._at_home(grid, claim.measure)) for claim in found]

    def _at_home(
        self, grid: Any, measure: Callable[[Results], Evidence]
    ) -> Callable[[Results], Evidence]:
        return lambda results: measure(self.home(grid, results))

    def _lost(self, grid: Any, rule: str) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if rule not in grid.rule:
                raise NotTested(f"The rule {rule} is not part of this preset.")
            values = self.lost(grid, results, rule)
            return Evidence.of_values(base.require(values, "Seeds with trained networks"))

        return measure

    def lost(self, grid: Any, results: Results, rule: str) -> np.ndarray:
        """Per seed: the score of the random twin minus the rule's, on what both hold out."""
        share, found = self.share(grid, rule), []
        for seed in grid.drawn(grid.seeds):
            place = {"width": grid.large, "held_out": share, "seed": seed}
            left, right = (
                [r for r in base.trained(results.where(rule=name, **place)) if not r.diverged]
                for name in (rule, "random")
            )
            if left and right:
                among = "across" if rule == "disconnected" else "all"
                lost = shared(left[0], right[0], among, None)
                found += [] if lost is None else [lost]
        return np.asarray(found)

    @staticmethod
    def _encodings(grid: Any) -> Callable[[Results], Evidence]:
        def measure(results: Results) -> Evidence:
            if len(grid.encoding) < 2:
                raise NotTested("Needs several encodings.")
            side = results.where(width=grid.large, held_out=grid.held_out[0], rule="random")
            behind = [
                name for name in grid.encoding
                if np.mean(side.where(encoding=name).values("generalization", "seen"))
                < base.SEEN_FLOOR
            ]  # fmt: skip
            if behind:
                raise NotTested(
                    f"Undertrained at this size (mean seen score below {base.SEEN_FLOOR}): "
                    f"{', '.join(behind)}."
                )
            worst = [
                min(unseen(row) for row in side.where(seed=seed)) for seed in grid.drawn(grid.seeds)
            ]
            return Evidence.of_values(base.require(np.asarray(worst), "Seeds"))

        return measure

    def home(self, grid: Any, results: Results) -> Results:
        """The rows at the first place and depth, about which the claims are."""
        return results.where(depth=grid.depth[0], **self.places(grid)[0])

    def sections(self, grid: Any, results: Results) -> Sequence[Section]:
        everything, results = results, self.home(grid, results)
        main, shares = main_rows(grid, results), list(grid.held_out)
        drawn = [
            Panel(f"held-out {share:g}", [
                series_over(main.where(held_out=share), "width", number, name)
                for name, number in (("seen", seen), ("unseen", unseen),
                                     ("closed loop, seen", earned_seen),
                                     ("closed loop, unseen", earned))
            ])
            for share in shares
        ]  # fmt: skip
        found = [
            Section(
                "Width and held-out share",
                "Seen and unseen: the share of episodes in which every action is the expert's, "
                "along the expert's path. Closed loop: the discounted return of a network that "
                "acts by itself, as a share of the expert's in the same episodes.",
                (panels(f"{METRIC.capitalize()} and closed-loop return by width", "width", "share",
                        drawn, log_x=True, y_range=(-0.02, 1.05)),),
                (base.score_table(main, ("held_out", "width"), "Scores", METRIC),
                 rollout_table(main, ("held_out", "width"))),
            )
        ]  # fmt: skip
        if grid.rule:
            found.append(self._supports(grid, results))
        if len(grid.encoding) > 1:
            found.append(encodings_section(grid, results))
        found.append(novelty_section(grid, main))
        if len(self.places(grid)) > 1 or len(grid.depth) > 1:
            by = ("depth", *self.places(grid)[0], "held_out", "width")
            rest = Results([r for r in everything if r.labels["rule"] == "random"
                            and r.labels["encoding"] == "identity"])  # fmt: skip
            found.append(Section("Other sizes of the family, other depths", "", (),
                                 (base.score_table(rest, by, "Scores", METRIC),)))  # fmt: skip
        if grid.encoding_width:
            rest = Results(
                [
                    r
                    for r in everything
                    if r.labels["rule"] == "random"
                    and r.labels["held_out"] == grid.held_out[0]
                    and all(r.labels[n] == v for n, v in self.places(grid)[0].items())
                ]
            )
            found.append(Section("Encodings by size", "", (),
                                 (base.score_table(rest, ("encoding", "depth", "width"), "Scores",
                                                   METRIC),)))  # fmt: skip
        return found

    def _supports(self, grid: Any, results: Results) -> Section:
        lost = [self.lost(grid, results, rule) for rule in grid.rule]
        intervals = [mean_interval(values) if values.size else None for values in lost]
        figure = dots(
            "Lost against a random support of equal size", list(grid.rule),
            [Estimates(
                f"width {grid.large}",
                [None if i is None else i.estimate for i in intervals],
                [None if i is None or not np.isfinite(i.low) else i.low for i in intervals],
                [None if i is None or not np.isfinite(i.high) else i.high for i in intervals],
            )], value_label=f"{METRIC} lost", references=[(0.0, "no loss")],
        )  # fmt: skip
        rows = [
            [rule, round(self.share(grid, rule), 4), base.interval_text(values), values.size]
            for rule, values in zip(grid.rule, lost, strict=True)
        ]
        return Section(
            "Which combinations, at equal number",
            "On combinations that both supports hold out; a disconnected support is judged on "
            "combinations across its groups.",
            (figure,),
            (Table("Supports", ["support", "held-out", f"{METRIC} lost", "seeds"], rows),
             base.score_table(
                 Results([r for r in results.where(encoding="identity", width=grid.large)
                          if r.labels["rule"] != "random"]),
                 ("rule", "held_out"), "Scores by support", METRIC)),
        )  # fmt: skip


def main_rows(grid: Any, results: Results) -> Results:
    """Random supports told by z itself: the rows that vary in width and share alone."""
    rows = results.where(rule="random", encoding="identity")
    return Results([row for row in rows if row.labels["held_out"] in grid.held_out])


def of_main(grid: Any, measure: Callable[[Results], Evidence]) -> Callable[[Results], Evidence]:
    # Other supports and encodings exist at the largest width only: pooled, they would pass for an
    # effect of size.
    return lambda results: measure(main_rows(grid, results))


def mean_of(
    width: int, share: float, number: Callable[[Row], float]
) -> Callable[[Results], Evidence]:
    """A number of the networks at one width and share, seeds as units.

    A floor and what is seen are taken of all networks, what is unseen only of trained ones.
    """

    def measure(results: Results) -> Evidence:
        rows = base.require_labels(
            results, width=width, held_out=share, rule="random", encoding="identity"
        )
        note = ""
        if number is gap or number is earned:
            rows, note = base.trained(rows), base.left_out(rows)
        values = np.asarray([number(row) for row in rows if not row.diverged])
        return Evidence.of_values(base.require(values, "Trained networks"), note)

    return measure


def difference(
    first: dict[str, Any], second: dict[str, Any], number: Callable[[Row], float]
) -> Callable[[Results], Evidence]:
    """second - first for each seed, both trained."""

    def measure(results: Results) -> Evidence:
        if first == second:
            raise NotTested("Needs two widths and two held-out shares.")
        rows = results.where(rule="random", encoding="identity")
        compared = Results([*rows.where(**first), *rows.where(**second)])
        values = base.trained(compared).paired("seed", first, second, number)
        wanted = f"Pairs of trained networks ({base.left_out(compared) or 'none left out.'})"
        return Evidence.of_values(base.require(values, wanted), base.left_out(compared))

    return measure
