"""Programs over lists against a second interpreter in numpy and plain enumeration."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families._sequence import Item
from recombine.families.check_sequences import check_sequence_family
from recombine.families.programs import Programs

RUN = Programs(train_items=600, test_items=60, beyond_items=60, validation_items=40)
WRITE = replace(RUN, asks="write", deepest=3, lists=64)
VARIANTS = [
    RUN,
    replace(RUN, steps=True, depth=3, deepest=5),
    WRITE,
    replace(WRITE, depth=3, deepest=4),
]
NAMES = ["run", "steps", "write", "write three"]

# The order is the one in which programs that do the same are ranked.
SECOND = {
    "increment": lambda x: (x + 1) % 10,
    "double": lambda x: (x + x) % 10,
    "negate": lambda x: (10 - x) % 10,
    "evens": lambda x: x[x % 2 == 0],
    "odds": lambda x: x[x % 2 != 0],
    "large": lambda x: x[x > 4],
    "reverse": np.flip,
    "sort": np.sort,
    "tail": lambda x: np.delete(x, 0) if len(x) else x,
    "three": lambda x: x[np.arange(len(x)) < 3],
    "unique": lambda x: x[np.sort(np.unique(x, return_index=True)[1])],
    "maximum": lambda x: np.sort(x)[-1:],
}


def run(program: str | tuple[str, ...], digits: list[int]) -> list[int]:
    x = np.array(digits, int)
    for name in program.split(" ") if isinstance(program, str) else program:
        x = SECOND[name](x)
    return x.tolist()


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(" ")[1:-1]]


def program_of(family: Programs, item: Item) -> list[str]:
    return (item.source.split(" : ")[0] if family.asks == "run" else item.target).split(" ")


def examples(item: Item) -> list[tuple[list[int], list[int]]]:
    pairs = [example.split(" > ") for example in item.source.split(" ; ")]
    return [(numbers(before), numbers(after)) for before, after in pairs]


@pytest.mark.parametrize("family", VARIANTS, ids=NAMES)
def test_programs_keep_the_contract_of_families_of_sequences(family):
    check_sequence_family(family)


@pytest.mark.parametrize("family", VARIANTS[:2], ids=NAMES[:2])
def test_running_is_what_a_second_interpreter_says(family):
    for items in family.corpus(1).splits.values():
        for item in items:
            program, digits = program_of(family, item), numbers(item.source.split(" : ")[1])
            first = 1 if family.steps else len(program)
            expected = [run(tuple(program[:n]), digits) for n in range(first, len(program) + 1)]
            assert [numbers(text) for text in item.target.split(" ; ")] == expected


@pytest.mark.parametrize("family", VARIANTS, ids=NAMES)
@pytest.mark.parametrize("seed", [0, 3])
def test_what_is_called_new_never_occurs_in_training(family, seed):
    corpus, held = family.corpus(seed), family.held_pairs(seed)
    trained = {pair for item in corpus["train"] for pair in pairwise(program_of(family, item))}
    assert not trained & held
    singles = {tuple(program_of(family, item)) for item in corpus["train"]}
    assert {(name,) for name in SECOND} <= singles
    for split, items in corpus.splits.items():
        for item in items:
            program = program_of(family, item)
            new = sum(pair not in trained for pair in pairwise(program))
            deeper = max(0, len(program) - family.depth)
            assert item.novelty == new + deeper
            assert (new > 0) == (split == "systematicity" or (split == "validation" and not deeper))
            assert (deeper > 0) == (split == "depth" or (split == "validation" and not new))


def test_every_primitive_keeps_partners_in_either_place():
    for seed in range(10):
        held = RUN.held_pairs(seed)
        for place in (0, 1):
            assert max(Counter(pair[place] for pair in held).values()) <= 8


@pytest.mark.parametrize("seed", [0, 1])
def test_targets_are_the_first_of_the_shortest_and_all_as_short_that_fit_do_the_same(seed):
    everything = [p for n in (1, 2, 3) for p in product(SECOND, repeat=n)]
    rng = np.random.default_rng(seed)
    lists = [rng.integers(10, size=rng.integers(3, 7)).tolist() for _ in range(50)]
    corpus = WRITE.corpus(seed)
    for split in ("test", "systematicity", "depth"):
        for item in corpus[split][:4]:
            length = len(item.target.split(" "))
            fitting = [
                p
                for p in everything
                if len(p) <= length
                and all(run(p, before) == after for before, after in examples(item))
            ]
            assert " ".join(fitting[0]) == item.target
            assert {len(p) for p in fitting} == {length}
            # Among lists never seen by the family, hardly any may tell them apart.
            apart = [x for p in fitting for x in lists if run(p, x) != run(item.target, x)]
            assert len(apart) <= 0.02 * len(fitting) * len(lists)


def test_held_out_programs_have_no_detour_of_the_same_length():
    corpus, held = WRITE.corpus(0), WRITE.held_pairs(0)
    for item in corpus["systematicity"][:30]:
        for pair in product(SECOND, repeat=2):
            if pair not in held:
                assert any(run(pair, before) != after for before, after in examples(item))


def test_any_program_that_works_counts_and_one_that_only_fits_does_not():
    item = Item("[ 2 3 4 ] > [ 4 2 ] ; [ 6 1 8 1 ] > [ 8 6 ]", "evens reverse")
    assert WRITE.scores(item, "evens reverse") == {"exact": 1, "works": 1, "fits": 1}
    assert WRITE.scores(item, "reverse evens") == {"exact": 0, "works": 1, "fits": 1}
    assert WRITE.scores(item, "evens reverse reverse reverse")["works"] == 1
    assert WRITE.scores(item, "evens sort reverse") == {"exact": 0, "works": 0, "fits": 1}
    assert WRITE.scores(item, "evens sort") == {"exact": 0, "works": 0, "fits": 0}


@given(
    st.text(max_size=30) | st.sampled_from(["sort,", "sort  tail", "SORT", "sort tail ;", " sort"])
)
def test_answers_that_are_no_programs_score_nothing(answer):
    item = Item("[ 2 3 4 ] > [ 4 2 ]", "evens reverse")
    if not set(answer.split(" ")) <= set(SECOND):
        assert set(WRITE.scores(item, answer).values()) == {0.0}


@given(
    st.lists(st.sampled_from(list(SECOND)), min_size=1, max_size=6),
    st.lists(st.integers(0, 9), max_size=8),
)
def test_any_program_runs_on_any_list(program, digits):
    source = f"{' '.join(program)} : {' '.join(['[', *map(str, digits), ']'])}"
    assert numbers(RUN.solve(source)) == run(tuple(program), digits)


def test_no_constant_guess_is_right_often():
    for family in (Programs(), Programs(asks="write")):
        for split, items in family.corpus(0).splits.items():
            answer, times = Counter(item.target for item in items).most_common(1)[0]
            print(f"{family.asks} {split}: most frequent answer {answer}: {times / len(items):.3f}")
            assert times / len(items) < 0.1


def test_another_seed_holds_out_other_pairs():
    assert RUN.held_pairs(0) != RUN.held_pairs(1)
    assert RUN.corpus(0).splits != RUN.corpus(1).splits


@pytest.mark.parametrize(
    ("family", "source", "sentence"),
    [
        (RUN, "sort tail", "is no program and list"),
        (RUN, "sotr : [ 1 ]", "with primitives increment"),
        (RUN, "sort : 1 2", "is no list of digits"),
        (RUN, "sort : [ 12 ]", "is no list of digits"),
        (WRITE, "[ 1 ]", "is no list of examples"),
        (WRITE, "[ 1 ] > [ 1 2 3 ]", "no program of at most deepest=3"),
    ],
)
def test_a_source_that_is_none_is_refused(family, source, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        family.solve(source)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"asks": "rum"}, "did you mean 'run'"),
        ({"depth": 1}, "depth must be at least 2"),
        ({"deepest": 2}, "must exceed depth=2"),
        ({"asks": "write", "deepest": 5}, "at most 4 when writing"),
        ({"asks": "write", "steps": True}, "steps=False when writing"),
        ({"longest_list": 2}, "at least 3"),
        ({"held_out": 0.9}, "share up to 0.5"),
    ],
)
def test_the_impossible_is_refused(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(RUN, **wrong).check()
