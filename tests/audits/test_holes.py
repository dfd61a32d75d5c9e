"""Holes: which there are, how surprising they are, and that chance raises no alarm."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import contingency, false_discovery_control, poisson

from recombine.audits.auditing import Asked, audit
from recombine.audits.expected import expected_counts
from recombine.audits.holes import holes, parts, seen_forbidden, thin_values
from recombine.errors import InvalidRequest
from recombine.lab.statistics import false_discovery
from recombine.tables.counting import count
from recombine.tables.rows import MISSING, NONE, Factor, Rows
from recombine.tables.rules import rules_for


def table(codes: np.ndarray, sizes: list[int]) -> Rows:
    columns = zip(codes.T, sizes, strict=True)
    return Rows(
        "toy",
        tuple(
            Factor(f"f{i}", tuple(f"v{v}" for v in range(size)), column.astype(np.uint8))
            for i, (column, size) in enumerate(columns)
        ),
    )


def independent(seed: int, length: int, sizes: list[int]) -> Rows:
    rng = np.random.default_rng(seed)
    columns = [rng.choice(n, length, p=rng.dirichlet(np.full(n, 4.0))) for n in sizes]
    return table(np.stack(columns, axis=1), sizes)


def without(rows: Rows, pattern: dict[int, int]) -> Rows:
    inside = np.logical_and.reduce([rows.factors[f].codes == v for f, v in pattern.items()])
    return rows.take(~inside)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=60)
def test_holes_are_the_smallest_cells_with_too_few_rows(seed, length, min_count):
    sizes = [3, 2, 2, 3]
    rows = independent(seed, length, sizes)
    lines = rows.matrix()

    def seen(cell: dict[int, int]) -> int:
        return int(np.logical_and.reduce([lines[:, f] == v for f, v in cell.items()]).sum())

    for t in (2, 3):
        expected = {}
        for chosen in itertools.combinations(range(4), t):
            for codes in itertools.product(*(range(sizes[f]) for f in chosen)):
                cell = dict(zip(chosen, codes, strict=True))
                smaller = [dict(part) for n in range(1, t)
                           for part in itertools.combinations(cell.items(), n)]  # fmt: skip
                if seen(cell) < min_count and all(seen(part) >= min_count for part in smaller):
                    product = [seen({f: v}) / length for f, v in cell.items()]
                    expected[chosen, codes] = (seen(cell), length * math.prod(product))
        found = holes(rows, rules_for(rows), t, min_count=min_count, most=None)
        assert {(h.chosen, h.codes) for h in found} == set(expected)
        for hole in found:
            count_seen, product = expected[hole.chosen, hole.codes]
            assert hole.count == count_seen
            assert hole.expected == pytest.approx(product)
            if t == 2:
                tail = poisson.cdf(count_seen, product)
                assert hole.p_value == pytest.approx(tail)
                assert hole.surprise == pytest.approx(-np.log10(tail), abs=1e-9)


def test_expected_fifty_is_not_expected_a_tenth():
    rows = without(independent(0, 4000, [4, 4, 3]), {0: 0, 1: 1})
    rare = [[4, 3, 0]] * 2  # a fifth value of f0, in two rows only
    rows = table(np.concatenate([rows.matrix(), rare]), [5, 4, 3])
    first, *others = holes(rows, rules_for(rows))
    assert (first.chosen, first.codes, first.alarm) == ((0, 1), (0, 1), True)
    assert first.expected > 50 and first.surprise > 20
    assert others and not any(hole.alarm for hole in others)
    assert all(hole.expected < 3 and hole.surprise < 1.5 for hole in others)


def test_chance_raises_no_alarm_in_nineteen_of_twenty_tables():
    alarmed = 0
    for seed in range(60):
        rows = independent(seed, 300, [5, 5, 4, 4])
        rules = rules_for(rows)
        alarmed += any(h.alarm for t in (2, 3) for h in holes(rows, rules, t, min_count=2))
    assert alarmed <= 6  # of 60, for two families of tests at 5 % each


def test_planted_holes_are_all_found_and_nothing_else_is_an_alarm():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = independent(seed, 6000, [5, 5, 4])
        common = [int(np.argsort(-count(rows, (f,)))[rng.integers(2)]) for f in range(3)]
        planted = {((0, 1), (common[0], common[1])), ((1, 2), (common[1], common[2]))}
        for chosen, codes in planted:
            rows = without(rows, dict(zip(chosen, codes, strict=True)))
        found = holes(rows, rules_for(rows))
        assert {(h.chosen, h.codes) for h in found if h.alarm} == planted
        threes = holes(rows, rules_for(rows), 3)
        assert not any(hole.alarm for hole in threes)


def test_a_planted_triple_is_an_alarm_among_triples_only():
    rows = without(independent(3, 8000, [3, 3, 3, 3]), {0: 1, 1: 1, 2: 1})
    rules = rules_for(rows)
    assert not any(hole.alarm for hole in holes(rows, rules, 2))
    found = [hole for hole in holes(rows, rules, 3) if hole.alarm]
    assert [(h.chosen, h.codes) for h in found] == [((0, 1, 2), (1, 1, 1))]


def test_triples_that_a_rare_pair_explains_are_no_alarm():
    # The pair is two hundred times rarer than independence, so most of its triples are absent.
    rows = independent(5, 40_000, [3, 3, 10])
    pair = (rows.factors[0].codes == 0) & (rows.factors[1].codes == 0)
    rows = rows.take(~pair | (np.cumsum(pair) % 200 == 0))
    assert not any(hole.alarm for hole in holes(rows, rules_for(rows), 3, most=None))


def test_what_is_impossible_is_no_hole_and_is_told_apart_when_it_occurs():
    rows = without(independent(1, 3000, [3, 3, 2]), {0: 0, 1: 0})
    free, text = rules_for(rows), "IF f0=v0 THEN f1<>v0"
    assert [(h.chosen, h.codes) for h in holes(rows, free)] == [((0, 1), (0, 0))]
    assert holes(rows, rules_for(rows, [text])) == []
    assert seen_forbidden(rows, rules_for(rows, [text])) == []
    whole = independent(1, 3000, [3, 3, 2])
    (broken,) = seen_forbidden(whole, rules_for(whole, [text, "f2 = v0 OR f2 = v1"]))
    assert (broken.rule, dict(broken.assignment)) == (text, {0: 0, 1: 0})
    assert broken.count == len(whole) - len(rows)


def test_holes_are_ranked_by_traffic_times_risk_times_surprise():
    rows = independent(2, 5000, [4, 4])
    for pair in ((0, 0), (1, 1), (2, 2)):
        rows = without(rows, {0: pair[0], 1: pair[1]})
    rules = rules_for(rows)
    target = table(np.array([[0, 0]] * 6 + [[1, 1]] * 3 + [[3, 3]]), [4, 4])
    plain = holes(rows, rules)
    assert [h.score for h in plain] == sorted((h.surprise for h in plain), reverse=True)
    assert {h.ranked_by for h in plain} == {"surprise"}
    surprise = {h.codes: h.surprise for h in plain}
    risks = {(0, 0): 0.1, (1, 1): 0.9, (2, 2): 0.5}
    full = holes(rows, rules, target=target, risk=lambda every: [risks[a[0], a[1]] for a in every])
    assert {h.codes: (h.traffic, h.risk) for h in full} == {
        (0, 0): (pytest.approx(0.6), 0.1), (1, 1): (pytest.approx(0.3), 0.9), (2, 2): (0.0, 0.5)
    }  # fmt: skip
    for hole in full:
        assert hole.traffic is not None and hole.risk is not None
        assert hole.score == pytest.approx(hole.traffic * hole.risk * surprise[hole.codes])
        assert hole.ranked_by == "traffic x risk x surprise"
    assert [h.score for h in full] == sorted((h.score for h in full), reverse=True)
    weighed = holes(rows, rules, target=target, weights=np.array([0.0] * 9 + [1.0]))
    assert {h.traffic for h in weighed} == {0.0} and weighed[0].ranked_by == "traffic x surprise"
    some = holes(rows, rules, risk=lambda every: [0.5 if a[0] == 0 else None for a in every])
    assert [h.risk for h in some if h.codes == (1, 1)] == [None]
    assert some[0].ranked_by == "risk x surprise"
    assert {h.ranked_by for h in holes(rows, rules, risk=lambda every: [None] * len(every))} == {
        "surprise"
    }


def test_the_number_of_holes_is_bounded_and_the_worst_are_kept():
    rows = independent(4, 60, [6, 6, 6])
    every = holes(rows, rules_for(rows), most=None)
    assert len(every) > 5
    assert holes(rows, rules_for(rows), most=5) == every[:5]


def lists_of(seed: int, length: int, values: int, held: int) -> Rows:
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.tile(np.arange(values), (length, 1)), axis=1)[:, :held]
    names = tuple(f"m{v}" for v in range(values))
    return Rows("lists", (Factor("held", names, np.sort(order, axis=1).astype(np.int32)),))


def test_lists_of_two_values_expect_every_pair_equally_often():
    rows = lists_of(0, 2000, 8, 2)
    pairs = count(rows, (0, 0))
    expected = expected_counts(pairs, np.triu(np.ones((8, 8), bool), 1), (0, 0))
    assert expected.sum() == pytest.approx(2000)
    np.testing.assert_allclose(expected[np.triu_indices(8, 1)], 2000 / 28, rtol=0.15)
    np.testing.assert_allclose(
        expected.sum(0) + expected.sum(1), pairs.sum(0) + pairs.sum(1), rtol=1e-3
    )
    assert not any(hole.alarm for hole in holes(rows, rules_for(rows)))
    apart = rows.take(~(rows.factors[0].codes == [2, 5]).all(axis=1))
    (hole,) = holes(apart, rules_for(apart))
    assert (hole.chosen, hole.codes, hole.alarm) == ((0, 0), (2, 5), True)
    assert hole.sentence(rows).startswith("held=m2 and m5: expected ")
    assert hole.assignment == {0: (2, 5)}


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_expected_counts_are_those_of_scipy_where_everything_is_possible(seed):
    observed = np.random.default_rng(seed).integers(0, 30, (3, 4, 2)) + 1
    free = np.ones(observed.shape, bool)
    np.testing.assert_allclose(
        expected_counts(observed, free, (0, 1, 2)), contingency.expected_freq(observed)
    )


def test_expected_counts_with_impossible_cells_are_those_of_a_log_linear_model():
    statsmodels = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    observed = rng.integers(5, 60, (4, 5))
    possible = np.ones((4, 5), bool)
    possible[0, :2] = possible[3, 4] = False
    row, column = np.nonzero(possible)
    design = np.concatenate([np.eye(4)[row], np.eye(5)[column][:, 1:]], axis=1)
    model = statsmodels.GLM(observed[possible], design, family=statsmodels.families.Poisson())
    fitted = expected_counts(observed, possible, (0, 1))
    np.testing.assert_allclose(fitted[possible], model.fit().fittedvalues, rtol=1e-3)
    assert not fitted[~possible].any()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_discoveries_are_those_of_scipy(p_values):
    expected = false_discovery_control(p_values) <= 0.05
    assert (false_discovery(p_values) <= 0.05).tolist() == expected.tolist()
    small = np.array([p for p in p_values if p <= 0.05])
    kept = [ok for p, ok in zip(p_values, expected, strict=True) if p <= 0.05]
    assert (false_discovery(small, tests=len(p_values)) <= 0.05).tolist() == kept


def test_thin_values_are_told_and_a_rare_missing_is_not_one():
    codes = np.repeat([0, 1, 2], [90, 4, 1])
    factor = Factor("colour", ("red", "blue", MISSING, "green"), codes)
    rows = Rows("thin", (factor, Factor("shape", ("cube",), np.zeros(95, int))))
    rules = rules_for(rows)
    assert [(t.factor, t.value, t.count) for t in thin_values(rows, rules)] == [(0, 3, 0)]
    thin = thin_values(rows, rules, 5)
    assert [(t.value, t.count) for t in thin] == [(3, 0), (1, 4)]
    assert thin_values(rows, rules_for(rows, ["colour <> green"])) == []


def test_a_missing_value_is_never_collected_so_it_is_no_alarm():
    rows = without(independent(0, 3000, [3, 3]), {0: 0, 1: 0})
    named = Factor("f0", (MISSING, "v1", "v2"), rows.factors[0].codes)
    rows = Rows("missing", (named, rows.factors[1]))
    (hole,) = holes(rows, rules_for(rows))
    assert hole.expected > 50 and not hole.alarm


def test_parts_that_never_meet_are_told_apart():
    codes = np.array([[0, 0], [0, 1], [1, 2], [1, 2], [2, 0]])
    assert parts(table(codes, [3, 4])) == [{0: [0, 2], 1: [0, 1]}, {0: [1], 1: [2]}]
    assert len(parts(table(codes[:2], [3, 4]))) == 1


def test_rows_that_break_a_rule_about_a_list_are_told_with_the_list():
    lists = np.array([[0, 1, NONE], [0, 1, 2], [0, 1, NONE], [2, NONE, NONE]], np.int32)
    rows = Rows("lists", (Factor("held", tuple("abc"), lists),))
    found = seen_forbidden(rows, rules_for(rows, ["IF held=a THEN held<>b"]))
    assert [(dict(b.assignment), b.count) for b in found] == [({0: (0, 1)}, 2), ({0: (0, 1, 2)}, 1)]


def test_one_value_alone_is_no_hole():
    rows = table(np.zeros((1, 2), int), [1, 1])
    with pytest.raises(InvalidRequest, match="see thin_values"):
        holes(rows, rules_for(rows), 1)


def test_a_hole_of_three_that_a_near_copy_of_a_factor_repeats_is_told_once():
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, 4, 40_000) for name in "abce"}
    inside = (codes["a"] == 1) & (codes["b"] == 1) & (codes["c"] == 2)
    codes["c"][inside] = 3
    codes["d"] = np.where(rng.random(40_000) < 0.01, rng.integers(0, 4, 40_000), codes["c"])
    data = Rows("t", tuple(Factor(n, ("0", "1", "2", "3"), codes[n]) for n in "abcde"))
    found = audit(data, Asked(min_count=10))
    alarms = {hole.chosen: hole.codes for hole in found.holes[3] if hole.alarm}
    assert alarms == {(0, 1, 2): (1, 1, 2), (0, 1, 3): (1, 1, 2)}
    (finding,) = found.findings
    assert finding.where == "a=1, b=1, c=2" and "1 more follows from it" in finding.sentence
