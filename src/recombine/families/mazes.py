"""Random mazes on a square grid, and the shortest paths through them.

A maze is a flat row of walls, `size` times `size` cells, closed by a border of walls. Everything
is a few array operations, so that a maze can be drawn on the device from a key.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from recombine.errors import InvalidRequest

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""The steps in rows and columns of the actions up, right, down and left."""

HERE = len(MOVES)
"""Where a table of moves would say "up", "right", ...: the goal is here."""

FAR = 2**14
"""The distance of cells that no path joins."""

QUADRANTS = ("upper left", "upper right", "lower left", "lower right")

COMPLEXITY = 0.75  # how long the random walks are that leave walls behind, as published
DENSITY = 0.75  # how many of them there are

CANDIDATES = 128  # mazes drawn, of which the first valid ones are kept
SURVEYED = 512  # mazes drawn to see whether a request can be met
RARELY = 1e-6  # how often there may be too few valid ones among the candidates


def random_mazes(key: PRNGKeyArray, size: int, count: int) -> Bool[Array, "maze cell"]:
    """The walls of random mazes, the free cells of each all connected.

    Posts stand where row and column are even. Walks start from random posts and put up a wall
    wherever they reach a post that has none yet: walls never close a ring, so nothing is cut off.
    """
    walks, steps = max(1, int(DENSITY * (size // 2) ** 2)), int(COMPLEXITY * 10 * size)
    noise = jax.random.uniform(key, (count, walks, steps + 2))
    starts = 2 * jnp.floor(noise[..., :2] * (size // 2 + 1)).astype(jnp.int32)
    turns = jnp.asarray(MOVES)[jnp.floor(noise[..., 2:] * len(MOVES)).astype(jnp.int32)]
    line = jnp.arange(size)
    rim = (line == 0) | (line == size - 1)

    def at(place: Int[Array, "2"]) -> Bool[Array, "row column"]:
        return (line == place[0])[:, None] & (line == place[1])[None, :]

    def step(carry: tuple[Array, Array], turn: Array) -> tuple[tuple[Array, Array], None]:
        walls, post = carry
        ahead = post + 2 * turn
        free = jnp.any(at(ahead) & ~walls)  # a post outside the grid is nowhere, so not free
        walls = walls | (free & (at(post + turn) | at(ahead)))
        return (walls, jnp.where(free, ahead, post)), None

    def walk(walls: Array, drawn: tuple[Array, Array]) -> tuple[Array, None]:
        start, turns = drawn
        (walls, _), _ = jax.lax.scan(step, (walls | at(start), start), turns)
        return walls, None

    def grow(starts: Array, turns: Array) -> Array:
        return jax.lax.scan(walk, rim[:, None] | rim[None, :], (starts, turns))[0].reshape(-1)

    return jax.vmap(grow)(starts, turns)


def distances(walls: Bool[Array, "cell"]) -> Int[Array, "cell cell"]:
    """Steps between every two cells; `FAR` where there is no path, as from or to a wall."""
    size = math.isqrt(walls.shape[0])
    free = ~walls.reshape(size, size)
    here = jnp.eye(size * size, dtype=bool).reshape(-1, size, size)
    start = jnp.where(here & free, 0, FAR).astype(jnp.int16)

    def relax(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        known, _ = carry
        near = jnp.minimum(known, _nearest(known) + 1)
        near = jnp.where(free, near, jnp.int16(FAR))
        return near, jnp.any(near != known)

    known, _ = jax.lax.while_loop(lambda carry: carry[1], relax, (start, jnp.any(start == 0)))
    return known.reshape(size * size, size * size)


def first_moves(distance: Int[Array, "cell cell"]) -> Int[Array, "goal cell"]:
    """The first move of a shortest path to each goal from each cell; at the goal it is `HERE`.

    Of several shortest paths the move with the lowest number counts; walls hold any move.
    """
    size = math.isqrt(distance.shape[0])
    left = distance.reshape(-1, size, size)
    moves = jnp.where(left == 0, HERE, 0).astype(jnp.int8)
    for number in reversed(range(len(MOVES))):
        moves = jnp.where(_beyond(left, number) == left - 1, jnp.int8(number), moves)
    return moves.reshape(distance.shape)


def reach(distance: Int[Array, "cell cell"]) -> Int[Array, "quadrant"]:
    """How far each quadrant's best goal is from the cell farthest from it.

    A goal with a cell d steps away has cells at every smaller number of steps too. A maze that is
    not connected, and a quadrant without a free cell, reach 0.
    """
    free = jnp.diagonal(distance) == 0
    joined = jnp.all((distance < FAR) == (free[:, None] & free[None, :]))
    farthest = jnp.max(jnp.where(distance < FAR, distance, jnp.int16(0)), axis=1)
    quadrants = jnp.asarray(quadrant_cells(math.isqrt(distance.shape[0])))
    return jnp.max(jnp.where(quadrants & joined, farthest, jnp.int16(0)), axis=1)


def draw_mazes(
    key: PRNGKeyArray, size: int, mazes: int, least_path: int, room: int
) -> tuple[Bool[Array, "maze cell"], Int[Array, "maze cell cell"]]:
    """The walls and distances of random mazes that all have a path of at least `least_path` steps
    to every quadrant, and `room` free cells.

    They are all different where the candidates hold enough different ones; at size 7 the walks
    leave only some twenty mazes.
    """
    walls = random_mazes(key, size, CANDIDATES)
    distance = jax.vmap(distances)(walls)
    valid = jnp.min(jax.vmap(reach)(distance), axis=1) >= least_path
    valid = valid & (jnp.sum(~walls, axis=1) >= room)
    alike = jnp.all(walls[:, None] == walls[None], axis=2)
    repeated = jnp.any(alike & jnp.tri(CANDIDATES, k=-1, dtype=bool), axis=1)
    # Sorting keeps the order of equals: first come valid mazes, and repeated ones if need be.
    kept = jnp.argsort(jnp.where(valid, repeated.astype(jnp.int32), 2), stable=True)[:mazes]
    return walls[kept], distance[kept]


@functools.lru_cache(maxsize=8)
def survey(size: int) -> tuple[Int[np.ndarray, "maze"], Int[np.ndarray, "maze"]]:
    """Of many random mazes: the longest path that every quadrant has, and the free cells."""

    def look(key: PRNGKeyArray) -> tuple[Array, Array]:
        walls = random_mazes(key, size, SURVEYED)
        reached = jax.vmap(lambda maze: reach(distances(maze)))(walls)
        return jnp.min(reached, axis=1), jnp.sum(~walls, axis=1)

    longest, room = jax.jit(look)(jax.random.key(0))
    return np.asarray(longest), np.asarray(room)


def enough(mazes: int, share: float) -> bool:
    """Whether the candidates of `draw_mazes` suffice when this share of all mazes is valid."""
    chances = (
        math.comb(CANDIDATES, n) * share**n * (1 - share) ** (CANDIDATES - n) for n in range(mazes)
    )
    return sum(chances) < RARELY


def quadrant_cells(size: int) -> Bool[np.ndarray, "quadrant cell"]:
    """Which cells belong to which of `QUADRANTS`.

    Cells above the middle row are upper and cells left of the middle column are left: the middle
    row itself is lower and the middle column right, so that every cell is in one quadrant.
    """
    row, column = np.divmod(np.arange(size * size), size)
    number = 2 * (row >= size // 2) + (column >= size // 2)
    return number == np.arange(len(QUADRANTS))[:, None]


def parse_maze(text: str, size: int, name: str) -> Bool[np.ndarray, "cell"]:
    """The walls of a maze drawn as text: rows joined by "/", "#" a wall and "." a free cell.

    >>> parse_maze("#####/#...#/#.#.#/#...#/#####", size=5, name="maze one").sum()
    np.int64(17)
    """
    rows = text.split("/")
    strange = sorted(set(text) - set("#./"))
    if strange:
        raise InvalidRequest(f"{name} has {strange[0]!r} in it: expected '#', '.' and '/'")
    if {len(rows), *map(len, rows)} != {size}:
        lengths = " ".join(str(len(row)) for row in rows)
        raise InvalidRequest(
            f"{name} has {len(rows)} rows of lengths {lengths}: size={size} needs {size} rows of "
            f"{size} cells"
        )
    walls = np.array([[cell == "#" for cell in row] for row in rows])
    if not (walls[[0, -1]].all() and walls[:, [0, -1]].all()):
        raise InvalidRequest(f"{name} is open at the border: all cells of its rim must be '#'")
    return walls.reshape(-1)


def _nearest(known: Int[Array, "goal row column"]) -> Int[Array, "goal row column"]:
    first, second, third, fourth = (_beyond(known, number) for number in range(len(MOVES)))
    return jnp.minimum(jnp.minimum(first, second), jnp.minimum(third, fourth))


def _beyond(grid: Int[Array, "goal row column"], number: int) -> Int[Array, "goal row column"]:
    # What lies one move ahead. Rolling wraps around from rim to rim, and rims are walls.
    rows, columns = MOVES[number]
    return jnp.roll(grid, (-rows, -columns), axis=(1, 2))
