"""Records of a user's file: its rows as dictionaries, with what stands in each column."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from recombine.adapters.models import ROW
from recombine.errors import InvalidRequest
from recombine.tables.arrow import FastTextTable, ReadAnother
from recombine.tables.pieces import Lists, Numbers, Piece, number_of
from recombine.tables.reading import open_source
from recombine.tables.sources import InMemory, JsonLines, Source


def read_records(source: Any, most: int | None = None) -> list[dict[str, Any]]:
    """The first rows of a table (all by default) as a model is given them.

    `source` is any that `read_rows` takes. A column of text that holds nothing but numbers becomes
    numbers; what is missing is None. The column `row`, unless there is one, counts rows from 1.

    >>> read_records({"colour": ["red", "blue"]}, 1)
    [{'colour': 'red', 'row': 1}]
    """
    if most is not None and most < 1:
        raise InvalidRequest(f"{most} records: expected at least 1")
    table = open_source(source)
    try:
        records = _records(table, most)
    except ReadAnother:
        assert isinstance(table, FastTextTable)
        records = _records(table.plain, most)
    if not records:
        raise InvalidRequest(f"{table.title} has no rows, only the names of columns")
    for number, record in enumerate(records, 1):
        record.setdefault(ROW, number)
    return records


def _records(table: Source, most: int | None) -> list[dict[str, Any]]:
    names = list(table.names)
    if isinstance(table, JsonLines):
        lines = itertools.islice(table._objects(), most)
        return [{**dict.fromkeys(names), **line} for line in lines]
    if isinstance(table, InMemory):
        columns = [_listed(table.columns[name])[:most] for name in names]
    else:
        pieces: list[list[Any]] = [[] for _ in names]
        for chunk in table.chunks(names):
            for kept, name in zip(pieces, names, strict=True):
                kept += _cells(chunk[name])
            if most is not None and len(pieces[0]) >= most:
                break
        columns = [_typed(cells[:most]) for cells in pieces]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _listed(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _cells(piece: Piece) -> list[Any]:
    if isinstance(piece, Numbers):
        return [None if value != value else value for value in piece.array.tolist()]
    if isinstance(piece, Lists):
        items, start, found = _cells(piece.items), 0, []
        for length in piece.lengths.tolist():
            found.append(items[start : start + length] if length >= 0 else None)
            start += max(length, 0)
        return found
    values = [*piece.values, None]
    return [values[code] for code in piece.codes.tolist()]


def _typed(cells: Sequence[Any]) -> list[Any]:
    """Text that is nothing but numbers as numbers, whole where all are written so."""
    texts = {cell for cell in cells if isinstance(cell, str) and cell.strip()}
    if not texts or any(not isinstance(cell, str) and cell is not None for cell in cells):
        return list(cells)
    numbers = {text: number_of(text) for text in texts}
    if any(number is None for number in numbers.values()):
        return list(cells)
    whole = all(text.strip().lstrip("+-").isdigit() for text in texts)
    found = {text: int(text) if whole else number for text, number in numbers.items()}
    return [found.get(cell) for cell in cells]
