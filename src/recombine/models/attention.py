"""Attention over tokens with places: rotary, relative or none; RMS norms and gated units."""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.models.layers import EPSILON, FULL, Linear, xavier
from recombine.models.transformer import ROPE_BASE

NEAR = 8  # distances that have a bias of their own on each side; farther ones share
FAR = 128  # from here on all distances share one
BUCKETS = 32  # half of them for what lies ahead


class RMSNorm(eqx.Module):
    """Scales the last axis to a root mean square of one, in float32."""

    scale: Float[Array, "width"]

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        x = x.astype(FULL)
        square = jnp.mean(x * x, axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(square + EPSILON) * self.scale


class View(NamedTuple):
    """What each token may look at, and where the two stand.

    Equal places in two sentences of one row are told apart by `allowed` alone.
    """

    allowed: Bool[Array, "*batch query key"]
    turned: tuple[Array, Array] | None = None  # cosines and sines of queries and keys
    turned_keys: tuple[Array, Array] | None = None
    apart: Int[Array, "*rows query key"] | None = None  # place of the query minus the key's
    counts: Float[Array, ""] | None = None  # 1 where distances count, 0 where they are off


Cache = tuple[Float[Array, "*batch head key dim"], Float[Array, "*batch head key dim"]]


def angles(places: Int[Array, "*batch token"], size: int) -> tuple[Array, Array]:
    """Cosine and sine of every rotary angle at given places; `size` numbers a head."""
    speeds = ROPE_BASE ** (-np.arange(size // 2) / (size // 2))
    turns = places[..., None].astype(FULL) * speeds.astype(FULL)
    turns = jnp.concatenate([turns, turns], axis=-1)[..., None, :, :]  # the same for all heads
    return jnp.cos(turns), jnp.sin(turns)


def turn(x: Float[Array, "*batch token dim"], by: tuple[Array, Array]) -> Array:
    half = x.shape[-1] // 2
    partner = jnp.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * by[0] + partner * by[1]


def bucket(apart: Int[Array, "*pair"]) -> Int[Array, "*pair"]:
    """Which bias two places share: every near distance its own, far ones by their logarithm."""
    ahead = apart < 0
    far = jnp.maximum(jnp.abs(apart), 1).astype(FULL)
    half = BUCKETS // 2
    logarithm = NEAR + jnp.log(far / NEAR) / math.log(FAR / NEAR) * (half - NEAR)
    place = jnp.where(jnp.abs(apart) < NEAR, jnp.abs(apart), logarithm.astype(jnp.int32))
    return jnp.minimum(place, half - 1) + half * ahead.astype(jnp.int32)


def for_each_row(shared: Array, shape: tuple[int, ...]) -> Array:
    """What rows share, broadcast; its gradient sums over the rows.

    On a CPU that sum strides through memory by a power of two, which its caches cannot hold: a
    product with ones takes a fiftieth of the time, which takes a seventh off a training step.
    """
    rows = math.prod(shape[: len(shape) - shared.ndim])
    if jax.default_backend() != "cpu":
        return jnp.broadcast_to(shared, shape)

    @jax.custom_vjp
    def spread(shared: Array) -> Array:
        return jnp.broadcast_to(shared, shape)

    def back(_: None, change: Array) -> tuple[Array]:
        total = jnp.dot(jnp.ones(rows), change.reshape(rows, -1), precision="highest")
        return (total.reshape(shared.shape),)

    spread.defvjp(lambda shared: (spread(shared), None), back)
    return jnp.asarray(spread(shared))


def _product(subscripts: str, *factors: Array) -> Array:
    """In the factors' own precision: float32 is meant as such, also where a GPU would round."""
    exactly = "highest" if factors[0].dtype == FULL else None
    return jnp.einsum(subscripts, *factors, precision=exactly)


@jax.custom_vjp
def mixture(
    scores: Float[Array, "*batch query key"], values: Float[Array, "*batch key dim"],
    allowed: Bool[Array, "*#batch query key"],
) -> Float[Array, "*batch query dim"]:  # fmt: skip
    """softmax(scores) values over the allowed keys; nothing where none is allowed.

    Divides by the sum once it has mixed, and keeps the exponentials in the precision of `values`
    for the way back: what passes over all pairs of tokens is most of what attention costs.
    """
    return _mixture(scores, values, allowed)[0]


def _mixture(scores: Array, values: Array, allowed: Array) -> tuple[Array, tuple[Array, ...]]:
    top = jnp.max(scores, axis=-1, keepdims=True, where=allowed, initial=-1e30)
    weights = jnp.where(allowed, jnp.exp(scores - top), 0.0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    share = 1 / jnp.where(total > 0, total, 1.0)
    # Without the barrier XLA sees what was rounded away, and keeps it in float32 as well.
    weights = jax.lax.optimization_barrier(weights.astype(values.dtype))
    mixed = (_product("...qk,...kd->...qd", weights, values) * share).astype(values.dtype)
    return mixed, (weights, share, values, mixed)


def _mixture_back(kept: tuple[Array, ...], change: Array) -> tuple[Array, Array, None]:
    """With p the softmax: dv = p^T do, ds = p (do v^T - do o)."""
    weights, share, values, mixed = kept
    of_values = _product("...qk,...qd->...kd", weights, (change * share).astype(values.dtype))
    along = jnp.sum(change.astype(FULL) * mixed.astype(FULL), axis=-1, keepdims=True)
    onto = _product("...qd,...kd->...qk", change, values).astype(FULL)
    return weights.astype(FULL) * share * (onto - along), of_values, None


mixture.defvjp(_mixture, _mixture_back)


class Attention(eqx.Module):
    """Heads that mix what the allowed tokens hold."""

    query: Linear
    key: Linear
    value: Linear
    merge: Linear
    nearness: Float[Array, "bucket head"] | None
    heads: int = eqx.field(static=True)

    @staticmethod
    def draw(key: PRNGKeyArray, width: int, heads: int, *, relative: bool) -> Attention:
        keys = jax.random.split(key, 4)
        return Attention(
            *(xavier(k, width, width) for k in keys),
            nearness=jnp.zeros((BUCKETS, heads)) if relative else None,
            heads=heads,
        )

    def by_head(self, layer: Linear, x: Array, dtype: jnp.dtype) -> Array:
        return jnp.swapaxes(layer(x, dtype).reshape(*x.shape[:-1], self.heads, -1), -3, -2)

    def keep(self, x: Float[Array, "*batch key width"], view: View, dtype: jnp.dtype) -> Cache:
        """Keys and values of tokens, to be looked at now or later."""
        keys = self.by_head(self.key, x, dtype)
        if view.turned_keys is not None:
            keys = turn(keys.astype(FULL), view.turned_keys).astype(dtype)
        return keys, self.by_head(self.value, x, dtype)

    def look(
        self, x: Float[Array, "*batch query width"], kept: Cache, view: View, dtype: jnp.dtype
    ) -> Float[Array, "*batch query width"]:
        query = self.by_head(self.query, x, dtype)
        if view.turned is not None:
            query = turn(query.astype(FULL), view.turned)
        query = (query * query.shape[-1] ** -0.5).astype(dtype)
        scores = _product("...qd,...kd->...qk", query, kept[0].astype(dtype)).astype(FULL)
        if self.nearness is not None and view.apart is not None:
            # A product with indicators: the gradient of a gather would be a slow scatter.
            nearness = self.nearness if view.counts is None else self.nearness * view.counts
            shared = jax.nn.one_hot(bucket(view.apart), BUCKETS) @ nearness
            scores = scores + for_each_row(jnp.moveaxis(shared, -1, -3), scores.shape)
        mixed = mixture(scores, kept[1].astype(dtype), view.allowed[..., None, :, :])
        return self.merge(jnp.swapaxes(mixed, -3, -2).reshape(x.shape), dtype).astype(FULL)

    def __call__(self, x: Array, view: View, dtype: jnp.dtype) -> Array:
        """Tokens that look at each other."""
        return self.look(x, self.keep(x, view, dtype), view, dtype)


class Gated(eqx.Module):
    """SwiGLU: (silu(x G) * x U) D."""

    gate: Linear
    up: Linear
    down: Linear

    @staticmethod
    def draw(key: PRNGKeyArray, width: int, hidden: int) -> Gated:
        keys = jax.random.split(key, 3)
        return Gated(
            xavier(keys[0], width, hidden), xavier(keys[1], width, hidden),
            xavier(keys[2], hidden, width),
        )  # fmt: skip

    def __call__(self, x: Array, dtype: jnp.dtype) -> Array:
        return self.down(jax.nn.silu(self.gate(x, dtype)) * self.up(x, dtype), dtype).astype(FULL)
