"""The side that answers: a user's file loaded, asked line by line, and explained where it fails."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import sys
import sysconfig
import threading
import traceback
import zlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn, TypeVar

from recombine.errors import InvalidRequest, RecombineError, unknown

Made = TypeVar("Made")
EXTRAS = {"torch": "torch", "transformers": "hf", "tokenizers": "hf"}  # what brings a package


def serve(
    begin: Callable[[dict[str, Any]], tuple[Made, Any]], respond: Callable[[Made, Any], str]
) -> NoReturn:
    """The child's loop: a line of JSON in, a line out; what the user's code prints is a remark.

    The first request holds the import `path` of the one who asks and the `place` of the user's
    code. `begin` makes of it what all others are asked of, and a first reply; where it fails, that
    is {"failed": why}. `respond` makes every other reply, already as JSON: it alone can say what
    is wrong with a result that JSON cannot hold.
    """
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # The user's code may read its input and print: neither is ours to share.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(requests, lines), daemon=True).start()

    def reply(said: str) -> None:
        replies.write(said + "\n")
        replies.flush()

    request = json.loads(lines.get())
    sys.path += [folder for folder in request["path"] if folder not in sys.path]
    try:
        made, hello = begin(request)
    except BaseException as error:  # also those that would end the process
        ours = isinstance(error, RecombineError)
        why = str(error) if ours else f"{request['place']} raised {told(error)}"
        reply(json.dumps({"failed": why}))
        os._exit(1)
    reply(json.dumps(hello))
    while True:
        reply(respond(made, json.loads(lines.get())))


def _hear(requests: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Hands on what is asked; where the one who asks is gone, work that may never end is ended."""
    for line in requests:
        lines.put(line)
    if os.name == "posix" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with what the user's code started
    os._exit(1)


def told(error: BaseException) -> str:
    """An error of a user's code in one line, with the place in the user's own file."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    others = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
    frames = [
        f for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith(others) and "site-packages" not in f.filename
    ]  # fmt: skip
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return text[:500] + where


def imported(path: Path) -> ModuleType:
    """A user's file as a module of its own name; its folder may be imported from."""
    whole = path.resolve()
    if _hides(whole):
        raise InvalidRequest(
            f"{path} has the name of the package {whole.stem} and hides it from everything that "
            f"imports it: rename the file, to my_{path.name} say"
        )
    name = f"recombine_user_{whole.stem}_{zlib.crc32(os.fsencode(whole)):08x}"
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if (folder := str(whole.parent)) not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module  # dataclasses and the like look their module up
    try:
        spec.loader.exec_module(module)
    except RecombineError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        extra = EXTRAS.get(getattr(error, "name", None) or "")
        install = f"; pip install 'recombine[{extra}]'" if extra else ""
        raise InvalidRequest(f"{path} cannot be imported: {told(error)}{install}") from error
    return module


def _hides(file: Path) -> bool:
    """Whether `import NAME` would now find this file instead of a package of that name."""
    if file.stem in sys.modules or file.stem in sys.stdlib_module_names:
        return False
    found = PathFinder.find_spec(file.stem)
    if found is None or found.origin is None or Path(found.origin).resolve() != file:
        return False
    others = [folder for folder in sys.path if Path(folder).resolve() != file.parent]
    other = PathFinder.find_spec(file.stem, others)
    return other is not None and other.origin is not None


def named(module: ModuleType, name: str) -> Any:
    """What a module calls by a name, or an error with the nearest name in it."""
    if not hasattr(module, name):
        given = [n for n in vars(module) if not n.startswith("_")]
        raise unknown(f"name in {module.__file__}", name, given)
    return getattr(module, name)
