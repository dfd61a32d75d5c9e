"""The commands that ask a model, as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from recombine.cli.live import run
from recombine.cli.parser import build
from recombine.errors import InvalidRequest, RecombineError
from recombine.live.battery_solver import solve

from .standin import StandIn, fails, filtered, hangs

SMALL = "--items 1 --set tasks=logic,strings depths=1,2 novelty=new"


def typed(words: str) -> None:
    chosen = build().parse_args(words.split())
    assert chosen.run is not None
    run(chosen)


def test_a_dry_run_needs_no_key_no_model_and_no_folder(capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    typed(f"battery {SMALL} --dry-run --price-in 2 --price-out 8")
    said = capsys.readouterr().out
    assert said.startswith("4 questions, 0 answered before, 4 to ask now\nabout ")
    assert "; price 0.00" in said and said.count("--- right: ") == 3


def test_a_whole_run_by_command_says_what_it_takes_and_where_the_report_is(tmp_path, capsys):
    with StandIn(solve) as server:
        typed(f"battery {SMALL} --endpoint {server.url} --model m --key-variable none "
              f"--to {tmp_path}/run --json")  # fmt: skip
        printed = capsys.readouterr()
        found = json.loads(printed.out)
        assert found["score"] == {"correct": 1.0} and found["finished"]
        assert "4 questions, 0 answered before, 4 to ask now" in printed.err
        typed(f"battery {SMALL} --endpoint {server.url} --model m --key-variable none "
              f"--to {tmp_path}/run")  # fmt: skip
        printed = capsys.readouterr()
        assert "4 answered before, 0 to ask now" in printed.err
        assert f"report: {tmp_path}/run/report.html" in printed.out
    assert len(server.requests) == 4


def test_what_may_cost_money_is_not_asked_without_a_yes(tmp_path, monkeypatch):
    monkeypatch.setenv("ORACLE_KEY", "s3cret")
    with StandIn(solve) as server:
        words = (
            f"battery {SMALL} --endpoint {server.url} --model m --key-variable ORACLE_KEY "
            f"--to {tmp_path}/run --quiet"
        )
        with pytest.raises(InvalidRequest, match="may cost money: add --yes"):
            typed(words)
        assert server.requests == [] and not (tmp_path / "run").exists()
        typed(f"{words} --yes")
    assert len(server.requests) == 4


@pytest.mark.parametrize(("reply", "asked"), [("y\n", 4), ("n\n", 0), ("", 0)])
def test_at_a_terminal_the_question_is_put(tmp_path, monkeypatch, reply, asked):
    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return reply

    monkeypatch.setattr(sys, "stdin", Terminal())
    with StandIn(solve) as server:
        words = (
            f"battery {SMALL} --endpoint {server.url} --model m --key-variable none "
            f"--price-in 1 --price-out 2 --to {tmp_path}/run --quiet"
        )
        if asked:
            typed(words)
        else:
            with pytest.raises(InvalidRequest, match="nothing was asked"):
                typed(words)
    assert len(server.requests) == asked


def test_a_spent_cap_prints_the_partial_result_and_how_to_continue(tmp_path, capsys):
    with StandIn(solve) as server:
        words = (
            f"battery {SMALL} --endpoint {server.url} --model m --key-variable none --most-calls 2 "
            f"--to {tmp_path}/run --quiet"
        )
        with pytest.raises(RecombineError, match=r"the 2 calls are spent; .* raise --most-calls"):
            typed(words)
        assert "2 of 4 answered" in capsys.readouterr().out
        typed(words)  # two more
        assert "4 of 4 answered" in capsys.readouterr().out
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "give --endpoint URL --model NAME .* or --hf FOLDER"),
        ("--endpoint http://127.0.0.1:9/v1", "--model NAME is missing"),
        ("--model m", "--endpoint URL is missing"),
        ("--endpoint http://127.0.0.1:9/v1 --model m --hf there", "two models were given"),
        ("--endpoint http://127.0.0.1:9/v1 --model m", "give --to FOLDER"),
        ("--endpoint http://127.0.0.1:9/v1 --model m --to run", "no OPENAI_API_KEY: export it"),
        ("--endpoint nowhere --model m --to run --key-variable none", "^--endpoint 'nowhere'"),
        ("--hf nowhere --to run", "nowhere holds no config.json"),
        ("--items 0", "--items 0: expected at least 1"),
        ("--items 1 --set depths=9", "--set depths=9: expected numbers from 1 to 7"),
        ("--items 1 --set tasks=logik", "unknown task 'logik': did you mean 'logic'"),
        ("--items 1 --set tasks=xyz", r"unknown task 'xyz' \(allowed: commands, "),
        ("--items 1 --dry-run --price-in -1", "--price-in -1.0: expected the price"),
        (
            "--items 1 --dry-run --price-in 2.5",
            "^--price-in 2.5: --price-out is missing; give",
        ),
        ("--items 1 --dry-run --price-out 8", "^--price-out 8.0: --price-in is missing; give"),
        (
            "--endpoint http://127.0.0.1:9/v1 --model m --key-variable none --to run --timeout -1",
            r"^--timeout -1\.0: expected more than 0 seconds",
        ),
        ("--items 1 --dry-run --workers 0", "^--workers 0: expected at least 1"),
        ("--items 1 --dry-run --most-calls 0", "^--most-calls 0: expected at least 1"),
        ("--items 99", "--items 99: commands has no more than about 50 different questions"),
    ],
)
def test_mistakes_are_named_as_they_were_typed(words, complaint, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecombineError, match=complaint):
        typed(f"battery {words}")
    assert not (tmp_path / "run").exists()


def test_an_answer_that_takes_longer_than_it_may_is_told_with_the_option(monkeypatch, tmp_path):
    monkeypatch.setattr("recombine.live.client.LONGEST_PAUSE", 0.001)
    with StandIn(solve, always=hangs) as server:
        words = f"battery {SMALL} --endpoint {server.url} --model m --key-variable none"
        with pytest.raises(RecombineError, match=r"whole answer in 0[.]1 s, --timeout gives it"):
            typed(f"{words} --to {tmp_path}/run --quiet --timeout 0.1")


def test_a_blank_key_is_none_and_is_told_in_options(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "   ")
    with pytest.raises(InvalidRequest, match=r"no OPENAI_API_KEY: .* or say --key-variable none"):
        typed(f"battery {SMALL} --endpoint http://127.0.0.1:9/v1 --model m --to {tmp_path}/run")
    assert not (tmp_path / "run").exists()


def test_a_failure_is_one_line_and_exit_code_two(tmp_path):
    with StandIn(solve, always=fails(401)) as server:
        words = (
            f"battery {SMALL} --endpoint {server.url} --model m --key-variable none "
            f"--to {tmp_path}/run --quiet"
        )
        done = subprocess.run(
            [sys.executable, "-m", "recombine", *words.split()], capture_output=True, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("recombine: error: question ") and "HTTP 401" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_told_by_the_name_of_its_variable(code, tmp_path, monkeypatch):
    monkeypatch.setenv("ORACLE_KEY", "s3cret")
    with StandIn(solve, always=fails(code)) as server:
        words = f"battery {SMALL} --endpoint {server.url} --model m --to {tmp_path}/run --yes"
        with pytest.raises(RecombineError, match=f"HTTP {code}.*; check the key in ORACLE_KEY, "
                                                 "and that it may use m$") as found:  # fmt: skip
            typed(f"{words} --quiet --key-variable ORACLE_KEY")
        assert "s3cret" not in str(found.value) and "\n" not in str(found.value)
        with pytest.raises(RecombineError, match=r"no key was sent: .* with --key-variable$"):
            typed(f"{words} --quiet --key-variable none")


def test_a_damaged_log_is_told_of_in_one_line_without_any_code(tmp_path):
    (tmp_path / "answers.jsonl").write_text('{"key": "a", "answer": "yes"}\n[]\n', "utf-8")
    with StandIn(solve) as server:
        words = (
            f"battery {SMALL} --endpoint {server.url} --model m --key-variable none "
            f"--to {tmp_path} --quiet"
        )
        done = subprocess.run(
            [sys.executable, "-m", "recombine", *words.split()], capture_output=True, text=True
        )
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("recombine: warning: ")
    assert "2 damaged lines skipped" in done.stderr
    assert "AnswerLog" not in done.stderr and ".py" not in done.stderr


def test_answers_that_could_not_be_read_are_told_of_at_the_terminal(tmp_path, capsys):
    with StandIn(always=filtered(content=None)) as server:
        typed(f"battery --items 1 --set tasks=strings depths=1 novelty=new --endpoint {server.url} "
              f"--model m --key-variable none --to {tmp_path}/run --quiet")  # fmt: skip
    said = capsys.readouterr().out.splitlines()
    assert "1 questions were refused by the model, and count as wrong." in said
    assert any(line.startswith("1 of 1 answers could not be read") for line in said)


def test_help_and_dry_runs_load_no_jax():
    script = (
        "import sys; sys.modules['jax'] = None\n"
        "from recombine.cli.parser import build\n"
        "chosen = build().parse_args(['battery', '--dry-run', '--items', '1'])\n"
        "chosen.run(chosen)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_a_terminal_cannot_show_ends_no_command(tmp_path, encoding):
    row = {"task_name": "caf\u00e9", "example_type": "highprob", "correct_output": "Stay!",
           "instruction_plus_input": "Decode \ud83d\x1b[2J: Fgnl!"}  # fmt: skip
    (tmp_path / "own.jsonl").write_text(json.dumps(row), "utf-8")
    words = [sys.executable, "-m", "recombine", "embers", "--dry-run", "--set"]
    done = subprocess.run(
        [*words, f"stimuli={tmp_path}/own.jsonl"], capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    said = done.stdout.decode(encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert ("caf\\xe9-high-0" if encoding == "ascii" else "caf\u00e9-high-0") in said
    assert "\x1b" not in said and "--- right: Stay!" in said
