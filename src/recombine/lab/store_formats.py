"""Store formats: a newer one is refused, an older one is backed up and brought up to date."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recombine.errors import StoreError
from recombine.lab.files import (
    make_folder,
    read_json,
    remove_tree,
    sync_folder,
    write_json,
    writing,
)
from recombine.lab.leases import locked

FORMAT = 1
HEAD = "store.json"

Migration = Callable[[Path], None]
# From a format to the next one. A migration must be safe to run again after a kill, and must
# replace files (`write_*`) instead of changing them in place: the backup may share them.
MIGRATIONS: dict[int, Migration] = {}


def read_head(path: Path) -> dict[str, Any]:
    """The store's head, or StoreError where the folder is not a store that can be opened."""
    head = read_json(path / HEAD)
    if not isinstance(head, dict) or type(head.get("format")) is not int:
        raise StoreError(f"{path / HEAD} does not say which format this store has: it is damaged")
    return head


def check_format(path: Path, head: Mapping[str, Any], *, newest: int = FORMAT) -> bool:
    """False when a migration is due; a store from a newer release is refused."""
    if head["format"] > newest:
        maker = head.get("created_by", "a newer release")
        raise StoreError(
            f"the store at {path} has format {head['format']} (made by recombine {maker}) and this "
            f"release reads formats up to {newest}: upgrade recombine, or choose another store"
        )
    return head["format"] == newest


def migrate(
    path: Path, *, newest: int = FORMAT, migrations: Mapping[int, Migration] = MIGRATIONS
) -> Path | None:
    """Brings an older store to the newest format and returns the backup it made first."""
    with locked(path / ".migration"):
        head = read_head(path)
        if check_format(path, head, newest=newest):
            return None  # another process did it while this one waited for the lock
        steps = range(head["format"], newest)
        if missing := [step for step in steps if step not in migrations]:
            raise StoreError(
                f"the store at {path} has format {head['format']}, and this release has no way "
                f"from format {missing[0]} to {missing[0] + 1}: open it with an earlier release"
            )
        backup = _back_up(path, head["format"])
        for step in steps:
            migrations[step](path)
            # Written after each step: a kill continues from the last whole one.
            write_json(path / HEAD, {**head, "format": step + 1})
    return backup


def _back_up(path: Path, found: int) -> Path:
    backup = path.with_name(f"{path.name}.backup-format-{found}")
    if backup.exists():
        return backup
    unfinished = path.with_name(f"{path.name}.backup-unfinished")
    remove_tree(unfinished)
    make_folder(path.parent)
    with writing(backup, 0):
        try:
            shutil.copytree(path, unfinished, symlinks=True, copy_function=_link_or_copy)
        except shutil.Error as error:
            raise StoreError(f"cannot back up {path} before migrating it: {error}") from error
        os.rename(unfinished, backup)
        sync_folder(path.parent)
    return backup


def _link_or_copy(source: str, target: str) -> None:
    # Committed files never change, so a second name for them is a backup at no cost.
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
