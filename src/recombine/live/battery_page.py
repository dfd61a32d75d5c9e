"""What the page of the battery shows: accuracy by task, kind of words and depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recombine.live.battery_tasks import FAMILIAR, NEW, TASKS
from recombine.live.differences import Marks, mean_difference, rate_of, right_of
from recombine.live.kit import Answers, rates_table
from recombine.report.document import Cell, Section, Table
from recombine.report.figures import Panel, Series, panels

WRONG_SHOWN = 6
CHARACTERS_SHOWN = 160
DETAILS = (
    ("grammar", "A made-up language, by novelty", ("detail",)),
    ("logic", "Logic, by the right answer", ("detail", "depth")),
    ("strings", "Strings at depth 1, by operation", ("detail",)),
)


def sections(answers: Answers, control: Answers) -> list[Section]:
    """The page; `control` are the same answers marked against the gold of other questions."""
    found = [
        Section(
            "Accuracy by depth",
            "Each point is the share of questions answered exactly right. Beside it: what blind "
            "guessing would get, the same answers marked against the gold of other questions, and "
            "what would be left if every further step failed as often as the first, independently "
            "(the accuracy at depth 1, above chance, to the power of the depth). Intervals are "
            "exact (Clopper and Pearson), over items. A task that is put in familiar words and in "
            "new ones has a line for each; what stands beside them is of both.",
            figures=[_figure(answers, control)],
            tables=[_accuracy(answers)],
        )
    ]
    if both_words(answers):
        found.append(
            Section(
                "Familiar words and new ones, at equal depth",
                "The same questions but for the words: what people are by calling against made-up "
                "kinds, operations on lists under their usual names against made-up ones, common "
                "words against as many random letters. What differs within a row is novelty, what "
                "differs between rows of a task is depth.",
                tables=[_gaps(answers)],
            )
        )
    found.append(
        Section(
            "Where it falls below one half",
            "The first depth at which less than half of the way from chance to perfect is left: an "
            "accuracy of 0.5, or of 0.75 where guessing gets 0.5.",
            tables=[_below_half(answers)],
        )
    )
    for task, title, columns in DETAILS:
        part = answers.where(task=task)
        if task == "strings":
            part = part.where(depth=1)
        if len(part):
            found.append(Section(title, tables=[rates_table(part, columns, title=title)]))
    if wrong := [row for row in answers if row["correct"] != 1]:
        found.append(Section("Some wrong answers", tables=[_wrong(wrong)]))
    return found


def depths(answers: Answers, task: str) -> list[tuple[int, Answers]]:
    """The answers of a task by depth, shallowest first."""
    part = answers.where(task=task)
    return [(depth, part.where(depth=depth)) for depth in sorted(set(part.values("depth")))]


def curves(answers: Answers) -> list[tuple[str, str | None, Answers]]:
    """(task, kind of words, answers): what has accuracies by depth of its own."""
    found: list[tuple[str, str | None, Answers]] = []
    for task in answers.labels("task"):
        part = answers.where(task=task)
        if isinstance(TASKS[task].draw, Mapping):
            found += [(task, word, part.where(novelty=word)) for word in part.labels("novelty")]
        else:  # here what is new goes with the depth
            found.append((task, None, part))
    return found


def both_words(answers: Answers) -> dict[str, dict[int, tuple[Marks, Marks]]]:
    """By task and depth, where there are both: right in familiar words, and in new ones."""
    found: dict[str, dict[int, tuple[Marks, Marks]]] = {}
    for task in answers.labels("task"):
        for depth, cell in depths(answers, task):
            familiar, new = (cell.where(novelty=word) for word in (FAMILIAR, NEW))
            if len(familiar) and len(new):
                found.setdefault(task, {})[depth] = right_of(familiar), right_of(new)
    return found


def _figure(answers: Answers, control: Answers) -> Any:
    drawn = []
    for task in answers.labels("task"):
        cells = depths(answers, task)
        x = [float(depth) for depth, _ in cells]
        chance = TASKS[task].chance
        first = {depth: cell.rate().estimate for depth, cell in cells}.get(1)
        left = None if first is None else max(0.0, (first - chance) / (1 - chance))
        exchanged = {depth: cell.rate().estimate for depth, cell in depths(control, task)}
        others = [exchanged.get(depth) for depth, _ in cells]
        expected = [None if left is None else chance + (1 - chance) * left**d for d in x]
        own = [(word, part) for name, word, part in curves(answers) if name == task]
        shown = [
            *(_line(f"right, {word} words" if word else "right", task, part) for word, part in own),
            Series("shuffled gold", x, others),
            Series("independent errors", x, expected),
            Series("chance", x, [chance] * len(x)),
        ]  # fmt: skip
        drawn.append(Panel(f"{task} ({TASKS[task].depth})", shown))
    return panels("Accuracy by depth", "depth", "share right", drawn, y_range=(-0.03, 1.03))


def _line(name: str, task: str, answers: Answers) -> Series:
    cells = depths(answers, task)
    rates = [cell.rate() for _, cell in cells]
    return Series(name, [float(depth) for depth, _ in cells], [r.estimate for r in rates],
                  [r.low for r in rates], [r.high for r in rates])  # fmt: skip


def _accuracy(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task, _, part in curves(answers):
        for depth, cell in depths(part, task):
            rate = cell.rate()
            read = cell.rate("parsed").estimate
            rows.append(
                (task, cell[0]["novelty"], depth, rate.estimate, rate.low, rate.high,
                 TASKS[task].chance, read, len(cell))
            )  # fmt: skip
    columns = ("task", "novelty", "depth", "right", "low", "high", "chance", "could be read",
               "items")  # fmt: skip
    return Table("Accuracy by task, novelty and depth", columns, rows)


def _gaps(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task, by_depth in both_words(answers).items():
        for depth, cells in by_depth.items():
            gap = mean_difference([cells])
            rates = (rate_of(marks) for marks in cells)
            rows.append((task, depth, *rates, gap.estimate, gap.low, gap.high, gap.units))
    columns = ("task", "depth", FAMILIAR, NEW, "lost", "low", "high", "items")
    note = "Intervals of what is lost by new words are Agresti and Caffo's."
    return Table("Familiar words and new ones, at equal depth", columns, rows, note)


def _below_half(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task, word, part in curves(answers):
        half = (1 + TASKS[task].chance) / 2
        cells = [(depth, cell.rate()) for depth, cell in depths(part, task)]
        first = next((depth for depth, rate in cells if rate.estimate < half), None)
        sure = next((depth for depth, rate in cells if rate.high < half), None)
        rows.append((task, word, half, first, sure, cells[-1][0]))
    columns = ("task", "words", "half way", "first below", "first surely below", "deepest asked")
    note = (
        "Surely: the whole interval is below. A dash: not at any depth asked, or words of one kind."
    )
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
