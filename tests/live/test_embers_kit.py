"""The kit `embers`: what it asks, how it judges, and that no answer is paid for twice."""

from __future__ import annotations

import codecs
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.discrete.discrete_model import Logit
from statsmodels.stats.contingency_tables import mcnemar

from recombine.cli.live import run
from recombine.cli.parser import build
from recombine.errors import InvalidRequest, RecombineError
from recombine.lab.judge import judge
from recombine.lab.study import Results
from recombine.live import (
    Answer,
    ChatEndpoint,
    Question,
    Scripted,
    estimate,
    kit_named,
    run_kit,
)
from recombine.live.asking import questions_of
from recombine.live.embers_pairs import difference
from recombine.live.kit import scored as all_scored
from recombine.probability import embers as published_set
from recombine.probability.scoring import scored

from .standin import StandIn, busy, fails, garbage, hangs

KIT = kit_named("embers")
PUBLISHED = Path(os.environ.get("RECOMBINE_TEST_DATA", "nowhere"))
published = pytest.mark.skipif(
    not (PUBLISHED / "embers").is_dir(),
    reason="set RECOMBINE_TEST_DATA to a folder that holds the published set as embers/",
)
WORDS = ("stone", "river", "cloud", "lamp", "paper", "garden")
CONDITIONS = ("highprob", "mediumprob", "lowprob", "adversarial")


def stimulus(condition: str, number: int, **changed: object) -> dict[str, object]:
    gold = f"The {WORDS[number % 6]} of {condition} is number {number}."
    cipher = codecs.encode(gold, "rot13")
    row = {
        "task_name": "rot13", "example_type": condition, "input": cipher,
        "instruction_plus_input": f"Decode: {cipher}", "correct_output": gold,
    }  # fmt: skip
    return {name: value for name, value in (row | changed).items() if value is not None}


def written(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


@pytest.fixture
def stimuli(tmp_path: Path) -> str:
    rows = [stimulus(c, n) for c in CONDITIONS for n in range(12)]
    return written(tmp_path / "stimuli.jsonl", rows)


def decode(prompt: str) -> str:
    return codecs.decode(prompt.removeprefix("Decode: "), "rot13")


def summary_of(folder: Path) -> dict:
    found = json.loads((folder / "report.json").read_text("utf-8"))
    found["by name"] = {claim["name"]: claim for claim in found["claims"]}
    found["by title"] = {table["title"]: table["rows"] for table in found["tables"]}
    return found


def typed(words: str) -> None:
    chosen = build().parse_args(words.split())
    run(chosen)


@pytest.mark.parametrize("lost", [Answer("", refusal="a filter"), Answer("The", cut=True)])
def test_what_a_filter_withheld_or_a_bound_cut_off_is_no_ember(stimuli, lost):
    questions = questions_of(KIT, KIT.chosen({"stimuli": stimuli}))
    said = {
        q.id: lost if q.columns["condition"] == "low" and int(str(q.columns["sentence"])) % 3 else
        Answer(q.gold) for q in questions
    }  # fmt: skip
    answers = all_scored(KIT, questions, said)
    [ember, *_] = judge(KIT.claims(answers), Results([]))
    assert answers.where(condition="low").rate().estimate < 0.5
    assert ember.verdict == "not tested here"
    assert "answers to rot13 low could be read" in ember.note


# What is asked


def test_the_same_sentences_are_asked_in_every_condition_and_more_items_only_add_some(stimuli):
    few, many, other = (
        questions_of(KIT, KIT.chosen({"stimuli": stimuli}, items=items, seed=seed))
        for items, seed in ((4, 0), (7, 0), (4, 1))
    )
    assert {q.id: q for q in few}.items() <= {q.id: q for q in many}.items()
    sentences = {
        q.columns["condition"]: {p.columns["sentence"] for p in few if p.columns["condition"] == c}
        for q in few
        for c in [q.columns["condition"]]
    }
    assert len(sentences) == 4 and len({frozenset(found) for found in sentences.values()}) == 1
    assert {q.id for q in few} != {q.id for q in other}


def test_twins_lead_from_the_likely_to_the_adversarial_sentence_and_back(stimuli):
    questions = questions_of(KIT, KIT.chosen({"stimuli": stimuli}))
    gold = {(q.columns["condition"], q.columns["sentence"]): q.gold for q in questions}
    for q in questions:
        other = {"high": "adversarial", "adversarial": "high"}.get(str(q.columns["condition"]))
        assert q.columns["twin"] == gold.get((other, q.columns["sentence"]), "")


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([stimulus("highprob", 0), stimulus("highprob", 1, correct_output=None)],
         r"own\.jsonl, line 2: the field 'correct_output' is missing"),
        ([stimulus("highprob", 0, example_type=None)],
         r"own\.jsonl, line 1: the field 'example_type' is missing"),
        ([stimulus("highprob", 0, instruction_plus_input=7)],
         r"line 1: the field 'instruction_plus_input' is 7: expected a text"),
        ([stimulus("highprob", 0, correct_output='""')],
         r"line 1: the field 'correct_output' holds nothing but quotation marks"),
        ([stimulus("highprob", 0, output_logprob="low")],
         r"line 1: the field 'output_logprob' is 'low': expected a number"),
        ([stimulus("highprob", 0, pair=1.5)], r"line 1: the field 'pair' is 1.5"),
        ([stimulus("highprob", 0, pair="a"), stimulus("highprob", 1, pair="a")],
         r"line 2: the field 'pair' has 'a' again for rot13 high \(before: .*, line 1\)"),
        ([], r"own\.jsonl: no stimuli; every line is a JSON object with the fields task_name"),
    ],
)  # fmt: skip
def test_a_wrong_stimulus_is_named_by_file_line_and_field(rows, complaint, tmp_path):
    path = written(tmp_path / "own.jsonl", rows)
    with pytest.raises(InvalidRequest, match=complaint):
        list(KIT.questions(KIT.chosen({"stimuli": path})))


