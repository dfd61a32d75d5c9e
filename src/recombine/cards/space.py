"""How many combinations there are that a card could still be given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from recombine.cards.decision import Left
from recombine.tables.counting import combination_keys, combinations
from recombine.tables.rows import MISSING, OTHER, Rows
from recombine.tables.rules import rules_for

MOST_CELLS = 1 << 20  # combinations that are held against forbidden rules one by one


def left_of(train: Rows, evaluated: Rows, forbid: Sequence[str] = ()) -> Left:
    """The combinations of these values, new and trained, that were not evaluated.

    The two tables are aligned. Lists may be of any length, so that with them nobody knows how many
    new combinations there are. Where the space is too large to hold each against the rules, what
    they forbid is counted too: that leaves the decision a little less sure, never too sure.
    """
    trained, asked = (np.unique(keys) for keys in combination_keys(train, evaluated))
    unasked = len(np.setdiff1d(trained, asked))
    if any(factor.many for factor in train.factors):
        return Left(trained=unasked)
    rules = rules_for(train, forbid)
    # A missing value, or what was grouped as others, is nothing that one could go and collect.
    values = [
        np.array([place for place, v in enumerate(f.values) if v not in (MISSING, OTHER)], np.int64)
        for f in train.factors
    ]
    total = math.prod(len(codes) for codes in values)
    held = rules.boxes and total <= MOST_CELLS
    if held:
        cells = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(values))
        total -= int(rules.forbidden(cells).sum())
    both = np.concatenate([combinations(rows).codes for rows in (train, evaluated)])
    known = np.unique(both, axis=0)
    inside = np.logical_and.reduce([np.isin(known[:, f], codes) for f, codes in enumerate(values)])
    known = known[inside]
    if held:
        known = known[~rules.forbidden(known)]
    return Left(max(0, total - len(known)), unasked)
