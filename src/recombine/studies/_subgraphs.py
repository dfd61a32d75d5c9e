"""How the subgraphs study reads its rows: what frequency does, and where steps go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import stats

from recombine.graphs.bounds import accuracy_decay
from recombine.graphs.errors import LABELS
from recombine.graphs.information import MOST, multiplication_symbols, strongest_clue
from recombine.instruments.subgraphs import SEEN, TOUCHED
from recombine.lab.study import NotTested, Results, Row
from recombine.studies import _base as base

READ = "subgraphs"
LEAST_WRONG = 20  # wrong answers of a size, to say which of their digits are right
LEAST_PLACES = 4  # digits of a product that has a first, a last and a middle
BLIND, PLANTED = 0.03, 0.95  # how near to chance, and how near to 1, the executors must come
PLANTED_EFFECT = 0.05  # what the memorising executor must show where frequency is swapped
FLOOR = 0.05  # share of right nodes below which neither arm shows anything
LEAST_ITEMS = 10  # of a size, to speak of its accuracy
LOWEST, HIGHEST = 0.05, 0.99  # accuracies between which errors can be seen to compound
CEILING = 0.995  # right nodes, beyond which nothing is left for frequency to change
NETWORK, AT_RANDOM = "layers", "blind"  # tables of labels by layer
SAMPLED = 200_000  # products, where there are too many to take all


def in_distribution(row: Row) -> float:
    """Exact answers to fresh items drawn as training was: the favoured half weighs more."""
    favours, odds = row.labels.get("favours", 0), row.labels.get("odds", 1)
    if not favours:
        return row.value(READ, SEEN)
    often, rarely = (row.value(READ, f"{SEEN}/exact{half}") for half in (favours, 3 - favours))
    return (odds * often + rarely) / (odds + 1)


def able(results: Results, **labels: object) -> tuple[Results, str]:
    """Networks that learnt their task, and how many did not or diverged."""
    rows = base.require_labels(results, **labels)
    found = Results(
        [r for r in rows if not r.diverged and in_distribution(r) >= base.SEEN_FLOOR]
    )  # fmt: skip
    behind = len(rows) - len(found)
    return found, f"Left out: {behind} below .9 like training." if behind else ""


def swapped(
    first: Row, second: Row, splits: Sequence[str], kind: str = TOUCHED, control: str | None = None
) -> float:
    """Right where frequent minus right where rare, for the same nodes of the same items.

    `first` was trained with half 1 frequent, `second` with half 2. All items are answered by both,
    so that the mean of differences within items is the difference of sums.
    """
    gained, items = 0.0, 0.0
    for split in splits:
        for half, often, rarely in ((1, first, second), (2, second, first)):
            count = often.value(READ, f"{split}/items{half}")
            name = f"{split}/{kind}{half}"
            gained += count * (often.value(READ, name, control) - rarely.value(READ, name, control))
            items += count
    return gained / items if items else float("nan")


def pairs(results: Results) -> Iterator[tuple[Any, Row, Row]]:
    """Networks that differ in nothing but the half that was frequent, by seed."""
    for seed in results.labels("seed"):
        arms = [results.where(seed=seed, favours=favours) for favours in (1, 2)]
        if all(len(arm) == 1 for arm in arms):
            yield seed, arms[0][0], arms[1][0]


def effects(
    results: Results, splits: Sequence[str], kind: str = TOUCHED, control: str | None = None
) -> dict[Any, float]:
    """What frequency does, for each seed."""
    found = {seed: swapped(a, b, splits, kind, control) for seed, a, b in pairs(results)}
    return {seed: value for seed, value in found.items() if np.isfinite(value)}


def checked_effects(groups: Sequence[Results], splits: Sequence[str]) -> str:
    """A note on both executors; refuses where they do not show what was put into them."""
    memory, blind = (
        float(np.mean([e for rows in groups for e in effects(rows, splits, control=name).values()]))
        for name in ("planted", "blind")
    )
    told = f"Memorising executor {memory:.2f}, frequency-blind {blind:+.2f}."
    if not (memory >= PLANTED_EFFECT and abs(blind) <= BLIND):
        raise NotTested(f"The controls failed. {told}")
    return told


def level(results: Results, splits: Sequence[str]) -> float:
    """The share of right nodes over both arms and halves."""
    names = [f"{split}/{TOUCHED}{half}" for split in splits for half in (1, 2)]
    arms = [row for row in results if row.labels["favours"]]
    return float(np.mean([row.value(READ, name) for row in arms for name in names]))


def halves(row: Row, splits: Sequence[str]) -> float:
    """Half 1 minus half 2 in one network: nothing, where neither was favoured."""
    numbers = [
        row.value(READ, f"{split}/{TOUCHED}1") - row.value(READ, f"{split}/{TOUCHED}2")
        for split in splits
    ]
    return float(np.mean(numbers))


def table(row: Row, name: str) -> list[dict[str, Any]]:
    """A table of a reading as rows; none where the reading has no such table."""
    reading = row.readings.get(READ)
    columns = reading.tables.get(name, {}) if reading else {}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def beyond(line: dict[str, Any]) -> bool:
    return line["split"] != SEEN


def like_training(line: dict[str, Any]) -> bool:
    return line["split"] == SEEN


# Digits


@lru_cache
def gains(size: str) -> tuple[float, ...]:
    """For each digit of a product, what the best pair of input digits tells of it (RelIG)."""
    width, height = (int(digits) for digits in size.split("x"))
    total = 81 * 10 ** (width + height - 2)
    symbols = multiplication_symbols(width, height, samples=None if total <= MOST else SAMPLED)
    return tuple(strongest_clue(symbols, name).gain for name in symbols.outputs)


def digit_shares(row: Row, chosen: Callable[[dict[str, Any]], bool]) -> dict[str, list[float]]:
    """By size: the share of wrong products that have each digit right, leftmost first."""
    found: dict[str, list[float]] = {}
    for line in table(row, "digits"):
        if chosen(line) and line["wrong"] >= LEAST_WRONG and line["places"] >= LEAST_PLACES:
            found.setdefault(line["size"], []).append(line["right"])
    return found


def digit_number(
    chosen: Callable[[dict[str, Any]], bool], number: Callable[[str, list[float]], float]
) -> Callable[[Row], float]:
    """A number of the digits of each size, mean over sizes; NaN where too few are wrong."""

    def of(row: Row) -> float:
        found = [number(size, right) for size, right in digit_shares(row, chosen).items()]
        found = [value for value in found if np.isfinite(value)]
        return float(np.mean(found)) if found else float("nan")

    return of


def follows_gain(size: str, right: list[float]) -> float:
    """Spearman's correlation of what a pair tells of a digit with how often it is right."""
    return spearman(gains(size), right)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


