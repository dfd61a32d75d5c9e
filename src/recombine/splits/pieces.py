"""Values, pairs and triples of rows as sparse tables: what splits withhold and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations as choices

import numpy as np
from jaxtyping import Bool, Int
from scipy import sparse
from scipy.sparse import csgraph

from recombine.errors import InvalidRequest
from recombine.tables.rows import MISSING, NONE, OTHER, Rows

Labels = Int[np.ndarray, " row"]
_LARGEST = 2**62


def value_numbers(rows: Rows) -> Int[np.ndarray, "row place"]:
    """Every value of every factor under a number of its own; -1 after the end of a list."""
    starts = np.concatenate([[0], np.cumsum(rows.sizes)])
    columns = []
    for start, factor in zip(starts, rows.factors, strict=False):
        codes = np.asarray(factor.codes, np.int64).reshape(len(rows), -1)
        columns.append(np.where(codes == NONE, NONE, codes + start))
    return np.concatenate(columns, axis=1)


def combination_labels(rows: Rows) -> tuple[Labels, Int[np.ndarray, "combination place"]]:
    """Which combination each row has, and the value numbers of each combination.

    >>> from recombine.tables.rows import Factor
    >>> rows = Rows("toy", (Factor("a", ("p", "q"), np.array([0, 1, 0])),))
    >>> combination_labels(rows)[0].tolist()
    [0, 1, 0]
    """
    numbers = value_numbers(rows)
    values = int(sum(rows.sizes)) + 1
    key, most = np.zeros(len(rows), np.int64), 1
    for column in numbers.T:
        if most > _LARGEST // values:  # too many to count: number those that occur
            found, key = np.unique(key, return_inverse=True)
            most = len(found)
        key, most = key * values + column + 1, most * values
    _, first, labels = np.unique(key, return_index=True, return_inverse=True)
    return labels.astype(np.int64), numbers[first]


def together(*labels: Labels) -> Labels:
    """The finest labels that keep together what any of the given ones keeps together.

    >>> together(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    if not labels:
        raise InvalidRequest("nothing says which rows belong together: give one label per row")
    numbered = [np.unique(one, return_inverse=True)[1] for one in labels]
    if len(numbered) == 1 or len(numbered[0]) == 0:
        return numbered[0]
    starts = np.concatenate([[0], np.cumsum([one.max() + 1 for one in numbered])])
    ends = [one + start for one, start in zip(numbered, starts, strict=False)]
    heads, tails = np.concatenate(ends[:-1]), np.concatenate(ends[1:])
    graph = sparse.coo_array((np.ones(len(heads), bool), (heads, tails)), (starts[-1],) * 2)
    component = csgraph.connected_components(graph, directed=False)[1]
    return np.unique(component[numbered[0]], return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class Pieces:
    """How many rows of each unit hold each piece (a value, a pair, a triple).

    `members` are the value numbers of each piece. `holds` is a sparse table, unit x piece.
    """

    members: Int[np.ndarray, "piece t"]
    holds: sparse.csr_array

    @property
    def rows(self) -> Int[np.ndarray, " piece"]:
        """How many rows hold each piece."""
        return np.asarray(self.holds.sum(axis=0)).reshape(-1)


def pieces(rows: Rows, t: int, units: Labels | None = None) -> Pieces:
    """The values (t=1), pairs (t=2) or triples (t=3) that each unit's rows hold.

    A unit is a set of rows under one label; without labels every combination is one.

    >>> from recombine.tables.rows import Factor
    >>> rows = Rows("toy", (Factor("a", ("p", "q"), np.array([0, 1])),
    ...                     Factor("b", ("x",), np.array([0, 0]))))
    >>> pieces(rows, 2).members.tolist()
    [[0, 2], [1, 2]]
    """
    labels, combos = combination_labels(rows)
    values = int(sum(rows.sizes))
    if values**t >= _LARGEST:
        raise InvalidRequest(f"{values} values are too many for their {t}-way combinations")
    keys, owners = [], []
    for places in choices(range(combos.shape[1]), t):
        chosen = combos[:, places]
        there = (chosen != NONE).all(axis=1)
        keys.append(chosen[there] @ (values ** np.arange(t - 1, -1, -1)))
        owners.append(np.flatnonzero(there))
    key = np.concatenate(keys) if keys else np.zeros(0, np.int64)
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    found, place = np.unique(key, return_inverse=True)
    shape = (len(combos), len(found))
    inside = sparse.csr_array((np.ones(len(key), np.int64), (owner, place)), shape)
    units = labels if units is None else units
    count = int(units.max()) + 1 if len(units) else 0
    owned = sparse.csr_array((np.ones(len(rows), np.int64), (units, labels)), (count, len(combos)))
    members = np.stack([found // values**power % values for power in range(t - 1, -1, -1)], axis=1)
    return Pieces(members, sparse.csr_array(owned @ inside))


def piece_label(rows: Rows, members: Sequence[int] | np.ndarray) -> str:
    """A piece in words, such as "colour=red, shape=cube"."""
    starts = np.concatenate([[0], np.cumsum(rows.sizes)])
    found: dict[int, list[int]] = {}
    for number in members:
        factor = int(np.searchsorted(starts, number, side="right")) - 1
        found.setdefault(factor, []).append(int(number - starts[factor]))
    return rows.label(found)


def stand_ins(rows: Rows) -> Bool[np.ndarray, " value"]:
    """Which values only stand for something else: what is missing, and rare values grouped."""
    return np.array([v in (MISSING, OTHER) for f in rows.factors for v in f.values], bool)
