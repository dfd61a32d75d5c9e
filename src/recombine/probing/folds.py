"""Who is held out with whom: whole combinations, or rows of combinations that stay in training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.errors import InvalidRequest
from recombine.probing.targets import Target
from recombine.seeds import host_seed

Codes = Int[np.ndarray, " row"]


def deal_combinations(group: Codes, targets: Sequence[Target], folds: int, *, seed: int) -> Codes:
    """A fold per row: a combination is never split, and each value is spread over the folds.

    Combinations that hold the rarest value come first, each to the fold that has the fewest of
    that value. No fold takes the last combination of a value that it has all others of, as long as
    another fold can: what occurs in two combinations then stays in training in every fold.
    """
    if folds < 3:
        raise InvalidRequest(f"folds={folds}: choosing a penalty inside needs at least 3")
    count = int(group.max()) + 1
    if count < folds:
        raise InvalidRequest(f"{count} combinations cannot be dealt into {folds} folds")
    rng = np.random.default_rng(host_seed(seed, "probe/folds"))
    sizes, holds = np.bincount(group, minlength=count), _holds(group, targets, count)
    total = np.maximum(holds.sum(axis=0), 1)
    rarity = np.where(holds, total, np.inf)
    rarest = rarity.argmin(axis=1) if holds.shape[1] else np.zeros(count, np.int64)
    least = rarity.min(axis=1, initial=np.inf)
    have, load = np.zeros((folds, holds.shape[1])), np.zeros(folds)
    fold_of, shuffled = np.zeros(count, np.int64), rng.permutation(count)
    for one in shuffled[np.lexsort((-sizes[shuffled], least[shuffled]))]:
        alone = (have[:, holds[one]] == total[holds[one]] - 1) & (total[holds[one]] > 1)
        crowded = (have[:, holds[one]] / total[holds[one]]).sum(axis=1) + load / sizes.sum()
        first = have[:, rarest[one]] if holds.shape[1] else np.zeros(folds)
        place = int(np.lexsort((crowded, first, alone.sum(axis=1)))[0])
        fold_of[one] = place
        have[place, holds[one]] += 1
        load[place] += sizes[one]
    return fold_of[group]


def deal_rows(group: Codes, folds: int, *, seed: int) -> Codes:
    """A fold per row, the rows of each combination spread over all folds."""
    rng = np.random.default_rng(host_seed(seed, "probe/rows"))
    shuffled = rng.permutation(len(group))
    ordered = shuffled[np.argsort(group[shuffled], kind="stable")]
    starts = np.r_[0, np.cumsum(np.bincount(group))[:-1]]
    within = np.arange(len(group)) - starts[group[ordered]]
    # Each combination starts at a fold of its own, so that small ones do not all fill the first.
    first = rng.integers(0, folds, len(starts))
    fold = np.zeros(len(group), np.int64)
    fold[ordered] = (within + first[group[ordered]]) % folds
    return fold


def readable_rows(target: Target, fold: Codes) -> Bool[np.ndarray, " row"]:
    """Rows whose value also occurs in the folds that their probe is trained on."""
    rows = np.ones(len(fold), bool)
    if target.kind != "categorical":
        return rows
    codes, folds = target.codes, int(fold.max()) + 1
    counts = np.zeros((folds, len(target.values)))
    np.add.at(counts, (fold, codes), 1)
    return (counts.sum(axis=0)[codes] - counts[fold, codes]) > 0


def _holds(group: Codes, targets: Sequence[Target], count: int) -> Bool[np.ndarray, "group trait"]:
    parts: list[Float[np.ndarray, "group column"]] = [np.zeros((count, 0))]
    for target in targets:
        if target.kind == "numbers":
            continue
        held = np.zeros((count, target.columns.shape[1]))
        np.maximum.at(held, group, target.columns)
        parts.append(held)
    return np.concatenate(parts, axis=1) > 0
