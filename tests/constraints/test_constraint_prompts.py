"""Questions for live models, the strict parser and its refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.constraints.prompts import parse, questions, score, stated
from recombine.errors import InvalidRequest
from recombine.families.knapsack import KnapsackFamily
from recombine.families.portfolio import PortfolioFamily
from recombine.families.power_flow import PowerFlowFamily
from recombine.families.scheduling import SchedulingFamily

FAMILIES = [KnapsackFamily(), PortfolioFamily(), SchedulingFamily(), PowerFlowFamily()]


@pytest.fixture(scope="module")
def question():
    return questions(KnapsackFamily(fewest=4, most=4, beyond_most=5), count=1, seed=3)[0]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_question_holds_the_data_and_its_optimum_scores_in_full(family):
    for question in questions(family, count=3, seed=1):
        data = question.prompt.split("Data:\n")[1].split("\n\nEvery")[0]
        assert json.loads(data) == question.problem.describe()
        for variable in question.problem.variables:
            assert f'"{variable.name}"' in question.prompt
        assert question.novelty == 0
        scores = score(question, question.answer)
        assert scores.pop("gap") == scores.pop("squared_error") == 0
        assert set(scores.values()) == {1.0}


def test_questions_are_the_same_for_the_same_seed_and_new_for_another():
    family = PortfolioFamily()
    prompts = [[q.prompt for q in questions(family, 4, seed)] for seed in (0, 0, 1)]
    assert prompts[0] == prompts[1] and not set(prompts[0]) & set(prompts[2])


def test_questions_from_beyond_training_say_so():
    found = questions(SchedulingFamily(), 3, 0, way="larger")
    assert all(q.novelty > 0 and len(q.problem.variables) > 5 for q in found)
    with pytest.raises(InvalidRequest, match="use train or larger, rules"):
        questions(SchedulingFamily(), 3, 0, way="longer")


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```", "```\n{}\n```", "  {}\n", "```{}```"])
def test_an_object_is_read_with_and_without_a_fence(question, fence):
    text = fence.replace("{}", question.answer)
    np.testing.assert_array_equal(parse(question.problem, text), question.optimum)


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
def test_a_refusal_names_what_is_wrong(question, text, wrong):
    with pytest.raises(InvalidRequest, match=wrong):
        parse(question.problem, text)
    scores = score(question, text)
    assert scores["parsed"] == scores["strict"] == scores["micro"] == scores["exact"] == 0
    assert scores["gap"] == scores["squared_error"] == 1


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
def test_the_last_object_of_a_text_is_what_it_states(question, text):
    assert stated(question.problem, text).tolist() == [1, 0, 1, 0]


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
def test_what_is_not_the_last_object_or_not_a_solution_is_refused(question, text, wrong):
    with pytest.raises(InvalidRequest, match=wrong):
        stated(question.problem, text)


@given(st.text('{}"\\:,[] x1', max_size=60))
def test_nothing_but_a_refusal_comes_of_odd_braces(text):
    problem = questions(KnapsackFamily(fewest=4, most=4, beyond_most=5), count=1, seed=3)[0].problem
    with pytest.raises(InvalidRequest):
        stated(problem, text)


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=5),
        lambda s: (
            st.lists(s, max_size=4)
            | st.dictionaries(st.sampled_from(["x1", "x2", "y"]), s, max_size=4)
        ),
    ).map(json.dumps)
)
def test_no_answer_whatsoever_breaks_the_scoring(text):
    question = questions(KnapsackFamily(fewest=4, most=4, beyond_most=5), count=1, seed=3)[0]
    assert all(0 <= value <= 1 for value in score(question, text).values())


def test_a_feasible_but_poor_answer_is_strict_and_has_a_gap():
    question = next(
        q for q in questions(KnapsackFamily(), 30, 0) if q.part in ("plain", "conflict", "needs")
    )
    nothing = json.dumps({v.name: 0 for v in question.problem.variables})
    scores = score(question, nothing)
    assert scores["strict"] == 1 and scores["gap"] == 1 and scores["exact"] == 0
