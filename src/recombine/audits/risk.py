"""How likely a combination is to fail, from how others failed and what training saw.

A probability is only worth printing where it was put to the test. So every model is scored on
combinations that were held out whole, at each level of novelty, beside four baselines; where the
risk model does not beat effects that simply add up, value by value, those are used and the result
says so; and at a level of novelty that was never scored there is no probability at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from recombine.audits import risk_models as models
from recombine.audits.rates import clustered_rate
from recombine.audits.risk_models import (
    Columns,
    Described,
    Predictor,
    clustered_auroc,
    clustered_estimate,
    clustered_mean,
)
from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval
from recombine.report.document import Table
from recombine.seeds import host_seed
from recombine.tables.counting import Combinations, combination_keys
from recombine.tables.novelty import LEVELS, novelty
from recombine.tables.rows import NONE, Rows, aligned

RISK, ADDITIVE = "risk model", "additive marginals"
MODELS = (RISK, ADDITIVE, "overall rate", "rarest pair", "nearest neighbour")
ALL = "all"
LEAST, LEAST_AT_LEVEL = 20, 5  # combinations without which nothing, or no level, is scored
FOLDS, BINS = 5, 10
MOST = 50_000  # combinations that are fitted; of more, that many are drawn
_EDGE = 1e-6
_COMPARISONS = 10**8  # of combinations with trained ones: some seconds

Column = Float[np.ndarray, " combination"]


class Forbids(Protocol):
    """Rules that say which rows are impossible."""

    def forbidden_rows(self, rows: Rows) -> Bool[np.ndarray, " row"]: ...


@dataclass(frozen=True)
class Score:
    """How well one model foretold the failures of held-out combinations of one level.

    `gain` is its log loss minus that of additive marginals on the same combinations (below 0 is
    better). Every interval takes a combination as the unit, not a row.
    """

    model: str
    level: str
    combinations: int
    rows: int
    log_loss: Interval
    brier: Interval
    auroc: Interval
    gain: Interval


@dataclass(frozen=True)
class Bin:
    """Held-out combinations with like predictions: what was said, and what happened."""

    predicted: float
    observed: Interval
    combinations: int
    rows: int


@dataclass(frozen=True, eq=False)
class Predicted:
    """The chance of failure of each row, NaN where none is known; `why` says why, once a reason."""

    probability: Float[np.ndarray, " row"]
    level: Int[np.ndarray, " row"]
    why: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Risk:
    """A validated model of failure.

    `beats_additive`: the whole interval of the difference in log loss lies below 0. Otherwise
    predictions are those of additive marginals. `validated` are the levels of novelty at which
    held-out combinations were scored. `notes` say what was left out, and why.
    """

    sentence: str
    beats_additive: bool
    scores: tuple[Score, ...]
    calibration: tuple[Bin, ...]
    validated: tuple[str, ...]
    combinations: int
    rows: int
    notes: tuple[str, ...] = ()
    _predictor: Predictor | None = field(default=None, repr=False)
    _train: Rows | None = field(default=None, repr=False)
    _rules: Forbids | None = field(default=None, repr=False)

    @property
    def used(self) -> str:
        """The name of the model that predictions come from."""
        return RISK if self.beats_additive else ADDITIVE

    def score(self, model: str = RISK, level: str = ALL) -> Score | None:
        """One line of the scores, or nothing where none was made."""
        return next((s for s in self.scores if (s.model, s.level) == (model, level)), None)

    def predict(self, rows: Rows) -> Predicted:
        """The chance of failure of other rows with the same factors.

        NaN for rows that the rules forbid, and at levels of novelty absent from validation.
        """
        count = len(rows)
        if self._train is None or self._predictor is None:
            said = (f"no probability for {count} rows: {self.sentence}",)
            return Predicted(np.full(count, np.nan), np.full(count, -1), said)
        train, others = aligned(self._train, rows)
        forbidden = np.zeros(count, bool)
        if self._rules is not None:
            forbidden = self._rules.forbidden_rows(_known(self._train, others))
        asked, distinct = _described(train, others, self._train)
        chance, level = self._predictor(asked)[distinct.inverse], asked.level[distinct.inverse]
        why = []
        for place, name in enumerate(LEVELS):
            here = (level == place) & ~forbidden
            if name not in self.validated and here.any():
                chance[here] = np.nan
                why.append(f"{int(here.sum())} rows at level {name!r}: not validated at this level")
        if forbidden.any():
            chance[forbidden] = np.nan
            why.append(f"{int(forbidden.sum())} rows are impossible by the rules")
        return Predicted(chance, level, tuple(why))

    def table(self) -> Table:
        """All scores as a table for a report."""
        columns = ("level", "model", "combinations", "log loss", "Brier", "AUROC",
                   "log loss against additive", "from", "to")  # fmt: skip
        lines = [
            (s.level, s.model, s.combinations, *map(_shown, (s.log_loss.estimate, s.brier.estimate,
             s.auroc.estimate, s.gain.estimate, s.gain.low, s.gain.high)))
            for s in self.scores
        ]  # fmt: skip
        return Table("Risk on held-out combinations", columns, lines, self.sentence)


def risk(
    train: Rows,
    evaluation: Rows,
    outcome: np.ndarray,
    rules: Forbids | None = None,
    seed: int = 0,
) -> Risk:
    """The chance of failure of a combination, validated on combinations held out whole.

    `outcome` has one number per evaluated row: 1 for right, 0 for wrong, or a score between; rows
    with NaN are left out. `rules` are over the rows as given; rows they forbid are left out.
    """
    failure = _failures(evaluation, outcome)
    kept = ~np.isnan(failure)
    notes = [f"{int((~kept).sum())} evaluated rows have no outcome"] if not kept.all() else []
    if rules is not None and (broken := rules.forbidden_rows(evaluation) & kept).any():
        notes.append(f"{int(broken.sum())} evaluated rows are impossible by the rules")
        kept &= ~broken
    if not kept.all():
        evaluation, failure = evaluation.take(kept), failure[kept]
    rng = np.random.default_rng(host_seed(seed, "risk"))
    train, evaluation = aligned(train, evaluation)
    known, distinct = _described(train, evaluation, train)
    count, rows = len(known), len(evaluation)
    size = np.bincount(distinct.inverse, minlength=count).astype(float)
    bad = np.bincount(distinct.inverse, failure, count)
    constant = bad.sum() in (0.0, float(rows))
    if count < LEAST or constant:
        reason = "no row fails" if not bad.sum() else "every row fails"
        few = f"only {count} combinations were evaluated, at least {LEAST} are needed"
        why = f"Risk cannot be told: {reason if constant and rows else few}."
        return Risk(why, False, (), (), (), count, rows, tuple(notes))
    if count > MOST:
        some = np.sort(rng.choice(count, MOST, replace=False))
        known, size, bad = known.take(some), size[some], bad[some]
        notes.append(f"fitted and scored on {MOST} of {count} combinations, drawn at random")
    columns = Columns.of(known)
    if not len(columns.pairs) and known.items.shape[1] > 1:
        notes.append("effects of pairs are left out: too many, or none occurs twice")
    fits = _fits(columns, rng)
    chances, fold = _held_out(known, bad, size, fits, rng)
    scores, validated = _scores(chances, known.level, bad, size, fold)
    gain = next(s.gain for s in scores if (s.model, s.level) == (RISK, ALL))
    beats = gain.high < 0
    used = RISK if beats else ADDITIVE
    return Risk(
        _sentence(scores, beats), beats, scores, calibration(chances[used], bad, size), validated,
        count, rows, tuple(notes), fits[used](known, bad, size), train, rules,
    )  # fmt: skip


def calibration(chance: Column, bad: Column, size: Column, bins: int = BINS) -> tuple[Bin, ...]:
    """Predictions in bins of about as many rows each: what was said, and what happened."""
    order = np.argsort(chance, kind="stable")
    place = (np.cumsum(size[order]) - size[order] / 2) / size.sum() * bins
    found = []
    for number in np.unique(place.astype(int)):
        here = order[place.astype(int) == number]
        rows = size[here]
        found.append(
            Bin(
                float(chance[here] @ rows / rows.sum()), clustered_rate(bad[here], rows), len(here),
                round(float(rows.sum())),
            )
        )  # fmt: skip
    return tuple(found)


def _fits(
    columns: Columns, rng: np.random.Generator
) -> dict[str, Callable[[Described, Column, Column], Predictor]]:
    def calm(known: Described, bad: Column, size: Column) -> tuple[Described, Column, Column]:
        weight = models.row_weight(known, bad, size, columns)
        return known, bad * weight, size * weight

    return {
        RISK: lambda *told: models.fit_risk(*calm(*told), columns, rng),
        ADDITIVE: lambda *told: models.fit_additive(*calm(*told), columns),
        "overall rate": lambda known, bad, size: models.fit_overall(bad, size),
        "rarest pair": models.fit_rarest_pair,
        "nearest neighbour": lambda known, bad, size: models.fit_nearest(known, bad, size, rng),
    }


def _held_out(
    known: Described,
    bad: Column,
    size: Column,
    fits: dict[str, Callable[[Described, Column, Column], Predictor]],
    rng: np.random.Generator,
) -> tuple[dict[str, Column], Int[np.ndarray, " combination"]]:
    """Chances from models that never saw the combination, and folds, which are alike in novelty."""
    order = np.lexsort((rng.random(len(known)), known.level))
    fold = np.empty(len(known), int)
    fold[order] = np.arange(len(known)) % FOLDS
    found = {name: np.empty(len(known)) for name in fits}
    for number in range(FOLDS):
        out, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        asked, told = known.take(out), known.take(rest)
        for name, fit in fits.items():
            chance = fit(told, bad[rest], size[rest])(asked)
            found[name][out] = np.clip(chance, _EDGE, 1 - _EDGE)
    return found, fold


def _scores(
    chances: dict[str, Column],
    level: Int[np.ndarray, " combination"],
    bad: Column,
    size: Column,
    fold: Int[np.ndarray, " combination"],
) -> tuple[tuple[Score, ...], tuple[str, ...]]:
    """Every model at every level that has enough combinations, and those levels."""
    enough = [place for place in range(len(LEVELS)) if np.sum(level == place) >= LEAST_AT_LEVEL]
    parts = [(ALL, np.ones(len(level), bool))]
    parts += [(LEVELS[place], level == place) for place in enough]
    found = []
    for name, here in parts:
        k, n = bad[here], size[here]
        additive = _log_loss(chances[ADDITIVE][here], k, n)
        for model in MODELS:
            p = chances[model][here]
            loss = _log_loss(p, k, n)
            # k is a sum of scores between 0 and 1; a score of a half is half a failure.
            squares = k * (1 - p) ** 2 + (n - k) * p**2
            area, pull = clustered_auroc(p, k, n, fold[here])
            found.append(
                Score(
                    model, name, int(here.sum()), round(float(n.sum())), clustered_mean(loss, n),
                    clustered_mean(squares, n), clustered_estimate(area, pull, (0.0, 1.0)),
                    clustered_mean(loss - additive, n),
                )
            )  # fmt: skip
    return tuple(found), tuple(LEVELS[place] for place in enough)


def _log_loss(chance: Column, bad: Column, size: Column) -> Column:
    """Minus the log-likelihood, summed over the rows of each combination."""
    return -special.xlogy(bad, chance) - special.xlog1py(size - bad, -chance)


def _sentence(scores: tuple[Score, ...], beats: bool) -> str:
    ours, plain = (
        next(s for s in scores if (s.model, s.level) == (name, ALL)) for name in (RISK, ADDITIVE)
    )
    numbers = (
        f"log loss {ours.log_loss.estimate:.3f} against {plain.log_loss.estimate:.3f} on held-out "
        f"combinations, difference {ours.gain.estimate:+.3f} (95 % interval {ours.gain.low:+.3f} "
        f"to {ours.gain.high:+.3f}, {ours.combinations} combinations)"
    )
    # As far as it shows: a difference in the fourth digit is nothing to act on.
    better = [
        f"{s.model} ({s.log_loss.estimate:.3f})"
        for s in scores
        if s.level == ALL
        and s.model not in (RISK, ADDITIVE)
        and round(s.log_loss.estimate, 3) < round(ours.log_loss.estimate, 3)
    ]
    simpler = f" Better than the risk model: {', '.join(better)}." if better else ""
    if beats:
        return f"The risk model beats additive marginals: {numbers}.{simpler}"
    return (
        f"The risk model does not beat additive marginals: {numbers}.{simpler} "
        "The probabilities given are those of additive marginals, value by value."
    )


def _failures(evaluation: Rows, outcome: np.ndarray) -> Float[np.ndarray, " row"]:
    given = np.asarray(outcome)
    if given.shape != (len(evaluation),) or given.dtype.kind not in "biuf":
        raise InvalidRequest(
            f"outcome has shape {given.shape} and type {given.dtype}: expected one number for "
            f"each of {len(evaluation)} evaluated rows"
        )
    right = given.astype(float)
    if np.any((right < 0) | (right > 1)):
        worst = right[(right < 0) | (right > 1)][0]
        raise InvalidRequest(
            f"an outcome is {worst:g}: expected 1 for right, 0 for wrong, or a score between; "
            "divide scores by their maximum"
        )
    return 1 - right


def _known(train: Rows, others: Rows) -> Rows:
    """Other rows with the values that training knows alone: no rule is about any other."""
    factors = [
        replace(old, codes=np.where(new.codes >= old.size, NONE, new.codes.astype(np.int64)))
        for old, new in zip(train.factors, others.factors, strict=True)
    ]
    return Rows(others.source, tuple(factors))


def _described(train: Rows, others: Rows, frame: Rows) -> tuple[Described, Combinations]:
    """What training says of each different combination; items are numbered as in the frame."""
    seen = novelty(train, others, limit=_COMPARISONS)
    distinct = seen.combinations
    starts = np.concatenate([[0], np.cumsum(frame.sizes)])
    widths = [f.codes.shape[1] if f.many else 1 for f in others.factors]
    factor_of = np.repeat(np.arange(len(widths)), widths)
    codes, values = np.asarray(distinct.codes, np.int64), int(starts[-1])
    # A value that the frame does not know gets a number past all others.
    new = codes >= np.asarray(frame.sizes)[factor_of]
    items = np.where(new, values + factor_of, codes + starts[factor_of])
    counts = (_trained(train, others, distinct), seen.rarest_pair, seen.rarest_value)
    numbers = np.column_stack(
        [*(np.log1p(np.asarray(count, float)) for count in counts), seen.pairs_new,
         np.log1p(seen.triples_new), seen.nearest]
    )  # fmt: skip
    described = Described(
        np.where(codes == NONE, NONE, items), factor_of, values, np.asarray(seen.level, np.int64),
        len(LEVELS), np.asarray(seen.rarest_pair, float), numbers.astype(float),
    )  # fmt: skip
    return described, distinct


def _trained(train: Rows, others: Rows, distinct: Combinations) -> Column:
    """How many training rows each combination has."""
    before, keys = combination_keys(train, others)
    known, counts = np.unique(before, return_counts=True)
    key = np.empty(len(distinct.codes), np.int64)
    key[distinct.inverse] = keys
    place = np.minimum(np.searchsorted(known, key), len(known) - 1)
    return np.where(known[place] == key, counts[place], 0).astype(float)


def _shown(number: float) -> float | None:
    return number if math.isfinite(number) else None
