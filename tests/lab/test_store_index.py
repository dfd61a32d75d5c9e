from __future__ import annotations

import math
import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.lab.index import Index
from recombine.lab.store import Store

REQUESTS = [
    {"model": {"name": "mlp", "width": 8}, "seed": 1, "flag": True},
    {"model": {"name": "mlp", "width": 8.0}, "seed": 2**63 + 5, "flag": 1},
    {"model": {"name": "größe \"q' ", "width": 16}, "seed": 2**63 + 6, "flag": None},
    {"model": None, "seed": -0.0, "lr": 0.1 + 0.2, "sizes": [1, 2]},
    {"seed": 0, "lr": math.nan, "sizes": []},
    {"seed": "0", "lr": 0.3, "flag": False},
]


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.open(tmp_path / "runs")
    for i, request in enumerate(REQUESTS):
        documents = {"summary": {"r2": i / 10}} if i % 2 else {}
        store.commit("cell", f"aa{i}", request=request, documents=documents)
    store.commit("reading", "bb", request={"seed": 1})
    return store


def found(store: Store, **equals: Any) -> list[int]:
    return [int(row.id[2:]) for row in Index(store).query("cell", **equals)]


def everything(store: Store) -> list:
    index = Index(store)
    return [repr(index.query(kind)) for kind in ("material", "cell", "reading", "round", "timing")]


def test_a_query_gives_request_and_summary(store):
    (row,) = Index(store).query("cell", seed=1)
    assert (row.kind, row.id, row.request, row.summary) == ("cell", "aa0", REQUESTS[0], None)
    assert Index(store).query("cell", lr=0.3)[0].summary == {"r2": 0.5}
    assert [row.id for row in Index(store).query("reading")] == ["bb"]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("model.width", 8, [0, 1]),
        ("model.width", 8.0, [0, 1]),
        ("model.name", "größe \"q' ", [2]),
        ("model", None, [3]),
        ("model", {"width": 8, "name": "mlp"}, [0]),
        ("flag", True, [0]),
        ("flag", 1, [1]),
        ("flag", None, [2]),
        ("seed", 2**63 + 5, [1]),
        ("seed", 0, [3, 4]),
        ("seed", "0", [5]),
        ("lr", 0.3, [5]),
        ("lr", 0.1 + 0.2, [3]),
        ("lr", math.nan, [4]),
        ("sizes", [1, 2], [3]),
        ("sizes", [], [4]),
        ("nowhere.at.all", 1, []),
    ],
)
def test_a_field_is_compared_by_value_and_sort(store, field, value, expected):
    assert found(store, **{field: value}) == expected


def test_fields_are_combined_and_strange_ones_refused(store):
    assert found(store, **{"model.width": 8, "flag": True}) == [0]
    for field in ("", "a..b", 'a"b'):
        with pytest.raises(InvalidRequest, match="not a request field"):
            found(store, **{field: 1})


numbers = st.integers(-3, 3) | st.floats(allow_nan=False) | st.integers(-(2**70), 2**70)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.none() | st.booleans() | numbers | st.text(max_size=3), min_size=1, max_size=6))
def test_a_query_agrees_with_looking_at_every_node(tmp_path_factory, values):
    store = Store.open(tmp_path_factory.mktemp("s") / "runs")
    for i, value in enumerate(values):
        store.commit("cell", f"{i:04d}", request={"a": {"b": value}})
    for value in values:
        slow = [
            i
            for i, other in enumerate(values)
            if other == value and isinstance(other, bool) == isinstance(value, bool)
        ]
        fast = [int(row.id) for row in Index(store).query("cell", **{"a.b": value})]
        exact = abs(value) < 2**53 if isinstance(value, (int, float)) else True
        assert fast == slow if exact else set(fast) <= set(slow)


def test_the_index_follows_what_is_committed_and_set_aside(store):
    index = Index(store)
    assert index.sync() == (7, 0)
    assert index.sync() == (0, 0)
    store.commit("cell", "cc", request={"seed": 9})
    store.quarantine("cell", "aa0", "doubtful")
    assert index.sync() == (1, 1)
    assert found(store, seed=1) == []
    store.commit("cell", "aa0", request={"seed": 1}, documents={"summary": "new"})
    assert index.query("cell", seed=1)[0].summary == "new"


@pytest.mark.parametrize(
    "harm", ["delete", "empty", "garbage", "truncate", "flip", "foreign", "folder"]
)
def test_a_lost_or_damaged_index_gives_the_same_answers(store, harm):
    index = Index(store)
    before = everything(store)
    data = bytearray(index.path.read_bytes())
    index.path.unlink()
    if harm == "empty":
        index.path.touch()
    elif harm == "garbage":
        index.path.write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 40)
    elif harm == "truncate":
        index.path.write_bytes(data[: len(data) // 2])
    elif harm == "flip":
        place = data.index(b"mlp")  # the page still parses, and would give a wrong answer
        data[place] ^= 1
        index.path.write_bytes(data)
    elif harm == "foreign":
        with sqlite3.connect(index.path) as database:
            database.execute("CREATE TABLE nodes (x)")
        database.close()
    elif harm == "folder":
        index.path.mkdir()
    assert everything(store) == before
    assert index.rebuild() == 7
    assert everything(store) == before


def test_an_ordinary_sqlite_can_read_the_index(store):
    Index(store).sync()
    database = sqlite3.connect(Index(store).path)
    assert database.execute("SELECT count(*) FROM nodes").fetchone() == (7,)
    database.close()


def test_a_read_only_store_is_queried_without_writing(store):
    reader = Store.open(store.path, read_only=True)
    assert found(reader, seed=1) == [0]
    assert not Index(reader).path.exists()


def test_a_damaged_node_is_not_indexed(store):
    path = store.folder("cell", "aa0") / "manifest.json"
    path.write_bytes(path.read_bytes()[:-9])
    assert found(store, seed=1) == []
    assert not store.has("cell", "aa0")
