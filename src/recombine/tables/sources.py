"""Where rows come from: files of text, columns in memory; streams of pieces of columns.

A source knows the names of its columns and can be read as often as needed. Files of Arrow and
Parquet are in `arrow.py`, since they need pyarrow.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from recombine.errors import InvalidRequest
from recombine.tables.pieces import ROWS, Piece, number_of, piece_of, words

DELIMITERS = (",", ";", "\t", "|")
_SNIFFED = 2**16  # characters of a file that show its delimiter
_FIRST_LINES = 1_000  # of JSON lines, that show its columns

Chunk = Mapping[str, Piece]


class Source(Protocol):
    """A table that can be streamed, any number of times."""

    @property
    def title(self) -> str:
        """What to call it in a message."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The names of its columns, in order."""
        ...

    def chunks(self, wanted: Sequence[str]) -> Iterator[Chunk]:
        """Some of its columns, some ten thousand rows at a time."""
        ...


@dataclass(frozen=True)
class TextTable:
    """A CSV or TSV file, read with the standard library.

    The first line names the columns. The delimiter is the one of comma, semicolon, tab and bar
    that cuts the first lines into the same number of cells, the largest if several do.
    """

    path: Path

    @property
    def title(self) -> str:
        return self.path.name

    @cached_property
    def delimiter(self) -> str:
        if self.path.suffix.lower() == ".tsv":
            return "\t"
        with opened(self.path) as file:
            try:
                start = file.read(_SNIFFED)
            except UnicodeDecodeError as error:
                raise not_utf8(self.path) from error
        return max(DELIMITERS, key=lambda mark: _fit(start, mark))

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @cached_property
    def _names(self) -> Sequence[str]:
        with opened(self.path) as file:
            header = next(self._filled(csv.reader(file, delimiter=self.delimiter), 1), [[]])[0]
        if not any(header):
            raise InvalidRequest(
                f"{self.path} is empty, expected a line with the names of columns and then rows"
            )
        if all(number_of(cell) is not None for cell in header):
            raise InvalidRequest(
                f"{self.path} has no header: its first line is {self.delimiter.join(header)[:80]!r}"
                ", expected the names of columns"
            )
        return header

    def chunks(self, wanted: Sequence[str]) -> Iterator[Chunk]:
        names = self.names
        places = [names.index(name) for name in wanted]
        with opened(self.path) as file:
            reader = csv.reader(file, delimiter=self.delimiter)
            next(self._filled(reader, 1))
            for rows in self._filled(reader, ROWS):
                if set(map(len, rows)) != {len(names)}:
                    raise self._ragged(len(names))
                columns = list(zip(*rows, strict=True))
                yield {name: words(columns[i]) for name, i in zip(wanted, places, strict=True)}

    def _filled(self, reader: Any, most: int) -> Iterator[list[list[str]]]:
        """Some lines at a time, without those that are empty."""
        while True:
            try:
                with long_cells():
                    rows = list(itertools.islice(reader, most))
            except csv.Error as error:
                raise InvalidRequest(f"{self.path}, line {reader.line_num}: {error}") from error
            except UnicodeDecodeError as error:
                raise not_utf8(self.path) from error
            if not rows:
                return
            if filled := [row for row in rows if row]:
                yield filled

    def _ragged(self, width: int) -> InvalidRequest:
        """The error for a row that is too long or too short, found again to tell its line."""
        with opened(self.path) as file, long_cells():
            reader = csv.reader(file, delimiter=self.delimiter)
            found = next(len(row) for row in reader if row and len(row) != width)
            return InvalidRequest(
                f"{self.path}, line {reader.line_num}: {found} cells, expected {width} as in the "
                f"first line; put quotes around a cell that holds the delimiter "
                f"({self.delimiter!r})"
            )


