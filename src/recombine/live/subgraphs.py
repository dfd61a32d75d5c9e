"""Products, best subsequences and puzzles by size, put to a language model, with steps or without.

After "Faith and Fate" (Dziri et al., 2023). Steps are asked for in a strict form, one JSON object a
line, so that each can be judged; what does not keep to it is a class of its own and not guessed at.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from typing import Any

from recombine.errors import InvalidRequest, unknown
from recombine.families._zebra_solver import draw_puzzle
from recombine.families._zebra_text import LARGEST, english, renamed
from recombine.families.zebra import Zebra
from recombine.graphs.errors import LABELS, label
from recombine.graphs.graph import ComputationGraph, Written
from recombine.graphs.workings import workings_of
from recombine.lab.study import Claim, Evidence, NotTested
from recombine.live.differences import fall
from recombine.live.kit import (
    Answers,
    Kit,
    Options,
    Question,
    enough,
    if_readable,
    rates_table,
    share,
)
from recombine.live.parsing import final, numbers, whole_number
from recombine.report.document import Cell, Section, Table
from recombine.report.figures import Panel, Series, panels
from recombine.seeds import host_seed

PRODUCTS, LISTS, PUZZLES = "multiplication", "subsequence", "zebra"
ANSWER, STEPS = "answer", "steps"
SCORES = ("correct", "parsed", "lined_up", "first_digit", "last_digit", "middle", *LABELS)
CLUES = ("at", "same", "left", "beside")
REACH = 5
MOST_DIGITS, MOST_NUMBERS = 6, 18
TRIES = 1000  # draws in a row that were all drawn before, after which there are no others
PLACES_JUDGED = 3  # digits of a product that has a first, a last and a middle
OF_WRONG = "Of wrong products with the right number of digits"
ENDING = "\nThink as long as you need, and end with one line of the form\nANSWER: "
RULES = {
    PRODUCTS: "Multiply the two numbers.",
    LISTS: (
        "Choose numbers from the list, no two of them neighbours, so that their sum is as large as "
        "it can be; choosing none is allowed, with sum 0. Mark each number with 1 if it is chosen "
        "and 2 if not; if several choices are best, give the list of marks that comes first in "
        "order."
    ),
}
# Each shows every step that larger ones have: here carries from a product and from a sum, also of
# nothing, and a row that is shifted.
EXAMPLES = {PRODUCTS: "235*91", LISTS: "3 -2 5"}
PLACES = (
    " Digits are counted from 0 at the units: [i,j] is digit i of the first number with digit j of "
    "the second. A carry of 0 is a step, too."
)
# A step, also one that was cut short; a whole one named "answer" is not.
_STEP = re.compile(r"""\{(?=\s*["'])(?![^{}]*["']answer["'][^{}]*\})[^{}]*(?:\}|\Z)""")
_NAMED = re.compile(r"\banswer\b|\\boxed", re.IGNORECASE)
FORM = (
    "Write every step as one JSON object on a line of its own, with the name of the step and its "
    "value, in the order and with the names of this example, and nothing else."
)


@dataclass(frozen=True)
class SubgraphOptions(Options):
    """Which tasks at which sizes, in which forms, and how many questions of each."""

    items: int = 10
    tasks: tuple[str, ...] = (PRODUCTS, LISTS, PUZZLES)
    forms: tuple[str, ...] = (ANSWER, STEPS)
    products: tuple[str, ...] = ("1x1", "2x2", "3x3", "4x4")
    lengths: tuple[int, ...] = (3, 5, 7, 10)
    puzzles: tuple[str, ...] = ("2x2", "3x3", "4x4")


class Subgraphs(Kit):
    """Whether a language model carries a computation through as it grows."""

    name = "subgraphs"
    question = (
        "How does a language model's accuracy fall as a computation gets deeper and wider, and "
        "where in its steps do errors begin?"
    )
    source = "Dziri et al., Faith and Fate: limits of transformers on compositionality, 2023"
    options = SubgraphOptions()
    longest = 4096
    within = ("task", "size", "form")
    not_shown = (
        "What the model saw in training: frequencies of subgraphs are known for networks trained "
        "here (study subgraphs), not for a model behind an endpoint.",
        "Why an answer is wrong where no steps were asked for.",
        "That tasks are comparable with one another: sizes mean other things in each.",
        "Steps in words of the model's own: what does not keep to the form is counted as "
        "unparseable, and its answer is judged if it gives one.",
    )

    def questions(self, options: SubgraphOptions) -> Iterator[Question]:
        for task in options.tasks:
            if task not in (PRODUCTS, LISTS, PUZZLES):
                raise unknown("task", task, (PRODUCTS, LISTS, PUZZLES))
        for form in options.forms:
            if form not in (ANSWER, STEPS):
                raise unknown("form", form, (ANSWER, STEPS))
        for task in dict.fromkeys(options.tasks):
            for size in _sizes(task, options):
                for form in dict.fromkeys(options.forms):
                    if task != PUZZLES or form == ANSWER:
                        yield from _cell(task, size, form, options)

    def score(self, question: Question, answer: str) -> dict[str, float]:
        task, form = question.columns["task"], question.columns["form"]
        source = str(question.columns["source"])
        found: dict[str, float] = dict.fromkeys(SCORES, 0.0)
        said = _said(str(task), _after_steps(answer) if form == STEPS else answer)
        if form == STEPS:
            graph = workings_of(str(task)).graph(source)
            written = read_steps(graph, answer)
            names = label(graph, written)
            made = [name for name, node in zip(names, graph.nodes, strict=True) if node.parents]
            found.update({name: made.count(name) / len(made) for name in LABELS})
            if written is not None and "answer" in written:
                said = _as_gold(str(task), written["answer"])
        found["correct"] = float(said is not None and said == question.gold)
        found["parsed"] = float(said is not None)
        if task == PRODUCTS and said is not None:
            found.update(_digits(question.gold, said))
        return found

    def solve(self, question: Question) -> str:
        task, form = str(question.columns["task"]), question.columns["form"]
        if form == STEPS:
            return write_steps(workings_of(task).graph(str(question.columns["source"])))
        return f"ANSWER: {question.gold}"

    def claims(self, answers: Answers) -> Sequence[Claim]:
        return (
            Claim("accuracy falls with size",
                  "Accuracy falls by more than .1 from the smallest to the largest size asked, "
                  "mean over tasks and forms", if_readable(answers, lambda: _falls(answers)),
                  unit="items", above=0.1),
            Claim("last digits", f"{OF_WRONG}, at least .9 have the last digit right",
                  lambda _: _of_wrong(answers, "last_digit"), unit="items", at_least=0.9),
            Claim("first digits", f"{OF_WRONG}, at least .6 have the first digit right",
                  lambda _: _of_wrong(answers, "first_digit"), unit="items", at_least=0.6),
            Claim("middle digits",
                  f"{OF_WRONG}, at most .5 have all digits between first and last right",
                  lambda _: _of_wrong(answers, "middle"), unit="items", at_most=0.5),
        )  # fmt: skip

    def sections(self, answers: Answers) -> Sequence[Section]:
        found = [
            Section(
                "Accuracy by size",
                "Each point is the share of questions answered exactly right. An answer that could "
                "not be read counts as wrong; how many could is in the table.",
                figures=[_figure(answers)],
                tables=[
                    rates_table(answers, ("task", "form", "size", "depth"), "correct",
                                "Right by task, form and size"),
                    rates_table(answers, ("task", "form", "size"), "parsed", "Could be read"),
                ],
            )
        ]  # fmt: skip
        if table := _errors(answers):
            found.append(
                Section(
                    "Where errors begin",
                    "Every step that was asked for is correct (with all it is made of), a "
                    "restoration (right though something before it is not), a propagation (follows "
                    "from a wrong one), a local error, missing, or part of an answer of which no "
                    "step could be read.",
                    tables=[table],
                )
            )
        return found


def write_steps(graph: ComputationGraph) -> str:
    """The steps of a computation in the form that is asked for.

    >>> print(write_steps(workings_of("multiplication").graph("7*9")).splitlines()[0])
    {"step": "product[0,0]", "value": 63}
    """
    return "\n".join(
        json.dumps({"step": node.name, "value": node.value}) for node in graph.nodes if node.parents
    )


def read_steps(graph: ComputationGraph, answer: str) -> Written:
    """What an answer says each step is; None if not a single line keeps to the form.

    A value that is no value of its step (a word for a number) is as good as not written.
    """
    found: dict[str, Hashable] = {}
    for line in answer.splitlines():
        if not line.strip().startswith("{"):
            continue
        try:
            step = json.loads(line.strip().rstrip(","))
        except (ValueError, RecursionError):
            continue
        if not isinstance(step, dict) or step.keys() != {"step", "value"}:
            continue
        place = graph.places.get(step["step"]) if isinstance(step["step"], str) else None
        if place is not None and graph.nodes[place].parents:
            value, wanted = step["value"], graph.nodes[place].value
            if isinstance(wanted, str) and type(value) is int:
                value = str(value)
            if type(value) is type(wanted):
                found[step["step"]] = value
    return found or None


def _after_steps(answer: str) -> str:
    """Where to look for the final answer, so that the last of some steps is not taken for it.

    All of a text without steps; after steps, only what is called the answer.
    """
    steps = list(_STEP.finditer(answer))
    rest = answer[steps[-1].end() :] if steps else answer
    return rest if not steps or _NAMED.search(rest) else ""


def _sizes(task: str, options: SubgraphOptions) -> Sequence[str]:
    if task == LISTS:
        for n in options.lengths:
            if not 1 <= n <= MOST_NUMBERS:
                raise InvalidRequest(f"lengths={n}: expected 1 to {MOST_NUMBERS}")
        return [str(n) for n in dict.fromkeys(options.lengths)]
    most, least = (MOST_DIGITS, 1) if task == PRODUCTS else (LARGEST, 2)
    name, sizes = ("products", options.products) if task == PRODUCTS else ("puzzles", options.puzzles)  # fmt: skip  # noqa: E501
    for size in sizes:
        sides = size.split("x")
        if len(sides) != 2 or not all(s.isdecimal() and least <= int(s) <= most for s in sides):
            raise InvalidRequest(
                f"{name}={size}: expected two numbers from {least} to {most}, such as 3x3"
            )
    return list(dict.fromkeys(sizes))


def _cell(task: str, size: str, form: str, options: SubgraphOptions) -> Iterator[Question]:
    # The same questions in both forms, so that these can be compared.
    for number, source in enumerate(_sources(task, size, options)):
        depth: Cell = None
        if task == PUZZLES:
            gold, asked = Zebra().solve(source), english(source)
            prompt = f"{asked}{ENDING}the table"
        else:
            graph = workings_of(task).graph(source)
            gold, depth = _as_gold(task, graph.answer), graph.depth
            prompt = f"{RULES[task]}\n{source}{ENDING}{'the product' if task == PRODUCTS else 'the marks'}"  # fmt: skip  # noqa: E501
            if form == STEPS:
                example = EXAMPLES[task]
                shown = write_steps(workings_of(task).graph(example))
                form_of = f"{FORM}{PLACES if task == PRODUCTS else ''}"
                prompt = (
                    f"{RULES[task]} {form_of}\n\nExample: {example}\n{shown}\n\nNow do: {source}"
                )
        columns = {"task": task, "size": size, "form": form, "depth": depth, "source": source}
        yield Question(f"{task}-{size}-{form}-{number}", prompt, gold, columns)


def _sources(task: str, size: str, options: SubgraphOptions) -> Iterator[str]:
    """What is asked of one task and size: all different, and more of them only add some."""
    roll = random.Random(host_seed(options.seed, f"live/subgraphs/{task}/{size}"))
    seen: set[str] = set()
    while len(seen) < options.items:
        found = (_drawn(task, size, roll) for _ in range(TRIES))
        source = next((one for one in found if one not in seen), None)
        if source is None:
            raise InvalidRequest(
                f"items={options.items}: {task} has no more than about {len(seen)} different "
                f"questions of size {size}; ask for fewer, or leave this size out"
            )
        seen.add(source)
        yield source


def _drawn(task: str, size: str, roll: random.Random) -> str:
    if task == LISTS:
        return " ".join(str(roll.randint(-REACH, REACH)) for _ in range(int(size)))
    first, second = (int(side) for side in size.split("x"))
    if task == PRODUCTS:
        x, y = (roll.randint(10 ** (n - 1), 10**n - 1) for n in (first, second))
        return f"{x}*{y}"
    puzzle = draw_puzzle(roll, first, second, CLUES)
    if puzzle is None:
        raise InvalidRequest(f"puzzles={size}: no puzzle of this size has one solution")
    return renamed(puzzle, roll).source()


def _as_gold(task: str, answer: Hashable) -> str:
    return str(answer) if task == PRODUCTS else " ".join(str(answer))


def _said(task: str, answer: str) -> str | None:
    """The final answer in the form of the gold one; None if there is none to be read.

    Too few or too many marks are read, and wrong: to lose count is one way to fail.
    """
    if task == PUZZLES:
        # The form shows values in brackets, and some keep these.
        table = final(answer).lower().rstrip("; ")
        rows = [" ".join(re.findall(r"\w+", row)) for row in table.split(";")]
        return " ; ".join(rows) if len(rows) > 1 else None  # a sentence, or one row, is no table
    if task == PRODUCTS:
        product = whole_number(answer)
        return None if product is None else str(product)
    found = numbers(answer)
    return _as_gold(task, "".join(map(str, found))) if found else None


def _digits(gold: str, said: str) -> dict[str, float]:
    """Which digits are right, of answers with as many as the product has: others do not line up.

    Zeros in front are no part of either, so that a short answer has no first digit by padding.
    """
    if len(said) != len(gold):
        return {}
    marks = [a == b for a, b in zip(gold, said, strict=True)]
    return {"lined_up": 1.0, "first_digit": float(marks[0]), "last_digit": float(marks[-1]),
            "middle": float(all(marks[1:-1]))}  # fmt: skip


def _of_wrong(answers: Answers, score: str) -> Evidence:
    wrong = [r for r in answers.where(task=PRODUCTS)
             if r["correct"] == 0 and r["lined_up"] == 1 and not r.answer.cut
             and len(r.question.gold) >= PLACES_JUDGED]  # fmt: skip
    # Asked in two forms it is one product: what both answers have in common does not add up.
    by_product: dict[str, list[bool]] = {}
    for row in wrong:
        by_product.setdefault(row["source"], []).append(row[score] == 1)
    products = len(by_product)
    enough(products, "wrong products that could be read and have the right number of digits")
    right = sum(map(mean, by_product.values()))
    return Evidence.of_interval(lambda level: share(right, products, level))


def _falls(answers: Answers) -> Evidence:
    """The mean fall over tasks and forms, from the smallest size to the largest.

    Both forms ask the same questions, so they do not count as twice as many.
    """
    ends = []
    for task in answers.labels("task"):
        for form in answers.where(task=task).labels("form"):
            cells = answers.where(task=task, form=form)
            named = cells.labels("size")
            if len(named) >= 2:
                ends.append((cells.where(size=named[0]), cells.where(size=named[-1])))
    if not ends:
        raise NotTested("It takes at least two sizes of a task.")
    return fall(ends, ("task", "source"), ("smallest sizes", "largest"))


def _figure(answers: Answers) -> Any:
    drawn = []
    for task in answers.labels("task"):
        lines = []
        for form in answers.where(task=task).labels("form"):
            cells = answers.where(task=task, form=form)
            named = cells.labels("size")
            rates = [cells.where(size=size).rate() for size in named]
            x = [math.prod(int(side) for side in size.split("x")) for size in named]
            lines.append(Series(form, x, [r.estimate for r in rates], [r.low for r in rates],
                                [r.high for r in rates]))  # fmt: skip
        drawn.append(Panel(task, lines))
    return panels("Accuracy by size", "size (numbers, or rows times columns)", "share right", drawn,
                  y_range=(-0.03, 1.03))  # fmt: skip


def _errors(answers: Answers) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    steps = answers.where(form=STEPS)
    for task in steps.labels("task"):
        for size in steps.where(task=task).labels("size"):
            part = steps.where(task=task, size=size)
            rows.append((task, size, *(part.mean(name) for name in LABELS), len(part)))
    columns = ("task", "size", *LABELS, "items")
    return Table("Steps by what became of them", columns, rows) if rows else None
