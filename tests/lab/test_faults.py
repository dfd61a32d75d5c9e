"""The promises of the laboratory, each broken on purpose; f01 to f21 are the list's numbers."""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from unlike.adaptive import Adaptive, Rates
from unlike.exam import Exam
from unlike.line import Line
from unlike.nursery import committed

from recombine.cli import main
from recombine.errors import Interrupted, InvalidRequest, StoreError
from recombine.lab import engine, execute, shards
from recombine.lab.api import fit, load
from recombine.lab.bundle import bundle, import_bundle
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.device import Device
from recombine.lab.execute import Session
from recombine.lab.files import System
from recombine.lab.identity import node_id
from recombine.lab.index import Index
from recombine.lab.leases import Busy
from recombine.lab.run import Request, collect, run
from recombine.lab.shards import Stop
from recombine.lab.store import Store
from recombine.lab.study import Cell
from recombine.learners._learner import Learner, Material
from recombine.report.study import report_of

SMOKE = ["run", "data-scaling", "--preset", "smoke", "--quiet"]
# One cell that trains for a second or two, so that a signal can come in the middle.
LONGER = [*SMOKE, "--set", "training=quick", "seeds=1", "held_out=.25"]
OFTEN = {"RECOMBINE_CHECKPOINT_SECONDS": "0"}


def command(store: Path, words: Sequence[str] = SMOKE, **rest: Any) -> dict[str, Any]:
    """A job for the nursery: this command, with a checkpoint whenever there can be one."""
    at = words.index("--set") if "--set" in words else len(words)
    return {"command": [*words[:at], "--store", str(store), *words[at:]], "env": OFTEN, **rest}


def unfinished(store: Path) -> list[Path]:
    return sorted(store.glob("work/*/state/*-step-*"))


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def lines(*learners: Learner) -> dict[str, Learner]:
    return {node_id(one): one for one in learners}


@pytest.fixture(scope="module")
def calm(nursery, tmp_path_factory) -> Path:
    """The store of a run that nothing disturbed."""
    store = tmp_path_factory.mktemp("calm") / "runs"
    (end,) = nursery.run(command(store, steady=True))
    assert end["code"] == 0, end["output"]
    (store.parent / "calls").write_text(str(end["calls"]))
    return store


@pytest.fixture(scope="module")
def broken_off(nursery, tmp_path_factory) -> Path:
    """The store of a run that was killed when a shard had two checkpoints."""
    for deadly in itertools.chain(range(90, 300, 11), range(60, 300, 7)):
        store = tmp_path_factory.mktemp("broken") / "runs"
        (end,) = nursery.run(command(store, steady=True, deadly_call=deadly))
        assert end["code"] in (0, -9), end["output"]
        left = [path.parent for path in unfinished(store)]
        if len(left) > len(set(left)):
            return store
    pytest.fail("no kill left two checkpoints")


