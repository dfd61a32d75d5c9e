"""Pictures of rings and discs: one inside the other, in contact, or so many of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.checks import is_whole
from recombine.errors import InvalidRequest, unknown
from recombine.families._odd import Change, OddFamily, Symmetric, Tables

LEAST_SIDE = 32  # below, two discs that touch look like two that do not
INK = 0.25  # how much of a pixel must be covered to count as drawn
ROUND = 1.12  # the longest diameter of a silhouette against that of a disc of its area
CHANNELS = 3
PAIRS = 4  # that a picture shows at most
FACTS = ("inside", "contact", "count")  # that pictures can be asked about


class Sizes(NamedTuple):
    """Of the pairs of a kind of picture, in 32nds of the side."""

    first: Any  # radius of the ring, or of the first disc: least and largest
    second: Any  # radius of the second disc, or its share of the first
    share: Any  # whether it is one
    stroke: Any  # of the ring; 0 where the first is a disc
    apart: Any  # gap between two that do not touch
    margin: Any  # between a pair and the edge of its cell
    cells: Any  # along a side


# Two that touch overlap by half a pixel, two that do not are two pixels apart, or as far as the
# room in a cell allows where contact is not what counts.
SIZES = {
    "inside-contact": Sizes((6.4, 8.8), (0.25, 0.4), True, 1.25, (2.0, 5.0), 1.0, 1),
    "inside-count": Sizes((4.5, 4.8), (1.2, 1.5), False, 1.0, (1.25, 1.85), 0.75, 2),
    "count-contact": Sizes((2.0, 2.6), (1.6, 2.2), False, 0.0, (2.0, 3.0), 1.0, 2),
}
OVERLAP = 0.5


@dataclass(frozen=True)
class PicturesOdd(OddFamily):
    """Pictures of pairs, in colours by chance: a ring and a disc, or two discs.

    "inside": each disc lies in its ring, or outside; "contact": the two of a pair touch, or are
    apart; "count": there are as many pairs as in the other items, two or three in a problem (one
    more or less breaks it). `pair` names a, then b; what is not named is fixed: pairs of
    "inside-count" never touch, those of "count-contact" are discs beside each other, and
    "inside-contact" shows a single pair. Numbers say how much ink of each of three colours is on a
    pixel, row by row; bare paper is 0.

    >>> PicturesOdd("inside-count").rules
    ('inside', 'count')
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "pictures"
    categorical: ClassVar[bool] = False

    pair: Literal["inside-contact", "inside-count", "count-contact"] = "inside-contact"
    side: int = 32

    def check(self) -> None:
        if self.pair not in SIZES:
            raise unknown("pair", str(self.pair), SIZES)
        if not is_whole(self.side) or self.side < LEAST_SIDE or self.side % 2:
            raise InvalidRequest(
                f"side={self.side!r}: expected an even number of pixels of at least {LEAST_SIDE}"
            )

    @property
    def rules(self) -> tuple[str, str]:
        first, second = self.pair.split("-")
        return first, second

    @property
    def in_company(self) -> tuple[str, ...]:
        return tuple(rule for rule in self.rules if rule == "count")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.side, self.side, CHANNELS)

    def kind(self) -> PicturesOdd:
        return replace(self, pair=PicturesOdd.pair)

    def tables(self) -> Tables:
        sizes = SIZES[self.pair]._asdict()
        asked = [self.rules.index(fact) if fact in self.rules else 2 for fact in FACTS]
        return {
            **{name: np.array(value, np.float32) for name, value in sizes.items()},
            "asked": np.array(asked, np.int32),  # which rule each fact is; 2 for neither
        }

    def items(
        self, key: PRNGKeyArray, a: Bool[Array, "problem item"], b: Bool[Array, "problem item"],
        tables: Tables,
    ) -> Float[Array, "problem item size"]:  # fmt: skip
        count_key, cell_key, pair_key = jax.random.split(key, 3)
        truth = jnp.stack([a, b, jnp.zeros(a.shape, bool)])
        inside, contact, as_many = (truth[which] for which in jnp.asarray(tables["asked"]))
        order = jnp.argsort(jax.random.uniform(cell_key, (*a.shape, PAIRS)), axis=-1)
        number = counts(count_key, as_many)[..., None]
        alone = jnp.arange(PAIRS) == 0
        shown = jnp.where(jnp.asarray(tables["asked"])[2] < 2, order < number, alone)
        sizes = Sizes(**{name: jnp.asarray(tables[name]) for name in Sizes._fields})
        return self._drawn(pair_key, inside, contact, shown, sizes).reshape(*a.shape, -1)

    def _drawn(
        self, key: PRNGKeyArray, inside: Bool[Array, "problem item"],
        contact: Bool[Array, "problem item"], shown: Bool[Array, "problem item pair"],
        sizes: Sizes,
    ) -> Float[Array, "problem item row column channel"]:  # fmt: skip
        """Every pair in a cell of its own, at a random place and turn."""
        keys = jax.random.split(key, 6)
        inside, contact = inside[..., None], contact[..., None]

        def between(key: PRNGKeyArray, bounds: Any) -> Array:
            low, high = bounds
            return low + (high - low) * jax.random.uniform(key, shown.shape)

        first, second = between(keys[0], sizes.first), between(keys[1], sizes.second)
        second = jnp.where(sizes.share > 0, first * second, second)
        hole = first - sizes.stroke
        gap_key, turn_key = jax.random.split(keys[2])
        room = hole - second - sizes.apart[0]
        # The root makes every place in the ring as likely.
        within = jnp.where(
            contact, hole - second + OVERLAP, room * jnp.sqrt(between(gap_key, (0, 1)))
        )
        beside = first + second + jnp.where(contact, -OVERLAP, between(gap_key, sizes.apart))
        turn = between(turn_key, (0, 2 * math.pi))
        along = jnp.stack([jnp.cos(turn), jnp.sin(turn)], axis=-1)
        along = along * jnp.where(inside, within, beside)[..., None]
        low = jnp.minimum(-first[..., None], along - second[..., None])
        high = jnp.maximum(first[..., None], along + second[..., None])
        cell = 32 / sizes.cells
        free = jax.random.uniform(keys[3], low.shape) * (cell - 2 * sizes.margin - (high - low))
        corner = cell * jnp.stack(jnp.divmod(jnp.arange(PAIRS), 2), axis=-1)
        place = corner + sizes.margin - low + free
        ring = jnp.where(sizes.stroke > 0, hole, -1.0)
        hues = jax.random.uniform(keys[4], (2, *shown.shape))

        def marks(of_first: Array, of_second: Array) -> Array:
            """Those of every pair one after the other, in the order in which they are painted."""
            both = jnp.stack([of_first, of_second], axis=3)
            return jnp.moveaxis(both.reshape(*both.shape[:2], 2 * PAIRS, *both.shape[4:]), 2, 0)

        def paint(ink: Array, mark: tuple[Array, ...]) -> tuple[Array, None]:
            centre, radius, hollow, there, colour = mark
            covered = coverage(centre, radius, hollow, self.side) * there[..., None, None]
            painted = covered[..., None] * colour[..., None, None, :]
            return ink * (1 - covered[..., None]) + painted, None

        scale = self.side / 32
        paper = jnp.zeros((*inside.shape[:-1], self.side, self.side, CHANNELS))
        ink, _ = jax.lax.scan(
            paint, paper,
            (marks(place, place + along) * scale, marks(first, second) * scale,
             marks(ring, jnp.full_like(ring, -1.0)) * scale, marks(shown, shown),
             marks(*vivid(hues))),
        )  # fmt: skip
        return ink

    def symmetries(self, rng: np.random.Generator) -> dict[str, Symmetric]:
        """Mirrored, or turned about the diagonal: of a whole picture nothing stays where it was."""

        def seen(turn: Callable[[np.ndarray], np.ndarray]) -> Change:
            def change(items: np.ndarray) -> np.ndarray:
                pictures = items.reshape(-1, *self.item_shape)
                return turn(pictures).reshape(items.shape)

            return change

        another = seen(lambda p: np.roll(p, 1, axis=0))
        return {
            "left-right": Symmetric(seen(lambda p: p[:, :, ::-1]), another),
            "up-down": Symmetric(seen(lambda p: p[:, ::-1]), another),
            "diagonal": Symmetric(seen(lambda p: p.swapaxes(1, 2)), another),
        }

    def satisfied(
        self, items: Float[np.ndarray, "*problem item size"]
    ) -> tuple[Bool[np.ndarray, "*problem item"], Bool[np.ndarray, "*problem item"]]:
        """Read off the pixels; a count is right if most items of the problem have it."""
        items = np.asarray(items)
        flat = items.reshape(-1, *self.item_shape).max(axis=-1) > INK
        seen = [look(one, SIZES[self.pair].cells) for one in flat]
        inside, contact, pairs = (
            np.array(one).reshape(items.shape[:-1]) for one in zip(*seen, strict=True)
        )
        usual = [np.bincount(row).argmax() for row in pairs.reshape(-1, items.shape[-2])]
        right = pairs == np.reshape(usual, (*items.shape[:-2], 1))
        found = {"inside": inside, "contact": contact, "count": right}
        first, second = (found[name] for name in self.rules)
        return first, second


