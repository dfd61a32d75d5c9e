"""How the subgraphs study reads its rows: what frequency does, and where steps go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from recombine.graphs.bounds import accuracy_decay
from recombine.graphs.errors import LABELS
from recombine.graphs.information import (
    MOST,
    Clue,
    Symbols,
    multiplication_symbols,
    relative_information_gain,
    strongest_clue,
    subsequence_symbols,
)
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
PUBLISHED = {  # RelIG of multiplication, by the digits of both factors
    2: {("x2", "y2", "z4"): 1.000, ("x2", "z4"): 0.223, ("x1", "y1", "z1"): 0.788,
        ("x1", "z1"): 0.198, ("x2", "y2", "z3"): 0.110, ("x1", "y1", "z2"): 0.099},
    3: {("x3", "y3", "z6"): 1.000, ("x3", "z6"): 0.223, ("x1", "y1", "z1"): 0.792,
        ("x1", "z1"): 0.199, ("x3", "y3", "z5"): 0.101, ("x1", "y1", "z2"): 0.088,
        ("x1", "y1", "z3"): 0.000},
}  # fmt: skip


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


def level(rows: Sequence[Row], splits: Sequence[str]) -> float:
    """The share of right nodes over networks and halves."""
    names = [f"{split}/{TOUCHED}{half}" for split in splits for half in (1, 2)]
    return float(np.mean([row.value(READ, name) for row in rows for name in names]))


def usable(
    arms: Results, shares: Sequence[float], splits: Sequence[str]
) -> tuple[dict[float, Results], list[str]]:
    """Both arms for each share of lists where frequency could do anything, and why not elsewhere.

    Which shares those are is told by how much is right over both arms, not by how they differ.
    """
    found: dict[float, Results] = {}
    reasons: list[str] = []
    for share in shares:
        rows = arms.where(share=share)
        if len(effects(rows, splits)) < 2:
            reasons.append(f"{share:g} of the lists: fewer than two seeds with both arms.")
        elif level(rows, splits) < FLOOR:
            reasons.append(f"{share:g} of the lists: nothing is right in either arm.")
        elif level(rows, splits) > CEILING:
            reasons.append(f"{share:g} of the lists: nearly all is right in both arms.")
        else:
            found[share] = rows
    return found, reasons


def by_seed(rows: Sequence[Row], number: Callable[[Row], float]) -> np.ndarray:
    """The mean over networks of a seed, for each seed that has any."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        value = number(row)
        if np.isfinite(value):
            found.setdefault(row.labels["seed"], []).append(value)
    return np.asarray([np.mean(some) for some in found.values()])


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
def gains(size: str, digits: int) -> tuple[float, ...]:
    """For each digit of products with so many, what the best pair of input digits tells (RelIG)."""
    width, height = (int(digits) for digits in size.split("x"))
    total = 81 * 10 ** (width + height - 2)
    symbols = multiplication_symbols(width, height, samples=None if total <= MOST else MOST)
    symbols = _with_digits(symbols, digits)
    return tuple(strongest_clue(symbols, name).gain for name in symbols.outputs)


@lru_cache
def clues(length: int, reach: int) -> tuple[Clue, ...]:
    """For each mark of lists of so many numbers, the pair of numbers that tells most of it."""
    lists = (2 * reach + 1) ** length
    symbols = subsequence_symbols(length, reach=reach, samples=None if lists <= MOST else MOST)
    return tuple(strongest_clue(symbols, name, min(2, length)) for name in symbols.outputs)


def _with_digits(symbols: Symbols, digits: int) -> Symbols:
    """Those products that are written with so many digits: as many as both factors, or one less."""
    full = digits == len(symbols.outputs)
    kept = (symbols.outputs["z1"] > 0) == full
    there = list(symbols.outputs.items())[len(symbols.outputs) - digits :]
    return Symbols({name: column[kept] for name, column in symbols.inputs.items()},
                   {name: column[kept] for name, column in there})  # fmt: skip


