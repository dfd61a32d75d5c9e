"""From nothing: every interaction covered, in no more rows than other tools need."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.collecting import Goals, Space, collect
from recombine.tables.rules import parse_rules

from .models import LARGE, PLAIN, RULED

LONG = ("7 6 5 4^6 3^8 2^3", "6 5 4^6 3^8 2^3", "5 4^4 3^11 2^5", "8^8", "6^6")
SMALL = [name for name in PLAIN if name not in LARGE]


def of_sizes(sizes: list[int]) -> Space:
    names = tuple(f"f{i}" for i in range(len(sizes)))
    return Space(names, tuple(tuple(f"v{j}" for j in range(size)) for size in sizes))


def covered(lines: list[tuple[int, ...]], t: int) -> set[tuple[tuple[int, int], ...]]:
    """The interactions of t factors in the lines, one by one."""
    return {
        tuple((place, line[place]) for place in places)
        for line in lines
        for places in itertools.combinations(range(len(line)), t)
    }


def all_covered(sizes: list[int], t: int) -> int:
    return sum(int(np.prod(chosen)) for chosen in itertools.combinations(sizes, t))


def check_no_more_rows(name: str, work: float) -> None:
    sizes, others = PLAIN[name]
    plan = collect(None, of_sizes(sizes), budget=None, work=work)
    lines = [tuple(int(c) for c in line) for line in plan.codes]
    assert len(covered(lines, 2)) == all_covered(sizes, 2) == plan.possible
    assert plan.complete
    assert len(plan) <= others


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in SMALL]
)
def test_all_pairs_take_no_more_rows_than_allpairspy(name: str) -> None:
    check_no_more_rows(name, work=5e5)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_all_pairs_of_a_large_model_take_no_more_rows_than_allpairspy(name: str) -> None:
    check_no_more_rows(name, work=5e6)


@pytest.mark.parametrize("name", RULED)
def test_at_the_rows_of_allpairspy_a_plan_under_rules_covers_more(name: str) -> None:
    model = RULED[name]
    space = Space(tuple(model.values), tuple(map(tuple, model.values.values())))
    rules = parse_rules(model.rules, space.names, space.values)
    plan = collect(None, space, rules, model.rows, work=1e5)
    assert all(model.allows(row) for row in plan.rows)  # pyright: ignore[reportArgumentType]
    assert len(plan) <= model.rows
    assert plan.gains[-1].covered >= model.covered


@pytest.mark.parametrize("name", RULED)
def test_a_plan_without_a_budget_covers_each_pair_that_rules_permit(name: str) -> None:
    model = RULED[name]
    space = Space(tuple(model.values), tuple(map(tuple, model.values.values())))
    rules = parse_rules(model.rules, space.names, space.values)
    plan = collect(None, space, rules, None, work=1e5)
    every = itertools.product(*model.values.values())
    allowed = [line for line in every if model.allows(dict(zip(space.names, line, strict=True)))]
    got = covered([tuple(row.values()) for row in plan.rows], 2)  # type: ignore[misc]
    assert got == covered(allowed, 2)  # type: ignore[arg-type]
    assert plan.complete


@pytest.mark.heavy
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_allpairspy_itself_needs_no_fewer_rows(name: str) -> None:
    pairs = pytest.importorskip("allpairspy", reason="the tool to compare with is not installed")
    sizes, _ = PLAIN[name]
    theirs = pairs.AllPairs([[f"{i}.{j}" for j in range(n)] for i, n in enumerate(sizes)])
    assert len(collect(None, of_sizes(sizes), budget=None)) <= len(list(theirs))


@pytest.mark.heavy
@pytest.mark.parametrize("name", RULED)
def test_allpairspy_itself_covers_no_more_under_rules(name: str) -> None:
    pairs = pytest.importorskip("allpairspy", reason="the tool to compare with is not installed")
    model = RULED[name]
    names = list(model.values)
    theirs = list(
        pairs.AllPairs(
            list(model.values.values()),
            filter_func=lambda row: model.allows(dict(zip(names, row, strict=False))),
        )
    )
    assert len(theirs) == model.rows
    assert len(covered([tuple(row) for row in theirs], 2)) == model.covered


@pytest.mark.parametrize(
    ("sizes", "t", "fewest"),
    [([2, 2, 2], 2, 4), ([3, 3, 3, 3], 2, 9), ([2, 2, 2, 2], 3, 8), ([2] * 5, 4, 16)],
)
def test_known_smallest_arrays_are_found_and_called_exact(
    sizes: list[int], t: int, fewest: int
) -> None:
    plan = collect(None, of_sizes(sizes), budget=None, strength=t)
    assert (len(plan), plan.exact) == (fewest, True)


@settings(max_examples=8)
@given(st.lists(st.integers(2, 3), min_size=3, max_size=4), st.integers(1, 3), st.integers(0, 9))
def test_any_strength_is_covered_to_the_last_interaction(
    sizes: list[int], t: int, seed: int
) -> None:
    check_strength(sizes, t, seed)


@pytest.mark.slow
@settings(max_examples=3)
@given(st.lists(st.integers(2, 4), min_size=4, max_size=6), st.integers(3, 4), st.integers(0, 9))
def test_a_high_strength_of_many_factors_is_covered_to_the_last_interaction(
    sizes: list[int], t: int, seed: int
) -> None:
    check_strength(sizes, t, seed)


def check_strength(sizes: list[int], t: int, seed: int) -> None:
    t = min(t, len(sizes))
    plan = collect(None, of_sizes(sizes), budget=None, strength=t, seed=seed, work=1e4,
                   goals=Goals(connect=0))  # fmt: skip
    lines = [tuple(int(c) for c in line) for line in plan.codes]
    assert len(covered(lines, t)) == all_covered(sizes, t)
    assert len(plan) >= np.prod(sorted(sizes)[-t:])


def test_groups_are_covered_at_their_own_strength() -> None:
    sizes = [2, 3, 2, 3, 2]
    plan = collect(None, of_sizes(sizes), budget=None, groups={("f0", "f1", "f4"): 3}, work=1e4)
    lines = [tuple(int(c) for c in line) for line in plan.codes]
    assert len(covered(lines, 2)) == all_covered(sizes, 2)
    inner = [(a, b, e) for a, b, _, _, e in lines]
    assert len(set(inner)) == 2 * 3 * 2


def test_the_same_seed_gives_the_same_plan_and_another_seed_one_as_complete() -> None:
    space = of_sizes([4] * 6)
    one, again, other = (collect(None, space, budget=None, seed=s, work=2e4) for s in (1, 1, 2))
    assert one.document() == again.document()
    assert other.complete
