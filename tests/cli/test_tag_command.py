"""The `tag` command where a model talks nonsense, and what a stop leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from live.standin import StandIn
from recombine.cli import main

Command = Callable[..., tuple[int, str, str]]
LEXICON = '[factors.colour]\nwith = "lexicon"\nvalues = { red = ["red"], blue = ["blue"] }\n'
ASKED = '[factors.colour]\nwith = "endpoint"\nvalues = ["red", "blue"]\nquestion = "Colour?"\n'
RED = '{"colour": "red"}'


@pytest.fixture
def recombine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> Iterator[Command]:
    """Types a command in a folder of its own; gives exit code and what was printed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(map(str, words)))
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


def texts(path: Path, several: list[str]) -> None:
    path.write_text("\n".join(["text", *several]) + "\n")


def asking(server: StandIn) -> list[str]:
    return ["tag", "in.csv", "--column", "text", "--with", "spec.toml", "--to", "out.csv",
            "--endpoint", server.url, "--model", "m", "--key-variable", "none",
            "--yes"]  # fmt: skip


def number_in(prompt: str) -> int:
    return int(prompt.split("text number ")[1].split()[0])


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    (tmp_path / "spec.toml").write_text(ASKED)
    texts(tmp_path / "in.csv", [f"text number {n}" for n in range(200)])
    return tmp_path


# --- a model that talks nonsense ---


def test_a_model_that_cannot_be_read_is_given_up_early_and_what_it_said_is_shown(
    recombine, numbered
):
    with StandIn(lambda prompt: "Well, I think it is red.") as server:
        code, out, err = recombine(*asking(server))
        asked = len(server.answered)
        again = recombine(*asking(server))
    assert (code, out) == (2, "") and err.splitlines()[-1].startswith("recombine: error: ")
    assert "did not answer with JSON on 20 texts in a row" in err and "Well, I think it" in err
    assert "Traceback" not in err and asked < 200
    log = (numbered / "out.csv.answers.jsonl").read_text().splitlines()
    assert len(log) >= 20 and "out.csv.answers.jsonl" in err  # what was paid for is kept
    assert not (numbered / "out.csv").exists() and not (numbered / "out.check.csv").exists()
    # Once more costs nothing but what was never answered.
    assert again[0] == 2 and len(server.answered) == len(set(server.answered))


def test_a_few_rows_of_nonsense_alone_are_an_error_too(recombine, numbered):
    texts(numbered / "in.csv", ["text number 1", "text number 2"])
    with StandIn(lambda prompt: '{"colour": "green"}') as server:
        code, _, err = recombine(*asking(server))
    assert code == 2 and "not allowed: 'green' on every text" in err
    assert not (numbered / "out.csv").exists()


def test_a_bad_stretch_of_a_good_model_costs_its_rows_only(recombine, numbered):
    with StandIn(lambda p: "no idea" if 50 <= number_in(p) < 90 else RED) as server:
        code, out, _ = recombine(*asking(server), "--json")
    found = json.loads(out)
    assert code == 0 and found["factors"] == {"colour": {"red": 160, "(missing)": 40}}
    assert "40 rows are (missing): the model did not answer with JSON" in found["notes"][0]


def test_one_text_that_many_rows_hold_is_no_stretch(recombine, numbered):
    texts(numbered / "in.csv", ["text number 1", *["text number 0"] * 60, "text number 2"])
    with StandIn(lambda p: RED if number_in(p) else "no idea") as server:
        code, _, _ = recombine(*asking(server))
    assert code == 0 and len(server.answered) == 3


def test_a_model_that_breaks_in_the_middle_is_given_up_before_the_end(recombine, numbered):
    with StandIn(lambda p: RED if number_in(p) < 30 else "no idea") as server:
        code, _, err = recombine(*asking(server))
    assert code == 2 and "on 30 texts in a row" in err and len(server.answered) < 200


# --- a stop ---

SLEEPER = """
import time
from pathlib import Path

def tone(row):
    Path("begun").touch()
    time.sleep(60)
"""


def test_a_stop_while_a_function_tags_says_that_nothing_was_written(tmp_path):
    (tmp_path / "mine.py").write_text(SLEEPER)
    (tmp_path / "spec.toml").write_text(
        '[factors.tone]\nwith = "callable"\nfunction = "mine.py:tone"\nvalues = ["good", "bad"]\n'
    )
    texts(tmp_path / "in.csv", ["a", "b"])
    words = ["tag", "in.csv", "--with", "spec.toml", "--to", "out.csv", "--timeout", "100"]
    program = f"from recombine.cli import main\nmain({words})"
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "begun").exists() and child.poll() is None:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err == "recombine: stopped, and nothing was written: run it again from the start\n"
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {
        "mine.py", "spec.toml", "in.csv", "begun",
    }  # fmt: skip


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("recombine.tags.taggers.finder_of",
         "tag in.csv --column text --with spec.toml --to out.csv"),
        ("recombine.collecting.choosing.collect", "collect toys.csv --to out"),
        ("recombine.audits.auditing.audit", "audit toys.csv --to out"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_continue_does_not_promise_to(
    recombine, tmp_path, monkeypatch, place, words
):
    (tmp_path / "spec.toml").write_text(LEXICON)
    texts(tmp_path / "in.csv", ["a red hat", "a blue one"])
    (tmp_path / "toys.csv").write_text("colour,shape\n" + "red,cube\nblue,ball\n" * 5)
    before = set(tmp_path.iterdir())
    monkeypatch.setattr(place, interrupted)
    code, out, err = recombine(*words.split())
    assert (code, out) == (130, "") and "continue" not in err
    assert err.endswith("stopped, and nothing was written: run it again from the start\n")
    assert set(tmp_path.iterdir()) == before


def test_a_stop_while_a_model_is_asked_keeps_its_answers_and_continues(
    recombine, numbered, monkeypatch
):
    from recombine.tags import endpoint

    read, seen = endpoint.read_answer, []

    def stops(answer, factors):
        seen.append(answer)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return read(answer, factors)

    with StandIn(lambda prompt: RED) as server:
        with monkeypatch.context() as patched:
            patched.setattr(endpoint, "read_answer", stops)
            code, _, err = recombine(*asking(server))
        assert code == 130 and "run the same command to continue" in err
        assert recombine(*asking(server))[0] == 0
    assert len(server.answered) == len(set(server.answered)) == 200
