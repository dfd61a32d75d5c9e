"""What is missing from training: holes, thin values, parts that do not hang together.

A hole is a pair (or triple, ...) of values that is possible and that fewer than `min_count`
training rows hold. Holes are told with the count expected under independence, for "expected 50, saw
0" is not "expected 0.1, saw 0": the first is a gap, the second is what a small file looks like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from recombine.audits.coverage import traffic_shares
from recombine.audits.expected import expected_counts, explained_counts
from recombine.errors import InvalidRequest
from recombine.lab.statistics import false_discovery
from recombine.tables.counting import combinations, count, count_all
from recombine.tables.novelty import components
from recombine.tables.rows import MISSING, NONE, Rows
from recombine.tables.rules import Rules

MOST_CELLS = 2**24
SIZES = (2, 3)  # values of the holes that an audit looks for
FALSE_ALARMS = 0.05
SHORTLIST = 10

Assignment = Mapping[int, int | tuple[int, ...]]
Risk = Callable[[Sequence[Assignment]], Sequence[float | None]]
"""The chances of failure of parts of combinations; None where it cannot be said."""


@dataclass(frozen=True)
class Hole:
    """A part of a combination that training lacks.

    - `chosen`, `codes`: the factors (places) and their values; a list column may be repeated.
    - `expected`: rows that would hold it if the factors were independent.
    - `p_value`: the chance of so few rows or fewer (a Poisson count), given what is expected of it
      and, for three values or more, of its own pairs.
    - `surprise`: minus the decimal logarithm of `p_value`: 22 for "expected 50, saw 0", and 0.04
      for "expected 0.1, saw 0".
    - `traffic`: its share of the target; None without a target. `risk`: its chance of failure; None
      where none is known.
    - `score`: the product of what `ranked_by` names. A hole without a risk among others that have
      one is ranked with their mean.
    - `alarm`: its absence is not chance. At most one in twenty alarms is expected to be false
      (Benjamini-Hochberg over every possible cell). A cell with a missing value is never one, as
      nobody can collect it.
    """

    chosen: tuple[int, ...]
    codes: tuple[int, ...]
    count: int
    expected: float
    p_value: float
    surprise: float
    traffic: float | None = None
    risk: float | None = None
    score: float = 0.0
    ranked_by: str = "surprise"
    alarm: bool = False

    @property
    def assignment(self) -> dict[int, int | tuple[int, ...]]:
        """The values by factor, as `Rows.label` takes them."""
        return _assignment(self.chosen, self.codes)

    def sentence(self, rows: Rows) -> str:
        """The hole in words, such as "colour=red, shape=cube: expected 50.0, saw 0"."""
        return f"{rows.label(self.assignment)}: expected {self.expected:.3g}, saw {self.count}"


def holes(
    train: Rows,
    rules: Rules,
    t: int = 2,
    *,
    target: Rows | None = None,
    weights: Float[np.ndarray, " row"] | None = None,
    risk: Risk | None = None,
    min_count: int = 1,
    most: int | None = 200,
    most_cells: int = MOST_CELLS,
) -> list[Hole]:
    """The holes of t values, worst first: by traffic x risk x surprise, as far as these are known.

    Only smallest holes are told: one that contains a smaller hole, or a value that is thin, only
    repeats it. `target` (aligned with `train`) and its row `weights` give the traffic. `most` is
    how many to return (None: all), and as many again of the alarms that rank lower, for want of
    traffic; a risk is asked for ten times as many before the last ranking.
    Tables of more than `most_cells` are left out (`coverage` names them).

    >>> from recombine.tables.rows import Factor
    >>> a = Factor("a", ("x", "y"), np.repeat([0, 1, 1], 50))
    >>> b = Factor("b", ("u", "v"), np.repeat([0, 0, 1], 50))
    >>> rows = Rows("toy", (a, b))
    >>> found = holes(rows, Rules.none(rows.names, [a.values, b.values]))
    >>> [(hole.sentence(rows), hole.alarm) for hole in found]
    [('a=x, b=v: expected 16.7, saw 0', True)]
    """
    if t < 2:
        raise InvalidRequest(f"a hole has at least 2 values, t = {t} was given: see thin_values")
    traffic = None if target is None else _Traffic(target, weights, t, most_cells)
    smaller = {
        chosen: table < min_count
        for chosen, table in count_all(train, t - 1, most_cells=most_cells)
    }
    found: list[Hole] = []
    suspects: list[np.ndarray] = []
    tests, room = 0, None if most is None else SHORTLIST * most
    for chosen, table in count_all(train, t, most_cells=most_cells):
        possible = rules.possible_table(chosen)
        tests += int(possible.sum())
        cells = np.nonzero(_smallest(table, possible, chosen, smaller, min_count))
        if not len(cells[0]):
            continue
        explained = explained_counts(table, possible, chosen)[cells]
        p_values, surprises = _tail(table[cells], explained)
        # Only p-values this small can be discoveries, and a large table has many others.
        can = _collectable(train, chosen, cells)
        suspects.append(p_values[can & (p_values <= FALSE_ALARMS)])
        shares = None if traffic is None else traffic.table(chosen, table.shape)[cells]
        worst = _worst(surprises, shares, room)
        expected = expected_counts(table, possible, chosen)[cells]
        found += [
            Hole(
                chosen=chosen,
                codes=tuple(int(axis[i]) for axis in cells),
                count=int(table[tuple(axis[i] for axis in cells)]),
                expected=float(expected[i]),
                p_value=float(p_values[i]),
                surprise=float(surprises[i]),
                traffic=None if shares is None else float(shares[i]),
                alarm=bool(can[i]),
            )
            for i in worst
        ]
    return _ranked(_alarmed(found, suspects, tests), risk, most)


@dataclass(frozen=True)
class Thin:
    """A value that fewer training rows hold than asked for."""

    factor: int
    value: int
    count: int


def thin_values(train: Rows, rules: Rules, min_count: int = 1) -> list[Thin]:
    """The possible values that fewer than `min_count` rows hold, rarest first.

    That few values are missing is no defect, so "(missing)" is never thin.
    """
    thin = [
        Thin(factor, int(value), int(counts[value]))
        for factor in range(len(train.factors))
        for counts in [count(train, (factor,))]
        for value in np.flatnonzero((counts < min_count) & rules.possible_table([factor]))
        if train.factors[factor].values[value] != MISSING
    ]
    return sorted(thin, key=lambda value: value.count)


def parts(train: Rows, at_least: int = 1) -> list[dict[int, list[int]]]:
    """The parts that do not hang together, largest first: the values of each factor in each.

    One part only means that training is connected.
    """
    found = []
    for nodes in components(train, at_least).parts:
        grouped = itertools.groupby(nodes, key=lambda node: node[0])
        found.append({factor: [value for _, value in values] for factor, values in grouped})
    return found


@dataclass(frozen=True)
class Broken:
    """Training rows that a rule forbids: the values it is about, and in how many rows."""

    rule: str
    assignment: Mapping[int, int | tuple[int, ...]]
    count: int


def seen_forbidden(train: Rows, rules: Rules) -> list[Broken]:
    """What training holds although a rule forbids it, rule by rule, most frequent first."""
    found = []
    for place, text in enumerate(rules.texts):
        rows = train.take(rules.only([place]).forbidden_rows(train))
        about = rules.factors_of(place)
        if not len(rows) or not about:
            continue
        named = replace(rows, factors=tuple(rows.factors[f] for f in about), columns={})
        lines = combinations(named)
        places = [f.codes.shape[1] if f.many else 1 for f in named.factors]
        chosen = [f for f, n in zip(about, places, strict=True) for _ in range(n)]
        broken = [
            Broken(text, _assignment(chosen, codes), int(n))
            for codes, n in zip(lines.codes.tolist(), lines.counts, strict=True)
        ]
        found += sorted(broken, key=lambda b: -b.count)
    return found


def _smallest(
    table: np.ndarray,
    possible: np.ndarray,
    chosen: tuple[int, ...],
    smaller: Mapping[tuple[int, ...], np.ndarray],
    min_count: int,
) -> np.ndarray:
    """Which cells are holes and contain no smaller one."""
    hole = possible & (table < min_count)
    for axis in range(len(chosen)):
        rest = chosen[:axis] + chosen[axis + 1 :]
        if rest in smaller:
            hole &= ~np.expand_dims(smaller[rest], axis)
    return hole


def _tail(counts: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chance of so few rows or fewer, and minus its decimal logarithm."""
    from scipy.special import pdtr

    p_values = pdtr(counts, expected)
    # Of none at all the logarithm is known even where the chance itself is too small a number.
    least = np.log(np.maximum(p_values, np.finfo(float).tiny))
    logs = np.where(counts == 0, -expected, least)
    return p_values, np.maximum(-logs, 0.0) / np.log(10)