def test_a_file_that_an_editor_has_marked_as_utf_8_is_read(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(stimulus("highprob", 0)) + "\n", "utf-8-sig")
    assert len(list(KIT.questions(KIT.chosen({"stimuli": str(path)})))) == 1


def test_what_is_no_json_and_what_is_no_file_are_one_line_each(tmp_path):
    (tmp_path / "own.jsonl").write_text('\n{"task_name": \n', "utf-8")
    with pytest.raises(InvalidRequest, match=r"own\.jsonl, line 2: not JSON"):
        list(KIT.questions(KIT.chosen({"stimuli": str(tmp_path / "own.jsonl")})))
    with pytest.raises(InvalidRequest, match=r"nowhere: cannot be read \(No such file"):
        list(KIT.questions(KIT.chosen({"stimuli": str(tmp_path / "nowhere")})))


def test_without_the_published_set_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("RECOMBINE_DATA", raising=False)
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path))
    with pytest.raises(RecombineError, match="recombine data get embers"):
        typed("embers --dry-run")


# How it is judged


@given(st.text(min_size=1), st.text(), st.booleans())
def test_an_answer_is_right_by_the_published_rule(gold, around, inside):
    gold = f"a{gold}"
    answer = f"{around}{gold}{around}" if inside else around
    marked = KIT.score(Question("id", "?", gold, {"twin": ""}), answer)
    wanted = scored(gold, answer)
    assert marked == {"correct": wanted.contained, "exact": wanted.exact, "drawn": 0.0}


