"""Values of a file made into values of a factor, checked against sorting and counting by hand."""

from __future__ import annotations

import json
from collections import Counter
from math import ceil, isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.tables.bins import bin_names, edges_of_counts, edges_of_numbers
from recombine.tables.coding import Coded, Coding, settle
from recombine.tables.reading import read_rows
from recombine.tables.rows import MISSING, OTHER, Factor, Rows

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).map(lambda x: round(x, 3))


def read(cells: list, coding: Coding | None = None, like: Factor | None = None) -> Factor:
    table = None if like is None else Rows("train", (like,))
    return read_rows({"x": cells}, ["x"], coding=coding, like=table).factors[0]


def spelled(factor: Factor) -> list:
    """The values of the rows, in words."""
    if factor.many:
        return [[factor.values[c] for c in row if c >= 0] for row in factor.codes]
    return [factor.values[code] for code in factor.codes]


@given(st.lists(st.text("abcß猫 =<", min_size=1).filter(str.strip)))
def test_words_come_back_as_they_were(cells: list[str]):
    cells = ["solid", *cells, "word"]
    factor = read(cells)
    assert spelled(factor) == cells
    assert len(set(factor.values)) == len(factor.values) == len(set(cells))
    assert factor.codes.dtype == np.uint8 and factor.rule == "as written"


def test_values_are_ordered_as_people_order_them():
    assert read(["room 10", "room 9", "attic"]).values == ("attic", "room 9", "room 10")
    assert read(["10", "9", "-1.5", "NA"]).values == ("-1.5", "9", "10", MISSING)


@pytest.mark.parametrize("word", ["", " ", "NA", "N/A", "NaN", "nan", "null", "None", None])
def test_what_says_nothing_is_missing(word: str | None):
    assert spelled(read(["red", word, "blue"])) == ["red", MISSING, "blue"]


@pytest.mark.parametrize("word", ["n/a", "-", "?", "none", " N.A. "])
def test_a_word_for_nothing_is_missing_among_numbers_and_a_word_among_words(word: str):
    numbers = [str(n) for n in range(40)]
    train = read([*numbers, word])
    assert len(train.values) == 6 and spelled(train)[-1] == MISSING
    assert train.rule.endswith(f"{word!r} read as missing")
    assert spelled(read(["3", word], like=read(numbers))) == [train.values[0], MISSING]
    assert spelled(read(["1", "2", word])) == ["1", "2", MISSING]
    assert spelled(read(["red", "2", word])) == ["red", "2", word]
    assert spelled(read(["1", word], Coding(text=("x",)))) == ["1", word]
    many = [str(n) for n in range(200)]
    streamed = read([*many, word], Coding(most_values=100))
    assert streamed.size == 6 and spelled(streamed)[-1] == MISSING


def test_a_slip_among_numbers_is_named_with_its_row():
    def slip(*words: str) -> str:
        factor = read([*map(str, range(30)), *words])
        assert isinstance(factor, Coded)
        return factor.slip

    assert slip("oops") == (
        "read as text, since 'oops' in row 31 is no number; nearly every other row holds one"
    )
    assert "'oops' in row 31 is no number (nor are the words of 1 more row)" in slip(
        "oops", "", "x"
    )
    assert slip("a", "b", "c", "d", "e") == slip("n/a") == ""


def test_namibia_can_be_kept():
    factor = read(["NA", "DE", ""], Coding(text=("x",)))
    assert spelled(factor) == ["NA", "DE", MISSING]


def test_equal_numbers_are_one_value_however_they_are_written():
    factor = read(["1", "1.0", "+1", "1e0", "2.50", "2.5"])
    assert spelled(factor) == ["1", "1", "1", "1", "2.5", "2.5"]
    assert "joined" in factor.rule


def test_a_leading_zero_makes_a_name_and_not_a_number():
    assert spelled(read(["01067", "1067", "80331"])) == ["01067", "1067", "80331"]


def test_large_whole_numbers_are_told_apart():
    cells = [2**53, 2**53 + 1, 2**62 + 1]
    assert spelled(read(cells)) == spelled(read([str(c) for c in cells])) == [str(c) for c in cells]


def test_truths_are_alike_in_every_format():
    assert spelled(read(["True", "FALSE", "true"])) == spelled(read([True, False, True]))
    assert read([True, False]).values == ("false", "true")


def test_numbers_among_words_stay_text_and_the_rule_says_so():
    factor = read(["1.0", "1", "many", *map(str, range(50))])
    assert spelled(factor)[:3] == ["1.0", "1", "many"]
    assert "mixed" in factor.rule


def test_one_value_only_is_noted():
    assert "one value only" in read(["a", "a"]).rule
    assert "every cell is missing" in read(["", None]).rule


@pytest.mark.parametrize("count", [12, 13])
def test_more_than_a_dozen_numbers_are_binned(count: int):
    factor = read([str(i) for i in range(count)] * 2)
    assert factor.size == (12 if count == 12 else 5)
    assert ("bins of equal counts" in factor.rule) == (count == 13)


