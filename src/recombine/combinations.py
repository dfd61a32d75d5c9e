"""Which modules a task uses: every combination has a rank, and none is listed unless asked for.

Two spaces share one interface (`Space`): `Subsets`, up to K of M modules, and `Slots`, one value
per factor. Ranks are uint32 on the host and on the device.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, UInt32
from numpy.typing import ArrayLike, DTypeLike

from recombine._device_ranks import NO_RANK as NO_RANK
from recombine._device_ranks import binomials, pad_offsets, unrank_on_device
from recombine._device_ranks import rank_on_device as rank_on_device
from recombine.checks import at_least, is_whole
from recombine.errors import InvalidRequest

if TYPE_CHECKING:
    from jaxtyping import Array

BLOCK = 1 << 18
"""Rows handled at a time, so that a pass over millions of combinations stays small in memory."""


class Space(abc.ABC):
    """All the combinations a family can make, numbered from 0 to `size` - 1."""

    modules: int
    active: int

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many combinations there are."""

    @property
    @abc.abstractmethod
    def together(self) -> Int[np.ndarray, "modules modules"]:
        """In how many combinations two modules meet; the diagonal counts each module."""

    @property
    @abc.abstractmethod
    def fewest_connected(self) -> int | None:
        """The fewest combinations that can connect all modules; None if no number can."""

    @abc.abstractmethod
    def sizes(self, ranks: ArrayLike) -> Int[np.ndarray, " n"]:
        """How many modules each combination uses."""

    @abc.abstractmethod
    def unrank(self, ranks: ArrayLike) -> Int[np.ndarray, "n active"]:
        """The modules of each combination, ascending, padded at the end with -1."""

    @abc.abstractmethod
    def rank(self, members: ArrayLike) -> UInt32[np.ndarray, " n"]:
        """The inverse of `unrank`; rows may be unsorted and padded with -1 anywhere."""

    @abc.abstractmethod
    def spanning(self, rng: np.random.Generator) -> UInt32[np.ndarray, " n"]:
        """A random set of `fewest_connected` combinations that connects all modules."""

    def indicator(self, ranks: ArrayLike) -> Bool[np.ndarray, "n modules"]:
        """One row a combination, True where a module is active."""
        members = self.unrank(ranks)
        rows = np.zeros((len(members), self.modules + 1), bool)
        rows[np.arange(len(members))[:, None], members] = True  # -1 lands in the spare last column
        return rows[:, :-1]

    @abc.abstractmethod
    def device_offsets(self, active_pad: int) -> UInt32[np.ndarray, " offsets"]:
        """What `indicator_on_device` needs to know of this space, as data.

        Spaces that share one compiled program may differ in it; `active_pad` is the program's own
        `active`.
        """

    @abc.abstractmethod
    def indicator_on_device(
        self, ranks: UInt32[Array, " n"], offsets: UInt32[Array, " offsets"]
    ) -> Bool[Array, "n modules"]:
        """`indicator` inside jit or vmap; `NO_RANK` gives an empty row.

        `offsets` are the `device_offsets` of this space, or of a smaller one padded to this one.
        """

    def describe(self, rank: int) -> tuple[int, ...]:
        """The modules of one combination."""
        return tuple(int(module) for module in self.unrank([rank])[0] if module >= 0)


