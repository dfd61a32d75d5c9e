"""What speaks for the claims of study `collection`, and where nothing can speak."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from recombine.lab.statistics import Interval, holm_levels, mean_interval, p_value_against
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base
from recombine.studies import _collection as parts
from recombine.studies._collection import COLLECT, NOTHING, RANDOM, SAME, SIMPLE, UNCERTAINTY, Grid

ALL = "all families"
SMALLEST = 0.02  # the margin of claims whose bound is 0

Measure = Callable[[Results], Evidence]
Gains = Mapping[int, float]  # by seed
Place = tuple[str, str]  # a family and a start


@dataclass(frozen=True)
class Comparison:
    """Which strategies are compared, and the bounds between which the difference should lie.

    A place counts only if the difference could show there: `base` must leave twice the margin to
    a perfect score, and some strategy's networks twice the margin to 0 and to an untrained one.
    """

    gain: Callable[[Results], Gains]
    names: tuple[str, ...]
    base: str
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> list[float]:
        return [bound for bound in (self.low, self.high) if bound is not None]

    @property
    def margin(self) -> float:
        return max(SMALLEST, *(abs(bound) for bound in self.bounds))

    def why_not(self, here: Results) -> str | None:
        """Why a place cannot tell, given its trained networks; None where it can."""
        scores = [parts.unseen(row) for row in here.where(strategy=self.base)]
        if not scores:
            return f"no trained network of '{self.base}'"
        if float(np.mean(scores)) > 1 - 2 * self.margin:
            return f"no room: '{self.base}' already has {np.mean(scores):.3f}"
        gained = [
            # An R² of 0 is what knowing nothing gets; random weights get less.
            float(np.mean([parts.unseen(row) - max(0.0, parts.untrained(row)) for row in rows]))
            for name in {NOTHING, self.base, *self.names}
            if (rows := here.where(strategy=name))
        ]
        if max(gained) < 2 * self.margin:
            return f"nothing learnt: at most {max(gained):+.3f} on 0 and the untrained twin"
        return None


def beats_random(low: float | None, high: float | None = None) -> Comparison:
    """`collect` against random new combinations."""
    return Comparison(lambda here: gains(here, COLLECT, RANDOM), (COLLECT, RANDOM), RANDOM, low,
                      high)  # fmt: skip


def beats_same() -> Comparison:
    """Random new combinations against more rows of the old ones, which must leave room."""
    return Comparison(lambda here: gains(here, RANDOM, SAME), (RANDOM, SAME), SAME, 0.0)


def near_best(low: float) -> Comparison:
    return Comparison(against_best, (COLLECT, *SIMPLE), RANDOM, low)


def unsure_against_collect(low: float, high: float) -> Comparison:
    return Comparison(unsure, (NOTHING, UNCERTAINTY, COLLECT), RANDOM, low, high)


def by_seed(here: Results, strategy: str) -> dict[int, float]:
    return {row.labels["seed"]: parts.unseen(row) for row in here.where(strategy=strategy)}


def gains(here: Results, better: str, worse: str) -> Gains:
    """better - worse for each seed that has both."""
    left, right = by_seed(here, worse), by_seed(here, better)
    return {seed: right[seed] - left[seed] for seed in sorted(left.keys() & right.keys())}


def against_best(here: Results) -> Gains:
    """`collect` minus the best simple strategy, chosen for each seed by the other seeds.

    Chosen by the scores it is compared on, the best of four equals would look better than it is.
    """
    scores = {name: by_seed(here, name) for name in (COLLECT, *SIMPLE)}
    seeds = sorted(set.intersection(*(set(one) for one in scores.values())))
    if len(seeds) < 2:
        return {}
    found = {}
    for seed in seeds:
        means = {
            name: np.mean([scores[name][other] for other in seeds if other != seed])
            for name in SIMPLE
        }
        best = max(SIMPLE, key=lambda name: means[name])
        found[seed] = scores[COLLECT][seed] - scores[best][seed]
    return found


def unsure(here: Results) -> Gains:
    """`uncertainty` minus `collect`, where the networks that were asked knew their start."""
    asked = by_seed(here, NOTHING)
    found = gains(here, UNCERTAINTY, COLLECT)
    return {seed: value for seed, value in found.items() if seed in asked}


@dataclass(frozen=True, eq=False)
class Found:
    """The differences in each place that can tell, and why other places cannot."""

    gains: dict[Place, Gains]
    missing: dict[Place, str]
    rows: Results

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(family for family, _ in self.gains))

    def note(self, *words: str) -> str:
        without = [f"{called(place)} ({why})" for place, why in self.missing.items()]
        told = [*words, f"Without: {'; '.join(without)}." if without else "", left_out(self.rows)]
        return " ".join(word for word in told if word)

    def require(self, family: str) -> None:
        """Refuses what nothing, or over all families fewer than two of them, can tell."""
        if family == ALL and len(self.families) < 2:
            one = ", ".join(self.families) or "none"
            raise NotTested(self.note(f"Needs two families that can tell; at this size: {one}."))
        if not self.gains:
            raise NotTested(self.note())


def look(
    grid: Grid, results: Results, family: str, start: str | None, comparison: Comparison
) -> Found:
    """What every place of the grid says, or a refusal that says what the preset lacks."""
    rows = parts.of_budget(grid, results)
    places = [
        (name, begun)
        for name in grid.families if family in (ALL, name)
        for begun in parts.starts(grid, name) if start in (None, begun)
    ]  # fmt: skip
    if not places:
        there = family == ALL or family in grid.families
        told = f"{family}, from {a_start(start)}" if there and start else family
        raise NotTested(f"Not tested at this size: {told}.")
    found: dict[Place, Gains] = {}
    missing: dict[Place, str] = {}
    used: list[Row] = []
    for place in places:
        every = rows.where(family=place[0], start=place[1])
        lacking = [name for name in comparison.names if not every.where(strategy=name)]
        used += [row for row in every if row.labels["strategy"] in comparison.names]
        if lacking:
            missing[place] = f"no networks at this size: {', '.join(lacking)}"
            continue
        here = Results([row for row in every if parts.trained(row)])
        values = comparison.gain(here)
        why = "too few trained networks" if len(values) < 2 else comparison.why_not(here)
        if why is None:
            found[place] = values
        else:
            missing[place] = why
    return Found(found, missing, Results(used))


def averaged(grid: Grid, family: str, start: str | None, comparison: Comparison) -> Measure:
    """For each seed the mean over what can tell: of the families, or of a family's starts.

    Families have different scores, of which one could carry the mean: nothing is supported as
    long as one of them lies on the other side of zero.
    """

    def measure(results: Results) -> Evidence:
        found = look(grid, results, family, start, comparison)
        found.require(family)
        seeds = sorted(set.intersection(*(set(v) for v in found.gains.values())))
        values = [float(np.mean([v[seed] for v in found.gains.values()])) for seed in seeds]
        means = {place: mean(v) for place, v in found.gains.items()}
        told = each(means, 0 if family == ALL else 1) if len(means) > 1 or family == ALL else ""
        note = found.note(told)
        base.require(np.asarray(values), f"Seeds with trained networks. {note}".strip())
        shown = Evidence.of_values(values, note)
        if family != ALL or min(means.values()) > 0:
            return shown
        against = ", ".join(place[0] for place, value in means.items() if value <= 0)
        note = found.note(told, f"No gain in {against}: the mean supports nothing.")
        return Evidence.of_interval(
            lambda level: unsupported(shown.interval(level), comparison), note
        )

    return measure


def worst(
    grid: Grid, family: str, start: str | None, comparison: Comparison, *, every: bool = True
) -> Measure:
    """The place that speaks most against the claim, at Holm's levels for all of them.

    With `every`, a place that cannot tell leaves open whether the claim holds there: the rest may
    refute it, not support it.
    """

    def measure(results: Results) -> Evidence:
        found = look(grid, results, family, start, comparison)
        found.require(family)
        numbers = {place: list(values.values()) for place, values in found.gains.items()}
        against = [
            max(p_value_against(values, bound) for bound in comparison.bounds)
            for values in numbers.values()
        ]

        def chosen(level: float) -> tuple[Place, Interval]:
            levels = holm_levels(against, 1 - level)
            ends = [
                (place, mean_interval(values, level=one))
                for (place, values), one in zip(numbers.items(), levels, strict=True)
            ]
            return max(ends, key=lambda end: _against(end[1], comparison))

        def interval(level: float) -> Interval:
            shown = chosen(level)[1]
            return unsupported(shown, comparison) if every and found.missing else shown

        how = "Least" if comparison.high is None else "Farthest"
        told = f"{how}: {called(chosen(0.95)[0])}, of {len(numbers)} places."
        told = told if len(numbers) > 1 else ""
        return Evidence.of_interval(interval, found.note(told))

    return measure


def _against(interval: Interval, comparison: Comparison) -> tuple[bool, float]:
    """What speaks most against a claim: an interval outside its bounds, then one far across."""
    low = -math.inf if comparison.low is None else comparison.low
    high = math.inf if comparison.high is None else comparison.high
    outside = max(low - interval.high, interval.low - high)
    return (True, outside) if outside > 0 else (
        False, max(low - interval.low, interval.high - high)
    )  # fmt: skip


def unsupported(interval: Interval, comparison: Comparison) -> Interval:
    """An interval that may still refute; its lower end is open, so that it supports nothing."""
    if _against(interval, comparison)[0]:
        return interval
    return dataclasses.replace(interval, low=-math.inf)


def mean(values: Gains) -> float:
    return float(np.mean(list(values.values())))


def each(means: Mapping[Place, float], part: int) -> str:
    """The mean of each family (0) or start (1)."""
    return f"{', '.join(f'{place[part]} {value:+.3f}' for place, value in means.items())}."


def left_out(rows: Results) -> str:
    """How many networks a claim leaves out, and why, for its note."""
    behind = sum(not parts.trained(row) for row in rows if not row.diverged)
    words = [f"{behind} undertrained"] if behind else []
    words += [f"{rows.diverged} diverged"] if rows.diverged else []
    return f"Left out: {', '.join(words)}." if words else ""


def called(place: Place) -> str:
    return f"{place[0]}, {place[1]} start"


def a_start(start: str) -> str:
    return f"{'an' if start[0] in 'aeiou' else 'a'} {start} start"
