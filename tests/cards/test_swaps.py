"""Change one factor: only the answer about it may change. No labels are needed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.cards.swaps import found_pairs, made_pairs, read_swap
from recombine.errors import NotApplicable
from recombine.tables.reading import read_rows
from recombine.tables.rows import Factor, Rows


def coded(*columns: list[int]) -> Rows:
    return Rows("toy", tuple(
        Factor(f"f{n}", tuple("abcdefgh"), np.array(column)) for n, column in enumerate(columns)
    ))  # fmt: skip


@given(st.integers(0, 2**31), st.integers(2, 40), st.integers(0, 2))
def test_every_pair_differs_in_its_factor_and_nothing_else(
    seed: int, rows: int, which: int
) -> None:
    matrix = np.random.default_rng(seed).integers(0, 3, (rows, 3))
    table = coded(*matrix.T.tolist())
    for a, b in found_pairs(table, which, seed=seed):
        unlike = np.flatnonzero(matrix[a] != matrix[b])
        assert unlike.tolist() == [which]


@given(st.integers(0, 2**31))
def test_every_two_combinations_that_can_be_compared_are(seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 3, (25, 3))
    pairs = found_pairs(coded(*matrix.T.tolist()), 1, most=10_000)
    found = {frozenset((tuple(matrix[a]), tuple(matrix[b]))) for a, b in pairs}
    lines = {tuple(line) for line in matrix}
    brute = {
        frozenset((a, b))
        for a, b in itertools.combinations(lines, 2)
        if a[1] != b[1] and (a[0], a[2]) == (b[0], b[2])
    }
    assert found == brute


def test_a_common_pair_does_not_crowd_out_a_rare_one() -> None:
    # 200 rows each of (0, 0) and (1, 0), one each of (0, 1) and (1, 1).
    colour, shape = [0] * 200 + [1] * 200 + [0, 1], [0] * 400 + [1, 1]
    pairs = found_pairs(coded(colour, shape), 0, most=2)
    assert {shape[a] for a, _ in pairs} == {0, 1}


def test_a_list_column_is_not_exchanged_and_one_value_neither() -> None:
    tags = Factor("tags", ("a", "b"), np.array([[0, 1], [1, -1]]))
    with pytest.raises(NotApplicable, match="tags holds lists"):
        found_pairs(Rows("toy", (tags,)), 0)
    records = [{"colour": "red"}] * 3
    with pytest.raises(NotApplicable, match="colour has one value only"):
        made_pairs(read_rows({"colour": ["red"] * 3}, ["colour"]), records, 0)


def test_made_rows_change_one_column_to_another_value_of_the_file() -> None:
    records: list[dict[str, Any]] = [{"n": n % 3, "x": n, "tags": ["a"]} for n in range(30)]
    rows = read_rows({"n": [str(r["n"]) for r in records]}, ["n"])
    made = made_pairs(rows, records, 0, most=20)
    assert len(made) == 20
    for place, record in made:
        before = records[place]
        assert record["n"] != before["n"] and record["n"] in (0, 1, 2)
        assert record | {"n": before["n"]} == before
    assert records[0]["n"] == 0  # the user's rows are as they were


ABOUT = {"colour": frozenset({"colour"}), "shape": frozenset({"shape"})}


def swap(factor: str, before: list[dict], after: list[dict], groups: list[Any] | None = None):
    names = [(str(n), str(n + 100)) for n in range(len(before))]
    return read_swap(factor, before, after, names, groups or list(range(len(before))), ABOUT)


def test_an_answer_about_something_else_that_moves_is_a_leak() -> None:
    before = [{"colour": "red", "shape": "cube"}] * 4
    after = [{"colour": "blue", "shape": "cube"}] * 3 + [{"colour": "red", "shape": "ball"}]
    found = swap("colour", before, after)
    assert found.pairs == 4 and found.leaks is not None and found.responds is not None
    assert found.leaks.estimate == 0.25 and found.responds.estimate == 0.75
    assert found.examples == (("3", "103", "shape: cube became ball"),)


def test_pairs_between_the_same_two_combinations_count_as_one() -> None:
    before = [{"colour": "red", "shape": "cube"}] * 10
    bad, good = {"colour": "blue", "shape": "ball"}, {"colour": "blue", "shape": "cube"}
    found = swap("colour", before, [bad] * 9 + [good], ["one"] * 9 + ["other"])
    assert found.leaks is not None and found.leaks.estimate == 0.5 and found.leaks.units == 2


def test_a_factor_that_no_answer_is_about_has_only_leaks() -> None:
    same = [{"colour": "red", "shape": "cube"}] * 3
    found = swap("light", same, same)
    assert found.responds is None and found.leaks is not None and found.leaks.estimate == 0


def test_an_answer_that_depends_on_two_factors_may_move_with_either() -> None:
    both = {"answer": frozenset({"colour", "shape"})}
    names, before, after = [("1", "2")], [{"answer": 1}], [{"answer": 2}]
    found = read_swap("colour", before, after, names, [0], both)
    assert found.leaks is None and found.responds is None
    leak = read_swap("light", before, after, names, [0], both)
    assert leak.leaks is not None and leak.leaks.estimate == 1


def test_without_pairs_it_says_so() -> None:
    with pytest.raises(NotApplicable, match="no two rows differ in colour alone"):
        swap("colour", [], [])
