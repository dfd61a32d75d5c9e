"""The words of a question for a live model, the strict parsers and their refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.constraints.prompts import parse, prompt, stated
from recombine.errors import InvalidRequest
from recombine.families.knapsack import KnapsackFamily
from recombine.families.portfolio import PortfolioFamily
from recombine.families.power_flow import PowerFlowFamily
from recombine.families.scheduling import SchedulingFamily

FAMILIES = [KnapsackFamily(), PortfolioFamily(), SchedulingFamily(), PowerFlowFamily()]


def instances(family, count, seed):
    """Problems with their optima."""
    found = family.cases(family.rng(seed, "questions"), "train", count)
    return [(case.problem, x) for case, x in found]


def four():
    """A knapsack of four things, with its optimum."""
    [found] = instances(KnapsackFamily(fewest=4, most=4, beyond_most=5), count=1, seed=3)
    return found


@pytest.fixture(scope="module")
def problem():
    return four()[0]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_question_holds_the_data_and_names_every_variable(family):
    for problem, _ in instances(family, count=3, seed=1):
        text = prompt(problem)
        data = text.split("Data:\n")[1].split("\n\nEvery")[0]
        assert json.loads(data) == problem.describe()
        for variable in problem.variables:
            assert f'"{variable.name}"' in text


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```", "```\n{}\n```", "  {}\n", "```{}```"])
def test_an_object_is_read_with_and_without_a_fence(fence):
    problem, optimum = four()
    named = zip(problem.variables, optimum.tolist(), strict=True)
    text = fence.replace("{}", json.dumps({variable.name: x for variable, x in named}))
    np.testing.assert_array_equal(parse(problem, text), optimum)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "empty"),
        ("x1 = 1", "not JSON"),
        ("Sure! {}", "not JSON"),
        ('{"x1": 1, "x2": 0, "x3": 0, "x4": 0} I hope it helps', "not JSON"),
        ("[1, 0, 0, 0]", "JSON list"),
        ("1", "JSON int"),
        ('{"x1": 1, "x2": 0, "x4": 0}', "lacks x3"),
        ('{"x1": 1, "x2": 0, "x3": 0, "x4": 0, "x5": 1}', "names x5"),
        ('{"x1": 1, "x1": 0, "x2": 0, "x3": 0, "x4": 0}', "'x1' twice"),
        ('{"x1": "1", "x2": 0, "x3": 0, "x4": 0}', "x1 is '1'"),
        ('{"x1": null, "x2": 0, "x3": 0, "x4": 0}', "x1 is None"),
        ('{"x1": [1], "x2": 0, "x3": 0, "x4": 0}', "x1 is"),
        ('{"x1": NaN, "x2": 0, "x3": 0, "x4": 0}', "NaN"),
        ('{"x1": -Infinity, "x2": 0, "x3": 0, "x4": 0}', "Infinity"),
        ('{"x1": 1e999, "x2": 0, "x3": 0, "x4": 0}', "x1 is inf"),
        ('{"x1": true, "x2": 0, "x3": 0, "x4": 0}', "x1 is True"),
        ("[" * 90_000, "not JSON|nested"),
        ("9" * 5_000, "not JSON|JSON int"),
        (" " * 200_000, "at most"),
    ],
)
def test_a_refusal_names_what_is_wrong(problem, text, wrong):
    with pytest.raises(InvalidRequest, match=wrong):
        parse(problem, text)


GOOD = '{"x1": 1, "x2": 0, "x3": 1, "x4": 0}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"{GOOD}\nThis is feasible.",
        f"```json\n{GOOD}\n```\nI checked {{every}} one.",
        f'{{"solution": {GOOD}}}',
        f'First {{"x1": 0, "x2": 0, "x3": 0, "x4": 0}}. Better: {{"solution": {GOOD}}}, I think.',
        f'{{"plan": {{"why": "a }} in {{ a string"}}, "n": [{{}}]}} leads to {GOOD}',
        f'A brace "{{" and another }} before {GOOD} and "}}" after',
        f'{{"thinking": "x1 costs {{3}}", then {GOOD}',
        f"{GOOD} {{and so on",
        "{" * 3000 + GOOD,
    ],
)
def test_the_last_object_of_a_text_is_what_it_states(problem, text):
    assert stated(problem, text).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "empty"),
        ("No answer.", "empty"),
        (GOOD[:-1], "empty"),
        (f'{GOOD} or {{"x1": 1}}', "lacks x2"),
        (f'{GOOD} or {{"x1": NaN, "x2": 0, "x3": 0, "x4": 0}}', "NaN"),
        (f'{GOOD} or {{"solution": {{"x1": 1, "x1": 0, "x2": 0, "x3": 0, "x4": 0}}}}', "twice"),
        (f'{{"solution": {GOOD}, "feasible": true}}', "lacks x1|names"),
        (f'{{"a": {{"solution": {GOOD}}}}}', "lacks x1|names"),
        ('{"solution": "{x1: 1}"}', "lacks x1|names"),
        (" " * 200_000, "at most"),
        ('{"a":' * 20_000, "empty"),
    ],
)
def test_what_is_not_the_last_object_or_not_a_solution_is_refused(problem, text, wrong):
    with pytest.raises(InvalidRequest, match=wrong):
        stated(problem, text)


@given(st.text('{}"\\:,[] x1', max_size=60))
def test_nothing_but_a_refusal_comes_of_odd_braces(text):
    problem, _ = four()
    with pytest.raises(InvalidRequest):
        stated(problem, text)
