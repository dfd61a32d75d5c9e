"""How far combinations are from what training saw, and how the values of a table hang together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Real

from recombine.tables.counting import (
    Combinations,
    cells,
    combination_keys,
    combinations,
    count,
    count_all,
    occurring,
    projections,
)
from recombine.tables.rows import NONE, Rows

LEVELS = ("seen", "new combination", "new triple", "new pair", "new value")
"""The levels of novelty, from the mildest on."""

MOST_COMPARISONS = 5 * 10**8
DENSE, PIECE = 2**22, 1 << 15
NEVER_SHORT = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Novelty:
    """How new each different combination is; one entry a combination in every array.

    - `level`: an index into `LEVELS`.
    - `pairs_new`, `triples_new`: how many of its pairs and triples no training row holds together.
    - `rarest_value`, `rarest_pair`: how many training rows hold its rarest value and its rarest
      pair (where it has no pair, its rarest value).
    - `nearest`: how many changes away the nearest trained combination is: factors to give another
      value, and values of a list to add or take away. -1 where it was not asked for, or nothing
      was trained. Where `nearest_exact` is false there were too many to compare, and it is the
      distance to the nearest of the most frequent ones, so the true one may be less.
    """

    combinations: Combinations
    level: Int[np.ndarray, " combination"]
    pairs_new: Int[np.ndarray, " combination"]
    triples_new: Int[np.ndarray, " combination"]
    rarest_value: Int[np.ndarray, " combination"]
    rarest_pair: Int[np.ndarray, " combination"]
    nearest: Int[np.ndarray, " combination"]
    nearest_exact: bool = True

    def by_row(self, of_combinations: np.ndarray) -> np.ndarray:
        """What holds for each combination (such as `level`), for each row."""
        return of_combinations[self.combinations.inverse]

    @property
    def row_level(self) -> Int[np.ndarray, " row"]:
        """The level of each row, an index into `LEVELS`."""
        return self.by_row(self.level)


def novelty(
    train: Rows, others: Rows, *, nearest: bool = True, limit: int = MOST_COMPARISONS
) -> Novelty:
    """The novelty of the combinations of other rows, which are aligned with the training rows.

    `nearest` compares each unseen combination with every trained one, or, where that makes more
    than `limit` comparisons, with the most frequent ones.

    >>> from recombine.tables.rows import Factor
    >>> def table(a, b):
    ...     return Rows("toy", (Factor("a", ("x", "y"), a), Factor("b", ("u", "v"), b)))
    >>> train = table(np.array([0, 0, 1]), np.array([0, 1, 1]))
    >>> found = novelty(train, table(np.array([1, 0]), np.array([0, 0])))
    >>> [LEVELS[level] for level in found.row_level]
    ['new pair', 'seen']
    """
    found = combinations(others)
    lines = [
        np.where(codes == NONE, factor.size, codes).astype(np.int32)
        for factor, codes in zip(others.factors, _lines(others, found.codes), strict=True)
    ]
    value, _ = _rarest(train, lines, 1)
    pair, pairs_new = _rarest(train, lines, 2)
    _, triples_new = _rarest(train, lines, 3, only_new=True)
    seen = _seen(train, others, found)
    level = np.select(
        [seen, value == 0, pairs_new > 0, triples_new > 0], [0, 4, 3, 2], default=1
    ).astype(np.int8)
    value[value == NEVER_SHORT] = len(train)
    near, exact = np.where(seen, 0, -1), True
    if nearest and len(train) and not seen.all():
        trained = combinations(train)
        most = max(limit // np.count_nonzero(~seen), 1)
        exact = bool(len(trained) <= most)
        known = trained.codes[np.argsort(-trained.counts, kind="stable")[:most]]
        near[~seen] = _nearest(train, known, others, found.codes[~seen])
    return Novelty(
        combinations=found,
        level=level,
        pairs_new=pairs_new,
        triples_new=triples_new,
        rarest_value=value,
        rarest_pair=np.where(pair == NEVER_SHORT, value, pair),
        nearest=near,
        nearest_exact=exact,
    )


@dataclass(frozen=True, eq=False)
class Components:
    """Which values hang together through the rows that hold them together.

    `labels` has one array a factor with the component of each value, the largest being 0; -1 for
    a value that no row holds. `connected` is whether all values that occur are in one component.
    """

    labels: tuple[Int[np.ndarray, " value"], ...]
    connected: bool

    @property
    def parts(self) -> list[list[tuple[int, int]]]:
        """The (factor, value) pairs of each component, the largest component first."""
        parts: dict[int, list[tuple[int, int]]] = {}
        for factor, labels in enumerate(self.labels):
            for value, label in enumerate(labels):
                parts.setdefault(int(label), []).append((factor, value))
        return [parts[label] for label in sorted(parts) if label >= 0]


@dataclass(frozen=True, eq=False)
class Links:
    """How many rows hold two values together, for all pairs that occur, and each value alone.

    With weights: how much the rows that hold them weigh. Values are numbered through: those of the
    first factor, then those of the second, and so on.
    """

    sizes: tuple[int, ...]
    ends: Int[np.ndarray, "link end"]
    counts: Real[np.ndarray, " link"]
    alone: Real[np.ndarray, " value"]

    @classmethod
    def of(cls, rows: Rows, weights: Float[np.ndarray, " row"] | None = None) -> Links:
        before = np.concatenate([[0], np.cumsum(rows.sizes)]).astype(np.int64)
        alone = np.concatenate([count(rows, (f,), weights) for f in range(len(rows.factors))])
        ends, counts = [np.zeros((0, 2), np.int64)], [np.zeros(0, alone.dtype)]

        def note(chosen: tuple[int, ...], found: np.ndarray, together: np.ndarray) -> None:
            ends.append(found + before[list(chosen)])
            counts.append(together)

        # All at once, since this takes few readings of the rows.
        for chosen, table in count_all(rows, 2, weights=weights, most_cells=DENSE):
            where = np.nonzero(table)
            note(chosen, np.stack(where, axis=1), table[where])
        for chosen in projections(rows, 2):
            if cells(rows, chosen) > DENSE:
                note(chosen, *occurring(rows, chosen, weights))
        return cls(rows.sizes, np.concatenate(ends), np.concatenate(counts), alone)

    def components(self, at_least: int = 1) -> Components:
        """The components, where a link is at least so many rows."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        kept, size = self.counts >= at_least, len(self.alone)
        a, b = self.ends[kept].T
        graph = coo_array((np.ones(len(a), bool), (a, b)), (size, size))
        _, found = connected_components(graph, directed=False)
        occurs = self.alone > 0
        held = np.bincount(found[occurs], minlength=found.max(initial=0) + 1)
        rank = np.empty(len(held), np.int64)
        rank[np.argsort(-held, kind="stable")] = np.arange(len(held))
        labels = np.where(occurs, rank[found], NONE)
        pieces = np.split(labels, np.cumsum(self.sizes)[:-1])
        return Components(tuple(pieces), bool(np.count_nonzero(held) <= 1))


