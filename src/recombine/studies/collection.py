"""Which combinations should one collect next?

`recombine run collection --preset standard` begins with a few combinations, chosen well or badly
in four ways, lets several strategies collect as many more, and trains the same networks on each:
regressors, generators of pictures and transformers. All are asked the same combinations, which
nobody could collect. Expected: from a start with a hole in it, joining what is apart and showing
new pairs beats choosing at random; from a random start nothing beats random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from recombine.lab.judge import Judgement
from recombine.lab.study import Cell, Claim, Results, Study
from recombine.report.document import Section
from recombine.studies import _collection as parts
from recombine.studies import _collection_report as report
from recombine.studies._collection import KINDS, Grid
from recombine.studies._collection_evidence import (
    ALL,
    averaged,
    beats_random,
    beats_same,
    near_best,
    unsure_against_collect,
    worst,
)


class Collection(Study):
    """What to collect next, from four starts, by seven strategies."""

    name = "collection"
    question = "Which combinations should one collect next?"
    source = (
        "An experiment of our own; the supports of Redhardt, Akram and Schug, Scaling can lead to "
        "compositional generalization, 2025; disagreement of networks after Seung, Opper and "
        "Sompolinsky, Query by committee, 1992"
    )
    cost = (
        "quick: 1.9 min on two CPU cores; standard: 13 min on one H200 in two sittings, beside "
        "other studies"
    )
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
            over = family == ALL
            score = "unseen score" if over else f"unseen {KINDS[family].metric} of the {family}"
            mean = f"mean {score} over {ALL}, of which each must gain" if over else score
            null = f"{score}, in the family where it is farthest from 0" if over else score
            place = f"{score}, in the place (family and start)"
            where = f"{place} where it does so least" if over else f"{score}, mean over starts"
            far = f"{place if over else f'{score}, from the start'} where it is farthest from 0"
            everywhere = worst if over else averaged
            found += [
                Claim(f"disconnected start, {family}",
                      f"From a disconnected start, 'collect' beats random new combinations by at "
                      f"least .05 ({mean})",
                      averaged(grid, family, "disconnected", beats_random(0.05)), at_least=0.05),
                Claim(f"correlated start, {family}",
                      f"From a correlated start, 'collect' beats random new combinations by at "
                      f"least .05 ({mean})",
                      averaged(grid, family, "correlated", beats_random(0.05)), at_least=0.05),
                Claim(f"unpopular start, {family}",
                      f"From an unpopular start, 'collect' beats random new combinations ({mean})",
                      averaged(grid, family, "unpopular", beats_random(0.0)), above=0.0),
                Claim(f"expected null: random start, {family}",
                      f"From a random start, 'collect' lies within .02 of random new combinations "
                      f"({null})",
                      worst(grid, family, "random", beats_random(-0.02, 0.02), every=False),
                      at_least=-0.02, at_most=0.02),
                Claim(f"more of the same helps less, {family}",
                      f"Random new combinations beat as many rows of combinations that are there "
                      f"already ({where})", everywhere(grid, family, None, beats_same()),
                      above=0.0),
                Claim(f"as good as the best, {family}",
                      "'collect' is at most .02 worse than the best of random, most frequent, "
                      f"balanced and pairwise ({where})",
                      everywhere(grid, family, None, near_best(-0.02)), at_least=-0.02),
                Claim(f"uncertainty against collect, {family}",
                      "What an ensemble of networks disagrees on most is within .05 of what "
                      f"'collect' chooses, minus for worse ({far})",
                      worst(grid, family, None, unsure_against_collect(-0.05, 0.05)),
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
