"""Tasks on strings: the language's probabilities, the splits, the rules, the placebo."""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families._language import (
    BACK_OFF,
    LETTERS,
    LONGEST_SPELLED,
    STRANGE,
    Language,
    language,
    stimulus,
)
from recombine.families._sequence import Corpus, Item
from recombine.families.strings import CONDITIONS, ORIGINAL, OTHER, TASKS, Strings

TINY = Strings(train_items=600, test_items=60, sentences=12, validation_items=40)
CIPHERS = dataclasses.replace(TINY, tasks=("cipher",))
WAYS = tuple(f"{way} {shift}" for way in ("decode", "encode") for shift in ("common", "rare"))


def splits(condition: str, ways: tuple[str, ...] = WAYS) -> list[str]:
    return [f"{way} {condition}" for way in ways]


def asked(corpus: Corpus, condition: str) -> list[Item]:
    """All that is asked in a condition, in the same order in each."""
    return [i for split in corpus.beyond if split.endswith(condition) for i in corpus[split]]


def changed(a: str, b: str) -> int:
    assert len(a) == len(b)
    return sum(x != y for x, y in zip(a, b, strict=True))


# The language


def small() -> Language:
    frequencies = np.array([0.5, 0.3, 0.2])
    transitions = np.array([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05]])
    return Language(("a", "b", "cd"), frequencies, transitions, strange=0.25)


def test_the_probabilities_of_all_texts_of_two_words_add_up_to_one():
    source = small()
    # Every text of known words and of strange ones of one letter; longer strange ones are counted.
    words = [*LETTERS, "cd"]
    total = sum(
        math.exp(source.log_probability(f"{a} {b}")) for a, b in itertools.product(words, words)
    )
    spelled_longer = (LONGEST_SPELLED - 1) / LONGEST_SPELLED - 26**-2 / LONGEST_SPELLED
    assert total == pytest.approx((1 - 0.25 * spelled_longer) ** 2, abs=1e-9)


def test_a_text_has_the_product_of_its_words_probabilities():
    source = small()
    spelled = 0.25 / LONGEST_SPELLED
    wanted = (0.75 * 0.5 + spelled / 26) * (spelled / 26**3) * (0.75 * 0.2 + spelled / 26**2)
    assert source.log_probability("a xyz cd") == pytest.approx(math.log(wanted))
    wanted = (0.75 * 0.3 + spelled / 26) * (0.75 * 0.6 + spelled / 26**2)
    assert source.log_probability("b cd") == pytest.approx(math.log(wanted))


def test_sentences_are_drawn_as_often_as_they_are_likely():
    source = dataclasses.replace(small(), strange=0.0)
    drawn = Counter(source.draw(np.random.default_rng(0), 20_000, 2))
    for a, b in itertools.product(source.words, source.words):
        chance = math.exp(source.log_probability(f"{a} {b}"))
        error = math.sqrt(chance * (1 - chance) / 20_000)
        assert abs(drawn[f"{a} {b}"] / 20_000 - chance) < 5 * error
    assert sum(drawn.values()) == 20_000


def test_strange_words_are_as_many_as_set():
    drawn = small().draw(np.random.default_rng(0), 5_000, 3)
    strange = sum(word not in ("a", "b", "cd") for text in drawn for word in text.split(" "))
    assert strange / 15_000 == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("content", range(3))
def test_the_lexicon_has_words_of_three_to_five_letters_with_neighbours(content):
    source = language(content)
    assert len(set(source.words)) == 200
    assert {len(word) for word in source.words} == {3, 4, 5}
    for word, near in source.neighbours.items():
        brute = {w for w in source.words if len(w) == len(word) and changed(w, word) == 1}
        assert set(near) == brute and len(near) >= 3


def test_a_smaller_lexicon_has_neighbours_too():
    source = language(0, lexicon=40)
    assert len(source.words) == 40 and min(len(near) for near in source.neighbours.values()) >= 3
    few = dataclasses.replace(CIPHERS, lexicon=40)
    known = {w for item in few.corpus(0)["decode common high"] for w in item.target.split(" ")}
    assert known <= set(source.words)


