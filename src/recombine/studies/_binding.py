"""What the study of binding measures, and which networks may speak for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recombine.lab.statistics import matched, mean_interval, median_interval
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base

BAG, CONV, SLOTS, CHANNELS = "bag", "conv", "slots", "channels"
NAMES = {BAG: "bag of features", CONV: "plain convolution", SLOTS: "slots",
         CHANNELS: "channels for slots"}  # fmt: skip
LEARNT = base.SEEN_FLOOR
CHANCE = 0.5
CLOSE = 0.1  # the most that a score may rise between two looks for what was between them
ROOM = 0.65  # of search by colour: from less, one cannot fall by .15 and stay above chance
Number = Callable[[Row], float]
Measure = Callable[[Results], Evidence]
Who = tuple[str, Mapping[str, Any]]  # a model and further labels


class Condition(NamedTuple):
    """What a network must do to speak for a claim, and what is said of those that do not."""

    holds: Callable[[Row], bool]
    otherwise: str


def seen(row: Row) -> float:
    return row.value("binding", "seen")


def unseen(row: Row) -> float:
    return row.value("binding", "unseen")


def gap(row: Row) -> float:
    return row.value("binding", "gap")


def at_matched(row: Row) -> float:
    """The share of held-out pairs that was right when trained ones first reached .9."""
    return matched(row.curve("seen")[1], row.curve("unseen")[1], LEARNT)


def watched(row: Row) -> bool:
    """Whether the looks around that moment are close enough to say what was between them."""
    scores = row.curve("seen")[1]
    reached = np.flatnonzero((scores[:-1] < LEARNT) & (scores[1:] >= LEARNT))[:1]
    return all(scores[n + 1] - scores[n] <= CLOSE for n in reached)


def conjunctions(row: Row) -> float:
    return row.value("binding", "seen_conjunction_errors")


def conjunction_share(row: Row) -> float:
    """Of wrong things; none where nothing is wrong."""
    return row.value("binding", "seen_conjunction_share")


def beyond_guessing(row: Row) -> float:
    return conjunction_share(row) - row.value("binding", "seen_conjunction_expected")


def unseen_pair(row: Row) -> float:
    """How often the held-out pair of a scene is reported among trained ones."""
    return row.value("binding", "unseen_pair")


def found(kind: str, objects: int) -> Number:
    return lambda row: row.value("binding", f"seen_{kind}_n{objects}")


def found_among_all(kind: str) -> Number:
    """The mean over all numbers of objects."""
    return lambda row: float(np.mean([*sizes(row, kind).values()] or [np.nan]))


def interaction(kind: str, at: str) -> Number:
    """Search by colour less search of a kind: at a number of objects, its slope or its growth."""
    word = {"conjunctive": "interaction", "published": "published_interaction"}[kind]
    return lambda row: row.value("binding", f"seen_{word}_{at}")


def mean_ari(row: Row) -> float:
    return row.value("segregation", "fg_ari")


def median_ari(row: Row) -> float:
    return row.value("segregation", "fg_ari_median")


def beyond_colour(row: Row) -> float:
    return mean_ari(row) - row.value("segregation", "colour_ari")


def reports(row: Row) -> dict[int, float]:
    """The share of objects reported right, by how many there are (trained pairs)."""
    if "binding" not in row.readings:
        return {}
    table = row.readings["binding"].tables["looks"]
    columns = (table[name] for name in ("look", "objects", "right"))
    return {
        count: right / count for look, count, right in zip(*columns, strict=True) if look == "seen"
    }


def reported(objects: int) -> Number:
    return lambda row: reports(row).get(objects, float("nan"))


def sizes(row: Row, kind: str) -> dict[int, float]:
    """The share found in search of a kind, by how many objects there are (trained pairs)."""
    head = f"seen_{kind}_n"
    values = row.readings["binding"].values if "binding" in row.readings else {}
    known = {int(name.removeprefix(head)): v for name, v in values.items() if name.startswith(head)}
    return dict(sorted(known.items()))


def learnt(row: Row) -> bool:
    """Whether a network can do the easiest of what it was trained for.

    A bag cannot bind, and what it then says about swaps and scenes is the finding; of search it
    must have learnt the one by colour, as all others. Autoencoders are judged by what they find.
    """
    task, model = row.labels["task"], row.labels["model"]
    if task == "segregation" or (model == BAG and task != "search"):
        return True
    if task == "swap":
        return seen(row) >= LEARNT
    scores = reports(row) if task == "report" else sizes(row, "disjunctive")
    return bool(scores) and scores[min(scores)] >= LEARNT


def binds_among(few: int, kind: str = "conjunctive") -> Condition:
    """Who guesses at conjunctions among the fewest objects has nothing to lose among more."""
    return Condition(
        lambda row: found(kind, few)(row) >= LEARNT,
        f"below {LEARNT:g} in {kind} search among {few} objects",
    )


def finds_among(many: int, least: float) -> Condition:
    """Who does not even find by colour among the most objects is at the floor in all search."""
    return Condition(
        lambda row: found("disjunctive", many)(row) >= least,
        f"below {least:g} in search by colour among {many} objects",
    )


SEEN_CLOSELY = Condition(
    watched, f"whose score rose by more than {CLOSE:g} between the looks around {LEARNT:g}"
)


def usable(
    results: Results, task: str, model: str, *, able: bool = True, only: Sequence[Condition] = (),
    **labels: Any,
) -> tuple[list[Row], list[str]]:  # fmt: skip
    """Networks with a reading that learnt their task (or all, where that is the question) and
    meet all conditions, and which are left out."""
    name = "segregation" if task == "segregation" else "binding"
    everyone = [row for row in results.where(task=task, model=model, **labels)
                if name in row.readings]  # fmt: skip
    whole = [row for row in everyone if not row.diverged]
    kept = [row for row in whole if learnt(row) or not able]
    words = []
    if len(kept) < len(whole):
        words.append(f"{len(whole) - len(kept)} undertrained")
    if len(whole) < len(everyone):
        words.append(f"{len(everyone) - len(whole)} diverged")
    for condition in only:
        left = [row for row in kept if condition.holds(row)]
        if len(left) < len(kept):
            words.append(f"{len(kept) - len(left)} {condition.otherwise}")
        kept = left
    return kept, words


def numbers(
    results: Results, task: str, model: str, number: Number, *, able: bool = True,
    only: Sequence[Condition] = (), **labels: Any,
) -> tuple[dict[int, float], str]:  # fmt: skip
    """For each seed the mean over its networks, and a note of what is left out."""
    base.require_labels(results, task=task, model=model, **labels)
    rows, words = usable(results, task, model, able=able, only=only, **labels)
    seeds: dict[int, list[float]] = {}
    for row in rows:
        if np.isfinite(value := number(row)):
            seeds.setdefault(row.labels["seed"], []).append(value)
    if lacking := len(rows) - sum(map(len, seeds.values())):
        words.append(f"{lacking} without this number")
    found = {seed: float(np.mean(values)) for seed, values in seeds.items()}
    return found, f"Left out: {', '.join(words)}." if words else ""


def mean(
    task: str, model: str, number: Number, *, able: bool = True, only: Sequence[Condition] = (),
    **labels: Any,
) -> Measure:  # fmt: skip
    """The mean over seeds."""

    def measure(results: Results) -> Evidence:
        values, note = numbers(results, task, model, number, able=able, only=only, **labels)
        if len(values) < 2:
            raise NotTested(f"Needs two seeds of {NAMES[model]}. {note}".strip())
        return Evidence.of_values(list(values.values()), note)

    return measure


def median(task: str, model: str, number: Number, at: float) -> Measure:
    """The median over seeds, of which few may fail; how many reach `at` is said beside."""

    def measure(results: Results) -> Evidence:
        values, note = numbers(results, task, model, number)
        found = list(values.values())
        if len(found) < 2:
            raise NotTested(f"Needs two seeds of {NAMES[model]}. {note}".strip())
        said = f"{sum(value >= at for value in found)} of {len(found)} reach {at:g}. {note}"
        return Evidence.of_interval(lambda level: median_interval(found, level=level), said.strip())

    return measure


def combined(
    task: str, first: Who, second: Who, number: Number, of: Callable[[float, float], float], *,
    able: bool = True, only: Mapping[str, Sequence[Condition]] | None = None,
) -> Measure:  # fmt: skip
    """A number made of two networks' numbers, for each seed that has both; `only` are conditions
    by model. Of different models, the note says how large they are."""
    conditions = only or {}

    def measure(results: Results) -> Evidence:
        both, notes = [], []
        for model, labels in (first, second):
            values, note = numbers(
                results, task, model, number, able=able, only=conditions.get(model, ()), **labels
            )
            both.append(values)
            notes += [f"{NAMES[model].capitalize()}: {note}"] if note else []
            if first[0] != second[0]:
                notes.append(_sizes_told(results.where(task=task, model=model, **labels)))
        seeds = sorted(both[0].keys() & both[1].keys())
        if len(seeds) < 2:
            raise NotTested(f"Needs two seeds with both networks. {' '.join(notes)}".strip())
        return Evidence.of_values([of(both[0][s], both[1][s]) for s in seeds], " ".join(notes))

    return measure


def _sizes_told(rows: Results) -> str:
    """How many parameters networks of a model have."""
    told = " and ".join(f"{size:,}" for size in rows.labels("parameters"))
    return f"{NAMES[rows[0].labels['model']].capitalize()}: {told} parameters."


def paired(
    task: str, first: Who, second: Who, number: Number, *, able: bool = True,
    only: Mapping[str, Sequence[Condition]] | None = None,
) -> Measure:  # fmt: skip
    """The second minus the first."""
    return combined(task, first, second, number, lambda a, b: b - a, able=able, only=only)


def as_large(task: str, first: str, second: Who, number: Number) -> Measure:
    """The second minus the first of that width which has most nearly as many parameters."""
    model, labels = second

    def measure(results: Results) -> Evidence:
        size = base.require_labels(results, task=task, model=model, **labels)[0].labels[
            "parameters"
        ]
        others = {name: value for name, value in labels.items() if name != "width"}
        near = min(
            base.require_labels(results, task=task, model=first, **others),
            key=lambda row: abs(np.log(row.labels["parameters"] / size)),
        )
        like = {**others, "width": near.labels["width"]}
        return paired(task, (first, like), second, number)(results)

    return measure


def against_double(task: str, first: Who, second: Who, number: Number) -> Measure:
    """The first minus twice the second: at least zero where it is at least twice as much."""
    return combined(task, first, second, number, lambda a, b: a - 2 * b)


def half_as_fast(
    task: str, first: Who, second: Who, number: Number, only: Mapping[str, Sequence[Condition]]
) -> Measure:
    """The second minus half the first: at most zero where it is at most half as much."""
    return combined(task, first, second, number, lambda a, b: b - a / 2, only=only)


def where_above(
    measure: Measure, task: str, who: Who, number: Number, bound: float, what: str, *,
    only: Sequence[Condition] = (),
) -> Measure:  # fmt: skip
    """A measure that speaks only where some number of a network is clearly above a bound.

    Without it, twice nothing would be as much as nothing, and half of no loss no loss: claims
    about multiples would hold where nothing happens.
    """

    def checked(results: Results) -> Evidence:
        model, labels = who
        values, note = numbers(results, task, model, number, only=only, **labels)
        if len(values) > 1:  # with fewer, the measure says what it needs
            interval = mean_interval(list(values.values()))
            if not interval.low > bound:
                raise NotTested(
                    f"{what} is {interval.estimate:.3g} [{interval.low:.3g}, {interval.high:.3g}], "
                    f"not clearly above {bound:g}. {note}".strip()
                )
        return measure(results)

    return checked
