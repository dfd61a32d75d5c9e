"""Tables read whole: names, other columns, row ids, memory, and the same codes from each format."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from recombine.errors import InvalidRequest, UnknownName
from recombine.tables import reading
from recombine.tables.coding import Coding
from recombine.tables.reading import column_names, read_rows
from recombine.tables.rows import Rows, aligned
from recombine.tables.spool import Room, Spool

WHY = "needs pyarrow: pip install 'recombine[analysis]'"
TOY = {"colour": ["red", "blue", "red"], "shape": ["cube", "ball", ""], "right": [1, 0, 1]}


def table(rows: int) -> dict[str, list]:
    """Columns of every kind, each value as a format of text would write it."""
    rng = np.random.default_rng(0)
    words = ["red", "green", "blue", "NA", ""]
    return {
        "colour": [words[i] for i in rng.integers(0, 5, rows)],
        "size": [round(float(x), 4) for x in rng.normal(size=rows)],
        "age": [int(x) for x in rng.integers(0, 90, rows)],
        "few": [int(x) for x in rng.integers(0, 4, rows)],
        "mixed": ["x" if x == 7 else str(x) for x in rng.integers(0, 20, rows)],
        "tags": [[f"t{i}" for i in range(6) if rng.random() < 0.3] for _ in range(rows)],
        "right": [bool(x) for x in rng.integers(0, 2, rows)],
        "note": [f"note {i}" for i in range(rows)],
    }


def write_csv(path: Path, columns: dict[str, list]) -> Path:
    import csv

    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for line in zip(*columns.values(), strict=True):
            writer.writerow([json.dumps(c) if isinstance(c, list) else c for c in line])
    return path


def same(a: Rows, b: Rows) -> None:
    assert a.names == b.names
    for one, other in zip(a.factors, b.factors, strict=True):
        assert (one.values, one.rule) == (other.values, other.rule), one.name
        np.testing.assert_array_equal(one.codes, other.codes, one.name)
        assert one.codes.dtype == other.codes.dtype
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name], name)


FACTORS = ["colour", "size", "age", "few", "mixed", "tags"]


def test_every_format_of_text_gives_the_same_codes(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(reading, "have_arrow", lambda: False)
    columns = table(5000)
    lines = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = read_rows(columns, FACTORS, columns=["right", "note"])
    assert expected.column("right").dtype == np.float64
    assert expected.column("note")[4999] == "note 4999"
    for path in (tmp_path / "t.jsonl", write_csv(tmp_path / "t.csv", columns)):
        same(expected, read_rows(path, FACTORS, columns=["right", "note"]))


@pytest.mark.heavy
def test_every_format_of_pyarrow_gives_the_same_codes(tmp_path: Path, monkeypatch):
    pa = pytest.importorskip("pyarrow", reason=WHY)
    from pyarrow import parquet

    columns = table(20_000)
    # Few enough that sizes are streamed as numbers, and ages are not.
    coding = Coding(most_values=100)
    expected = read_rows(columns, FACTORS, columns=["right", "note"], coding=coding)
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pa.ipc.new_stream(tmp_path / "t.arrow", pa.table(columns).schema) as stream:
        stream.write_table(pa.table(columns))
    path = write_csv(tmp_path / "t.csv", columns)
    for name in ("t.parquet", "t.arrow", "t.csv"):
        same(
            expected,
            read_rows(tmp_path / name, FACTORS, columns=["right", "note"], coding=coding),
        )
    monkeypatch.setattr(reading, "have_arrow", lambda: False)
    same(expected, read_rows(path, FACTORS, columns=["right", "note"], coding=coding))


def test_all_columns_but_the_others_are_factors():
    assert column_names(TOY) == ["colour", "shape", "right"]
    assert read_rows(TOY, None, columns=["right"]).names == ("colour", "shape")
    assert read_rows(TOY, None, id="colour").names == ("shape", "right")


def test_a_column_may_be_a_factor_and_a_number():
    rows = read_rows(TOY, ["right"], columns=["right"])
    assert rows.factors[0].values == ("0", "1") and rows.column("right").tolist() == [1, 0, 1]


@pytest.mark.parametrize("where", ["factors", "columns", "id", "text"])
def test_a_column_that_is_not_there_is_named_with_the_nearest(where: str):
    given = {"factors": ["colour"], "columns": [], "id": None}
    coding = Coding(text=("colur",)) if where == "text" else None
    if where != "text":
        given[where] = "colur" if where == "id" else ["colur"]
    with pytest.raises(UnknownName, match="did you mean 'colour'"):
        read_rows(TOY, **given, coding=coding)


@pytest.mark.parametrize("factors", [[], "colour"])
def test_no_factors_are_refused(factors):
    with pytest.raises(InvalidRequest, match="factors"):
        read_rows(TOY, factors)


def test_a_header_without_rows_is_refused(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(InvalidRequest, match="has no rows"):
        read_rows(tmp_path / "t.csv", ["a"])
    with pytest.raises(InvalidRequest, match="has no rows"):
        read_rows({"a": []}, ["a"])


def test_two_columns_of_one_name_are_refused_where_it_matters(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,b,b\n1,2,3\n")
    assert len(read_rows(tmp_path / "t.csv", ["a"])) == 1
    with pytest.raises(InvalidRequest, match="2 columns 'b'"):
        read_rows(tmp_path / "t.csv", ["b"])


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(InvalidRequest, match="differ in length"):
        read_rows({"a": [1, 2], "b": [1]}, None)


def test_other_columns_are_numbers_with_nothing_where_missing_or_text_as_written():
    columns = {
        "x": ["a", "b", "c"],
        "truth": ["True", "false", ""],
        "number": ["1.50", "NA", "2e3"],
        "text": ["1.50", None, "2 or 3"],
        "list": [["a"], None, []],
    }
    rows = read_rows(columns, ["x"], columns=["truth", "number", "text", "list"])
    np.testing.assert_array_equal(rows.column("truth"), [1, 0, np.nan])
    np.testing.assert_array_equal(rows.column("number"), [1.5, np.nan, 2000])
    assert rows.column("text").tolist() == ["1.50", "", "2 or 3"]
    assert rows.column("list").tolist() == ['["a"]', "", "[]"]


def test_a_word_at_the_end_makes_the_whole_column_text_as_it_was_written():
    cells = ["1.0"] * 5000 + ["one"]
    rows = read_rows({"x": ["a"] * 5001, "y": cells}, ["x"], columns=["y"])
    assert rows.column("y").tolist() == cells


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ([7, 8, 9], ["7", "8", "9"]),
        (["7", "8", "9"], ["7", "8", "9"]),
        (["007", "8", "9.0"], ["007", "8", "9.0"]),
        (["a", None, "b"], ["a", "", "b"]),
    ],
)
def test_rows_are_named_by_their_id(cells: list, names: list[str]):
    rows = read_rows(TOY | {"id": cells}, ["colour"], id="id")
    assert rows.name_of([0, 1, 2]) == names
    assert rows.take([2]).name_of([0]) == names[2:]


def test_rows_without_id_are_numbered_from_one():
    assert read_rows(TOY, ["colour"]).name_of([0, 2]) == ["1", "3"]


def test_another_table_shares_values_with_the_first():
    train = read_rows(TOY, ["colour", "shape"])
    other = read_rows({"shape": ["cone", "cube"], "colour": ["blue", "pink"]}, None, like=train)
    assert other.names == train.names
    assert [f.values for f in other.factors] == [
        ("blue", "red", "pink"), ("ball", "cube", "(missing)", "cone")]  # fmt: skip
    together = aligned(train, other)
    assert [f.values for f in together[0].factors] == [f.values for f in other.factors]
    with pytest.raises(UnknownName):
        read_rows(TOY, ["right"], like=train)


def test_what_exceeds_the_memory_lies_in_a_file_and_is_the_same():
    columns, said = table(20_000), []
    tight = Coding(memory=30_000, most_values=100)
    roomy = Coding(most_values=100)
    expected = read_rows(columns, FACTORS, columns=["right", "note"], coding=roomy)
    found = read_rows(columns, FACTORS, columns=["right", "note"], coding=tight, say=said.append)
    same(expected, found)
    assert sum(isinstance(factor.codes, np.memmap) for factor in found.factors) >= 5
    assert "20,000 rows and 6 factors" in said[0] and "temporary file" in said[0]


def test_temporary_files_are_gone_at_once(tmp_path: Path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = read_rows({"x": list("abc") * 5000}, ["x"], coding=Coding(memory=0))
    assert isinstance(rows.factors[0].codes, np.memmap) and rows.factors[0].codes[-1] == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_streamed_and_never_held(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(reading, "have_arrow", lambda: False)
    path = tmp_path / "t.csv"
    with path.open("w") as file:
        file.write("a,b,c\n")
        file.writelines(f"word {i % 7},{i % 10},{'x' * 200}\n" for i in range(60_000))
    tracemalloc.start()
    try:
        read_rows(path, ["a", "b"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 3


def test_a_spool_gives_back_what_was_written_in_memory_and_beyond():
    rng = np.random.default_rng(0)
    pieces = [rng.integers(0, 200, rng.integers(0, 50)).astype(k)
              for k in (np.uint8, np.uint16, np.int64, np.float64) * 5]  # fmt: skip
    room = Room(memory=500)
    spool = Spool(room)
    for i, piece in enumerate(pieces):
        spool.append(piece)
        next(iter(spool.pieces()))  # reading in between leaves the place of writing alone
        assert spool.length == sum(map(len, pieces[: i + 1]))
    for found, piece in zip(spool.pieces(), pieces, strict=True):
        np.testing.assert_array_equal(found, piece)
        assert found.dtype == piece.dtype
    assert room.used <= 500 and room.spilled > 0
    spool.clear()
    room.close()
    assert room.used == 0


# --- columns that name rows ---

ROWS = 200
ORDINARY = {"colour": ["red", "blue"] * (ROWS // 2), "size": [n % 40 for n in range(ROWS)]}


@pytest.mark.parametrize(
    "names",
    [
        [f"r{n}" for n in range(ROWS)],
        list(range(ROWS)),
        list(np.random.default_rng(0).permutation(ROWS) + 7),
        sorted(np.random.default_rng(0).choice(300, ROWS, replace=False).tolist()),
        [f"r{n}" for n in range(ROWS - 4)] + ["r0"] * 4,
        [f"r{n}" for n in range(ROWS - 50)] + [""] * 50,
    ],
)
def test_a_column_with_another_value_in_every_row_is_left_out_unless_it_is_named(names):
    table = {"id": names, **ORDINARY}
    said = []
    rows = read_rows(table, None, say=said.append)
    assert rows.names == ("colour", "size") and rows.left_out == ("id",)
    assert said[0].endswith("left out: id (a different value in every row)")
    named = read_rows(table, ["id", "colour"])
    assert named.names == ("id", "colour") and named.left_out == ()
    assert read_rows(table, None, like=named).names == ("id", "colour")


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=ROWS),
        np.random.default_rng(0).choice(10**6, ROWS, replace=False),
        [f"r{n % 150}" for n in range(ROWS)],
        [[f"r{n}"] for n in range(ROWS)],
    ],
)
def test_measured_numbers_words_that_return_and_lists_stay_factors(values):
    assert read_rows({"x": values, **ORDINARY}, None).left_out == ()


@pytest.mark.parametrize("kind", [str, int])
def test_a_long_column_of_names_is_left_out_and_refused_only_where_it_is_named(kind):
    ids = list(range(25_000)) if kind is int else [f"user {n}" for n in range(25_000)]
    table = {"id": ids, "colour": ["red", "blue"] * 12_500}
    assert read_rows(table, None).left_out == ("id",)
    if kind is str:
        with pytest.raises(InvalidRequest, match=r"'id' has .* different values"):
            read_rows(table, ["id"])


def test_a_table_of_names_alone_is_refused_with_what_to_type():
    with pytest.raises(InvalidRequest, match="--factors"):
        read_rows({"id": [f"r{n}" for n in range(ROWS)]}, None)