# --- F1, F2: kills and signals ---------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_f01_a_command_killed_at_random_moments_ends_with_the_same_bytes(
    nursery, calm, tmp_path, seed
):
    calls = int((calm.parent / "calls").read_text())
    moments, store, kills = random.Random(seed), tmp_path / "runs", 0
    for n in range(5):
        fate = (
            {"steady": True, "deadly_call": moments.randrange(5, calls // 3)}
            if n % 2 == 0
            else {"kill_after": moments.uniform(0.1, 0.8)}
        )
        (end,) = nursery.run(command(store, **fate))
        assert end["code"] in (0, -9), end["output"]
        kills += end["code"] == -9
    (end,) = nursery.run(command(store))
    assert end["code"] == 0, end["output"]
    assert kills >= 2
    assert committed(store) == committed(calm)
    assert Store.open(store).verify() == []


@pytest.mark.slow
def test_f01_a_real_command_killed_from_outside_continues(calm, tmp_path):
    words = [sys.executable, "-m", "recombine", *command(tmp_path / "runs")["command"]]
    environment = {**os.environ, **OFTEN}
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "runs").glob("nodes/cell/*/*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert committed(tmp_path / "runs") == committed(calm)


@pytest.mark.parametrize(
    ("number", "during", "slow"),
    [
        (signal.SIGINT, "training", ""),
        (signal.SIGTERM, "training", ""),
        (signal.SIGTERM, "compiling", "compiling"),
        (signal.SIGINT, "saving", "saving"),
    ],
)
def test_f02_a_signal_ends_a_command_within_seconds_and_it_says_how_to_continue(
    nursery, tmp_path, number, during, slow
):
    """The promise is five seconds; the bound here leaves room for a busy machine."""
    store = tmp_path / "runs"
    job = command(store, LONGER, phases=True, slow=slow, signal=int(number), signal_at=during)
    (end,) = nursery.run(job)
    assert end["code"] == 128 + number, end["output"]
    assert end["seconds_after_signal"] < 10
    assert "run the same command to continue" in end["output"]
    assert "Traceback" not in end["output"]
    if during == "training" and number == signal.SIGTERM:
        assert unfinished(store), "work so far is kept"
        (end,) = nursery.run(command(store, LONGER))
        assert end["code"] == 0, end["output"]


def test_f02_a_job_that_stops_itself_does_not_hide_which_signal_came(tmp_path):
    session = Session(Store.open(tmp_path))

    def job() -> None:
        session.stop.signal = signal.SIGTERM
        raise Interrupted("stopped at step 10")

    with pytest.raises(Interrupted) as caught:
        session.carry_out("training", {"one": job}, {"one": 1}, workers=1)
    assert caught.value.exit_code == 143


def test_f02_an_interrupt_before_anything_began_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    monkeypatch.setattr("recombine.cli.commands.list", interrupted)
    with pytest.raises(SystemExit) as left:
        main(["list"])
    assert left.value.code == 130
    assert capsys.readouterr().err.count("\n") == 1


def interrupted(chosen: Any) -> None:
    raise KeyboardInterrupt


def test_a_time_limit_ends_a_command_well_and_it_continues(nursery, calm, tmp_path):
    store = tmp_path / "runs"
    (end,) = nursery.run(command(store, [*SMOKE, "--for", "0.05s"]))
    assert end["code"] == 0, end["output"]
    assert "run the same command to continue" in end["output"]
    assert not list((store / "reports").glob("*")), "nothing is reported before the end"
    (end,) = nursery.run(command(store))
    assert end["code"] == 0
    assert committed(store) == committed(calm)


# --- F5 to F9: disks -------------------------------------------------------------------------


def test_f05_a_full_disk_during_a_checkpoint_is_one_line_and_work_continues(tmp_path, monkeypatch):
    learner = Line(training_steps=6_000)
    monkeypatch.setattr(engine, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(shards, "CHECKPOINT_SHARE", 1.0)
    save, write = Checkpoints.save, System.write
    full = False

    def save_on_a_full_disk(self: Checkpoints, *arguments: Any) -> None:
        nonlocal full
        full = bool(self)  # the first one still fits
        try:
            save(self, *arguments)
        finally:
            full = False

    def write_if_there_is_room(fd: int, data: Any) -> int:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_on_a_full_disk)
        patch.setattr(System, "write", staticmethod(write_if_there_is_room))
        with pytest.raises(StoreError, match=r"no room at .*\bwork\b.*: \d+ bytes needed") as told:
            execute.train(Session(Store.open(tmp_path), save_every=0), "full", lines(learner))
    assert "\n" not in str(told.value)
    store = Store.open(tmp_path)
    assert store.failure("cell", node_id(learner)) is None, "the cell is not to blame"
    assert unfinished(tmp_path)
    execute.train(Session(store), "full", lines(learner))
    assert store.provenance("cell", node_id(learner))["resumed"]
    assert load(store, node_id(learner)).summary == fit(learner).summary


def test_f05_what_ends_one_thread_ends_the_others_at_their_next_border(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "CHUNK_SECONDS", 0.0)
    endless = Line(training_steps=10_000_000)
    broken = Line(seed=1)
    run_shard = shards.run_shard

    def failing(store: Store, shard: Any, learners: Any, **rest: Any) -> None:
        if learners[0] == broken:
            raise StoreError("no room anywhere")
        run_shard(store, shard, learners, **rest)

    monkeypatch.setattr(execute, "run_shard", failing)
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match="no room anywhere"):
        execute.train(Session(store), "both", lines(broken, endless))
    assert store.holder(node_id(endless)) is None, "it let go of its lease"


def test_f06_a_flipped_bit_in_a_checkpoint_sends_a_run_to_the_previous_one(
    nursery, calm, broken_off, tmp_path
):
    store = shutil.copytree(broken_off, tmp_path / "runs")
    # A kill between a save and the clearing away after it leaves three.
    left = sorted(unfinished(store), key=lambda path: (path.parent, step_of(path)))
    *_, (last, newest) = ((a, b) for a, b in itertools.pairwise(left) if a.parent == b.parent)
    flip(newest / "state.safetensors")
    seen = Checkpoints(shutil.copytree(last.parent, tmp_path / "looked at")).latest()
    assert seen[0] == step_of(last)
    (end,) = nursery.run(command(store))
    assert end["code"] == 0, end["output"]
    assert committed(store) == committed(calm)


def test_f06_flipped_weights_are_found_set_aside_and_computed_again(nursery, calm, tmp_path):
    store = Store.open(shutil.copytree(calm, tmp_path / "runs"))
    cell = store.ids("cell")[0]
    flip(store.folder("cell", cell) / "weights.safetensors")
    readings = {store.manifest("reading", id)["request"]["cell"]: id for id in store.ids("reading")}
    shutil.rmtree(store.folder("reading", readings[cell]))
    (end,) = nursery.run(command(store.path))
    assert end["code"] == 2
    assert "weights.safetensors" in end["output"]
    assert "run the same command again to recompute it" in end["output"]
    assert not store.has("cell", cell)
    (end,) = nursery.run(command(store.path))
    assert end["code"] == 0, end["output"]
    assert committed(store.path) == committed(calm)


def test_f06_a_flipped_manifest_is_computed_again_by_the_same_command(nursery, calm, tmp_path):
    store = Store.open(shutil.copytree(calm, tmp_path / "runs"))
    cell = store.ids("cell")[0]
    flip(store.folder("cell", cell) / "manifest.json")
    assert store.verify(set_aside=True)[0].id == cell
    (end,) = nursery.run(command(store.path))
    assert end["code"] == 0, end["output"]
    assert committed(store.path) == committed(calm)


def test_f07_without_its_index_a_store_gives_the_same_answers(calm, tmp_path, capsys):
    store = Store.open(shutil.copytree(calm, tmp_path / "runs"))
    index = Index(store)
    rows = index.query("cell", **{"family.modules": 6})

    def status() -> str:
        for words in (["status", "data-scaling", "--preset", "smoke"], ["show"]):
            with pytest.raises(SystemExit):
                main([*words, "--store", str(store.path)])
        return capsys.readouterr().out

    told = status()
    index.path.write_bytes(b"garbage")
    assert Index(store).query("cell", **{"family.modules": 6}) == rows
    index.path.unlink()
    assert Index(store).query("cell", **{"family.modules": 6}) == rows and len(rows) == 4
    assert status() == told and "done 4" in told


def test_f08_two_commands_on_one_store_commit_every_cell_once(nursery, calm, tmp_path):
    store, log = tmp_path / "runs", tmp_path / "commits"
    ends = nursery.run(*[command(store, commits=str(log)) for _ in range(2)])
    assert [end["code"] for end in ends] == [0, 0], [end["output"] for end in ends]
    assert committed(store) == committed(calm)
    cells = [line.split() for line in log.read_text().splitlines() if line.startswith("cell")]
    assert sorted(id for _, id, _ in cells) == Store.open(store).ids("cell")
    assert all(appeared == "True" for _, _, appeared in cells)
    assert list((store / "quarantine").iterdir()) == []


def test_f08_two_sessions_that_need_one_material_make_it_once(tmp_path):
    store = Store.open(tmp_path)
    session = Session(store)
    tried = 0

    def busy_at_first() -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise Busy("somebody", "else")

    session.carry_out("preparing data", {"data": busy_at_first}, {"data": 1}, workers=1)
    assert tried == 2


@pytest.mark.parametrize("name", ["with spaces", "Überprüfung ✓", "link"])
def test_f09_a_store_that_can_only_be_read_gives_the_same_report(
    calm, tmp_path, monkeypatch, capsys, name
):
    place = tmp_path / name
    if name == "link":
        shutil.copytree(calm, tmp_path / "real")
        place.symlink_to(tmp_path / "real")
    else:
        shutil.copytree(calm, place)
    access = os.access
    # A superuser may write anywhere; what is tested is what follows when one may not.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place and access(path, mode))
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(SystemExit) as left:
        main(["report", "data-scaling", "--preset", "smoke", "--store", str(place)])
    assert not left.value.code
    page = Path(capsys.readouterr().out.strip())
    assert page.parent == tmp_path / "elsewhere"
    assert page.read_bytes() == (calm / "reports" / page.name).read_bytes()
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    with pytest.raises(SystemExit) as left:
        main([*SMOKE, "--store", str(place)])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "cannot be written to" in told and told.count("\n") == 1


# --- F10, F11: members that diverge, populations that do not fit -------------------------------


class OneTooFast(Adaptive):
    """A learning rate among the sound ones with which nothing can be learnt."""

    name = "one-too-fast"

    def next_cells(self, grid: Rates, results: Any, number: int) -> list[Cell]:
        return []

    def cells(self, grid: Rates) -> list[Cell]:
        return [
            self.cell(replace(grid, steps=10_000 if rate > 1 else 200), rate, seed)
            for rate in grid.rate
            for seed in (1, 2)
        ]


def test_f10_a_member_that_diverges_is_flagged_and_left_out_of_means(tmp_path):
    request = Request(OneTooFast(), "smoke", {"rate": "0.05,1e6"})
    outcome = run(request, Session(Store.open(tmp_path)))
    fast, sound = outcome.results.where(rate=1e6), outcome.results.where(rate=0.05)
    assert fast.diverged == 2 and sound.diverged == 0
    for row in fast:
        assert 0 <= row.summary["diverged_at"] < row.summary["steps"]
        assert row.summary["steps"] < 10_000, "a shard ends when nobody learns any more"
    assert outcome.results.values("exam", "right").tolist() == [1.0, 1.0]
    assert outcome.judgements[0].interval is not None
    assert any("2 members diverged and are left out" in w for w in report_of(outcome).warnings)


@pytest.mark.parametrize("seconds", [0.0, 0.001, 1.0])
def test_f10_where_a_diverged_run_ends_does_not_depend_on_the_clock(tmp_path, monkeypatch, seconds):
    monkeypatch.setattr(engine, "CHUNK_SECONDS", seconds)
    learner = Line(rate=1e6, training_steps=10_000, evaluation_every=500)
    summary = fit(learner, tmp_path).summary
    assert summary["evaluation_steps"] == [0, 500] and summary["steps"] == 500


def small_device(patch: pytest.MonkeyPatch, most: int, stack: int = 8) -> None:
    """A device that stacks members, and has room for so many of them."""
    compile_population = engine.compile_population

    def compile_if_it_fits(program: Any, groups: int, members: int, *rest: Any) -> Any:
        if groups * members > most:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory allocating 123456 bytes.\nmore\nlines"
            )
        return compile_population(program, groups, members, *rest)

    patch.setattr(engine, "compile_population", compile_if_it_fits)
    patch.setattr(Device, "stack", lambda self, weights: stack)


