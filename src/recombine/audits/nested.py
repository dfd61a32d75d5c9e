"""Factors that decide another: a city lies in one country, and the others are no holes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from recombine.tables.counting import cells, count
from recombine.tables.rows import MISSING, Rows
from recombine.tables.rule_syntax import If, Term, written

NEARLY = 0.99  # of the rows have the value that the deciding factor tells
EXPLAINED = 0.9  # of the rows without the commonest value are told: otherwise it tells little
LEAST_ROWS = 5  # of a value on average: anything decides anything once each value has a row
MOST_CELLS = 2**20


@dataclass(frozen=True)
class Nested:
    """One factor that (nearly) decides another: places, share of rows, and a rule as example."""

    deciding: int
    decided: int
    share: float
    rule: str

    @property
    def pair(self) -> frozenset[int]:
        return frozenset((self.deciding, self.decided))

    def label(self, rows: Rows) -> str:
        return f"{rows.names[self.deciding]} decides {rows.names[self.decided]}"

    def sentence(self, rows: Rows, holes: int) -> str:
        """What it is, how many holes it stands for, and what to do."""
        city, country = rows.names[self.deciding], rows.names[self.decided]
        rows_told = "in every row" if self.share == 1 else f"in {self.share:.1%} of rows"
        return (
            f"{self.label(rows)} {rows_told}, so {holes} hole{'s'[: holes != 1]} between them "
            f"{'are' if holes != 1 else 'is'} no news: leave {country} out of --factors, or give a "
            f"rule for each value of {city}, such as {self.rule}"
        )


def nested(train: Rows) -> tuple[Nested, ...]:
    """The pairs of factors of which one decides the other, of two that do the one with more values.

    >>> from recombine.tables.rows import Factor
    >>> city = Factor("city", ("Bonn", "Lyon", "Nice"), np.arange(60) % 3)
    >>> country = Factor("country", ("D", "F"), np.array([0, 1, 1])[city.codes])
    >>> rows = Rows("toy", (country, city))
    >>> [(one.label(rows), one.rule) for one in nested(rows)]
    [('city decides country', 'IF [city] = "Bonn" THEN [country] = "D"')]
    """
    single = [place for place, factor in enumerate(train.factors) if not factor.many]
    found = []
    for pair in itertools.combinations(single, 2):
        if cells(train, pair) > MOST_CELLS:
            continue
        both = [_decides(train, *order) for order in (pair, pair[::-1])]
        known = [one for one in both if one is not None]
        if known:
            sizes = {one: train.factors[one.deciding].size for one in known}
            found.append(max(known, key=lambda one: (sizes[one], one.share)))
    return tuple(found)


def _decides(train: Rows, deciding: int, decided: int) -> Nested | None:
    first, second = train.factors[deciding], train.factors[decided]
    table = count(train, sorted((deciding, decided)))
    table = np.array(table if deciding < decided else table.T, float)
    # What is missing is nobody's decision.
    table[[value == MISSING for value in first.values], :] = 0
    table[:, [value == MISSING for value in second.values]] = 0
    total, told = table.sum(), table.max(axis=1).sum()
    values = np.count_nonzero(table.sum(axis=1))
    commonest = table.sum(axis=0).max(initial=0)
    if not total or commonest == total or total < LEAST_ROWS * values:
        return None
    if told < NEARLY * total or total - told > (1 - EXPLAINED) * (total - commonest):
        return None
    place = int(table.sum(axis=1).argmax())
    value = int(table[place].argmax())
    terms = [
        Term(factor.name, "=", (factor.values[code],))
        for factor, code in ((first, place), (second, value))
    ]
    rule = If(terms[0], terms[1])
    return Nested(deciding, decided, float(told / total), written(rule))
