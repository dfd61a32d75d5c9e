"""What slices are searched in: combinations with their failures, and what values explain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from recombine.audits.association import fisher
from recombine.audits.risk_models import VALUE_SPREAD, Sparse, fit_logistic, value_design
from recombine.tables.counting import combinations
from recombine.tables.rows import NONE, Rows

_MOST_VALUES = 2000  # that have a number in the additive model, the most frequent ones
_RIDGE = 0.1


class Level(NamedTuple):
    """All slices of one number of values that have enough rows."""

    items: Int[np.ndarray, "slice value"]
    size: Float[np.ndarray, " slice"]
    wrong: Float[np.ndarray, " slice"]
    expected: Float[np.ndarray, " slice"]
    p: Float[np.ndarray, " slice"]
    keys: Int[np.ndarray, " slice"]

    @property
    def clear(self) -> Float[np.ndarray, " slice"]:
        """Failures beyond the expected, in standard errors."""
        mean = self.size * self.expected
        return (self.wrong - mean) / np.sqrt(np.maximum(mean * (1 - self.expected), 1e-9))


@dataclass(frozen=True, eq=False)
class Grid:
    """Distinct combinations with their rows and failures; an item is one value of one factor."""

    codes: Int[np.ndarray, "combination place"]
    items: Int[np.ndarray, "combination place"]
    factor_of: Int[np.ndarray, " place"]
    starts: Int[np.ndarray, " factor"]
    size: Float[np.ndarray, " combination"]
    wrong: Float[np.ndarray, " combination"]
    inverse: Int[np.ndarray, " row"]
    rows: Rows  # one row per combination

    @staticmethod
    def of(rows: Rows, wrong: Bool[np.ndarray, " row"]) -> Grid:
        distinct = combinations(rows)
        codes = np.asarray(distinct.codes, np.int64)
        starts = np.concatenate([[0], np.cumsum(rows.sizes)])
        widths = [f.codes.shape[1] if f.many else 1 for f in rows.factors]
        factor_of = np.repeat(np.arange(len(widths)), widths)
        items = np.where(codes == NONE, NONE, codes + starts[factor_of])
        size = np.bincount(distinct.inverse, minlength=len(codes)).astype(float)
        bad = np.bincount(distinct.inverse, weights=wrong, minlength=len(codes))
        single = rows.take(np.unique(distinct.inverse, return_index=True)[1])
        return Grid(codes, items, factor_of, starts, size, bad, distinct.inverse, single)

    def holding(self, items: tuple[int, ...]) -> Bool[np.ndarray, " combination"]:
        """Which combinations hold all these items."""
        there = np.ones(len(self.items), bool)
        for item in items:
            place = int(np.searchsorted(self.starts, item, side="right")) - 1
            there &= (self.items[:, self.factor_of == place] == item).any(axis=1)
        return there

    def assignment(self, items: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """Items as codes by place of factor."""
        found: dict[int, tuple[int, ...]] = {}
        for item in items:
            place = int(np.searchsorted(self.starts, item, side="right")) - 1
            found[place] = (*found.get(place, ()), item - int(self.starts[place]))
        return found


class Additive:
    """Failure rates as sums of one number per value, and how far slices go beyond them."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self.design = _design(grid)
        ridge = np.diag(np.full(self.design.shape[1], _RIDGE))
        self.inverse = np.linalg.inv(self._products(grid.size) + ridge)
        rate = grid.wrong.sum() / grid.size.sum()
        chance = self.design @ (self.inverse @ (grid.wrong @ self.design))
        self.beyond = grid.wrong - grid.size * chance
        self.pull = self.beyond @ self.design
        # Rates near 0 are fitted no better than the others: their variance is kept from vanishing.
        self.ends = (rate / 4, 1 - (1 - rate) / 4)
        chance = np.clip(chance, *self.ends)
        self.variance = grid.size * chance * (1 - chance)
        self.spread = self._products(self.variance)

    def _products(self, weight: np.ndarray) -> Float[np.ndarray, "column column"]:
        return (self.design.multiply(weight[:, None]).T @ self.design).toarray()

    def tested(self, part: Level, kept: Bool[np.ndarray, " slice"]) -> Level:
        """The slices with what was expected of them, and a p-value that minds it."""
        expected, p = part.expected.copy(), part.p.copy()
        for place in np.flatnonzero(kept):
            inside = np.flatnonzero(self.grid.holding(tuple(part.items[place])))
            expected[place], beyond = self.explained(inside)
            p[place] = max(p[place], beyond)
        return part._replace(expected=expected, p=p)

    def explained(self, inside: Int[np.ndarray, " combination"]) -> tuple[float, float]:
        """The failure rate that values explain of these combinations, and a p-value beyond it."""
        lines, size = self.design[inside], float(self.grid.size[inside].sum())
        held, varying = self.grid.size[inside] @ lines, self.variance[inside] @ lines
        # What is left of them once the values have explained what they can of it.
        share = self.inverse @ held
        left = float(size - held @ share)
        excess = float(self.beyond[inside].sum() - self.pull @ share)
        error = float(
            self.variance[inside].sum() - 2 * varying @ share + share @ self.spread @ share
        )
        rate = float(self.grid.wrong[inside].sum()) / size
        if left < 1e-6 * size or error <= 0:
            return rate, 1.0
        expected = float(np.clip(rate - excess / left, *self.ends))
        return expected, float(special.ndtr(-excess / math.sqrt(error)))


