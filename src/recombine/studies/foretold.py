"""Do coverage, connection and novelty of a dataset foretell where a model will fail?

`recombine run foretold --preset standard` trains two sizes of network on datasets of four families
(teachers that add weights, teachers that add answers, goals in mazes, pictures), drawn by seven
support rules and shares. What is known of a dataset before training is then held against what its
networks do: dataset by dataset, and combination by combination. Expected from teachers that combine
K of M modules: groups never linked cannot be composed. That a value never seen fails is a control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from recombine.lab.judge import Judgement
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.report.document import Section
from recombine.studies import _base as base
from recombine.studies import _foretold as parts
from recombine.studies import _foretold_prediction as prediction
from recombine.studies._foretold_datasets import FAMILIES, cells
from recombine.studies._foretold_report import sections

RULES = ("random", "correlated", "unpopular", "disconnected", "non-compositional")
NECESSARY, ENOUGH = "what is never linked fails", "all pairs shown is nearly enough"
RANKS, WITHIN = "novelty ranks what fails", "novelty ranks what is equally rare"
CONTROL = "size and rarity alone do not rank"
TRANSFERS, BEYOND = "foretold in a family never seen", "more than rarity says"
KINDS = "kinds of dataset"  # a family, a rule and a share: seeds of one kind agree


@dataclass(frozen=True)
class Grid(Seeded):
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
        return list(cells(grid.size, grid.families, grid.rules, grid.drawn(grid.seeds)))

    def claims(self, grid: Grid) -> list[Claim]:
        return [
            Claim(NECESSARY,
                  "Of the datasets that show every value, but never link two groups of values, at "
                  "most .3 have a network that reaches .9 of its seen score on combinations across "
                  "these groups", necessary, unit="datasets", at_most=0.3),
            Claim(ENOUGH,
                  "Of the networks on datasets that cover and connect all values and show every "
                  "pair, at least .8 reach .9 of their seen score on unseen combinations",
                  nearly_enough, unit="datasets", at_least=0.8),
            Claim(RANKS,
                  "Among the unseen combinations of one network, the novelty level ranks those "
                  "that fail (below .9 of the seen score) above those that do not: AUROC at least "
                  ".7, mean over networks", ranked(parts.ranking("level")), unit=KINDS,
                  at_least=0.7),
            Claim(WITHIN,
                  "It does so among combinations of one size whose rarest module was seen equally "
                  "often, where these are not equally new: AUROC at least .6, mean over networks",
                  among_equally_rare, unit=KINDS, at_least=0.6),
            Claim(TRANSFERS,
                  "In every one of four families, on datasets that show every value, a prediction "
                  "from novelty that was fitted to such datasets of the other three has a lower "
                  "log loss than their overall rate of failure (the family where it does worst, at "
                  "Holm's levels)", in_every_family, unit=KINDS, below=0.0),
            Claim(BEYOND,
                  "Over four families, on the same datasets, that prediction has a lower log loss "
                  "than one from the usage of the rarest module alone, fitted in the same way",
                  beyond_rarity, unit=KINDS, below=0.0),
            Claim(CONTROL,
                  "After levels changed places among combinations of one size and equal rarest "
                  "usage, they do not rank what fails: AUROC at most .55, mean over networks",
                  ranked(parts.shuffled_alike), unit=KINDS, at_most=0.55),
        ]  # fmt: skip

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """Its questions, each by the claim that answers it."""
        told = {j.claim.name: j.verdict for j in judgements}
        return (
            f"What training never linked fails: {told[NECESSARY]}; where every pair was shown the "
            f"rest follows: {told[ENOUGH]}. Novelty ranks the combinations that fail: "
            f"{told[RANKS]}; also those of one size that are equally rare: {told[WITHIN]} (that "
            f"size and rarity alone do not: {told[CONTROL]}); foretells them in families it was "
            f"not fitted to: {told[TRANSFERS]}; better than rarity alone: {told[BEYOND]}."
        )

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return sections(results)


def necessary(results: Results) -> Evidence:
    """A dataset counts as soon as one of its networks reaches."""
    rows = Results([row for row in parts.covered(results) if not parts.whole(row)])
    found = parts.by_dataset(parts.trained(rows), parts.reaches, max)
    wanted = "Datasets that show every value and never link groups of them, with trained networks"
    base.require(np.asarray(list(found.values())), wanted)
    told = ", ".join(sorted({f"{d[0]} {d[1]}" for d, value in found.items() if value}))
    never = Results([row for row in results if not row.labels["covered"]])
    control = parts.by_dataset(parts.trained(never), parts.reaches, max)
    note = [
        f"Reached by: {told}." if told else "",
        f"Control, a value never seen: reached by {sum(control.values()):.0f} of {len(control)} "
        "datasets.",
        parts.left_out(Results([*rows, *never])),
    ]
    interval = parts.share_interval(list(found.values()))
    return Evidence.of_interval(interval, " ".join(word for word in note if word))


def nearly_enough(results: Results) -> Evidence:
    rows = Results([r for r in results if parts.whole(r) and r.labels["pair_coverage"] == 1])
    found = parts.by_dataset(parts.trained(rows), lambda row: float(parts.kept(row) >= parts.KEPT))
    values = base.require(np.asarray(list(found.values())),
                          "Datasets that show every pair, with trained networks")  # fmt: skip
    missed = ", ".join(sorted({f"{d[0]} {d[1]} {d[2]:.2g}" for d, v in found.items() if v < 1}))
    note = f"Missed on: {missed}. {parts.left_out(rows)}" if missed else parts.left_out(rows)
    return Evidence.of_interval(parts.share_interval(values), note.strip())


def ranked(number: Callable[[Row], float]) -> Callable[[Results], Evidence]:
    """Mean over the networks of a kind of dataset, where some combinations fail and some do not."""

    def measure(results: Results) -> Evidence:
        rows = parts.trained(results)
        numbers = {id(row): number(row) for row in rows}
        able = sum(np.isfinite(value) for value in numbers.values())
        found = parts.by_kind(rows, lambda row: numbers[id(row)])
        families = {f: [v for k, v in found.items() if k[0] == f] for f, _, _ in found}
        told = ", ".join(f"{family} {np.mean(v):.2f}" for family, v in families.items())
        note = (
            f"{able} of {len(rows)} trained networks have enough unseen combinations that "
            f"fail and that do not, and novelty that differs. {parts.left_out(results)}"
        )
        values = base.require(np.asarray(list(found.values())), f"Kinds of dataset. {note}")
        return Evidence.of_values(values, f"By family: {told}. {note}".strip())

    return measure


def among_equally_rare(results: Results) -> Evidence:
    """The ranking where size and rarity cannot help; its note has it with the equally new, too."""
    found = ranked(parts.within_alike)(results)
    tied = parts.by_kind(parts.trained(results), lambda row: parts.within_alike(row, ties=True))
    note = (
        f"{found.note} If the equally new count as ties: {np.mean(list(tied.values())):.2f} over "
        f"{len(tied)} kinds."
    )
    return replace(found, note=note)


def _foretold(results: Results) -> dict[str, list[prediction.Foretold]]:
    found = prediction.foretold(parts.covered(results))
    few = [f for f in FAMILIES if len(prediction.gains(found.get(f, []), prediction.OVERALL)) < 2]
    if few:
        raise NotTested(
            "Not tested at this size: needs trained networks on two kinds of dataset or more that "
            f"show every value, of each of four families; missing: {', '.join(few)}."
        )
    return found


def in_every_family(results: Results) -> Evidence:
    values, note = _gains(results, prediction.OVERALL)
    return Evidence.of_interval(parts.worst(values), note)


def beyond_rarity(results: Results) -> Evidence:
    values, note = _gains(results, prediction.USAGE)
    return Evidence.of_values(np.concatenate(list(values.values())), note)


def _gains(results: Results, over: str) -> tuple[dict[str, np.ndarray], str]:
    """What is gained in each family, and a note that says so."""
    values = {f: prediction.gains(t, over) for f, t in _foretold(results).items()}
    told = ", ".join(f"{family} {found.mean():+.3f}" for family, found in values.items())
    note = f"Difference in log loss: {told}. {parts.left_out(parts.covered(results))}"
    return values, note.strip()
