"""What a card asks of a model: its answers, answers to changed rows, and its activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recombine.adapters.isolation import Checked, Problem, checked
from recombine.adapters.models import OwnModel
from recombine.cards.swaps import About, Swap, contexts, found_pairs, made_pairs, read_swap
from recombine.errors import NotApplicable, RecombineError
from recombine.seeds import host_seed
from recombine.tables.rows import Rows

Record = Mapping[str, Any]
Say = Callable[[str], None]
WHOLE = "answer"  # what an answer that has no parts is called
NOT_ASKED = "not asked"  # the kind of problem that `checked` tells of rows it left out
SAME = 300  # rows in a row that end in the same words, after which no further one is asked
SILENT = 2_000  # and rows in a row without an answer for whatever reason


@dataclass(frozen=True, eq=False)
class Answered:
    """A model's answers, row by row (None where there is none), and what went wrong."""

    answers: list[Any]
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    not_asked: int = 0  # rows that were left when the model was given up

    @property
    def told(self) -> np.ndarray:
        """Which rows have an answer."""
        return np.array([answer is not None for answer in self.answers], bool)


def ask(
    model: OwnModel, records: Sequence[Record], names: Sequence[str], *, batch: int,
    timeout: float, say: Say, seed: int = 0,
) -> Answered:  # fmt: skip
    """All answers; what a user's adapter does wrong is told and costs only its own rows.

    Rows are asked in an order that is drawn at random: files are often sorted by combination, and
    what happens to their first rows says nothing of the others. `checked` ends after a few batches
    without an answer; whether that is enough to give up is decided here.
    """
    order = np.random.default_rng(host_seed(seed, "card/order")).permutation(len(records))
    answers: list[Any] = [None] * len(records)
    problems: list[Problem] = []
    seconds, begin, silent, given_up = 0.0, 0, 0, False

    def progress(done: int, total: int) -> None:
        say(f"answers: {begin + done} of {len(records)}")

    while begin < len(records) and not given_up:
        part = [int(place) for place in order[begin:]]
        found = checked(
            model, [records[p] for p in part], batch=batch, timeout=timeout,
            again=4 if begin == 0 else 0, names=[names[p] for p in part], say=progress,
        )  # fmt: skip
        asked = _asked(found, batch)
        told = [n for n, answer in enumerate(found.answers[:asked]) if answer is not None]
        for n in told:
            answers[part[n]] = found.answers[n]
        here = [p for p in found.problems if not (p.kind == NOT_ASKED and p.records[0] == asked)]
        problems += [_placed(problem, part, names) for problem in here]
        seconds += found.seconds
        silent = asked - 1 - told[-1] if told else silent + asked
        begin += asked
        given_up = any(p.kind == "stopped" for p in here) or _enough(problems, order, begin, silent)
    problems.sort(key=lambda problem: problem.records[:1])
    left = len(records) - begin
    if left:
        rest = tuple(int(place) for place in order[begin:])
        text = (
            f"{left:,} rows were not asked: given up after {silent:,} rows in a row, drawn from "
            "all over the file, without an answer"
        )
        problems.insert(0, Problem(NOT_ASKED, rest, text))
    return Answered(answers, tuple(problems), seconds, left)


def _asked(found: Checked, batch: int) -> int:
    """How many records were asked before the check ended for want of answers.

    What it leaves out then begins with a batch; the rest of a batch that hung does not.
    """
    total = len(found.answers)
    for rest in (p.records for p in found.problems if p.kind == NOT_ASKED):
        if rest[0] % batch == 0 and rest[-1] + 1 == total:
            return rest[0]
    return total


def _enough(
    problems: Sequence[Problem], order: np.ndarray, begin: int, silent: int
) -> bool:  # fmt: skip
    """Whether the last rows without an answer tell that further ones would have none either.

    Waiting for what hangs is dear, and the same words for row after row are the model's own; what
    fails each time in another way may go on to work.
    """
    last = {int(place) for place in order[begin - silent : begin]}
    about = [p for p in problems if last & set(p.records) and p.kind != NOT_ASKED]
    if about and all(problem.kind == "hung" for problem in about):
        return True
    words = {str(problem).partition(": ")[2] for problem in about}
    return silent >= (SAME if len(words) == 1 else SILENT)


