"""Arrays from a user's files (npy, npz, safetensors), read without trusting what they claim.

Nothing here loads a pickle or writes to disk. Every claim of a header is held against the bytes
that are really there, and against the memory allowed, before anything is allocated for it.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from recombine._archives import DAMAGE
from recombine.errors import InvalidRequest, StoreError
from recombine.lab.store_tensors import check_tensors, parse_tensors

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 65_536  # a plain array needs about a hundred bytes
_DENSEST = 1_100  # deflate cannot pack more than 1,032 bytes into one
_CHUNK = 16 * 2**20
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")
HOW = "save arrays with numpy.savez(FILE, layer1=..., layer2=...) or as safetensors"


def memory_allowed() -> int:
    """How many bytes of arrays may be read unless told otherwise: half of what is free."""
    try:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30
    return max(2**30, free // 2)


def read_arrays(path: str | Path, *, most_bytes: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file by name; a single npy is named after its file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/acts.npz", first=np.ones((4, 2)))
    ...     {name: one.shape for name, one in read_arrays(f"{folder}/acts.npz").items()}
    {'first': (4, 2)}
    """
    file, most = Path(path), memory_allowed() if most_bytes is None else most_bytes
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise InvalidRequest(f"{file} {what}: give a .npy, .npz or .safetensors file")
    ending = file.suffix.lower()
    if ending in _PICKLES:
        raise InvalidRequest(f"{file} may hold a pickle, which can run code: {HOW}")
    if ending not in (".npy", ".npz", ".safetensors"):
        raise InvalidRequest(f"{file}: expected .npy, .npz or .safetensors; {HOW}")
    try:
        if ending == ".npz":
            return _read_zip(file, most)
        if ending == ".safetensors":
            return _read_tensors(file, most)
        with file.open("rb") as stream:
            return {file.stem: _read_npy(stream, file.stat().st_size, str(file), most)}
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror or error}") from error


def _read_tensors(file: Path, most: int) -> dict[str, np.ndarray]:
    check_tensors(file)
    _room(file.stat().st_size, most, str(file))
    found = parse_tensors(np.fromfile(file, np.uint8), str(file))
    if not found:
        raise InvalidRequest(f"{file} holds no arrays; {HOW}")
    return found


def _read_zip(file: Path, most: int) -> dict[str, np.ndarray]:
    try:
        archive = zipfile.ZipFile(file)
    except DAMAGE as error:
        raise InvalidRequest(f"{file} is not a .npz file: {error}; {HOW}") from error
    with archive:
        members = archive.infolist()
        _check_members(members, str(file), most)
        found = {}
        for member in members:
            where = f"{file}, array {member.filename!r}"
            try:
                with archive.open(member) as stream:
                    name = member.filename.removesuffix(".npy")
                    found[name] = _read_npy(stream, member.file_size, where, most)
            except DAMAGE as error:
                raise InvalidRequest(f"{where} is damaged: {error}") from error
        return found


def _check_members(members: list[zipfile.ZipInfo], where: str, most: int) -> None:
    if not members:
        raise InvalidRequest(f"{where} holds no arrays; {HOW}")
    seen: set[str] = set()
    for member in members:
        name = member.filename
        parts = name.replace("\\", "/").split("/")
        if not name.endswith(".npy") or ".." in parts or parts[0] == "" or ":" in parts[0]:
            raise InvalidRequest(f"{where} holds {name!r}, which is no name of an array; {HOW}")
        if name in seen:
            raise InvalidRequest(f"{where} names the array {name!r} twice; {HOW}")
        if member.flag_bits & 1:
            raise InvalidRequest(f"{where}: the array {name!r} is encrypted; {HOW}")
        if member.file_size > _DENSEST * (member.compress_size + 64):
            raise InvalidRequest(
                f"{where}: {name!r} claims {member.file_size} bytes packed into "
                f"{member.compress_size}, which cannot be; {HOW}"
            )
        seen.add(name)
    _room(sum(member.file_size for member in members), most, where)


def _room(size: int, most: int, where: str) -> None:
    if size > most:
        raise InvalidRequest(
            f"{where} holds {size / 1e9:.3g} GB of arrays and {most / 1e9:.3g} GB are allowed: "
            f"save fewer layers, or allow memory_bytes={size}"
        )


def _read_npy(stream: IO[bytes], size: int, where: str, most: int) -> np.ndarray:
    """One npy array from a stream that holds `size` bytes."""
    head = stream.read(8)
    if head[:6] != _MAGIC or len(head) < 8:
        raise InvalidRequest(f"{where} is not in numpy's format; {HOW}")
    wide = 2 if head[6] == 1 else 4
    told = stream.read(wide)
    length = int.from_bytes(told, "little")
    if length > min(_LONGEST_HEADER, size):
        raise InvalidRequest(f"{where} claims a header of {length} bytes and has {size} in all")
    shape, in_columns, dtype = _header(head[:8] + told + stream.read(length), where)
    if dtype.hasobject:
        raise InvalidRequest(f"{where} holds Python objects, which are never loaded; {HOW}")
    if dtype.kind not in "biufUSV" or dtype.names or dtype.subdtype:
        raise InvalidRequest(f"{where} is of type {dtype}: expected numbers or texts")
    expected, there = math.prod(shape) * dtype.itemsize, size - 8 - wide - length
    if expected != there:
        raise InvalidRequest(
            f"{where} claims {expected} bytes (shape {shape}, {dtype}) and has {there}"
        )
    _room(expected, most, where)
    flat = np.empty(expected, np.uint8)
    at = 0
    while at < expected:
        part = stream.read(min(_CHUNK, expected - at))
        if not part:
            raise InvalidRequest(f"{where} ends after {at} of {expected} bytes")
        flat[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return _typed(flat, dtype, where).reshape(shape, order="F" if in_columns else "C")


def _header(text: bytes, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    stream = io.BytesIO(text)
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, in_columns, dtype = read(stream, max_header_size=_LONGEST_HEADER)
        if any(type(side) is not int or side < 0 for side in shape) or len(shape) > 32:
            raise ValueError(f"its shape is {shape}")
    except Exception as error:  # its text is parsed as Python, which fails in many ways
        reason = " ".join(str(error).split())[:200]
        raise InvalidRequest(f"{where} has a header that cannot be read: {reason}") from error
    return shape, in_columns, dtype


def _typed(flat: np.ndarray, dtype: np.dtype[Any], where: str) -> np.ndarray:
    if dtype.kind != "V":
        return flat.view(dtype) if flat.size else np.empty(0, dtype)
    if dtype.itemsize != 2:
        raise InvalidRequest(f"{where} is of type {dtype}: expected numbers or texts")
    # numpy has no name for bfloat16, and writes it as two bytes of no type.
    import ml_dtypes

    return flat.view(np.dtype(ml_dtypes.bfloat16))