def test_f11_a_population_that_does_not_fit_is_halved_under_a_recorded_layout(
    tmp_path, monkeypatch
):
    learners = lines(*[Line(seed=seed) for seed in range(5)])
    store = Store.open(tmp_path / "halved")
    with monkeypatch.context() as patch:
        small_device(patch, most=2)
        execute.train(Session(store), "fit", learners)
    assert store.ids("cell") == sorted(learners)
    layout = store.read_plan("fit-0")["shards"]
    assert sorted(cell for shard in layout for cell in shard["cells"]) == sorted(learners)
    assert max(len(shard["cells"]) + shard["padding"] for shard in layout) == 2
    planned = {shards.Shard.from_document(one).id: one for one in layout}
    for cell in learners:
        shard = store.provenance("cell", cell)["shard"]
        one = planned[shard.pop("id")]
        assert cell in one["cells"] and shard == {**one, "cells": len(one["cells"])}
    # From step 0, so the same as if it had been laid out like this at once.
    other = Store.open(tmp_path / "at once")
    other.write_plan("fit-0", store.read_plan("fit-0"))
    execute.train(Session(other), "fit", learners)
    assert committed(other.path) == committed(store.path)


def test_f11_a_single_member_that_does_not_fit_fails_with_advice_and_is_tried_again(
    tmp_path, monkeypatch
):
    store, learner = Store.open(tmp_path), Line()
    with monkeypatch.context() as patch:
        small_device(patch, most=0)
        execute.train(Session(store), "fit", lines(learner))
    failure = store.failure("cell", node_id(learner))
    assert failure is not None and failure["retry"]
    assert failure["reason"].startswith("a single member does not fit into the memory of")
    assert "use a smaller model" in failure["reason"] and "\n" not in failure["reason"]
    execute.train(Session(store), "fit", lines(learner))
    assert store.has("cell", node_id(learner))


