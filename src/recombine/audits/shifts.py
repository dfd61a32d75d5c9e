"""How far other rows are from training, from counts alone: quick, and small whatever the rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from recombine.splits.divergence import ATOMS, COMPOUNDS, Divergences, chernoff
from recombine.tables.novelty import Links
from recombine.tables.rows import Rows


def shift(train: Rows, others: Rows) -> Divergences:
    """The divergence of values and of pairs (`splits.divergences`) of two aligned tables.

    >>> from recombine.tables.rows import Factor
    >>> def table(a, b):
    ...     return Rows("toy", (Factor("a", ("p", "q"), np.array(a)),
    ...                         Factor("b", ("x", "y"), np.array(b))))
    >>> shift(table([0, 1], [0, 1]), table([0, 1], [1, 0]))
    Divergences(atoms=0.0, compounds=1.0)
    """
    one, other = Links.of(train), Links.of(others)
    pairs = _side_by_side(one, other)
    held = bool(pairs.any(axis=1).all())
    compounds = chernoff(pairs[0], pairs[1], COMPOUNDS) if held else 0.0
    return Divergences(chernoff(one.alone, other.alone, ATOMS), compounds)


def _side_by_side(one: Links, other: Links) -> Float[np.ndarray, "table pair"]:
    """How often each table holds each pair that one of them holds."""
    keys = [links.ends @ np.array([len(links.alone), 1]) for links in (one, other)]
    pairs = np.unique(np.concatenate(keys))
    counts = np.zeros((2, len(pairs)))
    for line, key, links in zip(counts, keys, (one, other), strict=True):
        line[np.searchsorted(pairs, key)] = links.counts
    return counts
