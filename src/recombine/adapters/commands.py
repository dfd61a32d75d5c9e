"""A model that is a program: it reads a record as a line of JSON and writes its answer as one."""

from __future__ import annotations

import io
import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recombine.adapters.models import ROW, OwnModel, Record
from recombine.errors import InvalidRequest, RecombineError

LARGEST = 1 << 26  # bytes of one line
FIRST, LAST = 0.3, 0.02  # seconds to wait for a line too many, after the first answer and the last
TAIL = 12  # lines of what a program said on stderr that an error quotes
WORKER = "RECOMBINE_WORKER"  # set in a process that is itself ended with all it started


class TalkFailed(RecombineError):
    """A program did not answer; `kind` is "hung", "died" or "garbled"."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Talk:
    """A program kept running that is told JSON line by line, and answers each line with one.

    It starts with the first question, and again after it died or was ended. Whatever it wrote on
    stderr last is part of the error.
    """

    def __init__(
        self, command: Sequence[str], *, folder: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.command, self.folder = list(command), folder
        self.variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=TAIL)

    @property
    def running(self) -> bool:
        """Whether the next question goes to a program that has started before."""
        return self._process is not None and self._process.poll() is None

    def ask(self, message: Any, timeout: float) -> Any:
        """The program's answer to one line."""
        if not self.running:
            self.close()
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        self.quiet(0)
        line = json.dumps(message, default=_json).encode() + b"\n"
        # A program that does not read would hold us in the write, so a thread of its own writes.
        threading.Thread(target=_write, args=(process.stdin, line), daemon=True).start()
        try:
            said = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.close()
            raise TalkFailed(
                "hung", f"no answer within {timeout:g} s; the program was ended{self._tail()}"
            ) from None
        if said is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            code = process.poll()
            self.close()
            raise TalkFailed("died", f"the program ended ({_ended(code)}){self._tail()}")
        try:
            return json.loads(said)
        except (ValueError, RecursionError):
            self.close()
            shown = said[:100].decode("utf-8", "replace").strip()
            raise TalkFailed(
                "garbled", f"the program wrote {shown!r}, expected one line of JSON: print remarks "
                "to stderr",
            ) from None  # fmt: skip

    def close(self) -> None:
        """Ends the program, if it runs."""
        if self._end is not None:
            self._end()
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
        self._lines, self._said = queue.Queue(), deque(maxlen=TAIL)
        threads = [
            threading.Thread(target=hear, args=(stream, into), daemon=True)
            for hear, stream, into in (
                (_read, process.stdout, self._lines),
                (_listen, process.stderr, self._said),
            )
        ]
        for thread in threads:
            thread.start()
        self._process = process
        self._end = weakref.finalize(self, _finish, process, threads, leads)

    def quiet(self, seconds: float) -> None:
        """Refuses a program that writes more than it was asked for, within so many seconds."""
        with suppress(queue.Empty):
            more = self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
            self.close()
            if more is None:
                raise TalkFailed("died", f"the program ended between records{self._tail()}")
            shown = more[:100].decode("utf-8", "replace").strip()
            raise TalkFailed(
                "garbled",
                f"the program wrote a line too many, {shown!r}: expected one answer for each "
                "record, and remarks on stderr",
            )

    def _tail(self) -> str:
        text = " / ".join(self._said)
        return f"; on stderr: {text[-600:]}" if text else ""


class CommandModel(OwnModel):
    """A program that reads records and writes answers, one line of JSON each.

    The program is kept running. `timeout` is for one record, `start` for the first one after the
    program has started. Where it dies, it is started again and the record is asked once more. It
    answers with a value such as "red", or with an object that holds it, {"answer": "red"}; an
    object that also repeats the record's `row` is held against it.

        model = CommandModel("python my_model.py --weights best.pt")
        print(model.answer([{"colour": "red", "shape": "cube"}]))
    """

    abilities = frozenset({"answer"})

    def __init__(
        self, command: str | Sequence[str], *, name: str | None = None, timeout: float = 60.0,
        start: float = 300.0, folder: str | Path | None = None,
    ):  # fmt: skip
        words = shlex.split(command) if isinstance(command, str) else [str(w) for w in command]
        if not words:
            raise InvalidRequest("the command is empty: expected a program and its arguments")
        for option, seconds in (("timeout", timeout), ("start", start)):
            if not seconds > 0:
                raise InvalidRequest(f"{option}={seconds}: expected more than 0 seconds")
        self.name = name or Path(words[0]).name
        self.timeout, self.start = timeout, max(start, timeout)
        self._talk = Talk(words, folder=folder)

    def answer(self, records: Sequence[Record]) -> list[Any]:
        answers = [self._one(number, record) for number, record in enumerate(records, 1)]
        if self._talk.running:
            self._talk.quiet(LAST)
        return answers

    def patience(self, records: int) -> float:
        return 2 * self.start + self.timeout * records

    def close(self) -> None:
        """Ends the program; the next question starts it again."""
        self._talk.close()

    def _one(self, number: int, record: Record) -> Any:
        try:
            try:
                said = self._asked(record)
            except TalkFailed as error:
                if error.kind != "died":
                    raise
                said = self._asked(record)
        except TalkFailed as error:
            about = json.dumps(dict(record), default=str)[:120]
            raise TalkFailed(error.kind, f"record {number}, {about}: {error}") from None
        if not isinstance(said, dict) or "answer" not in said:
            return said
        if ROW in said and ROW in record and said[ROW] != record[ROW]:
            self.close()
            raise TalkFailed(
                "garbled", f"the program answered row {said[ROW]} when asked about {record[ROW]}"
            )
        return said["answer"]

    def _asked(self, record: Record) -> Any:
        if self._talk.running:
            return self._talk.ask(dict(record), self.timeout)
        said = self._talk.ask(dict(record), self.start)
        # A program that writes two lines for each record would answer each with the one before.
        self._talk.quiet(FIRST)
        return said


def _json(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise InvalidRequest(
        f"a record holds a {type(value).__name__}, which cannot be sent to another program: give "
        "numbers, text, lists, or the path of a file"
    )


def _write(stream: Any, line: bytes) -> None:
    rest = memoryview(line)
    with suppress(OSError, ValueError):  # it died or was ended; the reader tells
        while len(rest):
            rest = rest[stream.write(rest) :]


def _read(stream: Any, lines: queue.Queue[bytes | None]) -> None:
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
    process: subprocess.Popen[bytes], threads: Sequence[threading.Thread], leads: bool
) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if leads:
            # What it started is ended with it, also where it died before and left that behind.
            os.killpg(process.pid, signal.SIGKILL)
        elif process.poll() is None:
            process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
    for thread in threads:  # so that its last words are heard; each closes its own stream
        thread.join(1)


def _ended(code: int | None) -> str:
    if code is None:
        return "it closed its output"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
