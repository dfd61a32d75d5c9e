"""Supports that grew: a start, and what a strategy collected after it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.combinations import Slots, Space, Subsets
from recombine.errors import InvalidRequest
from recombine.supports import Collected, SupportRule
from recombine.supports.collected import STRATEGIES
from recombine.supports.correlated import spread

SPACES: tuple[Space, ...] = (Subsets(12, 3), Slots((5, 5, 5)))
STARTS = ("random", "disconnected", "unpopular", "correlated")


def grown(strategy: str, space: Space = SPACES[1], start: str = "disconnected", **options):
    share = options.pop("held_out", 0.85)
    return Collected(SupportRule(start, share), strategy, **options).build(space, 0)


@given(
    st.sampled_from(SPACES), st.sampled_from(STARTS), st.sampled_from(sorted(STRATEGIES)),
    st.integers(0, 20), st.integers(0, 2**31),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_is_asked_is_never_trained_under_any_strategy(space, start, strategy, budget, seed):
    rule = Collected(SupportRule(start, 0.8), strategy, budget)
    support = rule.build(space, seed)
    assert not np.intersect1d(support.seen, support.tested).size
    assert len(support.drawn) == len(rule.start.build(space, seed).seen) + budget
    assert np.isin(support.again, support.seen).all()
    assert np.array_equal(support.drawn, rule.build(space, seed).drawn)


@pytest.mark.parametrize("space", SPACES)
def test_every_strategy_is_asked_the_same(space: Space) -> None:
    asked = [grown(strategy, space).tested.tolist() for strategy in STRATEGIES]
    assert all(each == asked[0] for each in asked)


def test_the_start_is_part_of_what_is_seen() -> None:
    start = SupportRule("disconnected", 0.85).build(SPACES[1], 0)
    assert np.isin(start.seen, grown("random").seen).all()


def test_one_combination_joins_two_halves() -> None:
    assert not SupportRule("disconnected", 0.85).build(SPACES[1], 0).connected
    assert grown("collect", budget=1).connected
    assert not grown("most frequent", budget=0).connected


def test_pairs_are_covered_faster_than_by_chance_and_no_slower_by_collect() -> None:
    found = {name: grown(name, budget=15).pair_coverage for name in STRATEGIES}
    assert found["pairwise"] > found["random"] > found["more of the same"]
    assert found["collect"] >= found["pairwise"] - 0.03


def test_balance_brings_up_what_was_rare() -> None:
    def least(name: str) -> int:
        return int(grown(name, start="unpopular", held_out=0.7, budget=15).usage.min())

    assert least("balanced") > least("most frequent")


def test_more_of_the_same_adds_rows_and_nothing_new() -> None:
    support = grown("more of the same", budget=10)
    assert len(support.again) == 10
    assert np.array_equal(support.seen, SupportRule("disconnected", 0.85).build(SPACES[1], 0).seen)


def test_a_network_may_name_what_it_wants() -> None:
    start, pool, _ = Collected(SupportRule("random", 0.8), budget=2).parts(SPACES[1], 0)
    wanted = tuple(int(rank) for rank in pool[:2])
    rule = Collected(SupportRule("random", 0.8), "uncertainty", 2, chosen=wanted)
    assert np.array_equal(rule.build(SPACES[1], 0).seen, np.union1d(start.seen, wanted))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Collected(strategy="randon"), "random"),
        (Collected(SupportRule("random", 0.5), budget=400), "use budget=25 or less"),
        (Collected(SupportRule("random", 0.8), tested=0.0), "above 0"),
        (Collected(SupportRule("random", 0.8), "u", 2, chosen=(1,)), "expected 2"),
    ],
)
def test_what_cannot_be_collected_is_refused(rule: Collected, words: str) -> None:
    assert words in (rule.feasible(SPACES[1]) or "")
    with pytest.raises(InvalidRequest):
        rule.build(SPACES[1], 0)


def test_a_chosen_combination_that_is_tested_is_refused() -> None:
    _, _, tested = Collected(SupportRule("random", 0.8), budget=1).parts(SPACES[1], 0)
    rule = Collected(SupportRule("random", 0.8), "u", 1, chosen=(int(tested[0]),))
    with pytest.raises(InvalidRequest, match="not among what may be collected"):
        rule.build(SPACES[1], 0)


@pytest.mark.parametrize("space", SPACES)
def test_a_correlated_start_spreads_less_than_a_random_one(space: Space) -> None:
    near = SupportRule("correlated", 0.8).build(space, 0)
    far = SupportRule("random", 0.8).build(space, 0)
    assert near.connected
    assert spread(space, near.seen).mean() < 0.7 * spread(space, far.seen).mean()
    assert near.pair_coverage < far.pair_coverage
