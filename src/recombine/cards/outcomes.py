"""Whether answers are right: the user's labels beside what the model said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from recombine.adapters.models import told
from recombine.errors import InvalidRequest, unknown

Scorer = Callable[[Mapping[str, Any], Any], float]


@dataclass(frozen=True)
class Marking:
    """How an answer is compared with its label.

    Text is compared without regard to case and outer spaces, numbers to within `tolerance` of the
    label's size, lists as sets. An answer may be about several factors at once (a mapping); it is
    right where all of them are.
    """

    tolerance: float = 1e-6

    def right(self, label: Any, answer: Any) -> bool:
        """
        >>> Marking().right("Red ", "red"), Marking().right("2.0", 2), Marking().right("a", None)
        (True, True, False)
        """
        if answer is None or label is None:
            return False
        if isinstance(label, Mapping) or isinstance(answer, Mapping):
            if not isinstance(label, Mapping) or not isinstance(answer, Mapping):
                return False
            return all(self.right(value, answer.get(name)) for name, value in label.items())
        if isinstance(label, list | tuple) or isinstance(answer, list | tuple):
            return _set(label) == _set(answer)
        if (a := _number(label)) is not None and (b := _number(answer)) is not None:
            return abs(a - b) <= self.tolerance * max(1.0, abs(a))
        return _text(label) == _text(answer)


def outcomes(
    records: Sequence[Mapping[str, Any]],
    answers: Sequence[Any],
    label: str | Sequence[str] | None,
    *,
    marking: Marking | None = None,
    scorer: Scorer | None = None,
) -> Float[np.ndarray, " record"]:
    """How right each answer is, from 0 to 1; NaN where there is no answer, or no label.

    `label` is a column, or several that the answer's parts are named after. `scorer` is a function
    of record and answer for whatever cannot be compared with a column.
    """
    marking = marking or Marking()
    names = (label,) if isinstance(label, str) else tuple(label or ())
    if scorer is None and not names:
        raise InvalidRequest(
            "nothing to mark answers by: give --label COLUMN, or --scorer FILE.py:FUNCTION"
        )
    for name in names if len(records) else ():
        if name not in records[0]:
            raise unknown("label column", name, [str(column) for column in records[0]])
    found = np.full(len(records), np.nan)
    for place, (record, answer) in enumerate(zip(records, answers, strict=True)):
        if answer is None:
            continue
        if scorer is not None:
            found[place] = _checked(scorer, record, answer, place)
        elif all(record[name] is not None for name in names):
            wanted = record[label] if isinstance(label, str) else {n: record[n] for n in names}
            found[place] = marking.right(wanted, answer)
    return found


def markable(
    records: Sequence[Mapping[str, Any]], label: str | Sequence[str] | None
) -> Bool[np.ndarray, " record"]:
    """Which rows an answer could be marked for: those with a label, or all where a scorer marks.

    A row that is markable and has no outcome has no answer.
    """
    names = (label,) if isinstance(label, str) else tuple(label or ())
    return np.array([all(r.get(name) is not None for name in names) for r in records], bool)


def _checked(scorer: Scorer, record: Mapping[str, Any], answer: Any, place: int) -> float:
    try:
        score = scorer(record, answer)
    except Exception as error:
        raise InvalidRequest(
            f"the scorer failed for row {place + 1}: it raised {told(error)}"
        ) from error
    try:
        value = float(score)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= 1:
        raise InvalidRequest(
            f"the scorer gave {score!r} for row {place + 1}: expected a number from 0 to 1"
        )
    return value


def _set(value: Any) -> frozenset[str]:
    several = value if isinstance(value, list | tuple) else [value]
    return frozenset(_text(each) for each in several)


def _text(value: Any) -> str:
    if isinstance(value, bool):  # as a file writes it
        return str(value).casefold()
    number = _number(value)
    return f"{number:.12g}" if number is not None else " ".join(str(value).split()).casefold()


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
