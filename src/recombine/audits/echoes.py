"""Holes that follow from another hole, because two factors go together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import pdtr

from recombine.audits.holes import FALSE_ALARMS, Hole
from recombine.tables.counting import cells, count
from recombine.tables.rows import Rows

MOST_CELLS = 2**20

Cell = tuple[tuple[int, ...], tuple[int, ...]]
"""Which hole: its factors and their codes."""

Value = tuple[int, int]  # the place of a factor, and a code


def cell_of(hole: Hole) -> Cell:
    return hole.chosen, hole.codes


def echoes(train: Rows, holes: Sequence[Hole]) -> dict[Cell, Cell]:
    """The alarms that follow from a clearer one of as many values, each with that one.

    Where cubes are mostly wooden and red wood is missing, hardly a red cube is left to be expected.
    So what is expected of a hole is asked again, given the other factor of a clearer hole that
    shares all its values but one (the shared values and that one are independent given that
    factor). If so few rows are then no surprise, the hole is no defect of its own.

    >>> from recombine.audits.holes import holes
    >>> from recombine.tables.rows import Factor
    >>> from recombine.tables.rules import rules_for
    >>> colour, made_of = np.repeat([0, 1, 1], 60), np.repeat([0, 0, 1], 60)
    >>> shape = np.where(np.arange(180) % 20 == 0, 0, made_of)  # but for a few, wood is cubes
    >>> words = (("red", "blue"), ("iron", "wood"), ("ball", "cube"))
    >>> rows = Rows("toy", tuple(
    ...     Factor(name, values, codes) for name, values, codes in
    ...     zip(("colour", "of", "shape"), words, (colour, made_of, shape))))
    >>> found = holes(rows, rules_for(rows))
    >>> [rows.label(hole.assignment) for hole in found if hole.alarm]
    ['of=iron, shape=cube', 'colour=red, of=wood', 'colour=red, shape=cube']
    >>> [rows.label(dict(zip(*cell))) for cell in echoes(rows, found)]
    ['colour=red, shape=cube']
    """
    alarms = [h for h in holes if h.alarm and len(set(h.chosen)) == len(h.chosen)]
    alarms = [h for h in alarms if not any(train.factors[f].many for f in h.chosen)]
    lines = _Lines(train)
    found: dict[Cell, Cell] = {}
    kept: list[Hole] = []
    for hole in sorted(alarms, key=lambda hole: (-hole.surprise, hole.chosen, hole.codes)):
        values = set(zip(*cell_of(hole), strict=True))
        for clearer in kept:
            shared = frozenset(values & set(zip(*cell_of(clearer), strict=True)))
            through = next(iter(set(clearer.chosen) - {f for f, _ in shared}), -1)
            alike = len(clearer.chosen) == len(values) == len(shared) + 1
            if not alike or through in hole.chosen:
                continue
            (own,) = values - shared
            if any(cells(train, (f, through)) > MOST_CELLS for f in hole.chosen):
                continue
            together = lines.of(shared, through) * lines.of(frozenset([own]), through)
            rows = lines.of(frozenset(), through)
            expected = float((together / np.maximum(rows, 1.0)).sum())
            if pdtr(hole.count, expected) > FALSE_ALARMS:
                found[cell_of(hole)] = cell_of(clearer)
                break
        else:
            kept.append(hole)
    return found


class _Lines:
    """How many rows hold some values, for each value of another factor; counted once."""

    def __init__(self, train: Rows):
        self.train = train
        self.pairs: dict[tuple[int, int], Float[np.ndarray, "first second"]] = {}
        self.lines: dict[tuple[frozenset[Value], int], Float[np.ndarray, " value"]] = {}

    def of(self, values: frozenset[Value], by: int) -> Float[np.ndarray, " value"]:
        if len(values) == 1:
            ((factor, code),) = values
            return self._pair(factor, by)[code]
        if (values, by) not in self.lines:
            factors, inside = self.train.factors, np.ones(len(self.train), bool)
            for factor, code in values:
                inside &= factors[factor].codes == code
            counts = np.bincount(factors[by].codes[inside], minlength=factors[by].size)
            self.lines[values, by] = counts.astype(float)
        return self.lines[values, by]

    def _pair(self, first: int, second: int) -> Float[np.ndarray, "first second"]:
        key = min(first, second), max(first, second)
        if key not in self.pairs:
            self.pairs[key] = count(self.train, key).astype(float)
        return self.pairs[key] if first < second else self.pairs[key].T
