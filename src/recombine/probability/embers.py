"""The stimuli, logs and tables of "Embers of Autoregression", read strictly and scored again.

McCoy et al. (2024): a language model undoes a cipher more often when the answer is likely text.
The accuracies kept in the published logs follow more than one rule, so answers are always scored
again from what was said. `questions` asks the same of any other model.

>>> found = log("high")  # doctest: +SKIP
>>> sum(one.contained for one in found.scores) / len(found.scores)  # doctest: +SKIP
0.51
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.errors import InvalidRequest, RecombineError, unknown
from recombine.lab.logistic import Logistic, logistic
from recombine.probability.scoring import Score, scored, unquoted

CONDITIONS: Mapping[str, str] = {
    "high": "highprob",
    "medium": "mediumprob",
    "low": "lowprob",
    "adversarial": "adversarial",
}
TASKS = ("rot13dec", "rot12dec")
MODEL = "gpt-4-0613"
PREDICTORS = ("input_logprob", "output_logprob", "input_ntokens", "output_ntokens", "input_nchars")
# What has to come out again: the reported shares of right answers of MODEL to rot-13, and what
# statsmodels' GLM makes of its table of items (estimate and standard error; of the fit and of
# nothing, the deviance).
ACCURACIES: Mapping[str, float] = {"high": 0.51, "medium": 0.22, "low": 0.13}
COEFFICIENTS: Mapping[str, tuple[float, float]] = {
    "intercept": (-1.4549, 0.2014),
    "input_logprob": (0.8315, 1.7469),
    "output_logprob": (1.9277, 0.3396),
    "input_ntokens": (-2.5684, 1.6014),
    "output_ntokens": (0.8680, 0.6047),
    "input_nchars": (2.8939, 2.0645),
}
DEVIANCES = (286.2232, 359.4840)
_STIMULUS = (
    "task_name",
    "example_type",
    "task_instruction",
    "input",
    "instruction_plus_input",
    "correct_output",
)
_LOG = ("prompts", "gts", "res")
COLUMNS = (
    "index",
    "input_nchars",
    "input_ntokens",
    "input_logprob",
    "output_nchars",
    "output_ntokens",
    "output_logprob",
    "correct",
)
_AGAIN = "get the set again with: recombine data get embers"


class BadData(RecombineError):
    """A file of the published set is missing or is not what it should be."""


@dataclass(frozen=True)
class Question:
    """A published stimulus: what to ask, and what is right."""

    task: str
    condition: str
    number: int  # the same sentence, or one made from it, has the same number everywhere
    prompt: str
    input: str
    gold: str
    original: str = ""  # of an adversarial item: the likely sentence it was made from

    @property
    def id(self) -> str:
        """A name no other question has."""
        return f"{self.task}-{self.condition}-{self.number}"


@dataclass(frozen=True)
class Log:
    """What a model was asked and what it said."""

    prompts: tuple[str, ...]
    golds: tuple[str, ...]
    answers: tuple[str, ...]

    @property
    def scores(self) -> tuple[Score, ...]:
        """Every answer scored again."""
        return tuple(scored(g, a) for g, a in zip(self.golds, self.answers, strict=True))

    @property
    def correct(self) -> Float[np.ndarray, " item"]:
        """1 where the right answer is contained in what was said."""
        return np.array([float(one.contained) for one in self.scores])


def questions(
    conditions: Sequence[str] = ("high", "medium", "low"),
    items: int = 100,
    *,
    task: str = "rot13dec",
    folder: str | Path | None = None,
) -> tuple[Question, ...]:
    """The first `items` published stimuli of each condition, for any model to answer."""
    if items < 1:
        raise InvalidRequest(f"items {items}: expected at least 1")
    found: list[Question] = []
    for condition in conditions:
        found += _stimuli(_folder(folder), task, condition)[:items]
    return tuple(found)


def score(question: Question, answer: str) -> Score:
    """The score of one answer to one question.

    >>> asked = Question("rot13dec", "high", 0, "Decode: Fgnl urer!", "Fgnl urer!", "Stay here!")
    >>> score(asked, '"Stay there!"').distance
    1
    """
    return scored(question.gold, answer)


def log(
    condition: str,
    *,
    task: str = "rot13dec",
    model: str = MODEL,
    folder: str | Path | None = None,
) -> Log:
    """The published answers of a model in one condition."""
    path = _folder(folder) / f"log_{task}_{_known(condition)}_{model}.json"
    try:
        document = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise BadData(f"{path}, line {error.lineno}: not JSON ({error.msg}); {_AGAIN}") from None
    if not isinstance(document, dict):
        raise BadData(f"{path}: expected one JSON object with {', '.join(_LOG)}; {_AGAIN}")
    columns = []
    for name in _LOG:
        if name not in document:
            raise BadData(f"{path}: the field {name!r} is missing; {_AGAIN}")
        column = document[name]
        if not isinstance(column, list) or not all(isinstance(one, str) for one in column):
            raise BadData(f"{path}: the field {name!r} is not a list of texts; {_AGAIN}")
        columns.append(tuple(column))
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        sizes = ", ".join(f"{len(c)} {name}" for name, c in zip(_LOG, columns, strict=True))
        raise BadData(f"{path}: {sizes}; expected as many of each, at least one; {_AGAIN}")
    prompts, golds, answers = columns
    return Log(prompts, tuple(unquoted(gold) for gold in golds), answers)


def item_table(
    *, task: str = "rot13dec", model: str = MODEL, folder: str | Path | None = None
) -> dict[str, Float[np.ndarray, " item"]]:
    """The published table of a model's items, by column: lengths, log-probabilities, correct."""
    path = _folder(folder) / f"table_{task}_{model}.tsv"
    lines = _lines(path)
    header = tuple(lines[0].split("\t")) if lines else ()
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise BadData(f"{path}, line 1: the column {missing[0]!r} is missing; {_AGAIN}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("\t")
        try:
            row = [float(cell) for cell in cells]
        except ValueError:
            row = []
        if len(row) != len(header) or not np.isfinite(row).all():
            raise BadData(f"{path}, line {number}: expected {len(header)} numbers; {_AGAIN}")
        rows.append(row)
    if not rows:
        raise BadData(f"{path}: no items below the header; {_AGAIN}")
    table = dict(zip(header, np.array(rows).T, strict=True))
    wrong = np.flatnonzero(~np.isin(table["correct"], (0.0, 1.0)))
    if wrong.size:
        raise BadData(f"{path}, line {wrong[0] + 2}: 'correct' is neither 0 nor 1; {_AGAIN}")
    return {name: table[name] for name in COLUMNS}


def regression(table: Mapping[str, Float[np.ndarray, " item"]]) -> Logistic:
    """The published regression of `correct` on z-scored log-probabilities and lengths."""
    columns = np.column_stack([table[name] for name in PREDICTORS])
    return logistic(table["correct"], columns, PREDICTORS)


def _stimuli(folder: Path, task: str, condition: str) -> list[Question]:
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    path = folder / f"{task}_{_known(condition)}.jsonl"
    rows = [_row(path, n, line) for n, line in enumerate(_lines(path), start=1)]
    if not rows:
        raise BadData(f"{path}: no stimuli; {_AGAIN}")
    originals = [""] * len(rows)
    if condition == "adversarial":
        originals = [question.gold for question in _stimuli(folder, task, "high")]
        if len(originals) != len(rows):
            raise BadData(
                f"{path}: {len(rows)} stimuli made from {len(originals)} likely ones; {_AGAIN}"
            )
    return [
        Question(
            task,
            condition,
            number,
            row["instruction_plus_input"],
            row["input"],
            row["correct_output"],
            original,
        )
        for number, (row, original) in enumerate(zip(rows, originals, strict=True))
    ]


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadData(f"{path}, line {number}: not JSON ({error.msg}); {_AGAIN}") from None
    if not isinstance(row, dict):
        raise BadData(f"{path}, line {number}: expected a JSON object; {_AGAIN}")
    for name in _STIMULUS:
        if name not in row:
            raise BadData(f"{path}, line {number}: the field {name!r} is missing; {_AGAIN}")
        if not isinstance(row[name], str) or not row[name]:
            raise BadData(f"{path}, line {number}: the field {name!r} is not a text; {_AGAIN}")
    if row["input"] not in row["instruction_plus_input"]:
        raise BadData(f"{path}, line {number}: the prompt does not hold the input; {_AGAIN}")
    return row


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadData(f"{path}: no such file; {_AGAIN}") from None
    except UnicodeDecodeError:
        raise BadData(f"{path}: not UTF-8 text; {_AGAIN}") from None
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror}); {_AGAIN}") from None


def _lines(path: Path) -> list[str]:
    # Not splitlines: it takes some characters that a sentence may hold for a line's end.
    text = _text(path).replace("\r\n", "\n").removesuffix("\n")
    return text.split("\n") if text else []


def _known(condition: str) -> str:
    if condition not in CONDITIONS:
        raise unknown("condition", condition, CONDITIONS)
    return CONDITIONS[condition]


def _folder(given: str | Path | None) -> Path:
    if given is not None:
        return Path(given)
    from recombine.data import located

    return located("embers")