def components(rows: Rows, at_least: int = 1) -> Components:
    """Which values are linked, directly or by way of others, by `at_least` rows that hold both.

    >>> from recombine.tables.rows import Factor
    >>> a = Factor("a", ("x", "y"), np.array([0, 1]))
    >>> b = Factor("b", ("u", "v"), np.array([0, 1]))
    >>> components(Rows("toy", (a, b))).parts
    [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    """
    return Links.of(rows).components(at_least)


def _lines(rows: Rows, codes: np.ndarray) -> list[np.ndarray]:
    """The codes of distinct combinations, one array a factor (two axes for lists)."""
    widths = [f.codes.shape[1] if f.many else 1 for f in rows.factors]
    parts = np.split(codes, np.cumsum(widths)[:-1], axis=1)
    return [p if f.many else p[:, 0] for f, p in zip(rows.factors, parts, strict=True)]


def _seen(train: Rows, others: Rows, found: Combinations) -> Bool[np.ndarray, " combination"]:
    """Which combinations training holds."""
    trained, keys = combination_keys(train, others)
    trained.sort()
    a_row = np.empty(len(found), np.int64)  # of each combination
    a_row[found.inverse] = np.arange(len(found.inverse))
    wanted = keys[a_row]
    place = np.searchsorted(trained, wanted)
    return np.append(trained, -1)[place] == wanted