def _placed(problem: Problem, part: Sequence[int], names: Sequence[str]) -> Problem:
    """A problem of records in the order they were asked, as one of rows in the file."""
    places = tuple(sorted(part[n] for n in problem.records))
    text = problem.text
    if len(places) > 1:  # "records 7 to 3" would name what lies between
        _, _, what = text.partition(": ")
        text = f"{len(places)} records, {names[places[0]]} among them: {what}"
    return Problem(problem.kind, places, text)


def about_of(answers: Sequence[Any], stated: Sequence[str], factors: Sequence[str]) -> About:
    """What each part of an answer may depend on.

    Answers in parts say it themselves: a part named after a factor is about that factor. For
    others the user states the factors that the answer depends on.
    """
    first = next((answer for answer in answers if answer is not None), None)
    if isinstance(first, Mapping):
        return {name: frozenset({name}) for name in first if name in factors}
    return {WHOLE: frozenset(stated)} if stated else {}


def parts_of(answer: Any) -> Mapping[str, Any]:
    """An answer by its parts."""
    return answer if isinstance(answer, Mapping) else {WHOLE: answer}


@dataclass(frozen=True)
class Swaps:
    """The swap and invariance tests: one reading a factor, and why others have none."""

    found: tuple[Swap, ...] = ()
    why_not: Mapping[str, str] = field(default_factory=dict)
    made: bool = False


def swap_all(
    model: OwnModel, rows: Rows, records: Sequence[Record], answered: Answered, about: About, *,
    change: bool, most: int, batch: int, timeout: float, seed: int, say: Say,
) -> Swaps:  # fmt: skip
    """Every factor exchanged in turn: in pairs of rows that are there, or by changing rows."""
    if not about:
        raise NotApplicable(
            "which factors an answer is about is not known: give --about FACTOR, or let the model "
            "answer with a mapping of factors"
        )
    if change and getattr(model, "recorded", False):
        raise NotApplicable("recorded answers cannot be asked about changed rows")
    found, why_not = [], {}
    names = rows.name_of(range(len(rows)))
    for number, factor in enumerate(rows.names):
        same = contexts(rows, number)
        try:
            if change:
                pairs = made_pairs(rows, records, number, most, seed)
                pairs = [(row, record) for row, record in pairs if answered.told[row]]
                say(f"swaps: {factor}, {len(pairs)} changed rows")
                again = checked(
                    model, [record for _, record in pairs], batch=batch, timeout=timeout, again=0
                )
                kept = [n for n, answer in enumerate(again.answers) if answer is not None]
                before = [parts_of(answered.answers[pairs[n][0]]) for n in kept]
                after = [parts_of(again.answers[n]) for n in kept]
                told = [
                    (names[pairs[n][0]], f"{names[pairs[n][0]]}, {factor}={pairs[n][1][factor]}")
                    for n in kept
                ]
                groups = [int(same[pairs[n][0]]) for n in kept]
            else:
                both = found_pairs(rows, number, most, seed)
                both = both[answered.told[both].all(axis=1)] if len(both) else both
                before = [parts_of(answered.answers[a]) for a, _ in both]
                after = [parts_of(answered.answers[b]) for _, b in both]
                told = [(names[a], names[b]) for a, b in both]
                groups = [int(same[a]) for a, _ in both]
            found.append(read_swap(factor, before, after, told, groups, about))
        except NotApplicable as error:
            why_not[factor] = str(error)
    return Swaps(tuple(found), why_not, change)


def activations_of(
    model: OwnModel, records: Sequence[Record], batch: int
) -> dict[str, np.ndarray]:  # fmt: skip
    """Hidden vectors by layer, batch by batch."""
    model.need("the probe", "activations")
    layers: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(records), batch):
        try:
            part = model.activations(records[start : start + batch])
        except RecombineError as error:
            raise NotApplicable(
                f"activations failed at row {start + 1}: {' '.join(str(error).split())}"
            ) from error
        for name, values in part.items():
            layers.setdefault(name, []).append(np.asarray(values, np.float32))
    return {name: np.concatenate(parts) for name, parts in layers.items()}
