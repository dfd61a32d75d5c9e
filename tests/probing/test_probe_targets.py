"""What is probed: kinds of targets are told apart, and files are not trusted."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from recombine.errors import InvalidRequest, RecombineError
from recombine.lab.store_tensors import put_tensors
from recombine.probing import groups_of, read_arrays, targets_of
from recombine.tables.rows import Factor, Rows


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (np.array([3, 1, 3]), ["categorical"]),
        (np.array(["b", "a", "b"]), ["categorical"]),
        (np.array([b"b", b"a"]), ["categorical"]),
        (["red", "blue"], ["categorical"]),
        (np.array([True, False]), ["categorical"]),
        (np.array([0.5, 1.0, 2.0]), ["numbers"]),
        (np.ones((3, 2)) * 0.3, ["numbers"]),
        (np.array([[1, 0, 1], [0, 1, 1]]), ["multilabel"]),
        (np.array([[1.0, 1.0], [0.0, 0.0]]), ["multilabel"]),
        (np.array([[1, 0], [0, 1]]), ["categorical"]),
        (np.array([[4, 0], [2, 1]]), ["categorical", "categorical"]),
        (np.array([[4], [2]]), ["categorical"]),
    ],
)
def test_the_kind_of_a_target_is_found_and_said(given, kinds):
    found = targets_of(given)
    assert [one.kind for one in found] == kinds
    assert all(one.said for one in found)


def test_a_kind_can_be_asked_for():
    whole = np.array([3, 1, 2])
    assert targets_of(whole, kind="numbers")[0].columns[:, 0].tolist() == [3, 1, 2]
    assert targets_of(np.array([0.5, 1.5, 0.5]), kind="categorical")[0].values == ("0.5", "1.5")
    with pytest.raises(InvalidRequest, match="matrix of 0 and 1; it holds 2"):
        targets_of(np.array([[0, 2], [1, 1]]), kind="multilabel")
    with pytest.raises(InvalidRequest, match="holds texts"):
        targets_of(np.array(["a", "b"]), kind="numbers")


def test_columns_of_a_categorical_target_mark_each_rows_value():
    one = targets_of(np.array(["b", "a", "b"]))[0]
    assert one.values == ("a", "b")
    assert one.columns.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert one.codes.tolist() == [1, 0, 1]


def test_a_list_column_becomes_labels():
    codes = np.array([[0, 2], [1, -1], [-1, -1]])
    rows = Rows("toy", (Factor("parts", ("p", "q", "r"), codes),))
    (one,) = targets_of(rows)
    assert one.kind == "multilabel" and one.values == ("p", "q", "r")
    assert one.columns.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    with pytest.raises(InvalidRequest, match="holds lists"):
        targets_of(rows, kind="categorical")


def test_a_million_values_are_refused_with_what_to_do():
    with pytest.raises(InvalidRequest, match="5000 different values"):
        targets_of(np.arange(5_000))


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 20), st.integers(1, 3)),
                  elements=st.integers(0, 2)))  # fmt: skip
def test_rows_share_a_group_exactly_when_their_lines_are_equal(lines):
    group = groups_of(lines, [])
    same = (lines[:, None] == lines[None]).all(axis=2)
    np.testing.assert_array_equal(group[:, None] == group[None], same)
    assert group[0] == 0 and set(group) == set(range(group.max() + 1))


# --- files -----------------------------------------------------------------------------------


def npy(array: np.ndarray, **header: object) -> bytes:
    """An npy file, with some of its header's claims replaced."""
    stream = io.BytesIO()
    claims = np.lib.format.header_data_from_array_1_0(array) | header
    np.lib.format.write_array_header_1_0(stream, claims)
    return stream.getvalue() + array.tobytes()


