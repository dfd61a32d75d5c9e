"""How new a held-out combination is, against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.combinations import Slots, Subsets
from recombine.errors import InvalidRequest
from recombine.supports import LEVELS, Support, SupportRule, novelty


def brute_force(support: Support, rank: int) -> tuple[int, int, int, int, int, int]:
    """(unseen pairs, unseen triples, rarest usage, distance, nearest, level) the slow way."""
    space = support.space
    seen = [set(space.describe(r)) for r in support.seen]
    combo = space.describe(rank)

    def unseen(parts: int) -> int:
        return sum(
            not any(set(part) <= s for s in seen) for part in itertools.combinations(combo, parts)
        )

    def reach(start: int) -> dict[int, int]:
        steps, frontier = {start: 0}, {start}
        while frontier:
            near = {m for s in seen if s & frontier for m in s} - set(steps)
            steps |= {m: max(steps.values()) + 1 for m in near}
            frontier = near
        return steps

    rarest = min(sum(m in s for s in seen) for m in combo)
    paths = [reach(a).get(b) for a, b in itertools.combinations(combo, 2)]
    lost = rarest == 0 or None in paths
    distance = -1 if lost else max((p for p in paths if p is not None), default=0)
    nearest = min(len(s ^ set(combo)) for s in seen)
    if isinstance(space, Slots):
        values = space.values([rank])[0]
        nearest = min(int(np.sum(values != other)) for other in space.values(support.seen))
    level = 4 if rarest == 0 else 3 if lost else 2 if unseen(2) else 1 if unseen(3) else 0
    return unseen(2), unseen(3), rarest, distance, nearest, level


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_novelty_agrees_with_brute_force(data) -> None:
    modules = data.draw(st.integers(1, 7))
    space = data.draw(
        st.sampled_from([Subsets(modules, k) for k in range(1, modules + 1)])
        | st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda n: Slots(tuple(n)))
    )
    ranks = data.draw(st.sets(st.integers(0, space.size - 1), min_size=1, max_size=12))
    support = Support(space, np.asarray(sorted(ranks), np.uint32))
    found = novelty(support)
    assert found.nearest is not None
    assert np.array_equal(found.ranks, support.held_out)
    rows = zip(
        found.unseen_pairs,
        found.unseen_triples,
        found.rarest_usage,
        found.distance,
        found.nearest,
        found.level,
        strict=True,
    )
    for rank, row in zip(found.ranks, rows, strict=True):
        assert tuple(int(x) for x in row) == brute_force(support, int(rank))


def test_each_split_rule_holds_out_the_kind_of_novelty_it_is_named_for() -> None:
    space = Subsets(16, 3)
    kinds = {
        rule: novelty(SupportRule(rule).build(space, 0)).counts()
        for rule in ("disconnected", "non-compositional", "ring-connected", "half-disconnected")
    }
    assert kinds["disconnected"]["modules never linked"] == 120
    assert kinds["non-compositional"] == dict.fromkeys(LEVELS, 0) | {"a new module": 121}
    assert kinds["ring-connected"]["modules never linked"] == 0
    # Every triple of a ring is new; only i, i+1, i+2 has all its pairs seen.
    assert kinds["ring-connected"]["a new triple"] == 16
    # Inside a half all pairs are seen, so its 56 triples are new as triples only.
    assert kinds["half-disconnected"]["a new triple"] == 2 * 56


def test_a_held_out_single_module_that_was_seen_in_company_has_nothing_new_inside() -> None:
    space = Subsets(4, 2)
    support = Support(space, space.rank([[0, 1], [1, 2], [2, 3]]))
    found = novelty(support, [0])
    assert (found.level[0], found.distance[0], found.rarest_usage[0]) == (0, 0, 1)
    assert novelty(support, space.rank([[0, 3]])).distance[0] == 3


def test_distances_to_the_nearest_seen_combination_are_left_out_when_too_many() -> None:
    support = SupportRule().build(Subsets(16, 3), 0)
    assert novelty(support, limit=100).nearest is None
    nearest = novelty(support).nearest
    assert nearest is not None and nearest.min() >= 1


def test_asking_for_a_few_at_a_time_gives_the_same_as_asking_for_all() -> None:
    support = SupportRule("ring-connected").build(Subsets(9, 4), 0)
    whole = novelty(support)
    parts = [novelty(support, support.held_out[i : i + 7]) for i in range(0, 200, 7)]
    level = np.concatenate([part.level for part in parts])
    assert np.array_equal(level, whole.level[: len(level)])


def test_too_many_modules_for_a_table_of_triples_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="table of all triples"):
        novelty(Support(Subsets(2000, 3), np.asarray([0], np.uint32)), [1])


def test_pairs_of_many_modules_need_no_table_of_triples() -> None:
    space = Subsets(1500, 2)
    support = Support(space, space.rank([[0, 1], [1, 2]]))
    found = novelty(support, space.rank([[0, 2], [2, 1499]]))
    assert found.unseen_triples.tolist() == [0, 0] and found.distance.tolist() == [2, -1]


def test_the_triples_of_hundreds_of_modules_are_those_of_brute_force() -> None:
    space = Slots((90, 100, 110))
    support = SupportRule("fixed-size", count=30_000).build(space, 0)
    seen = set(map(tuple, space.values(support.seen)))
    chosen = support.held_out[::4001]
    found = novelty(support, chosen, limit=0)
    assert found.unseen_triples.tolist() == [1] * len(chosen)
    assert novelty(support, support.seen[::301], limit=0).unseen_triples.max() == 0
    left, middle, right = ({(v[i], v[j]) for v in seen} for i, j in ((0, 1), (0, 2), (1, 2)))
    for (a, b, c), pairs in zip(space.values(chosen), found.unseen_pairs, strict=True):
        assert pairs == ((a, b) not in left) + ((a, c) not in middle) + ((b, c) not in right)
