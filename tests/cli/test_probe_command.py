"""The `probe` command: what it reads, prints, writes and refuses."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recombine.cli.parser import Parser
from recombine.cli.probing import arguments, as_typed, run
from recombine.errors import RecombineError


def typed(*words: object) -> None:
    made = Parser(prog="recombine probe")
    made.add_argument("--json", action="store_true")
    arguments(made)
    run(made.parse_args([str(word) for word in words]))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with activations in which colour is linear and shape is not there."""
    rng = np.random.default_rng(0)
    every = np.array(list(itertools.product(range(3), range(10))))
    colour, shape = np.repeat(every, 4, axis=0).T
    acts = np.eye(3)[colour] @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(120, 8))
    np.savez(tmp_path / "acts.npz", block1=rng.normal(size=(120, 8)), block2=acts, head=acts)
    np.save(tmp_path / "z.npy", colour)
    np.save(tmp_path / "combo.npy", colour * 10 + shape)
    np.save(tmp_path / "inputs.npy", rng.normal(size=(120, 5)))
    lines = [f"{'rgb'[c]},s{s},g{c * 10 + s}" for c, s in zip(colour, shape, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["colour,shape,name", *lines]) + "\n")
    return tmp_path


def test_arrays_are_probed_and_the_verdict_is_printed_first(files, capsys):
    typed(files / "acts.npz", "--targets", files / "z.npy", "--groups", files / "combo.npy")
    told = capsys.readouterr()
    first = told.out.splitlines()[0]
    assert first.startswith("target is readable for combinations never seen: balanced accuracy")
    assert "30 combinations" in told.out and "layer block2" in told.err


def test_json_holds_every_layer_that_was_asked_for(files, capsys):
    typed(files / "acts.npz", "--targets", files / "z.npy", "--groups", files / "combo.npy",
          "--layers", "block*", "--inputs", files / "inputs.npy", "--json")  # fmt: skip
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert told.err == "" and found["schema"] == "recombine/probe/1"
    (target,) = found["targets"]
    assert [layer["layer"] for layer in target["layers"]] == ["block1", "block2"]
    assert target["layer"] == "block2"
    by_inputs = target["controls"][5]
    assert by_inputs["name"] == "random projections of the inputs"
    assert by_inputs["score"] is not None


def test_a_table_gives_targets_and_combinations(files, capsys):
    table = ("--targets", files / "data.csv", "--factors", "colour,shape")
    typed(files / "acts.npz", *table, "--layers", "head", "--json", "--draws", 2)
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["targets"]] == ["colour", "shape"]
    assert found["combinations"] == 30
    assert found["targets"][0]["answer"] == "readable for combinations never seen"
    typed(files / "acts.npz", *table, "--groups", "name", "--layers", "head", "--json",
          "--draws", 2)  # fmt: skip
    assert json.loads(capsys.readouterr().out)["targets"] == found["targets"]


def test_the_page_is_written_where_asked_with_what_to_type_again(files, capsys):
    typed(files / "acts.npz", "--targets", files / "data.csv", "--factors", "colour,shape",
          "--layers", "head", "--pairs", "--to", files / "out", "--quiet",
          "--draws", 2)  # fmt: skip
    told = capsys.readouterr()
    page = files / "out" / "report.html"
    assert f"report: {page}" in told.out and told.err == ""
    text = page.read_text("utf-8")
    assert (
        "recombine probe acts.npz --targets data.csv --factors colour,shape --layers head "
        "--draws 2 --pairs" in text
    )
    assert str(files) not in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give --targets FILE"),
        (("--targets", "{}/z.npy"), "give --groups FILE"),
        (("--targets", "{}/data.csv"), "give --factors with the columns"),
        (("--targets", "{}/data.csv", "--factors", "color"), "did you mean 'colour'"),
        (("--targets", "{}/z.npy", "--factors", "colour"), "--factors names columns of a table"),
        (("--targets", "{}/gone.npy"), "does not exist"),
        (("--targets", "{}/z.npy", "--groups", "{}/acts.npz"), "holds 3 arrays"),
        (("--targets", "{}/z.npy", "--groups", "{}/combo.npy", "--layers", "blok"), "none of"),
        (("--targets", "{}/z.npy", "--groups", "{}/combo.npy", "--folds", "2"), "--folds 2"),
        (("--targets", "{}/z.npy", "--groups", "{}/combo.npy", "--kind", "number"), "'numbers'"),
        (("--targets", "{}/z.npy", "--groups", "{}/combo.npy", "--memory", "0"), "--memory takes"),
        (("--targets", "{}/z.npy", "--memory", "1e-6"), "--memory 2."),
        (("--targets", "{}/z.npy", "--to", "{}/z.npy"), "is a file: give a folder"),
    ],
)
def test_a_wrong_request_says_what_to_type(files, words, told):
    with pytest.raises(RecombineError) as error:
        typed(files / "acts.npz", *[word.format(files) for word in words])
    assert told in str(error.value)


def test_rows_that_are_not_finite_are_left_out_when_asked(files, capsys):
    acts = np.load(files / "acts.npz")["head"]
    acts[5] = np.nan
    np.save(files / "bad.npy", acts)
    words = ("--targets", files / "z.npy", "--groups", files / "combo.npy", "--quiet")
    with pytest.raises(RecombineError, match=r"1 row \(6\).*--drop-bad"):
        typed(files / "bad.npy", *words)
    typed(files / "bad.npy", *words, "--drop-bad")
    assert "1 of 120 rows were left out" in capsys.readouterr().out


def test_messages_for_python_become_messages_for_the_command_line():
    assert as_typed("use kind='categorical'") == "use --kind categorical"
    assert as_typed("draws=0: at least 1") == "--draws 0: at least 1"
    assert as_typed("allow memory_bytes=2000000000") == "allow --memory 2.01"
    assert as_typed("nothing to change") == "nothing to change"


def test_its_arguments_load_neither_numpy_nor_jax():
    program = (
        "import sys\nfrom recombine.cli.parser import Parser\n"
        "from recombine.cli.probing import arguments\n"
        "arguments(Parser(prog='probe'))\n"
        "assert not {'jax', 'numpy'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_probing_loads_no_jax():
    program = (
        "import sys\nimport numpy as np\nfrom recombine.probing import probe, report\n"
        "g = np.arange(60) % 30\nprobe(np.eye(3)[g % 3], g % 3, g)\n"
        "assert 'jax' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
