"""The picture of a repetition: how far a claim is from its criterion tells its verdict."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recombine.lab.judge import Judgement
from recombine.lab.statistics import Interval, verdict
from recombine.lab.study import Claim, Evidence
from recombine.report.repeat import FAR, distance

number = st.floats(-2, 2).map(lambda x: round(x, 3))


def judged(interval: Interval | None, **bounds: float) -> Judgement:
    claim = Claim("one", "One", lambda results: Evidence.of_values([1.0]), **bounds)
    told = "not tested here" if interval is None else verdict(interval, **bounds)
    return Judgement(claim, told, interval)


@given(estimate=number, below=st.floats(0.01, 1), above=st.floats(0.01, 1), bounds=st.sampled_from([
    {"at_least": 0.5}, {"at_most": -0.25}, {"at_least": -0.5, "at_most": 0.5},
]))  # fmt: skip
def test_beyond_one_half_interval_is_supported_and_beyond_minus_one_refuted(
    estimate, below, above, bounds
):
    found = judged(Interval(estimate, estimate - below, estimate + above, 9, "t", 0.95), **bounds)
    away = distance(found)
    assert away is not None and -FAR <= away <= FAR
    assume(abs(abs(away) - 1) > 1e-6)
    expected = "supported" if away > 1 else "refuted" if away < -1 else "inconclusive"
    assert found.verdict == expected


@pytest.mark.parametrize(("estimate", "away"), [(0.4, -FAR), (0.6, FAR)])
def test_an_interval_without_width_is_far_from_its_criterion(estimate, away):
    assert (
        distance(judged(Interval(estimate, estimate, estimate, 5, "t", 0.95), at_least=0.5)) == away
    )


def test_what_was_not_tested_is_nowhere():
    assert distance(judged(None, at_least=0.5)) is None
