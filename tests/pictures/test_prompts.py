"""Prompts, concepts and questions come from the same words, and read as English."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.pictures import FAMILIES, Sampling, Scene, Slot, Things, family_named
from recombine.pictures.family import NONE
from recombine.pictures.shots import split
from recombine.supports import Support, novelty

SETS = [one for one in FAMILIES.values() if isinstance(one, Things)]
SCENES = [one for one in FAMILIES.values() if isinstance(one, Scene)]
drawn = st.sampled_from(sorted(FAMILIES)).flatmap(
    lambda name: st.tuples(
        st.just(FAMILIES[name]), st.sampled_from(FAMILIES[name].ranks().tolist())
    )
)


def said_by_a_perfect_judge(one, rank):
    """The answer of somebody who sees exactly what was asked for."""
    if isinstance(one, Things):
        shown = set(one.values(rank))
        return {
            key: thing in shown for key, thing in zip(one.properties(), one.things, strict=True)
        }
    return dict(zip(one.properties(), one.values(rank), strict=True))


def test_there_are_thirty_one_families_eight_of_them_sets():
    assert len(FAMILIES) == 31
    assert len(SETS) == 8 and len(SCENES) == 23


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("animals-4", math.comb(4, 3)),
        ("animals-8", math.comb(8, 3)),
        ("animals-20", math.comb(20, 3)),
        ("solids-18", math.comb(18, 3)),
        ("animal-clothing", 100),
        ("animal-clothing-food", 1000),
        ("animal-location", 90),
        ("counting-objects", 400),
        ("counting-animals", 100),
    ],
)
def test_a_family_has_the_published_size(name, size):
    assert len(family_named(name).ranks()) == size


@pytest.mark.parametrize("one", FAMILIES.values(), ids=FAMILIES)
def test_every_prompt_of_a_family_is_different_and_is_english(one):
    prompts = [one.prompt(int(rank)) for rank in one.ranks()]
    assert len(set(prompts)) == len(prompts)
    for prompt in prompts:
        assert not re.search(r"\b(an?|one) (an?|one)\b|\ba [aeio]|\ban [^aeiou]|  ", prompt, re.I)
        assert prompt.startswith("An image ") and prompt.endswith(".") and "{" not in prompt


@given(drawn)
def test_a_prompt_says_each_of_its_words_and_the_words_lead_back_to_it(case):
    one, rank = case
    values = one.values(rank)
    prompt = one.prompt(rank)
    assert one.rank(values) == rank
    assert one.prompt(values) == prompt
    for value in values:
        assert re.search(rf"\b{re.escape(value[:-2])}", prompt)  # the plural changes an ending
    assert one.wanted(rank) == {one.concepts[module] for module in one.space.describe(rank)}


@given(drawn)
def test_a_judge_that_sees_what_was_asked_for_names_exactly_the_concepts_wanted(case):
    one, rank = case
    shown = one.heard(said_by_a_perfect_judge(one, rank))
    assert {concept for concept, there in shown.items() if there} == one.wanted(rank)
    assert tuple(shown) == one.concepts


@pytest.mark.parametrize("one", FAMILIES.values(), ids=FAMILIES)
def test_the_question_and_the_schema_offer_the_very_words_of_the_prompts(one):
    schema, question = one.schema(), one.question()
    used = {value for rank in one.ranks() for value in one.values(int(rank))}
    assert all(word in question for word in used)
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert all(re.fullmatch(r"\w+", key) and key in question for key in schema["required"])
    if isinstance(one, Scene):
        offered = set().union(*(set(part["enum"]) for part in schema["properties"].values()))
        assert offered == used | {NONE}


def test_happy_is_asked_for_as_happy():
    values = ("happy", "sad", "angry")
    one = family_named("three-animals-emotions")
    assert one.prompt(values) == "An image of a happy cat, a sad horse and an angry elephant."
    shown = one.heard({"cat": "happy", "horse": "sad", "elephant": "angry"})
    assert shown["cat: happy"] and not shown["cat: sad"]


def test_one_thing_is_counted_in_the_singular():
    one = family_named("counting-objects")
    assert one.prompt(["one", "knife"]) == "An image of one knife."
    assert one.prompt(["twelve", "knife"]) == "An image of twelve knives."


def test_no_thing_is_always_named_first():
    one = family_named("animals-8")
    first = {one.values(int(rank))[0] for rank in one.ranks()}
    assert first == set(one.things)
    assert one.values(50) == one.values(50)


@given(st.sampled_from(sorted(set(FAMILIES) - {"animals-4"})), st.integers(0, 10**6))
def test_the_probe_is_fitted_on_every_concept_and_measured_on_other_combinations(name, seed):
    one = FAMILIES[name]
    dealt = split(one, Sampling(combinations=150, seed=seed))
    parts = [set(part.tolist()) for part in dealt.parts.values()]
    assert len(set.union(*parts)) == sum(map(len, parts)) == min(150, len(one.ranks()))
    assert set.union(*parts) <= set(one.ranks().tolist())
    fitted = Support(one.space, dealt.fit)
    assert fitted.covered
    assert "a new module" not in {k for k, n in novelty(fitted, dealt.test).counts().items() if n}


def test_a_family_too_small_to_deal_out_is_refused():
    with pytest.raises(InvalidRequest, match="4 combinations of 'animals-4' leave 2 to fit"):
        split(FAMILIES["animals-4"], Sampling())
    with pytest.raises(InvalidRequest, match="ask for more combinations"):
        split(FAMILIES["counting-objects"], Sampling(combinations=10))


def test_prompts_of_a_set_have_exactly_so_many_things():
    one = Things("few", ("a", "b", "c", "d", "e"), active=2)
    pairs = {frozenset(one.values(int(rank))) for rank in one.ranks()}
    assert pairs == {frozenset(pair) for pair in itertools.combinations("abcde", 2)}
    with pytest.raises(InvalidRequest, match="rank 0 of 'few' has 1 things: prompts have 2"):
        one.prompt(0)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([], "not an object"),
        ({}, "lacks 'red_cube', 'ball'"),
        ({"red_cube": True, "ball": 1}, "'ball' is 1: expected true or false"),
        ({"red_cube": True, "ball": True, "cone": False}, "unknown key 'cone'"),
        ({"red cube": True, "ball": True}, "lacks 'red_cube'"),
    ],
)
def test_a_nonsense_answer_about_things_is_named(answer, complaint):
    with pytest.raises(InvalidRequest, match=complaint):
        Things("two", ("red cube", "ball"), active=1).heard(answer)


def test_a_word_that_was_not_offered_is_nonsense():
    one = family_named("animal-colour")
    with pytest.raises(InvalidRequest, match="'animal' is 'dragon': expected one of its words"):
        one.heard({"animal": "dragon", "colour": "red"})
    shown = one.heard({"animal": NONE, "colour": "red"})
    assert [concept for concept, there in shown.items() if there] == ["colour: red"]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: family_named("animal-clothes"), "did you mean 'animal-clothing'"),
        (lambda: family_named("animals-8").prompt(["cat", "cat", "owl"]), "3 different things"),
        (lambda: family_named("animals-8").prompt(["cat", "dog", "owll"]), "did you mean 'owl'"),
        (
            lambda: family_named("animal-colour").prompt(["cat"]),
            "one word for each of animal and colour",
        ),
        (lambda: Things("twice", ("a b", "a-b"), 1), "must differ"),
        (lambda: Scene("x", "{a} {c}", (Slot("a", ("b",), "?"),)), "template names"),
        (lambda: Scene("x", "{a}", (Slot("a", ("b", "b"), "?"),)), "must differ"),
    ],
)
def test_a_mistake_is_named(make, complaint):
    with pytest.raises(InvalidRequest, match=complaint):
        make()


def test_nothing_optional_and_no_jax_is_imported_before_it_is_used():
    names = ["family", "hooks", "judge", "pipelines", "probe", "prompts", "reading", "shots"]
    code = "import sys\n" + "\n".join(f"import recombine.pictures.{name}" for name in names)
    code += "\nprint(*sorted({'torch', 'diffusers', 'transformers', 'jax'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