def _rarest(
    train: Rows, lines: list[np.ndarray], t: int, only_new: bool = False
) -> tuple[Int[np.ndarray, " line"], Int[np.ndarray, " line"]]:
    """Of each combination's parts of t values: training rows of the rarest, how many are new.

    With `only_new` the first may be too high, and tables without an empty cell are passed over.
    """
    length = len(lines[0])
    rarest, new = np.full(length, NEVER_SHORT), np.zeros(length, np.int64)

    def note(part: slice, counts: np.ndarray) -> None:
        np.minimum(rarest[part], counts, out=rarest[part])
        new[part] += counts == 0

    for chosen, table in count_all(train, t, most_cells=DENSE):
        if only_new and table.all():
            continue
        # One more entry on each axis serves the ends of lists, which hold nothing and lack nothing.
        padded = np.pad(table, (0, 1), constant_values=NEVER_SHORT)
        for cell in _cells(lines, chosen):
            for start in range(0, length, PIECE):
                part = slice(start, start + PIECE)
                index = np.zeros((), np.int32)
                for codes, size in zip(cell, padded.shape, strict=True):
                    index = index * np.int32(size) + codes[part]
                note(part, padded.reshape(-1).take(index))
    known = set(projections(train, t))
    for chosen in _choices(lines, t):
        if chosen in known and cells(train, chosen) <= DENSE:
            continue
        for cell in _cells(lines, chosen):
            counts = _looked_up(train, chosen, cell) if chosen in known else 0
            ends = [codes == train.factors[f].size for f, codes in zip(chosen, cell, strict=True)]
            note(slice(None), np.where(np.logical_or.reduce(ends), NEVER_SHORT, counts))
    return rarest, new


def _looked_up(
    train: Rows, chosen: tuple[int, ...], cell: list[np.ndarray]
) -> Int[np.ndarray, " line"]:
    """The training counts of cells of a table that is too large to make."""
    found, counts = occurring(train, chosen)
    shape = [train.factors[f].size + 1 for f in chosen]
    # A last entry that matches nothing serves what comes after all others.
    keys = np.append(np.ravel_multi_index(list(found.T), shape), -1)
    key = np.ravel_multi_index(cell, shape)
    place = np.searchsorted(keys[:-1], key)
    return np.where(keys[place] == key, np.append(counts, 0)[place], 0)


def _choices(lines: list[np.ndarray], t: int) -> Iterator[tuple[int, ...]]:
    most = [codes.shape[1] if codes.ndim == 2 else 1 for codes in lines]
    for chosen in itertools.combinations_with_replacement(range(len(lines)), t):
        if all(chosen.count(f) <= most[f] for f in set(chosen)):
            yield chosen


def _cells(lines: list[np.ndarray], chosen: tuple[int, ...]) -> Iterator[list[np.ndarray]]:
    """The codes of the chosen factors, for every choice of places in their lists."""
    choices = [
        itertools.combinations(lines[f].T, chosen.count(f)) if lines[f].ndim == 2 else [(lines[f],)]
        for f in dict.fromkeys(chosen)
    ]
    for parts in itertools.product(*choices):
        yield list(itertools.chain(*parts))


def _nearest(
    train: Rows, trained: np.ndarray, others: Rows, codes: np.ndarray
) -> Int[np.ndarray, " combination"]:
    """The fewest changes between each combination and any trained one."""
    best = np.full(len(codes), np.iinfo(np.int16).max, np.int16)
    for begin in range(0, len(trained), 1 << 13):
        known = _lines(train, trained[begin : begin + (1 << 13)])
        for start in range(0, len(codes), 256):  # small enough to stay in the cache
            block = best[start : start + 256]
            mine = _lines(others, codes[start : start + 256])
            gaps = np.zeros((len(block), len(known[0])), np.int16)
            for factor, a, b in zip(train.factors, mine, known, strict=True):
                gaps += _apart(a, b, factor.size)
            np.minimum(block, gaps.min(axis=1), out=block)
    return best


def _apart(a: np.ndarray, b: np.ndarray, size: int) -> np.ndarray:
    """Whether two values differ, or how many values only one of two lists holds."""
    if a.ndim == 1:
        return a[:, None] != b
    mine, other = _held(a, size), _held(b, size)
    # Some BLAS kernels raise the flag of an invalid number for products of zeros and ones.
    with np.errstate(invalid="ignore"):
        shared = mine @ other.T
    return (mine.sum(axis=1)[:, None] + other.sum(axis=1) - 2 * shared).astype(np.int16)


def _held(codes: np.ndarray, size: int) -> Float32[np.ndarray, "line value"]:
    held = np.zeros((len(codes), size + 1), np.float32)
    np.put_along_axis(held, codes.astype(np.int64), 1, axis=1)  # -1 falls on the last
    return held[:, :size]
