"""A user's function over many rows: in another process, with a time for each row.

Whatever the function does (raise, hang, exit, crash, change its argument, print) costs at most
the tag of its row.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from recombine.children.serving import imported, named, serve, told
from recombine.children.talk import TalkFailed, python_child
from recombine.errors import InvalidRequest

AHEAD = 32  # rows sent at a time, and the fewest under way while there are more
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
    again: list[tuple[dict[str, Any], Any]] = []
    with _Calls(function, folder, timeout) as calls:
        for number, (row, called) in enumerate(calls.each(map(dict, rows), most_restarts)):
            if number < TWICE and not called.trouble:
                again.append((row, called.result))
            yield called
        if remark is None:
            return
        repeated = calls.each((row for row, _ in again), len(again) + 1)
        changed = sum(
            # As text, because NaN is not equal to itself.
            bool(called.trouble) or repr(called.result) != repr(result)
            for (_, result), (_, called) in zip(again, repeated, strict=True)
        )
        if changed:
            remark(
                f"is not deterministic: {changed} of {len(again)} rows gave another answer when "
                "repeated"
            )


class _Calls:
    """A function kept loaded in a child process."""

    def __init__(self, function: str, folder: Path, timeout: float):
        self.function, self.folder, self.timeout = function, folder, timeout
        self.talk = python_child("recombine.tags.callables:serve_function", default=str)

    def __enter__(self) -> _Calls:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.talk.close()

    def begin(self) -> None:
        request = {"path": sys.path, "place": self.function, "folder": str(self.folder)}
        try:
            why = self.talk.ask(request, LOADING).get("failed")
        except TalkFailed as error:
            why = f"it {_trouble(error, LOADING)}"
        if why:
            self.talk.close()
            raise InvalidRequest(
                f"cannot load {self.function} from {self.folder.resolve()}: {why}; expected "
                "my_tags.py:name, a function of one row that returns a dict"
            )

    def each(
        self, rows: Iterator[dict[str, Any]], most_restarts: int
    ) -> Iterator[tuple[dict[str, Any], Called]]:
        """Each row with what came of it; rows are sent ahead, so that the child never waits."""
        asked: deque[dict[str, Any]] = deque()
        restarts = done = 0
        while True:
            if len(asked) < AHEAD and (more := list(islice(rows, AHEAD))):
                self.talk.tell(more)
                asked.extend(more)
            if not asked:
                return
            row, done = asked.popleft(), done + 1
            try:
                called, restarts = Called(**self.talk.hear(self.timeout)), 0
            except TalkFailed as error:
                called, restarts = Called(trouble=_trouble(error, self.timeout)), restarts + 1
                if restarts >= most_restarts:
                    raise InvalidRequest(
                        f"{self.function} {called.trouble} on {restarts} rows in a row (the last: "
                        f"row {done}): given up; mend it or raise the timeout"
                    ) from None
                self.begin()
                self.talk.tell(asked)
            yield row, called


def _trouble(error: TalkFailed, timeout: float) -> str:
    if error.kind == "hung":
        return f"took longer than {timeout:g} s"
    return f"ended its process ({error.how})" if error.kind == "died" else f"failed: {error}"


def serve_function() -> None:
    """Runs in the child: a row in, its result out."""
    serve(_load, _call)


def _load(request: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], Any], dict[str, Any]]:
    """The function at "my_tags.py:name" (from the folder) or "package.module:name"."""
    file, _, name = request["place"].rpartition(":")
    sys.path.append(request["folder"])
    is_file = file.endswith(".py")
    module = imported(Path(request["folder"], file)) if is_file else importlib.import_module(file)
    function = named(module, name)
    if not callable(function):
        raise InvalidRequest(f"{name} is a {type(function).__name__} and cannot be called")
    return function, {}


def _call(function: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> str:
    try:
        result = function(row)
    except BaseException as error:  # also those that would end the process
        return json.dumps({"trouble": f"raised {told(error)}"})
    try:
        return json.dumps({"result": result})
    except (TypeError, ValueError, RecursionError):
        trouble = f"returned a {type(result).__name__} that JSON cannot hold"
        return json.dumps({"trouble": trouble})
