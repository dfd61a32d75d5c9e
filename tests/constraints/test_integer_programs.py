"""Proved optima against plain enumeration, with the constraints written once more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.constraints import Knapsack, Portfolio, Scheduling
from recombine.constraints.integer import IntegerProblem, enumerate_all, optimum, prove
from recombine.constraints.knapsack import draw as draw_knapsack
from recombine.constraints.portfolio import draw as draw_portfolio
from recombine.constraints.scheduling import draw as draw_scheduling


def packs(p: Knapsack, x: tuple[int, ...]) -> bool:
    return (
        sum(w for w, chosen in zip(p.weights, x, strict=True) if chosen) <= p.capacity
        and sum(v for v, chosen in zip(p.volumes, x, strict=True) if chosen) <= p.room
        and not any(x[a - 1] and x[b - 1] for a, b in p.conflicts)
        and all(x[b - 1] or not x[a - 1] for a, b in p.needs)
        and (not p.one or [x[i - 1] for i in p.one].count(1) == 1)
    )


def holds(p: Portfolio, x: tuple[int, ...]) -> bool:
    bought = sum(max(a - b, 0) for a, b in zip(x, p.held, strict=True))
    sold = sum(max(b - a, 0) for a, b in zip(x, p.held, strict=True))
    return (
        sum(x) == p.budget
        and all(
            sum(a for a, s in zip(x, p.sectors, strict=True) if s == sector) <= cap
            for sector, cap in p.caps
        )
        and (p.turnover is None or bought + sold <= p.turnover)
        and (p.names is None or len(x) - x.count(0) <= p.names)
    )


def runs(p: Scheduling, x: tuple[int, ...]) -> bool:
    load: dict[int, int] = {}
    for slot, demand in zip(x, p.demands, strict=True):
        load[slot] = load.get(slot, 0) + demand
    return (
        max(load.values()) <= p.capacity
        and all(x[a - 1] < x[b - 1] for a, b in p.before)
        and all(x[b - 1] == x[a - 1] + d for a, b, d in p.gaps)
        and all(x[a - 1] != x[b - 1] for a, b in p.apart)
    )


def by_brute_force(problem: IntegerProblem) -> tuple[int, ...] | None:
    if isinstance(problem, Knapsack):
        ranges, obeys, weight = (
            [range(2)] * len(problem.values),
            packs,
            [-v for v in problem.values],
        )
    elif isinstance(problem, Portfolio):
        ranges, obeys = [range(limit + 1) for limit in problem.limits], holds
        weight = [-r for r in problem.returns]
    else:
        assert isinstance(problem, Scheduling)
        windows = zip(problem.release, problem.due, strict=True)
        ranges, obeys, weight = [range(a, b + 1) for a, b in windows], runs, problem.urgency
    good = [x for x in itertools.product(*ranges) if obeys(problem, x)]  # type: ignore[arg-type]
    key = [(sum(w * v for w, v in zip(weight, x, strict=True)), x) for x in good]
    return min(key)[1] if key else None


DRAWS = {
    "knapsack": (draw_knapsack, ("conflict", "needs", "one")),
    "portfolio": (draw_portfolio, ("sector", "turnover", "names")),
    "scheduling": (
        lambda rng, size, rules: draw_scheduling(rng, size, rules, 4),
        ("before", "gap", "apart"),
    ),
}


@pytest.mark.parametrize("kind", DRAWS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), size=st.integers(4, 5), which=st.integers(0, 7))
def test_the_proved_optimum_is_the_first_of_the_best_answers(kind, seed, size, which):
    draw, names = DRAWS[kind]
    rules = frozenset(name for i, name in enumerate(names) if which >> i & 1)
    problem = draw(np.random.default_rng(seed), size, rules)
    expected = by_brute_force(problem)
    for found in (prove(problem), enumerate_all(problem)):
        if expected is None:
            assert found is None
        else:
            assert found is not None and tuple(found.astype(int)) == expected


def test_a_larger_instance_is_proved_not_enumerated():
    problem = draw_scheduling(np.random.default_rng(5), 9, frozenset({"before", "gap"}), 4)
    assert np.prod(problem.levels) > 5000
    found = optimum(problem)
    assert found is not None and tuple(found.astype(int)) == by_brute_force(problem)


@pytest.mark.parametrize(
    "problem",
    [
        Knapsack((1, 1), (5, 5), (1, 1), 4, 9, one=(1, 2)),
        Portfolio((1, 1), (1, 1), (1, 1), (0, 0), 3),
        Scheduling(2, 1, (1, 1), (1, 1), (1, 1), (1, 1)),
        Scheduling(3, 9, (1,), (3,), (1,), (1,)),
    ],
)
def test_contradictory_constraints_have_no_optimum(problem):
    assert prove(problem) is None and enumerate_all(problem) is None


def test_of_equally_good_answers_the_first_in_dictionary_order_is_given():
    twins = Knapsack((3, 3, 3), (1, 1, 1), (1, 1, 1), 1, 1)
    assert prove(twins).tolist() == enumerate_all(twins).tolist() == [0, 0, 1]  # type: ignore[union-attr]