# --- F12: bad input --------------------------------------------------------------------------

BAD = {
    "run data-scalling": "did you mean 'data-scaling'",
    "run data-scaling --preset smok": "did you mean 'smoke'",
    "run data-scaling --preset smoke --set widht=8": "did you mean 'width'",
    "run data-scaling --preset smoke --set width=wide": "expected a whole number, such as 16",
    "run data-scaling --preset smoke --set width": "--set takes NAME=VALUE",
    "run data-scaling --preset smoke --set held_out=nan": "above 0 and below 1",
    "run data-scaling --preset smoke --set seeds=0": "it is empty",
    "run data-scaling --preset smoke --set modules=4 active=9": "use active=4 or less",
    "run data-scaling --preset smoke --set held_out=.99": "use held-out 0.762 or less",
    "run data-scaling --preset smoke --for soon": "such as 90s",
    "run data-scaling --preset smoke --set training=fast": "unknown training 'fast'",
    "run coverage --preset smoke --set rule=poplar": "did you mean 'popular'",
    "run model-scaling --preset smoke --set encoding=identty": "did you mean 'identity'",
    # Also where nothing of this grid is learnt so.
    "run binding --preset smoke --set search_supervision=pair": "did you mean 'pairs'",
    "coverage --rule radnom": "did you mean 'random'",
    "coverage --modules 3 --active 5": "use active=3 or less",
    "rum data-scaling": "did you mean run?",
    "run data-scaling --prset smoke": "did you mean --preset?",
    "status data-scaling --preset smoke": "there is no store at",
    "show 123456": "there is no store at",
    "import nothing.zip": "there is no file nothing.zip",
}


