"""`tools/record.py`: recordings end with whole bundles, and go on from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recombine.lab.api import fit
from recombine.lab.bundle import import_bundle
from recombine.lab.run import Request, collect, study_named
from recombine.lab.store import Store
from recombine.learners import Supervised
from recombine.models import MLP

TOOL = Path(__file__).resolve().parents[1] / "tools" / "record.py"


def record(folder, *words):
    done = subprocess.run(
        [sys.executable, TOOL, "--preset", "smoke", *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_study_is_recorded_once_and_goes_on_from_its_bundle(tmp_path):
    code, told = record(tmp_path, "anatomy")
    assert code == 0 and "anatomy missing 0, failed 0" in told, told
    store = Store.open(tmp_path / "elsewhere")
    import_bundle(store, tmp_path / "recorded" / "anatomy-smoke.zip")
    assert collect(Request(study_named("anatomy"), "smoke", {}), store).finished
    # Of what an earlier form of the study asked for nothing is kept.
    strange = Store.open(tmp_path / "others" / "anatomy")
    fit(Supervised(model=MLP(8, 1), training_steps=10, evaluation_every=10), strange.path)
    code, told = record(tmp_path, "anatomy", "--runs", "others")
    assert code == 0 and "imported from recorded" in told, told
    again = Store.open(tmp_path / "again")
    import_bundle(again, tmp_path / "recorded" / "anatomy-smoke.zip")
    assert all(again.ids(kind) == store.ids(kind) for kind in ("cell", "reading"))
    assert set(strange.ids("cell")) > set(again.ids("cell"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["anatomy", "anatomie"], "unknown study 'anatomie': did you mean 'anatomy'?"),
        (["anatomy", "--preset", "smok"], "unknown preset 'smok': did you mean 'smoke'?"),
        (["anatomy", "--minutes", "0.2"], "--minutes 0.2: expected more than 0.25"),
        (["anatomy", "--stacked", "0"], "--stacked 0: expected at least 1"),
    ],
)
def test_what_cannot_be_is_told_in_one_line_before_anything_begins(tmp_path, words, told):
    code, found = record(tmp_path, *words)
    assert code == 2 and told in found and "Traceback" not in found
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_several_studies_are_recorded_beside_each_other(tmp_path):
    code, told = record(tmp_path, "anatomy", "collection")
    assert code == 0, told
    lines = [line.partition("] ")[2] for line in told.splitlines()]
    assert {line.split()[0] for line in lines[:2]} == {"anatomy", "collection"}
    for study in ("anatomy", "collection"):
        assert f"{study} missing 0, failed 0" in lines
        assert (tmp_path / "recorded" / f"{study}-smoke.zip").is_file()


@pytest.mark.parametrize("seconds", ["0", "-3", "nan", "290"])
def test_time_for_readings_alone_that_cannot_be_is_refused(tmp_path, seconds):
    code, told = record(tmp_path, "anatomy", "--minutes", "5", "--reading", seconds)
    assert code == 2
    assert told.splitlines()[-1].endswith(
        f"--reading {seconds}: expected seconds, between 0 and 285"
    )


@pytest.mark.slow
def test_stopped_by_hand_it_says_so_and_leaves_no_process(tmp_path):
    command = [sys.executable, TOOL, "--preset", "smoke", "anatomy"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        first = running.stdout.readline()
        assert "anatomy begins on" in first
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of them
        told = running.stdout.read()  # ends when the last process has closed it
    assert running.returncode == 130, told
    assert "what there is is kept" in told and "Traceback" not in told


@pytest.mark.slow
def test_when_the_time_is_over_it_ends_and_keeps_what_there_is(tmp_path):
    code, told = record(tmp_path, "fracture", "--preset", "quick", "--minutes", "0.34")
    assert code == 0, told  # it takes most of a minute, and has 5 seconds
    assert "missing 0" not in told
    assert "trains no more" in told or "is left behind" in told