@pytest.mark.parametrize("uniform", [False, True])
def test_words_of_one_length_keep_letters_of_question_and_answer_at_one_distance(uniform):
    family = dataclasses.replace(CIPHERS, lengths=(4,), uniform=uniform)
    items = [item for split in family.corpus(0).splits.values() for item in split]
    assert {len(item.target) for item in items} == {4 * 4 + 3}


def test_frequencies_are_zipf_and_rows_are_distributions():
    source = language(0)
    np.testing.assert_allclose(source.frequencies[0] / source.frequencies, np.arange(1, 201))
    np.testing.assert_allclose(source.transitions.sum(axis=1), 1)
    # Averaged over words, what follows is as frequent as its Zipf frequency says.
    assert np.corrcoef(source.transitions.mean(axis=0), source.frequencies)[0, 1] > 0.9
    assert np.all(source.transitions >= BACK_OFF * source.frequencies)
    # Sparse rows: half of what follows a word is one of very few.
    assert np.median(np.sort(source.transitions, axis=1)[:, -10:].sum(axis=1)) > 0.7


def test_in_the_uniform_language_only_length_matters():
    source = language(0, uniform=True)
    assert source.log_probability(source.words[0]) == pytest.approx(
        -len(source.words[0]) * math.log(26) - math.log(LONGEST_SPELLED)
    )


def test_strange_words_are_scored_over_more_lengths_than_are_drawn():
    letters = language(0, uniform=True, lengths=(4,))
    drawn = -16 * math.log(26)  # the only lengths there are
    found = letters.log_probability("abcd efgh ijkl mnop")
    assert found == pytest.approx(drawn - 4 * math.log(LONGEST_SPELLED))
    assert round(found, 2) == -59.91
    # Over all words the model has, chances come to 1.
    chances = [26**n * math.exp(letters.log_probability("q" * n)) for n in range(1, 8)]
    assert sum(chances) == pytest.approx(1)


def test_texts_of_known_words_have_the_probability_they_are_drawn_with():
    source = language(0, lengths=(4,))
    words = source.words[:3]
    drawn = source.frequencies[0] * source.transitions[0, 1] * source.transitions[1, 2]
    drawn *= (1 - source.strange) ** 3
    assert source.log_probability(" ".join(words)) == pytest.approx(math.log(drawn), abs=1e-4)


def test_a_stimulus_is_four_texts_of_one_length_in_order_of_probability():
    source, rng = language(1), np.random.default_rng(0)
    drawn = [stimulus(source, rng, 4) for _ in range(100)]
    for one in drawn:
        assert len({tuple(map(len, t.split(" "))) for t in (one.high, one.low)}) == 1
        assert Counter(one.high.split(" ")) == Counter(one.medium.split(" "))
        assert not set(one.low.split(" ")) & set(source.words)
        assert changed(one.high, one.adversarial) == 1
        assert set(one.adversarial.split(" ")) <= set(source.words)
        lost = source.log_probability(one.high) - source.log_probability(one.adversarial)
        assert lost >= math.log(10)
        assert one.others and one.high not in one.others
        assert all(changed(one.adversarial, other) == 1 for other in one.others)
    high, medium, low, _ = (
        np.mean([source.log_probability(one.texts[i]) for one in drawn]) for i in range(4)
    )
    assert high > medium + 2 and medium > low + 20


def test_text_that_is_not_words_has_no_probability():
    with pytest.raises(InvalidRequest, match="small letters"):
        language(0).log_probability("Two  words")
    assert language(0).log_probability("abcdefgh") == -math.inf


# The family


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "family", [TINY, CIPHERS, dataclasses.replace(TINY, uniform=True, words=3)]
)
def test_every_item_is_solved_from_its_text(family, seed):
    corpus = family.corpus(seed)
    assert [s for s in corpus.beyond if s.startswith("decode rare")] == [
        f"decode rare {condition}" for condition in CONDITIONS
    ]
    for items in corpus.splits.values():
        for item in items:
            assert family.solve(item.source) == item.target
            assert family.scores(item, item.target) == {"exact": 1.0, "letters": 1.0}


