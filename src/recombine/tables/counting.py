"""How often values occur together: tables of counts over every choice of t factors.

Rows are read in pieces that fit the processor's cache, and one wide table answers many narrow ones:
six factors of five values are counted once and summed down to their fifteen choices of four. Ten
million rows of twelve such factors take some seconds at t = 4 on one core. Beside the rows it holds
at most `MOST_SETS` wide tables of `WIDE` cells and what is summed from them (256 MiB), or, where
one table of `most_cells` is larger, that table twice (1 GiB at the default).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Real

from recombine.errors import InvalidRequest
from recombine.tables.rows import Rows

MOST_CELLS = 2**26
WIDE = 2**15
MOST_SETS = 512
PIECE, LARGE_PIECE = 1 << 16, 1 << 21
TRIED = 16

Columns = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Combinations:
    """The different combinations of some rows.

    `codes` are the different lines of `rows.matrix()`, `counts` how many rows have each, `inverse`
    the combination of each row.
    """

    codes: Int[np.ndarray, "combination place"]
    counts: Int[np.ndarray, " combination"]
    inverse: Int[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.codes)


def combinations(rows: Rows) -> Combinations:
    """The different combinations of these rows, in ascending order of their codes.

    >>> from recombine.tables.rows import Factor
    >>> rows = Rows("toy", (Factor("a", ("x", "y"), np.array([1, 0, 1])),))
    >>> combinations(rows).codes.tolist(), combinations(rows).counts.tolist()
    ([[0], [1]], [1, 2])
    """
    places = _Places(rows)
    (key,) = combination_keys(rows)
    # np.unique does the same, but its sort keeps equal keys in order, which takes far longer.
    order = np.argsort(key)
    key = key[order]
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    inverse = np.empty(len(key), np.int64)
    inverse[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(key)))
    codes = np.empty((len(begins), len(places.sizes)), np.int32)
    for column in range(len(places.sizes)):
        codes[:, column] = places.codes(column, order[begins], np.int32, shift=1) - 1
    return Combinations(codes, np.diff(begins, append=len(key)), inverse)


def combination_keys(*tables: Rows) -> list[Int[np.ndarray, " row"]]:
    """A number for each row of each (aligned) table, the same for the same combination."""
    places = [_Places(rows) for rows in tables]
    keys, known = [np.zeros(len(rows), np.int64) for rows in tables], 1
    for factor in range(len(tables[0].factors)):
        for i in range(max(len(p.at[factor]) for p in places)):
            size = tables[0].factors[factor].size + 1
            if known * size >= 2**62:  # what occurs so far is far less than could
                found, which = np.unique(np.concatenate(keys), return_inverse=True)
                keys = np.split(which.reshape(-1), np.cumsum([len(k) for k in keys])[:-1])
                known = max(len(found), 1)
            for p, key in zip(places, keys, strict=True):
                key *= size
                if i < len(p.at[factor]):
                    # One more than the code, so that the end of a list comes before its values.
                    key += p.codes(p.at[factor][i], slice(None), np.int64, shift=1)
            known *= size
    return keys


def projections(rows: Rows, t: int) -> list[tuple[int, ...]]:
    """All choices of t factors; one that holds lists may be chosen as often as a list is long.

    >>> from recombine.tables.rows import Factor
    >>> held = Factor("held", ("x", "y", "z"), np.array([[0, 1], [1, 2]]))
    >>> projections(Rows("toy", (Factor("a", ("u",), np.array([0, 0])), held)), 2)
    [(0, 1), (1, 1)]
    """
    most = [f.codes.shape[1] if f.many else 1 for f in rows.factors]
    return [
        chosen
        for chosen in itertools.combinations_with_replacement(range(len(most)), t)
        if all(chosen.count(f) <= most[f] for f in set(chosen))
    ]


def cells(rows: Rows, chosen: Sequence[int]) -> int:
    """How many cells the table of these factors has."""
    return math.prod(rows.factors[f].size for f in chosen)


def too_large(rows: Rows, t: int, most_cells: int = MOST_CELLS) -> list[tuple[int, ...]]:
    """The choices of t factors that `count_all` leaves out."""
    return [chosen for chosen in projections(rows, t) if cells(rows, chosen) > most_cells]


def count(
    rows: Rows, chosen: Sequence[int], weights: Float[np.ndarray, " row"] | None = None
) -> np.ndarray:
    """How many rows hold each choice of values of these factors (or the sum of their weights).

    A list column may be chosen r times: the table then counts the rows that hold r different
    values, in cells whose codes ascend.

    >>> from recombine.tables.rows import Factor
    >>> a = Factor("a", ("x", "y"), np.array([0, 1, 1]))
    >>> b = Factor("b", ("u", "v"), np.array([0, 0, 1]))
    >>> count(Rows("toy", (a, b)), (0, 1)).tolist()
    [[1, 0], [1, 1]]
    """
    if twice := [f for f in chosen if chosen.count(f) > 1 and not rows.factors[f].many]:
        name = rows.names[twice[0]]
        raise InvalidRequest(f"factor {name!r} is chosen twice, but holds one value a row")
    if cells(rows, chosen) > MOST_CELLS:
        raise InvalidRequest(
            f"a table of {', '.join(rows.names[f] for f in chosen)} has {cells(rows, chosen):,} "
            f"cells, more than {MOST_CELLS:,}: choose fewer factors, or group their rare values"
        )
    order = sorted(range(len(chosen)), key=lambda axis: chosen[axis])
    ((_, table),) = _counted(rows, [tuple(chosen[axis] for axis in order)], weights)
    return np.transpose(table, np.argsort(order))


def count_all(
    rows: Rows,
    t: int,
    *,
    weights: Float[np.ndarray, " row"] | None = None,
    most_cells: int = MOST_CELLS,
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """The table of every choice of t factors, in the order of `projections`.

    Tables of more than `most_cells` are left out: `too_large` says which.
    """
    wanted = [chosen for chosen in projections(rows, t) if cells(rows, chosen) <= most_cells]
    return _counted(rows, wanted, weights)


def occurring(
    rows: Rows, chosen: Sequence[int], weights: Float[np.ndarray, " row"] | None = None
) -> tuple[Int[np.ndarray, "cell axis"], Real[np.ndarray, " cell"]]:
    """The cells of these factors (ascending) that occur, and how often; of any number of cells.

    With weights: how much the rows of each weigh.
    """
    if cells(rows, chosen) <= 2**22:
        table = count(rows, chosen, weights)
        where = np.nonzero(table)
        return np.stack(where, axis=1), table[where]
    places = _Places(rows)
    shape = [rows.factors[f].size for f in chosen]
    keys, heavy = [], []
    for columns in places.sets(chosen):
        codes = [places.codes(column, slice(None), np.int64) for column in columns]
        held = np.logical_and.reduce([c < n for c, n in zip(codes, shape, strict=True)])
        keys.append(np.ravel_multi_index([code[held] for code in codes], shape))
        heavy += [] if weights is None else [weights[held]]
    if weights is None:
        found, counts = np.unique(np.concatenate(keys), return_counts=True)
    else:
        found, which = np.unique(np.concatenate(keys), return_inverse=True)
        counts = np.bincount(which, np.concatenate(heavy), len(found))
    return np.stack(np.unravel_index(found, shape), axis=1), counts


class _Places:
    """The rows as columns of one code each: a list is as many columns as it has places.

    A place that a list does not fill has a code of its own, one after the last value.
    """

    def __init__(self, rows: Rows):
        self.rows = rows
        self.at: list[list[int]] = []  # the columns of each factor
        self.sizes: list[int] = []
        self._views: list[np.ndarray] = []
        for factor in rows.factors:
            views = list(factor.codes.T) if factor.many else [factor.codes]
            self.at.append([len(self.sizes) + i for i in range(len(views))])
            self.sizes += [factor.size + factor.many] * len(views)
            self._views += views

    def codes(
        self, column: int, piece: slice | np.ndarray, kind: type, shift: int = 0
    ) -> np.ndarray:
        codes = self._views[column][piece]
        if np.issubdtype(codes.dtype, np.signedinteger) and not shift:
            codes = np.where(codes < 0, self.sizes[column] - 1, codes)
        return codes.astype(kind) + kind(shift) if shift else codes.astype(kind)

    def sets(self, chosen: Sequence[int]) -> list[Columns]:
        """The sets of columns whose tables add up to the table of the chosen factors."""
        choices = [
            itertools.combinations(self.at[f], chosen.count(f)) for f in dict.fromkeys(chosen)
        ]
        return [tuple(itertools.chain(*parts)) for parts in itertools.product(*choices)]

    def cells(self, columns: Columns) -> int:
        return math.prod(self.sizes[c] for c in columns)


def _counted(
    rows: Rows, wanted: Sequence[tuple[int, ...]], weights: np.ndarray | None
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    places = _Places(rows)
    kind = np.int64 if weights is None else np.float64
    total: np.ndarray | None = None
    for batch in _batches(places, wanted):
        tables = _tables(places, _wide([columns for _, columns, _ in batch], places), weights)
        for chosen, columns, last in batch:
            shape = [rows.factors[f].size for f in chosen]
            total = np.zeros(shape, kind) if total is None else total
            if columns:
                # The part without the code for "no value in this place".
                total += tables[columns][tuple(slice(size) for size in shape)]
            if last:
                yield chosen, total
                total = None


def _batches(
    places: _Places, wanted: Sequence[tuple[int, ...]]
) -> Iterator[list[tuple[tuple[int, ...], Columns, bool]]]:
    """(factors, columns, whether these are the last columns of the factors), some at a time."""
    batch, held = [], 0
    for chosen in wanted:
        sets = places.sets(chosen) or [()]
        for i, columns in enumerate(sets):
            size = places.cells(columns)
            if batch and (len(batch) == MOST_SETS or held + size > MOST_SETS * WIDE):
                yield batch
                batch, held = [], 0
            batch.append((chosen, columns, i == len(sets) - 1))
            held += size
    if batch:
        yield batch


def _wide(sets: Sequence[Columns], places: _Places) -> dict[Columns, list[Columns]]:
    """Groups of columns to count, each with the sets that can be summed from it.

    Greedy: a set not yet in any group is widened by the column that brings most other such sets
    in, as long as the table stays small beside the rows and the cache.
    """
    limit = min(WIDE, len(places.rows) // 8)
    waiting = dict.fromkeys(columns for columns in sets if columns)
    used = sorted({c for columns in waiting for c in columns})
    groups: dict[Columns, list[Columns]] = {}
    while waiting:
        group = next(iter(waiting))
        inside, t = {group}, len(group)
        while True:
            fits = [
                c for c in used if c not in group and places.cells(group) * places.sizes[c] <= limit
            ]
            best: tuple[Columns, set[Columns]] = group, set()
            for c in fits[:TRIED]:
                parts = itertools.combinations(group, t - 1)
                new = {s for part in parts if (s := tuple(sorted((*part, c)))) in waiting}
                if len(new) > len(best[1]):
                    best = tuple(sorted((*group, c))), new
            if not best[1]:
                break
            group, inside = best[0], inside | best[1]
        groups[group] = sorted(inside)
        for columns in inside:
            del waiting[columns]
    return groups


def _tables(
    places: _Places, groups: dict[Columns, list[Columns]], weights: np.ndarray | None
) -> dict[Columns, np.ndarray]:
    """The table of every set of columns in these groups."""
    small = [group for group in groups if places.cells(group) <= 2**16]
    large = [group for group in groups if places.cells(group) > 2**16]
    counted = _pass(places, small, weights, PIECE, np.uint16)
    counted |= _pass(places, large, weights, LARGE_PIECE, np.int64)
    tables = {}
    for group, sets in groups.items():
        wide = counted.pop(group).reshape([places.sizes[c] for c in group])
        for columns in sets:
            away = tuple(axis for axis, c in enumerate(group) if c not in columns)
            tables[columns] = wide.sum(axis=away) if away else wide
    return tables


def _pass(
    places: _Places,
    groups: Sequence[Columns],
    weights: np.ndarray | None,
    piece: int,
    kind: type,
) -> dict[Columns, np.ndarray]:
    """One reading of the rows, in pieces, that counts these groups."""
    number = np.int64 if weights is None else np.float64
    totals = {group: np.zeros(places.cells(group), number) for group in groups}
    used = {c for group in groups for c in group}
    for start in range(0, len(places.rows), piece) if groups else ():
        part = slice(start, start + piece)
        codes = {c: places.codes(c, part, kind) for c in used}
        heavy = None if weights is None else weights[part]
        for group, total in totals.items():
            index = codes[group[0]]
            for c in group[1:]:
                index = index * kind(places.sizes[c]) + codes[c]
            total += np.bincount(index, heavy, len(total))
    return totals
