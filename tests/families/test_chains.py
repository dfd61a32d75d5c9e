"""Chains whose support decides what training sees, against tables read off the items themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, RecombineError
from recombine.families._sequence import Corpus, Item
from recombine.families.chains import Chains
from recombine.families.check_sequences import check_sequence_family
from recombine.lab.identity import canonical, revive
from recombine.supports import Collected, SupportRule
from recombine.supports.collected import STRATEGIES

STARTS = ("random", "disconnected", "unpopular", "correlated")
SMALL = Chains(SupportRule("random", 0.7), functions=4, length=3, values=5)


def grown(start: str, strategy: str, budget: int = 8, **options) -> Chains:
    rule = Collected(SupportRule(start, 0.75), strategy, budget)
    return replace(SMALL, support=rule, **options)


def chain(item: Item) -> tuple[str, ...]:
    return tuple(item.source.split(" ")[1:])


def long(items) -> set[tuple[str, ...]]:
    return {chain(item) for item in items if len(chain(item)) > 1}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("options", [{}, {"steps": True, "maps": "tables", "fresh": 2}])
def test_chains_keep_the_contract_of_families_of_sequences(start, options):
    check_sequence_family(grown(start, "collect", **options))
    check_sequence_family(replace(SMALL, **options))


@given(st.sampled_from(STARTS), st.sampled_from(sorted(STRATEGIES)), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_no_chain_that_is_asked_beyond_training_is_ever_trained(start, strategy, seed):
    corpus = grown(start, strategy).corpus(seed)
    trained = long(corpus["train"])
    assert trained == long(corpus["test"])
    for split in ("collected", "validation"):
        assert not trained & long(corpus[split])
    assert not long(corpus["collected"]) & long(corpus["validation"])


@pytest.mark.parametrize("start", STARTS)
def test_every_strategy_is_asked_the_same_items(start):
    asked = [grown(start, strategy).corpus(3) for strategy in sorted(STRATEGIES)]
    for split in ("collected", "validation"):
        sources = [[item.source for item in corpus[split]] for corpus in asked]
        assert all(each == sources[0] for each in sources)


def test_training_sees_each_function_alone_on_each_symbol():
    singles = {item.source for item in SMALL.corpus(0)["train"] if len(chain(item)) == 1}
    assert singles == {f"a{value} f{f}" for value in range(5) for f in range(4)}


def test_a_seen_chain_is_trained_on_all_symbols_but_the_fresh_ones():
    family = replace(SMALL, fresh=2)
    corpus = family.corpus(1)
    symbols = {split: Counter(map(chain, {i for i in corpus[split] if len(chain(i)) > 1}))
               for split in ("train", "test")}  # fmt: skip
    assert set(symbols["train"].values()) == {3} and set(symbols["test"].values()) == {2}
    assert symbols["train"].keys() == symbols["test"].keys()
    seen = family.support_of(1).seen
    assert {" ".join(found) for found in symbols["train"]} == {family.chain(n) for n in seen}


@pytest.mark.parametrize("steps", [False, True])
def test_every_answer_follows_from_the_single_functions_of_training(steps):
    corpus = replace(SMALL, steps=steps).corpus(2)
    tables = {(chain(i)[0], i.source.split(" ")[0]): i.target for i in corpus["train"]
              if len(chain(i)) == 1}  # fmt: skip
    for items in corpus.splits.values():
        for item in items:
            value, results = item.source.split(" ")[0], []
            for f in chain(item):
                value = tables[f, value]
                results.append(value)
            assert item.target == (" ".join(results) if steps else value)


def changes(item: Item, trained: set[tuple[str, ...]]) -> int:
    """By brute force: how many places differ from the nearest trained chain."""
    own = chain(item)
    return min(sum(a != b for a, b in zip(own, other, strict=True)) for other in trained)


@pytest.mark.parametrize("start", STARTS)
def test_novelty_is_the_number_of_places_to_the_nearest_trained_chain(start):
    corpus = grown(start, "random").corpus(4)
    trained = long(corpus["train"])
    for split in ("collected", "validation"):
        assert [item.novelty for item in corpus[split]] == [
            changes(item, trained) for item in corpus[split]
        ]


def test_more_of_the_same_repeats_chains_and_adds_as_many_items_as_new_ones_would():
    def size(corpus: Corpus) -> int:
        return len([item for item in corpus["train"] if len(chain(item)) > 1])

    same, fresh, none = (
        grown("random", strategy, budget).corpus(0)
        for strategy, budget in (("more of the same", 8), ("random", 8), ("random", 0))
    )
    assert size(same) == size(fresh) == size(none) + 8 * 4
    assert long(same["train"]) == long(none["train"]) < long(fresh["train"])


def test_the_support_follows_the_seed_of_the_corpus_and_the_functions_their_content():
    first, second = (SMALL.support_of(seed).seen for seed in (0, 1))
    assert not np.array_equal(first, second)
    source = "a0 f0 f1 f2"
    assert SMALL.solve(source) == replace(SMALL, support=SupportRule("random", 0.5)).solve(source)
    other = [replace(SMALL, content=n).solve(source) for n in range(8)]
    assert len(set(other)) > 1


def test_a_chain_with_a_support_that_grew_is_the_same_after_it_was_stored():
    rule = Collected(SupportRule("random", 0.75), "uncertainty", 2, chosen=(1, 5))
    family = replace(SMALL, support=rule)
    assert revive(canonical(family)) == family


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fresh": 5}, "use fresh=1 to 4"),
        ({"fresh": 0}, "use fresh=1 to 4"),
        ({"functions": 1}, "functions must be at least 2"),
        ({"length": 1}, "length must be at least 2"),
        ({"values": 2, "functions": 3}, "there are 2"),
        ({"support": SupportRule("randon")}, "random"),
        ({"support": Collected(SupportRule("random", 0.75), "random", 100)}, "or less"),
    ],
)
def test_what_cannot_be_is_refused(change, words):
    with pytest.raises(RecombineError, match=words):
        replace(SMALL, **change).corpus(0)


def test_a_support_that_leaves_nothing_to_test_is_refused():
    rule = Collected(SupportRule("random", 0.5), "random", 1, tested=0.02)
    with pytest.raises(InvalidRequest, match="hold out more"):
        replace(SMALL, support=rule).corpus(0)
