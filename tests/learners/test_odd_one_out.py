"""Learners of odd-one-out problems: the contract, the readout, pretraining, planted halves."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.odd_one_out import (
    BASE,
    SUB_A,
    TEST_A,
    FieldsOdd,
    PicturesOdd,
    SentencesOdd,
)
from recombine.lab.engine import Population
from recombine.learners import OddOneOut, PlantedOdd, Pretraining, RotatedOdd, check_learner
from recombine.learners._odd import accuracy, logits, surprise
from recombine.learners.parts import Parts
from recombine.learners.pretraining import HIDDEN_INK, hide
from recombine.models.items import ItemConv, ItemMLP, ItemTransformer
from recombine.models.layers import Mask, named_layers, wrap
from recombine.seeds import Seeds

pytestmark = pytest.mark.slow  # make test-all runs it

FIELDS = FieldsOdd(fields=5, values=4)
SMALL = {
    "family": FIELDS, "model": ItemMLP(width=32, depth=2, embedding=16), "batch": 32,
    "training_steps": 40, "evaluation_every": 40, "evaluation_problems": 128,
}  # fmt: skip
TINY = OddOneOut(**SMALL)
BEFORE = Pretraining(**SMALL)
AFTER = replace(TINY, pretraining=BEFORE)
PLANTED = PlantedOdd(**SMALL)
ROTATED = RotatedOdd(**SMALL)
SENTENCES = {"family": SentencesOdd(), "model": ItemTransformer(1, 16, 2), "batch": 8}
PICTURES = {"family": PicturesOdd(), "model": ItemConv(4, 2, 16, 8), "batch": 4}


def trained(*learners, given=None):
    found = Population(learners, [one.prepare(given or {}) for one in learners], "float32")
    found.compile()
    while found.running():
        found.chunk(found.steps)
    found.evaluate()
    whole = found.host_state()
    return [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(found.size)], found


def last(population, name, member=0):
    return float(population.curves.evaluations[name][-1][member])


@pytest.mark.parametrize(
    "learner",
    [
        TINY,
        BEFORE,
        AFTER,
        PLANTED,
        replace(PLANTED, mixed=True),
        ROTATED,
        replace(TINY, **SENTENCES),
    ],
    ids=["scratch", "pretraining", "pretrained", "planted", "mixed", "rotated", "sentences"],
)
def test_it_keeps_the_contract_of_learners(learner):
    check_learner(learner)


@settings(max_examples=25)
@given(st.sampled_from([2, 6]), st.integers(0, 2**31 - 1))
def test_the_readout_is_minus_the_sum_of_cosines(size, seed):
    rng, problems = np.random.default_rng(seed), 5
    vectors = rng.normal(size=(problems, 4, size)) + 0.1
    by_hand = np.zeros((problems, 4))
    for p in range(problems):
        for i in range(4):
            for j in range(4):
                one, two = vectors[p, i], vectors[p, j]
                by_hand[p, i] -= one @ two / np.linalg.norm(one) / np.linalg.norm(two)
    odd = rng.integers(0, 4, problems)
    given = jnp.asarray(vectors, jnp.float32)
    np.testing.assert_allclose(logits(given), by_hand, atol=1e-4)
    expected = -log_softmax(by_hand, axis=-1)[np.arange(problems), odd].mean()
    np.testing.assert_allclose(surprise(given, jnp.asarray(odd)), expected, atol=1e-4)
    right = np.mean(by_hand.argmax(-1) == odd)
    np.testing.assert_allclose(accuracy(given, jnp.asarray(odd)), right, atol=1e-6)


def test_an_embedding_of_zeros_has_a_finite_loss_and_gradient():
    zeros, odd = jnp.zeros((3, 4, 5)), jnp.arange(3)
    value, gradient = jax.value_and_grad(surprise)(zeros, odd)
    assert float(value) == pytest.approx(np.log(4), abs=1e-6)
    assert np.isfinite(gradient).all()


def test_a_network_that_knows_the_rules_scores_1_on_every_part_and_one_that_lacks_a_fails_there():
    program = TINY.program()

    def rules(keep_a):
        def embed(items, dtype=None):
            values = items.reshape(*items.shape[:-1], 5, 4)
            a, b = (jnp.all(values[..., i, :] == values[..., i + 1, :], -1) for i in (0, 2))
            signs = [jnp.where(truth, 1.0, -1.0) for truth in ((a if keep_a else b), b)]
            return jnp.stack([*signs, jnp.ones_like(signs[0])], axis=-1)

        return embed

    for part in (0, 1):
        drawn = program.draw_test(TINY.part_arrays(), jnp.int32(part), jax.random.key(part))
        assert float(program.part_score({}, rules(True), drawn)) == 1
        without = float(program.part_score({}, rules(False), drawn))
        assert without == 1 if part else without < 0.6


def test_parts_are_drawn_from_their_own_sets_by_a_traced_number():
    program = TINY.program()
    assert isinstance(program, Parts) and (program.parts, program.chance) == (2, 0.25)
    keys, arrays = jax.random.split(jax.random.key(0)), TINY.part_arrays()
    for draw, first in ((program.draw_part, SUB_A), (program.draw_test, TEST_A)):
        items, odd = jax.vmap(lambda p, k, draw=draw: draw(arrays, p, k))(jnp.arange(2), keys)
        for part in (0, 1):
            alone = FIELDS.problems(first + part, keys[part], program.batch)
            np.testing.assert_array_equal(items[part], alone[0])
            np.testing.assert_array_equal(odd[part], alone[1])


@pytest.fixture(scope="module")
def base():
    learner = replace(TINY, training_steps=600, evaluation_every=600, learning_rate=3e-3)
    states, population = trained(learner, replace(learner, seeds=Seeds.all(1)))
    return learner, states, population


def test_a_small_network_learns_both_rules(base):
    _, _, population = base
    for name in ("seen", "part_a", "part_b"):
        assert last(population, name) > 0.95
    untrained = Population([TINY], [TINY.prepare({})], "float32")
    untrained.compile()
    untrained.evaluate()
    assert last(untrained, "seen") < 0.6


def test_a_subject_answers_shows_layers_and_weights(base):
    learner, states, _ = base
    weights = learner.weights(states[0])
    subject = learner.subject(weights)
    problems, odd = subject.draw(BASE, "test", 300)
    assert np.mean(subject.answer(problems) == odd) > 0.95
    found = subject.activations(problems)
    assert sorted(found) == ["layer1/after", "layer2/after", "output"]
    assert found["layer1/after"].shape == (300, 4, 32)
    first = np.maximum(problems @ weights["hidden/0/weight"] + weights["hidden/0/bias"], 0)
    np.testing.assert_allclose(found["layer1/after"], first, atol=1e-4)
    with pytest.raises(NotApplicable):
        subject.need("a test", "gradients")


def test_masks_over_the_stored_body_change_what_it_can_do(base):
    learner, states, _ = base
    program = learner.program()
    body = program.body(learner.weights(states[0]))
    drawn = program.draw_test(learner.part_arrays(), jnp.int32(0), jax.random.key(5))
    keep = {p: jnp.ones(layer.weight.shape) for p, layer in named_layers(body).items()}

    @jax.jit
    def score(keep):
        model = wrap(body, {path: Mask(mask) for path, mask in keep.items()})
        return program.part_score({}, model, drawn)

    assert float(score(keep)) > 0.9
    blind = keep["hidden/0"].at[:8].set(0)  # fields 1 and 2 are no longer read
    assert float(score({**keep, "hidden/0": blind})) < 0.6


def test_a_pretrained_network_starts_from_the_body_it_is_given():
    states, _ = trained(BEFORE)
    weights = BEFORE.weights(states[0])
    given = {"pretraining": weights}
    population = Population([AFTER], [AFTER.prepare(given)], "float32")
    start = AFTER.weights(jax.tree.map(lambda leaf: leaf[0], population.host_state()))
    assert sorted(start) == sorted(TINY.weights(_first(TINY)))
    for path, weight in start.items():
        np.testing.assert_array_equal(weight, weights[f"body/{path}"])
    assert not np.array_equal(
        start["hidden/0/weight"], TINY.weights(_first(TINY))["hidden/0/weight"]
    )


def _first(learner):
    population = Population([learner], [learner.prepare({})], "float32")
    return jax.tree.map(lambda leaf: leaf[0], population.host_state())


def test_a_pretrained_network_is_never_silently_drawn():
    with pytest.raises(KeyError, match="pretraining"):
        _first(AFTER)


def test_pretraining_fills_in_what_the_rules_tell():
    learner = replace(BEFORE, training_steps=800, evaluation_every=800, learning_rate=3e-3)
    _, population = trained(learner)
    # Half of what is hidden is told by its partner field now and then; the rest is 1 in 4.
    assert last(population, "right") > 0.35
    assert last(population, "error") < 0.9 * np.log(4)


@pytest.mark.parametrize("family", [FIELDS, SentencesOdd(), PicturesOdd()], ids=str)
def test_half_of_every_item_is_hidden_in_whole_rows_or_patches(family):
    hidden = np.asarray(hide(jax.random.key(0), family, 40)).reshape(40, *family.item_shape)
    if family.categorical:
        assert (hidden == hidden[..., :1]).all()
        np.testing.assert_array_equal(hidden[..., 0].sum(axis=1), family.item_shape[0] // 2)
    else:
        patches = hidden.reshape(40, 8, 4, 8, 4, 3)
        assert (patches == patches[:, :, :1, :, :1, :1]).all()
        np.testing.assert_array_equal(patches[:, :, 0, :, 0, 0].sum(axis=(1, 2)), 32)
    assert len({row.tobytes() for row in hidden}) > 5
    assert HIDDEN_INK < 0  # no item has it


@pytest.mark.slow
def test_pictures_are_pretrained_and_learnt_by_convolutions():
    before = replace(BEFORE, **PICTURES, training_steps=20, evaluation_every=20)
    after = replace(TINY, **PICTURES, training_steps=20, evaluation_every=20, pretraining=before)
    states, population = trained(before)
    assert np.isfinite(last(population, "error"))
    _, population = trained(after, given={"pretraining": before.weights(states[0])})
    assert 0 <= last(population, "seen") <= 1


@pytest.fixture(scope="module")
def halves():
    learner = replace(PLANTED, training_steps=600, evaluation_every=600, learning_rate=3e-3)
    states, population = trained(learner)
    return learner, states[0], population


def test_planted_halves_solve_the_whole_task_they_never_saw(halves):
    _, _, population = halves
    for name in ("seen", "part_a", "part_b"):
        assert last(population, name) > 0.9


def test_planted_halves_never_meet(halves):
    learner, state, _ = halves
    weights = learner.weights(state)
    for path, ins, outs in (("hidden/1", 16, 16), ("output", 16, 8)):
        matrix = weights[f"{path}/weight"]
        assert not matrix[:ins, outs:].any() and not matrix[ins:, :outs].any()
        assert matrix[:ins, :outs].all() and matrix[ins:, outs:].all()


def test_without_one_half_its_rule_is_lost_and_the_other_kept(halves):
    learner, state, _ = halves
    program = learner.program()
    body = program.body(learner.weights(state))
    for part in (0, 1):
        lost = jnp.ones((16 * 2, 16)).at[16 * part : 16 * (part + 1)].set(0)
        # The bias of the lost half stays: it says the same of every item.
        cut = wrap(body, {"output": Mask(lost)})
        draws = [
            program.draw_test(learner.part_arrays(), jnp.int32(p), jax.random.key(p))
            for p in (part, 1 - part)
        ]
        own, other = (float(program.part_score({}, cut, drawn)) for drawn in draws)
        assert own < 0.6 and other > 0.9


def test_the_rotated_twin_learns_the_same_and_is_written_otherwise():
    (state,), _ = trained(ROTATED)
    plain, turned = (one.subject(one.weights(state)) for one in (TINY, ROTATED))
    problems, _ = plain.draw(BASE, "test", 64)
    np.testing.assert_array_equal(plain.answer(problems), turned.answer(problems))
    assert not np.allclose(plain.weights()["output/weight"], turned.weights()["output/weight"])
    (other,), _ = trained(TINY)  # from the same stream and the same first weights
    jax.tree.map(np.testing.assert_array_equal, state, other)
    with pytest.raises(InvalidRequest, match="use ItemMLP"):
        replace(ROTATED, **SENTENCES).check()


def test_the_mixed_twin_is_the_same_function_with_no_zero_in_its_matrices(halves):
    learner, state, _ = halves
    twin = replace(learner, mixed=True)
    plain, mixed = learner.subject(learner.weights(state)), twin.subject(twin.weights(state))
    problems, _ = plain.draw(BASE, "test", 64)
    one, two = plain.activations(problems), mixed.activations(problems)
    assert sorted(one) == sorted(two)
    for name in one:
        np.testing.assert_allclose(two[name], one[name], atol=2e-4 * (1 + np.abs(one[name]).max()))
    np.testing.assert_array_equal(plain.answer(problems), mixed.answer(problems))
    weights = twin.weights(state)
    assert {p for p in weights if p.endswith("weight")} == {
        p for p in learner.weights(state) if p.endswith("weight")
    }
    for path in ("hidden/1/weight", "output/weight"):
        assert weights[path].all()
        before, after = (np.linalg.svd(w[path])[1] for w in (learner.weights(state), weights))
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4)
    for number in range(3):
        turn = weights[f"turns/{number}"]
        np.testing.assert_allclose(turn @ turn.T, np.eye(len(turn)), atol=1e-5)
    assert sorted(named_layers(twin.program().body(weights))) == ["hidden/0", "hidden/1", "output"]


@pytest.mark.parametrize(
    ("learner", "sentence"),
    [
        (replace(TINY, batch=0), "batch=0: expected a whole number of at least 1"),
        (replace(TINY, evaluation_problems=100), "expected a multiple of 128, such as 128"),
        (replace(TINY, learning_rate=-1.0), "learning_rate=-1.0: expected a number from 0"),
        (replace(TINY, decay=float("nan")), "decay=nan: expected a number from 0"),
        (replace(TINY, decay=-1), "decay=-1: expected a number from 0"),
        (replace(PLANTED, decay=float("nan")), "decay=nan: expected a number from 0"),
        (replace(TINY, model=ItemConv()), "are rows: use ItemMLP"),
        (replace(AFTER, model=ItemMLP(width=8)), "a network can only go on as what it is"),
        (replace(AFTER, family=FieldsOdd()), "pretraining has items of shape"),
        (replace(PLANTED, model=ItemTransformer()), "use ItemMLP"),
        (replace(PLANTED, model=ItemMLP(width=31)), "width=31 has no two halves: use width=32"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_compiles(learner, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        learner.check()
