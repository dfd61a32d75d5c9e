"""The `collect` command: which new combinations to collect for a budget."""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.cli.tables import rule_arguments, rules_of
from recombine.cli.words import say, show, stopped, text_table
from recombine.errors import InvalidRequest

if TYPE_CHECKING:
    from recombine.collecting.goals import Goals, Space
    from recombine.collecting.pict import PictModel
    from recombine.collecting.plans import Plan
    from recombine.tables.rows import Rows
    from recombine.tables.rules import Rules

WEIGHT = "weight"
SHOWN = 50
EXPORTS = (".csv", ".tsv", ".txt", ".pict")


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine collect`."""
    made.add_argument("file", metavar="FILE", nargs="?", default=None,
                      help="what is there already: CSV, TSV, JSON lines, Parquet, Arrow or a "
                           "dataset folder")  # fmt: skip
    made.add_argument("--factors", default=None, metavar="A,B",
                      help="columns that combine (default: all others)")  # fmt: skip
    made.add_argument("--budget", type=int, default=50, metavar="N",
                      help="what may be spent, an ordinary row costs 1; 0 for as many as cover "
                           "everything (50)")  # fmt: skip
    made.add_argument("--strength", type=int, default=2, metavar="T",
                      help="cover interactions of so many factors, 1 to 4 (2)")  # fmt: skip
    made.add_argument("--strength-of", action="append", default=[], metavar="A,B,C=T",
                      help="another strength within a group of factors")  # fmt: skip
    rule_arguments(made)
    made.add_argument("--target", default=None, metavar="FILE",
                      help="data as it will be met, its interactions count by their traffic; a "
                           "column `weight` counts rows")  # fmt: skip
    made.add_argument("--cost", action="append", default=[], metavar="FACTOR:VALUE=C",
                      help="what a row with this value costs more")  # fmt: skip
    made.add_argument("--per-combination", type=int, default=1, metavar="N",
                      help="rows of each new combination (1)")  # fmt: skip
    made.add_argument("--min-count", type=int, default=1, metavar="N",
                      help="rows from which an interaction is covered (1)")  # fmt: skip
    made.add_argument("--values", action="append", default=[], metavar="FACTOR=X,Y",
                      help="values that are not in the file")  # fmt: skip
    made.add_argument("--list", action="append", default=[], dest="listed",
                      metavar="A=MARK", help="a column of lists, such as tags=;")  # fmt: skip
    made.add_argument("--pict", default=None, metavar="MODEL",
                      help="a PICT model with the factors, values, rules and groups")  # fmt: skip
    made.add_argument("--goals", default=None, metavar="GOALS",
                      help="in order, such as connect,cover,balance, or by weight, such as "
                           "cover=1,connect=1,balance=.001 (the default)")  # fmt: skip
    made.add_argument("--bins", type=int, default=5, help="of columns of numbers (5)")
    made.add_argument("--rare", type=int, default=0, metavar="N",
                      help="values in fewer rows are grouped (0)")  # fmt: skip
    made.add_argument("--to", default=None, metavar="DIR", help="for the report and its tables")
    made.add_argument("--export", default=None, metavar="FILE",
                      help="combinations as .csv, or as PICT prints them (.tsv, .txt); the model "
                           "as .pict")  # fmt: skip
    made.add_argument("--seed", type=int, default=0, help="of all choices (0)")
    made.add_argument("--quiet", action="store_true", help="no progress")


def run(chosen: Namespace) -> None:
    """Makes the plan, prints it, and writes the report and the export that were asked for."""
    if chosen.export and Path(chosen.export).suffix not in EXPORTS:
        raise InvalidRequest(f"--export {chosen.export}: expected a name in {', '.join(EXPORTS)}")
    if chosen.budget < 0:
        raise InvalidRequest(f"--budget {chosen.budget}: expected 1 or more, or 0 for no limit")
    with stopped("nothing was written"):
        plan, rules, groups, model = _planned(chosen)
    with stopped("not every file was written"):
        written = _written(plan, chosen)
        if chosen.export:
            _export(plan, chosen.export, rules, groups, model)
            written.append(chosen.export)
    if chosen.json:
        print(json.dumps(plan.document() | {"written": written}, indent=1))
    else:
        show([*lines(plan), *(f"written: {path}" for path in written)])


def _planned(chosen: Namespace) -> tuple[Plan, Rules, dict[tuple[str, ...], int], PictModel | None]:
    """The plan, with the rules, groups and model that an export repeats."""
    from recombine.collecting.choosing import collect
    from recombine.tables.rules import parse_rules

    rows, space, model, target = _material(chosen)
    many = [space.names.index(name) for name in space.lists]
    texts = [*(model.rules.texts if model else ()), *rules_of(chosen)]
    rules = parse_rules(texts, space.names, space.values, many)
    groups = dict(model.groups if model else {}) | _groups(chosen.strength_of)
    plan = collect(
        rows, space, rules, chosen.budget or None, strength=chosen.strength, groups=groups,
        per_combination=chosen.per_combination, min_count=chosen.min_count,
        costs=_costs(chosen.cost), target=target,
        target_weight=WEIGHT if target is not None and WEIGHT in target.columns else None,
        goals=_goals(chosen.goals), seed=chosen.seed,
    )  # fmt: skip
    return plan, rules, groups, model


def _material(chosen: Namespace) -> tuple[Rows | None, Space, PictModel | None, Rows | None]:
    """The rows that are there, the space, the model and the target."""
    from recombine.collecting.goals import Space
    from recombine.collecting.pict import read_pict
    from recombine.tables.coding import Coding
    from recombine.tables.reading import column_names, read_rows
    from recombine.tables.rows import aligned

    more = _values(chosen.values)
    model = read_pict(chosen.pict, order=chosen.strength) if chosen.pict else None
    lists = dict(_pair(text, "=", "--list", "tags=;") for text in chosen.listed)
    names = None if chosen.factors is None else _names(chosen.factors)
    heard = None if chosen.quiet or chosen.json else say
    if model is not None:
        if model.weights and heard:
            heard(f"{chosen.pict}: weights of values are kept in a .pict export and do not change "
                  "the plan; rows of --target would")  # fmt: skip
        names = names or list(model.space.names)
        if set(names) != set(model.space.names):
            raise InvalidRequest("--factors and --pict name different factors: leave one out")
        coding = Coding(text=tuple(names))  # a model's values are taken as written
    else:
        coding = Coding(bins=chosen.bins, rare=chosen.rare, lists=lists)
    rows = None
    if chosen.file is not None and not _no_rows(chosen.file):
        rows = read_rows(chosen.file, names, coding=coding, say=heard)
    elif chosen.file is not None and names is None:
        names = column_names(chosen.file) if Path(chosen.file).stat().st_size else None
    if model is not None:
        space = _extended(model.space, more)
    elif rows is not None:
        space = Space.of(rows, more)
    else:
        names = names or list(more)
        if lost := [name for name in names if name not in more]:
            raise InvalidRequest(
                f"nothing is known about {lost[0]!r}: there are no rows, so give its values, such "
                f"as --values {lost[0]}=x,y"
            )
        if not names:
            raise InvalidRequest(
                "give a FILE with rows, or --values colour=red,blue for each factor, or --pict "
                "MODEL"
            )
        space = Space(tuple(names), tuple(tuple(more[name]) for name in names))
    target = None
    if chosen.target is not None:
        weighted = (WEIGHT,) if WEIGHT in column_names(chosen.target) else ()
        target = read_rows(chosen.target, list(space.names), columns=weighted,
                           coding=replace(coding, lists=lists), like=rows, say=heard)  # fmt: skip
        if model is None:  # what will be met belongs to the space, seen or not
            known = space.as_rows(_none(space), "the space")
            same = aligned(known, target)[0]
            space = replace(space, values=tuple(factor.values for factor in same.factors))
    return rows, space, model, target


def _none(space: Space):
    import numpy as np

    return np.zeros((0, len(space.places)), np.int64)


def _no_rows(path: str) -> bool:
    """Whether a text file holds nothing but, at most, a line of names."""
    file = Path(path)
    if not file.is_file() or file.suffix.lower() not in (
        ".csv",
        ".tsv",
        ".jsonl",
        ".ndjson",
        ".json",
    ):
        return False
    header = file.suffix.lower() in (".csv", ".tsv")
    with file.open("rb") as lines:
        held = 0
        for line in lines:
            held += bool(line.strip())
            if held > header:
                return False
    return True


def _extended(space: Space, more: dict[str, list[str]]) -> Space:
    from recombine.errors import unknown

    if lost := [name for name in more if name not in space.names]:
        raise unknown("factor", lost[0], space.names)
    both = [(*values, *more.get(name, ())) for name, values in zip(space.names, space.values,
                                                                  strict=True)]  # fmt: skip
    return replace(space, values=tuple(tuple(dict.fromkeys(values)) for values in both))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _pair(text: str, mark: str, option: str, example: str) -> tuple[str, str]:
    left, found, right = text.rpartition(mark) if option != "--list" else text.partition(mark)
    if not found or not left.strip() or not right:
        raise InvalidRequest(f"{option} {text}: expected for example {example}")
    return left.strip(), right


def _values(texts: Sequence[str]) -> dict[str, list[str]]:
    """`--values colour=red,blue` as a dictionary.

    >>> _values(["colour=red, blue", "colour=green"])
    {'colour': ['red', 'blue', 'green']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, values = _pair(text, "=", "--values", "colour=red,blue")
        found[name] = list(dict.fromkeys([*found.get(name, []), *_names(values)]))
    return found


def _number(text: str, option: str, given: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"{option} {given}: {text!r} is not a number") from None


def _groups(texts: Sequence[str]) -> dict[tuple[str, ...], int]:
    found = {}
    for text in texts:
        names, order = _pair(text, "=", "--strength-of", "a,b,c=3")
        if not order.strip().isdecimal():
            raise InvalidRequest(f"--strength-of {text}: {order!r} is no strength from 1 to 4")
        found[tuple(_names(names))] = int(order)
    return found


def _costs(texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """`--cost colour:red=5` as nested dictionaries.

    >>> _costs(["colour:red=5", "colour:blue=.5"])
    {'colour': {'red': 5.0, 'blue': 0.5}}
    """
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        left, price = _pair(text, "=", "--cost", "colour:red=5")
        name, mark, value = left.partition(":")
        if not mark or not value:
            raise InvalidRequest(f"--cost {text}: expected for example colour:red=5")
        found.setdefault(name, {})[value] = _number(price, "--cost", text)
    return found


def _goals(text: str | None) -> Goals:
    from recombine.collecting.goals import GOALS, Goals
    from recombine.errors import unknown

    if text is None:
        return Goals()
    if "=" not in text:
        return Goals(order=tuple(_names(text)))
    weights = dict.fromkeys(GOALS, 0.0)
    for part in _names(text):
        name, weight = _pair(part, "=", "--goals", "cover=1,connect=1")
        if name not in weights:
            raise unknown("goal", name, GOALS)
        weights[name] = _number(weight, "--goals", text)
    return Goals(**weights)


def _written(plan: Plan, chosen: Namespace) -> list[str]:
    """The files of a folder: the page, the tables, the document."""
    if chosen.to is None:
        return []
    from recombine.lab.files import make_folder, write_bytes
    from recombine.report.html import render
    from recombine.report.tables import to_csv

    folder = Path(chosen.to)
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"--to {folder} is a file: give a folder")
    make_folder(folder)
    files = {
        "collect.html": render(plan.report()),
        "combinations.csv": to_csv(plan.combinations_table()),
        "gains.csv": to_csv(plan.gains_table()),
        "plan.json": json.dumps(plan.document(), indent=1) + "\n",
    }
    for name, text in files.items():
        write_bytes(folder / name, text.encode())
    return [str(folder / name) for name in files]


def _export(plan: Plan, path: str, rules, groups, model: PictModel | None) -> None:
    from recombine.collecting.pict import write_pict, write_pict_output
    from recombine.lab.files import make_folder, write_bytes
    from recombine.report.tables import to_csv

    kind = Path(path).suffix
    if kind == ".csv":
        text = to_csv(plan.combinations_table())
    elif kind == ".pict":
        text = write_pict(plan.space, rules, groups, model=model)
    else:
        text = write_pict_output(plan.space, plan.codes, model)
    make_folder(Path(path).parent)
    write_bytes(Path(path), text.encode())


def lines(plan: Plan) -> list[str]:
    """A plan for people: what to collect, what it brings, how good it is."""
    table = plan.combinations_table()
    shown = [plan.summary]
    if len(plan):
        shown += ["", text_table(table.columns, table.rows[:SHOWN])]
        if len(plan) > SHOWN:
            shown.append(f"... and {len(plan) - SHOWN} more (--to DIR or --export FILE.csv)")
        steps = sorted({0, *(round(len(plan) * i / 8) for i in range(9)), plan.flattens or 0})
        gains = [plan.gains[step] for step in steps]
        rows = [
            (g.combinations, f"{g.cost:g}", f"{g.covered:,}", f"{g.share:.1%}", g.parts,
             f"{g.balance:.3f}") for g in gains
        ]  # fmt: skip
        columns = ("combinations", "cost", "covered", "share", "parts", "balance")
        shown += ["", text_table(columns, rows), ""]
    return [*shown, plan.flattening, plan.bound, *plan.notes]
