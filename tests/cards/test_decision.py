"""The sentence a card opens with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recombine.cards import decide
from recombine.cards.decision import Left, _gap, _Side, decide_answered


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
    ours = _gap(_Side(a, np.ones(count)), _Side(b, np.ones(count)), 0.95)
    assert ours.estimate == pytest.approx(a.mean() - b.mean())
    assert ours.low <= theirs.low + 1e-9 and ours.high >= theirs.high - 1e-9


def test_wrong_verdicts_are_as_rare_as_the_level_says() -> None:
    verdicts = [decide(*combinations(0.9, 0.9, 30, rows=5, seed=s)).verdict for s in range(400)]
    assert verdicts.count("does not compose") <= 0.02 * 400
    verdicts = [decide(*combinations(0.95, 0.85, 30, rows=5, seed=s)).verdict for s in range(400)]
    assert verdicts.count("composes") <= 0.02 * 400


def test_a_space_that_is_wholly_evaluated_can_be_decided_however_small() -> None:
    new = np.arange(100) >= 70
    score, rows = np.ones(100), np.full(100, 100.0)
    assert decide(score, new, rows).verdict == "not enough data"
    assert decide(score, new, rows, left=Left(0, 0)).verdict == "composes"
    assert decide(score, new, rows, left=Left(50, 0)).verdict == "not enough data"


def test_no_more_combinations_are_asked_for_than_there_are() -> None:
    new = np.arange(40) >= 20
    rng = np.random.default_rng(1)
    score = rng.binomial(4, 0.93, 40) / 4
    for left in (Left(0, 0), Left(3, 0), Left(3, 7), Left(500, 500)):
        found = decide(score, new, np.full(40, 4.0), left=left)
        assert found.verdict == "not enough data" and found.more_combinations <= left.new
        assert (found.more_rows or 0) > 0
    none = decide(score, new, np.full(40, 4.0), left=Left(0, 0)).sentence
    assert "All combinations of these values are evaluated" in none and "rows in each" in none
    few = decide(score, new, np.full(40, 4.0), left=Left(3, 0)).sentence
    assert "Even all there are, 3 more new combinations, would be too few" in few


def test_where_the_values_allow_too_few_it_says_what_would_help() -> None:
    new = np.arange(30) >= 27
    found = decide(np.ones(30), new, np.ones(30), left=Left(1, 0))
    assert "the values allow only 1 more" in found.sentence and found.more_combinations is None
    found = decide(np.ones(30), ~new, np.ones(30), left=Left(9, 0))
    assert "training has no more" in found.sentence


@pytest.mark.parametrize(("count", "drawn", "failing"), [(40, 30, 3), (60, 30, 5), (30, 30, 0)])
def test_a_finite_space_is_not_said_to_compose_more_often_than_the_level_allows(
    count: int, drawn: int, failing: int
) -> None:
    # New combinations score more than .05 less over the whole space, rows are drawn too.
    wrong = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        truth = np.full(count, 0.99)
        truth[:failing] = 0.0
        truth = truth if failing else np.full(count, 0.92)
        some = rng.permutation(count)[:drawn]
        score = np.r_[rng.binomial(20, 0.99, 60), rng.binomial(20, truth[some])] / 20
        new = np.arange(60 + drawn) >= 60
        found = decide(score, new, np.full(60 + drawn, 20.0), left=Left(count - drawn, 0))
        wrong += found.verdict == "composes"
    assert wrong <= 0.025 * 300


def test_more_rows_settle_a_space_that_is_wholly_evaluated() -> None:
    new = np.arange(40) >= 20
    settled = asked = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        score = rng.binomial(4, 0.95, 40) / 4
        first = decide(score, new, np.full(40, 4.0), left=Left(0, 0))
        if first.verdict != "not enough data":
            continue
        asked += 1
        each = 4 + -(-first.more_rows // 40)
        again = rng.binomial(each, 0.95, 40) / each
        settled += (
            decide(again, new, np.full(40, float(each)), left=Left(0, 0)).verdict
            != "not enough data"
        )
    assert asked >= 10 and settled >= 0.6 * asked


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1), st.integers(5, 30))
@settings(max_examples=60, deadline=None)
def test_intervals_hold_only_what_is_possible(
    seed: int, seen: float, unseen: float, count: int
) -> None:
    found = decide(*combinations(seen, unseen, count, rows=3, seed=seed))
    for interval in (found.seen, found.unseen):
        assert interval is None or 0 <= interval.low <= interval.high <= 1
    assert found.gap is None or -1 <= found.gap.low <= found.gap.high <= 1


@given(st.integers(0, 2**31), st.floats(0.5, 1), st.floats(0, 0.6))
@settings(max_examples=60, deadline=None)
def test_a_verdict_with_answers_missing_holds_for_any_answers(
    seed: int, unseen: float, share: float
) -> None:
    rng = np.random.default_rng(seed)
    score, new, rows = combinations(0.97, unseen, 60, rows=10, seed=seed)
    silent = rng.binomial(10, share, 120).astype(float)
    right = np.minimum(np.round(score * 10), 10 - silent)
    found = decide_answered(right, rows - silent, silent, new)
    assert ("rows of new combinations have no answer" in found.sentence) == bool(silent.any())
    if found.verdict == "not enough data":
        return
    for fill in (np.zeros(120), np.ones(120), new * 1.0, ~new * 1.0):
        assert decide((right + fill * silent) / rows, new, rows).verdict == found.verdict


def test_too_few_answers_are_not_too_few_combinations() -> None:
    full, new = np.full(60, 5.0), np.arange(60) >= 54
    told = np.where(new, 0.0, 5.0)
    found = decide_answered(told, told, full - told, new)
    assert found.sentence.startswith("Not enough answers to say: 30 of the 30 rows of new")
    assert "only 0" not in found.sentence