def counts(key: PRNGKeyArray, right: Bool[Array, "problem item"]) -> Int[Array, "problem item"]:
    """How many pairs each item shows: the problem's number, or one more or less."""
    number_key, change_key = jax.random.split(key)
    number = jax.random.randint(number_key, (right.shape[0], 1), 2, 4)
    change = 2 * jax.random.bernoulli(change_key, 0.5, right.shape).astype(jnp.int32) - 1
    return number + jnp.where(right, 0, change)


def coverage(
    centre: Float[Array, "*axes 2"], radius: Float[Array, "*axes"], hole: Float[Array, "*axes"],
    width: int,
) -> Float[Array, "*axes row column"]:  # fmt: skip
    """How much of each pixel of a square lies in a ring (a disc, where the hole is negative)."""
    middle = jnp.arange(width) + 0.5
    x = middle[None, :] - centre[..., 0, None, None]
    y = middle[:, None] - centre[..., 1, None, None]
    away = jnp.sqrt(x * x + y * y)
    beyond = jnp.maximum(away - radius[..., None, None], hole[..., None, None] - away)
    return jnp.clip(0.5 - beyond, 0, 1)


def vivid(hue: Float[Array, "*axes"]) -> Float[Array, "*axes channel"]:
    """Ink of a hue from 0 to 1: all of one colour, none of another."""
    turned = (6 * hue[..., None] + 2 * jnp.arange(CHANNELS)) % 6
    return jnp.clip(jnp.abs(turned - 3) - 1, 0, 1)


