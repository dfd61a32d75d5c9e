"""The instrument of subgraphs on scripted executors: what was put in must be read out."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from recombine.errors import NotApplicable
from recombine.families import Functions, Multiplication, Subsequence
from recombine.graphs import (
    SubgraphIndex,
    graph_keys,
    memorising_executor,
    noisy_executor,
    subsequence_graph,
    workings_of,
    write_multiplication,
    write_subsequence,
)
from recombine.instruments import Subgraphs, check_instrument
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.learners.next_token import NextToken
from recombine.models.sequence import SequenceModel

FEW = {"test_items": 60, "validation_items": 20, "beyond_items": 60}
LISTS = Subsequence(
    train_length=4, reach=3, longer=2, train_share=0.4, scratchpad=True, odds=20, **FEW
)  # fmt: skip
PRODUCTS = Multiplication(
    train_sizes=((1, 1), (2, 1)), beyond_sizes=((3, 1), (2, 2)), train_items=700, **FEW
)  # fmt: skip
READS = Subgraphs(items=60)


def learner(family) -> NextToken:
    model = SequenceModel(depth=1, width=8, heads=1)
    return NextToken(family=family, model=model, row=96, rows=2**12, vocabulary=32)


class Scripted(SequenceSubject):
    """A subject whose answers come from a function of the question."""

    def __init__(self, family, answer):
        made = learner(family)
        weights = made.weights(made.program().init({}, jax.random.key(0)))
        whole = made.subject(weights)
        assert isinstance(whole, SequenceSubject)
        super().__init__(made, weights, whole.corpus)
        self._answer = answer

    def written(self, sources, longest=None, ends=None):
        return [self.numbers(self._answer(self.text(source))) for source in sources]


def mute(source: str) -> str:
    return ""


def read(family, answer):
    return READS.read(Scripted(family, answer), Scripted(family, mute), {})


def counts(family, seed: int = 0):
    """For a list: how often training saw the subgraph of each node."""
    sources = [item.source for item in family.corpus(seed)["train"]]
    index = SubgraphIndex.of(keys.strict for keys in workings_of(family.name).trained(sources))
    return lambda graph: index.count(graph_keys([graph]).strict)[0]


def graph_of(source: str):
    return subsequence_graph([int(word) for word in source.split(" ")])


@pytest.mark.parametrize("family", [LISTS, PRODUCTS])
@pytest.mark.parametrize("scratchpad", [True, False])
def test_a_solver_is_right_everywhere_and_an_untrained_network_nowhere(family, scratchpad):
    family = dataclasses.replace(family, scratchpad=scratchpad)
    found = read(family, family.solve)
    corpus = family.corpus(0)
    names = ["seen", *(f"unseen_{split}" for split in corpus.beyond)]
    assert all(found.values[name] == 1 == found.values[f"{name}/readable"] for name in names)
    assert found.controls["untrained"]["seen"] == 0
    assert "auroc" not in found.values  # nothing is wrong, so there is nothing to compare
    assert set(found.tables["sizes"]["exact"]) == {1.0}
    if scratchpad:
        layers = found.tables["layers"]
        assert sum(layers["correct"]) > 500
        assert all(sum(layers[name]) == 0 for name in ("local", "propagation", "missing"))
        assert set(found.tables["sizes"]["bound"]) == {1.0}
    assert found.tables.get("digits", {"wrong": []})["wrong"] == []


def test_a_network_that_memorises_is_told_from_one_that_errs_at_random():
    family = dataclasses.replace(LISTS, favours=1)
    rng, seen = np.random.default_rng(1), counts(family)

    def memorised(source: str) -> str:
        graph = graph_of(source)
        return write_subsequence(memorising_executor(graph, seen(graph), rng, at_least=4).written)

    def at_random(source: str) -> str:
        return write_subsequence(noisy_executor(graph_of(source), rng, error=0.1).written)

    found, blind = read(family, memorised), read(family, at_random)
    assert found.values["auroc"] > 0.9 and found.values["pairs"] > 1000
    assert abs(blind.values["auroc"] - 0.5) < 0.05
    # Half 1 is common here: its endings are known, those of the other half mostly are not.
    assert found.values["seen/touched1"] > found.values["seen/touched2"] + 0.1
    assert abs(blind.values["seen/touched1"] - blind.values["seen/touched2"]) < 0.1
    for one in (found, blind):
        assert one.controls["planted"]["memory"] > 0.95
        assert abs(one.controls["blind"]["memory"]) < 0.1
        assert abs(one.controls["shuffled"]["memory"]) < 0.15
    assert blind.values["error"] == pytest.approx(0.1, abs=0.02)


def test_executors_of_answers_alone_still_depend_on_what_was_frequent():
    family = dataclasses.replace(LISTS, scratchpad=False, favours=2)
    controls = read(family, family.solve).controls
    assert controls["planted"]["seen/touched2"] > controls["planted"]["seen/touched1"] + 0.1
    blind = controls["blind"]
    assert abs(blind["seen/touched2"] - blind["seen/touched1"]) < 0.1
    assert "memory" not in blind and "seen/untouched1" not in blind


def test_nodes_that_were_not_written_are_wrong_and_text_that_is_none_is_unparseable():
    found = read(LISTS, lambda source: "yes yes")
    assert found.values["seen"] == found.values["seen/readable"] == 0
    assert found.values["seen/touched1"] == 0
    layers = found.tables["layers"]
    assert sum(layers["unparseable"]) > 500 and sum(layers["correct"]) == 0
    assert "auroc" not in found.values
    assert set(found.tables["sizes"]["bound"]) == {None}


def test_errors_are_counted_in_the_layer_where_they_are():
    def wrong(source: str) -> str:
        graph = graph_of(source)
        assert isinstance(graph.answer, str)
        turned = graph.answer.translate(str.maketrans("12", "21"))
        return write_subsequence({**graph.values, "answer": turned})

    layers = read(LISTS, wrong).tables["layers"]
    rows = list(zip(*(layers[name] for name in ("split", "size", "layer", "local")), strict=True))
    deepest = {(split, size): layer for split, size, layer, _ in sorted(rows)}
    for split, size, layer, local in rows:
        assert (local > 0) == (layer == deepest[split, size])


@pytest.mark.parametrize("scratchpad", [True, False])
def test_which_digits_of_wrong_products_are_right_is_told(scratchpad):
    family = dataclasses.replace(PRODUCTS, scratchpad=scratchpad)

    def off_by_ten(source: str) -> str:
        graph = workings_of("multiplication").graph(source)
        answer = graph.answer
        assert isinstance(answer, int)
        answer = answer - 10 if answer >= 10 else answer + 10
        if not scratchpad:
            return str(answer)
        return write_multiplication({**graph.values, "answer": answer})

    digits = read(family, off_by_ten).tables["digits"]
    assert {"2x1", "3x1", "2x2"} <= set(digits["size"])
    for place, places, right in zip(
        digits["place"], digits["digits"], digits["right"], strict=True
    ):
        if place == places:
            assert right == 1.0
        elif place == places - 1:
            assert right == 0.0


def test_digits_are_judged_only_in_answers_that_are_as_long_as_the_product():
    family = dataclasses.replace(PRODUCTS, scratchpad=False, beyond_items=200)

    def never_four_digits(source: str) -> str:
        """What a network writes that has learnt to write three digits."""
        x, y = (int(one) for one in source.split("*"))
        return str(x * y % 1000 + 1)

    tables = (
        Subgraphs(items=200)
        .read(Scripted(family, never_four_digits), Scripted(family, mute), {})
        .tables
    )
    judged = set(zip(tables["digits"]["size"], tables["digits"]["digits"], strict=True))
    assert ("2x2", 3) in judged and ("2x2", 4) not in judged
    lengths = tables["lengths"]
    rows = zip(lengths["size"], lengths["digits"], lengths["short"], lengths["long"], strict=True)
    assert [
        (short, long) for size, digits, short, long in rows if (size, digits) == ("2x2", 4)
    ] == [(1.0, 0.0)]
    # Where a product begins is a digit that somebody wrote, never a zero put in front of it.
    assert all(place <= most for place, most in
               zip(tables["digits"]["place"], tables["digits"]["digits"], strict=True))  # fmt: skip


def test_beside_every_digit_stands_what_the_same_answers_give_to_other_items():
    family = dataclasses.replace(PRODUCTS, scratchpad=False, beyond_items=200)

    def always_begins_with_1(source: str) -> str:
        x, y = (int(one) for one in source.split("*"))
        return f"1{str(x * y)[1:-1]}{(x * y + 1) % 10}"

    digits = (
        Subgraphs(items=200)
        .read(Scripted(family, always_begins_with_1), Scripted(family, mute), {})
        .tables["digits"]
    )
    columns = ("size", "digits", "place", "right", "other")
    found = {row[:3]: row[3:] for row in zip(*(digits[name] for name in columns), strict=True)}
    first, second = found["2x2", 4, 1], found["2x2", 4, 2]
    assert first[0] == pytest.approx(first[1])  # one digit for all says nothing of any
    assert second[0] == 1 and second[1] < 0.3


def test_marks_count_by_their_place_where_an_answer_ends_too_early():
    family = dataclasses.replace(LISTS, scratchpad=False)

    def stops_after_four(source: str) -> str:
        return " ".join(family.solve(source).split(" ")[:4])

    values = read(family, stops_after_four).values
    assert values["seen"] == 1 and values["seen/short"] == 0
    split = "unseen_length-6"
    assert values[split] == 0 and values[f"{split}/short"] == 1 and values[f"{split}/long"] == 0
    # Four marks of six, and the answer as a whole, which was never written.
    assert values[f"{split}/touched1"] == pytest.approx(4 / 7)
    assert values[f"{split}/readable"] == 1


def test_answers_are_also_judged_with_their_end_given():
    family = dataclasses.replace(LISTS, scratchpad=False)

    class Unending(Scripted):
        def judge(self, sources, targets):
            return super().judge(sources, targets)._replace(ended=np.ones(len(sources), bool))

    early = Unending(family, lambda source: family.solve(source)[:-2])
    found = READS.read(early, Scripted(family, mute), {})
    names = [name for name in found.values if name.endswith("/ended")]
    assert len(names) == 3 and all(found.values[name] == 1 for name in names)
    assert found.values["unseen_length-5"] == 0
    assert set(found.tables["sizes"]["ended"]) == {1.0} and 1.0 in found.tables["sizes"]["short"]
    wrong = Scripted(family, lambda source: "2 1")
    assert READS.read(wrong, Scripted(family, mute), {}).values["unseen_length-5/ended"] == 0


def test_steps_that_were_never_written_are_told_from_wrong_ones():
    def begun(source: str) -> str:
        sums = LISTS.solve(source).partition(" | ")[0]
        return f"{sums.partition(' , ')[0]} | "

    layers = read(LISTS, begun).tables["layers"]
    assert sum(layers["written"]) == sum(layers["correct"]) > 0
    assert sum(layers["missing"]) > sum(layers["written"])


def test_the_frequency_of_a_node_is_what_training_holds_of_it():
    family = dataclasses.replace(LISTS, favours=1)
    seen = counts(family)
    sources = [item.source for item in family.corpus(0)["train"]]
    graph = graph_of("1 0 2")
    # The best sum from the first number on is made of this whole list: lists that end so hold it.
    ending = sum(source == "1 0 2" or source.endswith(" 1 0 2") for source in sources)
    assert seen(graph)[graph.places["best[0]"]] == ending


def test_the_contract_holds_and_other_families_are_refused():
    made = learner(dataclasses.replace(LISTS, favours=1))
    draw = lambda key: made.weights(made.program().init({}, jax.random.key(key)))  # noqa: E731
    check_instrument(Subgraphs(items=20), made, draw(0), draw(1))
    other = learner(Functions(train_items=300, test_items=30))
    weights = other.weights(other.program().init({}, jax.random.key(0)))
    with pytest.raises(NotApplicable, match="step by step"):
        READS.read(other.subject(weights), other.subject(weights), {})


@pytest.mark.parametrize("harder", ["add", "equal", "max"])
def test_an_operation_that_is_harder_is_not_taken_for_one_that_is_rarer(harder):
    rng = np.random.default_rng(0)

    def writes(source: str) -> str:
        graph = graph_of(source)
        error = {node.op: 0.3 if node.op == harder else 0.03 for node in graph.nodes}
        return write_subsequence(noisy_executor(graph, rng, error=error).written)

    found = read(LISTS, writes)
    assert found.values["auroc"] == pytest.approx(0.5, abs=0.06)
    assert found.controls["blind"]["memory"] == pytest.approx(0.0, abs=0.1)
