"""How far a test set is from training: in single values (atoms) and in their pairs (compounds).

The measure is that of Keysers et al. 2020, "Measuring compositional generalization: a
comprehensive method on realistic data": one minus the Chernoff coefficient of two distributions,
with alpha .5 for atoms and .1 for compounds. At .1 it matters little how often training holds a
compound, and much whether it does at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import sparse

from recombine.errors import InvalidRequest
from recombine.splits.pieces import Labels, Pieces, pieces
from recombine.tables.novelty import Links
from recombine.tables.rows import Rows, aligned

ATOMS, COMPOUNDS = 0.5, 0.1  # alpha


@dataclass(frozen=True)
class Divergences:
    """Both divergences between training and test, each from 0 (alike) to 1 (nothing shared)."""

    atoms: float
    compounds: float


def chernoff(train: ArrayLike, test: ArrayLike, alpha: float) -> float:
    """One minus the Chernoff coefficient of two lists of counts (or weights) of the same things.

    >>> chernoff([1, 1], [1, 1], 0.5), chernoff([1, 0], [0, 1], 0.1)
    (0.0, 1.0)
    """
    p, q = np.asarray(train, np.float64), np.asarray(test, np.float64)
    if p.shape != q.shape or not p.sum() or not q.sum():
        raise InvalidRequest("a divergence needs two lists of the same things, none of them empty")
    coefficient = np.sum((p / p.sum()) ** alpha * (q / q.sum()) ** (1 - alpha))
    return float(np.clip(1 - coefficient, 0.0, 1.0))


def divergences(
    train: Rows,
    test: Rows,
    *,
    triples: bool = False,
    weights: Float[np.ndarray, "row"] | None = None,
) -> Divergences:
    """Atom and compound divergence of two tables: atoms are values, compounds are their pairs.

    With `triples` compounds are pairs and triples, and a pair counts less where one triple
    explains it (see `compounds`). `weights` says how much each row of `test` stands for.

    >>> from recombine.tables.rows import Factor
    >>> def table(a, b):
    ...     return Rows("toy", (Factor("a", ("p", "q"), np.array(a)),
    ...                         Factor("b", ("x", "y"), np.array(b))))
    >>> divergences(table([0, 1], [0, 1]), table([0, 1], [1, 0]))
    Divergences(atoms=0.0, compounds=1.0)
    """
    one, other = aligned(train, test)
    if not len(one) or not len(other):
        raise InvalidRequest("a divergence needs rows in training and in test; one has none")
    if triples and weights is not None:
        raise InvalidRequest("triples have no weights: leave one of the two out")
    trained, tested = Links.of(one), Links.of(other, weights)
    atoms = chernoff(trained.alone, tested.alone, ATOMS)
    if triples:
        part = np.repeat([0, 1], [len(one), len(other)])
        pair = compounds(joined(one, other), part, triples).toarray()
    else:
        pair = _side_by_side(trained, tested)
    if not pair.any(axis=1).all():
        return Divergences(atoms, 0.0)  # nothing to compound
    return Divergences(atoms, chernoff(pair[0], pair[1], COMPOUNDS))


def _side_by_side(one: Links, other: Links) -> Float[np.ndarray, "table pair"]:
    """How often each table holds each pair that one of them holds; small whatever the rows."""
    keys = [links.ends @ np.array([len(links.alone), 1]) for links in (one, other)]
    pairs = np.unique(np.concatenate(keys))
    counts = np.zeros((2, len(pairs)))
    for line, key, links in zip(counts, keys, (one, other), strict=True):
        line[np.searchsorted(pairs, key)] = links.counts
    return counts


def compounds(rows: Rows, units: Labels, triples: bool = False) -> sparse.csr_array:
    """The weighted counts of compounds, unit x compound.

    Pairs alone count 1. With triples a pair weighs one minus the largest share of its rows that
    also hold one and the same triple around it: a pair that only ever occurs inside that triple
    says nothing of its own, and is not counted twice.
    """
    pair = pieces(rows, 2, units)
    if not triples:
        return sparse.csr_array(pair.holds.astype(np.float64))
    triple = pieces(rows, 3, units)
    weighted = pair.holds @ sparse.diags_array(_own_share(pair, triple))
    return sparse.csr_array(sparse.hstack([weighted, triple.holds]), dtype=np.float64)


def _own_share(pair: Pieces, triple: Pieces) -> Float[np.ndarray, " piece"]:
    if not len(triple.members):
        return np.ones(len(pair.members))
    base = int(triple.members.max()) + 1
    keys = pair.members @ np.array([base, 1])
    order = np.argsort(keys)
    largest = np.zeros(len(keys))
    for places in ((0, 1), (0, 2), (1, 2)):
        inner = triple.members[:, places] @ np.array([base, 1])
        found = order[np.searchsorted(keys, inner, sorter=order)]
        np.maximum.at(largest, found, triple.rows / pair.rows[found])
    return 1 - largest


def joined(one: Rows, other: Rows) -> Rows:
    """Two aligned tables one after the other, factors alone."""
    factors = []
    for a, b in zip(one.factors, other.factors, strict=True):
        first, second = a.codes, b.codes
        if a.many:  # lists of the longer table decide the width
            width = max(first.shape[1], second.shape[1])
            first, second = (
                np.pad(c, ((0, 0), (0, width - c.shape[1])), constant_values=-1)
                for c in (first, second)
            )
        factors.append(replace(a, codes=np.concatenate([first, second])))
    return Rows(one.source, tuple(factors))
