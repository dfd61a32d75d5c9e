"""Compositional preferences: what an agent in a small house likes is a weighted sum of likings."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.errors import InvalidRequest
from recombine.families._family import Content
from recombine.families._world import World
from recombine.families.hyperteacher import bucket_sizes, weigh

MAP = (
    "#######",
    "#..#..#",
    "#..#..#",
    "##...##",
    "#..#..#",
    "#..#..#",
    "#######",
)
ACTIONS = ("nothing", "up", "right", "down", "left")

_WALLS = np.array([[mark == "#" for mark in row] for row in MAP])
# The free cells, numbered as one reads: where they lie on the map, and where each action leads.
PLACES = np.flatnonzero(~_WALLS).astype(np.int32)
CELLS = len(PLACES)


def _leads_to() -> Int[np.ndarray, "cell action"]:
    steps = np.array([0, -_WALLS.shape[1], 1, _WALLS.shape[1], -1])
    number = np.full(_WALLS.size, -1, np.int32)
    number[PLACES] = np.arange(CELLS)
    reached = number[PLACES[:, None] + steps]
    return np.where(reached >= 0, reached, np.arange(CELLS, dtype=np.int32)[:, None])


LEADS_TO = _leads_to()


class Room(NamedTuple):
    """The state of an episode: where the agent and the objects are, and which are still there."""

    agent: Int[Array, "*axes"]
    available: Bool[Array, "*axes objects"]
    running: Bool[Array, "*axes"]
    cells: Int[Array, "*axes objects"]
    types: Int[Array, "*axes objects"]


Plan = Float[Array, "cell masks task"]


@dataclass(frozen=True)
class Preferences(World):
    """An expert collects the objects it likes; what it likes is r(type) = sum_m z_m P[m, type].

    The house never changes: four rooms, joined by a corridor, with `objects` objects in random
    cells. Stepping on one collects it, and the reward is how much its type is liked, which may be
    negative. The expert knows the action values after `horizon` sweeps of value iteration,
    Q(s, a) <- r + discount max_a' Q(s', a'), and takes the best one (the first of equals); to do
    nothing ends an episode. Source: Redhardt, Akram and Schug, "Scaling can lead to compositional
    generalization" (2025).

    >>> Preferences(modules=16, features=32).input_size
    1666
    """

    version: ClassVar[int] = 1

    features: int = 16
    objects: int = 4
    steps: int = 8

    def __post_init__(self):
        if not 1 <= self.objects < CELLS:
            raise InvalidRequest(
                f"objects={self.objects}: the house has {CELLS} free cells, one of them for the "
                f"agent; use objects={min(max(self.objects, 1), CELLS - 1)}"
            )
        if self.steps < 1:
            raise InvalidRequest(f"steps={self.steps}: an episode has at least one; use steps=8")
        if not 0 < self.discount < 1:
            raise InvalidRequest(
                f"discount={self.discount}: expected a number between 0 and 1, without them (with "
                "1 the expert might as well wait); use discount=0.9"
            )

    def check(self) -> None:
        super().check()
        # Not when made: a family padded to more modules than features is sound, for the rows of
        # zeros it adds are no preferences.
        if self.features < self.modules:
            raise InvalidRequest(
                f"features={self.features} for modules={self.modules}: preferences can be told "
                f"apart only if there are as many features; use features={self.modules} or more, "
                f"or modules={self.features} or less"
            )

    @property
    def horizon(self) -> int:
        return self.steps

    @property
    def input_size(self) -> int:
        return _WALLS.size * self._planes

    @property
    def output_size(self) -> int:
        return len(ACTIONS)

    @property
    def _planes(self) -> int:
        return self.features + 2  # each type of object, the agent, the walls

    def content(self, key: PRNGKeyArray) -> Content:
        return {"preferences": jax.random.normal(key, (self.modules, self.features))}

    def latent(self, key: PRNGKeyArray, chosen: Bool[Array, "module"]) -> Float[Array, "module"]:
        return weigh(key, chosen)

    def begin(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> Room:
        tasks = latents.shape[0]
        where_key, what_key = jax.random.split(key)
        # The places of the largest of many random numbers: different cells, all equally likely.
        luck = jax.random.uniform(where_key, (tasks, CELLS))
        cells = jax.lax.top_k(luck, self.objects + 1)[1]
        return Room(
            agent=cells[:, 0],
            available=jnp.ones((tasks, self.objects), bool),
            running=jnp.ones(tasks, bool),
            cells=cells[:, 1:],
            types=jax.random.randint(what_key, (tasks, self.objects), 0, self.features),
        )

    def act(
        self, content: Content, latents: Float[Array, "task module"], states: Room,
        actions: Int[Array, "task"],
    ) -> tuple[Room, Float[Array, "task"]]:  # fmt: skip
        agent = jnp.where(
            states.running, jnp.asarray(LEADS_TO)[states.agent, actions], states.agent
        )
        met = (states.cells == agent[:, None]) & states.running[:, None]
        collected = states.available & met
        rewards = jnp.sum(jnp.where(collected, self._worth(content, latents, states), 0.0), axis=-1)
        after = states._replace(
            agent=agent,
            available=states.available & ~met,
            running=states.running & (actions != 0),
        )
        return after, rewards

    def _worth(
        self, content: Content, latents: Float[Array, "task module"], states: Room
    ) -> Float[Array, "task objects"]:
        """What collecting each object would earn."""
        liked = jnp.matmul(latents, content["preferences"], precision="highest")
        return jnp.take_along_axis(liked, states.types, axis=-1)

    def plan(self, content: Content, latents: Float[Array, "task module"], states: Room) -> Plan:
        """What entering a cell is worth by the last sweep, for each set of objects still there.

        After k of T sweeps the values X_k = discount^(T-k) max_a Q_k are kept. So scaled, a sweep
        only adds and compares, X_k(s) = max(X_{k-1}(s), discount^(T-k) r + X_{k-1}(s')), in the
        same order on every path: equally good paths tie exactly, whatever a compiler fuses.
        """
        tasks = latents.shape[0]
        worth = self._worth(content, latents, states).T
        shrink = self.discount ** np.arange(self.steps - 1, -1, -1.0)
        worths = worth * shrink.astype(np.float32)[:, None, None]
        here = states.cells.T[:, None, :] == np.arange(CELLS, dtype=np.int32)[:, None]
        enter = functools.partial(_enter, here=here)

        def sweep(values: Array, worth: Array) -> tuple[Array, None]:
            entered = enter(values, worth)
            moves = (entered[LEADS_TO[:, action]] for action in range(1, len(ACTIONS)))
            return functools.reduce(jnp.maximum, moves, values), None

        # One axis of two for each object (gone, still there), and tasks last: taking an object
        # away is then a slice, and gathering cells moves whole blocks. Not unrolled: fused sweeps
        # would work out each other's values again and again.
        values = jnp.zeros((CELLS, *(2,) * self.objects, tasks))
        values, _ = jax.lax.scan(sweep, values, worths[:-1])
        return enter(values, worths[-1]).reshape(CELLS, -1, tasks)

    def values(self, plan: Plan, states: Room) -> Float[Array, "task action"]:
        """The expert's Q of every action in these states."""
        # To stay, by choice or before a wall, is to enter the cell one is in: nobody stands on an
        # object that is still there, so nothing is collected.
        bits = 2 ** np.arange(self.objects - 1, -1, -1, dtype=np.int32)
        left = jnp.sum(jnp.where(states.available, bits, 0), axis=-1, dtype=jnp.int32)
        tasks = jnp.arange(plan.shape[-1])
        return plan[jnp.asarray(LEADS_TO)[states.agent], left[:, None], tasks[:, None]]

    def advise(self, plan: Plan, states: Room) -> Int[Array, "task"]:
        return jnp.argmax(self.values(plan, states), axis=-1)

    def observe(self, content: Content, inputs: Room) -> Float[Array, "*axes input"]:
        """The map as planes of zeros and ones, scaled to a root mean square of one."""
        places = jnp.asarray(PLACES) * self._planes
        spots = jnp.where(inputs.available, places[inputs.cells] + inputs.types, -1)
        agent = places[inputs.agent] + self.features
        # Compared, not scattered: this fuses into whatever reads it.
        number = jnp.arange(self.input_size, dtype=jnp.int32)
        walls = np.zeros((_WALLS.size, self._planes), bool)
        walls[:, -1] = _WALLS.ravel()
        ones = jnp.asarray(walls.ravel()) | (number == agent[..., None])
        for index in range(self.objects):
            ones = ones | (number == spots[..., index, None])
        # The mean square depends only on how many objects are left.
        counts = int(_WALLS.sum()) + 1 + np.arange(self.objects + 1)
        scales = 1 / np.sqrt(counts / self.input_size + 1e-6)
        left = jnp.sum(inputs.available, axis=-1, dtype=jnp.int32)
        scale = jnp.asarray(scales.astype(np.float32))[left]
        return jnp.where(ones, scale[..., None], 0.0)

    def bucket(self) -> Preferences:
        modules, active = bucket_sizes(self.modules, self.active)
        return replace(self, modules=modules, active=active)


def _enter(
    values: Float[Array, "cell *left task"],
    worth: Float[Array, "objects task"],
    here: Bool[Array, "objects cell task"],
) -> Float[Array, "cell *left task"]:
    """The value of entering each cell: of being there, with its object collected if it has one."""
    entered = values
    for axis in range(1, values.ndim - 1):
        ones = (1,) * (values.ndim - 2)
        there = here[axis - 1].reshape(values.shape[0], *ones, values.shape[-1])
        left = np.array([False, True]).reshape(2, *ones[axis:], 1)
        gone = jax.lax.slice_in_dim(values, 0, 1, axis=axis)
        entered = jnp.where(there & left, worth[axis - 1] + gone, entered)
    return entered
