"""Learning to answer in text: the contract, what is trained on, and a network that learns."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.errors import InvalidRequest
from recombine.families import Functions
from recombine.lab.engine import Population
from recombine.lab.identity import node_id
from recombine.learners import NextToken, check_learner
from recombine.learners.next_token import LOOKS, rows_of, splits_of
from recombine.learners.packing import Packed, decode
from recombine.models import SequenceModel
from recombine.models.sequence import Rows
from recombine.seeds import Seeds
from recombine.tokens import ANSWER, END

TINY = NextToken(
    family=Functions(
        functions=5, values=6, depth=3, deepest=5, steps=True, train_items=1_200, test_items=150,
        beyond_items=100, validation_items=40,
    ),
    model=SequenceModel(depth=2, width=32, heads=2),
    training_steps=600,
    batch=8,
    learning_rate=1e-2,
    warmup=20,
    row=48,
    rows=320,
    vocabulary=16,
    evaluation_every=600,
    evaluation_rows=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def given():
    return {name: material.make() for name, material in TINY.materials().items()}


@pytest.fixture(scope="module")
def arrays(given):
    return jax.tree.map(jnp.asarray, TINY.prepare(given).merged())


@pytest.fixture(scope="module")
def trained(given):
    population = Population([TINY], [TINY.prepare(given)], "float32")
    population.compile()
    population.evaluate()
    while population.running():
        population.chunk(TINY.steps)
    population.evaluate()
    return population


@jax.jit
def read(network, rows):
    return network(rows)


def pairs(packed: Packed) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The questions and answers that stand in packed rows, read off again."""
    packed = Packed(*(np.asarray(a) for a in packed))
    found = []
    for tokens, item in zip(packed.tokens, packed.item, strict=True):
        for number in range(1, item.max(initial=0) + 1):
            text = tokens[item == number].tolist()
            cut = text.index(ANSWER)
            assert text[-1] == END
            found.append((tuple(text[:cut]), tuple(text[cut + 1 : -1])))
    return found


def expected(given, *splits):
    corpus = decode(given["corpus"])
    return [
        (tuple(s.tolist()), tuple(t.tolist()))
        for split in splits
        for s, t in zip(corpus.splits[split].sources, corpus.splits[split].targets, strict=True)
    ]


@pytest.mark.slow
def test_one_with_an_encoder_keeps_the_contract():
    family = replace(TINY.family, train_items=90, test_items=6, beyond_items=6, validation_items=4)
    model = SequenceModel(shape="encoder-decoder", depth=1, width=16, heads=2, positions="learned",
                          embedding="down")  # fmt: skip
    check_learner(
        replace(TINY, family=family, model=model, batch=2, evaluation_rows=2, training_steps=9)
    )


def test_a_small_network_learns_a_small_family(trained):
    first, last = (
        {name: float(points[n][0]) for name, points in trained.curves.evaluations.items()}
        for n in (0, -1)
    )
    assert first["seen"] < 0.05 and last["seen"] >= 0.9
    assert last["unseen"] > first["unseen"] + 0.2
    for name in LOOKS:
        assert last[f"{name}_ended"] >= last[name]
    loss = np.concatenate(trained.curves.points["loss"])[:, 0]
    assert loss[0] == pytest.approx(math.log(TINY.vocabulary), rel=0.5)
    assert loss[-5:].mean() < 0.1 * loss[0]


def test_the_scale_of_embeddings_is_not_learnt_and_both_scales_share_a_program(trained):
    assert trained.host_state().model.scale.tolist() == [np.float32(32**0.5)]
    down = replace(TINY, model=replace(TINY.model, embedding="down"))
    assert down.program() == TINY.program() and node_id(down) != node_id(TINY)


def test_the_loss_is_the_mean_surprise_at_the_tokens_of_answers(arrays):
    program = TINY.program()
    drawn = program.draw(arrays, jnp.int32(3))
    state = jax.jit(program.init)(arrays, jax.random.key(0))
    scores = np.asarray(read(state.model, rows_of(drawn)), float)
    surprise = []
    for tokens, item, asked, said in zip(
        drawn.tokens, drawn.item, drawn.asked, scores, strict=True
    ):
        for place in np.flatnonzero(asked):
            assert item[place] == item[place + 1] != 0
            surprise.append(np.log(np.exp(said[place]).sum()) - said[place, tokens[place + 1]])
    for precision, tolerance in (("float32", 1e-5), ("bfloat16", 2e-2)):
        learn = jax.jit(TINY.program(precision).learn)
        found = float(learn(arrays, state, drawn, jnp.int32(3))[1]["loss"])
        assert found == pytest.approx(np.mean(surprise), rel=tolerance)


def test_the_rate_rises_then_falls_along_half_a_cosine_to_nothing(arrays):
    program = TINY.program()
    arrays, drawn = {**arrays, "decay": jnp.float32(0)}, program.draw(arrays, jnp.int32(0))
    state = jax.jit(program.init)(arrays, jax.random.key(0))
    learn = jax.jit(program.learn)
    for t in (0, 4, 19, 100, 300, 599, 600, 700):
        later, _ = learn(arrays, state, drawn, jnp.int32(t))
        # Adam's first step moves every weight by the rate, whatever its gradient.
        moved = np.abs(later.model.norm.scale - state.model.norm.scale)
        rate = 1e-2 * min(1, (t + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(1, t / 600)))
        np.testing.assert_allclose(moved, rate if t < 600 else 0, rtol=0.02, atol=1e-7)


