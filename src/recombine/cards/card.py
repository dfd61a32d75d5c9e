"""The card: every instrument that applies to a user's model and data, and one decision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from recombine.adapters.models import OwnModel
from recombine.audits.auditing import Asked, Audit, Level, audit, by_level
from recombine.audits.slices import Slice, Worst, failure_table, slices
from recombine.cards.asking import (
    Answered,
    Say,
    Swaps,
    about_of,
    activations_of,
    ask,
    swap_all,
)
from recombine.cards.decision import Decision, decide_answered
from recombine.cards.gates import subject_of
from recombine.cards.outcomes import Scorer, markable, outcomes
from recombine.cards.reasons import Reason, reasons
from recombine.cards.space import left_of
from recombine.collecting import Plan, Space, collect
from recombine.errors import InvalidRequest, NotApplicable
from recombine.lab.intervals import Interval, mean_interval
from recombine.probing.probes import probe
from recombine.probing.readings import ProbeReading
from recombine.splits.divergence import joined
from recombine.tables.counting import combinations
from recombine.tables.novelty import novelty
from recombine.tables.rows import Rows, aligned
from recombine.tables.rules import rules_for

MOST_TRIPLES = 200_000


@dataclass(frozen=True)
class CardSpec:
    """What a card is to do; the defaults suit most.

    `label` names the columns that answers are marked by. `about` are the factors that an answer
    depends on, for the swap tests; `change` allows values to be put into rows, where the model
    reads the columns themselves. New combinations may score `tolerance` less than trained ones.
    """

    label: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    change: bool = False
    tolerance: float = 0.05
    floor: float = 0.8
    budget: int = 10
    pairs: int = 300
    batch: int = 32
    timeout: float = 60.0
    probed: int = 2_000
    forbid: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Number:
    """A number of the card: what is better, and its interval where it has one."""

    value: float | None
    low: float | None = None
    high: float | None = None
    better: str | None = None

    @staticmethod
    def of(interval: Interval | None, better: str) -> Number:
        if interval is None:
            return Number(None, better=better)
        value, low, high = (
            float(end) if math.isfinite(end) else None
            for end in (interval.estimate, interval.low, interval.high)
        )
        return Number(value, low, high, better)


@dataclass(frozen=True, eq=False)
class Card:
    """Everything that was found; `why_not` names each instrument that did not apply.

    `plans` is what to collect: for pairs that training lacks, then for triples.
    """

    model: str
    rows: Rows
    answered: Answered
    outcome: Float[np.ndarray, " row"] | None
    decision: Decision
    levels: tuple[Level, ...]
    slices: tuple[Slice, ...]
    worst: tuple[Worst, ...]
    audit: Audit | None
    reasons: Mapping[str, Reason]
    swaps: Swaps
    probe: ProbeReading | None
    plans: tuple[Plan, ...]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    subject: Mapping[str, Any] = field(default_factory=dict)  # the data, factors and label

    @property
    def recommended(self) -> list[dict[str, str | list[str]]]:
        """The combinations to collect, the most useful first."""
        return [row for plan in self.plans for row in plan.rows]


def make_card(
    model: OwnModel,
    records: Sequence[Mapping[str, Any]],
    rows: Rows,
    spec: CardSpec | None = None,
    *,
    train: Rows | None = None,
    scorer: Scorer | None = None,
    say: Say | None = None,
) -> Card:
    """Asks the model everything that applies, and judges what it says.

    `records` are what the model is given, `rows` the same rows by their factors, `train` the rows
    that it was trained on.
    """
    spec, say = spec or CardSpec(), say or (lambda text: None)
    if len(records) != len(rows):
        raise InvalidRequest(f"{len(records)} records for {len(rows)} rows: expected as many")
    if train is not None:
        train, rows = aligned(train, rows)
    why_not: dict[str, str] = {}
    answered = ask(
        model, records, rows.name_of(range(len(rows))), batch=spec.batch, timeout=spec.timeout,
        say=say, seed=spec.seed,
    )  # fmt: skip
    outcome, silent = None, np.zeros(len(rows), bool)
    if spec.label or scorer is not None:
        label = spec.label[0] if len(spec.label) == 1 else spec.label
        outcome = outcomes(records, answered.answers, label or None, scorer=scorer)
        silent = markable(records, label) & ~answered.told
    else:
        why_not["scores"] = "nothing to mark answers by: give --label COLUMN or --scorer"
    scored = _scored(rows, outcome, silent, answered, train, spec, why_not, say)
    swaps = Swaps()
    try:
        about = about_of(answered.answers, spec.about or _named(spec.label, rows), rows.names)
        swaps = swap_all(
            model, rows, records, answered, about, change=spec.change, most=spec.pairs,
            batch=spec.batch, timeout=spec.timeout, seed=spec.seed, say=say,
        )  # fmt: skip
        why_not |= {f"swap, {name}": why for name, why in swaps.why_not.items()}
    except NotApplicable as error:
        why_not["swap"] = str(error)
    read = _probed(model, rows, records, spec, why_not, say)
    plans = _planned(rows, outcome, train, spec, why_not)
    why_not |= _never_applies(model)
    card = Card(
        model.name, rows, answered, outcome, *scored,
        reasons(scored.worst, scored.slices, rows, train), swaps, read, plans, why_not=why_not,
        subject=subject_of(rows, records, spec.label),
    )  # fmt: skip
    return Card(**{**vars(card), "numbers": numbers_of(card)})


class _Scored(NamedTuple):
    decision: Decision
    levels: tuple[Level, ...] = ()
    slices: tuple[Slice, ...] = ()
    worst: tuple[Worst, ...] = ()
    audit: Audit | None = None


def _scored(
    rows: Rows, outcome: np.ndarray | None, silent: np.ndarray, answered: Answered,
    train: Rows | None, spec: CardSpec, why_not: dict[str, str], say: Say,
) -> _Scored:  # fmt: skip
    """What outcomes tell: the decision, scores by novelty, failing slices, and the audit.

    `silent` are the rows that could be marked if they had an answer.
    """
    if outcome is None:
        sentence = "Not enough data to say: answers cannot be marked without labels."
        return _Scored(Decision("not enough data", sentence))
    told = ~np.isnan(outcome)
    if not told.any():
        return _Scored(Decision("not enough data", _nothing(answered)))
    kept, right = rows.take(told), outcome[told]
    failed = right < 0.5
    found, worst = tuple(slices(kept, failed)), tuple(failure_table(kept, failed))
    if train is None:
        why_not["composition"] = "needs the rows it was trained on: give --train FILE"
        why_not["coverage, risk and what to collect"] = why_not["composition"]
        sentence = (
            "Not enough data to say: without --train FILE nobody knows which combinations are new. "
            f"Over all it scores {np.mean(right):.2f}."
        )
        return _Scored(Decision("not enough data", sentence), (), found, worst)
    decision = _decided(rows, outcome, silent, train, spec)
    say("what training covers, and what follows")
    audited = audit(
        train, Asked(evaluation=kept, outcome=right, forbid=spec.forbid, seed=spec.seed)
    )  # fmt: skip
    return _Scored(decision, by_level(train, kept, right), found, worst, audited)


def _nothing(answered: Answered) -> str:
    """The decision line where no answer could be marked."""
    if answered.told.any():
        return "Not enough data to say: no row that the model answered has a label."
    if not answered.not_asked:
        return "Not enough data to say: the model answered no row."
    asked = len(answered.answers) - answered.not_asked
    return (
        f"Not enough data to say: the model answered none of the {asked:,} rows that it was asked, "
        f"drawn from all over the file, and was given up; {answered.not_asked:,} were not asked."
    )


def _decided(
    rows: Rows, outcome: np.ndarray, silent: np.ndarray, train: Rows, spec: CardSpec
) -> Decision:  # fmt: skip
    """The decision, over every combination with a row that was answered or could have been."""
    counted = silent | ~np.isnan(outcome)
    asked, right, silent = rows.take(counted), outcome[counted], silent[counted]
    new = novelty(train, asked, nearest=False)
    place, size = new.combinations.inverse, len(new.combinations)
    return decide_answered(
        np.bincount(place, np.nan_to_num(right), size), np.bincount(place, ~silent, size),
        np.bincount(place, silent, size), new.level > 0,
        tolerance=spec.tolerance, floor=spec.floor, left=left_of(train, asked, spec.forbid),
    )  # fmt: skip


def _probed(
    model: OwnModel, rows: Rows, records: Sequence[Mapping[str, Any]], spec: CardSpec,
    why_not: dict[str, str], say: Say,
) -> ProbeReading | None:  # fmt: skip
    """Whether each factor can be read off activations, for combinations the probe has not seen."""
    single = [factor for factor in rows.factors if not factor.many and factor.size > 1]
    if "activations" not in model.abilities:
        why_not["probe"] = f"needs activations, which {model.name} does not offer"
        return None
    if not single:
        why_not["probe"] = "no factor has one value a row and at least two values"
        return None
    rng = np.random.default_rng(spec.seed)
    some = np.sort(rng.permutation(len(rows))[: spec.probed])
    say(f"probes on {len(some)} rows")
    try:
        layers = activations_of(model, [records[n] for n in some], spec.batch)
        targets = {f.name: np.asarray(f.values, object)[f.codes[some]] for f in single}
        groups = combinations(rows).inverse[some]
        return probe(layers, targets, groups, pairs=len(single) > 1, seed=spec.seed)
    except (NotApplicable, InvalidRequest) as error:
        why_not["probe"] = str(error)
        return None


def _planned(
    rows: Rows, outcome: np.ndarray | None, train: Rows | None, spec: CardSpec,
    why_not: dict[str, str],
) -> tuple[Plan, ...]:  # fmt: skip
    """What to collect next: combinations that cover what fails among what was evaluated.

    Pairs that training lacks come first: a model can do without a triple more often than without a
    pair. What is left of the budget goes to triples.
    """
    if train is None:
        return ()
    try:
        space, rules = Space.of(train), rules_for(train, spec.forbid)
        target, weight = None, None
        if outcome is not None and (failing := np.nan_to_num(1 - outcome, nan=0.0)).any():
            # What fails counts by how much it fails; what does not, a little.
            weights = failing + 0.01
            target = Rows(rows.source, rows.factors, {"weight": weights}, rows.ids)
            weight = "weight"
        found: list[Plan] = []
        there, left = train, spec.budget
        for strength in _strengths(space):
            plan = collect(
                there, space, rules, left, strength=strength, target=target, target_weight=weight,
                seed=spec.seed,
            )  # fmt: skip
            found += [plan] if len(plan) else []
            there, left = joined(there, plan.table()), left - len(plan)
            if left < 1:
                break
        return tuple(found)
    except (NotApplicable, InvalidRequest) as error:
        why_not["what to collect"] = str(error)
        return ()


def _strengths(space: Space) -> tuple[int, ...]:
    """Pairs, then triples where they can be counted quickly."""
    sizes = sorted(space.sizes, reverse=True)
    triples = sum(math.prod(three) for three in itertools.combinations(sizes, 3))
    return (2, 3) if 0 < triples <= MOST_TRIPLES else (min(2, len(space.places)),)


def _named(label: Sequence[str], rows: Rows) -> tuple[str, ...]:
    """The label where it is itself a factor: then the answer is about that."""
    return tuple(label) if label and all(name in rows.names for name in label) else ()


def _never_applies(model: OwnModel) -> dict[str, str]:
    """What a card cannot run of itself, and what to call instead."""
    own = "recombine.adapters.inspect_module on a PyTorch module, in its own process"
    found = {
        "subnetworks and fracture": f"need weights, gradients and the parts of a task: see {own}",
        "probability": "needs answers whose probability is set from outside: see recombine embers",
    }
    if "log-probabilities" in model.abilities:
        found["probability"] = "needs sets of items that differ in probability alone: see embers"
    return found


NUMBERS = (
    "answered", "score", "seen", "unseen", "gap", "slices", "swaps.leaks", "swaps.responds",
    "coverage.values", "coverage.pairs", "coverage.triples",
)  # fmt: skip


def number_names(factors: Sequence[str]) -> tuple[str, ...]:
    """The names of all numbers that a card about these factors can have."""
    return (*NUMBERS, *(f"probe.{name}" for name in factors))


def numbers_of(card: Card) -> dict[str, Number]:
    """The numbers of a card by name: what rules and comparisons are about."""
    d = card.decision
    told = card.answered.told
    found = {
        "answered": Number(float(np.mean(told)) if len(told) else None, better="higher"),
        "score": Number(None, better="higher"),
        "seen": Number.of(d.seen, "higher"),
        "unseen": Number.of(d.unseen, "higher"),
        "gap": Number.of(d.gap, "lower"),
        "slices": Number(float(len(card.slices)), better="lower"),
        "swaps.leaks": Number(None, better="lower"),
        "swaps.responds": Number(None, better="higher"),
    }
    if card.outcome is not None and (~np.isnan(card.outcome)).any():
        inverse = combinations(card.rows).inverse
        kept = ~np.isnan(card.outcome)
        total = np.bincount(inverse[kept], card.outcome[kept], inverse.max() + 1)
        size = np.bincount(inverse[kept], minlength=inverse.max() + 1)
        found["score"] = Number.of(mean_interval((total / np.maximum(size, 1))[size > 0]), "higher")
    leaks = [s.leaks for s in card.swaps.found if s.leaks is not None]
    if leaks:
        found["swaps.leaks"] = Number.of(max(leaks, key=lambda i: i.estimate), "lower")
    responds = [s.responds for s in card.swaps.found if s.responds is not None]
    if responds:
        found["swaps.responds"] = Number.of(min(responds, key=lambda i: i.estimate), "higher")
    if card.audit is not None:
        for t, name in ((1, "values"), (2, "pairs"), (3, "triples")):
            covered = card.audit.covered(t)
            share = covered.share if covered is not None else None
            found[f"coverage.{name}"] = Number(share, better="higher")
    for one in card.probe.targets if card.probe is not None else ():
        score = one.scores[0].across if one.scores else None
        found[f"probe.{one.name}"] = Number.of(score, "higher")
    return found
