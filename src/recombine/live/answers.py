"""Answers already paid for: a file that grows by one durable line each, and outlives any kill."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recombine.errors import StoreError
from recombine.lab.files import System, canonical_json, make_folder, parse_json, write_all, writing


class AnswerLog:
    """A dictionary on disk to which entries are only ever added.

    `put` returns once the line is safely on disk. A line that a kill left unfinished, or whose
    answer is not `well_formed`, is skipped with a warning, and its question is asked again.
    """

    def __init__(self, path: str | Path, well_formed: Callable[[Any], bool] = lambda _: True):
        self.path = Path(path)
        self._lock = threading.Lock()
        self._entries: dict[str, Any] = {}
        if not self.path.exists():
            return
        damaged: list[int] = []
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror or error}") from error
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                entry = parse_json(line)
                key, answer = entry["key"], entry["answer"]
            except (StoreError, KeyError, TypeError):
                damaged.append(number)
                continue
            if isinstance(key, str) and well_formed(answer):
                self._entries[key] = answer
            else:
                damaged.append(number)
        if damaged:
            # Not `warn`: that shows the line of a program, which says nothing about a file.
            warnings.warn_explicit(
                f"{self.path}: {len(damaged)} damaged lines skipped (the first is line "
                f"{damaged[0]}); what they answered is asked again, unless you stop and mend them",
                UserWarning, "recombine", 0,
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Any | None:
        """The answer kept under this key, or None."""
        return self._entries.get(key)

    def put(self, key: str, answer: Any, about: dict[str, Any]) -> None:
        """Keeps an answer; `about` is for people who read the file."""
        line = canonical_json({"key": key, "answer": answer, "about": about})
        make_folder(self.path.parent)
        with self._lock, writing(self.path, len(line)):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line  # the last writer was killed in the middle of a line
                write_all(descriptor, line)
                System.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._entries[key] = answer


def key_of(*parts: Any) -> str:
    """The key of a question: a hash of all that its answer depends on."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
