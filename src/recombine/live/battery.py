"""A battery of composed tasks that are drawn anew from a seed, so none can have been learned."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from scipy import stats

from recombine.errors import InvalidRequest, unknown
from recombine.lab.intervals import Interval
from recombine.lab.judge import Judgement
from recombine.lab.study import Claim, Evidence, NotTested
from recombine.live.battery_solver import solve
from recombine.live.battery_tasks import DEEPEST, TASKS, Drawn, Task
from recombine.live.kit import (
    Answers,
    Kit,
    Options,
    Question,
    if_readable,
    rates_table,
    shuffled,
    verdicts,
)
from recombine.live.parsing import marks
from recombine.report.document import Cell, Section, Table
from recombine.report.figures import Panel, Series, panels
from recombine.seeds import host_seed

ENDING = "\nThink as long as you need, and end with one line of the form\nANSWER: your answer"
WRONG_SHOWN = 6
CHARACTERS_SHOWN = 160


@dataclass(frozen=True)
class BatteryOptions(Options):
    """Which tasks, at which depths, and how many questions of each."""

    tasks: tuple[str, ...] = tuple(TASKS)
    depths: tuple[int, ...] = (1, 2, 3, 4)


class Battery(Kit):
    """How deep a language model composes what it has just been told."""

    name = "battery"
    question = (
        "How often does a language model compose rules that it has just been told, and how does "
        "that fall with the number of rules?"
    )
    options = BatteryOptions()
    within = ("task", "depth")
    not_shown = (
        "Whether the model composes or recalls: made-up words and fresh draws make recall of an "
        "item unlikely, but these kinds of task are in many training sets.",
        "Anything about depths that were not asked, other wordings of the same task, or other "
        "settings than temperature 0.",
        "Why an answer is wrong. A model that is cut off, or does not say what it was asked for, "
        "counts as wrong; how many could not be read is in the first table.",
        "That tasks are comparable with one another: a depth of 2 is another thing in each, so "
        "there is no overall score.",
    )

    def questions(self, options: BatteryOptions) -> Iterator[Question]:
        for name in options.tasks:
            if name not in TASKS:
                raise unknown("task", name, TASKS)
        for depth in options.depths:
            if not 1 <= depth <= DEEPEST:
                raise InvalidRequest(f"depths={depth}: expected numbers from 1 to {DEEPEST}")
        for task in (TASKS[name] for name in dict.fromkeys(options.tasks)):
            # A task may have a depth of its own below those that all have.
            for depth in sorted({*options.depths, *range(task.shallowest, 1)}):
                yield from _cell(task, depth, options)

    def score(self, question: Question, answer: str) -> dict[str, float]:
        return marks(TASKS[str(question.columns["task"])].kind, question.gold, answer)

    def solve(self, question: Question) -> str:
        return solve(question.prompt)

    def claims(self, answers: Answers) -> Sequence[Claim]:
        return (
            Claim(
                "grounded",
                "Answers are right for their own question more often than for another of the "
                "same kind and depth.",
                if_readable(answers, lambda: _grounded(self, answers)),
                unit="items",
                above=0.0,
            ),
            Claim(
                "depth",
                "Accuracy falls by more than 0.1 from the shallowest depth to the deepest, on "
                "average over tasks.",
                if_readable(answers, lambda: _fall(answers)),
                unit="items",
                above=0.1,
            ),
        )

    def conclusion(self, answers: Answers, judgements: Sequence[Judgement]) -> str:
        ends = []
        for task in answers.labels("task"):
            cells = _depths(answers, task)
            rates = [f"{cell.rate().estimate:.2f} (depth {d})" for d, cell in (cells[0], cells[-1])]
            ends.append(f"{task} {' to '.join(dict.fromkeys(rates))}")
        return f"{verdicts(judgements)} Right: {'; '.join(ends)}."

    def sections(self, answers: Answers) -> Sequence[Section]:
        control = shuffled(self, answers)
        found = [
            Section(
                "Accuracy by depth",
                "Each point is the share of questions answered exactly right. Beside it: what "
                "blind guessing would get, the same answers marked against the gold of other "
                "questions, and what would be left if every further step failed as often as the "
                "first, independently (the accuracy at depth 1, above chance, to the power of the "
                "depth). Intervals are exact (Clopper and Pearson), over items.",
                figures=[_figure(answers, control)],
                tables=[_accuracy(answers)],
            ),
            Section(
                "Where it falls below one half",
                "The first depth at which less than half of the way from chance to perfect is "
                "left: an accuracy of 0.5, or of 0.75 where guessing gets 0.5.",
                tables=[_below_half(answers)],
            ),
        ]
        for task, title, columns in (
            ("grammar", "A made-up language, by novelty", ("detail",)),
            ("logic", "Logic, by the right answer", ("detail", "depth")),
            ("strings", "Strings at depth 1, by operation", ("detail",)),
        ):
            part = answers.where(task=task)
            if task == "strings":
                part = part.where(depth=1)
            if len(part):
                found.append(Section(title, tables=[rates_table(part, columns, title=title)]))
        wrong = [row for row in answers if row["correct"] != 1]
        if wrong:
            found.append(Section("Some wrong answers", tables=[_wrong(wrong)]))
        return found


def _cell(task: Task, depth: int, options: BatteryOptions) -> Iterator[Question]:
    """The questions of one task and depth: all different, and more of them only add some."""
    rng = random.Random(host_seed(options.seed, f"live/battery/{task.name}/{depth}"))
    seen: set[str] = set()
    while len(seen) < options.items:
        for _ in range(1000):
            drawn: Drawn = task.draw(rng, depth, len(seen))
            if drawn.prompt not in seen:
                break
        else:
            raise InvalidRequest(
                f"items={options.items}: {task.name} has no more than about {len(seen)} different "
                f"questions of depth {depth}; ask for fewer"
            )
        columns: dict[str, Cell] = {
            "task": task.name, "depth": depth, "detail": drawn.detail, "chance": task.chance
        }  # fmt: skip
        number = len(seen)
        seen.add(drawn.prompt)
        yield Question(f"{task.name}-{depth}-{number}", drawn.prompt + ENDING, drawn.gold, columns)


def _grounded(kit: Kit, answers: Answers) -> Evidence:
    others = shuffled(kit, answers)
    if not len(others):
        raise NotTested("It takes at least two questions of the same kind and depth: --items 2.")
    own = {row.question.id: row["correct"] for row in answers}
    return Evidence.of_values([own[row.question.id] - row["correct"] for row in others])


def _fall(answers: Answers) -> Evidence:
    """The mean over tasks of the fall in accuracy, with Agresti and Caffo's interval."""
    falls, centres, squares, units = [], [], [], 0
    for task in answers.labels("task"):
        cells = [cell for depth, cell in _depths(answers, task) if depth > 0]
        if len(cells) < 2:
            continue
        ends = [(int(sum(cell.values("correct"))), len(cell)) for cell in (cells[0], cells[-1])]
        falls.append(Fraction(*ends[0]) - Fraction(*ends[1]))
        # One success and one failure more on each side keep the interval open at 0 and 1.
        rates = [(right + 1) / (count + 2) for right, count in ends]
        centres.append(rates[0] - rates[1])
        squares += [p * (1 - p) / (count + 2) for p, (_, count) in zip(rates, ends, strict=True)]
        units += ends[0][1] + ends[1][1]
    if not falls:
        raise NotTested("It takes at least two depths of a task.")
    centre, error = math.fsum(centres) / len(falls), math.sqrt(math.fsum(squares)) / len(falls)

    def interval(level: float) -> Interval:
        reach = float(stats.norm.ppf((1 + level) / 2)) * error
        low, high = max(-1.0, centre - reach), min(1.0, centre + reach)
        return Interval(float(sum(falls) / len(falls)), low, high, units, "Agresti-Caffo", level)

    return Evidence.of_interval(interval)


