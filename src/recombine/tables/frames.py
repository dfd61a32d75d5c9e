"""Coded rows to and from pandas frames, and to files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.errors import InvalidRequest
from recombine.lab.files import write_bytes
from recombine.tables.coding import Coding
from recombine.tables.reading import read_rows
from recombine.tables.rows import MISSING, NONE, Factor, Rows

if TYPE_CHECKING:
    import pandas


def from_frame(
    frame: pandas.DataFrame,
    factors: Sequence[str] | None = None,
    *,
    columns: Sequence[str] = (),
    id: str | None = None,
    coding: Coding | None = None,
    like: Rows | None = None,
    say: Callable[[str], None] | None = None,
) -> Rows:
    """Coded rows of a pandas frame; its index is not read (`frame.reset_index()` makes it one)."""
    return read_rows(
        frame, factors, columns=columns, id=id, coding=coding, like=like, say=say
    )  # fmt: skip


def to_frame(rows: Rows) -> pandas.DataFrame:
    """A pandas frame of coded rows: factors as categories in their order, lists as lists.

    What is missing is missing there too; the index holds the names of the rows.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise InvalidRequest("a frame needs pandas: pip install pandas") from error
    columns: dict[str, Any] = {}
    for factor in rows.factors:
        if factor.many:
            columns[factor.name] = pd.Series(list(_lists(factor)), dtype=object)
            continue
        kept = [value for value in factor.values if value != MISSING]
        place = {value: code for code, value in enumerate(kept)}
        table = np.array([place.get(value, NONE) for value in factor.values], np.int64)
        kind = pd.CategoricalDtype(kept)
        columns[factor.name] = pd.Categorical.from_codes(table[factor.codes], dtype=kind)
    columns |= {name: column for name, column in rows.columns.items() if name not in columns}
    index = np.arange(1, len(rows) + 1) if rows.ids is None else rows.ids
    return pd.DataFrame(columns).set_axis(pd.Index(index, name="row"), axis=0)


def write_rows(rows: Rows, path: str | Path, *, named: bool = False) -> None:
    """Writes coded rows as CSV or JSON lines, as the end of the name says; lists as JSON.

    With `named`, a first column `row` holds the names of the rows. What is missing is an empty
    cell in CSV and null in JSON. The file is there as a whole or not at all.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in (".csv", ".jsonl"):
        raise InvalidRequest(f"cannot write {target}, expected a name that ends in .csv or .jsonl")
    names = [*(["row"] if named else []), *dict.fromkeys([*rows.names, *rows.columns])]
    text = io.StringIO(newline="")
    if kind == ".csv":
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(value) for value in line] for line in _lines(rows, named))
    else:
        for line in _lines(rows, named):
            text.write(json.dumps(dict(zip(names, line, strict=True)), ensure_ascii=False) + "\n")
    write_bytes(target, text.getvalue().encode("utf-8"))


def _lines(rows: Rows, named: bool) -> Iterator[tuple[Any, ...]]:
    columns: list[Iterator[Any]] = [iter(rows.name_of(range(len(rows))))] if named else []
    columns += [_lists(factor) if factor.many else _values(factor) for factor in rows.factors]
    others = [column for name, column in rows.columns.items() if name not in rows.names]
    columns += [map(_plain, column.tolist()) for column in others]
    return zip(*columns, strict=True)


def _values(factor: Factor) -> Iterator[str | None]:
    table = [None if value == MISSING else value for value in factor.values]
    return (table[code] for code in factor.codes.tolist())


def _lists(factor: Factor) -> Iterator[list[str | None]]:
    table = [None if value == MISSING else value for value in factor.values]
    return ([table[c] for c in codes if c != NONE] for codes in factor.codes.tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value if value != "" else None


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
