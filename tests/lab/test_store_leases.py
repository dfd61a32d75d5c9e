from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recombine.errors import InvalidRequest, StoreError
from recombine.lab.leases import Busy
from recombine.lab.store import Store
from recombine.lab.store_process import Owner

CHILD = Path(__file__).parent / "fixtures" / "store_child.py"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "runs")


def held(store: Store) -> list[str]:
    return sorted(path.stem for path in (store.path / "leases").glob("*.json"))


def foreign(store: Store, name: str, age: float, **changes) -> Path:
    """A lease from another machine whose heart beat `age` seconds ago."""
    owner = {"host": "far", "machine": "0" * 12, "pid": 1, "started": 1, "token": "x"} | changes
    path = store.path / "leases" / f"{name}.json"
    path.write_text(json.dumps(owner))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_lease_is_held_inside_the_block_and_gone_after_it(store):
    with store.lease(["aa", "bb", "aa"]) as lease:
        assert held(store) == ["aa", "bb"]
        assert store.holder("aa") == f"process {os.getpid()} on {Owner.current().host}"
        assert lease.held() and not lease.lost
    assert held(store) == []
    assert store.holder("aa") is None


def test_a_lease_is_gone_after_an_error_too(store):
    with pytest.raises(KeyError), store.lease(["aa"]):
        raise KeyError
    assert held(store) == []


def test_all_names_are_taken_or_none(store):
    with store.lease(["bb"]):
        with pytest.raises(Busy, match=r"bb is being worked on by process \d+ on") as busy:
            with store.lease(["aa", "bb", "cc"]):
                pytest.fail("it was not free")
        assert busy.value.name == "bb"
        assert held(store) == ["bb"]


def test_a_name_that_could_be_a_path_is_refused(store):
    with pytest.raises(InvalidRequest), store.lease(["../aa"]):
        pass


def test_the_lease_of_a_killed_process_is_free_at_once(store):
    command = [sys.executable, str(CHILD), "hold", str(store.path), "aa"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=f"process {process.pid} on"):
            with store.lease(["aa"]):
                pass
        process.send_signal(signal.SIGKILL)
        # Not reaped yet: a zombie holds nothing either. The signal needs a moment to arrive.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with store.lease(["aa"]) as lease:
            assert lease.held()


def test_a_pid_that_now_belongs_to_another_process_holds_nothing(store):
    mine = Owner.current()
    foreign(store, "aa", 0, machine=mine.machine, pid=mine.pid, started=mine.started - 1)
    with store.lease(["aa"]):
        assert held(store) == ["aa"]


def test_a_lease_from_another_machine_counts_while_it_beats(store):
    foreign(store, "aa", age=50)
    with pytest.raises(Busy, match="process 1 on far"), store.lease(["aa"]):
        pass
    foreign(store, "aa", age=70)
    with store.lease(["aa"]):
        pass


def test_a_beat_from_the_far_future_is_not_a_beat(store):
    foreign(store, "aa", age=-3600)
    with store.lease(["aa"]):
        pass


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"pid": "x"}'])
def test_an_unreadable_lease_counts_until_it_is_old(store, text):
    path = foreign(store, "aa", 0)
    path.write_text(text)
    with pytest.raises(Busy, match="an unknown process"), store.lease(["aa"]):
        pass
    os.utime(path, (0, 0))
    with store.lease(["aa"]):
        pass


def test_the_heart_beats_while_the_block_runs(store):
    with store.lease(["aa", "bb"], timeout=0.5):
        paths = [store.path / "leases" / f"{name}.json" for name in ("aa", "bb")]
        for path in paths:
            os.utime(path, (0, 0))
        deadline = time.monotonic() + 20
        while any(path.stat().st_mtime == 0 for path in paths):
            assert time.monotonic() < deadline, "no beat"
            time.sleep(0.02)


def test_a_lease_taken_over_is_lost_and_commits_nothing(store):
    with store.lease(["aa"]) as lease:
        theirs = foreign(store, "aa", 0)
        with pytest.raises(StoreError, match="taken over"):
            store.commit("cell", "abcdef", request={}, lease=lease)
        assert lease.lost
        assert not store.has("cell", "abcdef")
    assert theirs.exists(), "releasing a lost lease must not release its new holder's"


def test_the_heartbeat_notices_that_the_lease_is_lost(store):
    with store.lease(["aa"], timeout=0.5) as lease:
        foreign(store, "aa", 0)
        deadline = time.monotonic() + 20
        while not lease.lost:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_dead_lease_is_taken_over_by_exactly_one(store):
    foreign(store, "aa", age=1000)
    start, winners = threading.Barrier(8), []
    done = threading.Barrier(8)

    def contend() -> None:
        start.wait()
        try:
            with store.lease(["aa"]):
                winners.append(threading.get_ident())
                done.wait(30)
        except Busy:
            done.wait(30)

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_cleaning_removes_dead_leases_and_leaves_living_ones(store):
    foreign(store, "dead", age=1000)
    foreign(store, "far", age=10)
    with store.lease(["mine"]):
        assert store.clean()["leases"] > 0
        assert held(store) == ["far", "mine"]
