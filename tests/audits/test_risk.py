from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, special
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from recombine.audits.risk import ADDITIVE, ALL, MODELS, RISK, calibration, risk
from recombine.audits.risk_models import (
    Described,
    clustered_auroc,
    clustered_estimate,
    clustered_mean,
    distances,
    fit_logistic,
    fit_nearest,
    fit_rarest_pair,
)
from recombine.errors import InvalidRequest
from recombine.lab.intervals import clustered_interval
from recombine.tables.novelty import LEVELS, novelty
from recombine.tables.rows import Factor, Rows, aligned


def table(codes: np.ndarray, sizes: tuple[int, ...], source: str = "t") -> Rows:
    return Rows(
        source,
        tuple(
            Factor(f"f{i}", tuple(f"v{v}" for v in range(size)), codes[:, i])
            for i, size in enumerate(sizes)
        ),
    )


def drawn(rng: np.random.Generator, rows: int, sizes: tuple[int, ...]) -> Rows:
    return table(np.stack([rng.integers(0, size, rows) for size in sizes], axis=1), sizes)


def described(items: np.ndarray, factor_of: list[int] | None = None, **facts) -> Described:
    zeros = np.zeros(len(items))
    places = list(range(items.shape[1])) if factor_of is None else factor_of
    rarest = facts.get("rarest_pair", zeros)
    level = zeros.astype(int)
    return Described(
        items, np.array(places), int(items.max()) + 1, level, 5, rarest, zeros[:, None]
    )


def additive_odds(rows: Rows) -> np.ndarray:
    codes = rows.matrix()
    return -2 + 1.5 * (codes[:, 0] == 1) + 1.0 * (codes[:, 1] == 2)


SIZES = (5, 5, 5, 5)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_the_fit_is_the_one_scikit_learn_finds(seed):
    rng = np.random.default_rng(seed)
    design = (rng.random((60, 6)) < 0.4).astype(float)
    size = rng.integers(1, 9, 60).astype(float)
    bad = rng.binomial(size.astype(int), special.expit(design @ rng.normal(size=6))).astype(float)
    truth = LogisticRegression(C=4.0, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
        np.concatenate([design, design]),
        np.repeat([1, 0], 60),
        sample_weight=np.concatenate([bad, size - bad]),
    )
    found = fit_logistic(sparse.csr_array(design), bad, size, np.full(6, 2.0))
    assert found == pytest.approx(truth.coef_[0], abs=1e-4)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_area_is_the_one_scikit_learn_computes_with_ties(seed):
    rng = np.random.default_rng(seed)
    chance, size = rng.integers(1, 9, 30) / 10, rng.integers(1, 6, 30).astype(float)
    bad = np.floor(size * rng.random(30))
    bad[0], size[0] = 1.0, 2.0
    area, pull = clustered_auroc(chance, bad, size, np.zeros(30, int))
    truth = roc_auc_score(
        np.repeat([1, 0], 30), np.tile(chance, 2), sample_weight=np.concatenate([bad, size - bad])
    )
    assert area == pytest.approx(truth)
    assert pull.sum() == pytest.approx(0.0, abs=1e-9)


def test_a_constant_told_per_fold_has_an_area_of_one_half():
    fold = np.arange(40) % 4
    bad = np.arange(40) % 3 == 0
    chance = np.array([0.1, 0.2, 0.3, 0.4])[fold]
    assert clustered_auroc(chance, bad * 1.0, np.ones(40), fold)[0] == pytest.approx(0.5)


def test_intervals_over_combinations_are_close_to_a_bootstrap_over_combinations():
    rng = np.random.default_rng(0)
    size = rng.integers(1, 30, 80).astype(float)
    rate = rng.beta(1, 3, 80)
    bad = rng.binomial(size.astype(int), rate).astype(float)
    chance = np.clip(rate + rng.normal(0, 0.2, 80), 0.01, 0.99)
    units = list(range(80))
    mean = clustered_interval(lambda u: bad[u].sum() / size[u].sum(), units, resamples=800)
    ours = clustered_mean(bad, size)
    assert (ours.low, ours.high) == pytest.approx((mean.low, mean.high), abs=0.02)
    fold = np.zeros(80, int)
    area = clustered_interval(
        lambda u: clustered_auroc(chance[u], bad[u], size[u], fold[u])[0], units, resamples=800
    )
    ours = clustered_estimate(*clustered_auroc(chance, bad, size, fold), (0.0, 1.0))
    assert ours.estimate == area.estimate
    assert (ours.low, ours.high) == pytest.approx((area.low, area.high), abs=0.03)


