"""Each split rule: its exact counts, its promises, and what it refuses."""

from __future__ import annotations

import hashlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine._lazy import load
from recombine.combinations import Slots, Subsets
from recombine.errors import InvalidRequest
from recombine.supports import LAWS, REGISTRY, Support, SupportRule

SPACE = Subsets(16, 3)


def members(support: Support) -> set[tuple[int, ...]]:
    return {support.space.describe(rank) for rank in support.seen}


def build(rule: str, held_out: float = 0.25, space=SPACE, seed: int = 0, **options) -> Support:
    return SupportRule(rule, held_out, **options).build(space, seed)


def connected_by_matrix_powers(support: Support) -> bool:
    rows = support.space.indicator(support.seen).astype(int)
    step = ((rows.T @ rows) > 0).astype(int)
    for _ in range(support.space.modules.bit_length()):
        step = (step @ step > 0).astype(int)
    return bool(step.all())


@pytest.mark.parametrize(
    ("rule", "held_out"),
    [
        ("random", 174),
        ("balanced", 174),
        ("popular", 174),
        ("unpopular", 174),
        ("minimal", 174),
        ("disconnected", 173),
        ("non-compositional", 121),
        ("ring-connected", 696 - 48),
        ("half-disconnected", 696 - 16 - 2 * 28),
    ],
)
def test_sixteen_modules_three_active_a_quarter_held_out_gives_the_published_counts(
    rule: str, held_out: int
) -> None:
    assert len(build(rule).held_out) == held_out


def test_the_disconnected_split_is_120_crossing_and_53_more() -> None:
    support = build("disconnected")
    assert support.groups is not None and support.groups.tolist() == [False] + [True] * 15
    held_out = [SPACE.describe(rank) for rank in support.held_out]
    assert sum(0 in combo and len(combo) > 1 for combo in held_out) == 120
    assert len(held_out) == 173


def test_the_disconnected_split_never_loses_a_module() -> None:
    for seed in range(200):
        support = build("disconnected", seed=seed)
        assert support.covered and not support.connected
        assert support.seen[0] == 0 and len(support.held_out) == 173  # rank 0 is module 0 alone


def test_the_disconnected_split_stays_covered_where_almost_nothing_is_left() -> None:
    support = build("disconnected", 0.992)
    assert support.constructed and support.covered and len(support.seen) == 6
    assert support.groups is not None
    sides = [support.groups[list(combo)] for combo in members(support)]
    assert all(side.all() or not side.any() for side in sides)


def test_balanced_usage_differs_by_at_most_one_and_keeps_the_random_law_of_sizes() -> None:
    usages = []
    for seed in range(10):
        support = build("balanced", seed=seed)
        assert np.ptp(support.usage) <= 1 and support.connected and not support.constructed
        usages.append(tuple(support.seen))
    assert len(set(usages)) == 10
    # Singles, pairs and triples are held out in proportion: 16, 120 and 560 of 696.
    share = np.mean([SPACE.sizes(np.asarray(seen)).mean() for seen in usages])
    assert share == pytest.approx((16 + 240 + 1680) / 696, abs=0.02)


@pytest.mark.parametrize("held_out", [0.02, 0.5, 0.9, 0.98, 0.985])
def test_balanced_works_from_nearly_everything_to_nearly_nothing(held_out: float) -> None:
    support = build("balanced", held_out, seed=1)
    assert np.ptp(support.usage) <= 1 and support.connected
    assert len(support.held_out) == int(696 * held_out)


def test_balanced_is_built_up_where_drawing_does_not_connect() -> None:
    supports = [build("balanced", space=Subsets(70, 2), count=69, seed=seed) for seed in range(12)]
    assert any(support.constructed for support in supports)
    assert all(np.ptp(support.usage) <= 1 and support.connected for support in supports)