@dataclass(frozen=True)
class JsonLines:
    """A file with one JSON object a line; a key that a line lacks is missing there."""

    path: Path

    @property
    def title(self) -> str:
        return self.path.name

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @cached_property
    def _names(self) -> Sequence[str]:
        first = itertools.islice(self._objects(), _FIRST_LINES)
        found = list(dict.fromkeys(key for line in first for key in line))
        if not found:
            raise InvalidRequest(f"{self.path} is empty, expected one JSON object a line")
        return found

    def chunks(self, wanted: Sequence[str]) -> Iterator[Chunk]:
        objects = self._objects()
        while lines := list(itertools.islice(objects, ROWS)):
            yield {name: piece_of([line.get(name) for line in lines]) for name in wanted}

    def holds(self, name: str) -> bool:
        """Whether any line has this key."""
        return any(name in line for line in self._objects())

    def _objects(self) -> Iterator[dict[str, Any]]:
        with opened(self.path) as file:
            try:
                for number, text in enumerate(file, 1):
                    if not text.strip():
                        continue
                    yield self._object(text, number)
            except UnicodeDecodeError as error:
                raise not_utf8(self.path) from error

    def _object(self, text: str, number: int) -> dict[str, Any]:
        expected = 'expected one JSON object a line, such as {"colour": "red", "correct": true}'
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{self.path}, line {number}: {error}; {expected}") from error
        if not isinstance(found, dict):
            kind = "a list" if isinstance(found, list) else repr(found)[:40]
            raise InvalidRequest(f"{self.path}, line {number}: {kind}, {expected}")
        return found


@dataclass(frozen=True, eq=False)
class InMemory:
    """Columns that are already in memory: a mapping of names to sequences, or a pandas frame."""

    columns: Any
    title: str = "the table"

    @property
    def names(self) -> Sequence[str]:
        if wrong := [name for name in self.columns if not isinstance(name, str)]:
            raise InvalidRequest(
                f"{self.title}: the column name {wrong[0]!r} is not text: rename the column"
            )
        return list(self.columns)

    def chunks(self, wanted: Sequence[str]) -> Iterator[Chunk]:
        held = {name: self._column(name) for name in wanted}
        lengths = {name: len(column) for name, column in held.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidRequest(f"{self.title}: columns differ in length: {lengths}")
        for start in range(0, next(iter(lengths.values()), 0), ROWS):
            end = start + ROWS
            yield {name: piece_of(column[start:end]) for name, column in held.items()}

    def _column(self, name: str) -> Any:
        column = self.columns[name]
        if getattr(column, "ndim", 1) != 1:
            raise InvalidRequest(f"{self.title}: the column {name!r} is named twice")
        kind = getattr(getattr(column, "dtype", None), "kind", "O")
        if hasattr(column, "to_numpy"):  # a pandas series: plain numbers stay an array
            plain = kind in "iufb" and type(column.dtype).__module__.startswith("numpy")
            return column.to_numpy() if plain else column.tolist()
        return column


def opened(path: Path) -> Any:
    """A text file, opened as UTF-8 with or without a mark in front; newlines as they are."""
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def long_cells() -> Iterator[None]:
    """Lets a cell be longer than the standard library's limit, which is for the whole process."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def not_utf8(path: Path) -> InvalidRequest:
    """The error for a file in another encoding, with the line where it shows."""
    with path.open("rb") as file:
        number = next((i for i, line in enumerate(file, 1) if not _decodes(line)), 0)
    return InvalidRequest(f"{path}, line {number}: not UTF-8 text; save the file as UTF-8")


def _decodes(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _fit(start: str, mark: str) -> tuple[bool, int]:
    """How well a delimiter cuts the start of a file: alike in all lines, then into many cells."""
    with long_cells():
        reader = csv.reader(io.StringIO(start, newline=""), delimiter=mark)
        widths = [len(row) for row in itertools.islice(reader, 50) if row]
    if len(start) == _SNIFFED and 1 < len(widths) < 50:
        widths.pop()  # the last line may be cut off
    if not widths or widths[0] < 2:
        return False, 0
    return len(set(widths)) == 1, widths[0]
