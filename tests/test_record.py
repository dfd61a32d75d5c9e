"""`tools/record.py`: lanes and readers end with whole bundles, and go on from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recombine.lab.bundle import import_bundle
from recombine.lab.run import Request, collect, study_named
from recombine.lab.store import Store

TOOL = Path(__file__).resolve().parents[1] / "tools" / "record.py"


def record(folder, *words):
    done = subprocess.run(
        [sys.executable, TOOL, "--preset", "smoke", "--readers", "1", *words],
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
    code, told = record(tmp_path, "anatomy", "--runs", "others")
    assert code == 0 and "imported from recorded" in told, told
    assert "round 0: 0 cells to train" in told


@pytest.mark.slow
def test_a_study_that_does_not_exist_is_told_before_anything_begins(tmp_path):
    code, told = record(tmp_path, "anatomy,anatomie")
    assert code != 0 and "anatomie" in told
    assert "lane" not in told


@pytest.mark.slow
def test_when_the_time_is_over_it_ends_and_keeps_what_there_is(tmp_path):
    code, told = record(tmp_path, "anatomy", "--minutes", "0.34")
    assert code == 0, told
    assert "missing 0" not in told
    assert "anatomy ends" in told
