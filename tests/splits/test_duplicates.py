"""Exact and near duplicates against brute force."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.splits import Shingles, content_labels, jaccard, near_labels, near_pairs
from recombine.splits.duplicates import MISSED, bands, miss_probability


def cut(text, of="characters", length=5):
    """Brute force: the set of shingles."""
    text = " ".join(text.lower().split())
    parts = text.split(" ") if of == "words" else list(text)
    if len(parts) <= length:
        return {tuple(parts)}
    return {tuple(parts[i : i + length]) for i in range(len(parts) - length + 1)}


def overlap(a, b, **how):
    one, other = cut(a, **how), cut(b, **how)
    return len(one & other) / len(one | other)


words = st.lists(st.sampled_from(["red", "blue", "cube", "ball", "on", "the", "a"]), min_size=1)


@settings(max_examples=30)
@given(words, words, st.sampled_from(["characters", "words"]), st.integers(1, 4))
def test_the_overlap_of_two_texts_is_that_of_their_sets_of_shingles(one, other, of, length):
    a, b = " ".join(one), " ".join(other)
    expected = overlap(a, b, of=of, length=length)
    assert jaccard(a, b, Shingles(of, length)) == pytest.approx(expected)


def corpus(count=75, seed=0):
    """Texts of random words, a third of them changed copies of others."""
    rng = random.Random(seed)
    vocabulary = [f"{a}{b}{c}" for a, b, c in itertools.product("bdfgk", "aeiou", "lmnrst")]
    texts = [" ".join(rng.choices(vocabulary, k=20)) for _ in range(count)]
    for place in range(0, count - 1, 3):
        parts = texts[place].split()
        for _ in range(rng.randint(1, 3)):
            parts[rng.randrange(20)] = rng.choice(vocabulary)
        texts[place + 1] = " ".join(parts)
    return texts


@pytest.mark.parametrize("near", [0.5, 0.7, 0.9])
def test_all_near_duplicates_of_a_small_corpus_are_found_and_no_others(near):
    texts = corpus()
    expected = {
        (i, j) for i, j in itertools.combinations(range(len(texts)), 2)
        if overlap(texts[i], texts[j]) >= near
    }  # fmt: skip
    assert {tuple(pair) for pair in near_pairs(texts, near).tolist()} == expected
    assert expected or near > 0.8


def test_chains_of_near_duplicates_are_one_cluster():
    texts = corpus()
    labels = near_labels(texts, 0.6)
    groups = [{i} for i in range(len(texts))]
    for i, j in itertools.combinations(range(len(texts)), 2):
        if overlap(texts[i], texts[j]) >= 0.6:
            one = next(g for g in groups if i in g)
            other = next(g for g in groups if j in g)
            if one is not other:
                groups.remove(other)
                one |= other
    assert {frozenset(np.flatnonzero(labels == v)) for v in set(labels.tolist())} == {
        frozenset(g) for g in groups
    }


def test_a_crowd_of_near_duplicates_is_one_cluster():
    texts = [f"the very same long sentence about nothing in particular {i:03d}" for i in range(300)]
    assert len(set(near_labels([*texts, "something else entirely"], 0.8).tolist())) == 2


def test_case_and_spaces_do_not_tell_texts_apart_and_empty_texts_are_like_nothing():
    assert near_labels(["A  Cube", "a cube", "", "  ", "ball"]).tolist() == [0, 0, 1, 2, 3]
    assert near_pairs(["", "", ""]).shape == (0, 2)
    assert near_pairs(["one"]).shape == (0, 2)


@given(st.lists(st.text(max_size=3)))
@settings(max_examples=25)
def test_rows_have_the_same_number_exactly_if_they_have_the_same_content(contents):
    labels = content_labels([text.replace("\ud800", "") for text in contents])
    for i, j in itertools.combinations(range(len(contents)), 2):
        assert (labels[i] == labels[j]) == (contents[i] == contents[j])


@pytest.mark.parametrize("near", [0.3, 0.5, 0.8, 0.9, 0.99])
def test_bands_miss_few_at_the_threshold(near):
    count, length = bands(near)
    assert count * length <= 128
    assert miss_probability(near, count, length) <= MISSED


def test_the_longest_bands_that_miss_few_are_used():
    _, length = bands(0.9)
    assert miss_probability(0.9, 128 // (length + 1), length + 1) > MISSED


@pytest.mark.parametrize("near", [0.0, 1.2, -1])
def test_a_threshold_that_is_no_share_is_refused(near):
    with pytest.raises(InvalidRequest, match="expected more than 0"):
        near_labels(["a", "b"], near)


def test_an_unknown_kind_of_shingle_names_the_nearest():
    with pytest.raises(InvalidRequest, match="did you mean 'words'"):
        Shingles("word", 3)
