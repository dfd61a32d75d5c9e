"""The expert and its house against a plain simulation with dictionaries of states."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.errors import InvalidRequest
from recombine.families.preferences import LEADS_TO, PLACES, Preferences, Room
from recombine.trees import pad_to

# The house, written down a second time.
COLUMNS = {1: (1, 2, 4, 5), 2: (1, 2, 4, 5), 3: (2, 3, 4), 4: (1, 2, 4, 5), 5: (1, 2, 4, 5)}
HOUSE = [(row, column) for row, columns in COLUMNS.items() for column in columns]
MOVES = [(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1)]
NOTHING, UP, RIGHT, DOWN, LEFT = range(5)


def step(place, action):
    there = (place[0] + MOVES[action][0], place[1] + MOVES[action][1])
    return there if there in HOUSE else place


def plain_expert(objects, rewards, steps, discount):
    """Q by value iteration, state by state; `objects` maps places to object numbers."""
    count = len(objects)
    q = {(place, left): [0.0] * 5 for place in HOUSE for left in subsets(count)}
    for _ in range(steps):
        value = {state: max(row) for state, row in q.items()}
        for place, left in q:
            q[place, left] = row = []
            for action in range(5):
                there, reward, rest = step(place, action), 0.0, left
                found = objects.get(there)
                if action != NOTHING and found in left:
                    reward, rest = rewards[found], left - {found}
                row.append(reward + discount * value[there, rest])
    return q


def subsets(count):
    return [frozenset(o for o in range(count) if bits >> o & 1) for bits in range(2**count)]


draw = jax.jit(Preferences.draw, static_argnums=(0, 4))
act = jax.jit(Preferences.act, static_argnums=0)
plan = jax.jit(Preferences.plan, static_argnums=0)
advise = jax.jit(Preferences.advise, static_argnums=0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def batch(family, tasks, seed=0):
    """Modules, tasks of all sizes, and a key."""
    content_key, latent_key, key = jax.random.split(jax.random.key(seed), 3)
    ranks = np.random.default_rng(0).integers(family.space.size, size=tasks)
    chosen = jnp.asarray(family.space.indicator(ranks))
    latents = jax.vmap(family.latent)(jax.random.split(latent_key, tasks), chosen)
    return family.content(content_key), latents, key


def room(agent, objects, types=None):
    """One episode's state from places on the map."""
    number = {place: index for index, place in enumerate(HOUSE)}
    types = list(range(len(objects))) if types is None else types
    return Room(
        agent=jnp.asarray([number[agent]], jnp.int32),
        available=jnp.ones((1, len(objects)), bool),
        running=jnp.ones(1, bool),
        cells=jnp.asarray([[number[place] for place in objects]], jnp.int32),
        types=jnp.asarray([types], jnp.int32),
    )


def liking(*worth):
    """Modules and a task that give the first types these rewards, and the others none."""
    preferences = jnp.zeros((16, 16)).at[0, : len(worth)].set(jnp.asarray(worth, jnp.float32))
    return {"preferences": preferences}, jnp.zeros((1, 16)).at[0, 0].set(1.0)


def test_the_house_has_four_rooms_joined_by_a_corridor():
    assert [divmod(int(place), 7) for place in PLACES] == HOUSE
    assert len(HOUSE) == 19
    for cell, place in enumerate(HOUSE):
        assert [HOUSE[there] for there in LEADS_TO[cell]] == [step(place, a) for a in range(5)]
    reached, edge = {0}, {0}
    while edge:
        edge = {int(there) for cell in edge for there in LEADS_TO[cell]} - reached
        reached |= edge
    assert len(reached) == 19


@pytest.mark.parametrize(
    "family",
    [
        Preferences(),
        Preferences(modules=5, active=2, features=32, objects=3, steps=4, discount=0.6),
        Preferences(modules=4, active=1, objects=1, steps=1),
    ],
    ids=["published", "other sizes", "one step"],
)
def test_whole_episodes_are_those_of_a_plain_value_iteration(family):
    content, latents, key = batch(family, 24)
    states, targets = jax.device_get(draw(family, content, latents, key, family.horizon))
    first = jax.tree.map(lambda leaf: leaf[:, 0], states)
    values = np.asarray(family.values(plan(family, content, latents, first), first))
    liked = np.asarray(latents, np.float64) @ np.asarray(content["preferences"], np.float64)
    for task in range(24):
        objects = {HOUSE[cell]: number for number, cell in enumerate(first.cells[task])}
        rewards = liked[task, first.types[task]]
        q = plain_expert(objects, rewards, family.steps, family.discount)
        place, left = HOUSE[first.agent[task]], frozenset(range(family.objects))
        np.testing.assert_allclose(values[task], q[place, left], atol=1e-5)
        running = True
        for time in range(family.horizon):
            assert HOUSE[states.agent[task, time]] == place
            assert set(np.flatnonzero(states.available[task, time])) == left
            assert states.running[task, time] == running
            wanted = np.zeros(5)
            if running:
                action = int(np.argmax(q[place, left]))
                wanted[action] = 1
                place, running = step(place, action), action != NOTHING
                left = left - {objects.get(place)}
            np.testing.assert_array_equal(targets[task, time], wanted)


