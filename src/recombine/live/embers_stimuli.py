"""Where the questions of `embers` come from: the published set, a user's file, a trained network.

All give the same columns: `task`, `condition`, `sentence` (the same for items that were made of one
sentence), `input`, `twin` (the likely sentence an adversarial item was made from, or the
adversarial one made from a likely sentence), and as far as they are known the log-probabilities and
lengths of the published regression, with who told them (`told_by`).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Item
from recombine.live.kit import Question
from recombine.live.model import Taught
from recombine.probability import embers
from recombine.probability.scoring import unquoted
from recombine.report.document import Cell
from recombine.seeds import host_seed

CONDITIONS = tuple(embers.CONDITIONS)
HIGH, MEDIUM, LOW, ADVERSARIAL = CONDITIONS
FIELDS = ("task_name", "example_type", "instruction_plus_input", "correct_output")
LIKELIHOODS = ("input_logprob", "output_logprob")
PREDICTORS = (*LIKELIHOODS, "input_ntokens", "output_ntokens", "input_nchars")
# A frequent way of doing the same and a rare one: of the published set, and of networks that
# learnt `strings`.
FREQUENT_AND_RARE = (("rot13dec", "rot12dec"), ("decode common", "decode rare"))
GPT2 = "GPT-2 XL, as published"


@dataclass(frozen=True)
class Stimulus:
    """One item, wherever it comes from."""

    task: str
    condition: str
    sentence: int | str
    prompt: str
    input: str
    gold: str
    original: str = ""
    likelihood: tuple[tuple[str, float], ...] = ()
    told_by: str = ""


def published(tasks: Sequence[str], conditions: Sequence[str]) -> list[Stimulus]:
    """The published stimuli; those of rot-13 with the published log-probabilities and lengths."""
    found = []
    for task in tasks or embers.TASKS:
        for condition in conditions:
            if (task, condition) == ("rot12dec", ADVERSARIAL):
                continue  # there are none
            known = _published_likelihood(task, condition)
            for number, one in enumerate(embers.questions([condition], 10**6, task=task)):
                likelihood = known[number] if number < len(known) else {}
                if likelihood and likelihood["input_nchars"] != len(one.input):
                    raise InvalidRequest(
                        f"the table of {task} does not belong to its stimuli ({condition} item "
                        f"{number}): recombine data get embers"
                    )
                found.append(
                    Stimulus(
                        task, condition, number, one.prompt, one.input, one.gold, one.original,
                        tuple(likelihood.items()), GPT2 if likelihood else "",
                    )
                )  # fmt: skip
    return found


def _published_likelihood(task: str, condition: str) -> list[dict[str, float]]:
    tabulated = (HIGH, MEDIUM, LOW)
    if task != "rot13dec" or condition not in tabulated:
        return []
    table = embers.item_table(task=task)
    size = len(table["index"]) // len(tabulated)
    start = tabulated.index(condition) * size
    return [
        {name: float(table[name][place]) for name in PREDICTORS}
        for place in range(start, start + size)
    ]


def of_files(paths: Iterable[str]) -> list[Stimulus]:
    """Stimuli of one's own, as JSON lines with the fields of the published files.

    Further fields may be `input` (what is to be worked on, where the prompt says more), `pair` (the
    same for items made of one sentence; without it, the n-th items of all conditions),
    `original` (of adversarial items), `input_logprob` and `output_logprob`.
    """
    found: dict[tuple[str, str, int | str], Stimulus] = {}
    where: dict[tuple[str, str, int | str], str] = {}
    count: dict[tuple[str, str], int] = {}
    for path in paths:
        for number, line in enumerate(_text(path).split("\n"), start=1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            one = _stimulus(place, line, count)
            key = (one.task, one.condition, one.sentence)
            if key in found:
                raise InvalidRequest(
                    f"{place}: the field 'pair' has {one.sentence!r} again for {one.task} "
                    f"{one.condition} (before: {where[key]}); expected each once"
                )
            found[key], where[key] = one, place
    if not found:
        raise InvalidRequest(f"{', '.join(paths)}: no stimuli; {_NEEDED}")
    return list(found.values())


_NEEDED = f"every line is a JSON object with the fields {', '.join(FIELDS)}"


def _text(path: str) -> str:
    try:
        # Some editors begin a file with a mark of its encoding.
        return Path(path).read_text("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path}: not UTF-8 text; {_NEEDED}") from None
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read ({error.strerror}); {_NEEDED}") from None


def _stimulus(place: str, line: str, count: dict[tuple[str, str], int]) -> Stimulus:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        told = getattr(error, "msg", "nested too deeply")
        raise InvalidRequest(f"{place}: not JSON ({told}); {_NEEDED}") from None
    if not isinstance(row, dict):
        raise InvalidRequest(f"{place}: expected a JSON object; {_NEEDED}")
    for name in FIELDS:
        if name not in row:
            raise InvalidRequest(f"{place}: the field {name!r} is missing; {_NEEDED}")
    for name in (*FIELDS, "input", "original"):
        if name in row and not (isinstance(row[name], str) and row[name].strip()):
            raise InvalidRequest(f"{place}: the field {name!r} is {row[name]!r}: expected a text")
    if not unquoted(row["correct_output"]):
        raise InvalidRequest(
            f"{place}: the field 'correct_output' holds nothing but quotation marks"
        )
    task = str(row["task_name"])
    kind = str(row["example_type"])
    condition = _SHORT.get(kind, kind)
    nth = count.get((task, condition), 0)
    count[task, condition] = nth + 1
    sentence = row.get("pair", nth)
    if not isinstance(sentence, int | str) or isinstance(sentence, bool):
        raise InvalidRequest(
            f"{place}: the field 'pair' is {sentence!r}: expected a number or a text"
        )
    likelihood = []
    for name in LIKELIHOODS:
        value = row.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise InvalidRequest(f"{place}: the field {name!r} is {value!r}: expected a number")
        likelihood.append((name, float(value)))
    prompt = row["instruction_plus_input"]
    return Stimulus(
        task, condition, sentence, prompt, row.get("input", prompt), row["correct_output"],
        row.get("original", ""), tuple(likelihood), "the file" if likelihood else "",
    )  # fmt: skip


_SHORT = {long: short for short, long in embers.CONDITIONS.items()}


def of_network(model: Taught, tasks: Sequence[str], conditions: Sequence[str]) -> list[Stimulus]:
    """The items of a trained network's own family that come in likely and unlikely conditions."""
    told: dict[str, dict[str, list[Item]]] = {}
    for split, items in model.items().items():
        for item in items if split not in (TRAIN, TEST, VALIDATION) else ():
            task, _, condition = item.part.rpartition(" ")
            if task and condition in CONDITIONS:
                told.setdefault(task, {}).setdefault(condition, []).append(item)
    if not told:
        raise InvalidRequest(
            f"{model.identity}: its family {model.family.name!r} has no likely and unlikely "
            "answers; give questions in words it knows with --set stimuli=FILE"
        )
    usual = next((pair for pair in FREQUENT_AND_RARE if set(pair) <= set(told)), tuple(told))
    likely = getattr(model.family, "log_probabilities", None)
    found = []
    for task in tasks or usual:
        if task not in told:
            raise unknown("task", task, told)
        for condition in conditions:
            if condition not in CONDITIONS:
                raise unknown("condition", condition, CONDITIONS)
            for number, item in enumerate(told[task].get(condition, ())):
                pair = () if likely is None else zip(LIKELIHOODS, likely(item), strict=True)
                found.append(
                    Stimulus(
                        task, condition, number, item.source, item.source, item.target, "",
                        tuple(pair), "" if likely is None else "the language it was taught",
                    )
                )  # fmt: skip
    return found


