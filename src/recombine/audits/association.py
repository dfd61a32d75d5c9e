"""How strongly factors go together, with one another and with a label.

Two factors that always come together cannot be told apart by any model: what one does, the other
seems to do. The strength is Cramér's V with Bergsma's correction (2013), which is 0 on average
where two columns have nothing to do with each other; the plain V grows with the number of values.

A list column takes part value by value: a row holds the value or does not. The strongest value (or
pair of values, for two lists) speaks for the column, and its p-value is multiplied by how many
there were to choose from. A list is not compared with itself: values that fill the same few places
always push one another out a little.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy import special, stats

from recombine.errors import InvalidRequest
from recombine.lab.statistics import Interval, holm
from recombine.report.document import Table
from recombine.seeds import host_seed
from recombine.tables.counting import count, count_all
from recombine.tables.rows import MISSING, Factor, Rows

STRONG = 0.3
_LABEL_BINS, _LABEL_VALUES = 5, 20
_DRAWS, _DRAWN_CELLS = 9999, 20_000_000
_MOST_CELLS = 2**24
_HOPELESS = 0.5  # below so many standard errors no exact test comes near a usual level
_LARGE = 100_000  # cells beyond which drawing tables costs more than it tells

Counts = Float[np.ndarray, "first second"]


@dataclass(frozen=True)
class Association:
    """How strongly two columns go together.

    `strength` is the bias-corrected V, `plain` the uncorrected one; both are NaN where a column
    has one value only. `adjusted_p` is Holm's, over all pairs. `where` names the values of list
    columns that go together most. `confounded`: too strong for the two to be told apart well.
    """

    first: str
    second: str
    strength: float
    plain: float
    p: float
    adjusted_p: float
    method: str
    rows: int
    confounded: bool = False
    where: str = ""

    @property
    def sentence(self) -> str:
        """The finding in words."""
        if math.isnan(self.strength):
            return f"{self.first} and {self.second}: {self.method}."
        word = "confounded" if self.confounded else "not confounded"
        at = f", most at {self.where}" if self.where else ""
        return (
            f"{self.first} and {self.second} are {word}: V = {self.strength:.2f}{at} "
            f"(p = {self.adjusted_p:.2g}, adjusted for all pairs)."
        )


@dataclass(frozen=True)
class Associations:
    """All pairs of factors, and each factor with the label, strongest first."""

    pairs: tuple[Association, ...]
    names: tuple[str, ...]

    @property
    def confounded(self) -> tuple[Association, ...]:
        """The pairs too strong to be told apart well."""
        return tuple(pair for pair in self.pairs if pair.confounded)

    def matrix(self) -> Float[np.ndarray, "name name"]:
        """Strengths by name, for a heat map; NaN on the diagonal."""
        found = np.full((len(self.names),) * 2, np.nan)
        for pair in self.pairs:
            i, j = self.names.index(pair.first), self.names.index(pair.second)
            found[i, j] = found[j, i] = pair.strength
        return found

    def table(self, most: int = 50) -> Table:
        """The strongest pairs as a table for a report."""
        columns = ("first", "second", "V", "plain V", "p, adjusted", "confounded", "most at")
        lines = [
            (a.first, a.second, _shown(a.strength), _shown(a.plain), a.adjusted_p,
             "yes" if a.confounded else "no", a.where)
            for a in self.pairs[:most]
        ]  # fmt: skip
        note = "V is Cramér's V with Bergsma's correction. p is adjusted for all pairs (Holm)."
        return Table("Association between factors", columns, lines, note)


def associations(
    rows: Rows,
    *,
    label: str | np.ndarray | None = None,
    strong: float = STRONG,
    level: float = 0.05,
    tables: Mapping[tuple[int, int], np.ndarray] | None = None,
    seed: int = 0,
) -> Associations:
    """The association of every pair of factors, and of every factor with a label.

    `label` is a column of the rows, or one entry per row. A label of more than 20 different
    numbers is cut at its quintiles. A pair is confounded when V is at least `strong` and its
    adjusted p at most `level`. `tables` are counts of pairs of factors that are known already.

    >>> one = Factor("colour", ("red", "blue"), np.repeat([0, 1], 50))
    >>> two = Factor("shape", ("cube", "ball"), np.repeat([0, 1], 50))
    >>> associations(Rows("toy", (one, two))).pairs[0].sentence
    'colour and shape are confounded: V = 1.00 (p = 1.5e-23, adjusted for all pairs).'
    """
    if label is not None:
        rows = replace(rows, factors=(*rows.factors, _label(rows, label)))
    # One reading of the rows counts all pairs; with pairs known, only those of the label remain.
    known = dict(count_all(rows, 2, most_cells=_MOST_CELLS)) if tables is None else dict(tables)
    singles = [count(rows, (place,)) for place in range(len(rows.factors))]
    found = []
    for i, j in itertools.combinations(range(len(rows.factors)), 2):
        if rows.sizes[i] * rows.sizes[j] > _MOST_CELLS:
            nothing = (math.nan, math.nan, 1.0, 1.0)
            names = (rows.names[i], rows.names[j])
            found.append(Association(*names, *nothing, "not compared: too many values", len(rows)))
            continue
        both = known.get((i, j))
        both = count(rows, (i, j)) if both is None else both
        found.append(_pair(rows, i, j, np.asarray(both, float), singles, seed))
    if found:
        adjusted = holm([one.p for one in found]).p
        found = [
            replace(one, adjusted_p=p, confounded=one.strength >= strong and p <= level)
            for one, p in zip(found, adjusted, strict=True)
        ]
    found.sort(key=lambda one: -math.inf if math.isnan(one.strength) else one.strength)
    return Associations(tuple(reversed(found)), rows.names)


def cramers_v(table: Sequence[Sequence[float]] | np.ndarray, *, corrected: bool = True) -> float:
    """Cramér's V of a table of counts, with Bergsma's correction or plain.

    Empty lines are left out; NaN where a column has one value only.

    >>> cramers_v([[10, 10], [10, 10]], corrected=False), round(cramers_v([[9, 1], [1, 9]]), 3)
    (0.0, 0.787)
    """
    kept = _occurring(np.asarray(table, float))
    n, (lines, columns) = kept.sum(), kept.shape
    if min(kept.shape) < 2 or n < 2:
        return math.nan
    spread = _chi_squared(kept) / n
    if not corrected:
        return math.sqrt(spread / (min(lines, columns) - 1))
    spread = max(0.0, spread - (lines - 1) * (columns - 1) / (n - 1))
    lines, columns = (size - (size - 1) ** 2 / (n - 1) for size in (lines, columns))
    most = min(lines, columns) - 1
    # With as many values as rows the correction leaves nothing to divide by, and nothing to say.
    return min(1.0, math.sqrt(spread / most)) if most > 1e-12 else math.nan


def independence_p(
    table: Sequence[Sequence[float]] | np.ndarray, *, seed: int = 0
) -> tuple[float, str]:
    """The p-value of "the two columns have nothing to do with each other", and how it was made.

    Chi-squared where expected counts allow it (four in five at least 5, none below 1), otherwise
    by drawing tables with the same margins, which is what shuffling one column does.

    >>> independence_p([[50, 50], [50, 50]])
    (1.0, 'chi-squared')
    """
    kept = _occurring(np.asarray(table, float))
    if min(kept.shape) < 2:
        return 1.0, "one value only"
    observed = _chi_squared(kept)
    freedom = (kept.shape[0] - 1) * (kept.shape[1] - 1)
    by_formula = float(stats.chi2.sf(observed, freedom))
    expected = _expected(kept)
    if expected.min() >= 1 and np.mean(expected >= 5) >= 0.8:
        return by_formula, "chi-squared"
    if kept.size > _LARGE:
        return by_formula, "chi-squared, rough: few rows per cell"
    rng = np.random.default_rng(host_seed(seed, "association"))
    margins = (kept.sum(axis=1).astype(int), kept.sum(axis=0).astype(int))
    draws = max(199, min(_DRAWS, _DRAWN_CELLS // kept.size))
    drawn = stats.random_table(*margins, seed=rng).rvs(size=draws)
    statistics = ((drawn - expected) ** 2 / expected).sum(axis=(1, 2))
    # The table seen counts as one of the draws, so p is never 0; rounding does not part ties.
    reached = int(np.sum(statistics >= observed * (1 - 1e-9) - 1e-9))
    return (1 + reached) / (1 + draws), f"{draws} shuffles"


def fisher(
    wrong: np.ndarray, size: np.ndarray, others: np.ndarray, rest: np.ndarray
) -> Float[np.ndarray, " slice"]:
    """One-sided exact p-values of "these rows fail no more than those"; 1 where far from it.

    >>> fisher(np.array([3.0]), np.array([4.0]), np.array([1.0]), np.array([4.0])).round(4)
    array([0.2429])
    """
    total, bad = size + rest, wrong + others
    mean = size * bad / np.maximum(total, 1)
    spread = np.sqrt(mean * (1 - bad / np.maximum(total, 1)) * rest / np.maximum(total - 1, 1))
    p = np.ones(len(wrong))
    close = (rest > 0) & (wrong - mean > _HOPELESS * spread)
    p[close] = _upper_tail(wrong[close], total[close], bad[close], size[close])
    return p


def _upper_tail(
    k: np.ndarray, total: np.ndarray, bad: np.ndarray, size: np.ndarray
) -> Float[np.ndarray, " slice"]:
    """The chance of k or more among `size` drawn of `total`, of which `bad` are bad.

    Term by term from k on: near the mean's far side few terms count, also in large populations.
    """
    good = total - bad
    odds = _log_choose(bad, k) + _log_choose(good, size - k) - _log_choose(total, size)
    sums, term, at, left = np.ones(len(k)), np.ones(len(k)), k.copy(), np.arange(len(k))
    while len(left):
        here = at[left]
        down = (here + 1) * (good[left] - size[left] + here + 1)
        term = term * (bad[left] - here) * (size[left] - here) / down
        sums[left] += term
        at[left] += 1
        more = term > 1e-15 * sums[left]
        left, term = left[more], term[more]
    return np.minimum(np.exp(odds) * sums, 1.0)


def _log_choose(total: np.ndarray, some: np.ndarray) -> np.ndarray:
    whole = special.gammaln(total + 1)
    return whole - special.gammaln(some + 1) - special.gammaln(total - some + 1)


def wilson(
    failures: int | np.ndarray, size: int | np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's bounds of a share; 0 and 1 where there are no rows.

    >>> [round(float(end), 3) for end in wilson(5, 10)]
    [0.237, 0.763]
    """
    n = np.asarray(size, float)
    rows = np.maximum(n, 1)
    share = np.asarray(failures, float) / rows
    z = float(special.ndtri((1 + level) / 2))
    centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    reach = z * np.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2)) / (1 + z**2 / rows)
    low = np.where((n > 0) & (share > 0), np.clip(centre - reach, 0, 1), 0.0)
    return low, np.where((n > 0) & (share < 1), np.clip(centre + reach, 0, 1), 1.0)


