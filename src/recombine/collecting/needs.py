"""What is still to be covered: every interaction as one cell of a long row of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from recombine.collecting.goals import Space
from recombine.collecting.permits import Permits
from recombine.errors import InvalidRequest, unknown
from recombine.tables.rows import NONE, Rows

MOST_STRENGTH = 4
MOST_CELLS = 2**26


@dataclass(frozen=True, eq=False)
class Interactions:
    """The choices of t places of a combination, and where the cells of each choice lie.

    Choices of fewer places than others are filled up with one past the last place. `canon` sends
    the cells of lists to those with ascending values; the last cell stands for "nothing".
    """

    space: Space
    chosen: Int[np.ndarray, "choice most"]
    base: Int[np.ndarray, "choice"]
    strides: Int[np.ndarray, "choice most"]
    tables: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    size: int
    canon: Int[np.ndarray, "cell"] | None

    def cells(
        self, matrix: Int[np.ndarray, "row place"], which: np.ndarray | slice = slice(None)
    ) -> Int[np.ndarray, "row choice"]:
        """The cell of each row in each choice of places (or in some of them)."""
        chosen, strides = self.chosen[which], self.strides[which]
        padded = np.concatenate([matrix, np.zeros((len(matrix), 1), matrix.dtype)], axis=1)
        found = np.broadcast_to(self.base[which], (len(matrix), len(chosen))).copy()
        for i in range(chosen.shape[1]):
            found += padded[:, chosen[:, i]] * strides[:, i]
        if self.canon is not None:
            empty = np.zeros(found.shape, bool)
            for i in range(chosen.shape[1]):
                empty |= padded[:, chosen[:, i]] == NONE
            found = self.canon[np.where(empty, self.size - 1, found)]
        return found

    @cached_property
    def holding(self) -> list[np.ndarray]:
        """The choices that each place is part of."""
        count = len(self.space.places)
        return [np.flatnonzero((self.chosen == place).any(1)) for place in range(count)]

    @cached_property
    def table_of(self) -> Int[np.ndarray, "choice"]:
        """The table in which each choice of places has its cells."""
        return np.searchsorted(np.array(self.starts), self.base, side="right") - 1

    def codes(self, choice: int, cells: np.ndarray) -> Int[np.ndarray, "cell place"]:
        """The values, one a place, that cells of a choice stand for."""
        table = self.tables[self.table_of[choice]]
        shape = [self.space.sizes[f] for f in table]
        return np.stack(np.unravel_index(cells - self.base[choice], shape), axis=1)


def interactions(
    space: Space, strength: int, groups: Mapping[tuple[str, ...], int] | None = None
) -> Interactions:
    """All interactions of `strength` factors, and of more (or fewer) within groups of factors.

    >>> space = Space(("a", "b", "c"), (("x", "y"),) * 3)
    >>> found = interactions(space, 2)
    >>> len(found.tables), found.size
    (3, 13)
    """
    everywhere = tuple(range(len(space.places)))
    wanted: set[tuple[int, ...]] = set()
    for places, order, what in _asked(space, everywhere, strength, groups or {}):
        if not 1 <= order <= MOST_STRENGTH:
            raise InvalidRequest(
                f"strength {order} of {what}: expected a number from 1 to {MOST_STRENGTH}"
            )
        if order > len(places):
            raise InvalidRequest(
                f"strength {order} of {what}: there are only {len(places)} places; expected "
                f"{len(places)} or less"
            )
        wanted.update(itertools.combinations(places, order))
    # Covering a triple covers its pairs.
    for large in [w for w in wanted if len(w) > 1]:
        for fewer in range(1, len(large)):
            wanted.difference_update(itertools.combinations(large, fewer))
    most = max(len(w) for w in wanted)
    choices = sorted(wanted, key=lambda w: (len(w), w))
    starts: dict[tuple[int, ...], int] = {}
    total = 0
    for choice in choices:
        table = tuple(int(space.places[p]) for p in choice)
        if table not in starts:
            starts[table] = total
            total += int(np.prod([space.sizes[f] for f in table], dtype=object))
    if total > MOST_CELLS:
        raise InvalidRequest(
            f"{total:,} interactions are more than {MOST_CELLS:,}: lower the strength, name fewer "
            "factors, or group rare values"
        )
    chosen = np.full((len(choices), most), len(space.places))
    strides = np.zeros((len(choices), most), np.int64)
    base = np.zeros(len(choices), np.int64)
    for i, choice in enumerate(choices):
        table = tuple(int(space.places[p]) for p in choice)
        sizes = [space.sizes[f] for f in table]
        chosen[i, : len(choice)] = choice
        strides[i, : len(choice)] = [int(np.prod(sizes[j + 1 :])) for j in range(len(choice))]
        base[i] = starts[table]
    return Interactions(
        space, chosen, base, strides, tuple(starts), tuple(starts.values()), total + 1,
        _canon(space, starts, total) if space.lists else None,
    )  # fmt: skip


def _asked(
    space: Space, everywhere: tuple[int, ...], strength: int, groups: Mapping[tuple[str, ...], int]
) -> Iterable[tuple[tuple[int, ...], int, str]]:
    yield everywhere, strength, "all factors"
    for names, order in groups.items():
        for name in names:
            if name not in space.names:
                raise unknown("factor", name, space.names)
        factors = [space.names.index(name) for name in names]
        places = tuple(int(p) for p in np.flatnonzero(np.isin(space.places, factors)))
        yield places, order, f"the group {','.join(names)}"


def _canon(space: Space, starts: Mapping[tuple[int, ...], int], total: int) -> np.ndarray:
    canon = np.arange(total + 1)
    for table, start in starts.items():
        if len(set(table)) == len(table):
            continue
        shape = [space.sizes[f] for f in table]
        codes = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape))
        same = np.zeros(codes.shape[1], bool)
        for factor in set(table):
            axes = [a for a, f in enumerate(table) if f == factor]
            codes[axes] = np.sort(codes[axes], axis=0)
            same |= (np.diff(codes[axes], axis=0) == 0).any(0)
        place = start + np.asarray(np.ravel_multi_index(tuple(codes), shape))
        canon[start : start + len(place)] = np.where(same, total, place)
    return canon


def counted(
    rows: Rows | None,
    tables: Iterable[tuple[int, ...]],
    weights: Float[np.ndarray, "row"] | None = None,
) -> dict[tuple[int, ...], np.ndarray]:
    """How many rows each interaction has, table by table; a table without any may lack."""
    from recombine.tables.counting import count, count_all, projections

    found: dict[tuple[int, ...], np.ndarray] = {}
    if rows is None:
        return found
    wanted = set(tables)
    for order in {len(table) for table in wanted}:
        there = wanted & set(projections(rows, order))
        if 2 * len(there) > len(projections(rows, order)):  # one pass counts them all
            every = count_all(rows, order, weights=weights)
            found.update((table, counts) for table, counts in every if table in there)
        else:
            found.update((table, count(rows, table, weights)) for table in there)
    return found


@dataclass(frozen=True, eq=False)
class Needs:
    """How many rows each interaction lacks, and what each is worth."""

    interactions: Interactions
    lack: Int[np.ndarray, "cell"]
    weight: Float[np.ndarray, "cell"]
    possible: int  # interactions that can occur and count
    covered: int  # of these, with enough rows before anything is collected


def needs(
    found: Interactions,
    permits: Permits,
    rows: Rows | None,
    *,
    min_count: int = 1,
    target: Rows | None = None,
    target_weights: Float[np.ndarray, "row"] | None = None,
) -> Needs:
    """What rows lack of each possible interaction, weighted by the traffic of the target.

    Both tables must have the values of the space. Without a target each interaction counts 1;
    with one it counts its share of the traffic, and what has no traffic is not asked for.
    """
    have_of = counted(rows, found.tables)
    traffic_of = counted(target, found.tables, target_weights)
    lack = np.zeros(found.size, np.int64)
    weight = np.zeros(found.size)
    possible = covered = 0
    for table, start in zip(found.tables, found.starts, strict=True):
        can = permits.possible(table).ravel()
        part = slice(start, start + len(can))
        have = have_of[table].ravel() if table in have_of else np.zeros(len(can))
        if target is not None:
            none = np.zeros(len(can))
            traffic = traffic_of[table].ravel().astype(float) if table in traffic_of else none
            weight[part] = np.where(can, traffic / max(traffic.sum(), 1e-300), 0.0)
        else:
            weight[part] = can
        asked = can & (weight[part] > 0)
        lack[part] = np.where(asked, np.maximum(min_count - have, 0), 0)
        possible += int(asked.sum())
        covered += int((asked & (have >= min_count)).sum())
    return Needs(found, lack, weight, possible, covered)
