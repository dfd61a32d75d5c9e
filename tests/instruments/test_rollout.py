"""Closed-loop returns: the expert earns all, chance little, and a table of tasks what it knows."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from recombine.encodings import FewShot
from recombine.errors import NotApplicable
from recombine.families import Goals, Hyperteacher, Preferences
from recombine.instruments import Rollout
from recombine.lab.engine import Population, initial_state
from recombine.learners import Recall, Supervised
from recombine.models import MLP, Transformer
from recombine.supports import SupportRule

ROOMS = Preferences(modules=4, active=2, features=4, objects=2)
READ = Rollout(combinations=16, episodes=8)
HALF = SupportRule(held_out=0.5)


def learned(learner):
    """The subject of a learner after its steps, and its untrained twin."""
    population = Population([learner], [learner.prepare({})], "float32")
    population.compile()
    while population.running():
        population.chunk(learner.steps)
    state = jax.tree.map(lambda leaf: leaf[0], population.host_state())
    return learner.subject(learner.weights(state)), learner.subject(population.untrained[0])


@pytest.fixture(scope="module")
def remembered():
    learner = Recall(
        family=ROOMS, support=HALF, samples=8, tasks=128, entries=512, training_steps=60,
        evaluation_every=60, evaluation_tasks=128,
    )  # fmt: skip
    return READ.read(*learned(learner), {})


def test_a_table_of_all_seen_tasks_earns_what_the_expert_earns(remembered):
    assert remembered.values["seen_return"] == pytest.approx(1, abs=1e-4)
    assert remembered.values["unseen_return"] < 1
    assert remembered.values["seen_expert"] > 0


def test_demonstrations_played_back_earn_all_and_chance_earns_little(remembered):
    for kind in ("seen", "unseen"):
        assert remembered.controls["planted"][f"{kind}_return"] == pytest.approx(1, abs=1e-5)
        assert remembered.controls["random"][f"{kind}_return"] < 0.6


@pytest.mark.parametrize(
    "model", [MLP(width=16, depth=1), Transformer(depth=1, width=16, heads=2)],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_any_network_can_be_let_loose(model):
    learner = Supervised(family=ROOMS, support=HALF, model=model, samples=8, training_steps=10)
    untrained = learner.weights(initial_state(learner, learner.prepare({}), "float32"))
    subject = learner.subject(untrained)
    reading = READ.read(subject, subject, {})
    assert reading.values["unseen_return"] == reading.controls["untrained"]["unseen_return"]
    assert np.isfinite(reading.values["unseen_return"])


def test_demonstrations_as_a_code_tell_a_few_episodes():
    learner = Supervised(
        family=ROOMS, support=HALF, encoding=FewShot(shots=3), samples=8, training_steps=10,
        model=MLP(width=16, depth=1), evaluation_tasks=128,
    )  # fmt: skip
    untrained = learner.weights(initial_state(learner, learner.prepare({}), "float32"))
    batch = learner.subject(untrained).draw(np.arange(6, dtype=np.uint32), "test")
    assert batch.codes.shape == (6, 3 * (ROOMS.input_size + 8 * 5))
    actions = batch.codes[:, 3 * ROOMS.input_size :].reshape(6, 3, 8, 5)
    assert set(np.unique(actions)) <= {0.0, 1.0} and (actions.sum(axis=-1)[:, :, 0] == 1).all()
    # Episodes of the demonstrations are not the episode that is asked about.
    own = learner.family.observe({}, jax.tree.map(lambda leaf: leaf[:, 0], batch.inputs))
    shown = batch.codes[:, : 3 * ROOMS.input_size].reshape(6, 3, -1)
    assert not np.allclose(shown, np.asarray(own)[:, None])


def test_a_family_without_actions_is_refused():
    learner = Supervised(family=Hyperteacher(modules=4, active=2), training_steps=10)
    untrained = learner.weights(initial_state(learner, learner.prepare({}), "float32"))
    subject = learner.subject(untrained)
    with pytest.raises(NotApplicable, match="one can act in"):
        READ.read(subject, subject, {})


def test_the_length_of_an_episode_is_named_when_it_is_wrong():
    learner = Supervised(family=Goals(), samples=16)
    with pytest.raises(Exception, match="use samples=24"):
        learner.check()
    dataclasses.replace(learner, samples=24).check()
