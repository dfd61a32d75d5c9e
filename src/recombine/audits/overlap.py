"""Whether evaluated rows were trained on: what these score says nothing about new data."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from recombine.tables.arrow import FastTextTable, ReadAnother
from recombine.tables.plain import PlainReader
from recombine.tables.reading import column_names, open_source
from recombine.tables.sources import Source
from recombine.tables.spool import Room

MOST = 500_000  # rows of both tables that are compared whole: some seconds
DIFFERENT = 0.95  # of training rows; where fewer differ, equal rows need not be the same row


@dataclass(frozen=True)
class Overlap:
    """How many of the evaluated rows are training rows too, and how that was told."""

    rows: int
    evaluated: int
    told_by: str

    @property
    def sentence(self) -> str:
        return (
            f"{self.rows:,} of {self.evaluated:,} evaluated rows are also training rows "
            f"({self.told_by}): what they score says nothing about new data"
        )


def same_content(one: str, other: str) -> bool:
    """Whether two paths lead to the same file or folder, or to two files alike byte for byte."""
    a, b = Path(one), Path(other)
    if not a.exists() or not b.exists():
        return a == b
    return a.samefile(b) or (a.is_file() and b.is_file() and filecmp.cmp(a, b, shallow=False))


def shared_ids(train: np.ndarray, evaluated: np.ndarray) -> Overlap:
    """The evaluated rows whose name some training row has; a row without a name is no other's."""
    if train.dtype.kind != evaluated.dtype.kind:
        train, evaluated = (np.array(list(map(str, ids)), object) for ids in (train, evaluated))
    known = set(train.tolist()) - {""}
    return Overlap(sum(each in known for each in evaluated.tolist()), len(evaluated), "the same id")


def shared_rows(train: str, evaluated: str, but: Sequence[str]) -> Overlap | None:
    """The evaluated rows of one file that are whole training rows of another.

    Only the columns of both count, and none of `but`. None where these do not tell rows apart:
    two red cubes are not the same row.
    """
    there = column_names(evaluated)
    names = [name for name in column_names(train) if name in there and name not in but]
    return _shared(_keys(train, names), _keys(evaluated, names)) if names else None


def shared_parts(
    source: str, training: Bool[np.ndarray, " row"], but: Sequence[str]
) -> Overlap | None:
    """As `shared_rows`, where one file holds both."""
    names = [name for name in column_names(source) if name not in but]
    keys = _keys(source, names) if names else np.zeros(len(training), np.int64)
    return _shared(keys[training], keys[~training])


def _shared(trained: Int[np.ndarray, " row"], keys: Int[np.ndarray, " row"]) -> Overlap | None:
    known = np.unique(trained)
    if len(known) < DIFFERENT * len(trained):
        return None
    return Overlap(int(np.isin(keys, known).sum()), len(keys), "the same in every column")


def _keys(source: str, names: Sequence[str]) -> Int[np.ndarray, " row"]:
    """A number for each row, the same for rows that are alike in these columns."""
    table = open_source(source)
    try:
        return _hashed(table, names)
    except ReadAnother:  # the fast reader gives up on this file
        assert isinstance(table, FastTextTable)
        return _hashed(table.plain, names)


def _hashed(table: Source, names: Sequence[str]) -> Int[np.ndarray, " row"]:
    found = []
    for chunk in table.chunks(names):
        key = np.zeros(len(chunk[names[0]]), np.int64)
        for name in names:
            cells = PlainReader(name, Room(0), as_text=True)
            cells.add(chunk[name])
            texts = cells.finish()
            # An odd factor loses nothing, and what wraps round is as good as any.
            key = key * 1_000_003 + np.fromiter(map(hash, texts), np.int64, len(texts))
        found.append(key)
    return np.concatenate(found) if found else np.zeros(0, np.int64)
