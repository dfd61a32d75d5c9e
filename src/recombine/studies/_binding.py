"""What the study of binding measures, and which networks may speak for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recombine.lab.statistics import matched
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base

BAG, CONV, SLOTS, CHANNELS = "bag", "conv", "slots", "channels"
NAMES = {BAG: "bag of features", CONV: "plain convolution", SLOTS: "slots",
         CHANNELS: "channels for slots"}  # fmt: skip
LEARNT = base.SEEN_FLOOR
Number = Callable[[Row], float]
Measure = Callable[[Results], Evidence]
Who = tuple[str, Mapping[str, Any]]  # a model and further labels


def seen(row: Row) -> float:
    return row.value("binding", "seen")


def unseen(row: Row) -> float:
    return row.value("binding", "unseen")


def gap(row: Row) -> float:
    return row.value("binding", "gap")


def at_matched(row: Row) -> float:
    """The share of held-out pairs that was right when trained ones first reached .9."""
    return matched(row.curve("seen")[1], row.curve("unseen")[1], LEARNT)


def conjunctions(row: Row) -> float:
    return row.value("binding", "seen_conjunction_errors")


def conjunction_share(row: Row) -> float:
    """Of wrong things; none where nothing is wrong."""
    return row.value("binding", "seen_conjunction_share")


def beyond_guessing(row: Row) -> float:
    return conjunction_share(row) - row.value("binding", "seen_conjunction_expected")


def found(kind: str, objects: int) -> Number:
    return lambda row: row.value("binding", f"seen_{kind}_n{objects}")


def interaction(objects: int) -> Number:
    return lambda row: row.value("binding", f"seen_interaction_n{objects}")


def growth(row: Row) -> float:
    return row.value("binding", "seen_interaction_growth")


def slope(row: Row) -> float:
    return row.value("binding", "seen_interaction_slope")


def median_ari(row: Row) -> float:
    return row.value("segregation", "fg_ari_median")


def beyond_colour(row: Row) -> float:
    return row.value("segregation", "fg_ari") - row.value("segregation", "colour_ari")


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


def usable(
    results: Results, task: str, model: str, *, able: bool = True, **labels: Any
) -> tuple[list[Row], list[str]]:
    """Networks with a reading that learnt their task (or all, where that is the question), and
    which are left out."""
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
    return kept, words


def numbers(
    results: Results, task: str, model: str, number: Number, *, able: bool = True, **labels: Any
) -> tuple[dict[int, float], str]:
    """For each seed the mean over its networks, and a note of what is left out."""
    base.require_labels(results, task=task, model=model, **labels)
    rows, words = usable(results, task, model, able=able, **labels)
    seeds: dict[int, list[float]] = {}
    for row in rows:
        if np.isfinite(value := number(row)):
            seeds.setdefault(row.labels["seed"], []).append(value)
    if lacking := len(rows) - sum(map(len, seeds.values())):
        words.append(f"{lacking} without this number")
    found = {seed: float(np.mean(values)) for seed, values in seeds.items()}
    return found, f"Left out: {', '.join(words)}." if words else ""


def mean(task: str, model: str, number: Number, *, able: bool = True, **labels: Any) -> Measure:
    """The mean over seeds."""

    def measure(results: Results) -> Evidence:
        values, note = numbers(results, task, model, number, able=able, **labels)
        if len(values) < 2:
            raise NotTested(f"Needs two seeds of {NAMES[model]}. {note}".strip())
        return Evidence.of_values(list(values.values()), note)

    return measure


def combined(
    task: str, first: Who, second: Who, number: Number, of: Callable[[float, float], float]
) -> Measure:
    """A number made of two networks' numbers, for each seed that has both."""

    def measure(results: Results) -> Evidence:
        both, notes = [], []
        for model, labels in (first, second):
            values, note = numbers(results, task, model, number, **labels)
            both.append(values)
            notes += [f"{NAMES[model].capitalize()}: {note}"] if note else []
        seeds = sorted(both[0].keys() & both[1].keys())
        if len(seeds) < 2:
            raise NotTested(f"Needs two seeds with both networks. {' '.join(notes)}".strip())
        return Evidence.of_values([of(both[0][s], both[1][s]) for s in seeds], " ".join(notes))

    return measure


def paired(task: str, first: Who, second: Who, number: Number) -> Measure:
    """The second minus the first."""
    return combined(task, first, second, number, lambda a, b: b - a)


def against_double(task: str, first: str, second: str, number: Number) -> Measure:
    """The first minus twice the second: at least zero where it is at least twice as much."""
    return combined(task, (first, {}), (second, {}), number, lambda a, b: a - 2 * b)


def half_as_fast(task: str, first: str, second: str, number: Number) -> Measure:
    """The second minus half the first: at most zero where it is at most half as much."""
    return combined(task, (first, {}), (second, {}), number, lambda a, b: b - a / 2)
