"""What does scale buy a network that reads and writes, and where does it still break?

`recombine run sequences --preset standard` trains transformers on tasks whose answers are known by
rule: commands, formulas, functions, programs, sums, strings, puzzles. It first tries several
configurations of each (positions, scale of embeddings, tied layers) on seeds used for nothing else,
takes the one that does best on items from beyond training that no result uses, and trains that one
at three sizes. Expected from the literature: combinations of known pieces are learnt with the right
configuration; longer or deeper items than trained are not, whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.checks import at_least
from recombine.instruments.exact_match import ExactMatch
from recombine.lab.judge import Judgement, tally
from recombine.lab.statistics import matched
from recombine.lab.study import (
    DIFFERENCE,
    SHARE,
    Cell,
    Claim,
    Evidence,
    NotTested,
    Results,
    Row,
    Seeded,
    Study,
)
from recombine.learners.next_token import NextToken
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _sequences as parts
from recombine.studies._pilots import FIRST_SEED
from recombine.studies._sequence_tasks import ANEW, MORE, model_named, task_named

ALL = (
    "scan-length", "scan-jump", "scan-right", "listops", "pcfg", "functions", "tables",
    "functions-steps", "arithmetic", "arithmetic-steps", "programs-run", "programs-write",
    "multiplication", "subsequence", "strings", "zebra", "cogs",
)  # fmt: skip
WAYS = ("putting known pieces together anew", "having more of them than ever")
USUAL = "learned"  # the configuration most published failures were found with


@dataclass(frozen=True)
class Grid(Seeded):
    """Tasks by configurations on pilot seeds, then by sizes in the best configuration."""

    tasks: tuple[str, ...] = ("functions-steps", "tables-steps")
    small: bool = True  # small corpora
    configurations: tuple[str, ...] = ("learned", "relative")
    width: tuple[int, ...] = (24, 48)
    middle: int = 48  # the width at which configurations are compared
    depth: int = 2
    head: int = 16
    steps: int = 600
    rate: float = 4e-3
    batch: int = 32
    row: int = 32  # tokens of a row; 0 for what each task needs
    items: int = 200
    evaluations: int = 10
    pilot_seeds: int = 1
    pilot_floor: float = 0.0  # least share like training of the best pilot of a task that goes on
    usual_seeds: int = 2  # of the usual configuration, beside the chosen one
    between_seeds: int = 5  # of widths that are neither the smallest nor the largest
    seeds: int = 5
    matched: float = 0.9  # the seen score at which learning curves are compared


class Sequences(Study):
    """Configurations, then sizes, of transformers on tasks of text."""

    name = "sequences"
    question = (
        "Do transformers answer questions put together anew, or longer and deeper than any in "
        "training, and does size help?"
    )
    source = (
        "The tasks of SCAN (Lake and Baroni 2018), COGS (Kim and Linzen 2020), PCFG SET (Hupkes et "
        "al. 2020), ListOps (Nangia and Bowman 2018) and others; configurations after Csordás, "
        "Irie and Schmidhuber 2021"
    )
    cost = "quick: 1.6 min on two CPU cores; standard: 14 min on one H200 (estimated)"
    not_shown = (
        "Pretrained models: every network here starts from random weights.",
        "Configurations beyond those listed; a failure holds for the best of these.",
        "Tasks far from learnt on pilot seeds: at `standard` what no configuration answers to .6 "
        "like training is trained no further, and widths between the ends have two seeds.",
        "Longer training than this: no network is stopped early, all stop at the same step.",
    )
    presets: ClassVar = {
        "smoke": Grid(tasks=("functions-steps",), width=(8, 16), middle=16, depth=1, head=8,
                      steps=30, batch=8, items=40, evaluations=2, usual_seeds=1, seeds=2),
        "quick": Grid(),
        "standard": Grid(
            tasks=ALL, small=False,
            configurations=("learned", "learned-small", "relative", "relative-small",
                            "relative-tied"),
            width=(48, 96, 192), middle=96, depth=4, head=32, steps=5_000, rate=1e-3, batch=32,
            items=1_000, evaluations=20, row=0, pilot_floor=0.6, between_seeds=2,
        ),
        "paper": Grid(
            tasks=ALL, small=False,
            configurations=("learned", "learned-small", "relative", "relative-small",
                            "relative-tied", "rotary", "no-positions", "encoder-relative",
                            "encoder-relative-tied"),
            width=(64, 128, 256, 512), middle=256, depth=6, head=64, steps=50_000, rate=3e-4,
            batch=128, items=3_000, evaluations=50, pilot_seeds=3, row=0,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        for width in grid.width:  # what no pilot trains is refused before pilots do
            model_named(USUAL, width, grid.depth, grid.head)
        return [
            cell(grid, "pilot", task, configuration, grid.middle, FIRST_SEED + seed)
            for task in grid.tasks
            for configuration in grid.configurations
            for seed in grid.drawn(grid.pilot_seeds)
        ]

    def next_cells(self, grid: Grid, results: Results, number: int) -> list[Cell]:
        if number > 1:
            return []
        found = []
        for task in grid.tasks:
            if not results.where(part="pilot", task=task):
                continue  # its data are not on this machine
            if parts.given_up(grid, results, task):
                continue  # what would be trained could not be judged
            chosen = parts.best(results, task, grid.configurations)
            found += [cell(grid, "final", task, chosen, width, seed)
                      for width in grid.width for seed in seeds_of(grid, width)]  # fmt: skip
            if chosen != USUAL and USUAL in grid.configurations:
                found += [cell(grid, "usual", task, USUAL, grid.middle, seed)
                          for seed in seeds_of(grid, grid.middle)[: grid.usual_seeds]]  # fmt: skip
        return found

    def most_further_cells(self, grid: Grid) -> int:
        finals = sum(len(seeds_of(grid, width)) for width in grid.width)
        return len(grid.tasks) * (finals + len(seeds_of(grid, grid.middle)[: grid.usual_seeds]))

    def claims(self, grid: Grid) -> list[Claim]:
        small, large = min(grid.width), max(grid.width)
        each = [
            Claim(
                f"{task}, {split}",
                f"In the best configuration at width {large}, at least .9 of the answers to "
                f"{task} are {task_named(task).right} where it goes beyond training by {split} "
                f"({new})",
                composes(grid, task, split, large), at_least=0.9, within=SHARE,
            )
            for task in grid.tasks
            for split, new in task_named(task).beyond.items()
        ]  # fmt: skip
        return [
            *each,
            Claim("size helps beyond training",
                  f"The share of exact answers beyond training, mean over tasks, is higher at "
                  f"width {large} than at {small}",
                  over_tasks(grid, small, large, parts.beyond), above=0.0, within=DIFFERENCE),
            Claim("also half-way",
                  "The same half-way through training",
                  over_tasks(grid, small, large, on_curves(half_way)), above=0.0,
                  within=DIFFERENCE),
            Claim("also at matched seen score",
                  f"The same when the share of exact answers like those of training first reaches "
                  f"{grid.matched:g}",
                  over_tasks(grid, small, large, at_matched(grid.matched)), above=0.0,
                  within=DIFFERENCE),
            Claim("size closes the gap",
                  "The share of exact answers like those of training is less far above that beyond "
                  f"training, mean over tasks, at width {large} than at {small}",
                  over_tasks(grid, small, large, parts.gap), below=0.0),
            Claim("configuration matters",
                  "The configuration chosen on pilot seeds answers more items beyond training "
                  f"exactly than '{USUAL}' does on other seeds, by at least .1 (width "
                  f"{grid.middle}, mean over tasks)",
                  chosen_over_usual(grid), unit="tasks", at_least=0.1, within=DIFFERENCE),
            Claim("anew is easier than more",
                  f"At width {large}, in tasks with both, more answers are exact where known "
                  "pieces are put together anew than where there are more of them than ever",
                  anew_over_more(grid, large), above=0.0, within=DIFFERENCE),
            Claim("knowing the end helps",
                  f"At width {large}, where there is more than ever, at least .1 more answers are "
                  "exact when the network is told where they end",
                  end_given(grid, large), at_least=0.1, within=DIFFERENCE),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return parts.sections(grid, results)

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """In how many ways networks go beyond training, anew and by more; then all verdicts."""
        verdicts: dict[str, list[str]] = {ANEW: [], MORE: []}
        for judged in judgements:
            task, _, split = judged.claim.name.partition(", ")
            kind = task_named(task).beyond[split] if split else None
            if kind in verdicts and judged.verdict != "not tested here":
                verdicts[kind].append(judged.verdict)
        shown = [
            f"{found.count('supported')} of the {len(found)} ways tested of {way}"
            for found, way in zip(verdicts.values(), WAYS, strict=True)
            if found
        ]
        if not shown:
            return super().conclusion(judgements)
        return (
            "In the best configuration of the largest networks, at least .9 of the answers are "
            f"shown to be right in {' and in '.join(shown)}. {tally(judgements)}"
        )


def seeds_of(grid: Grid, width: int) -> range:
    """Claims stand on the smallest and the largest width; between them fewer seeds will do."""
    between = min(grid.width) < width < max(grid.width)
    return grid.drawn(min(grid.between_seeds, grid.seeds) if between else grid.seeds)


def cell(grid: Grid, part: str, task_name: str, configuration: str, width: int, seed: int) -> Cell:
    """A network on a task; everything is drawn anew for each seed."""
    at_least(grid, items=1)  # or nothing could be read of what was trained
    task = task_named(task_name)
    model = model_named(configuration, width, grid.depth, grid.head)
    learner = NextToken(
        family=task.made(grid.small, content=seed), model=model, seeds=Seeds.all(seed),
        training_steps=grid.steps, batch=grid.batch, learning_rate=grid.rate,
        warmup=max(10, grid.steps // 20), row=grid.row or task.row, rows=task.rows,
        vocabulary=task.vocabulary,
        evaluation_every=max(10, grid.steps // grid.evaluations // 10 * 10),
    )  # fmt: skip
    labels = {"part": part, "task": task_name, "configuration": configuration, "width": width,
              "seed": seed, "parameters": learner.size}  # fmt: skip
    return Cell(learner, labels, (ExactMatch(items=grid.items),))


def trained(results: Results, **labels: object) -> tuple[Results, str]:
    """Networks that learnt their task (seen score of .9 or more), and how many did not."""
    rows = results.where(part="final", **labels)
    able = Results(
        [row for row in rows if parts.seen(row) >= base.SEEN_FLOOR and not row.diverged]
    )  # fmt: skip
    behind = len(rows) - len(able) - rows.diverged
    told = [f"{behind} below .9 like training"] if behind else []
    told += [f"{rows.diverged} diverged"] if rows.diverged else []
    return able, f"Left out: {', '.join(told)}." if told else ""


def composes(grid: Grid, task: str, split: str, width: int) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        if why := parts.given_up(grid, results, task):
            raise NotTested(why)
        rows, note = trained(results, task=task, width=width)
        values = np.asarray([parts.right(row, f"unseen_{split}") for row in rows])
        return Evidence.of_values(base.require(values, "Trained networks", note=note), note)

    return measure


def over_tasks(
    grid: Grid, small: int, large: int, number: Callable[[Row], float]
) -> Callable[[Results], Evidence]:
    """large - small for each seed, mean over the tasks that both learnt."""

    def measure(results: Results) -> Evidence:
        if small == large:
            raise NotTested("Needs two sizes.")
        found: dict[int, list[float]] = {}
        for task in grid.tasks:
            rows, _ = trained(results, task=task)
            for seed in rows.labels("seed"):
                pair = rows.where(seed=seed).paired("seed", {"width": small}, {"width": large},
                                                    number)  # fmt: skip
                found.setdefault(seed, []).extend(pair)
        values = np.asarray([np.mean(v) for v in found.values() if v])
        tasks = max((len(v) for v in found.values()), default=0)
        both = Results([row for row in results if row.labels["width"] in (small, large)])
        _, behind = trained(both)
        behind = f"{behind} {parts.left_at_pilots(grid, results)}".strip()
        note = f"Up to {tasks} tasks a seed that both sizes learnt. {behind}".strip()
        return Evidence.of_values(base.require(values, "Seeds", note=behind), note)

    return measure


def at_matched(at: float) -> Callable[[Row], float]:
    """What is beyond training when what is like it first reaches `at`."""
    return on_curves(lambda seen, unseen: matched(seen, unseen, at))


def on_curves(number: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Row], float]:
    """A number of the curves of what is like training and beyond it, where these are the task's."""

    def of_row(row: Row) -> float:
        if not task_named(row.labels["task"]).curves:
            return float("nan")
        return number(row.curve("seen")[1], row.curve("unseen")[1])

    return of_row


