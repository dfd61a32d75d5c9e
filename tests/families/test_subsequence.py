"""Subsequences as a family of sequences: what is asked, what is new, what is right."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from recombine.errors import InvalidRequest
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Item
from recombine.families.subsequence import Subsequence
from recombine.graphs import read_subsequence, subsequence_graph

TINY = Subsequence(
    train_length=3, reach=2, longer=2, test_items=20, validation_items=15, beyond_items=40
)
STEPS = dataclasses.replace(TINY, scratchpad=True)


def by_brute_force(source: str) -> str:
    values = [int(word) for word in source.split()]
    choices = [m for m in itertools.product("12", repeat=len(values)) if "11" not in "".join(m)]
    worth = [sum(v for v, m in zip(values, c, strict=True) if m == "1") for c in choices]
    best = max(worth)
    return " ".join(min(c for c, w in zip(choices, worth, strict=True) if w == best))


@pytest.mark.parametrize("family", [TINY, STEPS])
def test_every_item_is_solved_by_rule_and_its_target_scores_one(family):
    for items in family.corpus(0).splits.values():
        for item in items:
            assert family.solve(item.source) == item.target
            assert set(family.scores(item, item.target).values()) == {1.0}


def test_answers_are_the_best_of_all_choices():
    for items in TINY.corpus(1).splits.values():
        for item in items:
            assert item.target == by_brute_force(item.source)


def test_scratchpads_hold_the_values_of_the_computation():
    for items in STEPS.corpus(2).splits.values():
        for item in items:
            values = [int(word) for word in item.source.split()]
            found = read_subsequence(item.target, len(values))
            assert found is not None
            graph = subsequence_graph(values)
            assert all(found[n.name] == n.value for n in graph.nodes if n.parents)


def test_training_sees_four_in_five_of_all_short_lists():
    corpus = TINY.corpus(0)
    assert len(corpus[TRAIN]) == 124  # of 5 + 25 + 125
    assert len(corpus[TEST]) == 20 and len(corpus[VALIDATION]) == 15
    assert {item.part for item in corpus[TRAIN]} == {"1 numbers", "2 numbers", "3 numbers"}
    assert corpus.beyond == ("length-4", "length-5")
    for novelty, split in enumerate(corpus.beyond, start=1):
        assert len(corpus[split]) == 40
        assert {item.novelty for item in corpus[split]} == {novelty}
        assert {len(item.source.split()) for item in corpus[split]} == {3 + novelty}
    assert all(item.novelty == 0 for split in (TRAIN, TEST) for item in corpus[split])
    assert {item.novelty for item in corpus[VALIDATION]} == {1, 2}
    sources = [item.source for items in corpus.splits.values() for item in items]
    assert len(set(sources)) == len(sources)


def test_by_default_there_are_as_many_lists_as_published():
    corpus = Subsequence().corpus(0)
    assert len(corpus[TRAIN]) == 141_724
    assert corpus.beyond == tuple(f"length-{n}" for n in range(6, 11))


def test_a_seed_fixes_the_corpus():
    assert STEPS.corpus(5).splits == STEPS.corpus(5).splits
    assert STEPS.corpus(5).splits != STEPS.corpus(6).splits


def test_no_item_is_longer_than_stated_and_longer_lists_need_no_new_words():
    longest = " ".join(["5"] * 10)
    for scratchpad, most in ((False, 20), (True, 126)):
        solved = Subsequence(scratchpad=scratchpad).solve(longest)
        assert len(longest.split(" ")) + len(solved.split(" ")) == most
    family = Subsequence(scratchpad=True, train_length=3, beyond_items=200, test_items=100)
    corpus = family.corpus(0)
    words = {
        split: {w for item in items for w in (*item.source.split(" "), *item.target.split(" "))}
        for split, items in corpus.splits.items()
    }
    assert len(words[TRAIN]) == 21
    assert all(found <= words[TRAIN] for found in words.values())


def test_another_best_choice_is_best_but_not_exact():
    item = Item("2 2", "1 2")
    assert TINY.scores(item, "2 1") == {"exact": 0.0, "answer": 0.0, "marks": 0.0, "best": 1.0}
    assert TINY.scores(item, "1 1")["best"] == 0  # neighbours
    assert TINY.scores(item, "1 2 2") == {"exact": 0.0, "answer": 0.0, "marks": 0.0, "best": 0.0}
    assert TINY.scores(item, "one 2") == {"exact": 0.0, "answer": 0.0, "marks": 0.5, "best": 0.0}


def test_right_marks_after_wrong_steps_are_a_right_answer():
    target = STEPS.solve("2 -1 1")
    item = Item("2 -1 1", target)
    assert STEPS.scores(item, target.replace("3 : 3", "3 : 2"))["answer"] == 1
    assert STEPS.scores(item, target[:-1] + "2")["answer"] == 0
    assert STEPS.scores(item, "")["answer"] == 0


@pytest.mark.parametrize("source", ["", "1,2", "1  2", "one two", "1 2 ", "--3"])
def test_what_is_no_list_is_refused(source):
    with pytest.raises(InvalidRequest, match="no list of numbers"):
        TINY.solve(source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_length": 0}, "1 or more"),
        ({"longer": 0}, "1 or more"),
        ({"longer": 40}, "too many"),
        ({"reach": 12}, "reach 12"),
        ({"train_length": 9}, "no more than 1000000"),
        ({"train_share": 1.0}, "leaves 0"),
        ({"train_share": 0.0}, "some to train on"),
        ({"test_items": 40}, "40 to test"),
        ({"beyond_items": 700}, "625 lists of 4"),
        ({"validation_items": 0}, "at least one"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(change, message):
    with pytest.raises(InvalidRequest, match=message):
        dataclasses.replace(TINY, **change).check()


FAVOURED = dataclasses.replace(TINY, train_length=4, reach=2, train_share=0.4, odds=9)


def test_arms_differ_only_in_which_endings_are_common():
    corpora = [dataclasses.replace(FAVOURED, favours=half).corpus(4) for half in (0, 1, 2)]
    for corpus in corpora[1:]:
        for split in set(corpus.splits) - {TRAIN}:
            assert corpus[split] == corpora[0][split]
    counts = []
    for corpus in corpora:
        sources = [item.source for item in corpus[TRAIN]]
        assert len(set(sources)) == len(sources) == 312  # of 780, none twice
        half = FAVOURED.halves(sources, 4)
        counts.append([int((half == one).sum()) for one in (1, 2)])
    neither, first, second = counts
    assert abs(neither[0] - neither[1]) < 60
    assert first == second[::-1] == [270, 30]


@pytest.mark.parametrize("seed", [0, 7])
def test_halves_of_all_endings_are_equal_and_follow_the_seed(seed):
    endings = [" ".join(map(str, one)) for one in itertools.product(range(-2, 3), repeat=3)]
    half = FAVOURED.halves(endings, seed)
    assert (half == 1).sum() == 63 and (half == 2).sum() == 62
    longer = FAVOURED.halves([f"2 -1 {one}" for one in endings], seed)
    assert (longer == half).all()
    assert (half != FAVOURED.halves(endings, seed + 1)).any()
    assert FAVOURED.halves(["1 2", "1"], seed).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"favours": 3}, "half 1 or 2"),
        ({"favours": 1, "odds": 0}, "at least 1"),
        ({"favours": 1, "train_share": 0.6}, "lower train_share"),
        ({"favours": 1, "train_length": 2, "test_items": 2}, "endings to favour have 3"),
    ],
)
def test_halves_that_cannot_be_favoured_are_refused(change, message):
    with pytest.raises(InvalidRequest, match=message):
        dataclasses.replace(FAVOURED, **change).check()