def test_balanced_does_not_even_out_the_very_set_that_random_draws() -> None:
    shared = []
    for seed in range(5):
        balanced, random = build("balanced", seed=seed), build("random", seed=seed)
        shared.append(np.isin(balanced.held_out, random.held_out).mean())
    assert np.mean(shared) < 0.4  # independent draws share a quarter


def test_non_compositional_holds_out_whatever_uses_the_last_module() -> None:
    support = build("non-compositional")
    assert all(15 in SPACE.describe(rank) for rank in support.held_out)
    assert not support.covered and support.usage[15] == 0 and support.usage[14] > 0


def test_popular_sees_whatever_touches_the_first_modules_and_some_of_the_next() -> None:
    support = build("popular")
    seen = members(support)
    touching = [sum(1 for r in range(696) if min(SPACE.describe(r)) < n) for n in range(17)]
    n = max(n for n in range(17) if touching[n] <= 522)
    assert all(s in seen for s in map(SPACE.describe, range(696)) if min(s) < n)
    assert all(min(s) == n for s in seen if min(s) >= n)


def test_popular_with_hardly_any_combination_is_a_star_around_module_0() -> None:
    for held_out, left in ((0.98, 14), (0.989, 8)):
        support = build("popular", held_out)
        assert support.connected and support.usage[0] == len(support.seen) == left
    assert support.constructed


@pytest.mark.parametrize(("rule", "smallest"), [("unpopular", 2), ("minimal", 1)])
def test_unpopular_is_a_full_core_with_one_link_to_each_other_module(rule, smallest) -> None:
    for held_out in (0.25, 0.9, 0.97):
        support = build(rule, held_out)
        seen = members(support)
        allowed = 696 - int(696 * held_out)
        core = max(n for n in range(smallest, 16) if Subsets(n, min(n, 3)).size + 16 - n <= allowed)
        inside = {s for s in map(SPACE.describe, range(696)) if max(s) < core}
        links = {(0, m) for m in range(core, 16)}
        assert inside | links <= seen and len(seen) == allowed
        assert all(max(s) == core for s in seen - inside - links)
        assert support.connected and support.usage[core + 1 :].tolist() == [1] * (15 - core)


def test_minimal_adds_what_uses_module_0_before_anything_else() -> None:
    support = build("minimal", 0.5)
    core = int(np.flatnonzero(support.usage == 1)[0]) - 1
    added = {s for s in members(support) if max(s) == core} - {(0, core)}
    through_zero = {s for s in map(SPACE.describe, range(696)) if max(s) == core and s[0] == 0}
    without = {s for s in added if 0 not in s}
    assert not without or through_zero <= added | {(0, core)}


@pytest.mark.parametrize("held_out", [0.03, 0.25, 0.6, 0.9, 0.95])
def test_withheld_pairs_hold_out_what_has_them_and_nothing_else(held_out: float) -> None:
    support = build("held-out-pairs", held_out)
    withheld = [set(pair) for pair in support.unseen_pairs.tolist()]
    seen = members(support)
    for combo in map(SPACE.describe, range(696)):
        assert (combo in seen) != any(pair <= set(combo) for pair in withheld)
    assert support.connected
    # One pair is in 15 combinations: the number of pairs decides to within half of that.
    assert abs(len(support.held_out) - int(696 * held_out)) <= 7


def test_few_changed_sees_the_smaller_combinations() -> None:
    support = build("few-changed", 0.8)
    assert members(support) == {s for s in map(SPACE.describe, range(696)) if len(s) <= 2}
    sizes = [len(build("few-changed", f, Subsets(9, 5)).seen) for f in (0.9, 0.7, 0.4, 0.25, 0.01)]
    assert sizes == [45, 129, 255, 255, 255]


def test_ring_and_halves_see_every_single_module_and_their_pairs() -> None:
    ring = {tuple(sorted((i, (i + gap) % 16))) for i in range(16) for gap in (1, 2)}
    halves = {p for h in (range(8), range(8, 16)) for p in itertools.combinations(h, 2)}
    singles = {(m,) for m in range(16)}
    assert members(build("ring-connected")) == singles | ring
    assert members(build("half-disconnected")) == singles | halves
    assert build("ring-connected").connected and not build("half-disconnected").connected


