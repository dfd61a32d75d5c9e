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


@pytest.mark.parametrize("unseen", [0.8, 0.87, 0.93])
def test_as_many_rows_as_it_asks_for_do_settle_it(unseen: float) -> None:
    settled = asked = 0
    for seed in range(60):
        first = decide(*combinations(0.95, unseen, 12, rows=10, seed=seed))
        if first.verdict != "not enough data":
            continue
        asked += 1
        assert first.more_combinations is not None
        # The true gap is known here, unlike to the card: ask for what the truth would take.
        away = abs(0.95 - unseen - 0.05)
        enough = int(12 * (0.13 / away) ** 2) + first.more_combinations
        again = decide(*combinations(0.95, unseen, enough, rows=10, seed=1000 + seed))
        settled += again.verdict != "not enough data"
    assert asked and settled >= 0.9 * asked


def test_a_model_on_the_line_is_called_so() -> None:
    found = decide(*combinations(0.95, 0.9, 60, rows=50))
    assert found.verdict == "not enough data" and "on the line" in found.sentence


@given(st.integers(0, 2**31), st.floats(0.85, 1.0), st.integers(8, 60))
@settings(max_examples=60, deadline=None)
def test_the_gap_agrees_with_welch_in_scipy(seed: int, unseen: float, count: int) -> None:
    score, new, _ = combinations(0.9, unseen, count, seed=seed)
    a, b = score[~new], score[new]
    if min(a.var(), b.var()) < 1e-12:
        return
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    ours = _welch(a, b, 0.95)
    assert np.allclose((ours.low, ours.high), (theirs.low, theirs.high))


def test_wrong_verdicts_are_as_rare_as_the_level_says() -> None:
    verdicts = [decide(*combinations(0.9, 0.9, 30, rows=5, seed=s)).verdict for s in range(400)]
    assert verdicts.count("does not compose") <= 0.02 * 400
    verdicts = [decide(*combinations(0.95, 0.85, 30, rows=5, seed=s)).verdict for s in range(400)]
    assert verdicts.count("composes") <= 0.02 * 400
