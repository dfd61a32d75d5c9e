"""The `probe` command: is a factor readable from activations, also in unseen combinations?"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.cli.words import say, show
from recombine.errors import InvalidRequest, RecombineError

if TYPE_CHECKING:
    import numpy as np

    from recombine.tables.rows import Rows

KINDS = ("auto", "categorical", "multilabel", "numbers")
ARRAYS = (".npy", ".npz", ".safetensors")


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine probe`."""
    made.add_argument("activations", metavar="FILE",
                      help="layers as rows x features: .npz, .npy or .safetensors")  # fmt: skip
    made.add_argument("--targets", default=None, metavar="FILE",
                      help="what to read: an array, or a table with --factors")  # fmt: skip
    made.add_argument("--factors", default=None, metavar="NAMES",
                      help="columns of the table, such as colour,shape")  # fmt: skip
    made.add_argument("--lists", default=None, metavar="NAMES",
                      help="columns of a CSV that hold lists parted by |")  # fmt: skip
    made.add_argument("--groups", default=None, metavar="FILE",
                      help="the combination of each row, or a column of the table (default: all "
                           "factors together)")  # fmt: skip
    made.add_argument("--inputs", default=None, metavar="FILE",
                      help="the model's inputs, for a control by random projections")  # fmt: skip
    made.add_argument("--layers", nargs="+", default=None, metavar="PATTERN",
                      help="layers to probe, such as 'block*'")  # fmt: skip
    made.add_argument("--kind", default="auto", metavar="KIND", help=f"one of {', '.join(KINDS)}")
    made.add_argument("--pairs", action="store_true",
                      help="also: are pairs readable beyond their values?")  # fmt: skip
    made.add_argument("--folds", type=int, default=5, metavar="N", help="of combinations (5)")
    made.add_argument("--draws", type=int, default=5, metavar="N",
                      help="random labellings of the control task (5)")  # fmt: skip
    made.add_argument("--seed", type=int, default=0, help="of folds and controls (0)")
    made.add_argument("--drop-bad", action="store_true",
                      help="leave out rows with numbers that are not finite")  # fmt: skip
    made.add_argument("--memory", type=float, default=None, metavar="GB",
                      help="room for arrays (default: half of what is free)")  # fmt: skip
    made.add_argument("--to", default=None, metavar="DIR", help="for the page and its numbers")
    made.add_argument("--quiet", action="store_true", help="no progress")


def run(chosen: argparse.Namespace) -> None:
    """Reads the files, probes them and prints the verdicts."""
    try:
        found, told, page = _read(chosen)
    except RecombineError as error:
        raise type(error)(as_typed(str(error))) from error
    if chosen.json:
        print(json.dumps(found | {"report": page}, indent=1))
    else:
        show([*told, *([f"report: {page}"] if page else [])])


def _read(chosen: argparse.Namespace) -> tuple[dict[str, Any], list[str], str | None]:
    from recombine.probing.page import write_page
    from recombine.probing.probes import probe
    from recombine.probing.words import document, lines

    folder = _folder(chosen.to)
    most = _most(chosen.memory)
    layers = _layers(_arrays(chosen.activations, most), chosen)
    targets, groups = _targets(chosen, most)
    inputs = None if chosen.inputs is None else _one("--inputs", chosen.inputs, most)
    quiet = chosen.quiet or chosen.json
    reading = probe(
        layers, targets, groups, kind=chosen.kind, inputs=inputs, pairs=chosen.pairs,
        folds=chosen.folds, draws=chosen.draws, seed=chosen.seed, drop_bad=chosen.drop_bad,
        say=None if quiet else say,
    )  # fmt: skip
    page = None
    if folder is not None:
        source = f"{Path(chosen.activations).name}, {Path(chosen.targets).name}"
        page = str(write_page(reading, folder, source=source, command=_command(chosen)))
    return document(reading), lines(reading), page


def _folder(to: str | None) -> Path | None:
    folder = None if to is None else Path(to)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"--to {folder} is a file: give a folder")
    return folder


def _most(memory: float | None) -> int | None:
    if memory is not None and not memory > 0:
        raise InvalidRequest(f"--memory takes a number of GB above 0, got {memory:g}")
    return None if memory is None else int(memory * 1e9)


