"""PCFG SET: functions as in the released data, answers by rewriting, pairs that training lacks."""

from __future__ import annotations

import re
from collections import Counter, deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families.pcfg import FUNCTIONS, HELD_OUT_PAIRS, Pcfg

SMALL = Pcfg(train_items=400, test_items=60, validation_items=35, beyond_items=40)
STRING = r"([A-Z](?: [A-Z])*)"
ONE = re.compile(rf"(copy|reverse|shift|swap_first_last|repeat|echo) {STRING}(?= ,|$)")
TWO = re.compile(rf"(append|prepend|remove_first|remove_second) {STRING} , {STRING}(?= ,|$)")


def one(name: str, text: str) -> str:
    letters = deque(text.split(" "))
    if name == "reverse":
        letters.reverse()
    elif name == "shift":
        letters.rotate(-1)
    elif name == "swap_first_last":
        letters[0], letters[-1] = letters[-1], letters[0]
    elif name == "repeat":
        letters.extend(list(letters))
    elif name == "echo":
        letters.append(letters[-1])
    return " ".join(letters)


def two(name: str, x: str, y: str) -> str:
    return {"append": f"{x} {y}", "prepend": f"{y} {x}", "remove_first": y, "remove_second": x}[
        name
    ]


def rewritten(source: str) -> str:
    """The answer by rewriting functions whose arguments are plain strings, until none is left."""
    before = ""
    while before != source:
        before = source
        source = ONE.sub(lambda found: one(*found.groups()), source)
        source = TWO.sub(lambda found: two(*found.groups()), source)
    return source


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31))
def test_every_answer_is_what_rewriting_gives(seed):
    for items in SMALL.corpus(seed).splits.values():
        for item in items:
            assert item.target == SMALL.solve(item.source) == rewritten(item.source)


# Items of the released systematicity test (one shortened), letters without their numbers.
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("swap_first_last repeat copy J A N V", "V A N V J A N J"),
        ("shift append swap_first_last C D P , shift Q F I F B", "D C F I F B Q P"),
        ("prepend swap_first_last repeat T D J , U U V G", "U U V G J D J T D T"),
        ("remove_second swap_first_last echo echo copy repeat L E , reverse Q U", "E E L E E L"),
        (
            "append remove_second U F , remove_first W K , remove_second M W O , U J X Q , P V P",
            "U F P V P",
        ),
    ],
)
def test_functions_mean_what_they_mean_in_the_released_data(source, target):
    assert Pcfg().solve(source) == target == rewritten(source)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31), functions=st.integers(2, 4), more=st.integers(1, 3))
def test_novelty_is_what_a_source_has_beyond_training(seed, functions, more):
    family = Pcfg(functions, more, 3, 26, 100, 20, 20, 20, longest=20)
    corpus = family.corpus(seed)
    assert corpus.beyond == ("systematicity", "productivity")
    for name, items in corpus.splits.items():
        for item in items:
            words = item.source.split(" ")
            pairs = sum(pair in HELD_OUT_PAIRS for pair in pairwise(words))
            extra = max(sum(word in FUNCTIONS for word in words) - functions, 0)
            assert item.novelty == max(pairs, extra) and min(pairs, extra) == 0
            assert len(item.target.split(" ")) <= 20
            if name == "systematicity":
                assert pairs >= 1 and item.part in item.source
            elif name == "productivity":
                assert 1 <= extra <= more
            elif name != "validation":
                assert item.novelty == 0


@settings(max_examples=5)
@given(seed=st.integers(0, 2**31))
def test_every_source_is_asked_once_in_one_split(seed):
    splits = SMALL.corpus(seed).splits
    assert [len(items) for items in splits.values()] == [400, 60, 35, 40, 40]
    sources = [item.source for items in splits.values() for item in items]
    assert len(sources) == len(set(sources))


def test_every_function_is_trained_and_every_other_pair_may_be():
    train = Pcfg(train_items=8000).corpus(0)["train"]
    pairs = Counter(pair for item in train for pair in pairwise(item.source.split(" ")))
    trained = {pair for pair in pairs if set(pair) <= set(FUNCTIONS)}
    assert trained == {(f, g) for f in FUNCTIONS for g in FUNCTIONS} - set(HELD_OUT_PAIRS)


def test_numbers_of_functions_and_pairs_have_equal_shares():
    corpus = SMALL.corpus(2)
    assert set(Counter(item.part for item in corpus["test"]).values()) == {20}
    assert Counter(item.part for item in corpus["systematicity"]) == {
        " ".join(pair): 10 for pair in HELD_OUT_PAIRS
    }


def test_more_training_leaves_the_other_items_as_they_are():
    larger = Pcfg(train_items=800, test_items=60, validation_items=35, beyond_items=40).corpus(1)
    for name, items in SMALL.corpus(1).splits.items():
        assert (items == larger[name]) == (name != "train")


def test_a_seed_gives_the_same_items_and_another_seed_others():
    assert SMALL.corpus(5).splits == SMALL.corpus(5).splits
    assert SMALL.corpus(5).splits["test"] != SMALL.corpus(6).splits["test"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "neither a function nor a letter"),
        ("append A B", "two arguments"),
        ("append A B ,", "it ends where"),
        ("copy", "it ends where"),
        ("copy A , B", "',' has no place"),
        ("copy A reverse B", "'reverse' has no place"),
        ("twist A B", "'twist' is neither"),
        ("copy AB", "'AB' is neither"),
    ],
)
def test_what_is_no_source_is_refused_with_the_reason(source, says):
    with pytest.raises(InvalidRequest, match=f"is no source of PCFG SET: .*{says}"):
        Pcfg().solve(source)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        (Pcfg(functions=1), "a pair takes at least 2"),
        (Pcfg(more=0), "at least 1 more"),
        (Pcfg(string=1), "2 letters at least"),
        (Pcfg(string=33), "longest=32"),
        (Pcfg(string=3, longest=3), "repeat makes 4 letters"),
        (Pcfg(letters=27), "ask for 1 to 26"),
        (Pcfg(train_items=0), "train_items=0"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(family, says):
    with pytest.raises(InvalidRequest, match=says):
        family.corpus(0)


def test_more_different_sources_than_there_are_is_refused():
    with pytest.raises(InvalidRequest, match=r"wanted for validation.*ask for fewer"):
        Pcfg(functions=2, letters=1, string=2, test_items=5, beyond_items=4).corpus(0)
