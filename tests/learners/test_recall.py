"""Learning by heart: what a table answers, what it does not know, and how it fills up."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families import Hyperteacher, Preferences
from recombine.instruments import Generalization
from recombine.instruments._instrument import check_controls
from recombine.lab.engine import Curves, Population
from recombine.learners import Recall, check_learner
from recombine.learners.check import unpadded
from recombine.learners.recall import FAR, Table
from recombine.seeds import Seeds
from recombine.supports import SupportRule
from recombine.trees import named, unnamed

pytestmark = pytest.mark.slow  # make test-all runs it

TINY = Recall(
    family=Hyperteacher(modules=5, active=2, input_units=3, hidden=(4,), output_units=2),
    support=SupportRule(held_out=0.4),
    entries=512,
    training_steps=160,
    tasks=32,
    samples=8,
    evaluation_every=40,
    evaluation_tasks=128,
)
WORLD = Preferences(modules=4, active=2, features=4, objects=1, steps=3)


def trained(learner, steps=None):
    """A population of one, filled up to a step."""
    found = Population([learner], [learner.prepare({})], "float32")
    found.compile()
    found.evaluate()
    return continued(found, learner.steps if steps is None else steps)


def continued(population, steps):
    while population.t < steps:
        population.chunk(steps)
    population.evaluate()
    return population


def state_of(population):
    return jax.tree.map(lambda leaf: leaf[0], population.host_state())


def evaluations(population):
    return {name: [float(v[0]) for v in vs] for name, vs in population.curves.evaluations.items()}


@pytest.fixture(scope="module")
def filled():
    """Each method with a table that has met every seen task."""
    methods = ("nearest", "exact")
    return {method: trained(replace(TINY, method=method)) for method in methods}


def subject_of(population):
    learner = population.learners[0]
    return learner.subject(learner.weights(state_of(population)))


def seen_tasks(learner):
    """Every weight from .5 to 1 in tenths for every module of every seen combination."""
    from recombine.learners._tasks import build_support

    support = build_support(learner.family, learner.support, learner.seeds.support)
    return sum(6 ** int(size) for size in support.space.sizes(support.seen))


@pytest.mark.parametrize("method", ["nearest", "exact"])
@pytest.mark.parametrize("family", [TINY.family, WORLD], ids=["regression", "world"])
def test_a_table_keeps_the_contract_of_learners(method, family):
    check_learner(replace(TINY, method=method, family=family, samples=max(family.horizon, 3)))


def test_a_memoriser_answers_what_it_has_met_exactly_and_nothing_else(filled):
    population = filled["exact"]
    found = evaluations(population)
    assert found["entries"][-1] == seen_tasks(TINY)
    assert found["seen"][-1] == pytest.approx(1, abs=1e-6)
    # About an unseen task it says what the empty table said: zeros, which is no knowledge at all.
    assert found["unseen"][-1] == found["unseen"][0] <= 0
    subject = subject_of(population)
    batch = subject.draw(subject.support.held_out, "test")
    np.testing.assert_array_equal(subject.answer(batch), 0)


def test_a_memoriser_knows_the_more_the_fuller_its_table():
    found = evaluations(continued(continued(trained(replace(TINY, method="exact"), 10), 20), 160))
    assert found["entries"] == sorted(found["entries"]) and found["seen"] == sorted(found["seen"])
    assert found["seen"][1] < 0.9


def test_a_nearest_neighbour_answers_as_the_nearest_stored_task_by_brute_force(filled):
    subject = subject_of(filled["nearest"])
    weights, content = subject.weights(), subject.arrays["family"]
    codes, latents = weights["codes"].astype(np.float64), weights["latents"].astype(np.float64)
    batch = subject.draw(np.repeat(subject.support.held_out, 20), "test")
    wanted, inputs = subject.codes(batch).astype(np.float64), np.asarray(batch.inputs)
    theta, beta = np.asarray(content["theta0"][:5]), np.asarray(content["beta0"][:5])
    for code, x, answer in zip(wanted, inputs, np.asarray(subject.answer(batch)), strict=True):
        apart = np.round(np.sum((codes - code) ** 2, axis=1), 6)  # tenths: ties are exact
        z = latents[np.argmin(apart)] / np.sqrt(2)  # argmin: the first of equals
        hidden = np.maximum(x @ np.tensordot(z, theta, axes=1) + z @ beta, 0)
        np.testing.assert_allclose(answer, hidden @ np.asarray(content["omega"]), atol=1e-5)


def test_an_unseen_task_is_answered_better_by_its_neighbour_than_by_nothing(filled):
    near, exact = (evaluations(filled[method])["unseen"][-1] for method in ("nearest", "exact"))
    assert 0 < near < 1 and near > exact + 0.5


def test_no_task_is_stored_twice_and_every_row_is_a_seen_task(filled):
    state = state_of(filled["nearest"])
    rows = np.asarray(state.model.codes)[: int(state.written)]
    assert len(np.unique(rows.round(3), axis=0)) == len(rows) == seen_tasks(TINY)
    latents = np.asarray(state.model.latents)[: int(state.written)]
    active = set(map(tuple, latents[:, :5] > 0))
    support = subject_of(filled["nearest"]).support
    assert active == set(map(tuple, support.space.indicator(support.seen)))
    assert (np.asarray(state.model.codes)[int(state.written) :, :5] == FAR).all()


def test_a_full_table_takes_no_more_and_keeps_the_first_it_met():
    small = replace(TINY, entries=50)
    early, late = state_of(trained(small, 40)), state_of(trained(small))
    whole = state_of(trained(TINY, 40))
    assert int(early.written) == int(late.written) == 50 < int(whole.written)
    np.testing.assert_array_equal(early.model.codes, late.model.codes)
    np.testing.assert_array_equal(late.model.codes, whole.model.codes[:50])


def test_a_finished_member_writes_nothing_more():
    arrays = jax.tree.map(jnp.asarray, TINY.prepare({}).merged())
    program = TINY.program()
    state = program.init(arrays, jax.random.key(0))
    after, metrics = jax.jit(program.step)(arrays, state, jnp.int32(TINY.steps))
    assert int(after.written) == 0 and float(metrics["loss"]) == 0


def test_an_empty_table_answers_zeros_and_every_number_is_finite():
    with jax.debug_nans(True):
        for method in ("nearest", "exact"):
            population = trained(replace(TINY, method=method), 0)
            assert all(np.isfinite(v).all() for v in evaluations(population).values())
            subject = subject_of(population)
            batch = subject.draw(subject.support.seen, "test")
            np.testing.assert_array_equal(subject.answer(batch), 0)


@settings(max_examples=40)
@given(
    written=st.integers(0, 64), repeats=st.integers(0, 20), seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
)  # fmt: skip
def test_looking_up_finds_the_nearest_row_and_whether_it_is_the_same(written, repeats, seed, scale):
    rng = np.random.default_rng(seed)
    table = np.full((64, 16), FAR, np.float32)
    table[:written] = scale * rng.standard_normal((written, 16))
    asked = (scale * rng.standard_normal((32, 16))).astype(np.float32)
    if written:
        asked[:repeats] = table[rng.integers(written, size=repeats)]
    else:
        repeats = 0
    found, known = LOOK_UP(Table(jnp.asarray(table), jnp.zeros((64, 16))), jnp.asarray(asked))
    apart = np.sum((asked[:, None].astype(float) - table) ** 2, axis=-1)
    chosen = apart[np.arange(32), np.asarray(found)]
    np.testing.assert_allclose(chosen, apart.min(axis=1), atol=1e-3 * scale**2, rtol=1e-6)
    np.testing.assert_array_equal(known, apart.min(axis=1) < 1e-6)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**16))
def test_of_equally_near_tasks_the_first_one_met_is_taken(seed):
    rng = np.random.default_rng(seed)

    def tasks(count):  # weights in whole tenths, three modules of sixteen
        chosen = rng.permuted(np.tile(np.arange(16) < 3, (count, 1)), axis=1)
        return np.where(chosen, rng.integers(5, 11, (count, 16)), 0)

    table, asked = tasks(64), tasks(32)
    rows, codes = (jnp.asarray(0.1 * part, jnp.float32) for part in (table, asked))
    found, _ = LOOK_UP(Table(rows, rows), codes)
    apart = np.sum((asked[:, None] - table) ** 2, axis=-1)
    np.testing.assert_array_equal(found, np.argmin(apart, axis=1))


LOOK_UP = jax.jit(TINY.program().look_up)


def test_padded_modules_are_inert_where_many_tasks_are_equally_near(filled):
    natural = trained(unpadded(TINY))
    assert natural.program.family.modules == 5 < filled["nearest"].program.family.modules
    for name, values in evaluations(natural).items():
        assert values[-1] == pytest.approx(evaluations(filled["nearest"])[name][-1], abs=1e-5)


def test_a_table_stopped_and_resumed_ends_with_the_same_rows(filled):
    half = trained(TINY, 80)
    saved, curves = named(half.host_state()), half.curves.tensors()
    resumed = Population([TINY], [TINY.prepare({})], "float32")
    resumed.compile()
    resumed.restore(unnamed(saved, resumed.host_state()), 80, Curves.from_tensors(curves))
    continued(resumed, TINY.steps)
    ends = (resumed.host_state(), filled["nearest"].host_state())
    for one, two in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(one, two)


def test_generalization_reads_a_table(filled):
    for method, population in filled.items():
        learner = population.learners[0]
        untrained = learner.subject(population.untrained[0])
        reading = Generalization(combinations=64).read(subject_of(population), untrained, {})
        check_controls(Generalization(), reading)
        assert reading.values["seen"] == pytest.approx(1, abs=1e-6), method
        assert reading.controls["planted"]["unseen"] == 1
        assert reading.controls["untrained"]["seen"] < 0


def test_a_table_of_a_world_plays_what_it_has_met_like_the_expert():
    learner = replace(
        TINY, family=WORLD, samples=3, method="exact", seeds=Seeds.all(3), evaluation_every=160
    )
    found = evaluations(trained(learner))
    assert found["entries"][-1] == seen_tasks(learner)
    assert found["seen"][-1] == 1 > found["unseen"][-1]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"method": "guess"}, "expected 'nearest' or 'exact'"),
        ({"entries": 0}, "entries=0: expected a whole number of at least 1"),
        ({"training_steps": 0}, "training_steps=0: expected a whole number of at least 1"),
        ({"support": SupportRule(held_out=0.99)}, "held-out 0.99"),
    ],
)
def test_an_impossible_table_is_refused(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(TINY, **wrong).check()
