"""Which combinations should one collect next?

`recombine run collection --preset standard` begins with a few combinations, chosen well or badly
in four ways, lets several strategies collect as many more, and trains the same networks on each:
regressors, generators of pictures and transformers. All are asked the same combinations, which
nobody could collect. Expected: from a start with a hole in it, joining what is apart and showing
new pairs beats choosing at random; from a random start nothing beats random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from recombine.lab.judge import Judgement
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Study
from recombine.report.document import Section
from recombine.studies import _base as base
from recombine.studies import _collection as parts
from recombine.studies import _collection_report as report
from recombine.studies._collection import (
    COLLECT,
    KINDS,
    RANDOM,
    SAME,
    SIMPLE,
    UNCERTAINTY,
    Grid,
)

ALL = "all families"
Measure = Callable[[Results], Evidence]
Gains = Mapping[int, float]  # by seed


class Collection(Study):
    """What to collect next, from four starts, by seven strategies."""

    name = "collection"
    question = "Which combinations should one collect next?"
    source = (
        "An experiment of our own; the supports of Redhardt, Akram and Schug, Scaling can lead to "
        "compositional generalization, 2025; disagreement of networks after Seung, Opper and "
        "Sompolinsky, Query by committee, 1992"
    )
    cost = "quick: 1.8 min on two CPU cores; standard: 5 min on one H200 (estimated)"
    not_shown = (
        "What more rows of known combinations are worth where rows are scarce: here networks meet "
        "what they were shown until they know it.",
        "Costs that differ: every new combination costs the same.",
        "Collecting in several rounds: everything is chosen at once, also by uncertainty.",
        "Starts, budgets and families other than these.",
    )
    presets: ClassVar = parts.presets()

    def cells(self, grid: Grid) -> list[Cell]:
        return parts.first_cells(grid)

    def next_cells(self, grid: Grid, results: Results, number: int) -> list[Cell]:
        return parts.uncertain_cells(grid, results) if number == 1 else []

    def most_further_cells(self, grid: Grid) -> int:
        families = [name for name in grid.families if name not in grid.sketched]
        return grid.seeds * len(grid.starts) * len(families) if grid.networks else 0

    def claims(self, grid: Grid) -> list[Claim]:
        found = []
        for family in (ALL, *KINDS):
            score = f"mean unseen score over {ALL}" if family == ALL else (
                f"unseen {KINDS[family].metric} of the {family}"
            )  # fmt: skip

            def gain(
                start: str, better: str = COLLECT, worse: str = RANDOM, family: str = family
            ) -> Measure:
                return from_one(grid, family, start, better, worse)

            found += [
                Claim(f"disconnected start, {family}",
                      f"From a disconnected start, 'collect' beats random new combinations by at "
                      f"least .05 ({score})", gain("disconnected"), at_least=0.05),
                Claim(f"correlated start, {family}",
                      f"From a correlated start, 'collect' beats random new combinations by at "
                      f"least .05 ({score})", gain("correlated"), at_least=0.05),
                Claim(f"unpopular start, {family}",
                      f"From an unpopular start, 'collect' beats random new combinations ({score})",
                      gain("unpopular"), above=0.0),
                Claim(f"expected null: random start, {family}",
                      f"From a random start, 'collect' lies within .02 of random new combinations "
                      f"({score})", gain("random"), at_least=-0.02, at_most=0.02),
            ]  # fmt: skip
            where = "in the place (family and start) where it does so least" if family == ALL else (
                "mean over starts"
            )  # fmt: skip
            found += [
                Claim(f"more of the same helps less, {family}",
                      f"Random new combinations beat as many rows of combinations that are there "
                      f"already ({score}, {where})",
                      everywhere(grid, family, random_over_same),
                      above=0.0),
                Claim(f"as good as the best, {family}",
                      "'collect' is at most .02 worse than the best of random, most frequent, "
                      f"balanced and pairwise ({score}, {where})",
                      everywhere(grid, family, against_best), at_least=-0.02),
                Claim(f"uncertainty against collect, {family}",
                      "What an ensemble of networks disagrees on most is within .05 of what "
                      f"'collect' chooses, minus for worse ({score}, mean over starts)",
                      over_starts(grid, family, UNCERTAINTY, COLLECT),
                      at_least=-0.05, at_most=0.05),
            ]  # fmt: skip
        return found

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """Its question, answered by the claims over all families."""
        told = {j.claim.name.removesuffix(f", {ALL}"): j for j in judgements
                if j.claim.name.endswith(ALL)}  # fmt: skip

        def said(name: str) -> str:
            judgement = told[name]
            if judgement.interval is None:
                return judgement.verdict
            return f"{judgement.verdict} ({judgement.interval.estimate:+.3f})"

        return (
            "Choosing by 'collect' beats choosing at random by .05 from a disconnected start: "
            f"{said('disconnected start')}; from a correlated one: {said('correlated start')}; "
            "from a random start it makes no difference: "
            f"{said('expected null: random start')}. More of the same helps less than new "
            f"combinations at random: {said('more of the same helps less')}."
        )

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return report.sections(grid, results)


Place = tuple[str, str]  # a family and a start


def gains(rows: Results, place: Place, better: str, worse: str) -> Gains:
    """better - worse for each seed, of networks that learnt what they were shown."""
    family, start = place
    here = Results([row for row in rows.where(family=family, start=start) if parts.trained(row)])
    left, right = (
        {row.labels["seed"]: parts.unseen(row) for row in here.where(strategy=name)}
        for name in (worse, better)
    )
    return {seed: right[seed] - left[seed] for seed in sorted(left.keys() & right.keys())}


def random_over_same(rows: Results, place: Place) -> Gains:
    return gains(rows, place, RANDOM, SAME)


def against_best(rows: Results, place: Place) -> Gains:
    """`collect` minus the strategy whose mean is best there."""
    family, start = place
    found = {}
    for name in SIMPLE:
        here = rows.where(family=family, start=start, strategy=name)
        scores = [parts.unseen(row) for row in here if parts.trained(row)]
        if not scores:
            raise NotTested(f"Not tested at this size: {family}, from {a_start(start)}, {name}.")
        found[name] = float(np.mean(scores))
    best = max(SIMPLE, key=lambda name: found[name])
    return gains(rows, place, COLLECT, best)


def left_out(rows: Results) -> str:
    """How many networks a claim leaves out, and why, for its note."""
    behind = sum(not parts.trained(row) for row in rows if not row.diverged)
    words = [f"{behind} undertrained"] if behind else []
    words += [f"{rows.diverged} diverged"] if rows.diverged else []
    return f"Left out: {', '.join(words)}." if words else ""


def compared(grid: Grid, results: Results, family: str, start: str | None, *names: str) -> Results:
    """The rows of a claim, or a refusal that says what the preset lacks."""
    families = [name for name in grid.families if family in (ALL, name)]
    rows = Results([
        row for row in parts.of_budget(grid, results)
        if row.labels["family"] in families and row.labels["strategy"] in names
        and start in (None, row.labels["start"])
    ])  # fmt: skip
    if not rows:
        there = family == ALL or family in grid.families
        what = (start and f"from {a_start(start)}", " or ".join(names)) if there else ()
        told = ", ".join(filter(None, (family, *what)))
        raise NotTested(f"Not tested at this size: {told}.")
    return rows


def from_one(grid: Grid, family: str, start: str, better: str, worse: str) -> Measure:
    """better - worse from one start; over families, the mean of each seed."""

    def measure(results: Results) -> Evidence:
        rows = compared(grid, results, family, start, better, worse)
        found = {name: gains(rows, (name, start), better, worse) for name in rows.labels("family")}
        return evidence(found, rows, family)

    return measure


def over_starts(grid: Grid, family: str, better: str, worse: str) -> Measure:
    """better - worse, the mean over all starts that have both; over families likewise."""

    def measure(results: Results) -> Evidence:
        rows = compared(grid, results, family, None, better, worse)
        compared(grid, results, family, None, better)
        compared(grid, results, family, None, worse)
        found = {place: gains(rows, place, better, worse) for place in places(rows)}
        return evidence(found, rows, family)

    return measure


def everywhere(
    grid: Grid, family: str, gain: Callable[[Results, Place], Gains]
) -> Measure:  # fmt: skip
    """The mean over a family's starts, or over all families the place where it is least."""

    def measure(results: Results) -> Evidence:
        rows = compared(grid, results, family, None, COLLECT, SAME, *SIMPLE)
        found: dict[Place, Gains] = {}
        lacking = []
        for place in places(rows):
            try:
                found[place] = gain(rows, place)
            except NotTested as reason:
                lacking.append(str(reason))
        if not any(found.values()) and lacking:
            raise NotTested(lacking[0])
        if family != ALL:
            return evidence(found, rows, family)
        usable = {place: values for place, values in found.items() if len(values) > 1}
        if not usable:
            raise NotTested("No place has two seeds with trained networks.")
        least = min(usable, key=lambda place: float(np.mean(list(usable[place].values()))))
        told = f"Least: {least[0]}, {least[1]} start, of {len(usable)} places."
        return Evidence.of_values(list(usable[least].values()), f"{told} {left_out(rows)}".strip())

    return measure


