"""Compositional goals: go to a part of a maze, find an object, and do something with it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.checks import is_whole
from recombine.combinations import Slots
from recombine.errors import InvalidRequest
from recombine.families._factors import count_modules, listed
from recombine.families._family import Content
from recombine.families._world import World
from recombine.families.mazes import (
    FAR,
    HERE,
    MOVES,
    QUADRANTS,
    distances,
    draw_mazes,
    enough,
    first_moves,
    parse_maze,
    quadrant_cells,
    reach,
    survey,
)

# Ten words for each factor, so at most ten values.
VERBS = ("open", "push", "lift", "wash", "mend", "hide", "kick", "sell", "lock", "wrap")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
OBJECTS = ("ball", "box", "key", "cup", "lamp", "book", "drum", "shoe", "coin", "flag")

SIZES = (5, 7, 9, 11, 13, 15)
LONGEST = 1024


class Scene(NamedTuple):
    """A moment of an episode. Cells are numbered row by row; -1 is nowhere."""

    maze: Int[Array, "*axes"]
    agent: Int[Array, "*axes"]
    running: Bool[Array, "*axes"]
    objects: Int[Array, "*axes kind copy"]  # the cells of the objects of each kind


@dataclass(frozen=True)
class Goals(World):
    """A goal is a quadrant of a maze, an object and what to do with it: one value per factor.

    The object stands on a cell of the quadrant at least `least_path` steps from the agent, objects
    of every other kind stand elsewhere. The expert takes a shortest path (of two first
    moves the lower number: 0 up, 1 right, 2 down, 3 left) and then acts on the object (4 and up).

    Source: the released code of Redhardt, Akram and Schug, "Scaling can lead to compositional
    generalization" (2025); not among the paper's results. As released, there is one object of each
    kind and the maze is in view, so that quadrant and maze are told but need not be heard. With
    `copies=2` there are two of each kind, in different quadrants (where there is room): only
    quadrant and kind together say which of them is meant. The release pads episodes to 48 steps;
    steps after the end count nowhere and cost time only.

    `layouts` are mazes of your own in place of drawn ones: rows joined by "/", "#" for a wall and
    "." for a free cell. Drawn mazes are all different where there are enough different ones.

    >>> family = Goals()
    >>> family.space.size, family.modules, family.sentence((0, 2, 1, 4))
    (500, 19, 'go to the upper left part of maze two and lift the lamp')
    """

    version: ClassVar[int] = 2

    modules: int = 0  # 0: counted from the factors; any other number must agree with them
    active: int = 0
    size: int = 7
    interactions: int = 5
    mazes: int = 5
    objects: int = 5
    least_path: int = 7
    steps: int = 24
    copies: int = 1
    layouts: tuple[str, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "layouts", tuple(self.layouts))
        most = {"interactions": len(VERBS), "mazes": len(NUMBERS), "objects": len(OBJECTS),
                "copies": len(QUADRANTS), "least_path": LONGEST - 1, "steps": LONGEST}  # fmt: skip
        for name, bound in most.items():
            value = getattr(self, name)
            if not is_whole(value) or not 1 <= value <= bound:
                raise InvalidRequest(f"{name}={value!r}: expected a whole number from 1 to {bound}")
        if self.size not in SIZES:
            raise InvalidRequest(f"size={self.size!r}: mazes are {listed(SIZES)} cells wide")
        if self.steps <= self.least_path:
            raise InvalidRequest(
                f"steps={self.steps}: {self.least_path} steps to the goal (least_path) and the "
                f"interaction do not fit; use steps={self.least_path + 1} or more"
            )
        count_modules(self, self.space, self.space.levels)
        if self.layouts and len(self.layouts) != self.mazes:
            raise InvalidRequest(
                f"{len(self.layouts)} layouts for mazes={self.mazes}: use mazes={len(self.layouts)}"
            )

    @property
    def space(self) -> Slots:
        return Slots((len(QUADRANTS), self.interactions, self.mazes, self.objects))

    @property
    def horizon(self) -> int:
        return self.steps

    @property
    def cells(self) -> int:
        return self.size**2

    @property
    def input_size(self) -> int:
        return self.cells * (self.objects + 2)

    @property
    def output_size(self) -> int:
        return len(MOVES) + self.interactions

    @property
    def room(self) -> int:
        """Free cells that the agent and the objects need."""
        return 1 + self.objects * self.copies

    def symmetries(self) -> tuple[str, ...]:
        return ("permute interactions", "permute mazes", "permute objects")

    def sentence(self, values: tuple[int, ...]) -> str:
        """The task as an English instruction; all have the same number of words."""
        levels = self.space.levels
        if len(values) != len(levels) or not all(
            0 <= v < n for v, n in zip(values, levels, strict=True)
        ):
            raise InvalidRequest(
                f"{tuple(values)} is no task: expected four numbers, each from 0 to below {levels}"
            )
        quadrant, verb, maze, kind = values
        return (
            f"go to the {QUADRANTS[quadrant]} part of maze {NUMBERS[maze]} "
            f"and {VERBS[verb]} the {OBJECTS[kind]}"
        )

    def check(self) -> None:
        """Refuses sizes for which there are no mazes, and layouts that leave no way."""
        super().check()
        if self.layouts:
            self._check_layouts()
        else:
            self._check_drawn()

    def content(self, key: PRNGKeyArray) -> Content:
        if self.layouts:
            walls = jnp.asarray(self._parsed())
            distance = jax.vmap(distances)(walls)
        else:
            walls, distance = draw_mazes(key, self.size, self.mazes, self.least_path, self.room)
        starts = (distance >= self.least_path) & (distance < self.steps)
        goals = jnp.any(starts, axis=2)[:, None] & jnp.asarray(quadrant_cells(self.size))
        return {
            "walls": walls,
            "wall_count": jnp.sum(walls, axis=1).astype(jnp.float32),
            "goals": goals,
            "distance": distance,
            "moves": jax.vmap(first_moves)(distance),
        }

    def latent(self, key: PRNGKeyArray, chosen: Bool[Array, "module"]) -> Float[Array, "module"]:
        return chosen.astype(jnp.float32)

    def begin(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> Scene:
        quadrant, _, maze, kind = self._values(latents)
        cell, quadrants = jnp.arange(self.cells), self._quadrants()
        # The largest of some noise is a uniform choice among the cells that may be chosen.
        noise = iter(jax.random.uniform(key, (self.room, latents.shape[0], self.cells)))
        goal = _pick(next(noise), content["goals"][maze, quadrant])
        distance = content["distance"][maze, goal]
        agent = _pick(next(noise), (distance >= self.least_path) & (distance < self.steps))
        free = ~content["walls"][maze] & (cell != goal[:, None]) & (cell != agent[:, None])
        placed = []
        for number in range(self.objects):  # the goal's kind first, and its goal before its copies
            copies = [] if number else [goal]
            while len(copies) < self.copies:
                taken = [quadrants == quadrants[other][:, None] for other in copies]
                there = functools.reduce(lambda found, one: found & ~one, taken, free)
                found = jnp.where(jnp.any(there, axis=1), _pick(next(noise), there), -1)
                free = free & (cell != found[:, None])
                copies.append(found)
            placed.append(jnp.stack(copies, axis=1))
        turn = (jnp.arange(self.objects) - kind[:, None]) % self.objects
        return Scene(
            maze=maze,
            agent=agent,
            running=jnp.ones(agent.shape, bool),
            objects=jnp.take_along_axis(jnp.stack(placed, axis=1), turn[..., None], axis=1),
        )

    def act(
        self, content: Content, latents: Float[Array, "task module"], states: Scene,
        actions: Int[Array, "task"],
    ) -> tuple[Scene, Float[Array, "task"]]:  # fmt: skip
        steps = [rows * self.size + columns for rows, columns in MOVES] + [0] * self.interactions
        ahead = states.agent + jnp.asarray(steps)[actions]
        open_ahead = ~content["walls"][states.maze, ahead] & states.running
        wanted = actions == HERE + self._values(latents)[1]
        done = wanted & (states.agent == self._goal(latents, states)) & states.running
        after = states._replace(
            agent=jnp.where(open_ahead, ahead, states.agent), running=states.running & ~done
        )
        return after, done.astype(jnp.float32)

    def plan(
        self, content: Content, latents: Float[Array, "task module"], states: Scene
    ) -> Int[Array, "task cell"]:
        """What to do on each cell, for the goal the latent means in this scene.

        That is the object of its kind, in its quadrant if there is one, in whichever maze this is.
        """
        moves = content["moves"][states.maze, self._goal(latents, states)].astype(jnp.int32)
        interaction = self._values(latents)[1]
        return jnp.where(moves == HERE, HERE + interaction[:, None], moves)

    def advise(self, plan: Any, states: Scene) -> Int[Array, "task"]:
        return jnp.take_along_axis(plan, states.agent[:, None], axis=1)[:, 0]

    def observe(self, content: Content, inputs: Scene) -> Float[Array, "*axes input"]:
        cell = jnp.arange(self.cells)
        objects = jnp.any(inputs.objects[..., None, :, :] == cell[:, None, None], axis=-1)
        present = jnp.sum(inputs.objects >= 0, axis=(-2, -1)).astype(jnp.float32)
        count = content["wall_count"][inputs.maze] + present + 1
        agent = inputs.agent[..., None] == cell
        walls = content["walls"][inputs.maze]
        planes = jnp.concatenate([objects, agent[..., None], walls[..., None]], axis=-1)
        flat = planes.reshape(*agent.shape[:-1], self.input_size).astype(jnp.float32)
        # No two of a kind share a cell, so counting them is the sum of squares of all planes.
        return flat * jax.lax.rsqrt(count / self.input_size + 1e-6)[..., None]

    def _values(self, latents: Float[Array, "task module"]) -> list[Int[Array, "task"]]:
        """The quadrant, interaction, maze and object of each task."""
        parts = jnp.split(latents, self.space.starts[1:].tolist(), axis=-1)
        return [jnp.argmax(part, axis=-1).astype(jnp.int32) for part in parts]

    def _goal(self, latents: Float[Array, "task module"], states: Scene) -> Int[Array, "task"]:
        quadrant, _, _, kind = self._values(latents)
        cells = jnp.take_along_axis(states.objects, kind[:, None, None], axis=1)[:, 0]
        there = (cells >= 0) & (self._quadrants()[cells] == quadrant[:, None])
        # Copies share no quadrant; where none stands in the wanted one, the first counts.
        return jnp.take_along_axis(cells, jnp.argmax(there, axis=1)[:, None], axis=1)[:, 0]

    def _quadrants(self) -> Int[Array, "cell"]:
        """The number of the quadrant of each cell."""
        return jnp.argmax(jnp.asarray(quadrant_cells(self.size)), axis=0)

    def _parsed(self) -> Bool[np.ndarray, "maze cell"]:
        named = zip(self.layouts, NUMBERS, strict=False)
        return np.stack([parse_maze(text, self.size, f"maze {name}") for text, name in named])

    def _check_layouts(self) -> None:
        walls = self._parsed()
        distance = np.asarray(jax.vmap(distances)(jnp.asarray(walls)))
        reached = np.asarray(jax.vmap(reach)(jnp.asarray(distance)))
        for number, free in enumerate(~walls):
            name = f"maze {NUMBERS[number]}"
            alone = distance[number][free][:, free] >= FAR
            if alone.any():
                row, column = divmod(int(np.flatnonzero(free)[np.argmax(alone[0])]), self.size)
                raise InvalidRequest(
                    f"{name} has no path from its first free cell to row {row}, column {column} "
                    "(counted from 0): all free cells must be connected; open a wall"
                )
            if free.sum() < self.room:
                raise InvalidRequest(
                    f"{name} has {free.sum()} free cells: the agent and the objects of "
                    f"objects={self.objects}, copies={self.copies} need {self.room}"
                )
            for quadrant, steps in zip(QUADRANTS, reached[number], strict=True):
                if steps == 0:
                    raise InvalidRequest(f"{name} has no free cell in its {quadrant} quadrant")
                if steps < self.least_path:
                    raise InvalidRequest(
                        f"least_path={self.least_path}: in {name} no cell of the {quadrant} "
                        f"quadrant is more than {steps} steps from anywhere; "
                        f"use least_path={max(1, reached.min())} or less"
                    )

    def _check_drawn(self) -> None:
        longest, rooms = survey(self.size)
        fitting = [enough(self.mazes, float(np.mean(rooms >= n))) for n in range(self.cells)]
        most = max(n for n, fits in enumerate(fitting) if fits)
        if self.room > most:
            spare = (most - 1) // self.copies
            raise InvalidRequest(
                f"objects={self.objects}, copies={self.copies} need mazes of {self.room} free "
                f"cells, and mazes of size={self.size} often have {most}: use "
                + (f"objects={spare} or less, or " if spare > 0 else "")
                + f"size={self.size + 2}"
            )
        reached = np.where(rooms >= self.room, longest, 0)
        works = [enough(self.mazes, float(np.mean(reached >= n))) for n in range(self.steps)]
        most = max(n for n, fits in enumerate(works) if fits)
        if self.least_path > most:
            raise InvalidRequest(
                f"least_path={self.least_path}: too few mazes of size={self.size} have a path that "
                f"long to every quadrant; use least_path={most} or less"
            )


def _pick(noise: Float[Array, "task cell"], among: Bool[Array, "task cell"]) -> Int[Array, "task"]:
    return jnp.argmax(jnp.where(among, noise, -1.0), axis=1).astype(jnp.int32)
