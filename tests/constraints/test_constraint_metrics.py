"""The metrics of constrained answers, on cases small enough to be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.constraints import Knapsack, Portfolio, Scheduling, judge, summary
from recombine.errors import InvalidRequest

# Three boxes, two inequalities, one coupling, one equality: seven constraints.
SACK = Knapsack((6, 5, 4), (3, 2, 2), (1, 1, 1), 4, 2, conflicts=((1, 2),), one=(2, 3))
BEST = np.array([0.0, 1.0, 0.0])


def test_each_kind_counts_what_holds_of_it():
    verdict = judge(SACK, np.array([1.0, 1.0, 1.0]), BEST)
    # weight 7 > 4, volume 3 > 2, items 1 and 2 together, both of 2 and 3: only the boxes hold.
    assert verdict.by_kind == {"box": 1, "inequality": 0, "equality": 0, "coupling": 0}
    assert verdict.micro == pytest.approx(3 / 7)
    assert verdict.macro == pytest.approx(1 / 4)
    assert not verdict.strict and math.isnan(verdict.gap)
    # Violations: weight 3 of 4, volume 1 of 2, conflict 1, equality 1; over seven constraints.
    assert verdict.normalised_violation == pytest.approx((0.75 + 0.5 + 1 + 1) / 7)
    assert verdict.squared_error == pytest.approx(2 / 3)


def test_the_gap_is_the_share_of_the_optimum_that_is_lost():
    verdict = judge(SACK, np.array([0.0, 0.0, 1.0]), BEST)
    assert verdict.strict and verdict.micro == verdict.macro == 1
    assert verdict.gap == pytest.approx((5 - 4) / 5)
    cheap = Scheduling(3, 9, (1,), (1,), (3,), (2,))
    assert judge(cheap, np.array([3.0]), np.array([1.0])).gap == pytest.approx((6 - 2) / 2)


def test_a_fraction_breaks_its_own_box():
    verdict = judge(SACK, np.array([0.0, 0.9, 0.1]))
    assert verdict.by_kind["box"] == pytest.approx(1 / 3)
    assert verdict.by_kind["equality"] == 1
    assert math.isnan(verdict.squared_error)


def test_an_answer_that_cannot_be_read_satisfies_nothing():
    verdict = judge(SACK, None, BEST)
    assert (verdict.parsed, verdict.micro, verdict.macro, verdict.strict) == (False, 0, 0, False)


def test_a_summary_pools_constraints_and_averages_what_is_defined():
    wrong, right = judge(SACK, np.ones(3), BEST), judge(SACK, np.array([0.0, 0.0, 1.0]), BEST)
    row = summary([wrong, right, judge(SACK, None, BEST)])
    assert row["parsed"] == pytest.approx(2 / 3) and row["strict"] == pytest.approx(1 / 3)
    assert row["micro"] == pytest.approx((3 + 7 + 0) / 21)
    assert row["box"] == pytest.approx(6 / 9) and row["equality"] == pytest.approx(1 / 3)
    assert row["macro"] == pytest.approx(
        np.mean([row[k] for k in ("box", "inequality", "equality", "coupling")])
    )
    assert row["gap"] == pytest.approx(0.2)  # of the one feasible answer
    assert row["squared_error"] == pytest.approx((2 / 3 + 2 / 3) / 2)  # of the two that were read
    assert math.isnan(summary([wrong])["gap"])


def test_pooling_weighs_large_instances_more_than_small_ones():
    large = Knapsack((1,) * 8, (1,) * 8, (1,) * 8, 8, 8)
    row = summary([judge(large, np.ones(8)), judge(SACK, None)])
    assert row["micro"] == pytest.approx(10 / 17)


def test_check_names_what_is_broken_and_by_how_much():
    found = SACK.check({"x1": 1, "x2": 1, "x3": 0})
    assert {name: amount for name, amount in found.items() if amount} == {
        "weight": 1.0,
        "1 conflicts with 2": 1.0,
    }


def test_turnover_and_names_are_counted_as_written():
    held = Portfolio((1, 1, 1), (4, 4, 4), (1, 2, 2), (3, 0, 0), 3, ((2, 1),), turnover=2, names=1)
    found = held.check({"lots1": 1, "lots2": 1, "lots3": 1})
    assert found["turnover"] == 2  # two lots sold, two bought: four, of which two are allowed
    assert found["names"] == 2 and found["sector 2"] == 1 and found["budget"] == 0


def test_order_gap_distance_and_capacity_are_counted_as_written():
    jobs = Scheduling(
        4, 3, (2, 2, 1), (1, 2, 1), (4, 4, 3), (1, 1, 1), ((1, 2),), ((1, 3, 2),), ((2, 3),)
    )
    found = jobs.check({"slot1": 2, "slot2": 2, "slot3": 4})
    assert {name: amount for name, amount in found.items() if amount} == {
        "slot3 in its window": 1.0,
        "capacity of slot 2": 1.0,
        "1 before 2": 1.0,
    }
    assert jobs.check({"slot1": 1, "slot2": 3, "slot3": 3})["2 apart from 3"] == 1


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ({"x1": 1, "x2": 0}, "lacks x3"),
        ({"x1": 1, "x2": 0, "x3": 0, "x4": 1}, "names x4"),
        ({"x1": 1, "x2": math.nan, "x3": 0}, "x2 is nan"),
        ({"x1": 1, "x2": True, "x3": 0}, "x2 is True"),
        ({"x1": 1, "x2": "0", "x3": 0}, "x2 is '0'"),
        ({"x1": 10**400, "x2": 0, "x3": 0}, "x1 is 1000"),
    ],
)
def test_a_solution_with_wrong_names_or_values_is_refused_by_name(solution, message):
    with pytest.raises(InvalidRequest, match=message):
        SACK.check(solution)


def test_nothing_cannot_be_summed_up():
    with pytest.raises(InvalidRequest, match="at least one"):
        summary([])


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_shares_stay_between_none_and_all(values):
    verdict = judge(SACK, np.array(values), BEST)
    assert 0 <= verdict.micro <= 1 and 0 <= verdict.macro <= 1
    assert verdict.strict == (verdict.micro == 1) == (verdict.macro == 1)
    assert len(verdict.violation) == len(SACK.constraints) and (verdict.violation >= 0).all()