def test_a_model_that_knows_only_the_likely_has_an_ember(stimuli, tmp_path):
    def likely(prompt):
        return decode(prompt) if "highprob" in decode(prompt) else "no idea"

    options = KIT.chosen({"stimuli": stimuli})
    run_kit(KIT, Scripted(likely, "reader"), tmp_path / "run", options)
    found = summary_of(tmp_path / "run")
    assert found["verdict"].startswith("An ember: ")
    assert found["by name"]["ember"]["verdict"] == "supported"
    assert found["by name"]["frequent"]["verdict"] == "not tested here"
    rates = {row[1]: row[2] for row in found["by title"]["Accuracy by task and condition"]}
    assert rates == {"high": 1.0, "medium": 0.0, "low": 0.0, "adversarial": 0.0}
    pair = found["by title"]["Pairs"][0]
    assert pair[0] == "rot13: high - low" and pair[4:6] == [12, 0]
    assert pair[6] == pytest.approx(mcnemar([[0, 12], [0, 0]], exact=True).pvalue)  # type: ignore
    assert "Beside published models, rot-13" not in found["by title"]


@pytest.mark.parametrize(
    ("sentences", "right", "verdict", "told"),
    [
        (100, True, "refuted", "No ember: "),
        (10, True, "inconclusive", "It cannot be told"),
        (100, False, "not tested here", "Whether there is an ember was not tested. At most 0.00"),
    ],
)
def test_there_is_no_ember_only_if_there_was_enough_to_see_one(
    sentences, right, verdict, told, tmp_path
):
    rows = [stimulus(c, n) for c in ("highprob", "lowprob") for n in range(sentences)]
    path = written(tmp_path / "own.jsonl", rows)
    model = Scripted(decode if right else str.upper, "steady")
    run_kit(KIT, model, tmp_path / "run", KIT.chosen({"stimuli": path}))
    found = summary_of(tmp_path / "run")
    assert found["by name"]["ember"]["verdict"] == verdict
    assert found["verdict"].startswith(told)


def test_the_interval_of_a_difference_holds_the_truth_where_hardly_any_pairs_differ():
    # Every outcome of 20 pairs, weighed by its probability; few of them differ.
    count = 20
    held = dict.fromkeys([(0.02, 0.02), (0.05, 0.0), (0.1, 0.02), (0.0, 0.05)], 0.0)
    for first, second in itertools.product(range(8), repeat=2):
        found = [(1.0, 0.0)] * first + [(0.0, 1.0)] * second
        interval = difference(found + [(1.0, 1.0)] * (count - first - second))
        for p, q in held:
            chance = stats.multinomial.pmf([first, second, count - first - second], count,
                                           [p, q, 1 - p - q])  # fmt: skip
            held[p, q] += float(chance) * interval.contains(p - q)
    assert min(held.values()) > 0.93


def test_pairs_that_all_differ_alike_have_a_width_which_more_pairs_make_smaller():
    for pair, sign in (((1.0, 0.0), 1), ((0.0, 1.0), -1)):
        found = [difference([pair] * count) for count in (4, 5, 20, 100)]
        assert {one.estimate for one in found} == {sign}
        widths = [one.high - one.low for one in found]
        assert widths == sorted(widths, reverse=True) and widths[-1] > 0.02


def test_the_interval_of_a_difference_holds_the_truth_where_almost_all_pairs_differ():
    count, held = 20, dict.fromkeys([(1.0, 0.0), (0.98, 0.0), (0.95, 0.05), (0.9, 0.05)], 0.0)
    for first, second in itertools.product(range(count + 1), repeat=2):
        if first + second <= count:
            same = count - first - second
            interval = difference(
                [(1.0, 0.0)] * first + [(0.0, 1.0)] * second + [(1.0, 1.0)] * same
            )
            for p, q in held:
                chance = stats.multinomial.pmf([first, second, same], count, [p, q, 1 - p - q])
                held[p, q] += float(chance) * interval.contains(p - q)
    assert min(held.values()) > 0.9


