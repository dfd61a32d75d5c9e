"""The side that asks: a program kept running, told lines of JSON and heard line by line."""

from __future__ import annotations

import io
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, RecombineError

LARGEST = 1 << 26  # bytes of one line
LOOK = 0.2  # seconds between two looks whether an answer is still wanted
TAIL = 12  # lines of what a program said on stderr that an error quotes
WORKER = "RECOMBINE_WORKER"  # set in a process that is itself ended with all it started


class TalkFailed(RecombineError):
    """A program did not answer; `kind` is "hung", "died" or "garbled", `how` the way it died."""

    def __init__(self, kind: str, message: str, how: str = ""):
        super().__init__(message)
        self.kind, self.how = kind, how


def sent(value: Any) -> Any:
    """What JSON has no word for, as it goes to another program."""
    if hasattr(value, "tolist"):  # an array, or one number of it
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise InvalidRequest(
        f"a record holds a {type(value).__name__}, which cannot be sent to another program: give "
        "numbers, text, lists, or the path of a file"
    )


class Talk:
    """A program kept running that is told JSON line by line, and answers each line with one.

    It starts with the first question, and again after it died or was ended. Whatever it wrote on
    stderr last is part of the error. `default` makes JSON of what is none.

    >>> with Talk(["cat"]) as talk:
    ...     talk.ask({"n": 1}, timeout=10)
    {'n': 1}
    """

    def __init__(
        self, command: Sequence[str], *, folder: str | Path | None = None,
        variables: Mapping[str, str] | None = None, default: Callable[[Any], Any] = sent,
    ):  # fmt: skip
        self.command, self.folder = list(command), folder
        self.variables, self.default = dict(variables or {}), default
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize | None = None
        self._told: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said: deque[str] = deque(maxlen=TAIL)

    @property
    def running(self) -> bool:
        """Whether the next question goes to a program that has started before."""
        return self._process is not None and self._process.poll() is None

    def ask(
        self, message: Any, timeout: float, given_up: Callable[[], bool] = lambda: False
    ) -> Any:
        """The program's answer to one line; starts the program if it does not run."""
        if not self.running:
            self.close()
            self._start()
        self.quiet(0)
        self.tell([message])
        return self.hear(timeout, given_up)

    def tell(self, messages: Iterable[Any]) -> None:
        """Sends a running program a line for each message, and does not wait for any answer."""
        lines = [json.dumps(one, default=self.default).encode() + b"\n" for one in messages]
        self._told.put(b"".join(lines))

    def hear(self, timeout: float, given_up: Callable[[], bool] = lambda: False) -> Any:
        """The program's next answer, within so many seconds, or until nobody wants it any more."""
        late = time.monotonic() + timeout
        while (left := late - time.monotonic()) > 0 and not given_up():
            with suppress(queue.Empty):
                line = self._lines.get(timeout=min(left, LOOK))
                break
        else:
            self.close()
            raise TalkFailed(
                "hung", f"no answer within {timeout:g} s; the program was ended{self._tail()}"
            )
        if line is None:
            how = self._died()
            raise TalkFailed("died", f"the program ended ({how}){self._tail()}", how)
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            self.close()
            raise TalkFailed(
                "garbled", f"the program wrote {_shown(line)}, expected one line of JSON: print "
                "remarks to stderr",
            ) from None  # fmt: skip

    def quiet(self, seconds: float) -> None:
        """Refuses a program that writes more than it was asked for, within so many seconds."""
        with suppress(queue.Empty):
            more = self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
            if more is None:
                how = self._died()
                text = f"the program ended between records ({how}){self._tail()}"
                raise TalkFailed("died", text, how)
            self.close()
            raise TalkFailed(
                "garbled",
                f"the program wrote a line too many, {_shown(more)}: expected one answer for each "
                "record, and remarks on stderr",
            )

    def close(self) -> None:
        """Ends the program, if it runs."""
        end = self._end  # another thread may end it too
        if end is not None:
            end()
        self._process = self._end = None

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        # Where we are ourselves ended as a group, what we start must stay in it.
        leads = WORKER not in os.environ and os.name == "posix"
        try:
            process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, cwd=self.folder, start_new_session=leads,
                env={**os.environ, **self.variables}, bufsize=0,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidRequest(
                f"cannot start {shlex.join(self.command)!r}: {why}; expected a program and its "
                "arguments"
            ) from error
        self._told, self._lines = queue.SimpleQueue(), queue.SimpleQueue()
        self._said = deque(maxlen=TAIL)
        # A program that does not read would hold us in the write, so a thread writes too.
        threads = [
            threading.Thread(target=work, args=(stream, lines), daemon=True)
            for work, stream, lines in (
                (_write, process.stdin, self._told),
                (_read, process.stdout, self._lines),
                (_listen, process.stderr, self._said),
            )
        ]
        for thread in threads:
            thread.start()
        self._process = process
        self._end = weakref.finalize(self, _finish, process, self._told, threads, leads)

    def _died(self) -> str:
        """Ends what is left of a program that closed its output, and says how it died."""
        code = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(5)
        self.close()
        if code is None:
            return "it closed its output"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _tail(self) -> str:
        text = " / ".join(self._said)
        return f"; on stderr: {text[-600:]}" if text else ""


def python_child(
    serves: str, default: Callable[[Any], Any] = sent, variables: Mapping[str, str] | None = None
) -> Talk:
    """A talk with "module:function", which calls `serve` in a process of Python."""
    module, _, name = serves.partition(":")
    # With -c the folder one is in comes first, where a user's torch.py would hide the package.
    last = "import sys; sys.flags.safe_path or sys.path.append(sys.path.pop(0))"
    code = f"{last}; from {module} import {name}; {name}()"
    return Talk([sys.executable, "-c", code], variables={**(variables or {}), WORKER: "1"},
                default=default)  # fmt: skip


def _shown(line: bytes) -> str:
    return repr(line[:100].decode("utf-8", "replace").strip())


def _write(stream: Any, told: queue.SimpleQueue[bytes | None]) -> None:
    with suppress(OSError, ValueError), stream:  # it died or was ended; the reader tells
        while (lines := told.get()) is not None:
            rest = memoryview(lines)
            while len(rest):
                rest = rest[stream.write(rest) :]


def _read(stream: Any, lines: queue.SimpleQueue[bytes | None]) -> None:
    with suppress(OSError, ValueError), io.BufferedReader(stream) as buffered:
        while line := buffered.readline(LARGEST):
            lines.put(line)
    lines.put(None)


def _listen(stream: Any, said: deque[str]) -> None:
    with suppress(OSError, ValueError), io.BufferedReader(stream) as buffered:
        while line := buffered.readline(4096):
            if text := line.decode("utf-8", "replace").strip():
                said.append(text)


def _finish(
    process: subprocess.Popen[bytes], told: queue.SimpleQueue[bytes | None],
    threads: Sequence[threading.Thread], leads: bool,
) -> None:  # fmt: skip
    with suppress(ProcessLookupError, PermissionError):
        if leads:
            # What it started is ended with it, also where it died before and left that behind.
            os.killpg(process.pid, signal.SIGKILL)
        elif process.poll() is None:
            process.kill()
    process.wait()
    told.put(None)
    for thread in threads:  # so that its last words are heard; each closes its own stream
        thread.join(1)
