"""Does each part of a task get a subnetwork of its own, and does that grow with scale?

`recombine run subnetworks --preset standard` trains networks on tasks made of two rules (fields,
pictures, sentences) and students on teachers made of modules, then learns, over the frozen weights
of each, a mask for every part, and asks what is lost when exactly those weights are taken out. As
published: ablating a part's mask in a trained network hurts that part more than the other, and
pretraining makes this more consistent; in a network that was never trained it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from recombine.checks import at_least
from recombine.errors import InvalidRequest, unknown
from recombine.families.odd_one_out import FieldsOdd, OddFamily, PicturesOdd, SentencesOdd
from recombine.instruments.subnetworks import Subnetworks
from recombine.lab.judge import Judgement, sentence
from recombine.lab.study import Cell, Claim, Results, Seeded, Study
from recombine.learners._learner import Learner
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.continued import Continued
from recombine.learners.masks import Masking, MaskLearner
from recombine.learners.odd_one_out import OddOneOut
from recombine.learners.planted import PlantedOdd
from recombine.learners.pretraining import Pretraining
from recombine.learners.rotated import RotatedOdd
from recombine.learners.supervised import Supervised
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _subnetworks as parts
from recombine.studies import _subnetworks_report as report
from recombine.studies._item_models import model_for
from recombine.studies._subnetworks import MODULES, PLANTED

FAMILIES: dict[str, OddFamily] = {
    "fields": FieldsOdd(),
    "inside-contact": PicturesOdd("inside-contact"),
    "inside-count": PicturesOdd("inside-count"),
    "count-contact": PicturesOdd("count-contact"),
    "verb-singular": SentencesOdd("subject-verb", "singular"),
    "verb-plural": SentencesOdd("subject-verb", "plural"),
    "pronoun-singular": SentencesOdd("anaphora", "singular"),
    "pronoun-plural": SentencesOdd("anaphora", "plural"),
}


USUAL = ("planted", "mixed", "rotated", "untrained", "decayed")
CONTROLS = (*USUAL, "decayed-rotated")
HIDDEN = "control: mixed weights hide them"
APART = 10_000  # seeds of one task and those of the next
OTHER_TEACHER = 500_000  # seeds of those that students are pretrained on


@dataclass(frozen=True)
class Grid(Seeded):
    """Tasks by conditions by seeds, with masks for each part; students by width."""

    tasks: tuple[str, ...] = ("fields",)
    field_width: int = 256
    picture_width: int = 16
    word_width: int = 32
    depth: int = 2  # of the transformer
    steps: int = 1_200
    batch: int = 64
    rate: float = 2e-3
    pretraining: int = 0  # steps of the full dose
    dose: tuple[float, ...] = ()  # 0 is from scratch
    controls: tuple[str, ...] = ("planted", "untrained")
    mask_steps: int = 1_000
    penalty: float = 0.3  # on the share of weights in a mask
    width: tuple[int, ...] = ()  # of students
    modules: int = 8
    active: int = 3
    masked_modules: int = 2
    training: str = "quick"
    seeds: int = 5
    mask_seeds: int = 1
    batches: int = 8


class SubnetworksStudy(Study):
    """Masks for the parts of a task."""

    name = "subnetworks"
    question = (
        "Does each part of a task live in weights of its own, and do pretraining and scale make it "
        "so?"
    )
    source = "Lepori, Serre and Pavlick, Break It Down, 2023"
    cost = "quick: 1.5 min on two CPU cores; standard: 5 min on one H200 (estimated)"
    not_shown = (
        "The published networks: these are small, and pictures and sentences are made by rule.",
        "Whether rules share weights, where both a mask and as many weights at random ruin the "
        "other rule: then too many weights were taken out, and the claims say they were not "
        "tested.",
        "Weights of a rule's own in pictures and sentences: networks in rotated weights, which "
        "show how selective masks are where no weight belongs to a rule, are there for fields "
        "alone. Masks over them keep more weights, and where these ruin everything the two cannot "
        "be compared.",
        "Units instead of weights: masks lie over single weights, so what a rotation of the basis "
        "would show is not seen.",
        "Parts that masks cannot find with this one setting. Planted parts were found in networks "
        "whose idle weights decay; without decay, weights that a half does not need disturb the "
        "other half when its own are taken out, and the same masks find less. Networks from "
        "scratch are trained without decay, as published, and also with it (`decayed`).",
        "Controls beyond fields: planted, mixed, rotated and decayed networks are there for "
        "fields alone; pictures and sentences have the untrained one and ablations of as many "
        "weights.",
        "Other ways to learn a mask: hard-concrete masks and those by magnitude can be learnt "
        "(`Masking(method=...)`), and no claim rests on them.",
    )
    presets: ClassVar = {
        "smoke": Grid(field_width=16, steps=20, batch=16, mask_steps=20, modules=6, active=2,
                      masked_modules=1, training="smoke", seeds=2, batches=1),
        "quick": Grid(),
        "standard": Grid(
            tasks=tuple(FAMILIES),
            picture_width=16, word_width=64, steps=4_000, batch=64, rate=1e-3,
            pretraining=4_000, dose=(1 / 16, 1 / 4, 1.0),
            controls=USUAL, mask_steps=1_000,
            width=(64, 128, 256), masked_modules=4, training="standard",
        ),
        "paper": Grid(
            tasks=tuple(FAMILIES), field_width=1_024, picture_width=64, word_width=512, depth=4,
            steps=20_000, batch=256, rate=1e-4, pretraining=50_000, dose=(1 / 16, 1 / 4, 1.0),
            controls=CONTROLS, mask_steps=1_000,
            width=(256, 512, 1_024), modules=16, masked_modules=16, training="paper", seeds=10,
            mask_seeds=3,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        check(grid)
        found = []
        for task in grid.tasks:
            for condition in conditions(grid, task):
                for seed in grid.drawn(grid.seeds):
                    network = odd_network(grid, task, condition, seed)
                    labels = {"kind": FAMILIES[task].name, "task": task, "condition": condition,
                              "width": 0, "seed": seed}  # fmt: skip
                    found += masks(grid, network, labels, 2)
        for width in grid.width:
            for condition in ("scratch", *dosed_conditions(grid), "untrained"):
                for seed in grid.drawn(grid.seeds):
                    network = student(grid, width, condition, seed)
                    labels = {"kind": MODULES, "task": MODULES, "condition": condition,
                              "width": width, "seed": seed}  # fmt: skip
                    found += masks(grid, network, labels, grid.masked_modules)
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        found = []
        if PLANTED in grid.controls:
            found.append(Claim(
                "control: planted parts are found",
                "In a network of two halves that learnt one rule each, ablation is at most -.5, "
                "also for the worse of its two rules", parts.over_rules(PLANTED, "fields", max),
                at_most=-0.5,
            ))  # fmt: skip
        if "mixed" in grid.controls:
            found.append(Claim(
                HIDDEN,
                "With the same function written in rotated weights, of which none belongs to a "
                "half, ablation stays above -.14, from where on it counts as selective",
                parts.mean("mixed", "fields", parts.ablation), above=-0.14,
            ))  # fmt: skip
            if PLANTED in grid.controls:
                found.append(Claim(
                    "control: mixed weights show less",
                    "With the same function written in rotated weights, ablation is nearer zero",
                    parts.difference("fields", "mixed", PLANTED, parts.ablation), above=0.0,
                ))  # fmt: skip
        for kind in dict.fromkeys(FAMILIES[task].name for task in grid.tasks):
            found += odd_claims(grid, kind)
        if grid.width:
            found += module_claims(grid)
        return [replace(claim, unit="networks") for claim in found]

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return report.sections(grid, results)

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """The verdicts, and a warning where masks part what has no parts."""
        said = sentence(judgements)
        if any(j.claim.name == HIDDEN and j.verdict == "refuted" for j in judgements):
            said += (
                " Masks are not specific here: weights of which none belongs to a rule pass for "
                "selective too, so only what goes beyond them speaks of weights of a rule's own."
            )
        return said


def check(grid: Grid) -> None:
    """Refuses a grid that would ask nothing."""
    at_least(grid, seeds=1, mask_seeds=1, batches=1, mask_steps=1, masked_modules=1)
    if grid.masked_modules > grid.modules:
        raise InvalidRequest(
            f"masked_modules={grid.masked_modules} of modules={grid.modules}: "
            f"use masked_modules={grid.modules}"
        )
    given = ",".join(f"{dose:g}" for dose in grid.dose)
    if any(not 0 <= dose < float("inf") for dose in grid.dose) or grid.pretraining < 0:
        raise InvalidRequest(
            f"dose={given}, pretraining={grid.pretraining}: expected numbers of at least 0, such "
            f"as --set dose=0.25,1 --set pretraining={grid.steps}"
        )
    if doses(grid) and not grid.pretraining:
        raise InvalidRequest(
            f"dose={given} of pretraining=0 steps: add --set pretraining={grid.steps}, the steps "
            "of the full dose, or --set dose=0 for no pretraining"
        )
    if grid.pretraining and not grid.dose:
        raise InvalidRequest(
            f"pretraining={grid.pretraining} without a dose: add --set dose=1 for all of it"
        )


def conditions(grid: Grid, task: str) -> list[str]:
    """From scratch, with doses of pretraining, and the controls this task has."""
    for control in grid.controls:
        if control not in CONTROLS:
            raise unknown("control", control, CONTROLS)
    if task not in FAMILIES:
        raise unknown("task", task, FAMILIES)
    own = [c for c in grid.controls if c == "untrained" or task == "fields"]
    return ["scratch", *dosed_conditions(grid), *own]


def doses(grid: Grid) -> tuple[float, ...]:
    """Those of pretraining; a dose of 0 is the network from scratch, which is always there."""
    return tuple(dose for dose in grid.dose if dose)


def dosed_conditions(grid: Grid) -> list[str]:
    return [parts.dosed(dose) for dose in doses(grid)]


def dose_steps(full: int, condition: str) -> int:
    """Steps of a dose, in tens."""
    return max(10, 10 * round(full * parts.dose_of(condition) / 10))


def most_below(rules: list[float]) -> float:
    """The share of a network's rules whose difference is clearly below zero."""
    return float(np.mean(np.asarray(rules) < -0.05))


