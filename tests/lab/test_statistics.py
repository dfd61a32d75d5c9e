"""Intervals, tests and verdicts against closed forms, scipy, statsmodels and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from recombine.errors import InvalidRequest
from recombine.lab.judge import judge
from recombine.lab.statistics import (
    Interval,
    clustered_interval,
    holm,
    holm_levels,
    least_squares,
    matched,
    mean_interval,
    median_interval,
    p_value_against,
    partial_correlation,
    pearson,
    permutation_p,
    verdict,
    within_group_correlation,
)
from recombine.lab.study import SHARE, Claim, Evidence, Results

numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))


def between(low: float, high: float, units: int = 5) -> Interval:
    return Interval((low + high) / 2, low, high, units, "given", 0.95)


def pooled_mean(units: list[np.ndarray]) -> float:
    return float(np.concatenate(units).mean())


# Intervals of a mean


@given(st.lists(numbers, min_size=2, max_size=30, unique=True), st.sampled_from([0.8, 0.95]))
@settings(deadline=None)
def test_the_interval_of_a_median_is_scipys(values, level):
    found = median_interval(values, level=level)
    expected = stats.quantile_test(values, p=0.5).confidence_interval(level)
    low, high = (
        x if np.isfinite(x) else s * math.inf for x, s in zip(expected, (-1, 1), strict=True)
    )
    assert (found.low, found.high) == (low, high)
    assert found.estimate == np.median(values)


@given(st.lists(numbers, min_size=2, max_size=9), st.sampled_from([0.8, 0.95, 0.999]))
@settings(deadline=None)
def test_below_ten_units_the_interval_is_student_t(values, level):
    found = mean_interval(values, level=level)
    if np.std(values) < 1e-9:
        assert (found.low, found.high) == (found.estimate, found.estimate)
        return
    low, high = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-9, atol=1e-9)


def test_one_unit_gives_an_infinite_interval_around_its_value():
    found = mean_interval([0.7])
    assert (found.estimate, found.low, found.high) == (0.7, -math.inf, math.inf)
    assert p_value_against([0.7], 0.0) == 1.0


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf], [[1.0, 2.0]]])
def test_values_that_cannot_be_averaged_are_refused(values):
    with pytest.raises(InvalidRequest):
        mean_interval(values)


@pytest.mark.parametrize(
    ("draw", "truth", "units"),
    [
        (lambda rng, n: rng.normal(3, 2, n), 3.0, 5),
        (lambda rng, n: rng.normal(3, 2, n), 3.0, 10),
        (lambda rng, n: rng.normal(3, 2, n), 3.0, 25),
        (lambda rng, n: rng.beta(8, 1, n), 8 / 9, 30),
    ],
)
def test_ninety_five_percent_intervals_cover_the_truth_about_that_often(draw, truth, units):
    rng = np.random.default_rng(units)
    covered = np.mean([mean_interval(draw(rng, units)).contains(truth) for _ in range(400)])
    assert 0.915 <= covered <= 0.98


def test_holm_sized_levels_still_cover_with_ten_units():
    rng = np.random.default_rng(1)
    missed = sum(
        not mean_interval(rng.normal(size=10), level=0.995).contains(0) for _ in range(400)
    )
    assert missed <= 9  # two expected


def test_with_many_units_the_bootstrap_meets_scipys_bca():
    values = np.random.default_rng(0).exponential(size=400)
    found = mean_interval(values)
    expected = stats.bootstrap((values,), np.mean, n_resamples=4000, rng=1).confidence_interval
    width = expected.high - expected.low
    assert found.method == "bootstrap BCa"
    assert abs(found.low - expected.low) < 0.05 * width
    assert abs(found.high - expected.high) < 0.05 * width


def test_one_failed_seed_does_not_blow_the_interval_past_the_range_of_scores():
    found = mean_interval([0.99, 0.985, 0.991, 0.993, 0.988, 0.99, 0.992, 0.989, 0.99, 0.2])
    assert 0.2 <= found.low < 0.7
    assert found.high <= 0.993


def test_an_interval_depends_on_the_seed_only_slightly_and_on_nothing_else():
    values = np.random.default_rng(2).normal(size=15)
    assert mean_interval(values, seed=3) == mean_interval(values[::-1].copy(), seed=3)
    a, b = mean_interval(values, seed=3), mean_interval(values, seed=4)
    assert a != b
    assert abs(a.low - b.low) < 0.1 * (a.high - a.low)


@given(
    st.lists(numbers, min_size=10, max_size=14),
    st.floats(0.01, 10),
    st.floats(-5, 5),
)
@settings(max_examples=25, deadline=None)
def test_intervals_move_and_stretch_with_the_values(values, scale, shift):
    values = np.asarray(values)
    if values.std() < 1e-3:
        return
    plain, moved = mean_interval(values), mean_interval(scale * values + shift)
    np.testing.assert_allclose(
        [moved.low, moved.high],
        [scale * plain.low + shift, scale * plain.high + shift],
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("units", [7, 12])
def test_a_higher_level_gives_a_wider_interval(units):
    values = np.random.default_rng(5).exponential(size=units)
    found = [mean_interval(values, level=level) for level in (0.5, 0.9, 0.95, 0.999, 0.99999)]
    for inner, outer in itertools.pairwise(found):
        assert outer.low < inner.low < inner.high < outer.high


# Clusters


def test_clusters_of_one_row_give_the_interval_of_a_mean():
    values = np.random.default_rng(0).normal(size=8)
    found = clustered_interval(pooled_mean, [np.array([value]) for value in values])
    expected = mean_interval(values)
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high])


@pytest.mark.parametrize("clusters", [6, 15])
def test_cluster_intervals_cover_where_row_intervals_do_not(clusters):
    rng = np.random.default_rng(clusters)
    clustered = naive = 0
    for _ in range(120):
        units = [rng.normal() + 0.3 * rng.normal(size=8) for _ in range(clusters)]
        clustered += clustered_interval(pooled_mean, units, resamples=400).contains(0)
        naive += mean_interval(np.concatenate(units)).contains(0)
    assert clustered >= 106
    assert naive <= 80


def test_a_statistic_that_fails_on_a_unit_left_out_says_it_does_not_know():
    def ratio(units: list[float]) -> float:
        return 1.0 if sum(units) > 0 else math.nan

    found = clustered_interval(ratio, [1.0] + [0.0] * 5)
    assert (found.low, found.high) == (-math.inf, math.inf)


# p-values


def signed_means(values: list[float]) -> list[float]:
    return [
        float(np.mean(np.asarray(signs) * values))
        for signs in itertools.product([1, -1], repeat=len(values))
    ]


@given(st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=7))
@settings(deadline=None)
def test_sign_flips_are_counted_exactly_for_a_few_units(values):
    means, observed = signed_means(values), float(np.mean(values))
    greater = np.mean([mean >= observed - 1e-9 for mean in means])
    both = np.mean([abs(mean) >= abs(observed) - 1e-9 for mean in means])
    assert permutation_p(values, side="greater") == pytest.approx(greater)
    assert permutation_p(values) == pytest.approx(both)
    assert permutation_p([-value for value in values], side="less") == pytest.approx(greater)


def test_sign_flips_agree_with_scipy_for_many_units():
    values = np.random.default_rng(0).normal(0.3, 1, 40)
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, rng=1
    ).pvalue
    assert permutation_p(values) == pytest.approx(expected, abs=0.01)


def test_five_units_on_one_side_are_significant_one_sided_only():
    values = [0.1, 0.2, 0.1, 0.3, 0.2]
    assert permutation_p(values, side="greater") == pytest.approx(1 / 32)
    assert permutation_p(values) == pytest.approx(2 / 32)


@pytest.mark.parametrize("side", ["greater", "less", "two-sided"])
def test_p_values_of_a_few_units_are_the_t_test(side):
    values = [0.2, 0.5, 0.1, 0.4, 0.9]
    _, expected = stats.ttest_1samp(values, 0.3, alternative=side)
    assert p_value_against(values, 0.3, side) == pytest.approx(expected)
    assert p_value_against(mean_interval(values), 0.3, side) == pytest.approx(expected)


@pytest.mark.parametrize("units", [6, 12, 30])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99, 0.9999])
def test_p_values_and_intervals_exclude_the_same_thresholds(units, level):
    values = np.random.default_rng(units).exponential(size=units)
    found = mean_interval(values, level=level)
    width = found.high - found.low
    for end, outwards in ((found.low, -1), (found.high, 1)):
        assert p_value_against(values, end) == pytest.approx(1 - level, rel=1e-2)
        assert p_value_against(values, end + outwards * 0.01 * width) < 1 - level
        assert p_value_against(values, end - outwards * 0.01 * width) > 1 - level


def test_holm_agrees_with_statsmodels():
    p = np.random.default_rng(0).uniform(0, 0.05, 12)
    rejected, adjusted = multipletests(p, alpha=0.05, method="holm")[:2]
    found = holm(p.tolist())
    np.testing.assert_allclose(found.p, np.asarray(adjusted))
    assert found.rejected == rejected.tolist()


def test_holm_levels_step_down_until_the_first_failure():
    assert holm_levels([0.001, 0.02, 0.9]) == pytest.approx([1 - 0.05 / 3, 1 - 0.05 / 2, 0.95])
    assert holm_levels([0.9, 0.03, 0.001]) == pytest.approx([0.975, 0.975, 1 - 0.05 / 3])
    assert holm_levels([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(deadline=None)
def test_a_claim_passes_at_its_holm_level_exactly_when_holm_rejects_it(p):
    found = holm(p)
    for value, level, rejected, adjusted in zip(
        p, found.levels, found.rejected, found.p, strict=True
    ):
        assert (value <= (1 - level) * (1 + 1e-9)) == rejected
        assert (adjusted <= 0.05 * (1 + 1e-9)) == rejected


def test_p_values_that_are_not_probabilities_are_refused():
    with pytest.raises(InvalidRequest):
        holm([0.1, math.nan])


# Verdicts


@pytest.mark.parametrize(
    ("low", "high", "criterion", "expected"),
    [
        (0.8, 0.9, {"at_least": 0.8}, "supported"),
        (0.8, 0.9, {"above": 0.8}, "inconclusive"),
        (0.7, 0.8, {"above": 0.8}, "refuted"),
        (0.7, 0.8, {"at_least": 0.8}, "inconclusive"),
        (0.7, 0.79, {"at_least": 0.8}, "refuted"),
        (0.1, 0.2, {"at_most": 0.2}, "supported"),
        (0.1, 0.2, {"below": 0.2}, "inconclusive"),
        (0.2, 0.3, {"below": 0.2}, "refuted"),
        (0.47, 0.53, {"at_least": 0.45, "at_most": 0.55}, "supported"),
        (0.4, 0.6, {"at_least": 0.45, "at_most": 0.55}, "inconclusive"),
        (0.6, 0.7, {"at_least": 0.45, "at_most": 0.55}, "refuted"),
        (-math.inf, math.inf, {"above": 0.0}, "inconclusive"),
        (math.nan, math.nan, {"above": 0.0}, "inconclusive"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low, high, criterion, expected):
    assert verdict(between(low, high), **criterion) == expected


def test_four_units_can_refute_but_not_support():
    assert verdict(between(0.8, 0.9, units=4), at_least=0.5) == "inconclusive"
    assert verdict(between(0.8, 0.9, units=4), at_most=0.5) == "refuted"


@pytest.mark.parametrize("criterion", [{}, {"at_least": math.nan}, {"above": 1.0, "below": 0.0}])
def test_a_criterion_that_says_nothing_or_contradicts_itself_is_refused(criterion):
    with pytest.raises(InvalidRequest):
        verdict(between(0, 1), **criterion)


# Correlations


def test_a_correlation_and_its_interval_agree_with_scipy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    expected = stats.pearsonr(x, y)
    found = pearson(x, y)
    assert found.estimate == pytest.approx(expected[0])
    low, high = expected.confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], [low, high])


def test_a_constant_has_no_correlation():
    found = pearson([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert math.isnan(found.estimate)
    assert (found.low, found.high) == (-1, 1)
    assert verdict(found, at_least=-1.0) == "inconclusive"


def test_a_partial_correlation_matches_the_inverse_covariance():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(60, 2))
    x, y = z @ [1.0, 2.0] + rng.normal(size=60), z @ [2.0, -1.0] + rng.normal(size=60)
    inverse = np.linalg.inv(np.cov(np.column_stack([x, y, z]).T))
    expected = -inverse[0, 1] / math.sqrt(inverse[0, 0] * inverse[1, 1])
    found = partial_correlation(x, y, z)
    assert found.estimate == pytest.approx(expected)
    half = stats.norm.ppf(0.975) / math.sqrt(60 - 2 - 3)
    assert found.high == pytest.approx(math.tanh(math.atanh(expected) + half))


def test_redundant_covariates_change_nothing():
    rng = np.random.default_rng(2)
    x, y, z = rng.normal(size=(3, 40))
    doubled = np.column_stack([z, 2 * z + 1, np.ones(40)])
    plain, redundant = partial_correlation(x, y, z), partial_correlation(x, y, doubled)
    assert redundant.estimate == pytest.approx(plain.estimate)
    assert redundant.low == pytest.approx(plain.low)


def test_a_variable_the_covariates_explain_has_no_partial_correlation():
    rng = np.random.default_rng(3)
    y, z = rng.normal(size=(2, 40))
    assert math.isnan(partial_correlation(3 * z - 1, y, z).estimate)


def test_within_groups_the_correlation_can_have_the_other_sign():
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(8), 6)
    level = groups.astype(float)
    x = level + 0.2 * rng.normal(size=48)
    y = level - (x - level) + 0.05 * rng.normal(size=48)
    assert pearson(x, y).low > 0.8
    found = within_group_correlation(x, y, groups)
    dummies = np.equal.outer(groups, np.arange(7)).astype(float)
    by_dummies = partial_correlation(x, y, dummies)
    assert found.high < -0.8
    for ours, theirs in zip(
        (found.estimate, found.low, found.high),
        (by_dummies.estimate, by_dummies.low, by_dummies.high),
        strict=True,
    ):
        assert ours == pytest.approx(theirs)


def test_within_groups_fishers_interval_covers():
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(10), 4)
    covered = 0
    for _ in range(400):
        shared, shift = rng.normal(size=40), rng.normal(size=10)[groups]
        x, y = shared + rng.normal(size=40) + 5 * shift, shared + rng.normal(size=40) - 5 * shift
        covered += within_group_correlation(x, y, groups).contains(0.5)
    assert 0.92 <= covered / 400 <= 0.98


def test_clustered_rows_widen_the_interval_of_a_correlation():
    rng = np.random.default_rng(6)
    cluster = np.repeat(np.arange(12), 10)
    x, y = (rng.normal(size=12)[cluster] + 0.1 * rng.normal(size=120) for _ in range(2))
    plain, clustered = pearson(x, y), pearson(x, y, cluster=cluster)
    assert clustered.estimate == pytest.approx(plain.estimate)
    assert clustered.units == 12
    assert clustered.high - clustered.low > 2 * (plain.high - plain.low)
    assert -1 <= clustered.low < clustered.high <= 1


# Regression


@pytest.fixture
def clustered_rows():
    rng = np.random.default_rng(7)
    cluster = np.repeat(np.arange(14), rng.integers(2, 9, 14))
    x = rng.normal(size=(len(cluster), 2))
    x = np.column_stack([x, x[:, 0] * x[:, 1]])
    noise = rng.normal(size=14)[cluster] * (1 + x[:, 0]) + rng.normal(size=len(cluster))
    return 1 + x @ [2.0, -1.0, 0.5] + noise, x, cluster


def test_clustered_least_squares_agrees_with_statsmodels(clustered_rows):
    y, x, cluster = clustered_rows
    found = least_squares(y, x, ["size", "novelty", "size x novelty"], cluster=cluster)
    expected = sm.OLS(y, sm.add_constant(x)).fit(
        cov_type="cluster", cov_kwds={"groups": cluster}, use_t=True
    )
    table = found.coefficients
    np.testing.assert_allclose([one.estimate for one in table], expected.params)
    np.testing.assert_allclose([one.standard_error for one in table], expected.bse)
    np.testing.assert_allclose([one.p for one in table], expected.pvalues)
    np.testing.assert_allclose(
        [(one.interval.low, one.interval.high) for one in table], expected.conf_int()
    )
    assert found.r2 == pytest.approx(expected.rsquared)
    assert found["size x novelty"].interval.units == 14


def test_plain_least_squares_agrees_with_statsmodels(clustered_rows):
    y, x, _ = clustered_rows
    found = least_squares(y, x, ["a", "b", "c"], intercept=False)
    expected = sm.OLS(y, x).fit()
    np.testing.assert_allclose([one.standard_error for one in found.coefficients], expected.bse)
    np.testing.assert_allclose(
        [(one.interval.low, one.interval.high) for one in found.coefficients], expected.conf_int()
    )


def test_a_redundant_column_is_refused_by_name(clustered_rows):
    y, x, _ = clustered_rows
    with pytest.raises(InvalidRequest, match="twice"):
        least_squares(y, np.column_stack([x, 2 * x[:, 0]]), ["a", "b", "c", "twice"])


def test_one_cluster_tells_nothing(clustered_rows):
    y, x, _ = clustered_rows
    found = least_squares(y, x, ["a", "b", "c"], cluster=np.zeros(len(y)))
    assert found["a"].interval.high == math.inf
    assert found["a"].p == 1.0


# Matching along a curve


def test_curves_are_matched_at_the_first_rise_to_the_score():
    seen, unseen = [0.1, 0.5, 0.4, 0.9], [0.0, 0.2, 0.1, 0.6]
    assert matched(seen, unseen, at=0.3) == pytest.approx(0.1)
    assert matched(seen, unseen, at=0.5) == pytest.approx(0.2)
    assert matched(seen, unseen, at=0.65) == pytest.approx(0.35)
    assert matched(seen, unseen, at=0.1) == 0.0


@pytest.mark.parametrize("at", [0.95, 0.05])
def test_a_score_never_risen_to_matches_nothing(at):
    assert math.isnan(matched([0.1, 0.5, 0.9], [0.0, 0.2, 0.6], at=at))


def test_a_gap_in_the_curve_matches_nothing():
    assert math.isnan(matched([0.1, math.nan, 0.9], [0.0, 0.2, 0.6], at=0.5))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=8), st.floats(0, 1))
@settings(deadline=None)
def test_on_rising_curves_matching_is_linear_interpolation(steps, share):
    x = np.cumsum(steps)
    at = float(np.clip(x[0] + share * (x[-1] - x[0]), x[0], x[-1]))
    assert matched(x, x**2, at) == pytest.approx(float(np.interp(at, x, x**2)))


def test_an_interval_of_a_share_ends_where_shares_do_and_its_verdict_stays():
    values = [0.9, 1.0]  # Student t of two goes far beyond both ends
    open_ended, share = (
        judge([Claim("all", "All is right", lambda _: Evidence.of_values(values), at_least=0.5,
                     within=within)], Results([]))[0]
        for within in ((-np.inf, np.inf), SHARE)
    )  # fmt: skip
    assert open_ended.interval and share.interval and share.adjusted
    assert open_ended.interval.high > 1 and share.interval.high == 1
    assert open_ended.interval.low < 0.5 and share.interval.low == max(open_ended.interval.low, 0)
    assert share.adjusted.high == 1 and share.verdict == open_ended.verdict


def test_a_criterion_that_any_share_meets_is_refused():
    with pytest.raises(ValueError, match="settles nothing"):
        Claim("all", "All", lambda _: Evidence.of_values([1.0]), at_least=0.0, within=SHARE)
