"""SCAN: the published counts, an interpreter checked by rewriting, splits that never meet."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, RecombineError
from recombine.families.scan import SPLITS, Scan, commands

# Lake and Baroni (2018) and Loula et al. (2018), as released: training and test items.
PUBLISHED = {
    "simple": (16728, 4182),
    "length": (16990, 3920),
    "addprim_jump": (14670, 7706),
    "addprim_turn_left": (21890, 1208),
    "template_right": (15225, 4476),
    "template_opposite_right": (15225, 4476),
    "template_around_right": (15225, 4476),
    "template_jump_around_right": (18528, 1173),
    "filler_num0": (15225, 1173),
    "filler_num1": (16290, 1173),
    "filler_num2": (17391, 1173),
    "filler_num3": (18528, 1173),
}
EVERYTHING = commands()
SIDE = "(left|right)"
REWRITES = [
    (r"^(.*) after (.*)$", r"\2 and \1"),
    (r"(?<= and )(.*) thrice$", r"\1 and \1 and \1"),
    (r"(?<= and )(.*) twice$", r"\1 and \1"),
    (r"^(.*?) thrice(?= and |$)", r"\1 and \1 and \1"),
    (r"^(.*?) twice(?= and |$)", r"\1 and \1"),
    (rf"(\w+) around {SIDE}", r"\1 \2 and \1 \2 and \1 \2 and \1 \2"),
    (rf"(\w+) opposite {SIDE}", r"turn \2 and \1 \2"),
    (rf"(walk|run|look|jump) {SIDE}", r"turn \2 and \1"),
]


def rewritten(command: str) -> str:
    """The actions by rewriting the text alone, until only bare actions joined by "and" remain."""
    for pattern, by in REWRITES:
        command = re.sub(pattern, by, command)
    return " ".join("I_" + part.replace(" ", "_").upper() for part in command.split(" and "))


def test_the_grammar_has_the_published_number_of_commands():
    assert len(EVERYTHING) == len({c.source for c in EVERYTHING}) == 20910


def test_rewriting_and_solving_agree_on_every_command():
    family = Scan()
    wrong = [
        c.source
        for c in EVERYTHING
        if not family.solve(c.source) == c.target == rewritten(c.source)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("jump", "I_JUMP"),
        ("jump left", "I_TURN_LEFT I_JUMP"),
        ("turn left twice", "I_TURN_LEFT I_TURN_LEFT"),
        ("jump opposite left and walk thrice", "I_TURN_LEFT I_TURN_LEFT I_JUMP" + " I_WALK" * 3),
        (
            "jump opposite left after walk around left",
            "I_TURN_LEFT I_WALK " * 4 + "I_TURN_LEFT I_TURN_LEFT I_JUMP",
        ),
    ],
)
def test_the_examples_of_the_paper_are_answered_as_printed(source, target):
    assert Scan().solve(source) == target


def test_every_published_split_is_offered():
    assert set(SPLITS) == set(PUBLISHED)


@pytest.mark.parametrize("split", PUBLISHED)
def test_a_split_has_its_published_sizes(split):
    corpus = Scan(split=split, held_out=0, validation=0).corpus(0)
    assert (len(corpus["train"]), len(corpus[split])) == PUBLISHED[split]
    assert not corpus["test"] and not corpus["validation"]


@pytest.mark.parametrize("split", PUBLISHED)
def test_no_command_is_in_two_splits_and_nothing_is_lost(split):
    official = Scan(split=split, held_out=0, validation=0).corpus(3)
    corpus = Scan(split=split, held_out=300, validation=100).corpus(3)
    sources = {name: {item.source for item in items} for name, items in corpus.splits.items()}
    assert sum(map(len, sources.values())) == len(set().union(*sources.values()))
    assert len(sources["test"]) == 300 and len(sources["validation"]) == 100
    assert sources["train"] | sources["test"] == {item.source for item in official["train"]}
    assert sources[split] | sources["validation"] == {item.source for item in official[split]}


@pytest.mark.parametrize("split", PUBLISHED)
def test_novelty_is_nothing_in_training_and_something_beyond(split):
    corpus = Scan(split=split).corpus(0)
    assert corpus.beyond == (split,)
    for item in (*corpus["train"], *corpus["test"]):
        assert item.novelty == 0
    for item in (*corpus["validation"], *corpus[split]):
        longer = len(item.target.split(" ")) - 22
        assert item.novelty == (longer if split == "length" else 1) > 0


@pytest.mark.parametrize(
    ("split", "bare"), [("addprim_jump", "jump"), ("addprim_turn_left", "turn left")]
)
def test_a_new_primitive_is_a_tenth_of_training_and_never_held_out(split, bare):
    corpus = Scan(split=split, held_out=0).corpus(1)
    seen = Counter(item.source for item in corpus["train"])
    assert seen[bare] == len(corpus["train"]) // 10
    assert {count for source, count in seen.items() if source != bare} == {1}
    phrase = re.compile(rf"\b{bare}\b")
    assert not any(phrase.search(source) for source in seen if source != bare)
    assert all(phrase.search(item.source) for item in corpus[split])
    largest = Scan(split=split, held_out=len(seen) - 2, validation=0).corpus(1)
    assert bare not in {item.source for item in largest["test"]}


def test_a_template_is_tested_with_every_primitive_and_trained_with_none():
    corpus = Scan(split="template_around_right").corpus(0)
    assert not any("around right" in item.source for item in corpus["train"])
    assert all("around right" in item.source for item in corpus["template_around_right"])


@pytest.mark.parametrize(("split", "known"), [("filler_num1", {"look"}), ("filler_num0", set())])
def test_fillers_are_the_primitives_that_training_puts_in_the_template(split, known):
    train = Scan(split=split).corpus(0)["train"]
    found = {word for item in train for word in re.findall(r"(\w+) around right", item.source)}
    assert found == known


@settings(max_examples=5)
@given(seed=st.integers(0, 2**31), other=st.integers(0, 2**31))
def test_a_seed_gives_the_same_items_and_another_seed_others(seed, other):
    family = Scan(split="addprim_jump", held_out=50, validation=20)
    first = family.corpus(seed)["test"]
    assert first == family.corpus(seed)["test"]
    assert (first == family.corpus(other)["test"]) == (seed == other)


@pytest.mark.parametrize("source", ["", "turn", "jump jump", "walk and", "skip twice", "twice"])
def test_a_source_that_is_no_command_is_refused_by_name(source):
    with pytest.raises(InvalidRequest, match="is no SCAN command"):
        Scan().solve(source)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        (Scan(split="lenght"), "did you mean 'length'"),  # type: ignore[arg-type]
        (Scan(held_out=16990), "ask for 0 to 16989"),
        (Scan(split="addprim_turn_left", validation=-1), "ask for 0 to 1207"),
    ],
)
def test_impossible_sizes_are_refused_with_what_is_possible(family, says):
    with pytest.raises(RecombineError, match=says):
        family.check()


@pytest.mark.parametrize("split", ["length", "addprim_jump"])
def test_what_is_chosen_on_under_one_seed_is_tested_under_none(split):
    pilot, final = (Scan(split=split).corpus(seed) for seed in (1000, 3))
    chosen_on = {item.source for item in pilot["validation"]}
    assert len(chosen_on) == 500
    assert not chosen_on & {item.source for item in final[split]}
    assert {item.source for item in final["test"]} != {item.source for item in pilot["test"]}
