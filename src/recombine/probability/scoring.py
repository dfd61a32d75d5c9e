"""How an answer in words is scored, and how two lists of paired answers are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval, finite_vector, mean_interval

_OPENING, _CLOSING = '"“', '"”'


@dataclass(frozen=True)
class Score:
    """How near an answer comes: by the published rule, to the letter, and in edits."""

    contained: bool  # the right answer stands somewhere in it: the published accuracy
    exact: bool  # it is the right answer and nothing else
    distance: int  # letters to insert, delete or change


@dataclass(frozen=True)
class McNemar:
    """Items that only one of two conditions got right, and the exact p that this is chance."""

    first_only: int
    second_only: int
    p: float


def scored(gold: str, answer: str) -> Score:
    """The score of an answer; one outer quotation mark on either side of both is ignored.

    >>> scored("Stay here!", 'It says: "Stay here!"')
    Score(contained=True, exact=False, distance=10)
    """
    right, given = unquoted(gold), unquoted(answer)
    if not right:
        raise InvalidRequest("an empty right answer is contained in every answer: leave it out")
    return Score(right in answer, right == given, levenshtein(right, given))


def unquoted(text: str) -> str:
    """The text without space around it and without one outer quotation mark on either side.

    >>> unquoted(' "Stay here!" ')
    'Stay here!'
    """
    bare = text.strip()
    bare = bare[1:] if bare[:1] and bare[0] in _OPENING else bare
    return bare[:-1] if bare[-1:] and bare[-1] in _CLOSING else bare


def levenshtein(first: str, second: str) -> int:
    """How many letters must be inserted, deleted or changed to turn one text into the other.

    >>> levenshtein("reason", "treason"), levenshtein("moment", "monument")
    (1, 2)
    """
    before = list(range(len(second) + 1))
    for i, letter in enumerate(first, start=1):
        row = [i]
        for j, other in enumerate(second, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other)))
        before = row
    return before[-1]


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """McNemar's exact test that two conditions are equally often right on the same items.

    >>> mcnemar([1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0]).p
    0.03125
    """
    a, b = _pairs(first, second)
    ones, twos = int(np.sum((a == 1) & (b == 0))), int(np.sum((a == 0) & (b == 1)))
    p = float(stats.binomtest(ones, ones + twos).pvalue) if ones + twos else 1.0
    return McNemar(ones, twos, p)


def paired_difference(
    first: ArrayLike, second: ArrayLike, *, level: float = 0.95, seed: int = 0
) -> Interval:
    """How much more often the first is right than the second, by resampling pairs.

    >>> paired_difference([1, 1, 1, 0], [1, 0, 0, 0]).estimate
    0.5
    """
    a, b = _pairs(first, second)
    return mean_interval(a - b, level=level, seed=seed)


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = finite_vector("first", first), finite_vector("second", second)
    if len(a) != len(b):
        raise InvalidRequest(f"{len(a)} answers against {len(b)}: expected the same items in both")
    if not np.isin(np.concatenate([a, b]), (0.0, 1.0)).all():
        raise InvalidRequest("answers other than 0 and 1: expected right or wrong")
    return a, b
