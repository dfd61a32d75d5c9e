"""Do coverage, connection and novelty of a dataset foretell where a model will fail?

`recombine run foretold --preset standard` trains two sizes of network on datasets of four families
(teachers that add weights, teachers that add answers, goals in mazes, pictures), drawn by seven
support rules and shares. What is known of a dataset before training is then held against what its
networks do: dataset by dataset, and combination by combination. Expected from teachers that combine
K of M modules: a value never seen, or groups never linked, cannot be composed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.lab.judge import Judgement
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Study
from recombine.report.document import Section
from recombine.studies import _base as base
from recombine.studies import _foretold as parts
from recombine.studies._foretold_datasets import FAMILIES, cells
from recombine.studies._foretold_report import sections

RULES = ("random", "correlated", "unpopular", "disconnected", "non-compositional")
NECESSARY, ENOUGH = "what is never linked fails", "all pairs shown is nearly enough"
RANKS, CONTROL = "novelty ranks what fails", "control: shuffled novelty says nothing"
TRANSFERS, BEYOND = "foretold in a family never seen", "more than rarity says"


@dataclass(frozen=True)
class Grid:
    """Families at one size, by support rules and seeds; each dataset has a narrow and a wide
    network."""

    size: str = "quick"
    families: tuple[str, ...] = ("hyperteacher", "additive", "goals")
    rules: tuple[str, ...] = RULES
    seeds: int = 2


class ForetoldStudy(Study):
    """What a dataset says of its networks' failures before they are trained."""

    name = "foretold"
    question = "Do coverage, connection and novelty of a dataset foretell where a model will fail?"
    source = (
        "Necessary conditions from Schug et al., Discovering modular solutions that generalize "
        "compositionally, 2024; novelty of a combination as defined in docs/architecture.md"
    )
    cost = "quick: 2 min on two CPU cores; standard: 5 min on one H200 (estimated)"
    not_shown = (
        "Datasets people collect: factors here are exact, and what is held out is held out by "
        "rule.",
        "Pretrained models: every network starts from random weights and knows its dataset alone.",
        "Causes: novelty and failure are compared, over rules that change several things at once.",
    )
    presets: ClassVar = {
        "smoke": Grid("smoke", ("hyperteacher", "additive"), ("random", "disconnected"), 1),
        "quick": Grid(),
        "standard": Grid("standard", FAMILIES, RULES, 3),
        "paper": Grid(
            "paper", FAMILIES, (*RULES, "popular", "held-out-pairs", "balanced"), 5
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        return list(cells(grid.size, grid.families, grid.rules, grid.seeds))

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            Claim(NECESSARY,
                  "Of the datasets with a value never seen, or with groups of values never linked, "
                  "at most .15 have a network that reaches .9 of its seen score on combinations "
                  "with such a value, or across such groups", necessary, unit="datasets",
                  at_most=0.15),
            Claim(ENOUGH,
                  "Of the networks on datasets that cover and connect all values and show every "
                  "pair, at least .8 reach .9 of their seen score on unseen combinations",
                  nearly_enough, unit="datasets", at_least=0.8),
            Claim(RANKS,
                  "Among the unseen combinations of one network, the novelty level ranks those "
                  "that fail (below .9 of the seen score) above those that do not: AUROC at least "
                  ".7, mean over networks", ranked(parts.ranking("level")), unit="datasets",
                  at_least=0.7),
            Claim(TRANSFERS,
                  "In every one of four families, a prediction from novelty that was fitted to the "
                  "other three has a lower log loss than their overall rate of failure (the family "
                  "where it does worst, at Holm's levels)", in_every_family, unit="datasets",
                  below=0.0),
            Claim(BEYOND,
                  "Over four families, that prediction has a lower log loss than one from the "
                  "usage of the rarest module alone, fitted in the same way", beyond_rarity,
                  unit="datasets", below=0.0),
            Claim(CONTROL,
                  "After the combinations of each network were shuffled, the AUROC of the novelty "
                  "level lies between .45 and .55", ranked(parts.shuffled), unit="datasets",
                  at_least=0.45, at_most=0.55),
        ]  # fmt: skip

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """Its questions, each by the claim that answers it."""
        told = {j.claim.name: j.verdict for j in judgements}
        return (
            f"What training never linked or never showed fails: {told[NECESSARY]}; where every "
            f"pair was shown the rest follows: {told[ENOUGH]}. Novelty ranks the combinations that "
            f"fail: {told[RANKS]}; foretells them in families it was not fitted to: "
            f"{told[TRANSFERS]}; better than rarity alone: {told[BEYOND]}."
        )

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return sections(results)


def necessary(results: Results) -> Evidence:
    """A dataset counts as soon as one of its networks reaches."""
    rows = Results([row for row in results if not parts.whole(row)])

    def reaches(row: Row) -> float:
        score = parts.unlinked_score(row)
        return float("nan") if np.isnan(score) else float(score >= parts.KEPT * parts.seen(row))

    found = parts.by_dataset(parts.trained(rows), reaches, max)
    wanted = "Datasets that are not connected, with trained networks"
    base.require(np.asarray(list(found.values())), wanted)
    told = ", ".join(sorted({f"{d[0]} {d[1]}" for d, value in found.items() if value}))
    note = f"Reached by: {told}. {parts.left_out(rows)}" if told else parts.left_out(rows)
    return Evidence.of_interval(parts.share_interval(list(found.values())), note.strip())


def nearly_enough(results: Results) -> Evidence:
    rows = Results([r for r in results if parts.whole(r) and r.labels["pair_coverage"] == 1])
    found = parts.by_dataset(parts.trained(rows), lambda row: float(parts.kept(row) >= parts.KEPT))
    values = base.require(np.asarray(list(found.values())),
                          "Datasets that show every pair, with trained networks")  # fmt: skip
    missed = ", ".join(sorted({f"{d[0]} {d[1]} {d[2]:.2g}" for d, v in found.items() if v < 1}))
    note = f"Missed on: {missed}. {parts.left_out(rows)}" if missed else parts.left_out(rows)
    return Evidence.of_interval(parts.share_interval(values), note.strip())


def ranked(number: Callable[[Row], float]) -> Callable[[Results], Evidence]:
    """Mean over the networks of a dataset, where some combinations fail and some do not."""

    def measure(results: Results) -> Evidence:
        rows = parts.trained(results)
        able = [row for row in rows if parts.unseen_of(row).ranked]
        found = parts.by_dataset(able, number)
        note = (
            f"{len(able)} of {len(rows)} trained networks have {parts.FEWEST} unseen combinations "
            f"that fail, as many that do not, and novelty that differs. {parts.left_out(results)}"
        )
        values = base.require(np.asarray(list(found.values())), f"Datasets. {note}")
        return Evidence.of_values(values, note.strip())

    return measure


def _foretold(results: Results) -> dict[str, list[parts.Foretold]]:
    found = parts.foretold(results)
    few = [f for f in FAMILIES if len(parts.gains(found.get(f, []), parts.OVERALL)) < 2]
    if few:
        raise NotTested(
            "Not tested at this size: needs trained networks on two datasets or more of each of "
            f"four families; missing: {', '.join(few)}."
        )
    return found


def in_every_family(results: Results) -> Evidence:
    values = {f: parts.gains(t, parts.OVERALL) for f, t in _foretold(results).items()}
    told = ", ".join(f"{family} {found.mean():+.3f}" for family, found in values.items())
    note = f"Difference in log loss: {told}. {parts.left_out(results)}"
    return Evidence.of_interval(parts.worst(values), note.strip())


def beyond_rarity(results: Results) -> Evidence:
    values = {f: parts.gains(t, parts.USAGE) for f, t in _foretold(results).items()}
    told = ", ".join(f"{family} {found.mean():+.3f}" for family, found in values.items())
    note = f"Difference in log loss: {told}. {parts.left_out(results)}"
    return Evidence.of_values(np.concatenate(list(values.values())), note.strip())
