"""Divergences between training and test: closed forms, symmetry, and what audit can rely on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.splits import chernoff, divergences
from recombine.tables import Factor, Rows


def table(*columns, sizes=None):
    sizes = sizes or [int(np.max(c)) + 1 for c in columns]
    return Rows(
        "toy",
        tuple(
            Factor(f"f{i}", tuple(f"v{j}" for j in range(size)), np.asarray(column))
            for i, (column, size) in enumerate(zip(columns, sizes, strict=True))
        ),
    )


codes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1)


def counted(rows, t):
    """Brute force: how often each choice of t (factor, value) pairs occurs."""
    found = {}
    for row in rows:
        for chosen in itertools.combinations(enumerate(row), t):
            found[chosen] = found.get(chosen, 0) + 1
    return found


def by_hand(train, test, t, alpha):
    one, other = counted(train, t), counted(test, t)
    n, m = sum(one.values()), sum(other.values())
    return 1 - sum((one[k] / n) ** alpha * (other[k] / m) ** (1 - alpha) for k in one if k in other)


@given(codes, codes)
def test_both_divergences_are_those_of_the_definition(train, test):
    found = divergences(
        table(*np.array(train).T, sizes=[4, 3, 3]), table(*np.array(test).T, sizes=[4, 3, 3])
    )
    assert found.atoms == pytest.approx(max(0.0, by_hand(train, test, 1, 0.5)), abs=1e-9)
    assert found.compounds == pytest.approx(max(0.0, by_hand(train, test, 2, 0.1)), abs=1e-9)


def test_a_table_is_no_distance_from_itself_and_one_from_what_shares_nothing():
    rows = table([0, 1, 2, 0], [0, 1, 0, 1])
    same = divergences(rows, rows)
    assert same.atoms == pytest.approx(0, abs=1e-12)
    assert same.compounds == pytest.approx(0, abs=1e-12)
    apart = divergences(table([0, 1], [0, 1], sizes=[4, 4]), table([2, 3], [2, 3], sizes=[4, 4]))
    assert (apart.atoms, apart.compounds) == (1.0, 1.0)


def test_a_compound_that_training_holds_at_all_counts_nearly_in_full():
    rare = chernoff([1, 999], [1, 0], 0.1)
    never = chernoff([0, 1000], [1, 0], 0.1)
    assert rare == pytest.approx(1 - 0.001**0.1)
    assert never == 1.0


def test_values_are_matched_by_name_not_by_number():
    a = Rows(
        "a", (Factor("x", ("p", "q"), np.array([0, 1])), Factor("y", ("u",), np.zeros(2, int)))
    )
    b = Rows(
        "b", (Factor("x", ("q", "p"), np.array([1, 0])), Factor("y", ("u",), np.zeros(2, int)))
    )
    assert divergences(a, b).compounds == pytest.approx(0, abs=1e-12)


def test_two_values_of_one_list_are_a_compound():
    def lists(*rows):
        return Rows("l", (Factor("m", ("a", "b", "c"), np.array(rows)),))

    far = divergences(lists([0, 1], [2, -1]), lists([0, 2], [1, -1]))
    assert far.compounds == 1.0
    assert far.atoms == pytest.approx(0)


def test_a_pair_inside_one_triple_only_is_not_counted_twice():
    # Every pair occurs in exactly one triple, so only triples carry weight.
    train, test = table([0, 1], [0, 1], [0, 1]), table([0, 1], [0, 1], [0, 1])
    assert divergences(train, test, triples=True).compounds == pytest.approx(0, abs=1e-12)
    train = table([0, 1, 0], [0, 1, 0], [0, 1, 1])
    test = table([0, 1, 1], [0, 1, 1], [0, 1, 0])
    pairs = [(0, 0, 0), (1, 1, 1), (0, 0, 1)], [(0, 0, 0), (1, 1, 1), (1, 1, 0)]
    weights = {}  # pooled: one minus the largest share of a pair's rows in one triple
    triples, both = counted(pairs[0] + pairs[1], 3), counted(pairs[0] + pairs[1], 2)
    for pair, n in both.items():
        inside = [m for triple, m in triples.items() if set(pair) <= set(triple)]
        weights[pair] = 1 - max(inside) / n

    def vector(rows):
        found = {k: v * weights[k] for k, v in counted(rows, 2).items()} | counted(rows, 3)
        return np.array([found.get(k, 0) for k in [*both, *triples]])

    expected = chernoff(vector(pairs[0]), vector(pairs[1]), 0.1)
    assert divergences(train, test, triples=True).compounds == pytest.approx(expected)


def test_an_empty_part_has_no_divergence():
    rows = table([0, 1], [0, 1])
    with pytest.raises(InvalidRequest, match="needs rows in training and in test"):
        divergences(rows, rows.take(np.zeros(0, int)))
