"""Gaps, areas, coefficients and the pull towards the likely, on answers whose cause is known."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from recombine.errors import InvalidRequest
from recombine.families._sequence import Item
from recombine.families.strings import CONDITIONS, Strings
from recombine.probability.measures import (
    INPUT,
    OUTPUT,
    Table,
    area_between,
    coefficients,
    gap_when,
    regularisation,
    tabulated,
)

FAMILY = Strings(tasks=("cipher",), train_items=10, test_items=1, sentences=100, validation_items=1)


@pytest.fixture(scope="module")
def corpus():
    return FAMILY.corpus(0)


def answered(corpus, chance, seed=0) -> Table:
    """Answers that are right with a chance that depends on the item."""
    rng = np.random.default_rng(seed)
    items = asked(corpus, *CONDITIONS[:3])
    return tabulated(items, [rng.random() < chance(i) for i in items], FAMILY.log_probabilities)


def asked(corpus, *conditions: str) -> list[Item]:
    """All that is asked in some conditions."""
    splits = [split for split in corpus.beyond if split.split()[-1] in conditions]
    return [item for split in splits for item in corpus[split]]


def test_a_table_knows_condition_task_and_sentence(corpus):
    table = answered(corpus, lambda item: 1.0)
    assert set(table.condition.tolist()) == {"high", "medium", "low"}
    assert set(table.task.tolist()) == {
        f"{way} {shift}" for way in ("decode", "encode") for shift in ("common", "rare")
    }
    part = table.where(condition="medium", task="decode rare")
    assert len(part) == 100 and part.sentence.tolist() == list(range(100))
    assert part.correct.all()
    likely = [FAMILY.log_probabilities(i) for i in corpus["decode rare medium"]]
    np.testing.assert_allclose(part.output_log_probability, [b for _, b in likely])


def test_the_cause_that_was_planted_has_the_coefficient(corpus):
    def by_output(item):
        return special.expit((FAMILY.log_probabilities(item)[1] + 50) / 25)

    found = coefficients(answered(corpus, by_output))
    assert found.fit[OUTPUT].p < 0.01 and found.output > 0.3
    assert found.output > abs(found.input)
    assert "output_length" in found.dropped  # a cipher is as long as its text
    assert set(found.inflation) >= {INPUT, OUTPUT} and all(v >= 1 for v in found.inflation.values())

    def by_input(item):
        return special.expit((FAMILY.log_probabilities(item)[0] + 50) / 25)

    other = coefficients(answered(corpus, by_input))
    assert other.fit[INPUT].p < 0.01 and other.input > abs(other.output)


def test_answers_without_a_cause_have_no_coefficient(corpus):
    p = [coefficients(answered(corpus, lambda i: 0.5, seed)).fit[OUTPUT].p for seed in range(10)]
    assert sum(one < 0.01 for one in p) <= 1


def test_all_right_is_separable_and_still_has_finite_coefficients(corpus):
    found = coefficients(answered(corpus, lambda item: 1.0))
    assert found.fit.separated and math.isfinite(found.output)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8))
def test_the_area_is_the_mean_gap_and_changes_sign_with_order(points):
    upper, lower = np.array(points).T
    steps = np.arange(len(points)) ** 2.0
    area = area_between(steps, upper, lower)
    assert area == pytest.approx(-area_between(steps, lower, upper))
    middle = (upper - lower)[1:] / 2 + (upper - lower)[:-1] / 2
    assert area == pytest.approx(float(middle @ np.diff(steps)) / steps[-1])
    assert area_between(7 * steps, upper, lower) == pytest.approx(area)


def test_the_gap_is_read_at_the_first_checkpoint_above():
    upper, lower = [0.1, 0.5, 0.7, 0.9], [0.0, 0.2, 0.3, 0.9]
    assert gap_when(upper, lower) == pytest.approx(0.4)
    assert math.isnan(gap_when([0.1, 0.5], [0.0, 0.0]))


@pytest.mark.parametrize("steps", [[0, 1], [0, 2, 1], [0, 0, 1], [[0, 1, 2]]])
def test_curves_need_rising_steps(steps):
    with pytest.raises(InvalidRequest, match="steps"):
        area_between(steps, [0, 0, 1], [0, 0, 0])


def test_planted_regularisation_is_found_and_its_absence_too(corpus):
    swaps, items = FAMILY.swaps(0), asked(corpus, "adversarial")
    near = [swaps[item.source] for item in items]
    targets, originals = [i.target for i in items], [one.original for one in near]
    others = [one.others for one in near]

    def answers(towards, seed=0):
        rng = np.random.default_rng(seed)
        said = []
        for target, original, rest in zip(targets, originals, others, strict=True):
            choice = rng.random()
            if choice < 0.4:
                said.append(target)
            elif choice < 0.8:
                said.append("letters")
            else:
                weights = np.array([towards, *([1.0] * len(rest))])
                said.append([original, *rest][rng.choice(1 + len(rest), p=weights / weights.sum())])
        return said

    drawn = regularisation(answers(10.0), targets, originals, others)
    assert drawn.ratio.contains(10) and drawn.ratio.low > 3 and drawn.p < 1e-6
    assert drawn.original == pytest.approx(drawn.ratio.estimate * drawn.chance)
    alike = [regularisation(answers(1.0, s), targets, originals, others) for s in range(10)]
    assert sum(one.p < 0.01 for one in alike) <= 1
    assert np.mean([one.ratio.estimate for one in alike]) == pytest.approx(1, abs=0.3)


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=7))
@settings(max_examples=40)
def test_the_p_value_of_regularisation_is_exact(items):
    others = [[f"other {i}" for i in range(count)] for count, _ in items]
    answers = [
        "original" if drawn else near[0] for (_, drawn), near in zip(items, others, strict=True)
    ]
    found = regularisation(answers, ["right"] * len(items), ["original"] * len(items), others)
    observed, wanted = sum(drawn for _, drawn in items), Fraction(0)
    for heads in product([0, 1], repeat=len(items)):
        if sum(heads) >= observed:
            wanted += math.prod(
                (Fraction(1, 1 + n) if head else Fraction(n, 1 + n))
                for head, (n, _) in zip(heads, items, strict=True)
            )
    assert found.p == pytest.approx(float(wanted))


def test_nothing_wrong_says_nothing_about_regularisation():
    found = regularisation(["a"], ["a"], ["b"], [["c"]])
    assert found.wrong == 0 and found.p == 1 and math.isnan(found.original)
    assert (found.ratio.low, found.ratio.high) == (0, math.inf)


def test_items_without_neighbours_or_answers_are_refused(corpus):
    with pytest.raises(InvalidRequest, match="at least one other neighbour"):
        regularisation(["a"], ["b"], ["c"], [[]])
    with pytest.raises(InvalidRequest, match="2 answers to 1 items"):
        tabulated(asked(corpus, "high")[:1], [True, False], FAMILY.log_probabilities)
