"""The `card` command: one report on a user's model and data, and rules that it must meet."""

from __future__ import annotations

import argparse
import json
import math
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from recombine.cli.tables import (
    check_new,
    coding_of,
    names_of,
    reading_arguments,
    rule_arguments,
    rules_of,
    typed,
    without_nan,
    write_all,
)
from recombine.cli.words import say, show, text_table
from recombine.errors import InvalidRequest, RecombineError, unknown
from recombine.lab.progress import duration

if TYPE_CHECKING:
    from recombine.adapters.models import OwnModel
    from recombine.cards.card import Card, CardSpec
    from recombine.tables.rows import Rows

TRIED = 20  # rows that are asked to tell how long all will take
SHOWN = 8


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine card`."""
    made.add_argument("model", metavar="FILE.py:NAME",
                      help="an adapter (recombine adapt --init prints one)")  # fmt: skip
    made.add_argument("--data", required=True, metavar="FILE", help="rows to evaluate it on")
    reading_arguments(made)
    made.add_argument("--label", default=None, metavar="COLUMN[,COLUMN]",
                      help="the right answers; several where answers have parts")  # fmt: skip
    made.add_argument("--scorer", default=None, metavar="FILE.py:FUNCTION",
                      help="marks an answer instead: (record, answer) to 0..1")  # fmt: skip
    made.add_argument("--train", default=None, metavar="FILE", help="the rows it was trained on")
    made.add_argument("--about", default=None, metavar="FACTOR[,FACTOR]",
                      help="what an answer depends on, for swap tests (default: the label, where "
                           "it is a factor)")  # fmt: skip
    made.add_argument("--change", action="store_true",
                      help="swap by putting values into rows: the model reads these "
                           "columns")  # fmt: skip
    rule_arguments(made)
    made.add_argument("--rows", type=int, default=None, metavar="N",
                      help="evaluate at most so many, drawn at random")  # fmt: skip
    made.add_argument("--tolerance", type=float, default=0.05,
                      help="how much less new combinations may score (.05)")  # fmt: skip
    made.add_argument("--floor", type=float, default=0.8,
                      help="a trained score below it tells nothing of composing (.8)")  # fmt: skip
    made.add_argument("--budget", type=int, default=10, metavar="N",
                      help="combinations to recommend (10)")  # fmt: skip
    made.add_argument("--batch", type=int, default=32, help="rows asked at a time (32)")
    made.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                      help="for one batch (60)")  # fmt: skip
    made.add_argument("--fail-under", default=None, metavar="RULES.toml",
                      help="exit with 1 where a rule does not hold, such as "
                           "unseen = {at_least = 0.8}")  # fmt: skip
    made.add_argument("--against", default=None, metavar="CARD.json",
                      help="an older card: show what is worse")  # fmt: skip
    made.add_argument("--to", default=None, metavar="DIR", help="for card.html and card.json")
    made.add_argument("--overwrite", action="store_true",
                      help="a card that is in DIR already")  # fmt: skip
    made.add_argument("--seed", type=int, default=0, help="of all draws (0)")
    made.add_argument("--yes", action="store_true", help="ask even where that costs money")
    made.add_argument("--quiet", action="store_true", help="no progress")


def run(chosen: Namespace) -> int | None:
    """Makes the card; 1 where a rule does not hold, and an error where nothing was answered."""
    from recombine.adapters.worker import Isolated
    from recombine.cards.card import make_card, number_names
    from recombine.cards.gates import (
        broken,
        changes,
        check_comparable,
        read_card,
        read_gates,
        subject_of,
    )
    from recombine.cards.page import document_of, report_of

    tell: Callable[[str], None] = (lambda text: None) if chosen.quiet or chosen.json else _Line()
    if chosen.to:
        check_new(chosen.to, "card", chosen.overwrite)  # before a model is asked for money
    older = read_card(chosen.against) if chosen.against else None
    spec = spec_of(chosen)
    records, rows, train = material(chosen, spec)
    scorer = _scorer(chosen.scorer) if chosen.scorer else None
    gates = read_gates(chosen.fail_under, number_names(rows.names)) if chosen.fail_under else []
    if older:
        check_comparable(chosen.against, older, subject_of(rows, records, spec.label))
    with Isolated(chosen.model, timeout=chosen.timeout) as model:
        estimate(model, records, spec, len(rows.factors), chosen, tell)
        begun = time.monotonic()
        card = make_card(model, records, rows, spec, train=train, scorer=scorer, say=tell)
        took = time.monotonic() - begun
    values = {name: number.value for name, number in card.numbers.items()}
    failed = broken(gates, values)
    document = without_nan(document_of(card, (), failed))
    changed = changes(older, document) if older else []
    document = without_nan(document_of(card, changed, failed))
    written = []
    if chosen.to:
        written = write_all(
            chosen.to, "card", report_of(card, typed(), changed, failed), document
        )  # fmt: skip
    if chosen.json:
        print(json.dumps(document | {"written": written}, indent=1))
    else:
        shown = lines(card, failed, changed)
        show([*shown, f"took {took:.0f} s", *(f"written: {path}" for path in written)])
    if not card.answered.told.any():  # the card is there, but nobody should build on it
        raise RecombineError(_unanswered(card, chosen.model))
    return 1 if failed else None


def _unanswered(card: Card, place: str) -> str:
    problems = card.answered.problems
    why = f" ({problems[-1]})" if problems else ""
    asked = len(card.rows) - card.answered.not_asked
    return f"{place} answered none of {asked:,} rows{why}: mend it and run this again"


def spec_of(chosen: Namespace) -> CardSpec:
    """What the card is to do, from what was typed."""
    from recombine.cards.card import CardSpec

    if not 0 <= chosen.tolerance < 1 or not 0 <= chosen.floor <= 1:
        raise InvalidRequest(
            f"--tolerance {chosen.tolerance:g} --floor {chosen.floor:g}: expected shares"
        )
    if chosen.budget < 1:
        raise InvalidRequest(f"--budget {chosen.budget}: expected at least 1 combination")
    if chosen.label and chosen.scorer:
        raise InvalidRequest("--label and --scorer both mark answers: give one of them")
    return CardSpec(
        label=tuple(names_of(chosen.label) or ()), about=tuple(names_of(chosen.about) or ()),
        change=chosen.change, tolerance=chosen.tolerance, floor=chosen.floor,
        budget=chosen.budget, batch=chosen.batch, timeout=chosen.timeout,
        forbid=tuple(rules_of(chosen)), seed=chosen.seed,
    )  # fmt: skip


def material(
    chosen: Namespace, spec: CardSpec
) -> tuple[list[dict[str, Any]], Rows, Rows | None]:  # fmt: skip
    """The records for the model, the same rows by their factors, and the training rows."""
    import numpy as np

    from recombine.adapters.records import read_records
    from recombine.seeds import host_seed
    from recombine.tables.reading import column_names, read_rows

    factors, coding = names_of(chosen.factors), coding_of(chosen)
    there = column_names(chosen.data)
    for name in spec.label:
        if name not in there:
            raise unknown(f"column of {chosen.data}", name, there)
    if factors is None and chosen.train is None:
        raise InvalidRequest("--factors A,B is missing: which columns combine?")
    if factors is None:
        # What training has too, and neither is a label nor only names rows.
        shared = column_names(chosen.train)
        naming = read_rows(chosen.train, None, coding=coding).left_out
        never = {*spec.label, *naming, chosen.id}
        factors = [name for name in there if name in shared and name not in never]
    train = None
    if chosen.train:
        train = read_rows(chosen.train, factors, coding=coding)
    rows = read_rows(chosen.data, factors, id=chosen.id, coding=coding, like=train)
    for name in spec.about:
        if name not in rows.names:
            raise unknown("factor", name, rows.names)
    records = read_records(chosen.data)
    if chosen.rows is not None and chosen.rows < len(records):
        if chosen.rows < 1:
            raise InvalidRequest(f"--rows {chosen.rows}: expected at least 1")
        rng = np.random.default_rng(host_seed(chosen.seed, "card/rows"))
        some = np.sort(rng.choice(len(records), chosen.rows, replace=False))
        records, rows = [records[n] for n in some], rows.take(some)
    return records, rows, train


def estimate(
    model: OwnModel, records: Sequence[dict[str, Any]], spec: CardSpec, factors: int,
    chosen: Namespace, tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Says what the card will cost and take, before it starts; money needs a yes."""
    changed = factors * min(spec.pairs, len(records)) if spec.change else 0
    cost, told = model.cost(records), ""
    if cost is not None:
        told = f"{cost.to_ask:,} questions, about {cost.tokens_in:,} tokens in"
        if cost.price is not None and cost.most_price is not None:
            told += f", at a price of {cost.price:.2f} to {cost.most_price:.2f}"
        tell(told)
    if changed:
        tell(f"for swaps, up to {changed:,} changed rows more")
    if not model.free:
        if not chosen.yes:
            raise InvalidRequest(
                f"asking {model.name} about {len(records):,} rows may cost money"
                f"{f' ({told})' if told else ''}: add --yes, or fewer --rows"
            )
        return
    some = list(records[: min(TRIED, len(records))])
    begun = time.monotonic()
    try:
        model.answer(some)
    except RecombineError as error:
        tell(f"how long it takes is not known: {' '.join(str(error).split())}")
        return
    rate = len(some) / max(time.monotonic() - begun, 1e-6)
    tell(
        f"{len(records):,} rows at about {rate:,.0f} rows a second: "
        f"{duration((len(records) + changed) / rate)} to answer, probes apart"
    )


def lines(card: Card, failed: Sequence[str], changed: Sequence[Any]) -> list[str]:
    """What is printed: the decision, the worst, what to collect, rules, changes."""
    from recombine.cards.page import SILENT

    said = [card.decision.sentence, ""]
    if card.slices:
        said += [text_table(("fails", "rows", "failing rows"), [
            (s.label, f"{s.failures} of {s.size}", ", ".join(s.ids[:6]))
            for s in card.slices[:SHOWN]
        ]), ""]  # fmt: skip
    elif card.worst:
        said += [SILENT, ""]
    if card.worst:
        said += [text_table(("worst combination", "fail", "why, probably", "rows"), [
            (w.label, f"{w.failures} of {w.size}", card.reasons[w.label].sentence,
             ", ".join(w.ids[:4]))
            for w in card.worst[:SHOWN]
        ]), ""]  # fmt: skip
    if card.swaps.found:
        said += [text_table(("factor changed", "pairs", "leaks", "responds"), [
            (s.factor, s.pairs, _share(s.leaks), _share(s.responds)) for s in card.swaps.found
        ]), ""]  # fmt: skip
    if rows := card.recommended[:SHOWN]:
        names = list(rows[0])
        said += ["collect next:", text_table(names, [[row[n] for n in names] for row in rows]), ""]
    problems = card.answered.problems
    said += [f"problem: {problem}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        said.append(f"problem: and {len(problems) - SHOWN:,} more (card.json lists all)")
    said += [f"not applied: {what}: {why}" for what, why in card.why_not.items()]
    said += [f"worse: {change.sentence}" for change in changed if change.worse]
    said += [f"rule broken: {why}" for why in failed]
    return said


class _Line:
    """Progress on one line: what repeats is not printed again and again."""

    def __init__(self) -> None:
        self.last = ""
        self.at = -math.inf

    def __call__(self, text: str) -> None:
        kind = text.partition(":")[0]
        now = time.monotonic()
        if kind != self.last or now - self.at > 5:
            say(text)
            self.last, self.at = kind, now


def _scorer(place: str) -> Callable[[Any, Any], Any]:
    from recombine.adapters.models import imported, placed

    path, name = placed(place)
    module = imported(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise unknown(f"function in {path}", name, [n for n in vars(module) if n[0] != "_"])
    return function


def _share(interval: Any) -> str:
    return "" if interval is None else f"{interval.estimate:.2f}"