@pytest.mark.parametrize(("sentences", "tested"), [(4, False), (5, True)])
def test_no_claim_is_tested_on_fewer_than_five_pairs(sentences, tested, tmp_path):
    tasks, kinds = ("rot13dec", "rot12dec"), ("highprob", "lowprob", "adversarial")
    rows = [stimulus(c, n, task_name=t, instruction_plus_input=f"{t} {c} {n}")
            for t in tasks for c in kinds for n in range(sentences)]  # fmt: skip
    path = written(tmp_path / "own.jsonl", rows)
    options = KIT.chosen({"stimuli": path})
    gold = {q.prompt: q.gold for q in KIT.questions(options)}

    def frequent_and_likely(prompt):
        return gold[prompt] if prompt.startswith("rot13dec highprob") else "no idea"

    run_kit(KIT, Scripted(frequent_and_likely, "reader"), tmp_path / "run", options)
    found = summary_of(tmp_path / "run")["by name"]
    for name in ("ember", "frequent", "drawn"):
        assert (found[name]["verdict"] != "not tested here") == tested
        if not tested:
            assert found[name]["note"] == "Only 4 pairs of the same sentence: five are needed."


def test_mistaking_an_adversarial_sentence_for_its_likely_twin_is_counted(stimuli, tmp_path):
    options = KIT.chosen({"stimuli": stimuli})
    twin = {q.prompt: str(q.columns["twin"]) for q in KIT.questions(options)}

    def drawn(prompt):
        said = decode(prompt)
        return twin[prompt] if "adversarial" in said and not said.endswith("0.") else said

    run_kit(KIT, Scripted(drawn, "regular"), tmp_path / "run", options)
    found = summary_of(tmp_path / "run")
    there, back = found["by title"]["Wrong answers that give the twin"]
    assert there[1:5] == [12, 10, 10, 1.0] and back[1:4] == [12, 0, 0]
    claim = found["by name"]["drawn"]
    assert claim["verdict"] == "supported" and claim["interval"][0] == pytest.approx(10 / 12)


def test_the_regression_is_that_of_statsmodels_on_log_probabilities_the_model_tells(tmp_path):
    rng = np.random.default_rng(0)
    rows = [stimulus(c, n) for c in CONDITIONS[:3] for n in range(40)]
    path = written(tmp_path / "own.jsonl", rows)
    texts = [str(row[name]) for row in rows for name in ("input", "correct_output")]
    likely = dict(zip(texts, rng.normal(-50, 10, len(texts)).tolist(), strict=True))
    lucky = {
        f"Decode: {row['input']}": rng.random() < 1 / (1 + np.exp(-(likely[str(gold)] + 50) / 6))
        for row in rows
        for gold in [row["correct_output"]]
    }

    class Telling(Scripted):
        def log_probability(self, texts):
            return [likely[text] for text in texts]

    def answer(prompt):
        return decode(prompt) if lucky[prompt] else "?"

    run_kit(KIT, Telling(answer, "m"), tmp_path / "run", KIT.chosen({"stimuli": path}))
    rows_found = summary_of(tmp_path / "run")["by title"]["Logistic regression"]
    columns = np.array(
        [[likely[str(r["input"])], likely[str(r["correct_output"])], len(str(r["input"]))]
         for r in rows]
    )  # fmt: skip
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0, ddof=1)
    right = np.array([float(lucky[str(r["instruction_plus_input"])]) for r in rows])
    theirs = Logit(right, np.column_stack([np.ones(len(right)), columns])).fit(disp=0)
    assert [row[0] for row in rows_found] == [
        "intercept", "input_logprob", "output_logprob", "input_nchars"
    ]  # fmt: skip
    assert [row[1] for row in rows_found] == pytest.approx(theirs.params, abs=1e-5)
    assert [row[4] for row in rows_found] == pytest.approx(theirs.pvalues, abs=1e-5)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "those of the model itself" in page


