"""Searches for a crossing, and thresholds read off curves whose crossing is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.lab.thresholds import first_sizes, next_sizes, savings, threshold

TARGET = 0.95


def logistic(sizes, *, reach: float, slope: float, top: float = 1.0) -> np.ndarray:
    """Scores of a curve that crosses the target exactly at `reach`, written as a power of N."""
    odds = (top / TARGET - 1) * (np.asarray(sizes, float) / reach) ** -slope
    return top / (1 + odds)


# Where to begin


@given(st.integers(1, 50), st.integers(0, 10_000), st.integers(2, 20))
def test_first_sizes_are_as_many_as_fit_and_hold_both_ends(low, span, count):
    found = first_sizes(low, low + span, count)
    assert len(found) == min(count, span + 1)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (low, low + span)


def test_first_sizes_are_evenly_spread_in_log():
    steps = np.diff(np.log(first_sizes(100, 10**6, 9)))
    np.testing.assert_allclose(steps, steps.mean(), rtol=0.01)


# Where to look next


def test_a_bracket_is_cut_into_equal_parts_in_log():
    found = next_sizes([10, 160], [0.1, 1.0], target=TARGET, low=1, high=500, parts=4, most=9)
    assert found == [20, 40, 80]


def test_a_score_equal_to_the_target_has_reached_it():
    found = next_sizes([10, 40, 90], [0, TARGET, 1], target=TARGET, low=1, high=90, parts=2, most=9)
    assert found == [20]


def test_both_crossings_of_a_curve_that_dips_are_cut():
    # above, below, above: a fall between 4 and 16, a rise between 16 and 64
    found = next_sizes([64, 4, 16], [1, 0.97, 0.3], target=TARGET, low=4, high=64, parts=2, most=9)
    assert found == [8, 32]


def test_all_three_crossings_share_few_sizes_in_turn_from_the_first():
    sizes, scores = [1, 100, 10_000, 1_000_000], [0.0, 1.0, 0.0, 1.0]
    search = {"target": TARGET, "low": 1, "high": 10**6, "parts": 8}
    where = [
        [int(np.searchsorted(sizes, n)) for n in next_sizes(sizes, scores, **search, most=most)]
        for most in (1, 2, 4)
    ]
    assert where == [[1], [1, 2], [1, 1, 2, 3]]


def test_a_bracket_given_one_size_takes_its_middle():
    found = next_sizes([4, 64], [0, 1], target=TARGET, low=4, high=64, parts=4, most=1)
    assert found == [16]


@pytest.mark.parametrize(
    ("scores", "most", "expected"),
    [
        ([0.1, 0.2], 9, [128, 1024]),  # all below: between the largest and high, and high
        ([0.1, 0.2], 1, [1024]),
        ([0.96, 0.99], 9, [1, 3]),  # all above: towards low
        ([0.96, 0.99], 1, [1]),
    ],
)
def test_without_a_crossing_the_search_goes_towards_the_end_that_may_cross(scores, most, expected):
    search = {"target": TARGET, "low": 1, "high": 1024, "parts": 2}
    assert next_sizes([8, 16], scores, **search, most=most) == expected


def test_nothing_is_left_when_the_end_itself_was_tried_or_neighbours_cross():
    search = {"target": TARGET, "low": 8, "high": 16, "parts": 3, "most": 5}
    assert next_sizes([8, 16], [0.1, 0.2], **search) == []
    assert next_sizes([8, 16], [0.96, 0.97], **search) == []
    assert next_sizes([8, 11, 12, 16], [0.1, 0.5, 0.96, 1], **search) == []


def test_a_size_where_every_seed_diverged_is_neither_evidence_nor_tried_again():
    search = {"target": TARGET, "low": 1, "high": 64, "parts": 2, "most": 5}
    assert next_sizes([4, 16, 64], [0.1, math.nan, 1.0], **search) == []
    assert next_sizes([4, 8, 64], [0.1, math.nan, 1.0], **search) == [16]
    assert next_sizes([4], [math.nan], **search) == []


@st.composite
def searches(draw):
    low = draw(st.integers(1, 30))
    high = low + draw(st.integers(0, 400))
    tried = draw(st.lists(st.integers(low, high), min_size=1, max_size=8, unique=True))
    scores = [draw(st.sampled_from([-math.inf, 0.2, TARGET, 1.0, math.nan])) for _ in tried]
    bounds = {"target": TARGET, "low": low, "high": high}
    return (
        tried,
        scores,
        bounds | {"parts": draw(st.integers(2, 6)), "most": draw(st.integers(1, 7))},
    )


@given(searches())
def test_next_sizes_are_new_sorted_within_bounds_and_few(search):
    tried, scores, options = search
    found = next_sizes(tried, scores, **options)
    assert found == sorted(set(found))
    assert not set(found) & set(tried)
    assert all(options["low"] <= n <= options["high"] for n in found)
    assert len(found) <= options["most"]
    shuffled = sorted(zip(tried, scores, strict=True), key=lambda pair: -pair[0])
    assert found == next_sizes([n for n, _ in shuffled], [s for _, s in shuffled], **options)


@given(st.integers(1, 400), st.integers(2, 6), st.integers(1, 4))
@example(1, 2, 1)
@settings(max_examples=40)
def test_a_search_ends_with_the_first_size_that_reaches_the_target(answer, parts, most):
    sizes = first_sizes(1, 400, 4)
    for _ in range(400):
        scores = [float(n >= answer) for n in sizes]
        found = next_sizes(sizes, scores, target=TARGET, low=1, high=400, parts=parts, most=most)
        if not found:
            break
        sizes = [*sizes, *found]
    else:
        pytest.fail("the search did not end")
    assert min(n for n in sizes if n >= answer) == answer
    assert answer == 1 or answer - 1 in sizes


@given(st.lists(st.booleans(), min_size=60, max_size=60))
@settings(max_examples=40)
def test_a_search_of_an_erratic_curve_ends_too_with_every_bracket_closed(reached):
    sizes = first_sizes(1, 60, 4)
    while found := next_sizes(
        sizes,
        [float(reached[n - 1]) for n in sizes],
        target=TARGET,
        low=1,
        high=60,
        parts=3,
        most=4,
    ):
        sizes = [*sizes, *found]
    tried = sorted(sizes)
    wide = [(a, b) for a, b in itertools.pairwise(tried) if b - a > 1]
    assert all(reached[a - 1] == reached[b - 1] for a, b in wide)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"low": 0}, "1 <= low <= high"),
        ({"parts": 1}, "parts=1"),
        ({"most": 0}, "most=0"),
    ],
)
def test_an_impossible_search_is_refused(change, match):
    search = {"target": TARGET, "low": 1, "high": 9, "parts": 2, "most": 1} | change
    with pytest.raises(InvalidRequest, match=match):
        next_sizes([1, 9], [0, 1], **search)


def test_sizes_and_scores_that_do_not_fit_together_are_refused():
    search = {"target": TARGET, "low": 1, "high": 9, "parts": 2, "most": 1}
    with pytest.raises(InvalidRequest, match="one score for each size"):
        next_sizes([1, 9], [0], **search)
    with pytest.raises(InvalidRequest, match="first_sizes"):
        next_sizes([], [], **search)
    with pytest.raises(InvalidRequest, match="different whole numbers"):
        next_sizes([9, 9], [0, 1], **search)


# Reading a threshold off a curve


@pytest.mark.parametrize(("slope", "top"), [(2.0, 1.0), (2.0, 0.99), (4.0, 1.0)])
def test_thresholds_are_recovered_within_five_percent_from_noisy_logistic_curves(slope, top):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        reach = float(np.exp(rng.uniform(3, 7.5)))
        around = first_sizes(int(reach / 2), int(reach * 2), 9)  # where a search ends up
        sizes = sorted({*first_sizes(4, 10_000, 10), *around})
        noise = 0.005 * rng.normal(size=len(sizes))
        scores = logistic(sizes, reach=reach, slope=slope, top=top) + noise
        found = threshold(sizes, scores, target=TARGET, largest=10_000)
        assert found.censored == "no"
        assert 2**found.estimate == pytest.approx(reach, rel=0.05)
        assert found.rmse < 0.01


def test_a_clean_curve_gives_back_its_slope_top_and_crossing():
    sizes = first_sizes(4, 4096, 12)
    scores = logistic(sizes, reach=300, slope=1.7, top=0.98)
    found = threshold(sizes, scores, target=TARGET, largest=4096)
    assert 2**found.estimate == pytest.approx(300, rel=1e-3)
    assert (found.slope, found.top) == pytest.approx((1.7, 0.98), rel=1e-3)
    assert found.rmse < 1e-4
    assert found.sizes == tuple(sizes)


def test_one_failed_run_hardly_moves_the_threshold():
    sizes = first_sizes(4, 4096, 14)
    scores = logistic(sizes, reach=200, slope=2)
    scores[10] = 0.1
    found = threshold(sizes, scores, target=TARGET, largest=4096)
    assert 2**found.estimate == pytest.approx(200, rel=0.05)
    assert found.rmse > 0.1


def test_scores_far_below_zero_hardly_move_the_threshold():
    sizes = first_sizes(4, 4096, 14)
    scores = logistic(sizes, reach=400, slope=2)
    scores[:2] = [-50.0, -math.inf]
    found = threshold(sizes, scores, target=TARGET, largest=4096)
    assert 2**found.estimate == pytest.approx(400, rel=0.05)


def test_a_curve_that_stays_below_the_target_is_censored_above_at_the_largest_size_tried():
    sizes = first_sizes(4, 1024, 8)
    for scores in (logistic(sizes, reach=1e6, slope=1), 0.9 * logistic(sizes, reach=40, slope=2)):
        found = threshold(sizes, scores, target=TARGET, largest=1500)
        assert (found.censored, found.estimate) == ("above", 10)


def test_one_lucky_score_does_not_make_a_threshold():
    sizes = first_sizes(4, 1024, 10)
    scores = 0.8 * logistic(sizes, reach=40, slope=2)
    scores[-1] = 0.96
    found = threshold(sizes, scores, target=TARGET, largest=1024)
    assert (found.censored, found.estimate) == ("above", 10)


def test_a_curve_that_starts_above_the_target_is_censored_below_at_the_smallest_size_tried():
    sizes = first_sizes(16, 1024, 8)
    scores = logistic(sizes, reach=3, slope=1)
    assert scores[0] > TARGET
    found = threshold(sizes, scores, target=TARGET, largest=1024)
    assert (found.censored, found.estimate) == ("below", 4)


@given(st.lists(st.floats(-2, 1), min_size=6, max_size=9))
@settings(max_examples=60)
def test_any_scores_give_a_finite_threshold_on_the_side_it_says(scores):
    sizes = first_sizes(4, 900, len(scores))
    found = threshold(sizes, scores, target=TARGET, largest=1000)
    assert np.isfinite([found.estimate, found.slope, found.top, found.rmse]).all()
    assert math.log2(4) - 1e-9 <= found.estimate <= math.log2(1000) + 1e-9
    if found.censored == "no":
        assert min(scores) < TARGET <= max(scores)


@given(st.permutations(range(8)))
@settings(max_examples=10)
def test_the_order_in_which_sizes_were_tried_does_not_matter(order):
    sizes = first_sizes(4, 900, 8)
    scores = logistic(sizes, reach=90, slope=2)
    shuffled = threshold([sizes[i] for i in order], scores[order], target=TARGET, largest=900)
    assert shuffled == threshold(sizes, scores, target=TARGET, largest=900)


@given(st.integers(1, 5), st.integers(0, 3))
def test_fewer_than_six_sizes_with_a_score_are_refused_with_their_number(count, diverged):
    sizes = first_sizes(4, 900, 9)[: count + diverged]
    scores = [0.5] * count + [math.nan] * diverged
    assume(len(sizes) == len(scores))
    with pytest.raises(InvalidRequest, match=rf"^{count} sizes .* at least 6; .* {6 - count} more"):
        threshold(sizes, scores, target=TARGET, largest=900)


def test_a_score_beyond_the_largest_size_is_refused():
    sizes = first_sizes(4, 900, 7)
    with pytest.raises(InvalidRequest, match="at least 900"):
        threshold(sizes, logistic(sizes, reach=90, slope=2), target=TARGET, largest=800)


# What the search saved


@pytest.mark.parametrize(
    ("used", "feasible", "end"),
    [
        (180, 1464, "has 1,464: 88 % saved."),
        (1464, 1464, "nothing saved."),
        (2000, 1464, "used 2,000 runs; the full grid of feasible cells has 1,464: nothing saved."),
        (1, 100_000, "used 1 run; the full grid of feasible cells has 100,000: over 99 % saved."),
        (1460, 1464, "under 1 % saved."),
        (0, 3, "100 % saved."),
    ],
)
def test_savings_never_claims_more_than_was_saved(used, feasible, end):
    assert savings(used, feasible).endswith(end)


def test_savings_of_no_grid_is_refused():
    with pytest.raises(InvalidRequest, match="feasible"):
        savings(3, 0)
