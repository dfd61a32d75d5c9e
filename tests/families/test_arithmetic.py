"""Nested arithmetic against Python's own parser."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families._sequence import Item
from recombine.families.arithmetic import Arithmetic
from recombine.families.check_sequences import check_sequence_family

SMALL = Arithmetic(
    modulus=5, depth=3, deepest=5, train_items=600, test_items=50, beyond_items=50,
    validation_items=40,
)  # fmt: skip
VARIANTS = [SMALL, replace(SMALL, steps=True), replace(SMALL, operations=("*", "-"), held_out=1)]
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


def python_tree(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


def depth(node: ast.expr) -> int:
    return 1 + max(depth(node.left), depth(node.right)) if isinstance(node, ast.BinOp) else 0


def nestings(node: ast.expr) -> Counter[tuple[str, str]]:
    found = Counter()
    for outer in ast.walk(node):
        if isinstance(outer, ast.BinOp):
            for inner in (outer.left, outer.right):
                if isinstance(inner, ast.BinOp):
                    found[SIGNS[type(outer.op)], SIGNS[type(inner.op)]] += 1
    return found


def python_value(source: str, modulus: int) -> int:
    return eval(source) % modulus


@pytest.mark.parametrize("family", VARIANTS, ids=["small", "steps", "two"])
def test_arithmetic_keeps_the_contract_of_families_of_sequences(family):
    check_sequence_family(family)


@pytest.mark.parametrize("family", [*VARIANTS, Arithmetic()], ids=["small", "steps", "two", "full"])
def test_every_answer_is_what_python_says(family):
    for items in family.corpus(1).splits.values():
        for item in items[:400]:
            value = str(python_value(item.source, family.modulus))
            assert item.target.split(" ")[-1] == value
            assert family.scores(item, family.solve(item.source))["exact"] == 1


def test_every_step_is_right_and_takes_up_results_of_earlier_ones():
    family = VARIANTS[1]
    for item in family.corpus(0)["depth"]:
        lines = item.target.split(" ; ")
        assert len(lines) == sum(word in "+-*" for word in item.source.split(" "))
        expression = item.source
        for line in lines:
            operation, result = line.split(" = ")
            assert python_value(operation, family.modulus) == int(result)
            assert f"( {operation} )" in expression
            expression = expression.replace(f"( {operation} )", result, 1)
        assert expression == result


@pytest.mark.parametrize("family", VARIANTS, ids=["small", "steps", "two"])
@pytest.mark.parametrize("seed", [0, 5])
def test_what_is_called_new_never_occurs_in_training(family, seed):
    corpus = family.corpus(seed)
    trees = {
        split: [python_tree(i.source) for i in items] for split, items in corpus.splits.items()
    }
    trained = {nesting for tree in trees["train"] for nesting in nestings(tree)}
    assert trained == {
        (o, i) for o in family.operations for i in family.operations
    } - family.held_nestings(seed)
    for split, items in corpus.splits.items():
        for item, tree in zip(items, trees[split], strict=True):
            new = sum(n for nesting, n in nestings(tree).items() if nesting not in trained)
            assert item.novelty == new + max(0, depth(tree) - family.depth)
            assert item.part == f"depth {depth(tree)}"
            assert (item.novelty == 0) == (split in ("train", "test"))
    assert {depth(tree) for tree in trees["systematicity"]} == {2, 3}
    assert {depth(tree) for tree in trees["depth"]} == {4, 5}
    assert {depth(tree) for tree in trees["validation"]} == {2, 3, 4, 5}


def test_training_has_every_operation_on_all_numbers():
    train = SMALL.corpus(0)["train"]
    singles = {f"( {a} {o} {b} )" for o in "+-*" for a in range(5) for b in range(5)}
    assert singles <= {item.source for item in train}
    assert Counter(item.part for item in train) == {f"depth {n}": 200 for n in (1, 2, 3)}
    nested = [item.source for item in train if item.part != "depth 1"]
    assert len(set(nested)) == len(nested)


def test_splits_have_their_sizes_and_share_no_source():
    corpus = SMALL.corpus(2)
    assert {split: len(items) for split, items in corpus.splits.items()} == {
        "train": 600, "test": 50, "validation": 40, "systematicity": 50, "depth": 50,
    }  # fmt: skip
    sources = [{item.source for item in items} for items in corpus.splits.values()]
    assert len(set.union(*sources)) == sum(map(len, sources))


def test_all_values_are_as_frequent_though_products_are_often_zero():
    for family in (Arithmetic(), Arithmetic(modulus=10)):
        for split, items in family.corpus(0).splits.items():
            answer, times = Counter(item.target for item in items).most_common(1)[0]
            print(f"{split}: most frequent answer {answer}: {times / len(items):.3f}")
            assert times / len(items) < 1 / family.modulus + 0.03


def test_a_corpus_is_its_seeds():
    assert SMALL.corpus(3).splits == SMALL.corpus(3).splits
    assert SMALL.corpus(3).splits != SMALL.corpus(4).splits
    assert len({SMALL.held_nestings(seed) for seed in range(8)}) > 1


def test_right_values_after_wrong_steps_are_told_from_wrong_ones():
    item = Item("( ( 1 + 1 ) * 2 )", "1 + 1 = 2 ; 2 * 2 = 4")
    assert VARIANTS[1].scores(item, "1 + 1 = 3 ; 3 * 2 = 4") == {"exact": 0, "answer": 1}
    assert VARIANTS[1].scores(item, "1 + 1 = 2 ; 2 * 2 = 3") == {"exact": 0, "answer": 0}


def test_what_is_no_expression_is_told_how_one_is_written():
    for source in ("", "3", "( 3 + 7 )", "(1 + 2)", "( 1 + 2", "1 + 2", "( 1 + 2 ) 3", "( + 1 2 )"):
        with pytest.raises(InvalidRequest, match="each operation in brackets"):
            Arithmetic().solve(source)


trees = st.recursive(
    st.integers(0, 6).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda t: f"( {t[0]} {t[1]} {t[2]} )"
    ),
    max_leaves=12,
).filter(lambda text: " " in text)


@given(trees)
def test_any_expression_is_solved_however_deep(source):
    assert Arithmetic().solve(source) == str(python_value(source, 7))


@given(st.lists(st.sampled_from(["(", ")", "+", "*", "1", "6", "7", "/", "", "²"]), max_size=9))
def test_only_expressions_are_solved(words):
    source = " ".join(words)
    try:
        answer = Arithmetic().solve(source)
    except InvalidRequest:
        return
    assert answer == str(python_value(source, 7))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"modulus": 1}, "modulus must be at least 2"),
        ({"operations": ("+",)}, "two or three different"),
        ({"operations": ("+", "/")}, "unknown operation '/'"),
        ({"held_out": 4}, "at most one for each"),
        ({"deepest": 3}, "must exceed depth=3"),
        ({"train_items": 80}, "cannot hold each operation"),
    ],
)
def test_the_impossible_is_refused(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(SMALL, **wrong).check()


def test_more_items_than_there_are_is_refused():
    family = replace(SMALL, modulus=2, depth=2, train_items=5000)
    with pytest.raises(InvalidRequest, match="ask for fewer"):
        family.corpus(0)
