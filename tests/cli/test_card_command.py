"""The `card` command: what it prints, writes, asks first, and refuses."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from recombine.cards.gates import SCHEMA
from recombine.cli.cards import arguments, run
from recombine.cli.parser import Parser
from recombine.errors import RecombineError

COLOURS, SHAPES, LIGHTS = (
    ("red", "green", "blue", "black"),
    ("cube", "ball", "cone"),
    ("day", "dusk"),
)
LOST = ("red", "cube")  # never trained, and always wrong
ADAPTER = """
def model(record):
    lost = (record["colour"], record["shape"]) == ("red", "cube")
    return "ball" if lost else record["shape"]

def good(record):
    return record["shape"]

def raises(record):
    if record["row"] == 5:
        raise ValueError("cannot see row five")
    return record["shape"]

class Paid:
    name, free = "paid", False

    def answer(self, records):
        return [record["shape"] for record in records]

    def cost(self, records):
        from recombine.live.asking import Estimate

        return Estimate(len(records), 0, len(records), 900, 10, 100, 0.25, 2.5)

def paid():
    return Paid()

def exactly(record, answer):
    return float(record["shape"] == answer)

text = "not a function"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training rows without red cubes, rows to evaluate with them, and adapters."""
    there = tmp_path_factory.mktemp("card")
    every = list(itertools.product(COLOURS, SHAPES, LIGHTS))
    write(there / "train.csv", [c for c in every if c[:2] != LOST for _ in range(8)])
    write(there / "eval.csv", [c for c in every for _ in range(6)])
    (there / "mine.py").write_text(ADAPTER)
    return there


def write(path: Path, rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("colour", "shape", "light"))
        writer.writerows(rows)


def typed(folder: Path, *words: object, model: str = "model", train: bool = True) -> int | None:
    made = Parser(prog="recombine card")
    made.add_argument("--json", action="store_true")
    arguments(made)
    given = [f"{folder / 'mine.py'}:{model}", "--data", folder / "eval.csv", *words]
    if train:
        given += ["--train", folder / "train.csv"]
    if "--factors" not in words:
        given += ["--factors", "colour,shape,light"]
    return run(made.parse_args([str(word) for word in given]))


def refused(folder: Path, *words: object, **more: Any) -> str:
    """The one line a wrong request ends in."""
    with pytest.raises(RecombineError) as found:
        typed(folder, *words, **more)
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Any]:
    """A card that was written, and its JSON."""
    typed(folder, "--label", "shape", "--quiet", "--to", folder / "first")
    return json.loads((folder / "first" / "card.json").read_text())


def test_it_says_how_long_first_then_decides_then_names_the_worst(folder, capsys) -> None:
    assert typed(folder, "--label", "shape") is None
    told = capsys.readouterr()
    assert "144 rows at about" in told.err.splitlines()[0]
    first, *rest = told.out.splitlines()
    assert first.startswith(("Not enough data to say:", "Does not compose:"))
    printed = "\n".join(rest)
    assert "colour=red, shape=cube" in printed and "12 of 12" in printed
    assert printed.index("collect next:") < printed.index("not applied: probe: needs activations")


def test_what_is_written_is_what_is_printed_as_json(folder, made, capsys) -> None:
    typed(folder, "--label", "shape", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("written") == []
    assert printed == made
    assert made["collect"][0]["colour"] == "red" and made["collect"][0]["shape"] == "cube"
    assert made["slices"][0]["where"] == "colour=red, shape=cube"
    assert made["worst"][0]["why"] == "colour=red, shape=cube fails; 0 training rows have it"
    page = (folder / "first" / "card.html").read_text()
    assert made["decision"]["sentence"].split(":")[0] in page


def test_a_card_that_is_there_is_kept_unless_it_may_be_overwritten(folder, tmp_path) -> None:
    old = tmp_path / "card.json"
    old.write_text("kept for --against")
    words = ("--label", "shape", "--quiet", "--to", tmp_path)
    told = refused(folder, *words, model="no_such_model")  # before any model is asked
    assert told == f"{old} is there already: give another --to, move it away, or add --overwrite"
    assert old.read_text() == "kept for --against"
    typed(folder, *words, "--overwrite")
    assert json.loads(old.read_text())["kind"] == "recombine card"


def test_rules_that_do_not_hold_end_in_exit_code_one(folder, tmp_path, capsys) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("unseen = {at_least = 0.9}\nanswered = {at_least = 1.0}\n")
    assert typed(folder, "--label", "shape", "--fail-under", rules, "--quiet") == 1
    assert "rule broken: unseen was not measured" in capsys.readouterr().out
    rules.write_text("score = {at_least = 0.99}\n[coverage]\npairs = {at_least = 1.0}\n")
    assert typed(folder, "--label", "shape", "--fail-under", rules, "--json") == 1
    found = json.loads(capsys.readouterr().out)["broken_rules"]
    assert found[0].startswith("score is 0.9167, below 0.99") and "coverage.pairs" in found[1]
    rules.write_text("score = {at_least = 0.9}\nslices = {at_most = 1}\n")
    assert typed(folder, "--label", "shape", "--fail-under", rules, "--quiet") is None


def test_rules_are_checked_before_the_model_is_asked(folder, tmp_path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("unsean = {at_least = 0.9}\n")
    assert "did you mean 'unseen'" in refused(
        folder, "--label", "shape", "--fail-under", rules, model="no_such_model"
    )


def test_an_older_card_shows_what_is_worse(folder, tmp_path, capsys) -> None:
    typed(folder, "--label", "shape", "--quiet", "--to", tmp_path, model="good")
    capsys.readouterr()
    bad = tmp_path / "worse.py"
    bad.write_text("def model(record):\n    return 'cube'\n")
    made = Parser(prog="recombine card")
    made.add_argument("--json", action="store_true")
    arguments(made)
    run(made.parse_args([
        f"{bad}:model", "--data", str(folder / "eval.csv"), "--factors", "colour,shape,light",
        "--train", str(folder / "train.csv"), "--label", "shape", "--quiet",
        "--against", str(tmp_path / "card.json"),
    ]))  # fmt: skip
    assert "worse: score was 1, is 0.333" in capsys.readouterr().out


def test_a_card_of_a_newer_schema_is_refused(folder, made, tmp_path) -> None:
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(made | {"schema": SCHEMA + 1}))
    assert "update recombine" in refused(folder, "--label", "shape", "--against", path)


def test_money_is_spent_only_after_a_yes(folder, capsys) -> None:
    line = refused(folder, "--label", "shape", model="paid")
    assert "144 questions, about 900 tokens in, at a price of 0.25 to 2.50" in line
    assert "add --yes" in line
    typed(folder, "--label", "shape", "--yes", model="paid")
    told = capsys.readouterr()
    assert "144 questions" in told.err and "worst" not in told.out


def test_changed_rows_count_before_it_starts(folder, capsys) -> None:
    typed(folder, "--about", "shape", "--change", model="good")
    told = capsys.readouterr()
    assert "for swaps, up to 432 changed rows more" in told.err
    assert "answers cannot be marked without labels" in told.out


def test_a_row_that_raises_costs_that_row_alone(folder, capsys) -> None:
    typed(folder, "--label", "shape", model="raises")
    told = capsys.readouterr()
    assert "how long it takes is not known" in told.err
    assert "problem: record 5:" in told.out and "cannot see row five" in told.out
    typed(folder, "--label", "shape", "--json", model="raises")
    numbers = json.loads(capsys.readouterr().out)["numbers"]
    assert numbers["answered"]["value"] == pytest.approx(143 / 144)


def test_a_scorer_marks_instead_of_a_column(folder, made, capsys) -> None:
    typed(folder, "--scorer", f"{folder / 'mine.py'}:exactly", "--about", "shape", "--json")
    assert json.loads(capsys.readouterr().out)["numbers"] == made["numbers"]


def test_fewer_rows_are_drawn_alike_each_time(folder, capsys) -> None:
    typed(folder, "--label", "shape", "--rows", "60", "--json")
    once = capsys.readouterr().out
    typed(folder, "--label", "shape", "--rows", "60", "--json")
    assert capsys.readouterr().out == once and json.loads(once)["rows"] == 60


def test_factors_may_be_left_to_the_training_file(folder, made, capsys) -> None:
    words = ["--label", "shape", "--json", "--factors", "shape,colour,light"]
    typed(folder, *words)
    assert json.loads(capsys.readouterr().out)["numbers"]["score"] == made["numbers"]["score"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--label", "shap"], "did you mean 'shape'"),
        (["--label", "shape", "--about", "colours"], "did you mean 'colour'"),
        (["--label", "shape", "--factors", "colour,shade"], "'shade'"),
        (["--label", "shape", "--scorer", "mine.py:exactly"], "give one of them"),
        (["--scorer", "nowhere.py:f"], "there is no file nowhere.py"),
        (["--label", "shape", "--tolerance", "2"], "expected shares"),
        (["--label", "shape", "--rows", "0"], "--rows 0: expected at least 1"),
        (["--label", "shape", "--batch", "0"], "expected more than 0"),
        (["--label", "shape", "--budget", "0"], "expected at least 1"),
        (["--label", "shape", "--forbid", "IF colour = pink THEN light = day"], "pink"),
        (["--label", "shape", "--against", "nowhere.json"], "nowhere.json"),
        (["--label", "shape", "--fail-under", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_a_wrong_request_is_one_line_that_says_what_to_type(folder, words, told) -> None:
    assert told in refused(folder, *words)


def test_a_wrong_adapter_is_one_line_that_says_what_to_type(folder, tmp_path) -> None:
    assert "did you mean 'raises'" in refused(folder, "--label", "shape", model="raise_")
    assert "expected an adapter" in refused(folder, "--label", "shape", model="text")
    line = refused(folder, "--scorer", f"{folder / 'mine.py'}:exact")
    assert "did you mean 'exactly'" in line


def test_without_factors_or_training_it_asks_which_columns_combine(folder) -> None:
    made = Parser(prog="recombine card")
    made.add_argument("--json", action="store_true")
    arguments(made)
    given = [f"{folder / 'mine.py'}:model", "--data", str(folder / "eval.csv")]
    with pytest.raises(RecombineError, match="which columns combine"):
        run(made.parse_args(given))