@dataclass(frozen=True)
class Subsets(Space):
    """All subsets of 1..`active` of `modules` modules.

    Ordered by size, then colexicographically: within a size, a rank does not depend on `modules`,
    so one compiled program can serve spaces padded to a common number of modules.

    >>> space = Subsets(modules=16, active=3)
    >>> space.size, space.describe(135), int(space.rank([[14, 15]])[0])
    (696, (14, 15), 135)
    """

    modules: int
    active: int

    def __post_init__(self) -> None:
        at_least(self, modules=1, active=1)
        if self.active > self.modules:
            raise InvalidRequest(
                f"active={self.active} of modules={self.modules}: a task cannot use more modules "
                f"than there are; use active={self.modules} or less"
            )
        _check_size(self.size, f"subsets of 1..{self.active} of {self.modules} modules")

    @property
    def size(self) -> int:
        return subset_count(self.modules, self.active)

    @cached_property
    def offsets(self) -> UInt32[np.ndarray, " active+1"]:
        """The rank of the first subset with h members at index h - 1; `size` comes last."""
        counts = [self.count(members) for members in range(1, self.active + 1)]
        return _frozen(np.cumsum([0, *counts]).astype(np.uint32))

    @property
    def together(self) -> Int[np.ndarray, "modules modules"]:
        alone = sum(math.comb(self.modules - 1, h - 1) for h in range(1, self.active + 1))
        paired = sum(math.comb(self.modules - 2, h - 2) for h in range(2, self.active + 1))
        counts = np.full((self.modules, self.modules), paired, np.int64)
        np.fill_diagonal(counts, alone)
        return counts

    @property
    def fewest_connected(self) -> int | None:
        if self.modules == 1:
            return 1
        if self.active == 1:
            return None
        return -(-(self.modules - 1) // (self.active - 1))

    def count(self, members: int) -> int:
        """How many combinations have exactly this many members."""
        return math.comb(self.modules, members) if 1 <= members <= self.active else 0

    def sizes(self, ranks: ArrayLike) -> Int[np.ndarray, " n"]:
        ranks = _check_ranks(ranks, self.size)
        return np.searchsorted(self.offsets, ranks, side="right").astype(np.int16)

    def unrank(self, ranks: ArrayLike) -> Int[np.ndarray, "n active"]:
        ranks = _check_ranks(ranks, self.size)
        members = np.full((len(ranks), self.active), -1, _index_type(self.modules))
        table = binomials(self.modules, self.active)
        offsets = self.offsets.astype(np.int64)
        for block in blocks(len(ranks)):
            sizes = np.searchsorted(self.offsets, ranks[block], side="right")
            rest = ranks[block].astype(np.int64) - offsets[sizes - 1]
            for place in range(self.active, 0, -1):
                # The largest member is the last module whose binomial still fits in the rest.
                member = np.searchsorted(table[place, :-1], rest, side="right") - 1
                member = np.where(sizes >= place, member, -1)
                rest -= table[place, member]
                members[block, place - 1] = member
        return members

    def rank(self, members: ArrayLike) -> UInt32[np.ndarray, " n"]:
        rows = np.asarray(members)
        if rows.ndim != 2 or not (np.issubdtype(rows.dtype, np.integer) or rows.size == 0):
            raise InvalidRequest(
                f"members of shape {rows.shape}: expected one row a combination: [[0, 3], [2, -1]]"
            )
        table = binomials(self.modules, self.active)
        offsets = self.offsets.astype(np.int64)
        ranks = np.empty(len(rows), np.uint32)
        for block in blocks(len(rows)):
            part = np.sort(rows[block], axis=1)
            _check_members(part, self.modules, self.active)
            sizes = np.count_nonzero(part >= 0, axis=1)
            total = offsets[sizes - 1]
            for column in range(part.shape[1]):
                place = np.maximum(sizes - part.shape[1] + column + 1, 0)
                total = total + table[place, part[:, column]]
            ranks[block] = total
        return ranks

    def spanning(self, rng: np.random.Generator) -> UInt32[np.ndarray, " n"]:
        fewest = self.fewest_connected
        if fewest is None:
            raise InvalidRequest("one module at a time connects nothing; use active=2 or more")
        order = rng.permutation(self.modules)
        rows = np.full((fewest, self.active), -1)
        rows[0] = order[: self.active]
        width = max(1, self.active - 1)
        for row, start in enumerate(range(self.active, self.modules, width), 1):
            fresh = order[start : start + width]
            rows[row, 0] = order[rng.integers(start)]
            rows[row, 1 : 1 + len(fresh)] = fresh
        return self.rank(rows)

    def device_offsets(self, active_pad: int) -> UInt32[np.ndarray, " offsets"]:
        return pad_offsets(self.offsets, active_pad)

    def indicator_on_device(
        self, ranks: UInt32[Array, " n"], offsets: UInt32[Array, " offsets"]
    ) -> Bool[Array, "n modules"]:
        return unrank_on_device(ranks, offsets, self.modules, self.active)


@dataclass(frozen=True)
class Slots(Space):
    """One value for each factor; a module is a (factor, value) pair, numbered factor by factor.

    >>> space = Slots(levels=(4, 5, 5, 5))
    >>> space.size, space.modules, space.describe(1)
    (500, 19, (0, 4, 9, 15))
    """

    levels: tuple[int, ...]
    modules: int = field(init=False)
    active: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        good = all(is_whole(n) and n >= 1 for n in self.levels)
        if not self.levels or not good:
            raise InvalidRequest(
                f"levels={self.levels!r}: expected the number of values of each factor, "
                f"such as (4, 5, 5, 5)"
            )
        object.__setattr__(self, "modules", sum(self.levels))
        object.__setattr__(self, "active", len(self.levels))
        _check_size(self.size, f"combinations of {len(self.levels)} factors")

    @property
    def size(self) -> int:
        return math.prod(self.levels)

    @cached_property
    def starts(self) -> Int[np.ndarray, " factors"]:
        """The module number of each factor's first value."""
        return _frozen(np.cumsum([0, *self.levels[:-1]]))

    @cached_property
    def factors(self) -> Int[np.ndarray, " modules"]:
        """The factor each module belongs to."""
        return _frozen(np.repeat(np.arange(self.active), self.levels))

    @property
    def together(self) -> Int[np.ndarray, "modules modules"]:
        levels = np.asarray(self.levels, np.int64)[self.factors]
        counts = self.size // (levels[:, None] * levels[None, :])
        counts[self.factors[:, None] == self.factors[None, :]] = 0
        np.fill_diagonal(counts, self.size // levels)
        return counts

    @property
    def fewest_connected(self) -> int | None:
        if self.active == 1:
            return 1 if self.modules == 1 else None
        # Each combination after the first can bring a new value of all factors but one.
        return max(*self.levels, -(-(self.modules - 1) // (self.active - 1)))

    def sizes(self, ranks: ArrayLike) -> Int[np.ndarray, " n"]:
        return np.full(len(_check_ranks(ranks, self.size)), self.active, np.int16)

    def values(self, ranks: ArrayLike) -> Int[np.ndarray, "n factors"]:
        """The value of each factor; the last factor changes fastest."""
        ranks = _check_ranks(ranks, self.size)
        return np.stack(np.unravel_index(ranks, self.levels), axis=1)

    def unrank(self, ranks: ArrayLike) -> Int[np.ndarray, "n active"]:
        return (self.values(ranks) + self.starts).astype(_index_type(self.modules))

    def rank(self, members: ArrayLike) -> UInt32[np.ndarray, " n"]:
        rows = np.sort(np.asarray(members), axis=1)
        inside = rows.shape[1:] == (self.active,) and np.issubdtype(rows.dtype, np.integer)
        if inside:
            inside = bool(np.all((rows >= self.starts) & (rows < self.starts + self.levels)))
        if not inside:
            raise InvalidRequest(f"a combination needs one module of each of {self.levels} values")
        digits = tuple((rows - self.starts).T)
        return np.asarray(np.ravel_multi_index(digits, self.levels), np.uint32)

    def spanning(self, rng: np.random.Generator) -> UInt32[np.ndarray, " n"]:
        if self.fewest_connected is None:
            raise InvalidRequest(f"one factor of {self.levels[0]} values connects nothing")
        orders = [rng.permutation(n) for n in self.levels]
        used = np.ones(self.active, int)
        rows = [[int(order[0]) for order in orders]]
        while np.any(used < self.levels):
            # Longest queue first, and one factor held back to link with what is there already.
            queue = np.lexsort((rng.random(self.active), used - np.asarray(self.levels)))
            fresh = {int(f) for f in queue[: self.active - 1] if used[f] < self.levels[f]}
            picks = [used[f] if f in fresh else rng.integers(used[f]) for f in range(self.active)]
            rows.append([int(order[pick]) for order, pick in zip(orders, picks, strict=True)])
            used[list(fresh)] += 1
        return self.rank(np.asarray(rows) + self.starts)

    def device_offsets(self, active_pad: int) -> UInt32[np.ndarray, " offsets"]:
        return np.zeros(1, np.uint32)  # the levels are part of the program

    def indicator_on_device(
        self, ranks: UInt32[Array, " n"], offsets: UInt32[Array, " offsets"]
    ) -> Bool[Array, "n modules"]:
        import jax.numpy as jnp

        levels = np.asarray(self.levels, np.uint32)
        strides = [math.prod(self.levels[factor + 1 :]) for factor in range(self.active)]
        values = ranks[:, None] // np.asarray(strides, np.uint32) % levels
        own = (np.arange(self.modules) - self.starts[self.factors]).astype(np.uint32)
        inside = ranks < jnp.uint32(self.size)
        return (values[:, self.factors] == own) & inside[:, None]


@functools.lru_cache(maxsize=4096)
def subset_count(modules: int, active: int) -> int:
    """The number of subsets of 1..`active` of `modules` modules; 0 of no modules.

    >>> subset_count(32, 7)
    4514872
    """
    return sum(math.comb(modules, members) for members in range(1, active + 1))


def blocks(rows: int, block: int = BLOCK) -> Iterator[slice]:
    """Slices that cover `rows` rows, `block` at a time."""
    return (slice(start, min(start + block, rows)) for start in range(0, rows, block))


def _check_ranks(ranks: ArrayLike, size: int) -> np.ndarray:
    given = np.asarray(ranks)
    if given.ndim != 1 or not (np.issubdtype(given.dtype, np.integer) or given.size == 0):
        raise InvalidRequest(f"ranks of shape {given.shape}, type {given.dtype}: expected integers")
    if given.size and (given.min() < 0 or given.max() >= size):
        raise InvalidRequest(f"ranks from {given.min()} to {given.max()}: expected 0 to {size - 1}")
    return given.astype(np.uint32, copy=False)


def _check_members(rows: np.ndarray, modules: int, active: int) -> None:
    """Refuses sorted rows that are no subset of 1..active modules."""
    sizes = np.count_nonzero(rows >= 0, axis=1)
    repeats = (rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] >= 0)
    outside = (rows < -1) | (rows >= modules)
    bad = (sizes < 1) | (sizes > active) | repeats.any(axis=1) | outside.any(axis=1)
    if bad.any():
        raise InvalidRequest(
            f"{rows[np.argmax(bad)].tolist()} is no combination: expected 1 to {active} different "
            f"modules from 0 to {modules - 1}, padded with -1"
        )


def _check_size(size: int, what: str) -> None:
    if size >= 2**32:
        raise InvalidRequest(
            f"{size} {what}: device ranks are uint32, so at most {2**32 - 1}; use fewer"
        )


def _index_type(modules: int) -> DTypeLike:
    return np.int8 if modules <= 127 else np.int16 if modules <= 32767 else np.int32


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
