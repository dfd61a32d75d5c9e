"""What a card asks of a model: its answers, answers to changed rows, and its activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recombine.adapters.isolation import Problem, checked
from recombine.adapters.models import OwnModel
from recombine.cards.swaps import About, Swap, contexts, found_pairs, made_pairs, read_swap
from recombine.errors import NotApplicable, RecombineError
from recombine.tables.rows import Rows

Record = Mapping[str, Any]
Say = Callable[[str], None]
WHOLE = "answer"  # what an answer that has no parts is called


@dataclass(frozen=True, eq=False)
class Answered:
    """A model's answers, row by row (None where there is none), and what went wrong."""

    answers: list[Any]
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0

    @property
    def told(self) -> np.ndarray:
        """Which rows have an answer."""
        return np.array([answer is not None for answer in self.answers], bool)


def ask(
    model: OwnModel, records: Sequence[Record], names: Sequence[str], *, batch: int,
    timeout: float, say: Say,
) -> Answered:  # fmt: skip
    """All answers; what a user's adapter does wrong is told and costs only its own rows."""

    def progress(done: int, total: int) -> None:
        say(f"answers: {done} of {total}")

    found = checked(
        model, records, batch=batch, timeout=timeout, names=names, say=progress
    )  # fmt: skip
    return Answered(list(found.answers), tuple(found.problems), found.seconds)


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
