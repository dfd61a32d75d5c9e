from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from recombine.audits.slices import SHOWN, Slice, failure_table, slices
from recombine.errors import InvalidRequest
from recombine.tables.rows import Factor, Rows


def drawn(rng: np.random.Generator, rows: int, sizes: tuple[int, ...]) -> Rows:
    return Rows(
        "t",
        tuple(
            Factor(f"f{i}", tuple(f"v{v}" for v in range(size)), rng.integers(0, size, rows))
            for i, size in enumerate(sizes)
        ),
    )


def held(rows: Rows, planted: dict[int, int]) -> np.ndarray:
    return np.logical_and.reduce([rows.factors[i].codes == v for i, v in planted.items()])


def named(found: list[Slice]) -> list[dict[int, int]]:
    return [{i: codes[0] for i, codes in one.assignment.items()} for one in found]


@pytest.mark.parametrize("rate", [0.03, 0.2, 0.9])
def test_shuffled_outcomes_raise_an_alarm_in_at_most_one_run_of_twenty(rate):
    runs = 200 if rate == 0.2 else 60
    rng = np.random.default_rng(0)
    rows = drawn(rng, 500, (4, 4, 3, 3))
    failed = np.arange(500) < 500 * rate
    alarms = sum(bool(slices(rows, rng.permutation(failed))) for _ in range(runs))
    assert alarms <= 0.05 * runs


def test_planted_slices_are_found_and_hardly_anything_else_is():
    planted = [{0: 0, 1: 1}, {2: 2}, {3: 3, 4: 0}, {0: 3, 2: 1, 4: 2}]
    hits = found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = drawn(rng, 4000, (5, 5, 5, 5, 5))
        chance = np.full(4000, 0.1)
        for one in planted:
            chance[held(rows, one)] = 0.7
        listed = named(slices(rows, rng.random(4000) < chance))
        hits += sum(one in listed for one in planted)
        found += len(listed)
    assert hits >= 0.8 * 10 * len(planted)
    assert hits >= 0.95 * found


def test_one_bad_pair_among_rows_that_never_fail_is_named_as_a_pair():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 1500, (4, 4, 3))
    failed = held(rows, {0: 1, 1: 2}) & (rng.random(1500) < 0.9)
    (one,) = slices(rows, failed)
    assert named([one]) == [{0: 1, 1: 2}]
    assert one.label == "f0=v1, f1=v2"
    assert one.expected < 0.1 < one.rate


def test_what_is_expected_of_a_bad_pair_is_the_background_however_many_others_are_bad():
    expected = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = drawn(rng, 2000, (6, 6, 5, 4))
        chance = np.full(2000, 0.05)
        for value in range(5):
            chance[held(rows, {0: value, 1: value})] = 0.7
        listed = slices(rows, rng.random(2000) < chance)
        assert len(listed) == 5
        expected += [one.expected for one in listed]
    assert all(0.01 < each < 0.12 for each in expected)
    assert np.mean(expected) == pytest.approx(0.05, abs=0.015)


def test_what_is_expected_of_a_pair_within_a_bad_value_minds_the_value():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 8000, (4, 4))
    chance = 0.05 + 0.3 * held(rows, {0: 1}) + 0.6 * held(rows, {0: 1, 1: 2})
    value, pair = sorted(slices(rows, rng.random(8000) < chance), key=lambda s: len(s.assignment))
    assert value.expected == pytest.approx(0.05, abs=0.02)
    assert pair.expected == pytest.approx(0.35, abs=0.06)


def test_two_bad_values_are_no_bad_pair():
    alarms = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = drawn(rng, 3000, (4, 4, 3))
        chance = 0.1 + 0.3 * held(rows, {0: 1}) + 0.3 * held(rows, {1: 2})
        listed = named(slices(rows, rng.random(3000) < chance))
        assert {0: 1} in listed and {1: 2} in listed
        alarms += len(listed) - 2
    assert alarms <= 1


def test_a_value_that_only_comes_along_with_a_bad_one_is_not_blamed():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 3000, (4, 4))
    culprit = rows.factors[0].codes
    companion = np.where(rng.random(3000) < 0.7, culprit, rows.factors[1].codes)
    rows = Rows("t", (rows.factors[0], Factor("f1", rows.factors[1].values, companion)))
    failed = rng.random(3000) < np.where(culprit == 2, 0.5, 0.1)
    assert named(slices(rows, failed)) == [{0: 2}]


def test_a_pair_within_a_bad_value_is_listed_beside_it():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 4000, (4, 4))
    chance = 0.05 + 0.3 * held(rows, {0: 1}) + 0.6 * held(rows, {0: 1, 1: 2})
    listed = named(slices(rows, rng.random(4000) < chance))
    assert sorted(listed, key=len) == [{0: 1}, {0: 1, 1: 2}]


def test_what_a_slice_says_can_be_counted_in_the_rows():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 2000, (4, 4))
    rows = Rows("t", rows.factors, ids=np.array([f"row-{i}" for i in range(2000)]))
    failed = rng.random(2000) < np.where(held(rows, {0: 1}), 0.5, 0.1)
    (one,) = slices(rows, failed)
    inside = held(rows, {0: 1})
    assert (one.size, one.failures) == (inside.sum(), (inside & failed).sum())
    assert one.effect.estimate == pytest.approx(failed[inside].mean() - failed[~inside].mean())
    assert one.effect.low < one.effect.estimate < one.effect.high
    assert one.ids == tuple(f"row-{i}" for i in np.flatnonzero(inside & failed)[:SHOWN])
    assert one.tests == 4 + 4 + 16
    assert "f0=v1" in one.sentence
    assert slices(rows, failed, least_effect=0.9) == []


