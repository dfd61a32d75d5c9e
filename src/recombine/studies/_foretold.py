"""How the foretold study reads its rows: which combinations fail, and what would have said so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, special, stats

from recombine.lab.statistics import Interval, holm_levels, mean_interval, p_value_against
from recombine.lab.study import Results, Row
from recombine.seeds import host_seed
from recombine.studies._base import SEEN_FLOOR

KEPT = 0.9  # the part of the seen score that must be left, of a dataset or of a combination
UNLINKED = 3  # the level of novelty from which on modules were never linked, or never seen
FEWEST = 5  # failing and passing combinations without which nothing is ranked
EDGE = 0.005  # no prediction is surer than this, so that one surprise costs no fortune
NOVELTY, OVERALL, USAGE = "novelty", "overall rate", "rarest usage"
MODELS = (NOVELTY, OVERALL, USAGE)

Vector = Float[np.ndarray, " combination"]
Columns = Float[np.ndarray, "combination column"]
Dataset = tuple[str, str, float, int]


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


def whole(row: Row) -> bool:
    """Whether a dataset shows every value and links them all."""
    return bool(row.labels["covered"] and row.labels["connected"])


def dataset(row: Row) -> Dataset:
    labels = row.labels
    return (labels["family"], labels["rule"], labels["held_out"], labels["seed"])


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


def scores(row: Row) -> Vector:
    """The score of each unseen combination by itself."""
    table = row.readings[instrument(row)].tables["unseen"]
    for name in ("success", "whole"):
        if name in table:
            return np.asarray(table[name], float)
    return 1 - np.asarray(table["error"], float) / np.asarray(table["variance"], float)


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
    alike in every family.
    """

    failed: Bool[np.ndarray, " combination"]
    size: Int[np.ndarray, " combination"]
    known: dict[str, Vector]
    columns: Columns
    usage: Columns

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
    return Unseen(
        scores(row) < KEPT * seen(row), size, known,
        np.stack([np.asarray(one, float) for one in told], axis=1), usage[:, None],
    )  # fmt: skip


def auroc(newer: Vector, failed: Bool[np.ndarray, " n"], groups: np.ndarray | None = None) -> float:
    """The chance that of a failing and a passing one the failing one is newer, ties by half.

    With groups, only pairs of one group count. NaN where there is no pair.
    """
    won, pairs = 0.0, 0
    for group in np.unique(groups) if groups is not None else (None,):
        here = np.ones(len(failed), bool) if group is None else np.asarray(groups) == group
        bad, place = failed[here], stats.rankdata(newer[here])
        failing, passing = int(bad.sum()), int((~bad).sum())
        won += float(place[bad].sum()) - failing * (failing + 1) / 2
        pairs += failing * passing
    return won / pairs if pairs else float("nan")


def ranking(name: str, same_size: bool = False) -> Callable[[Row], float]:
    """AUROC of one predictor among the unseen combinations of a network, or NaN."""

    def number(row: Row) -> float:
        found = unseen_of(row)
        if not found.ranked or name not in found.known:
            return float("nan")
        return auroc(found.known[name], found.failed, found.size if same_size else None)

    return number


def shuffled(row: Row) -> float:
    """The same of the novelty level after the combinations of a network were shuffled."""
    found = unseen_of(row)
    if not found.ranked:
        return float("nan")
    words = "/".join(str(row.labels[name]) for name in ("family", "rule", "held_out", "width"))
    rng = np.random.default_rng(host_seed(row.labels["seed"], words))
    return auroc(rng.permutation(found.known["level"]), found.failed)


@dataclass(frozen=True, eq=False)
class Foretold:
    """Chances of failure in one network of a family that no model was fitted to."""

    row: Row
    failed: Bool[np.ndarray, " combination"]
    chances: dict[str, Vector]

    def log_loss(self, model: str) -> float:
        chance = np.where(self.failed, self.chances[model], 1 - self.chances[model])
        return float(-np.log(chance).mean())


def foretold(results: Results) -> dict[str, list[Foretold]]:
    """Each family's networks, as models fitted to all other families foretell them.

    Every network counts alike, however many combinations it was asked for.
    """
    rows = [(row, unseen_of(row)) for row in trained(results)]
    families = list(dict.fromkeys(row.labels["family"] for row, _ in rows))
    found: dict[str, list[Foretold]] = {}
    for family in families if len(families) > 1 else ():
        others = [one for row, one in rows if row.labels["family"] != family]
        failed = np.concatenate([one.failed for one in others]).astype(float)
        weight = np.concatenate([np.full(len(o.failed), 1 / len(o.failed)) for o in others])
        fits = {
            NOVELTY: fit(np.concatenate([one.columns for one in others]), failed, weight),
            USAGE: fit(np.concatenate([one.usage for one in others]), failed, weight),
        }
        rate = float(np.average(failed, weights=weight))
        for row, one in rows:
            if row.labels["family"] != family:
                continue
            chances = {
                NOVELTY: fits[NOVELTY](one.columns),
                OVERALL: np.full(len(one.failed), rate),
                USAGE: fits[USAGE](one.usage),
            }
            chances = {name: np.clip(value, EDGE, 1 - EDGE) for name, value in chances.items()}
            found.setdefault(family, []).append(Foretold(row, one.failed, chances))
    return found


def fit(columns: Columns, failed: Vector, weight: Vector) -> Callable[[Columns], Vector]:
    """A logistic regression on z-scored columns under a faint normal prior, as a predictor.

    >>> told = fit(np.array([[0.0], [1.0]] * 50), np.array([0.0, 1.0] * 50), np.ones(100))
    >>> bool(told(np.array([[0.0]]))[0] < 0.1 and told(np.array([[1.0]]))[0] > 0.9)
    True
    """
    weight = weight * len(weight) / weight.sum()
    centre = np.average(columns, axis=0, weights=weight)
    spread = np.sqrt(np.average((columns - centre) ** 2, axis=0, weights=weight))
    spread = np.where(spread > 1e-9, spread, 1.0)

    def design(given: Columns) -> Columns:
        return np.column_stack([np.ones(len(given)), (given - centre) / spread])

    lines = design(columns)
    precision = np.append(1e-4, np.full(columns.shape[1], 1.0))

    def cost(at: np.ndarray) -> tuple[float, np.ndarray]:
        odds = lines @ at
        value = weight @ (np.logaddexp(0, odds) - failed * odds) + precision @ at**2 / 2
        return float(value), lines.T @ (weight * (special.expit(odds) - failed)) + precision * at

    found = optimize.minimize(cost, np.zeros(lines.shape[1]), jac=True, method="L-BFGS-B",
                              options={"maxiter": 500}).x  # fmt: skip
    return lambda given: special.expit(design(given) @ found)


def gains(told: Sequence[Foretold], over: str) -> np.ndarray:
    """Log loss of the prediction minus that of a baseline, one number a dataset: less is better."""
    by_row = {id(one.row): one.log_loss(NOVELTY) - one.log_loss(over) for one in told}
    return np.asarray(list(by_dataset([o.row for o in told], lambda row: by_row[id(row)]).values()))


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
