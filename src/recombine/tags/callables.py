"""A user's function over many rows: in another process, with a time for each row.

Whatever the function does (raise, hang, exit, crash, change its argument, print) costs at most
the tag of its row.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest

AHEAD, AHEAD_BYTES = 32, 2**15  # rows under way: less than a pipe holds, so that no write can wait
LOADING = 60.0
TWICE = 20  # rows asked a second time, to see whether the answer stays


@dataclass(frozen=True)
class Called:
    """What came of one row: a result, or in `trouble` why there is none."""

    result: Any = None
    trouble: str = ""


def call_rows(
    function: str,
    rows: Iterator[Mapping[str, Any]],
    *,
    folder: Path,
    timeout: float = 10.0,
    most_restarts: int = 10,
    remark: Callable[[str], None] | None = None,
) -> Iterator[Called]:
    """The function's result for each row in turn.

    A row that takes longer than `timeout` seconds, or kills the process, has no result, and the
    next row gets a new process. After so many of them in a row the function is given up. The first
    rows are asked again in the end, and `remark` is told if answers differ.
    """
    if timeout <= 0:
        raise InvalidRequest(f"timeout={timeout}: expected more than 0 seconds")
    child = _Child(function, folder)
    asked: deque[str] = deque()
    source, ended, restarts, done = iter(rows), False, 0, 0
    again: list[tuple[str, Any]] = []
    try:
        while True:
            while not ended and len(asked) < AHEAD and (
                not asked or sum(map(len, asked)) < AHEAD_BYTES
            ):  # fmt: skip
                row = next(source, None)
                if row is None:
                    ended = True
                    break
                line = json.dumps(dict(row), default=str)
                if asked and len(line) >= AHEAD_BYTES:
                    # Too long to send ahead: it waits until the process waits for it.
                    source = _before(row, source)
                    break
                child.send(line)
                asked.append(line)
            if not asked:
                break
            outcome = child.receive(timeout)
            line, done = asked.popleft(), done + 1
            if outcome is None:
                restarts += 1
                if restarts >= most_restarts:
                    raise InvalidRequest(
                        f"{function} {child.why(timeout)} on {restarts} rows in a row (the last: "
                        f"row {done}): given up; mend it or raise the timeout"
                    )
                trouble = child.why(timeout)
                child.restart()
                for waiting in asked:
                    child.send(waiting)
                yield Called(trouble=trouble)
                continue
            restarts = 0
            if "trouble" in outcome:
                yield Called(trouble=outcome["trouble"])
                continue
            if done <= TWICE:
                again.append((line, outcome["result"]))
            yield Called(outcome["result"])
        if remark is not None and (changed := _changed(child, again, timeout)):
            remark(changed)
    finally:
        child.stop()


def _before(row: Mapping[str, Any], rest: Iterator[Mapping[str, Any]]) -> Iterator[Any]:
    yield row
    yield from rest


def _changed(child: _Child, again: list[tuple[str, Any]], timeout: float) -> str:
    changed = 0
    for line, result in again:
        child.send(line)
        outcome = child.receive(timeout)
        if outcome is None:
            child.restart()
        changed += outcome is None or outcome.get("result") != result
    if not changed:
        return ""
    return f"is not deterministic: {changed} of {len(again)} rows gave another answer when repeated"


class _Child:
    def __init__(self, function: str, folder: Path):
        self.function, self.folder = function, folder
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "recombine.tags._child", self.function, str(self.folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self.said: queue.Queue[bytes] = queue.Queue()
        listening = (self.process, self.said)
        self.listener = threading.Thread(target=self._listen, args=listening, daemon=True)
        self.listener.start()
        hello = self.receive(LOADING)
        if hello is None or "fatal" in hello:
            why = hello["fatal"] if hello else self.why(LOADING)
            self.stop()
            raise InvalidRequest(
                f"cannot load {self.function} from {self.folder.resolve()}: it {why}; expected "
                "my_tags.py:name, a function of one row that returns a dict"
            )

    @staticmethod
    def _listen(process: subprocess.Popen[bytes], said: queue.Queue[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                said.put(line)
        said.put(b"")

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the next `receive` says so
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next answer; None where the process is too slow or gone."""
        self.hung = False
        try:
            line = self.said.get(timeout=timeout)
        except queue.Empty:
            self.hung = True
            return None
        return json.loads(line) if line else None

    def why(self, timeout: float) -> str:
        if self.hung:
            return f"took longer than {timeout:g} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        return f"ended its process (exit code {self.process.poll()})"

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        self.listener.join(1.0)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not (stream.readable() and self.listener.is_alive()):
                with contextlib.suppress(OSError):
                    stream.close()