def test_equally_good_ways_are_settled_by_the_order_of_actions():
    family = Preferences(objects=1)
    content, latents = liking(1.0)
    for agent, target, first in [
        ((2, 1), (1, 2), UP), ((1, 1), (2, 2), RIGHT), ((1, 2), (2, 1), DOWN), ((5, 5), (4, 4), UP),
    ]:  # fmt: skip
        states = room(agent, [target])
        made = plan(family, content, latents, states)
        values = np.asarray(family.values(made, states))[0]
        assert int(advise(family, made, states)[0]) == first
        assert np.sum(values == values.max()) == 2


def test_two_objects_of_a_type_may_be_collected_in_either_order():
    # Agent between both in the corridor: right and left have the same value to the last bit.
    family = Preferences(objects=2)
    content, latents = liking(0.7)
    states = room((3, 3), [(3, 2), (3, 4)], types=[0, 0])
    values = family.values(plan(family, content, latents, states), states)[0]
    assert float(values[RIGHT]) == float(values[LEFT]) == pytest.approx(0.7 * (1 + 0.9**2))


def test_the_expert_goes_nowhere_for_what_it_dislikes_or_cannot_reach_in_time():
    family = Preferences(objects=1)
    corner, far = (1, 1), (5, 5)  # eight steps apart
    for worth, steps, action in [(-1.0, 8, NOTHING), (1.0, 7, NOTHING), (1.0, 8, RIGHT)]:
        content, latents = liking(worth)
        states, shorter = room(corner, [far]), replace(family, steps=steps)
        made = plan(shorter, content, latents, states)
        assert int(advise(shorter, made, states)[0]) == action


def test_an_object_is_worth_its_type_once():
    family = Preferences(objects=2)
    content, latents = liking(0.75, -2.0)
    states, earned = room((1, 1), [(1, 2), (2, 2)]), []
    for action in (RIGHT, LEFT, RIGHT, DOWN, DOWN):
        states, reward = act(family, content, latents, states, jnp.asarray([action]))
        earned.append(float(reward[0]))
    assert earned == [0.75, 0, 0, -2.0, 0]
    assert HOUSE[int(states.agent[0])] == (3, 2) and not states.available.any()


def test_a_weighted_sum_of_preferences_is_what_an_object_earns():
    family = Preferences()
    content, latents, key = batch(family, 200)
    states = family.begin(content, latents, key)
    liked = np.asarray(latents, np.float64) @ np.asarray(content["preferences"], np.float64)
    seen = 0
    for action in (UP, RIGHT, DOWN, LEFT):
        after, rewards = act(family, content, latents, states, jnp.full(200, action))
        gone = np.asarray(states.available & ~after.available)
        expected = np.where(gone, np.take_along_axis(liked, np.asarray(states.types), 1), 0).sum(1)
        np.testing.assert_allclose(rewards, expected, atol=1e-5)
        seen += gone.sum()
    assert seen > 50