@given(st.lists(NUMBERS, min_size=14, max_size=80), st.integers(2, 6))
@settings(max_examples=60)
def test_bins_hold_what_sorting_puts_in_them(numbers: list[float], bins: int):
    """The oracle: cut the sorted list at k/bins, ties below, never above the largest."""
    different, ordered = sorted(set(numbers)), sorted(numbers)
    edges = edges_of_counts(np.array(different), _times(numbers), bins)
    cuts = {ordered[ceil(k * len(ordered) / bins) - 1] for k in range(1, bins)}
    if different[-1] in cuts:
        cuts = (cuts - {different[-1]}) | set(different[-2:-1])
    expected = [sum(x > cut for cut in cuts) for x in numbers]
    assert np.searchsorted(edges, numbers).tolist() == expected
    assert len(bin_names(edges)) == len(cuts) + 1 == len(set(bin_names(edges)))


def _times(numbers: list[float]) -> np.ndarray:
    times = Counter(numbers)
    return np.array([times[x] for x in sorted(times)])


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    st.integers(2, 6),
    st.integers(1, 20),
)
@settings(max_examples=60)
def test_edges_of_a_stream_are_those_of_counts(numbers: list[float], bins: int, piece: int):
    array = np.array([x + 0.0 for x in numbers])
    pieces = [np.append(array[i : i + piece], np.nan) for i in range(0, len(array), piece)]
    different, times = np.unique(array, return_counts=True)
    assert edges_of_numbers(lambda: pieces, bins) == edges_of_counts(different, times, bins)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=13, unique=True))
@settings(max_examples=60)
def test_the_name_of_a_bin_says_its_edges_exactly(numbers: list[float]):
    edges = edges_of_counts(np.array(numbers), np.ones(len(numbers), np.int64), 5)
    assert all(map(isfinite, edges)) and list(edges) == sorted(set(edges))
    said = [float(name.removeprefix("up to ").split(" to ")[-1]) for name in bin_names(edges)[:-1]]
    assert said == list(edges)


def test_edges_are_short_numbers():
    cells = list(np.random.default_rng(0).normal(size=1000))
    assert all(len(name) < 24 for name in read(cells).values)
    assert read([x / 7 for x in range(40)]).rule.startswith("5 bins of equal counts")


def test_heavy_ties_make_fewer_bins():
    assert read([0.0] * 900 + list(range(1, 30))).values == ("up to 0", "above 0")
    assert len(read([99.0] * 900 + list(range(30))).values) == 2


def test_many_different_numbers_are_binned_like_few():
    """More numbers than values are held, so that they are streamed, against fewer."""
    rng = np.random.default_rng(1)
    cells = [round(float(x), 2) for x in rng.normal(size=5000)] + [None]
    few, many = read(cells), read(cells, Coding(most_values=20))
    assert (few.values, few.rule) == (many.values, many.rule)
    assert few.codes.tolist() == many.codes.tolist()
    texts = read(["" if c is None else str(c) for c in cells], Coding(most_values=20))
    assert texts.codes.tolist() == many.codes.tolist()


@given(st.lists(st.sampled_from("aabbbcdef")), st.integers(0, 4))
def test_rare_values_are_grouped(cells: list[str], rare: int):
    cells = [*cells, "z"]
    factor = read(cells, Coding(rare=rare))
    times = Counter(cells)
    assert spelled(factor) == [c if times[c] >= rare else OTHER for c in cells]
    grouped = sum(times[c] < rare for c in times)
    assert (f"{grouped} value" in factor.rule) == (grouped > 0)


def test_a_column_with_too_many_values_is_refused_with_what_to_do():
    with pytest.raises(InvalidRequest, match=r"'x' has .* values .*leave it out.*--rare N"):
        read([f"id {i}" for i in range(20_000)])
    grouped = read([f"id {i}" for i in range(20_000)] + ["b"] * 9, Coding(rare=2))
    assert grouped.values == ("b", OTHER)


def test_too_many_values_are_found_without_reading_on():
    class Endless(list):
        read = 0

        def __getitem__(self, where):
            self.read = max(self.read, where.stop)
            return [f"id {i}" for i in range(where.start, where.stop)]

        def __len__(self) -> int:
            return 10**9

    column = Endless()
    with pytest.raises(InvalidRequest, match="different values in its first"):
        read_rows({"x": column}, ["x"])
    assert column.read < 100_000


def test_a_word_after_many_numbers_is_refused_or_grouped():
    cells = [*(str(i) for i in range(3000)), "seven", "seven"]
    with pytest.raises(InvalidRequest, match="'seven' is not a number"):
        read(cells, Coding(most_values=100))
    assert read(cells, Coding(most_values=100, rare=2)).values == ("seven", OTHER)