def _collectable(train: Rows, chosen: Sequence[int], cells: tuple[np.ndarray, ...]) -> np.ndarray:
    """Which cells have no missing value."""
    present = [np.array([v != MISSING for v in train.factors[f].values]) for f in chosen]
    return np.logical_and.reduce([ok[axis] for ok, axis in zip(present, cells, strict=True)])


def _worst(surprises: np.ndarray, shares: np.ndarray | None, room: int | None) -> list[int]:
    """The places of the worst cells of a table, as many as there is room for.

    The most surprising ones are among them even where they have no traffic: they may be alarms.
    """
    if shares is None:
        return np.argsort(-surprises, kind="stable")[:room].tolist()
    orders = (np.lexsort((-surprises, -shares * surprises)), np.argsort(-surprises, kind="stable"))
    return list(dict.fromkeys(place for order in orders for place in order[:room].tolist()))


def _alarmed(found: list[Hole], suspects: list[np.ndarray], tests: int) -> list[Hole]:
    """The holes with alarms where their absence stands out among all tests."""
    p_values = np.concatenate([np.zeros(0), *suspects])
    stand_out = false_discovery(p_values, tests=tests) <= FALSE_ALARMS
    limit = float(p_values[stand_out].max(initial=-1.0))
    return [replace(hole, alarm=hole.alarm and hole.p_value <= limit) for hole in found]