def odd_network(grid: Grid, task: str, condition: str, seed: int) -> Learner:
    """The network whose parts are looked for."""
    family = FAMILIES[task]
    model = model_for(family, grid)
    # Networks of different tasks share nothing, not even first weights: each is a unit.
    seeds = Seeds.all(seed + APART * list(FAMILIES).index(task))
    if condition in (PLANTED, "mixed"):
        return PlantedOdd(
            family, model, seeds, grid.steps, grid.batch, grid.rate,
            evaluation_every=max(10, grid.steps // 4), mixed=condition == "mixed",
        )  # fmt: skip
    pretraining = None
    if condition.startswith("dose"):
        steps = dose_steps(grid.pretraining, condition)
        pretraining = Pretraining(
            family, model, seeds, steps, grid.batch, grid.rate, evaluation_every=steps
        )
    network = (RotatedOdd if condition.endswith("rotated") else OddOneOut)(
        family, model, seeds, grid.steps, grid.batch, grid.rate,
        evaluation_every=max(10, grid.steps // 4), pretraining=pretraining,
        decay=PlantedOdd.decay if condition.startswith("decayed") else 0.0,
    )  # fmt: skip
    return AsDrawn(network) if condition == "untrained" else network


def student(grid: Grid, width: int, condition: str, seed: int) -> Learner:
    """A student of a hyperteacher; pretraining is on another teacher, with other modules."""
    learner = base.cell(
        base.training_named(grid.training), modules=grid.modules, active=grid.active, width=width,
        depth=2, seed=seed,
    ).learner  # fmt: skip
    assert isinstance(learner, Supervised)
    if condition == "untrained":
        return AsDrawn(learner)
    if not condition.startswith("dose"):
        return learner
    steps = dose_steps(learner.training_steps, condition)
    elsewhere = replace(learner.seeds, content=OTHER_TEACHER + seed, train=OTHER_TEACHER + seed)
    before = replace(learner, seeds=elsewhere, training_steps=steps, evaluation_every=steps)
    return Continued.after(
        before, seeds=learner.seeds, training_steps=learner.training_steps,
        evaluation_every=learner.evaluation_every,
    )  # fmt: skip


def masks(grid: Grid, network: Learner, labels: dict, count: int) -> list[Cell]:
    return [
        Cell(
            MaskLearner(base=network, part=part, masking=Masking(penalty=grid.penalty),
                        seed=1_000 * network.init_seed + number,
                        mask_steps=grid.mask_steps, evaluation_every=grid.mask_steps),
            {**labels, "rule": part, "mask_seed": number},
            (Subnetworks(batches=grid.batches),),
        )
        for part in range(count)
        for number in grid.drawn(grid.mask_seeds)
    ]  # fmt: skip


def odd_claims(grid: Grid, kind: str) -> list[Claim]:
    """The published criteria for one kind of tasks, on networks from scratch and pretrained ones.

    Those that compare a rule with the other speak only where the other is spared.
    """
    found = [
        Claim(f"{kind}: ablation is selective",
              f"Ablating the mask of a rule of '{kind}' hurts that rule more than the other: mean "
              "difference at most -.14",
              parts.mean("scratch", kind, parts.ablation), at_most=-0.14),
        Claim(f"{kind}: in most networks",
              f"The difference is below -.05 for at least .7 of the networks and rules of '{kind}'",
              parts.over_rules("scratch", kind, most_below), at_least=0.7),
        Claim(f"{kind}: more than the complement",
              f"For '{kind}' the difference is at least .10 below that of ablating as many weights "
              "of every layer that the mask does not keep",
              parts.than_complement("scratch", kind), at_most=-0.10),
        Claim(f"{kind}: more than other weights",
              f"Ablating the mask of a rule of '{kind}' leaves at least .10 less of that rule than "
              "ablating as many weights of every layer at random",
              parts.mean("scratch", kind, parts.harm_beyond_random, parts.harm_speaks),
              at_most=-0.10),
        Claim(f"{kind}: the other rule less",
              f"Ablating the mask of a rule of '{kind}' leaves more of the other rule than "
              "ablating as many weights of every layer at random",
              parts.mean("scratch", kind, parts.spared_beyond_random, parts.sparing_speaks),
              above=0.0),
    ]  # fmt: skip
    if "rotated" in grid.controls and kind == "fields":
        found.append(Claim(
            f"{kind}: more than the rotated twin",
            f"For '{kind}' the difference is below that over the same networks in rotated weights, "
            "of which none belongs to a rule",
            parts.difference(kind, "scratch", "rotated", parts.ablation), below=0.0,
        ))  # fmt: skip
    if "decayed" in grid.controls and kind == "fields":
        found.append(Claim(
            f"{kind}: also with decay",
            f"For '{kind}' learnt with the decay that the planted halves have, the difference is "
            "at most -.14", parts.mean("decayed", kind, parts.ablation), at_most=-0.14,
        ))  # fmt: skip
    if "decayed-rotated" in grid.controls and kind == "fields":
        found.append(Claim(
            f"{kind}: with decay more than the rotated twin",
            f"For '{kind}' learnt with decay the difference is below that over networks learnt "
            "alike and written in rotated weights, of which none belongs to a rule",
            parts.difference(kind, "decayed", "decayed-rotated", parts.ablation), below=0.0,
        ))  # fmt: skip
    if "untrained" in grid.controls:
        found.append(Claim(
            f"{kind}: more than untrained",
            f"For '{kind}' the difference is below that over networks that were never trained",
            parts.difference(kind, "scratch", "untrained", parts.ablation), below=0.0,
        ))  # fmt: skip
    if doses(grid):
        most = parts.dosed(max(doses(grid)))
        found.append(Claim(
            f"{kind}: pretraining parts it more",
            f"For '{kind}' the difference is at least .10 lower after the full dose of pretraining "
            "than from scratch", parts.difference(kind, most, "scratch", parts.ablation),
            at_most=-0.10,
        ))  # fmt: skip
        found.append(Claim(
            f"{kind}: pretraining parts more networks",
            f"The share of networks and rules of '{kind}' whose difference is below -.05 is at "
            "least .15 higher after the full dose of pretraining than from scratch",
            parts.rise(kind, most, "scratch", most_below, 0.15), at_least=0.15,
        ))  # fmt: skip
        if len(doses(grid)) > 2:
            found.append(Claim(
                f"{kind}: the more the more",
                f"For '{kind}' the difference falls with the dose of pretraining (rank "
                "correlation)",
                parts.by_dose(kind, ["scratch", *dosed_conditions(grid)]), below=0.0,
            ))  # fmt: skip
    return found


def module_claims(grid: Grid) -> list[Claim]:
    """Errors are compared, not scores; students whose ablation ruins all say nothing."""
    small, large = min(grid.width), max(grid.width)
    hurts = parts.hurts_beyond_random
    found = [
        Claim("modules: ablation is selective",
              f"At width {large}, ablating the mask of a module ({grid.masked_modules} of "
              f"{grid.modules}, averaged) multiplies the error (1 - R²) on unseen combinations "
              "with it by more than on those without, beyond ablating as many at random (log2)",
              parts.mean("scratch", MODULES, hurts, width=large), above=0.0),
        Claim("modules: more than untrained",
              f"At width {large}, it does so more than in untrained students",
              parts.difference(MODULES, "scratch", "untrained", hurts, width=large), above=0.0),
    ]  # fmt: skip
    if doses(grid):
        most = parts.dosed(max(doses(grid)))
        found.append(Claim(
            "modules: pretraining parts them more",
            f"At width {large}, it does so more after the full dose of pretraining, on another "
            "teacher, than from scratch",
            parts.difference(MODULES, most, "scratch", hurts, width=large), above=0.0,
        ))  # fmt: skip
    if len(doses(grid)) > 2:
        found.append(Claim(
            "modules: the more the more",
            f"At width {large}, it does so the more the larger the dose of pretraining (rank "
            "correlation)",
            parts.by_dose(MODULES, ["scratch", *dosed_conditions(grid)], hurts, width=large),
            above=0.0,
        ))  # fmt: skip
    if small < large:
        found.append(Claim(
            "modules: width parts them more",
            f"It does so more at width {large} than at {small}",
            parts.wider(small, large), above=0.0,
        ))  # fmt: skip
    return found