def zipped(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def refused(path: Path, told: str, **options: int) -> None:
    """Refused in one line, with next to nothing allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(RecombineError) as error:
            read_arrays(path, **options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told in str(error.value) and "\n" not in str(error.value)
    assert peak < 20 * 2**20


@pytest.mark.parametrize("kind", ["<f4", "<f2", "<f8", "<i8", "?", "<U3", "S2", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_as_they_were_saved(tmp_path, kind, order):
    array = np.asarray(np.arange(12).reshape(3, 4).astype(kind), order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "b.npz", one=array, **{"block/0": array})
    np.testing.assert_array_equal(read_arrays(tmp_path / "a.npy")["a"], array)
    found = read_arrays(tmp_path / "b.npz")
    assert set(found) == {"one", "block/0"}
    np.testing.assert_array_equal(found["one"], array)


def test_bfloat16_survives_numpys_format_and_safetensors(tmp_path):
    import ml_dtypes

    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "a.npz", layer=array)
    put_tensors(tmp_path / "b.safetensors", {"layer": array})
    for name in ("a.npz", "b.safetensors"):
        found = read_arrays(tmp_path / name)["layer"]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found.astype(float), array.astype(float))


class Boom:
    """What a pickle can do."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_a_pickle_is_never_loaded_whatever_it_is_called(tmp_path):
    for name in ("a.npy", "a.npz", "a.safetensors", "a.pt", "a.pkl"):
        file = tmp_path / name
        file.write_bytes(pickle.dumps(Boom()))
        with pytest.raises(RecombineError):
            read_arrays(file)
    objects = np.array([Boom(), None], dtype=object)
    np.save(tmp_path / "o.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "o.npz", x=objects)
    for name in ("o.npy", "o.npz"):
        with pytest.raises(InvalidRequest, match="Python objects, which are never loaded"):
            read_arrays(tmp_path / name)


def test_a_header_that_claims_too_much_allocates_nothing(tmp_path):
    small = np.zeros((2, 2))
    file = tmp_path / "claim.npy"
    file.write_bytes(npy(small, shape=(2**20, 2**17)))
    refused(file, "claims 1099511627776 bytes")
    file.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 100)
    refused(file, "claims a header of 4294967295 bytes")
    tensors = tmp_path / "claim.safetensors"
    tensors.write_bytes(struct.pack("<Q", 2**40) + b"{}")
    refused(tensors, "1099511627776")
    lying = json.dumps({"x": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}})
    tensors.write_bytes(struct.pack("<Q", len(lying)) + lying.encode())
    refused(tensors, "not a valid safetensors file")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    zeros = npy(np.zeros(30_000_000, np.uint8))
    file = zipped(tmp_path / "bomb.npz", {"x.npy": zeros})
    assert file.stat().st_size < 100_000
    refused(file, "GB are allowed", most_bytes=10_000_000)
    refused(file, "memory_bytes=", most_bytes=10_000_000)
    # A directory that claims more than deflate can pack.
    data = bytearray(zipped(tmp_path / "lie.npz", {"x.npy": npy(np.zeros(4))}).read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 2**31)
    (tmp_path / "lie.npz").write_bytes(bytes(data))
    refused(tmp_path / "lie.npz", "which cannot be")


@pytest.mark.parametrize("name", ["../up.npy", "/root.npy", "a/../../b.npy", "C:\\x.npy", "x.pkl"])
def test_names_that_leave_the_file_are_refused(tmp_path, name):
    file = zipped(tmp_path / "names.npz", {name: npy(np.zeros(2))})
    refused(file, "is no name of an array")
    assert [path.name for path in tmp_path.iterdir()] == ["names.npz"]


def test_damaged_files_are_refused_in_one_line(tmp_path):
    whole = zipped(tmp_path / "a.npz", {"x.npy": npy(np.arange(4_000.0))}).read_bytes()
    for cut in (10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        refused(tmp_path / "cut.npz", "cut.npz")
    flipped = bytearray(whole)
    flipped[200] ^= 0xFF
    (tmp_path / "flipped.npz").write_bytes(bytes(flipped))
    refused(tmp_path / "flipped.npz", "damaged")
    (tmp_path / "short.npy").write_bytes(npy(np.zeros(8))[:-3])
    refused(tmp_path / "short.npy", "claims 64 bytes")
    (tmp_path / "empty.npz").write_bytes(zipped(tmp_path / "e.npz", {}).read_bytes())
    refused(tmp_path / "empty.npz", "holds no arrays")
    (tmp_path / "eval.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 30) + b"{'descr': __import__('os')}".ljust(30)
    )
    refused(tmp_path / "eval.npy", "cannot be read")


@pytest.mark.parametrize(
    ("name", "told"), [("gone.npz", "does not exist"), ("a.csv", "expected .npy"), ("", "a folder")]
)
def test_other_files_are_refused_with_what_to_type(tmp_path, name, told):
    (tmp_path / "a.csv").write_text("x\n1\n")
    refused(tmp_path / name, told)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, head in (("a.npy", b"\x93NUMPY\x01\x00"), ("a.npz", b"PK\x03\x04"),
                           ("a.safetensors", b"")):  # fmt: skip
            file = Path(folder) / name
            file.write_bytes(head + data)
            try:
                found = read_arrays(file)
            except RecombineError:
                continue
            assert all(isinstance(one, np.ndarray) for one in found.values())
