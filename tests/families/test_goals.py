"""Goals in mazes: every number is checked against a search in plain Python."""

from __future__ import annotations

import functools
import json
from collections import deque
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from recombine.errors import InvalidRequest
from recombine.families.goals import Goals
from recombine.families.mazes import FAR
from recombine.lab.identity import canonical, revive

pytestmark = pytest.mark.usefixtures("strict_types")

PLAIN, TWINS = Goals(), Goals(copies=2)
STEPS = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}
OPEN = "#######/#.....#/#.....#/#.....#/#.....#/#.....#/#######"
SNAKE = "#######/#.....#/#####.#/#.....#/#.#####/#.....#/#######"
both = pytest.mark.parametrize("family", [PLAIN, TWINS], ids=["plain", "twins"])


def search(walls: np.ndarray, start: int) -> dict[int, int]:
    """Steps from a cell to every cell that can be reached, by breadth-first search."""
    size = int(len(walls) ** 0.5)
    found, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for ahead in (cell - size, cell + 1, cell + size, cell - 1):
            if not walls[ahead] and ahead not in found:
                found[ahead] = found[cell] + 1
                queue.append(ahead)
    return found


def quadrant_of(cell: int, size: int = 7) -> int:
    row, column = divmod(cell, size)
    return (2 if row >= size // 2 else 0) + (1 if column >= size // 2 else 0)


def latents(family: Goals, ranks) -> jax.Array:
    return jnp.asarray(family.space.indicator(np.asarray(ranks, np.uint32))).astype(jnp.float32)


@functools.cache
def drawing(family: Goals):
    return jax.jit(family.content)


def content(family: Goals, seed: int = 0):
    # All mazes of this size have room for two of each, so that both families draw the same mazes.
    return drawing(PLAIN if family == TWINS else family)(jax.random.key(seed))


@functools.cache
def episodes(family: Goals, seed: int = 1):
    """The expert's episodes of all tasks: ranks' values, latents, states, targets, observations."""
    ranks = np.arange(family.space.size)
    z = latents(family, ranks)

    def play(content, z, key):
        states, targets = family.draw(content, z, key, family.horizon)
        return states, targets, family.observe(content, states)

    played = jax.jit(play)(content(family), z, jax.random.key(seed))
    return family.space.values(ranks), z, *jax.tree.map(np.asarray, played)


def test_twenty_sets_of_mazes_are_valid_and_all_different():
    for seed in range(20):
        walls = np.asarray(content(PLAIN, seed)["walls"])
        assert walls.shape == (5, 49)
        assert len({row.tobytes() for row in walls}) == 5
        for maze in walls:
            grid = maze.reshape(7, 7)
            assert grid[0].all() and grid[-1].all() and grid[:, 0].all() and grid[:, -1].all()
            free = set(np.flatnonzero(~maze).tolist())
            far = {cell: max(search(maze, cell).values()) for cell in free}
            assert all(set(search(maze, cell)) == free for cell in free)
            for quadrant in range(4):
                inside = [far[cell] for cell in free if quadrant_of(cell) == quadrant]
                assert max(inside) >= PLAIN.least_path


def test_other_keys_give_other_mazes_and_the_same_key_the_same():
    assert not np.array_equal(content(PLAIN, 0)["walls"], content(PLAIN, 1)["walls"])
    jax.tree.map(np.testing.assert_array_equal, content(PLAIN, 0), content(PLAIN, 0))


def check_paths(drawn) -> None:
    for walls, distance, moves in zip(
        *(np.asarray(drawn[name]) for name in ("walls", "distance", "moves")), strict=True
    ):
        for goal in range(len(walls)):
            steps = {} if walls[goal] else search(walls, goal)
            for cell in range(len(walls)):
                assert distance[goal, cell] == steps.get(cell, FAR)
                if cell == goal and not walls[goal]:
                    assert moves[goal, cell] == 4
                elif cell in steps:
                    size = int(len(walls) ** 0.5)
                    ahead = (cell - size, cell + 1, cell + size, cell - 1)
                    nearer = [a for a in range(4) if steps.get(ahead[a]) == steps[cell] - 1]
                    assert moves[goal, cell] == min(nearer)


def test_distances_and_moves_are_those_of_a_search():
    check_paths(content(PLAIN))


@settings(max_examples=15)
@given(st.lists(st.booleans(), min_size=25, max_size=25))
def test_distances_and_moves_are_right_in_any_layout_even_a_broken_one(free):
    inner = ["".join("." if cell else "#" for cell in free[5 * row : 5 * row + 5])
             for row in range(5)]  # fmt: skip
    layout = "/".join(["#######", *(f"#{row}#" for row in inner), "#######"])
    check_paths(tables(np.array([cell == "#" for cell in layout.replace("/", "")])))


@jax.jit
def _tables(walls):
    from recombine.families.mazes import distances, first_moves

    distance = distances(walls)
    return {"walls": walls[None], "distance": distance[None], "moves": first_moves(distance)[None]}


def tables(walls: np.ndarray):
    return _tables(jnp.asarray(walls))


@both
def test_the_expert_takes_a_shortest_path_and_ends_with_the_right_interaction(family):
    values, _, states, targets, _ = episodes(family)
    mazes = np.asarray(content(family)["walls"])
    assert targets.shape == (500, 24, 9)
    for task, (quadrant, interaction, maze, kind) in enumerate(values):
        assert (states.maze[task] == maze).all()
        walls, path = mazes[maze], states.agent[task]
        goal = int(states.objects[task, 0, kind, 0])
        assert quadrant_of(goal) == quadrant
        length = search(walls, int(path[0]))[goal]
        assert family.least_path <= length <= family.horizon - 1
        np.testing.assert_array_equal(states.running[task], np.arange(24) <= length)
        np.testing.assert_array_equal(targets[task].sum(-1), np.arange(24) <= length)
        actions = targets[task].argmax(-1)
        for step in range(length):
            rows, columns = STEPS[int(actions[step])]
            assert path[step + 1] == path[step] + 7 * rows + columns
            assert not walls[path[step + 1]]
        assert path[length] == goal and actions[length] == 4 + interaction
        assert (path[length:] == goal).all()


@both
def test_objects_stand_on_cells_of_their_own_away_from_the_agents_first(family):
    values, _, states, _, _ = episodes(family)
    mazes = np.asarray(content(family)["walls"])
    for task, maze in enumerate(values[:, 2]):
        standing = [cell for cell in states.objects[task, 0].ravel().tolist() if cell >= 0]
        cells = [*standing, int(states.agent[task, 0])]
        assert len(set(cells)) == len(cells)
        assert not mazes[maze][cells].any()
        assert (states.objects[task] == states.objects[task, 0]).all()  # nothing is carried off
        assert len(standing) == 5 or family.copies == 2


def test_the_two_of_a_kind_stand_in_different_quadrants_and_seldom_one_is_missing():
    _, _, states, _, _ = episodes(TWINS)
    pairs = states.objects[:, 0].reshape(-1, 2)
    assert (pairs[:, 0] >= 0).all()
    for first, second in pairs[pairs[:, 1] >= 0].tolist():
        assert quadrant_of(first) != quadrant_of(second)
    assert np.mean(pairs[:, 1] < 0) < 0.01


def test_with_two_of_each_the_kind_cannot_be_told_by_counting():
    """Without its task a scene of a kind's goal looks like one of any other kind's."""
    values, *_, seen = episodes(TWINS)
    planes = seen[:, 0].reshape(500, 49, 7)[..., :5] > 0
    of_goal = planes.sum(1)[np.arange(500), values[:, 3]]
    assert (of_goal == 2).all() and np.mean(planes.sum(1) == 2) > 0.99


def test_goal_and_agent_are_uniform_over_what_is_allowed():
    family, drawn = PLAIN, content(PLAIN)
    task = int(family.space.rank([[2, 4, 9 + 3, 14]])[0])
    z = latents(family, np.full(6000, task))
    scene = jax.tree.map(np.asarray, jax.jit(family.begin)(drawn, z, jax.random.key(3)))
    walls = np.asarray(drawn["walls"])[3]
    starts = {}
    for goal in np.flatnonzero(~walls).tolist():
        far = [cell for cell, steps in search(walls, goal).items() if 7 <= steps <= 23]
        if quadrant_of(goal) == 2 and far:
            starts[goal] = far
    goals = scene.objects[:, 0, 0]
    assert set(goals) == set(starts)
    assert chisquare([np.sum(goals == goal) for goal in starts]).pvalue > 1e-3
    for goal, far in starts.items():
        agents = scene.agent[goals == goal]
        assert set(agents) == set(far)
        assert chisquare([np.sum(agents == cell) for cell in far]).pvalue > 1e-3
    free = set(np.flatnonzero(~walls).tolist())
    assert set(scene.objects[:, 1:, 0].ravel()) == free


def follow(family, drawn, z, states, actions):
    """Plays given actions; the states after each and the rewards."""
    act = jax.jit(family.act)
    path, rewards = [states], []
    for step in range(actions.shape[1]):
        states, reward = act(drawn, z, states, jnp.asarray(actions[:, step]))
        path.append(states)
        rewards.append(np.asarray(reward))
    return path, np.stack(rewards, axis=1)


@both
def test_the_experts_return_is_the_discount_to_the_length_of_its_path(family):
    values, z, states, targets, _ = episodes(family)
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, 0]), states)
    # After the end the expert's rows are empty and its argmax is "up": that must earn nothing.
    path, rewards = follow(family, content(family), z, first, targets.argmax(-1))
    assert not np.asarray(path[-1].running).any()
    mazes = np.asarray(content(family)["walls"])
    lengths = [
        search(mazes[maze], int(first.agent[task]))[int(first.objects[task, kind, 0])]
        for task, (_, _, maze, kind) in enumerate(values)
    ]
    returns = rewards @ family.discount ** np.arange(24)
    np.testing.assert_allclose(returns, family.discount ** np.asarray(lengths), rtol=1e-5)


