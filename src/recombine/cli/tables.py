"""What commands about a user's table share: its columns, how it is read, rules, where to write."""

from __future__ import annotations

import argparse
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest

if TYPE_CHECKING:
    from recombine.report.document import Report, Table
    from recombine.tables.coding import Coding

WEIGHT = "weight"


def reading_arguments(made: argparse.ArgumentParser) -> None:
    """How a table is read."""
    made.add_argument("--factors", default=None, metavar="A,B",
                      help="columns that combine (default: all but names of rows)")  # fmt: skip
    made.add_argument("--list", action="append", default=[], dest="listed",
                      metavar="A=MARK", help="a column of lists, such as tags=;")  # fmt: skip
    made.add_argument("--bins", type=int, default=5, help="of columns of numbers (5)")
    made.add_argument("--rare", type=int, default=0, metavar="N",
                      help="values in fewer rows are grouped (0)")  # fmt: skip
    made.add_argument("--id", default=None, metavar="COLUMN",
                      help="that names rows (default: their number in the file)")  # fmt: skip


def rule_arguments(made: argparse.ArgumentParser) -> None:
    """What is impossible."""
    made.add_argument("--forbid", action="append", default=[], metavar="RULE",
                      help="what is impossible: 'a=x AND b=y', or 'IF a=x THEN b<>y'")  # fmt: skip
    made.add_argument("--rules", default=None, metavar="FILE",
                      help="a file of rules as in PICT: a line without IF must hold")  # fmt: skip


def names_of(text: str | None) -> list[str] | None:
    """The names of A,B,C; None where nothing was typed."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidRequest(f"--factors {text!r}: expected columns, such as colour,shape")
    return names


def coding_of(chosen: Namespace) -> Coding:
    """How columns become factors, from what was typed."""
    from recombine.tables.coding import Coding

    return Coding(bins=chosen.bins, rare=chosen.rare, lists=lists_of(chosen.listed))


def lists_of(texts: Sequence[str]) -> dict[str, str]:
    """`--list tags=;` as a dictionary."""
    return dict(pair_of(text, "=", "--list", "tags=;") for text in texts)


def rules_of(chosen: Namespace) -> list[str]:
    """The texts of all rules that were typed, and those of the file.

    In a file a line without IF is what must hold, as in PICT; after --forbid, what must not.
    """
    from recombine.tables.rule_syntax import forbidding
    from recombine.tables.rules import read_rules_file

    return [
        *map(forbidding, chosen.forbid),
        *(read_rules_file(chosen.rules) if chosen.rules else []),
    ]


def pair_of(text: str, mark: str, option: str, example: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, found, value = text.partition(mark)
    if not found or not name or not value:
        raise InvalidRequest(f"{option} {text!r}: expected for instance {example}")
    return name.strip(), value


def typed() -> str:
    """The command as it was typed, for a page that says how to repeat it."""
    return shlex.join(["recombine", *sys.argv[1:]])


def check_new(folder: str | Path, name: str, overwrite: bool) -> None:
    """Refuses a folder with a report that would be lost, unless that is meant."""
    for file in (f"{name}.json", f"{name}.html"):
        path = Path(folder).expanduser() / file
        if path.exists() and not overwrite:
            raise InvalidRequest(
                f"{path} is there already: give another --to, move it away, or add --overwrite"
            )


def write_all(
    folder: str | Path, name: str, report: Report, document: Any, tables: Sequence[Table] = ()
) -> list[str]:
    """Writes NAME.html, NAME.json and a CSV for each table, all or (short of a full disk) none."""
    import json

    from recombine.lab.files import make_folder, write_bytes
    from recombine.report.html import render
    from recombine.report.tables import to_csv

    place = Path(folder).expanduser()
    texts = {
        f"{name}.html": render(report),
        f"{name}.json": json.dumps(document, indent=1, allow_nan=False, default=_plain),
        **{f"{table.title.lower().replace(' ', '-')}.csv": to_csv(table) for table in tables},
    }
    files = {file: text.encode("utf-8", "replace") for file, text in texts.items()}
    make_folder(place)
    for file, content in files.items():
        write_bytes(place / file, content)
    return [str(place / file) for file in files]


def without_nan(value: Any) -> Any:
    """The same document with None where a number is not one: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None
    return value


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
