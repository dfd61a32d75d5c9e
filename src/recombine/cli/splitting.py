"""The `split` command: a file divided with stated guarantees, and the card that states them."""

from __future__ import annotations

import argparse
import json
import re
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from recombine.cli.tables import lists_of, names_of
from recombine.cli.words import say, show
from recombine.errors import InvalidRequest

if TYPE_CHECKING:
    from recombine.splits.duplicates import Shingles


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine split`."""
    made.add_argument("file", metavar="FILE",
                      help="CSV, TSV, JSON lines, Parquet, Arrow or a dataset folder")  # fmt: skip
    made.add_argument("--factors", default=None, metavar="A,B",
                      help="columns that combine (default: all others)")  # fmt: skip
    made.add_argument("--list", action="append", default=[], dest="listed",
                      metavar="A=MARK", help="a column of lists, such as tags=;")  # fmt: skip
    made.add_argument("--method", default="random",
                      help="random, combination, pair, value or divergence (random)")  # fmt: skip
    made.add_argument("--share", type=float, default=0.2, help="of the rows for the test (.2)")
    made.add_argument("--validation", type=float, default=0.0, metavar="SHARE",
                      help="of the rows, held out in the same way (0)")  # fmt: skip
    made.add_argument("--to", default=None, metavar="DIR", help="a new folder for parts and card")
    made.add_argument("--group", default=None, metavar="COLUMN",
                      help="rows of one group stay together")  # fmt: skip
    made.add_argument("--text", default=None, metavar="COLUMN",
                      help="duplicates are rows whose text is the same, or nearly")  # fmt: skip
    made.add_argument("--near", type=float, default=0.9, metavar="SHARE",
                      help="of shingles two near duplicates share; 1 for exact ones only "
                           "(.9)")  # fmt: skip
    made.add_argument("--shingles", default="characters:5", metavar="KIND:N",
                      help="runs of characters or words compared (characters:5)")  # fmt: skip
    made.add_argument("--allow-duplicates", action="store_true",
                      help="duplicates may lie in two parts; the card says so")  # fmt: skip
    made.add_argument("--id", default=None, metavar="COLUMN",
                      help="that names rows, and does not count as content")  # fmt: skip
    made.add_argument("--target-divergence", type=float, default=None, metavar="D",
                      help="compound divergence to reach (default: the largest)")  # fmt: skip
    made.add_argument("--atom-limit", type=float, default=0.02, metavar="D",
                      help="largest atom divergence (.02)")  # fmt: skip
    made.add_argument("--unused", type=float, default=0.0, metavar="SHARE",
                      help="of rows that the method divergence may leave out (0)")  # fmt: skip
    made.add_argument("--triples", action="store_true", help="triples are compounds, too")
    made.add_argument("--bins", type=int, default=5, help="of columns of numbers (5)")
    made.add_argument("--rare", type=int, default=0, metavar="N",
                      help="values in fewer rows are grouped (0)")  # fmt: skip
    made.add_argument("--seed", type=int, default=0, help="of all choices (0)")
    made.add_argument("--quiet", action="store_true", help="no progress")


def run(chosen: Namespace) -> int:
    """Divides the file, writes the card and prints it; 1 if a guarantee does not hold."""
    from recombine.splits.methods import SplitSpec
    from recombine.splits.writing import CARD, PAGE, Whole, split_file
    from recombine.tables.coding import Coding

    if chosen.to is None:
        raise InvalidRequest("give --to DIR, a new folder for the parts and the card")
    try:
        spec = SplitSpec(
            chosen.method, chosen.share, chosen.validation, chosen.seed, chosen.target_divergence,
            chosen.atom_limit, chosen.unused, chosen.triples,
        )  # fmt: skip
        whole = Whole(
            chosen.group, chosen.text, chosen.near, _shingles(chosen.shingles), chosen.id,
            not chosen.allow_duplicates,
        )  # fmt: skip
    except InvalidRequest as error:
        raise InvalidRequest(as_typed(str(error))) from error
    quiet = chosen.quiet or chosen.json
    card = split_file(
        chosen.file, names_of(chosen.factors), chosen.to, spec, whole,
        coding=Coding(bins=chosen.bins, rare=chosen.rare, lists=lists_of(chosen.listed)),
        say=None if quiet else say,
    )  # fmt: skip
    if chosen.json:
        print(json.dumps(card | {"folder": chosen.to, "card": CARD, "page": PAGE}, indent=1))
    else:
        show([*lines(card), f"card: {chosen.to.rstrip('/')}/{PAGE}"])
    return 0 if all(one["holds"] for one in card["guarantees"]) else 1


def as_typed(message: str) -> str:
    """A message that names an argument of Python, with the option typed for it.

    >>> as_typed("atom_limit=-1.0: expected 0 to 1")
    '--atom-limit -1.0: expected 0 to 1'
    """
    found = re.match(r"([a-z_]+)=(?=[^ ]+[: ])", message)
    return message if not found else f"--{found[1].replace('_', '-')} {message[found.end() :]}"


def _shingles(text: str) -> Shingles:
    from recombine.splits.duplicates import Shingles

    of, _, length = text.partition(":")
    if not length.isdecimal():
        raise InvalidRequest(f"--shingles {text}: expected characters:5 or words:3")
    return Shingles(of, int(length))


def lines(card: dict[str, Any]) -> list[str]:
    """A card in a few lines."""
    parts = ", ".join(
        f"{name} {part['rows']} ({part['share']:.1%})" for name, part in card["parts"].items()
    )
    shown = [f"{card['file']}: {parts}"]
    for name, against in card["against"].items():
        new = ", ".join(
            f"{against[what]['never_trained']} of {against[what]['in_part']} {what}"
            for what in ("combinations", "pairs", "values")
            if what in against
        )
        apart = against["divergence"]
        shown.append(f"{name}: never trained {new}")
        shown.append(
            f"{name}: divergence of atoms {apart['atoms']:.4f}, of compounds "
            f"{apart['compounds']:.4f}"
        )
    cover = card["coverage"]
    shown.append(
        f"training: {cover['trained']} of {cover['values']} values covered, "
        f"{'connected' if cover['connected'] else 'not connected'}"
    )
    for one in card["guarantees"]:
        mark = "holds" if one["holds"] else "DOES NOT HOLD"
        count = "divergence" not in one["name"]
        measured = f"{one['measured']:g} exceptions" if count else f"measured {one['measured']:.4f}"
        shown.append(f"{mark}: {one['name']}, {one['promise']} ({measured})")
    return [*shown, *(f"not met: {text}" for text in card["unmet"]), *card["notes"]]
