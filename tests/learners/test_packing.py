"""Packing: every item whole, once and in order; encoding a corpus loses nothing but the text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families import Corpus, Functions, Item, SequenceFamily
from recombine.families._sequence import tokenize, untokenize
from recombine.learners.packing import MOST_ITEMS, CorpusMaterial, decode, encode, pack
from recombine.tokens import ANSWER, END, FIRST, PAD, UNKNOWN, Vocabulary

LENGTH = 24
words = st.integers(FIRST, 60)
items = st.lists(
    st.tuples(st.lists(words, max_size=11), st.lists(words, max_size=11)), max_size=60
)  # fmt: skip
shapes = st.booleans()


def packed(drawn, *, rows, apart, order=None, length=LENGTH):
    sources, targets = ([np.asarray(pair[n], np.uint16) for pair in drawn] for n in (0, 1))
    return pack(sources, targets, length=length, rows=rows, apart=apart, order=order)


def written(source, target, apart):
    """What stands in the row of tokens and, apart, in that of sources."""
    answer = [ANSWER, *target, END]
    return (answer, list(source)) if apart else ([*source, *answer], [])


@given(drawn=items, apart=shapes, seed=st.integers(0, 99))
def test_every_item_stands_whole_in_order_and_once(drawn, apart, seed):
    order = np.random.default_rng(seed).permutation(len(drawn))
    found, place, used = packed(drawn, rows=len(drawn), apart=apart, order=order)
    assert (place.row >= 0).all() and used <= len(drawn)
    assert used == len(set(place.row.tolist()))
    for number, pair in enumerate(drawn):
        row, item = place.row[number], place.number[number]
        here = np.flatnonzero(found.item[row] == item)
        assert (np.diff(here) == 1).all()  # in one piece
        assert found.tokens[row, here].tolist() == written(*pair, apart)[0]
        if apart:
            here = np.flatnonzero(found.source_item[row] == item)
            assert (np.diff(here) == 1).all()
            assert found.source[row, here].tolist() == written(*pair, apart)[1]
    # Nothing else is there, so nothing overlaps and nothing is there twice.
    tokens = sum(len(written(*pair, apart)[0]) for pair in drawn)
    sources = sum(len(written(*pair, apart)[1]) for pair in drawn)
    assert np.count_nonzero(found.item) == np.count_nonzero(found.tokens != PAD) == tokens
    assert np.count_nonzero(found.source_item) == np.count_nonzero(found.source != PAD) == sources
    assert len(set(zip(place.row.tolist(), place.number.tolist(), strict=True))) == len(drawn)


@given(drawn=items, apart=shapes)
def test_what_is_asked_is_the_answer_and_its_end(drawn, apart):
    found, place, _ = packed(drawn, rows=len(drawn), apart=apart)
    assert not found.asked[:, -1:].any()  # each has a successor
    after = np.roll(found.tokens, -1, axis=1)
    for number, (_, target) in enumerate(drawn):
        row = place.row[number]
        mine = found.asked[row] & (found.item[row] == place.number[number])
        assert after[row, mine].tolist() == [*target, END]
        assert found.tokens[row, mine].tolist() == [ANSWER, *target]
    assert not (found.asked & (found.item == 0)).any()


@given(drawn=items, apart=shapes, rows=st.integers(1, 6))
def test_rows_are_never_overfull_and_what_finds_no_place_is_said(drawn, apart, rows):
    found, place, used = packed(drawn, rows=rows, apart=apart)
    assert found.tokens.shape == (rows, LENGTH) and used <= rows
    assert found.source.shape == (rows, LENGTH if apart else 0)
    assert found.item.max(initial=0) <= MOST_ITEMS
    assert not found.item[used:].any() and (place.row < used).all()
    lost = np.flatnonzero(place.row < 0)
    if len(lost):
        assert used == rows
    kept = [drawn[n] for n in np.flatnonzero(place.row >= 0)]
    tokens = sum(len(written(*pair, apart)[0]) for pair in kept)
    assert np.count_nonzero(found.item) == tokens
    # Rows are few here, so all are open: an item that is left out fits nowhere.
    for number in lost:
        text, source = written(*drawn[number], apart)
        for row in range(rows):
            room = np.count_nonzero(found.item[row] == 0) >= len(text)
            room &= np.count_nonzero(found.source_item[row] == 0) >= len(source) or not apart
            assert not room or found.item[row].max() == MOST_ITEMS


@given(drawn=items, apart=shapes)
def test_items_of_a_row_are_numbered_from_one_in_the_order_they_stand(drawn, apart):
    found, _, used = packed(drawn, rows=max(1, len(drawn)), apart=apart)
    for row in found.item[:used]:
        numbers = row[row > 0].astype(int)
        assert numbers[0] == 1 and set(np.diff(numbers)) <= {0, 1}
        assert (row[: len(numbers)] > 0).all()  # padding comes last


def test_a_row_takes_so_many_items_and_no_more():
    found, place, used = packed([([], [5])] * (MOST_ITEMS + 3), rows=9, apart=False, length=128)
    assert used == 2 and (place.row == 0).sum() == MOST_ITEMS
    assert found.item[:used].max(axis=1).tolist() == [MOST_ITEMS, 3]


def test_many_short_items_leave_little_padding():
    rng = np.random.default_rng(0)
    drawn = [([5] * rng.integers(1, 20), [6] * rng.integers(1, 8)) for _ in range(400)]
    found, _, used = packed(drawn, rows=400, apart=False, length=128)
    assert (found.item[:used] == 0).mean() < 0.05


@pytest.mark.parametrize(
    ("apart", "tokens", "row"), [(False, 82, 128), (True, 72, 128), (False, 22, 64)]
)
def test_an_item_longer_than_a_row_is_refused_with_a_row_that_can_take_it(apart, tokens, row):
    item = ([5] * 10, [6] * 70) if tokens > 60 else ([5] * 10, [6] * 10)
    length = 64 if tokens > 60 else 16
    with pytest.raises(InvalidRequest, match=f"has {tokens} tokens, more than the {length} .*row="):
        packed([([5], [5]), item], rows=4, apart=apart, length=length)
    with pytest.raises(InvalidRequest, match=f"use row={row}$"):
        packed([item], rows=4, apart=apart, length=length)
    packed([item], rows=4, apart=apart, length=row)


@dataclass(frozen=True)
class Fixed(SequenceFamily):
    """A corpus given word for word."""

    name: ClassVar[str] = "fixed"
    unit: ClassVar[str] = "anything"
    instruction: ClassVar[str] = "Answer."

    def corpus(self, seed: int) -> Corpus:
        raise NotImplementedError

    def solve(self, source: str) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Letters(Fixed):
    tokens: ClassVar = "character"


texts = st.lists(st.text("ab né", min_size=1, max_size=4), max_size=5).map(
    lambda drawn: " ".join(word.replace(" ", "_") for word in drawn)
)
some_items = st.lists(
    st.builds(Item, texts, texts, st.sampled_from(["", "depth 2", "é"]), st.integers(0, 9)),
    max_size=5,
)


@given(
    splits=st.dictionaries(st.sampled_from(["train", "test", "beyond/it"]), some_items),
    family=st.sampled_from([Fixed(), Letters()]),
)
def test_a_corpus_survives_being_encoded(splits, family):
    tensors = encode(Corpus(splits), family)
    assert all(isinstance(array, np.ndarray) for array in tensors.values())
    found = decode(tensors)
    assert list(found.splits) == list(splits)
    used = {w for part in splits.values() for i in part for t in i[:2]
            for w in tokenize(t, family.tokens)}  # fmt: skip
    assert found.vocabulary.listed == tuple(sorted(used))

    def text(numbers):
        return untokenize(found.vocabulary.words(numbers.tolist()), family.tokens)

    for split, part in found.splits.items():
        columns = (part.sources, part.targets, part.parts, part.novelty)
        again = [Item(text(s), text(t), p, int(n)) for s, t, p, n in zip(*columns, strict=True)]
        assert again == list(splits[split])


def test_a_corpus_of_a_family_is_encoded_as_it_is_and_the_same_for_the_same_seed():
    family = Functions(functions=4, values=3, train_items=60, test_items=5, beyond_items=5,
                       validation_items=4, depth=2, deepest=3)  # fmt: skip
    tensors, again = (CorpusMaterial(family, 3).make() for _ in range(2))
    assert tensors.keys() == again.keys()
    assert all(np.array_equal(tensors[key], again[key]) for key in tensors)
    other = CorpusMaterial(family, 4).make()
    assert any(not np.array_equal(tensors[key], other[key]) for key in tensors)
    found, corpus = decode(tensors), family.corpus(3)
    assert json.loads(tensors["about"].tobytes())["splits"] == list(corpus.splits)
    for split, items in corpus.splits.items():
        for numbers, item in zip(found.splits[split].sources, items, strict=True):
            assert found.vocabulary.words(numbers.tolist()) == item.source.split(" ")


def test_words_are_numbered_after_the_tokens_that_mean_something_and_others_are_unknown():
    vocabulary = Vocabulary(["b", "a", "b"])
    assert vocabulary.numbers(["a", "b", "c"]) == [FIRST + 1, FIRST, UNKNOWN]
    assert len(vocabulary) == FIRST + 2
    assert vocabulary.words([FIRST, FIRST + 1, FIRST + 2, PAD]) == ["b", "a", "<unknown>", "<pad>"]