def _ranked(found: list[Hole], risk: Risk | None, most: int | None) -> list[Hole]:
    """The holes with their scores, worst first."""
    named = ["surprise"]
    if found and found[0].traffic is not None:
        named.insert(0, "traffic")
    found = _sorted([replace(h, score=h.surprise * _or_one(h.traffic)) for h in found])
    found = _kept(found, None if most is None else SHORTLIST * most)
    risks = [None] * len(found) if risk is None else risk([hole.assignment for hole in found])
    known = [float(r) for r in risks if r is not None and np.isfinite(r)]
    if known:
        named.insert(-1, "risk")
        mean = float(np.mean(known))
        said = [float(r) if r is not None and np.isfinite(r) else None for r in risks]
        found = _sorted(
            [
                replace(hole, risk=r, score=hole.score * (mean if r is None else r))
                for hole, r in zip(found, said, strict=True)
            ]
        )
    return [replace(hole, ranked_by=" x ".join(named)) for hole in _kept(found, most)]


def _kept(found: list[Hole], most: int | None) -> list[Hole]:
    """The first so many, and as many of the most surprising alarms that come after them."""
    if most is None:
        return found
    late = [place for place in range(most, len(found)) if found[place].alarm]
    late = sorted(late, key=lambda place: -found[place].surprise)[:most]
    return [*found[:most], *(found[place] for place in sorted(late))]


def _sorted(found: list[Hole]) -> list[Hole]:
    return sorted(found, key=lambda h: (-h.score, -h.surprise, h.chosen, h.codes))


def _or_one(factor: float | None) -> float:
    return 1.0 if factor is None else factor


class _Traffic:
    """The target's tables of traffic, in the order of the training tables."""

    def __init__(self, target: Rows, weights: np.ndarray | None, t: int, most_cells: int):
        shares = traffic_shares(target, weights)
        self.tables = count_all(target, t, weights=shares, most_cells=most_cells)
        self.ahead = next(self.tables, None)

    def table(self, chosen: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
        while self.ahead is not None and self.ahead[0] < chosen:
            self.ahead = next(self.tables, None)
        if self.ahead is not None and self.ahead[0] == chosen:
            return self.ahead[1]
        return np.zeros(shape)  # lists of the target are shorter than this


def _assignment(chosen: Sequence[int], codes: Sequence[int]) -> dict[int, int | tuple[int, ...]]:
    """The codes by factor, several together where a factor is chosen several times."""
    held: dict[int, list[int]] = {}
    for factor, code in zip(chosen, codes, strict=True):
        held.setdefault(factor, []).extend([code] if code != NONE else [])
    once = {factor for factor in chosen if list(chosen).count(factor) == 1}
    return {f: c[0] if f in once and c else tuple(c) for f, c in held.items()}
