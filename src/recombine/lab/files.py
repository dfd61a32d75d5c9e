"""Files that are wholly there or not at all, whatever kills the program or fills the disk.

Everything a store writes goes through this module. `put_*` makes a new file inside a folder that
is still being built; `write_*` replaces one file in a single step; `commit_folder` makes a whole
folder appear in a single step.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.store_process import temporary_name

CHUNK = 8 * 2**20
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_TAG = "$float"
LOCK = ".lock"


class System:
    """The calls that change a disk, in one place, so that a test can make the k-th one fail."""

    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.replace)


@contextmanager
def writing(path: Path, needed: int) -> Iterator[None]:
    """Turns a failed write into one line that names the path, and the room it lacked."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(
                f"no room at {path}: {needed} bytes needed, {_free(path)} free; "
                "make room and run the same command again to continue"
            ) from error
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def _free(path: Path) -> int:
    for folder in (path, *path.parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return 0


# --- JSON with one spelling ------------------------------------------------------------------


def canonical_json(value: Any) -> bytes:
    """The one spelling of a value: sorted keys, no spaces, ASCII, a newline at the end.

    JSON has no NaN. A non-finite float becomes {"$float": "nan"} ("inf", "-inf"), which
    `parse_json` turns back, so a string "nan" stays a string and every value survives the trip.
    Tuples become lists and numpy scalars become numbers; anything else is refused.

    >>> canonical_json({"b": float("inf"), "a": (1, 2.0)})
    b'{"a":[1,2.0],"b":{"$float":"inf"}}\\n'
    """
    text = json.dumps(_plain(value, "value"), sort_keys=True, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {_TAG: str(float(value))}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise InvalidRequest(
                f"{where} has the key {wrong[0]!r}, and JSON keys are strings: "
                f"use {str(wrong[0])!r} instead"
            )
        if _TAG in value:
            raise InvalidRequest(f"{where} uses the key {_TAG!r}, which stands for NaN: rename it")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise InvalidRequest(
        f"{where} is a {type(value).__name__}, which JSON cannot hold: "
        "use numbers, strings, lists and dicts (an array goes into tensors, or through .tolist())"
    )


def parse_json(data: bytes | bytearray | memoryview, where: str = "the text") -> Any:
    """Reads what `canonical_json` wrote; anything malformed is a StoreError, never a crash."""
    try:
        return json.loads(
            bytes(data).decode("utf-8"), object_hook=_revive, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where} is not valid JSON: {error}") from error


def _revive(value: dict[str, Any]) -> Any:
    if len(value) == 1 and isinstance(name := value.get(_TAG), str) and name in _NON_FINITE:
        return _NON_FINITE[name]
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


# --- single files ----------------------------------------------------------------------------


def put_chunks(
    path: Path, chunks: Iterable[bytes | memoryview], needed: int, *, durable: bool = True
) -> tuple[str, int]:
    """Writes a new file in one pass, hashing as it goes; gives its SHA-256 and its size."""
    digest, size = hashlib.sha256(), 0
    with writing(path, needed):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                write_all(fd, chunk)
            if durable:
                System.fsync(fd)
        finally:
            os.close(fd)
    return digest.hexdigest(), size


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes every byte: the system may take fewer than it is given."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[System.write(fd, rest[:CHUNK]) :]


def put_bytes(path: Path, data: bytes, *, durable: bool = True) -> tuple[str, int]:
    """Writes a new file inside a folder that is being built; gives its SHA-256 and its size."""
    return put_chunks(path, [data], len(data), durable=durable)


def write_bytes(
    path: Path, data: bytes, *, staging: Path | None = None, durable: bool = True
) -> None:
    """Replaces a file in one step: a reader sees the old bytes or the new ones, nothing else.

    `staging` is a folder on the same file system for the unfinished file; `durable=False` skips
    the wait for the disk, for what a restart of the machine makes worthless anyway.
    """
    unfinished = (staging or path.parent) / temporary_name()
    try:
        put_bytes(unfinished, data, durable=durable)
        with writing(path, len(data)):
            System.rename(unfinished, path)
            if durable:
                sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def write_json(path: Path, value: Any, *, staging: Path | None = None) -> None:
    """Replaces a JSON file in one step."""
    write_bytes(path, canonical_json(value), staging=staging)


def read_bytes(path: Path) -> bytes:
    """Reads a whole file, or says in one line why it cannot."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def read_json(path: Path) -> Any:
    """Reads a JSON file, or says in one line why it cannot."""
    return parse_json(read_bytes(path), str(path))


def sha256_bytes(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file of any size, without holding it in memory."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


# --- folders ---------------------------------------------------------------------------------


def sync_folder(path: Path) -> None:
    """Makes the entries of a folder (a rename, a new file) survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        System.fsync(fd)
    except OSError as error:
        # Some network file systems cannot sync a folder; their renames are durable by themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Makes a folder and its parents, each entry durable."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with writing(path, 0):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Keeps a second process out of a folder; one that is killed lets go by itself."""
    path = folder / LOCK
    with writing(path, 0):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"another process is {doing} {folder}: wait for it, then type the same command"
            ) from None
        except OSError:
            pass  # a file system without locks: one can only ask people not to do this
        yield
    finally:
        os.close(fd)


def commit_folder(
    build: Callable[[Path], None], target: Path, *, staging: Path | None = None
) -> bool:
    """Makes a folder appear at once and complete; False if one was there already.

    `build` fills an unfinished folder with `put_*` (its manifest last); then one rename makes it
    the target. Where the target exists, it is kept and ours is dropped.
    """
    make_folder(target.parent)
    unfinished = (staging or target.parent) / temporary_name()
    try:
        with writing(unfinished, 0):
            unfinished.mkdir(parents=True)
        build(unfinished)
        with writing(target, 0):
            sync_folder(unfinished)
        appeared = _rename_if_free(unfinished, target)
    except BaseException:
        remove_tree(unfinished)
        raise
    if not appeared:
        remove_tree(unfinished)
    return appeared


def _rename_if_free(source: Path, target: Path) -> bool:
    if target.exists():
        return False
    try:
        System.rename(source, target)
    except OSError as error:
        # Somebody else was quicker: a rename never replaces a folder that holds something.
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        with writing(target, 0):
            raise
    with writing(target, 0):
        sync_folder(target.parent)
    return True


def remove_tree(path: Path) -> None:
    """Removes a folder or a file that this program wrote; links are removed, never followed."""
    if path.is_symlink() or path.is_file():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def size_of(path: Path) -> int:
    """The bytes held by a file or a folder, links not followed."""
    if path.is_symlink():
        return 0
    if path.is_file():
        return path.stat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
