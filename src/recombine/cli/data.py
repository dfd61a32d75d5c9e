"""The `data` command: which sets there are, where they lie, and getting one."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace

from recombine.cli.words import say, text_table
from recombine.data.getting import VARIABLE, Listing, get, listed
from recombine.data.registry import set_named
from recombine.lab.progress import Watch


def data_list(chosen: Namespace) -> None:
    """Prints every set, its licence and size, and where it is found."""
    found = listed()
    if chosen.json:
        print(json.dumps({"sets": [_document(one) for one in found]}))
        return
    rows = [[one.name, one.text, one.licence, size(one.size), _where(one)] for one in found]
    print(text_table(["set", "what", "licence", "size", "where"], rows))
    if any(one.where == "not here" for one in found):
        print("\nrecombine data get SET")


def data_get(chosen: Namespace) -> None:
    """Gets one set and prints the folder it is in."""
    wanted = set_named(chosen.dataset)
    watch = Watch(quiet=chosen.quiet or chosen.json)
    started = False

    def progress(name: str, done: int, total: int) -> None:
        nonlocal started
        if not started:
            started = True
            watch.start(f"getting {wanted.name}", {one.name: one.size for one in wanted.files})
        watch(name, done, total, name)
        watch.draw()

    try:
        folder = get(wanted, folder=chosen.folder, source=chosen.source, progress=progress)
        if started:
            for file in wanted.files:
                watch.finish(file.name)
            watch.draw(last=True)
    finally:
        watch.close()
    if chosen.folder is not None:
        say(
            f"its sums agree; to use it from now on: export {VARIABLE}={shlex.quote(chosen.folder)}"
        )
    if chosen.json:
        files = [str(folder / file.name) for file in wanted.files]
        print(json.dumps({"name": wanted.name, "folder": str(folder), "files": files}))
    else:
        print(folder)


def size(count: int) -> str:
    """Bytes as people say them.

    >>> size(10_722_977), size(16_191)
    ('10.7 MB', '16 kB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"


def _where(one: Listing) -> str:
    if one.folder is None:
        return one.where
    return f"{one.where} {one.folder}" + (f": {one.problem}" if one.problem else "")


def _document(one: Listing) -> dict[str, object]:
    return {
        "name": one.name,
        "what": one.text,
        "licence": one.licence,
        "source": one.source,
        "revision": one.revision,
        "bytes": one.size,
        "where": one.where,
        "folder": None if one.folder is None else str(one.folder),
        "problem": one.problem,
    }
