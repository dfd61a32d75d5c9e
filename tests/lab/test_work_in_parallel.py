"""Data made in processes of its own, and readings taken while others train, change nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from recombine.children.talk import Talk
from recombine.errors import Interrupted, InvalidRequest
from recombine.families import Functions, Hyperteacher
from recombine.instruments import ExactMatch, Generalization
from recombine.lab import execute, making, readers, reading, run
from recombine.lab.device import Device, versions
from recombine.lab.execute import Session
from recombine.lab.identity import canonical, node_id
from recombine.lab.progress import Watch
from recombine.lab.store import Store
from recombine.lab.study import Cell
from recombine.learners import Material, NextToken, Supervised
from recombine.models import MLP
from recombine.seeds import Seeds

SIZES = {"train_items": 300, "test_items": 20, "beyond_items": 20, "validation_items": 10}
SMALL = Functions(**SIZES)
CELLS = [
    Cell(
        Supervised(
            family=Hyperteacher(modules=6, active=2), model=MLP(width=8 * (1 + seed // 2), depth=1),
            training_steps=20, tasks=8, samples=4, evaluation_tasks=128, evaluation_every=20,
            seeds=Seeds.all(seed),
        ),
        {"seed": seed},
        (Generalization(combinations=8, draws=2),),
    )
    for seed in range(4)
]  # fmt: skip


def learners() -> list[NextToken]:
    return [NextToken(family=SMALL, seeds=Seeds.all(seed)) for seed in range(making.FEW + 1)]


def test_data_made_in_processes_is_what_is_made_here(tmp_path):
    store = Store.open(tmp_path)
    making.make_materials(Session(store), learners())
    for learner in learners():
        material = learner.materials()["corpus"]
        kept = store.tensors("material", node_id(material), "data")
        made = material.make()
        assert kept.keys() == made.keys()
        assert all(np.array_equal(kept[name], made[name]) for name in made)


def test_a_killed_process_costs_no_data(tmp_path, monkeypatch):
    begin = subprocess.Popen

    def doomed(*arguments, **options):
        child = begin(*arguments, **options)
        child.kill()
        return child

    monkeypatch.setattr(subprocess, "Popen", doomed)
    store = Store.open(tmp_path)
    making.make_materials(Session(store), learners())
    assert all(store.has("material", node_id(one.materials()["corpus"])) for one in learners())


def test_a_script_without_a_guard_is_not_run_again_by_the_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from recombine.families import Functions\n"
        "from recombine.lab import making\n"
        "from recombine.lab.execute import Session\n"
        "from recombine.lab.store import Store\n"
        "from recombine.learners import NextToken\n"
        "from recombine.seeds import Seeds\n"
        "print('begun')\n"
        f"family = Functions(**{SIZES})\n"
        "asked = [NextToken(family=family, seeds=Seeds.all(n)) for n in range(4)]\n"
        f"making.make_materials(Session(Store.open({str(tmp_path / 'store')!r})), asked)\n"
    )
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["begun"]
    assert len(Store.open(tmp_path / "store").ids("material")) == 4


def test_data_that_only_this_process_can_make_is_made_here(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Local(Material):
        number: int = 0

        def make(self):
            return {"number": np.asarray([self.number])}

    found = {f"{n:064d}": Local(n) for n in range(making.FEW + 1)}
    monkeypatch.setattr(making.plan, "materials", lambda _: found)
    store = Store.open(tmp_path)
    making.make_materials(Session(store), [])
    for name, material in found.items():
        assert store.tensors("material", name, "data")["number"] == [material.number]


@dataclass(frozen=True)
class Base(Material):
    """Takes long, so that it should be made once."""

    def make(self):
        return {"number": np.asarray([40])}


@dataclass(frozen=True)
class Upon(Material):
    more: int = 0

    def needs(self):
        return {"base": Base()}

    def make(self):
        raise AssertionError("made without what it needs")

    def make_from(self, given):
        return {"number": given["base"]["number"] + self.more}


@pytest.mark.parametrize("count", [2, making.FEW + 1])
def test_what_several_data_are_made_from_is_made_once(tmp_path, monkeypatch, count):
    made = []
    original = Base.make
    monkeypatch.setattr(Base, "make", lambda self: made.append(1) or original(self))
    found = {node_id(one): one for one in map(Upon, range(count))}
    monkeypatch.setattr(making.plan, "materials", lambda _: found)
    store = Store.open(tmp_path)
    making.make_materials(Session(store), [])
    for name, material in found.items():
        assert store.tensors("material", name, "data")["number"] == [40 + material.more]
    assert len(made) == 1 and store.has("material", node_id(Base()))
    # Where all that was asked for is there, nothing it was made from is missed.
    other = Store.open(tmp_path / "other")
    for name, material in found.items():
        data = store.tensors("material", name, "data")
        with other.lease([name]) as lease:
            other.commit("material", name, request=canonical(material), tensors={"data": data},
                         versions=versions(), lease=lease)  # fmt: skip
    making.make_materials(Session(other), [])
    assert not other.has("material", node_id(Base()))


def test_data_is_not_made_where_what_it_needs_cannot_be(tmp_path, monkeypatch):
    def broken(self):
        raise InvalidRequest("no base here")

    monkeypatch.setattr(Base, "make", broken)
    monkeypatch.setattr(making.plan, "materials", lambda _: {node_id(Upon(1)): Upon(1)})
    store = Store.open(tmp_path)
    making.make_materials(Session(store), [])
    failure = store.failure("material", node_id(Upon(1)))
    assert failure is not None and "no base here" in str(failure)


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory) -> dict[str, dict]:
    return readings(tmp_path_factory.mktemp("in_turn"))


def readings(folder, watch: Watch | None = None) -> dict[str, dict]:
    session = Session(Store.open(folder), watch=watch or Watch(quiet=True))
    asked = {cell.id: cell.learner for cell in CELLS}
    run.train_and_read(session, "test", asked, CELLS)
    rows, missing, failed = run.gather_rows(session.store, CELLS)
    assert missing == 0 and not failed
    return {row.cell: row.readings["generalization"].document() for row in rows}


@pytest.fixture
def taken_here(monkeypatch) -> list[str]:
    """Cells that this process read itself, while reading is done as on an accelerator."""
    taken: list[str] = []
    original = reading.take

    def counted(session, cell, request):
        taken.append(cell.id)
        original(session, cell, request)

    monkeypatch.setattr(run, "reads_ahead", lambda: True)
    monkeypatch.setattr(readers, "take", counted)
    return taken


def test_readings_of_other_processes_are_the_same(tmp_path, taken_here, in_turn):
    assert readings(tmp_path) == in_turn
    assert not taken_here


def test_what_a_process_that_dies_did_not_read_is_read_here(
    tmp_path, monkeypatch, taken_here, in_turn
):
    dies = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit('no memory left')"]
    monkeypatch.setattr(readers, "python_child", lambda serves, variables: Talk(dies))
    assert readings(tmp_path) == in_turn
    assert set(taken_here) == {cell.id for cell in CELLS}


@dataclass(frozen=True)
class OnlyHere(Generalization):
    """An instrument of a module that another process does not find."""

    name: ClassVar[str] = "generalization"


def test_an_instrument_that_another_process_does_not_know_is_read_here(
    tmp_path, monkeypatch, taken_here
):
    cells = [replace(CELLS[0], instruments=(OnlyHere(combinations=8, draws=2),))]
    session = Session(Store.open(tmp_path))
    run.train_and_read(session, "test", {cells[0].id: cells[0].learner}, cells)
    assert set(taken_here) == {cells[0].id}
    assert run.gather_rows(session.store, cells)[1] == 0


def test_a_reading_that_fails_elsewhere_says_why(tmp_path, taken_here, capsys):
    broken = (Generalization(combinations=8, draws=0),)
    cells = [replace(CELLS[0], instruments=broken)]
    session = Session(Store.open(tmp_path), watch=Watch())
    run.train_and_read(session, "test", {cells[0].id: cells[0].learner}, cells)
    _, missing, ((name, why),) = run.gather_rows(session.store, cells)
    assert missing == 1 and name.startswith("reading") and why
    assert f"failed: {why[:200]}" in capsys.readouterr().err
    assert set(taken_here) == {cells[0].id}  # what fails elsewhere might have succeeded here


def test_a_reading_that_cannot_apply_is_not_tried_again_here(tmp_path, taken_here, capsys):
    cells = [replace(CELLS[0], instruments=(ExactMatch(),))]
    session = Session(Store.open(tmp_path), watch=Watch())
    run.train_and_read(session, "test", {cells[0].id: cells[0].learner}, cells)
    rows, missing, ((_, why),) = run.gather_rows(session.store, cells)
    assert len(rows) == 1 and missing == 0
    assert f"failed: {why[:200]}" in capsys.readouterr().err
    assert not taken_here


def test_processes_that_find_another_device_do_not_read(
    tmp_path, monkeypatch, taken_here, in_turn, capsys
):
    here = readers.fingerprint()
    monkeypatch.setattr(readers, "fingerprint", lambda: {**here, "platform": "gpu"})
    begun, start = [], Talk._start
    monkeypatch.setattr(Talk, "_start", lambda talk: begun.append(talk) or start(talk))
    assert readings(tmp_path, Watch()) == in_turn
    assert set(taken_here) == {cell.id for cell in CELLS}
    assert capsys.readouterr().err.count("platform is cpu, not gpu") == 1
    assert len(begun) <= readers.at_most()  # and none is begun again for every reading


@pytest.mark.parametrize(
    ("has", "share", "read"),
    [(None, "", 8), (139, "", 8), (24, "", 1), (24, "0.5", 3), (139, "0.95", 1), (139, "1", 1)],
)
def test_processes_that_read_fit_into_what_training_leaves(monkeypatch, has, share, read):
    taken = None if has is None else int(has * 2**30 * float(share or 0.75))
    monkeypatch.setattr(readers, "device_memory", lambda: taken)
    monkeypatch.setattr(readers, "device", lambda: Device("gpu", "a GPU", 16))
    for name in readers.FRACTIONS:
        monkeypatch.setenv(name, share)
        assert readers.at_most() == read
        monkeypatch.delenv(name)


def test_a_reading_that_never_ends_is_ended(tmp_path, monkeypatch):
    hangs = "import sys, time; sys.stdin.readline(); print('{}', flush=True); time.sleep(3600)"
    monkeypatch.setattr(readers, "LONGEST", 0.1)
    monkeypatch.setattr(
        readers, "python_child", lambda serves, variables: Talk([sys.executable, "-c", hangs])
    )
    session = Session(Store.open(tmp_path))
    execute.train(session, "test", {CELLS[0].id: CELLS[0].learner})
    with readers.Readers(session, 1) as asked:
        reading.read(session, CELLS[:1], asked, 1)
    _, missing, ((_, why),) = run.gather_rows(session.store, CELLS[:1])
    assert missing == 1 and "no answer within 0.1 s" in why


def test_no_thread_reads_on_here_where_training_ended_with_an_error(
    tmp_path, monkeypatch, taken_here
):
    def broken(session, name, learners, *, with_weights, finished):
        original(session, name, learners, with_weights=with_weights)
        finished()
        raise OSError("the plan cannot be written")

    original = execute.train
    monkeypatch.setattr(execute, "train", broken)
    with pytest.raises(OSError, match="plan"):
        readings(tmp_path)
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(60)
    assert not Store.open(tmp_path).ids("reading") and not taken_here


def test_who_is_asked_to_stop_does_not_wait_for_a_reading(tmp_path, monkeypatch):
    silent = [sys.executable, "-c", "import time; time.sleep(3600)"]
    monkeypatch.setattr(readers, "python_child", lambda serves, variables: Talk(silent))
    session = Session(Store.open(tmp_path))
    execute.train(session, "test", {CELLS[0].id: CELLS[0].learner})
    (wanted,) = reading.possible(session, CELLS[:1])
    with readers.Readers(session, 1) as asked:
        threading.Timer(0.1, lambda: setattr(session.stop, "given_up", True)).start()
        with pytest.raises(Interrupted):
            asked(wanted)


def test_what_fails_while_reading_ahead_is_read_afterwards(tmp_path, in_turn):
    session, tries = Session(Store.open(tmp_path)), []
    here = reading.here(session)

    def failing_once(wanted):
        tries.append(wanted.cell.id)
        if tries.count(wanted.cell.id) == 1:
            raise OSError("the network share went away for a moment")
        here(wanted)

    ahead = reading.ReadingAhead(session, CELLS, failing_once, 2)
    execute.train(session, "test", {cell.id: cell.learner for cell in CELLS}, finished=ahead)
    ahead()
    ahead._pool.shutdown(wait=True)
    assert set(tries) == {cell.id for cell in CELLS}  # each has failed
    reading.read(session, CELLS, failing_once, 2)
    rows, missing, failed = run.gather_rows(session.store, CELLS)
    assert missing == 0 and not failed
    assert {row.cell: row.readings["generalization"].document() for row in rows} == in_turn


def test_training_may_end_while_the_first_of_a_kind_still_waits(tmp_path):
    session, goes_on = Session(Store.open(tmp_path)), threading.Event()
    execute.train(session, "test", {cell.id: cell.learner for cell in CELLS})
    others = [replace(cell, instruments=(Generalization(draws=3),)) for cell in CELLS]

    def held_up(_: reading.Wanted) -> None:
        goes_on.wait()

    ahead = reading.ReadingAhead(session, [*CELLS, *others], held_up, 1)
    ahead()  # one takes the first of one kind, and that of the other kind waits, with all of it
    ending = threading.Thread(target=ahead.close, daemon=True)
    ending.start()
    ending.join(30)
    goes_on.set()
    assert not ending.is_alive()
