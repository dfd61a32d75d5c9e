"""What the claims of the subgraphs study are judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.instruments.subgraphs import SEEN
from recombine.lab.statistics import Interval
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base
from recombine.studies import _subgraphs as parts

Measure = Callable[[Results], Evidence]


def frequency(grid: Any, task: str, splits: Sequence[str]) -> Measure:
    """What frequency does, for each seed, mean over shares where it could do anything."""

    def measure(results: Results) -> Evidence:
        arms, note = both_arms(grid, task, results)
        usable, reasons = parts.usable(arms, grid.share, splits)
        told = " ".join([*reasons, note]).strip()
        if not usable:
            raise NotTested(told)
        found: dict[Any, list[float]] = {}
        for rows in usable.values():
            for seed, effect in parts.effects(rows, splits).items():
                found.setdefault(seed, []).append(effect)
        values = np.asarray([np.mean(some) for some in found.values()])
        checked = parts.checked_effects(list(usable.values()), splits)
        enough = base.require(values, "Seeds", note=told)
        return Evidence.of_values(enough, f"{checked} {told}".strip())

    return measure


def both_arms(grid: Any, task: str, results: Results) -> tuple[Results, str]:
    rows, note = parts.able(results, task=task, width=max(grid.width))
    return Results([row for row in rows if row.labels["favours"]]), note


def placebo(grid: Any, task: str) -> Measure:
    """Half 1 minus half 2 where neither was favoured, on the shares that the effect is taken from.

    A placebo in which nearly all is right could show nothing, like an arm in which it is.
    """

    def measure(results: Results) -> Evidence:
        arms, _ = both_arms(grid, task, results)
        usable, reasons = parts.usable(arms, grid.share, [SEEN])
        neither, note = parts.able(results, task=task, width=max(grid.width), favours=0)
        chosen: list[Row] = []
        for share in usable:
            rows = neither.where(share=share)
            if len(rows) and parts.level(rows, [SEEN]) > parts.CEILING:
                reasons.append(f"{share:g} of the lists: nearly all is right in the placebo.")
            else:
                chosen += rows
        told = " ".join([*reasons, note]).strip()
        values = parts.by_seed(chosen, lambda row: parts.halves(row, [SEEN]))
        return Evidence.of_values(base.require(values, "Seeds", note=told), told)

    return measure


def sizes_differ(task: str, small: int, wide: int) -> Measure:
    """What frequency does at the smaller width minus at the larger, for each seed.

    Mean over the shares where the smaller networks have arms that could show it: what is right
    always at both widths is no sign that size removes nothing.
    """

    def measure(results: Results) -> Evidence:
        if small == wide:
            raise NotTested("Needs two widths.")
        rows, note = parts.able(results, task=task)
        arms = Results([row for row in rows if row.labels["favours"]])
        fewer, more = arms.where(width=small), arms.where(width=wide)
        usable, reasons = parts.usable(fewer, fewer.labels("share"), [SEEN])
        told = " ".join([*reasons, note]).strip()
        if not usable:
            raise NotTested(f"Nothing to see at width {small}. {told}".strip())
        found: dict[Any, list[float]] = {}
        for share, mine in usable.items():
            here, there = (parts.effects(r, [SEEN]) for r in (mine, more.where(share=share)))
            for seed in sorted(here.keys() & there.keys()):
                found.setdefault(seed, []).append(here[seed] - there[seed])
        checked = parts.checked_effects(list(usable.values()), [SEEN])
        values = np.asarray([np.mean(some) for some in found.values()])
        enough = base.require(values, "Seeds with all arms", note=told)
        return Evidence.of_values(enough, f"{checked} {told}".strip())

    return measure


def learnt(task: str) -> Measure:
    def measure(results: Results) -> Evidence:
        rows = base.require_labels(results, task=task, favours=0)
        return Evidence.of_values(base.require(rows.values(parts.READ, SEEN), "Networks"))

    return measure


Told = Callable[[Sequence[Row]], str]  # what a note says of the networks that were judged


def nothing_more(rows: Sequence[Row]) -> str:
    return ""


def over_networks(
    task: str, number: Callable[[Row], float], told: Told = nothing_more
) -> Measure:  # fmt: skip
    """One number for each network that learnt the task; those it does not exist for are counted."""

    def measure(results: Results) -> Evidence:
        rows, note = parts.able(results, task=task, favours=0)
        return _evidence(rows, number, f"{told(rows)} {note}".strip())

    return measure


def as_at_random(
    task: str, number: Callable[[Row, str], float], told: Told = nothing_more
) -> Measure:  # fmt: skip
    """The same, with what errors at random give on the same items in the note."""

    def measure(results: Results) -> Evidence:
        rows, note = parts.able(results, task=task, favours=0)
        note = f"{told(rows)} {note}".strip()
        chance = [number(row, parts.AT_RANDOM) for row in rows]
        if np.isfinite(chance).any():
            note = f"Errors at random: {np.nanmean(chance):.2f}. {note}".strip()
        return _evidence(rows, lambda row: number(row, parts.NETWORK), note)

    return measure


def digits(
    task: str, chosen: parts.Chosen, which: Callable[[Sequence[parts.Digit]], parts.Digit]
) -> Measure:  # fmt: skip
    """The share of a digit that is right, with what other answers would give in the note."""

    def measure(results: Results) -> Evidence:
        rows, note = parts.able(results, task=task, favours=0)
        right = parts.digit_number(chosen, lambda _, some: which(some).right)
        other = parts.digit_number(chosen, lambda _, some: which(some).other)
        note = f"{parts.lengths_told(rows, chosen)} {note}".strip()
        control = [other(row) for row in rows]
        if np.isfinite(control).any():
            note = f"The same answers to other items: {np.nanmean(control):.2f}. {note}"
        return _evidence(rows, right, note)

    return measure


def told_by_a_pair(task: str, chosen: parts.Chosen) -> Measure:
    number = parts.digit_number(chosen, parts.follows_gain)
    return over_networks(task, number, lambda rows: parts.lengths_told(rows, chosen))


def as_published(results: Results) -> Evidence:
    """Whatever networks do: the gains are computed, over all products of two and three digits."""
    worst, numbers = parts.differs_from_published(), sum(map(len, parts.PUBLISHED.values()))
    return Evidence.of_interval(
        lambda level: Interval(worst, worst, worst, numbers, "enumeration", level)
    )


def over_bound(task: str, width: int) -> Measure:
    """How far above the compounding bound, mean over all networks of a seed that can tell."""

    def measure(results: Results) -> Evidence:
        rows, note = parts.able(results, task=task, width=width)
        able = [row for row in rows if np.isfinite(parts.over_bound(row))]
        note = f"{len(able)} of {len(rows)} networks have such a size. {note}".strip()
        values = parts.by_seed(able, parts.over_bound)
        return Evidence.of_values(base.require(values, "Seeds", note=note), note)

    return measure


def told_by_frequency(task: str) -> Measure:
    def measure(results: Results) -> Evidence:
        rows, note = parts.able(results, task=task, favours=0)
        rows = Results([row for row in rows if np.isfinite(parts.auroc(row))])
        base.require(np.asarray([parts.auroc(row) for row in rows]), "Trained networks", note=note)
        return _evidence(rows, parts.auroc, f"{parts.checked_auroc(rows)} {note}".strip())

    return measure


def _evidence(rows: Results, number: Callable[[Row], float], note: str) -> Evidence:
    values = np.asarray([number(row) for row in rows])
    finite = values[np.isfinite(values)]
    if len(finite) < len(values):
        note = f"{note} {len(values) - len(finite)} gave no number.".strip()
    return Evidence.of_values(base.require(finite, "Trained networks", note=note), note)


def exact(row: Row, splits: Sequence[str], how: str = "") -> float:
    return float(np.mean([row.value(parts.READ, f"{split}{how}") for split in splits]))