@pytest.mark.parametrize("words", BAD)
def test_f12_bad_input_is_refused_in_one_line_before_anything_compiles(
    words, tmp_path, monkeypatch, capsys
):
    def never(*arguments: Any) -> Any:
        raise AssertionError("it began to compile")

    monkeypatch.setattr("recombine.cli.leave", sys.exit)
    monkeypatch.setattr(engine, "compile_population", never)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(words.split())
    told = capsys.readouterr()
    assert left.value.code == 2
    assert told.err.startswith("recombine: error: ") and told.err.count("\n") == 1
    assert BAD[words] in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("learner", "advice"),
    [
        (Line(training_steps=205), "steps must be a multiple of 10, got 205: use 200"),
        (Line(evaluation_every=15), "evaluate_every must be a multiple of 10"),
        (Line(marks=(0, 33)), "snapshot 33 must be a multiple of 10, got 33: use 30"),
        (Line(marks=(0, 400)), "snapshot 400 lies outside the 200 steps"),
        (Line(training_steps=0), "steps must be at least 10, got 0"),
        (Line(rate=-1.0), "rate must not be negative"),
    ],
)
def test_f12_an_impossible_learner_is_refused_before_it_is_prepared(learner, advice):
    with pytest.raises(InvalidRequest, match=re.escape(advice)):
        fit(learner)


@pytest.mark.parametrize("text", ["often", "-1", "nan", "inf"])
def test_f12_a_wrong_number_of_seconds_between_checkpoints_blames_the_variable(
    tmp_path, monkeypatch, text
):
    monkeypatch.setenv("RECOMBINE_CHECKPOINT_SECONDS", text)
    with pytest.raises(InvalidRequest, match=f"RECOMBINE_CHECKPOINT_SECONDS='{text}'"):
        Session(Store.open(tmp_path))


# --- failures that are nobody else's ----------------------------------------------------------


