"""Coded rows to pandas and back, and to files and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.tables.frames import from_frame, to_frame, write_rows
from recombine.tables.reading import read_rows
from recombine.tables.rows import MISSING, Rows

COLUMNS = {
    "colour": ["red", None, "blue"],
    "tags": [["a", "b"], [], ["b"]],
    "n": [2, 10, 2],
    "right": [1.0, None, 0.5],
    "text": ["=1+1", "", "<b>"],
}


@pytest.fixture
def rows() -> Rows:
    return read_rows(COLUMNS, ["colour", "tags", "n"], columns=["right", "text"])


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas", reason="needs pandas: pip install pandas")


def spelled(rows: Rows) -> list:
    return [
        [[f.values[c] for c in codes if c >= 0] if f.many else f.values[codes] for codes in f.codes]
        for f in rows.factors
    ]


@pytest.mark.heavy
def test_a_frame_is_read_whatever_the_kind_of_its_columns(pandas):
    frame = pandas.DataFrame(
        {
            "category": pandas.Categorical(["x", None, "y"]),
            "nullable": pandas.array([1, None, 2], dtype="Int64"),
            "string": pandas.array(["p", None, "q"], dtype="string"),
            "real": [0.5, np.nan, 1.0],
            "truth": [True, False, True],
            "objects": [1, "a", pandas.NA],
            "time": pandas.to_datetime(["2020-01-01", None, "2021-01-01"]),
        },
        index=[5, 6, 7],
    )
    found = dict(zip(frame.columns, spelled(from_frame(frame)), strict=True))
    assert found["category"] == ["x", MISSING, "y"]
    assert found["nullable"] == ["1", MISSING, "2"]
    assert found["string"] == ["p", MISSING, "q"]
    assert found["real"] == ["0.5", MISSING, "1"]
    assert found["truth"] == ["true", "false", "true"]
    assert found["objects"] == ["1", "a", MISSING]
    assert found["time"] == ["2020-01-01 00:00:00", MISSING, "2021-01-01 00:00:00"]


@pytest.mark.heavy
def test_rows_survive_the_trip_through_a_frame(pandas, rows: Rows):
    frame = to_frame(rows)
    assert list(frame.columns) == ["colour", "tags", "n", "right", "text"]
    assert frame.index.tolist() == [1, 2, 3] and frame["colour"].isna().tolist() == [0, 1, 0]
    again = from_frame(frame, ["colour", "tags", "n"], columns=["right", "text"])
    assert spelled(again) == spelled(rows)
    np.testing.assert_array_equal(again.column("right"), rows.column("right"))
    assert again.column("text").tolist() == rows.column("text").tolist()


@pytest.mark.heavy
def test_a_frame_keeps_the_order_of_values_and_the_names_of_rows(pandas, rows: Rows):
    frame = to_frame(rows.take([2, 0]))
    assert frame.index.tolist() == [3, 1]
    assert frame["n"].cat.categories.tolist() == ["2", "10"]


@pytest.mark.heavy
def test_a_frame_with_two_columns_of_one_name_is_refused(pandas):
    frame = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InvalidRequest, match="2 columns 'a'"):
        from_frame(frame)
    with pytest.raises(InvalidRequest, match="not text"):
        from_frame(pandas.DataFrame([[1, 2]]))


@pytest.mark.parametrize("end", ["csv", "jsonl"])
def test_rows_survive_the_trip_through_a_file(tmp_path: Path, rows: Rows, end: str):
    path = tmp_path / f"t.{end}"
    write_rows(rows.take([2, 0, 1]), path, named=True)
    again = read_rows(path, ["colour", "tags", "n"], columns=["right", "text"], id="row")
    assert spelled(again) == spelled(rows.take([2, 0, 1]))
    np.testing.assert_array_equal(again.column("right"), rows.column("right")[[2, 0, 1]])
    assert again.column("text").tolist() == ["<b>", "=1+1", ""]
    assert again.name_of([0, 1, 2]) == ["3", "1", "2"]


def test_a_file_of_another_kind_is_refused(tmp_path: Path, rows: Rows):
    with pytest.raises(InvalidRequest, match=r"\.csv or \.jsonl"):
        write_rows(rows, tmp_path / "t.xlsx")
    assert list(tmp_path.iterdir()) == []
