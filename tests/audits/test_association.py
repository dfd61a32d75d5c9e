from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import contingency
from statsmodels.stats import proportion

from recombine.audits.association import (
    associations,
    cramers_v,
    fisher,
    independence_p,
    newcombe,
    wilson,
)
from recombine.errors import InvalidRequest
from recombine.lab.statistics import false_discovery
from recombine.tables.rows import Factor, Rows

tables = st.integers(2, 4).flatmap(
    lambda lines: st.integers(2, 4).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(1, 40), min_size=columns, max_size=columns),
            min_size=lines,
            max_size=lines,
        )
    )
)


def factor(name: str, codes: np.ndarray, size: int | None = None) -> Factor:
    many = int(codes.max()) + 1 if size is None else size
    return Factor(name, tuple(f"{name}{v}" for v in range(many)), codes)


@given(tables)
def test_the_plain_strength_is_the_one_scipy_computes(table):
    assert cramers_v(table, corrected=False) == pytest.approx(
        contingency.association(np.array(table), method="cramer"), abs=1e-12
    )


@given(tables)
def test_empty_lines_change_nothing(table):
    padded = np.pad(np.array(table), ((0, 1), (1, 0)))
    assert cramers_v(padded) == pytest.approx(cramers_v(table))


@given(tables)
def test_the_correction_is_bergsmas_formula(table):
    counts = np.array(table, float)
    n, (r, c) = counts.sum(), counts.shape
    phi = stats.chi2_contingency(counts, correction=False).statistic / n
    phi = max(0.0, phi - (r - 1) * (c - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1))
    assert cramers_v(table) == pytest.approx(min(1.0, math.sqrt(phi / (least - 1))))


def test_unrelated_columns_have_a_plain_strength_but_hardly_a_corrected_one():
    rng = np.random.default_rng(0)
    drawn = [
        np.histogram2d(*rng.integers(0, 8, (2, 200)), bins=[range(9), range(9)])[0]
        for _ in range(100)
    ]
    assert np.mean([cramers_v(t, corrected=False) for t in drawn]) > 0.15
    assert np.mean([cramers_v(t) for t in drawn]) < 0.05


def test_large_counts_take_the_chi_squared_value_and_small_ones_are_shuffled():
    large = [[30, 20], [15, 40]]
    assert independence_p(large)[0] == pytest.approx(
        stats.chi2_contingency(large, correction=False).pvalue
    )
    small = [[6, 1], [1, 5]]
    p, method = independence_p(small)
    assert method.endswith("shuffles")
    # With two values each, every table as far from independence is one Fisher's test counts.
    assert p == pytest.approx(stats.fisher_exact(small).pvalue, abs=0.01)


def test_a_shuffled_p_value_is_right_as_often_as_it_says():
    rng = np.random.default_rng(1)
    p = []
    for _ in range(60):
        x, y = rng.integers(0, 4, 20), rng.integers(0, 4, 20)
        p.append(independence_p(np.histogram2d(x, y, bins=[range(5), range(5)])[0])[0])
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_factors_that_come_together_are_confounded_and_others_are_not():
    rng = np.random.default_rng(0)
    shape = rng.integers(0, 4, 600)
    colour = np.where(rng.random(600) < 0.8, shape, rng.integers(0, 4, 600))
    size = rng.integers(0, 3, 600)
    found = associations(Rows("t", (factor("c", colour), factor("s", shape), factor("z", size))))
    assert [(a.first, a.second) for a in found.confounded] == [("c", "s")]
    assert found.pairs[0].strength == pytest.approx(0.8, abs=0.08)
    matrix = found.matrix()
    assert matrix[0, 1] == matrix[1, 0] == found.pairs[0].strength
    assert np.isnan(np.diag(matrix)).all()
    assert len(found.table().rows) == 3


def test_known_tables_give_the_same_answer():
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 3, 90), rng.integers(0, 2, 90)
    rows = Rows("t", (factor("a", a), factor("b", b)), {"label": (a == 1).astype(float)})
    table = np.histogram2d(a, b, bins=[range(4), range(3)])[0]
    assert associations(rows, label="label", tables={(0, 1): table}).pairs == (
        associations(rows, label="label").pairs
    )


@pytest.mark.parametrize("as_text", [False, True])
def test_a_label_is_compared_with_every_factor(as_text):
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 3, 300)
    label = np.array(["cat", "dog", ""])[colour] if as_text else colour.astype(float)
    rows = Rows("t", (factor("c", colour), factor("s", rng.integers(0, 3, 300))), {"y": label})
    found = associations(rows, label="y")
    assert [(a.first, a.second) for a in found.confounded] == [("c", "y")]
    assert found.confounded[0].strength == pytest.approx(1.0)


