"""Rows of a user's data, coded: factors as small numbers, other columns as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest, unknown

MISSING, OTHER = "(missing)", "(other)"
NONE = -1  # the code after the last value of a list that is shorter than others


@dataclass(frozen=True, eq=False)
class Factor:
    """A column whose values combine with those of other factors.

    `codes` has one number per row, the place of its value in `values`. A column that holds lists
    (a set of modules, K of M) has one line of codes per row, ascending and without repetition,
    filled up with -1. `rule` says in words how the values were made of what the file holds.
    """

    name: str
    values: tuple[str, ...]
    codes: np.ndarray
    rule: str = "as written"

    def __post_init__(self) -> None:
        if self.codes.ndim not in (1, 2):
            raise InvalidRequest(
                f"factor {self.name!r}: codes have {self.codes.ndim} axes, expected (rows,), or "
                "(rows, most) for lists"
            )

    @property
    def many(self) -> bool:
        """Whether a row may hold several values."""
        return self.codes.ndim == 2

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Rows:
    """Coded rows: the factors, and the other columns that were asked for.

    Numbers among `columns` are float64 with NaN for what is missing; anything else is text, with
    "" for what is missing. Rows are numbered from 1 in the order of the file, or named by `ids`.
    `left_out` are columns that nobody named and that are no factors, for they only name rows.

    >>> rows = Rows("toy", (Factor("colour", ("red", "blue"), np.array([0, 1, 1])),))
    >>> len(rows), rows.name_of([2]), rows.factor("colour").size
    (3, ['3'], 2)
    """

    source: str
    factors: tuple[Factor, ...]
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    ids: np.ndarray | None = None
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.factors:
            raise InvalidRequest(f"{self.source}: no factors; name some columns that combine")
        names = self.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidRequest(f"{self.source}: the factor {twice[0]!r} is named twice")
        lengths = {len(f.codes) for f in self.factors} | {len(c) for c in self.columns.values()}
        if self.ids is not None:
            lengths.add(len(self.ids))
        if len(lengths) > 1:
            raise InvalidRequest(f"{self.source}: columns differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.factors[0].codes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(factor.name for factor in self.factors)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each factor has."""
        return tuple(factor.size for factor in self.factors)

    def factor(self, name: str) -> Factor:
        if name not in self.names:
            raise unknown(f"factor of {self.source}", name, self.names)
        return self.factors[self.names.index(name)]

    def column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise unknown(f"column of {self.source}", name, tuple(self.columns))
        return self.columns[name]

    def take(self, places: Sequence[int] | np.ndarray) -> Rows:
        """Some of the rows (places from 0, or a mask); they keep their numbers or names."""
        where = np.asarray(places)
        where = np.flatnonzero(where) if where.dtype == bool else where.astype(np.int64)
        return replace(
            self,
            factors=tuple(replace(f, codes=f.codes[where]) for f in self.factors),
            columns={name: column[where] for name, column in self.columns.items()},
            ids=where + 1 if self.ids is None else self.ids[where],
        )

    def name_of(self, places: Sequence[int] | np.ndarray) -> list[str]:
        """What to call these rows (places from 0) so that a user finds them in the file."""
        return [str(p + 1) if self.ids is None else str(self.ids[p]) for p in places]

    def matrix(self) -> Int[np.ndarray, "row place"]:
        """All codes side by side: a list column takes as many places as its longest list."""
        columns = [f.codes if f.many else f.codes[:, None] for f in self.factors]
        return np.concatenate([column.astype(np.int64) for column in columns], axis=1)

    def label(self, assignment: Mapping[int, int | Sequence[int]]) -> str:
        """A part of a combination in words, such as "colour=red, shape=cube".

        Keys are places of factors, values are codes (several for a list column).
        """
        words = []
        for place, codes in assignment.items():
            factor = self.factors[place]
            several = [codes] if isinstance(codes, int | np.integer) else list(codes)
            text = " and ".join(factor.values[code] for code in several if code != NONE)
            words.append(f"{factor.name}={text}")
        return ", ".join(words)


def aligned(*tables: Rows) -> list[Rows]:
    """The same rows with values in common: the first table's in its order, then what is new.

    Tables without a factor that the first has are refused; further factors are dropped.

    >>> a = Rows("a", (Factor("x", ("p", "q"), np.array([0, 1])),))
    >>> b = Rows("b", (Factor("x", ("r", "q"), np.array([0, 1])),))
    >>> [rows.factors[0].values for rows in aligned(a, b)]
    [('p', 'q', 'r'), ('p', 'q', 'r')]
    >>> aligned(a, b)[1].factors[0].codes.tolist()
    [2, 1]
    """
    first = tables[0]
    together: list[list[Factor]] = [[] for _ in tables]
    for name in first.names:
        same = [table.factor(name) for table in tables]
        if len({factor.many for factor in same}) > 1:
            raise InvalidRequest(f"factor {name!r} holds lists in one table and not in another")
        values = tuple(dict.fromkeys(value for factor in same for value in factor.values))
        place = {value: code for code, value in enumerate(values)}
        for kept, factor in zip(together, same, strict=True):
            if factor.values == values[: factor.size]:  # codes may be many, and on the disk
                kept.append(replace(factor, values=values))
                continue
            # The last entry serves -1, the end of a list.
            kind = np.int32 if factor.many else smallest(len(values))
            table = np.array([*(place[value] for value in factor.values), NONE]).astype(kind)
            codes = table[factor.codes]
            kept.append(replace(factor, values=values, codes=ascending(codes, len(values))))
    return [replace(t, factors=tuple(f)) for t, f in zip(tables, together, strict=True)]


def ascending(codes: np.ndarray, values: int) -> np.ndarray:
    """The codes of lists in ascending order with the fill at the end; other codes as they are."""
    if codes.ndim == 1:
        return codes
    ordered = np.sort(np.where(codes == NONE, values, codes), axis=1)
    return np.where(ordered == values, NONE, ordered).astype(codes.dtype)


def smallest(values: int) -> type[np.unsignedinteger]:
    """The smallest type of number that codes so many values."""
    return next(kind for kind in (np.uint8, np.uint16, np.uint32) if values <= np.iinfo(kind).max)
