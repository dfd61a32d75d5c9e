"""A file divided on disk: its parts as they were written, the parts of rows, and the card."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import canonical_json, commit_folder, put_bytes, put_chunks
from recombine.splits.card import card_document, card_report
from recombine.splits.checking import guarantees, measure
from recombine.splits.duplicates import CHARACTERS, Shingles, content_labels, near_labels
from recombine.splits.methods import PARTS, Split, SplitSpec, split, withheld_labels
from recombine.splits.pieces import Labels, together, value_numbers
from recombine.splits.records import Records, content, find_records, kind_of, read_records
from recombine.tables.rows import Rows, aligned

if TYPE_CHECKING:
    from recombine.tables.reading import Coding

CARD, PAGE, PART_FILE = "card.json", "card.html", "parts.csv"
_ODD = "\x1f"


@dataclass(frozen=True)
class Whole:
    """Which rows stay together: those of a group, exact duplicates, and near ones of a text.

    Duplicates are rows of the same content in all columns but `id`, or with `text` rows of the
    same text. Near duplicates are looked for where there is a text; `near=1` looks for none.
    """

    group: str | None = None
    text: str | None = None
    near: float = 0.9
    shingles: Shingles = CHARACTERS
    id: str | None = None
    duplicates: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.near <= 1:
            raise InvalidRequest(f"near={self.near}: expected more than 0 and at most 1")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.group, self.text) if name))

    @property
    def threshold(self) -> float | None:
        return self.near if self.text and self.near < 1 and self.duplicates else None


def split_file(
    source: str | Path,
    factors: Sequence[str] | None,
    to: str | Path,
    spec: SplitSpec,
    whole: Whole | None = None,
    *,
    coding: Coding | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Divides a file into a new folder and gives its card.

    The folder holds train, test (and validation, unused) in the format of a CSV, TSV or JSON lines
    file, record by record as they were; for other sources the numbers of the rows of each part.
    Beside them: parts.csv (row, part), card.json and card.html. The card is measured on what was
    written. The folder appears complete or not at all.
    """
    from recombine.tables.reading import Coding, left_out

    whole, path, target = whole or Whole(), Path(source), Path(to)
    coding = coding or Coding()
    if target.exists():
        raise InvalidRequest(f"--to {target} is there already: give a new folder")
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise InvalidRequest(f"--to {target}: {above} cannot be written; give another folder")
    rows = _read(path, factors, whole, coding)
    tell = say or (lambda _: None)
    if rows.left_out:
        tell(f"left out: {left_out(rows.left_out)}")
    records = find_records(path) if kind_of(path) else None
    notes = []
    if records is not None and len(records) != len(rows):
        notes.append(f"{len(records)} records but {len(rows)} rows: only row numbers are written")
        records = None
    blocks = _blocks(rows, path, whole, tell)
    made = split(rows, spec, blocks)
    made_card: dict[str, Any] = {}

    def build(folder: Path) -> None:
        lost = _write_parts(folder, made, rows, records)
        put_chunks(folder / PART_FILE, _part_lines(rows, made), 0)
        tell("checking what was written")
        parts = _read_back(folder, rows, records, whole, coding)
        found = _measured(made, parts, rows, whole, path)
        promises = guarantees(made, {name: part for name, (part, _) in parts.items()}, found, lost)
        made_card.update(
            card_document(
                made, found, promises, source=path.name, factors=rows.names,
                withheld=withheld_labels(rows, made), notes=notes + _remarks(blocks, whole),
            )
        )  # fmt: skip
        from recombine.report.html import render

        put_bytes(folder / PAGE, render(card_report(made_card)).encode())
        put_bytes(folder / CARD, canonical_json(made_card))

    if not commit_folder(build, target):
        raise StoreError(f"{target} appeared while it was being made: give a new folder")
    return made_card


def _read(path: Path, factors: Sequence[str] | None, whole: Whole, coding: Coding,
          like: Rows | None = None) -> Rows:  # fmt: skip
    from recombine.tables.reading import read_rows

    return read_rows(path, factors, columns=whole.columns, id=whole.id, coding=coding, like=like)


def _blocks(rows: Rows, path: Path, whole: Whole, tell: Callable[[str], None]) -> Labels:
    labels = [np.arange(len(rows))]
    if whole.group:
        labels.append(_groups(rows, whole))
    if whole.duplicates:
        tell("looking for duplicates")
        labels.append(content_labels(_contents(rows, path, whole)))
        if whole.threshold is not None:
            assert whole.text is not None
            texts = _texts(rows, whole.text)
            labels.append(near_labels(texts, whole.threshold, shingles=whole.shingles))
    return together(*labels)


def _groups(rows: Rows, whole: Whole) -> Labels:
    """A number per group; a row without one is a group of its own."""
    assert whole.group is not None
    named = _texts(rows, whole.group)
    return content_labels(name or f"{_ODD}{place}" for place, name in enumerate(named))


def _texts(rows: Rows, name: str) -> list[str]:
    column = rows.column(name)
    if column.dtype.kind == "f":
        return ["" if np.isnan(value) else repr(value) for value in column.tolist()]
    return [str(value) for value in column.tolist()]


def _contents(rows: Rows, path: Path, whole: Whole) -> Iterator[str]:
    """What each row says: its text, or all its columns."""
    if whole.text:
        for place, text in enumerate(_texts(rows, whole.text)):
            yield text.strip() or f"{_ODD}{place}"
        return
    if kind_of(path):
        without = frozenset([whole.id] if whole.id else [])
        for record in read_records(path):
            yield content(record, without)
        return
    yield from _coded_contents(rows, path, whole)