def newcombe(failures: int, size: int, others: int, rest: int, level: float = 0.95) -> Interval:
    """The difference of two shares with Newcombe's interval (1998), made of Wilson's bounds.

    >>> effect = newcombe(56, 70, 48, 80)
    >>> round(effect.estimate, 4), round(effect.low, 4), round(effect.high, 4)
    (0.2, 0.0524, 0.3339)
    """
    if size < 1 or rest < 1:
        raise InvalidRequest(f"{size} rows against {rest}: expected at least one on each side")
    one, other = failures / size, others / rest
    low, high = (float(end) for end in wilson(failures, size, level))
    other_low, other_high = (float(end) for end in wilson(others, rest, level))
    gap = one - other
    below = math.hypot(one - low, other_high - other)
    above = math.hypot(high - one, other - other_low)
    return Interval(gap, gap - below, gap + above, size, "Newcombe", level)


def _pair(
    rows: Rows, i: int, j: int, both: Counts, singles: Sequence[np.ndarray], seed: int
) -> Association:
    one, other = rows.factors[i], rows.factors[j]
    table, choices, where = both, 1, ""
    if one.many or other.many:
        options = list(_indicators(both, singles[i], singles[j], len(rows), one.many, other.many))
        strengths = [cramers_v(option, corrected=False) for _, option in options]
        best = int(np.argmax(np.nan_to_num(strengths, nan=-1.0)))
        (v, w), table = options[best]
        choices = max(1, int(np.sum(~np.isnan(strengths))))
        at = ({i: v} if v is not None else {}) | ({j: w} if w is not None else {})
        where = rows.label(at)
    p, method = independence_p(table, seed=seed)
    p = min(1.0, p * choices)
    return Association(
        one.name, other.name, cramers_v(table), cramers_v(table, corrected=False),
        p, p, method, round(float(table.sum())), where=where,
    )  # fmt: skip


