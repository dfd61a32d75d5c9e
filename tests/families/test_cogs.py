"""COGS: the solver against the published files, renumbering, what a broken folder says."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, RecombineError
from recombine.families._sequence import Item
from recombine.families.cogs import Cogs, renumbered

DATA = os.environ.get("RECOMBINE_TEST_DATA", "")
published = pytest.mark.skipif(
    not (Path(DATA) / "cogs" / "train.tsv").is_file(),
    reason="RECOMBINE_TEST_DATA names no folder with cogs/, the published files",
)
FORM = "* dog ( x _ 1 ) ; like . agent ( x _ 2 , x _ 1 ) AND like . theme ( x _ 2 , Emma )"
ITEM = Item("The dog liked Emma .", FORM)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small set in the published format, answered by hand."""
    line = "{0} smiled .\tsmile . agent ( x _ 1 , {0} )\tin_distribution\n".format
    slept = "{0} slept .\tsleep . agent ( x _ 1 , {0} )\t{1}\n".format
    deep = "Emma said" + " that Emma said" * 3 + " that Liam ran .\tform\tcp_recursion\n"
    inner = "Emma saw a cup in a car in a box on the bed beside a tree .\tform\tpp_recursion\n"
    letters = "ABCDEFGHIJ"
    files = {
        "train.tsv": "sleep\tform\tprimitive\n" + "".join(line(c * 2) for c in letters),
        "test.tsv": "".join(line(c * 3) for c in letters),
        "gen_lexical.tsv": "".join(slept(c, "one") + slept(c * 2, "two") for c in letters),
        "gen_structural.tsv": deep + deep.replace("Liam", "Ava") + inner + inner.replace("a", "an"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@published
@pytest.mark.parametrize("file", ["train", "dev", "test", "gen_lexical", "gen_structural"])
def test_the_solver_answers_every_published_sentence(file):
    family = Cogs()
    lines = (Path(DATA) / "cogs" / f"{file}.tsv").read_text().splitlines()
    wrong = [line for line in lines if family.solve(line.split("\t")[0]) != line.split("\t")[1]]
    assert wrong == []


@published
def test_the_published_splits_have_their_sizes_and_never_meet():
    corpus = Cogs(folder=f"{DATA}/cogs", validation_per_case=20).corpus(0)
    assert {name: len(items) for name, items in corpus.splits.items()} == {
        "train": 24155,
        "test": 3000,
        "validation": 21 * 20,
        "lexical": 18 * 980,
        "structural": 3 * 980,
    }
    sources = [item.source for items in corpus.splits.values() for item in items]
    assert len(sources) == len(set(sources))
    assert set(Counter(item.part for item in corpus["validation"]).values()) == {20}
    words = {
        word
        for items in corpus.splits.values()
        for item in items
        for word in f"{item.source} {item.target}".split(" ")
    }
    assert len(words) <= 871


@published
def test_what_is_chosen_on_under_one_seed_is_tested_under_none():
    pilot, final = (Cogs(folder=f"{DATA}/cogs").corpus(seed) for seed in (1000, 3))
    chosen_on = {item.source for item in pilot["validation"]}
    assert not chosen_on & {i.source for split in final.beyond for i in final[split]}


@published
def test_novelty_counts_levels_of_nesting_beyond_those_trained():
    corpus = Cogs(folder=f"{DATA}/cogs").corpus(0)
    for case in ("cp_recursion", "pp_recursion"):
        found = {item.novelty for item in corpus["structural"] if item.part == case}
        assert found == set(range(1, 11))
    assert {item.novelty for item in corpus["lexical"]} == {1}
    assert {item.novelty for item in (*corpus["train"], *corpus["test"])} == {0}


@published
def test_a_small_draw_keeps_what_the_cases_build_on():
    family = Cogs(
        folder=f"{DATA}/cogs", train_items=200, test_items=30, items_per_case=5, longest=150
    )
    corpus = family.corpus(1)
    assert len(corpus["train"]) == 200 and len(corpus["test"]) == 30
    assert len(corpus["lexical"]) == 90 and len(corpus["structural"]) == 15
    kinds = Counter(item.part for item in corpus["train"])
    assert kinds["primitive"] == 143 and kinds["in_distribution"] == 200 - 143 - 12
    for items in corpus.splits.values():
        assert all(len(f"{i.source} {i.target}".split(" ")) <= 150 for i in items)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Paula", "Paula"),
        ("shark", "LAMBDA a . shark ( a )"),
        ("crawl", "LAMBDA a . LAMBDA e . crawl . agent ( e , a )"),
        ("Emma rolled .", "roll . theme ( x _ 1 , Emma )"),
        ("Emma ate .", "eat . agent ( x _ 1 , Emma )"),
        ("The dog liked Emma .", FORM),
        (
            "Emma gave Liam a TV .",
            "give . agent ( x _ 1 , Emma ) AND give . recipient ( x _ 1 , Liam ) "
            "AND give . theme ( x _ 1 , x _ 4 ) AND tv ( x _ 4 )",
        ),
        (
            "A boy wanted to run .",
            "boy ( x _ 1 ) AND want . agent ( x _ 2 , x _ 1 ) AND want . xcomp ( x _ 2 , x _ 4 ) "
            "AND run . agent ( x _ 4 , x _ 1 )",
        ),
    ],
)
def test_a_sentence_is_answered_as_worked_out_by_hand(source, target):
    assert Cogs().solve(source) == target


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("The dog liked Emma", "found its end as word 4, expected '.'"),
        ("dog liked Emma .", "expected a name, or a noun"),
        ("Emma flurbed .", "found 'flurbed' as word 1, expected a verb"),
        ("The was liked .", "expected a noun"),
        ("Emma ran . .", "expected the end"),
        ("?", "no word of COGS"),
        ("", "no word of COGS"),
    ],
)
def test_what_is_no_sentence_is_refused_with_the_word_that_is_wrong(source, says):
    with pytest.raises(InvalidRequest, match=says):
        Cogs().solve(source)


