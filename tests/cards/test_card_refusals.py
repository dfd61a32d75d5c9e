"""What the `card` command says of a model without answers, and of an older card that differs."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from recombine.cli.cards import arguments, run
from recombine.cli.parser import Parser
from recombine.errors import RecombineError

ADAPTER = """
def good(record):
    return record["shape"]

def mute(record):
    raise RuntimeError("no weights")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of every colour, shape and light, training without red cubes, and two adapters."""
    there = tmp_path_factory.mktemp("card")
    every = list(itertools.product(("red", "green", "blue"), ("cube", "ball"), ("day", "dusk")))
    parts = {"train": [c for c in every if c[:2] != ("red", "cube")] * 8, "eval": every * 6}
    for name, rows in parts.items():
        with (there / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("colour", "shape", "light"), *rows])
    (there / "mine.py").write_text(ADAPTER)
    return there


def typed(folder: Path, model: str, *words: object) -> int | None:
    made = Parser(prog="recombine card")
    made.add_argument("--json", action="store_true")
    arguments(made)
    given = [
        f"{folder / 'mine.py'}:{model}", "--data", folder / "eval.csv", "--train",
        folder / "train.csv", "--factors", "colour,shape,light", "--label", "shape", "--quiet",
    ]  # fmt: skip
    return run(made.parse_args([str(word) for word in [*given, *words]]))


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Any]:
    """The JSON of a card of the good model."""
    typed(folder, "good", "--to", folder / "first")
    return json.loads((folder / "first" / "card.json").read_text())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"factors": ["colour", "shape"]}, "a card of other factors, colour, shape,"),
        ({"label": ["colour"]}, "a card of other labels, colour,"),
        ({"digest": "0"}, "a card of other rows,"),
        ({"numbers": None}, "holds no 'numbers'"),
        ({"schema": "x"}, "has schema 'x'"),
    ],
)
def test_a_card_that_cannot_be_compared_is_refused_before_the_model_is_asked(
    folder: Path, made: dict[str, Any], tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(made | more))
    with pytest.raises(RecombineError) as found:
        typed(folder, "no_such_model", "--against", path)
    assert told in str(found.value) and "\n" not in str(found.value)


def test_a_card_of_the_same_rows_is_compared(
    folder: Path, made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    better = made["numbers"] | {"coverage.pairs": made["numbers"]["answered"]}
    path = tmp_path / "older.json"
    path.write_text(json.dumps(made | {"numbers": better}))
    assert typed(folder, "good", "--against", path) is None
    assert "worse: coverage.pairs was 1, is 0.9" in capsys.readouterr().out


def test_a_model_that_answers_nothing_ends_in_an_error_after_its_card(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecombineError, match=r"mute answered none of 72 rows .*no weights"):
        typed(folder, "mute", "--to", tmp_path)
    printed = capsys.readouterr().out
    assert printed.startswith("Not enough data to say: the model answered no row.")
    assert "problem: and 64 more" in printed
    assert len(json.loads((tmp_path / "card.json").read_text())["problems"]) == 72
