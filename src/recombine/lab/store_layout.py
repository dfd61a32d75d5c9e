"""What a store looks like on disk: its folders, the kinds of node, what an id may be."""

from __future__ import annotations

import re
from pathlib import Path

from recombine._version import __version__
from recombine.errors import InvalidRequest, StoreError, unknown
from recombine.lab.files import make_folder, write_json
from recombine.lab.store_formats import FORMAT, HEAD

KINDS = ("material", "cell", "reading", "round", "timing")
FOLDERS = ("nodes", "work", "leases", "failed", "plans", "logs", "quarantine", "temp")
WORK_NODES = "nodes.json"
_ID = re.compile(r"[0-9a-f]{2,128}")


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise unknown("kind of node", str(kind), KINDS)
    return kind


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def check_id(id: str) -> str:
    # Ids become paths, so nothing but hexadecimal digits may pass.
    if not isinstance(id, str) or not is_id(id):
        raise InvalidRequest(f"{id!r} is not an id: expected 2 to 128 digits out of 0-9 and a-f")
    return id


def create_store(path: Path) -> None:
    """Makes an empty store, unless the path holds something else."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} is a file: a store is a folder, choose another path")
    make_folder(path)
    # Another process may be creating the same store: its unfinished head is not a stranger's file.
    if strangers := [p.name for p in path.iterdir() if not p.name.startswith("tmp-")]:
        if (path / HEAD).is_file():
            return
        raise StoreError(
            f"{path} holds other files ({', '.join(sorted(strangers)[:3])}) and is not a store: "
            "choose an empty or a new folder"
        )
    write_json(path / HEAD, {"format": FORMAT, "created_by": __version__})
