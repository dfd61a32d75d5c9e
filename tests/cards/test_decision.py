"""The sentence a card opens with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recombine.cards import decide
from recombine.cards.decision import _welch


def combinations(seen: float, unseen: float, count: int, rows: int = 20, seed: int = 0):
    """Scores of as many trained as new combinations, each the mean of so many rows."""
    rng = np.random.default_rng(seed)
    new = np.arange(2 * count) >= count
    score = rng.binomial(rows, np.where(new, unseen, seen)) / rows
    return score, new, np.full(2 * count, float(rows))


def test_a_model_as_good_on_new_combinations_composes() -> None:
    found = decide(*combinations(0.95, 0.95, 200))
    assert found.verdict == "composes" and found.sentence.startswith("Composes: 0.9")


def test_a_model_that_fails_on_new_combinations_does_not() -> None:
    found = decide(*combinations(0.95, 0.5, 40))
    assert found.verdict == "does not compose"
    assert found.gap is not None and found.gap.low > 0.05


def test_a_model_that_fails_on_trained_ones_says_nothing_about_composing() -> None:
    assert decide(*combinations(0.5, 0.5, 100)).verdict == "does not know the parts"


def test_all_right_on_a_handful_is_not_enough() -> None:
    found = decide(*combinations(1.0, 1.0, 6))
    assert found.verdict == "not enough data" and found.more_combinations > 0


@pytest.mark.parametrize(("trained", "new"), [(3, 50), (50, 3), (0, 10), (10, 0), (0, 0)])
def test_too_few_on_either_side_says_how_many_are_missing(trained: int, new: int) -> None:
    score = np.ones(trained + new)
    found = decide(score, np.arange(trained + new) >= trained, score)
    assert found.verdict == "not enough data" and found.more_combinations >= 2
    side = "new" if new < 5 else "trained"
    assert f"more {side} combinations" in found.sentence


@pytest.mark.parametrize("unseen", [0.75, 0.95])
def test_as_many_combinations_as_it_asks_for_settle_it_mostly(unseen: float) -> None:
    settled = asked = 0
    for seed in range(80):
        score, new, rows = combinations(0.95, unseen, 25, rows=8, seed=seed)
        first = decide(score, new, rows)
        if first.verdict != "not enough data":
            continue
        asked += 1
        assert first.more_combinations is not None and first.more_rows is not None
        more = first.more_combinations
        trained = max(0, round(first.more_rows / 8) - more)
        rng = np.random.default_rng(5000 + seed)
        fresh = rng.binomial(8, np.r_[np.full(more, unseen), np.full(trained, 0.95)]) / 8
        again = decide(
            np.r_[score, fresh], np.r_[new, np.ones(more, bool), np.zeros(trained, bool)],
            np.full(len(score) + len(fresh), 8.0),
        )  # fmt: skip
        settled += again.verdict != "not enough data"
    assert asked >= 10 and settled >= 0.6 * asked


@pytest.mark.parametrize(("gap", "count"), [(0.1, 12), (0.1, 20), (0.05, 20)])
def test_a_few_combinations_that_fail_altogether_are_not_overlooked(gap: float, count: int) -> None:
    wrong = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        trained = rng.binomial(20, 0.95, 60) / 20
        lost = rng.random(count) < gap / 0.95
        unseen = np.where(lost, 0.0, rng.binomial(20, 0.95, count) / 20)
        new = np.arange(60 + count) >= 60
        verdict = decide(np.r_[trained, unseen], new, np.full(60 + count, 20.0)).verdict
        wrong += verdict == "composes"
    assert wrong <= 0.02 * 300


def test_a_model_on_the_line_is_called_so() -> None:
    found = decide(*combinations(0.95, 0.9, 150, rows=50))
    assert found.verdict == "not enough data" and "on the line" in found.sentence


@given(st.integers(0, 2**31), st.floats(0.85, 1.0), st.integers(8, 60))
@settings(max_examples=60, deadline=None)
def test_the_gap_is_at_least_as_wide_as_welch_in_scipy(
    seed: int, unseen: float, count: int
) -> None:
    score, new, _ = combinations(0.9, unseen, count, seed=seed)
    a, b = score[~new], score[new]
    if min(a.var(), b.var()) < 1e-12:
        return
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    ours = _welch(a, b, 0.95)
    assert ours.estimate == pytest.approx(a.mean() - b.mean())
    assert ours.low <= theirs.low + 1e-9 and ours.high >= theirs.high - 1e-9


def test_wrong_verdicts_are_as_rare_as_the_level_says() -> None:
    verdicts = [decide(*combinations(0.9, 0.9, 30, rows=5, seed=s)).verdict for s in range(400)]
    assert verdicts.count("does not compose") <= 0.02 * 400
    verdicts = [decide(*combinations(0.95, 0.85, 30, rows=5, seed=s)).verdict for s in range(400)]
    assert verdicts.count("composes") <= 0.02 * 400
