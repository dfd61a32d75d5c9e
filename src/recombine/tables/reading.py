"""Reads a user's table into coded rows, a piece at a time and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown
from recombine.tables.arrow import (
    FastTextTable,
    ReadAnother,
    arrow_file,
    dataset_folder,
    have_arrow,
    hub_split,
)
from recombine.tables.coding import Coding
from recombine.tables.columns import FactorReader
from recombine.tables.naming import REASON
from recombine.tables.plain import PlainReader
from recombine.tables.rows import Rows
from recombine.tables.sources import Chunk, InMemory, JsonLines, Source, TextTable
from recombine.tables.spool import Room

_TEXT, _LINES = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json")
_ARROW = (".parquet", ".arrow", ".feather")


def read_rows(
    source: Any,
    factors: Sequence[str] | None,
    *,
    columns: Sequence[str] = (),
    id: str | None = None,
    coding: Coding | None = None,
    like: Rows | None = None,
    say: Callable[[str], None] | None = None,
) -> Rows:
    """Reads a table: its factors as codes, other columns as numbers or text.

    `source` is the path of a CSV, TSV, JSON lines, Parquet or Arrow file or of a Hugging Face
    dataset folder, a mapping of names to columns, or a pandas frame. Without `factors`, every
    column that is not in `columns` and not the `id` is one, but for those with a different value
    in every row: they name rows (`left_out`). `like` codes as another table was
    coded: its bins, its groups, its values and then those that are new. `say` is told what was
    read and what memory it took.

    >>> table = {"colour": ["red", "blue", "red"], "size": [1, 2, None], "right": [1, 0, 1]}
    >>> rows = read_rows(table, ["colour", "size"], columns=["right"])
    >>> [factor.values for factor in rows.factors], rows.column("right").tolist()
    ([('blue', 'red'), ('1', '2', '(missing)')], [1.0, 0.0, 1.0])
    """
    coding = coding or Coding()
    table = open_source(source)
    wanted = _chosen(table, factors, columns, id, coding, like)
    spare = set(wanted) if factors is None and like is None else set()
    spare -= {*coding.numeric, *coding.text, *coding.lists}
    try:
        with closing(Room(coding.memory)) as room:
            return _read(table, wanted, columns, id, coding, like, say, room, spare)
    except ReadAnother:
        assert isinstance(table, FastTextTable)
    with closing(Room(coding.memory)) as room:
        return _read(table.plain, wanted, columns, id, coding, like, say, room, spare)


def column_names(source: Any) -> list[str]:
    """The names of a table's columns.

    >>> column_names({"colour": ["red"], "shape": ["cube"]})
    ['colour', 'shape']
    """
    return list(open_source(source).names)


def open_source(source: Any) -> Source:
    """The stream of a path, a mapping or a frame."""
    if isinstance(source, str | Path):
        return _open_path(Path(source))
    if isinstance(source, Mapping):
        return InMemory(source)
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return InMemory(source, "the frame")
    raise InvalidRequest(
        f"cannot read rows from a {type(source).__name__}, expected a path, a mapping of names to "
        "columns, or a pandas frame"
    )


def _open_path(path: Path) -> Source:
    kind = path.suffix.lower()
    if path.is_dir():
        return dataset_folder(path)
    if not path.exists():
        known = kind in (*_TEXT, *_LINES, *_ARROW)
        if not known and (split := hub_split(path)) is not None:
            return split
        raise InvalidRequest(f"there is no file {path}: check the name and the folder")
    if kind in _TEXT:
        return FastTextTable(TextTable(path)) if have_arrow() else TextTable(path)
    if kind in _LINES:
        return JsonLines(path)
    if kind in _ARROW:
        return arrow_file(path)
    raise InvalidRequest(
        f"cannot tell what {path} holds, expected a name that ends in one of "
        f"{', '.join((*_TEXT, *_LINES, *_ARROW))}, or a dataset folder"
    )


def _chosen(
    table: Source, factors: Sequence[str] | None, columns: Sequence[str], id: str | None,
    coding: Coding, like: Rows | None,
) -> list[str]:  # fmt: skip
    """The names of the factors, once all names that were given are known to exist."""
    names = list(table.names)
    if factors is None:
        factors = [name for name in names if name not in {*columns, id}]
        if like is not None:
            factors = [name for name in like.names if name in factors]
    if isinstance(factors, str):
        raise InvalidRequest(f"factors is the text {factors!r}, expected a list: {[factors]}")
    if not factors:
        raise InvalidRequest(
            f"{table.title}: no factors; name some of its columns: {', '.join(names)}"
        )
    for name in [*factors, *columns, *([id] if id else [])]:
        if name not in names and not _turns_up(table, name):
            raise unknown(f"column of {table.title}", name, names)
        if names.count(name) > 1:
            raise InvalidRequest(f"{table.title} has {names.count(name)} columns {name!r}: rename")
    for name in [*coding.numeric, *coding.text, *coding.lists]:
        if name not in names and name not in factors:
            raise unknown(f"column of {table.title}", name, names)
    if like is not None and (absent := [name for name in factors if name not in like.names]):
        raise unknown(f"factor of {like.source}", absent[0], like.names)
    return list(factors)


def _turns_up(table: Source, name: str) -> bool:
    """Whether a key is met only after the first lines of JSON lines."""
    return isinstance(table, JsonLines) and table.holds(name)


def _read(
    table: Source, factors: Sequence[str], columns: Sequence[str], id: str | None,
    coding: Coding, like: Rows | None, say: Callable[[str], None] | None, room: Room,
    spare: Collection[str],
) -> Rows:  # fmt: skip
    coded = {
        name: FactorReader(
            name, coding, room, like.factor(name) if like else None, spare=name in spare
        )
        for name in factors
    }
    plain = {name: PlainReader(name, room) for name in columns}
    names = {id: PlainReader(id, room, ids=True)} if id else {}
    readers = [coded, plain, names]
    try:
        rows = _streamed(table, readers)
        aside = tuple(name for name, reader in coded.items() if reader.names_rows)
        if len(aside) == len(coded):
            raise InvalidRequest(
                f"{table.title}: no factors, as every column ({', '.join(aside)}) has {REASON}; "
                "name those that combine with --factors A,B"
            )
        done = tuple(reader.finish() for name, reader in coded.items() if name not in aside)
        others = {name: reader.finish() for name, reader in plain.items()}
        ids = names[id].finish() if id else None
    except MemoryError:
        error = _used_up(table, readers)
        # The plain reader needs less: it does not read ahead.
        raise ReadAnother if isinstance(table, FastTextTable) else error from None
    if say is not None:
        said = _summary(table, rows, len(done), sum(f.codes.nbytes for f in done), room)
        say(f"{said}; left out: {left_out(aside)}" if aside else said)
    return Rows(table.title, done, others, ids, aside)


def left_out(names: Sequence[str]) -> str:
    """What to say of columns that are no factors, since they name rows.

    >>> left_out(["id"])
    'id (a different value in every row)'
    """
    return ", ".join(f"{name} ({REASON})" for name in names)


Readers = dict[str, Any]


def _streamed(table: Source, readers: Sequence[Readers]) -> int:
    """Hands the whole table to its readers, and gives the number of rows."""
    rows = _stream(table.chunks(_once(readers)), readers)
    if rows == 0:
        raise InvalidRequest(f"{table.title} has no rows, only the names of columns")
    # A column that turned out to be text is read again as such.
    late = [
        {n: replace(r, as_text=True, again=False) for n, r in kind.items() if r.again}
        for kind in readers
    ]
    for kind, again in zip(readers, late, strict=True):
        kind.update(again)
    if any(late):
        _stream(table.chunks(_once(late)), late)
    return rows


def _used_up(table: Source, readers: Sequence[Readers]) -> InvalidRequest:
    """The error for a table that memory cannot hold, with the column that takes most of it."""
    most, name = max((reader.held, name) for kind in readers for name, reader in kind.items())
    for reader in (reader for kind in readers for reader in kind.values()):
        reader.forget()  # so that there is room to say it
    return InvalidRequest(
        f"{table.title}: there is not enough memory, and column {name!r} takes most of it, with "
        f"{most:,} different values or texts so far: leave it out"
    )


def _once(readers: Iterable[Readers]) -> list[str]:
    return list(dict.fromkeys(name for kind in readers for name in kind))


def _stream(chunks: Iterator[Chunk], readers: Sequence[Readers]) -> int:
    rows = 0
    for chunk in chunks:
        rows += len(next(iter(chunk.values())))
        for kind in readers:
            for name, reader in kind.items():
                reader.add(chunk[name])
    return rows


def _summary(table: Source, rows: int, factors: int, size: int, room: Room) -> str:
    where = "in memory"
    if room.spilled:
        where = f"of which what exceeds {_megabytes(room.memory)} is in a temporary file"
    return (
        f"{table.title}: {rows:,} rows and {factors} factors, read in pieces; the codes take "
        f"{_megabytes(size)}, {where}"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
