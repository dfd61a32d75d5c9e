"""PICT's files are read, written and read again without loss."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recombine.collecting import (
    Space,
    collect,
    parse_pict,
    read_pict,
    read_pict_output,
    write_pict,
    write_pict_output,
)
from recombine.errors import InvalidRequest, StoreError
from recombine.tables.rules import parse_rules

MODEL = """
# A drive, invented
kind:    plain, joined | spanned | chained, mirrored (5)
size:    10, 100, 1000, ~0
files:   small, large, ~none
second:  <files>, both

{ kind, size, files } @ 3
{ kind, second }

IF [kind] = "mirrored" THEN [size] > 10;
# with a note between
IF [files] = "large"
   AND [second] = "both" THEN [kind] <> "plain";
"""


def matrix_of(space: Space) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, space.sizes))))


def test_every_part_of_a_model_is_read() -> None:
    model = parse_pict(MODEL)
    assert model.space.names == ("kind", "size", "files", "second")
    assert model.space.values[0] == ("plain", "joined", "mirrored")
    assert model.space.values[3] == ("small", "large", "none", "both")
    assert model.invalid == {"size": ("0",), "files": ("none",)}
    assert model.weights == {"kind": {"mirrored": 5}}
    assert model.aliases == {"kind": {"joined": ("spanned", "chained")}}
    assert model.groups == {("kind", "size", "files"): 3, ("kind", "second"): 2}


def test_the_rules_of_a_model_forbid_what_they_say() -> None:
    model = parse_pict(MODEL)
    space = model.space
    for line, no in zip(matrix_of(space), model.rules.forbidden(matrix_of(space)), strict=True):
        row = space.named(line)
        wrong = row["kind"] == "mirrored" and int(str(row["size"])) <= 10
        wrong |= row["files"] == "large" and row["second"] == "both" and row["kind"] == "plain"
        wrong |= row["size"] == "0" and row["files"] == "none"  # two invalid values at once
        assert no == wrong


def test_a_model_written_and_read_again_means_the_same() -> None:
    model = parse_pict(MODEL)
    text = write_pict(model.space, model.rules, model.groups, model=model)
    again = parse_pict(text)
    assert (again.space, again.groups, again.invalid) == (model.space, model.groups, model.invalid)
    every = matrix_of(model.space)
    assert (again.rules.forbidden(every) == model.rules.forbidden(every)).all()


def test_weights_and_other_names_survive_the_way_out_and_back() -> None:
    model = parse_pict("type: single, striped (3)\nzip: on | yes (2), off, ~broken | ~torn\n")
    text = write_pict(model.space, model.rules, model.groups, model=model)
    assert text.splitlines() == [
        "type: single, striped (3)",
        "zip: on | yes (2), off, ~broken | torn",
    ]
    again = parse_pict(text)
    assert (again.weights, again.aliases, again.invalid) == (
        model.weights, model.aliases, model.invalid
    )  # fmt: skip


WORDS = st.text("abcdeXYZ0123456789 _.-é", min_size=1, max_size=6).map(str.strip).filter(bool)


@settings(max_examples=40)
@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=4, unique_by=str.lower), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 99)), max_size=3),
)
def test_any_plain_model_survives_the_way_out_and_back(
    values: list[list[str]], picks: list[tuple[int, int, int]]
) -> None:
    space = Space(tuple(f"p{i}" for i in range(len(values))), tuple(map(tuple, values)))
    texts = []
    for one, two, which in picks:
        one, two = one % len(values), two % len(values)
        if one != two:
            a, b = values[one][which % len(values[one])], values[two][which % len(values[two])]
            texts.append(f'IF [p{one}] = "{a}" THEN [p{two}] <> "{b}"')
    rules = parse_rules(texts, space.names, space.values)
    assume(rules.possible({}))
    again = parse_pict(write_pict(space, rules))
    assert again.space == space
    assert (again.rules.forbidden(matrix_of(space)) == rules.forbidden(matrix_of(space))).all()


def test_a_plan_goes_out_as_pict_prints_and_comes_back_as_rows(tmp_path: Path) -> None:
    (tmp_path / "drive.txt").write_text(MODEL.replace("\n", "\r\n"), encoding="utf-8-sig")
    model = read_pict(tmp_path / "drive.txt")
    plan = collect(None, model.space, model.rules, None, groups=model.groups, work=1e4)
    text = write_pict_output(model.space, plan.codes, model)
    assert text.splitlines()[0] == "kind\tsize\tfiles\tsecond"
    assert "~0" in text and "~none" in text
    (tmp_path / "out.tsv").write_text(text.replace("joined", "chained"), encoding="utf-8")
    rows = read_pict_output(tmp_path / "out.tsv", model)
    assert (rows.matrix() == plan.codes).all()  # an alias is the value it stands for
    alone = read_pict_output(tmp_path / "out.tsv")
    assert "chained" in alone.factor("kind").values
    assert collect(rows, model.space, model.rules, 9, groups=model.groups).rows == []


def test_invalid_values_meet_every_valid_one_and_never_one_another() -> None:
    model = parse_pict("a: x, y, ~bad\nb: u, v, ~worse\nc: p, q")
    plan = collect(None, model.space, model.rules, None)
    got = {(row["a"], row["b"]) for row in plan.rows}
    assert ("bad", "worse") not in got
    assert {("bad", "u"), ("bad", "v"), ("x", "worse"), ("y", "worse")} <= got


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no parameters"),
        ("a: x, , y", "empty"),
        ("a: x\na: y", "named twice"),
        ("a: x, x", "twice"),
        ("a x y", "no parameter, group or rule"),
        ("a: x\n{a, z} @ 2", "unknown parameter"),
        ("a: x\n{a @ 2", "no group"),
        ("a: <b>", "unknown parameter"),
        ('a: x\nIF [z] = "x" THEN [a] = "x";', "z"),
    ],
)
def test_a_broken_model_is_refused_with_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_pict(text)


def test_what_a_model_cannot_say_is_not_written() -> None:
    with pytest.raises(InvalidRequest, match="contradict"):
        write_pict(Space(("a",), (("x",),)), parse_rules(["a <> x"], ("a",), (("x",),)))
    with pytest.raises(InvalidRequest, match="meaning of their own"):
        write_pict(Space(("a",), (("x,y", "z"),)))
    with pytest.raises(InvalidRequest, match="lists"):
        write_pict(Space(("a",), (("x", "y"),), {"a": 2}))


def test_files_that_cannot_be_read_end_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        read_pict(tmp_path / "none.txt")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        read_pict(tmp_path / "bytes")
    (tmp_path / "out").write_text("a\tb\n1\n")
    with pytest.raises(InvalidRequest, match="line 2"):
        read_pict_output(tmp_path / "out")
