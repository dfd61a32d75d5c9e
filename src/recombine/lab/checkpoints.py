"""Unfinished work that survives a kill: the last two checkpoints of a shard, and its answers.

>>> import tempfile, numpy as np
>>> folder = Path(tempfile.mkdtemp())
>>> checkpoints = Checkpoints(folder)
>>> checkpoints.save(100, {"w": np.ones(2, np.float32)}, {"loss": 0.5})
>>> step, tensors, document = checkpoints.latest()
>>> step, tensors["w"].tolist(), document
(100, [1.0, 1.0], {'loss': 0.5})
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import StoreError
from recombine.lab.files import (
    System,
    canonical_json,
    commit_folder,
    make_folder,
    parse_json,
    remove_tree,
    sha256_bytes,
    sync_folder,
    write_all,
    write_bytes,
    writing,
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


class AnswerLog:
    """Answers from outside (paid, or slow), each on disk before anybody uses it.

    One line an answer, each with its own sum: a line torn by a kill or damaged later is skipped,
    and its question is asked again. The first answer to a question is the one that counts.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answers.jsonl"
    >>> AnswerLog(path).append("2+2?", {"text": "4"})
    >>> AnswerLog(path).get("2+2?")
    {'text': '4'}
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock = threading.Lock()
        data = path.read_bytes() if path.exists() else b""
        self._torn = not data.endswith(b"\n") and bool(data)
        self._answers: dict[str, Any] = {}
        for line in data.split(b"\n"):
            if record := _parse_line(line):
                self._answers.setdefault(*record)

    def append(self, key: str, answer: Any) -> None:
        """Returns only when the answer is on disk."""
        body = {"answer": answer, "key": key}
        line = canonical_json({**body, "sum": sha256_bytes(canonical_json(body))})
        with self._lock:
            make_folder(self.path.parent)
            new = not self.path.exists()
            with writing(self.path, len(line)):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                fd = os.open(self.path, flags, 0o644)
                # The line break first ends what an earlier, failed write may have left.
                torn, self._torn = self._torn, True
                try:
                    write_all(fd, b"\n" + line if torn else line)
                    System.fsync(fd)
                finally:
                    os.close(fd)
                if new:
                    sync_folder(self.path.parent)
            self._torn = False
            self._answers.setdefault(key, parse_json(canonical_json(answer)))

    def get(self, key: str, default: Any = None) -> Any:
        return self._answers.get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __len__(self) -> int:
        return len(self._answers)


def _parse_line(line: bytes) -> tuple[str, Any] | None:
    try:
        record = parse_json(line)
        body = {"answer": record["answer"], "key": record["key"]}
        intact = record["sum"] == sha256_bytes(canonical_json(body))
    except (StoreError, TypeError, KeyError):
        return None
    return (record["key"], record["answer"]) if intact else None
