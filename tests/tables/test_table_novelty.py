"""How new the combinations of a table are, against brute force and against supports."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine import supports
from recombine.combinations import Slots, Subsets
from recombine.tables import novelty as module
from recombine.tables.novelty import LEVELS, components, novelty
from recombine.tables.rows import NONE, Factor, Rows

Line = tuple[frozenset[int], ...]


def table(lines: list[Line], sizes: list[int], many: list[bool]) -> Rows:
    factors = []
    for f, (size, lists) in enumerate(zip(sizes, many, strict=True)):
        held = [sorted(line[f]) for line in lines]
        if lists:
            codes = np.full((len(lines), max(map(len, held), default=0)), NONE, np.int32)
            for row, values in enumerate(held):
                codes[row, : len(values)] = values
        else:
            codes = np.array([values[0] for values in held], np.uint8)
        factors.append(Factor(f"f{f}", tuple(map(str, range(size))), codes))
    return Rows("toy", tuple(factors))


@st.composite
def two_tables(draw) -> tuple[list[Line], list[Line], list[int], list[bool]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    many = [draw(st.booleans()) for _ in sizes]
    line = st.tuples(
        *(
            st.frozensets(st.integers(0, n - 1), max_size=3)
            if lists
            else st.integers(0, n - 1).map(lambda v: frozenset([v]))
            for n, lists in zip(sizes, many, strict=True)
        )
    )
    train = draw(st.lists(line, min_size=1, max_size=12))
    return train, draw(st.lists(line, min_size=1, max_size=8)), sizes, many


def items(line: Line) -> set[tuple[int, int]]:
    return {(f, v) for f, values in enumerate(line) for v in values}


def by_hand(train: list[Line], line: Line, many: list[bool]) -> tuple[int, ...]:
    """(level, new pairs, new triples, rarest value, rarest pair, nearest) the slow way."""
    trained = [items(other) for other in train]

    def counts(t: int) -> list[int]:
        parts = itertools.combinations(sorted(items(line)), t)
        return [sum(set(part) <= other for other in trained) for part in parts]

    def apart(other: Line) -> int:
        pairs = zip(line, other, many, strict=True)
        return sum(len(a ^ b) if lists else a != b for a, b, lists in pairs)

    new = [counts(t).count(0) for t in (1, 2, 3)]
    level = 4 if new[0] else 3 if new[1] else 2 if new[2] else 1
    rarest = min(counts(1), default=len(train))
    return (
        0 if line in train else level, new[1], new[2], rarest,
        min(counts(2), default=rarest), min(map(apart, train)),
    )  # fmt: skip


def check_against_hand(train, others, sizes, many):
    found = novelty(table(train, sizes, many), table(others, sizes, many))
    columns = (
        found.level, found.pairs_new, found.triples_new, found.rarest_value, found.rarest_pair,
        found.nearest,
    )  # fmt: skip
    got = list(zip(*(found.by_row(column).tolist() for column in columns), strict=True))
    assert got == [by_hand(train, line, many) for line in others]
    assert found.row_level.tolist() == [level for level, *_ in got]


@given(two_tables())
@settings(max_examples=150)
def test_novelty_agrees_with_brute_force(drawn):
    check_against_hand(*drawn)


@given(two_tables())
@settings(max_examples=40)
def test_factors_too_large_for_a_table_are_looked_up_with_the_same_answer(drawn):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DENSE", 0)
        check_against_hand(*drawn)


@given(st.data())
@settings(max_examples=60)
def test_novelty_agrees_with_that_of_a_support(data):
    space = data.draw(st.sampled_from([Subsets(5, 3), Subsets(4, 2), Slots((2, 3, 2, 2))]))
    ranks = data.draw(st.sets(st.integers(0, space.size - 1), min_size=1, max_size=15))
    support = supports.Support(space, np.array(sorted(ranks), np.uint32))
    theirs = supports.novelty(support)
    if isinstance(space, Slots):
        sizes, many = list(space.levels), [False] * len(space.levels)
        lines = [[frozenset([int(v)]) for v in space.values([r])[0]] for r in range(space.size)]
    else:
        sizes, many = [space.modules], [True]
        lines = [[frozenset(space.describe(r))] for r in range(space.size)]
    every = [tuple(line) for line in lines]
    rows = table(every, sizes, many)
    train, others = rows.take(support.seen.astype(int)), rows.take(theirs.ranks.astype(int))
    ours = novelty(train, others)
    pairs = [
        (ours.pairs_new, theirs.unseen_pairs),
        (ours.triples_new, theirs.unseen_triples),
        (ours.rarest_value, theirs.rarest_usage),
        (ours.nearest, theirs.nearest),
    ]
    for mine, other in pairs:
        assert other is not None
        np.testing.assert_array_equal(ours.by_row(mine), other)
    # Theirs has a level for what was never linked, which is a new pair here, and none for seen.
    same = {
        "nothing new inside": "new combination", "a new triple": "new triple",
        "a new pair": "new pair", "modules never linked": "new pair", "a new module": "new value",
    }  # fmt: skip
    named = [same[supports.LEVELS[level]] for level in theirs.level]
    assert [LEVELS[level] for level in ours.row_level] == named


def test_too_many_comparisons_are_cut_to_the_most_frequent_and_said():
    train = table(
        [(frozenset([0]), frozenset([0]))] * 3 + [(frozenset([1]),) * 2], [3, 3], [False] * 2
    )
    other = table([(frozenset([1]), frozenset([2]))], [3, 3], [False] * 2)
    whole, cut = novelty(train, other), novelty(train, other, limit=1)
    assert (whole.nearest.tolist(), whole.nearest_exact) == ([1], True)
    assert (cut.nearest.tolist(), cut.nearest_exact) == ([2], False)
    assert novelty(train, other, nearest=False).nearest.tolist() == [-1]


@given(two_tables(), st.integers(1, 3))
def test_components_agree_with_walking_the_graph(drawn, at_least):
    train, _, sizes, many = drawn
    found = components(table(train, sizes, many), at_least)
    held = [items(line) for line in train]
    left, parts = set().union(*held), []
    while left:
        part, frontier = set(), {min(left)}
        while frontier:
            part |= frontier
            frontier = {
                b
                for a in frontier
                for b in left - part
                if sum({a, b} <= line for line in held) >= at_least
            }
        parts.append(part)
        left -= part
    assert sorted(map(sorted, found.parts)) == sorted(map(sorted, parts))
    assert [len(part) for part in found.parts] == sorted(map(len, parts), reverse=True)
    assert found.connected == (len(parts) <= 1)
    nobody = [(f, v) for f, labels in enumerate(found.labels) for v in np.flatnonzero(labels < 0)]
    assert not set(nobody) & set().union(*held)
