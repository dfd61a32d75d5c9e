"""What a plan may choose from and what it is for: the space of combinations, and the goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.errors import InvalidRequest, unknown
from recombine.tables.rows import MISSING, NONE, OTHER, Factor, Rows, ascending, smallest

GOALS = ("cover", "connect", "balance")


@dataclass(frozen=True)
class Space:
    """All combinations there could be: the factors, their values, and how long lists are.

    `lists` names the factors that hold several values at once, with how many a new combination
    holds. A combination has one place for each factor, and for a list as many as it is long.

    >>> space = Space(("colour", "shape"), (("red", "blue"), ("cube", "ball", "cone")))
    >>> space.sizes, space.size
    ((2, 3), 6)
    """

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    lists: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.names) != len(self.values) or not self.names:
            raise InvalidRequest(
                f"{len(self.names)} factors and {len(self.values)} lists of values: expected as "
                "many of both, and at least one"
            )
        for name, values in zip(self.names, self.values, strict=True):
            if not values:
                raise InvalidRequest(f"factor {name!r} has no values: name some for it")
            if len(set(values)) < len(values) or self.names.count(name) > 1:
                raise InvalidRequest(f"factor {name!r} or one of its values is named twice")
        for name, longest in self.lists.items():
            if name not in self.names:
                raise unknown("list factor", name, self.names)
            if not 1 <= longest <= len(self.values[self.names.index(name)]):
                raise InvalidRequest(
                    f"lists of {name!r} cannot hold {longest} different values: expected 1 to "
                    f"{len(self.values[self.names.index(name)])}"
                )

    @staticmethod
    def of(rows: Rows, more: Mapping[str, Sequence[str]] | None = None) -> Space:
        """The space of a table, with `more` values that the table lacks."""
        for name in more or {}:
            if name not in rows.names:
                raise unknown(f"factor of {rows.source}", name, rows.names)
        values = tuple(
            tuple(dict.fromkeys((*factor.values, *(more or {}).get(factor.name, ()))))
            for factor in rows.factors
        )
        longest = {
            f.name: max(1, int((f.codes != NONE).sum(1).max(initial=0)))
            for f in rows.factors
            if f.many
        }
        return Space(rows.names, values, longest)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each factor has."""
        return tuple(len(values) for values in self.values)

    @cached_property
    def places(self) -> Int[np.ndarray, "place"]:
        """The factor of each place of a combination."""
        return np.repeat(np.arange(len(self.names)), [self.lists.get(n, 1) for n in self.names])

    @cached_property
    def first_node(self) -> Int[np.ndarray, "factor"]:
        """Where each factor's values begin when the values of all are numbered in a row."""
        return np.concatenate([[0], np.cumsum(self.sizes)])[:-1]

    @cached_property
    def can_collect(self) -> Bool[np.ndarray, "node"]:
        """Which values a new row can have: nobody can go and collect a missing one."""
        return np.array([v not in (MISSING, OTHER) for values in self.values for v in values])

    @property
    def size(self) -> int:
        """How many combinations there are, with lists as long as they may be."""
        total = 1
        for name, values in zip(self.names, self.values, strict=True):
            longest = self.lists.get(name, 1)
            for i in range(longest):
                total = total * (len(values) - i) // (i + 1)
        return total

    def nodes(self, matrix: Int[np.ndarray, "row place"]) -> Int[np.ndarray, "row place"]:
        """The number of each value among all; -1 where there is none."""
        return np.where(matrix == NONE, NONE, matrix + self.first_node[self.places])

    def code(self, name: str, value: str) -> tuple[int, int]:
        """The places of a factor and of one of its values."""
        if name not in self.names:
            raise unknown("factor", name, self.names)
        place = self.names.index(name)
        if value not in self.values[place]:
            raise unknown(f"value of {name}", value, self.values[place])
        return place, self.values[place].index(value)

    def as_rows(self, matrix: Int[np.ndarray, "row place"], source: str) -> Rows:
        """Combinations (one code a place) as a table of rows."""
        factors = []
        for place, (name, values) in enumerate(zip(self.names, self.values, strict=True)):
            codes = matrix[:, self.places == place]
            if name in self.lists:
                codes = ascending(codes.astype(np.int32), len(values))
            else:
                codes = codes[:, 0].astype(smallest(len(values)))
            factors.append(Factor(name, values, codes))
        return Rows(source, tuple(factors))

    def named(self, line: Sequence[int] | np.ndarray) -> dict[str, str | list[str]]:
        """One combination in words: a value for each factor, a list of them for a list."""
        found: dict[str, str | list[str]] = {}
        for place, name in enumerate(self.names):
            codes = sorted(int(c) for c, p in zip(line, self.places, strict=True) if p == place)
            words = [self.values[place][c] for c in codes if c != NONE]
            found[name] = words if name in self.lists else words[0]
        return found

    def node_costs(self, costs: Mapping[str, Mapping[str, float]]) -> Float[np.ndarray, "node"]:
        """What each value adds to the cost of a row."""
        found = np.zeros(sum(self.sizes))
        for name, prices in costs.items():
            for value, price in prices.items():
                place, code = self.code(name, value)
                if not (np.isfinite(price) and price >= 0):
                    raise InvalidRequest(
                        f"the cost of {name}:{value} is {price:g}: expected a number of at least 0"
                    )
                found[self.first_node[place] + code] = price
        return found


@dataclass(frozen=True)
class Goals:
    """What new combinations are for, by weight or by order.

    Each goal is measured as a share: of what is not covered yet, of the parts of the value graph
    still to be joined, of what balance the budget could add. The weights say what one share is
    worth against another. With an `order`, a later goal only decides between combinations that
    are equal in the earlier ones.

    >>> Goals(order=("connect", "cover")).words
    'connect first, then cover'
    """

    cover: float = 1.0
    connect: float = 1.0
    balance: float = 0.001
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.order:
            if name not in GOALS:
                raise unknown("goal", name, GOALS)
        if len(set(self.order)) < len(self.order):
            raise InvalidRequest(f"goals {', '.join(self.order)}: expected each once")
        weights = [self.cover, self.connect, self.balance]
        if not all(np.isfinite(w) and w >= 0 for w in weights) or not sum(weights):
            raise InvalidRequest(
                f"weights of goals {weights}: expected numbers of at least 0, and one above 0"
            )

    @property
    def asked(self) -> tuple[str, ...]:
        """The goals that count at all, in their order.

        >>> Goals(connect=0).asked
        ('cover', 'balance')
        """
        return self.order or tuple(name for name in GOALS if getattr(self, name))

    @property
    def words(self) -> str:
        """The goals in words."""
        if self.order:
            return ", then ".join([f"{self.order[0]} first", *self.order[1:]])
        return ", ".join(f"{name} {getattr(self, name):g}" for name in GOALS)

    def weights(self, smallest_gain: Mapping[str, float]) -> dict[str, float]:
        """The weight of each goal; those of an order make a later one lose against any gain."""
        if not self.order:
            return {name: float(getattr(self, name)) for name in GOALS}
        found: dict[str, float] = dict.fromkeys(GOALS, 0.0)
        weight = 1.0
        for name in self.order:
            found[name] = weight
            weight *= smallest_gain[name] / 2
        return found
