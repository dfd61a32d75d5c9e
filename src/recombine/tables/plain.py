"""Columns that are no factors: numbers (an outcome, a weight), text (a label), names of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recombine.tables.coding import MISSING_WORDS
from recombine.tables.pieces import Numbers, Piece, Words, number_text, numbers_of
from recombine.tables.rows import NONE
from recombine.tables.spool import Room, Spool

_TRUTHS = {"true": 1.0, "false": 0.0}
_SAFE = 2**53


@dataclass(eq=False)
class PlainReader:
    """Reads a column as float64 for as long as every cell is a number or true or false.

    The first word makes it a column of text, and `again` says that it must be read once more from
    its start, since numbers do not remember how they were written.
    """

    name: str
    room: Room
    as_text: bool = False
    ids: bool = False
    again: bool = False

    def __post_init__(self) -> None:
        self.spool = Spool(self.room)
        self.texts: list[np.ndarray] = []

    @property
    def held(self) -> int:
        """How many texts are held in memory."""
        return sum(map(len, self.texts))

    def forget(self) -> None:
        """Gives up what it holds."""
        self.texts.clear()

    def add(self, piece: Piece) -> None:
        if self.as_text:
            self.texts.append(_texts(piece))
        elif not self.again:
            numbers = self._ids(piece) if self.ids else _numbers(piece)
            if numbers is None:
                self.again = True
                self.spool.clear()
            else:
                self.spool.append(numbers)

    def finish(self) -> np.ndarray:
        if self.as_text:
            return np.concatenate(self.texts) if self.texts else np.zeros(0, object)
        kind = np.int64 if self.ids else np.float64
        column, start = self.room.array((self.spool.length,), kind), 0
        for piece in self.spool.pieces():
            column[start : start + len(piece)] = piece
            start += len(piece)
        self.spool.clear()
        return column

    def _ids(self, piece: Piece) -> np.ndarray | None:
        """Names of rows as whole numbers, where each is written as such: 7, but not 007 or 7.0."""
        if isinstance(piece, Numbers):
            return piece.array.astype(np.int64) if piece.array.dtype.kind in "iu" else None
        if not isinstance(piece, Words) or (len(piece) and piece.codes.min() < 0):
            return None
        numbers = numbers_of(piece.values)
        if numbers is None or (np.abs(numbers) >= _SAFE).any():
            return None
        whole = numbers.astype(np.int64)
        if list(map(str, whole.tolist())) != list(piece.values):
            return None
        return whole[piece.codes]


def _numbers(piece: Piece) -> np.ndarray | None:
    if isinstance(piece, Numbers):
        return piece.array.astype(np.float64)
    if not isinstance(piece, Words):
        return None
    table = np.full(len(piece.values) + 1, np.nan)
    there = [i for i, text in enumerate(piece.values) if text.strip() not in MISSING_WORDS]
    texts = [piece.values[i] for i in there]
    numbers = numbers_of(texts)
    if numbers is None:
        truths = [text.strip().lower() for text in texts]
        if set(truths) - _TRUTHS.keys():
            mixed = [t if t not in _TRUTHS else str(_TRUTHS[t]) for t in truths]
            numbers = numbers_of(mixed)
            if numbers is None:
                return None
        else:
            numbers = np.array([_TRUTHS[text] for text in truths])
    table[there] = numbers
    return table[piece.codes]


def _texts(piece: Piece) -> np.ndarray:
    """Text as an object array, with "" for what is missing."""
    if isinstance(piece, Words):
        values = [
            "" if text in MISSING_WORDS else text.encode("utf-8", "backslashreplace").decode()
            for text in piece.values
        ]
        return _objects([*values, ""])[piece.codes]
    if isinstance(piece, Numbers):
        return _objects([_text(value) for value in piece.array])
    items, starts = _texts(piece.items), np.cumsum(np.maximum(piece.lengths, 0))
    return _objects(
        [
            "" if n == NONE else json.dumps(items[end - n : end].tolist(), ensure_ascii=False)
            for n, end in zip(piece.lengths.tolist(), starts.tolist(), strict=True)
        ]
    )


def _text(value: np.generic) -> str:
    if isinstance(value, np.floating):
        return "" if np.isnan(value) else number_text(value)
    return str(value)


def _objects(texts: Sequence[str]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array