@pytest.mark.parametrize(
    ("answer", "exact", "right"),
    [
        (FORM, 1, 1),
        (FORM.replace("x _ 1", "x _ 7"), 0, 1),
        (FORM.replace("_ 1", "_ 0").replace("_ 2", "_ 1").replace("_ 0", "_ 2"), 0, 1),
        (FORM.replace("x _ 2", "x _ 1"), 0, 0),  # two variables fall together
        (FORM.replace("( x _ 2 , Emma )", "( x _ 3 , Emma )"), 0, 0),  # one falls apart
        (FORM.replace("Emma", "Liam"), 0, 0),
        (FORM.replace("dog", "cat"), 0, 0),
        (FORM.replace("x _ 1", "x _ one"), 0, 0),
        (" AND ".join(reversed(FORM.split(" AND "))), 0, 0),  # facts in another order
        (FORM + " AND", 0, 0),
        ("", 0, 0),
    ],
)
def test_numbers_may_differ_where_variables_correspond_one_to_one(answer, exact, right):
    assert Cogs().scores(ITEM, answer) == {"exact": exact, "renumbered": right}


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_a_one_to_one_renaming_never_changes_the_score(renaming, places):
    form = " AND ".join(f"dog ( x _ {place} )" for place in places)
    other = " AND ".join(f"dog ( x _ {renaming[place]} )" for place in places)
    assert renumbered(form) == renumbered(other)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
)
def test_forms_match_exactly_where_a_bijection_exists(ours, theirs):
    form, other = (
        " AND ".join(f"dog ( x _ {place} )" for place in places) for places in (ours, theirs)
    )
    pairs = set(zip(ours, theirs, strict=False))
    one_to_one = len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    assert (renumbered(form) == renumbered(other)) == (len(ours) == len(theirs) and one_to_one)


def test_validation_is_taken_evenly_from_the_cases(folder):
    corpus = Cogs(folder=str(folder), validation_per_case=1).corpus(0)
    assert corpus.beyond == ("lexical", "structural")
    parts = sorted(item.part for item in corpus["validation"])
    assert parts == ["cp_recursion", "one", "pp_recursion", "two"]
    assert len(corpus["lexical"]) == 18 and len(corpus["structural"]) == 2
    assert {item.part: item.novelty for item in corpus["structural"]} == {
        "cp_recursion": 2,
        "pp_recursion": 2,
    }


def test_a_seed_decides_the_draw_and_training_keeps_its_single_words(folder):
    family = Cogs(folder=str(folder), train_items=4, test_items=5, validation_per_case=1)
    first, again, other = (family.corpus(seed) for seed in (3, 3, 4))
    assert first.splits == again.splits != other.splits
    assert "sleep" in {item.source for item in first["train"]} and len(first["train"]) == 4


def test_items_with_more_words_than_the_longest_are_left_out(folder):
    everything = Cogs(folder=str(folder), validation_per_case=0).corpus(0)
    short = Cogs(folder=str(folder), validation_per_case=0, longest=17).corpus(0)
    assert len(short["structural"]) < len(everything["structural"])
    assert len(short["lexical"]) == len(everything["lexical"])


@published
def test_the_folder_is_found_where_data_is_kept(monkeypatch):
    monkeypatch.setenv("RECOMBINE_DATA", DATA)
    assert Cogs().corpus(0).splits == Cogs(folder=f"{DATA}/cogs").corpus(0).splits


def test_without_the_data_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOMBINE_DATA", str(tmp_path))
    with pytest.raises(RecombineError, match="recombine data get cogs"):
        Cogs().corpus(0)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        (Cogs(train_items=0), "train_items=0"),
        (Cogs(validation_per_case=-1), "validation_per_case=-1"),
        (Cogs(longest=0), "longest=0"),
    ],
)
def test_impossible_sizes_are_refused(family, says):
    with pytest.raises(InvalidRequest, match=says):
        family.check()


def test_more_than_there_is_is_refused(folder):
    for family in (
        Cogs(folder=str(folder), test_items=11),
        Cogs(folder=str(folder), train_items=12),
        Cogs(folder=str(folder), validation_per_case=10),
    ):
        with pytest.raises(InvalidRequest, match="ask"):
            family.corpus(0)


def test_a_missing_or_broken_file_is_named(folder, tmp_path):
    with pytest.raises(InvalidRequest, match=r"train\.tsv.*recombine data get cogs"):
        Cogs(folder=str(tmp_path / "nowhere")).corpus(0)
    (folder / "test.tsv").write_text("Emma smiled .\tsmile\n")
    with pytest.raises(InvalidRequest, match=r"test\.tsv, line 1: 2 fields, expected 3"):
        Cogs(folder=str(folder)).corpus(0)
    (folder / "test.tsv").write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(InvalidRequest, match=r"test\.tsv is not UTF-8 text"):
        Cogs(folder=str(folder)).corpus(0)
