"""Logistic regression against statsmodels, scipy and closed forms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from recombine.errors import InvalidRequest
from recombine.lab.logistic import (
    coefficient_interval,
    independent_columns,
    likelihood_ratio,
    logistic,
    separable,
    variance_inflation,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import statsmodels.api as sm
    from statsmodels.stats.outliers_influence import variance_inflation_factor

NAMES = ("a", "b", "c")


def drawn(seed: int, rows: int = 200):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 3)) * [1.0, 50.0, 0.01] + [0, -90, 7]
    odds = -0.5 + ((x - x.mean(0)) / x.std(0)) @ [0.8, -0.4, 0.0]
    return (rng.random(rows) < special.expit(odds)).astype(float), x


def standard(x):
    return (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("standardise", [True, False])
def test_coefficients_errors_and_deviances_are_those_of_statsmodels(seed, standardise):
    y, x = drawn(seed)
    ours = logistic(y, x, NAMES, standardise=standardise)
    design = sm.add_constant(standard(x) if standardise else x)
    theirs = sm.GLM(y, design, family=sm.families.Binomial()).fit(tol=1e-12)
    assert not ours.separated and ours.prior == "none"
    found = [(c.estimate, c.standard_error, c.t, c.p) for c in ours.coefficients]
    wanted = np.column_stack([theirs.params, theirs.bse, theirs.tvalues, theirs.pvalues])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-8)
    ends = [(c.interval.low, c.interval.high) for c in ours.coefficients]
    np.testing.assert_allclose(ends, theirs.conf_int(), rtol=1e-4)
    assert ours.deviance == pytest.approx(theirs.deviance, rel=1e-6)
    assert ours.null_deviance == pytest.approx(theirs.null_deviance, rel=1e-6)


def test_the_likelihood_ratio_is_the_difference_of_two_deviances():
    y, x = drawn(1)
    ours = likelihood_ratio(y, x, NAMES, without=["b", "c"])
    full, less = (
        sm.GLM(y, sm.add_constant(part), family=sm.families.Binomial()).fit()
        for part in (standard(x), standard(x[:, :1]))
    )
    assert ours.statistic == pytest.approx(less.deviance - full.deviance, abs=1e-6)
    assert ours.degrees_of_freedom == 2
    assert ours.p == pytest.approx(math.exp(-ours.statistic / 2))  # chi-squared of two


def test_the_likelihood_ratio_of_separable_data_is_the_limit():
    x = np.arange(20.0)
    y = (x > 9.5).astype(float)
    ours = likelihood_ratio(y, x, ["x"], without=["x"])
    assert ours.statistic == pytest.approx(2 * 20 * math.log(2), abs=1e-6)


def test_variance_inflation_is_that_of_statsmodels():
    _, x = drawn(2)
    design = sm.add_constant(x)
    wanted = [variance_inflation_factor(design, i) for i in (1, 2, 3)]
    np.testing.assert_allclose(variance_inflation(x), wanted, rtol=1e-6)


def test_variance_inflation_of_a_copy_is_infinite_and_of_a_constant_unknown():
    x = np.arange(6.0)
    found = variance_inflation(np.column_stack([x, 3 * x + 1, np.full(6, 4.0)]))
    assert found[0] == found[1] == math.inf and math.isnan(found[2])


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=3, max_size=12))
@settings(max_examples=150)
def test_one_column_separates_exactly_when_right_and_wrong_do_not_overlap(pairs):
    x = np.array([a for a, _ in pairs], dtype=float)
    y = np.array([b for _, b in pairs], dtype=float)
    if np.ptp(x) == 0:
        return
    overlap = np.ptp(y) > 0 and (
        x[y == 0].max() > x[y == 1].min() and x[y == 1].max() > x[y == 0].min()
    )
    assert separable(y, x) == (not overlap)
    assert logistic(y, x, ["x"]).separated == (not overlap)


@pytest.mark.parametrize("border", [False, True])
def test_separable_data_get_the_mode_under_cauchy_priors(border):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = (x[:, 0] > 0).astype(float)
    if border:  # two rows on the border, one of either kind
        x[:2, 0], y[:2] = 0.0, [0, 1]
    ours = logistic(y, x, ["first", "second"])
    assert ours.separated and ours.prior == "cauchy"
    design, scale = sm.add_constant(standard(x)), np.array([10.0, 2.5, 2.5])

    def cost(at):
        signed = np.where(y > 0, 1, -1) * (design @ at)
        return -special.log_expit(signed).sum() + np.log1p((at / scale) ** 2).sum()

    best = optimize.minimize(cost, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose([c.estimate for c in ours.coefficients], best, atol=1e-4)
    assert all(0 < c.standard_error < 5 for c in ours.coefficients)
    assert ours["first"].estimate > 2 > abs(ours["second"].estimate)


def test_without_a_prior_separable_data_say_nothing():
    x = np.arange(10.0)
    ours = logistic((x > 4).astype(float), x, ["x"], prior="none")
    assert ours.separated and ours["x"].p == 1 and ours["x"].interval.low == -math.inf


def test_a_normal_prior_shrinks_as_ridge_does():
    y, x = drawn(3)
    ours = logistic(y, x, NAMES, prior="gaussian")
    design, precision = sm.add_constant(standard(x)), np.array([0.01, 0.16, 0.16, 0.16])
    at = np.array([c.estimate for c in ours.coefficients])
    slope = design.T @ (y - special.expit(design @ at)) - precision * at
    np.testing.assert_allclose(slope, 0, atol=1e-7)


def test_all_right_is_separable_and_has_no_null_deviance():
    ours = logistic(np.ones(8), np.arange(8.0), ["x"])
    assert ours.separated and ours.null_deviance == 0 and math.isfinite(ours["x"].estimate)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0], [3.0, 5.0]], "b"),
        ([[1.0, -3.0], [2.0, -6.0], [4.0, -12.0], [3.0, -9.0]], "b"),
        ([[1e9, 1.0], [1e9, 2.0], [1e9, 4.0], [1e9, 3.0]], "a"),
    ],
)
def test_constant_and_collinear_columns_are_refused_by_name(columns, named):
    with pytest.raises(InvalidRequest, match=f"columns {named} are combinations"):
        logistic([0, 1, 0, 1], columns, ["a", "b"])
    kept = independent_columns(columns)
    assert kept.tolist() == [named != "a", named != "b"]


def test_a_nearly_constant_column_with_a_large_mean_is_still_a_column():
    assert independent_columns(1e6 + np.arange(5.0)[:, None]).all()


@pytest.mark.parametrize(
    ("correct", "columns", "names", "said"),
    [
        ([0, 2, 1], [[1.0], [2.0], [3.0]], ["x"], "other than 0 and 1"),
        ([0, 1, 1], [[1.0], [2.0]], ["x"], "expected 3 rows"),
        ([0, 1, 1], [[1.0], [2.0], [math.nan]], ["x"], "finite"),
        ([0, 1, 1], [[1.0], [2.0], [3.0]], ["x", "y"], "1 columns with 2 names"),
        ([0, 1], [[1.0, 2.0], [2.0, 5.0]], ["x", "y"], "cannot fit 3"),
    ],
)
def test_impossible_tables_are_refused_in_one_line(correct, columns, names, said):
    with pytest.raises(InvalidRequest, match=said) as caught:
        logistic(correct, columns, names)
    assert "\n" not in str(caught.value)


def test_an_unknown_prior_or_column_is_refused():
    y, x = drawn(0, 50)
    with pytest.raises(InvalidRequest, match="expected 'auto'"):
        logistic(y, x, NAMES, prior="laplace")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidRequest, match="no coefficient 'z'"):
        logistic(y, x, NAMES)["z"]
    with pytest.raises(InvalidRequest, match="without"):
        likelihood_ratio(y, x, NAMES, without=["z"])


def test_rows_repeated_in_clusters_widen_only_the_clustered_interval():
    y, x = drawn(0, 60)
    once = coefficient_interval(y, x, NAMES, "a", resamples=200)
    many = np.repeat(np.arange(60), 4)
    kept = coefficient_interval(
        y[many], x[many], NAMES, "a", cluster=many, resamples=200, standardise=True
    )
    naive = coefficient_interval(y[many], x[many], NAMES, "a", resamples=200)
    assert kept.units == once.units == 60 and naive.units == 240
    assert kept.high - kept.low == pytest.approx(once.high - once.low, rel=0.1)
    assert naive.high - naive.low < 0.65 * (kept.high - kept.low)


def test_the_bootstrap_survives_resamples_that_are_separable_or_degenerate():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=14), np.r_[np.ones(2), np.zeros(12)]])
    y = (x[:, 0] + rng.normal(size=14) > 0).astype(float)
    found = coefficient_interval(y, x, ["size", "rare"], "size", resamples=200)
    assert math.isfinite(found.low) and found.low < found.estimate < found.high
