"""The commands as people and scripts use them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recombine.cli import main
from recombine.cli.parser import build
from recombine.cli.words import parse_duration, settings_of, text_table
from recombine.errors import InvalidRequest
from recombine.lab.api import run, write_report
from recombine.lab.store import Store

SMOKE = ("data-scaling", "--preset", "smoke")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a whole study in it."""
    place = tmp_path_factory.mktemp("finished") / "runs"
    run("data-scaling", "smoke", store=place, quiet=True)
    write_report("data-scaling", "smoke", store=place)
    return place


@pytest.fixture
def store(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "runs")


@pytest.fixture
def recombine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Iterator[Run]:
    """Runs a command in this process; gives its exit code and what it printed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("recombine.cli.leave", sys.exit)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


def parsers(parser: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that can be typed, with its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from parsers(inner, (*path, name))
            return
    yield path, parser


COMMANDS = dict(parsers(build()))


# --- help ---


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_shows_an_example_that_can_be_typed(path):
    text = " ".join(COMMANDS[path].format_help().split())
    assert "example: recombine " + " ".join(path) in text
    typed = text.split("example: ")[1].split(" > ")[0]
    chosen = build().parse_args(shlex.split(typed)[1:])
    assert callable(chosen.run)


def test_help_for_everything_names_every_command(recombine):
    code, out, _ = recombine("--help")
    assert code == 0
    assert all(path[0] in out for path in COMMANDS)


@pytest.mark.parametrize(
    "words",
    [["list"], ["list", "--all"], ["--help"], ["run", "--help"], ["--version"]],
    ids=" ".join,
)
def test_listing_and_help_load_no_jax(words, tmp_path):
    program = (
        "import sys\nfrom recombine.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    assert not {'jax', 'matplotlib', 'scipy'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_a_script_that_knows_the_commands(recombine, shell, tmp_path):
    code, out, _ = recombine("completion", shell)
    assert code == 0
    assert all(path[0] in out for path in COMMANDS)
    if shutil.which(shell):
        (tmp_path / "script").write_text(out)
        flag = "-n"
        subprocess.run([shell, flag, tmp_path / "script"], check=True, capture_output=True)


# --- JSON for machines, words for people ---


def test_every_command_that_reads_prints_json_when_asked(recombine, store, tmp_path):
    at = ("--store", store)
    cell = Store.open(store).ids("cell")[0]
    asked = {
        "list": ("list", "--all", *at),
        "plan": ("plan", *SMOKE, *at),
        "status": ("status", *at),
        "status of a study": ("status", *SMOKE, *at),
        "report": ("report", *SMOKE, *at, "--to", tmp_path / "to"),
        "show": ("show", cell[:8], *at),
        "coverage": ("coverage", "--modules", "6", "--active", "2"),
        "coverage of factors": ("coverage", "--levels", "2,3,3", "--rule", "held-out-pairs"),
        "construct": (
            "construct",
            "hyperteacher",
            "--modules",
            "4",
            "--active",
            "2",
            "--units",
            "3",
            "--segments",
            "4",
            "--samples",
            "64",
        ),
        "bundle": ("bundle", tmp_path / "b.zip", *at),
        "import": ("import", tmp_path / "b.zip", "--store", tmp_path / "other"),
        "store du": ("store", "du", *at),
        "store verify": ("store", "verify", *at),
        "store clean": ("store", "clean", "--dry-run", *at),
        "run": ("run", *SMOKE, *at),
    }
    found = {}
    for name, words in asked.items():
        code, out, err = recombine(*words, "--json")
        assert code == 0, err
        found[name] = json.loads(out)
        code, out, err = recombine(*words)
        assert code == 0 and out.strip() and not out.startswith("{"), name
    assert found["plan"]["cells"] == found["status of a study"]["cells"]["done"] == 4
    assert found["show"]["cell"] == cell
    assert found["coverage of factors"]["levels"] == [2, 3, 3]
    assert found["run"]["finished"] and Path(found["report"]["page"]).is_file()
    assert next(study["name"] for study in found["list"]["studies"]) == "data-scaling"
    assert "smoke" in found["list"]["studies"][0]["verdict"]
    assert found["store verify"] == {"problems": []}
    assert {"families", "supports", "encodings", "models"} <= found["list"].keys()


@pytest.mark.slow
def test_the_doctor_names_device_versions_and_ceiling(recombine):
    code, out, _ = recombine("doctor", "--json")
    found = json.loads(out)
    assert code == 0 and found["device"]["cores"] >= 1
    assert found["versions"]["jax"] and found["matmul_ceiling_flops"] > 1e8


def test_a_plan_says_what_cannot_exist_and_why(recombine):
    words = ("plan", *SMOKE, "--set", "held_out=.25,.99")
    code, out, _ = recombine(*words)
    assert code == 0
    assert "2 cells cannot exist" in out and "2 x held-out 0.99" in out
    _, out, _ = recombine(*words, "--json")
    assert json.loads(out)["cells"] == 2


def test_a_run_says_what_cannot_exist_and_why(recombine, store):
    code, out, _ = recombine("run", *SMOKE, "--store", store, "--set", "held_out=.25,.99")
    assert code == 0
    assert "2 cells cannot exist" in out and "2 x held-out 0.99" in out


def test_status_tells_done_from_planned(recombine, store):
    _, out, _ = recombine("status", *SMOKE, "--store", store, "--set", "seeds=3", "--json")
    assert json.loads(out)["cells"] == {"done": 4, "running": 0, "failed": 0, "planned": 2}


def test_a_report_of_nothing_says_what_to_type(recombine, store):
    code, _, err = recombine("report", "data-scaling", "--preset", "quick", "--store", store)
    assert code == 2 and "recombine run data-scaling --preset quick" in err


def test_a_place_that_cannot_be_written_to_is_one_line(recombine, store, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = recombine("report", *SMOKE, "--store", store, "--to", tmp_path / "file")
    assert code == 2
    assert err.startswith("recombine: error: ") and err.count("\n") == 1 and "file" in err


def test_a_bug_of_ours_shows_its_traceback_and_ends_at_once(recombine, monkeypatch):
    def broken(chosen: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("recombine.cli.commands.list", broken)
    code, _, err = recombine("list")
    assert code == 1 and "ZeroDivisionError: ours" in err


def test_a_reader_that_goes_away_is_no_error(store):
    words = [sys.executable, "-m", "recombine", "list", "--all", "--store", str(store)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


# --- bundles and upkeep ---


@pytest.mark.parametrize("weights", [False, True])
def test_results_packed_here_come_home_there(recombine, store, tmp_path, weights):
    extra = ["--weights"] if weights else []
    code, out, err = recombine("bundle", tmp_path / "b.zip", "--store", store, *extra)
    assert code == 0, err
    home = tmp_path / "home"
    code, _, err = recombine("import", *out.split(), "--store", home)
    assert code == 0, err
    made, came = Store.open(store), Store.open(home)
    assert came.ids("cell") == made.ids("cell") and came.ids("reading") == made.ids("reading")
    assert bool(came.absent("cell", came.ids("cell")[0])) != weights
    code, page, _ = recombine("report", *SMOKE, "--store", home)
    assert code == 0
    there = store / "reports" / Path(page.strip()).name
    assert Path(page.strip()).read_bytes() == there.read_bytes()


def test_a_bundle_that_was_tampered_with_is_refused(recombine, store, tmp_path):
    recombine("bundle", tmp_path / "b.zip", "--store", store)
    data = bytearray((tmp_path / "b.zip").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "b.zip").write_bytes(data)
    code, _, err = recombine("import", tmp_path / "b.zip", "--store", tmp_path / "home")
    assert code == 2 and err.count("\n") == 1


def test_damage_is_found_named_and_set_aside(recombine, store):
    opened = Store.open(store)
    cell = opened.ids("cell")[0]
    path = opened.folder("cell", cell) / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    code, out, _ = recombine("store", "verify", "--store", store)
    assert code == 1 and cell in out and "weights.safetensors" in out
    code, out, _ = recombine("store", "verify", "--set-aside", "--json", "--store", store)
    assert code == 1 and json.loads(out)["problems"][0]["id"] == cell
    code, out, _ = recombine("store", "verify", "--store", store)
    assert (code, out.strip()) == (0, "every sum agrees")
    _, out, _ = recombine("status", *SMOKE, "--store", store, "--json")
    assert json.loads(out)["cells"]["planned"] == 1


def test_cleaning_removes_finished_work_and_nothing_else(recombine, store):
    state = next((store / "work").iterdir()) / "state" / "00000001-step-10"
    state.mkdir(parents=True)
    (state / "manifest.json").write_text("left behind")
    before = {p for p in store.rglob("*") if "work" not in p.parts}
    code, out, _ = recombine("store", "clean", "--dry-run", "--store", store)
    assert code == 0 and "would free" in out and state.exists()
    code, out, _ = recombine("store", "clean", "--store", store)
    assert code == 0 and "freed" in out
    assert list((store / "work").iterdir()) == []
    assert {p for p in store.rglob("*") if "work" not in p.parts} == before
    _, out, _ = recombine("store", "clean", "--store", store)
    assert "nothing to remove" in out


# --- small words ---


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("9m", 540), ("1h30m", 5400), ("0.5s", 0.5)]
)
def test_times_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "9", "m", "9 m", "1h30", "-3s"])
def test_other_times_are_refused(text):
    with pytest.raises(InvalidRequest, match="90s, 9m or 1h30m"):
        parse_duration(text)


def test_settings_take_names_as_they_are_typed():
    assert settings_of(["held-out=.25,.5", "seeds=5"]) == {"held_out": ".25,.5", "seeds": "5"}


def test_tables_fit_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    table = text_table(["name", "what"], [["short", "many words " * 20]])
    assert max(map(len, table.splitlines())) <= 60
    assert "many words" in table


def test_a_store_named_in_the_environment_is_the_default(recombine, store, monkeypatch):
    monkeypatch.setenv("RECOMBINE_STORE", os.fspath(store))
    code, out, _ = recombine("status")
    assert code == 0 and str(store) in out


def test_values_may_be_set_one_by_one(recombine, tmp_path):
    words = ("plan", "goals", "--preset", "smoke", "--store", tmp_path)
    together = recombine(*words, "--set", "seeds=1", "held_out=0.25")
    apart = recombine(*words, "--set", "seeds=1", "--set", "held_out=0.25")
    assert apart == together and apart[0] == 0
    assert apart != recombine(*words, "--set", "held_out=0.25")


def test_a_study_is_repeated_on_other_seeds_and_its_finished_seeds_are_not_trained_again(
    recombine: Run, store: Path
):
    before = Store.open(store).ids("cell")
    code, told, _ = recombine("repeat", *SMOKE, "--store", store, "--quiet")
    assert code == 0 and "seeds from 0" in told and "seeds from 100" in told
    assert len(Store.open(store).ids("cell")) == 2 * len(before)
    code, told, _ = recombine("repeat", *SMOKE, "--store", store, "--json")
    summary = json.loads(told)
    assert code == 0 and [time["missing"] for time in summary["times"]] == [0, 0]
    assert [time["grid"]["first_seed"] for time in summary["times"]] == [0, 100]
    page = Path(summary["page"]).read_text("utf-8")
    assert "Do the verdicts survive other seeds?" in page
    assert "recombine repeat data-scaling --preset smoke --times 2" in page


def test_once_is_no_repetition_and_no_seed_is_below_zero(recombine: Run, store: Path):
    code, _, told = recombine("repeat", *SMOKE, "--times", 1, "--store", store)
    assert code == 2 and "times=1: expected at least 2" in told
    code, _, told = recombine("plan", *SMOKE, "--set", "first_seed=-1", "--store", store)
    assert code == 2 and "first_seed=-1: expected at least 0" in told
