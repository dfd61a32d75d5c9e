"""The published stimuli and logs, read strictly and scored again; and the scorer itself."""

from __future__ import annotations

import codecs
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.probability import embers
from recombine.probability.scoring import (
    levenshtein,
    mcnemar,
    paired_difference,
    scored,
    unquoted,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import statsmodels.api as sm
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar

PUBLISHED = Path(os.environ.get("RECOMBINE_TEST_DATA", "nowhere")) / "embers"
published = pytest.mark.skipif(
    not PUBLISHED.is_dir(),
    reason="set RECOMBINE_TEST_DATA to a folder that holds the published set as embers/",
)


def stimulus(sentence: str) -> dict[str, str]:
    cipher = codecs.encode(sentence, "rot13")
    return {
        "task_name": "rot13",
        "example_type": "any",
        "task_instruction": "Decode: %s",
        "input": cipher,
        "instruction_plus_input": f"Decode: {cipher}",
        "correct_output": sentence,
    }


def write(folder: Path, name: str, *rows: object) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "rot13dec_highprob.jsonl", stimulus("It is the reason."), stimulus("A path."))
    write(
        tmp_path, "rot13dec_adversarial.jsonl", stimulus("It is the treason."), stimulus("A pat.")
    )
    write(
        tmp_path,
        "log_rot13dec_highprob_gpt-4-0613.json",
        {
            "prompts": ["a", "b"],
            "gts": ['"It is the reason."', '"A path."'],
            "res": ["It is the season.", 'The text is "A path."'],
        },
    )
    table = ["\t".join(embers.COLUMNS), "0\t5\t3\t-20\t5\t2\t-7.5\t1", "1\t6\t3\t-22\t6\t2\t-9\t0"]
    (tmp_path / "table_rot13dec_gpt-4-0613.tsv").write_text("\n".join(table) + "\n")
    return tmp_path


# The scorer


def test_the_right_answer_may_stand_inside_a_longer_one():
    found = scored('"Stay here!"', 'The original text is "Stay here!" I think.')
    assert found.contained and not found.exact and found.distance > 20
    assert scored("Stay here!", '"Stay here!"').exact
    assert not scored("Stay here!", "stay here!").contained


def test_one_outer_quote_is_ignored_and_no_more():
    assert unquoted('""Stay""') == '"Stay"'
    assert unquoted("“Stay”") == "Stay"
    assert unquoted('Say "no"') == 'Say "no'  # as published: the outer mark, matched or not
    assert unquoted("") == "" and unquoted('"') == ""


def test_an_empty_right_answer_is_refused():
    with pytest.raises(InvalidRequest, match="empty"):
        scored('""', "anything")


def distance_by_recursion(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        distance_by_recursion(a[1:], b) + 1,
        distance_by_recursion(a, b[1:]) + 1,
        distance_by_recursion(a[1:], b[1:]) + (a[0] != b[0]),
    )


@given(st.text("ab", max_size=5), st.text("abc", max_size=5))
def test_the_edit_distance_is_the_shortest_of_all_ways(a, b):
    assert levenshtein(a, b) == levenshtein(b, a) == distance_by_recursion(a, b)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_exact_test_of_statsmodels(pairs):
    a, b = np.array(pairs, dtype=float).T
    table = [[np.sum((a == x) & (b == y)) for y in (1, 0)] for x in (1, 0)]
    found = mcnemar(a, b)
    assert (found.first_only, found.second_only) == (table[0][1], table[1][0])
    if found.first_only + found.second_only:
        assert found.p == pytest.approx(min(1, their_mcnemar(table, exact=True).pvalue))
    else:
        assert found.p == 1


def test_a_paired_difference_is_narrower_than_its_parts_when_items_agree():
    rng = np.random.default_rng(0)
    low = rng.integers(0, 2, 200).astype(float)
    high = np.maximum(low, rng.random(200) < 0.1)
    paired = paired_difference(high, low)
    assert paired.estimate == pytest.approx((high - low).mean()) and paired.low > 0
    apart = paired_difference(high, rng.permutation(low))
    assert paired.high - paired.low < 0.7 * (apart.high - apart.low)


