"""The `adapt` command: begins an adapter for your own model, and checks one."""

from __future__ import annotations

import argparse
import json
import math
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from recombine.cli.words import say, show, text_table
from recombine.errors import InvalidRequest, NotApplicable, RecombineError

if TYPE_CHECKING:
    from recombine.adapters.worker import Isolated

SHOWN = 10  # problems, and examples of answers a third of that
KINDS = ("torch", "hf", "jax", "endpoint", "command", "arrays")


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine adapt`."""
    made.add_argument("model", nargs="?", default=None, metavar="FILE.py:NAME",
                      help="an adapter to check")  # fmt: skip
    made.add_argument("--init", choices=KINDS, default=None, metavar="KIND",
                      help=f"print an adapter to begin with: {', '.join(KINDS)}")  # fmt: skip
    made.add_argument("--data", default=None, metavar="FILE", help="records to try it on")
    made.add_argument("--rows", type=int, default=20, help="how many of them (default: 20)")
    made.add_argument("--batch", type=int, default=8, help="records asked at a time (default: 8)")
    made.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                      help="for one batch (default: 60)")  # fmt: skip
    made.add_argument("--yes", action="store_true", help="ask even where that may cost money")


def run(chosen: argparse.Namespace) -> int | None:
    """Prints a template, or checks an adapter; 1 where something is wrong with it."""
    if chosen.init is not None:
        from recombine.adapters.templates import template

        if chosen.model is not None:
            raise InvalidRequest(
                f"--init prints a new adapter and {chosen.model} is one already: give one of them"
            )
        print(template(chosen.init), end="")
        return None
    for option, given in (("FILE.py:NAME", chosen.model), ("--data FILE", chosen.data)):
        if given is None:
            raise InvalidRequest(
                f"{option} is missing: recombine adapt my_adapter.py:model --data FILE checks an "
                "adapter, and recombine adapt --init torch prints one to begin with"
            )
    found = document(chosen)
    if chosen.json:
        print(json.dumps(found, indent=1))
    else:
        show(lines(found))
    return 1 if found["problems"] else None


def document(chosen: argparse.Namespace) -> dict[str, Any]:
    """Everything the check found, for machines."""
    from recombine.adapters.isolation import checked
    from recombine.adapters.models import FROM_PYTHON, INSTRUMENTS, instruments_for
    from recombine.adapters.records import read_records
    from recombine.adapters.worker import Isolated

    for option, number in (("rows", chosen.rows), ("batch", chosen.batch)):
        if number < 1:
            raise InvalidRequest(f"--{option} {number}: expected at least 1")
    if not chosen.timeout > 0:
        raise InvalidRequest(f"--timeout {chosen.timeout:g}: expected more than 0 seconds")
    records = read_records(chosen.data, chosen.rows)
    with Isolated(chosen.model, timeout=chosen.timeout) as model:
        cost = _agreed(model, records, chosen.yes)
        found: dict[str, Any] = {
            "model": model.name, "abilities": sorted(model.abilities), "records": len(records),
            "cost": cost, "answers": [], "answered": 0, "rows_per_second": None, "parity": None,
            "largest_difference": None, "layers": {}, "pooling": model.pooling,
        }  # fmt: skip
        problems = []
        if "answer" in model.abilities:
            result = checked(model, records, batch=chosen.batch)
            found["answers"], found["answered"] = result.answers, result.answered
            if result.answered and result.seconds > 0:
                found["rows_per_second"] = result.answered / result.seconds
            problems += [str(problem) for problem in result.problems]
        for measure in (_parity, _layers, _log_probabilities):
            try:
                problems += measure(model, records, found)
            except RecombineError as error:
                problems.append(f"{measure.__name__[1:]}: {error}")
        why = instruments_for(model.abilities, model.recorded)
        found["instruments"] = {
            name: {
                "applies": not why[name],
                "why": why[name] or INSTRUMENTS[name][1],
                "used_by": FROM_PYTHON.get(name, "recombine card"),
            }
            for name in INSTRUMENTS
        }
    return found | {"problems": problems}


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    shown = [f"{found['model']}: {', '.join(found['abilities']) or 'no abilities'}"]
    if found["answered"]:
        speed = found["rows_per_second"]
        per = "" if speed is None else f", {speed:,.0f} a second"
        shown.append(f"{found['answered']} of {found['records']} records answered{per}")
        examples = [repr(a) for a in found["answers"] if a is not None][: SHOWN // 3]
        shown.append(f"answers such as {', '.join(examples)}")
    if found["parity"]:
        shown.append(found["parity"])
    if found["layers"]:
        sizes = ", ".join(f"{name} ({size})" for name, size in found["layers"].items())
        shown.append(f"layers (units): {sizes}")
        shown.append(f"pooling: {found['pooling'] or 'not stated by the adapter'}")
    told = []
    for name, one in found["instruments"].items():
        in_card = one["used_by"] == "recombine card"
        where = "" if in_card or not one["applies"] else f" (from Python: {one['used_by']})"
        applies = ("yes" if in_card else "not in the card") if one["applies"] else "no"
        told.append([name, applies, one["why"] + where])
    shown += ["", text_table(["instrument", "applies", "what it tells, or why not"], told), ""]
    problems = found["problems"]
    if not problems:
        return [*shown, "no problems: the adapter is steady, and leaves its input alone"]
    shown.append("1 problem:" if len(problems) == 1 else f"{len(problems)} problems:")
    shown += [f"  {problem}" for problem in problems[:SHOWN]]
    more = len(problems) - SHOWN
    return [*shown, f"  and {more} more (--json shows all)"] if more > 0 else shown


def _agreed(model: Isolated, records: list[dict[str, Any]], yes: bool) -> dict[str, Any] | None:
    """Says what asking takes; where that may cost money it must have been agreed to."""
    cost = model.cost(records)
    if cost is None:
        return None
    from recombine.live.asking import told

    for line in told(cost):
        say(line)
    if not model.free and cost.to_ask and not yes:
        raise InvalidRequest(
            f"{cost.to_ask} questions may cost money: add --yes to ask them (--rows N asks fewer)"
        )
    return asdict(cost)


def _parity(model: Isolated, records: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    parity = model.parity(records)
    if parity is None:
        return []
    found["parity"] = str(parity)
    found["largest_difference"] = parity.largest if math.isfinite(parity.largest) else None
    return [] if parity.fine else [str(parity)]


def _layers(model: Isolated, records: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    if "activations" in model.abilities:
        layers = model.activations(records)
        found["layers"] = {name: array.shape[1] for name, array in layers.items()}
    return []


def _log_probabilities(
    model: Isolated, records: list[dict[str, Any]], found: dict[str, Any]
) -> list[str]:
    asked = [(r, a) for r, a in zip(records, found["answers"], strict=False) if a is not None]
    if asked and "log-probabilities" in model.abilities:
        with suppress(NotApplicable):
            model.log_probabilities([r for r, _ in asked], [a for _, a in asked])
    return []
