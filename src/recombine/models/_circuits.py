"""Pieces of ReLU networks whose weights can be written down: squares, products, look-up tables.

A layer is written as `Forms` over the units below it; its ReLU is understood. Values that are
never negative pass a ReLU unchanged, which is how layers carry them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

CHORDS_OF_A_TOOTH = 4  # what the first layer of a sawtooth does: cut [-2, 2] into four


class Forms(NamedTuple):
    """Numbers that are affine in the units below: units @ matrix + offset."""

    matrix: Float[Array, "below n"]
    offset: Float[Array, "n"]

    @property
    def width(self) -> int:
        return self.offset.shape[0]

    def into(self, weight: Float[Array, "n k"]) -> Forms:
        """Sums of these numbers, one for each column of weights."""
        return Forms(self.matrix @ weight, self.offset @ weight)

    def repeated(self, times: int) -> Forms:
        """Each number `times` times, copies side by side."""
        return Forms(jnp.repeat(self.matrix, times, axis=1), jnp.repeat(self.offset, times))

    def plus(self, other: Forms, sign: float = 1.0) -> Forms:
        return Forms(self.matrix + sign * other.matrix, self.offset + sign * other.offset)

    def shifted(self, by: float) -> Forms:
        return Forms(self.matrix, self.offset + by)

    def among(self, before: int, after: int) -> Forms:
        """The same numbers, where other units lie before and after those they are made of."""
        return Forms(jnp.pad(self.matrix, ((before, after), (0, 0))), self.offset)


def themselves(count: int) -> Forms:
    """The units themselves."""
    return Forms(jnp.eye(count), jnp.zeros(count))


def join(*parts: Forms) -> Forms:
    """Numbers of the same units, side by side."""
    return Forms(
        jnp.concatenate([part.matrix for part in parts], axis=1),
        jnp.concatenate([part.offset for part in parts]),
    )


def beside(left: Forms, right: Forms) -> Forms:
    """Numbers of two groups of units that lie side by side."""
    return join(left.among(0, right.matrix.shape[0]), right.among(left.matrix.shape[0], 0))


class Squares(NamedTuple):
    """Layers that square numbers in [-2, 2]: above them, u^2 = units of u @ heights + constant.

    The units of each square are neighbours; what is carried comes after all of them. The constant
    is the same for every square and cancels in products.
    """

    layers: list[Forms]
    heights: Float[Array, "unit"]

    def sums(self, weight: Float[Array, "square k"], carried: Float[Array, "rest k"]) -> Forms:
        """Weighted sums of the squares, and of what was carried."""
        of_units = weight[:, None, :] * self.heights[None, :, None]
        matrix = jnp.concatenate([of_units.reshape(-1, weight.shape[1]), carried])
        return Forms(matrix, jnp.zeros(weight.shape[1]))


def chords(segments: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interpolates u^2 on [-2, 2] by equal segments: sum of height * relu(side * u - knot).

    Every unit looks away from zero, so that nothing large has to cancel, as it would in a sum of
    ramps that all start at -2. The error, up to a constant, lies in [0, 4 / segments^2].
    """
    if segments % 2:
        knots = (2 * np.arange(segments // 2) + 1) * 2 / segments
    else:
        knots = np.arange(segments // 2) * 4 / segments
    # The slope changes by 8/n at every knot; at 0 two units share one change.
    heights = np.where(knots == 0, 4 / segments, 8 / segments)
    sides = np.tile([1.0, -1.0], len(knots))
    both = (sides, np.repeat(knots, 2), np.repeat(heights, 2))
    return tuple(part.astype(np.float32) for part in both)  # pyright: ignore[reportReturnType]


def chord_units(segments: int) -> int:
    """How many units `chords` needs."""
    return segments - segments % 2


def square_by_segments(u: Forms, carried: Forms, segments: int) -> Squares:
    """Squares in one layer of about `segments` units each."""
    sides, knots, heights = (jnp.asarray(part) for part in chords(segments))
    matrix = (u.matrix[:, :, None] * sides).reshape(u.matrix.shape[0], -1)
    offset = (u.offset[:, None] * sides - knots).reshape(-1)
    return Squares([join(Forms(matrix, offset), carried)], heights)


def square_by_sawtooth(u: Forms, carried: Forms, squarings: int) -> Squares:
    """Squares in `squarings` layers of three units each (four in the first), after Yarotsky.

    On [0, 2] the tooth G(v) = 2 relu(v) - 4 relu(v - 1) folded s times has 2^(s-1) teeth, and
    u^2 = 2|u| - 2 sum_s G_s(|u|) / 4^s: m terms interpolate on 2^(m+1) segments. A layer holds
    the sum so far (never below u^2, so it passes its ReLU), v and v - 1.
    """
    layers, heights = square_by_segments(u, carried, CHORDS_OF_A_TOOTH)
    count, kept = u.width, carried.width
    # From the units of four chords, relu(u), relu(-u), relu(u - 1), relu(-u - 1): the first fold.
    fold = jnp.asarray([2.0, 2.0, -4.0, -4.0])
    block = jnp.stack([heights, fold, fold], axis=1)
    for terms in range(2, squarings + 1):
        knots = jnp.tile(jnp.asarray([0.0, 0.0, -1.0]), count)
        layers.append(beside(Forms(jnp.kron(jnp.eye(count), block), knots), themselves(kept)))
        fold = jnp.asarray([0.0, 2.0, -4.0])
        heights = jnp.asarray([1.0, 0.0, 0.0]) - 2 * fold / 4.0**terms
        block = jnp.stack([heights, fold, fold], axis=1)
    return Squares(layers, heights)


def polarised(p: Forms, q: Forms) -> Forms:
    """The arguments of the squares whose difference is a product: 4pq = (p+q)^2 - (p-q)^2."""
    return join(p.plus(q), p.plus(q, -1.0))


def product_weights(gains: Float[Array, "product k"]) -> Float[Array, "square k"]:
    """Weights of the squares of `polarised` that give sums of products, `gains` of each."""
    return jnp.concatenate([gains, -gains]) / 4


def look_up(
    codes: Float[Array, "value"], values: Float[Array, "value"], modules: int
) -> tuple[Forms, Forms]:
    """For each module, the value that belongs to its code, by straight lines between codes.

    Gives the units (all but one of the codes have one in each module) and the values over them.
    """
    order = jnp.argsort(codes)
    codes, values = codes[order], values[order]
    slopes = jnp.diff(values) / jnp.diff(codes)
    bends = jnp.diff(slopes, prepend=jnp.zeros(1))
    knots = codes[:-1]
    units = themselves(modules).repeated(knots.shape[0])
    units = Forms(units.matrix, -jnp.tile(knots, modules))
    found = Forms(jnp.kron(jnp.eye(modules), bends[:, None]), jnp.full(modules, values[0]))
    return units, found
