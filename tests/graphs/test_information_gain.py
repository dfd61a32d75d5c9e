"""Relative information gain against published numbers and scikit-learn."""

from __future__ import annotations

import itertools
import math

import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from recombine.errors import InvalidRequest
from recombine.graphs import (
    multiplication_symbols,
    relative_information_gain,
    strongest_clue,
    subsequence_graph,
    subsequence_symbols,
)
from recombine.graphs.information import Symbols


@pytest.fixture(scope="module")
def two():
    return multiplication_symbols(2)


@pytest.fixture(scope="module")
def three():
    return multiplication_symbols(3)


@pytest.mark.parametrize(
    ("given", "outcome", "gain"),
    [
        (["x2", "y2"], "z4", 1.000),
        (["x2"], "z4", 0.223),
        (["x1", "y1"], "z1", 0.788),
        (["x1"], "z1", 0.198),
        (["x2", "y2"], "z3", 0.110),
        (["x1", "y1"], "z2", 0.099),
    ],
)
def test_two_digit_multiplication_has_the_known_gains(two, given, outcome, gain):
    assert relative_information_gain(two, given, outcome) == pytest.approx(gain, abs=0.001)


@pytest.mark.parametrize(
    ("given", "outcome", "gain"),
    [
        (["x3", "y3"], "z6", 1.000),
        (["x3"], "z6", 0.223),
        (["x1", "y1"], "z1", 0.792),
        (["x1"], "z1", 0.199),
        (["x3", "y3"], "z5", 0.101),
        (["x1", "y1"], "z2", 0.088),
        (["x1", "y1"], "z3", 0.0),
    ],
)
def test_three_digit_multiplication_has_the_known_gains(three, given, outcome, gain):
    assert relative_information_gain(three, given, outcome) == pytest.approx(gain, abs=0.001)


def test_gains_agree_with_scikit_learn(two):
    for given in itertools.combinations(two.inputs, 2):
        joint = two.inputs[given[0]] * 10 + two.inputs[given[1]]
        for outcome, y in two.outputs.items():
            shares = [float((y == value).mean()) for value in set(y.tolist())]
            expected = mutual_info_score(joint, y) / entropy(shares)
            assert relative_information_gain(two, given, outcome) == pytest.approx(expected)


def test_all_lists_are_there_once_with_the_marks_of_their_graphs():
    symbols = subsequence_symbols(3, reach=2)
    rows = list(zip(*(symbols.inputs[f"a{i}"].tolist() for i in (1, 2, 3)), strict=True))
    assert sorted(rows) == sorted(itertools.product(range(-2, 3), repeat=3))
    marks = zip(*(symbols.outputs[f"m{i}"].tolist() for i in (1, 2, 3)), strict=True)
    for row, found in zip(rows, marks, strict=True):
        assert "".join(map(str, found)) == subsequence_graph(row).answer


def test_everything_settles_the_answer_and_nothing_tells_nothing():
    symbols = subsequence_symbols(5)
    for outcome in symbols.outputs:
        assert relative_information_gain(symbols, list(symbols.inputs), outcome) == pytest.approx(1)
        assert relative_information_gain(symbols, [], outcome) == pytest.approx(0)


def test_the_strongest_clue_to_a_mark_is_next_to_it():
    symbols = subsequence_symbols(5)
    assert strongest_clue(symbols, "m1").given == ("a1", "a2")
    assert strongest_clue(symbols, "m5").given == ("a4", "a5")
    assert strongest_clue(symbols, "m1").gain > strongest_clue(symbols, "m3").gain


def test_samples_come_near_to_the_whole(two):
    drawn = multiplication_symbols(2, samples=200_000, seed=1)
    for given, outcome in ((["x1", "y1"], "z1"), (["x2"], "z4"), (["x2", "y2"], "z3")):
        exact = relative_information_gain(two, given, outcome)
        assert relative_information_gain(drawn, given, outcome) == pytest.approx(exact, abs=0.005)


def test_a_symbol_that_never_varies_has_no_gain():
    one = multiplication_symbols(1).inputs["x1"]
    symbols = Symbols({"x1": one}, {"z": one * 0})
    assert math.isnan(relative_information_gain(symbols, ["x1"], "z"))


def test_impossible_questions_are_refused_in_a_sentence(two):
    with pytest.raises(InvalidRequest, match="samples=1_000_000"):
        multiplication_symbols(4)
    with pytest.raises(InvalidRequest, match="'x3'"):
        relative_information_gain(two, ["x3"], "z1")
    with pytest.raises(InvalidRequest, match="'m1'"):
        relative_information_gain(two, ["x1"], "m1")
    with pytest.raises(InvalidRequest, match="1 to 4"):
        strongest_clue(two, "z1", size=9)
