"""What a split turned out to be, measured on the rows of its parts and never assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recombine.splits.divergence import divergences, joined
from recombine.splits.duplicates import CHARACTERS, Shingles, near_labels
from recombine.splits.methods import PARTS, Split
from recombine.splits.pieces import (
    combination_labels,
    piece_label,
    pieces,
    value_numbers,
)
from recombine.tables.novelty import components
from recombine.tables.rows import NONE, Rows

NEW = {1: "values", 2: "pairs", 3: "triples"}
CLOSE = 0.05  # a compound divergence so near its target is said to have met it
_SHOWN = 50
_CHECK_SEED = 1  # other hashes than those that found the duplicates


@dataclass(frozen=True)
class Guarantee:
    """One promise of a split, the number that was measured for it, and whether it holds."""

    name: str
    promise: str
    measured: float
    holds: bool


def novelty_of(train: Rows, test: Rows, most: int = 2) -> dict[str, Any]:
    """How new test rows are to training (aligned tables): combinations, values, pairs, triples."""
    both = joined(train, test)
    part = np.repeat([0, 1], [len(train), len(test)])
    labels = combination_labels(both)[0]
    seen = np.zeros(labels.max() + 1, bool)
    seen[labels[part == 0]] = True
    tested = np.unique(labels[part == 1])
    found: dict[str, Any] = {
        "combinations": _new(
            len(tested), int((~seen[tested]).sum()), float((~seen[labels[part == 1]]).mean())
        )
    }
    units = np.where(part == 0, 0, 1 + labels)
    _, units = np.unique(units, return_inverse=True)
    sizes = np.bincount(units)
    for t in range(1, most + 1):
        held = pieces(both, t, units)
        if not len(held.members):
            continue
        trained = held.holds[[0]].toarray()[0] > 0
        in_test = np.asarray(held.holds[1:].sum(axis=0)).reshape(-1) > 0
        new = in_test & ~trained
        rows = sizes[1:][(held.holds[1:] @ new.astype(np.int64)) > 0].sum()
        found[NEW[t]] = _new(int(in_test.sum()), int(new.sum()), float(rows / len(test)))
        found[NEW[t]]["examples"] = [
            piece_label(both, held.members[p]) for p in np.flatnonzero(new)[:_SHOWN]
        ]
    return found


def _new(all: int, new: int, rows: float) -> dict[str, Any]:
    return {"in_part": all, "never_trained": new, "share_of_rows": rows}


def coverage_of(train: Rows, whole: Rows) -> dict[str, Any]:
    """Which values that occur in the whole file training holds, and whether they hang together."""
    occur, trained = (np.unique(value_numbers(rows)) for rows in (whole, train))
    occur, trained = occur[occur != NONE], trained[trained != NONE]
    lost = np.setdiff1d(occur, trained)
    return {
        "values": len(occur),
        "trained": len(occur) - len(lost),
        "covered": not len(lost),
        "connected": components(train).connected,
        "not_trained": [piece_label(whole, [number]) for number in lost[:_SHOWN]],
    }


def across(labels: np.ndarray, part: np.ndarray) -> int:
    """How many labels occur in more than one part.

    >>> across(np.array([0, 0, 1]), np.array([0, 1, 1]))
    1
    """
    pairs = np.unique(np.stack([labels, part], axis=1), axis=0)
    return int((np.bincount(pairs[:, 0]) > 1).sum()) if len(pairs) else 0


def near_across(
    texts: list[str], part: np.ndarray, near: float, shingles: Shingles = CHARACTERS
) -> int:
    """How many chains of near duplicates lie in two parts, found with fresh hashes."""
    return across(near_labels(texts, near, shingles=shingles, seed=_CHECK_SEED), part)


def holding(rows: Rows, withheld: tuple[tuple[int, ...], ...]) -> int:
    """How many rows hold a withheld piece (its value numbers are those of these rows)."""
    if not withheld:
        return 0
    numbers = value_numbers(rows)
    held = np.zeros(len(rows), bool)
    for members in withheld:
        inside = np.ones(len(rows), bool)
        for number in members:
            inside &= (numbers == number).any(axis=1)
        held |= inside
    return int(held.sum())


def guarantees(
    made: Split,
    parts: Mapping[str, Rows],
    measured: Mapping[str, Any],
    lost: int,
) -> list[Guarantee]:
    """The promises of a split's method against what was measured on its parts."""
    spec, train = made.spec, parts["train"]
    found = [_none("whole", "every row of the file is in exactly one part", lost)]
    duplicates, groups = measured["duplicates_across"], measured["groups_across"]
    if duplicates["exact"] is not None:
        found.append(_none("exact duplicates", "none lies in two parts", duplicates["exact"]))
    if duplicates["near"] is not None:
        found.append(_none("near duplicates", "no chain lies in two parts", duplicates["near"]))
    if groups is not None:
        found.append(_none("groups", "none lies in two parts", groups))
    for name, against in measured["against"].items():
        if spec.method == "combination":
            new = against["combinations"]
            both = new["in_part"] - new["never_trained"]
            found.append(_none(f"{name} combinations", "none is in training", both))
        if spec.method == "divergence":
            atoms, pair = against["divergence"]["atoms"], against["divergence"]["compounds"]
            promise = f"at most {spec.atom_limit:g} from training to {name}"
            found.append(Guarantee("atom divergence", promise, atoms, atoms <= spec.atom_limit))
            # Taking validation rows away moves training a little further.
            if (target := spec.target_divergence) is not None and name == "test":
                promise = f"{target:g} from training to {name}, to {CLOSE:g}"
                close = abs(pair - target) <= CLOSE
                found.append(Guarantee("compound divergence", promise, pair, close))
    if made.withheld:
        what = f"withheld {spec.method}s"
        found.append(_none(what, "no training row holds one", holding(train, made.withheld)))
    if spec.method in ("combination", "pair", "value"):
        excused = {m[0] for m in made.withheld} if spec.method == "value" else set()
        untrained = measured["coverage"]["values"] - measured["coverage"]["trained"]
        promise = "every value that is not withheld is in training"
        found.append(_none("covered", promise, untrained - len(excused)))
    return found