@pytest.mark.parametrize("stack", [1, 8])
def test_a_failing_cell_leaves_its_mates_alone_and_is_tried_again(tmp_path, monkeypatch, stack):
    monkeypatch.setattr(Device, "stack", lambda self, weights: stack)
    store = Store.open(tmp_path)
    broken = [Line(seed=9, fault=fault) for fault in ("crash", "silent", "bad input")]
    sound = [Line(seed=seed) for seed in range(3)]
    learners = lines(*sound[:2], *broken, sound[2])
    execute.train(Session(store), "mixed", learners)
    assert store.ids("cell") == sorted(lines(*sound))
    reasons = {one.fault: store.failure("cell", node_id(one)) for one in broken}
    assert all(reasons.values())
    assert reasons["crash"]["reason"] == "RuntimeError: the disk of the world is full of elephants"
    assert reasons["silent"]["reason"].startswith("AssertionError")
    assert (
        "turtles" in next((tmp_path / "logs").glob("*.log")).read_text()
        or len(list((tmp_path / "logs").glob("*.log"))) == 3
    )
    assert [reasons[fault]["retry"] for fault in ("crash", "silent", "bad input")] == [
        True, True, False,
    ]  # fmt: skip

    prepare = Line.prepare

    def mended(self: Line, given: Any) -> Any:
        return prepare(replace(self, fault=""), given)

    monkeypatch.setattr(Line, "prepare", mended)
    execute.train(Session(store), "mixed", learners)
    assert store.ids("cell") == sorted(lines(*sound, *broken[:2]))


class Missing(Material):
    """Data that cannot be made here."""

    def make(self) -> dict[str, Any]:
        raise ModuleNotFoundError("No module named 'data_of_the_gods'")


class Hungry(Line):
    """Needs data that cannot be made."""

    def materials(self) -> dict[str, Material]:
        return {"data": Missing()}


class Standing(Line):
    """Stands on a cell that fails."""

    def upstream(self) -> dict[str, Learner]:
        return {"base": Line(seed=7, fault="crash")}


class NeedsACell(Exam):
    """An instrument that also looks at a cell that fails."""

    def cells(self, learner: Learner) -> dict[str, Learner]:
        return {"control": Line(seed=8, fault="crash")}


class OddNeeds(Adaptive):
    """Cells whose needs cannot be met beside one that has none."""

    name = "odd-needs"

    def cells(self, grid: Rates) -> list[Cell]:
        read = (Exam(),)
        return [
            Cell(Line(seed=1), {"seed": 1, "rate": 0}, read),
            Cell(Hungry(seed=2), {"seed": 2, "rate": 0}, read),
            Cell(Standing(seed=3), {"seed": 3, "rate": 0}, read),
            Cell(Line(seed=4), {"seed": 4, "rate": 0}, (NeedsACell(),)),
        ]


def test_a_need_that_cannot_be_met_is_told_and_the_others_are_finished(tmp_path):
    outcome = run(Request(OddNeeds(), "smoke"), Session(Store.open(tmp_path)))
    assert [row.labels["seed"] for row in outcome.results] == [1]
    assert outcome.missing == 3
    told = {name.split("(")[1]: reason for name, reason in outcome.failed}
    assert "ModuleNotFoundError: No module named 'data_of_the_gods'" in told["seed=2, rate=0)"]
    assert "elephants" in told["seed=3, rate=0)"]
    assert "elephants" in told["seed=4, rate=0)"]
    assert any("elephants" in warning for warning in report_of(outcome).warnings)


class LacksData(Adaptive):
    """The data of one of two pilots cannot be made; then those of a better one can."""

    name = "lacks-data"

    def cells(self, grid: Rates) -> list[Cell]:
        poor, good = min(grid.rate), max(grid.rate)
        hungry = Hungry(seed=0, rate=good, training_steps=grid.steps)
        return [
            self.cell(grid, poor, 0),
            Cell(hungry, {"rate": good, "seed": 0}, (Exam(),)),
        ]


def test_a_round_does_not_wait_for_cells_whose_data_are_not_here(tmp_path, monkeypatch):
    store, request = Store.open(tmp_path), Request(LacksData(), "smoke")
    outcome = run(request, Session(store))
    assert outcome.missing == 1 and not outcome.finished
    assert [(r.labels["seed"], r.labels["rate"]) for r in outcome.results] == [
        (0, 0.0005), (1, 0.0005), (2, 0.0005),
    ]  # fmt: skip
    # Once the data are there, they have their say, and nothing is committed twice.
    monkeypatch.setattr(Missing, "make", lambda self: {"data": np.zeros(1)})
    again = run(request, Session(store))
    assert again.finished
    assert [(r.labels["seed"], r.labels["rate"]) for r in again.results] == [
        (0, 0.0005), (0, 0.02), (1, 0.02), (2, 0.02),
    ]  # fmt: skip


