from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from recombine.errors import StoreError
from recombine.lab.answers import AnswerLog
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.store import Store


def save(checkpoints: Checkpoints, step: int) -> None:
    checkpoints.save(step, {"w": np.full(1000, step, np.float32)}, {"at": step})


def folders(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


def test_the_latest_checkpoint_comes_back_and_two_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "work")
    assert checkpoints.latest() is None
    for step in (10, 20, 30, 40):
        save(checkpoints, step)
    step, tensors, document = Checkpoints(tmp_path / "work").latest()
    assert (step, document) == (40, {"at": 40})
    np.testing.assert_array_equal(tensors["w"], np.full(1000, 40, np.float32), strict=True)
    assert len(folders(tmp_path / "work")) == 2


def test_loaded_tensors_may_be_written_to(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    loaded = checkpoints.latest()
    assert loaded is not None
    loaded[1]["w"][0] = 5


@pytest.mark.parametrize("file", ["state.safetensors", "document.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_checkpoint_is_set_aside_with_its_reason_and_the_previous_used(
    tmp_path, file, damage
):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        save(checkpoints, step)
    path = sorted(tmp_path.iterdir())[-1] / file
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
    path.unlink()
    if damage != "delete":
        path.write_bytes(data[:-1] if damage == "truncate" else data)
    assert checkpoints.latest()[0] == 10
    (aside,) = tmp_path.glob("damaged-*")
    assert file in (aside / "reason.txt").read_text()
    save(checkpoints, 15)
    assert checkpoints.latest()[0] == 15, "the newest is the last one written"


def test_nothing_is_left_when_every_checkpoint_is_damaged(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        save(checkpoints, step)
    for path in tmp_path.glob("*/manifest.json"):
        path.write_bytes(b"{}")
    assert checkpoints.latest() is None
    save(checkpoints, 5)
    assert checkpoints.latest()[0] == 5


def test_clearing_leaves_what_somebody_else_put_there(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        save(checkpoints, step)
    (tmp_path / "notes.txt").touch()
    checkpoints.clear()
    assert folders(tmp_path) == ["notes.txt"]
    assert checkpoints.latest() is None


# --- answers ---------------------------------------------------------------------------------


def test_answers_survive_and_the_first_one_counts(tmp_path):
    log = AnswerLog(tmp_path / "deep" / "answers.jsonl")
    assert "q" not in log
    log.put("q", {"text": "4\n\r\u2028", "p": float("nan")})
    log.put("q", "another")
    log.put("r", None)
    again = AnswerLog(log.path)
    assert again.get("q")["text"] == "4\n\r\u2028"
    assert "r" in again and again.get("r", "default") is None
    assert again.get("s", "default") == "default"
    assert len(again) == 2


@pytest.mark.parametrize("sealed", [True, False])
def test_a_log_torn_at_any_byte_keeps_the_whole_answers_and_goes_on(tmp_path, sealed):
    log = AnswerLog(tmp_path / "a.jsonl", sealed=sealed)
    sizes = []
    for i in range(3):
        log.put(str(i), i, {"asked": "by a test"})
        sizes.append(log.path.stat().st_size)
    data = log.path.read_bytes()
    for cut in range(len(data) + 1):
        log.path.write_bytes(data[:cut])
        # The line break is not part of the answer: a line that lacks only that one is whole.
        whole = sum(cut >= size - 1 for size in sizes)
        torn = cut not in {0, *sizes, *(size - 1 for size in sizes)}
        with pytest.warns(UserWarning, match="1 damaged line ") if torn else nullcontext():
            again = AnswerLog(log.path, sealed=sealed)
        assert len(again) == whole
        again.put("new", "x")
        with pytest.warns(UserWarning, match="1 damaged line ") if torn else nullcontext():
            assert len(AnswerLog(log.path, sealed=sealed)) == whole + 1


def test_an_answer_that_was_changed_in_a_sealed_log_is_asked_again(tmp_path):
    log = AnswerLog(tmp_path / "a.jsonl", sealed=True)
    for i in range(3):
        log.put(str(i), f"answer {i}")
    log.path.write_bytes(log.path.read_bytes().replace(b"answer 1", b"answer 7"))
    with pytest.warns(UserWarning, match="the first is line 2"):
        again = AnswerLog(log.path, sealed=True)
    assert [key for key in "012" if key in again] == ["0", "2"]
    assert AnswerLog(log.path).get("1") == "answer 7"  # people may mend a log that is not


# --- upkeep ----------------------------------------------------------------------------------


def test_cleaning_removes_finished_work_and_nothing_that_is_needed_or_foreign(tmp_path):
    store = Store.open(tmp_path / "runs")
    for shard, nodes in {"aa": ["11", "22"], "bb": ["11", "33"], "cc": [], "dd": ["11"]}.items():
        folder = store.work(shard, [("cell", id) for id in nodes])
        save(Checkpoints(folder), 1)
        AnswerLog(folder / "answers.jsonl").put("q", 1)
    (store.path / "work" / "aa" / "thesis.tex").touch()
    for id in ("11", "22"):
        store.commit("cell", id, request={})
    before = store.usage()
    with store.lease(["dd"]):
        promised = store.clean(dry_run=True)
        assert store.usage()["work"] == before["work"]
        assert store.clean() == promised
    assert promised["work"] == before["work"]["bytes"] - store.usage()["work"]["bytes"] > 4000
    assert folders(store.path / "work" / "aa") == ["thesis.tex"]
    for unfinished in ("bb", "cc", "dd"):
        assert Checkpoints(store.path / "work" / unfinished).latest()[0] == 1
    assert store.clean()["work"] > 0
    assert folders(store.path / "work") == ["aa", "bb", "cc"]
    assert store.verify() == [] and store.ids("cell") == ["11", "22"]


def test_cleaning_leaves_the_unfinished_folders_of_living_writers(tmp_path):
    from recombine.lab.store_process import temporary_name

    store = Store.open(tmp_path / "runs")
    mine = store.path / "temp" / temporary_name()
    mine.mkdir()
    (store.path / "temp" / "somebodys").touch()
    machine, pid = mine.name.split("-")[1:3]
    dead = store.path / "temp" / f"tmp-{machine}-{pid}-1-{'0' * 16}"
    dead.mkdir()
    (dead / "half").write_bytes(bytes(100))
    assert store.clean()["temp"] == 100
    assert folders(store.path / "temp") == sorted(["somebodys", mine.name])


def test_usage_counts_nodes_and_bytes(tmp_path):
    store = Store.open(tmp_path / "runs")
    store.commit("reading", "aa", request={}, documents={"x": [1] * 1000})
    usage = store.usage()["reading"]
    folder = store.folder("reading", "aa")
    assert usage == {"count": 1, "bytes": sum(p.stat().st_size for p in folder.iterdir())}
    assert store.usage()["cell"] == {"count": 0, "bytes": 0}


def test_quarantine_is_emptied_only_on_request(tmp_path):
    store = Store.open(tmp_path / "runs")
    store.commit("reading", "aa", request={})
    assert store.quarantine("reading", "aa", "doubtful") is not None
    with pytest.raises(StoreError):
        store.manifest("reading", "aa")
    assert store.clean()["quarantine"] == 0
    assert store.clean(quarantined=True)["quarantine"] > 0
    assert folders(store.path / "quarantine") == []
