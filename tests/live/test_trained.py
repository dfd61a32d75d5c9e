"""A network trained here, asked like any other model."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from recombine import Supervised, fit, instruments
from recombine.cli.live import run
from recombine.cli.parser import build
from recombine.errors import InvalidRequest, RecombineError, StoreError
from recombine.families import Multiplication, Scan, Strings
from recombine.families.knapsack import KnapsackFamily
from recombine.learners import NextToken
from recombine.live import Model, Taught, TrainedHere, kit_named, run_kit
from recombine.models import SequenceModel

LEARNER = NextToken(
    family=Strings(
        train_items=200, test_items=10, sentences=6, validation_items=8, tasks=("cipher",)
    ),
    model=SequenceModel(depth=1, width=16, heads=2),
    training_steps=10,
    batch=2,
    row=64,
    rows=256,
    vocabulary=64,
    evaluation_every=10,
    evaluation_rows=8,
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("trained") / "runs"


@pytest.fixture(scope="module")
def fitted(store):
    return fit(LEARNER, store)


@pytest.fixture
def model(fitted, store):
    return TrainedHere(store, fitted.cell[:6])


def typed(words: str) -> None:
    run(build().parse_args(words.split()))


def test_answers_are_those_of_its_subject(fitted, model):
    prompts = [item.source for item in model.items()["decode common high"]]
    assert isinstance(model, Model) and isinstance(model, Taught) and model.free
    assert [answer.text for answer in model.ask(prompts)] == fitted.subject.answer(prompts)
    assert fitted.cell[:16] in model.identity and "strings" in model.identity


def test_an_answer_that_fills_its_bound_is_marked_as_cut(fitted, store):
    short = TrainedHere(store, fitted.cell, longest=2)
    [answer] = short.ask(["= ab"])
    assert len(fitted.subject.written([fitted.subject.numbers("= ab")], 2)[0]) == 2
    assert answer.cut and short.identity.endswith("longest=2")


def test_items_are_those_of_the_family_beyond_training(model):
    corpus = LEARNER.family.corpus(LEARNER.seeds.content)
    assert model.items() == {s: list(corpus[s]) for s in corpus.splits if s != "train"}


def test_words_it_does_not_know_are_named_before_anything_is_asked(model, tmp_path):
    with pytest.raises(InvalidRequest, match=r"does not know the characters 'é', 'ß'; it reads"):
        next(model.ask(["= éß"]))
    battery = kit_named("battery")
    with pytest.raises(InvalidRequest, match="does not know the characters"):
        run_kit(battery, model, tmp_path / "run", battery.chosen(items=1))
    assert not (tmp_path / "run").exists()


def test_a_refusal_says_what_does_serve_the_network(fitted, model, monkeypatch):
    with pytest.raises(InvalidRequest) as refused:
        model.check(["Solve this."])
    said = str(refused.value)
    assert "recombine embers --cell asks it in its own words" in said
    [call] = re.findall(r"recombine\.(load\(.*?\)\.read\((\w+)\(\)\))", said)
    assert call[1] == "Probability" and f"'{fitted.cell[:16]}'" in call[0]
    for family, name in (
        (Multiplication(), "Subgraphs"), (KnapsackFamily(), "Constraints"), (Scan(), "ExactMatch")
    ):  # fmt: skip
        monkeypatch.setattr(TrainedHere, "family", family)
        with pytest.raises(InvalidRequest, match=rf"Read it from Python instead: .*{name}\(\)"):
            model.check(["Solve # this."])
        assert hasattr(instruments, name)


def test_a_question_too_long_for_its_rows_is_refused(model):
    with pytest.raises(InvalidRequest, match=r"reads rows of 64 tokens: .* leaves no room"):
        model.check([f"= {'a' * 61}"])
    model.check([f"= {'a' * 59}"])


def test_embers_asks_a_network_in_its_own_words(fitted, model, store, tmp_path, capsys):
    words = f"embers --cell {fitted.cell[:6]} --store {store} --to {tmp_path}/run --items 4 --quiet"
    typed(f"{words} --json")
    found = json.loads(capsys.readouterr().out)
    assert (found["questions"], found["finished"]) == (32, True)
    rows = (tmp_path / "run" / "table.csv").read_text("utf-8")
    questions = kit_named("embers").questions_for(kit_named("embers").chosen(items=4), model)
    for question in questions:
        assert question.gold == LEARNER.family.solve(question.prompt)
        assert f"{question.columns['task']}-{question.columns['condition']}-" in rows
        likely = question.columns["output_logprob"]
        text = LEARNER.family._text_language.log_probability(question.gold)
        assert likely == pytest.approx(text)
    before = (tmp_path / "run" / "answers.jsonl").read_bytes()
    typed(words)  # answered before
    assert (tmp_path / "run" / "answers.jsonl").read_bytes() == before
    assert "32 of 32 answered" in capsys.readouterr().out


@pytest.mark.parametrize("kit", ["battery", "constraints", "subgraphs"])
def test_a_kit_that_asks_in_english_offers_no_network_that_reads_none(kit, capsys):
    for name, offered in ((kit, False), ("embers", True)):
        with pytest.raises(SystemExit):
            typed(f"{name} --help")
        told = capsys.readouterr().out
        assert "--hf FOLDER" in told and ("--cell ID" in told) == offered
    with pytest.raises(InvalidRequest, match=r"^give --endpoint .* or --hf FOLDER") as refused:
        typed(f"{kit} --items 1 --to run")
    assert "--cell" not in str(refused.value)
    with pytest.raises(SystemExit):
        typed(f"{kit} --cell 3ac710 --to run")
    assert "unrecognized arguments: --cell 3ac710" in capsys.readouterr().err


def test_own_stimuli_may_be_put_to_a_network(fitted, store, tmp_path, capsys):
    rows = [
        {"task_name": "copy", "example_type": kind, "instruction_plus_input": f"= {text}",
         "correct_output": text}
        for kind, text in (("highprob", "abc"), ("lowprob", "xyz"))
    ]  # fmt: skip
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    typed(f"embers --cell {fitted.cell} --store {store} --to {tmp_path}/run --quiet "
          f"--set stimuli={path}")  # fmt: skip
    assert "2 of 2 answered" in capsys.readouterr().out


def test_what_is_no_such_cell_is_said_in_one_line(fitted, store, tmp_path):
    words = f"embers --to {tmp_path}/run --cell"
    with pytest.raises(RecombineError, match=r"no cell in .* starts with 'zzz'; recombine show"):
        typed(f"{words} zzz --store {store}")
    with pytest.raises(StoreError, match="there is no store at"):
        typed(f"{words} {fitted.cell} --store {tmp_path}/nowhere")
    with pytest.raises(RecombineError, match="give --to FOLDER"):
        typed(f"embers --cell {fitted.cell} --store {store}")
    assert not (tmp_path / "run").exists()


def test_a_cell_that_does_not_answer_in_text_is_refused(fitted, store, monkeypatch):
    other = replace(fitted, learner=Supervised(), subject=object())
    monkeypatch.setattr("recombine.lab.api.load", lambda store, cell: other)
    with pytest.raises(InvalidRequest, match=f"cell {fitted.cell[:16]} is a Supervised, which"):
        _ = TrainedHere(store, fitted.cell).identity
