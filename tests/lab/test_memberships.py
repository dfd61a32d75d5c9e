"""Correlations over units that share members: against other regressions, and in simulation."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.lab.memberships import Crossed, clustered, crossed_partial, partial

SETS = np.asarray(
    [
        [member in chosen for member in range(12)]
        for size in (1, 2)
        for chosen in itertools.combinations(range(12), size)
    ]
)  # all sets of one or two of twelve members


def alone(units: int) -> np.ndarray:
    """Every unit has a member of its own."""
    return np.eye(units, dtype=bool)


def noise(seed: int, units: int = 60, controls: int = 2, slope: float = 0.0) -> Crossed:
    """Numbers that hang together through their controls, and beyond them by `slope`."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(units, controls))
    x = z @ rng.normal(size=controls) + rng.normal(size=units)
    y = z @ rng.normal(size=controls) + rng.normal(size=units) + slope * x
    return Crossed(x, y, z, alone(units))


def of_members(seed: int, effect: float = 3.0, draw: int = 0) -> Crossed:
    """Numbers of sets that are mostly sums over members; x and y have nothing in common but z."""
    rng = np.random.default_rng(seed)
    members = SETS[rng.permutation(len(SETS))[:60]]
    z = rng.normal(size=(60, 1))
    x, y = (
        members @ (effect * rng.normal(size=12)) + z[:, 0] + rng.normal(size=60) for _ in range(2)
    )
    return Crossed(x, y, z, members, draw)


def width(groups: list[Crossed], level: float = 0.95) -> float:
    found = crossed_partial(groups)[0](level)
    return found.high - found.low


@given(st.integers(0, 10_000), st.integers(0, 4))
def test_it_is_the_correlation_of_what_regressions_leave(seed, controls):
    group = noise(seed, controls=controls, slope=0.4)
    design = sm.add_constant(group.controls, has_constant="add")
    design = np.ones((60, 1)) if controls == 0 else design
    left, right = (sm.OLS(side, design).fit().resid for side in (group.x, group.y))
    assert partial(group) == pytest.approx(np.corrcoef(left, right)[0, 1], abs=1e-9)


def test_with_one_control_it_is_the_textbook_formula():
    group = noise(3, controls=1)
    r = np.corrcoef([group.x, group.y, group.controls[:, 0]])
    expected = (r[0, 1] - r[0, 2] * r[1, 2]) / np.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))
    assert partial(group) == pytest.approx(expected, abs=1e-9)
    assert abs(r[0, 1] - expected) > 0.05  # the control does matter here


@given(st.integers(0, 10_000))
def test_a_weight_is_a_row_so_many_times_and_a_weight_of_zero_no_row(seed):
    rng = np.random.default_rng(seed)
    group, weights = noise(seed, slope=0.3), rng.poisson(1.0, 60)
    repeated = Crossed(
        *(np.repeat(part, weights, axis=0) for part in (group.x, group.y, group.controls)),
        alone(weights.sum()),
    )
    assert partial(group, weights) == pytest.approx(partial(repeated), abs=1e-9)
    wild = replace(group, x=np.where(weights == 0, 1e6, group.x))
    assert partial(wild, weights) == pytest.approx(partial(group, weights), abs=1e-9)


def test_neither_scale_nor_place_matters_and_a_sign_turns_it():
    group = noise(5, slope=0.5)
    moved = replace(group, x=100 - 3 * group.x, y=5 * group.y, controls=group.controls * 1e3 + 7)
    assert partial(moved) == pytest.approx(-partial(group), abs=1e-6)


@pytest.mark.parametrize("side", ["x", "y"])
def test_a_number_that_the_controls_explain_wholly_has_no_correlation(side):
    group = noise(0)
    explained = group.controls @ [2.0, -1.0] + 3
    assert np.isnan(partial(replace(group, **{side: explained})))
    assert np.isnan(partial(replace(group, **{side: np.full(60, 0.7)})))


def test_fewer_rows_than_three_more_than_controls_have_no_correlation():
    enough, short = noise(1, units=5), noise(1, units=4)
    assert np.isfinite(partial(enough)) and np.isnan(partial(short))
    assert np.isnan(partial(enough, np.asarray([1.0, 1.0, 1.0, 1.0, 0.0])))


def test_networks_are_averaged_on_fishers_scale_and_those_without_spread_left_out():
    groups = [replace(noise(seed, slope=0.2 * seed), draw=seed) for seed in range(3)]
    dead = replace(groups[0], y=np.zeros(60), draw=9)
    interval, count = crossed_partial([*groups, dead])
    mean = np.tanh(np.mean([np.arctanh(partial(group)) for group in groups]))
    assert count == 3 and interval(0.95).estimate == pytest.approx(mean, abs=1e-9)
    assert interval(0.95).units == 3 * 60  # members of the draws that count


def test_numbers_in_perfect_step_stay_finite():
    group = noise(2)
    found = crossed_partial([replace(group, y=group.x)])[0](0.95)
    assert (
        found.estimate == pytest.approx(1, abs=1e-5) and np.isfinite([found.low, found.high]).all()
    )


@pytest.mark.parametrize("groups", [[], [replace(noise(0), y=np.zeros(60))]], ids=["none", "flat"])
def test_nothing_to_correlate_is_refused(groups):
    with pytest.raises(InvalidRequest, match="nothing to correlate"):
        crossed_partial(groups)


