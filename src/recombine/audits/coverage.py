"""What training covers: t-way coverage, covered and connected, and the traffic that falls outside.

A cell (one value for each of t factors) is covered if at least `min_count` training rows hold it.
Cells that the rules make impossible are not missing: they do not count. That every value is covered
and that all values are connected are necessary conditions for composing, known from teachers that
combine K of M modules; they are not sufficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from recombine.errors import InvalidRequest
from recombine.tables.counting import MOST_CELLS, cells, count_all, projections, too_large
from recombine.tables.novelty import Links, novelty
from recombine.tables.rows import Rows
from recombine.tables.rules import Rules

STRENGTHS = (1, 2, 3, 4)
MIN_COUNTS = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class Part:
    """The coverage of one choice of factors (places, ascending; a list column may be repeated).

    `seen_impossible` is how many cells occur in training although the rules forbid them.
    """

    chosen: tuple[int, ...]
    possible: int
    covered: int
    seen_impossible: int

    @property
    def share(self) -> float:
        """The covered share of what is possible; 1 where nothing is."""
        return self.covered / self.possible if self.possible else 1.0


@dataclass(frozen=True)
class Coverage:
    """t-way coverage at one `min_count`: every choice of t factors, and all of them together.

    `why_not` says what was left out, and why.
    """

    t: int
    min_count: int
    parts: tuple[Part, ...]
    why_not: tuple[str, ...] = ()

    @property
    def possible(self) -> int:
        return sum(part.possible for part in self.parts)

    @property
    def covered(self) -> int:
        return sum(part.covered for part in self.parts)

    @property
    def seen_impossible(self) -> int:
        return sum(part.seen_impossible for part in self.parts)

    @property
    def share(self) -> float | None:
        """The covered share of all possible cells; None where there is no cell to cover."""
        return self.covered / self.possible if self.possible else None


def coverage(
    train: Rows, rules: Rules, t: int, *, min_count: int = 1, most_cells: int = MOST_CELLS
) -> Coverage:
    """The t-way coverage of the training rows.

    >>> from recombine.tables.rows import Factor
    >>> a = Factor("a", ("x", "y"), np.array([0, 1, 1]))
    >>> b = Factor("b", ("u", "v"), np.array([0, 0, 1]))
    >>> rows = Rows("toy", (a, b))
    >>> coverage(rows, Rules.none(rows.names, [a.values, b.values]), 2).share
    0.75
    """
    return coverage_curve(train, rules, (t,), (min_count,), most_cells=most_cells)[0]


def coverage_curve(
    train: Rows,
    rules: Rules,
    strengths: Sequence[int] = STRENGTHS,
    min_counts: Sequence[int] = MIN_COUNTS,
    *,
    most_cells: int = MOST_CELLS,
) -> tuple[Coverage, ...]:
    """Coverage for every t and, within it, every `min_count`; the rows are counted once a t."""
    if low := [n for n in (*strengths, *min_counts) if n < 1]:
        raise InvalidRequest(f"strengths and counts begin at 1, but {low[0]} was given")
    found = []
    for t in strengths:
        all_parts: list[list[Part]] = [[] for _ in min_counts]
        for chosen, table in count_all(train, t, most_cells=most_cells):
            possible = rules.possible_table(chosen)
            impossible = int(np.count_nonzero(table[~possible]))
            counts = table[possible]
            for parts, least in zip(all_parts, min_counts, strict=True):
                covered = int(np.count_nonzero(counts >= least))
                parts.append(Part(chosen, counts.size, covered, impossible))
        why_not = _left_out(train, t, most_cells)
        found += [
            Coverage(t, least, tuple(parts), why_not)
            for least, parts in zip(min_counts, all_parts, strict=True)
        ]
    return tuple(found)


@dataclass(frozen=True)
class Connected:
    """Covered and connected at one `min_count`.

    `covered`: every possible value is in at least so many rows. `connected`: all values that occur
    hang together through pairs with at least so many rows. `largest` is the share of possible
    values in the largest such part.
    """

    min_count: int
    covered: bool
    connected: bool
    largest: float
    covered_values: int
    possible_values: int


def connected_curve(
    train: Rows, rules: Rules, min_counts: Sequence[int] = MIN_COUNTS
) -> tuple[Connected, ...]:
    """Covered and connected for every `min_count`, from one counting of values and pairs."""
    links = Links.of(train)
    possible = np.concatenate([rules.possible_table([f]) for f in range(len(train.factors))])
    values = int(possible.sum())
    curve = []
    for least in min_counts:
        covered = int(np.count_nonzero(links.alone[possible] >= least))
        parts = links.components(least)
        first = np.count_nonzero((np.concatenate(parts.labels) == 0) & possible)
        curve.append(
            Connected(
                min_count=least,
                covered=covered == values,
                connected=parts.connected,
                largest=float(first / values) if values else 1.0,
                covered_values=covered,
                possible_values=values,
            )
        )
    return tuple(curve)


@dataclass(frozen=True)
class Exposure:
    """Which shares of the target's traffic hold something that no training row does.

    They overlap: traffic with a new pair is also traffic with a new combination.
    """

    combinations: float
    triples: float
    pairs: float
    values: float

    def sentence(self) -> str:
        """The exposure in words.

        >>> Exposure(0.25, 0.2, 0.1, 0.0).sentence()
        '25.0 % of target traffic lies in combinations, and 10.0 % in pairs, never trained'
        """
        return (
            f"{_percent(self.combinations)} of target traffic lies in combinations, and "
            f"{_percent(self.pairs)} in pairs, never trained"
        )


def exposure(
    train: Rows, target: Rows, weights: Float[np.ndarray, " row"] | None = None
) -> Exposure:
    """The shares of target traffic never trained; `weights` says how much traffic a row stands for.

    The tables are aligned: the same factors with the same values.
    """
    traffic = traffic_shares(target, weights)
    new = novelty(train, target, nearest=False)
    unseen = {
        "combinations": new.level > 0,
        "triples": new.triples_new > 0,
        "pairs": new.pairs_new > 0,
        "values": new.rarest_value == 0,
    }
    return Exposure(**{name: float(traffic @ new.by_row(mask)) for name, mask in unseen.items()})


def traffic_shares(
    target: Rows, weights: Float[np.ndarray, " row"] | None = None
) -> Float[np.ndarray, " row"]:
    """The share of traffic of each row; they sum to 1."""
    heavy = np.ones(len(target)) if weights is None else np.asarray(weights, float)
    if heavy.shape != (len(target),) or not np.all(heavy >= 0) or not 0 < heavy.sum() < np.inf:
        raise InvalidRequest(
            f"the traffic of {target.source} needs one weight for each of its {len(target)} rows, "
            f"none negative or missing and not all zero; given: shape {heavy.shape}, "
            f"from {heavy.min(initial=np.inf):g} to {heavy.max(initial=-np.inf):g}"
        )
    return heavy / heavy.sum()


def _left_out(train: Rows, t: int, most_cells: int) -> tuple[str, ...]:
    """What a table of t factors does not hold."""
    if not projections(train, t):
        return (f"no row has {t} values to combine: choose more factors for t = {t}",)
    return tuple(
        f"{' x '.join(train.names[f] for f in chosen)} has {cells(train, chosen):,} cells, more "
        f"than {most_cells:,}: group rare values to count it"
        for chosen in too_large(train, t, most_cells)
    )


def _percent(share: float) -> str:
    # A little is not nothing: what rounds to zero says so.
    return "less than 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