def test_sizes_are_those_asked_for():
    sizes = {split: len(items) for split, items in TINY.corpus(0).splits.items()}
    assert sizes.pop("train") == 600 and sizes.pop("test") == 60 and sizes.pop("validation") == 40
    assert list(sizes.values()) == [12] * (8 * 4)
    ways = [split for condition in CONDITIONS for split in splits(condition)]
    assert sorted(CIPHERS.corpus(0).beyond) == sorted(ways)


def test_no_source_is_in_two_splits_and_no_evaluation_sentence_in_training():
    corpus = TINY.corpus(3)
    sources = {split: {item.source for item in items} for split, items in corpus.splits.items()}
    for a, b in itertools.combinations(sources, 2):
        assert not sources[a] & sources[b]
    sentences = {i.target for s in CONDITIONS for i in asked(corpus, s) if "decode" in i.part}
    trained = {text for i in corpus["train"] for text in (i.source.partition(" ")[2], i.target)}
    assert len(sentences) == 4 * 12 and not sentences & trained


def test_a_corpus_is_a_function_of_its_seed_and_fields():
    assert TINY.corpus(5).splits == TINY.corpus(5).splits
    assert TINY.corpus(5).splits != TINY.corpus(6).splits
    other = dataclasses.replace(TINY, content=1)
    assert other.corpus(5).splits != TINY.corpus(5).splits


def test_novelty_is_the_surprise_at_the_answer_and_nothing_in_training():
    corpus = TINY.corpus(0)
    assert all(i.novelty == 0 for split in ("train", "test") for i in corpus[split])
    for split in (*corpus.beyond, "validation"):
        for item in corpus[split]:
            assert item.novelty == max(1, round(-TINY.log_probabilities(item)[1]))


def test_conditions_are_the_same_sentences_in_the_same_order_and_of_one_length():
    corpus = TINY.corpus(0)
    for split in corpus.beyond:
        assert {item.part for item in corpus[split]} == {split}
    for high, *others in zip(*(asked(corpus, split) for split in CONDITIONS), strict=True):
        assert high.part.endswith(" high")
        for split, item in zip(CONDITIONS[1:], others, strict=True):
            assert item.part == high.part.removesuffix("high") + split
            assert (len(item.source), len(item.target)) == (len(high.source), len(high.target))
    assert {split for split in corpus.beyond if split.endswith("low")} == {
        f"{way} low"
        for way in (
            "decode common",
            "decode rare",
            "encode common",
            "encode rare",
            "reverse decode",
            "reverse encode",
            "pig latin decode",
            "pig latin encode",
        )
    }


def test_shifts_are_as_common_as_set():
    family = dataclasses.replace(CIPHERS, train_items=20_000)
    chance = family.shift_probabilities
    assert chance.sum() == pytest.approx(1)
    assert chance[family.common - 1] == 0.3 and chance[family.rare - 1] == 0.003
    others = np.sort(np.delete(chance, [family.common - 1, family.rare - 1]))[::-1]
    np.testing.assert_allclose(others[0] / others, np.arange(1, 24))
    parts = Counter(item.part for item in family.corpus(0)["train"])
    assert parts["text"] / 20_000 == pytest.approx(0.5, abs=0.02)
    common = parts["decode common"] + parts["encode common"]
    rare = parts["decode rare"] + parts["encode rare"]
    assert common / 10_000 == pytest.approx(0.3, abs=0.02)
    assert rare / 10_000 == pytest.approx(0.003, abs=0.002)


@pytest.mark.parametrize("uniform", [False, True])
def test_where_fewer_shifts_are_in_use_the_common_one_is_still_the_most_common(uniform):
    family = dataclasses.replace(CIPHERS, shifts=8, uniform=uniform)
    chance = family.shift_probabilities
    assert chance.sum() == pytest.approx(1) and np.count_nonzero(chance) == 8
    assert chance.argmax() == family.common - 1 or uniform
    assert chance[family.rare - 1] == pytest.approx(1 / 8 if uniform else 0.003)
    keys = {item.source[1] for item in family.corpus(0)["train"] if item.source[0] in "+-"}
    assert keys <= {chr(ord("A") + shift) for shift in 1 + np.flatnonzero(chance)}


