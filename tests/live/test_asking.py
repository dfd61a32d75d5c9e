"""A kit put to a model: estimated, agreed to, resumed, and told even of a part."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from recombine.errors import InvalidRequest, NotApplicable, RecombineError, StoreError
from recombine.lab.study import Claim, Evidence
from recombine.live import (
    REGISTRY,
    Answer,
    Answers,
    ChatEndpoint,
    Kit,
    Options,
    Question,
    Scripted,
    estimate,
    kit_named,
    run_kit,
)
from recombine.live.asking import questions_of
from recombine.live.kit import rates_table, scored, share, shuffled
from recombine.report.document import Section
from recombine.seeds import host_seed

from .standin import StandIn, fails, filtered


@dataclass(frozen=True)
class SumOptions(Options):
    largest: int = 99


class Sums(Kit):
    """Can it add two numbers?"""

    name, question = "sums", "Can a language model add two numbers?"
    options, longest = SumOptions(), 64
    not_shown = ("Nothing about subtraction.",)

    def questions(self, options):
        rng = random.Random(host_seed(options.seed, self.name))
        for number in range(options.items):
            a, b = rng.randint(10, options.largest), rng.randint(10, options.largest)
            yield Question(f"sum-{number}", f"{a} + {b}", str(a + b), {"carry": int(a + b > 99)})

    def score(self, question, answer):
        return {"correct": float(answer.strip() == question.gold)}

    def sections(self, answers):
        return [Section("By carry", tables=[rates_table(answers, ("carry",))])]

    def claims(self, answers):
        right = answers.values("correct")
        found = Claim("adds", "It adds.", lambda _: Evidence.of_values(right), "items", above=0.9)
        return (found,)


def adds(prompt):
    return str(sum(int(word) for word in prompt.split(" + ")))


def summary_in(folder):
    return json.loads((folder / "report.json").read_text("utf-8"))


def rows_in(folder):
    return list(csv.DictReader(io.StringIO((folder / "table.csv").read_text("utf-8"))))


def test_a_perfect_script_gets_full_marks_and_its_claim_a_verdict(tmp_path):
    outcome = run_kit(Sums(), Scripted(adds, "adder"), tmp_path / "run")
    assert outcome.stopped is None and len(outcome.answers) == 20
    found = summary_in(tmp_path / "run")
    assert found["finished"] and found["score"] == {"correct": 1.0} and found["warnings"] == []
    [claim] = found["claims"]
    assert claim["verdict"] == "supported" and claim["units"] == 20
    controls = dict(found["tables"][-1]["rows"])
    assert controls["a perfect answerer"] == 1.0 and controls["an empty answer"] == 0.0
    assert controls["the model, shuffled gold"] < 0.2
    assert {row["correct"] for row in rows_in(tmp_path / "run")} == {"1.0"}
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Nothing about subtraction." in page and "Can it add two numbers?" in page


def test_the_same_answers_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        run_kit(Sums(), Scripted(adds, "adder"), tmp_path / name)
    for file in ("report.html", "report.json", "table.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_run_continues_where_it_stopped_and_asks_nothing_again(tmp_path):
    asked = []

    def tires(prompt):
        if len(asked) == 7:
            raise KeyboardInterrupt
        asked.append(prompt)
        return adds(prompt)

    with pytest.raises(KeyboardInterrupt):
        run_kit(Sums(), Scripted(tires, "adder"), tmp_path)
    found = summary_in(tmp_path)
    assert not found["finished"] and found["answered"] == 7
    assert "13 of 20 questions are not answered yet" in found["warnings"][0]
    assert "Partial" in (tmp_path / "report.html").read_text("utf-8")

    def fresh(prompt):
        assert prompt not in asked
        return adds(prompt)

    run_kit(Sums(), Scripted(fresh, "adder"), tmp_path)
    assert summary_in(tmp_path)["finished"] and summary_in(tmp_path)["warnings"] == []


def test_a_second_command_on_one_folder_is_refused_while_the_first_is_asking(tmp_path):
    refused = []

    def ask_there_too(prompt):
        with pytest.raises(StoreError, match="another process is asking into") as caught:
            run_kit(Sums(), Scripted(adds, "calculator"), tmp_path, SumOptions(items=3))
        refused.append(str(caught.value))
        return adds(prompt)

    outcome = run_kit(Sums(), Scripted(ask_there_too, "calculator"), tmp_path, SumOptions(items=3))
    assert outcome.summary["finished"] and len(refused) == 3
    again = run_kit(Sums(), Scripted(ask_there_too, "calculator"), tmp_path, SumOptions(items=3))
    assert again.summary == outcome.summary and len(refused) == 3


def test_more_items_may_be_asked_for_later(tmp_path):
    kit, asked = Sums(), []
    run_kit(kit, Scripted(adds, "adder"), tmp_path, kit.chosen(items=5))
    note = Scripted(lambda prompt: asked.append(prompt) or adds(prompt), "adder")
    run_kit(kit, note, tmp_path, kit.chosen(items=8))
    assert len(asked) == 3 and summary_in(tmp_path)["answered"] == 8


def fails_after_others(handler):
    """HTTP 500 once three others are answered: without any answer there is no page."""
    while len(handler.server.answered) < 3 and not handler.server.closing.wait(0.01):
        pass
    fails(500)(handler)


def test_a_failing_endpoint_leaves_a_partial_page_and_its_error(tmp_path):
    kit = Sums()
    last = sorted(q.prompt for q in kit.questions(kit.options))[-1]
    with StandIn(adds, by_prompt={last: fails_after_others}) as server:
        model = ChatEndpoint(server.url, "m", tmp_path / "answers.jsonl", key_variable=None,
                             attempts=2, pause=0.001)  # fmt: skip
        outcome = run_kit(kit, model, tmp_path)
        assert outcome.stopped is not None and "run again to continue" in str(outcome.stopped)
        assert outcome.answers.missing >= 1 and not summary_in(tmp_path)["finished"]
        server.by_prompt.clear()
        assert run_kit(kit, model, tmp_path).stopped is None
    assert len(server.answered) == len(set(server.answered)) == 20


def test_without_a_single_answer_there_is_no_page(tmp_path):
    with StandIn(adds, always=fails(500)) as server:
        model = ChatEndpoint(server.url, "m", tmp_path / "answers.jsonl", key_variable=None,
                             attempts=1)  # fmt: skip
        with pytest.raises(RecombineError, match="no answer from"):
            run_kit(Sums(), model, tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_answers_cut_off_and_refused_are_told_of(tmp_path):
    with StandIn(lambda prompt: None if prompt.startswith("1") else "a b c") as server:
        model = ChatEndpoint(server.url, "m", tmp_path / "answers.jsonl", key_variable=None,
                             longest=1)  # fmt: skip
        run_kit(Sums(), model, tmp_path)
    told = " ".join(summary_in(tmp_path)["warnings"])
    assert "answers were cut off" in told and "refused by the model" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>4, or 5</think>\n6", "\n6"),
        ("4, or 5</think>6", "6"),  # a template may open them in the prompt
        ("<think>4, or 5", ""),
        ("4</think>5<think>6</think>7", "57"),
        ("6 <think>or 7</think>", "6 "),
        ("6", "6"),
    ],
)
def test_thoughts_are_no_answer(text, said):
    assert Answer(text).said == said


def test_an_answer_cut_off_could_be_read_only_if_it_is_right():
    kit = Sums()
    [question, *_] = questions_of(kit, kit.options)
    for text, read in ((question.gold, 1), ("nothing yet", 0)):
        [row] = scored(kit, [question], {question.id: Answer(text, cut=True)})
        assert row.could_be_read == row["parsed"] == row["correct"] == read
    [row] = scored(kit, [question], {question.id: Answer("nothing yet")})
    assert row.could_be_read and row["correct"] == 0


@pytest.mark.parametrize(
    ("kit", "settings"),
    [
        ("battery", {"tasks": "logic,programs", "depths": "1"}),
        ("constraints", {"tasks": "knapsack"}),
        ("subgraphs", {"products": "2x2", "lengths": "3", "puzzles": "2x2"}),
    ],
)
def test_every_kit_says_how_many_answers_could_not_be_read(tmp_path, kit, settings):
    made = kit_named(kit)
    options = made.chosen(settings, items=2)
    sorry = Scripted(lambda _: "I'm sorry, but I can't help with that.", "sorry")
    outcome = run_kit(made, sorry, tmp_path, options)
    asked = len(outcome.answers)
    line = f"{asked} of {asked} answers could not be read, and count as wrong."
    assert outcome.summary["warnings"] == (line,)
    assert line in (tmp_path / "report.html").read_text("utf-8")


def test_in_a_kit_that_reads_anything_only_an_empty_answer_cannot_be_read(tmp_path):
    kit = Sums()
    empty = next(iter(kit.questions(kit.options))).prompt
    run_kit(kit, Scripted(lambda p: " " if p == empty else "no idea", "shy"), tmp_path)
    [told] = summary_in(tmp_path)["warnings"]
    assert told.startswith("1 of 20 answers could not be read")


def test_what_was_said_before_a_filter_stopped_it_is_not_marked(tmp_path):
    kit = Sums()
    question, _ = kit.questions(kit.chosen(items=2))
    with StandIn(always=filtered(content=question.gold)) as server:
        model = ChatEndpoint(server.url, "m", tmp_path / "answers.jsonl", key_variable=None)
        run_kit(kit, model, tmp_path, kit.chosen(items=2))
    found = summary_in(tmp_path)
    assert found["score"] == {"correct": 0.0}
    assert found["warnings"][0] == "2 questions were refused by the model, and count as wrong."
    assert dict(found["tables"][-1]["rows"])["the model, shuffled gold"] == 0.0


@pytest.mark.parametrize("content", ["[]", '"sums"', "{", '{"kit": "sums"}', "\x00"])
@pytest.mark.parametrize("answered", [True, False])
def test_a_folder_that_does_not_say_whose_it_is_is_left_as_it_is(tmp_path, content, answered):
    kit = Sums()
    (tmp_path / "request.json").write_text(content, "utf-8")
    if answered:
        run_kit(kit, Scripted(adds, "adder"), tmp_path / "other", kit.chosen(items=1))
        (tmp_path / "other" / "answers.jsonl").rename(tmp_path / "answers.jsonl")
    with pytest.raises(InvalidRequest, match=r"request\.json does not say whose .* give another"):
        run_kit(kit, Scripted(adds, "adder"), tmp_path, kit.chosen(items=1))
    assert (tmp_path / "request.json").read_text("utf-8") == content


def test_a_copy_of_the_log_alone_is_continued_from_in_another_folder(tmp_path):
    kit = Sums()
    run_kit(kit, Scripted(adds, "adder"), tmp_path / "a", kit.chosen(items=3))
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "answers.jsonl").rename(tmp_path / "b" / "answers.jsonl")
    silent = Scripted(lambda prompt: pytest.fail("asked again"), "adder")
    assert len(run_kit(kit, silent, tmp_path / "b", kit.chosen(items=3)).answers) == 3


def test_a_local_log_of_another_form_is_asked_again(tmp_path):
    kit = Sums()
    run_kit(kit, Scripted(adds, "adder"), tmp_path, kit.chosen(items=2))
    log = tmp_path / "answers.jsonl"
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    log.write_text("".join(json.dumps(line | {"answer": "5"}) + "\n" for line in lines), "utf-8")
    with pytest.warns(UserWarning, match="2 damaged lines"):
        run_kit(kit, Scripted(adds, "adder"), tmp_path, kit.chosen(items=2))
    assert summary_in(tmp_path)["score"] == {"correct": 1.0}


def test_a_folder_of_another_model_kit_or_purpose_is_refused(tmp_path):
    kit = Sums()
    run_kit(kit, Scripted(adds, "adder"), tmp_path / "run", kit.chosen(items=1))
    with pytest.raises(InvalidRequest, match="holds answers of adder to sums"):
        run_kit(kit, Scripted(adds, "other"), tmp_path / "run", kit.chosen(items=1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch", "utf-8")
    with pytest.raises(InvalidRequest, match="holds other files"):
        run_kit(kit, Scripted(adds, "adder"), tmp_path / "mine", kit.chosen(items=1))


def test_hostile_answers_are_inert_in_the_page_and_in_a_spreadsheet(tmp_path):
    kit = kit_named("battery")
    hostile = '=cmd|"/c calc"!A1 <script>alert(1)</script> {{7*7}} \x00'
    options = kit.chosen({"tasks": "logic", "depths": "1"}, items=2)
    run_kit(kit, Scripted(lambda _: hostile, "hostile"), tmp_path, options)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<script" not in page and "{{7*7}}" in page and "\x00" not in page
    assert all(row["answer"].startswith("'=") for row in rows_in(tmp_path))


def test_a_kit_that_marks_its_own_right_answer_down_is_refused(tmp_path):
    class Harsh(Sums):
        """Nothing is ever right."""

        def score(self, question, answer):
            return {"correct": 0.0}

    with pytest.raises(RecombineError, match="right answer to sum-0 does not score 1"):
        run_kit(Harsh(), Scripted(adds, "adder"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_estimate_counts_characters_and_multiplies_by_prices():
    kit = Sums()
    questions = [Question(str(n), "x" * (40 + 4 * n), "y" * 8) for n in range(10)]
    found = estimate(kit, questions, price_in=2.0, price_out=10.0)
    assert found.tokens_in == sum(10 + n for n in range(10))
    assert found.tokens_out == 20 and found.most_tokens_out == 640
    assert found.price == pytest.approx((found.tokens_in * 2 + 20 * 10) / 1e6)
    assert found.most_price == pytest.approx((found.tokens_in * 2 + 640 * 10) / 1e6)
    half = estimate(kit, questions, kept=lambda p: Answer("y") if len(p) < 60 else None)
    assert (half.answered, half.to_ask, half.price) == (5, 5, None)
    assert estimate(kit, questions, most_calls=3, longest=7).most_tokens_out == 21


@given(st.integers(1, 60), st.data())
def test_a_share_has_the_exact_interval_of_a_proportion(total, data):
    right = data.draw(st.integers(0, total))
    found = share(right, total)
    low, high = proportion_confint(right, total, method="beta")
    assert found.low == pytest.approx(low, abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.integers(0, 3))
def test_shuffling_gold_keeps_it_in_its_group_and_never_in_its_place(groups, seed):
    class Told(Sums):
        """Says which gold it was marked against."""

        within = ("group",)

        def score(self, question, answer):
            return {"correct": float(answer == question.gold), "gold": float(question.gold)}

    questions = [Question(str(n), "", str(n), {"group": g}) for n, g in enumerate(groups)]
    answers = scored(Told(), questions, {q.id: Answer(q.gold) for q in questions})
    control = shuffled(Told(), answers, seed)
    moved = {int(row.question.id): int(row["gold"]) for row in control}
    # One that is alone in its group has no other gold to be marked against.
    assert list(moved) == [n for n, group in enumerate(groups) if groups.count(group) > 1]
    assert sorted(moved.values()) == list(moved)
    for place, gold in moved.items():
        assert groups[place] == groups[gold] and place != gold


def test_what_is_not_answered_is_missing_and_not_wrong():
    kit = Sums()
    questions = questions_of(kit, kit.chosen(items=4))
    answers = scored(kit, questions, {"sum-1": Answer(questions[1].gold)})
    assert isinstance(answers, Answers)
    assert (len(answers), answers.missing, answers.rate().estimate) == (1, 3, 1.0)


def test_every_kit_is_found_by_name_or_said_to_be_missing(monkeypatch):
    for name, path in REGISTRY.items():
        if importlib.util.find_spec(path.partition(":")[0]) is not None:
            assert kit_named(name).name == name
    monkeypatch.setitem(REGISTRY, "lost", "recombine.live.lost:Lost")
    with pytest.raises(NotApplicable, match=r"'lost' .* is not part of this installation"):
        kit_named("lost")
    with pytest.raises(InvalidRequest, match="did you mean 'battery'"):
        kit_named("batery")