def test_a_label_of_many_numbers_is_cut_into_five():
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 2, 400)
    score = colour * 10 + rng.random(400)
    found = associations(Rows("t", (factor("c", colour),)), label=score)
    (pair,) = found.pairs
    assert pair.confounded
    cut = np.searchsorted(np.quantile(score, [0.2, 0.4, 0.6, 0.8]), score, side="right")
    table = np.histogram2d(colour, cut, bins=[range(3), range(6)])[0]
    assert pair.strength == pytest.approx(cramers_v(table))


def test_the_strongest_value_speaks_for_a_list_column():
    rng = np.random.default_rng(0)
    pairs = np.array([sorted(rng.choice(6, 2, replace=False)) for _ in range(500)])
    pairs[::7, 1] = -1
    shape = np.where((pairs == 2).any(axis=1), 1, rng.integers(0, 3, 500))
    found = associations(Rows("t", (factor("m", pairs, 6), factor("s", shape)))).pairs[0]
    assert found.where == "m=m2"
    table = np.histogram2d((pairs == 2).any(axis=1), shape, bins=[[0, 0.5, 1], range(4)])[0]
    assert found.strength == pytest.approx(cramers_v(table))
    assert found.p == pytest.approx(6 * independence_p(table[::-1])[0])


def test_two_list_columns_are_compared_value_by_value():
    rng = np.random.default_rng(0)
    one = np.array([sorted(rng.choice(4, 2, replace=False)) for _ in range(400)])
    other = np.array([sorted(rng.choice(5, 2, replace=False)) for _ in range(400)])
    other[(one == 3).any(axis=1)] = [1, 4]
    found = associations(Rows("t", (factor("m", one, 4), factor("n", other, 5)))).pairs[0]
    best = max(
        (
            cramers_v(
                np.histogram2d((one == v).any(axis=1), (other == w).any(axis=1), bins=2)[0],
                corrected=False,
            ),
            f"m=m{v}, n=n{w}",
        )
        for v in range(4)
        for w in range(5)
    )
    assert (found.plain, found.where) == (pytest.approx(best[0]), best[1])


def test_a_column_of_one_value_has_no_strength_and_is_listed_last():
    rows = Rows(
        "t",
        (
            factor("a", np.zeros(40, int)),
            factor("b", np.arange(40) % 2),
            factor("c", np.arange(40) // 2 % 2),
        ),
    )
    found = associations(rows).pairs
    assert not math.isnan(found[0].strength)
    assert [math.isnan(a.strength) for a in found] == [False, True, True]
    assert "one value only" in found[-1].sentence


def test_a_label_of_the_wrong_length_is_refused():
    with pytest.raises(InvalidRequest, match="one entry for each of 4 rows"):
        associations(Rows("t", (factor("a", np.arange(4)),)), label=np.zeros(3))


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 40), st.integers(1, 40))
def test_fishers_test_is_the_one_scipy_computes(wrong, right, others, fine):
    sides = np.array([wrong]), np.array([wrong + right]), np.array([others]), [others + fine]
    found = fisher(*(np.asarray(side, float) for side in sides))[0]
    truth = stats.fisher_exact([[wrong, right], [others, fine]], alternative="greater").pvalue
    if found == 1.0:  # so far from failing more that the exact number does not matter
        assert truth > 0.2
    else:
        assert found == pytest.approx(truth, rel=1e-7)


def test_fishers_test_is_right_in_large_populations():
    got = fisher(*(np.array([float(x)]) for x in (10_300, 100_000, 89_700, 900_000)))[0]
    assert got == pytest.approx(stats.hypergeom.sf(10_299, 1_000_000, 100_000, 100_000), rel=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from(["positive", "any"]))
def test_false_discovery_control_is_the_one_scipy_computes(p, dependence):
    method = {"positive": "bh", "any": "by"}[dependence]
    assert false_discovery(np.array(p), dependence=dependence) == pytest.approx(
        stats.false_discovery_control(p, method=method)
    )


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_bounds_of_shares_are_those_statsmodels_computes(wrong, right, others, fine):
    size, rest = wrong + right + 1, others + fine + 1
    low, high = proportion.proportion_confint(wrong, size, method="wilson")
    assert [float(end) for end in wilson(wrong, size)] == pytest.approx([low, high], abs=1e-12)
    effect = newcombe(wrong, size, others, rest)
    truth = proportion.confint_proportions_2indep(wrong, size, others, rest, method="newcomb")
    assert [effect.low, effect.high] == pytest.approx(list(truth), abs=1e-9)
