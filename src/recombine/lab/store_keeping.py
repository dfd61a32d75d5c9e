"""Upkeep of a store: what is damaged, what takes room, and what is no longer needed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.errors import RecombineError, StoreError
from recombine.lab.files import read_json, remove_tree, size_of
from recombine.lab.leases import dead_leases, locked
from recombine.lab.store_layout import FOLDERS, KINDS, WORK_NODES
from recombine.lab.store_process import temporary_owner
from recombine.lab.store_sealed import MANIFEST, Damaged

if TYPE_CHECKING:
    from recombine.lab.store import Store

DAY = 24 * 3600.0
# What this program writes into a work folder; anything else there belongs to somebody.
_WORK = re.compile(r"nodes\.json|[^/]*\.jsonl|\d{8}-step-\d+|damaged-\d{8}-step-\d+|tmp-[0-9a-f-]+")
_SHELF = re.compile(r"state|snapshot-\d+")  # folders of checkpoints within it


@dataclass(frozen=True)
class Problem:
    """Something in a node that is not as its manifest says."""

    kind: str
    id: str
    file: str
    reason: str


def verify(store: Store, *, set_aside: bool = False) -> list[Problem]:
    if set_aside:
        store.check_writable()
    problems = []
    for kind in KINDS:
        for id, folder in list(store.folders(kind)):
            try:
                if not (folder / MANIFEST).is_file():
                    raise Damaged(folder, MANIFEST, "it is missing")
                store.open_node(kind, id).check()
            except Damaged as damage:
                problems.append(Problem(kind, id, damage.file, damage.reason))
                if set_aside:
                    store.set_aside_if_damaged(kind, id, damage)
            except StoreError as error:
                problems.append(Problem(kind, id, "", str(error)))
    return problems


def usage(store: Store) -> dict[str, dict[str, int]]:
    result = {}
    for kind in KINDS:
        folders = [folder for _, folder in store.folders(kind) if (folder / MANIFEST).is_file()]
        result[kind] = {"count": len(folders), "bytes": sum(map(size_of, folders))}
    for name in FOLDERS:
        if name != "nodes":
            entries = _entries(store.path / name)
            result[name] = {"count": len(entries), "bytes": sum(map(size_of, entries))}
    return result


def clean(store: Store, *, dry_run: bool = False, quarantined: bool = False) -> dict[str, int]:
    store.check_writable()
    freed = {"leases": 0, "temp": 0, "work": 0, "quarantine": 0}
    with locked(store.path / "leases" / ".lock"):
        for path in dead_leases(store.path / "leases"):
            freed["leases"] += _remove(path, dry_run)
    for path in _orphans(store):
        freed["temp"] += _remove(path, dry_run)
    for folder in _entries(store.path / "work"):
        if _finished(store, folder):
            freed["work"] += _clear_work(folder, dry_run)
    if quarantined:
        for path in _entries(store.path / "quarantine"):
            freed["quarantine"] += _remove(path, dry_run)
    return freed


def _entries(folder: Path) -> list[Path]:
    hidden = {".lock"}
    return sorted(p for p in folder.iterdir() if p.name not in hidden) if folder.is_dir() else []


def _remove(path: Path, dry_run: bool) -> int:
    size = size_of(path)
    if not dry_run:
        remove_tree(path)
    return size


def _orphans(store: Store) -> Iterator[Path]:
    for folder in (store.path, store.path / "temp", store.path / "leases"):
        for path in _entries(folder):
            owner = temporary_owner(path.name)
            if owner is None and folder.name != "temp":
                continue
            with suppress(OSError):
                # A writer on another machine cannot be asked; a day without a sign is enough.
                old = time.time() - path.lstat().st_mtime > DAY
                if old or (owner is not None and owner.known_dead()):
                    yield path


def _finished(store: Store, folder: Path) -> bool:
    try:
        if store.holder(folder.name):
            return False
        nodes = read_json(folder / WORK_NODES)["nodes"]
        return bool(nodes) and all(store.has(kind, id) for kind, id in nodes)
    except (RecombineError, TypeError, KeyError, ValueError):
        return False


def _clear_work(folder: Path, dry_run: bool) -> int:
    shelves = [p for p in _entries(folder) if _SHELF.fullmatch(p.name) and not p.is_symlink()]
    freed = sum(_clear_work(shelf, dry_run) for shelf in shelves if shelf.is_dir())
    known = [path for path in _entries(folder) if _WORK.fullmatch(path.name)]
    # The list of nodes goes last: while it is there, the next cleaning can finish the job.
    known.sort(key=lambda path: path.name == WORK_NODES)
    freed += sum(_remove(path, dry_run) for path in known)
    if not dry_run:
        with suppress(OSError):
            folder.rmdir()
    return freed
