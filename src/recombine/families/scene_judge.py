"""Reads an image back: what stands in each cell, and whether that is what was asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from recombine.errors import InvalidRequest
from recombine.families._family import Content
from recombine.families.scenes import Scenes

# How far from its template a cell may be (squared distance): this share of the template's own
# distance from the empty cell. Half a glyph is at 0.5, and a large square of 8 pixels two pixels
# off its place at 0.6. An empty cell is held to the distance of the faintest glyph.
NEAR = 0.25
# How far towards any other template it may be, on the way from its own (0) to the other (1).
ASTRAY = 0.4

UNREADABLE = -1
UNKNOWN = -1


class Verdicts(NamedTuple):
    """What a judge saw in each image."""

    scene: Bool[Array, "image"]  # whether it shows a combination of the family, well drawn
    layout: Int[Array, "image cell"]  # the template of each cell; 0 empty, -1 unreadable
    present: Int[Array, "image module"]  # how often each concept is there; -1 unknown


def judge(family: Scenes, content: Content, images: Float[Array, "image pixel"]) -> Verdicts:
    """Reads images of a family, row by row and clipped to [-1, 1]. Works inside `jax.jit`.

    Every cell is compared with every template. It is read as the nearest if it is near enough
    (`NEAR`) and clearly on its side of each other one (`ASTRAY`); otherwise it is unreadable. An
    image is a scene if it shows one combination of the family and nothing else: all cells
    readable, and for slots exactly one object, for pairs exactly one in each half, for sets
    between one and `active` glyphs, each a module of this content and none twice. In cells of up
    to 16 pixels no glyph is read two pixels off its place; in larger ones a quarter of a cell off.

    `present` counts, for sets, the readable copies of each module's glyph. For slots and pairs it
    marks the value read of each factor, and is -1 for every value of a factor that cannot be read:
    none or several objects where there should be one, or an unreadable one (a lone unreadable
    object still stands in its quadrant).

    >>> import jax
    >>> family = Scenes(shows="pairs", size=16, cells=2)
    >>> content = family.content(jax.random.key(0))
    >>> chosen = family.space.indicator([1234])
    >>> layout = family.layout(content, jnp.asarray(chosen, jnp.float32), jax.random.key(1))
    >>> whole, _ = right(family, judge(family, content, family.render(content, layout)), chosen)
    >>> bool(whole[0])
    True
    """
    _check_images(family, images)
    layout = read(family, content, images)
    if family.shows == "sets":
        return _judge_set(family, content, layout)
    places = jnp.zeros(family.cells**2, jnp.int32)
    if family.shows == "pairs":
        places = jnp.asarray(family.halves())
    parts, good = [], jnp.all(layout != UNREADABLE, axis=1)
    for part in range(2 if family.shows == "pairs" else 1):
        there = (layout != 0) & (places == part)
        single = jnp.sum(there, axis=1) == 1
        template = jnp.sum(jnp.where(there, layout, 0), axis=1)
        readable = single & (template > 0)
        good = good & readable
        number = template - 1
        parts.append((number // family.colours % family.shapes, readable, family.shapes))
        parts.append((number % family.colours, readable, family.colours))
        if family.shows == "slots":
            size = number // (family.colours * family.shapes)
            quadrant = jnp.asarray(family.quadrants())[jnp.argmax(there, axis=1)]
            parts += [(size, readable, family.sizes), (quadrant, single, 4)]
    present = [
        jnp.where(known[:, None], (value[:, None] == jnp.arange(levels)).astype(jnp.int32), UNKNOWN)
        for value, known, levels in parts
    ]
    return Verdicts(good, layout, jnp.concatenate(present, axis=1))


def right(
    family: Scenes, verdicts: Verdicts, chosen: Bool[Array, "image module"] | np.ndarray
) -> tuple[Bool[Array, "image"], Bool[Array, "image module"]]:
    """Whether each image shows exactly what was asked for, and whether each concept is right.

    A concept is right if it is there once and was asked for, or is not there and was not; one that
    cannot be read is wrong. A whole image is right if it is a scene and all of them are.
    """
    if chosen.shape != verdicts.present.shape:
        raise InvalidRequest(
            f"chosen has shape {tuple(chosen.shape)}: {type(family).__name__} of "
            f"{family.modules} modules and these verdicts need {tuple(verdicts.present.shape)}, a "
            "row of modules for each image"
        )
    concepts = verdicts.present == jnp.asarray(chosen).astype(jnp.int32)
    return verdicts.scene & jnp.all(concepts, axis=1), concepts


def read(
    family: Scenes, content: Content, images: Float[Array, "image pixel"]
) -> Int[Array, "image cell"]:
    """The template of each cell, row by row; 0 is empty and -1 unreadable."""
    n, p = family.cells, family.cell
    # What is not a number stays none, so that nothing is near it.
    seen = jnp.where(jnp.isfinite(images), jnp.clip(images, -1.0, 1.0), jnp.nan)
    tiles = seen.reshape(-1, n, p, n, p, 3).swapaxes(2, 3).reshape(len(images), n * n, p * p * 3)
    bank = content["templates"]
    light, bank = tiles - bank[0], bank - bank[0]  # measured from the empty cell
    with jax.default_matmul_precision("highest"):
        energy = jnp.sum(bank**2, axis=1)
        apart = energy[:, None] + energy - 2 * bank @ bank.T
        away = jnp.sum(light**2, axis=-1, keepdims=True) + energy - 2 * light @ bank.T
    nearest = jnp.argmin(away, axis=-1)
    least = jnp.min(away, axis=-1)
    scale = energy.at[0].set(jnp.min(energy[1:]))
    near = least <= NEAR * scale[nearest]
    # The way towards another template is (1 - (its distance - the least) / their distance) / 2.
    clear = away - least[..., None] >= (1 - 2 * ASTRAY) * apart[nearest]
    own = nearest[..., None] == jnp.arange(len(bank))
    return jnp.where(near & jnp.all(clear | own, axis=-1), nearest, UNREADABLE).astype(jnp.int32)


def _judge_set(family: Scenes, content: Content, layout: Int[Array, "image cell"]) -> Verdicts:
    copies = layout[:, :, None] == content["glyphs"]
    present = jnp.sum(copies, axis=1, dtype=jnp.int32)
    known = jnp.all((layout == 0) | jnp.any(copies, axis=2), axis=1)
    shown = jnp.sum(present, axis=1)
    scene = known & jnp.all(present <= 1, axis=1) & (shown >= 1) & (shown <= family.active)
    return Verdicts(scene, layout, present)


def _check_images(family: Scenes, images: Any) -> None:
    shape = tuple(images.shape)
    if len(shape) != 2 or shape[1] != family.pixels:
        side = f"{family.size} x {family.size} x 3"
        raise InvalidRequest(
            f"images of shape {shape}: expected (images, {family.pixels}), {side} numbers a row; "
            f"use images.reshape(-1, {family.pixels})"
        )
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise InvalidRequest(
            f"images of type {images.dtype}: expected floating-point numbers from -1 (black) to 1; "
            "bytes become such by images / 127.5 - 1"
        )
    if isinstance(images, Tracer):
        return  # inside jit nobody can look; what is not finite is unreadable there
    bad = ~np.all(np.isfinite(np.asarray(images)), axis=1)
    if bad.any():
        raise InvalidRequest(
            f"image {int(np.argmax(bad))} holds numbers that are not finite ({int(bad.sum())} of "
            f"{len(bad)} images do): leave such images out, and count them as wrong"
        )
