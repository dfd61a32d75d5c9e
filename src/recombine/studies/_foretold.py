"""How the foretold study reads its rows: which combinations fail, and what was known of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from recombine.lab.statistics import Interval, holm_levels, mean_interval, p_value_against
from recombine.lab.study import Results, Row
from recombine.seeds import host_seed
from recombine.studies._base import SEEN_FLOOR

KEPT = 0.9  # the part of the seen score that must be left, of a dataset or of a combination
UNLINKED = 3  # the level of novelty from which on modules were never linked, or never seen
FEWEST = 5  # failing and passing combinations without which nothing is ranked

Vector = Float[np.ndarray, " combination"]
Columns = Float[np.ndarray, "combination column"]
Dataset = tuple[str, str, float, int]
Kind = tuple[str, str, float]


def instrument(row: Row) -> str:
    """The reading that has the scores: pictures are judged by another than answers."""
    return "composition" if "composition" in row.readings else "generalization"


def seen(row: Row) -> float:
    return row.value(instrument(row), "seen")


def unseen(row: Row) -> float:
    return row.value(instrument(row), "unseen")


def untrained(row: Row) -> float:
    return row.value(instrument(row), "unseen", "untrained")


def kept(row: Row) -> float:
    """What is left of the seen score on unseen combinations."""
    return unseen(row) / seen(row)


def trained(results: Results) -> Results:
    """Networks that learnt what they were shown: others say nothing about what they were not."""
    return Results([row for row in results if not row.diverged and seen(row) >= SEEN_FLOOR])


def left_out(results: Results) -> str:
    """How many networks a claim leaves out, for its note."""
    behind = sum(not seen(row) >= SEEN_FLOOR for row in results if not row.diverged)
    words = [f"{behind} undertrained"] if behind else []
    words += [f"{results.diverged} diverged"] if results.diverged else []
    return f"Left out: {', '.join(words)}." if words else ""


def covered(results: Results) -> Results:
    """Networks on datasets that show every value.

    Nothing says what to do with a value that was never shown: that such combinations fail is no
    finding, and a prediction of it no merit.
    """
    return Results([row for row in results if row.labels["covered"]])


def whole(row: Row) -> bool:
    """Whether a dataset shows every value and links them all."""
    return bool(row.labels["covered"] and row.labels["connected"])


def dataset(row: Row) -> Dataset:
    labels = row.labels
    return (labels["family"], labels["rule"], labels["held_out"], labels["seed"])


def kind(row: Row) -> Kind:
    """What the datasets of several seeds have in common."""
    return dataset(row)[:3]


def by_dataset(
    rows: Sequence[Row],
    number: Callable[[Row], float],
    together: Callable[[Any], Any] = np.mean,
) -> dict[Dataset, float]:
    """A number for each dataset, of all its networks; those that have none are left out."""
    found: dict[Dataset, list[float]] = {}
    for row in rows:
        value = number(row)
        if np.isfinite(value):
            found.setdefault(dataset(row), []).append(value)
    return {place: float(together(values)) for place, values in found.items()}


def by_kind(rows: Sequence[Row], number: Callable[[Row], float]) -> dict[Kind, float]:
    """A number for each kind of dataset: the mean over its seeds, of the mean over networks.

    Seeds of one kind agree nearly as well as two networks on one dataset do: counted one by one
    they would promise more than there is.
    """
    found: dict[Kind, list[float]] = {}
    for place, value in by_dataset(rows, number).items():
        found.setdefault(place[:3], []).append(value)
    return {place: float(np.mean(values)) for place, values in found.items()}


def scores(row: Row, which: str = "unseen") -> Vector:
    """The score of each unseen (or seen) combination by itself."""
    table = row.readings[instrument(row)].tables[which]
    for name in ("success", "whole"):
        if name in table:
            return np.asarray(table[name], float)
    return 1 - np.asarray(table["error"], float) / np.asarray(table["variance"], float)


def failing(row: Row) -> float:
    """The share of unseen combinations that fail."""
    return float(np.mean(scores(row) < KEPT * seen(row)))


def failing_seen(row: Row) -> float:
    """The share of seen combinations that fail by the same rule, or would by luck; else NaN.

    Where a reading has no table of the seen, and a score is a share of right draws: the chance that
    so few draws of a combination, all at the seen score, count as failing.
    """
    tables = row.readings[instrument(row)].tables
    if "seen" in tables:
        return float(np.mean(scores(row, "seen") < KEPT * seen(row)))
    if not {"success", "whole"} & set(tables["unseen"]):
        return float("nan")
    draws = row.labels["draws"]
    rate = float(np.clip(seen(row), 0.0, 1.0))
    return float(stats.binom.cdf(np.ceil(KEPT * rate * draws) - 1, draws, rate))


def unlinked_score(row: Row) -> float:
    """The score on combinations of a value never seen, or of values never linked; else NaN."""
    table = row.readings[instrument(row)].tables["unseen"]
    chosen = np.asarray(table["level"]) >= UNLINKED
    if not chosen.any():
        return float("nan")
    if "success" in table or "whole" in table:
        return float(scores(row)[chosen].mean())
    error, variance = (np.asarray(table[name], float)[chosen] for name in ("error", "variance"))
    return float(1 - error.sum() / variance.sum())


def reaches(row: Row) -> float:
    """1 where that score is .9 of the seen score or more, else 0; NaN where there is none."""
    score = unlinked_score(row)
    return float("nan") if np.isnan(score) else float(score >= KEPT * seen(row))


PREDICTORS = {
    "level": "novelty level",
    "unseen_pairs": "pairs never trained",
    "unseen_triples": "triples never trained",
    "rarest_usage": "usage of the rarest",
    "distance": "distance in the graph",
    "nearest": "changes to the nearest",
}
"""What can be said of a combination before training, and how it is called in figures."""


@dataclass(frozen=True, eq=False)
class Unseen:
    """The unseen combinations of one network: which fail, and what was known of them.

    In `known` a larger number always means newer. `columns` says the same in numbers that mean
    alike in every family; `usage` is what rarity alone says. `alike` numbers groups of combinations
    of one size whose rarest module was seen equally often.
    """

    failed: Bool[np.ndarray, " combination"]
    size: Int[np.ndarray, " combination"]
    known: dict[str, Vector]
    columns: Columns
    usage: Columns
    alike: Int[np.ndarray, " combination"]

    @property
    def ranked(self) -> bool:
        """Whether there is something to rank, and novelty to rank it by."""
        failing = int(self.failed.sum())
        varies = bool(np.ptp(self.known["level"]) > 0)
        return min(failing, len(self.failed) - failing) >= FEWEST and varies


def unseen_of(row: Row) -> Unseen:
    """The unseen combinations of a network."""
    table = row.readings[instrument(row)].tables["unseen"]
    columns = {name: np.asarray(table[name], float) for name in PREDICTORS if name in table}
    size = np.asarray(table["size"])
    # No path is farther than any path there is.
    far = np.where(columns["distance"] < 0, 1 + columns["distance"].max(), columns["distance"])
    known = {**columns, "rarest_usage": -columns["rarest_usage"], "distance": far}
    level = columns["level"]
    # Of a set, another module in the place of one is two changes; of factors it is one.
    changes = columns.get("nearest", np.zeros(len(size)))
    changes = changes if row.labels["factors"] else np.ceil(changes / 2)
    usage = np.log2(columns["rarest_usage"] + 1)
    told = [
        *(level >= step for step in (2, UNLINKED, 4)),
        columns["unseen_pairs"] / np.maximum(size * (size - 1) / 2, 1),
        columns["unseen_triples"] / np.maximum(size * (size - 1) * (size - 2) / 6, 1),
        usage,
        np.where(columns["distance"] < 0, 3, np.minimum(columns["distance"], 3)),
        np.minimum(changes, 3),
    ]
    rarest = columns["rarest_usage"].astype(int)
    return Unseen(
        scores(row) < KEPT * seen(row), size, known,
        np.stack([np.asarray(one, float) for one in told], axis=1),
        # A line in the logarithm cannot say that never is another thing than seldom.
        np.column_stack([usage, usage == 0]),
        size * (1 + rarest.max()) + rarest,
    )  # fmt: skip


def auroc(
    newer: Vector,
    failed: Bool[np.ndarray, " n"],
    groups: np.ndarray | None = None,
    fewest: int = 1,
) -> float:
    """The chance that of a failing and a passing one the failing one is newer, ties by half.

    With groups, only pairs of one group count. NaN where there are fewer pairs than `fewest`.
    """
    won, pairs = 0.0, 0
    for group in np.unique(groups) if groups is not None else (None,):
        here = np.ones(len(failed), bool) if group is None else np.asarray(groups) == group
        bad, place = failed[here], stats.rankdata(newer[here])
        failing, passing = int(bad.sum()), int((~bad).sum())
        won += float(place[bad].sum()) - failing * (failing + 1) / 2
        pairs += failing * passing
    return won / pairs if pairs >= fewest else float("nan")


def ranking(name: str, same_size: bool = False) -> Callable[[Row], float]:
    """AUROC of one predictor among the unseen combinations of a network, or NaN."""

    def number(row: Row) -> float:
        found = unseen_of(row)
        if not found.ranked or name not in found.known:
            return float("nan")
        return auroc(found.known[name], found.failed, found.size if same_size else None)

    return number


def within_alike(row: Row, ties: bool = False) -> float:
    """The same of the novelty level among combinations alike in size and rarest usage, or NaN.

    Of groups that are equally new, too, nothing is asked, unless as ties: they would count as
    ranked by chance.
    """
    found = unseen_of(row)
    if not found.ranked:
        return float("nan")
    level, groups = found.known["level"], np.unique(found.alike)
    varied = [group for group in groups if ties or np.ptp(level[found.alike == group]) > 0]
    here = np.isin(found.alike, varied)
    return auroc(level[here], found.failed[here], found.alike[here], fewest=FEWEST**2)


def shuffled(row: Row) -> float:
    """The same of the novelty level after the combinations of a network were shuffled."""
    found = unseen_of(row)
    if not found.ranked:
        return float("nan")
    return auroc(_shuffle(row).permutation(found.known["level"]), found.failed)


def shuffled_alike(row: Row) -> float:
    """The same after only combinations alike in size and rarest usage changed places.

    What this leaves above .5 is said by size and rarity, and not by novelty.
    """
    found = unseen_of(row)
    if not found.ranked:
        return float("nan")
    rng, level = _shuffle(row), found.known["level"].copy()
    for group in np.unique(found.alike):
        here = np.flatnonzero(found.alike == group)
        level[here] = level[rng.permutation(here)]
    return auroc(level, found.failed)


def _shuffle(row: Row) -> np.random.Generator:
    words = "/".join(str(row.labels[name]) for name in ("family", "rule", "held_out", "width"))
    return np.random.default_rng(host_seed(row.labels["seed"], words))


def worst(values: dict[str, np.ndarray]) -> Callable[[float], Interval]:
    """The interval of the family that speaks most against "below 0 in every family".

    Levels are Holm's for so many families, so that all of them hold together.
    """
    against = [p_value_against(found, 0.0) for found in values.values()]

    def interval(level: float) -> Interval:
        levels = holm_levels(against, 1 - level)
        pairs = zip(values.values(), levels, strict=True)
        return max((mean_interval(v, level=one) for v, one in pairs), key=lambda i: i.high)

    return interval


def share_interval(values: Sequence[float] | np.ndarray) -> Callable[[float], Interval]:
    """The exact interval of a share, after Clopper and Pearson: one number from 0 to 1 a unit.

    It is not empty where all units agree. Where a unit is itself a share (of its networks), it
    errs to the wide side.

    >>> round(share_interval([0.0] * 24)(0.95).high, 4)
    0.1425
    """
    count, total = len(values), float(np.sum(values))

    def interval(level: float) -> Interval:
        tail = (1 - level) / 2
        low = float(stats.beta.ppf(tail, total, count - total + 1)) if total > 0 else 0.0
        high = float(stats.beta.ppf(1 - tail, total + 1, count - total)) if total < count else 1.0
        return Interval(total / count, low, high, count, "Clopper-Pearson", level)

    return interval
