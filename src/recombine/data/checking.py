"""Whether the files of a folder are those of a set; a sum is taken once, then remembered.

A file is taken as known while its size, times and inode are those it had when its sum agreed. What
is remembered lies in the cache, one small file for each folder, and can be deleted at any time.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from recombine.data.registry import DataSet, File
from recombine.errors import InvalidRequest, StoreError
from recombine.lab.files import (
    canonical_json,
    make_folder,
    read_json,
    sha256_bytes,
    sha256_file,
    write_bytes,
)

Seen = dict[str, list[int | str]]


def cache_folder() -> Path:
    """Where sets are kept: below `RECOMBINE_CACHE`, else the user's own cache.

    `RECOMBINE_CACHE=off` keeps no compiled programs; a set must be kept somewhere all the same.
    """
    chosen = os.environ.get("RECOMBINE_CACHE", "")
    if chosen and chosen != "off":
        return Path(chosen) / "data"
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "recombine" / "data"
    except RuntimeError:
        raise InvalidRequest(
            "this user has no home folder for a cache: set RECOMBINE_CACHE to a folder"
        ) from None


def cached(wanted: DataSet) -> Path:
    """The folder of a set in the cache, one for each revision."""
    return cache_folder() / f"{wanted.name}-{wanted.revision[:12]}"


def problems(wanted: DataSet, folder: Path, *, sums: bool = True) -> dict[str, str]:
    """What is wrong with each file of a set in a folder; empty if it is the pinned set.

    Without `sums` only sizes are looked at.
    """
    known = _recall(folder) if sums else {}
    seen: Seen = {}
    found: dict[str, str] = {}
    for file in wanted.files:
        told = _problem(file, folder / file.name, known, seen, sums)
        if told:
            found[file.name] = told
    if sums and seen != known:
        _remember(folder, seen)
    return found


def _problem(file: File, path: Path, known: Seen, seen: Seen, sums: bool) -> str:
    try:
        now = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if not stat.S_ISREG(now.st_mode):
        return "is not a file"
    if now.st_size != file.size:
        return f"has {now.st_size} bytes instead of {file.size}"
    if not sums:
        return ""
    mark = [now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino, file.sha256]
    if known.get(file.name) != mark:
        try:
            found = sha256_file(path)
        except StoreError as error:
            return str(error)
        if found != file.sha256:
            return f"has SHA-256 {found} instead of {file.sha256}"
    seen[file.name] = mark
    return ""


def _note(folder: Path) -> Path:
    return cache_folder() / "verified" / f"{sha256_bytes(os.fsencode(folder.resolve()))[:24]}.json"


def _recall(folder: Path) -> Seen:
    # Missing or damaged, it is as if nothing had been remembered: sums are taken again.
    with suppress(StoreError):
        document = read_json(_note(folder))
        if isinstance(document, dict):
            return document
    return {}


def _remember(folder: Path, seen: Seen) -> None:
    with suppress(StoreError, OSError):  # a cache that cannot be written costs time, no more
        note = _note(folder)
        make_folder(note.parent)
        write_bytes(note, canonical_json(seen), durable=False)
