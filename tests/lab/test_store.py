"""What a store promises when nothing goes wrong, and when its files do."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest, StoreError
from recombine.lab import store_formats
from recombine.lab.files import read_json, sha256_file, write_json
from recombine.lab.store import Store
from recombine.lab.store_layout import KINDS
from recombine.lab.store_sealed import manifest_bytes

OLD = Path(__file__).parent / "fixtures" / "store-format-1"
WEIGHTS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(0.5)}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "runs")


def commit(store: Store, id: str = "abcdef", **changes) -> bool:
    parts = {
        "request": {"model": {"width": 8}, "seed": 1},
        "tensors": {"weights": WEIGHTS},
        "documents": {"curves": {"loss": [1.0, math.inf]}},
        "versions": {"model": 2},
        "device": {"kind": "cpu"},
        "provenance": {"host": "here", "seconds": 1.5},
    }
    return store.commit("cell", id, **(parts | changes))


# --- committing and reading ------------------------------------------------------------------


def test_a_committed_node_reads_back_as_it_was(store):
    assert not store.has("cell", "abcdef")
    assert commit(store)
    again = Store.open(store.path, create=False)
    assert again.has("cell", "abcdef")
    assert again.ids("cell") == ["abcdef"]
    manifest = again.manifest("cell", "abcdef")
    assert manifest["request"] == {"model": {"width": 8}, "seed": 1}
    assert (manifest["format"], manifest["versions"], manifest["device"]) == (
        1,
        {"model": 2},
        {"kind": "cpu"},
    )
    assert again.document("cell", "abcdef", "curves") == {"loss": [1.0, math.inf]}
    weights = again.tensors("cell", "abcdef", "weights")
    assert weights.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(weights[name], array, strict=True)
    assert again.provenance("cell", "abcdef") == {"host": "here", "seconds": 1.5}


def test_the_manifest_s_sums_are_those_of_the_files(store):
    commit(store)
    folder = store.folder("cell", "abcdef")
    listed = store.manifest("cell", "abcdef")["files"]
    assert set(listed) == {"weights.safetensors", "curves.json"}
    for name, entry in listed.items():
        assert entry == {
            "sha256": sha256_file(folder / name),
            "bytes": (folder / name).stat().st_size,
        }


def test_the_first_commit_stays_and_the_second_says_so(store):
    assert commit(store, documents={"d": 1})
    assert not commit(store, documents={"d": 2})
    assert store.document("cell", "abcdef", "d") == 1
    assert list((store.path / "temp").iterdir()) == []


def test_equal_runs_have_equal_manifests_whatever_their_provenance(tmp_path):
    first, second = (Store.open(tmp_path / name) for name in "ab")
    commit(first, provenance={"host": "here"})
    commit(second, provenance={"host": "there", "date": "later"})
    a, b = (s.folder("cell", "abcdef") / "manifest.json" for s in (first, second))
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize("id", ["", "a", "../../etc", "ABCD", "ab/cd", "ab\n", "abcdeg", "a" * 129])
def test_nothing_but_hexadecimal_digits_becomes_a_path(store, id):
    for use in (store.has, store.manifest, store.failure):
        with pytest.raises(InvalidRequest, match="not an id"):
            use("cell", id)


def test_an_unknown_kind_is_answered_with_the_nearest(store):
    with pytest.raises(InvalidRequest, match="did you mean 'reading'"):
        store.ids("readings")


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "UPPER", "manifest", "absent"])
def test_a_document_cannot_be_called_so_that_it_lands_elsewhere(store, name):
    with pytest.raises(InvalidRequest):
        commit(store, documents={name: 1})
    assert not store.has("cell", "abcdef")
    assert list((store.path / "temp").iterdir()) == []


def test_a_missing_document_is_answered_with_those_there(store):
    commit(store)
    with pytest.raises(StoreError, match=r"no curve\.json \(it has curves\.json, weights"):
        store.document("cell", "abcdef", "curve")
    with pytest.raises(StoreError, match="there is no cell dddd"):
        store.manifest("cell", "dddd")


def test_a_prefix_finds_its_node_or_says_why_not(store):
    for id in ("aa11", "aa12", "bb00"):
        commit(store, id)
    assert store.find("cell", "b") == "bb00"
    assert store.find("cell", "aa12") == "aa12"
    with pytest.raises(InvalidRequest, match="2 cells start with 'aa1'"):
        store.find("cell", "aa1")
    with pytest.raises(InvalidRequest, match="no cell in"):
        store.find("cell", "c")


def test_a_failure_is_remembered_until_the_node_is_committed(store):
    assert store.failure("cell", "abcdef") is None
    store.fail("cell", "abcdef", reason="out of memory", detail="at step 3")
    assert store.failure("cell", "abcdef") == {
        "kind": "cell",
        "id": "abcdef",
        "reason": "out of memory",
        "detail": "at step 3",
        "retry": True,
    }
    store.fail("cell", "abcdef", reason="bad input", retry=False)
    assert store.failure("cell", "abcdef")["retry"] is False
    commit(store)
    assert store.failure("cell", "abcdef") is None
    assert list((store.path / "failed").rglob("*.json")) == []


def test_a_plan_is_replaced_by_a_new_one_and_a_damaged_one_is_refused(store):
    assert store.read_plan("sweep") is None
    store.write_plan("sweep", {"shards": [["a"]], "x": math.nan})
    store.write_plan("sweep", {"shards": [["b"]]})
    assert store.read_plan("sweep") == {"shards": [["b"]]}
    path = store.path / "plans" / "sweep.json"
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"c"'))
    with pytest.raises(StoreError, match="its sum does not match"):
        store.read_plan("sweep")


# --- damage ----------------------------------------------------------------------------------


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


FILES = ["manifest.json", "weights.safetensors", "curves.json"]


def read_all(store: Store) -> None:
    store.manifest("cell", "abcdef")
    store.document("cell", "abcdef", "curves")
    store.tensors("cell", "abcdef", "weights")


@settings(max_examples=60, deadline=None)
@given(file=st.sampled_from(FILES), bit=st.integers(0, 100_000))
def test_any_flipped_bit_is_found_set_aside_and_recomputed(tmp_path_factory, file, bit):
    store = Store.open(tmp_path_factory.mktemp("s") / "runs")
    commit(store)
    flip(store.folder("cell", "abcdef") / file, bit)
    with pytest.raises(StoreError, match="set aside"):
        read_all(store)
    assert not store.has("cell", "abcdef")
    (reason,) = (store.path / "quarantine").glob("*.json")
    assert read_json(reason)["reason"].startswith(file)
    assert commit(store)
    read_all(store)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("keep", [0, 1, 9, -1])
def test_a_truncated_file_is_found_and_set_aside(store, file, keep):
    commit(store)
    path = store.folder("cell", "abcdef") / file
    path.write_bytes(path.read_bytes()[:keep])
    assert [(p.kind, p.id, p.file) for p in store.verify()] == [("cell", "abcdef", file)]
    assert store.has("cell", "abcdef")
    store.verify(set_aside=True)
    assert not store.has("cell", "abcdef")
    assert store.verify() == []


@pytest.mark.parametrize("file", FILES)
def test_a_deleted_file_is_damage_and_a_folder_without_manifest_is_no_result(store, file):
    commit(store)
    (store.folder("cell", "abcdef") / file).unlink()
    with pytest.raises(StoreError):
        read_all(store)
    assert not store.has("cell", "abcdef")
    assert commit(store)
    assert store.verify() == []


def test_a_node_moved_under_another_id_is_not_believed(store):
    commit(store)
    target = store.folder("cell", "bbbbbb")
    target.parent.mkdir()
    shutil.copytree(store.folder("cell", "abcdef"), target)
    with pytest.raises(StoreError, match="belongs to another node"):
        store.manifest("cell", "bbbbbb")
    assert store.ids("cell") == ["abcdef"]


def test_damage_that_was_mended_meanwhile_costs_the_new_node_nothing(store, monkeypatch):
    commit(store)
    flip(store.folder("cell", "abcdef") / "weights.safetensors", 999)
    real = Store.set_aside_if_damaged

    def another_was_quicker(self, kind, id, damage):
        self.quarantine(kind, id, "found by another process")
        commit(Store.open(store.path))
        return real(self, kind, id, damage)

    monkeypatch.setattr(Store, "set_aside_if_damaged", another_was_quicker)
    with pytest.raises(StoreError, match="made again"):
        store.tensors("cell", "abcdef", "weights")
    read_all(store)


class Bomb:
    def __reduce__(self):
        return os._exit, (42,)


@pytest.mark.parametrize("evil", [pickle.dumps(Bomb()), (2**40).to_bytes(8, "little") + b"{}" * 40])
def test_a_pickle_or_a_giant_header_with_correct_sums_is_refused(store, evil):
    commit(store)
    folder = store.folder("cell", "abcdef")
    (folder / "weights.safetensors").write_bytes(evil)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"]["weights.safetensors"] = {
        "sha256": sha256_file(folder / "weights.safetensors"),
        "bytes": len(evil),
    }
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    with pytest.raises(StoreError, match="not a safetensors file"):
        store.tensors("cell", "abcdef", "weights")


def test_a_manifest_that_lists_a_path_outside_its_node_is_refused(store):
    commit(store)
    folder = store.folder("cell", "abcdef")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"]["../../../../secret.json"] = {"sha256": "0" * 64, "bytes": 1}
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    with pytest.raises(StoreError, match="malformed"):
        store.manifest("cell", "abcdef")


# --- where a store lives ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["with space", "Größe-模型-é", "a'b\"c", "-dash", "100%"])
def test_a_store_may_live_under_any_name(tmp_path, name):
    store = Store.open(tmp_path / name / "runs")
    commit(store)
    with store.lease(["abcdef"]):
        read_all(Store.open(store.path))
    assert store.verify() == []


def test_a_store_behind_a_symlink_is_the_same_store(tmp_path):
    store = Store.open(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert commit(Store.open(tmp_path / "link"))
    assert not commit(store)
    assert store.ids("cell") == ["abcdef"]


def test_a_read_only_store_is_read_and_refuses_writing_with_the_reason(tmp_path):
    commit(Store.open(tmp_path / "runs"))
    before = sorted(tmp_path.rglob("*"))
    store = Store.open(tmp_path / "runs", read_only=True)
    assert store.read_only
    read_all(store)
    assert store.verify() == [] and store.usage()["cell"]["count"] == 1
    writes = [
        lambda: commit(store, "dddd"),
        lambda: store.fail("cell", "dddd", reason="x"),
        lambda: store.lease(["dddd"]),
        lambda: store.write_plan("p", {}),
        lambda: store.quarantine("cell", "abcdef", "x"),
        lambda: store.clean(),
    ]
    for write in writes:
        with pytest.raises(StoreError, match="opened for reading only: choose another"):
            write()
    assert sorted(tmp_path.rglob("*")) == before


def test_damage_in_a_read_only_store_is_reported_and_left_in_place(tmp_path):
    commit(Store.open(tmp_path / "runs"))
    store = Store.open(tmp_path / "runs", read_only=True)
    flip(store.folder("cell", "abcdef") / "weights.safetensors", 5000)
    with pytest.raises(StoreError, match="stays where it is"):
        store.tensors("cell", "abcdef", "weights")
    assert store.folder("cell", "abcdef").exists()


def test_a_folder_that_cannot_be_written_falls_back_to_reading(tmp_path, monkeypatch):
    commit(Store.open(tmp_path / "runs"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    store = Store.open(tmp_path / "runs")
    assert store.why_read_only == "its folder is not writable"
    read_all(store)


def test_only_an_empty_or_a_new_folder_becomes_a_store(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(StoreError, match=r"holds other files \(thesis\.tex\)"):
        Store.open(tmp_path / "full")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file"):
        Store.open(tmp_path / "file")
    for missing in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreError, match="there is no store"):
            Store.open(tmp_path / "none", **missing)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]


# --- formats ---------------------------------------------------------------------------------


def test_a_store_of_the_first_release_opens_and_holds_what_it_held():
    store = Store.open(OLD, read_only=True)
    assert {kind: store.ids(kind) for kind in KINDS} == {
        "material": [],
        "cell": ["abcdef"],
        "reading": ["0123"],
        "round": [],
        "timing": [],
    }
    read_all(store)
    np.testing.assert_array_equal(
        store.tensors("cell", "abcdef", "weights")["w"], [[0, 1, 2], [3, 4, 5]]
    )
    assert store.document("reading", "0123", "summary") == {"r2": 0.75}
    assert store.failure("cell", "ffff")["reason"] == "bad input"
    assert store.read_plan("sweep") == {"shards": [["abcdef"]]}
    assert store.verify() == []


def test_todays_release_writes_the_first_release_s_bytes(store):
    commit(store)
    ours, old = store.folder("cell", "abcdef"), OLD / "nodes" / "cell" / "ab" / "abcdef"
    for name in FILES:
        assert (ours / name).read_bytes() == (old / name).read_bytes()


def test_an_old_store_can_be_written_to(tmp_path):
    shutil.copytree(OLD, tmp_path / "runs")
    store = Store.open(tmp_path / "runs")
    assert not commit(store)
    assert commit(store, "dddd")


def test_a_newer_store_is_refused_politely(store):
    write_json(store.path / "store.json", {"format": 2, "created_by": "9.9"})
    for options in ({}, {"read_only": True}):
        with pytest.raises(StoreError, match=r"format 2 \(made by recombine 9\.9\).*upgrade"):
            Store.open(store.path, **options)


@pytest.mark.parametrize("head", [b"", b"[]", b'{"format":"1"}'])
def test_a_damaged_head_is_an_error_not_a_new_store(store, head):
    (store.path / "store.json").write_bytes(head)
    with pytest.raises(StoreError, match=r"store\.json"):
        Store.open(store.path)


def test_a_format_without_a_way_forward_is_refused(store):
    write_json(store.path / "store.json", {"format": 0})
    with pytest.raises(StoreError, match="no way from format 0 to 1"):
        Store.open(store.path)
    with pytest.raises(StoreError, match="older format 0"):
        Store.open(store.path, read_only=True)


def test_a_migration_keeps_a_backup_and_continues_after_a_failure(store):
    commit(store)
    marks = []

    def rename_plans(path: Path) -> None:
        write_json(path / "plans" / "note.json", {"migrated": True})
        marks.append("plans")

    def fails_once(path: Path) -> None:
        marks.append("second")
        if marks.count("second") == 1:
            raise StoreError("no room")

    steps = {1: rename_plans, 2: fails_once}
    with pytest.raises(StoreError, match="no room"):
        store_formats.migrate(store.path, newest=3, migrations=steps)
    assert read_json(store.path / "store.json")["format"] == 2
    store_formats.migrate(store.path, newest=3, migrations=steps)
    assert marks == ["plans", "second", "second"]
    assert read_json(store.path / "store.json")["format"] == 3
    assert store_formats.migrate(store.path, newest=3, migrations=steps) is None
    backup = Store.open(store.path.with_name("runs.backup-format-1"), read_only=True)
    assert backup.verify() == [] and backup.ids("cell") == ["abcdef"]
    assert not (backup.path / "plans" / "note.json").exists()
