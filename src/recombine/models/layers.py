"""The one layer class every matrix lives in, the wrappers that can be put on it, and norms."""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.trees import path_name, truncated_normal

FULL = jnp.dtype("float32")
EPSILON = 1e-6  # of LayerNorm


class Wrapper(eqx.Module):
    """Changes the matrix a layer multiplies by: a mask, an added low-rank term, new factors."""

    @abc.abstractmethod
    def __call__(self, weight: Float[Array, "in out"]) -> Float[Array, "in out"]:
        """The matrix to use instead of `weight`."""


class Mask(Wrapper):
    """Keeps the entries where `keep` is one (or a share of them, while it is being learnt)."""

    keep: Float[Array, "in out"]

    def __call__(self, weight: Float[Array, "in out"]) -> Float[Array, "in out"]:
        return weight * self.keep


class LowRank(Wrapper):
    """Adds `down @ up`: a small trainable correction to a frozen matrix."""

    down: Float[Array, "in rank"]
    up: Float[Array, "rank out"]

    def __call__(self, weight: Float[Array, "in out"]) -> Float[Array, "in out"]:
        return weight + self.down @ self.up


class Linear(eqx.Module):
    """x W + b, with an optional wrapper on W; works on the last axis.

    The product runs in `dtype` (bfloat16 for students on a GPU) while the stored weights, and so
    the optimiser, stay in float32.
    """

    weight: Float[Array, "in out"]
    bias: Float[Array, "out"] | None
    wrapper: Wrapper | None = None

    @staticmethod
    def draw(
        key: PRNGKeyArray, ins: int, outs: int, *, bias: bool = True, fan_in: int | None = None
    ) -> Linear:
        """LeCun's truncated normal of variance 1/fan_in, and a zero bias."""
        weight = truncated_normal(key, (ins, outs), 1 / (fan_in or ins))
        return Linear(weight, jnp.zeros(outs) if bias else None)

    @property
    def matrix(self) -> Float[Array, "in out"]:
        return self.weight if self.wrapper is None else self.wrapper(self.weight)

    def __call__(
        self, x: Float[Array, "*batch in"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*batch out"]:
        precision = "highest" if dtype == FULL else None
        # Rows flattened to one axis: XLA's CPU product is a quarter slower on more.
        rows = x.reshape(-1, x.shape[-1]).astype(dtype)
        y = jnp.dot(rows, self.matrix.astype(dtype), precision=precision)
        y = y if self.bias is None else y + self.bias.astype(dtype)
        return y.reshape(*x.shape[:-1], y.shape[-1])


def xavier(key: PRNGKeyArray, ins: int, outs: int) -> Linear:
    """Glorot and Bengio's uniform law of variance 2 / (ins + outs), without a bias."""
    bound = math.sqrt(6 / (ins + outs))
    return Linear(jax.random.uniform(key, (ins, outs), minval=-bound, maxval=bound), None)


class LayerNorm(eqx.Module):
    """Centres and scales the last axis, in float32."""

    scale: Float[Array, "width"]
    bias: Float[Array, "width"] | None

    @staticmethod
    def draw(width: int, *, bias: bool = False) -> LayerNorm:
        return LayerNorm(jnp.ones(width), jnp.zeros(width) if bias else None)

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        y = normed(x.astype(FULL)) * self.scale
        return y if self.bias is None else y + self.bias


def normed(x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
    """The last axis with mean 0 and variance 1."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    # Both moments in one pass over x: a second pass costs a quarter of a GPU's training step.
    variance = jnp.mean(x * x, axis=-1, keepdims=True) - mean * mean
    return (x - mean) * jax.lax.rsqrt(jnp.maximum(variance, 0.0) + EPSILON)


def named_layers(model: eqx.Module) -> dict[str, Linear]:
    """Every matrix of a model by its path, such as `first/task` or `hidden/0`."""
    found = jax.tree_util.tree_flatten_with_path(
        model, is_leaf=lambda node: isinstance(node, Linear)
    )[0]
    return {path_name(path): node for path, node in found if isinstance(node, Linear)}


def wrap(model: eqx.Module, wrappers: dict[str, Wrapper]) -> eqx.Module:
    """The model with wrappers put on the layers at the named paths."""
    known = named_layers(model)
    for path in wrappers:
        if path not in known:
            from recombine.errors import unknown

            raise unknown("layer", path, known)

    def put(path, node):
        wrapper = wrappers.get(path_name(path)) if isinstance(node, Linear) else None
        return node if wrapper is None else Linear(node.weight, node.bias, wrapper)

    return jax.tree_util.tree_map_with_path(
        put, model, is_leaf=lambda node: isinstance(node, Linear)
    )


def count_parameters(model: eqx.Module) -> int:
    """How many numbers training may change."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model))
