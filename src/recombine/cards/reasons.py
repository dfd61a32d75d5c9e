"""Why a combination probably fails: what training had of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recombine.audits.slices import Slice, Worst
from recombine.tables.counting import count
from recombine.tables.novelty import LEVELS, novelty
from recombine.tables.rows import NONE, Rows

FEW = 10  # training rows below which a lack of them is the likely reason
WELL = "it was trained: not for want of data"


@dataclass(frozen=True)
class Reason:
    """The likely reason in words, and how new the combination is."""

    level: str
    sentence: str


def reasons(
    worst: Sequence[Worst], slices: Sequence[Slice], rows: Rows, train: Rows | None
) -> dict[str, Reason]:
    """For each failing combination what training had of the slice it fails in, or else of the
    rarest thing about it; by its label."""
    if train is None:
        return {one.label: Reason("", "what it was trained on is not known") for one in worst}
    matrix = rows.matrix()
    lines = {tuple(line): place for place, line in enumerate(matrix.tolist())}
    places = [lines[tuple(one.codes)] for one in worst]
    new = novelty(train, rows.take(places), nearest=False)
    level = new.row_level
    pairs = {
        (a, b): count(train, (a, b))
        for a, b in itertools.combinations(range(len(train.factors)), 2)
        if not train.factors[a].many and not train.factors[b].many
    }
    singles = [count(train, (f,)) for f in range(len(train.factors))]
    known = [(each, _trained(train, each)) for each in slices]
    found = {}
    for n, (one, place) in enumerate(zip(worst, places, strict=True)):
        codes = [None if f.many else int(f.codes[place]) for f in rows.factors]
        within = [(each, there) for each, there in known if _holds(each, codes)]
        if within:
            each, there = min(within, key=lambda pair: pair[1])
            sentence = f"{each.label} fails; {there} training rows have it"
            if there >= FEW and level[n] == 0:
                sentence += ": not for want of data"
        else:
            there, sentence = _rarest(train, codes, singles, pairs)
        if not sentence:
            sentence = "each of its pairs was trained" if level[n] else WELL
        if level[n] and there:  # with no training row of a part it goes without saying
            sentence += f", but the combination {_never(LEVELS[level[n]])}"
        found[one.label] = Reason(LEVELS[level[n]], sentence)
    return found


def _holds(part: Slice, codes: Sequence[int | None]) -> bool:
    return all(codes[factor] is not None and (codes[factor],) == tuple(values)
               for factor, values in part.assignment.items())  # fmt: skip


def _trained(train: Rows, part: Slice) -> int:
    """How many training rows a slice has."""
    chosen = [factor for factor, values in part.assignment.items() for _ in values]
    codes = tuple(value for values in part.assignment.values() for value in values)
    return int(count(train, chosen)[codes])


def _never(level: str) -> str:
    """That a combination was not trained, and what else is new about it."""
    return "was never trained" + ("" if level == "new combination" else f" ({level})")


def _rarest(
    train: Rows,
    codes: Sequence[int | None],
    singles: Sequence[np.ndarray],
    pairs: dict[tuple[int, int], np.ndarray],
) -> tuple[int, str]:
    """The rarest value or pair of a combination: in how many training rows, and in words."""
    there = [(int(singles[f][c]), {f: c}) for f, c in enumerate(codes) if c not in (None, NONE)]
    fewest, value = min(there, key=lambda each: each[0], default=(FEW, {}))
    if fewest < FEW:
        return fewest, f"{train.label(value)} has {fewest} training rows"
    both = [
        (int(table[codes[a], codes[b]]), {a: codes[a], b: codes[b]})
        for (a, b), table in pairs.items()
        if codes[a] is not None and codes[b] is not None
    ]
    fewest, pair = min(both, key=lambda each: each[0], default=(FEW, {}))
    if fewest < FEW:
        what = {place: code for place, code in pair.items() if code is not None}
        return fewest, f"{train.label(what)} are together in {fewest} training rows"
    return fewest, ""