def a_start(start: str) -> str:
    return f"{'an' if start[0] in 'aeiou' else 'a'} {start} start"


def places(rows: Results) -> list[Place]:
    return sorted({(row.labels["family"], row.labels["start"]) for row in rows})


def evidence(found: Mapping[Any, Gains], rows: Results, family: str) -> Evidence:
    """For each seed the mean over what is compared; what too few seeds have is left out and told.

    Over all families, each counts alike, however many starts it has.
    """
    present = {what: values for what, values in found.items() if len(values) > 1}
    by_family: dict[str, list[Gains]] = {}
    for what, values in present.items():
        by_family.setdefault(what if isinstance(what, str) else what[0], []).append(values)
    if family == ALL and len(by_family) < 2:
        one = ", ".join(by_family) or "none"
        raise NotTested(f"Needs two families with trained networks; at this size: {one}.")
    shared = set.intersection(*(set(v) for v in present.values())) if present else set()
    values = [
        float(np.mean([np.mean([v[seed] for v in group]) for group in by_family.values()]))
        for seed in sorted(shared)
    ]
    words = [f"Over {', '.join(by_family)}."] if family == ALL else []
    words += [left_out(rows)]
    if len(present) < len(found) > 1:
        missing = len(found) - len(present)
        words.append(f"{missing} of {len(found)} places have too few trained networks.")
    note = " ".join(word for word in words if word)
    wanted = f"Seeds with trained networks. {note}".strip()
    return Evidence.of_values(base.require(np.asarray(values), wanted), note)