def asked(stimuli: Sequence[Stimulus], items: int, seed: int) -> Iterator[Question]:
    """Questions about `items` sentences, the same in every condition; more only add some."""
    sentences = list(dict.fromkeys(one.sentence for one in stimuli))
    random.Random(host_seed(seed, "live/embers")).shuffle(sentences)
    chosen = set(sentences[:items])
    golds = {(one.task, one.condition, one.sentence): one.gold for one in stimuli}
    for one in stimuli:
        if one.sentence not in chosen:
            continue
        twin = one.original
        if one.condition in (HIGH, ADVERSARIAL):
            other = ADVERSARIAL if one.condition == HIGH else HIGH
            twin = twin or golds.get((one.task, other, one.sentence), "")
        known = {"input_nchars": float(len(one.input)), **dict(one.likelihood)}
        columns: dict[str, Cell] = {
            "task": one.task, "condition": one.condition, "sentence": one.sentence,
            "input": one.input, "twin": twin, "told_by": one.told_by,
            **{name: known.get(name) for name in PREDICTORS},
        }  # fmt: skip
        name = f"{one.task}-{one.condition}-{one.sentence}"
        yield Question(name, one.prompt, one.gold, columns)


def told_again(questions: Sequence[Question], model: Any, name: str) -> list[Question]:
    """The same questions with log-probabilities by a model that tells those of any text.

    It does not say how many tokens a text has, so those columns are left empty.
    """
    texts = [(str(q.columns["input"]), q.gold) for q in questions]
    distinct = list(dict.fromkeys(text for pair in texts for text in pair))
    likely = dict(zip(distinct, model.log_probability(distinct), strict=True))
    tokens: dict[str, Cell] = {"input_ntokens": None, "output_ntokens": None, "told_by": name}
    return [
        replace(q, columns={
            **q.columns, **tokens, "input_logprob": likely[given], "output_logprob": likely[gold],
        })
        for q, (given, gold) in zip(questions, texts, strict=True)
    ]  # fmt: skip
