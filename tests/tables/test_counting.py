"""Counts of values that occur together, against counting by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.tables import counting
from recombine.tables.counting import (
    combination_keys,
    combinations,
    count,
    count_all,
    occurring,
    projections,
)
from recombine.tables.rows import NONE, Factor, Rows


@st.composite
def tables(draw, most_rows: int = 30, lists: bool = True) -> Rows:
    """Small tables of one to four factors, some of which hold lists."""
    length = draw(st.integers(0, most_rows))
    factors = []
    for place in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 4))
        values = tuple(f"v{i}" for i in range(size))
        if lists and draw(st.booleans()):
            held = draw(
                st.lists(st.sets(st.integers(0, size - 1)), min_size=length, max_size=length)
            )
            codes = np.full((length, max(map(len, held), default=0)), NONE, np.int32)
            for row, codes_held in enumerate(held):
                codes[row, : len(codes_held)] = sorted(codes_held)
        else:
            drawn = draw(st.lists(st.integers(0, size - 1), min_size=length, max_size=length))
            codes = np.array(drawn, np.uint8)
        factors.append(Factor(f"f{place}", values, codes))
    return Rows("drawn", tuple(factors))


def held(rows: Rows, row: int, factor: int) -> set[int]:
    return set(np.atleast_1d(rows.factors[factor].codes[row]).tolist()) - {NONE}


def by_hand(rows: Rows, chosen: tuple[int, ...], weights: np.ndarray) -> np.ndarray:
    """The table of the chosen factors, one cell and one row at a time."""
    table = np.zeros([rows.factors[f].size for f in chosen])
    for cell in np.ndindex(*table.shape):
        pairs = list(zip(chosen, cell, strict=True))
        if any(f == g and a >= b for (f, a), (g, b) in itertools.pairwise(pairs)):
            continue
        for row in range(len(rows)):
            table[cell] += weights[row] * all(v in held(rows, row, f) for f, v in pairs)
    return table


@given(tables(), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_every_table_agrees_with_counting_by_hand(rows, t, seed):
    weights = np.random.default_rng(seed).integers(0, 8, len(rows)) / 4
    plain, weighed = dict(count_all(rows, t)), dict(count_all(rows, t, weights=weights))
    assert list(plain) == projections(rows, t)
    for chosen in plain:
        np.testing.assert_array_equal(plain[chosen], by_hand(rows, chosen, np.ones(len(rows))))
        np.testing.assert_allclose(weighed[chosen], by_hand(rows, chosen, weights))
        np.testing.assert_array_equal(count(rows, chosen), plain[chosen])


def many_rows(seed: int = 0, length: int = 150_000) -> Rows:
    rng = np.random.default_rng(seed)
    factors = [
        Factor(f"f{i}", tuple(map(str, range(size))), rng.integers(0, size, length, np.uint8))
        for i, size in enumerate((5, 3, 7, 2, 4, 60))
    ]
    lists = np.sort(rng.permuted(np.tile(np.arange(6), (length, 1)), axis=1)[:, :3], axis=1)
    lists[::3, 2] = NONE
    return Rows("many", (*factors, Factor("held", tuple("abcdef"), lists.astype(np.int32))))


@pytest.mark.parametrize("t", [2, 3])
def test_tables_summed_from_wider_ones_agree_with_direct_histograms(t):
    rows = many_rows()
    for chosen, table in count_all(rows, t):
        if 6 in chosen:
            continue
        columns = np.stack([rows.factors[f].codes for f in chosen], axis=1)
        edges = [np.arange(n + 1) - 0.5 for n in table.shape]
        np.testing.assert_array_equal(table, np.histogramdd(columns, edges)[0])


def test_values_of_one_list_are_counted_as_a_product_of_indicators():
    rows = many_rows()
    codes = rows.factor("held").codes
    holds = (codes[:, :, None] == np.arange(6)).any(axis=1).astype(float)
    np.testing.assert_array_equal(count(rows, (6, 6)), np.triu(holds.T @ holds, 1))
    np.testing.assert_array_equal(count(rows, (6,)), holds.sum(axis=0))


def test_small_batches_and_large_tables_give_the_same_counts(monkeypatch):
    rows = many_rows(length=20_000)
    whole = dict(count_all(rows, 3))
    monkeypatch.setattr(counting, "MOST_SETS", 3)
    monkeypatch.setattr(counting, "WIDE", 50)
    monkeypatch.setattr(counting, "PIECE", 777)
    for chosen, table in count_all(rows, 3):
        np.testing.assert_array_equal(table, whole[chosen])


def test_a_table_with_more_cells_than_sixteen_bits_is_counted():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 400, (2, 5000)).astype(np.uint16)
    names = tuple(map(str, range(400)))
    rows = Rows("wide", (Factor("a", names, a), Factor("b", names, b)))
    expected = np.zeros((400, 400), int)
    np.add.at(expected, (a, b), 1)
    np.testing.assert_array_equal(count(rows, (0, 1)), expected)
    np.testing.assert_array_equal(count(rows, (1, 0)), expected.T)


def test_tables_that_are_too_large_are_left_out_or_refused():
    names = tuple(map(str, range(9000)))
    codes = np.arange(9000, dtype=np.uint16)
    rows = Rows("huge", (Factor("a", names, codes), Factor("b", names, codes)))
    assert list(count_all(rows, 2)) == []
    with pytest.raises(InvalidRequest, match="81,000,000 cells"):
        count(rows, (0, 1))
    cells, counts = occurring(rows, (0, 1))
    np.testing.assert_array_equal(cells, np.stack([codes, codes], axis=1))
    assert set(counts) == {1}


def test_a_factor_with_one_value_a_row_cannot_be_chosen_twice():
    rows = Rows("toy", (Factor("a", ("x", "y"), np.array([0, 1])),))
    with pytest.raises(InvalidRequest, match="'a' is chosen twice"):
        count(rows, (0, 0))


@given(tables(), st.integers(1, 3))
def test_what_occurs_is_the_filled_part_of_the_table(rows, t):
    for chosen, table in count_all(rows, t):
        cells, counts = occurring(rows, chosen)
        again = np.zeros_like(table)
        again[tuple(cells.T)] = counts
        np.testing.assert_array_equal(again, table)


def test_what_occurs_in_lists_of_many_values_agrees_with_python():
    rng = np.random.default_rng(1)
    lists = np.sort(rng.choice(3000, (40, 4), replace=False), axis=1).astype(np.int32)
    lists = np.concatenate([lists, lists[:5]])
    lists[::4, 3] = NONE
    rows = Rows("long", (Factor("held", tuple(map(str, range(3000))), lists),))
    expected: dict[tuple[int, ...], int] = {}
    for line in lists:
        for pair in itertools.combinations([c for c in line.tolist() if c != NONE], 2):
            expected[pair] = expected.get(pair, 0) + 1
    cells, counts = occurring(rows, (0, 0))
    assert {tuple(c): n for c, n in zip(cells.tolist(), counts, strict=True)} == expected


@given(tables())
def test_combinations_are_the_different_lines_of_the_matrix(rows):
    found = combinations(rows)
    lines, inverse, counts = np.unique(
        rows.matrix(), axis=0, return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(found.codes, lines)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.inverse, inverse.reshape(-1))
    np.testing.assert_array_equal(found.codes[found.inverse], rows.matrix())


def test_combinations_of_more_factors_than_a_number_holds_are_told_apart():
    rng = np.random.default_rng(0)
    values = tuple(map(str, range(5000)))
    few = rng.integers(0, 5000, (12, 8))
    lines = few[rng.integers(0, 12, 300)]
    columns = [Factor(f"f{i}", values, column) for i, column in enumerate(lines.T)]
    found = combinations(Rows("deep", tuple(columns)))
    np.testing.assert_array_equal(found.codes[found.inverse], lines)
    assert len(found) == len({tuple(line) for line in lines})


@given(tables(), st.integers(0, 30))
def test_keys_agree_between_tables_whose_lists_differ_in_length(rows, cut):
    def shorter(factor: Factor) -> Factor:
        codes = factor.codes[:cut]
        keep = (codes != NONE).any(axis=0) if factor.many else slice(None)
        return Factor(factor.name, factor.values, codes[:, keep] if factor.many else codes)

    head = Rows("head", tuple(shorter(factor) for factor in rows.factors))
    whole, part = combination_keys(rows, head)
    np.testing.assert_array_equal(whole[:cut], part)
