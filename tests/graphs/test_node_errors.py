"""Errors injected by executors must be found again: labels, rates, bounds and the AUROC."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from recombine.errors import InvalidRequest
from recombine.graphs import (
    NodeTable,
    SubgraphIndex,
    depth_bound,
    estimate_rates,
    graph_keys,
    label,
    memorising_executor,
    multiplication_graph,
    multiplication_keys,
    node_table,
    noisy_executor,
    read_multiplication,
    read_subsequence,
    stratified_auroc,
    subsequence_graph,
    width_bound,
    write_multiplication,
    write_subsequence,
)
from recombine.graphs.bounds import accuracy_decay


def products(count: int, seed: int) -> list:
    rng = np.random.default_rng(seed)
    pairs = rng.integers(100, 1000, (count, 2)).tolist()
    return [multiplication_graph(x, y, zeros=True) for x, y in pairs]


@pytest.fixture(scope="module")
def training():
    """Four in five of all pairs of 3 x 2 digits."""
    chosen = np.random.default_rng(0).permutation(81_000)[:64_800]
    keys = multiplication_keys(100 + chosen // 90, 10 + chosen % 90, zeros=True)
    return SubgraphIndex.of([keys.strict]), SubgraphIndex.of([keys.local])


@pytest.fixture(scope="module")
def tested():
    graphs = products(500, 1)
    return graphs, graph_keys(graphs)


@pytest.mark.parametrize("error", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("repair", [0.0, 0.1])
def test_injected_labels_are_recovered_exactly_even_through_text(error, repair):
    rng = np.random.default_rng(2)
    found = set()
    for graph in products(80, 3):
        done = noisy_executor(graph, rng, error=error, repair=repair)
        assert label(graph, done.written) == done.labels
        assert label(graph, read_multiplication(write_multiplication(done.written))) == done.labels
        found |= set(done.labels)
    for _ in range(80):
        graph = subsequence_graph(rng.integers(-5, 6, 8))
        done = noisy_executor(graph, rng, error=error, repair=repair)
        assert label(graph, done.written) == done.labels
        read = read_subsequence(write_subsequence(done.written), 8)
        assert label(graph, read) == done.labels
    assert {"correct", "propagation", "local"} <= found


@pytest.mark.parametrize(("error", "graphs"), [(0.01, 2000), (0.05, 500), (0.1, 300)])
def test_the_rate_of_errors_is_estimated_within_a_tenth(error, graphs):
    rng, made = np.random.default_rng(4), products(graphs, 5)
    done = [noisy_executor(graph, rng, error=error, repair=0.1).written for graph in made]
    rates = estimate_rates(made, done)
    assert rates.error == pytest.approx(error, rel=0.1)
    # Faults also cancel out by themselves (a carry hides the units), so repairs are no fewer.
    assert 0.09 < rates.repair < 0.25
    assert rates.left_out == 0


def test_an_executor_blind_to_frequency_has_an_auroc_of_a_half(training, tested):
    (strict, _), (graphs, keys) = training, tested
    rng = np.random.default_rng(6)
    written = [noisy_executor(graph, rng, error=0.1, repair=0.1).written for graph in graphs]
    found, pairs = stratified_auroc(node_table(graphs, written, strict.count(keys.strict)))
    assert 0.47 <= found <= 0.53 and pairs > 100_000


def test_an_executor_that_memorises_steps_has_an_auroc_near_one(training, tested):
    (strict, local), (graphs, keys) = training, tested
    rng, seen = np.random.default_rng(7), local.count(keys.local)
    for at_least, counts in ((1, strict.count(keys.strict)), (1, seen), (20, seen)):
        done = [
            memorising_executor(graph, row, rng, at_least=at_least).written
            for graph, row in zip(graphs, seen, strict=True)
        ]
        assert stratified_auroc(node_table(graphs, done, counts, outcome="value"))[0] >= 0.95


def test_a_memorising_executor_is_right_just_where_it_has_seen_the_step():
    graph = multiplication_graph(35, 9)
    seen = np.arange(len(graph.nodes))
    done = memorising_executor(graph, seen, np.random.default_rng(0), at_least=6)
    for place, node in enumerate(graph.nodes):
        right = done.written[node.name] == node.value
        assert right == (place >= 6 or not node.parents)


def test_the_stratified_auroc_agrees_with_scikit_learn():
    rng = np.random.default_rng(8)
    layer = rng.integers(1, 5, 600)
    right = rng.random(600) < 0.3 + 0.1 * layer
    score = np.round(rng.normal(size=600) + right, 1)  # rounded, so that there are ties
    won, pairs = 0.0, 0
    for one in range(1, 5):
        here = layer == one
        alone = roc_auc_score(right[here], score[here])
        both = int(right[here].sum() * (~right[here]).sum())
        won, pairs = won + alone * both, pairs + both
    found = stratified_auroc(NodeTable(score, right, layer, 0))
    assert found == (pytest.approx(won / pairs), pairs)


def test_layers_keep_an_easy_and_common_layer_from_looking_like_memory():
    # Within a layer nothing is told; layer 1 is both more often right and more often seen.
    rng = np.random.default_rng(10)
    layer = np.repeat([1, 2], 2000)
    right = rng.random(4000) < np.where(layer == 1, 0.95, 0.5)
    score = rng.normal(size=4000) + np.where(layer == 1, 5, 0)
    split, _ = stratified_auroc(NodeTable(score, right, layer, 0))
    pooled, _ = stratified_auroc(NodeTable(score, right, np.zeros(4000, int), 0))
    assert split == pytest.approx(0.5, abs=0.03) and pooled > 0.6


def test_a_step_is_judged_only_where_its_parents_are_right():
    graph = multiplication_graph(7, 9)
    wrong = {"product[0,0]": 64, "output[0,0]": "64", "partial[0]": 64, "answer": 63}
    counts = np.ones((1, 6), int)
    sizes = {
        outcome: len(node_table([graph], [wrong], counts, outcome=outcome).right)
        for outcome in ("step", "value", "whole")
    }
    assert sizes == {"step": 1, "value": 4, "whole": 4}
    right = node_table([graph], [wrong], counts, outcome="value").right
    assert right.tolist() == [False, False, False, True]
    assert not node_table([graph], [wrong], counts, outcome="whole").right.any()


def test_each_kind_of_error_is_told_apart():
    graph = multiplication_graph(35, 9)
    written = {
        **graph.values,
        "product[0,0]": 54,  # 5 * 9 is 45: a local error
        "carry[0,0]": 5,  # follows
        "digit[0,0]": 5,  # right all the same
        "output[0,0]": "5",
        "sum[1,0]": 32,  # 27 + 5 follows
        "output[1,0]": "325",
        "partial[0]": 925,
    }
    del written["answer"]
    names = dict(zip(graph.places, label(graph, written), strict=True))
    assert names["product[0,0]"] == "local" and names["product[1,0]"] == "correct"
    assert names["carry[0,0]"] == names["sum[1,0]"] == names["output[1,0]"] == "propagation"
    assert names["digit[0,0]"] == names["output[0,0]"] == "restoration"
    assert names["partial[0]"] == "local" and names["answer"] == "missing"


def test_a_wrong_node_below_a_missing_one_is_not_blamed():
    graph = multiplication_graph(7, 9)
    names = label(graph, {"partial[0]": 60, "answer": 63})
    assert names[2:] == ("missing", "missing", "missing", "restoration")


def test_text_that_is_no_scratchpad_is_a_class_of_its_own():
    graph = multiplication_graph(7, 9)
    names = label(graph, read_multiplication("I think it is 63"))
    assert names == ("correct", "correct", *["unparseable"] * 4)
    table = node_table([graph], [None], np.ones((1, 6), int))
    assert table.left_out == 4 and len(table.score) == 0
    found, pairs = stratified_auroc(table)
    assert math.isnan(found) and pairs == 0


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 40))
def test_the_depth_bound_solves_its_recursion(error, repair, steps):
    p = 1.0
    for _ in range(steps):
        p = (1 - error) * p + repair * (1 - p)
    assert depth_bound(error, repair, steps) == pytest.approx(p, abs=1e-9)


@given(st.floats(0, 1), st.integers(0, 30), st.floats(0, 1))
def test_the_width_bound_is_some_part_wrong_and_no_lucky_collision(error, parts, collision):
    all_right = math.prod([1 - error] * parts)
    expected = (1 - all_right) * (1 - collision)
    assert width_bound(error, parts, collision) == pytest.approx(expected, abs=1e-9)


def test_an_executor_on_a_chain_is_as_right_as_the_depth_bound_says():
    from recombine.graphs import GraphBuilder

    rng, grown, steps, runs = np.random.default_rng(13), GraphBuilder(), 10, 4000
    last = grown.source("0", 20)
    for i in range(1, steps + 1):
        last = grown.step(str(i), "next", lambda value: value + 1, last)
    chain = grown.graph()
    right = [
        noisy_executor(chain, rng, error=0.1, repair=0.05).written[last] == 20 + steps
        for _ in range(runs)
    ]
    # A fresh error after an old one can land on the right value only if it is drawn so: never.
    expected = depth_bound(0.1, 0.05, steps)
    assert np.mean(right) == pytest.approx(expected, abs=4 * math.sqrt(0.25 / runs))


def test_accuracy_that_falls_by_a_constant_factor_is_a_straight_line():
    found = accuracy_decay([2, 4, 6], [0.9**2, 0.9**4, 0.9**6], [100] * 3)
    assert found.slope == pytest.approx(math.log(0.9)) and found.r_squared == pytest.approx(1)
    assert math.isnan(accuracy_decay([3, 3], [0.5, 0.6], [10, 10]).slope)


def test_accuracy_that_stays_or_drops_at_once_does_not_fall_by_a_constant_factor():
    assert math.isnan(accuracy_decay([2, 4, 6], [1.0, 1.0, 1.0], [100] * 3).r_squared)
    assert accuracy_decay([2, 4, 6, 8], [1.0, 1.0, 1.0, 0.0], [100] * 4).r_squared < 0.7


def test_chances_beyond_one_are_refused_in_a_sentence():
    with pytest.raises(InvalidRequest, match="from 0 to 1"):
        width_bound(1.5, 3)
    with pytest.raises(InvalidRequest, match="from 0 to 1"):
        noisy_executor(multiplication_graph(3, 4), np.random.default_rng(0), error=-0.1)
