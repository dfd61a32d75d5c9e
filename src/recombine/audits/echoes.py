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


def cell_of(hole: Hole) -> Cell:
    return hole.chosen, hole.codes


def echoes(train: Rows, holes: Sequence[Hole]) -> dict[Cell, Cell]:
    """The alarms among pairs that follow from a clearer one, each with that one.

    Where cubes are mostly wooden and red wood is missing, hardly a red cube is left to be expected.
    So what is expected of a pair is asked again, given the other factor of a clearer hole that
    shares a value with it (rows of the two values are independent given that factor). If so few
    rows are then no surprise, the pair is no defect of its own.

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
    alarms = [h for h in holes if h.alarm and len(set(h.chosen)) == 2 == len(h.chosen)]
    alarms = [h for h in alarms if not any(train.factors[f].many for f in h.chosen)]
    tables: dict[tuple[int, int], Float[np.ndarray, "first second"]] = {}

    def together(first: int, second: int) -> Float[np.ndarray, "first second"]:
        key = min(first, second), max(first, second)
        if key not in tables:
            tables[key] = count(train, key).astype(float)
        return tables[key] if first < second else tables[key].T

    found: dict[Cell, Cell] = {}
    kept: list[Hole] = []
    for hole in sorted(alarms, key=lambda hole: (-hole.surprise, hole.chosen, hole.codes)):
        for clearer in kept:
            shared = set(zip(*cell_of(hole), strict=True)) & set(
                zip(*cell_of(clearer), strict=True)
            )
            through = next(iter(set(clearer.chosen) - {f for f, _ in shared}), -1)
            if len(shared) != 1 or through in hole.chosen:
                continue
            if any(cells(train, (f, through)) > MOST_CELLS for f in hole.chosen):
                continue
            lines = [
                together(factor, through)[code]
                for factor, code in zip(hole.chosen, hole.codes, strict=True)
            ]
            rows = together(hole.chosen[0], through).sum(axis=0)
            expected = float((lines[0] * lines[1] / np.maximum(rows, 1.0)).sum())
            if pdtr(hole.count, expected) > FALSE_ALARMS:
                found[cell_of(hole)] = cell_of(clearer)
                break
        else:
            kept.append(hole)
    return found