class Seen(NamedTuple):
    """What a picture shows."""

    inside: bool
    contact: bool
    pairs: int


def look(drawn: Bool[np.ndarray, "row column"], cells: int) -> Seen:
    """What is inside, in contact, and how many pairs there are, from the drawn pixels."""
    width = len(drawn) // cells
    tiles = [
        drawn[i : i + width, j : j + width]
        for i in range(0, len(drawn), width)
        for j in range(0, len(drawn), width)
    ]
    used = [tile for tile in tiles if tile.any()]
    return Seen(
        all(_round(tile) for tile in used),
        all(_pieces(tile) == 1 for tile in used),
        len(used),
    )


def _pieces(drawn: Bool[np.ndarray, "row column"]) -> int:
    from scipy import ndimage

    labels: Any = ndimage.label(drawn, np.ones((3, 3)))[0]  # pyright: ignore[reportIndexIssue]
    return int(labels.max())


def _round(drawn: Bool[np.ndarray, "row column"]) -> bool:
    """Whether the silhouette, with holes filled, is that of one disc."""
    from scipy import ndimage
    from scipy.spatial.distance import pdist

    places = np.argwhere(np.asarray(ndimage.binary_fill_holes(drawn)))
    longest = pdist(places).max(initial=0) + 1
    return bool(longest < ROUND * math.sqrt(4 * len(places) / math.pi))