def half_way(_: np.ndarray, unseen: np.ndarray) -> float:
    """What is beyond training at the middle of it."""
    return float(unseen[len(unseen) // 2])


def chosen_over_usual(grid: Grid) -> Callable[[Results], Evidence]:
    """By task, on seeds that chose nothing: the best of several noisy pilots flatters itself."""

    def measure(results: Results) -> Evidence:
        if USUAL not in grid.configurations or len(grid.configurations) < 2:
            raise NotTested(f"Needs '{USUAL}' and another configuration.")
        values, behind, same = [], 0, 0
        for task in grid.tasks:
            finals = _whole(results.where(part="final", task=task, width=grid.middle))
            usual = _whole(results.where(part="usual", task=task))
            if not finals:
                continue  # nothing was trained, for want of its data or of time
            chosen, others = _of_same_seeds(finals, usual)
            learnt = np.mean([parts.seen(row) for row in chosen or finals])
            if learnt < base.SEEN_FLOOR:
                behind += 1
            elif finals[0].labels["configuration"] == USUAL:
                values.append(0.0)  # choosing brought nothing there
                same += 1
            elif chosen:
                means = [np.mean([parts.beyond(row) for row in rows]) for rows in (chosen, others)]
                values.append(float(means[0] - means[1]))
        note = f"'{USUAL}' was itself chosen in {same} tasks." if same else ""
        if behind:
            note = f"{note} Left out: {behind} tasks that were not learnt.".strip()
        note = f"{note} {parts.left_at_pilots(grid, results)}".strip()
        if values and same == len(values):
            raise NotTested(f"No other configuration was chosen: nothing is compared. {note}")
        return Evidence.of_values(base.require(np.asarray(values), "Tasks", note=note), note)

    return measure


def _whole(rows: Results) -> Results:
    return Results([row for row in rows if not row.diverged])


def _of_same_seeds(first: Results, second: Results) -> tuple[list[Row], list[Row]]:
    """Corpora differ by seed: what only one of both has is left out."""
    seeds = {*first.labels("seed")} & {*second.labels("seed")}
    one, other = ([r for r in rows if r.labels["seed"] in seeds] for rows in (first, second))
    return one, other


def anew_over_more(grid: Grid, width: int) -> Callable[[Results], Evidence]:
    def difference(row: Row) -> float:
        return parts.beyond_by(ANEW)(row) - parts.beyond_by(MORE)(row)

    return _by_seed(grid, width, difference, ANEW, MORE)


def end_given(grid: Grid, width: int) -> Callable[[Results], Evidence]:
    def difference(row: Row) -> float:
        names = [f"unseen_{split}" for split in parts.of_kind(row.labels["task"], MORE)]
        gains = [
            row.value("exact-match", f"{name}_ended") - row.value("exact-match", name)
            for name in names
        ]
        return float(np.mean(gains)) if gains else float("nan")

    return _by_seed(grid, width, difference, MORE)


def _by_seed(
    grid: Grid, width: int, number: Callable[[Row], float], *kinds: str
) -> Callable[[Results], Evidence]:
    """Mean over the tasks with these kinds of novelty, for each seed."""

    def measure(results: Results) -> Evidence:
        rows, note = trained(results, width=width)
        note = f"{note} {parts.left_at_pilots(grid, results, *kinds)}".strip()
        values = []
        for seed in rows.labels("seed"):
            found = [number(row) for row in rows.where(seed=seed)]
            found = [value for value in found if np.isfinite(value)]
            if found:
                values.append(float(np.mean(found)))
        return Evidence.of_values(base.require(np.asarray(values), "Seeds", note=note), note)

    return measure
