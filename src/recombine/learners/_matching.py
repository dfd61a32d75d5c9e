"""Sets against sets: which reported thing is meant for which object, at the lowest cost."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recombine.families.objects import Scene
from recombine.models.layers import FULL

MOST_MATCHED = 6  # 720 orders are tried; more would be too many


def parts(
    report: Float[Array, "*batch slot feature"], colours: int
) -> tuple[Float[Array, "*batch slot colour"], Float[Array, "*batch slot shape"], Array]:
    """How the numbers of a report are laid out: colours, shapes, and whether it is there."""
    return report[..., :colours], report[..., colours:-1], report[..., -1]


@functools.cache
def orders(count: int) -> Float[np.ndarray, "order slot object"]:
    """Every way to give each of `count` slots an object of its own, as matrices of 0 and 1."""
    every = np.array(list(itertools.permutations(range(count))))
    return np.eye(count, dtype=np.float32)[every]


def cheapest(
    cost: Float[Array, "*batch slot object"],
) -> Float[Array, "*batch slot object"]:
    """The assignment of slots to objects with the lowest total cost, by trying all orders."""
    count = cost.shape[-1]
    every = jnp.asarray(orders(count))
    flat = cost.reshape(*cost.shape[:-2], count * count)
    totals = jnp.dot(flat, every.reshape(-1, count * count).T, precision="highest")
    return every[jnp.argmin(totals, axis=-1)]


def set_loss(
    report: Float[Array, "item slot feature"], scene: Scene, colours: int
) -> Float[Array, "item"]:
    """Cross-entropies of colour, shape and presence under the cheapest assignment, by slot.

    Slots beyond the number of objects are to say that nothing is there.
    """
    slots = report.shape[-2]
    colour, shape, there = parts(report, colours)
    tint, form, real = (_fitted(part, slots) for part in scene)
    log_colour, log_shape = jax.nn.log_softmax(colour), jax.nn.log_softmax(shape)
    # Products with indicators: the gradient of a gather would be a slow scatter.
    hot_colour = jax.nn.one_hot(tint, colour.shape[-1])
    hot_shape = jax.nn.one_hot(form, shape.shape[-1])
    wrong = -jnp.einsum("bsc,boc->bso", log_colour, hot_colour, precision="highest")
    wrong -= jnp.einsum("bsf,bof->bso", log_shape, hot_shape, precision="highest")
    is_real = real[:, None, :].astype(FULL)
    presence = jax.nn.softplus(there)[..., None] - there[..., None] * is_real
    cost = presence + wrong * is_real
    chosen = cheapest(jax.lax.stop_gradient(cost))
    return jnp.sum(cost * chosen, axis=(-2, -1)) / slots


def _fitted(part: Array, slots: int) -> Array:
    """The first objects of a list, as many as there are slots; missing ones are not there."""
    more = max(0, slots - part.shape[-1])
    return jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, more)])[..., :slots]


def found_in(
    report: Float[Array, "item slot feature"], question: Float[Array, "item feature"], colours: int
) -> Float[Array, "item"]:
    """How much more likely than not one of the things reported is the one asked for (log odds).

    A slot holds it with the product of what it says of its presence, its colour and its shape, and
    slots are taken to be independent.
    """
    colour, shape, there = parts(report, colours)
    asked_colour, asked_shape = question[:, None, :colours], question[:, None, colours:]
    likely = jax.nn.log_sigmoid(there)
    likely += jnp.sum(jax.nn.log_softmax(colour) * asked_colour, axis=-1)
    likely += jnp.sum(jax.nn.log_softmax(shape) * asked_shape, axis=-1)
    # Kept from certainty, where odds would not be finite.
    absent = jnp.sum(jnp.log1p(-jnp.minimum(jnp.exp(likely), 1 - 1e-6)), axis=-1)
    return jnp.log1p(-jnp.exp(jnp.minimum(absent, -1e-6))) - absent


def decided(
    report: Float[Array, "item slot feature"], colours: int
) -> tuple[Int[Array, "item slot"], Int[Array, "item slot"], Bool[Array, "item slot"]]:
    """The colour and shape that every slot reports, and whether it reports anything."""
    colour, shape, there = parts(report, colours)
    return jnp.argmax(colour, axis=-1), jnp.argmax(shape, axis=-1), there > 0


def counted(
    colour: Int[Array, "item thing"], shape: Int[Array, "item thing"],
    there: Bool[Array, "item thing"], colours: int, shapes: int,
) -> Int[Array, "item colour shape"]:  # fmt: skip
    """How often each pair is in a list of things."""
    hot = jax.nn.one_hot(colour, colours, dtype=jnp.int32)[..., :, None]
    pairs = hot * jax.nn.one_hot(shape, shapes, dtype=jnp.int32)[..., None, :]
    return jnp.sum(pairs * there[..., None, None], axis=-3)
