"""Do networks respect the symmetries of their task, and does that tell who learns a new rule?

`recombine run symmetry --preset standard` trains networks on problems of two rules (fields,
pictures, sentences), changes their items in ways that leave both rules as they are, and asks how
alike every unit answers to an item and to the changed one. Then one of the rules is exchanged for a
new one: do those that are whole (concordance), untangled (disentanglement), or whose weights matter
to one rule (selectivity) learn it sooner? Expected by the hypothesis of fractured and entangled
representations: they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from recombine.checks import at_least, each_once, up_to
from recombine.errors import unknown
from recombine.families.odd_one_out import FieldsOdd, OddFamily, PicturesOdd, SentencesOdd
from recombine.instruments.symmetry import Symmetry
from recombine.lab.statistics import within_group_correlation
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Row, Seeded, Study
from recombine.learners.odd_one_out import OddOneOut
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _symmetry_report as report
from recombine.studies._item_models import model_for

# The rules a network learns first, and those after one of them is exchanged for another.
RULES: dict[str, tuple[OddFamily, OddFamily]] = {
    "fields": (FieldsOdd(), FieldsOdd(pairs=(0, 2))),
    "pictures": (PicturesOdd("inside-contact"), PicturesOdd("inside-count")),
    "sentences": (SentencesOdd("subject-verb"), SentencesOdd("anaphora")),
}
MEASURES = {
    "concordance": "whose units answer alike to items and to changed ones",
    "disentanglement": "whose units tell of one rule each",
    "selectivity": "whose single weights matter to one rule each",
}
APART = 10_000  # seeds of one decay and those of the next
NEW_RULE = 700_000  # the seed of the examples from which all learn a new rule


@dataclass(frozen=True)
class Grid(Seeded):
    """Networks by task and decay, read by one instrument, then taught a new rule."""

    tasks: tuple[str, ...] = ("fields",)
    field_width: int = 128
    picture_width: int = 16
    word_width: int = 32
    depth: int = 2  # of the transformer
    steps: int = 1_000
    batch: int = 32
    rate: float = 2e-3
    decay: tuple[float, ...] = (0.0, 0.3, 1.0)
    new_steps: int = 600
    looks: int = 60  # along the new rule
    learnt: float = 0.9
    scratch: int = 3  # networks of each decay that learn the new rule from their first weights
    seeds: int = 8
    items: int = 1_024
    sweeps: int = 24


class SymmetryStudy(Study):
    """Concordance under the symmetries of a task, and what comes of it."""

    name = "symmetry"
    question = (
        "Do the units of a network respect the symmetries of its task, and does that tell how fast "
        "it learns a new rule?"
    )
    source = (
        "After Kumar, Clune, Lehman and Stanley, The Fractured Entangled Representation "
        "Hypothesis, 2025; the tasks are those of Lepori, Serre and Pavlick 2023"
    )
    cost = "quick: 1 min on two CPU cores; standard: 3 min on one H200 (estimated)"
    not_shown = (
        "Large networks, and tasks of more than two rules.",
        "What causes what: networks differ in their first weights, their examples and their weight "
        "decay, and within a decay they are compared as they come.",
        "Symmetries that were not asked for: each family names those that its rules make certain.",
    )
    presets: ClassVar = {
        "smoke": Grid(field_width=16, steps=20, batch=8, decay=(0.0, 1.0), new_steps=20, looks=2,
                      scratch=1, seeds=2, items=64, sweeps=4),
        "quick": Grid(),
        "standard": Grid(
            tasks=tuple(RULES), field_width=256, word_width=64, steps=4_000, batch=64, rate=1e-3,
            new_steps=2_000, looks=100, scratch=4, seeds=10, sweeps=48,
        ),
        "paper": Grid(
            tasks=tuple(RULES), field_width=1_024, picture_width=64, word_width=256, depth=4,
            steps=20_000, batch=256, rate=3e-4, new_steps=20_000, looks=200, scratch=10, seeds=20,
            sweeps=200,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        check(grid)
        found = []
        for task in grid.tasks:
            for number, decay in enumerate(grid.decay):
                for seed in grid.drawn(grid.seeds):
                    own = seed + APART * number
                    labels = {"task": task, "decay": decay, "seed": seed}
                    network = first_rules(grid, task, decay, own)
                    reading = Symmetry(items=grid.items, sweeps=grid.sweeps)
                    found.append(Cell(network, {**labels, "part": "network"}, (reading,)))
                    found.append(Cell(new_rule(grid, network), {**labels, "part": "new"}))
                    if seed - grid.first_seed < grid.scratch:
                        fresh = new_rule(grid, network, known=False)
                        found.append(Cell(fresh, {**labels, "part": "scratch"}))
        return found

    def claims(self, grid: Grid) -> list[Claim]:
        found = []
        for task in grid.tasks:
            found += [
                Claim(f"{task}: known rules help",
                      f"A new rule of '{task}' takes more steps to a score of {grid.learnt:g} from "
                      "first weights than for the network that knows two others (log2 of the "
                      "ratio)", known_helps(grid, task), unit="networks", above=0.0),
                Claim(f"{task}: training respects symmetries",
                      f"Units of networks that learnt '{task}' answer more alike to items and to "
                      "changed ones than those of their untrained twins", more_than(task),
                      unit="networks", above=0.0),
            ]  # fmt: skip
            found += [
                Claim(f"{task}: {name} tells who learns a new rule sooner",
                      f"Among networks of one weight decay that learnt '{task}', those {words} "
                      f"({name}) take fewer steps to a score of {grid.learnt:g} with a new rule "
                      "(rank correlation within decays)", sooner(grid, task, name),
                      unit="networks", below=0.0)
                for name, words in MEASURES.items()
            ]  # fmt: skip
        return found

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return report.sections(grid, results, able, steps_of)


def check(grid: Grid) -> None:
    """Refuses a grid that would ask nothing."""
    for task in grid.tasks:
        if task not in RULES:
            raise unknown("task", task, RULES)
    at_least(grid, seeds=1, looks=1, steps=1, new_steps=1, scratch=0)
    each_once(grid, "tasks", "decay")
    up_to(1, grid, "learnt")


def first_rules(grid: Grid, task: str, decay: float, seed: int) -> OddOneOut:
    family = RULES[task][0]
    return OddOneOut(
        family, model_for(family, grid), Seeds.all(seed), grid.steps, grid.batch, grid.rate,
        evaluation_every=max(10, grid.steps // 4), decay=decay,
    )  # fmt: skip


def new_rule(grid: Grid, network: OddOneOut, known: bool = True) -> OddOneOut:
    """The network, as trained or as drawn, learns one of its rules and a new one.

    All learn from the same examples, without decay, so that they differ in what they bring.
    """
    task = next(name for name, (first, _) in RULES.items() if first == network.family)
    every = max(10, grid.new_steps // grid.looks // 10 * 10)
    examples = NEW_RULE + grid.first_seed
    return replace(
        network, family=RULES[task][1], training_steps=grid.new_steps, decay=0.0,
        seeds=replace(network.seeds, train=examples, evaluation=examples), evaluation_every=every,
        pretraining=network if known else None,
    )  # fmt: skip


def able(results: Results, task: str) -> tuple[Results, str]:
    """Networks that learnt their two rules, and how many did not."""
    rows = results.where(part="network", task=task)
    found = Results([row for row in rows if last_seen(row) >= base.SEEN_FLOOR and not row.diverged])
    behind = len(rows) - len(found)
    return found, f"Left out: {behind} of {len(rows)} below .9." if behind else ""


def last_seen(row: Row) -> float:
    return float(row.curve("seen")[1][-1])


def steps_of(grid: Any, results: Results, row: Row, part: str = "new") -> tuple[float, bool]:
    """log2 steps of a network to the new rule, and whether it got there."""
    found = results.where(part=part, **{k: row.labels[k] for k in ("task", "decay", "seed")})
    if not found:
        return float("nan"), False
    return base.log_steps(found[0], "seen", grid.learnt, falling=False)


def known_helps(grid: Grid, task: str) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        rows, note = able(results, task)
        values = []
        for row in rows:
            known, fresh = (steps_of(grid, results, row, part) for part in ("new", "scratch"))
            if known[1] or fresh[1]:  # where neither gets there, nothing is compared
                values.append(fresh[0] - known[0])
        values = np.asarray([value for value in values if np.isfinite(value)])
        return Evidence.of_values(base.require(values, "Networks", note=note), note)

    return measure


def more_than(task: str) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        rows, note = able(results, task)
        values = np.asarray([
            row.value("symmetry", "concordance")
            - row.value("symmetry", "concordance", "untrained") for row in rows
        ])  # fmt: skip
        return Evidence.of_values(base.require(values, "Networks", note=note), note)

    return measure


def sooner(grid: Grid, task: str, name: str) -> Callable[[Results], Evidence]:
    """The rank correlation of a measure with steps to the new rule, within decays."""

    def measure(results: Results) -> Evidence:
        rows, note = able(results, task)
        steps = [steps_of(grid, results, row) for row in rows]
        never = sum(not reached for _, reached in steps)
        if never:
            note = f"{note} {never} never got there, and count with all steps.".strip()
        found = [
            (row.value("symmetry", name), log2, row.labels["decay"])
            for row, (log2, _) in zip(rows, steps, strict=True)
        ]
        found = [one for one in found if np.isfinite(one[:2]).all()]
        if len(found) < 10 or 2 * never > len(rows):
            raise NotTested(
                f"Needs ten networks, most of which learn the new rule; has {len(found)}, "
                f"{never} of which do not. {note}".strip()
            )
        x, y, groups = zip(*found, strict=True)
        x, y = (stats.rankdata(values) for values in (x, y))
        numbers = np.unique(groups, return_inverse=True)[1]
        if _flat(x, numbers) or _flat(y, numbers):
            raise NotTested(f"{name.capitalize()}, or steps, are the same in all networks. {note}")

        def interval(level: float) -> Any:
            return within_group_correlation(x, y, numbers, level=level)

        return Evidence.of_interval(interval, f"{len(found)} networks. {note}".strip())

    return measure


def _flat(values: np.ndarray, groups: np.ndarray) -> bool:
    return all(np.ptp(values[groups == group]) == 0 for group in np.unique(groups))