def _none(name: str, promise: str, count: int) -> Guarantee:
    return Guarantee(name, promise, float(count), count == 0)


def measure(
    made: Split,
    parts: Mapping[str, Rows],
    whole: Rows,
    *,
    contents: np.ndarray | None = None,
    texts: list[str] | None = None,
    near: float | None = None,
    shingles: Shingles = CHARACTERS,
    groups: np.ndarray | None = None,
) -> dict[str, Any]:
    """All numbers of a card, from the parts (aligned with the whole file) as they were read back.

    `contents`, `texts` and `groups` go over the parts one after the other in the order of PARTS;
    rows that were left out are not among them.
    """
    kept = [name for name in PARTS if name in parts and name != "unused"]
    part = np.repeat(np.arange(len(kept)), [len(parts[name]) for name in kept])
    train = parts["train"]
    against = {}
    for name in kept[1:]:
        apart = divergences(train, parts[name], triples=made.spec.triples)
        against[name] = novelty_of(train, parts[name], 3 if made.spec.triples else 2)
        against[name]["divergence"] = {"atoms": apart.atoms, "compounds": apart.compounds}
    return {
        "parts": {
            name: {"rows": len(rows), "share": len(rows) / len(whole)}
            for name, rows in parts.items()
        },
        "against": against,
        "coverage": coverage_of(train, whole),
        "duplicates_across": {
            "exact": None if contents is None else across(contents, part),
            "near": None
            if texts is None or near is None
            else near_across(texts, part, near, shingles),
        },
        "groups_across": None if groups is None else across(groups, part),
    }