def test_pairs_that_do_not_match_are_refused():
    with pytest.raises(InvalidRequest, match="3 answers against 2"):
        mcnemar([1, 0, 1], [1, 0])
    with pytest.raises(InvalidRequest, match="right or wrong"):
        paired_difference([0.5], [1])


# Reading


def test_questions_are_read_with_their_likely_originals(folder):
    asked = embers.questions(["high", "adversarial"], items=5, folder=folder)
    assert [q.id for q in asked] == [
        "rot13dec-high-0",
        "rot13dec-high-1",
        "rot13dec-adversarial-0",
        "rot13dec-adversarial-1",
    ]
    assert [q.original for q in asked] == ["", "", "It is the reason.", "A path."]
    assert len(embers.questions(["high"], items=1, folder=folder)) == 1
    assert embers.score(asked[0], '"It is the reason."').exact


def test_logs_are_scored_again_from_what_was_said(folder):
    found = embers.log("high", folder=folder)
    assert found.correct.tolist() == [0.0, 1.0]
    assert found.scores[0].distance == 1


def test_the_item_table_is_read_by_column(folder):
    table = embers.item_table(folder=folder)
    assert table["output_logprob"].tolist() == [-7.5, -9.0]
    assert table["correct"].tolist() == [1.0, 0.0]


def test_unusual_line_ends_inside_a_sentence_do_not_end_a_line(folder):
    write(folder, "rot13dec_highprob.jsonl", stimulus("One\u2028two."))
    (asked,) = embers.questions(["high"], folder=folder)
    assert asked.gold == "One\u2028two."


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rot13dec_highprob.jsonl", None, "no such file"),
        ("rot13dec_highprob.jsonl", "", "no stimuli"),
        ("rot13dec_highprob.jsonl", "{bad", "line 1: not JSON"),
        ("rot13dec_highprob.jsonl", "[]", "line 1: expected a JSON object"),
        ("rot13dec_highprob.jsonl", json.dumps({"task_name": "a"}), "'example_type' is missing"),
        (
            "rot13dec_highprob.jsonl",
            json.dumps(stimulus("A path.")) + "\n" + json.dumps({**stimulus("b"), "input": 3}),
            "line 2: the field 'input' is not a text",
        ),
        (
            "rot13dec_highprob.jsonl",
            json.dumps({**stimulus("A path."), "instruction_plus_input": "Decode"}),
            "does not hold the input",
        ),
    ],
)
def test_a_broken_stimulus_file_is_named_with_its_line(folder, name, text, said):
    _broken(folder, name, text, said, lambda: embers.questions(["high"], folder=folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("[", "line 1: not JSON"),
        ("[]", "expected one JSON object"),
        ('{"prompts": [], "gts": []}', "'res' is missing"),
        ('{"prompts": ["a"], "gts": ["a"], "res": [1]}', "'res' is not a list of texts"),
        ('{"prompts": ["a"], "gts": ["a"], "res": []}', "1 prompts, 1 gts, 0 res"),
        ('{"prompts": [], "gts": [], "res": []}', "at least one"),
    ],
)
def test_a_broken_log_is_named(folder, text, said):
    name = "log_rot13dec_highprob_gpt-4-0613.json"
    _broken(folder, name, text, said, lambda: embers.log("high", folder=folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("", "line 1: the column 'index' is missing"),
        ("\t".join(embers.COLUMNS), "no items"),
        ("\t".join(embers.COLUMNS) + "\n1\t2", "line 2: expected 8 numbers"),
        ("\t".join(embers.COLUMNS) + "\n" + "\t".join("1234567x"), "line 2: expected 8 numbers"),
        ("\t".join(embers.COLUMNS) + "\n" + "\t".join("12345672"), "line 2: 'correct'"),
    ],
)
def test_a_broken_table_is_named_with_its_line(folder, text, said):
    name = "table_rot13dec_gpt-4-0613.tsv"
    _broken(folder, name, text, said, lambda: embers.item_table(folder=folder))


