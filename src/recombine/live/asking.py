"""A kit put to a model: the estimate first, then the questions, then the page, also of a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, RecombineError, StoreError
from recombine.lab.files import LOCK, alone, make_folder, parse_json, read_bytes, write_json
from recombine.live.client import AskingError
from recombine.live.comparing import earlier
from recombine.live.kit import Answers, Kit, Question, scored
from recombine.live.model import Answer, Keeping, Model, Progress
from recombine.live.page import write_page
from recombine.live.remembering import Remembering, behind
from recombine.seeds import host_seed

ANSWERS, REQUEST = "answers.jsonl", "request.json"
CHARACTERS = 4  # of English to a token, about


@dataclass(frozen=True)
class Estimate:
    """What asking would take; tokens are told from characters, prices are for a million tokens.

    `tokens_out` is as if every answer were what a perfect answerer says, `most_tokens_out` as if
    every answer were as long as is allowed.
    """

    questions: int
    answered: int
    to_ask: int
    tokens_in: int
    tokens_out: int
    most_tokens_out: int
    price: float | None = None
    most_price: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a run: the answers, where the page is, and why it stopped early if it did."""

    answers: Answers
    folder: Path
    summary: dict[str, Any]
    stopped: RecombineError | None = None


def estimate(
    kit: Kit,
    questions: Sequence[Question],
    *,
    kept: Callable[[str], Answer | None] | None = None,
    longest: int | None = None,
    most_calls: int | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
) -> Estimate:
    """Questions, tokens and price of what is not answered yet.

    >>> from recombine.live import kit_named
    >>> battery = kit_named("battery")
    >>> asked = list(battery.questions(battery.chosen(items=1)))
    >>> found = estimate(battery, asked, price_in=2.5, price_out=10.0)
    >>> found.to_ask == found.questions, found.price > 0
    (True, True)
    """
    for name, each in (("price_in", price_in), ("price_out", price_out)):
        if each is not None and not 0 <= each < float("inf"):
            raise InvalidRequest(f"{name}={each}: expected the price of a million tokens")
    if (price_in is None) != (price_out is None):
        given, lost = ("price_out", "price_in") if price_in is None else ("price_in", "price_out")
        raise InvalidRequest(
            f"{given}={price_out if price_in is None else price_in}: {lost} is missing; give both "
            "price_in and price_out, 0 for one that costs nothing"
        )
    left = [q for q in _order(kit, questions) if kept is None or kept(q.prompt) is None]
    answered = len(questions) - len(left)
    distinct = list({q.prompt: q for q in left}.values())[:most_calls]
    tokens_in = sum(_tokens(q.prompt) for q in distinct)
    tokens_out = sum(_tokens(kit.solve(q)) for q in distinct)
    most = len(distinct) * (longest or kit.longest)

    def price(out: int) -> float | None:
        if price_in is None or price_out is None:
            return None
        return (tokens_in * price_in + out * price_out) / 1e6

    return Estimate(
        len(questions), answered, len(distinct), tokens_in, tokens_out, most,
        price(tokens_out), price(most),
    )  # fmt: skip


def questions_of(kit: Kit, options: Any, model: Model | None = None) -> list[Question]:
    """A kit's questions, once it is sure that a perfect answerer would get full marks.

    Given a model, those it is to be asked, once it is sure that it can read them.
    """
    asked = None if model is None else behind(model)
    questions = list(kit.questions(options) if asked is None else kit.questions_for(options, asked))
    if not questions:
        raise InvalidRequest(f"{kit.name}: these options leave no question")
    if len({q.id for q in questions}) != len(questions):
        raise RecombineError(f"the kit {kit.name!r} gives two questions the same id")
    for question in questions:
        if kit.score(question, kit.solve(question))[kit.main] != 1:
            raise RecombineError(
                f"the kit {kit.name!r} is not fit for use: its own right answer to "
                f"{question.id} does not score 1"
            )
    if (check := getattr(asked, "check", None)) is not None:
        check([q.prompt for q in questions])
    return questions