def _arrays(path: str, most: int | None) -> dict[str, np.ndarray]:
    from recombine.data.arrays import read_arrays

    return read_arrays(path, most_bytes=most)


def _one(option: str, path: str, most: int | None) -> np.ndarray:
    found = _arrays(path, most)
    if len(found) > 1:
        raise InvalidRequest(
            f"{option} {path} holds {len(found)} arrays ({', '.join(sorted(found)[:5])}): save "
            "the one that is meant as .npy"
        )
    return next(iter(found.values()))


def _layers(found: dict[str, np.ndarray], chosen: argparse.Namespace) -> dict[str, np.ndarray]:
    if chosen.layers is None:
        return found
    kept = {
        name: array
        for name, array in found.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen.layers)
    }
    if not kept:
        raise InvalidRequest(
            f"--layers {' '.join(chosen.layers)} matches none of {', '.join(sorted(found))}"
        )
    return kept


def _targets(
    chosen: argparse.Namespace, most: int | None
) -> tuple[np.ndarray | dict[str, np.ndarray] | Rows, np.ndarray | Rows | None]:
    if chosen.targets is None:
        raise InvalidRequest(
            "give --targets FILE: an array such as z.npy, or a table with --factors colour,shape"
        )
    if Path(chosen.targets).suffix.lower() not in ARRAYS:
        return _table(chosen, most)
    if chosen.factors is not None:
        raise InvalidRequest(f"--factors names columns of a table, and {chosen.targets} is none")
    found = _arrays(chosen.targets, most)
    groups = None if chosen.groups is None else _one("--groups", chosen.groups, most)
    return (next(iter(found.values())) if len(found) == 1 else found), groups


def _table(chosen: argparse.Namespace, most: int | None) -> tuple[Rows, np.ndarray | Rows | None]:
    from recombine.tables.coding import Coding
    from recombine.tables.reading import column_names, read_rows

    names = None if chosen.factors is None else _names(chosen.factors)
    if names is None:
        raise InvalidRequest(
            f"{chosen.targets} is a table: give --factors with the columns to read, such as "
            f"--factors {','.join(column_names(chosen.targets)[:2])}"
        )
    coding = Coding(lists=dict.fromkeys(_names(chosen.lists or ""), "|"))
    column = chosen.groups is not None and Path(chosen.groups).suffix.lower() not in ARRAYS
    extra = [str(chosen.groups)] if column and chosen.groups not in names else []
    rows = read_rows(chosen.targets, names, columns=extra, coding=coding)
    if chosen.groups is None:
        return rows, rows
    if not column:
        return rows, _one("--groups", chosen.groups, most)
    factor = chosen.groups in names
    return rows, rows.factor(chosen.groups).codes if factor else rows.column(chosen.groups)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _command(chosen: argparse.Namespace) -> str:
    """What to type to read the same again, without where the page went."""
    words = ["recombine", "probe", Path(chosen.activations).name]
    for name in ("targets", "groups", "inputs"):
        if (value := getattr(chosen, name)) is not None:
            words += [f"--{name}", Path(value).name]
    for name in ("factors", "lists"):
        if (value := getattr(chosen, name)) is not None:
            words += [f"--{name}", value]
    if chosen.layers:
        words += ["--layers", *chosen.layers]
    for name, usual in (("kind", "auto"), ("folds", 5), ("draws", 5), ("seed", 0)):
        if (value := getattr(chosen, name)) != usual:
            words += [f"--{name}", str(value)]
    words += [f"--{name}" for name in ("pairs", "drop-bad") if getattr(chosen, _field(name))]
    return shlex.join(words)


def _field(option: str) -> str:
    return option.replace("-", "_")


def as_typed(message: str) -> str:
    """A message that names arguments of Python, with the options typed for them.

    >>> as_typed("mend them, or leave those rows out with drop_bad=True")
    'mend them, or leave those rows out with --drop-bad'
    """
    text = re.sub(
        r"memory_bytes=(\d+)", lambda found: f"--memory {int(found[1]) / 1e9 * 1.005:.3g}", message
    )
    text = text.replace("drop_bad=True", "--drop-bad")
    text = re.sub(r"\b(kind|folds|draws)='?(-?\w+)'?", r"--\1 \2", text)
    return text.replace(
        "groups are missing: give an array", "groups are missing: give --groups FILE, an array"
    )