def _coded_contents(rows: Rows, path: Path, whole: Whole) -> Iterator[str]:
    """The same for files of other kinds: columns as they are read, factors by their values."""
    from recombine.tables.reading import column_names, read_rows

    others = [n for n in column_names(path) if n not in rows.names and n != whole.id]
    read = read_rows(path, list(rows.names), columns=others, id=whole.id)
    numbers, columns = value_numbers(rows), [_texts(read, name) for name in others]
    for place, line in enumerate(numbers.tolist()):
        yield _ODD.join([*map(str, line), *(column[place] for column in columns)])


def _remarks(blocks: Labels, whole: Whole) -> list[str]:
    found = []
    sizes = np.bincount(blocks)
    if sizes.max() > 1:
        found.append(
            f"{len(blocks)} rows are {len(sizes)} sets that stay together; the largest holds "
            f"{sizes.max()}"
        )
    if not whole.duplicates:
        found.append("duplicates were allowed to lie in two parts")
    return found


# --- files -----------------------------------------------------------------------------------


def _file_of(part: str, records: Records | None) -> str:
    return f"{part}{records.path.suffix.lower()}" if records else f"{part}_rows.csv"


def _parts_of(made: Split) -> list[str]:
    return [name for place, name in enumerate(PARTS) if (made.part == place).any()]


def _write_parts(folder: Path, made: Split, rows: Rows, records: Records | None) -> int:
    """Writes the parts, reads them back, and gives how many records are lost, changed or double."""
    if records is None:
        for name in _parts_of(made):
            lines = (f"{place + 1}\n".encode() for place in made.rows_of(name))
            put_chunks(folder / _file_of(name, None), _headed(b"row\n", lines), 0)
        numbers = np.concatenate([_numbers(folder, name) for name in _parts_of(made)])
        return int(len(rows) - len(np.intersect1d(numbers, np.arange(len(rows)))))
    wanted = _tally(records.raw())
    for name in _parts_of(made):
        chosen = made.part == PARTS.index(name)
        lines = (raw for raw, mine in zip(records.raw(), chosen, strict=True) if mine)
        size = int((records.ends - records.starts)[chosen].sum())
        put_chunks(folder / _file_of(name, records), _headed(records.header, lines), size)
    written = [find_records(folder / _file_of(name, records)) for name in _parts_of(made)]
    found = _tally(raw for part in written for raw in part.raw())
    return sum(abs(found.get(key, 0) - wanted.get(key, 0)) for key in found.keys() | wanted.keys())


def _tally(raw: Iterator[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for one in raw:
        key = hashlib.blake2b(one, digest_size=16).digest()
        found[key] = found.get(key, 0) + 1
    return found


def _headed(header: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines in chunks: a write for each would take longer than all the rest."""
    held = [header]
    for line in lines:
        held.append(line)
        if len(held) >= 4096:
            yield b"".join(held)
            held = []
    yield b"".join(held)


def _part_lines(rows: Rows, made: Split) -> Iterator[bytes]:
    names = rows.name_of(np.arange(len(rows)))
    lines = (f"{_cell(name)},{PARTS[part]}\n".encode()
             for name, part in zip(names, made.part.tolist(), strict=True))  # fmt: skip
    return _headed(b"row,part\n", lines)


def _cell(text: str) -> str:
    risky = any(mark in text for mark in ',"\n\r')
    return '"' + text.replace('"', '""') + '"' if risky else text


def _numbers(folder: Path, part: str) -> np.ndarray:
    with (folder / _file_of(part, None)).open(newline="") as file:
        return np.array([int(line[0]) - 1 for line in list(csv.reader(file))[1:]], np.int64)


def _read_back(
    folder: Path, rows: Rows, records: Records | None, whole: Whole, coding: Coding
) -> dict[str, tuple[Rows, Path | None]]:
    found = {}
    for name in PARTS:
        path = folder / _file_of(name, records)
        if not path.exists():
            continue
        if records is None:
            part, place = rows.take(_numbers(folder, name)), None
        else:
            part, place = _read(path, rows.names, whole, coding, like=rows), path
        found[name] = (aligned(rows, part)[1], place)
    return found


def _measured(
    made: Split,
    parts: Mapping[str, tuple[Rows, Path | None]],
    rows: Rows,
    whole: Whole,
    source: Path,
) -> dict[str, Any]:
    kept = [name for name in PARTS if name in parts and name != "unused"]
    said: list[str] = []
    if whole.duplicates:
        of_file = None
        for name in kept:
            part, path = parts[name]
            if path is None:  # the part holds numbers of rows: what they say is in the source
                of_file = of_file or list(_contents(rows, source, whole))
                each = [of_file[place] for place in made.rows_of(name)]
            else:
                each = _contents(part, path, whole)
            # A row without a text is like no other, also not of another part.
            said += [f"{one}{_ODD}{name}" if one.startswith(_ODD) else one for one in each]
    tables = [parts[name][0] for name in kept]
    texts = [t for part in tables for t in _texts(part, whole.text)] if whole.text else None
    named = [n for part in tables for n in _texts(part, whole.group)] if whole.group else []
    return measure(
        made,
        {name: part for name, (part, _) in parts.items()},
        rows,
        contents=content_labels(said) if whole.duplicates else None,
        texts=texts,
        near=whole.threshold,
        shingles=whole.shingles,
        groups=content_labels(n or f"{_ODD}{i}" for i, n in enumerate(named)) if named else None,
    )
