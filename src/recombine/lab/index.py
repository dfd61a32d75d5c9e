"""The index: a cache of requests in SQLite, so that a question need not open every manifest.

It is never the truth. The database lives in memory; the file beside the store is a snapshot of
it that ends in its own SHA-256, replaced in one step. Processes therefore share no database
lock, and a snapshot that is missing, torn, altered or cannot be written costs only time.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import canonical_json, parse_json, write_bytes
from recombine.lab.store_layout import KINDS, check_kind
from recombine.lab.store_sealed import MANIFEST

if TYPE_CHECKING:
    from recombine.lab.store import Store

SUMMARY = "summary"
_SCHEMA = """
CREATE TABLE nodes (
    kind TEXT NOT NULL, id TEXT NOT NULL, stamp TEXT NOT NULL,
    request TEXT NOT NULL, summary TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


@dataclass(frozen=True)
class Row:
    """One committed node as the index knows it; `summary` is its document of that name, or None."""

    kind: str
    id: str
    request: dict[str, Any]
    summary: Any


class Index:
    """Answers which nodes have which request; up to date with the folders at every question.

    >>> import tempfile
    >>> from recombine.lab.store import Store
    >>> store = Store.open(tempfile.mkdtemp())
    >>> store.commit("cell", "c0ffee", request={"model": {"width": 8}})
    True
    >>> [row.id for row in Index(store).query("cell", **{"model.width": 8})]
    ['c0ffee']
    """

    def __init__(self, store: Store):
        self.store = store
        self.path = store.path / "index.sqlite"
        self.not_saved: str | None = None

    def rebuild(self) -> int:
        """Forgets the snapshot and reads every manifest again; gives the number of nodes."""
        with closing(_empty()) as database:
            added, _ = self._bring_up_to_date(database)
            self._save(database)
            return added

    def sync(self) -> tuple[int, int]:
        """Brings the snapshot up to date; gives the number of rows added and removed."""
        with closing(self._load()) as database:
            return self._sync(database)

    def query(self, kind: str, **equals: Any) -> list[Row]:
        """The nodes of a kind whose request has these values at these dotted fields, by id."""
        conditions, values = ["kind = ?"], [check_kind(kind)]
        for field, value in equals.items():
            condition, bound = _condition(field, value)
            conditions.append(condition)
            values.extend(bound)
        select = "SELECT id, request, summary FROM nodes WHERE " + " AND ".join(conditions)
        with closing(self._load()) as database:
            self._sync(database)
            rows = database.execute(select + " ORDER BY id", values).fetchall()
        return [Row(kind, id, _value(request), _value(summary)) for id, request, summary in rows]

    # --- the snapshot ------------------------------------------------------------------------

    def _load(self) -> sqlite3.Connection:
        try:
            data = self.path.read_bytes()
        except OSError:
            return _empty()
        snapshot, digest = data[:-32], data[-32:]
        if hashlib.sha256(snapshot).digest() != digest:
            return _empty()
        database = sqlite3.connect(":memory:")
        try:
            database.deserialize(snapshot)
            version = database.execute("PRAGMA user_version").fetchone()
            database.execute("SELECT kind, id, stamp, request, summary FROM nodes LIMIT 1")
        except sqlite3.Error:
            version = None
        if version != (1,):
            database.close()
            return _empty()
        return database

    def _save(self, database: sqlite3.Connection) -> None:
        self.not_saved = self.store.why_read_only
        if self.not_saved:
            return
        snapshot = database.serialize()
        try:
            data = snapshot + hashlib.sha256(snapshot).digest()
            write_bytes(self.path, data, staging=self.store.path / "temp", durable=False)
        except StoreError as error:
            self.not_saved = str(error)  # the answers are right all the same, only slower to get

    def _sync(self, database: sqlite3.Connection) -> tuple[int, int]:
        added, removed = self._bring_up_to_date(database)
        if added or removed:
            self._save(database)
        return added, removed

    def _bring_up_to_date(self, database: sqlite3.Connection) -> tuple[int, int]:
        there = {(kind, id): stamp for kind, id, stamp in self._stamps()}
        known = {
            (kind, id): stamp
            for kind, id, stamp in database.execute("SELECT kind, id, stamp FROM nodes")
        }
        stale = [key for key, stamp in known.items() if there.get(key) != stamp]
        added = 0
        with database:
            database.executemany("DELETE FROM nodes WHERE kind = ? AND id = ?", stale)
            for (kind, id), stamp in there.items():
                if known.get((kind, id)) == stamp:
                    continue
                try:
                    row = self._describe(kind, id)
                except StoreError:
                    continue  # damaged, and set aside by the reading: it is no longer a node
                database.execute(
                    "INSERT INTO nodes VALUES (?, ?, ?, ?, ?)", (kind, id, stamp, *row)
                )
                added += 1
        return added, len(stale)

    def _stamps(self) -> Iterator[tuple[str, str, str]]:
        for kind in KINDS:
            for id, folder in self.store.folders(kind):
                try:
                    stat = (folder / MANIFEST).stat()
                except OSError:
                    continue
                # A node that was set aside and made again is another file under the same name.
                yield kind, id, f"{stat.st_mtime_ns}-{stat.st_ino}-{stat.st_size}"

    def _describe(self, kind: str, id: str) -> tuple[str, str]:
        manifest = self.store.manifest(kind, id)
        file = f"{SUMMARY}.json"
        present = file in manifest["files"] and file not in self.store.absent(kind, id)
        summary = self.store.document(kind, id, SUMMARY) if present else None
        return _text(manifest["request"]), _text(summary)


def _empty() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.executescript(_SCHEMA)
    return database


def _text(value: Any) -> str:
    return canonical_json(value).decode().rstrip("\n")


def _value(text: str) -> Any:
    return parse_json(text.encode())


def _condition(field: str, value: Any) -> tuple[str, list[Any]]:
    if '"' in field or not all(field.split(".")):
        raise InvalidRequest(f"{field!r} is not a request field: expected one like model.width")
    path = "$." + ".".join(f'"{part}"' for part in field.split("."))
    spellings = [f"[{text},{text}]" for text in _spellings(value)]
    # Given two paths, SQLite answers with a JSON array in the request's own spelling, which keeps
    # true from 1, NaN from null, and the last digit of a float; given one, it would convert.
    places = ", ".join("?" * len(spellings))
    condition = f"(json_type(request, ?) IS NOT NULL AND json_extract(request, ?, ?) IN ({places}))"
    return condition, [path, path, path, *spellings]


def _spellings(value: Any) -> list[str]:
    """Every way a request may spell this value: 8 and 8.0 are the same width."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and abs(value) < 2**53 and value == int(value):
        whole = int(value)
        return [_text(whole), _text(float(whole)), *(["-0.0"] if whole == 0 else [])]
    return [_text(value)]
