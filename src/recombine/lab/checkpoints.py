"""Unfinished work that survives a kill: the last two checkpoints of a shard.

>>> import tempfile, numpy as np
>>> folder = Path(tempfile.mkdtemp())
>>> checkpoints = Checkpoints(folder)
>>> checkpoints.save(100, {"w": np.ones(2, np.float32)}, {"loss": 0.5})
>>> step, tensors, document = checkpoints.latest()
>>> step, tensors["w"].tolist(), document
(100, [1.0, 1.0], {'loss': 0.5})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import StoreError
from recombine.lab.files import (
    System,
    commit_folder,
    remove_tree,
    write_bytes,
)
from recombine.lab.store_process import temporary_name, temporary_owner
from recombine.lab.store_sealed import Damaged, Sealed, put_sealed

KEPT = 2
_SAVED = re.compile(r"(\d{8})-step-(\d+)")


class Checkpoints:
    """The checkpoints of one shard, in a folder that only the holder of its lease writes to."""

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, step: int, tensors: Mapping[str, np.ndarray], document: dict[str, Any]) -> None:
        """Writes a checkpoint; until it is complete on disk, the earlier ones stay untouched."""
        saved = self._saved()
        # Numbered by order of writing, not by step: after a return to an earlier checkpoint the
        # newest one may have a smaller step than a damaged one that was set aside.
        serial = int(saved[-1].name[:8]) + 1 if saved else self._first_serial()

        def build(folder: Path) -> None:
            put_sealed(folder, {"step": step}, {"state": tensors}, {"document": document})

        commit_folder(build, self.folder / f"{serial:08d}-step-{step}")
        for old in self._saved()[:-KEPT]:
            self._drop(old)
        self._sweep()

    def latest(self) -> tuple[int, dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest intact checkpoint as (step, tensors, document); damaged ones are set aside."""
        for folder in reversed(self._saved()):
            try:
                sealed = Sealed.open(folder)
                loaded = sealed.tensors("state"), sealed.document("document")
                return sealed.manifest["step"], *loaded
            except StoreError as error:
                self._set_aside(folder, error)
        return None

    def clear(self) -> None:
        """Removes the checkpoints, once what they led to is committed."""
        for folder in [*self._saved(), *self.folder.glob("damaged-*")]:
            self._drop(folder)
        self._sweep()
        with suppress(OSError):  # stays where it holds what somebody else put there
            self.folder.rmdir()

    def __bool__(self) -> bool:
        """Whether there is anything to continue from."""
        return bool(self._saved())

    def _saved(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(p for p in self.folder.iterdir() if _SAVED.fullmatch(p.name) and p.is_dir())

    def _first_serial(self) -> int:
        aside = [int(p.name[8:16]) for p in self.folder.glob("damaged-" + "[0-9]" * 8 + "-step-*")]
        return max(aside, default=0) + 1

    def _drop(self, folder: Path) -> None:
        # Renamed first, so that a kill in the middle never leaves half a checkpoint behind.
        doomed = folder.with_name(temporary_name())
        with suppress(OSError):
            System.rename(folder, doomed)
            remove_tree(doomed)

    def _sweep(self) -> None:
        for path in self.folder.glob("tmp-*"):
            owner = temporary_owner(path.name)
            if owner is not None and owner.known_dead():
                remove_tree(path)

    def _set_aside(self, folder: Path, error: StoreError) -> None:
        if not isinstance(error, Damaged) and (folder / "manifest.json").exists():
            raise error  # the disk could not be read; that says nothing about the checkpoint
        aside = folder.with_name(f"damaged-{folder.name}")
        with suppress(OSError, StoreError):
            remove_tree(aside)
            System.rename(folder, aside)
            write_bytes(aside / "reason.txt", f"{error}\n".encode())