@given(st.integers(0, 10**6))
@settings(max_examples=50)
def test_common_and_rare_shifts_are_equally_hard_whatever_the_content(content):
    family = Strings(content=content)
    assert 13 not in (family.common, family.rare)  # which is its own inverse
    assert family.common != family.rare and family.common + family.rare != 26


def test_which_shifts_are_common_and_rare_differs_between_contents():
    assert len({Strings(content=c).common for c in range(30)}) > 10


def test_numbers_counted_are_zipf_in_a_drawn_order():
    chance = np.sort(Strings().number_probabilities)[::-1]
    np.testing.assert_allclose(chance[0] / chance, np.arange(1, 27))
    assert np.argmax(Strings(content=1).number_probabilities) != np.argmax(
        Strings(content=2).number_probabilities
    )


def test_decoding_has_likely_outputs_and_encoding_likely_inputs():
    corpus, source = CIPHERS.corpus(0), language(0)
    for item in asked(corpus, "high"):
        given, wanted = CIPHERS.log_probabilities(item)
        sentence, cipher = (wanted, given) if item.part.startswith("decode") else (given, wanted)
        plain = item.target if item.part.startswith("decode") else item.source[3:]
        assert sentence == pytest.approx(source.log_probability(plain))
        assert sentence > cipher + 10
        if not set(item.source[3:].split(" ")) & set(source.words) and item.part[0] == "d":
            letters = sum(map(str.isalpha, plain))
            spelled = 4 * math.log(STRANGE / LONGEST_SPELLED) - letters * math.log(26)
            assert cipher == pytest.approx(spelled)


def test_the_placebo_is_asked_the_same_questions_and_expects_nothing():
    placebo = dataclasses.replace(TINY, uniform=True)
    ours, theirs = TINY.corpus(2), placebo.corpus(2)
    for split in ours.beyond:
        assert [i[:3] for i in ours[split]] == [i[:3] for i in theirs[split]]
    np.testing.assert_allclose(placebo.shift_probabilities, 1 / 25)
    np.testing.assert_allclose(placebo.number_probabilities, 1 / 26)
    for quartet in zip(*(asked(theirs, c) for c in CONDITIONS), strict=True):
        likely = np.array([placebo.log_probabilities(item) for item in quartet])
        np.testing.assert_allclose(likely, likely[:1].repeat(4, axis=0))
    known = set(language(0).words)
    words = [w for i in theirs["train"] if i.part == "text" for w in i.target.split(" ")]
    assert sum(word in known for word in words) < 0.05 * len(words)


def test_swaps_name_the_likely_original_and_other_neighbours():
    swaps, corpus = CIPHERS.swaps(4), CIPHERS.corpus(4)
    for high, item in zip(asked(corpus, "high"), asked(corpus, "adversarial"), strict=True):
        found = swaps[item.source]
        assert found.original == high.target
        assert changed(found.original, item.target) == 1
        assert item.target not in found.others and found.original not in found.others
        assert found.others and all(changed(other, item.target) == 1 for other in found.others)


def test_mistakes_are_the_same_questions_with_the_original_and_another_neighbour():
    family = dataclasses.replace(CIPHERS, mistakes=True)
    swaps, corpus = family.swaps(4), family.corpus(4)
    right = corpus["decode common adversarial"]
    for split in (ORIGINAL, OTHER):
        assert [item.source for item in corpus[split]] == [item.source for item in right]
    for item in corpus[ORIGINAL]:
        assert item.target == swaps[item.source].original
    for item in corpus[OTHER]:
        assert item.target in swaps[item.source].others
    # Nothing else depends on them.
    usual = CIPHERS.corpus(4).splits
    assert {split: corpus[split] for split in usual} == dict(usual)


