"""The families of constrained problems: corpora, solvers, scores and refusals."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Item
from recombine.families.knapsack import KnapsackFamily
from recombine.families.portfolio import PortfolioFamily
from recombine.families.power_flow import PowerFlowFamily
from recombine.families.scheduling import SchedulingFamily

SMALL = {"train_items": 60, "test_items": 20, "validation_items": 12, "beyond_items": 12}
FAMILIES = {
    "knapsack": KnapsackFamily(**SMALL),
    "portfolio": PortfolioFamily(**SMALL),
    "scheduling": SchedulingFamily(**SMALL),
    "case9": PowerFlowFamily(**SMALL),
    "case14": PowerFlowFamily(grid="case14", **SMALL),
}
WHOLE = ["knapsack", "portfolio", "scheduling"]
every = pytest.mark.parametrize("name", FAMILIES)


@functools.cache
def corpus(name: str):
    return FAMILIES[name].corpus(0)


@every
def test_splits_have_the_sizes_asked_for_and_share_no_source(name):
    splits = corpus(name).splits
    assert len(splits[TRAIN]) == 60 and len(splits[TEST]) == 20 and len(splits[VALIDATION]) == 12
    assert len(corpus(name).beyond) == 2
    sources = [item.source for items in splits.values() for item in items]
    assert len(set(sources)) == len(sources) == 60 + 20 + 12 + 2 * 12


@every
def test_novelty_is_nothing_in_training_and_something_beyond(name):
    for split, items in corpus(name).splits.items():
        assert all((item.novelty == 0) == (split in (TRAIN, TEST)) for item in items)
        assert all(item.part for item in items)


@every
def test_a_corpus_is_a_function_of_its_seed(name):
    family = FAMILIES[name]
    smaller = type(family)(**{**vars(family), "beyond_items": 11})  # not the same cache entry
    assert smaller.corpus(0)[TRAIN] == corpus(name)[TRAIN]
    assert smaller.corpus(1)[TRAIN] != corpus(name)[TRAIN]
    assert family.corpus(0) is corpus(name)


@every
def test_the_solver_answers_every_item_from_its_text(name):
    family = FAMILIES[name]
    for split, items in corpus(name).splits.items():
        for item in items[:12]:
            assert family.solve(item.source) == item.target, split


@every
def test_the_right_answer_scores_in_full_and_nonsense_nothing(name):
    family = FAMILIES[name]
    for items in corpus(name).splits.values():
        scores = family.scores(items[0], items[0].target)
        assert scores.pop("gap") == scores.pop("squared_error") == 0
        assert set(scores.values()) == {1.0}
        assert {"exact", "parsed", "strict", "micro", "macro", "box"} <= set(scores)
        for text in ("", "x", items[0].target + " 1", items[0].target.replace(" ", "  ", 1)):
            none = family.scores(items[0], text)
            assert none.pop("gap") == none.pop("squared_error") == 1
            assert set(none.values()) == {0.0}
            assert none.keys() == scores.keys()


@every
def test_text_and_instance_are_the_same_thing(name):
    family = FAMILIES[name]
    for items in corpus(name).splits.values():
        for item in items:
            problem = family.read(item.source)
            assert family.write(problem) == item.source
            x = family.read_answer(problem, item.target)
            assert family.write_answer(x) == item.target


@every
def test_words_are_few_and_all_of_them_are_trained_or_plain_digits(name):
    items = [item for split in corpus(name).splits.values() for item in split]
    words = {word for item in items for word in f"{item.source} {item.target}".split(" ")}
    assert len(words) < 150
    assert max(len(f"{i.source} {i.target}".split(" ")) for i in items) <= 180
    if name in WHOLE:
        trained = {w for i in corpus(name)[TRAIN] for w in f"{i.source} {i.target}".split(" ")}
        assert words <= trained


@pytest.mark.parametrize("name", WHOLE)
def test_beyond_training_are_larger_instances_and_a_new_pair_of_rules(name):
    family, splits = FAMILIES[name], corpus(name).splits
    first, second, _ = family.rules
    for item in splits["larger"]:
        assert len(item.target.split(" ")) == 5 + item.novelty
    for split, items in splits.items():
        for item in items:
            both = f" {first} " in item.source and f" {second} " in item.source
            assert both == (split == "rules" or item.part == f"{first} and {second}")
            assert not (both and split in (TRAIN, TEST, "larger"))
    assert {item.part for item in splits[TRAIN]} >= {"plain", first, second}


def test_loads_stay_within_the_range_of_their_split():
    family = FAMILIES["case9"]
    ranges = {"train": (0.9, 1.1), "test": (0.9, 1.1), "light": (0.8, 0.9), "heavy": (1.1, 1.2)}
    base = family.network.load[family.network.loaded]
    for split, (low, high) in ranges.items():
        for item in corpus("case9")[split]:
            share = family.read(item.source).load[family.network.loaded].real / base.real
            assert (share >= low - 1e-3).all() and (share <= high + 1e-3).all()


def test_four_decimals_leave_a_rounded_optimum_feasible():
    for name in ("case9", "case14"):
        family = FAMILIES[name]
        assert all(family.verdict(item, item.target).strict for item in corpus(name)[TRAIN])


def test_an_answer_off_by_one_digit_loses_balances_and_keeps_its_boxes():
    family, item = FAMILIES["case9"], corpus("case9")[TRAIN][0]
    words = item.target.split(" ")
    words[3 * 9 + 1] = f"{(int(words[3 * 9 + 1]) + 50) % 100:02d}"  # the first angle, by .5
    scores = family.scores(item, " ".join(words))
    assert scores["parsed"] == scores["box"] == 1
    assert scores["strict"] == scores["exact"] == 0 < scores["equality"] < 1
    assert 0 < scores["squared_error"] < 1


def test_a_feasible_answer_that_is_not_the_best_has_a_gap():
    family = KnapsackFamily(**SMALL)
    item = Item("capacity 1 0 1 0 item 5 1 1 item 3 1 1", "1 1")
    scores = family.scores(item, "1 0")
    assert scores["strict"] == 1 and scores["exact"] == 0
    assert scores["gap"] == pytest.approx(3 / 8) and scores["squared_error"] == 0.5


def test_numbers_are_written_with_their_sign_and_two_decimals_a_word():
    family = PowerFlowFamily(decimals=3)
    assert family.write_answer(np.array([-0.1234, 1.0, -0.0001])) == "-0 12 3 +1 00 0 +0 00 0"


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("knapsack", "", "word 1"),
        ("knapsack", "item 1 2 3", "0 clauses 'capacity'"),
        ("knapsack", "capacity 1 0 1 0 item 1 2", "not followed by 3 digits"),
        ("knapsack", "capacity 1 0 1 0 thing 1 2 3", "'thing' is word 6"),
        ("knapsack", "capacity 1 0 1 0 item 1 2 3 conflict 1 2", "beyond 1 to 1"),
        ("knapsack", "capacity 1 0 1 0 item 1 2 ²", "not followed by 3 digits"),
        ("portfolio", "budget 0 3", "no `asset`"),
        ("portfolio", "budget 0 9 asset 1 2 1 0", "nothing satisfies"),
        ("scheduling", "slots 4 capacity 0 3", "no `job`"),
        ("scheduling", "slots 4 capacity 0 3 job 1 1 4 1 gap 1 2 1", "beyond 1 to 1"),
        ("case9", "+0 90 00", "6 numbers of 3 words"),
        ("case9", "+0 90 00 " * 5 + "0 90 00", "number 6 is '0 90 00'"),
        ("case9", "+0 90 00 " * 5 + "+0 9 00", "number 6 is"),
        ("case9", "+9 00 00 +9 00 00 +9 00 00 +9 00 00 +9 00 00 +9 00 00", "nothing satisfies"),
    ],
)
def test_a_source_that_is_none_is_refused_with_what_is_wrong(name, source, message):
    with pytest.raises(InvalidRequest, match=message):
        FAMILIES[name].solve(source)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (KnapsackFamily(train_items=0), "train_items is 0"),
        (KnapsackFamily(most=9), "beyond_most above most"),
        (PortfolioFamily(fewest=1), "at least 4"),
        (SchedulingFamily(slots=1), "from 2 to 9"),
        (PowerFlowFamily(grid="case90"), "did you mean 'case9'"),
        (PowerFlowFamily(decimals=0), "from 1 to 5"),
        (PowerFlowFamily(decimals=7), "from 1 to 5"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(family, message):
    with pytest.raises(InvalidRequest, match=message):
        family.corpus(0)
