"""Counting subgraphs in training, against plain sets of whole subgraphs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.graphs import (
    ComputationGraph,
    CoOccurrence,
    SubgraphIndex,
    graph_keys,
    multiplication_graph,
    multiplication_keys,
    subsequence_graph,
    subsequence_keys,
)


def spelled_out(graph: ComputationGraph) -> list[tuple]:
    """Each node as everything it is made of: the strict key without any hashing."""
    found: list[tuple] = []
    for node in graph.nodes:
        found.append((node.op, node.value, tuple(found[p] for p in node.parents)))
    return found


def steps(graph: ComputationGraph) -> list[tuple]:
    return [
        (node.op, node.value, tuple(graph.nodes[p].value for p in node.parents))
        for node in graph.nodes
    ]


def counted(rows: list[list[tuple]]) -> Counter:
    return Counter(one for row in rows for one in set(row))


@pytest.fixture(scope="module")
def trained() -> list[ComputationGraph]:
    rng = np.random.default_rng(0)
    products = [
        multiplication_graph(int(x), int(y))
        for x, y in zip(rng.integers(10, 1000, 150), rng.integers(1, 100, 150), strict=True)
    ]
    return products + [
        subsequence_graph(rng.integers(-3, 4, rng.integers(1, 6))) for _ in range(80)
    ]


@pytest.fixture(scope="module")
def asked() -> list[ComputationGraph]:
    rng = np.random.default_rng(1)
    pairs = zip(rng.integers(10, 1000, 20), rng.integers(1, 100, 20), strict=True)
    products = [multiplication_graph(int(x), int(y)) for x, y in pairs]
    return products + [subsequence_graph(rng.integers(-3, 4, 4)) for _ in range(10)]


def check_rows(graphs: list[ComputationGraph], found: np.ndarray, expected: list[list[int]]):
    for graph, row, wanted in zip(graphs, found, expected, strict=True):
        assert row[: len(graph.nodes)].tolist() == wanted


def test_strict_and_local_counts_are_those_of_subgraphs_spelled_out(trained, asked):
    keys, questions = graph_keys(trained), graph_keys(asked)
    for kind, of in (("strict", spelled_out), ("local", steps)):
        index = SubgraphIndex.of(np.array_split(getattr(keys, kind), 7))
        times = counted([of(graph) for graph in trained])
        found = index.count(getattr(questions, kind))
        check_rows(asked, found, [[times[one] for one in of(graph)] for graph in asked])
        assert index.examples == len(trained)
        assert len(index.keys) == len(times)  # no two subgraphs share a key
        assert found.max() > 1


def test_co_occurrence_counts_examples_with_every_step_of_the_subgraph(trained, asked):
    index = CoOccurrence.of(np.array_split(graph_keys(trained).local, 5))
    held = [set(steps(graph)) for graph in trained]
    expected = []
    for graph in asked:
        own = steps(graph)
        needed = [{own[a] for a in graph.ancestors(place)} for place in range(len(own))]
        expected.append([sum(need <= one for one in held) for need in needed])
    check_rows(asked, index.count(asked, graph_keys(asked).local), expected)


def test_the_strict_count_is_at_most_the_co_occurrence_count(trained, asked):
    keys, questions = graph_keys(trained), graph_keys(asked)
    strict = SubgraphIndex.of([keys.strict]).count(questions.strict)
    together = CoOccurrence.of([keys.local]).count(asked, questions.local)
    local = SubgraphIndex.of([keys.local]).count(questions.local)
    assert (strict <= together).all() and (together <= local).all()
    assert (strict < together).any() and (together < local).any()


@given(
    st.integers(1, 4).flatmap(lambda n: st.integers(10 ** (n - 1), 10**n - 1)),
    st.integers(1, 3).flatmap(lambda n: st.integers(10 ** (n - 1), 10**n - 1)),
    st.booleans(),
)
def test_keys_of_a_batch_of_products_are_the_keys_of_their_graphs(x, y, zeros):
    one = graph_keys([multiplication_graph(x, y, zeros=zeros)])
    many = multiplication_keys(np.array([x]), np.array([y]), zeros=zeros)
    for alone, row in zip(one, many, strict=True):
        assert alone[0].tolist() == row[0][row[0] != 0].tolist()


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=10))
def test_keys_of_a_batch_of_lists_are_the_keys_of_their_graphs(values):
    one, many = graph_keys([subsequence_graph(values)]), subsequence_keys(np.array([values]))
    for alone, rows in zip(one, many, strict=True):
        assert alone.tolist() == rows.tolist()


def test_rows_of_a_batch_do_not_touch_each_other():
    rng = np.random.default_rng(2)
    x, y = rng.integers(100, 1000, 300), rng.integers(10, 100, 300)
    together = multiplication_keys(x, y)
    for row in (0, 17, 299):
        alone = multiplication_keys(x[row : row + 1], y[row : row + 1])
        assert all((a[0] == b[row]).all() for a, b in zip(alone, together, strict=True))


def test_digits_with_zeros_in_front_are_not_the_number_without_them():
    # 10 * 5 writes "0", then "50"; 15 * 0 in 15 * 10 writes "00" where 5 * 0 writes "0".
    first, second = (multiplication_graph(x, 10) for x in (15, 5))
    assert first.values["output[1,0]"] == "00" and second.values["output[0,0]"] == "0"
    keys = graph_keys([first, second])
    place = first.places["output[1,0]"]
    assert keys.local[0, place] not in keys.local[1]


def test_a_key_twice_in_one_example_counts_once():
    # Both digits of 33 give the same product, and both rows of 33 the same everything but shifts.
    index = SubgraphIndex.of([multiplication_keys(np.array([33]), np.array([33])).strict])
    assert set(index.counts.tolist()) == {1}


def test_an_index_of_nothing_has_seen_nothing():
    assert SubgraphIndex.of([]).count(np.array([[1, 2]], np.uint64)).tolist() == [[0, 0]]
    graph = multiplication_graph(3, 4)
    empty = CoOccurrence.of([])
    assert empty.count([graph], graph_keys([graph]).local).sum() == 0


def test_memory_is_stated():
    keys = multiplication_keys(np.arange(10, 99), np.full(89, 7))
    assert SubgraphIndex.of([keys.strict]).nbytes == 16 * len(
        np.unique(keys.strict[keys.strict > 0])
    )
    assert CoOccurrence.of([keys.local]).nbytes > 0


def test_sets_have_one_key_however_they_were_put_together():
    first, second = frozenset({("red", 1), ("Ann", 2)}), frozenset({("Ann", 2), ("red", 1)})
    keys = [
        graph_keys([ComputationGraph.of([("a", "input", one, ())])]).strict.item()
        for one in (first, second, frozenset({("Ann", 1), ("red", 2)}))
    ]
    assert keys[0] == keys[1] != keys[2]


def test_batches_of_unequal_lengths_are_refused_in_a_sentence():
    with pytest.raises(InvalidRequest, match="all of one length"):
        multiplication_keys(np.array([9, 10]), np.array([3, 3]))
    with pytest.raises(InvalidRequest, match="expected 1 to 18"):
        subsequence_keys(np.zeros((2, 0), int))
