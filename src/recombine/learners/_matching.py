"""Sets against sets: which reported thing is meant for which object, at the lowest cost."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recombine.families.objects import Scene
from recombine.models.layers import FULL

MOST_MATCHED = 12  # 2 ** 12 subsets are gone through; many more would be too many


def parts(
    report: Float[Array, "*batch slot feature"], colours: int
) -> tuple[Float[Array, "*batch slot colour"], Float[Array, "*batch slot shape"], Array]:
    """How the numbers of a report are laid out: colours, shapes, and whether it is there."""
    return report[..., :colours], report[..., colours:-1], report[..., -1]


class Layer(NamedTuple):
    """All subsets of one size: the objects of each, and which subset is left without each."""

    member: Int[np.ndarray, "subset member"]
    without: Int[np.ndarray, "subset member"]


@functools.cache
def layers(count: int) -> tuple[Layer, ...]:
    """The subsets of `count` objects, from those of one object to the one of all."""
    found: list[Layer] = []
    places: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, count + 1):
        subsets = list(itertools.combinations(range(count), size))
        without = [[places[s[:n] + s[n + 1 :]] for n in range(size)] for s in subsets]
        found.append(Layer(np.array(subsets), np.array(without)))
        places = {subset: place for place, subset in enumerate(subsets)}
    return tuple(found)


def cheapest(
    cost: Float[Array, "*batch slot object"],
) -> Float[Array, "*batch slot object"]:
    """The assignment of slots to objects with the lowest total cost, exactly.

    The cheapest way to give a subset of k objects to the first k slots ends with one of them for
    slot k, and with the cheapest way for the others: n 2^(n-1) sums instead of n! orders.
    Source: Held and Karp, "A dynamic programming approach to sequencing problems" (1962).
    """
    count = cost.shape[-1]
    totals, ends = jnp.zeros((*cost.shape[:-2], 1), cost.dtype), []
    for slot, layer in enumerate(layers(count)):
        every = totals[..., layer.without] + cost[..., slot, layer.member]
        totals = jnp.min(every, axis=-1)
        ends.append(jnp.argmin(every, axis=-1))
    subset, given = jnp.zeros(cost.shape[:-2], jnp.int32), []
    for layer, end in zip(reversed(layers(count)), reversed(ends), strict=True):
        last = jnp.take_along_axis(end, subset[..., None], axis=-1)[..., 0]
        given.append(jnp.asarray(layer.member)[subset, last])
        subset = jnp.asarray(layer.without)[subset, last].astype(jnp.int32)
    return jax.nn.one_hot(jnp.stack(given[::-1], axis=-1), count, dtype=cost.dtype)


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