class OneCannotBe(Adaptive):
    """One of two pilots fails: for a reason that stays, or by a crash that may not come again."""

    name = "one-cannot-be"

    def __init__(self, fault: str):
        self.fault = fault

    def cells(self, grid: Rates) -> list[Cell]:
        poor, good = min(grid.rate), max(grid.rate)
        faulty = Line(seed=0, rate=good, training_steps=grid.steps, fault=self.fault)
        return [self.cell(grid, poor, 0), Cell(faulty, {"rate": good, "seed": 0}, (Exam(),))]


@pytest.mark.parametrize(("fault", "seeds"), [("bad input", [0, 1, 2]), ("crash", [0])])
def test_a_round_waits_only_for_cells_that_can_still_come(tmp_path, fault, seeds):
    outcome = run(Request(OneCannotBe(fault), "smoke"), Session(Store.open(tmp_path)))
    assert outcome.missing == 1 and not outcome.finished
    assert [row.labels["seed"] for row in outcome.results] == seeds


def test_results_that_came_home_without_weights_are_whole_again_when_they_are_needed(tmp_path):
    away, home = Store.open(tmp_path / "away"), Store.open(tmp_path / "home")
    request = Request(Adaptive(), "smoke")
    found = run(request, Session(away))
    import_bundle(home, bundle(away, tmp_path / "b.zip", weights=False))
    assert collect(request, home).finished
    before = committed(home.path)
    run(request, Session(home))
    after = {name: data for name, data in committed(home.path).items() if "reports" not in name}
    assert after == before, "what is known already is not done again"
    reading = home.ids("reading")[0]
    shutil.rmtree(home.folder("reading", reading))
    again = run(request, Session(home))
    assert again.finished
    assert [j.document() for j in again.judgements] == [j.document() for j in found.judgements]


# --- F20, F21: other machines, foreign caches ----------------------------------------------------


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to hide one")
def test_f20_another_machine_continues_only_when_told_to_and_both_are_recorded(
    nursery, calm, broken_off, tmp_path
):
    here = len(os.sched_getaffinity(0))
    store = shutil.copytree(broken_off, tmp_path / "runs")
    (end,) = nursery.run(command(store, cores=1))
    assert end["code"] == 2, end["output"]
    (told,) = [line for line in end["output"].splitlines() if line]
    assert f"cores was {here}, is 1" in told and "add --adopt" in told
    assert list((store / "failed").rglob("*.json")) == [], "it is not the cell's fault"

    adopted = Store.open(shutil.copytree(store, tmp_path / "adopted"))
    (end,) = nursery.run(command(adopted.path, [*SMOKE, "--adopt"], cores=1))
    assert end["code"] == 0, end["output"]
    all_told = [adopted.provenance("cell", id) for id in adopted.ids("cell")]
    mixed = [one for one in all_told if len(one["resumed"]) == 2]
    assert mixed
    for one in mixed:
        assert [fingerprint["cores"] for fingerprint in one["resumed"]] == [here, 1]
        assert one["resume_is"] == "statistical"

    (end,) = nursery.run(command(store))
    assert end["code"] == 0, end["output"]
    assert committed(store) == committed(calm)


def test_f21_a_corrupt_compilation_cache_is_ignored(nursery, tmp_path):
    def ended(name: str) -> dict[str, bytes]:
        env = {"RECOMBINE_CACHE": str(tmp_path / "cache")}
        (end,) = nursery.run({"work": "slots", "store": str(tmp_path / name), "env": env})
        assert end["code"] == 0, end["output"]
        return committed(tmp_path / name)

    sound = ended("sound")
    entries = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert entries
    for number, path in enumerate(entries):
        path.write_bytes([b"", b"garbage", path.read_bytes()[:-9]][number % 3])
    assert ended("corrupt") == sound


def test_a_stop_is_wanted_by_signal_time_or_surrender():
    assert not Stop().wanted
    assert Stop(signal=2).wanted and Stop(deadline=0.0).wanted and Stop(given_up=True).wanted


def test_the_command_prints_any_study_and_says_by_its_exit_code_that_a_cell_failed(
    tmp_path, capsys
):
    from recombine.cli.running import run_to_end

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert run_to_end(Request(OddNeeds(), "smoke"), tmp_path / "odd", quiet=True) == 1
        told = capsys.readouterr().out
        assert "failed: " in told and "elephants" in told
        assert run_to_end(Request(Adaptive(), "smoke"), tmp_path / "sound", quiet=True) == 0
        told = capsys.readouterr().out
        assert "0.0005" in told and "error" in told, "a table by what varies"
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
            signal.signal(number, handler)
