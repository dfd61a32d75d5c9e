"""Pieces of a column on their way from a file: words, numbers, or lists of either.

Every source cuts its rows into pieces of some ten thousand and hands over each column of a piece
in one of three shapes, so that what codes them need not know where they came from.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Num

from recombine.tables.rows import NONE

ROWS = 2**11  # in a piece of Python objects: few enough to stay in the cache

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_LEADING_ZERO = re.compile(r"\n *[+-]?0\d")
_LONGEST_NUMBER = 40
_DIGITS = b"0123456789+-.eE \n"


@dataclass(frozen=True, eq=False)
class Words:
    """Text: the different values, and for each row the place of its own (-1: none)."""

    values: Sequence[str]
    codes: Int[np.ndarray, "row"]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Whole numbers, or floats with NaN for none."""

    array: Num[np.ndarray, "row"]

    def __len__(self) -> int:
        return len(self.array)


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists: how many items each row has (-1: no list at all), and all items in a row."""

    lengths: Int[np.ndarray, "row"]
    items: Words | Numbers

    def __len__(self) -> int:
        return len(self.lengths)


Piece = Words | Numbers | Lists


def words(cells: Iterable[str | None]) -> Words:
    """Text cells as a piece; None is none.

    >>> words(["b", "a", None, "b"]).codes.tolist()
    [0, 1, -1, 0]
    """
    place = _Places({None: NONE})
    codes = np.fromiter(map(place.__getitem__, cells), np.int32)
    return Words([value for value in place if value is not None], codes)


class _Places(dict[str | None, int]):
    """Gives each new key the next number when it is looked up: one look a cell."""

    def __missing__(self, key: str | None) -> int:
        self[key] = place = len(self) - 1
        return place


def piece_of(cells: Sequence[Any]) -> Piece:
    """Cells of any kind (of JSON, of a frame, of a list in memory) as a piece.

    >>> piece_of([["a", "b"], None, []]).lengths.tolist()
    [2, -1, 0]
    """
    if isinstance(cells, np.ndarray) and cells.ndim == 1 and cells.dtype.kind in "iuf":
        return Numbers(cells)
    if isinstance(cells, np.ndarray) and cells.ndim == 1 and cells.dtype.kind == "b":
        return Words(["false", "true"], cells.astype(np.int32))
    cells = list(cells)
    if not any(isinstance(cell, _LISTS) for cell in cells):
        return words([as_text(cell) for cell in cells])
    lengths = [_length(cell) for cell in cells]
    items = [as_text(item) for cell, n in zip(cells, lengths, strict=True) if n != NONE
             for item in (cell if isinstance(cell, _LISTS) else [cell])]  # fmt: skip
    return Lists(np.array(lengths, np.int64), words(items))


_LISTS = (list, tuple, set, frozenset, np.ndarray)


def _length(cell: Any) -> int:
    if isinstance(cell, _LISTS):
        return len(cell)
    return NONE if as_text(cell) is None else 1


def as_text(value: Any) -> str | None:
    """A cell as text, equal for equal values whatever the format; None where there is none.

    >>> [as_text(v) for v in ("1", 1, 1.0, True, None, float("nan"))]
    ['1', '1', '1', 'true', None, None]
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating):
        return None if value != value else number_text(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    # What pandas writes for "none", known by name so that pandas need not be there.
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return str(value)


def number_text(value: float | np.floating) -> str:
    """The shortest way to write a number: no ".0", no minus before nought.

    >>> [number_text(x) for x in (1.0, -0.0, 0.1, 1e20, 2.5e-7)]
    ['1', '0', '0.1', '1e+20', '2.5e-07']
    """
    if math.isfinite(value) and abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return str(value)  # numpy writes a 32-bit number in its own digits: 0.1, not 0.10000000149


def number_of(text: str) -> float | None:
    """The finite number that a text says, or None.

    Text with a leading zero (007, a postcode) is a name and not a number; so is anything longer
    than 40 characters.

    >>> [number_of(text) for text in ("1.50", " 2", "1e3", "007", "0.5", "inf", "1_000", "x")]
    [1.5, 2.0, 1000.0, None, 0.5, None, None, None]
    """
    bare = text.strip(" ")
    if len(bare) > _LONGEST_NUMBER or not _NUMBER.fullmatch(bare) or not bare.isascii():
        return None
    if _LEADING_ZERO.match("\n" + bare):
        return None
    value = float(bare)
    return value if math.isfinite(value) else None


def numbers_of(texts: Sequence[str]) -> np.ndarray | None:
    """All texts as numbers, or None if one of them is not; as `number_of`, but fast for many."""
    joined = "\n" + "\n".join(texts)
    if joined.isascii() and not joined.encode().translate(None, _DIGITS):
        if max(map(len, texts), default=0) > _LONGEST_NUMBER or _LEADING_ZERO.search(joined):
            return None
        try:
            values = np.array(list(map(float, texts)), np.float64)
        except ValueError:
            return None
        return values if np.isfinite(values).all() else None
    return None


def plain_number(text: str) -> str:
    """A text that is a number in its one plain spelling: 1, 1.0, +1 and 1e0 are all "1".

    >>> [plain_number(text) for text in ("1.0", "+1", "1.50", "12345678901234567890", "x")]
    ['1', '1', '1.5', '12345678901234567890', 'x']
    """
    value = number_of(text)
    if value is None:
        return text
    bare = text.strip(" ").lstrip("+")
    return str(int(bare)) if bare.lstrip("-").isdigit() else number_text(value)


def split(piece: Words, cut: Callable[[str], Sequence[str | None] | None]) -> Lists:
    """Text cells as lists: `cut` gives the items of a cell, or None where there is no list."""
    lists = [cut(value) for value in piece.values]
    flat = words([item for items in lists for item in items or ()])
    sizes = np.array([NONE if items is None else len(items) for items in lists] + [NONE], np.int64)
    starts = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))[:-1]])
    lengths = sizes[piece.codes]  # -1 picks the last entry
    held = np.maximum(lengths, 0)
    ends = np.cumsum(held)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - held, held)
    places = np.repeat(starts[piece.codes], held) + within
    return Lists(lengths, Words(flat.values, flat.codes[places]))