@lru_cache
def differs_from_published() -> float:
    """The largest difference of information gains from the published ones, over all products."""
    found = []
    for width, table in PUBLISHED.items():
        symbols = multiplication_symbols(width)
        for (*given, outcome), gain in table.items():
            found.append(abs(relative_information_gain(symbols, given, outcome) - gain))
    return max(found)


class Digit(NamedTuple):
    """One digit of wrong products: its share of right ones, and under the answers of others."""

    right: float
    other: float

    @property
    def beyond(self) -> float:
        """What is right beyond that, as a share of what was left; NaN where nothing was."""
        return (self.right - self.other) / (1 - self.other) if self.other < 1 else float("nan")


Written = tuple[str, int]  # a size, and how many digits its products are written with
Chosen = Callable[[dict[str, Any]], bool]


def digits_of(row: Row, chosen: Chosen) -> dict[Written, list[Digit]]:
    """By size and length: digits of wrong products that are as long as the right one."""
    found: dict[Written, list[Digit]] = {}
    for line in table(row, "digits"):
        if chosen(line) and line["wrong"] >= LEAST_WRONG and line["digits"] >= LEAST_PLACES:
            digit = Digit(line["right"], line["other"])
            found.setdefault((line["size"], line["digits"]), []).append(digit)
    return found


def digit_number(
    chosen: Chosen, number: Callable[[Written, list[Digit]], float]
) -> Callable[[Row], float]:
    """A number of the digits of each size, mean over sizes; NaN where too few can be judged."""

    def of(row: Row) -> float:
        return mean([number(written, some) for written, some in digits_of(row, chosen).items()])

    return of


def lengths_told(rows: Sequence[Row], chosen: Chosen) -> str:
    """A note on how many wrong products could be judged digit by digit."""
    lines = [line for row in rows for line in table(row, "lengths") if chosen(line)]
    wrong = sum(line["wrong"] for line in lines)
    if not wrong:
        return "No product is wrong." if len(rows) else ""
    short, long = (sum(line["wrong"] * line[name] for line in lines) / wrong
                   for name in ("short", "long"))  # fmt: skip
    return f"Of {wrong} wrong products {short:.2f} are too short and {long:.2f} too long."


def follows_gain(written: Written, digits: list[Digit]) -> float:
    """Spearman's correlation of what a pair tells of a digit with how often it is right, beyond
    what the same answers have right of other items."""
    known = [(gain, digit.beyond) for gain, digit in zip(gains(*written), digits, strict=True)
             if np.isfinite(digit.beyond)]  # fmt: skip
    return spearman([gain for gain, _ in known], [beyond for _, beyond in known])


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


def falls(row: Row, who: str = NETWORK, *, of: Callable[[dict[str, Any]], int] = total) -> float:
    """Spearman's correlation of the layer with the share of correct nodes, beyond training."""
    found = []
    for lines in _by_size(row, who).values():
        known = [one for one in lines if of(one) >= LEAST_ITEMS]
        shares = [one["correct"] / of(one) for one in known]
        found.append(spearman([one["layer"] for one in known], shares))
    return mean(found)


def falls_where_written(row: Row, who: str = NETWORK) -> float:
    """The same among nodes that were written, in layers where enough of them were."""
    return falls(row, who, of=lambda line: line["written"])


def unwritten_told(rows: Sequence[Row]) -> str:
    """A note on how many steps beyond training there is nothing to be read of."""
    lines = [line for row in rows for some in _by_size(row, NETWORK).values() for line in some]
    nodes = sum(map(total, lines))
    if not nodes:
        return ""
    never = 1 - sum(line["written"] for line in lines) / nodes
    none = sum(not line["written"] for line in lines)
    return f"Never written: {never:.2f} of the steps, and all of {none} of {len(lines)} layers."


def end_told(rows: Sequence[Row], splits: Sequence[str]) -> str:
    """A note on how much of what is lost is where answers end."""
    short, long, ended = (
        mean([row.value(READ, f"{split}/{what}") for row in rows for split in splits])
        for what in ("short", "long", "ended")
    )
    if not np.isfinite(ended):
        return ""
    return f"Too short {short:.2f}, too long {long:.2f}; with the end given {ended:.2f} are exact."


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
    return mean(found)


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


def mean(values: Sequence[float]) -> float:
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")
