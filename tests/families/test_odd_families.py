"""Odd-one-out problems: every set has the items it says, and hosts read off what was drawn."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.families.check import check_spec
from recombine.families.odd_one_out import (
    BASE,
    SUB_A,
    SUB_B,
    TEST_A,
    TEST_B,
    FieldsOdd,
    PicturesOdd,
    SentencesOdd,
)

PAIRS = ("inside-contact", "inside-count", "count-contact")
FIELDS = FieldsOdd()
SENTENCES = tuple(
    SentencesOdd(rule, number)
    for rule in ("subject-verb", "anaphora")
    for number in ("singular", "plural")
)
PICTURES = tuple(PicturesOdd(pair) for pair in PAIRS)
ALL = (FIELDS, FieldsOdd(pairs=(2, 0)), *SENTENCES, *PICTURES)
COUNT = 120

drawn = jax.jit(lambda family, which, key: family.problems(which, key, COUNT), static_argnums=0)
items_of = jax.jit(
    lambda family, key, a, b: family.items(key, a, b, family.tables()), static_argnums=0
)


def truths(family, which, seed=0):
    items, odd = map(np.asarray, drawn(family, jnp.int32(which), jax.random.key(seed)))
    a, b = family.satisfied(items)
    return a, b, odd


def parted(truth, odd):
    """(of the odd item, of the three others)."""
    rows = np.arange(len(odd))
    others = np.stack([np.delete(row, n) for row, n in zip(truth, odd, strict=True)])
    return truth[rows, odd], others


def mean_near(values, expected):
    spread = np.sqrt(max(expected * (1 - expected), 1e-12) / values.size)
    return abs(np.mean(values) - expected) <= 4.5 * spread


@pytest.mark.parametrize("family", ALL, ids=str)
def test_a_family_is_a_value_with_items_of_the_shape_it_says(family):
    check_spec(family, "a family")
    family.check()
    items, odd = drawn(family, jnp.int32(BASE), jax.random.key(0))
    assert items.shape == (COUNT, 4, family.item_size) == (COUNT, 4, np.prod(family.item_shape))
    assert odd.shape == (COUNT,) and len(family.rules) == 2
    if family.categorical:
        rows = np.asarray(items).reshape(-1, *family.item_shape)
        np.testing.assert_array_equal(rows.sum(axis=-1), 1)


@pytest.mark.parametrize("family", ALL, ids=str)
def test_of_the_base_set_three_items_obey_both_rules_and_one_does_not(family):
    a, b, odd = truths(family, BASE)
    (odd_a, others_a), (odd_b, others_b) = parted(a, odd), parted(b, odd)
    assert others_a.all() and others_b.all() and not (odd_a & odd_b).any()
    kinds = {(bool(x), bool(y)) for x, y in zip(odd_a, odd_b, strict=True)}
    mixtures = {(True, False), (False, True)}
    assert kinds == (mixtures if family.mixtures else mixtures | {(False, False)})
    assert mean_near(odd_a, 1 / 2 if family.mixtures else 1 / 3)
    assert mean_near(odd_b, 1 / 2 if family.mixtures else 1 / 3)


@pytest.mark.parametrize("family", ALL, ids=str)
@pytest.mark.parametrize("part", [0, 1])
def test_in_the_set_of_one_rule_only_that_rule_decides(family, part):
    found = truths(family, (SUB_A, SUB_B)[part], seed=1)
    odd = found[2]
    own, other = (parted(found[n], odd) for n in (part, 1 - part))
    assert own[1].all() and not own[0].any()
    if family.rules[1 - part] == "count":
        return  # where counts are by chance, what most items have is not the problem's number
    assert mean_near(other[1], 1 / 2)
    assert other[0].all() if family.mixtures else mean_near(other[0], 1 / 2)


@pytest.mark.parametrize("family", ALL, ids=str)
@pytest.mark.parametrize("part", [0, 1])
def test_in_the_test_set_of_a_rule_the_odd_item_breaks_that_rule_alone(family, part):
    found = truths(family, (TEST_A, TEST_B)[part], seed=2)
    odd = found[2]
    own, other = (parted(found[n], odd) for n in (part, 1 - part))
    assert own[1].all() and other[1].all() and other[0].all() and not own[0].any()


@pytest.mark.parametrize("family", ALL, ids=str)
def test_a_kind_with_the_tables_of_a_family_draws_that_family_s_problems(family):
    kind = family.kind()
    assert kind == kind.kind()
    assert {n: np.shape(t) for n, t in kind.tables().items()} == {
        n: np.shape(t) for n, t in family.tables().items()
    }
    key = jax.random.key(9)
    for one, other in zip(
        kind.problems(BASE, key, 8, family.tables()), family.problems(BASE, key, 8), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    if family != kind:
        assert not np.array_equal(kind.problems(BASE, key, 8)[0], family.problems(BASE, key, 8)[0])


def test_there_are_three_kinds():
    assert {family.kind() for family in ALL} == {FIELDS, SENTENCES[0], PICTURES[0]}


@settings(max_examples=10)
@given(st.integers(4, 7), st.integers(2, 9), st.integers(0, 4), st.integers(0, 2**31 - 1))
def test_fields_of_any_size_break_and_keep_their_rules(fields, values, which, seed):
    family = FieldsOdd(fields, values)
    items, odd = family.problems(which, jax.random.key(seed), 16)
    rows = np.asarray(items).reshape(16, 4, fields, values)
    equal = [(rows[:, :, i] == rows[:, :, i + 1]).all(axis=-1) for i in (0, 2)]
    both = equal[0] & equal[1]
    asked = {SUB_A: equal[0], SUB_B: equal[1]}.get(which, both)
    np.testing.assert_array_equal(np.argmin(asked, axis=1), odd)
    np.testing.assert_array_equal(asked.sum(axis=1), 3)


@pytest.mark.parametrize("family", [FIELDS, SENTENCES[0], PICTURES[2]], ids=str)
def test_members_of_a_population_may_ask_for_different_sets(family):
    keys = jax.random.split(jax.random.key(3), 5)
    one = jax.jit(lambda which, key: family.problems(which, key, 6))
    items, odd = jax.jit(jax.vmap(one))(jnp.arange(5), keys)
    for which in range(5):
        alone = one(which, keys[which])
        np.testing.assert_allclose(items[which], alone[0], atol=1e-5)
        np.testing.assert_array_equal(odd[which], alone[1])


def test_the_odd_item_is_as_likely_at_every_place_and_values_are_uniform():
    items, odd = FIELDS.problems(TEST_A, jax.random.key(4), 4_000)
    assert stats.chisquare(np.bincount(np.asarray(odd), minlength=4)).pvalue > 1e-4
    values = np.asarray(items).reshape(4_000, 4, 6, 8).argmax(-1)
    for field in range(6):
        assert stats.chisquare(np.bincount(values[..., field].ravel())).pvalue > 1e-4
    broken = values[np.arange(4_000), np.asarray(odd)]
    apart = (broken[:, 1] - broken[:, 0]) % 8
    assert stats.chisquare(np.bincount(apart, minlength=8)[1:]).pvalue > 1e-4


def test_other_keys_give_other_problems_and_the_same_key_the_same():
    first, again, other = (drawn(FIELDS, BASE, jax.random.key(n))[0] for n in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("family", SENTENCES, ids=str)
def test_sentences_are_read_by_their_words_alone(family):
    """An oracle that knows English endings, not the grammar's tables."""
    items, _ = map(np.asarray, drawn(family, jnp.int32(BASE), jax.random.key(5)))
    a, b = (truth.ravel() for truth in family.satisfied(items))
    kinds = set()
    texts = family.text(items.reshape(-1, family.item_size))
    for text, first, second in zip(texts, a, b, strict=True):
        found = re.fullmatch(
            r"the (\w+)( (?:near|behind|beside|above) the \w+| that the (\w+) (\w+))?"
            r" (\w+)(?: (\w+sel\w+))?(?: (?:today|again|often))?",
            text,
        )
        assert found, text
        noun, between, inner, liking, verb, pronoun = found.groups()
        kinds.add("none" if not between else "clause" if inner else "phrase")
        many = {"subject": noun.endswith("s"), "verb": not verb.endswith("s")}
        if inner:  # the clause itself is always in order
            assert inner.endswith("s") != liking.endswith("s")
        if family.rule == "anaphora":
            many["verb"] = pronoun == "themselves"
        assert (pronoun is not None) == (family.rule == "anaphora")
        assert (many["subject"] == (family.number == "plural")) == first
        assert (many["verb"] == (family.number == "plural")) == second
    assert kinds == {"none", "phrase", "clause"}


