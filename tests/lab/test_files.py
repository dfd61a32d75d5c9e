from __future__ import annotations

import errno
import json
import math
import os
import pickle

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from recombine.errors import InvalidRequest, StoreError
from recombine.lab import files
from recombine.lab.files import System, canonical_json, parse_json
from recombine.lab.store_tensors import check_tensors, parse_tensors, put_tensors

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
keys = st.text().filter(lambda key: key != "$float")
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=12
)


def same(a, b) -> bool:
    """Equality that tells 1 from 1.0 and True, and holds NaN equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def read(path) -> dict[str, np.ndarray]:
    return parse_tensors(np.frombuffer(bytearray(path.read_bytes()), np.uint8), "it")


# --- JSON ------------------------------------------------------------------------------------


@given(values)
def test_every_value_survives_json_with_its_type(value):
    assert same(parse_json(canonical_json(value)), value)


@given(values)
def test_canonical_json_is_standard_json_with_one_spelling(value):
    data = canonical_json(value)
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data.endswith(b"\n") and data.isascii()
    assert canonical_json(parse_json(data)) == data


@given(st.dictionaries(keys, st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value):
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_the_string_nan_and_the_number_nan_stay_apart():
    text, number = parse_json(canonical_json(["nan", float("nan")]))
    assert text == "nan"
    assert math.isnan(number)


def test_numpy_scalars_become_numbers():
    assert canonical_json([np.float32(0.5), np.int8(3), np.bool_(True)]) == b"[0.5,3,true]\n"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1: 2}, "JSON keys are strings"),
        ({"$float": "nan"}, "rename it"),
        ({"a": [{1, 2}]}, r"value\.a\[0\] is a set"),
        ({"a": np.zeros(2)}, "tolist"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_name(value, words):
    with pytest.raises(InvalidRequest, match=words):
        canonical_json(value)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"NaN", b"[" * 100_000, b"1" * 5000])
def test_malformed_json_is_a_store_error(text):
    with pytest.raises(StoreError, match="not valid JSON"):
        parse_json(text)


# --- tensors ---------------------------------------------------------------------------------

dtypes = st.sampled_from(
    ["?", *(f"{sort}{size}" for sort in "ui" for size in (1, 2, 4, 8)), "f2", "f4", "f8", "c8"]
).map(np.dtype)
names = st.text().filter(lambda name: name.isprintable() and name != "__metadata__")
some_arrays = dtypes.flatmap(
    lambda d: arrays.arrays(d, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, some_arrays, max_size=5))
def test_our_tensors_are_read_by_the_library_and_the_library_s_by_us(tmp_path_factory, tensors):
    path = tmp_path_factory.mktemp("t") / "ours.safetensors"
    digest, size = put_tensors(path, tensors)
    assert (digest, size) == (files.sha256_file(path), path.stat().st_size)
    theirs = path.with_name("theirs.safetensors")
    safetensors.numpy.save_file(tensors, theirs)
    check_tensors(path)
    for loaded in (safetensors.numpy.load_file(path), read(path), read(theirs)):
        assert loaded.keys() == tensors.keys()
        for name, array in tensors.items():
            assert loaded[name].dtype == array.dtype
            assert loaded[name].shape == array.shape
            assert loaded[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_keep_their_bits_and_the_library_agrees(tmp_path, name):
    array = np.arange(6, dtype=np.float32).reshape(2, 3).astype(getattr(ml_dtypes, name))
    put_tensors(tmp_path / "t", {"x": array})
    loaded = read(tmp_path / "t")["x"]
    assert loaded.dtype == array.dtype
    assert loaded.tobytes() == array.tobytes()
    ((_, entry),) = safetensors.deserialize((tmp_path / "t").read_bytes())
    assert bytes(entry["data"]) == array.tobytes()
    assert list(entry["shape"]) == [2, 3]


def test_strided_and_big_endian_arrays_are_stored_by_value(tmp_path):
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    tensors = {"t": base.T, "s": base[::2, 1::3], "b": base.astype(">i4")}
    put_tensors(tmp_path / "t", tensors)
    for name, array in read(tmp_path / "t").items():
        np.testing.assert_array_equal(array, tensors[name])


def test_every_array_starts_at_a_multiple_of_its_item_size(tmp_path):
    tensors = {"a": np.zeros(3, np.int8), "b": np.zeros(3), "c": np.zeros(3, np.float16)}
    put_tensors(tmp_path / "t", tensors)
    assert all(array.flags.aligned for array in read(tmp_path / "t").values())


def test_an_array_that_safetensors_cannot_hold_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidRequest, match="'names' is of type object: cast it"):
        put_tensors(tmp_path / "t", {"names": np.array(["a", None], object)})


def test_the_name_that_safetensors_keeps_for_itself_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="__metadata__"):
        put_tensors(tmp_path / "t", {"__metadata__": np.zeros(1)})


def header(entries: object, data: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        pickle.dumps({"weights": [1.0, 2.0]}),
        (2**40).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little"),
        header([1]),
        header({"x": 1}),
        header({"x": entry()}),
        header({"x": entry(dtype="OBJECT")}, bytes(4)),
        header({"x": entry(shape=(-1,))}, bytes(4)),
        header({"x": entry(shape=(2**62, 2**62))}, bytes(4)),
        header({"x": entry(shape=(True,))}, bytes(4)),
        header({"x": entry(), "y": entry()}, bytes(4)),
        header({"x": entry(offsets=(4, 8))}, bytes(8)),
        header({"x": entry()}, bytes(5)),
        header({"x": entry(shape=[1] * 60)}, bytes(4)),
        header({}).replace(b"{}", b"\xff\xfe"),
    ],
)
def test_a_file_that_is_not_safetensors_is_refused_without_trusting_it(tmp_path, data):
    path = tmp_path / "evil.safetensors"
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"is not a (valid )?safetensors file"):
        check_tensors(path)
    with pytest.raises(StoreError, match=r"is not a (valid )?safetensors file"):
        read(path)


# --- writing ---------------------------------------------------------------------------------


def test_a_failed_replacement_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"v": 1})
    real = {name: getattr(System, name) for name in ("write", "fsync", "rename")}
    seen = set()
    for k in range(1, 50):
        calls = 0

        def failing(name, k=k):
            def call(*arguments):
                nonlocal calls
                calls += 1
                if calls == k:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return real[name](*arguments)

            return staticmethod(call)

        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(System, name, failing(name))
            try:
                files.write_json(path, {"v": 2})
                said = ""
            except StoreError as error:
                said = str(error)
        seen.add(files.read_json(path)["v"])
        assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
        if not said:
            break
        assert "Input/output error" in said
    assert k == 5  # a write, a sync, a rename and a sync of the folder can fail
    assert seen == {1, 2}


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = System.write
    monkeypatch.setattr(System, "write", staticmethod(lambda fd, data: real(fd, data[:7])))
    data = bytes(range(256))
    assert files.put_bytes(tmp_path / "f", data) == (files.sha256_bytes(data), 256)
    assert (tmp_path / "f").read_bytes() == data


def test_a_full_disk_is_named_with_the_bytes_needed_and_free(tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(System, "write", staticmethod(full))
    with pytest.raises(StoreError, match=rf"no room at {tmp_path}/.*: 1000 bytes needed, \d+ free"):
        files.write_bytes(tmp_path / "f", bytes(1000))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_whole_and_the_first_one_stays(tmp_path):
    def build(text):
        return lambda folder: files.put_bytes(folder / "x", text) and None

    assert files.commit_folder(build(b"first"), tmp_path / "deep" / "er" / "node")
    assert not files.commit_folder(build(b"second"), tmp_path / "deep" / "er" / "node")
    assert (tmp_path / "deep" / "er" / "node" / "x").read_bytes() == b"first"
    assert [p.name for p in (tmp_path / "deep" / "er").iterdir()] == ["node"]


def test_a_folder_whose_making_is_interrupted_never_appears(tmp_path):
    def build(folder):
        files.put_bytes(folder / "x", b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.commit_folder(build, tmp_path / "node")
    assert list(tmp_path.iterdir()) == []