def test_a_wider_search_counts_every_slice_it_could_have_listed():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 3000, (3, 3, 3))
    failed = rng.random(3000) < np.where(held(rows, {0: 1}), 0.6, 0.1)
    assert [slices(rows, failed, most=t)[0].tests for t in (1, 2, 3)] == [9, 9 + 27, 9 + 27 + 27]
    small = slices(rows, failed, least_rows=200)
    assert small[0].tests < 9 + 27 + 27


def test_two_values_of_one_list_that_fail_together_are_found():
    rng = np.random.default_rng(0)
    lists = np.array([sorted(rng.choice(6, 3, replace=False)) for _ in range(2000)])
    lists[rng.random(2000) < 0.3, 2] = -1
    rows = Rows("t", (Factor("m", tuple("abcdef"), lists), drawn(rng, 2000, (3,)).factors[0]))
    both = (lists == 1).any(axis=1) & (lists == 4).any(axis=1)
    (one,) = slices(rows, both & (rng.random(2000) < 0.8))
    assert one.label == "m=b and e"
    assert (one.size, dict(one.assignment)) == (both.sum(), {0: (1, 4)})


def test_control_under_any_dependence_lists_no_more():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 1000, (4, 4, 4))
    failed = rng.random(1000) < 0.2 + 0.12 * held(rows, {0: 1})
    usual, strict = (slices(rows, failed, dependence=d) for d in ("positive", "any"))
    assert len(strict) <= len(usual)
    assert all(one.adjusted_p <= 0.05 for one in usual)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    rows = drawn(rng, 300, (3, 3))
    failed = rng.random(300) < special.expit(-2 + 3.0 * held(rows, {0: 1, 1: 1}))
    order = rng.permutation(300)
    assert [(s.label, s.failures) for s in slices(rows, failed)] == [
        (s.label, s.failures) for s in slices(rows.take(order), failed[order])
    ]


@pytest.mark.parametrize("outcome", [0, 1])
def test_where_nothing_or_everything_fails_there_is_no_slice(outcome):
    rows = drawn(np.random.default_rng(0), 100, (3, 3))
    assert slices(rows, np.full(100, outcome)) == []


def test_outcomes_that_are_not_truths_are_refused():
    rows = drawn(np.random.default_rng(0), 100, (3, 3))
    with pytest.raises(InvalidRequest, match="choose a bar first"):
        slices(rows, np.full(100, 0.5))
    with pytest.raises(InvalidRequest, match="each of 100 rows"):
        slices(rows, np.zeros(99))
    with pytest.raises(InvalidRequest, match="most=3"):
        slices(rows, np.zeros(100), most=4)


def test_the_worst_combinations_are_ranked_by_what_is_certain():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 400, (4, 4))
    failed = rng.random(400) < np.where(held(rows, {0: 1, 1: 2}), 0.9, 0.2)
    found = failure_table(rows, failed)
    assert found[0].label == "f0=v1, f1=v2"
    assert [one.rate.low for one in found] == sorted((one.rate.low for one in found), reverse=True)
    for one in found:
        inside = held(rows, dict(enumerate(one.codes)))
        assert (one.size, one.failures) == (inside.sum(), (inside & failed).sum())
        assert one.ids == tuple(str(i + 1) for i in np.flatnonzero(inside & failed)[:SHOWN])
    everything = itertools.product(range(4), range(4))
    failing = {c for c in everything if (held(rows, dict(enumerate(c))) & failed).any()}
    assert {one.codes for one in failure_table(rows, failed, most=99)} == failing


def alarmed(rows: Rows, failed: np.ndarray) -> list[str]:
    """The whole combinations that an audit would raise an alarm for."""
    listed = slices(rows, failed)
    whole = [one.label for one in listed if len(one.assignment) == len(rows.factors)]
    return whole + [
        one.label
        for one in failure_table(rows, failed, most=200)
        if one.beyond_p <= 0.05 and not any(one.within(part.assignment) for part in listed)
    ]


def additive(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    rows = drawn(rng, 3000, (5, 4, 3))
    first, second = (rows.factors[i].codes for i in (0, 1))
    return rows, 0.02 + 0.05 * first + 0.08 * second


def test_values_whose_failures_add_up_are_no_failing_combinations():
    alarms = blamed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows, chance = additive(rng)
        failed = rng.random(len(rows)) < chance
        alarms += bool(alarmed(rows, failed))
        blamed += any(one.adjusted_p <= 0.05 for one in failure_table(rows, failed))
    assert blamed == 40  # they do fail more than the rest
    assert alarms <= 2


def test_a_combination_that_fails_beyond_its_values_is_found_among_values_that_fail():
    false = []  # the share of false ones in each run: its mean is what is controlled
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows, chance = additive(rng)
        chance[held(rows, {0: 1, 1: 1, 2: 1})] = 0.7
        listed = alarmed(rows, rng.random(len(rows)) < chance)
        assert "f0=v1, f1=v1, f2=v1" in listed
        false.append(1 - 1 / len(listed))
    assert np.mean(false) <= 0.05


def test_what_the_values_of_a_combination_explain_is_told_by_the_others():
    rng = np.random.default_rng(0)
    rows = drawn(rng, 60_000, (3, 3))
    chance = 0.1 + 0.2 * held(rows, {0: 1}) + 0.3 * held(rows, {1: 2})
    both = held(rows, {0: 1, 1: 2})
    failed = rng.random(len(rows)) < np.where(both, 0.9, chance)
    one = next(one for one in failure_table(rows, failed) if one.codes == (1, 2))
    assert one.expected == pytest.approx(0.6, abs=0.03)
    assert "its values explain 6" in one.sentence
