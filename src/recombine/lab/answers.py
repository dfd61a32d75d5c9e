"""Answers already paid for: a file that grows by one durable line each, and outlives any kill."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recombine.errors import StoreError
from recombine.lab.files import (
    System,
    canonical_json,
    make_folder,
    parse_json,
    sha256_bytes,
    sync_folder,
    write_all,
    writing,
)


class AnswerLog:
    """Answers from outside (paid, or slow), each on disk before anybody uses it.

    One line an answer, and the first to a question is the one that counts. A line that a kill left
    unfinished, or whose answer is not `well_formed`, is skipped with a warning, and its question
    is asked again. A `sealed` log keeps a sum with every line, so that a changed one is found out;
    the others are for people to read, and to mend.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answers.jsonl"
    >>> AnswerLog(path).put("2+2?", {"text": "4"})
    >>> AnswerLog(path).get("2+2?")
    {'text': '4'}
    """

    def __init__(
        self, path: str | Path, well_formed: Callable[[Any], bool] = lambda _: True, *,
        sealed: bool = False,
    ):  # fmt: skip
        self.path, self.sealed = Path(path), sealed
        self._lock = threading.Lock()
        self._answers: dict[str, Any] = {}
        damaged: list[int] = []
        for number, line in enumerate(_lines(self.path), 1):
            try:
                key, answer = _opened(line, sealed)
            except (StoreError, KeyError, TypeError):
                damaged.append(number)
                continue
            if isinstance(key, str) and well_formed(answer):
                self._answers.setdefault(key, answer)
            else:
                damaged.append(number)
        if damaged:
            # Not `warn`: that shows the line of a program, which says nothing about a file.
            warnings.warn_explicit(
                f"{self.path}: {len(damaged)} damaged line{'s' * (len(damaged) > 1)} skipped (the "
                f"first is line {damaged[0]}); what was answered there is asked again, unless you "
                "stop and mend it",
                UserWarning, "recombine", 0,
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def get(self, key: str, default: Any = None) -> Any:
        """The answer kept under this key."""
        return self._answers.get(key, default)

    def put(self, key: str, answer: Any, about: Mapping[str, Any] | None = None) -> None:
        """Returns only when the answer is on disk; `about` is for people who read the file."""
        body: dict[str, Any] = {"answer": answer, "key": key}
        if self.sealed:
            body["sum"] = sha256_bytes(canonical_json(body))
        line = canonical_json({**body, "about": about} if about else body)
        with self._lock:
            make_folder(self.path.parent)
            new = not self.path.exists()
            with writing(self.path, len(line)):
                _append(self.path, line)
                if new:
                    sync_folder(self.path.parent)
            self._answers.setdefault(key, parse_json(canonical_json(answer)))


def _lines(path: Path) -> list[bytes]:
    try:
        return [line for line in path.read_bytes().split(b"\n") if line] if path.exists() else []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _opened(line: bytes, sealed: bool) -> tuple[Any, Any]:
    entry = parse_json(line)
    body = {"answer": entry["answer"], "key": entry["key"]}
    if sealed and entry["sum"] != sha256_bytes(canonical_json(body)):
        raise StoreError("the line was changed")
    return entry["key"], entry["answer"]


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # the last writer was killed, or failed, in the middle of a line
        write_all(descriptor, line)
        System.fsync(descriptor)
    finally:
        os.close(descriptor)


def key_of(*parts: Any) -> str:
    """The key of a question: a hash of all that its answer depends on."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