@published
def test_gpt_4s_published_answers_give_the_published_numbers(monkeypatch, tmp_path):
    monkeypatch.setenv("RECOMBINE_DATA", str(PUBLISHED))
    said = {}
    for condition in ("high", "medium", "low"):
        asked = published_set.questions([condition])
        answers = published_set.log(condition).answers
        said |= zip([q.prompt for q in asked], answers, strict=True)
    options = KIT.chosen({"tasks": "rot13dec", "conditions": "high,medium,low"})
    run_kit(KIT, Scripted(said.__getitem__, "GPT-4"), tmp_path / "run", options)
    found = summary_of(tmp_path / "run")
    own, *others = found["by title"]["Beside published models, rot-13"]
    assert own[1:] == [0.51, 0.22, 0.13, 0.38]
    assert own[1:] == next(row for row in others if row[0].startswith("GPT-4"))[1:]
    assert found["verdict"].startswith("An ember: likely answers are right more often")
    wanted = published_set.regression(published_set.item_table())
    for name, estimate_, *_ in found["by title"]["Logistic regression"]:
        assert estimate_ == pytest.approx(wanted[name].estimate, abs=1e-6)


@published
def test_the_published_set_is_asked_whole_in_two_ciphers(monkeypatch, tmp_path):
    monkeypatch.setenv("RECOMBINE_DATA", str(PUBLISHED))
    questions = questions_of(KIT, KIT.chosen())
    assert len(questions) == 700
    knows = {q.prompt: q.gold for q in questions if q.columns["task"] == "rot13dec"}
    model = Scripted(lambda prompt: knows.get(prompt, "?"), "rot-13 alone")
    run_kit(KIT, model, tmp_path / "run", KIT.chosen(items=20))
    found = summary_of(tmp_path / "run")
    assert found["questions"] == 140
    assert found["by name"]["frequent"]["verdict"] == "supported"


# Money and faults


def endpoint(server: StandIn, log: Path, **settings) -> ChatEndpoint:
    return ChatEndpoint(server.url, "m", log, key_variable=None, pause=0.01, **settings)


def test_faults_of_an_endpoint_change_nothing_in_the_report(stimuli, tmp_path):
    options = KIT.chosen({"stimuli": stimuli}, items=5)
    reports = []
    for faults in ([], [busy(after="0"), fails(500), garbage, hangs, fails(503), garbage]):
        folder = tmp_path / f"run{len(faults)}"
        with StandIn(decode, faults) as server:
            model = endpoint(server, folder / "answers.jsonl", timeout=0.5)
            outcome = run_kit(KIT, model, folder, options)
        assert outcome.stopped is None
        assert len(server.requests) == 20 + len(faults) and len(set(server.answered)) == 20
        found = summary_of(folder)
        reports.append((found["claims"], found["tables"], found["finished"]))
    assert reports[0] == reports[1]


def test_an_endpoint_that_never_answers_ends_in_one_line_and_keeps_what_there_was(
    stimuli, tmp_path
):
    options = KIT.chosen({"stimuli": stimuli}, items=5)
    prompts = [q.prompt for q in KIT.questions(options)]
    with StandIn(decode, by_prompt={prompts[3]: fails(500)}) as server:
        folder = tmp_path / "run"
        model = endpoint(server, folder / "answers.jsonl", attempts=2, workers=1)
        outcome = run_kit(KIT, model, folder, options)
        assert "no answer from" in str(outcome.stopped)
        kept = set(server.answered)
        server.by_prompt.clear()
        run_kit(KIT, endpoint(server, folder / "answers.jsonl"), folder, options)
        assert sorted(server.answered) == sorted(prompts) and kept
    assert summary_of(folder)["finished"]