# Steps


def auroc(row: Row) -> float:
    return row.value(READ, "auroc")


def checked_auroc(rows: Results) -> str:
    """A note on both executors; refuses where they do not show what was put into them."""
    memory, blind = (
        float(np.mean((1 + rows.values(READ, "memory", name)) / 2)) if len(rows) else np.nan
        for name in ("planted", "blind")
    )
    told = f"Memorising executor {memory:.2f}, frequency-blind {blind:.2f}."
    if not (memory >= PLANTED and abs(blind - 0.5) <= BLIND):
        raise NotTested(f"The controls failed. {told}")
    return told


def _by_size(row: Row, who: str) -> dict[str, list[dict[str, Any]]]:
    """Layers of each size beyond training, shallow ones first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in table(row, who):
        if beyond(line):
            found.setdefault(line["size"], []).append(line)
    return {size: sorted(some, key=lambda one: one["layer"]) for size, some in found.items()}


def total(line: dict[str, Any]) -> int:
    return sum(line[name] for name in LABELS)


def falls(row: Row, who: str = NETWORK) -> float:
    """Spearman's correlation of the layer with the share of correct nodes, beyond training."""
    found = [
        spearman([one["layer"] for one in lines], [one["correct"] / total(one) for one in lines])
        for lines in _by_size(row, who).values()
    ]
    return _mean(found)


def spreads(row: Row, who: str = NETWORK) -> float:
    """The share of errors that only spread, in the last third of layers minus the first."""
    found = []
    for lines in _by_size(row, who).values():
        third = max(1, len(lines) // 3)
        shares = []
        for some in (lines[:third], lines[-third:]):
            spread, fresh = (sum(one[name] for one in some) for name in ("propagation", "local"))
            shares.append(spread / (spread + fresh) if spread + fresh else np.nan)
        found.append(shares[1] - shares[0])
    return _mean(found)


def straight(row: Row) -> float:
    """How straight the logarithm of accuracy falls with depth (R²); needs three depths."""
    lines = [one for one in table(row, "sizes") if one["items"] >= LEAST_ITEMS]
    found = accuracy_decay(*([one[name] for one in lines] for name in ("depth", "exact", "items")))
    distinct = {one["depth"] for one in lines if one["exact"] > 0}
    falls = any(one["exact"] < HIGHEST for one in lines)
    return found.r_squared if falls and len(distinct) >= 3 else float("nan")


def over_bound(row: Row) -> float:
    """How far accuracy lies above its compounding bound and two standard errors, at worst.

    Only sizes that are neither always nor never right can tell.
    """
    found = []
    for one in table(row, "sizes"):
        some = LOWEST < one["exact"] < HIGHEST
        if one["bound"] is not None and one["items"] >= LEAST_ITEMS and some:
            # One success and one failure more, so that no share of 0 or 1 is without error.
            n, p = one["items"] + 2, (one["exact"] * one["items"] + 1) / (one["items"] + 2)
            found.append(one["exact"] - one["bound"] - 2 * np.sqrt(p * (1 - p) / n))
    return float(max(found)) if found else float("nan")


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")