def test_training_holds_every_training_item_and_looks_hold_no_other_split(given, arrays):
    pool = Packed(*arrays["pool"])
    assert sorted(pairs(pool)) == sorted(expected(given, "train"))
    used = int(arrays["used"])
    assert np.asarray(pool.item[:used]).any(axis=1).all() and not np.asarray(pool.item[used:]).any()
    looked = {name: pairs(Packed(*look)) for name, look in arrays["looked at"].items()}
    assert sorted(looked["seen"]) == sorted(expected(given, "test"))
    assert sorted(looked["unseen"]) == sorted(expected(given, "systematicity", "depth"))
    assert sorted(looked["validation"]) == sorted(expected(given, "validation"))
    train = set(expected(given, "train"))
    assert not any(train & set(look) for look in looked.values())


def test_steps_draw_rows_that_are_used_and_in_time_all_of_them(arrays):
    program = TINY.program()
    draw = jax.jit(lambda t: program.draw(arrays, t).tokens)
    drawn = {row.tobytes() for t in range(300) for row in np.asarray(draw(jnp.int32(t)))}
    rows = {row.tobytes() for row in np.asarray(arrays["pool"][0])[: int(arrays["used"])]}
    assert drawn <= rows and len(drawn) > 0.99 * len(rows)


def test_looks_may_name_splits_and_only_those_there_are(given):
    assert splits_of("unseen", ["train", "test", "validation", "a", "b"]) == ("a", "b")
    assert splits_of("seen", ["train", "test"]) == splits_of("test", ["train", "test"]) == ("test",)
    deep = replace(TINY, looks=("depth", "seen"))
    looked = deep.prepare(given).merged()["looked at"]
    assert sorted(looked) == ["depth", "seen"]
    assert sorted(pairs(looked["depth"])) == sorted(expected(given, "depth"))
    assert deep.program() != TINY.program()
    with pytest.raises(InvalidRequest, match="split to look at 'dpth': did you mean 'depth'"):
        replace(TINY, looks=("dpth",)).prepare(given)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"vocabulary": 12}, "functions has 15 tokens, more than vocabulary=12 has room for"),
        ({"rows": 20}, r"of 1200 training items of functions find no place in rows=20: use rows=4"),
        ({"row": 8}, "an item has 9 tokens, more than the 8 of a row: use row=64"),
    ],
)
def test_a_corpus_that_does_not_fit_is_refused_with_what_to_type(given, wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(TINY, **wrong).prepare(given)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"training_steps": 0}, "training_steps=0: expected a whole number of at least 1"),
        ({"batch": 2.5}, "batch=2.5: expected a whole number"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0: expected a number from 0"),
        ({"weight_decay": float("nan")}, "weight_decay=nan"),
        ({"family": replace(TINY.family, deepest=1)}, "deepest=1 must exceed depth=3"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_is_made(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(TINY, **wrong).check()


def test_members_share_a_corpus_where_it_and_its_order_are_the_same(given):
    same = [replace(TINY, learning_rate=1e-3), replace(TINY, seeds=Seeds(init=5))]
    assert all(one.group() == TINY.group() for one in same)
    corpus = node_id(TINY.materials()["corpus"])
    assert all(node_id(one.materials()["corpus"]) == corpus for one in same)
    for seed, remade in (("content", True), ("train", False), ("evaluation", False)):
        other = replace(TINY, seeds=replace(TINY.seeds, **{seed: 5}))
        assert other.group() != TINY.group()
        assert (node_id(other.materials()["corpus"]) != corpus) == remade
    encoder = replace(TINY, model=replace(TINY.model, shape="encoder-decoder"))
    assert encoder.group() != TINY.group()


@pytest.mark.parametrize("field", ["rows", "evaluation_rows"])
def test_cells_that_hold_other_numbers_of_rows_are_never_stacked(field):
    other = replace(TINY, **{field: 2 * getattr(TINY, field)})
    assert (other.program(), other.shard()) != (TINY.program(), TINY.shard())


def test_another_order_has_the_same_items_in_other_rows(given):
    other = replace(TINY, seeds=replace(TINY.seeds, train=9)).prepare(given).merged()
    usual = TINY.prepare(given).merged()
    assert sorted(pairs(Packed(*other["pool"]))) == sorted(pairs(Packed(*usual["pool"])))
    assert not np.array_equal(other["pool"][0], usual["pool"][0])
    for one, two in zip(*map(jax.tree.leaves, (other["looked at"], usual["looked at"])), strict=True):  # fmt: skip  # noqa: E501
        np.testing.assert_array_equal(one, two)


def test_evaluation_counts_items_whose_every_token_is_right(trained, given, arrays):
    """Against a plain count over items in rows of their own."""
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trained.host_state())
    for name, splits in (("seen", ["test"]), ("unseen", ["systematicity", "depth"])):
        items = expected(given, *splits)
        texts = np.zeros((len(items), TINY.row), np.int32)
        for row, (source, target) in zip(texts, items, strict=True):
            row[: len(source) + len(target) + 2] = [*source, ANSWER, *target, END]
        nothing = jnp.zeros((len(items), 0), jnp.int32)
        rows = Rows(jnp.asarray(texts), jnp.asarray(texts > 0, jnp.int32), nothing, nothing)
        said = np.asarray(read(state.model, rows)).argmax(axis=-1)
        right = [
            all(said[n, len(s) : len(s) + len(t) + 1] == [*t, END])
            for n, (s, t) in enumerate(items)
        ]
        found = float(trained.curves.evaluations[name][-1][0])
        assert found == pytest.approx(np.mean(right), abs=1e-6)