@pytest.mark.parametrize("family", ALL, ids=str)
def test_valid_items_have_nothing_wrong(family):
    items = np.asarray(jax.jit(lambda key: family.valid(key, 60))(jax.random.key(6)))
    assert items.shape == (60, family.item_size)
    a, b = family.satisfied(items[:, None])
    if family.mixtures:
        np.testing.assert_array_equal(a, b)
        assert 0 < a.mean() < 1
    else:
        assert a.all() and b.all()


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("pair", PAIRS)
def test_pictures_of_any_size_show_what_they_are_asked_to(pair, side):
    family = PicturesOdd(pair, side)
    a, b = jax.random.bernoulli(jax.random.key(7), 0.5, (2, 50, 4))
    if "count" in family.rules:  # otherwise a majority might be wrong
        rules = dict(zip(family.rules, (a, b), strict=True))
        rules["count"] = jnp.arange(4) != jnp.arange(50)[:, None] % 4
        a, b = (rules[name] for name in family.rules)
    items = np.asarray(items_of(family, jax.random.key(8), a, b))
    assert items.min() >= 0 and items.max() <= 1
    found = family.satisfied(items)
    np.testing.assert_array_equal(found[0], a)
    np.testing.assert_array_equal(found[1], b)


def test_a_ring_and_a_disc_hold_the_ink_of_their_areas():
    family = PicturesOdd("inside-contact", 64)
    no = jnp.zeros((40, 1), bool)
    apart = items_of(family, jax.random.key(9), no, no)
    ink = np.asarray(apart).reshape(40, -1, 3).max(axis=-1).sum(axis=-1)
    radius = np.array([12.8, 17.6])
    ring = np.pi * (radius**2 - (radius - 2.5) ** 2)
    disc = np.pi * (radius * np.array([0.25, 0.4])) ** 2
    low, high = (ring + disc) * np.array([0.98, 1.02])
    assert ((low <= ink) & (ink <= high)).all()
    assert np.ptp(ink) > 0.3 * (high - low)