def test_the_estimate_and_the_cap_hold(stimuli, tmp_path):
    options = KIT.chosen({"stimuli": stimuli}, items=5)
    questions = questions_of(KIT, options)
    with StandIn(decode) as server:
        folder = tmp_path / "run"
        model = endpoint(server, folder / "answers.jsonl", most_calls=8, workers=2)
        before = estimate(KIT, questions, kept=model.kept, price_in=1.0, price_out=2.0)
        assert (before.questions, before.to_ask) == (20, 20)
        letters = sum(-(-len(q.prompt) // 4) for q in questions)
        assert before.tokens_in == letters and before.most_tokens_out == 20 * KIT.longest
        outcome = run_kit(KIT, model, folder, options)
        assert "the 8 calls are spent" in str(outcome.stopped) and len(server.requests) == 8
        after = estimate(KIT, questions, kept=model.kept)
        assert (after.answered, after.to_ask) == (8, 12)
    assert "12 of 20 questions are not answered yet" in summary_of(folder)["warnings"][0]


def test_a_killed_run_pays_for_no_answer_twice_and_ends_with_the_same_report(stimuli, tmp_path):
    given, gone = itertools.count(), threading.Event()

    def stalls(prompt):
        """Nine answers, then none until the one who asked has been killed."""
        if next(given) >= 9:
            gone.wait(30)
        return decode(prompt)

    def words(server, folder):
        return (
            f"embers --endpoint {server.url} --model m --key-variable none --to {folder} --quiet "
            f"--workers 2 --set stimuli={stimuli}"
        ).split()

    log = tmp_path / "killed" / "answers.jsonl"
    with StandIn(stalls) as server:
        command = [sys.executable, "-m", "recombine", *words(server, tmp_path / "killed")]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while child.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") == 9):
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        gone.set()
        lines = log.read_bytes().split(b"\n")[:-1]
        paid = {json.loads(line)["about"]["prompt"] for line in lines}
        assert len(paid) == 9 and not (tmp_path / "killed" / "report.html").exists()
        before = len(server.requests)
        run(build().parse_args(words(server, tmp_path / "killed")))
        again = server.prompts[before:]
        assert not paid & set(again) and len(set(again)) == 48 - len(paid)
        # Of the two questions that the dead one had under way, the server may read some later.
        assert len(again) <= len(set(again)) + 2
        run(build().parse_args(words(server, tmp_path / "whole")))
    for name in ("report.html", "report.json", "table.csv"):
        killed, whole = ((tmp_path / f / name).read_bytes() for f in ("killed", "whole"))
        assert killed == whole


# What is typed


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--set stimulis=x", "unknown option of embers 'stimulis': did you mean 'stimuli'"),
        ("--set stimuli=x tasks=rot13dec", "bring their tasks and conditions: leave out tasks"),
        ("--set scorer=nowhere", "nowhere holds no config.json"),
        ("--items 0", "--items 0: expected at least 1"),
        ("--endpoint http://127.0.0.1:9/v1 --model m --cell 3a", "two models were given, but one"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_type(words, complaint, monkeypatch, stimuli):
    monkeypatch.setattr("recombine.cli.live._trained", lambda chosen: None)
    own = "" if "stimul" in words else f" --set stimuli={stimuli}"
    with pytest.raises(RecombineError, match=complaint):
        typed(f"embers {words}{own}")


def test_a_folder_of_another_kit_is_refused_and_left_alone(stimuli, tmp_path):
    with StandIn(decode) as server:
        words = f"--endpoint {server.url} --model m --key-variable none --to {tmp_path}/run --quiet"
        typed(f"battery {words} --items 1 --set tasks=logic depths=1")
        before = (tmp_path / "run" / "report.html").read_bytes()
        with pytest.raises(InvalidRequest, match=r"holds answers of .* to battery: give another"):
            typed(f"embers {words} --set stimuli={stimuli}")
    assert (tmp_path / "run" / "report.html").read_bytes() == before


def test_a_wrong_address_does_not_use_up_the_folder(stimuli, tmp_path):
    options = KIT.chosen({"stimuli": stimuli}, items=1)
    with StandIn(decode, always=fails(404)) as server, pytest.raises(RecombineError, match="404"):
        run_kit(
            KIT, endpoint(server, tmp_path / "run" / "answers.jsonl"), tmp_path / "run", options
        )
    with StandIn(decode) as server:
        run_kit(
            KIT, endpoint(server, tmp_path / "run" / "answers.jsonl"), tmp_path / "run", options
        )
    assert summary_of(tmp_path / "run")["finished"]


def test_listing_names_the_kits(capsys, tmp_path):
    chosen = build().parse_args(["list", "--store", str(tmp_path)])
    chosen.run(chosen)
    said = capsys.readouterr().out
    assert "live kits" in said and "Whether a language model does better where answers" in said