def test_nothing_ends_an_episode_for_good_and_a_wall_does_not():
    family = Preferences(objects=1)
    content, latents = liking(1.0)
    states, _ = act(family, content, latents, room((1, 1), [(1, 2)]), jnp.asarray([UP]))
    assert bool(states.running[0]) and HOUSE[int(states.agent[0])] == (1, 1)
    states, reward = act(family, content, latents, states, jnp.asarray([NOTHING]))
    assert not states.running[0] and float(reward[0]) == 0
    later, reward = act(family, content, latents, states, jnp.asarray([RIGHT]))
    assert float(reward[0]) == 0
    for before, after in zip(states, later, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("features", [16, 32])
def test_observations_are_normalised_planes(features):
    family = Preferences(features=features)
    content, key = {}, jax.random.key(0)
    states = family.begin(content, jnp.zeros((40, 16)), key)
    states = states._replace(available=jax.random.bernoulli(key, 0.5, (40, 4)))
    states = jax.tree.map(lambda leaf: leaf.reshape(10, 4, *leaf.shape[1:]), states)
    seen = np.asarray(family.observe(content, states))
    assert seen.shape == (10, 4, family.input_size) == (10, 4, 49 * (features + 2))
    assert seen.dtype == np.float32
    shown = jax.device_get(states)
    for task, time in np.ndindex(10, 4):
        planes = np.zeros((7, 7, features + 2))
        planes[..., -1] = 1
        for place in HOUSE:
            planes[(*place, -1)] = 0
        planes[(*HOUSE[shown.agent[task, time]], -2)] = 1
        for number in np.flatnonzero(shown.available[task, time]):
            place = HOUSE[shown.cells[task, time, number]]
            planes[(*place, shown.types[task, time, number])] = 1
        expected = planes.ravel() / np.sqrt(np.mean(planes**2) + 1e-6)
        np.testing.assert_allclose(seen[task, time], expected, rtol=1e-6)
    np.testing.assert_allclose(np.mean(seen**2, axis=-1), 1, atol=1e-3)
    # Whatever stands in front: one state alone looks the same.
    alone = family.observe(content, jax.tree.map(lambda leaf: leaf[3, 2], states))
    np.testing.assert_array_equal(alone, seen[3, 2])


def test_what_follows_the_end_does_not_count():
    family = Preferences()
    content, latents, key = batch(family, 24)
    states, targets = draw(family, content, latents, key, family.horizon)
    running = np.asarray(states.running)
    np.testing.assert_array_equal(targets.sum(axis=-1), running)
    assert running[:, 0].all() and not running[:, -1].all()
    assert np.all(running[:, 1:] <= running[:, :-1])


def test_targets_of_given_states_are_the_actions_drawn():
    family = Preferences()
    content, latents, key = batch(family, 24)
    states, targets = draw(family, content, latents, key, family.horizon)
    again = jax.jit(jax.vmap(family.targets, (None, 0, 0)))(content, latents, states)
    np.testing.assert_array_equal(again, targets)


def test_the_expert_earns_more_than_chance_and_than_a_glutton():
    family = Preferences()
    content, latents, key = batch(family, 1000)
    first = family.begin(content, latents, key)
    made = plan(family, content, latents, first)

    def at_once(states, key):
        tried = [act(family, content, latents, states, jnp.full(1000, a))[1] for a in range(1, 5)]
        best = jnp.argmax(jnp.stack(tried), axis=0) + 1
        wander = jax.random.randint(key, (1000,), 1, 5)
        return jnp.where(jnp.max(jnp.stack(tried), axis=0) > 0, best, wander)

    def earned(policy):
        states, total = first, np.zeros(1000)
        for time in range(family.horizon):
            actions = policy(states, jax.random.key(time))
            states, rewards = act(family, content, latents, states, actions)
            total += family.discount**time * np.asarray(rewards)
        return total.mean()

    expert = earned(lambda states, key: advise(family, made, states))
    assert expert > 1.2 * earned(at_once)
    assert expert > 1.2 * earned(lambda states, key: jax.random.randint(key, (1000,), 0, 5))


def test_episodes_begin_anywhere_with_objects_of_any_type():
    family = Preferences()
    states = family.begin({}, jnp.zeros((20_000, 16)), jax.random.key(0))
    cells = np.concatenate([np.asarray(states.agent)[:, None], states.cells], axis=1)
    assert np.all(np.diff(np.sort(cells, axis=1), axis=1) > 0)
    for column in cells.T:
        np.testing.assert_allclose(np.bincount(column, minlength=19) / 20_000, 1 / 19, atol=0.008)
    shares = np.bincount(np.asarray(states.types).ravel(), minlength=16) / 80_000
    np.testing.assert_allclose(shares, 1 / 16, atol=0.004)
    types = np.asarray(states.types)
    assert np.mean(types[:, 0] == types[:, 1]) == pytest.approx(1 / 16, abs=0.008)


def test_modules_and_weights_have_the_published_laws():
    family = Preferences(modules=200, active=2, features=200)
    preferences = np.asarray(family.content(jax.random.key(0))["preferences"])
    assert preferences.shape == (200, 200)
    assert abs(preferences.mean()) < 0.02 and preferences.std() == pytest.approx(1, abs=0.02)
    chosen = jnp.arange(6000) < 3000
    latent = np.asarray(family.latent(jax.random.key(0), chosen))
    values, counts = np.unique(latent[:3000], return_counts=True)
    np.testing.assert_allclose(values, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0], atol=1e-6)
    np.testing.assert_allclose(counts / 3000, 1 / 6, atol=0.03)
    assert values[-1] == 1.0 and not latent[3000:].any()