def _indicators(
    both: Counts, first: np.ndarray, second: np.ndarray, rows: int, many: bool, other_many: bool
):
    """One table per value of a list column: rows that hold the value, rows that do not."""
    if many and other_many:
        for v, w in np.ndindex(*both.shape):
            here, left, right = both[v, w], float(first[v]), float(second[w])
            yield (
                (v, w),
                np.array([[here, left - here], [right - here, rows - left - right + here]]),
            )
    elif many:
        for v, line in enumerate(both):
            yield (v, None), np.stack([line, second - line])
    else:
        for w, column in enumerate(both.T):
            yield (None, w), np.stack([column, first - column], axis=1)


def _label(rows: Rows, label: str | np.ndarray) -> Factor:
    name = label if isinstance(label, str) else "label"
    given = rows.column(label) if isinstance(label, str) else np.asarray(label)
    if given.shape != (len(rows),):
        raise InvalidRequest(
            f"the label has shape {given.shape}: expected one entry for each of {len(rows)} rows"
        )
    name = name if name not in rows.names else f"{name} (label)"
    rule = "as written"
    if np.issubdtype(given.dtype, np.number):
        numbers = given.astype(float)
        there = ~np.isnan(numbers)
        if len(np.unique(numbers[there])) > _LABEL_VALUES:
            cuts = np.unique(np.quantile(numbers[there], np.arange(1, _LABEL_BINS) / _LABEL_BINS))
            numbers = np.where(there, np.searchsorted(cuts, numbers, side="right"), np.nan)
            rule = f"cut at {', '.join(f'{cut:g}' for cut in cuts)}"
        given = np.array([f"{x:g}" if x == x else "" for x in np.unique(numbers)], object)[
            np.unique(numbers, return_inverse=True)[1]
        ]
    values, codes = np.unique(given.astype(str), return_inverse=True)
    return Factor(name, tuple(str(v) or MISSING for v in values), codes, rule)


def _occurring(table: Counts) -> Counts:
    if table.ndim != 2 or (table < 0).any():
        raise InvalidRequest(f"a table of shape {table.shape}: expected two axes of counts")
    return table[table.any(axis=1)][:, table.any(axis=0)]


def _expected(table: Counts) -> Counts:
    return np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()


def _chi_squared(table: Counts) -> float:
    expected = _expected(table)
    return float(((table - expected) ** 2 / expected).sum())


def _shown(strength: float) -> float | None:
    return None if math.isnan(strength) else strength
