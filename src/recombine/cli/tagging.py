"""The `tag` command: factor columns made from text, and the measured error of the tags."""

from __future__ import annotations

import argparse
import json
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.cli.live import _agreed, as_typed
from recombine.cli.words import say, show, stopped, text_table
from recombine.errors import InvalidRequest, RecombineError

if TYPE_CHECKING:
    from recombine.live.asking import Estimate
    from recombine.live.client import ChatEndpoint
    from recombine.tags.spec import TagSpec


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine tag`."""
    made.add_argument("file", nargs="?", default=None, metavar="FILE",
                      help="CSV, TSV or JSON lines")  # fmt: skip
    made.add_argument("--column", default=None, metavar="NAME", help="that holds the text")
    made.add_argument("--with", dest="spec", default=None, metavar="SPEC",
                      help="a TOML file that declares the factors")  # fmt: skip
    made.add_argument("--to", default=None, metavar="FILE",
                      help="the tagged file; with --check errors.json")  # fmt: skip
    made.add_argument("--init", action="store_true",
                      help="print a spec to start from, which runs as it is")  # fmt: skip
    made.add_argument("--check", default=None, metavar="SHEET",
                      help="a sheet that was filled in: measures the error")  # fmt: skip
    made.add_argument("--rows", type=int, default=100, metavar="N", help="on the sheet (100)")
    made.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS",
                      help="for a row in a function or a pattern of yours (10)")  # fmt: skip
    made.add_argument("--endpoint", default=None, metavar="URL",
                      help="of a model that speaks OpenAI's chat completions")  # fmt: skip
    made.add_argument("--model", default=None, metavar="NAME", help="its name there")
    made.add_argument("--key-variable", default="OPENAI_API_KEY", metavar="NAME",
                      help="of the environment, with the key; or none "
                           "(OPENAI_API_KEY)")  # fmt: skip
    made.add_argument("--most-calls", type=int, default=None, metavar="N",
                      help="ask at most so often now, retries included")  # fmt: skip
    made.add_argument("--price-in", type=float, default=None, metavar="P",
                      help="of a million tokens of questions, for the estimate")  # fmt: skip
    made.add_argument("--price-out", type=float, default=None, metavar="P",
                      help="of a million tokens of answers")  # fmt: skip
    made.add_argument("--workers", type=int, default=4, metavar="N",
                      help="questions under way at a time (4)")  # fmt: skip
    made.add_argument("--yes", action="store_true", help="do not ask whether the price is right")
    made.add_argument("--dry-run", action="store_true",
                      help="the estimate and one question; asks nothing")  # fmt: skip
    made.add_argument("--seed", type=int, default=0, help="of the sheet (0)")
    made.add_argument("--quiet", action="store_true", help="no remarks")


def run(chosen: Namespace) -> None:
    """Tags a file, or with --check measures how wrong its tags are."""
    if chosen.init:
        from recombine.tags.spec import TEMPLATE

        print(TEMPLATE, end="")
        return
    if chosen.check is not None:
        _check(chosen)
        return
    for name, given in (("FILE", chosen.file), ("--with SPEC", chosen.spec), ("--to", chosen.to)):
        if given is None and not (name == "--to" and chosen.dry_run):
            raise InvalidRequest(
                f"{name} is missing: recombine tag FILE --column text --with spec.toml "
                "--to tagged.csv (or --init for a spec to start from, --check SHEET for a sheet "
                "that was filled in)"
            )
    from recombine.tags.spec import read_spec
    from recombine.tags.writing import check_paths, tag_file

    spec = read_spec(chosen.spec)
    if chosen.rows < 1:
        raise InvalidRequest(f"--rows {chosen.rows}: expected 1 or more on the sheet, such as 100")
    if not 0 < chosen.timeout < float("inf"):
        raise InvalidRequest(f"--timeout {chosen.timeout:g}: expected seconds, such as 10")
    asks = bool(spec.by_way("endpoint"))
    if chosen.dry_run:
        _dry_run(spec, chosen)
        return
    check_paths(Path(chosen.file), Path(chosen.to))
    model = _model(spec, chosen) if asks else None
    kept = ("what was answered is kept", "run the same command to continue")
    with stopped(*kept) if asks else stopped("nothing was written"):
        try:
            made = tag_file(
                chosen.file, spec, chosen.to, column=chosen.column, model=model,
                timeout=chosen.timeout, rows=chosen.rows, seed=chosen.seed,
            )  # fmt: skip
        except RecombineError as error:
            raise type(error)(as_typed(str(error))) from error
    document = {
        "file": str(made.path), "sheet": str(made.sheet), "rows": made.rows,
        "factors": made.counts, "notes": made.notes,
    }  # fmt: skip
    print(json.dumps(document, indent=1) if chosen.json else "\n".join(_lines(document)))


def _lines(found: dict[str, Any]) -> list[str]:
    rows = [[factor, value, count] for factor, counts in found["factors"].items()
            for value, count in counts.items()]  # fmt: skip
    return [
        text_table(["factor", "value", "rows"], rows),
        *found["notes"],
        f"tagged: {found['file']}",
        f"to check by hand: {found['sheet']} (fill in the columns that end in (yours), then "
        f"recombine tag --check {found['sheet']})",
    ]


# --- asking a model --------------------------------------------------------------------------


def _prompts(spec: TagSpec, chosen: Namespace) -> list[str]:
    from recombine.splits.records import read_records
    from recombine.tags.endpoint import tag_prompt
    from recombine.tags.taggers import texts

    column = chosen.column or spec.column
    if column is None:
        raise InvalidRequest("name the column that holds the text with --column NAME")
    factors = spec.by_way("endpoint")
    found = texts(read_records(chosen.file), column)
    return [tag_prompt(text, factors) for text in found if text.strip()]


def _estimate(prompts: list[str], model: ChatEndpoint | None, chosen: Namespace) -> Estimate:
    from recombine.live.asking import CHARACTERS, Estimate
    from recombine.tags.endpoint import LONGEST

    for name in ("price_in", "price_out"):
        if (given := getattr(chosen, name)) is not None and not 0 <= given < float("inf"):
            raise InvalidRequest(f"--{name.replace('_', '-')} {given}: expected a price")
    open_ = [p for p in prompts if model is None or model.kept(p) is None]
    answered = len(prompts) - len(open_)
    left = list(dict.fromkeys(open_))[: chosen.most_calls]
    tokens_in = sum(-(-len(p) // CHARACTERS) for p in left)
    few, most = 10 * len(left), LONGEST * len(left)
    priced = chosen.price_in is not None or chosen.price_out is not None

    def price(out: int) -> float | None:
        total = tokens_in * (chosen.price_in or 0.0) + out * (chosen.price_out or 0.0)
        return total / 1e6 if priced else None

    return Estimate(len(prompts), answered, len(left), tokens_in, few, most,
                    price(few), price(most))  # fmt: skip


def _dry_run(spec: TagSpec, chosen: Namespace) -> None:
    from recombine.live.asking import document, told

    if not spec.by_way("endpoint"):
        raise InvalidRequest("--dry-run is for factors asked of a model; this spec has none")
    prompts = _prompts(spec, chosen)
    found = _estimate(prompts, None, chosen)
    example = prompts[0] if prompts else ""
    if chosen.json:
        print(json.dumps({"estimate": document(found), "example": example}, indent=1))
    else:
        show([*told(found), "", example])


def _model(spec: TagSpec, chosen: Namespace) -> ChatEndpoint:
    from recombine.live.client import ChatEndpoint
    from recombine.tags.endpoint import LONGEST

    if not (chosen.endpoint and chosen.model):
        raise InvalidRequest(
            f"factor {spec.by_way('endpoint')[0].name!r} is asked of a model: give --endpoint URL "
            "and --model NAME"
        )
    variable = None if chosen.key_variable == "none" else chosen.key_variable
    if variable is not None and not os.environ.get(variable):
        raise InvalidRequest(
            f"the environment has no {variable}: export it, name another with --key-variable NAME, "
            "or say --key-variable none for an endpoint without a key"
        )
    log = Path(f"{chosen.to}.answers.jsonl")
    try:
        model = ChatEndpoint(
            chosen.endpoint, chosen.model, log, key_variable=variable,
            most_calls=chosen.most_calls, workers=chosen.workers, longest=LONGEST,
        )  # fmt: skip
    except InvalidRequest as error:
        raise InvalidRequest(as_typed(str(error))) from error
    _agreed(_estimate(_prompts(spec, chosen), model, chosen), model, chosen)
    return model


# --- checking --------------------------------------------------------------------------------


def _check(chosen: Namespace) -> None:
    from recombine.lab.files import write_json
    from recombine.tags.checking import check_sheet, new_values
    from recombine.tags.writing import check_folder

    errors = check_sheet(chosen.check, seed=chosen.seed)
    to = Path(chosen.to) if chosen.to else Path(chosen.check).with_name("errors.json")
    check_folder(to)
    write_json(to, errors)
    if chosen.json:
        print(json.dumps(errors, indent=1))
        return
    rows = []
    for factor, found in errors["factors"].items():
        rows.append([factor, "(all)", found["checked"], _told(found["accuracy"]),
                     "", _told(found["kappa"])])  # fmt: skip
        for value, one in found["per_value"].items():
            rows.append([factor, value, one["tagged"], _told(one["precision"]),
                         _told(one["recall"]), ""])  # fmt: skip
    show([text_table(["factor", "value", "checked", "right (precision)", "found (recall)",
                      "kappa"], rows)])  # fmt: skip
    for factor in errors["not_checked"]:
        say(f"{factor}: nothing was checked")
    names = ",".join(errors["factors"])
    then = f"for recombine audit TAGGED --factors {names} --tag-errors {to}"
    show([*new_values(errors), f"errors: {to} ({then})"])


def _told(one: dict[str, float] | None) -> str:
    return "" if one is None else f"{one['estimate']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"
