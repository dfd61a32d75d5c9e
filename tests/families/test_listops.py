"""ListOps: answers checked by Python's own functions, even answers, depths and widths that hold."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from recombine.errors import InvalidRequest
from recombine.families.listops import OPERATORS, ListOps

SMALL = ListOps(train_items=600, test_items=120, validation_items=60, beyond_items=90)
PYTHON = {
    "MAX": max,
    "MIN": min,
    "MED": lambda values: math.floor(statistics.median(values)),
    "SUM_MOD": lambda values: sum(values) % 10,
}


def by_python(source: str) -> str:
    """The answer by rewriting the list as an expression of Python's own functions."""
    text = re.sub(r"\[(\w+) ", r"\1([", source).replace(" ]", "])")
    return str(eval(re.sub(r"(?<=[\d)]) (?=[\dA-Z])", ", ", text), {"__builtins__": {}}, PYTHON))


def depth_and_width(source: str) -> tuple[int, int]:
    depth = deepest = widest = 0
    counts: list[int] = [0]
    for word in source.split(" "):
        if word == "]":
            widest = max(widest, counts.pop())
            depth -= 1
            continue
        counts[-1] += 1
        if word[0] == "[":
            counts.append(0)
            depth += 1
            deepest = max(deepest, depth)
    return deepest, widest


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31))
def test_every_answer_is_what_python_computes(seed):
    for items in SMALL.corpus(seed).splits.values():
        for item in items:
            assert item.target == SMALL.solve(item.source) == by_python(item.source)


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**31),
    depth=st.integers(1, 4),
    arguments=st.integers(2, 4),
    deeper=st.integers(1, 2),
    more=st.integers(1, 3),
)
def test_novelty_is_what_a_list_has_beyond_training(seed, depth, arguments, deeper, more):
    family = ListOps(depth, arguments, deeper, more, 100, 8, 20, 20)
    corpus = family.corpus(seed)
    assert corpus.beyond == ("depth", "arguments")
    for name, items in corpus.splits.items():
        for item in items:
            levels, width = depth_and_width(item.source)
            assert len(item.source.split(" ")) <= family.longest
            beyond = max(levels - depth, 0), max(width - arguments, 0)
            assert max(beyond) == item.novelty and min(beyond) == 0
            if name in ("train", "test"):
                assert item.novelty == 0 and item.part == f"depth {levels}"
            elif name in ("depth", "arguments"):
                assert item.novelty == beyond[corpus.beyond.index(name)] > 0


@settings(max_examples=5)
@given(seed=st.integers(0, 2**31))
def test_no_list_is_in_two_splits_and_only_training_repeats(seed):
    splits = SMALL.corpus(seed).splits
    sources = {name: {item.source for item in items} for name, items in splits.items()}
    assert sum(map(len, sources.values())) == len(set().union(*sources.values()))
    for name, size in (("test", 120), ("validation", 60), ("depth", 90), ("arguments", 90)):
        assert len(sources[name]) == len(splits[name]) == size
    assert len(splits["train"]) == 600


def test_neither_a_constant_nor_the_outermost_operator_tells_the_answer():
    corpus = ListOps(train_items=20_000).corpus(0)
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for item in corpus["train"]:
        answers[item.source.split(" ")[0]][item.target] += 1
        answers["any"][item.target] += 1
    assert set(answers) == {"any", *(f"[{operator}" for operator in OPERATORS)}
    for counts in answers.values():
        assert len(counts) == 10
        # Even but for chance, and but for the shortest lists that test keeps to itself.
        assert chisquare(list(counts.values())).pvalue > 1e-4
        assert max(counts.values()) < 0.12 * counts.total()


def test_depths_have_the_same_shares_in_training_and_test():
    corpus = ListOps(train_items=6000, test_items=600).corpus(1)
    for name in ("train", "test"):
        counts = Counter(item.part for item in corpus[name])
        size = counts.total()
        assert counts == {"depth 1": size / 6, "depth 2": size / 3, "depth 3": size / 2}


def test_a_seed_gives_the_same_items_and_another_seed_others():
    assert SMALL.corpus(5).splits == SMALL.corpus(5).splits
    assert SMALL.corpus(5).splits["test"] != SMALL.corpus(6).splits["test"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", "9"),
        ("[MED 1 4 ]", "2"),
        ("[MED 9 0 5 ]", "5"),
        ("[SUM_MOD 9 9 9 ]", "7"),
        ("7", "7"),
    ],
)
def test_a_list_is_answered_as_worked_out_by_hand(source, target):
    assert ListOps().solve(source) == target


@pytest.mark.parametrize(
    "source",
    ["", "[MAX 1 2", "[MAX ]", "1 2", "[MAX 1 2 ] ]", "[AVG 1 2 ]", "[MAX 12 ]", "[MAX 1 ²", "]"],
)
def test_what_is_no_list_is_refused(source):
    with pytest.raises(InvalidRequest, match="is no list of ListOps"):
        ListOps().solve(source)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        (ListOps(depth=0), "at least one level"),
        (ListOps(arguments=1), "2 arguments"),
        (ListOps(deeper=0), "nothing is beyond"),
        (ListOps(test_items=0), "test_items=0"),
        (ListOps(longest=18), "at least 19 words"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(family, says):
    with pytest.raises(InvalidRequest, match=says):
        family.corpus(0)


def test_more_different_lists_than_there_are_is_refused():
    with pytest.raises(InvalidRequest, match=r"wanted for test.*ask for fewer"):
        ListOps(depth=1, arguments=2, test_items=400, train_items=10).corpus(0)