def test_a_combination_repeated_in_more_rows_makes_no_interval_narrower():
    rng = np.random.default_rng(0)
    size = np.ones(50)
    bad = (rng.random(50) < 0.3).astype(float)
    one, many = clustered_mean(bad, size), clustered_mean(100 * bad, 100 * size)
    assert (one.low, one.high) == pytest.approx((many.low, many.high))


def test_distances_count_values_that_differ_and_values_only_one_list_holds():
    plain = described(np.array([[0, 3], [1, 3], [1, 4]]))
    assert distances(plain, plain).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    lists = described(np.array([[0, 1, 2], [0, 1, -1], [3, 4, 5]]), [0, 0, 0])
    assert distances(lists, lists).tolist() == [[0, 1, 6], [1, 0, 5], [6, 5, 0]]


def test_the_nearest_neighbour_baseline_is_what_brute_force_finds():
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(0, 4, (120, 5)), axis=0) + 4 * np.arange(5)
    size = rng.integers(1, 9, len(codes)).astype(float)
    bad = np.floor(size * rng.random(len(codes)))
    known, asked = described(codes[:80]), described(codes[80:])
    found = fit_nearest(known, bad[:80], size[:80], rng)(asked)
    rate = (bad[:80].sum() + 0.5) / (size[:80].sum() + 1)
    for line, chance in zip(codes[80:], found, strict=True):
        apart = (codes[:80] != line).sum(axis=1)
        near = apart == apart.min()
        assert chance == pytest.approx(
            (bad[:80][near].sum() + rate) / (size[:80][near].sum() + 1), rel=1e-5
        )


def test_the_rarest_pair_baseline_never_rises_with_the_count():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 20, 200).astype(float)
    size = np.full(200, 10.0)
    bad = rng.binomial(10, 0.6 / (1 + counts / 5)).astype(float)
    items = np.zeros((200, 1), int)
    chance = fit_rarest_pair(described(items, rarest_pair=counts), bad, size)(
        described(np.zeros((30, 1), int), rarest_pair=np.linspace(-1, 25, 30))
    )
    assert (np.diff(chance) <= 1e-12).all()
    assert chance[0] > 0.4 > 0.25 > chance[-1] > 0


def test_where_effects_add_up_the_result_says_so_and_uses_them():
    beaten = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        train, evaluation = drawn(rng, 300, SIZES), drawn(rng, 4000, SIZES)
        chance = special.expit(additive_odds(evaluation))
        found = risk(train, evaluation, rng.random(4000) >= chance)
        beaten += found.beats_additive
        if not found.beats_additive:
            assert "does not beat additive marginals" in found.sentence
            assert found.used == ADDITIVE
            told = found.predict(evaluation)
            assert np.abs(told.probability - chance).mean() < 0.03
    assert beaten <= 1


def test_where_novelty_makes_rows_fail_the_risk_model_wins_at_every_level():
    rng = np.random.default_rng(0)
    train, evaluation = aligned(drawn(rng, 120, SIZES), drawn(rng, 6000, SIZES))
    level = novelty(train, evaluation).row_level
    chance = np.array([0.05, 0.1, 0.3, 0.7, 0.9])[level]
    found = risk(train, evaluation, 1 - (rng.random(6000) < chance))
    assert found.beats_additive
    assert found.used == RISK
    ours, plain = found.score(RISK), found.score(ADDITIVE)
    assert ours is not None and plain is not None
    assert ours.auroc.low > plain.auroc.high
    assert ours.gain.high < 0 == plain.gain.estimate
    for one in found.calibration:
        assert one.predicted == pytest.approx(one.observed.estimate, abs=0.12)
    assert len(found.table().rows) == len(MODELS) * (1 + len(found.validated))
    told = found.predict(evaluation)
    assert np.abs(told.probability - chance).mean() < 0.08


def test_one_bad_pair_is_learnt_from_other_combinations_that_hold_it():
    rng = np.random.default_rng(0)
    train, evaluation = drawn(rng, 2000, SIZES), drawn(rng, 4000, SIZES)
    codes = evaluation.matrix()
    bad = rng.random(4000) < np.where((codes[:, 0] == 1) & (codes[:, 1] == 2), 0.8, 0.05)
    found = risk(train, evaluation, ~bad)
    assert found.beats_additive
    pair = np.array([[1, 2, 0, 0], [1, 0, 0, 0]])
    told = found.predict(table(pair, SIZES)).probability
    assert told[0] > 0.5 > 0.2 > told[1]


