"""The rules on tasks of one value per factor: exact counts, promises and refusals."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine._lazy import load
from recombine.combinations import Slots
from recombine.errors import InvalidRequest
from recombine.supports import REGISTRY, Support, SupportRule, novelty

GOALS = Slots((4, 5, 5, 5))
FOR_SLOTS = (
    "random",
    "fixed-size",
    "balanced",
    "popular",
    "unpopular",
    "disconnected",
    "non-compositional",
    "held-out-pairs",
    "correlated",
    "few-changed",
)


def build(rule: str, held_out: float = 0.25, space=GOALS, seed: int = 0, **options) -> Support:
    return SupportRule(rule, held_out, **options).build(space, seed)


def values(support: Support) -> list[tuple[int, ...]]:
    return [tuple(int(v) for v in row) for row in _space(support).values(support.seen)]


def _space(support: Support) -> Slots:
    assert isinstance(support.space, Slots)
    return support.space


def linked(combos: list[tuple[int, ...]], levels: tuple[int, ...]) -> bool:
    """Whether these combinations reach every value of every factor from one of them."""
    reached, todo = set(enumerate(combos[0])), list(combos[1:])
    while near := [c for c in todo if reached & set(enumerate(c))]:
        todo = [c for c in todo if c not in near]
        reached.update(pair for c in near for pair in enumerate(c))
    return len(reached) == sum(levels)


@st.composite
def requests(draw) -> tuple[Slots, SupportRule]:
    space = Slots(tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))))
    rule = draw(st.sampled_from(sorted(REGISTRY)))
    count = draw(st.integers(1, space.size)) if rule == "fixed-size" else None
    return space, SupportRule(rule, draw(st.floats(0.01, 0.99)), count)


@given(requests(), st.integers(0, 2**64))
@settings(max_examples=300, deadline=None)
def test_any_feasible_rule_splits_the_space_and_keeps_its_promises(request, seed) -> None:
    space, asked = request
    rule = load(REGISTRY[asked.rule]).on(space)
    if (reason := asked.feasible(space)) is not None:
        assert (asked.rule in FOR_SLOTS) != ("for slots use 'random'" in reason)
        with pytest.raises(InvalidRequest):
            asked.build(space, seed)
        return
    support = asked.build(space, seed)
    both = np.concatenate([support.seen, support.held_out])
    assert np.array_equal(np.sort(both), np.arange(space.size))
    assert len(support.seen) and len(support.held_out)
    assert support.covered >= rule.covered and support.connected >= rule.connected
    assert support.connected == linked(values(support), space.levels)
    count = asked.seen_count(space)
    assert count is None or len(support.seen) == count
    if asked.rule == "disconnected":
        assert not support.connected and support.covered and support.groups is not None
        sides = support.groups[space.unrank(support.seen)]
        assert np.all(sides.all(axis=1) | ~sides.any(axis=1))
        assert all(0 < g.sum() < len(g) for g in np.split(support.groups, space.starts[1:]))
    if asked.rule == "balanced":
        assert support.usage_by_factor is not None
        assert all(max(usage) - min(usage) <= 1 for usage in support.usage_by_factor)
    if asked.rule == "non-compositional":
        assert not support.covered and set(novelty(support).level) == {4}
    assert np.array_equal(asked.build(space, seed).seen, support.seen)


@given(requests())
@settings(max_examples=200, deadline=None)
def test_the_share_or_count_an_error_suggests_is_itself_feasible(request) -> None:
    space, asked = request
    reason = asked.feasible(space) or ""
    if "use held-out " in reason:
        share = float(reason.split("use held-out ")[1].split()[0])
        assert 0 < share < 1 and SupportRule(asked.rule, share).feasible(space) is None
    if "use count=" in reason:
        count = int(reason.split("use count=")[1].split()[0])
        assert SupportRule(asked.rule, count=count).feasible(space) is None


@pytest.mark.parametrize("rule", FOR_SLOTS)
def test_seeds_differ_exactly_where_the_rule_is_random(rule: str) -> None:
    count = 300 if rule == "fixed-size" else None
    first, second = (build(rule, 0.7, count=count, seed=seed) for seed in (0, 1))
    differ = not np.array_equal(first.seen, second.seen)
    assert differ == load(REGISTRY[rule]).on(GOALS).random


@pytest.mark.parametrize(
    ("held_out", "cut"),
    [
        (0.614, (1, 1, 1, 1)),
        (0.7, (1, 1, 1, 1)),
        (0.708, (1, 2, 1, 1)),
        (0.8, (1, 2, 2, 1)),
        (0.99, (2, 2, 2, 2)),
    ],
)
def test_the_share_decides_where_the_factors_are_cut(held_out: float, cut) -> None:
    support = build("disconnected", held_out)
    assert support.groups is not None
    first = [(~group).sum() for group in np.split(support.groups, GOALS.starts[1:])]
    assert tuple(first) == cut
    within = [c for c in itertools.product(*map(range, GOALS.levels)) if _one_side(c, cut)]
    assert set(values(support)) <= set(within)
    held = int(500 * held_out)
    assert len(support.held_out) == held >= 500 - len(within)
    crossing = novelty(support).counts()["modules never linked"]
    assert crossing >= 500 - len(within)


def _one_side(combo: tuple[int, ...], cut: tuple[int, ...]) -> bool:
    return len({value < size for value, size in zip(combo, cut, strict=True)}) == 1


def test_the_disconnected_split_stays_covered_where_almost_nothing_is_left() -> None:
    space = Slots((9, 9, 9))
    support = build("disconnected", 0.987, space)
    assert len(support.seen) == 10 and support.covered and support.constructed


def test_non_compositional_holds_out_the_last_value_of_the_factor_with_the_most() -> None:
    support = build("non-compositional")
    assert set(values(support)) == {
        c for c in itertools.product(*map(range, GOALS.levels)) if c[1] != 4
    }


@pytest.mark.parametrize("held_out", [0.04, 0.08, 0.25, 0.6, 0.9, 0.96])
@pytest.mark.parametrize("seed", [0, 1])
def test_withheld_pairs_hold_out_what_has_them_and_nothing_else(held_out, seed) -> None:
    support = build("held-out-pairs", held_out, seed=seed)
    withheld = [set(pair) for pair in support.unseen_pairs.tolist()]
    assert all(GOALS.factors[a] != GOALS.factors[b] for a, b in support.unseen_pairs)
    seen = set(support.seen.tolist())
    for rank in range(500):
        assert (rank in seen) != any(pair <= set(GOALS.describe(rank)) for pair in withheld)
    assert linked(values(support), GOALS.levels)
    assert abs(len(support.held_out) - int(500 * held_out)) <= 20  # the smallest pair's number
    assert set(novelty(support).level) == {2}


def test_one_pair_of_two_factors_is_withheld_for_all_values_of_the_others() -> None:
    support = build("held-out-pairs", 0.04)
    assert len(support.held_out) == 20 and len(support.unseen_pairs) == 1


def test_popular_sees_all_that_has_a_value_0_and_draws_the_rest() -> None:
    touching = {c for c in itertools.product(*map(range, GOALS.levels)) if 0 in c}
    seen = set(values(build("popular", 0.25)))
    assert touching < seen and len(touching) == 500 - 3 * 4 * 4 * 4 and len(seen) == 375
    # Fewer than these: the value 0 of the first factors first, then some with that of the next.
    seen = set(values(build("popular", 0.5)))
    first_two = {c for c in touching if c[0] == 0 or c[1] == 0}
    assert first_two < seen and all(c[2] == 0 for c in seen - first_two)


@pytest.mark.parametrize(("count", "levels"), [(16, (4, 5, 5, 5)), (13, (4, 5, 5)), (9, (5, 5))])
def test_popular_with_hardly_any_combination_is_a_star_around_the_values_0(count, levels) -> None:
    space = Slots(levels)
    support = build("popular", 1 - (count - 0.5) / space.size, space)
    assert len(support.seen) == count and support.connected
    assert all(0 in combo for combo in values(support))


@pytest.mark.parametrize("held_out", [0.25, 0.5, 0.9, 0.96])
def test_unpopular_is_a_full_core_with_each_other_value_once(held_out: float) -> None:
    support = build("unpopular", held_out)
    seen, usage = set(values(support)), support.usage_by_factor
    assert usage is not None and len(seen) == 500 - int(500 * held_out)
    # Values are rare from some value on; only one value is neither rare nor in the core.
    rare = [sum(n == 1 for n in factor) for factor in usage]
    often = [len(factor) - n for factor, n in zip(usage, rare, strict=True)]
    assert sum(rare) >= 1
    for factor, first in zip(usage, often, strict=True):
        assert set(factor[first:]) <= {1}
    full = [tuple(m - (f == partial) for f, m in enumerate(often)) for partial in (None, *range(4))]
    assert any(set(itertools.product(*map(range, core))) <= seen for core in full)
    for factor, first in enumerate(often):
        for value in range(first, GOALS.levels[factor]):
            assert tuple(value if f == factor else 0 for f in range(4)) in seen


@pytest.mark.parametrize("held_out", [0.05, 0.25, 0.5, 0.9, 0.97, 0.986])
def test_balanced_uses_the_values_of_a_factor_equally_often(held_out: float) -> None:
    support = build("balanced", held_out, seed=3)
    assert support.usage_by_factor is not None and support.connected
    assert all(max(usage) - min(usage) <= 1 for usage in support.usage_by_factor)
    assert len(support.seen) == 500 - int(500 * held_out)


@pytest.mark.parametrize("levels", [(6, 6), (3, 8), (5, 5, 5), (2, 9, 4), (7, 7, 7, 7)])
def test_balanced_is_built_up_from_the_fewest_combinations_that_connect(levels) -> None:
    space = Slots(levels)
    for count in (space.fewest_connected, space.fewest_connected + 1):
        support = build("balanced", space=space, count=count)
        assert len(support.seen) == count and linked(values(support), levels)
        assert support.usage_by_factor is not None
        assert all(max(usage) - min(usage) <= 1 for usage in support.usage_by_factor)


@pytest.mark.parametrize(("held_out", "changes"), [(0.9, 1), (0.8, 2), (0.65, 2), (0.25, 3)])
def test_few_changed_sees_few_factors_away_from_value_0(held_out: float, changes: int) -> None:
    support = build("few-changed", held_out)
    every = itertools.product(*map(range, GOALS.levels))
    assert set(values(support)) == {c for c in every if sum(v != 0 for v in c) <= changes}
    assert support.connected


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(max_examples=80, deadline=None)
def test_what_a_support_says_of_its_factors_agrees_with_a_listing(levels, data) -> None:
    space = Slots(tuple(levels))
    ranks = st.sets(st.integers(0, space.size - 1), min_size=1, max_size=30)
    support = Support(space, np.asarray(sorted(data.draw(ranks)), np.uint32))
    combos = values(support)
    usage = [[sum(c[f] == v for c in combos) for v in range(n)] for f, n in enumerate(levels)]
    assert support.usage_by_factor == usage
    assert support.covered == all(n > 0 for factor in usage for n in factor)
    assert support.connected == linked(combos, space.levels)
    for parts, share in ((2, support.pair_coverage), (3, support.triple_coverage)):
        places = list(itertools.combinations(range(len(levels)), parts))
        possible = sum(math.prod(levels[f] for f in place) for place in places)
        shown = sum(len({tuple(c[f] for f in place) for c in combos}) for place in places)
        assert share == (pytest.approx(shown / possible) if possible else None)
    summary = json.loads(json.dumps(support.summary()))
    assert summary["levels"] == levels and summary["usage_by_factor"] == usage
    assert summary["pair_coverage"] == support.pair_coverage


def test_the_nearest_seen_combination_is_counted_in_changed_factors() -> None:
    support = Support(GOALS, GOALS.rank([GOALS.starts]))  # value 0 of everything
    found = novelty(support)
    assert found.nearest is not None
    assert np.array_equal(found.nearest, np.count_nonzero(GOALS.values(found.ranks), axis=1))


def test_a_factor_with_one_value_changes_nothing_but_the_module_numbers() -> None:
    plain, padded = Slots((4, 5)), Slots((1, 4, 1, 5))
    for rule in ("balanced", "popular", "unpopular", "held-out-pairs", "few-changed"):
        seen = [build(rule, 0.4, space, seed=2).seen for space in (plain, padded)]
        assert np.array_equal(*seen)


@pytest.mark.parametrize(
    ("asked", "space", "says"),
    [
        (SupportRule("ring-connected"), GOALS, "'correlated' or 'few-changed'"),
        (SupportRule("minimal"), GOALS, "for slots use 'random', 'fixed-size'"),
        (SupportRule("random"), Slots((5,)), "use two factors or more"),
        (SupportRule("random", 0.99), GOALS, "19 values of 4 factors needs at least 6: use held-o"),
        (SupportRule("random"), Slots((1, 5)), "use more values, or more factors"),
        (SupportRule("balanced"), Slots((5,)), r"two factors .* got levels=\(5,\)"),
        (SupportRule("balanced", 0.99), GOALS, "at least 6: use held-out 0.988 or less"),
        (SupportRule("popular", 0.99), GOALS, "at least 6"),
        (SupportRule("unpopular", 0.97), GOALS, "at least 16: use held-out 0.968 or less"),
        (SupportRule("disconnected"), GOALS, "holds out 307: use held-out 0.614 or more"),
        (SupportRule("disconnected", 0.995), GOALS, "at least 5: use held-out 0.99 or less"),
        (SupportRule("disconnected"), Slots((4, 1, 5)), r"leave it out: levels=\(4, 5\)"),
        (SupportRule("non-compositional"), Slots((1, 5)), "two factors"),
        (SupportRule("held-out-pairs", 0.03), GOALS, "holds out 20: use held-out 0.04 or more"),
        (SupportRule("held-out-pairs", 0.99), GOALS, "at least 6: use held-out 0.988 or less"),
        (SupportRule("held-out-pairs"), Slots((1, 5)), "two factors"),
        (SupportRule("held-out-pairs", count=9), GOALS, "takes no count"),
        (SupportRule("few-changed"), Slots((5,)), "two factors"),
        (SupportRule("balanced", law="linear"), GOALS, "for slots"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type_instead(asked, space, says) -> None:
    with pytest.raises(InvalidRequest, match=says):
        asked.check(space)


def test_the_rules_named_in_a_refusal_are_those_that_work() -> None:
    works = {
        rule: "for slots use" not in (SupportRule(rule, 0.7, count=c).feasible(GOALS) or "")
        for rule in REGISTRY
        for c in (100 if rule == "fixed-size" else None,)
    }
    assert tuple(rule for rule in works if works[rule]) == tuple(
        rule for rule in REGISTRY if rule in FOR_SLOTS
    )
    refusal = SupportRule("half-disconnected").feasible(GOALS) or ""
    assert all(repr(rule) in refusal for rule in FOR_SLOTS)
