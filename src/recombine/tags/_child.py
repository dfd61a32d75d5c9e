"""Runs a user's function in a process of its own, one JSON line a row in and out."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(path: str, folder: str) -> Callable[[dict[str, Any]], Any]:
    """The function at "my_tags.py:name" (from the folder) or "package.module:name"."""
    module_path, _, name = path.rpartition(":")
    sys.path.append(folder)
    if module_path.endswith(".py"):
        file = Path(folder, module_path)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(module_path)
    function = getattr(module, name)
    if not callable(function):
        raise TypeError(f"{name} cannot be called")
    return function


def explained(error: BaseException) -> str:
    """What somebody's code raised, and the line it came from."""
    frames = [(f, line) for f, line in traceback.walk_tb(error.__traceback__)
              if f.f_code.co_filename != __file__]  # fmt: skip
    where = ""
    if frames and not frames[-1][0].f_code.co_filename.startswith("<frozen"):
        where = f" ({Path(frames[-1][0].f_code.co_filename).name}, line {frames[-1][1]})"
    said = " ".join(str(error).split())[:200] or "no message"
    return f"raised {type(error).__name__}: {said}{where}"


def main(path: str, folder: str) -> None:
    """Answers every line of standard input with one line."""
    # The function may print and read: the two streams of the protocol are kept from it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    rows = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def answer(said: dict[str, Any]) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    try:
        function = load(path, folder)
    except BaseException as error:
        answer({"fatal": explained(error)})
        return
    answer({"ready": True})
    for line in rows:
        try:
            result = function(json.loads(line))
        except BaseException as error:
            answer({"trouble": explained(error)})
            continue
        try:
            answer({"result": result})
        except (TypeError, ValueError, RecursionError):
            answer({"trouble": f"returned a {type(result).__name__} that JSON cannot hold"})


if __name__ == "__main__":
    main(*sys.argv[1:])
