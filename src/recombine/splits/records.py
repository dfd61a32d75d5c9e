"""The records of a CSV, TSV or JSON lines file: their own bytes, and what they say."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest, StoreError
from recombine.tables.sources import TextTable, long_cells

KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_LONE_RETURN = re.compile(rb"(?<=\r)(?!\n)")


@dataclass(frozen=True, eq=False)
class Records:
    """Where each record of a file lies, so that it can be copied byte by byte.

    `header` is the first line of a CSV or TSV file as it stands, and empty for JSON lines.
    """

    path: Path
    kind: str
    header: bytes
    ends: Int[np.ndarray, " record"]
    starts: Int[np.ndarray, " record"]

    def __len__(self) -> int:
        return len(self.ends)

    def raw(self) -> Iterator[bytes]:
        """The bytes of each record in turn, always with an end of line."""
        with self.path.open("rb") as file:
            for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
                file.seek(start)
                data = file.read(end - start)
                yield data if data.endswith((b"\n", b"\r")) else data + b"\n"


def kind_of(path: str | Path) -> str | None:
    """csv (also for TSV) or jsonl by the name of a file; None for anything else."""
    return KINDS.get(Path(path).suffix.lower())


def find_records(path: str | Path) -> Records:
    """Where the records of a file begin and end."""
    path = Path(path)
    starts, ends, header = [], [], b""
    kind = _kind(path)
    lines = _Lines(path)
    for number, _ in enumerate(_said(lines, kind, path)):
        if kind != "jsonl" and number == 0:
            with path.open("rb") as file:
                header = file.read(lines.at)
            header = header if header.endswith((b"\n", b"\r")) else header + b"\n"
        else:
            starts.append(lines.start)
            ends.append(lines.at)
    return Records(path, kind, header, np.array(ends, np.int64), np.array(starts, np.int64))


def read_records(path: str | Path) -> Iterator[dict[str, Any]]:
    """Each record as a dictionary; the cells of a CSV or TSV file are text."""
    path = Path(path)
    kind = _kind(path)
    said = _said(_Lines(path), kind, path)
    if kind == "jsonl":
        yield from said
        return
    names = next(said, None)
    if names is None:
        raise InvalidRequest(f"{path} is empty: expected a line of column names")
    for number, cells in enumerate(said, 1):
        if len(cells) != len(names):
            raise InvalidRequest(
                f"{path}, row {number}: {len(cells)} cells, but the header names {len(names)}"
            )
        yield dict(zip(names, cells, strict=True))


def _kind(path: Path) -> str:
    kind = kind_of(path)
    if kind is None:
        raise InvalidRequest(f"{path}: expected a file that ends in {', '.join(KINDS)}")
    return kind


class _Lines:
    """The lines of a file as text, remembering which bytes were handed out."""

    def __init__(self, path: Path):
        self.path = path
        self.start = 0  # of the record now being read
        self.at = 0

    def __iter__(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    # Old files end lines with a return alone.
                    for part in _LONE_RETURN.split(line) if b"\r" in line[:-2] else (line,):
                        self.at += len(part)
                        yield self._decoded(part, number)
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _decoded(self, line: bytes, number: int) -> str:
        try:
            return line.decode("utf-8-sig" if number == 1 and self.at == len(line) else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"{self.path}, line {number}: not UTF-8 text; save the file as UTF-8"
            ) from error


def _said(lines: _Lines, kind: str, path: Path) -> Iterator[Any]:
    """The cells or the object of each record; blank lines are no records."""
    if kind == "jsonl":
        yield from _objects(lines, path)
        return
    if not path.exists():
        raise InvalidRequest(f"there is no file {path}: check the name and the folder")
    reader = csv.reader(lines, delimiter=TextTable(path).delimiter)
    before = 0
    try:
        while True:
            with long_cells():
                cells = next(reader, None)
            if cells is None:
                return
            if cells:
                lines.start = before
                yield cells
            before = lines.at
    except csv.Error as error:
        raise InvalidRequest(f"{path}, line {reader.line_num}: {error}") from error


def _objects(lines: _Lines, path: Path) -> Iterator[dict[str, Any]]:
    before = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                said = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidRequest(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(said, dict):
                raise InvalidRequest(
                    f"{path}, line {number}: expected an object such as "
                    f'{{"colour": "red"}}, got {line.strip()[:40]!r}'
                )
            lines.start = before
            yield said
        before = lines.at


def content(record: dict[str, Any], without: frozenset[str] = frozenset()) -> str:
    """What a record says, in one spelling; columns named in `without` do not count.

    >>> content({"b": 1, "a": "x", "id": 7}, frozenset(["id"]))
    '{"a": "x", "b": 1}'
    """
    kept = {name: value for name, value in record.items() if name not in without}
    return json.dumps(kept, sort_keys=True, ensure_ascii=False)
