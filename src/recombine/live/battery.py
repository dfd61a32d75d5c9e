"""A battery of composed tasks that are drawn anew from a seed, so none can have been learned."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean

from recombine.errors import InvalidRequest, unknown
from recombine.lab.judge import Judgement
from recombine.lab.study import Claim, Evidence, NotTested
from recombine.live.battery_page import both_words, curves, depths, sections
from recombine.live.battery_solver import solve
from recombine.live.battery_tasks import DEEPEST, NOVELTIES, TASKS, Draw, Task
from recombine.live.differences import Marks, fall, mean_difference, mean_within, rate_of
from recombine.live.kit import (
    FEWEST,
    Answers,
    Kit,
    Options,
    Question,
    if_readable,
    readable,
    shuffled,
    verdicts,
)
from recombine.live.parsing import marks
from recombine.report.document import Cell, Section
from recombine.seeds import host_seed

ENDING = "\nThink as long as you need, and end with one line of the form\nANSWER: your answer"
SAME = ("task", "depth", "number")  # columns that tell a question, whatever its words
SMALL = 0.05  # of the way from chance: who gets no further cannot lose anything by new words


@dataclass(frozen=True)
class BatteryOptions(Options):
    """Which tasks, at which depths, in familiar words or new ones, and how many questions of each.

    `novelty` is for the tasks that can be put in both.
    """

    tasks: tuple[str, ...] = tuple(TASKS)
    depths: tuple[int, ...] = (1, 2, 3, 4)
    novelty: tuple[str, ...] = NOVELTIES


class Battery(Kit):
    """How deep a language model composes what it has just been told."""

    name = "battery"
    question = (
        "How often does a language model compose rules that it has just been told, and how does "
        "that fall with the number of rules, and with words that it has never met?"
    )
    options = BatteryOptions()
    within = ("task", "novelty", "depth")
    not_shown = (
        "Whether the model composes or recalls: made-up words and fresh draws make recall of an "
        "item unlikely, but these kinds of task are in many training sets.",
        "Anything about depths that were not asked, other wordings of the same task, or other "
        "settings than temperature 0.",
        "Why an answer is wrong. A model that is cut off, or does not say what it was asked for, "
        "counts as wrong; how many could not be read is in the first table.",
        "That new words are new in every way: a made-up word is also cut into more tokens, and "
        "so longer for the model.",
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
        for novelty in options.novelty:
            if novelty not in NOVELTIES:
                raise unknown("novelty", novelty, NOVELTIES)
        for task in (TASKS[name] for name in dict.fromkeys(options.tasks)):
            # A task may have a depth of its own below those that all have.
            for depth in sorted({*options.depths, *range(task.shallowest, 1)}):
                if not isinstance(task.draw, Mapping):
                    yield from _cell(task, depth, options, task.draw)
                    continue
                for novelty in dict.fromkeys(options.novelty):
                    yield from _cell(task, depth, options, task.draw[novelty], novelty)

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
                "average over tasks, each in familiar and in new words.",
                if_readable(answers, lambda: _fall(answers)),
                unit="items",
                above=0.1,
            ),
            Claim(
                "novelty",
                "At equal depth accuracy is higher by more than 0.1 in familiar words than in new "
                "ones, on average over depths and tasks.",
                if_readable(answers, lambda: _novelty(answers)),
                unit="items",
                above=0.1,
            ),
        )

    def conclusion(self, answers: Answers, judgements: Sequence[Judgement]) -> str:
        ends = []
        for task in answers.labels("task"):
            cells = depths(answers, task)
            rates = [f"{cell.rate().estimate:.2f} (depth {d})" for d, cell in (cells[0], cells[-1])]
            ends.append(f"{task} {' to '.join(dict.fromkeys(rates))}")
        words = []
        for task, cells in both_words(answers).items():
            rates = [mean(map(rate_of, side)) for side in zip(*cells.values(), strict=True)]
            words.append(f"{task} {rates[0]:.2f} and {rates[1]:.2f}")
        both = f" At equal depth in familiar and in new words: {'; '.join(words)}." if words else ""
        return f"{verdicts(judgements)} Right: {'; '.join(ends)}.{both}"

    def sections(self, answers: Answers) -> Sequence[Section]:
        return sections(answers, shuffled(self, answers))


def _cell(
    task: Task, depth: int, options: BatteryOptions, draw: Draw, novelty: str | None = None
) -> Iterator[Question]:
    """The questions of one task and depth: all different, and more of them only add some."""
    # Not by novelty: the same questions in familiar words and in new ones.
    rng = random.Random(host_seed(options.seed, f"live/battery/{task.name}/{depth}"))
    name = f"{task.name}-{novelty}-{depth}" if novelty else f"{task.name}-{depth}"
    seen: set[str] = set()
    while len(seen) < options.items:
        for _ in range(1000):
            drawn = draw(rng, depth, len(seen))
            if drawn.prompt not in seen:
                break
        else:
            raise InvalidRequest(
                f"items={options.items}: {task.name} has no more than about {len(seen)} different "
                f"questions of depth {depth}; ask for fewer"
            )
        number = len(seen)
        columns: dict[str, Cell] = {
            "task": task.name, "novelty": novelty or drawn.detail, "depth": depth,
            "number": number, "detail": drawn.detail, "chance": task.chance,
        }  # fmt: skip
        seen.add(drawn.prompt)
        yield Question(f"{name}-{number}", drawn.prompt + ENDING, drawn.gold, columns)


def _grounded(kit: Kit, answers: Answers) -> Evidence:
    others = shuffled(kit, answers)
    if not len(others):
        raise NotTested("It takes at least two questions of the same kind and depth: --items 2.")
    own = {row.question.id: row["correct"] for row in answers}
    by_question: dict[tuple[Cell, ...], list[float]] = {}
    for row in others:
        gains = by_question.setdefault(tuple(row[name] for name in SAME), [])
        gains.append(own[row.question.id] - row["correct"])
    return mean_within([mean(gains) for gains in by_question.values()], -1, 1)


def _fall(answers: Answers) -> Evidence:
    """The mean fall in accuracy over tasks, in each kind of words for itself.

    Both kinds put the same questions, so they do not count as twice as many.
    """
    by_depth = [
        [cell for depth, cell in depths(part, task) if depth > 0]
        for task, _, part in curves(answers)
    ]
    ends = [(cells[0], cells[-1]) for cells in by_depth if len(cells) >= 2]
    if not ends:
        raise NotTested("It takes at least two depths of a task.")
    return fall(ends, SAME, ("shallowest depths", "deepest"))


def _novelty(answers: Answers) -> Evidence:
    """How much is lost by new words alone: cells of one task and depth are compared."""
    cells = [
        (task, each)
        for task, by_depth in both_words(answers).items()
        for each in by_depth.values()
        if min(map(len, each)) >= FEWEST
    ]
    if not cells:
        raise NotTested(
            "It takes five answers in familiar and five in new words, of the same task and depth."
        )
    for words in NOVELTIES:
        readable(answers.where(novelty=words), f" in {words} words")
    best = max(mean(_above_chance(task, each[side]) for task, each in cells) for side in (0, 1))
    if best < SMALL:
        raise NotTested("Hardly anything is right in either kind of words: nothing to tell apart.")
    return Evidence.of_interval(lambda level: mean_difference([each for _, each in cells], level))


def _above_chance(task: str, marks: Marks) -> float:
    chance = TASKS[task].chance
    return (rate_of(marks) - chance) / (1 - chance)