def test_walls_wrong_interactions_and_the_end_leave_everything_as_it_is():
    values, z, states, _, _ = episodes(PLAIN)
    drawn, act = content(PLAIN), jax.jit(PLAIN.act)
    mazes, lengths = np.asarray(drawn["walls"]), states.running.sum(1) - 1
    at_goal = jax.tree.map(lambda leaf: jnp.asarray(leaf[np.arange(500), lengths]), states)
    at_start = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, 0]), states)
    for action in range(9):
        actions = jnp.full(500, action, jnp.int32)
        after, reward = act(drawn, z, at_start, actions)
        assert not np.any(reward) and np.all(after.running)
        for task in range(500):
            cell = int(at_start.agent[task])
            rows, columns = STEPS.get(action, (0, 0))
            ahead = cell + 7 * rows + columns
            blocked = mazes[values[task, 2], ahead]
            assert after.agent[task] == (cell if blocked else ahead)
        after, reward = act(drawn, z, at_goal, actions)
        right = values[:, 1] == action - 4
        np.testing.assert_array_equal(reward, right)
        np.testing.assert_array_equal(after.running, ~right)
        if action >= 4:
            np.testing.assert_array_equal(after.agent, at_goal.agent)
        ended = at_goal._replace(running=jnp.zeros(500, bool))
        stayed, reward = act(drawn, z, ended, actions)
        jax.tree.map(np.testing.assert_array_equal, stayed, ended)
        assert not np.any(reward)


