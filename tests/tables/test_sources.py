"""Files of every format hold the same cells, and a damaged one is refused in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.adapters.records import read_records
from recombine.errors import InvalidRequest, UnknownName
from recombine.tables import arrow, reading
from recombine.tables.arrow import FastTextTable, ReadAnother
from recombine.tables.pieces import Lists, Numbers, Piece, as_text
from recombine.tables.reading import column_names, open_source, read_rows
from recombine.tables.sources import JsonLines, Source, TextTable

WHY = "needs pyarrow: pip install 'recombine[analysis]'"


def cells(source: Source, names: Sequence[str] | None = None) -> dict[str, list]:
    """Everything a source streams, as text."""
    names = list(source.names) if names is None else list(names)
    found: dict[str, list] = {name: [] for name in names}
    for chunk in source.chunks(names):
        for name in names:
            found[name] += texts(chunk[name])
    return found


def texts(piece: Piece) -> list:
    if isinstance(piece, Numbers):
        return [as_text(x) for x in piece.array.tolist()]
    if isinstance(piece, Lists):
        items = iter(texts(piece.items))
        return [None if n < 0 else [next(items) for _ in range(n)] for n in piece.lengths]
    return [piece.values[c] if c >= 0 else None for c in piece.codes]


CELLS = st.text('ab,;"\n\r\t| é猫\0', max_size=5)
TABLES = st.integers(1, 4).flatmap(lambda k: st.lists(st.lists(CELLS, min_size=k, max_size=k)))


@given(TABLES)
@settings(max_examples=60)
def test_what_the_standard_library_writes_is_read_back(tmp_path_factory, table: list[list[str]]):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    width = len(table[0]) if table else 1
    names = [f"c{i}" for i in range(width)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *table])
    source = TextTable(path)
    found = cells(source)
    assert source.names == names
    assert [found[name] for name in names] == [[row[i] for row in table] for i in range(width)]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path: Path, mark: str):
    path = tmp_path / "t.csv"
    path.write_text(f"a{mark}b{mark}c\n1{mark}x y{mark}3\n2{mark}'{mark}4\n")
    assert TextTable(path).delimiter == mark
    assert cells(TextTable(path))["b"] == ["x y", "'"]


def test_a_delimiter_inside_cells_does_not_mislead(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text('id,tags\n1,a;b;c\n2,"d,e;f"\n')
    assert cells(TextTable(path)) == {"id": ["1", "2"], "tags": ["a;b;c", "d,e;f"]}


def test_tabs_marks_and_empty_lines(tmp_path: Path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"\xef\xbb\xbfa,b\tc\r\n\r\n1\t2\r\n\r\n")
    assert cells(TextTable(path)) == {"a,b": ["1"], "c": ["2"]}


def test_a_cell_of_megabytes_is_read_and_the_limit_is_left_alone(tmp_path: Path):
    path = tmp_path / "t.csv"
    before = csv.field_size_limit()
    path.write_text("a,b\n1," + "x" * 10**7 + "\n")
    assert len(cells(TextTable(path))["b"][0]) == 10**7
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("1,2,3\n4,5,6\n", "no header"),
        ("a,b\n1,2\n1,2,3\n", "line 3: 3 cells, expected 2"),
        ('a,b\n"x\ny",2\n7\n', "line 4: 1 cells, expected 2"),
        ("a,b\n" * 5000 + "1\n", "line 5001: 1 cells"),
    ],
)
def test_a_damaged_csv_is_refused_with_its_line(tmp_path: Path, content: str, said: str):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=said):
        read_rows(path, None)


def test_another_encoding_is_named(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_bytes("name,b\na,1\nMüller,2\n".encode("latin-1"))
    with pytest.raises(InvalidRequest, match="line 3: not UTF-8"):
        read_rows(path, None)


def test_json_lines_hold_lists_and_lack_keys(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    lines: list[Any] = [{"a": 1, "t": ["x", "y"]}, {"a": "1", "b": None}, {"b": True, "t": []}]
    path.write_text("\n\n".join(json.dumps(line) for line in lines))
    assert cells(JsonLines(path)) == {
        "a": ["1", "1", None],
        "t": [["x", "y"], None, []],
        "b": [None, None, "true"],
    }


def test_a_key_met_late_is_found(tmp_path: Path):
    path = tmp_path / "t.ndjson"
    path.write_text('{"a": 1}\n' * 3000 + '{"a": 2, "late": "x"}\n')
    assert read_rows(path, ["late"]).factors[0].values == ("x", "(missing)")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ('{"a": 1}\n{"a": \n', "line 2: .* expected one JSON object a line"),
        ("[1, 2]\n", "line 1: a list, expected one JSON object"),
        ('{"a": 1}\n' + "[" * 100_000, "line 2: .* expected one JSON object"),
        ('{"a": ' + "1" * 5000 + "}\n", "line 1"),
    ],
)
def test_a_damaged_json_file_is_refused_with_its_line(tmp_path: Path, content: str, said: str):
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=said):
        read_rows(path, None)


def test_a_file_nobody_knows_is_refused_with_what_is_known(tmp_path: Path):
    with pytest.raises(InvalidRequest, match="there is no file"):
        column_names(tmp_path / "t.csv")
    (tmp_path / "t.xlsx").write_text("")
    with pytest.raises(InvalidRequest, match=r"\.csv.*\.parquet"):
        column_names(tmp_path / "t.xlsx")
    with pytest.raises(InvalidRequest, match="without a dataset"):
        column_names(tmp_path)
    with pytest.raises(InvalidRequest, match="from a int"):
        column_names(3)


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(arrow, "have_arrow", lambda: False)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    for path in (tmp_path / "t.parquet", tmp_path):
        with pytest.raises(InvalidRequest, match=r'pip install "recombine\[analysis\]"'):
            column_names(path)


def test_a_pyarrow_that_cannot_be_loaded_is_one_line_and_csv_does_without(
    tmp_path: Path, monkeypatch
):
    def broken(name: str) -> None:
        raise ImportError("libarrow.so: not found")

    monkeypatch.setattr(arrow, "import_module", broken)
    monkeypatch.setattr(arrow, "have_arrow", lambda: True)
    monkeypatch.setattr(reading, "have_arrow", lambda: True)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    (tmp_path / "t.csv").write_text("a,b\nx,1\ny,2\n")
    for read in (column_names, lambda path: read_rows(path, ["a"]), read_records):
        with pytest.raises(InvalidRequest, match=r"cannot be loaded \(libarrow\.so: not found\)"):
            read(tmp_path / "t.parquet")
    assert read_rows(tmp_path / "t.csv", ["a"]).factors[0].values == ("x", "y")
    assert [record["a"] for record in read_records(tmp_path / "t.csv")] == ["x", "y"]


def test_a_dataset_folder_may_not_name_files_elsewhere(tmp_path: Path):
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "../secret.arrow"}]}')
    with pytest.raises(InvalidRequest, match="expected a plain name"):
        column_names(tmp_path)
    (tmp_path / "state.json").write_text("[")
    with pytest.raises(InvalidRequest, match="cannot read"):
        column_names(tmp_path)


# --- with pyarrow ---------------------------------------------------------------------------

# Cells as they stand in a file, sound and unsound.
RAW = st.sampled_from(
    ["a", "a b", "", '""', '"a,b"', '"x\ny"', '"x\r\ny"', '"q""q"', 'a"b', '"a"b', ' "a"', '"',
     "é", "\0", "NA", "01", "1.0", "\u2028", "\\", '"\\"', " "]
)  # fmt: skip


@pytest.mark.heavy
@given(
    st.integers(1, 3).flatmap(
        lambda k: st.tuples(st.lists(st.lists(RAW, min_size=k, max_size=k)), st.just(k))
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
@settings(max_examples=150)
def test_both_readers_of_csv_give_the_same_cells(tmp_path_factory, table, end: str):
    pytest.importorskip("pyarrow", reason=WHY)
    rows, width = table
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    lines = [",".join("abc"[:width]), *(",".join(row) for row in rows)]
    path.write_bytes(end.join(lines).encode())
    plain = TextTable(path)
    try:
        fast = cells(FastTextTable(plain))
    except ReadAnother:
        return  # read_rows turns to the plain reader
    assert fast == cells(plain)


@pytest.mark.heavy
@pytest.mark.parametrize("cell", ["x" * 10**7, "short"])
def test_where_the_fast_reader_fails_the_plain_one_reads(tmp_path: Path, cell: str):
    pytest.importorskip("pyarrow", reason=WHY)
    path = tmp_path / "t.csv"
    path.write_text(f'a,b\n1,2\n2,"{cell}"\n')
    rows = read_rows(path, ["a"], columns=["b"])
    assert rows.column("b").tolist() == ["2", cell]
    path.write_text("a,b\n1,2\n1\n")
    with pytest.raises(InvalidRequest, match="line 3: 1 cells"):
        read_rows(path, None)


@pytest.mark.heavy
def test_parquet_and_arrow_hold_the_same_cells(tmp_path: Path):
    pa = pytest.importorskip("pyarrow", reason=WHY)
    from pyarrow import feather, parquet

    table = pa.table(
        {
            "word": ["x", None, "y"],
            "category": pa.array(["p", "q", None]).dictionary_encode(),
            "whole": pa.array([1, None, 3], pa.int64()),
            "large": pa.array([2**62 + 1, None, 3], pa.int64()),
            "real": pa.array([0.5, None, float("nan")], pa.float32()),
            "truth": [True, None, False],
            "list": [["a", "b"], None, []],
            "numbers": pa.array([[1, 2], [], [3]], pa.list_(pa.int8())),
            "nested": [[["a"]], [], None],
            "nothing": pa.nulls(3),
            "day": pa.array([0, 1, None], pa.date32()),
            "bytes": [b"x", b"y", None],
            "structure": [{"k": 1}, None, {"k": 2}],
        }
    )
    expected = {
        "word": ["x", None, "y"],
        "category": ["p", "q", None],
        "whole": ["1", None, "3"],
        "large": [str(2**62 + 1), None, "3"],
        "real": ["0.5", None, None],
        "truth": ["true", None, "false"],
        "list": [["a", "b"], None, []],
        "numbers": [["1", "2"], [], ["3"]],
        "nested": [['["a"]'], [], None],
        "nothing": [None, None, None],
        "day": ["1970-01-01", "1970-01-02", None],
        "bytes": ["x", "y", None],
        "structure": ['{"k": 1}', None, '{"k": 2}'],
    }
    parquet.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    with pa.ipc.new_stream(tmp_path / "t.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    for end in ("parquet", "feather", "arrow"):
        assert cells(open_source(tmp_path / f"t.{end}")) == expected, end


@pytest.mark.heavy
def test_a_saved_dataset_is_read_by_its_splits_and_class_names(tmp_path: Path):
    """The layout that `save_to_disk` of datasets 5.2.0 leaves, made by hand."""
    pa = pytest.importorskip("pyarrow", reason=WHY)
    labels = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    features = {
        "label": labels,
        "labels": {"feature": labels, "_type": "List"},
        "before": {"feature": labels, "_type": "Sequence"},
        "first": [labels],  # lists as earlier versions wrote them
        "word": {"dtype": "large_string", "_type": "Value"},
    }
    listed = pa.list_(pa.int64())
    fields = {"label": pa.int64(), "labels": listed, "before": listed, "first": listed,
              "word": pa.large_string()}  # fmt: skip
    noted = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema(fields, metadata=noted)
    lists = [[0, 1], None, [], [-1, None, 1]]
    columns = {"label": [0, 1, None, -1], "labels": lists, "before": lists, "first": lists,
               "word": ["x", None, "y", "x"]}  # fmt: skip
    for split in ("train", "test"):
        folder = tmp_path / split
        folder.mkdir()
        names = [f"data-{i:05d}-of-00002.arrow" for i in range(2)]
        for i, name in enumerate(names):
            half = {key: column[2 * i : 2 * i + 2] for key, column in columns.items()}
            with pa.ipc.new_stream(folder / name, schema) as stream:
                stream.write_table(pa.table(half, schema=schema))
        state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0" * 16,
                 "_format_columns": None, "_format_kwargs": {}, "_format_type": None,
                 "_output_all_columns": False, "_split": None}  # fmt: skip
        (folder / "state.json").write_text(json.dumps(state))
        info = {"citation": "", "description": "", "features": features, "splits": {}}
        (folder / "dataset_info.json").write_text(json.dumps(info))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    told = [["cat", "dog"], None, [], [None, None, "dog"]]
    assert cells(open_source(tmp_path / "train")) == {
        "label": ["cat", "dog", None, None], "labels": told, "before": told, "first": told,
        "word": ["x", None, "y", "x"],
    }  # fmt: skip
    with pytest.raises(InvalidRequest, match="splits train, test: name one"):
        open_source(tmp_path)
    shuffled = {**state, "_indices_data_files": [{"filename": "indices.arrow"}]}
    (tmp_path / "test" / "state.json").write_text(json.dumps(shuffled))
    with pytest.raises(InvalidRequest, match="save it again"):
        open_source(tmp_path / "test")


@pytest.mark.heavy
def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path):
    pa = pytest.importorskip("pyarrow", reason=WHY)
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": ["x"]}), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"b": [1], "a": ["y"]}), tmp_path / "1.parquet")
    assert cells(open_source(tmp_path)) == {"a": ["x", "y"]}
    parquet.write_table(pa.table({"b": [1]}), tmp_path / "2.parquet")
    with pytest.raises(InvalidRequest, match=r"2\.parquet lacks the column 'a'"):
        cells(open_source(tmp_path))


@pytest.mark.heavy
def test_a_folder_as_on_the_hub_is_read_a_split_at_a_time(tmp_path: Path):
    pa = pytest.importorskip("pyarrow", reason=WHY)
    from pyarrow import parquet

    data = tmp_path / "data"
    data.mkdir()
    for name, cell in (("train-00000-of-00002", "x"), ("train-00001-of-00002", "y")):
        parquet.write_table(pa.table({"a": [cell]}), data / f"{name}.parquet")
    for folder in (tmp_path, data, tmp_path / "train", data / "train"):
        assert cells(open_source(folder)) == {"a": ["x", "y"]}
    parquet.write_table(pa.table({"a": ["z"]}), data / "test-00000-of-00001.parquet")
    for folder in (tmp_path, data):
        with pytest.raises(InvalidRequest, match=r"splits test, train: name one.* as .*train"):
            open_source(folder)
        assert cells(open_source(folder / "test")) == {"a": ["z"]}
    with pytest.raises(UnknownName, match=r"tset.*did you mean 'test'"):
        open_source(tmp_path / "tset")
    (data / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(InvalidRequest, match="1 files of the split 'train', expected 2"):
        open_source(tmp_path / "train")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_a_damaged_binary_file_is_refused_in_one_line(tmp_path: Path, name: str):
    pytest.importorskip("pyarrow", reason=WHY)
    (tmp_path / name).write_bytes(b"not what it says" * 10)
    with pytest.raises(InvalidRequest, match="cannot read") as caught:
        read_rows(tmp_path / name, None)
    assert "\n" not in str(caught.value)
