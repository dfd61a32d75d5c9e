"""Failing slices: values, pairs and triples of values whose rows fail more than the others.

How one is found, and why it can be believed:

1. Every value, pair and triple of values with enough rows is a test, whatever its outcomes, so the
   search cannot hide how often it tried.
2. Its rows fail more than the rest (Fisher's exact test, one-sided). A pair or triple must also
   fail more than the rest of each slice it is part of, and more than its values explain one by
   one: a score test against a model whose failure rates are sums of one number per value. (Sums of
   log-odds would not do. Where nothing else fails, they explain any one bad pair.)
3. Its p-value is the largest of these. Benjamini and Hochberg's procedure over all tests keeps the
   share of false slices at the level.
4. Of slices that say the same thing the clearest stays: a slice that fails no more than others
   once the rows of clearer slices are set aside is explained by them, and left out.
5. What is left of it must also fail with the combination as the unit: more of its combinations
   fail than of others, or all of them do. Otherwise one lost combination would fail every slice
   that holds it.

Whole combinations that fail are told by `failure_table`. One that no slice holds is a finding of
its own if it fails more than the rest and more than its values explain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from recombine.audits.association import fisher, newcombe, wilson
from recombine.audits.slice_grid import Additive, Grid, Level, foretold, over_combinations
from recombine.errors import InvalidRequest
from recombine.lab.statistics import Dependence, Interval, false_discovery
from recombine.tables.counting import count_all, too_large
from recombine.tables.rows import NONE, Rows

SHOWN = 20  # row ids that a slice carries
LEVEL = 0.05  # of false discoveries among combinations
LEAST_ROWS = 5  # of a combination, for it to be tested on its own


@dataclass(frozen=True, eq=False)
class Slice:
    """Rows with some values in common that fail more than they should.

    `assignment` gives the codes by place of factor (several for a list column). `expected` is the
    failure rate that its values explain one by one, as told by the rows outside it and outside
    every failing pair or triple; for a single value, what the other values of its rows explain.
    `effect` is the failure rate minus that of the rest. `adjusted_p` is the smallest level at
    which the slice is still listed, of `tests` slices that were tried. `ids` names the first
    failing rows.
    """

    assignment: Mapping[int, tuple[int, ...]]
    label: str
    size: int
    failures: int
    expected: float
    effect: Interval
    p: float
    adjusted_p: float
    tests: int
    ids: tuple[str, ...]

    @property
    def rate(self) -> float:
        """The share of its rows that fail."""
        return self.failures / self.size

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return (
            f"{self.label}: {self.failures} of {self.size} rows fail ({self.rate:.0%}), "
            f"{self.effect.estimate:+.0%} against the rest "
            f"({self.effect.low:+.0%} to {self.effect.high:+.0%}); "
            f"{self.expected:.0%} was expected."
        )


@dataclass(frozen=True, eq=False)
class Worst:
    """A whole combination that fails, with the bounds of its failure rate and its failing rows.

    `adjusted_p` is the smallest level at which it is found to fail more than all other rows do
    (Fisher's exact test), with false discoveries controlled over all combinations with at least 5
    rows; 1 for smaller ones. `beyond_p` asks more, with the same control: it must also fail more
    than `expected`, the rate that its values explain one by one (as told by all the others).
    """

    label: str
    assignment: Mapping[int, tuple[int, ...]]
    codes: tuple[int, ...]
    size: int
    failures: int
    rate: Interval
    adjusted_p: float
    ids: tuple[str, ...]
    expected: float = math.nan
    beyond_p: float = 1.0

    @property
    def sentence(self) -> str:
        """The finding in words."""
        told = "" if math.isnan(self.expected) else f"; its values explain {self.expected:.0%}"
        return (
            f"{self.label}: {self.failures} of {self.size} rows fail "
            f"({self.rate.estimate:.0%}, at least {self.rate.low:.0%}){told}"
        )

    def within(self, part: Mapping[int, tuple[int, ...]]) -> bool:
        """Whether this combination holds all these values."""
        held = self.assignment
        return all(set(codes) <= set(held.get(place, ())) for place, codes in part.items())


def slices(
    rows: Rows,
    failed: np.ndarray,
    *,
    most: int = 3,
    least_rows: int = 10,
    level: float = 0.05,
    least_effect: float = 0.0,
    dependence: Dependence = "positive",
) -> list[Slice]:
    """The slices of up to `most` values that fail more than the rest, clearest effect first.

    `failed` has one truth value per row. Slices with fewer than `least_rows` rows, or whose
    failure rate is less than `least_effect` above the rest, are not listed. Benjamini and
    Hochberg's procedure holds where tests pull the same way, as overlapping slices do;
    `dependence="any"` takes Benjamini and Yekutieli's, which always holds and finds less.

    >>> from recombine.tables.rows import Factor
    >>> colour = Factor("colour", ("red", "blue"), np.arange(80) % 2)
    >>> shape = Factor("shape", ("cube", "ball"), np.arange(80) // 2 % 2)
    >>> bad = (np.arange(80) % 4 == 0) & (np.arange(80) > 8)
    >>> [one.label for one in slices(Rows("toy", (colour, shape)), bad)]
    ['colour=red, shape=cube']
    """
    wrong = _truths(rows, failed)
    if most not in (1, 2, 3):
        raise InvalidRequest(f"most={most}: a slice has 1, 2 or 3 values; type most=3")
    if least_rows < 1 or not 0 < level < 1:
        raise InvalidRequest(
            f"least_rows={least_rows}, level={level}: expected at least 1 row, and a level "
            "between 0 and 1 such as 0.05"
        )
    grid = Grid.of(rows, wrong)
    if not 0 < grid.wrong.sum() < grid.size.sum():
        return []
    levels = _searched(grid, most, least_rows, level, dependence)
    p = np.concatenate([part.p for part in levels])
    adjusted = false_discovery(p, dependence=dependence)
    listed = np.flatnonzero(adjusted <= level)
    # Very small p-values are all 0; how far beyond the expected then tells which is clearest.
    clear = np.concatenate([part.clear for part in levels])
    listed = listed[np.lexsort((-clear[listed], p[listed]))]
    items = [tuple(line) for part in levels for line in part.items.tolist()]
    at = {items[i]: i for i in listed}
    found = []
    kept = _unexplained(grid, list(at), least_rows, level, len(p))
    for one, expected in foretold(grid, kept).items():
        inside, i = grid.holding(one), at[one]
        size, failures = int(grid.size[inside].sum()), int(grid.wrong[inside].sum())
        others, rest = int(grid.wrong.sum()) - failures, int(grid.size.sum()) - size
        assignment = grid.assignment(one)
        places = np.flatnonzero(inside[grid.inverse] & wrong)[:SHOWN]
        found += [Slice(
            assignment, rows.label(assignment), size, failures, expected,
            newcombe(failures, size, others, rest), float(p[i]), float(adjusted[i]), len(p),
            tuple(rows.name_of(places)),
        )]  # fmt: skip
    found = [one for one in found if one.effect.estimate >= least_effect]
    return sorted(found, key=lambda one: -one.effect.low)


def not_searched(rows: Rows, most: int = 3) -> list[tuple[int, ...]]:
    """The choices of factors in which `slices` looks for nothing: their tables are too large."""
    return [chosen for t in range(1, most + 1) for chosen in too_large(rows, t)]


def failure_table(
    rows: Rows, failed: np.ndarray, *, most: int = 20, least_rows: int = 1, level: float = 0.95
) -> list[Worst]:
    """The worst whole combinations, ranked by the lower bound of their failure rate.

    Twenty failures of twenty rank above one of one: the bound (Wilson's) knows the size.
    Combinations without a failure are left out.

    >>> from recombine.tables.rows import Factor
    >>> rows = Rows("toy", (Factor("colour", ("red", "blue"), np.array([0, 0, 1, 1])),))
    >>> [(one.label, one.ids) for one in failure_table(rows, np.array([1, 1, 1, 0]))]
    [('colour=red', ('1', '2')), ('colour=blue', ('3',))]
    """
    wrong = _truths(rows, failed)
    grid = Grid.of(rows, wrong)
    low, _ = wilson(grid.wrong, grid.size, level)
    others, rest = grid.wrong.sum() - grid.wrong, grid.size.sum() - grid.size
    tested, adjusted = grid.size >= LEAST_ROWS, np.ones(len(low))
    p = fisher(*(numbers[tested] for numbers in (grid.wrong, grid.size, others, rest)))
    adjusted[tested] = false_discovery(p)
    expected, beyond = _beyond_values(grid, np.flatnonzero(tested), p)
    order = np.lexsort((-grid.wrong, -low))
    order = order[(grid.wrong[order] > 0) & (grid.size[order] >= least_rows)][:most]
    found = []
    for c in order:
        size, failures = int(grid.size[c]), int(grid.wrong[c])
        low_end, high_end = (float(end) for end in wilson(failures, size, level))
        places = np.flatnonzero((grid.inverse == c) & wrong)[:SHOWN]
        items = tuple(int(item) for item in grid.items[c] if item != NONE)
        held = grid.assignment(items)
        found += [Worst(
            rows.label(held), held, tuple(int(x) for x in grid.codes[c]), size,
            failures, Interval(failures / size, low_end, high_end, size, "Wilson", level),
            float(adjusted[c]), tuple(rows.name_of(places)), float(expected[c]), float(beyond[c]),
        )]  # fmt: skip
    return found


def _beyond_values(
    grid: Grid, tested: Int[np.ndarray, " test"], p: Float[np.ndarray, " test"]
) -> tuple[Float[np.ndarray, " combination"], Float[np.ndarray, " combination"]]:
    """What the values of combinations explain (NaN: not asked), and adjusted p-values beyond it.

    Values that fail make each of their combinations fail more than the rest, which is no news.
    """
    expected, beyond = np.full(len(grid.size), np.nan), np.ones(len(grid.size))
    p = p.copy()
    # This can only take away, so it is asked of those that fail more than the rest.
    asked = np.flatnonzero(false_discovery(p) <= LEVEL)
    if not len(asked):
        return expected, beyond
    additive = Additive(grid)
    for place in asked:
        c = tested[place]
        expected[c], more = additive.explained(tested[place : place + 1])
        # In a few rows failures are far from normal: their exact chance has to be as small.
        exact = float(special.bdtrc(int(grid.wrong[c]) - 1, int(grid.size[c]), expected[c]))
        p[place] = max(p[place], more, exact)
    beyond[tested] = false_discovery(p)
    return expected, beyond


def _searched(
    grid: Grid, most: int, least: int, level: float, dependence: Dependence
) -> list[Level]:
    total, bad, values = float(grid.size.sum()), float(grid.wrong.sum()), int(grid.starts[-1])
    found: list[Level] = []
    for t in range(1, most + 1):
        keys, size, wrong = _sums(grid, t, least)
        items = np.stack([keys // values ** (t - 1 - i) % values for i in range(t)], 1)
        rest = (bad - wrong) / np.maximum(total - size, 1)
        p = fisher(wrong, size, bad - wrong, total - size)
        for left in itertools.combinations(range(t), t - 1) if t > 1 else ():
            parent, still = found[-1], np.flatnonzero(p <= level)
            key = sum(items[still, i] * values ** (t - 2 - at) for at, i in enumerate(left))
            at = np.searchsorted(parent.keys, key)
            k, n = wrong[still], size[still]
            # A slice that is the whole of its parent adds nothing to it, and gets 1 here.
            p[still] = np.maximum(p[still], fisher(k, n, parent.wrong[at] - k, parent.size[at] - n))
        found.append(Level(items, size, wrong, rest, p, keys))
    # The last test can only take away, so it is made for those that are left.
    listed = false_discovery(np.concatenate([part.p for part in found]), dependence=dependence)
    kept = np.split(listed <= level, np.cumsum([len(part.p) for part in found])[:-1])
    if any(part.any() for part in kept[1:]):
        additive = Additive(grid)
        found[1:] = [additive.tested(*pair) for pair in zip(found[1:], kept[1:], strict=True)]
    return found


def _sums(grid: Grid, t: int, least: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The slices of t items that have enough rows, in ascending order, with rows and failures.

    Tables of more than 2^26 cells are not searched: `not_searched` says which.
    """
    keys, sizes, wrongs = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0)]
    rows, failures = (count_all(grid.rows, t, weights=w) for w in (grid.size, grid.wrong))
    for (chosen, size), (_, wrong) in zip(rows, failures, strict=True):
        where = np.nonzero(size >= least)
        key = np.zeros(len(where[0]), np.int64)
        for factor, codes in zip(chosen, where, strict=True):
            key = key * int(grid.starts[-1]) + codes + int(grid.starts[factor])
        keys.append(key)
        sizes.append(size[where])
        wrongs.append(wrong[where])
    order = np.argsort(np.concatenate(keys))
    key, size, wrong = (np.concatenate(parts)[order] for parts in (keys, sizes, wrongs))
    return key, size, wrong


def _unexplained(
    grid: Grid, candidates: list[tuple[int, ...]], least: int, level: float, tests: int
) -> list[tuple[int, ...]]:
    """The candidates (clearest first) that still fail more once the others kept are set aside.

    Both by row and by combination.
    """
    held = {items: grid.holding(items) for items in candidates}

    def stands(items: tuple[int, ...], beside: list[tuple[int, ...]]) -> bool:
        inside = held[items]
        wider = [other for other in beside if set(other) < set(items)]
        others = [held[other] for other in beside if other not in wider]
        aside = np.logical_or.reduce([np.zeros_like(inside), *others])
        around = np.logical_and.reduce([~inside, *(held[o] for o in wider)])
        here, there = inside & ~aside, around & ~aside
        counts = [
            np.array([number[part].sum()])
            for part in (here, there)
            for number in (grid.wrong, grid.size)
        ]
        enough = counts[1][0] >= least and counts[3][0] >= 1
        by_row = enough and fisher(*counts)[0] <= level / len(candidates)
        # By combination nothing was asked before, so this stands for every test that was made.
        return bool(by_row and over_combinations(grid, here, there) <= level / tests)

    kept: list[tuple[int, ...]] = []
    for items in candidates:
        if stands(items, kept):
            kept.append(items)
    for items in list(kept):  # a pair that came later may explain a value that came before
        others = [other for other in kept if other != items]
        if not stands(items, others):
            kept = others
    return kept


def _truths(rows: Rows, failed: np.ndarray) -> Bool[np.ndarray, " row"]:
    given = np.asarray(failed)
    if given.shape != (len(rows),):
        raise InvalidRequest(
            f"failed has shape {given.shape}: expected one truth value for each of {len(rows)} rows"
        )
    if given.dtype != bool and not np.isin(given, (0, 1)).all():
        raise InvalidRequest(
            "failed holds more than 0 and 1: choose a bar first, such as failed = score < 0.5"
        )
    return given.astype(bool)
