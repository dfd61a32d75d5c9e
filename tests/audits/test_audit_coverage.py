"""Coverage of training rows, and the traffic outside it, against closed forms and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.audits.coverage import connected_curve, coverage, coverage_curve, exposure
from recombine.errors import InvalidRequest
from recombine.tables.rows import NONE, Factor, Rows
from recombine.tables.rules import Rules, rules_for


def table(codes: np.ndarray, sizes: list[int]) -> Rows:
    columns = zip(codes.T, sizes, strict=True)
    return Rows(
        "toy",
        tuple(
            Factor(f"f{i}", tuple(f"v{v}" for v in range(size)), column.astype(np.uint8))
            for i, (column, size) in enumerate(columns)
        ),
    )


@st.composite
def tables(draw, equal: bool = False) -> Rows:
    count = draw(st.integers(2, 4))
    one = draw(st.integers(1, 3))
    sizes = [one if equal else draw(st.integers(1, 3)) for _ in range(count)]
    seed, length = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 40))
    rng = np.random.default_rng(seed)
    return table(np.stack([rng.integers(0, n, length) for n in sizes], axis=1), sizes)


@given(tables(), st.integers(1, 3), st.integers(1, 3))
def test_coverage_agrees_with_trying_every_cell_and_completion(rows, t, min_count):
    rules = rules_for(rows, ["[f0] <> [f1]"])
    found = coverage(rows, rules, t, min_count=min_count)
    complete = [line for line in itertools.product(*map(range, rows.sizes)) if line[0] != line[1]]
    lines = rows.matrix().tolist()
    expected = []
    for chosen in itertools.combinations(range(len(rows.sizes)), t):
        possible = covered = impossible = 0
        for cell in itertools.product(*(range(rows.sizes[f]) for f in chosen)):
            seen = sum(tuple(line[f] for f in chosen) == cell for line in lines)
            can = any(tuple(line[f] for f in chosen) == cell for line in complete)
            possible += can
            covered += can and seen >= min_count
            impossible += not can and seen > 0
        expected.append((chosen, possible, covered, impossible))
    got = [(p.chosen, p.possible, p.covered, p.seen_impossible) for p in found.parts]
    assert got == expected


@given(tables(), st.data())
@settings(max_examples=50)
def test_more_rows_never_lower_coverage_and_a_higher_count_never_raises_it(rows, data):
    rules = rules_for(rows)
    fewer = rows.take(np.arange(data.draw(st.integers(0, len(rows)))))
    curve = coverage_curve(rows, rules, (1, 2, 3), (1, 2, 4))
    for less, more in zip(coverage_curve(fewer, rules, (1, 2, 3), (1, 2, 4)), curve, strict=True):
        assert (less.t, less.min_count, less.possible) == (more.t, more.min_count, more.possible)
        assert less.covered <= more.covered
    for one, other in itertools.pairwise(curve):
        if one.t == other.t:
            assert other.covered <= one.covered


@given(tables())
def test_a_choice_of_more_factors_is_never_covered_better_than_its_parts(rows):
    rules, top = rules_for(rows), min(4, len(rows.sizes))
    shares = {
        part.chosen: part.share
        for found in coverage_curve(rows, rules, range(1, top + 1), (1,))
        for part in found.parts
    }
    for chosen, share in shares.items():
        for smaller in itertools.combinations(chosen, len(chosen) - 1):
            assert not smaller or share <= shares[smaller] + 1e-12


@given(tables(equal=True))
def test_coverage_falls_with_the_strength_where_factors_are_alike(rows):
    strengths = range(1, len(rows.sizes) + 1)
    shares = [c.share for c in coverage_curve(rows, rules_for(rows), strengths, (1,))]
    assert all(a is not None and b is not None and b <= a + 1e-12
               for a, b in itertools.pairwise(shares))  # fmt: skip


def test_a_full_product_is_covered_whole_and_one_row_covers_one_cell_of_each_choice():
    every = np.array(list(itertools.product(range(3), range(2), range(4))))
    rows = table(every, [3, 2, 4])
    assert [c.share for c in coverage_curve(rows, rules_for(rows), (1, 2, 3), (1,))] == [1, 1, 1]
    one = rows.take([5])
    assert [coverage(one, rules_for(one), t).covered for t in (1, 2, 3)] == [3, 3, 1]
    assert coverage(one, rules_for(one), 2).possible == 3 * 2 + 3 * 4 + 2 * 4


def test_pairs_of_one_list_are_covered_as_pairs():
    lists = np.array([[0, 1, NONE], [0, 1, 2], [3, NONE, NONE]], np.int32)
    rows = Rows("lists", (Factor("held", tuple("abcd"), lists),))
    found = coverage(rows, rules_for(rows), 2)
    assert (found.possible, found.covered) == (6, 3)
    ruled = coverage(rows, rules_for(rows, ["IF held=a THEN held<>b"]), 2)
    assert (ruled.possible, ruled.covered, ruled.seen_impossible) == (5, 2, 1)


def test_what_is_left_out_is_said():
    rows = table(np.zeros((3, 2), int), [3, 3])
    assert "choose more factors" in coverage(rows, rules_for(rows), 3).why_not[0]
    assert coverage(rows, rules_for(rows), 3).share is None
    cut = coverage(rows, rules_for(rows), 2, most_cells=8)
    assert cut.parts == () and "f0 x f1 has 9 cells, more than 8" in cut.why_not[0]
    with pytest.raises(InvalidRequest, match="begin at 1"):
        coverage(rows, rules_for(rows), 2, min_count=0)


def test_covered_and_connected_end_where_the_thinnest_value_and_link_do():
    # Two blocks of 20 rows, linked by 3 rows.
    codes = np.repeat([[0, 0], [1, 1], [0, 1]], [20, 20, 3], axis=0)
    rows = table(codes, [2, 2])
    curve = {c.min_count: c for c in connected_curve(rows, rules_for(rows), (1, 3, 4, 20, 21, 24))}
    assert [curve[n].connected for n in (1, 3, 4, 20)] == [True, True, False, False]
    assert [curve[n].covered for n in (1, 20, 21, 24)] == [True, True, False, False]
    assert [curve[n].largest for n in (3, 4, 21)] == [1.0, 0.5, 0.25]
    assert (curve[21].covered_values, curve[21].possible_values) == (2, 4)


def test_a_value_that_the_rules_exclude_need_not_be_covered():
    rows = table(np.array([[0, 0], [1, 1], [0, 1]]), [3, 2])
    assert not connected_curve(rows, rules_for(rows), (1,))[0].covered
    assert connected_curve(rows, rules_for(rows, ["f0 <> v2"]), (1,))[0].covered


def test_exposure_is_the_share_of_traffic_with_something_never_trained():
    train = table(np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [2, 0, 0]]), [4, 2, 2])
    target = table(np.array([[0, 0, 0], [0, 0, 1], [2, 1, 0], [3, 0, 0]]), [4, 2, 2])
    even = exposure(train, target)
    assert (even.combinations, even.triples, even.pairs, even.values) == (0.75, 0.75, 0.5, 0.25)
    heavy = exposure(train, target, np.array([7.0, 2.0, 1.0, 0.0]))
    assert heavy.combinations == pytest.approx(0.3)
    assert heavy.pairs == pytest.approx(0.1)
    assert heavy.sentence() == (
        "30.0 % of target traffic lies in combinations, and 10.0 % in pairs, never trained"
    )


@pytest.mark.parametrize("weights", [[1, -1], [0, 0], [1], [1, np.nan], [np.inf, 1]])
def test_weights_that_are_no_traffic_are_refused(weights):
    rows = table(np.zeros((2, 2), int), [1, 1])
    with pytest.raises(InvalidRequest, match="one weight for each of its 2 rows"):
        exposure(rows, rows, np.array(weights, float))


def test_no_training_rows_cover_nothing():
    rows = table(np.zeros((0, 2), int), [2, 2])
    assert coverage(rows, Rules.none(rows.names, [("v0", "v1")] * 2), 2).share == 0
    assert connected_curve(rows, rules_for(rows), (1,))[0].largest == 0
    assert exposure(rows, table(np.zeros((1, 2), int), [2, 2])).values == 1