def test_members_of_a_population_draw_what_they_would_alone():
    family = Preferences()
    members = [batch(family, 24, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    together = jax.jit(jax.vmap(lambda *drawn: family.draw(*drawn, 8)))(*stacked)
    for number, member in enumerate(members):
        mine = jax.tree.map(lambda leaf, number=number: leaf[number], together)
        jax.tree.map(np.testing.assert_array_equal, mine, draw(family, *member, 8))


def test_it_changes_no_type_silently(strict_types):
    family = Preferences(modules=4, active=2, features=4, objects=2)

    def everything(key):
        content, latents = (
            family.content(key),
            jax.vmap(family.latent)(jax.random.split(key, 3), jnp.ones((3, 4), bool)),
        )
        states = family.begin(content, latents, key)
        actions = family.advise(family.plan(content, latents, states), states)
        after, rewards = family.act(content, latents, states, actions)
        return states, after, rewards, family.observe(content, after)

    states, after, rewards, seen = jax.eval_shape(everything, jax.random.key(0))
    assert jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), states, after) == (
        Room(True, True, True, True, True)
    )
    assert rewards.dtype == seen.dtype == jnp.float32


def test_padding_changes_no_action():
    family = Preferences(modules=12, active=3, features=12)
    padded = family.bucket()
    assert (padded.modules, padded.active, padded.features) == (16, 4, 12)
    assert padded.bucket() == padded
    content, latents, key = batch(family, 20)
    grown = pad_to(content, jax.eval_shape(padded.content, key))
    wide = jnp.pad(latents, ((0, 0), (0, 4)))
    states = family.begin(content, latents, key)
    values = padded.values(plan(padded, grown, wide, states), states)
    expected = family.values(plan(family, content, latents, states), states)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    np.testing.assert_array_equal(jnp.argmax(values, -1), jnp.argmax(expected, -1))


def test_a_bucket_has_no_more_combinations_than_ranks():
    assert Preferences(modules=30, active=5, features=32).bucket().active == 8
    assert Preferences(modules=60, active=7, features=64).bucket().active == 7
    assert Preferences(modules=80, active=2, features=80).bucket().modules == 80


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        ({"modules": 17}, "features=17 or more, or modules=16 or less"),
        ({"modules": 16, "features": 8}, "features=16 or more, or modules=8 or less"),
        ({"objects": 19}, "use objects=18"),
        ({"objects": 0}, "use objects=1"),
        ({"steps": 0}, "use steps=8"),
        ({"discount": 1.0}, "use discount=0.9"),
        ({"modules": 2, "active": 3}, "use active=2 or less"),
    ],
)
def test_impossible_sizes_are_refused_with_ones_that_work(sizes, advice):
    with pytest.raises(InvalidRequest, match=advice):
        Preferences(**sizes).check()


WANDERER = Preferences(modules=4, active=2, features=6, objects=5)


@jax.jit
def wander(key, actions):
    content, latents, key = WANDERER.content(key), jnp.ones((1, 4)), jax.random.fold_in(key, 1)

    def move(states, action):
        after, _ = WANDERER.act(content, latents, states, action[None])
        return after, after

    return jax.lax.scan(move, WANDERER.begin(content, latents, key), actions)[1]


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 4), min_size=30, max_size=30))
@settings(max_examples=60)
def test_whatever_an_agent_does_it_stays_in_the_house_and_objects_only_vanish(seed, actions):
    states = wander(jax.random.key(seed), jnp.asarray(actions, jnp.int32))
    agent = np.asarray(states.agent)
    assert agent.min() >= 0 and agent.max() < 19
    assert all(agent[t + 1] in LEADS_TO[agent[t]] for t in range(29))
    available = np.asarray(states.available)[:, 0]
    assert np.all(available[1:] <= available[:-1])
    assert not np.any(available & (np.asarray(states.cells)[:, 0] == agent))
    ended = actions.index(0) if 0 in actions else 30
    np.testing.assert_array_equal(states.running[:, 0], np.arange(30) < ended)
    np.testing.assert_array_equal(states.cells, np.broadcast_to(states.cells[:1], (30, 1, 5)))