def run_kit(
    kit: Kit,
    model: Model,
    folder: str | Path,
    options: Any = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    against: str | Path | None = None,
) -> Outcome:
    """Asks what is not answered yet, then writes table.csv, report.html and report.json.

    The folder's answers.jsonl is the log: the same call continues after a stop. If the model fails,
    or its calls are spent, the page is written of what there is, says so, and the outcome holds the
    error. `against` is the folder of an earlier run over the same instances, to compare with.
    """
    options = kit.options if options is None else options
    questions = questions_of(kit, options, model)
    folder = Path(folder)
    other = None if against is None else earlier(against, kit, questions)
    claim_folder(folder, kit, model)
    # Another command here would pay for what this one is being told.
    with alone(folder, "asking into"):
        asked = model if isinstance(model, Keeping) else Remembering(model, folder / ANSWERS)
        stopped: RecombineError | None = None
        interrupt: KeyboardInterrupt | None = None
        try:
            for _ in asked.ask([q.prompt for q in _order(kit, questions)], progress):
                pass
        except AskingError as error:
            stopped = error
        except KeyboardInterrupt as error:
            interrupt = error
    kept = {q.id: found for q in questions if (found := asked.kept(q.prompt)) is not None}
    if not kept and (failure := stopped or interrupt):
        raise failure
    answers = scored(kit, kit.prepared(questions, options, behind(model)), kept)
    notes = tuple(getattr(model, "notes", ()))
    summary = write_page(kit, answers, model.identity, options, folder, notes, command, other)
    if interrupt:
        raise interrupt
    return Outcome(answers, folder, summary, stopped)


def claim_folder(folder: Path, kit: Kit, model: Model) -> None:
    """Refuses a folder of another kit or model, whose page would be overwritten."""
    wanted = {"kit": kit.name, "model": model.identity}
    path = folder / REQUEST
    if path.exists():
        found, log = _claim(path), folder / ANSWERS
        if found == wanted:
            return
        if log.exists() and log.stat().st_size:
            raise InvalidRequest(
                f"{folder} holds answers of {found['model']} to {found['kit']}: give another folder"
            )
        path.unlink()  # nothing was answered: perhaps the address was wrong
    others = {f.name for f in folder.iterdir()} if folder.is_dir() else set()
    if others - {ANSWERS, LOCK}:
        raise InvalidRequest(f"{folder} holds other files: give a new or empty folder")
    make_folder(folder)
    write_json(path, wanted)


def _claim(path: Path) -> dict[str, str]:
    """Which kit and model a folder belongs to."""
    data = read_bytes(path)
    try:
        found = parse_json(data)
    except StoreError:
        found = None
    if not isinstance(found, dict) or found.keys() != {"kit", "model"}:
        raise InvalidRequest(
            f"{path} does not say whose answers are in this folder: give another one, with a copy "
            f"of {ANSWERS} in it if you want to keep them"
        )
    return found


def told(found: Estimate) -> list[str]:
    """An estimate for people.

    >>> told(Estimate(10, 4, 6, 1200, 60, 6144, 0.001, 0.02))[1]
    'about 1,200 tokens in, 60 out at the shortest, 6,144 at the most; price 0.0010 to 0.0200'
    """
    price = "" if found.price is None else f"; price {found.price:.4f} to {found.most_price:.4f}"
    return [
        f"{found.questions} questions, {found.answered} answered before, {found.to_ask} to ask now",
        f"about {found.tokens_in:,} tokens in, {found.tokens_out:,} out at the shortest, "
        f"{found.most_tokens_out:,} at the most{price}",
    ]


def document(found: Estimate) -> dict[str, Any]:
    """An estimate for machines."""
    return asdict(found)


def _order(kit: Kit, questions: Sequence[Question]) -> list[Question]:
    """The order of asking: mixed, so that a run that stops early is a fair sample of the whole."""

    def place(question: Question) -> int:
        return host_seed(0, f"live/{kit.name}/order/{question.id}")

    return sorted(questions, key=place)


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS)