def test_colours_are_by_chance():
    items = items_of(PICTURES[0], jax.random.key(0), *jnp.ones((2, 200, 1), bool))
    brightest = np.asarray(items).reshape(200, -1, 3).sum(axis=1).argmax(axis=-1)
    assert stats.chisquare(np.bincount(brightest, minlength=3)).pvalue > 1e-4


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        (FieldsOdd(fields=3), "fields=3: expected a whole number of at least 4"),
        (FieldsOdd(pairs=(0, 3)), "two different numbers from 0 to 2, such"),
        (FieldsOdd(pairs=(1, 1)), "expected two different numbers"),
        (FieldsOdd(values=1), "values=1: expected a whole number of at least 2"),
        (FieldsOdd(values=2.5), "values=2.5: expected a whole number"),  # type: ignore[arg-type]
        (PicturesOdd("inside-out"), "unknown pair 'inside-out'"),  # type: ignore[arg-type]
        (PicturesOdd(side=16), "side=16: expected an even number of pixels of at least 32"),
        (PicturesOdd(side=33), "side=33: expected an even number"),
        (SentencesOdd("anafora"), "did you mean 'anaphora'"),  # type: ignore[arg-type]
        (SentencesOdd(number="dual"), "unknown number 'dual'"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_family_is_refused(family, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        family.check()


@pytest.mark.parametrize("family", ALL, ids=str)
def test_a_symmetry_changes_items_and_nothing_that_a_rule_says_of_them(family):
    items, _ = map(np.asarray, drawn(family, jnp.int32(BASE), jax.random.key(10)))
    before = family.satisfied(items)
    changes = family.symmetries(np.random.default_rng(0))
    assert len(changes) >= 3
    for name, (kept, lost) in changes.items():
        after = kept(items)
        assert after.shape == items.shape and after.dtype == items.dtype
        assert not np.array_equal(after, items), name
        np.testing.assert_array_equal(family.satisfied(after), before, err_msg=name)
        np.testing.assert_allclose(np.sort(after.sum(axis=-1)), np.sort(items.sum(axis=-1)), 1e-5)
        drawn_anew = lost(items)
        assert drawn_anew.shape == items.shape and not np.array_equal(drawn_anew, items)
        if name.startswith("exchanged"):  # which fields are touched is plain to see there
            alone = (after == items).all(axis=(0, 1))
            np.testing.assert_array_equal(drawn_anew[..., alone], items[..., alone], err_msg=name)
        if family.categorical:
            for one in (after, drawn_anew):
                assert (one.reshape(-1, *family.item_shape).sum(axis=-1) == 1).all()


@pytest.mark.parametrize("family", ALL, ids=str)
def test_of_a_single_item_only_rules_that_need_no_company_say_what_was_drawn(family):
    asked = jax.random.bernoulli(jax.random.key(11), 0.5, (2, COUNT, 1))
    items = np.asarray(items_of(family, jax.random.key(12), *asked))
    for rule, wanted, found in zip(
        family.rules, np.asarray(asked), family.satisfied(items), strict=True
    ):
        assert (np.mean(wanted == found) == 1) == (rule not in family.in_company), rule
