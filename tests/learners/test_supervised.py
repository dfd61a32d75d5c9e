"""The supervised learner: the contract, padding, stacking, a failing member, and disjoint data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recombine._lazy import load
from recombine.encodings import InvertibleNetwork
from recombine.errors import InvalidRequest, RecombineError
from recombine.families import Functions, Hyperteacher
from recombine.lab.engine import Population
from recombine.learners import REGISTRY, AsDrawn, Flow, NextToken, Recall, Supervised, check_learner
from recombine.learners.check import unpadded
from recombine.learners.supervised import SupervisedProgram
from recombine.models import MLP, SequenceModel
from recombine.seeds import Seeds, key_at
from recombine.supports import REGISTRY as RULES
from recombine.supports import SupportRule

TINY = Supervised(
    family=Hyperteacher(modules=8, active=2, input_units=4, hidden=(4,), output_units=3),
    model=MLP(width=24, depth=2),
    training_steps=60,
    tasks=32,
    samples=8,
    learning_rate=3e-3,
    evaluation_every=60,
    evaluation_tasks=128,
)
# Small enough to be compiled in tests; others run as they are.
SMALL = {
    "supervised": TINY,
    "recall": Recall(family=TINY.family, tasks=32, samples=8, entries=64, training_steps=60,
                     evaluation_every=60, evaluation_tasks=128),
    "as-drawn": AsDrawn(TINY),
    "flow": Flow(**vars(TINY)),
    "next-token": NextToken(
        family=Functions(functions=3, values=4, depth=2, deepest=3, train_items=30, test_items=4,
                         beyond_items=4, validation_items=4),
        model=SequenceModel(depth=1, width=16, heads=2), training_steps=60, batch=2, row=24,
        rows=32, vocabulary=16, evaluation_every=60, evaluation_rows=2,
    ),
}  # fmt: skip


# Whose own tests put them to the battery, with what they need upstream.
ELSEWHERE = {
    "masks": "test_masks", "pictures": "test_pictures",
    "continued": "test_new_module", "new-module": "test_new_module",
    "odd-one-out": "test_odd_one_out", "pretraining": "test_odd_one_out",
    "binding": "test_binding", "segregation": "test_binding",
}  # fmt: skip


def population(*learners, steps=None):
    """Trains members together, all steps, and returns the population."""
    trained = Population(learners, [one.prepare({}) for one in learners], "float32")
    trained.compile()
    trained.evaluate()
    while trained.running() and (steps is None or trained.t < steps):
        trained.chunk(steps or trained.steps)
    trained.evaluate()
    return trained


def member(trained, index):
    state = jax.tree.map(lambda leaf: leaf[index], trained.host_state())
    return trained.learners[index].weights(state)


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - set(ELSEWHERE)))
def test_a_registered_learner_keeps_the_contract(name):
    check_learner(SMALL[name] if name in SMALL else load(REGISTRY[name])())


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_a_learner_with_tests_of_its_own_is_put_to_the_battery_there(name):
    kind = REGISTRY[name].split(":")[1]
    text = (Path(__file__).parent / f"{ELSEWHERE[name]}.py").read_text()
    assert "check_learner(" in text and kind in text


@dataclass(frozen=True)
class ReusesData(Supervised):
    """Evaluates on the training stream."""

    def prepare(self, given):
        arrays = super().prepare(given)
        arrays.member["evaluation"] = arrays.member["train"]
        return arrays


@dataclass(frozen=True)
class ForgetfulProgram(SupervisedProgram):
    calls: ClassVar[list[int]] = []

    def step(self, arrays, state, t):
        self.calls.append(1)
        return super().step({**arrays, "rate": arrays["rate"] * len(self.calls)}, state, t)


@dataclass(frozen=True)
class Impure(Supervised):
    """Its step counts how often it was called."""

    def program(self, precision="float32"):
        return ForgetfulProgram(**vars(super().program(precision)))


@dataclass(frozen=True)
class StuckProgram(SupervisedProgram):
    def draw(self, arrays, t):
        return super().draw(arrays, 0 * t)


@dataclass(frozen=True)
class Stuck(Supervised):
    """Draws the same batch at every step."""

    def program(self, precision="float32"):
        return StuckProgram(**vars(super().program(precision)))


@dataclass(frozen=True)
class TwoMindedProgram(SupervisedProgram):
    def learn(self, arrays, state, drawn, t):
        state, metrics = super().learn(arrays, state, drawn, t)
        return state._replace(model=jax.tree.map(lambda w: 0.9 * w, state.model)), metrics

    def step(self, arrays, state, t):
        return super().learn(arrays, state, self.draw(arrays, t), t)


@dataclass(frozen=True)
class TwoMinded(Supervised):
    """The engine, which draws ahead, would train another model than `step` does."""

    def program(self, precision="float32"):
        return TwoMindedProgram(**vars(super().program(precision)))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (ReusesData, "a stream of its own"),
        (Impure, "step must be pure"),
        (Stuck, "new data at each t"),
        (TwoMinded, "step must equal learn with what draw drew"),
    ],
)
def test_a_broken_learner_is_told_what_is_wrong(kind, sentence):
    with pytest.raises(RecombineError, match=sentence):
        check_learner(kind(**vars(TINY)))


def test_a_tiny_run_learns_and_generalizes_better_than_it_began():
    trained = population(replace(TINY, training_steps=400, learning_rate=1e-2))
    loss = np.concatenate(trained.curves.points["loss"])[:, 0]
    assert loss.shape == (40,)
    assert loss[-5:].mean() < 0.3 * loss[0]
    before, after = (point[0] for point in trained.curves.evaluations["unseen"])
    assert after > before + 0.5


@pytest.mark.parametrize(
    ("encoding", "steps"),
    [(None, 20), (InvertibleNetwork(), 5)],
    ids=["Identity", "InvertibleNetwork"],
)
def test_a_padded_member_learns_what_it_learns_at_its_natural_size(encoding, steps):
    learner = Supervised(
        family=Hyperteacher(modules=12, active=2), model=MLP(width=100, depth=2), tasks=32,
        samples=8, training_steps=steps, evaluation_tasks=128, evaluation_every=steps,
        **({} if encoding is None else {"encoding": encoding}),
    )  # fmt: skip
    natural = unpadded(learner)
    assert learner.program().model.width == 128 and natural.program().model.width == 100
    if encoding is None:
        assert learner.program().family.modules == 16 and learner.program().family.active == 4
    ends = []
    for one in (learner, natural):
        program, arrays = one.program(), jax.tree.map(jnp.asarray, one.prepare({}).merged())
        state = Population([one], [one.prepare({})], "float32").state
        state, step = jax.tree.map(lambda leaf: leaf[0], state), jax.jit(program.step)
        for t in range(steps):
            state, metrics = step(arrays, state, jnp.int32(t))
        ends.append((one.weights(state), float(metrics["loss"])))
    (padded, padded_loss), (plain, plain_loss) = ends
    assert padded_loss == pytest.approx(plain_loss, rel=1e-5)
    for path, weight in plain.items():
        np.testing.assert_allclose(padded[path], weight, atol=1e-5, err_msg=path)


@pytest.fixture(scope="module")
def three():
    """Three members of one program that differ in seeds, teacher size, support and rate."""
    return (
        replace(TINY, seeds=Seeds.all(1)),
        replace(TINY, seeds=Seeds.all(2), family=replace(TINY.family, modules=6)),
        replace(TINY, learning_rate=1e-3, support=SupportRule("non-compositional")),
    )


@pytest.fixture(scope="module")
def stacked(three):
    return population(*three)


def test_a_stacked_population_equals_its_members_alone(three, stacked):
    for index, learner in enumerate(three):
        alone, together = member(population(learner), 0), member(stacked, index)
        for path, weight in alone.items():
            np.testing.assert_allclose(together[path], weight, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_member_that_diverges_is_flagged_and_leaves_its_mates_untouched(three, stacked, victim):
    broken = list(three)
    broken[victim] = replace(broken[victim], learning_rate=1e6)
    trained = population(*broken)
    diverged = np.asarray(trained.host_state().diverged_at)
    assert 0 <= diverged[victim] < trained.steps
    assert all(diverged[i] == -1 for i in range(3) if i != victim)
    for index in {0, 1, 2} - {victim}:
        for path, weight in member(stacked, index).items():
            np.testing.assert_array_equal(member(trained, index)[path], weight, err_msg=path)
    assert all(np.all(np.isfinite(weight)) for weight in member(trained, victim).values())
    for name, points in trained.curves.evaluations.items():
        mates = [i for i in range(3) if i != victim]
        np.testing.assert_array_equal(
            points[-1][mates], stacked.curves.evaluations[name][-1][mates]
        )


def test_an_annealed_rate_falls_to_nothing_and_a_constant_one_does_not():
    annealed = replace(TINY, schedule="cosine")
    almost, whole = population(TINY, annealed, steps=50), population(TINY, annealed)
    moved = [
        max(np.abs(now[name] - before[name]).max() for name in now)
        for before, now in ((member(almost, i), member(whole, i)) for i in (0, 1))
    ]
    # Ten steps of at most `rate` each; on the last sixth of half a cosine the mean rate is 2 %.
    assert moved[0] > 0.3 * TINY.learning_rate
    assert moved[1] < 0.6 * TINY.learning_rate and moved[1] < 0.2 * moved[0]


def test_a_population_of_diverged_members_stops():
    trained = population(replace(TINY, learning_rate=1e6, training_steps=10_000))
    assert trained.t < 10_000 and not trained.running()


def test_a_finished_member_stays_as_it_is():
    arrays = jax.tree.map(jnp.asarray, TINY.prepare({}).merged())
    state = jax.tree.map(lambda a: a[0], Population([TINY], [TINY.prepare({})], "float32").state)
    step = jax.jit(TINY.program().step)
    later, _ = step(arrays, state, jnp.int32(TINY.steps))
    for before, after in zip(*map(jax.tree.leaves, (state.model, later.model)), strict=True):
        np.testing.assert_array_equal(before, after)
    moved, _ = step(arrays, state, jnp.int32(TINY.steps - 1))
    assert not np.array_equal(moved.model.output.weight, state.model.output.weight)


SIZES = ((6, 2), (8, 2), (8, 3), (12, 3))


@given(
    size=st.sampled_from(SIZES),
    rule=st.sampled_from(sorted(RULES)),
    held_out=st.floats(0.05, 0.9),
    seeds=st.builds(Seeds, *[st.integers(0, 50)] * 6),
    t=st.integers(0, 10_000),
)
@settings(max_examples=60)
def test_training_never_meets_what_is_held_out_and_evaluation_draws_its_own_data(
    size, rule, held_out, seeds, t
):
    family = replace(TINY.family, modules=size[0], active=size[1])
    count = max(2, int((1 - held_out) * family.space.size)) if rule == "fixed-size" else None
    support = SupportRule(rule, held_out=round(held_out, 3), count=count)
    assume(support.feasible(family.space) is None)
    learner = replace(TINY, family=family, support=support, seeds=seeds)
    arrays = learner.prepare({}).merged()
    drawn = {
        name: np.asarray(_pick(arrays[name], arrays[f"{name}_count"], arrays[stream], t))
        for name, stream in (("seen", "train"), ("unseen", "evaluation"))
    }
    assert not np.intersect1d(drawn["seen"], drawn["unseen"]).size
    everything = np.concatenate([
        arrays[name][: arrays[f"{name}_count"]] for name in ("seen", "unseen")
    ])  # fmt: skip
    assert np.unique(everything).size == everything.size == family.space.size
    assert all(np.isin(ranks, everything).all() for ranks in drawn.values())
    words = [jax.random.key_data(key_at(arrays["train"], step)) for step in (0, 1, t)]
    for step in (0, 1):
        other = jax.random.key_data(key_at(arrays["evaluation"], step))
        assert not any(np.array_equal(other, mine) for mine in words)


@jax.jit
def _pick(table, count, words, t):
    return TINY.program().pick(table, count, key_at(words, t), 512)


def test_every_seen_combination_is_drawn_about_equally_often():
    arrays = TINY.prepare({}).merged()
    ranks = np.concatenate([
        _pick(arrays["seen"], arrays["seen_count"], arrays["train"], t) for t in range(40)
    ])  # fmt: skip
    _, counts = np.unique(ranks, return_counts=True)
    assert counts.size == arrays["seen_count"]
    expected = ranks.size / counts.size
    assert np.sum((counts - expected) ** 2 / expected) < 2 * counts.size  # chi-squared


def test_two_cells_that_share_all_seeds_but_one_share_what_that_seed_does_not_rule():
    base = TINY.prepare({}).member
    changes = {
        "content": "family", "support": "seen", "train": "train", "evaluation": "evaluation",
    }  # fmt: skip
    for seed, ruled in changes.items():
        other = replace(TINY, seeds=replace(TINY.seeds, **{seed: 9})).prepare({}).member
        for name in ("family", "seen", "train", "evaluation", "rate"):
            equal = jax.tree.all(jax.tree.map(np.array_equal, base[name], other[name]))
            assert equal == (name != ruled), (seed, name)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"samples": 1}, "samples=1: expected a whole number of at least 2"),
        ({"training_steps": 0}, "training_steps=0: expected a whole number of at least 1"),
        ({"evaluation_tasks": 200}, "multiple of 128"),
        ({"evaluation_tasks": 0}, "at least 128"),
        ({"tasks": 2.5}, "whole number"),
        ({"family": Hyperteacher(modules=4, active=9)}, "active=9 of modules=4"),
        ({"family": Hyperteacher(modules=7), "encoding": InvertibleNetwork()}, "must be even"),
        ({"learning_rate": 1e39}, "expected a number from 0"),
        ({"learning_rate": -1.0}, "expected a number from 0"),
        ({"support": SupportRule("rndom")}, "did you mean 'random'"),
        ({"support": SupportRule(held_out=0.999)}, "held-out 0.999"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_compiles(wrong, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        replace(TINY, **wrong).check()
