"""Scenes: small pictures of coloured shapes, to be drawn by a network from what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.checks import is_whole
from recombine.combinations import Slots, Space, Subsets
from recombine.errors import InvalidRequest, unknown
from recombine.families._factors import count_modules, listed
from recombine.families._family import Content
from recombine.families._flow import Flow as Flow
from recombine.families._flow import Generator
from recombine.families.glyphs import COLOURS, LEAST_CELL, SHAPES, SIZES, most_sizes, templates
from recombine.families.mazes import QUADRANTS

KINDS = ("sets", "slots", "pairs")
CANVASES = (16, 24, 32, 48, 64)
SIDES = ("left", "right")


@dataclass(frozen=True)
class Scenes(Generator):
    """Pictures of shapes on a grid of cells; a task says what to show, and chance where.

    A scene is a table of cells, each empty or with one glyph in its middle. "sets" shows up to
    `active` different glyphs, each in a cell of its own: a module is a shape in a colour, and which
    of all these are modules is drawn with the content. "slots" shows one object, with a value for
    shape, colour, size and quadrant. "pairs" shows one object in the left half and one in the
    right, each with its own shape and colour.

    Pixels go from -1 (black) to 1, row by row, three channels each. `judge` (in `scene_judge`)
    reads an image back.

    >>> family = Scenes(shows="slots")
    >>> family.space.size, family.modules, family.sentence((4, 2, 0, 1))
    (512, 22, 'a small blue ring in the upper right part')
    """

    modules: int = 0  # 0: 16 for sets; otherwise counted from the factors
    active: int = 0  # 0: 3 for sets; otherwise counted
    shows: Literal["sets", "slots", "pairs"] = "sets"
    size: int = 32
    cells: int = 4
    shapes: int = 8
    colours: int = 8
    sizes: int = 0  # 0: 2 for slots, 1 for other kinds

    def __post_init__(self):
        if self.shows not in KINDS:
            raise unknown("value of shows", str(self.shows), KINDS)
        self._check_canvas()
        for name, bound in (("shapes", len(SHAPES)), ("colours", len(COLOURS))):
            value = getattr(self, name)
            if not is_whole(value) or not 1 <= value <= bound:
                raise InvalidRequest(f"{name}={value!r}: expected a whole number from 1 to {bound}")
        self._check_sizes()
        if self.shows == "sets":
            self._check_sets()
            return
        count_modules(self, self.space, self._levels)

    def _check_canvas(self) -> None:
        if self.size not in CANVASES:
            raise InvalidRequest(f"size={self.size!r}: scenes are {listed(CANVASES)} pixels wide")
        even = self.shows != "sets"
        fitting = tuple(
            n for n in range(1, self.size // LEAST_CELL + 1)
            if self.size % n == 0 and not (even and n % 2)
        )  # fmt: skip
        if not is_whole(self.cells) or self.cells not in fitting:
            halves = ", and halves of a scene an even number" if even else ""
            raise InvalidRequest(
                f"cells={self.cells!r}: cells of size={self.size} must be a whole number of at "
                f"least {LEAST_CELL} pixels{halves}; use cells={listed(fitting)}"
            )

    def _check_sizes(self) -> None:
        most = most_sizes(self.cell) if self.shows == "slots" else 1
        if not is_whole(self.sizes) or not 0 <= self.sizes <= most:
            if self.shows != "slots":
                raise InvalidRequest(
                    f"sizes={self.sizes!r}: {self.shows} have glyphs of one size; use sizes=1, or "
                    "shows='slots'"
                )
            roomy = ", or cells of 12 pixels or more: size=32, cells=2" if self.sizes == 3 else ""
            raise InvalidRequest(
                f"sizes={self.sizes!r}: in cells of {self.cell} pixels {most} sizes can be told "
                f"apart; use sizes={most} or less{roomy}"
            )
        object.__setattr__(self, "sizes", self.sizes or min(most, 2))

    def _check_sets(self) -> None:
        glyphs = self.shapes * self.colours
        for name, usual in (("modules", min(16, glyphs)), ("active", 3)):
            if getattr(self, name) == 0 and is_whole(getattr(self, name)):
                object.__setattr__(self, name, usual)
        _ = self.space  # refuses numbers that are no sizes
        if self.modules > glyphs:
            raise InvalidRequest(
                f"modules={self.modules}: shapes={self.shapes} in colours={self.colours} are "
                f"{glyphs} glyphs; use modules={glyphs} or less"
            )
        if self.active > self.cells**2:
            raise InvalidRequest(
                f"active={self.active}: a scene of cells={self.cells} has room for "
                f"{self.cells**2} glyphs; use active={self.cells**2} or less"
            )

    @property
    def _levels(self) -> tuple[int, ...]:
        if self.shows == "slots":
            return (self.shapes, self.colours, self.sizes, len(QUADRANTS))
        return (self.shapes, self.colours) * 2

    @property
    def space(self) -> Space:
        if self.shows == "sets":
            return Subsets(self.modules, self.active)
        return Slots(self._levels)

    @property
    def cell(self) -> int:
        """Pixels along a side of a cell."""
        return self.size // self.cells

    @property
    def pixels(self) -> int:
        """Numbers in one image."""
        return self.size**2 * 3

    def symmetries(self) -> tuple[str, ...]:
        return {
            "sets": ("permute modules",),
            "slots": ("permute shapes", "permute colours"),
            "pairs": ("permute shapes", "permute colours", "swap sides"),
        }[self.shows]

    def content(self, key: PRNGKeyArray) -> Content:
        """The templates of all glyphs and, for sets, which of them are modules, ascending."""
        bank = jnp.asarray(templates(self.cell, self.shapes, self.colours, self.sizes))
        if self.shows != "sets":
            return {"templates": bank}
        drawn = jax.random.permutation(key, self.shapes * self.colours)[: self.modules]
        return {"templates": bank, "glyphs": 1 + jnp.sort(drawn).astype(jnp.int32)}

    def latent(self, key: PRNGKeyArray, chosen: Bool[Array, "module"]) -> Float[Array, "module"]:
        return chosen.astype(jnp.float32)

    def layout(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> Int[Array, "task cell"]:
        """A fresh scene of each task: the template of every cell, row by row; 0 is empty."""
        if self.shows == "sets":
            return self._scatter(content, latents, key)
        values = self.values(latents)
        if self.shows == "slots":
            shape, colour, size, quadrant = values
            stands = self._stand(key, self.quadrants() == quadrant[:, None])
            return jnp.where(stands, self.template(shape, colour, size)[:, None], 0)
        left, right = self.template(*values[:2]), self.template(*values[2:])
        keys, on_right = jax.random.split(key), jnp.asarray(self.halves() == 1)
        places = [jnp.broadcast_to(half, (len(left), half.size)) for half in (~on_right, on_right)]
        first, second = (self._stand(*pair) for pair in zip(keys, places, strict=True))
        return jnp.where(first, left[:, None], jnp.where(second, right[:, None], 0))

    def _scatter(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> Int[Array, "task cell"]:
        chosen = latents > 0
        turn = jnp.where(chosen, jnp.cumsum(chosen, axis=1) - 1, -1)  # the first glyph is 0, ...
        # Sorting noise is a random order of the cells; equal numbers keep theirs, so no cell is
        # taken twice.
        order = jnp.argsort(jax.random.uniform(key, (len(latents), self.cells**2)), axis=1)
        taken = turn[:, None, :] == order[:, :, None]
        return jnp.sum(jnp.where(taken, content["glyphs"], 0), axis=2, dtype=jnp.int32)

    def _stand(
        self, key: PRNGKeyArray, among: Bool[Array, "task cell"]
    ) -> Bool[Array, "task cell"]:
        """Marks one cell of those it may be, uniformly."""
        noise = jnp.where(among, jax.random.uniform(key, among.shape), -1.0)
        return jnp.arange(among.shape[1]) == jnp.argmax(noise, axis=1)[:, None]

    def render(
        self, content: Content, layout: Int[Array, "*axes cell"]
    ) -> Float[Array, "*axes pixel"]:
        """The image of a layout."""
        n, p, axes = self.cells, self.cell, layout.shape[:-1]
        tiles = content["templates"][layout].reshape(*axes, n, n, p, p, 3)
        return jnp.swapaxes(tiles, -4, -3).reshape(*axes, self.pixels)

    def examples(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> Float[Array, "task pixel"]:
        return self.render(content, self.layout(content, latents, key))

    def template(
        self, shape: Int[Array, "*n"], colour: Int[Array, "*n"], size: Int[Array, "*n"] | int = 0
    ) -> Int[Array, "*n"]:
        """The number of a glyph's template."""
        return 1 + (size * self.shapes + shape) * self.colours + colour

    def values(self, latents: Float[Array, "task module"]) -> list[Int[Array, "task"]]:
        """The value of each factor of each task, for slots and pairs."""
        starts = np.cumsum(self._levels)[:-1].tolist()
        parts = jnp.split(latents, starts, axis=-1)
        return [jnp.argmax(part, axis=-1).astype(jnp.int32) for part in parts]

    def halves(self) -> Int[np.ndarray, "cell"]:
        """Which half each cell is in: 0 left, 1 right."""
        return (np.arange(self.cells**2) % self.cells >= self.cells // 2).astype(np.int32)

    def quadrants(self) -> Int[np.ndarray, "cell"]:
        """The number of the quadrant of each cell."""
        below = np.arange(self.cells**2) // self.cells >= self.cells // 2
        return 2 * below.astype(np.int32) + self.halves()

    def sentence(self, values: tuple[int, ...]) -> str:
        """A task of slots or pairs in English; all of a kind have the same number of words."""
        if self.shows == "sets":
            raise InvalidRequest("a set has no sentence of its own: use caption(chosen, content)")
        levels = self._levels
        if len(values) != len(levels) or not all(
            is_whole(v) and 0 <= v < n for v, n in zip(values, levels, strict=True)
        ):
            raise InvalidRequest(
                f"{tuple(values)} is no task: expected four numbers, each from 0 to below {levels}"
            )
        if self.shows == "slots":
            shape, colour, size, quadrant = values
            width = (SIZES[self.sizes][size],) if self.sizes > 1 else ()
            thing = _named(*width, list(COLOURS)[colour], list(SHAPES)[shape])
            return f"{thing} in the {QUADRANTS[quadrant]} part"
        one, other = (
            _named(list(COLOURS)[colour], list(SHAPES)[shape])
            for shape, colour in (values[:2], values[2:])
        )
        return f"{one} left of {other}"

    def phrases(self) -> tuple[str, ...]:
        """The glyph of each module of sets in two words, where all glyphs there are are modules."""
        glyphs = self.shapes * self.colours
        if self.shows == "sets" and self.modules < glyphs:
            raise InvalidRequest(
                f"which {self.modules} of {glyphs} glyphs are modules is drawn with the content, "
                f"so no words can be given beforehand: use modules={glyphs}, or fewer shapes and "
                "colours, or encoding identity"
            )
        return concepts(self)

    def caption(self, chosen: Bool[np.ndarray, "module"], content: Content | None = None) -> str:
        """What a scene of a combination shows, in words; sets need the content that drew them.

        >>> family = Scenes(shapes=4, colours=4)
        >>> family.caption(request(family, ["red disc", "yellow cross", "blue square"]))
        'a red disc, a blue square and a yellow cross'
        """
        members = np.flatnonzero(np.asarray(chosen))
        rank = int(self.space.rank(members[None])[0])  # refuses what is no combination
        if isinstance(self.space, Slots):
            return self.sentence(tuple(self.space.values([rank])[0].tolist()))
        *some, last = (_named(concepts(self, content)[module]) for module in members)
        return f"{', '.join(some)} and {last}" if some else last


def concepts(family: Scenes, content: Content | None = None) -> tuple[str, ...]:
    """Every module in words. Which glyphs the modules of sets are is in the content, unless every
    glyph there is is one.

    >>> concepts(Scenes(shows="pairs", shapes=2, colours=1))
    ('left shape disc', 'left shape square', 'left colour red', 'right shape disc', \
'right shape square', 'right colour red')
    """
    shapes, colours = list(SHAPES)[: family.shapes], list(COLOURS)[: family.colours]
    if family.shows == "sets":
        glyphs = [f"{colour} {shape}" for shape in shapes for colour in colours]
        if content is not None:
            return tuple(glyphs[number - 1] for number in np.asarray(content["glyphs"]).tolist())
        if family.modules == len(glyphs):
            return tuple(glyphs)
        raise InvalidRequest(
            f"which {family.modules} of {len(glyphs)} glyphs are the modules is drawn with the "
            "content: pass it, as in concepts(family, content)"
        )
    things = [("shape", shapes), ("colour", colours)]
    if family.shows == "slots":
        factors = [*things, ("size", SIZES[family.sizes]), ("quadrant", QUADRANTS)]
    else:
        factors = [(f"{side} {name}", names) for side in SIDES for name, names in things]
    return tuple(f"{factor} {name}" for factor, names in factors for name in names)


def request(
    family: Scenes, names: Sequence[str | int], content: Content | None = None
) -> Bool[np.ndarray, "module"]:
    """The combination of some concepts, by their words or numbers.

    >>> request(Scenes(modules=4, active=2, shapes=2, colours=2), ["green disc", 3]).tolist()
    [False, True, False, True]
    """
    chosen = np.zeros(family.modules, bool)
    for name in names:
        if isinstance(name, str):
            words = concepts(family, content)
            if name not in words:
                raise unknown("concept", name, words)
            chosen[words.index(name)] = True
        elif is_whole(name) and 0 <= name < family.modules:
            chosen[name] = True
        else:
            raise InvalidRequest(
                f"concept {name!r}: expected a number from 0 to {family.modules - 1}, or words"
            )
    family.space.rank(np.flatnonzero(chosen)[None])  # refuses what is no combination
    return chosen


def _named(*words: str) -> str:
    return f"{'an' if words[0][0] in 'aeiou' else 'a'} {' '.join(words)}"
