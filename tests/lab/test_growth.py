"""Laws of growth: recovered from simulations, and fits against statsmodels, scipy and search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from recombine.combinations import subset_count
from recombine.errors import InvalidRequest
from recombine.lab.growth import (
    LAWS,
    Extrapolation,
    Point,
    best,
    exponent,
    extrapolate,
    fit,
    overlap,
)
from recombine.lab.statistics import Interval, mean_interval
from recombine.lab.thresholds import first_sizes, threshold

SETTINGS = [(m, k) for k in (2, 3, 4) for m in (6, 8, 12, 16, 24)]
TRUTHS = {
    "polynomial": lambda m, k: 1.0 + 0.7 * k + 1.6 * math.log2(m),
    "exponential": lambda m, k: 3.0 + 0.7 * k + 0.3 * m,
    "power of the whole": lambda m, k: 1.5 + 0.6 * math.log2(subset_count(m, k)),
}


def simulated(law: str, noise: float, seeds: int = 5, *, draw: int = 0, at=SETTINGS) -> list[Point]:
    rng = np.random.default_rng(draw)
    return [
        Point(m, k, TRUTHS[law](m, k) + noise * rng.normal(), seed)
        for seed in range(seeds)
        for m, k in at
    ]


def cut_off(points: list[Point], limit: float) -> list[Point]:
    return [
        replace(p, log2_size=limit, censored="above") if p.log2_size > limit else p for p in points
    ]


# One law


@pytest.mark.parametrize(
    ("law", "columns"),
    [
        ("polynomial", lambda m, k: [k == 2, k == 3, k == 4, math.log2(m)]),
        ("exponential", lambda m, k: [k == 2, k == 3, k == 4, m]),
        ("power of the whole", lambda m, k: [1, math.log2(subset_count(m, k))]),
        ("polynomial in both", lambda m, k: [1, math.log2(m), math.log2(k)]),
        ("exponential, polynomial in K", lambda m, k: [1, m, math.log2(k)]),
    ],
)
def test_without_censoring_a_fit_is_least_squares(law, columns):
    points = simulated("polynomial", 0.5)
    found = fit(law, points)
    design = np.array([columns(*p.setting) for p in points], dtype=float)
    expected = sm.OLS([p.log2_size for p in points], design).fit()
    np.testing.assert_allclose(list(found.coefficients.values()), expected.params, rtol=1e-8)
    assert found.log_likelihood == pytest.approx(expected.llf)
    assert found.parameters == design.shape[1]
    assert found.aic == pytest.approx(expected.aic + 2)  # statsmodels does not count the spread
    assert found.spread == pytest.approx(math.sqrt(expected.ssr / len(points)))
    assert found.slope == found.coefficients[LAWS[law].slope]


def test_a_censored_mean_is_scipys_censored_mean():
    rng = np.random.default_rng(3)
    values = rng.normal(7, 1, 40)
    points = [Point(8, 2, value, seed) for seed, value in enumerate(values)]
    points = [replace(p, log2_size=6.0, censored="below") if p.log2_size < 6 else p for p in points]
    points = cut_off(points, 7.5)
    by_side = {
        side: [p.log2_size for p in points if p.censored == side]
        for side in ("no", "below", "above")
    }
    data = stats.CensoredData(by_side["no"], left=by_side["below"], right=by_side["above"])
    mean, spread = stats.norm.fit(data)
    found = fit("power of the whole", points)
    # One setting cannot tell the intercept from the slope, so neither is claimed.
    assert found.parameters == 1
    assert all(math.isnan(value) for value in found.coefficients.values())
    assert found.spread == pytest.approx(spread, rel=1e-3)
    likelihood = stats.norm.logpdf(by_side["no"], mean, spread).sum()
    likelihood += stats.norm.logcdf(by_side["below"], mean, spread).sum()
    likelihood += stats.norm.logsf(by_side["above"], mean, spread).sum()
    assert found.log_likelihood == pytest.approx(likelihood, rel=1e-6)
    assert found.censored == len(by_side["below"]) + len(by_side["above"]) > 10


def test_a_censored_fit_is_the_one_a_plain_search_of_the_likelihood_finds():
    points = cut_off(simulated("power of the whole", 0.6), 7.0)
    x = np.array([math.log2(p.combinations) for p in points])
    y = np.array([p.log2_size for p in points])
    above = np.array([p.censored == "above" for p in points])
    assert 10 < above.sum() < 60

    def negative(p: np.ndarray) -> float:
        z = (y - p[0] - p[1] * x) / math.exp(p[2])
        return -float(np.where(above, stats.norm.logsf(z), stats.norm.logpdf(z) - p[2]).sum())

    searched = optimize.minimize(
        negative, [1, 1, 0], method="Nelder-Mead", options={"xatol": 1e-8, "maxiter": 5000}
    )
    found = fit("power of the whole", points)
    np.testing.assert_allclose(list(found.coefficients.values()), searched.x[:2], rtol=1e-4)
    assert found.spread == pytest.approx(math.exp(searched.x[2]), rel=1e-4)
    assert found.log_likelihood == pytest.approx(-searched.fun, abs=1e-6)


def test_leaving_censored_points_out_bends_a_law_down_and_the_likelihood_does_not():
    left_out, tobit = [], []
    for draw in range(20):
        points = cut_off(simulated("polynomial", 1.0, draw=draw), 8.0)
        left_out.append(fit("polynomial", [p for p in points if p.censored == "no"]).slope)
        tobit.append(fit("polynomial", points).slope)
    assert np.mean(left_out) < 1.6 - 0.3
    assert abs(np.mean(tobit) - 1.6) < 0.1


def test_settings_out_of_reach_for_every_seed_add_nothing_to_a_law_with_their_own_intercept():
    points = simulated("polynomial", 0.2)
    four = [p for p in points if p.active == 4]
    three = [p for p in points if p.active < 4]
    hopeless = [replace(p, log2_size=2.0, censored="above") for p in four]
    found = fit("polynomial", [*three, *hopeless])
    alone = fit("polynomial", three)
    assert found.slope == pytest.approx(alone.slope, rel=1e-9)
    assert found.parameters == alone.parameters == 3
    assert math.isnan(found.coefficients["K=4"])


@given(st.integers(0, 10**6), st.floats(4.0, 9.0), st.sampled_from(sorted(TRUTHS)))
@settings(max_examples=25)
def test_a_censored_fit_is_never_less_likely_than_the_truth(draw, limit, law):
    points = cut_off(simulated(law, 0.5, seeds=3, draw=draw), limit)
    y = np.array([p.log2_size for p in points])
    above = np.array([p.censored == "above" for p in points])
    z = (y - [TRUTHS[law](*p.setting) for p in points]) / 0.5
    if above.all():
        return
    truth = np.where(above, stats.norm.logsf(z), stats.norm.logpdf(z) - math.log(0.5)).sum()
    found = fit(law, points)
    assert math.isfinite(found.log_likelihood)
    assert found.log_likelihood >= truth - 1e-6


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"active": 9}, "K=9: expected 1 <= K <= M"),
        ({"log2_size": math.inf}, "censored='above'"),
        ({"censored": "abov"}, "did you mean 'above'"),
    ],
)
def test_an_impossible_point_is_refused(change, match):
    with pytest.raises(InvalidRequest, match=match):
        Point(**{"modules": 8, "active": 2, "log2_size": 5.0, "seed": 0} | change)


def test_points_that_cannot_be_fitted_are_refused():
    points = simulated("polynomial", 0.1, seeds=1)
    with pytest.raises(InvalidRequest, match="did you mean 'polynomial'"):
        fit("polynomal", points)
    with pytest.raises(InvalidRequest, match="one model's thresholds at a time"):
        fit("polynomial", [*points, points[0]])
    with pytest.raises(InvalidRequest, match="no points"):
        fit("polynomial", [])
    with pytest.raises(InvalidRequest, match="censored"):
        fit("polynomial", cut_off(points, 0.0))


def test_a_point_carries_over_what_a_threshold_found():
    sizes = first_sizes(4, 1024, 9)
    low = threshold(sizes, [0.5] * 9, target=0.95, largest=1024)
    assert Point.of(16, 3, 1, low) == Point(16, 3, 10.0, 1, "above")


# The exponent


def test_the_exponent_is_the_mean_of_each_seeds_own_with_student_t():
    points = simulated("polynomial", 0.4)
    own = [fit("polynomial", [p for p in points if p.seed == seed]).slope for seed in range(5)]
    expected = mean_interval(own)
    found = exponent(points)
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (expected.estimate, expected.low, expected.high), rel=1e-6
    )
    assert (found.units, found.method) == (5, "Student t")


def test_the_exponents_interval_covers_the_truth_about_as_often_as_it_says():
    hits = [
        exponent(simulated("polynomial", 0.5, draw=draw), level=0.8).contains(1.6)
        for draw in range(150)
    ]
    assert stats.binomtest(sum(hits), len(hits), 0.8).pvalue > 0.001


def test_an_exponent_that_one_m_cannot_tell_is_unknown():
    found = exponent([p for p in simulated("polynomial", 0.1) if p.modules == 8])
    assert math.isnan(found.estimate)
    assert (found.low, found.high) == (-math.inf, math.inf)


# Which law


@pytest.mark.parametrize("law", sorted(TRUTHS))
@pytest.mark.parametrize("seeds", [5, 12])
def test_with_little_noise_the_law_that_made_the_data_is_named(law, seeds):
    found = extrapolate(simulated(law, 0.05, seeds), draws=200)
    assert set(found) == {"polynomial", "exponential", "power of the whole"}
    named, sentence = best(found)
    assert named == law
    assert sentence.startswith(f"{law} predicts best: it is off by 0.")
    assert found[law].error.estimate < 0.2
    assert found[law].aic == min(one.aic for one in found.values())
    assert all(interval.high < 0 for interval in found[law].differences.values())
    assert found[law].error.method == ("Student t" if seeds < 10 else "bootstrap BCa")


@pytest.mark.parametrize("law", sorted(TRUTHS))
def test_with_much_noise_no_law_is_named(law):
    found = extrapolate(simulated(law, 4.0))
    named, sentence = best(found)
    assert named is None
    assert sentence.startswith("inconclusive: the intervals of ")
    assert " overlap" in sentence


def test_noise_alone_seldom_names_a_wrong_law():
    named = [best(extrapolate(simulated("polynomial", 1.0, draw=draw)))[0] for draw in range(40)]
    assert sum(law not in (None, "polynomial") for law in named) <= 4


def test_the_largest_settings_are_predicted_from_the_others_alone():
    points = simulated("polynomial", 0.3)
    found = extrapolate(points, held_out=2)["polynomial"]
    assert [(p.modules, p.active) for p in found.predictions] == [(16, 4), (24, 4)]
    rest = [p for p in points if p.setting not in [(16, 4), (24, 4)]]
    alone = fit("polynomial", rest)
    misses = []
    for one in found.predictions:
        at = alone.coefficients["K=4"] + alone.slope * math.log2(one.modules)
        observed = np.mean([p.log2_size for p in points if p.setting == (one.modules, one.active)])
        assert one.predicted == pytest.approx(at)
        assert one.observed == pytest.approx(observed)
        misses.append(at - observed)
    assert [p.miss for p in found.predictions] == pytest.approx(misses)
    assert found.error.estimate == pytest.approx(math.sqrt(np.mean(np.square(misses))))
    assert found.growth == alone
    assert found.parameters == 4


def test_a_prediction_beyond_the_limit_of_a_censored_threshold_is_no_miss():
    points = simulated("polynomial", 0.0)
    far = {(16, 4), (24, 4)}
    low, high = (
        [replace(p, log2_size=at, censored="above") if p.setting in far else p for p in points]
        for at in (5.0, 15.0)
    )
    assert extrapolate(low)["polynomial"].error.estimate == pytest.approx(0, abs=1e-9)
    missed = extrapolate(high)["polynomial"].predictions
    expected = [TRUTHS["polynomial"](*setting) - 15.0 for setting in sorted(far)]
    assert [p.miss for p in missed] == pytest.approx(expected)


def test_censored_thresholds_among_the_fitted_still_let_the_right_law_be_named():
    points = simulated("polynomial", 0.05)
    # The two settings next to the held-out ones: their limit cuts through or lies below them.
    limits = {(24, 3): 10.45, (12, 4): 8.0}
    points = [cut_off([p], limits.get(p.setting, math.inf))[0] for p in points]
    assert 5 < sum(p.censored == "above" for p in points) <= 10
    assert best(extrapolate(points))[0] == "polynomial"


def test_a_law_that_goes_too_far_is_not_named_for_thresholds_out_of_reach():
    found = extrapolate(cut_off(simulated("polynomial", 0.05), 10.5))
    assert found["exponential"].predictions[1].miss == 0  # it predicts more than the limit
    named, sentence = best(found)
    assert named is None
    assert "most thresholds at M=24, K=4 are censored" in sentence


def test_a_k_that_no_fitted_setting_has_leaves_the_comparison_open():
    at = [(6, 2), (8, 2), (12, 2), (16, 2), (24, 4)]
    named, sentence = best(extrapolate(simulated("polynomial", 0.05, at=at), held_out=1))
    assert named is None
    assert sentence == "inconclusive: what polynomial predicts at M=24, K=4 is not determined"


def test_one_seed_names_no_law():
    named, _ = best(extrapolate(simulated("polynomial", 0.01, seeds=1)))
    assert named is None


def test_a_missing_threshold_of_one_seed_is_no_obstacle():
    points = [p for p in simulated("polynomial", 0.05) if (p.seed, p.setting) != (2, (24, 4))]
    assert best(extrapolate(points))[0] == "polynomial"


def test_the_same_request_gives_the_same_answer_in_any_order():
    points = simulated("exponential", 0.4, seeds=10)
    once = extrapolate(points, draws=50)
    again = extrapolate(points[::-1], draws=50)
    for law, one in once.items():
        assert one.error.low == pytest.approx(again[law].error.low, abs=1e-9)
        assert one.error.high == pytest.approx(again[law].error.high, abs=1e-9)


def test_holding_out_everything_or_nothing_is_refused():
    points = simulated("polynomial", 0.1)
    for held_out in (0, len(SETTINGS)):
        with pytest.raises(InvalidRequest, match=f"held_out={held_out} of 15 settings"):
            extrapolate(points, held_out=held_out)


# The rule itself


def between(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 5, "given", 0.95)


def judged(**errors: Interval) -> dict[str, Extrapolation]:
    some = extrapolate(simulated("polynomial", 0.1, seeds=2), laws=["polynomial", "exponential"])
    paired = between(-0.2, -0.1)  # the paired difference says "better", and decides nothing
    return {
        name: replace(
            some["polynomial"],
            law=name,
            error=error,
            differences={other: paired for other in errors if other != name},
        )
        for name, error in errors.items()
    }


def test_overlapping_errors_are_inconclusive_even_where_the_paired_difference_is_not():
    named, sentence = best(judged(a=between(0.1, 0.4), b=between(0.3, 0.6), c=between(2, 3)))
    assert named is None
    assert sentence.startswith("inconclusive: the intervals of a and b overlap")
    assert "paired difference -0.15 [-0.20, -0.10]" in sentence


def test_errors_apart_from_every_other_name_the_least():
    assert best(judged(b=between(0.5, 0.6), a=between(0.1, 0.4), c=between(0.5, 3)))[0] == "a"


def test_a_comparison_of_one_law_is_refused():
    with pytest.raises(InvalidRequest, match="at least 2"):
        best(judged(a=between(0, 1)))


@given(*[st.floats(-5, 5) for _ in range(4)])
def test_intervals_overlap_when_they_share_a_point(a, b, c, d):
    one, other = between(min(a, b), max(a, b)), between(min(c, d), max(c, d))
    shared = [x for x in (a, b, c, d) if one.contains(x) and other.contains(x)]
    assert overlap(one, other) == overlap(other, one) == bool(shared)