def test_a_column_said_to_be_numeric_must_be():
    assert read(list(range(7)), Coding(numeric=("x",))).size == 5
    with pytest.raises(InvalidRequest, match="holds 'seven'"):
        read(["1", "seven"], Coding(numeric=("x",)))


@pytest.mark.parametrize(
    "value",
    ["<script>alert(1)</script>", "a\0b", "‮abc", "=1+1", "{{7*7}}", "\ud800", "x" * 10**7],
)
def test_hostile_values_are_kept_as_data(value: str):
    factor = read([value, "plain", value])
    assert spelled(factor)[1] == "plain" and spelled(factor)[0] == spelled(factor)[2]
    assert all(len(name) <= 200 and name.encode() for name in factor.values)
    if value.isascii() and len(value) < 200:
        assert value in factor.values


def test_long_values_stay_different():
    assert read(["x" * 10_000 + "a", "x" * 10_000 + "b"]).size == 2


LISTS = st.lists(st.lists(st.sampled_from(["p", "q", "r", "s", "3", "3.0"])), min_size=1)


@given(LISTS)
def test_lists_become_sets_in_ascending_order(cells: list[list[str]]):
    cells = [*cells, ["p", "q"]]
    factor = read(cells)
    assert factor.many and [set(row) for row in spelled(factor)] == [set(row) for row in cells]
    for row in factor.codes.tolist():
        held = [c for c in row if c != -1]
        assert held == sorted(set(held)) and row[len(held) :] == [-1] * (len(row) - len(held))
    assert factor.codes.shape[1] == max(len(set(row)) for row in cells)


@given(LISTS)
def test_lists_are_alike_in_every_spelling(cells: list[list[str]]):
    cells = [["p"], *cells]
    real = spelled(read(cells))
    assert spelled(read([json.dumps(row) for row in cells])) == real
    marked = read([";".join(row) for row in cells], Coding(lists={"x": ";"}))
    assert spelled(marked) == real


def test_an_empty_list_is_not_a_missing_one():
    assert spelled(read([["a"], [], None])) == [["a"], [], [MISSING]]
    assert spelled(read(["a;b", "", "NA"], Coding(lists={"x": ";"}))) == [["a", "b"], [], [MISSING]]


def test_numbers_in_lists_and_rare_items():
    assert spelled(read([[1, 2.0], [2]])) == [["1", "2"], ["2"]]
    rare = read([["a", "b"], ["a", "c"], ["a"]], Coding(rare=2))
    assert spelled(rare) == [["a", OTHER], ["a", OTHER], ["a"]]


def test_lists_after_single_values_are_refused():
    cells = ["a"] * 3000 + [["b"]]
    with pytest.raises(InvalidRequest, match="write every cell as a list"):
        read(cells)
    late = [None] * 3000 + [["b"]]
    assert spelled(read(late))[-2:] == [[MISSING], ["b"]]


def test_another_table_is_coded_alike():
    train = read([*range(100), None], Coding(bins=4))
    test = read([-5, 99.5, "many", None], like=train)
    assert test.values == (*train.values, "many")
    assert spelled(test) == [train.values[0], train.values[3], "many", MISSING]
    assert (test.rule, train.values[:2]) == (train.rule, ("up to 24", "24 to 49"))


def test_groups_of_another_table_are_kept_and_new_values_come_after():
    train = read(["a", "a", "b", "c"], Coding(rare=2))
    test = read(["b", "d", "a", None], like=train)
    assert test.values == ("a", OTHER, "d", MISSING)
    assert spelled(test) == [OTHER, "d", "a", MISSING]


def test_spellings_of_another_table_are_found():
    assert spelled(read(["1.0", "x"], like=read(["1", "2"]))) == ["1", "x"]
    assert spelled(read(["True"], like=read([True, False]))) == ["true"]
    lists = read([["a", "b"], ["c"]])
    assert spelled(read(["c", "d"], like=lists)) == [["c"], ["d"]]


def test_many_numbers_are_binned_as_before():
    rng = np.random.default_rng(2)
    train = read(list(rng.normal(size=4000)), Coding(most_values=50))
    test = list(rng.normal(size=4000))
    by_counts, by_stream = (read(test, Coding(most_values=m), like=train) for m in (10**5, 50))
    assert by_counts.values == by_stream.values == train.values
    assert by_counts.codes.tolist() == by_stream.codes.tolist()


def test_settling_counts_rows_and_not_spellings():
    done = settle("x", ["1", "1.0", "2"], np.array([1, 1, 1]), Coding(rare=2))
    assert done.values == ("1", OTHER) and done.table.tolist() == [0, 0, 1]


@pytest.mark.parametrize("wrong", [{"bins": 1}, {"rare": -1}, {"lists": {"x": ""}},
                                   {"numeric": ("x",), "text": ("x",)}])  # fmt: skip
def test_impossible_settings_are_refused(wrong: dict):
    with pytest.raises(InvalidRequest):
        Coding(**wrong)