def _broken(folder, name, text, said, read):
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(embers.BadData) as caught:
        read()
    message = str(caught.value)
    assert name in message and said in message and "recombine data get embers" in message
    assert "\n" not in message


def test_adversarial_items_without_their_originals_are_refused(folder):
    write(folder, "rot13dec_highprob.jsonl", stimulus("It is the reason."))
    with pytest.raises(embers.BadData, match="2 stimuli made from 1"):
        embers.questions(["adversarial"], folder=folder)


def test_unknown_conditions_and_tasks_name_the_nearest(folder):
    with pytest.raises(InvalidRequest, match="did you mean 'medium'"):
        embers.questions(["medum"], folder=folder)
    with pytest.raises(InvalidRequest, match="did you mean 'rot13dec'"):
        embers.questions(task="rot13", folder=folder)
    with pytest.raises(InvalidRequest, match="at least 1"):
        embers.questions(items=0, folder=folder)


# The published set


@published
def test_the_published_accuracies_of_gpt_4_come_out_again():
    logs = {name: embers.log(name, folder=PUBLISHED) for name in ("high", "medium", "low")}
    found = [float(one.correct.mean()) for one in logs.values()]
    np.testing.assert_allclose(found, list(embers.ACCURACIES.values()), atol=0.01)
    ours = [[one.distance for one in each.scores] for each in logs.values()]
    theirs = [
        json.loads((PUBLISHED / f"log_rot13dec_{embers.CONDITIONS[c]}_gpt-4-0613.json").read_text())
        for c in logs
    ]
    assert ours == [one["eds"] for one in theirs]
    high, low = logs["high"].correct, logs["low"].correct
    assert mcnemar(high, low).p < 1e-6
    difference = paired_difference(high, low)
    assert difference.estimate == pytest.approx(0.38, abs=0.01) and difference.low > 0.2


@published
def test_published_logs_table_and_stimuli_speak_of_the_same_items():
    correct = []
    for condition in ("high", "medium", "low"):
        asked = embers.questions([condition], folder=PUBLISHED)
        found = embers.log(condition, folder=PUBLISHED)
        assert [q.gold for q in asked] == list(found.golds)
        assert [q.prompt for q in asked] == list(found.prompts)
        assert [codecs.encode(q.input, "rot13") for q in asked] == [q.gold for q in asked]
        correct += found.correct.tolist()
    assert embers.item_table(folder=PUBLISHED)["correct"].tolist() == correct


@published
def test_published_adversarial_sentences_are_one_or_two_edits_from_likely_ones():
    asked = embers.questions(["adversarial"], folder=PUBLISHED)
    assert {levenshtein(q.gold, q.original) for q in asked} == {1, 2}


@published
def test_the_published_regression_agrees_with_statsmodels():
    table = embers.item_table(folder=PUBLISHED)
    ours = embers.regression(table)
    x = np.column_stack([table[name] for name in embers.PREDICTORS])
    x = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    theirs = sm.GLM(table["correct"], sm.add_constant(x), family=sm.families.Binomial()).fit()
    found = [(c.estimate, c.standard_error, c.p) for c in ours.coefficients]
    wanted = np.column_stack([theirs.params, theirs.bse, theirs.pvalues])
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert ours.rows == 300 and not ours.separated
    assert ours.deviance == pytest.approx(theirs.deviance, rel=1e-5)
    assert ours.null_deviance == pytest.approx(theirs.null_deviance, rel=1e-5)
    assert ours["output_logprob"].estimate > 0 and ours["output_logprob"].p < 0.01
    kept = [embers.COEFFICIENTS[c.name] for c in ours.coefficients]
    np.testing.assert_allclose(kept, wanted[:, :2], atol=5.1e-5)
    assert pytest.approx((theirs.deviance, theirs.null_deviance), abs=5.1e-5) == embers.DEVIANCES