def test_a_planted_correlation_lies_within_and_zero_does_not():
    # y = .75 x + noise, both freed of z: a correlation of .75 / sqrt(1 + .75²) = .6.
    groups = [replace(noise(seed, units=150, slope=0.75), draw=seed) for seed in range(3)]
    found = crossed_partial(groups)[0](0.95)
    assert found.contains(0.6) and found.low > 0.3 and found.high < 0.8
    turned = crossed_partial([replace(group, x=-group.x) for group in groups])[0](0.95)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_units_that_share_members_are_less_evidence_than_units_apart():
    for seed in range(3):
        shared = of_members(seed)
        assert width([shared]) > 1.3 * width([replace(shared, members=alone(60))])


def test_networks_of_one_draw_are_left_out_together_and_of_two_apart():
    one = of_members(4)
    single, same, apart = (
        crossed_partial(groups)[0](0.95)
        for groups in ([one], [one, one], [one, replace(one, draw=1)])
    )
    assert (same.low, same.high, same.units) == (single.low, single.high, 12)
    assert apart.units == 24 and apart.high - apart.low < 0.85 * (single.high - single.low)


def test_higher_levels_are_wider():
    groups = [of_members(5)]
    assert width(groups, 0.8) < width(groups, 0.95) < width(groups, 0.999)


def test_the_interval_is_the_jackknife_over_members_on_fishers_scale():
    group = of_members(6)
    found = crossed_partial([group])[0](0.9)
    left = []
    for member in range(12):
        kept = ~group.members[:, member]
        rest = Crossed(group.x[kept], group.y[kept], group.controls[kept], group.members[kept])
        left.append(np.arctanh(partial(rest)))
    error = np.sqrt(11 / 12 * sum((z - np.mean(left)) ** 2 for z in left))
    reach = stats.t.ppf(0.95, 11) * error
    middle = np.arctanh(partial(group))
    expected = (np.tanh(middle - reach), np.tanh(middle + reach))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)
    assert found.estimate == pytest.approx(partial(group), abs=1e-9) and found.level == 0.9


def test_members_that_no_unit_has_are_no_replication():
    group = of_members(7)
    more = replace(group, members=np.column_stack([group.members, np.zeros((60, 3), bool)]))
    assert crossed_partial([more])[0](0.95) == crossed_partial([group])[0](0.95)


def test_a_network_that_nothing_is_left_of_without_a_member_leaves_the_others_standing():
    """All units of the second have its first member, so that alone it has no interval."""
    one = of_members(8)
    whole = replace(of_members(9), draw=1)
    tied = replace(whole, members=np.column_stack([np.ones(60, bool), whole.members[:, 1:]]))
    found = crossed_partial([one, tied])[0](0.95)
    assert np.isfinite([found.low, found.high]).all() and found.low > -1 and found.high < 1
    alone_it_has_none = crossed_partial([tied])[0](0.95)
    assert (alone_it_has_none.low, alone_it_has_none.high) == (-1, 1)


def test_a_mean_of_units_apart_has_the_textbook_interval():
    values = np.random.default_rng(0).normal(3, 2, 25)
    found = clustered(lambda rows: float(values[rows].mean()), alone(25))(0.95)
    expected = stats.t.interval(0.95, 24, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.estimate == pytest.approx(values.mean()) and found.units == 25


def test_a_correlation_stays_within_one_on_fishers_scale_only():
    x = np.arange(30.0)
    y = x + np.random.default_rng(0).normal(0, 4, 30)
    r = np.corrcoef(x, y)[0, 1]

    def statistic(rows: np.ndarray) -> float:
        return float(np.corrcoef(x[rows], y[rows])[0, 1])

    plain, fisher = (clustered(statistic, alone(30), fisher=on)(0.999999) for on in (False, True))
    assert plain.estimate == pytest.approx(r) and fisher.estimate == pytest.approx(r)
    assert plain.high > 1 > fisher.high
    middle = (np.arctanh(fisher.low) + np.arctanh(fisher.high)) / 2
    assert middle == pytest.approx(np.arctanh(r))


def test_a_statistic_that_one_member_carries_alone_has_no_end():
    """Without the first member two units are left: too few for any statistic."""
    members = np.asarray(
        [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]], bool
    )
    found = clustered(lambda rows: float(rows.mean()), members)(0.95)
    assert found.estimate == 2 and (found.low, found.high) == (-np.inf, np.inf)


@pytest.mark.parametrize("effect", [3.0, 0.0])
def test_without_an_effect_nineteen_of_twenty_intervals_hold_zero(effect):
    """Effects of members make chance correlations. Who counts sets is fooled one time in three.

    Where members have no effects, leaving them out is too careful and never too bold.
    """
    groups = [of_members(1000 + seed, effect) for seed in range(200)]

    def held(groups: list[Crossed]) -> float:
        found = [crossed_partial([group])[0](0.95).contains(0) for group in groups]
        return float(np.mean(found))

    members, units = held(groups), held([replace(g, members=alone(60)) for g in groups])
    if effect:
        assert 0.92 <= members <= 0.985 and units < 0.75
    else:
        assert members >= 0.95 and 0.91 <= units <= 0.985


def test_the_mean_of_sums_over_members_is_held_as_often_as_said():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(300):
        members = SETS[rng.permutation(len(SETS))[:60]]
        values = (members / members.sum(axis=1, keepdims=True)) @ rng.normal(size=12)
        held.append([
            clustered(lambda rows, v=values: float(v[rows].mean()), one)(0.95).contains(0)
            for one in (members, alone(60))
        ])  # fmt: skip
    members, units = np.mean(held, axis=0)
    assert members >= 0.93 and units < 0.8
