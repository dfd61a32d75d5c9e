"""Graphs of computations: their shape, their values, and the scratchpads that spell them out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.graphs import (
    ComputationGraph,
    GraphBuilder,
    multiplication_graph,
    read_multiplication,
    read_subsequence,
    subsequence_graph,
    write_multiplication,
    write_subsequence,
)
from recombine.graphs.choices import best_marks, best_sums

numbers = st.integers(1, 99_999)
lists = st.lists(st.integers(-5, 5), min_size=1, max_size=9)


def shapes_by_hand(graph: ComputationGraph) -> tuple[list[int], int, int]:
    """Layers by following every path backwards, without any order of the nodes."""

    def layer(place: int) -> int:
        return max((1 + layer(parent) for parent in graph.nodes[place].parents), default=0)

    layers = [layer(place) for place in range(len(graph.nodes))]
    return layers, layers[-1], max(layers.count(one) for one in layers)


def best_by_brute_force(values: list[int]) -> str:
    """Tries every list of marks."""
    allowed = [
        marks for marks in itertools.product("12", repeat=len(values)) if "11" not in "".join(marks)
    ]

    def value(marks: tuple[str, ...]) -> int:
        return sum(v for v, mark in zip(values, marks, strict=True) if mark == "1")

    highest = max(map(value, allowed))
    return min("".join(marks) for marks in allowed if value(marks) == highest)


@pytest.mark.parametrize(
    ("x", "y", "nodes"), [(7, 9, 6), (35, 9, 12), (35, 90, 18), (123, 456, 43)]
)
def test_a_multiplication_has_as_many_nodes_as_its_published_graph(x, y, nodes):
    assert len(multiplication_graph(x, y).nodes) == nodes


@given(numbers, numbers, st.booleans())
def test_the_last_node_of_a_multiplication_is_the_product(x, y, zeros):
    assert multiplication_graph(x, y, zeros=zeros).answer == x * y


@pytest.mark.parametrize(("x", "y"), [(35, 9), (49, 7), (123, 456)])
def test_partial_products_do_not_stop_at_their_first_digit(x, y):
    values = multiplication_graph(x, y).values
    for j, digit in enumerate(reversed(str(y))):
        assert values[f"partial[{j}]"] == x * int(digit) * 10**j


@given(st.one_of(st.builds(multiplication_graph, numbers, numbers), lists.map(subsequence_graph)))
def test_layers_depth_and_width_are_those_of_the_longest_paths(graph):
    layers, depth, width = shapes_by_hand(graph)
    assert list(graph.layers) == layers
    assert (graph.depth, graph.width) == (depth, width)
    assert graph.parallelism == len(graph.nodes) / depth


def test_width_is_not_depth():
    graph = multiplication_graph(123, 456)
    assert (graph.depth, graph.width) == (8, 9)


@given(st.one_of(st.builds(multiplication_graph, numbers, numbers), lists.map(subsequence_graph)))
def test_every_value_follows_from_its_parents_and_everything_leads_to_the_answer(graph):
    for node in graph.nodes:
        if node.parents:
            assert node.rule(*(graph.nodes[p].value for p in node.parents)) == node.value
    assert graph.ancestors(len(graph.nodes) - 1) == frozenset(range(len(graph.nodes)))


def test_with_zeros_kept_all_pairs_of_a_size_have_one_graph():
    pairs = itertools.product((100, 345, 999), (10, 99))
    shapes = {
        tuple((node.name, node.op, node.parents) for node in graph.nodes)
        for graph in (multiplication_graph(x, y, zeros=True) for x, y in pairs)
    }
    assert len(shapes) == 1


def test_the_dax_function_starts_each_row_with_a_carry_of_seven():
    # 35 dax 9: 9 + 5 * 7 = 44, write 4, carry 4; 9 + 3 * 4 = 21, write it: 214.
    graph = multiplication_graph(35, 9, function="dax")
    assert graph.answer == 214
    # 21 dax 1: 1 + 1 * 7 = 8, nothing to carry; 1 + 2 * 0 = 1: 18.
    assert multiplication_graph(21, 1, function="dax").answer == 18
    assert multiplication_graph(21, 1, function="dax", zeros=True).answer == 18


@given(lists)
def test_the_chosen_subsequence_is_the_first_in_order_of_the_best(values):
    best = best_by_brute_force(values)
    assert subsequence_graph(values).answer == best
    assert "".join(map(str, best_marks(np.array([values]))[0])) == best


@given(lists)
def test_the_tables_of_many_lists_hold_the_values_of_their_graphs(values):
    found = subsequence_graph(values).values
    best, with_it = best_sums(np.array([values]))
    assert best[0].tolist() == [found[f"best[{i}]"] for i in range(len(values))]
    assert all(with_it[0, i] == found[f"sum[{i}]"] for i in range(len(values) - 2))


@given(numbers, numbers, st.booleans())
def test_a_multiplication_scratchpad_reads_back_as_it_was_written(x, y, zeros):
    values = multiplication_graph(x, y, zeros=zeros).values
    found = read_multiplication(write_multiplication(values))
    assert found is not None
    assert values.items() <= (found | {k: v for k, v in values.items() if k[0] in "xy"}).items()


@given(lists)
def test_a_subsequence_scratchpad_reads_back_as_it_was_written(values):
    graph = subsequence_graph(values)
    found = read_subsequence(write_subsequence(graph.values), len(values))
    assert found is not None
    for node in graph.nodes:
        if node.parents:
            assert found[node.name] == node.value
            assert type(found[node.name]) is type(node.value)  # "no" is False, never a true word


def test_what_is_cut_off_or_garbled_is_missing_and_the_rest_is_read():
    text = write_multiplication(multiplication_graph(35, 97).values)
    cut = read_multiplication(text[: text.index("+9(") + 12])
    assert cut is not None and "partial[0]" in cut and "product[0,1]" not in cut
    garbled = read_multiplication(text.replace("3:21", "3?21"))
    assert garbled is not None and "product[1,0]" not in garbled and "answer" in garbled
    steps = write_subsequence(subsequence_graph([3, -2, 5]).values)
    some = read_subsequence(steps.replace("yes yes yes 1 ,", "yes perhaps yes 1 ,", 1), 3)
    assert some is not None and "free[0]" not in some and some["mark[0]"] == 1
    fewer = read_subsequence(steps.partition(" , ")[2], 3)
    assert fewer is not None and "best[0]" not in fewer


@given(st.text(max_size=60))
def test_no_text_breaks_the_readers(text):
    for found in (read_multiplication(text), read_subsequence(text, 4)):
        assert found is None or found


def test_a_graph_of_other_steps_is_told_by_names():
    graph = ComputationGraph.of(
        [
            ("clue 1", "input", "red is first", ()),
            ("clue 2", "input", "Ann is not red", ()),
            ("step 1", "deduce", frozenset({("red", 1)}), ("clue 1",)),
            ("step 2", "deduce", frozenset({("Ann", 2)}), ("clue 2", "step 1")),
        ]
    )
    assert graph.layers == (0, 0, 1, 2)
    assert graph.ancestors(2) == {0, 2}


def test_graphs_that_cannot_be_are_refused_in_a_sentence():
    with pytest.raises(InvalidRequest, match="does not come before"):
        ComputationGraph.of([("b", "add", 1, ("a",))])
    with pytest.raises(InvalidRequest, match="two nodes are called 'a'"):
        ComputationGraph.of([("a", "input", 1, ()), ("a", "input", 2, ())])
    with pytest.raises(InvalidRequest, match="at least one node"):
        GraphBuilder().graph()
    with pytest.raises(InvalidRequest, match="from 0"):
        multiplication_graph(-3, 4)
    with pytest.raises(InvalidRequest, match="at least one number"):
        subsequence_graph([])
