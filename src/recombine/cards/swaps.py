"""Swap and invariance tests: change one factor, and only the answer about it may change.

They need no labels. Two rows that differ in one factor only are a pair; the pairs are found among
the user's rows, or made by putting another value into a row, where the model reads the columns
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from recombine.errors import NotApplicable
from recombine.lab.intervals import Interval, mean_interval
from recombine.seeds import host_seed
from recombine.tables.rows import Rows

Pairs = Int[np.ndarray, "pair 2"]


@dataclass(frozen=True)
class Swap:
    """What happened when one factor changed.

    `leaks` is the share of pairs in which an answer about something else changed (0 is right),
    `responds` the share in which the answer about the factor itself changed (1 is right); None
    where no answer is about it. Pairs that agree in all other factors count as one.
    """

    factor: str
    pairs: int
    leaks: Interval | None
    responds: Interval | None
    examples: tuple[tuple[str, str, str], ...]  # two rows, and what changed that should not


def found_pairs(rows: Rows, factor: int, most: int = 500, seed: int = 0) -> Pairs:
    """Pairs of rows that differ in this factor and agree in every other, at most so many.

    Each pair of combinations is taken in turn, so that a common one does not crowd out the rest.
    """
    if rows.factors[factor].many:
        raise NotApplicable(f"{rows.names[factor]} holds lists: one value cannot be exchanged")
    matrix = rows.matrix()
    place = sum(f.codes.shape[1] if f.many else 1 for f in rows.factors[:factor])
    same = contexts(rows, factor)
    rng = np.random.default_rng(host_seed(seed, f"swaps/{rows.names[factor]}"))
    order = rng.permutation(len(matrix))
    first: dict[int, dict[int, list[int]]] = {}
    for row in order:
        first.setdefault(int(same[row]), {}).setdefault(int(matrix[row, place]), []).append(row)
    candidates = []
    for values in first.values():
        codes = sorted(values)
        for i, a in enumerate(codes):
            for b in codes[i + 1 :]:
                for turn, (x, y) in enumerate(zip(values[a], values[b], strict=False)):
                    candidates.append((turn, x, y))
                    if turn >= 3:
                        break
    rng.shuffle(candidates)
    candidates.sort(key=lambda each: each[0])
    return np.asarray([(x, y) for _, x, y in candidates[:most]], np.int64).reshape(-1, 2)


def contexts(rows: Rows, factor: int) -> Int[np.ndarray, " row"]:
    """Which rows agree in every other factor: what is said of one such set is said once."""
    place = sum(f.codes.shape[1] if f.many else 1 for f in rows.factors[:factor])
    width = rows.factors[factor].codes.shape[1] if rows.factors[factor].many else 1
    others = np.delete(rows.matrix(), range(place, place + width), axis=1)
    if not others.shape[1]:
        return np.zeros(len(rows), np.int64)
    return np.unique(others, axis=0, return_inverse=True)[1].reshape(-1)


def made_pairs(
    rows: Rows, records: Sequence[Mapping[str, Any]], factor: int, most: int = 500, seed: int = 0
) -> list[tuple[int, dict[str, Any]]]:
    """Rows with another value of a factor put in: the place of the row, and its changed record.

    Values come from other rows, as the file writes them.
    """
    name = rows.names[factor]
    values = list(dict.fromkeys(_hashable(record.get(name)) for record in records))
    if len(values) < 2:
        raise NotApplicable(f"{name} has one value only: there is nothing to exchange it for")
    rng = np.random.default_rng(host_seed(seed, f"made/{name}"))
    chosen = rng.permutation(len(records))[:most]
    made = []
    for row in chosen:
        others = [value for value in values if value != _hashable(records[row].get(name))]
        made.append((int(row), {**records[row], name: others[rng.integers(len(others))]}))
    return made


About = Mapping[str, frozenset[str]]
"""For each part of an answer, the factors that it may depend on."""


def read_swap(
    factor: str,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    names: Sequence[tuple[str, str]],
    groups: Sequence[Any],
    about: About,
) -> Swap:
    """What changed from `before` to `after` in the parts of answers, pair by pair.

    `names` are the two rows of each pair, `groups` what all other factors are in it.
    """
    if not before:
        raise NotApplicable(f"no two rows differ in {factor} alone")
    still = [part for part, depends in about.items() if factor not in depends]
    moves = [part for part, depends in about.items() if depends == {factor}]
    pairs = list(zip(before, after, strict=True))
    leaked = [[part for part in still if b.get(part) != a.get(part)] for b, a in pairs]
    responded = [all(b.get(part) != a.get(part) for part in moves) for b, a in pairs]
    examples = [
        (*rows, f"{wrong[0]}: {b.get(wrong[0])} became {a.get(wrong[0])}")
        for rows, wrong, (b, a) in zip(names, leaked, pairs, strict=True)
        if wrong
    ]
    return Swap(
        factor, len(before), _mean([float(bool(w)) for w in leaked], groups) if still else None,
        _mean([float(r) for r in responded], groups) if moves else None, tuple(examples[:20]),
    )  # fmt: skip


def _mean(values: Sequence[float], groups: Sequence[Any]) -> Interval:
    """The mean over groups of their means."""
    by: dict[Any, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        by.setdefault(group, []).append(value)
    return mean_interval([float(np.mean(each)) for each in by.values()])


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
