"""A file with tags: the same rows and columns, the factors beside them, and the sheet to check."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest
from recombine.lab.files import System, put_chunks, write_bytes, writing
from recombine.lab.store_process import temporary_name
from recombine.splits.records import kind_of, read_records
from recombine.tables.rows import MISSING
from recombine.tags.sheet import ROWS, draw_sheet, sheet_csv
from recombine.tags.spec import TagSpec
from recombine.tags.taggers import LIMITS, Tag, Tagged, tag_records, texts

if TYPE_CHECKING:
    from recombine.live.model import Model

SEPARATOR = "|"  # between the values of a list in CSV


@dataclass(frozen=True)
class TaggedFile:
    """What came of tagging a file."""

    path: Path
    sheet: Path
    rows: int
    counts: dict[str, dict[str, int]]
    notes: list[str]


def tag_file(
    source: str | Path,
    spec: TagSpec,
    to: str | Path,
    *,
    column: str | None = None,
    model: Model | None = None,
    timeout: float = 10.0,
    rows: int = ROWS,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> TaggedFile:
    """Tags every row of a CSV, TSV or JSON lines file and draws the sheet to check by hand.

    The tagged file holds all columns of the source and one per factor, empty (null) where a row
    has no tag. The sheet lies beside it and is named after it. Neither is ever overwritten.
    """
    source, to = Path(source), Path(to)
    sheet = sheet_of(to)
    if rows < 1:  # before anything is asked and paid for
        raise InvalidRequest(f"rows={rows}: a sheet has at least one")
    check_paths(source, to)

    def records() -> Iterator[dict[str, Any]]:
        return read_records(source)

    names = _columns(records(), source)
    if twice := [factor.name for factor in spec.factors if factor.name in names]:
        raise InvalidRequest(
            f"{source} already has a column {twice[0]!r}: give the factor another name"
        )
    tagged = tag_records(records, spec, column, model=model, timeout=timeout)
    if say:
        for note in tagged.notes():
            say(note)
    column = column or spec.column
    count = len(next(iter(tagged.tags.values())))
    flat = {name: [as_text(tag) for tag in tags] for name, tags in tagged.tags.items()}
    drawn = draw_sheet(flat, rows, seed)
    # A callable may read the whole row: then that is what a person must see.
    shown = texts(records(), column) if column else (json.dumps(r, default=str) for r in records())
    wanted = set(drawn.places.tolist())
    chosen = [text for place, text in enumerate(shown) if place in wanted]
    page = sheet_csv(drawn, chosen, flat, [str(place + 1) for place in drawn.places])
    _put(to, _tagged_lines(records(), names, tagged, to))
    write_bytes(sheet, page.encode())
    counts = {name: _counted(tags) for name, tags in flat.items()}
    found = any(factor.way in ("lexicon", "regex") for factor in spec.factors)
    return TaggedFile(to, sheet, count, counts, tagged.notes() + ([LIMITS] if found else []))


def check_paths(source: Path, to: Path) -> None:
    """Refuses names of files that cannot be read or would be overwritten."""
    sheet = sheet_of(to)
    if kind_of(source) is None:
        raise InvalidRequest(
            f"{source}: tag reads .csv, .tsv and JSON lines; export the table to one of them"
        )
    if not source.is_file():
        raise InvalidRequest(f"there is no file {source}: check the name and the folder")
    if kind_of(to) is None:
        raise InvalidRequest(f"--to {to}: expected a name that ends in .csv, .tsv or .jsonl")
    for path in (to, sheet):
        if path.exists():
            raise InvalidRequest(f"{path} is there already: give another --to, or move it away")
    check_folder(to)


def check_folder(to: Path) -> None:
    """Refuses a name in a folder that is not there or cannot be written."""
    if not to.parent.is_dir():
        raise InvalidRequest(f"--to {to}: there is no folder {to.parent}; make it first")
    if not os.access(to.parent, os.W_OK):
        raise InvalidRequest(
            f"--to {to}: the folder {to.parent} cannot be written; give another --to"
        )


def sheet_of(to: Path) -> Path:
    """Where the sheet of a tagged file lies."""
    return to.with_name(f"{to.stem}.check.csv")


def as_text(tag: Tag) -> str:
    """A tag as one text, with "(missing)" for none."""
    if tag is None:
        return MISSING
    return tag if isinstance(tag, str) else SEPARATOR.join(tag)


def _counted(tags: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tag in tags:
        found[tag] = found.get(tag, 0) + 1
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _columns(records: Iterator[Mapping[str, Any]], source: Path) -> list[str]:
    if kind_of(source) == "csv":
        found = list(next(records, {}))
    else:
        found = list(dict.fromkeys(name for record in records for name in record))
    if not found:
        raise InvalidRequest(f"{source} has no rows to tag")
    return found


def _tagged_lines(
    records: Iterator[Mapping[str, Any]], names: Sequence[str], tagged: Tagged, to: Path
) -> Iterator[bytes]:
    kind = kind_of(to)
    delimiter = "\t" if to.suffix.lower() == ".tsv" else ","
    if kind == "csv":
        yield _csv_line([*names, *tagged.tags], delimiter)
    held: list[bytes] = []
    for place, record in enumerate(records):
        tags = {name: line[place] for name, line in tagged.tags.items()}
        if kind == "csv":
            cells = [_cell(record.get(name)) for name in names]
            cells += ["" if tag is None else as_text(tag) for tag in tags.values()]
            held.append(_csv_line(cells, delimiter))
        else:
            listed = {n: list(t) if isinstance(t, tuple) else t for n, t in tags.items()}
            held.append(json.dumps({**record, **listed}, ensure_ascii=False).encode() + b"\n")
        if len(held) >= 4096:
            yield b"".join(held)
            held = []
    yield b"".join(held)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv_line(cells: Sequence[str], delimiter: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _put(path: Path, chunks: Iterator[bytes]) -> None:
    """A new file that is wholly there or not at all."""
    unfinished = path.parent / temporary_name()
    try:
        put_chunks(unfinished, chunks, 0)
        with writing(path, 0):
            System.rename(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
