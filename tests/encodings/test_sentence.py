"""Instructions in words: every task has its own sentence, and the code is that sentence."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.encodings.sentence import Sentence, vocabulary_and_words
from recombine.errors import InvalidRequest
from recombine.families import Hyperteacher
from recombine.families.goals import Goals

pytestmark = pytest.mark.usefixtures("strict_types")

FAMILY = Goals()
TASKS = list(itertools.product(range(4), range(5), range(5), range(5)))


def codes(encoding, family=FAMILY):
    """The codes of all tasks, in the order of their ranks."""
    chosen = family.space.indicator(np.arange(family.space.size, dtype=np.uint32))
    drawn = jax.jit(lambda key: encoding.content(family, key))(jax.random.key(0))
    encode = jax.jit(jax.vmap(lambda z: encoding.encode(drawn, z, None)))
    return np.asarray(encode(jnp.asarray(chosen, jnp.float32)))


def test_all_five_hundred_sentences_differ_and_have_equally_many_words():
    sentences = [FAMILY.sentence(task) for task in TASKS]
    assert len(set(sentences)) == 500
    assert {len(sentence.split()) for sentence in sentences} == {13}
    assert sentences[0] == "go to the upper left part of maze one and open the ball"


def test_word_codes_spell_the_sentence_place_by_place():
    encoding = Sentence()
    found, (vocabulary, _) = codes(encoding), vocabulary_and_words(FAMILY)
    assert found.shape == (500, encoding.size(FAMILY)) and found.dtype == np.float32
    places = found.reshape(500, 13, len(vocabulary))
    assert set(np.unique(places)) == {0.0, 1.0}
    assert np.all(places.sum(-1) == 1)
    for task, row in zip(TASKS, places.argmax(-1), strict=True):
        assert " ".join(vocabulary[word] for word in row) == FAMILY.sentence(task)


def test_number_codes_are_the_same_words_as_numbers():
    words = codes(Sentence()).reshape(500, 13, -1).argmax(-1)
    found = codes(Sentence(form="ids"))
    assert found.shape == (500, Sentence(form="ids").size(FAMILY)) and found.dtype == np.float32
    np.testing.assert_array_equal(found, words)
    assert len(np.unique(found, axis=0)) == 500


def test_a_smaller_family_has_a_smaller_vocabulary():
    family = Goals(interactions=2, mazes=1, objects=1)
    found = codes(Sentence(form="ids"), family)
    assert len(np.unique(found, axis=0)) == family.space.size == 8
    assert Sentence().size(family) < Sentence().size(FAMILY)


@dataclass(frozen=True)
class Rambling(Goals):
    def sentence(self, values):
        return super().sentence(values) + " please" * (values[1] == 2)


@dataclass(frozen=True)
class Compounding(Goals):
    def sentence(self, values):
        return f"task-{values[0]}-{values[1]}"


@pytest.mark.parametrize(
    ("family", "words"),
    [
        (Hyperteacher(), ["Hyperteacher", "use family goals"]),
        (Rambling(), ["Rambling", "differ in length"]),
        (Compounding(), ["Compounding", "two factors change the same word"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_a_family_that_cannot_say_its_tasks_is_refused(family, words):
    for refuse in (Sentence().check, Sentence().size):
        with pytest.raises(InvalidRequest) as refused:
            refuse(family)
        for word in words:
            assert word in str(refused.value)


def test_wrong_requests_are_refused_with_what_works():
    with pytest.raises(InvalidRequest, match="did you mean 'words'"):
        Sentence(form="word")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidRequest, match=r"\(0, 5, 0, 0\) is no task"):
        FAMILY.sentence((0, 5, 0, 0))
    with pytest.raises(InvalidRequest, match="is no task"):
        FAMILY.sentence((0, 0, 0))
