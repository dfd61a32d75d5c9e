"""Arrays on disk as safetensors: written in one pass, read without trusting the file.

The format is eight bytes (the header's length, little-endian), a JSON header, then the raw
arrays. The library's own numpy reader has no bfloat16 and its writer copies everything first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import CHUNK, put_chunks

MAX_HEADER = 100_000_000  # the limit that the safetensors library itself sets
_NUMPY_CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "complex64": "C64",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
}
_EXTENDED_CODES = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


@cache
def _dtypes() -> dict[str, np.dtype[Any]]:
    import ml_dtypes

    plain = {code: np.dtype(name) for name, code in _NUMPY_CODES.items()}
    extended = {code: np.dtype(getattr(ml_dtypes, name)) for name, code in _EXTENDED_CODES.items()}
    return plain | extended


def put_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> tuple[str, int]:
    """Writes arrays as a new safetensors file; gives its SHA-256 and its size.

    One array at a time is brought into host memory and nothing is serialised twice.
    """
    # The widest types go first, so that every array starts at a multiple of its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        array = tensors[name]
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        code = _code(name, array.dtype)
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    if "__metadata__" in header:
        raise InvalidRequest("no array may be called '__metadata__': safetensors reserves the name")
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text

    def chunks() -> Iterator[bytes | memoryview]:
        yield head
        for name in order:
            yield from _raw(tensors[name])

    return put_chunks(path, chunks(), len(head) + end)


def _code(name: str, dtype: np.dtype[Any]) -> str:
    code = (_NUMPY_CODES | _EXTENDED_CODES).get(dtype.name)
    if code is None:
        allowed = ", ".join(sorted(_NUMPY_CODES | _EXTENDED_CODES))
        raise InvalidRequest(f"array {name!r} is of type {dtype}: cast it to one of {allowed}")
    return code


def _raw(value: np.ndarray) -> Iterator[memoryview]:
    array = np.asarray(value, order="C")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.size == 0:
        return
    flat = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(flat), CHUNK):
        yield flat[start : start + CHUNK]


def check_header_length(first: bytes, size: int, where: str) -> int:
    """The header's length, after holding it against the file's real size; nothing is allocated."""
    if len(first) < 8:
        raise StoreError(f"{where} is not a safetensors file: it has only {len(first)} bytes")
    length = int.from_bytes(first[:8], "little")
    if length > min(size - 8, MAX_HEADER):
        raise StoreError(
            f"{where} is not a safetensors file: it claims a header of {length} bytes "
            f"and has {size} in all"
        )
    return length


def check_tensors(path: Path) -> None:
    """Raises StoreError unless the file's header describes exactly the bytes that follow it."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = check_header_length(file.read(8), size, str(path))
            header = file.read(length)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    _parse_header(header, size - 8 - length, str(path))


def parse_tensors(buffer: np.ndarray, where: str) -> dict[str, np.ndarray]:
    """The arrays in a safetensors file held in memory, as views of it (no second copy)."""
    length = check_header_length(buffer[:8].tobytes(), len(buffer), where)
    header = _parse_header(buffer[8 : 8 + length].tobytes(), len(buffer) - 8 - length, where)
    data = buffer[8 + length :]
    arrays: dict[str, np.ndarray] = {}
    for name, (dtype, shape, begin, end) in header.items():
        arrays[name] = np.frombuffer(data[begin:end], dtype=dtype).reshape(shape)
    return arrays


def _parse_header(
    text: bytes, data_size: int, where: str
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], int, int]]:
    try:
        raw = json.loads(text.decode(), object_pairs_hook=_without_duplicates)
        if not isinstance(raw, dict):
            raise ValueError("the header is not an object")
        raw.pop("__metadata__", None)
        entries = {name: _entry(name, entry) for name, entry in raw.items()}
        at = 0
        for begin, end in sorted((begin, end) for _, _, begin, end in entries.values()):
            if begin != at:
                raise ValueError(f"the arrays overlap or leave a hole at byte {at}")
            at = end
        if at != data_size:
            raise ValueError(f"the header describes {at} bytes and {data_size} follow it")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(f"{where} is not a valid safetensors file: {error}") from error
    return entries


def _entry(name: str, entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    dtype = _dtypes().get(entry["dtype"])
    if dtype is None:
        raise ValueError(f"array {name!r} has the unknown type {entry['dtype']!r}")
    shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
        raise ValueError(f"array {name!r} has a shape or an offset that is not a natural number")
    if len(shape) > 32 or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"array {name!r} of shape {shape} does not fill bytes {begin} to {end}")
    return dtype, shape, begin, end


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("the header names an array twice")
    return result