def foretold(grid: Grid, slices: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """The failure rate that each slice would have if its values did what they do elsewhere.

    Elsewhere is outside the slice and outside every bad pair or triple: these would make their
    values seem bad, and all others seem good. Effects of values add up in log-odds, under the prior
    of the risk model, so that no rate leaves 0 to 1.
    """
    design, held = _design(grid), {items: grid.holding(items) for items in slices}
    spread = np.append(1e3, np.full(design.shape[1] - 1, VALUE_SPREAD))
    several = [held[items] for items in slices if len(items) > 1]
    aside = np.logical_or.reduce([np.zeros(len(grid.size), bool), *several])
    fits: dict[bytes, np.ndarray] = {}  # pairs and triples share one
    found = {}
    for items, inside in held.items():
        told = ~(aside | inside)
        if not told.any():  # nothing but bad slices: the others have to do
            told = ~inside
        if told.tobytes() not in fits:
            fits[told.tobytes()] = fit_logistic(
                design[told], grid.wrong[told], grid.size[told], spread
            )
        chance = special.expit(design[inside] @ fits[told.tobytes()])
        found[items] = float(chance @ grid.size[inside] / grid.size[inside].sum())
    return found


def _design(grid: Grid) -> Sparse:
    """A constant and a column for each of the most frequent values."""
    values = int(grid.starts[-1])
    items, held = np.unique(grid.items[grid.items != NONE], return_counts=True)
    usual = np.zeros(values + 1, bool)
    usual[items[np.argsort(-held)[:_MOST_VALUES]]] = True
    design = value_design(np.where(usual[grid.items], grid.items, NONE), values)
    return design[:, np.append(0, 1 + np.flatnonzero(usual[:-1]))]


def over_combinations(
    grid: Grid, inside: Bool[np.ndarray, " combination"], around: Bool[np.ndarray, " combination"]
) -> float:
    """The p-value of a slice against what is around it, with the combination as the unit.

    A model that fails on a few whole combinations fails on every slice that holds one of them, and
    not for what the slice says. So combinations that fail more than halfway between the two rates
    are counted, and compared by Fisher's exact test. Where all of the slice's do, there is nothing
    to tell apart: the slice only names them together, and the answer is 0.
    """
    rates = [grid.wrong[part].sum() / max(grid.size[part].sum(), 1.0) for part in (inside, around)]
    failing = grid.wrong > grid.size * (rates[0] + rates[1]) / 2
    if failing[inside].all():
        return 0.0
    counts = [number for part in (inside, around) for number in (failing[part].sum(), part.sum())]
    return float(fisher(*(np.array([float(number)]) for number in counts))[0])
