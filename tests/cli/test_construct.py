"""The `construct` command: what it prints, saves and refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from recombine.cli import main
from recombine.cli.constructing import as_typed
from recombine.construction import construct, load_network
from recombine.families import Additive, Hyperteacher
from recombine.models import count_parameters
from recombine.seeds import Seeds
from recombine.trees import named

SMALL = ("--modules", 6, "--active", 2, "--units", 4, "--samples", 500)
Run = Callable[..., tuple[int, str, str]]


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


def of_family(name: str):
    sizes = {"modules": 6, "active": 2, "input_units": 4, "output_units": 4}
    return Additive(**sizes, features=4) if name == "additive" else Hyperteacher(
        **sizes, hidden=(4,)
    )  # fmt: skip


@pytest.mark.parametrize("family", ["hyperteacher", "additive"])
@pytest.mark.parametrize("method", ["segments", "depth"])
def test_a_network_is_written_measured_and_saved(recombine, tmp_path, family, method):
    file = tmp_path / "network.safetensors"
    words = ("construct", family, *SMALL, "--tolerance", ".1", "--method", method, "--seed", 3)
    code, out, err = recombine(*words, "--to", file, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["largest_error"] < found["bound"] <= 0.1
    assert found["r2"] > 0.99 and found["combinations"] == 6 + 15
    assert sum(found["hidden_layers"]) == found["hidden_neurons"]
    network = load_network(found["saved"])
    assert count_parameters(network) == found["parameters"]
    made = construct(of_family(family), tolerance=0.1, method=method, seeds=Seeds.all(3))
    assert all(np.array_equal(w, made.weights()[path]) for path, w in named(network).items())
    code, out, _ = recombine(*words)
    assert code == 0 and f"{found['hidden_neurons']:,}" in out and "R²" in out
    assert "saved" not in out


def test_shuffled_intervals_cost_a_layer(recombine):
    words = ("construct", "hyperteacher", *SMALL, "--segments", 4, "--json")
    plain, hidden = (
        json.loads(recombine(*words, "--encoding", name)[1])["hidden_layers"]
        for name in ("identity", "interval-shuffle")
    )
    assert hidden == [4 + 6 * 6, *plain]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("hyperteahcer",), "did you mean 'hyperteacher'"),
        (("hyperteacher", "--tolerance", "1e-9"), "use --tolerance "),
        (("hyperteacher", "--tolerance", ".1", "--segments", "8"), "--tolerance and --segments"),
        (("hyperteacher", "--segments", "8", "--method", "depth"), "give --tolerance"),
        (
            ("hyperteacher", "--segments", "1"),
            "--segments 1: expected a whole number",
        ),
        (("hyperteacher", "--method", "dpeth"), "did you mean 'depth'"),
        (("hyperteacher", "--encoding", "few-shot"), "use identity, orthogonal, tokens"),
        (("hyperteacher", "--encoding", "token"), "did you mean 'tokens'"),
        (("hyperteacher", "--active", "9"), "use --active 6 or less"),
        (("hyperteacher", "--units", "0"), "--units takes a number of at least 1, got 0"),
        (("hyperteacher", "--memory", "0"), "--memory takes a number of GB above 0"),
        (("hyperteacher", "--samples", "1"), "--samples takes a number of at least 2"),
        (("hyperteacher", "--to", "no/such/folder.safetensors"), "make no/such first"),
        (("hyperteacher", "--tolerance", "little"), "invalid float value"),
    ],
)
def test_a_wrong_request_is_one_line_that_says_what_to_type(recombine, words, told):
    code, out, err = recombine("construct", words[0], *SMALL, *words[1:])
    assert (code, out) == (2, "")
    assert err.startswith("recombine: error: ") and err.count("\n") == 1 and told in err


def test_what_does_not_fit_is_refused_with_numbers_that_work(recombine):
    words = ("construct", "hyperteacher", *SMALL)
    code, _, err = recombine(*words, "--tolerance", ".001", "--memory", ".00002")
    assert code == 2 and "more than the 0.02 MB allowed" in err
    offered = err.split("use ")[1].split()
    for name in ("--tolerance", "--memory"):
        assert name in offered
    coarser = offered[offered.index("--tolerance") + 1]
    code, out, err = recombine(*words, "--tolerance", coarser, "--memory", ".00002", "--json")
    assert code == 0, err
    assert json.loads(out)["bound"] <= float(coarser)
    room = offered[offered.index("--memory") + 1]
    code, _, err = recombine(*words, "--tolerance", ".001", "--memory", room)
    assert code == 0, err


def test_a_file_that_is_there_is_not_written_over(recombine, tmp_path):
    file = tmp_path / "kept.safetensors"
    file.write_text("mine")
    code, _, err = recombine("construct", "hyperteacher", *SMALL, "--segments", 4, "--to", file)
    assert code == 2 and "is there already" in err
    assert file.read_text() == "mine"


def test_messages_for_python_become_messages_for_the_command_line():
    assert as_typed("tolerance=1e-05 by method='depth'") == "--tolerance 1e-05 by --method depth"
    assert as_typed("raise memory_bytes") == "raise --memory"
    assert as_typed("use memory_bytes=1234567") == "use --memory 0.00124"
    assert as_typed("no exact decoding of FewShot is known") == (
        "no exact decoding of few-shot is known"
    )
    assert as_typed("nothing to change here") == "nothing to change here"


def test_its_help_loads_no_jax(tmp_path):
    program = (
        "import sys\nfrom recombine.cli import main\n"
        "try:\n    main(['construct', '--help'])\n"
        "finally:\n    assert not {'jax', 'numpy'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--tolerance" in done.stdout
