"""Multiplication as a family of sequences: what is asked, what is new, what is right."""

from __future__ import annotations

import dataclasses
import re

import pytest

from recombine.errors import InvalidRequest
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Item
from recombine.families.multiplication import Multiplication
from recombine.graphs import multiplication_graph, read_multiplication

TINY = Multiplication(train_items=300, test_items=60, validation_items=30, beyond_items=40)
PLAIN = dataclasses.replace(TINY, scratchpad=False)


def factors(item: Item) -> tuple[int, int]:
    x, y = item.source.split("*")
    return int(x), int(y)


@pytest.mark.parametrize("family", [TINY, PLAIN])
def test_every_item_is_solved_by_rule_and_its_target_scores_one(family):
    for items in family.corpus(0).splits.values():
        for item in items:
            assert family.solve(item.source) == item.target
            assert set(family.scores(item, item.target).values()) == {1.0}


def test_answers_alone_are_products():
    for items in PLAIN.corpus(1).splits.values():
        for item in items:
            x, y = factors(item)
            assert item.target == str(x * y)


def test_scratchpads_hold_the_values_of_the_computation():
    for items in TINY.corpus(2).splits.values():
        for item in items:
            graph, found = multiplication_graph(*factors(item)), read_multiplication(item.target)
            assert found is not None
            assert all(found[n.name] == n.value for n in graph.nodes if n.parents)


def test_by_default_training_has_four_in_five_of_all_pairs_of_five_sizes():
    family = Multiplication(scratchpad=False)
    corpus = family.corpus(0)
    assert len(corpus[TRAIN]) == int(0.8 * 98_091)
    assert {item.part for item in corpus[TRAIN]} == {"1x1", "2x1", "2x2", "3x1", "3x2"}
    assert corpus.beyond == ("3x3", "4x1", "4x2", "4x3")
    sources = [item.source for items in corpus.splits.values() for item in items]
    assert len(set(sources)) == len(sources)
    assert all(item.novelty == 0 for split in (TRAIN, TEST) for item in corpus[split])


def test_parts_say_whether_width_depth_or_both_are_new():
    corpus = TINY.corpus(0)
    found = {split: {(i.part, i.novelty) for i in corpus[split]} for split in corpus.beyond}
    assert found == {
        "3x3": {("wider", 1)},
        "4x1": {("deeper", 1)},
        "4x2": {("wider and deeper", 1)},
        "4x3": {("wider and deeper", 2)},
    }
    assert {item.part for item in corpus[VALIDATION]} == {"wider", "deeper", "wider and deeper"}
    trained = [multiplication_graph(*factors(item)) for item in corpus[TRAIN]]
    for item in corpus["3x3"]:
        assert multiplication_graph(*factors(item)).depth <= max(g.depth for g in trained)
    for item in corpus["4x1"]:
        assert multiplication_graph(*factors(item)).width <= max(g.width for g in trained)


def test_sizes_of_splits_are_as_asked_and_numbers_have_the_digits_of_their_size():
    corpus = TINY.corpus(3)
    assert [len(corpus[s]) for s in (TRAIN, TEST, VALIDATION)] == [300, 60, 30]
    for split in corpus.beyond:
        assert len(corpus[split]) == 40
        for item in corpus[split]:
            assert "x".join(str(len(str(n))) for n in factors(item)) == split
    sources = [item.source for items in corpus.splits.values() for item in items]
    assert len(set(sources)) == len(sources)


def test_a_seed_fixes_the_corpus():
    assert TINY.corpus(5).splits == TINY.corpus(5).splits
    assert TINY.corpus(5).splits != TINY.corpus(6).splits


def test_no_item_is_longer_than_stated():
    # All nines have a carry everywhere and the longest products.
    family = Multiplication()
    for source, most in (("999*99", 114), ("999*999", 169), ("9999*999", 225)):
        assert len(source) + len(family.solve(source)) == most
    characters = {c for items in TINY.corpus(0).splits.values() for i in items for c in i.target}
    assert len(characters | {"*"}) == 18


def test_digits_are_judged_one_by_one_from_the_left():
    item = Item("25*3", "75")
    assert PLAIN.digits_right(item, "75") == (True, True)
    for nonsense in ("", "7 5", "seventy-five", "٧٥"):
        assert PLAIN.digits_right(item, nonsense) == (False, False)
    assert PLAIN.scores(item, "65") == {
        "exact": 0.0, "answer": 0.0, "first_digit": 0.0, "last_digit": 1.0, "digits": 0.5,
    }  # fmt: skip


def test_a_zero_that_nobody_wrote_is_no_right_digit():
    # 075 would begin like 065 and 005, and 1075 end like it.
    item = Item("25*3", "75")
    assert PLAIN.scores(item, "65")["first_digit"] == 0
    for other_length in ("5", "175", "075", "1075"):
        assert PLAIN.digits_right(item, other_length) == (False, False)


def test_a_right_product_after_wrong_steps_is_a_right_answer():
    target = TINY.solve("35*9")
    item = Item("35*9", target)
    assert TINY.scores(item, target.replace("5:45", "5:46"))["answer"] == 1
    assert TINY.scores(item, re.sub("=513$", "=613", target))["answer"] == 0
    assert TINY.scores(item, target[:-4])["answer"] == 0


@pytest.mark.parametrize("source", ["", "35", "35*", "035*9", "3 5*9", "35*9=", "-3*4", "a*b"])
def test_what_is_no_product_is_refused(source):
    with pytest.raises(InvalidRequest, match="no product"):
        TINY.solve(source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_sizes": ((2, 3),)}, "size 2x3"),
        ({"beyond_sizes": ((9, 1),)}, "1 to 6"),
        ({"beyond_sizes": ((3, 2),)}, "given twice"),
        ({"beyond_sizes": ()}, "at least one size"),
        ({"train_items": 98_092}, "98091 pairs"),
        ({"train_sizes": ((2, 1),), "beyond_sizes": ((1, 1),), "beyond_items": 60}, "81 pairs"),
        ({"test_items": 0}, "at least one"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(change, message):
    with pytest.raises(InvalidRequest, match=message):
        dataclasses.replace(TINY, **change).check()


def test_a_size_between_trained_ones_is_new_though_neither_wider_nor_deeper():
    family = dataclasses.replace(
        TINY, train_sizes=((1, 1), (3, 1), (3, 2)), beyond_sizes=((2, 2),), beyond_items=20
    )
    assert {(i.part, i.novelty) for i in family.corpus(0)["2x2"]} == {("new size", 1)}
