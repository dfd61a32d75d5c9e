"""Composed functions against tables read off the training items themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families._sequence import Item
from recombine.families.check_sequences import check_sequence_family
from recombine.families.functions import Functions

SMALL = Functions(
    functions=5, values=6, depth=3, deepest=5, train_items=250, test_items=40, beyond_items=40,
    validation_items=40,
)  # fmt: skip
VARIANTS = [SMALL, replace(SMALL, maps="tables", steps=True, content=3)]


def chain(item: Item) -> list[str]:
    return item.source.split(" ")[1:]


def learned_tables(train) -> dict[tuple[str, str], str]:
    """What each function does, as the training items with one function say."""
    singles = [item for item in train if len(chain(item)) == 1]
    return {(f, a): item.target for item in singles for a, f in [item.source.split(" ")]}


@pytest.mark.parametrize("family", VARIANTS, ids=["small", "tables"])
def test_functions_keeps_the_contract_of_families_of_sequences(family):
    check_sequence_family(family)


@pytest.mark.parametrize("family", [*VARIANTS, Functions()], ids=["small", "tables", "default"])
def test_every_answer_follows_from_the_single_functions_of_training(family):
    corpus = family.corpus(1)
    tables = learned_tables(corpus["train"])
    assert len(tables) == family.functions * family.values
    for items in corpus.splits.values():
        for item in items[:500]:
            value, results = item.source.split(" ")[0], []
            for f in chain(item):
                value = tables[f, value]
                results.append(value)
            assert item.target == (" ".join(results) if family.steps else value)
            assert family.scores(item, family.solve(item.source))["exact"] == 1


@pytest.mark.parametrize("family", VARIANTS, ids=["small", "tables"])
@pytest.mark.parametrize("seed", [0, 7])
def test_what_is_called_new_never_occurs_in_training(family, seed):
    corpus = family.corpus(seed)
    trained = {pair for item in corpus["train"] for pair in pairwise(chain(item))}
    longest = max(len(chain(item)) for item in corpus["train"])
    assert longest == family.depth
    for split, items in corpus.splits.items():
        for item in items:
            new_pairs = sum(pair not in trained for pair in pairwise(chain(item)))
            deeper = max(0, len(chain(item)) - longest)
            assert item.novelty == new_pairs + deeper
            assert item.part == f"depth {len(chain(item))}"
            assert (item.novelty == 0) == (split in ("train", "test"))
    assert all(len(chain(item)) <= longest for item in corpus["systematicity"])
    assert all(len(chain(item)) > longest for item in corpus["depth"])
    assert {item.novelty > 0 and len(chain(item)) > longest for item in corpus["validation"]} == {
        True,
        False,
    }


def test_each_function_loses_as_many_partners_in_either_place():
    family = replace(Functions(), functions=12, held_out=0.25)
    held = family.held_pairs(4)
    assert len(held) == 36
    for place in (0, 1):
        assert set(Counter(pair[place] for pair in held).values()) == {3}


def test_splits_have_their_sizes_and_share_no_source():
    for family in VARIANTS:
        corpus = family.corpus(2)
        sizes = {split: len(items) for split, items in corpus.splits.items()}
        assert sizes == {
            "train": 250, "test": 40, "validation": 40, "systematicity": 40, "depth": 40,
        }  # fmt: skip
        sources = [{item.source for item in items} for items in corpus.splits.values()]
        assert len(set.union(*sources)) == sum(map(len, sources))
        assert corpus.beyond == ("systematicity", "depth")


def test_training_has_as_many_of_each_depth_and_repeats_none_but_the_few():
    train = Functions().corpus(0)["train"]
    depths = Counter(item.part for item in train)
    assert max(depths.values()) - min(depths.values()) <= 2
    times = Counter(item.source for item in train if item.part == "depth 3")
    assert set(times.values()) == {1}
    assert set(Counter(i.part for i in Functions().corpus(0)["test"]).values()) == {250}


def test_a_corpus_is_its_seeds_and_the_functions_are_their_contents():
    assert SMALL.corpus(3).splits == SMALL.corpus(3).splits
    assert SMALL.corpus(3).splits != SMALL.corpus(4).splits
    sources = [item.source for item in SMALL.corpus(3)["depth"]]
    other = replace(SMALL, content=1)
    assert [item.source for item in other.corpus(3)["depth"]] == sources
    assert [other.solve(s) for s in sources] != [SMALL.solve(s) for s in sources]


def test_permutations_hit_every_symbol_and_tables_need_not():
    for maps, onto in (("permutations", True), ("tables", False)):
        family = replace(Functions(), maps=maps)
        images = [
            {family.solve(f"a{a} f{f}") for a in range(family.values)}
            for f in range(family.functions)
        ]
        assert all(len(image) == family.values for image in images) == onto


def test_no_constant_guess_is_right_often():
    for items in Functions().corpus(0).splits.values():
        answer, times = Counter(item.target for item in items).most_common(1)[0]
        print(f"most frequent answer {answer}: {times / len(items):.3f}")
        assert times / len(items) < 0.1 + 0.05


def test_right_answers_after_wrong_steps_are_told_from_wrong_ones():
    family = VARIANTS[1]
    item = Item("a0 f1 f2", "a3 a4")
    assert family.scores(item, "a3 a4") == {"exact": 1, "answer": 1}
    assert family.scores(item, "a5 a4") == {"exact": 0, "answer": 1}
    assert family.scores(item, "a3 a5") == {"exact": 0, "answer": 0}
    assert family.scores(item, "") == {"exact": 0, "answer": 0}


@given(st.lists(st.sampled_from(["a0", "a5", "a6", "f0", "f4", "f5", "", "a", "f-1", "²"])))
def test_only_chains_are_solved(words):
    source = " ".join(words)
    known = words[:1] in (["a0"], ["a5"]) and len(words) > 1 and {*words[1:]} <= {"f0", "f4"}
    if known:
        assert SMALL.solve(source) in {f"a{i}" for i in range(6)}
    else:
        with pytest.raises(InvalidRequest, match="a5 f7 f1"):
            SMALL.solve(source)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"maps": "permutation"}, "did you mean 'permutations'"),
        ({"depth": 1}, "depth must be at least 2"),
        ({"deepest": 3}, "must exceed depth=3"),
        ({"held_out": 0.0}, "share between 0 and 1"),
        ({"held_out": 0.99}, "some partners"),
        ({"values": 2}, "there are 2"),
        ({"train_items": 20}, "at least 50"),
    ],
)
def test_the_impossible_is_refused(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(SMALL, **wrong).check()


@pytest.mark.parametrize("wrong", [{"test_items": 5000}, {"beyond_items": 3000}])
def test_more_items_than_there_are_is_refused(wrong):
    with pytest.raises(InvalidRequest, match="fewer"):
        replace(SMALL, **wrong).corpus(0)
