"""Objects: small pictures whose features are few and whose bindings are all that matters."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.checks import is_whole
from recombine.errors import InvalidRequest
from recombine.families._pieces import BLOCKS, pieces
from recombine.families.glyphs import COLOURS, FINE, LEAST_CELL, RADII, SHAPES
from recombine.seeds import host_seed

GLYPH = LEAST_CELL  # pixels along the box of a glyph
FARTHEST = 2  # pixels that a glyph strays from the middle of its cell, at most
PHASES = 2  # places between two pixels
PIECES = 3
MOST_OBJECTS = 256  # in a scene


TASKS = ("swap", "report", "search")
SEARCHES = ("conjunctive", "disjunctive", "palette", "published")


class Scene(NamedTuple):
    """What a picture shows; places in the list past the number of objects are not there."""

    colour: Int[Array, "*batch object"]
    shape: Int[Array, "*batch object"]
    there: Bool[Array, "*batch object"]


class Asked(NamedTuple):
    """Pictures, a question about each (a one-hot colour beside a one-hot shape), the answer, and
    what the pictures show. Nothing is asked where all is to be reported: questions are zeros."""

    images: Float[Array, "item side side 3"]
    question: Float[Array, "item feature"]
    answer: Bool[Array, "item"]
    scene: Scene


@dataclass(frozen=True)
class Objects:
    """Pictures of up to `most_objects` coloured shapes that never overlap.

    Each stands in a cell of its own, off its middle by chance. Pixels go from 0 (black) to 1. A
    share `held_out` of all colour-shape pairs is kept from training: whole classes of the cyclic
    Latin square, relabelled by the content seed, so that every colour and every shape is missing
    as many partners as any other.

    >>> family = Objects(side=24, most_objects=2)
    >>> family.trained(seed=0).sum(axis=1).tolist(), family.cell
    ([3, 3, 3, 3], 12)
    """

    version: ClassVar[int] = 1

    side: int = 32
    colours: int = 4
    shapes: int = 4
    most_objects: int = 6
    held_out: float = 0.25

    def check(self) -> None:
        """Refuses scenes that cannot be drawn, or from which nothing could be learnt."""
        for name, least, most in (
            ("colours", 2, len(COLOURS)), ("shapes", 2, len(SHAPES)),
            ("side", 2 * GLYPH, 256), ("most_objects", 2, MOST_OBJECTS),
        ):  # fmt: skip
            value = getattr(self, name)
            if not is_whole(value) or not least <= value <= most:
                raise InvalidRequest(
                    f"{name}={value!r}: expected a whole number from {least} to {most}"
                )
        if self.cell < GLYPH:
            raise InvalidRequest(
                f"most_objects={self.most_objects} is too crowded for side={self.side}: objects "
                f"stand in {self.cells} x {self.cells} cells of at least {GLYPH} pixels; use "
                f"side={self.least_side}, or most_objects={self.most_that_fit} or less"
            )
        if not isinstance(self.held_out, int | float) or not 0 <= self.held_out < 1:
            raise InvalidRequest(f"held_out={self.held_out!r}: expected a share from 0 to below 1")
        self._check_held_out()

    def _check_held_out(self) -> None:
        trained, largest = self.trained(0), max(self.colours, self.shapes)
        if not corners_free(trained).any():
            raise InvalidRequest(
                f"held_out={self.held_out:g} of {self.colours} colours and {self.shapes} shapes "
                "leaves no two objects that could swap their colours in training: use "
                f"held_out={1 / largest:.3g}, or more colours and shapes, such as "
                f"{2 * self.colours} and {2 * self.shapes}"
            )
        if self.held_out and not (~trained).any():
            raise InvalidRequest(
                f"held_out={self.held_out:g}: pairs are held out by whole classes of "
                f"{largest}; use held_out=0 or {1 / largest:.3g} and more"
            )

    @property
    def cells(self) -> int:
        """Cells along a side."""
        return math.isqrt(self.most_objects - 1) + 1

    @property
    def least_side(self) -> int:
        """Pixels along a side that `most_objects` need."""
        return self.cells * GLYPH

    @property
    def most_that_fit(self) -> int:
        """How many objects have room on so many pixels."""
        return (self.side // GLYPH) ** 2

    @property
    def cell(self) -> int:
        """Pixels along a side of a cell."""
        return self.side // self.cells

    @property
    def question_size(self) -> int:
        """A question names one colour and one shape, each as a one-hot row."""
        return self.colours + self.shapes

    @property
    def withheld(self) -> int:
        """How many classes of the Latin square are held out."""
        return round(self.held_out * max(self.colours, self.shapes))

    def trained(self, seed: int) -> Bool[np.ndarray, "colour shape"]:
        """Which colour-shape pairs training may show."""
        rng = np.random.default_rng(host_seed(seed, "latin square"))
        rows, columns = rng.permutation(self.colours), rng.permutation(self.shapes)
        return (rows[:, None] + columns) % max(self.colours, self.shapes) >= self.withheld

    def render(self, scene: Scene, key: PRNGKeyArray) -> Float[Array, "*batch side side 3"]:
        """A fresh picture of each scene: every object in a cell of its own, chosen by lot."""
        n, p, axes = self.cells, self.cell, scene.colour.shape[:-1]
        most = scene.colour.shape[-1]
        place_key, shift_key = jax.random.split(key)
        holds = jnp.argsort(jax.random.uniform(place_key, (*axes, n * n)), axis=-1)
        known = jnp.minimum(holds, most - 1)
        colour, shape, there = (jnp.take_along_axis(part, known, axis=-1) for part in scene)
        bank = glyph_bank(p, self.shapes)
        shift = jax.random.randint(shift_key, holds.shape, 0, bank.shape[1])
        covered = jnp.asarray(bank.reshape(-1, p * p))[shape * bank.shape[1] + shift]
        covered = covered * (there & (holds < most))[..., None]
        tiles = covered[..., None] * jnp.asarray(palette(self.colours))[colour][..., None, :]
        joined = jnp.swapaxes(tiles.reshape(*axes, n, n, p, p, 3), -4, -3)
        spare = self.side - n * p
        margins = [(0, 0)] * len(axes) + [(spare // 2, spare - spare // 2)] * 2 + [(0, 0)]
        return jnp.pad(joined.reshape(*axes, n * p, n * p, 3), margins)

    def draw(
        self, task: str, trained: Bool[Array, "colour shape"], key: PRNGKeyArray, count: int, *,
        sizes: Int[Array, "size"], unseen: bool = False, kind: int | Int[Array, ""] | None = None,
    ) -> Asked:  # fmt: skip
        """Fresh items of a task, each with one of `sizes` objects; `unseen` ones are about
        held-out pairs. `kind` is one of search, or None for all in equal shares."""
        from recombine.families._object_tasks import draw

        return draw(self, task, trained, key, count, sizes=sizes, unseen=unseen, kind=kind)


def corners(colours: int, shapes: int) -> Int[np.ndarray, "four corner"]:
    """All (a, b, x, y) of two colours and two shapes, in every order."""
    a, b, x, y = np.indices((colours, colours, shapes, shapes)).reshape(4, -1)
    return np.stack([a, b, x, y], axis=1)[(a != b) & (x != y)].astype(np.int32)


def corners_free(trained: Bool[np.ndarray, "colour shape"]) -> Bool[np.ndarray, "four"]:
    """Of which two colours and two shapes training may show all four pairs."""
    a, b, x, y = corners(*trained.shape).T
    return trained[a, x] & trained[a, y] & trained[b, x] & trained[b, y]


def palette(colours: int) -> Float[np.ndarray, "colour 3"]:
    """Colours with at least one channel at full strength, so that the largest channel of a pixel
    is how much of it is covered, whatever the colour."""
    return (np.array(list(COLOURS.values()), np.float32)[:colours] + 1) / 2


@functools.lru_cache(maxsize=32)
def glyph_bank(cell: int, shapes: int) -> Float[np.ndarray, "shape shift pixel"]:
    """How much of each pixel of a cell every shape covers, at every place it may stand."""
    far = min(FARTHEST, (cell - GLYPH) / 2)
    steps = np.arange(int(2 * far * PHASES) + 1) / PHASES - far
    along = (np.arange(cell * FINE) + 0.5) / FINE - cell / 2
    radius, rows = RADII[1][0] * GLYPH, []
    for shape in list(SHAPES)[:shapes]:
        for down in steps:
            for right in steps:
                x, y = np.meshgrid((along - right) / radius, (along - down) / radius)
                fine = np.clip(0.5 - SHAPES[shape](x, y) * radius * FINE, 0, 1)
                rows.append(fine.reshape(cell, FINE, cell, FINE).mean(axis=(1, 3)).ravel())
    bank = np.stack(rows).reshape(shapes, len(steps) ** 2, -1).astype(np.float32)
    bank.flags.writeable = False
    return bank


class Pictured(NamedTuple):
    """Pictures and the object every pixel belongs to; 0 is the background."""

    images: Float[Array, "*batch side side 3"]
    objects: Int[Array, "*batch side side"]


@dataclass(frozen=True)
class Tetrominoes:
    """Pictures of three tetrominoes of random colour that never overlap nor share an edge.

    Pieces in all their turns stand on a grid of 7 x 7 blocks; one after another takes a place, by
    lot, among those that are left (some always are). Colours may repeat, so that colour alone does
    not tell the pieces apart.

    >>> Tetrominoes().check()
    """

    version: ClassVar[int] = 1

    side: int = 35
    colours: int = 6

    def check(self) -> None:
        for name, least, most in (("side", BLOCKS, 256), ("colours", 1, len(COLOURS))):
            value = getattr(self, name)
            if not is_whole(value) or not least <= value <= most:
                raise InvalidRequest(
                    f"{name}={value!r}: expected a whole number from {least} to {most}"
                )

    def draw(self, key: PRNGKeyArray, count: int) -> Pictured:
        """Fresh pictures with their true objects."""
        *place_keys, colour_key = jax.random.split(key, PIECES + 1)
        table = pieces()
        covers, chance = jnp.asarray(table.covers), jnp.asarray(table.chance)
        taken = jnp.zeros((count, BLOCKS**2))
        marks = jnp.zeros((count, BLOCKS**2), jnp.int32)
        for number, place_key in enumerate(place_keys, start=1):
            # Exact in any precision: small whole numbers.
            free = taken @ covers.T == 0
            law = jnp.where(free, jnp.log(chance), -jnp.inf)
            chosen = jax.random.categorical(place_key, law)
            marks = marks + number * covers[chosen].astype(jnp.int32)
            taken = jnp.maximum(taken, jnp.asarray(table.reaches)[chosen])
        colour = jax.random.randint(colour_key, (count, PIECES), 0, self.colours)
        painted = jnp.asarray(palette(self.colours))[colour]
        painted = jnp.concatenate([jnp.zeros((count, 1, 3)), painted], axis=1)
        objects = self._enlarged(marks.reshape(count, BLOCKS, BLOCKS))
        images = jax.nn.one_hot(objects, PIECES + 1)
        images = jnp.einsum("brcn,bnk->brck", images, painted, precision="highest")
        return Pictured(images, objects)

    def _enlarged(self, marks: Int[Array, "batch row column"]) -> Int[Array, "batch side side"]:
        block = self.side // BLOCKS
        spare = self.side - block * BLOCKS
        large = jnp.repeat(jnp.repeat(marks, block, axis=1), block, axis=2)
        return jnp.pad(large, [(0, 0)] + [(spare // 2, spare - spare // 2)] * 2)


def foreground_ari(
    objects: Int[Array, "*batch side side"], found: Int[Array, "*batch side side"], parts: int,
    pieces: int = PIECES,
) -> Float[Array, "*batch"]:  # fmt: skip
    """The adjusted Rand index of two partitions of the pixels that belong to objects.

    (Σ C(n_ij, 2) - E) / (½ (Σ C(a_i, 2) + Σ C(b_j, 2)) - E) for the counts n_ij of pixels of
    object i in part j, with E = Σ C(a_i, 2) Σ C(b_j, 2) / C(n, 2). Source: Hubert and Arabie,
    "Comparing partitions" (1985). `objects` has numbers from 0, the background, to `pieces`, and
    `found` from 0 to below `parts`. Others are refused; within a compiled program, where nobody
    can look at them, they make the index of their picture NaN.
    """
    if not isinstance(objects, Tracer):
        _check_numbers("objects", objects, "pieces", pieces)
    if not isinstance(found, Tracer):
        _check_numbers("found", found, "parts", parts, more=1)
    flat = (*objects.shape[:-2], -1)
    true = jax.nn.one_hot(objects.reshape(flat) - 1, pieces)  # background has no row
    part = jax.nn.one_hot(found.reshape(flat), parts)
    known = (objects >= 0) & (objects <= pieces) & (found >= 0) & (found < parts)
    counts = jnp.einsum("...pi,...pj->...ij", true, part, precision="highest")
    pairs = lambda n: n * (n - 1) / 2  # noqa: E731
    both = jnp.sum(pairs(counts), axis=(-2, -1))
    rows, columns = (jnp.sum(pairs(jnp.sum(counts, axis=axis)), axis=-1) for axis in (-1, -2))
    expected = rows * columns / jnp.maximum(pairs(jnp.sum(counts, axis=(-2, -1))), 1)
    spread = (rows + columns) / 2 - expected
    # Nothing to tell apart in either partition: they agree.
    index = jnp.where(spread > 0, (both - expected) / jnp.where(spread > 0, spread, 1), 1.0)
    return jnp.where(jnp.all(known, axis=(-2, -1)), index, jnp.nan)


def _check_numbers(name: str, given: Any, limit: str, value: int, *, more: int = 0) -> None:
    """Refuses numbers of pixels that have no row: they would be left out of the count."""
    numbers = np.asarray(given)
    if not numbers.size:
        return
    least, most = int(numbers.min()), int(numbers.max())
    if least < 0:
        raise InvalidRequest(f"{name} holds {least}: expected numbers from 0")
    if most + more > value:
        raise InvalidRequest(
            f"{name} holds {most}, which {limit}={value} leaves no place for: use "
            f"{limit}={most + more} or more"
        )