@pytest.mark.parametrize(
    ("law", "count"),
    [
        ("constant", 522),
        ("linear", 522 * 20 // 16),
        ("quadratic", 522 * 400 // 256),
        ("linear-pure", 20),
        ("linear-modules", 160),
        ("linear-modules-active", 480),
        ("quadratic-modules", 400),
        ("quadratic-modules-active", 1200),
    ],
)
def test_counts_follow_their_law_for_random_and_for_balanced(law: str, count: int) -> None:
    space = Subsets(20, 3)
    assert set(LAWS) >= {law}
    support = build("fixed-size", space=space, law=law)
    assert len(support.seen) == count and support.connected
    balanced = build("balanced", space=space, law=law)
    assert len(balanced.seen) == count and np.ptp(balanced.usage) <= 1


def test_a_draw_too_small_to_be_connected_by_chance_is_built_up_and_says_so() -> None:
    support = build("fixed-size", space=Subsets(24, 2), count=23)
    assert len(support.seen) == 23 and support.connected and support.constructed
    assert not build("random", 0.25).constructed


@pytest.mark.parametrize("levels", [(4, 5, 5, 5), (3, 8), (2, 2, 2)])
def test_slots_can_be_split_at_random_and_by_count(levels: tuple[int, ...]) -> None:
    space = Slots(levels)
    support = build("random", 0.25, space=space)
    assert support.connected and len(support.held_out) == int(space.size * 0.25)
    assert space.fewest_connected is not None
    fewest = build("fixed-size", space=space, count=space.fewest_connected)
    assert fewest.connected and len(fewest.seen) == space.fewest_connected


@st.composite
def requests(draw) -> tuple[Subsets, SupportRule]:
    modules = draw(st.integers(2, 9))
    space = Subsets(modules, draw(st.integers(1, modules)))
    rule = draw(st.sampled_from(sorted(REGISTRY)))
    count = draw(st.integers(1, space.size)) if rule == "fixed-size" else None
    return space, SupportRule(rule, draw(st.floats(0.01, 0.99)), count)


@given(requests(), st.integers(0, 2**64))
@settings(max_examples=250, deadline=None)
def test_any_feasible_rule_splits_the_space_and_keeps_its_promises(request, seed) -> None:
    space, asked = request
    rule = load(REGISTRY[asked.rule])
    if asked.feasible(space) is not None:
        with pytest.raises(InvalidRequest):
            asked.build(space, seed)
        return
    support = asked.build(space, seed)
    both = np.concatenate([support.seen, support.held_out])
    assert np.array_equal(np.sort(both), np.arange(space.size))
    assert len(support.seen) and len(support.held_out)
    assert support.covered >= rule.covered and support.connected >= rule.connected
    assert support.connected == connected_by_matrix_powers(support)
    count = asked.seen_count(space)
    assert count is None or len(support.seen) == count
    if asked.rule == "balanced":
        assert np.ptp(support.usage) <= 1
    again = asked.build(space, seed)
    assert np.array_equal(again.seen, support.seen)


@pytest.mark.parametrize("rule", sorted(REGISTRY))
def test_seeds_differ_exactly_where_the_rule_is_random(rule: str) -> None:
    count = 300 if rule == "fixed-size" else None
    first, second = (build(rule, count=count, seed=seed) for seed in (0, 1))
    assert np.array_equal(first.seen, second.seen) != load(REGISTRY[rule]).random


# SHA-256 of the seen ranks: 16 modules, a quarter held out, seed 1; 12 modules, 0.9, seed 2.
DRAWS = {
    "random": ("fa37324695684b2f", "d90948b6e9f0b1fe"),
    "fixed-size": ("b74584e21ae0ef13", "8579f7aeea594322"),
    "balanced": ("77fb06580af4f091", "24e86db7b3136267"),
    "popular": ("1346a47a62002e67", "6c2b1b6111d0d2be"),
    "unpopular": ("fcd72d407f0fe564", "22e4acf0c09e8a28"),
    "minimal": ("75546e6d5b7c03f9", "22e4acf0c09e8a28"),
    "disconnected": ("02cafd3fddf017ee", "0dee9c7eb4f3149c"),
    "half-disconnected": ("48ce5503dff4fdfb", "6ddc8805ca104afe"),
    "ring-connected": ("c075b88d277690c1", "7daafe22f832d0d7"),
    "non-compositional": ("662779f134f38050", "8332efea5cd25e58"),
    "correlated": ("3bb6ef9df7a3e7e8", "4a3f107cbb274e4e"),
}


@pytest.mark.parametrize("rule", DRAWS)
def test_a_version_of_a_rule_draws_the_same_for_ever(rule: str) -> None:
    count = 60 if rule == "fixed-size" else None
    drawn = (
        build(rule, 0.25, seed=1, count=count),
        build(rule, 0.9, Subsets(12, 3), seed=2, count=count),
    )
    sums = tuple(hashlib.sha256(support.seen.tobytes()).hexdigest()[:16] for support in drawn)
    assert sums == DRAWS[rule]


@given(st.integers(2, 9), st.data())
@settings(max_examples=100, deadline=None)
def test_what_a_support_says_of_itself_agrees_with_its_task_matrix(modules, data) -> None:
    space = Subsets(modules, data.draw(st.integers(1, modules)))
    ranks = st.sets(st.integers(0, space.size - 1), min_size=1, max_size=40)
    support = Support(space, np.asarray(sorted(data.draw(ranks)), np.uint32))
    rows = space.indicator(support.seen).astype(int)
    assert support.usage.tolist() == rows.sum(axis=0).tolist()
    assert support.covered == bool(rows.any(axis=0).all())
    assert support.connected == connected_by_matrix_powers(support)
    assert support.latent_rank == np.linalg.matrix_rank(rows)
    by_size = [len(space.describe(rank)) for rank in support.held_out]
    assert support.held_out_by_size == {n: by_size.count(n) for n in set(by_size)}
    same = support.components[:, None] == support.components[None, :]
    reach = np.linalg.matrix_power((rows.T @ rows + np.eye(modules, dtype=int)) > 0, modules)
    assert np.array_equal(same, reach > 0)
    seen = [set(space.describe(rank)) for rank in support.seen]
    for parts, share in ((2, support.pair_coverage), (3, support.triple_coverage)):
        possible = list(itertools.combinations(range(modules), parts))
        shown = sum(any(set(part) <= combo for combo in seen) for part in possible)
        assert share == (None if space.active < parts else pytest.approx(shown / len(possible)))
    summary = json.loads(json.dumps(support.summary()))
    assert summary["usage"] == support.usage.tolist() and "levels" not in summary


def test_a_ring_of_pairs_alone_cannot_tell_its_modules_apart() -> None:
    space = Subsets(6, 2)
    pairs = space.rank([[i, (i + 1) % 6] for i in range(6)])
    assert Support(space, pairs).latent_rank == 5
    assert Support(space, np.append(pairs, 0)).latent_rank == 6


@pytest.mark.parametrize(
    ("asked", "space", "says"),
    [
        (SupportRule("poplar"), SPACE, "did you mean 'popular'"),
        (SupportRule(held_out=0.0), SPACE, "above 0 and below 1"),
        (SupportRule(held_out=1.0), SPACE, "above 0 and below 1"),
        (SupportRule(held_out=float("nan")), SPACE, "above 0 and below 1"),
        (SupportRule(held_out="much"), SPACE, "above 0 and below 1"),  # type: ignore[arg-type]
        (SupportRule(held_out=0.99), SPACE, r"leaves 7; .* at least 8: use held-out 0.989 or less"),
        (SupportRule(held_out=0.001), SPACE, r"held out: use held-out 0.002 or more"),
        (SupportRule("balanced", 0.99), SPACE, "at least 8"),
        (SupportRule("popular", 0.99), SPACE, "at least 8"),
        (SupportRule("minimal", 0.98), SPACE, "at least 16: use held-out 0.978 or less"),
        (SupportRule("unpopular", 0.98), SPACE, "at least 17: use held-out 0.976 or less"),
        (SupportRule("disconnected", 0.1), SPACE, "use held-out 0.173 or more"),
        (SupportRule("disconnected", 0.995), SPACE, "at least 6: use held-out 0.992 or less"),
        (SupportRule("random"), Subsets(4, 1), "use active=2 or more"),
        (SupportRule("disconnected"), Subsets(4, 1), "use active=2 or more"),
        (SupportRule("random"), Subsets(2, 2), "use held-out 0.334 or more"),
        (SupportRule("half-disconnected"), Subsets(7, 2), "odd; use 8"),
        (SupportRule("ring-connected"), Subsets(5, 2), "modules=6 or more"),
        (SupportRule("held-out-pairs", 0.01), SPACE, "single pair .* 15: use held-out 0.022"),
        (SupportRule("held-out-pairs", 0.96), SPACE, "make 31: use held-out 0.956 or less"),
        (SupportRule("held-out-pairs"), Subsets(2, 2), "use more modules"),
        (SupportRule("few-changed"), Subsets(5, 2), "use active=3 or more"),
        (SupportRule("random", count=5), SPACE, "takes no count"),
        (SupportRule("random", law="linear"), SPACE, "takes no law"),
        (SupportRule("fixed-size"), SPACE, "give count="),
        (SupportRule("fixed-size", count=7), SPACE, "use count=8 or more"),
        (SupportRule("fixed-size", count=696), SPACE, "use count=695 or less"),
        (SupportRule("fixed-size", count=0), SPACE, "at least 1"),
        (SupportRule("fixed-size", count=9, law="linear"), SPACE, "only one"),
        (SupportRule("fixed-size", law="liner"), SPACE, "did you mean 'linear'"),
        (SupportRule("fixed-size", law="quadratic-modules"), Subsets(8, 2), "count=35 or less"),
        (SupportRule("fixed-size", law="linear"), Slots((3, 3)), "for slots"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type_instead(asked, space, says) -> None:
    with pytest.raises(InvalidRequest, match=says):
        asked.check(space)


@given(requests())
@settings(max_examples=150, deadline=None)
def test_the_share_or_count_an_error_suggests_is_itself_feasible(request) -> None:
    space, asked = request
    reason = asked.feasible(space) or ""
    if "use held-out " in reason:
        share = float(reason.split("use held-out ")[1].split()[0])
        assert 0 < share < 1 and SupportRule(asked.rule, share).feasible(space) is None
    if "use count=" in reason:
        count = int(reason.split("use count=")[1].split()[0])
        assert SupportRule(asked.rule, count=count).feasible(space) is None


def test_206_cells_of_the_published_scaling_grid_cannot_be_connected() -> None:
    shares = (0.9, 0.95, 0.98, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.99975, 0.9999)
    shares += (0.99995, 0.999975, 0.99999, 0.999995, 0.999999)
    grid = itertools.product(range(10, 29, 2), (4, 5, 6), shares)
    refused = [SupportRule("balanced", f).feasible(Subsets(m, k)) for m, k, f in grid]
    assert sum(reason is not None for reason in refused) == 206


def test_bad_seeds_and_bad_ranks_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="seed=-1"):
        SupportRule().build(SPACE, -1)
    with pytest.raises(InvalidRequest, match="expected 0 to 695"):
        Support(SPACE, np.asarray([696]))
    with pytest.raises(InvalidRequest, match="at least one rank"):
        Support(SPACE, np.asarray([], np.uint32))
