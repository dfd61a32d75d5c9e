"""The store under faults: failing calls, kills, a full disk, eight processes at once."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from recombine.errors import StoreError
from recombine.lab.answers import AnswerLog
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.files import System
from recombine.lab.index import Index
from recombine.lab.store import Store

CHILD = Path(__file__).parent / "fixtures" / "store_child.py"
CALLS = ("write", "fsync", "rename")


def weights(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full((50, 40), value, np.float32)}


@contextmanager
def failing_call(k: int, code: int, calls: tuple[str, ...] = CALLS) -> Iterator[None]:
    """Makes the k-th write, sync or rename fail; a failing write gets half its bytes out."""
    done = 0

    def failing(name: str) -> Callable:
        real = getattr(System, name)

        def call(*arguments):
            nonlocal done
            done += 1
            if done == k:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise OSError(code, os.strerror(code))
            return real(*arguments)

        return staticmethod(call)

    with pytest.MonkeyPatch.context() as patch:
        for name in calls:
            patch.setattr(System, name, failing(name))
        yield


def attempts(code: int, work: Callable[[], object]) -> Iterator[bool]:
    """Runs the work with its 1st, 2nd, ... call failing, until it succeeds untouched."""
    for k in range(1, 100):
        try:
            with failing_call(k, code):
                work()
        except StoreError:
            yield False
            continue
        yield True
        assert k > 4, "hardly anything could fail: the seam is not where the writing is"
        return
    pytest.fail("it never succeeded")


def rubbish(folder: Path) -> list[Path]:
    return list(folder.rglob("tmp-*"))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whichever_call_fails_the_old_or_the_new_checkpoint_is_read(tmp_path, code):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, weights(1), {"at": 1})
    for succeeded in attempts(code, lambda: checkpoints.save(2, weights(2), {"at": 2})):
        step, tensors, document = Checkpoints(tmp_path).latest()
        assert step in ((2,) if succeeded else (1, 2))
        assert document == {"at": step}
        np.testing.assert_array_equal(tensors["w"], weights(step)["w"])
        assert rubbish(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whichever_call_fails_a_node_is_whole_or_not_there(tmp_path, code):
    count = 0

    def commit() -> None:
        nonlocal count
        count += 1
        Store.open(tmp_path / str(count)).commit(
            "cell", "abcdef", request={}, tensors={"weights": weights(3)}, documents={"d": 3}
        )

    for succeeded in attempts(code, commit):
        store = Store.open(tmp_path / str(count))
        assert store.verify() == []
        assert store.has("cell", "abcdef") or not succeeded
        store.commit(
            "cell", "abcdef", request={}, tensors={"weights": weights(3)}, documents={"d": 3}
        )
        assert store.document("cell", "abcdef", "d") == 3
        assert rubbish(store.path) == []


def test_whichever_call_fails_a_full_node_replaces_a_thin_one_or_the_thin_one_stays(tmp_path):
    def commit(store: Store) -> bool:
        return store.commit("cell", "abcdef", request={}, tensors={"weights": weights(3)})

    count = 0

    def attempt() -> None:
        nonlocal count
        count += 1
        store = Store.open(tmp_path / str(count))
        commit(store)
        folder = store.folder("cell", "abcdef")
        (folder / "weights.safetensors").unlink()
        (folder / "absent.json").write_text('{"absent":["weights.safetensors"]}')
        with failing_call(count, errno.EIO):
            commit(store)

    for _ in range(60):
        try:
            attempt()
        except StoreError:
            store = Store.open(tmp_path / str(count))
            assert store.verify() == []
            assert store.has("cell", "abcdef")
        else:
            break
    store = Store.open(tmp_path / str(count))
    assert store.absent("cell", "abcdef") == frozenset()
    assert store.tensors("cell", "abcdef", "weights")["w"][0, 0] == 3
    assert count > 4


@pytest.mark.filterwarnings("ignore:.*damaged lines? skipped:UserWarning")  # what failed is there
def test_whichever_call_fails_answers_that_were_promised_are_there(tmp_path):
    path = tmp_path / "answers.jsonl"
    promised = 0
    for k in range(1, 12):
        log = AnswerLog(path)
        for i in range(20):
            said = ""
            try:
                with failing_call(k, errno.ENOSPC):
                    log.put(f"{k}-{i}", {"text": "é" * 30, "n": i})
            except StoreError as error:
                said = str(error)
                log.put(f"{k}-{i}", {"text": "é" * 30, "n": i})
            assert not said or f"no room at {path}" in said
            promised += 1
        assert len(AnswerLog(path)) == promised
    assert AnswerLog(path).get("3-7") == {"text": "é" * 30, "n": 7}


def test_a_full_disk_names_path_and_bytes_and_work_continues_when_there_is_room(tmp_path):
    store = Store.open(tmp_path / "runs")
    checkpoints = Checkpoints(store.work("aa"))
    checkpoints.save(1, weights(1), {})
    with failing_call(1, errno.ENOSPC, ("write",)):
        with pytest.raises(
            StoreError, match=rf"no room at {store.path / 'work' / 'aa'}.*: 8\d\d\d bytes"
        ):
            checkpoints.save(2, weights(2), {})
    reopened = Checkpoints(Store.open(store.path).work("aa"))
    assert reopened.latest()[0] == 1
    reopened.save(2, weights(2), {})
    assert reopened.latest()[0] == 2


def test_a_full_disk_while_indexing_costs_only_the_index(tmp_path):
    store = Store.open(tmp_path / "runs")
    store.commit("cell", "abcdef", request={"seed": 3})
    index = Index(store)
    with failing_call(1, errno.ENOSPC, ("write",)):
        assert [row.id for row in index.query("cell", seed=3)] == ["abcdef"]
    assert "no room" in index.not_saved
    assert not index.path.exists()
    assert index.sync() == (1, 0)
    assert index.not_saved is None and index.path.exists()


# --- kills -----------------------------------------------------------------------------------


def child(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed_in_turn(program: str, folder: Path) -> list[tuple[str, str]]:
    process = child(program, folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [tuple(line.split()) for line in output.splitlines()]


def test_a_commit_killed_at_any_call_is_whole_or_not_there_and_can_be_repeated(tmp_path):
    ends = killed_in_turn("commit-killed", tmp_path)
    assert len(ends) > 8 and ends[-1][1] == "lived"
    for k, end in ends:
        store = Store.open(tmp_path / k)
        assert store.verify() == []
        assert store.has("cell", "abcdef") or end == "killed"
        store.clean()
        assert rubbish(store.path) == []
        store.commit("cell", "abcdef", request={"seed": 7}, documents={"d": [7]})
        assert store.document("cell", "abcdef", "d") == [7]


def test_a_checkpoint_killed_at_any_call_is_the_old_one_or_the_new_one(tmp_path):
    ends = killed_in_turn("checkpoint-killed", tmp_path)
    assert len(ends) > 6 and ends[-1][1] == "lived"
    found = set()
    for k, end in ends:
        checkpoints = Checkpoints(tmp_path / k)
        step, tensors, document = checkpoints.latest()
        assert step == 2 or end == "killed"
        assert document == {"at": step}
        np.testing.assert_array_equal(tensors["w"], weights(step)["w"])
        found.add(step)
        checkpoints.save(3, weights(3), {})
        assert checkpoints.latest()[0] == 3
        assert rubbish(tmp_path / k) == []
    assert found == {1, 2}


def test_a_run_killed_at_random_moments_never_loses_a_finished_checkpoint(tmp_path):
    moments = random.Random(0)
    finished = 0
    for _ in range(4):
        process = child("checkpoint-forever", tmp_path)
        assert process.stdout is not None
        for _ in range(moments.randrange(2, 30)):
            finished = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        finished = int(rest[-1]) if rest else finished
        step, tensors, document = Checkpoints(tmp_path).latest()
        assert step >= finished
        assert document == {"at": step}
        np.testing.assert_array_equal(tensors["w"], weights(step)["w"])


# --- many at once ----------------------------------------------------------------------------


def test_eight_processes_commit_each_node_once(tmp_path):
    ids = [f"{i:02x}{'0' * 6}" for i in range(24)]
    processes = [child("compete", tmp_path / "runs", ",".join(ids)) for _ in range(8)]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(id for output in outputs for id in output) == ids
    store = Store.open(tmp_path / "runs", create=False)
    assert store.ids("cell") == ids
    assert store.verify() == []
    for id in ids:
        who = store.document("cell", id, "who")
        assert (store.tensors("cell", id, "weights")["w"] == np.float32(who)).all()
    assert rubbish(store.path) == []
    assert list((store.path / "leases").glob("*.json")) == []
    assert list((store.path / "quarantine").iterdir()) == []