def test_free_text_is_in_training_alone_and_cannot_be_solved():
    family = dataclasses.replace(CIPHERS, text="free")
    corpus = family.corpus(0)
    free = [item for item in corpus["train"] if item.part == "text"]
    assert {item.source for item in free} == {"*"} and len({i.target for i in free}) > 100
    assert not any(item.part == "text" for item in corpus["test"])
    assert family.log_probabilities(free[0])[0] == 0.0
    with pytest.raises(InvalidRequest, match="expected a sign"):
        family.solve("*")


@pytest.mark.parametrize(("words", "longest"), [(4, 56), (8, 112)])
def test_items_are_no_longer_than_stated(words, longest):
    family = dataclasses.replace(TINY, words=words)
    characters = set()
    for items in family.corpus(0).splits.values():
        assert max(len(i.source) + len(i.target) for i in items) <= longest
        characters |= {c for i in items for c in i.source + i.target}
    assert len(characters) < 100


# The rules, against other ways to compute them

texts = st.lists(st.text(LETTERS, min_size=1, max_size=5), min_size=1, max_size=5).map(" ".join)


@given(texts, st.integers(1, 25))
def test_ciphers_shift_letters_and_come_back(text, shift):
    key = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[shift]
    wanted = "".join(c if c == " " else chr((ord(c) - 97 + shift) % 26 + 97) for c in text)
    assert TINY.solve(f"+{key} {text}") == wanted
    assert TINY.solve(f"-{key} {wanted}") == text
    assert TINY.solve(f"-N {text}") == codecs.encode(text, "rot13")


@given(texts)
def test_other_tasks_do_what_they_say(text):
    words = text.split(" ")
    assert TINY.solve(f"= {text}") == text
    assert TINY.solve(f"~ {TINY.solve(f'~ {text}')}") == text
    assert TINY.solve(f"~ {text}").split(" ")[0] == words[-1]
    pig = TINY.solve(f"> {text}")
    assert pig.split(" ") == [w[1:] + w[0] + "ay" for w in words]
    assert TINY.solve(f"< {pig}") == text
    for sorted_word, word in zip(TINY.solve(f"@ {text}").split(" "), words, strict=True):
        assert list(sorted_word) == sorted(word)
    assert TINY.solve(f"& {text}").split(" ") == sorted(words)


@given(st.text(LETTERS, min_size=5, max_size=30))
def test_counting_counts(text):
    assert TINY.solve(f"# {text}") == str(len(text))


@pytest.mark.parametrize(
    "source", ["", "hello", "-A abc", "-n abc", "< cat", "# abc", "= Abc", "= a  b", "?? abc"]
)
def test_a_source_that_is_none_is_refused(source):
    with pytest.raises(InvalidRequest, match="source"):
        TINY.solve(source)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tasks": ("reverse",)}, "expected 'cipher'"),
        ({"tasks": ("cipher", "cipher")}, "each once"),
        ({"tasks": ("cipher", "revers")}, "did you mean 'reverse'"),
        ({"text": "fre"}, "did you mean 'free'"),
        ({"words": 2}, "3 to 8 words"),
        ({"shifts": 7}, "8 to 25"),
        ({"lexicon": 42}, "a multiple of 4"),
        ({"lexicon": 36}, "40 to 400"),
        ({"lengths": (2, 4)}, "one or more of"),
        ({"lengths": ()}, "one or more of"),
        ({"train_items": 0}, "expected 1 to"),
        ({"sentences": 10**6}, "expected 1 to 2000"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(fields, said):
    with pytest.raises(InvalidRequest, match=said) as caught:
        dataclasses.replace(TINY, **fields).corpus(0)
    assert "\n" not in str(caught.value)


def test_partly_right_answers_score_by_letter():
    item = CIPHERS.corpus(0)["decode common high"][0]
    near = item.target[:-1] + ("a" if item.target[-1] != "a" else "b")
    scores = CIPHERS.scores(item, near)
    assert scores["exact"] == 0 and scores["letters"] == pytest.approx(1 - 1 / len(item.target))
    assert CIPHERS.scores(item, "")["letters"] == 0


def test_all_tasks_are_in_training():
    parts = {item.part for item in TINY.corpus(0)["train"]}
    for task in TASKS[1:]:
        assert any(part.startswith(task) for part in parts)