def _depths(answers: Answers, task: str) -> list[tuple[int, Answers]]:
    part = answers.where(task=task)
    return [(depth, part.where(depth=depth)) for depth in sorted(set(part.values("depth")))]


def _figure(answers: Answers, control: Answers) -> Any:
    drawn = []
    for task in answers.labels("task"):
        cells = _depths(answers, task)
        x = [float(depth) for depth, _ in cells]
        rates = [cell.rate() for _, cell in cells]
        chance = TASKS[task].chance
        first = {depth: cell.rate().estimate for depth, cell in cells}.get(1)
        left = None if first is None else max(0.0, (first - chance) / (1 - chance))
        exchanged = {depth: cell.rate().estimate for depth, cell in _depths(control, task)}
        others = [exchanged.get(depth) for depth, _ in cells]
        expected = [None if left is None else chance + (1 - chance) * left**d for d in x]
        lines = [
            Series("right", x, [r.estimate for r in rates], [r.low for r in rates],
                   [r.high for r in rates]),
            Series("shuffled gold", x, others),
            Series("independent errors", x, expected),
            Series("chance", x, [chance] * len(x)),
        ]  # fmt: skip
        drawn.append(Panel(f"{task} ({TASKS[task].depth})", lines))
    return panels("Accuracy by depth", "depth", "share right", drawn, y_range=(-0.03, 1.03))


def _accuracy(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in answers.labels("task"):
        for depth, cell in _depths(answers, task):
            rate = cell.rate()
            read = cell.rate("parsed").estimate
            rows.append(
                (task, depth, rate.estimate, rate.low, rate.high, TASKS[task].chance, read,
                 len(cell))
            )  # fmt: skip
    columns = ("task", "depth", "right", "low", "high", "chance", "could be read", "items")
    return Table("Accuracy by task and depth", columns, rows)


def _below_half(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in answers.labels("task"):
        half = (1 + TASKS[task].chance) / 2
        cells = [(depth, cell.rate()) for depth, cell in _depths(answers, task)]
        first = next((depth for depth, rate in cells if rate.estimate < half), None)
        sure = next((depth for depth, rate in cells if rate.high < half), None)
        rows.append((task, half, first, sure, cells[-1][0]))
    columns = ("task", "half way", "first below", "first surely below", "deepest asked")
    note = "Surely: the whole interval is below. A dash: not at any depth asked."
    return Table("Where it falls below one half", columns, rows, note)


def _wrong(rows: Sequence[Any]) -> Table:
    # A few of different tasks and depths say more than the first ones.
    by_cell = {(row["task"], row["depth"]): row for row in reversed(rows)}
    shown = list(by_cell.values())[::-1][:WRONG_SHOWN]
    return Table(
        "Some wrong answers",
        ("question", "right", "said"),
        [(row.question.id, _short(row.question.gold), _short(row.answer.text)) for row in shown],
        "The end of each answer; all of them, with their prompts, are in table.csv.",
    )


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS_SHOWN else "… " + text[-CHARACTERS_SHOWN:]
