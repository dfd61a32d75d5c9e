"""Columns that name rows: a different value in every row combines with nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from recombine.tables.pieces import numbers_of

LEAST_ROWS = 30  # a few rows may differ in anything
NEARLY = 0.95  # of the rows have a value that is new: copies of rows do not make a factor of a name
SPARSE = 2  # whole numbers that name rows lie so close, at most this many to a row
_MOST_SPAN = 2**28

REASON = "a different value in every row"

Pieces = Callable[[], Iterable[Float[np.ndarray, " row"]]]


def names_rows(texts: Sequence[str], counts: Int[np.ndarray, " value"]) -> bool:
    """Whether these values, in so many rows each, are names of rows.

    Text is if (nearly) every row has another one; numbers are if they are whole, all different and
    close together, as counted ones are. Measured numbers differ, too, but are factors.

    >>> names_rows([f"r{n}" for n in range(40)], np.ones(40, int))
    True
    >>> names_rows([str(n * n) for n in range(40)], np.ones(40, int))
    False
    """
    rows = int(counts.sum())
    if rows < LEAST_ROWS or len(texts) < NEARLY * rows:
        return False
    numbers = numbers_of(texts)
    return True if numbers is None else numbers_name_rows(lambda: [np.repeat(numbers, counts)])


def numbers_name_rows(pieces: Pieces) -> bool:
    """The same for a long column of numbers, read twice and never held; NaN is skipped.

    >>> numbers_name_rows(lambda: [np.arange(100.0), np.arange(100.0, 200)])
    True
    """
    rows, low, high = 0, np.inf, -np.inf
    for piece in pieces():
        there = piece[~np.isnan(piece)]
        if not len(there):
            continue
        if not np.isfinite(there).all() or (there != np.floor(there)).any():
            return False
        rows, low, high = rows + len(there), min(low, there.min()), max(high, there.max())
    if rows < LEAST_ROWS or high - low + 1 > min(SPARSE * rows, _MOST_SPAN):
        return False
    seen = np.zeros(int(high - low) + 1, bool)
    for piece in pieces():
        seen[(piece[~np.isnan(piece)] - low).astype(np.int64)] = True
    return int(seen.sum()) >= rows  # every one of them once
