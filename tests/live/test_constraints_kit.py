"""The kit of constraints: right answers score, null answers are counted, dress is forgiven."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.cli.live import run
from recombine.cli.parser import build
from recombine.errors import InvalidRequest
from recombine.lab.intervals import mean_interval
from recombine.lab.judge import judge
from recombine.lab.study import Results
from recombine.live import Answer, Scripted, kit_named, run_kit
from recombine.live.asking import questions_of
from recombine.live.constraints import said
from recombine.live.constraints_page import null_shares, problem_of
from recombine.live.kit import Answers, scored

from .standin import StandIn

KIT = kit_named("constraints")
WHOLE = {"tasks": "portfolio,scheduling,knapsack"}


def drawn(settings=None, items=4, seed=0):
    return questions_of(KIT, KIT.chosen(settings, items=items, seed=seed))


def answered(questions, say):
    return scored(KIT, questions, {q.id: Answer(say(q)) for q in questions})


def guess(question):
    """What takes no thought."""
    problem = problem_of(question)
    named = zip(problem.variables, problem.guess(), strict=True)
    return json.dumps({variable.name: value for variable, value in named})


def test_the_optimum_satisfies_every_constraint_of_every_task():
    answers = answered(drawn({"tasks": "case9,case14,portfolio,scheduling,knapsack"}, items=2),
                       lambda q: q.gold)  # fmt: skip
    assert answers.mean("strict") == answers.mean("micro") == answers.mean("parsed") == 1
    assert set(answers.values("gap")) == set(answers.values("squared_error")) == {0.0}


def test_the_prompt_alone_holds_the_instance():
    for question in drawn(WHOLE):
        data = question.prompt.split("Data:\n")[1].split("\n\nEvery constraint")[0]
        assert json.loads(data) == problem_of(question).describe()


def test_scores_have_the_same_names_whatever_the_instance_and_the_answer():
    questions = drawn(WHOLE)
    names = {tuple(KIT.score(q, say)) for q in questions for say in (q.gold, "", "no")}
    assert len(names) == 1


def test_more_items_only_add_questions():
    few, many = drawn(WHOLE, items=2), drawn(WHOLE, items=5)
    assert {q.id: q for q in few}.items() <= {q.id: q for q in many}.items()
    assert len({q.prompt for q in many}) == len(many) == 15


@pytest.mark.parametrize(
    "dress",
    ["{}", "```json\n{}\n```", "Let me see {{a}}: so\n{}",
     "The answer:\n```\n{}\n```\n", "{}\nThis is feasible.", "```json\n{}\n```\nIt fits {{so}}.",
     '{{"solution": {} }}', '```json\n{{"answer": {} }}\n```\nThat is all.',
     '{{"x1": 9}} or rather {}'],
)  # fmt: skip
def test_an_answer_is_read_however_it_is_dressed(dress):
    [question] = drawn({"tasks": "knapsack"}, items=1)
    text = dress.replace("{{", "<<").replace("}}", ">>").replace("{}", question.gold)
    text = text.replace("<<", "{").replace(">>", "}")
    assert KIT.score(question, text)["strict"] == 1


@pytest.mark.parametrize("text", ["", "{}", '{"x1": 1}', "nobody knows", '{"x1": NaN}', "[1]"])
def test_what_states_no_solution_satisfies_nothing(text):
    [question] = drawn({"tasks": "knapsack"}, items=1)
    scores = KIT.score(question, text)
    assert scores["parsed"] == scores["strict"] == scores["micro"] == scores["box held"] == 0
    assert said(problem_of(question), text) is None


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
    [question] = drawn({"tasks": "knapsack"}, items=1)
    scores = KIT.score(question, text)
    assert all(0 <= scores[name] <= 1 for name in ("strict", "micro", "gap", "squared_error"))


def test_a_feasible_but_poor_answer_is_strict_and_has_a_gap():
    questions = drawn({"tasks": "knapsack"}, items=20)
    question = next(q for q in questions if q.columns["part"] in ("plain", "conflict", "needs"))
    nothing = json.dumps({v.name: 0 for v in problem_of(question).variables})
    scores = KIT.score(question, nothing)
    assert scores["strict"] == 1 and scores["gap"] == 1


def test_counts_of_constraints_add_up():
    for row in answered(drawn(), guess):
        kinds = ("box", "inequality", "equality", "coupling")
        asked = sum(row[f"{kind} asked"] for kind in kinds)
        held = sum(row[f"{kind} held"] for kind in kinds)
        assert asked == len(problem_of(row.question).constraints)
        assert held / asked == pytest.approx(row["micro"])


def test_one_who_guesses_is_told_that_guessing_reaches_as_much():
    answers = answered(drawn({"tasks": "case9"}, items=12), guess)
    np.testing.assert_allclose(null_shares(answers)["guess"], answers.values("micro"))
    claims = {c.name: c for c in KIT.claims(answers)}
    artefact = claims["power flow: artefact"].measure(None).interval(0.95)  # type: ignore[arg-type]
    assert artefact.estimate == pytest.approx(0, abs=1e-12)
    assert artefact.low < -0.2 and artefact.high > 0.2  # twelve that agree are not all
    assert "the guess" in claims["power flow: artefact"].measure(None).note  # type: ignore[arg-type]


def test_who_guesses_often_enough_is_called_an_artefact():
    answers = answered(drawn({"tasks": "case9"}, items=8), guess)
    often = Answers([*answers] * 20, 160)  # as if so many instances had been asked
    assert verdicts(often)["power flow: artefact"].verdict == "supported"


def concluded(answers):
    return KIT.conclusion(answers, judge(KIT.claims(answers), Results([])))


def test_the_conclusion_calls_a_share_that_guessing_reaches_an_artefact():
    def careless(question):
        """A guess, with a voltage of nothing for every second instance."""
        found = json.loads(guess(question))
        return json.dumps(found | {"V1": 0.0} if int(question.id[-1]) % 2 else found)

    told = concluded(answered(drawn({"tasks": "case9"}, items=12), careless))
    assert told.startswith("On power flow: ")
    assert "The model satisfies no more than that: its percentage is an artefact of the mix" in told
    assert "not a ceiling of reasoning" in told and "supported" not in told


def test_the_conclusion_says_that_a_model_which_solves_everything_meets_no_ceiling():
    told = concluded(answered(drawn(WHOLE, items=6), lambda q: q.gold))
    assert "The model satisfies more than that and is not held at 50 to 65 %" in told


def test_the_conclusion_tells_of_each_kind_apart_and_why_one_was_not_tested():
    questions = drawn({"tasks": "case9,knapsack"}, items=6)
    told = concluded(answered(questions, lambda q: guess(q) if "case9" in q.id else ""))
    assert told.startswith("On power flow: ") and "On whole numbers" not in told
    assert "Only 0.00 of the answers on whole numbers could be read" in told


def verdicts(answers):
    return {j.claim.name: j for j in judge(KIT.claims(answers), Results([]))}


@pytest.mark.parametrize("refusal", ["", "I would rather not."])
def test_a_model_that_says_nothing_of_use_is_not_judged(refusal):
    questions = drawn({"tasks": "case9,knapsack"}, items=6)
    mute = {q.id: Answer("I'm sorry, but I can't help with that.", refusal=refusal)
            for q in questions}  # fmt: skip
    found = verdicts(answers := scored(KIT, questions, mute))
    assert len(found) == 12
    for name, judgement in found.items():
        assert judgement.verdict == "not tested here"
        kind = name.partition(":")[0]
        assert judgement.note == f"Only 0.00 of the answers on {kind} could be read; it takes 0.95."
    told = KIT.conclusion(answers, list(found.values()))
    assert told.startswith("Nothing was tested. Only 0.00 of the answers on power flow could")


def test_the_floor_lies_where_the_study_has_it_and_holds_for_each_kind_alone():
    from recombine.constraints.problem import READABLE

    questions = drawn({"tasks": "case9,knapsack"}, items=20)
    for unread in (1, 2):
        shy = {f"knapsack-{n}" for n in range(unread)}
        answers = answered(questions, lambda q, shy=shy: "" if q.id in shy else guess(q))
        for name, judgement in verdicts(answers).items():
            judged = name.startswith("power flow") or 1 - unread / 20 >= READABLE
            assert (judgement.verdict != "not tested here") == judged


def test_a_verdict_takes_five_instances_whatever_the_claim():
    for items, word in ((2, "not tested here"), (4, "not tested here"), (5, None)):
        answers = answered(drawn({"tasks": "knapsack"}, items=items), lambda q: q.gold)
        found = {name.partition(": ")[2]: j for name, j in verdicts(answers).items()}
        asked = {name: j for name, j in found.items() if name != "equalities fail"}  # has none
        if word:
            assert {j.verdict for j in asked.values()} == {word}
            notes = {j.note for j in asked.values()}
            assert notes == {f"Only {items} answers on whole numbers: five are needed."}
        else:
            assert "not tested here" not in {asked[n].verdict for n in ("ceiling", "artefact")}


@pytest.mark.parametrize(("items", "held"), [(5, "inconclusive"), (40, "supported")])
def test_a_few_answers_that_all_score_alike_are_no_certainty(items, held):
    perfect = answered(drawn({"tasks": "portfolio"}, items=items), lambda q: q.gold)
    found = {name.partition(": ")[2]: j for name, j in verdicts(perfect).items()}
    for name in ("boxes hold", "equalities fail", "ceiling"):
        found_of = found[name].interval
        assert found_of is not None and found_of.low < found_of.estimate == found_of.high == 1
    assert found["boxes hold"].verdict == held
    assert found["ceiling"].verdict == ("refuted" if items == 40 else "inconclusive")
    guesses = answered(drawn({"tasks": "case9"}, items=items), guess)
    found = {name.partition(": ")[2]: j for name, j in verdicts(guesses).items()}
    assert found["artefact"].verdict == "inconclusive"
    # Which balances a guess breaks is settled by the grid, whatever the instance.
    assert found["takes no competence"].verdict == "supported"


def test_thinking_aloud_is_asked_for_only_if_it_is_wanted():
    alone, thinking = drawn({"tasks": "knapsack"}), drawn({"tasks": "knapsack", "thinking": "true"})
    assert all("nothing else" in q.prompt for q in alone)
    assert all("Think as long as you need" in q.prompt for q in thinking)
    assert [q.gold for q in alone] == [q.gold for q in thinking]


def test_an_unknown_task_is_named():
    with pytest.raises(InvalidRequest, match="did you mean 'case14'"):
        drawn({"tasks": "case41"})


def test_a_whole_run_shows_the_rows_without_competence(tmp_path):
    known = {q.prompt: q.gold for q in drawn({"tasks": "knapsack"}, items=8)}
    options = KIT.chosen({"tasks": "knapsack"}, items=8)
    outcome = run_kit(KIT, Scripted(known.__getitem__, "solver"), tmp_path / "run", options)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert outcome.summary["score"] == {"strict": 1.0}
    assert "a guess without thought" in page and "optimum with 1 % noise" in page
    claims = {c["name"]: c["verdict"] for c in outcome.summary["claims"]}
    assert claims["whole numbers: ceiling"] == claims["whole numbers: artefact"] == "refuted"
    assert re.search(
        r"knapsack 1\.00 of the constraints \(.*\), every one in 1\.00", outcome.summary["verdict"]
    )


def test_an_endpoint_is_asked_by_command(tmp_path, capsys):
    known = {q.prompt: q.gold for q in drawn({"tasks": "scheduling"}, items=2)}
    with StandIn(known.__getitem__) as server:
        words = (
            f"constraints --items 2 --set tasks=scheduling --endpoint {server.url} --model m "
            f"--key-variable none --to {tmp_path}/run --json"
        )
        chosen = build().parse_args(words.split())
        run(chosen)
    found = json.loads(capsys.readouterr().out)
    assert found["score"] == {"strict": 1.0} and found["finished"]
    assert len(server.requests) == 2


# One run against another


def half(question, first):
    """The optimum, or a guess for every second instance."""
    return question.gold if int(question.id.partition("-")[2]) % 2 == first else guess(question)


def run_of(folder, say, settings=None, items=8, **more):
    options = KIT.chosen(settings or {"tasks": "knapsack"}, items=items)
    asked = {q.prompt: q for q in questions_of(KIT, options)}
    model = Scripted(lambda prompt: say(asked[prompt]), more.pop("name", "scripted"))
    return run_kit(KIT, model, folder, options, **more)


def same(outcome):
    [found] = [c for c in outcome.summary["claims"] if "the same within" in c["name"]]
    return found


@pytest.mark.parametrize(
    ("first", "second", "items", "verdict"),
    [
        (lambda q: q.gold, lambda q: q.gold, 70, "supported"),
        (lambda q: q.gold, lambda q: q.gold, 8, "inconclusive"),  # eight that agree are not all
        (lambda q: q.gold, guess, 20, "refuted"),
        (lambda q: half(q, 0), lambda q: half(q, 1), 8, "inconclusive"),
        (lambda q: q.gold, guess, 4, "not tested here"),
        (lambda q: q.gold, lambda q: "", 8, "not tested here"),
        (lambda q: "", lambda q: q.gold, 8, "not tested here"),
    ],
)
def test_two_runs_over_the_same_instances_get_a_verdict(first, second, items, verdict, tmp_path):
    run_of(tmp_path / "plain", first, items=items)
    thinking = {"tasks": "knapsack", "thinking": "true"}
    found = run_of(tmp_path / "thinking", second, thinking, items, against=tmp_path / "plain")
    claim = same(found)
    assert (claim["name"], claim["verdict"]) == ("whole numbers: the same within 0.05", verdict)
    if verdict != "not tested here":
        assert claim["units"] == items
        assert "More than the earlier run: whole numbers" in found.summary["verdict"]
    else:
        assert "five are needed" in claim["note"] or "could be read" in claim["note"]


def test_the_difference_is_paired_and_is_this_run_minus_the_earlier_one(tmp_path):
    run_of(tmp_path / "a", lambda q: half(q, 0), items=12)
    found = run_of(tmp_path / "b", lambda q: q.gold, items=12, name="b", against=tmp_path / "a")
    lost = [1 - row["micro"] for row in answered(drawn({"tasks": "knapsack"}, items=12),
                                                 lambda q: half(q, 0))]  # fmt: skip
    wanted = mean_interval(np.array(lost))
    assert same(found)["interval"] == pytest.approx([wanted.estimate, wanted.low, wanted.high])
    assert found.summary["against"]["model"] == "scripted"
    assert "scripted, items=12" in (tmp_path / "b" / "report.html").read_text("utf-8")


def test_an_earlier_run_may_have_answered_more(tmp_path):
    run_of(tmp_path / "a", guess, {"tasks": "scheduling,knapsack"}, items=9)
    assert same(run_of(tmp_path / "b", guess, against=tmp_path / "a"))["units"] == 8


def typed_against(folder, to, items=3, more=""):
    words = (
        f"constraints --items {items} --set tasks=knapsack --endpoint http://127.0.0.1:9/v1 "
        f"--model m --key-variable none --to {to} --against {folder} --quiet {more}"
    )
    run(build().parse_args(words.split()))


@pytest.mark.parametrize("dry", ["", "--dry-run"])
def test_what_cannot_be_put_against_is_refused_before_anything_is_asked(dry, tmp_path):
    def refused(folder, items, complaint, to=tmp_path / "b"):
        with pytest.raises(InvalidRequest, match=complaint) as found:
            typed_against(folder, to, items, dry)
        assert "\n" not in str(found.value) and not (tmp_path / "b").exists()

    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", 3, "empty holds no run: give the folder of a finished run")
    refused(tmp_path / "nowhere", 3, "nowhere holds no run")
    run_of(tmp_path / "a", guess, items=3)
    refused(tmp_path / "a", 4, r"answered 3 of these 4 instances.*--items 3 --seed 0 "
                               "--set tasks=knapsack")  # fmt: skip
    refused(tmp_path / "a", 3, "is the folder of this run itself", to=tmp_path / "a")
    options = KIT.chosen({"tasks": "knapsack"}, items=3, seed=1)
    run_kit(KIT, Scripted(lambda prompt: "", "other"), tmp_path / "other", options)
    refused(tmp_path / "other", 3, "answered 0 of these 3 instances.*--seed 1")
    report = tmp_path / "a" / "report.json"
    told = json.loads(report.read_text("utf-8"))
    report.write_text(json.dumps(told | {"finished": False, "answered": 2}), "utf-8")
    refused(tmp_path / "a", 3, r"not finished \(2 of 3 answered\): run its command again")
    report.write_text(json.dumps(told | {"kit": "battery"}), "utf-8")
    refused(tmp_path / "a", 3, "a holds a run of battery: give one of constraints")
    report.write_text("[]", "utf-8")
    refused(tmp_path / "a", 3, "holds no run")


def test_a_run_is_put_against_another_by_command(tmp_path, capsys):
    known = {q.prompt: q.gold for t in ("false", "true")
             for q in drawn({"tasks": "knapsack", "thinking": t}, items=5)}  # fmt: skip
    with StandIn(known.__getitem__) as server:
        for words in ("--to {0}/plain", "--to {0}/b --set thinking=true --against {0}/plain"):
            run(build().parse_args(
                f"constraints --items 5 --set tasks=knapsack --endpoint {server.url} --model m "
                f"--key-variable none --quiet {words.format(tmp_path)}".split()
            ))  # fmt: skip
    assert "whole numbers: the same within 0.05: inconclusive" in capsys.readouterr().out


def test_no_other_kit_can_be_put_against_a_run(tmp_path):
    battery = kit_named("battery")
    with pytest.raises(InvalidRequest, match="runs of battery cannot be put against one another"):
        run_kit(battery, Scripted(str, "echo"), tmp_path / "b", battery.chosen(items=1),
                against=tmp_path)  # fmt: skip
