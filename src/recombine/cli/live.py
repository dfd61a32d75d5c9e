"""The commands that put a kit of questions to a language model."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.cli.words import say, settings_of, show
from recombine.errors import InvalidRequest, RecombineError
from recombine.lab.progress import Watch

if TYPE_CHECKING:
    from recombine.live.asking import Estimate, Outcome
    from recombine.live.kit import Kit, Question
    from recombine.live.model import Keeping
    from recombine.live.trained import TrainedHere

EXAMPLES = 3


def run(chosen: Namespace) -> None:
    """One kit put to one model, or with --dry-run what that would take."""
    from recombine.live import kit_named

    kit = kit_named(chosen.command)
    for name in ("longest", "workers", "most_calls"):  # also of a dry run, which asks nobody
        if (given := getattr(chosen, name)) is not None and given < 1:
            raise InvalidRequest(f"--{name.replace('_', '-')} {given}: expected at least 1")
    try:
        found = dry_run(kit, chosen) if chosen.dry_run else asked(kit, chosen)
    except RecombineError as error:
        raise type(error)(as_typed(str(error))) from error
    document, stopped = found
    print(json.dumps(document, indent=1)) if chosen.json else show(lines(document))
    if stopped is not None:
        raise type(stopped)(as_typed(str(stopped)))


def dry_run(kit: Kit, chosen: Namespace) -> tuple[dict[str, Any], None]:
    """The estimate and a few questions of different kinds; needs no key, model or folder."""
    from recombine.live.asking import document

    questions = _questions(kit, chosen, _trained(chosen))
    _against(kit, questions, chosen)
    step = max(1, len(questions) // EXAMPLES)
    examples = questions[::step][:EXAMPLES]
    return {
        "kit": kit.name,
        "estimate": document(_estimate(kit, questions, chosen, None)),
        "examples": [
            {"id": one.id, "prompt": one.prompt, "gold": one.gold, **one.columns}
            for one in examples
        ],
    }, None


def asked(kit: Kit, chosen: Namespace) -> tuple[dict[str, Any], RecombineError | None]:
    """The whole run; everything that can be wrong is checked before the first question."""
    from recombine.live.asking import claim_folder, run_kit

    trained = _trained(chosen)
    questions = _questions(kit, chosen, trained)
    model, folder = model_of(kit, chosen, trained)
    against = _against(kit, questions, chosen)
    found = _estimate(kit, questions, chosen, model)
    _agreed(found, model, chosen)
    claim_folder(folder, kit, model)
    watch = Watch(quiet=chosen.quiet or chosen.json)
    watch.start(kit.name, {kit.name: len(questions)})

    def progress(done: int, total: int) -> None:
        watch(kit.name, done, total, f"{done} of {total}")
        watch.draw(last=done == total)

    try:
        outcome = run_kit(
            kit, model, folder, _options(kit, chosen), progress=progress, command=_command(chosen),
            against=against,
        )  # fmt: skip
    finally:
        watch.close()
    return _summary(outcome), outcome.stopped


def model_of(
    kit: Kit, chosen: Namespace, trained: TrainedHere | None = None
) -> tuple[Keeping, Path]:
    """The model that was asked for, with its log in the folder."""
    from recombine.live.asking import ANSWERS
    from recombine.live.client import ChatEndpoint
    from recombine.live.local import LocalModel
    from recombine.live.remembering import Remembering

    given = [bool(one) for one in (chosen.hf, _cell(chosen), chosen.endpoint or chosen.model)]
    if sum(given) > 1:
        count = "two" if sum(given) == 2 else "three"
        raise InvalidRequest(f"{count} models were given, but one is needed: {_how_to_ask(chosen)}")
    if not any(given):
        raise InvalidRequest(f"give {_how_to_ask(chosen)} (--dry-run needs none)")
    if given[2] and not (chosen.endpoint and chosen.model):
        lost = "--model NAME" if chosen.endpoint else "--endpoint URL"
        raise InvalidRequest(f"{lost} is missing: the two belong together")
    if chosen.to is None:
        raise InvalidRequest(
            "give --to FOLDER, where answers and the report are kept; the same command with the "
            "same folder continues"
        )
    folder = Path(chosen.to)
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"--to {folder} is a file: give a folder")
    log, longest = folder / ANSWERS, kit.longest if chosen.longest is None else chosen.longest
    if trained is not None:
        return Remembering(trained, log), folder
    if chosen.hf:
        local = LocalModel(
            chosen.hf, longest, device=chosen.device, dtype=chosen.dtype,
            quiet=chosen.quiet or chosen.json,
        )  # fmt: skip
        local.check()  # it would notice only after the estimate was agreed to
        return Remembering(local, log), folder
    variable = None if chosen.key_variable == "none" else chosen.key_variable
    # So would the endpoint.
    if variable is not None and not os.environ.get(variable, "").strip():
        raise InvalidRequest(
            f"the environment has no {variable}: export it, name another with --key-variable NAME, "
            "or say --key-variable none for an endpoint without a key"
        )
    return ChatEndpoint(
        chosen.endpoint, chosen.model, log, key_variable=variable, most_calls=chosen.most_calls,
        workers=chosen.workers, longest=longest, timeout=chosen.timeout,
    ), folder  # fmt: skip


def _cell(chosen: Namespace) -> str | None:
    """The network trained here that was asked for, in the commands that offer it."""
    return getattr(chosen, "cell", None)


def _how_to_ask(chosen: Namespace) -> str:
    trained = "--cell ID --store DIR for a network trained here, " if "cell" in chosen else ""
    return (
        "--endpoint URL --model NAME for a model that speaks OpenAI's chat completions, "
        f"{trained}or --hf FOLDER for a local model"
    )


def _trained(chosen: Namespace) -> TrainedHere | None:
    """The network trained here that was asked for: its questions depend on it."""
    if not (cell := _cell(chosen)):
        return None
    from recombine.live.trained import TrainedHere

    return TrainedHere(chosen.store, cell, chosen.longest)


def _against(kit: Kit, questions: list[Question], chosen: Namespace) -> str | None:
    """The folder of the run to compare with, once it is sure that it can be: before any price."""
    from recombine.live.comparing import earlier

    folder = getattr(chosen, "against", None)
    if folder is None:
        return None
    if chosen.to is not None and Path(chosen.to).resolve() == Path(folder).resolve():
        raise InvalidRequest(f"--against {folder} is the folder of this run itself: give another")
    earlier(folder, kit, questions)
    return folder


def _options(kit: Kit, chosen: Namespace) -> Any:
    return kit.chosen(settings_of(chosen.settings), items=chosen.items, seed=chosen.seed)


def _questions(kit: Kit, chosen: Namespace, trained: TrainedHere | None) -> list[Question]:
    from recombine.live.asking import questions_of

    return questions_of(kit, _options(kit, chosen), trained)


def _estimate(
    kit: Kit, questions: list[Question], chosen: Namespace, model: Keeping | None
) -> Estimate:
    from recombine.live.asking import estimate

    return estimate(
        kit, questions, kept=None if model is None else model.kept, longest=chosen.longest,
        most_calls=chosen.most_calls, price_in=chosen.price_in, price_out=chosen.price_out,
    )  # fmt: skip


def _agreed(found: Estimate, model: Keeping, chosen: Namespace) -> None:
    """Says what it will take, and where it is not free goes on only if that is agreed to."""
    from recombine.live.asking import told

    if not chosen.quiet:
        for line in told(found):
            say(line)
    free = model.free and chosen.price_in is None and chosen.price_out is None
    if free or chosen.yes or not found.to_ask:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(
            f"{found.to_ask} questions may cost money: add --yes to ask them (--most-calls N "
            "bounds how many, --dry-run only estimates)"
        )
    print("Ask them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidRequest("nothing was asked; --dry-run shows some of the questions")


def _command(chosen: Namespace) -> str:
    """What to type to ask the same again, without where the answers went."""
    words = ["recombine", chosen.command]
    if chosen.hf:
        words += ["--hf", Path(chosen.hf).name]
    elif cell := _cell(chosen):
        words += ["--cell", cell]
    else:
        words += ["--endpoint", chosen.endpoint, "--model", chosen.model]
    for name in ("items", "seed", "longest"):
        if (value := getattr(chosen, name)) is not None:
            words += [f"--{name}", str(value)]
    if chosen.settings:
        words += ["--set", *chosen.settings]
    return shlex.join(words)


def _summary(outcome: Outcome) -> dict[str, Any]:
    from recombine.live.page import PAGE

    kept = ("kit", "model", "questions", "answered", "finished", "score", "verdict", "warnings")
    found = {name: outcome.summary[name] for name in kept}
    claims = [{k: c[k] for k in ("name", "verdict", "interval")} for c in outcome.summary["claims"]]
    return found | {"claims": claims, "report": str(outcome.folder / PAGE)}


def lines(found: dict[str, Any]) -> list[str]:
    """A dry run or a finished run for people."""
    from recombine.live.asking import Estimate, told

    if "estimate" in found:
        shown = [*told(Estimate(**found["estimate"]))]
        for one in found["examples"]:
            shown += ["", f"--- {one['id']}", one["prompt"], f"--- right: {one['gold']}"]
        return shown
    shown = [
        f"{found['kit']}, {found['model']}: {found['answered']} of {found['questions']} answered",
        found["verdict"],
        *(f"{one['name']}: {one['verdict']}" for one in found["claims"]),
        *found["warnings"],
    ]
    return [*shown, f"report: {found['report']}"]


def as_typed(message: str) -> str:
    """A message that names arguments of Python, with the options typed for them.

    >>> as_typed("items=0: expected at least 1; raise most_calls or run again to continue")
    '--items 0: expected at least 1; raise --most-calls or run again to continue'
    """
    text = re.sub(r"\b(items|longest|workers|seed)=(-?\d+)", r"--\1 \2", message)
    text = re.sub(r"\bprice_(in|out)=(\S+):", r"--price-\1 \2:", text)
    text = re.sub(r"\bprice_(in|out)\b", r"--price-\1", text)
    text = re.sub(r"\btimeout=(\S+):", r"--timeout \1:", text)
    text = re.sub(r"(no whole answer in \S+ s)", r"\1, --timeout gives it longer", text)
    text = re.sub(r"\bmost_calls=(-?\d+)", r"--most-calls \1", text)
    text = text.replace("most_calls", "--most-calls")
    text = re.sub(r"(with|variable of) key_variable$", r"\1 --key-variable", text)
    text = re.sub(r"\bdepths=(-?\d+):", r"--set depths=\1:", text)
    return re.sub(r"^(endpoint|device) '", r"--\1 '", text)