def test_scores_are_those_of_rows_held_out_with_their_whole_combination():
    """Each combination always fails or never does, by a coin: nothing can be foretold."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.unique(rng.integers(0, 6, (150, 4)), axis=0), 20, axis=0)
    coin = np.repeat(rng.random(len(codes) // 20) < 0.3, 20)
    evaluation = table(codes, (6,) * 4)
    found = risk(drawn(rng, 400, (6,) * 4), evaluation, ~coin)
    assert not found.beats_additive
    for model in MODELS:
        score = found.score(model)
        assert score is not None
        assert score.auroc.low <= 0.5
        assert score.log_loss.estimate > 0.55


def test_rows_of_a_combination_that_always_agree_count_as_one():
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(0, 6, (150, 4)), axis=0)
    coin, train = rng.random(len(codes)) < 0.3, drawn(rng, 400, (6,) * 4)
    one = risk(train, table(codes, (6,) * 4), ~coin).score(ADDITIVE)
    many = risk(train, table(np.repeat(codes, 20, axis=0), (6,) * 4), ~np.repeat(coin, 20)).score(
        ADDITIVE
    )
    assert one is not None and many is not None
    assert many.log_loss.estimate == pytest.approx(one.log_loss.estimate, abs=0.03)


def test_scores_are_those_scikit_learn_gives_the_overall_rate():
    rng = np.random.default_rng(0)
    train, evaluation = drawn(rng, 300, (4, 4, 4)), drawn(rng, 2000, (4, 4, 4))
    bad = rng.random(2000) < 0.3
    score = risk(train, evaluation, ~bad).score("overall rate")
    assert score is not None
    # Folds of 64 combinations hold about a fifth of the rows, so the rate told is nearly the same.
    told = np.full(2000, bad.mean())
    assert score.log_loss.estimate == pytest.approx(log_loss(bad, told), abs=0.005)
    assert score.brier.estimate == pytest.approx(brier_score_loss(bad, told), abs=0.002)
    assert score.auroc.estimate == pytest.approx(0.5)
    assert score.rows == 2000
    assert score.level == ALL


def test_there_is_no_probability_at_a_level_that_was_not_validated():
    rng = np.random.default_rng(0)
    train = drawn(rng, 3000, (4, 4, 4))
    bad = rng.random(1500) < special.expit(additive_odds(evaluation := drawn(rng, 1500, (4, 4, 4))))
    found = risk(train, evaluation, ~bad)
    assert found.validated == ("seen",)
    others = Rows(
        "o",
        tuple(Factor(f"f{i}", ("v0", "unheard"), np.array([0, int(i == 1)])) for i in range(3)),
    )
    told = found.predict(others)
    assert not math.isnan(told.probability[0])
    assert math.isnan(told.probability[1])
    assert LEVELS[told.level[1]] == "new value"
    assert told.why == ("1 rows at level 'new value': not validated at this level",)


def test_a_level_with_a_handful_of_combinations_counts_as_absent():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (2000, 3))
    kept = ~((codes[:, 0] == 0) & (codes[:, 1] == 0) & (codes[:, 2] < 3))
    train = table(codes[kept], (4, 4, 4))
    evaluation = drawn(rng, 1500, (4, 4, 4))
    found = risk(train, evaluation, rng.random(1500) < 0.7)
    assert found.validated == ("seen",)
    assert {score.level for score in found.scores} == {ALL, "seen"}


class Forbid:
    def forbidden_rows(self, rows: Rows) -> np.ndarray:
        return (rows.factors[0].codes == 0) & (rows.factors[1].codes == 0)


def test_impossible_rows_are_left_out_and_get_no_probability():
    rng = np.random.default_rng(0)
    train, evaluation = drawn(rng, 5000, (4, 4, 4)), drawn(rng, 1500, (4, 4, 4))
    impossible = Forbid().forbidden_rows(evaluation)
    bad = impossible | (rng.random(1500) < 0.2)
    found = risk(train, evaluation, ~bad, Forbid())
    assert found.rows == 1500 - impossible.sum()
    assert found.notes == (f"{impossible.sum()} evaluated rows are impossible by the rules",)
    told = found.predict(evaluation)
    assert np.isnan(told.probability[impossible]).all()
    assert told.probability[~impossible].mean() == pytest.approx(0.2, abs=0.05)
    assert told.why == (f"{impossible.sum()} rows are impossible by the rules",)


def test_list_columns_have_a_risk_too():
    rng = np.random.default_rng(0)

    def lists(rows: int, most: int) -> Rows:
        held = np.array([sorted(rng.choice(8, most, replace=False)) for _ in range(rows)])
        held[rng.random(rows) < 0.3, -1] = -1
        return Rows("l", (Factor("m", tuple("abcdefgh"), held),))

    train, evaluation = lists(300, 3), lists(3000, 4)
    codes = evaluation.factors[0].codes
    both = (codes == 1).any(axis=1) & (codes == 4).any(axis=1)
    found = risk(train, evaluation, rng.random(3000) >= np.where(both, 0.8, 0.1))
    assert found.beats_additive
    asked = Rows("a", (Factor("m", tuple("abcdefgh"), np.array([[1, 4, 5], [0, 4, 5]])),))
    told = found.predict(asked).probability
    assert told[0] > 0.5 > 0.3 > told[1]


def test_scores_between_right_and_wrong_and_missing_ones_are_taken():
    rng = np.random.default_rng(0)
    train, evaluation = drawn(rng, 300, (4, 4, 4)), drawn(rng, 2000, (4, 4, 4))
    score = np.clip(0.8 - 0.4 * (evaluation.factors[0].codes == 1) + rng.normal(0, 0.1, 2000), 0, 1)
    score[:50] = np.nan
    found = risk(train, evaluation, score)
    assert found.rows == 1950
    assert found.notes == ("50 evaluated rows have no outcome",)
    told = found.predict(evaluation).probability
    assert told[evaluation.factors[0].codes == 1].mean() == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize(
    ("codes", "outcome", "said"),
    [
        (np.zeros((50, 2), int), np.arange(50) % 2, "only 1 combinations were evaluated"),
        (np.arange(50)[:, None] % [5, 7], np.ones(50), "no row fails"),
        (np.arange(50)[:, None] % [5, 7], np.zeros(50), "every row fails"),
        (np.zeros((0, 2), int), np.zeros(0), "only 0 combinations were evaluated"),
    ],
)
def test_with_too_little_to_learn_from_it_says_so_and_tells_no_probability(codes, outcome, said):
    rows = table(codes, (5, 7))
    train = drawn(np.random.default_rng(0), 50, (5, 7))
    found = risk(train, rows, outcome)
    assert said in found.sentence
    assert not found.beats_additive
    told = found.predict(train)
    assert np.isnan(told.probability).all()
    assert said in told.why[0]


@pytest.mark.parametrize("outcome", [np.full(10, 2.0), np.zeros(9), np.array(["yes"] * 10)])
def test_outcomes_that_are_no_scores_are_refused(outcome):
    rows = drawn(np.random.default_rng(0), 10, (2, 2))
    with pytest.raises(InvalidRequest, match="expected"):
        risk(rows, rows, outcome)


def test_the_same_seed_gives_the_same_numbers_whatever_the_order_of_rows():
    rng = np.random.default_rng(0)
    train, evaluation = drawn(rng, 300, (4, 4, 4)), drawn(rng, 1000, (4, 4, 4))
    right = rng.random(1000) < 0.7
    order = rng.permutation(1000)
    one = risk(train, evaluation, right, seed=3)
    other = risk(train, evaluation.take(order), right[order], seed=3)
    assert one.sentence == other.sentence
    assert one.scores == other.scores


def test_a_calibration_table_holds_all_rows_in_order():
    rng = np.random.default_rng(0)
    chance, size = rng.random(300), rng.integers(1, 20, 300).astype(float)
    bad = rng.binomial(size.astype(int), chance).astype(float)
    bins = calibration(chance, bad, size)
    assert sum(one.rows for one in bins) == size.sum()
    assert sum(one.combinations for one in bins) == 300
    assert [one.predicted for one in bins] == sorted(one.predicted for one in bins)
    assert np.mean([one.observed.contains(one.predicted) for one in bins]) >= 0.7


def test_a_simpler_model_that_does_better_is_named():
    rng = np.random.default_rng(0)
    lines = rng.integers(0, 6, (4000, 3))
    often = (lines[:, 0] + lines[:, 1]) % 6 > 1  # pairs that training holds
    named = [Factor(f"f{i}", tuple("uvwxyz"), lines[:, i]) for i in range(3)]
    everything = Rows("t", tuple(named))
    outcome = np.where(often, 1.0, 0.0)
    found = risk(everything.take(often), everything, outcome)
    best = min((s for s in found.scores if s.level == "all"), key=lambda s: s.log_loss.estimate)
    ours = found.score()
    assert ours is not None and best.model == "rarest pair"
    said = f"Better than the risk model: rarest pair ({best.log_loss.estimate:.3f})"
    assert said in found.sentence
