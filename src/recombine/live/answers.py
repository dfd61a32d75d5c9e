"""Answers already paid for: a file that grows by one durable line each, and outlives any kill."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from pathlib import Path
from typing import Any

from recombine.errors import StoreError
from recombine.lab.files import System, canonical_json, make_folder, parse_json, write_all, writing


class AnswerLog:
    """A dictionary on disk to which entries are only ever added.

    `put` returns once the line is safely on disk. A line that a kill left unfinished is skipped
    with a warning, and its question is asked again.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._lock = threading.Lock()
        self._entries: dict[str, Any] = {}
        if not self.path.exists():
            return
        damaged = 0
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror or error}") from error
        for line in filter(None, lines):
            try:
                entry = parse_json(line)
                self._entries[entry["key"]] = entry["answer"]
            except (StoreError, KeyError, TypeError):
                damaged += 1
        if damaged:
            warnings.warn(
                f"{self.path}: {damaged} damaged lines skipped; what they answered is asked again",
                stacklevel=2,
            )

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