@both
def test_a_network_sees_planes_of_objects_agent_and_walls(family):
    _, _, states, _, seen = episodes(family)
    assert seen.shape == (500, 24, family.input_size) and family.input_size == 343
    mazes = np.asarray(content(family)["walls"])
    for task in range(0, 500, 7):
        for step in (0, 3, 23):
            planes = np.zeros((7, 7, 7))
            for kind, cells in enumerate(states.objects[task, step]):
                for cell in cells[cells >= 0]:
                    planes[cell // 7, cell % 7, kind] = 1
            agent = states.agent[task, step]
            planes[agent // 7, agent % 7, -2] = 1
            planes[:, :, -1] = mazes[states.maze[task, step]].reshape(7, 7)
            flat = planes.reshape(-1)
            flat = flat / np.sqrt(np.mean(flat**2) + 1e-6)
            np.testing.assert_allclose(seen[task, step], flat, rtol=1e-5)


@both
def test_an_expert_of_another_task_goes_for_its_own_object_in_the_same_scene(family):
    values, _, states, _, _ = episodes(family)
    drawn = content(family)
    targets = jax.jit(family.targets)
    mazes = np.asarray(drawn["walls"])
    second_meant = 0
    for task in range(0, 500, 11):
        scene = jax.tree.map(lambda leaf, task=task: jnp.asarray(leaf[task]), states)
        quadrant, interaction, _, kind = other = values[(7 * task + 130) % 500].copy()
        if task % 2:  # the same kind of object, wanted in another quadrant
            kind = other[3] = values[task, 3]
        rank = family.space.rank([family.space.starts + other])
        wanted = np.asarray(targets(drawn, latents(family, rank)[0], scene))
        goal, *others = scene.objects[0, kind].tolist()
        for cell in others:
            if cell >= 0 and quadrant_of(cell) == quadrant:
                goal, second_meant = cell, second_meant + 1
        steps = search(mazes[values[task, 2]], goal)
        for step in range(24):
            if not states.running[task, step]:
                assert not wanted[step].any()
                continue
            cell = int(states.agent[task, step])
            ahead = (cell - 7, cell + 1, cell + 7, cell - 1)
            nearer = [a for a in range(4) if steps.get(ahead[a]) == steps[cell] - 1]
            assert wanted[step].argmax() == (4 + interaction if cell == goal else min(nearer))
            assert wanted[step].sum() == 1
    assert (second_meant > 5) == (family.copies == 2)


@both
def test_the_answers_to_ones_own_episode_are_those_it_was_drawn_with(family):
    _, z, states, targets, _ = episodes(family)
    again = jax.jit(jax.vmap(family.targets, in_axes=(None, 0, 0)))(content(family), z, states)
    np.testing.assert_array_equal(again, targets)


def test_a_population_with_mazes_of_its_own_gives_what_each_member_gives_alone():
    keys = jax.random.split(jax.random.key(5), 3)
    members = [content(TWINS, seed) for seed in range(3)]
    z = latents(TWINS, np.arange(0, 500, 50))

    def play(drawn, key):
        states = TWINS.begin(drawn, z, key)
        actions = TWINS.advise(TWINS.plan(drawn, z, states), states)
        return TWINS.act(drawn, z, states, actions)[0], actions, TWINS.observe(drawn, states)

    with jax.numpy_dtype_promotion("strict"):
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
        together = jax.jit(jax.vmap(play))(stacked, keys)
        single = jax.jit(play)
        alone = [single(drawn, key) for drawn, key in zip(members, keys, strict=True)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    jax.tree.map(np.testing.assert_array_equal, together[:2], stacked[:2])
    np.testing.assert_allclose(together[2], stacked[2], rtol=1e-6)


SMALL = ("#####/#...#/#.#.#/#...#/#####", "#####/#...#/#.###/#...#/#####")


def test_a_family_of_other_sizes_counts_its_modules_and_survives_storing():
    small = Goals(
        size=5, interactions=2, mazes=2, objects=3, least_path=3, steps=9, layouts=SMALL, copies=2
    )
    assert (small.modules, small.active, small.space.size) == (11, 4, 48)
    assert (small.input_size, small.output_size, small.horizon) == (25 * 5, 6, 9)
    for spec in (PLAIN, TWINS, small):
        assert revive(json.loads(json.dumps(canonical(spec)))) == spec
        assert replace(spec) == spec
    z, drawn = latents(small, np.arange(48)), content(small)
    np.testing.assert_array_equal(
        z, jax.vmap(lambda row: small.latent(jax.random.key(0), row))(z > 0)
    )
    play = jax.jit(lambda drawn, z, key: small.draw(drawn, z, key, 9))
    states, targets = play(drawn, z, jax.random.key(0))
    assert small.observe(drawn, states).shape == (48, 9, 125)
    lengths = np.asarray(targets).sum((1, 2))
    assert lengths.min() == 4 and lengths.max() <= 9
    assert np.all(np.asarray(states.objects) < 25)


def test_mazes_of_ones_own_are_used_as_drawn():
    family = Goals(mazes=2, layouts=(OPEN, SNAKE), least_path=5)
    family.check()
    drawn = content(family)
    text = ["".join("#" if wall else "." for wall in walls) for walls in np.asarray(drawn["walls"])]
    assert text == [OPEN.replace("/", ""), SNAKE.replace("/", "")]
    check_paths(drawn)


CUT = "#######/#..#..#/#..#..#/#..#..#/#..#..#/#..#..#/#######"
CORNER = "#######/#...###/#...###/#######/#######/#######/#######"
RIGHT = "#######/####..#/####..#/####..#/####..#/#.....#/#######"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"layouts": (OPEN, CUT), "mazes": 2}, ["maze two has no path", "row 1, column 4"]),
        ({"layouts": (SNAKE, OPEN), "mazes": 2, "least_path": 9},
         ["in maze two", "upper left", "more than 8 steps", "use least_path=8 or less"]),
        ({"layouts": (CORNER,), "mazes": 1, "objects": 4, "least_path": 1},
         ["maze one has no free cell in its lower left quadrant"]),
        ({"layouts": (RIGHT,), "mazes": 1}, ["no free cell in its upper left quadrant"]),
        ({"layouts": (CORNER,), "mazes": 1, "objects": 6}, ["6 free cells", "need 7"]),
        ({"layouts": (OPEN[8:],), "mazes": 1}, ["6 rows", "needs 7 rows of 7 cells"]),
        ({"layouts": (OPEN.replace("/", "./", 1),), "mazes": 1}, ["lengths 8 7 7 7 7 7 7"]),
        ({"layouts": (OPEN.replace(".", " "),), "mazes": 1}, ["' '", "'#', '.' and '/'"]),
        ({"layouts": ("......." + OPEN[7:],), "mazes": 1}, ["maze one is open at the border"]),
        ({"layouts": (OPEN,)}, ["1 layouts for mazes=5", "use mazes=1"]),
        ({"least_path": 15}, ["size=7", "use least_path=10 or less"]),
        ({"least_path": 7, "size": 5}, ["use least_path=5 or less"]),
        ({"size": 5, "copies": 2, "least_path": 3},
         ["11 free cells", "objects=3 or less", "size=7"]),
        ({"copies": 5}, ["copies=5", "from 1 to 4"]),
        ({"steps": 7}, ["use steps=8 or more"]),
        ({"size": 8}, ["size=8", "5, 7, 9, 11, 13 or 15"]),
        ({"objects": 11}, ["objects=11", "from 1 to 10"]),
        ({"mazes": 2.5}, ["mazes=2.5", "whole number"]),
        ({"modules": 20}, ["modules=20", "modules=19", "4, 5, 5 and 5"]),
        ({"active": 3}, ["active=3", "active=4"]),
    ],
    ids=lambda value: None if isinstance(value, list) else ",".join(value),
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused_with_what_works(request_, words):
    with pytest.raises(InvalidRequest) as refused:
        Goals(**request_).check()
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "request_",
    [
        {"layouts": (SNAKE, OPEN), "mazes": 2, "least_path": 8},
        {"least_path": 10},
        {"least_path": 5, "size": 5},
        {"size": 5, "copies": 2, "least_path": 3, "objects": 3},
        {"steps": 8},
    ],
    ids=str,
)
def test_what_a_refusal_offers_works(request_):
    family = Goals(**request_)
    family.check()
    if family.size == 7 and family.least_path < 10:
        return  # these are compiled by other tests already
    drawn = content(family)
    free = ~np.asarray(drawn["walls"])
    assert np.all(np.asarray(drawn["goals"]).any(axis=2))
    assert np.all(free.sum(axis=1) >= family.room)
