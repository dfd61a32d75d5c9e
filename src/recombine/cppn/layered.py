"""The layered network: what gradient descent trains, and what a genome becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.cppn.architecture import Architecture
from recombine.cppn.functions import activate, colour
from recombine.cppn.graph import coordinates
from recombine.errors import InvalidRequest
from recombine.models.layers import Linear


class LayeredCPPN(eqx.Module):
    """Coordinates to colours through layers of mixed activations, without biases.

    >>> shape = Architecture.parse("2;cache:3,gaussian:2")
    >>> model = LayeredCPPN.draw(jax.random.key(0), shape)
    >>> model(jnp.asarray(coordinates(8), jnp.float32)).shape
    (64, 3)
    """

    hidden: tuple[Linear, ...]
    last: Linear
    architecture: Architecture = eqx.field(static=True)

    @staticmethod
    def draw(key: PRNGKeyArray, architecture: Architecture) -> LayeredCPPN:
        """LeCun's normal weights."""
        shapes = architecture.shapes
        keys = jax.random.split(key, len(shapes))
        *hidden, last = (
            Linear.draw(one, *shape, bias=False) for one, shape in zip(keys, shapes, strict=True)
        )
        return LayeredCPPN(tuple(hidden), last, architecture)

    @staticmethod
    def of(
        architecture: Architecture,
        matrices: Sequence[Float[np.ndarray, "in out"]],
        dtype: DTypeLike = jnp.float32,
    ) -> LayeredCPPN:
        """The network with these matrices, such as `layerise` gives.

        In `float64`, which takes `jax.enable_x64(True)`, it draws what the graph does to 1e-9.
        """
        given = tuple(matrix.shape for matrix in matrices)
        if given != architecture.shapes:
            raise InvalidRequest(
                f"matrices of shapes {given} for {architecture}: expected {architecture.shapes}"
            )
        *hidden, last = (Linear(jnp.asarray(one, dtype), None) for one in matrices)
        return LayeredCPPN(tuple(hidden), last, architecture)

    def features(self, inputs: Float[Array, "pixel 4"]) -> list[Float[Array, "pixel width"]]:
        """What every neuron of every hidden layer says of each pixel."""
        hidden = [layer.matrix for layer in self.hidden]
        return [layer.T for layer in _layers(self.architecture, hidden, inputs.T)]

    def __call__(self, inputs: Float[Array, "pixel 4"]) -> Float[Array, "pixel 3"]:
        """The colour of each pixel, in RGB from 0 to 1."""
        matrices = [layer.matrix for layer in (*self.hidden, self.last)]
        return _colours(self.architecture, matrices, inputs.T)

    def maps(self, size: int) -> list[Float[np.ndarray, "width size size"]]:
        """The hidden layers as pictures, one a neuron."""
        found = _features(self, jnp.asarray(coordinates(size), self.last.matrix.dtype))
        return [np.asarray(one).T.reshape(-1, size, size) for one in found]

    def flat(self) -> Float[Array, "weight"]:
        """All weights, as they are used, laid end to end."""
        return jnp.concatenate([layer.matrix.ravel() for layer in (*self.hidden, self.last)])

    def matrices(self) -> list[Float[np.ndarray, "in out"]]:
        """The matrices as they are used, the last one included."""
        return [np.asarray(layer.matrix) for layer in (*self.hidden, self.last)]


@eqx.filter_jit
def _features(model: LayeredCPPN, inputs: Float[Array, "pixel 4"]) -> list[Array]:
    return model.features(inputs)


# Pixels run along the last axis in here: with so few neurons a layer this is three times as fast
# on a CPU as the usual order.


def _layers(
    architecture: Architecture,
    matrices: Sequence[Float[Array, "in out"]],
    x: Float[Array, "4 pixel"],
) -> list[Float[Array, "width pixel"]]:
    starts, found = architecture.starts(), []
    for matrix in matrices:
        z = jnp.dot(matrix.T, x, precision="highest")
        x = jnp.concatenate(
            [
                activate(name, z[starts[name] : starts[name] + count], jnp)
                for name, count in architecture.blocks
            ]
        )
        found.append(x)
    return found


def _colours(
    architecture: Architecture,
    matrices: Sequence[Float[Array, "in out"]],
    x: Float[Array, "4 pixel"],
) -> Float[Array, "pixel 3"]:
    *hidden, last = matrices
    features = _layers(architecture, hidden, x)[-1]
    return colour(*jnp.dot(last.T, features, precision="highest"), xp=jnp)


@dataclass(frozen=True)
class Renderer:
    """Draws the picture of a vector of weights; equal renderers share a compiled program.

    >>> shape = Architecture.parse("2;cache:3,gaussian:2")
    >>> Renderer(shape, 8)(LayeredCPPN.draw(jax.random.key(0), shape).flat()).shape
    (8, 8, 3)
    """

    architecture: Architecture
    size: int

    def __call__(self, weights: Float[Array, "weight"]) -> Float[Array, "size size 3"]:
        matrices, at = [], 0
        for rows, columns in self.architecture.shapes:
            matrices.append(weights[at : at + rows * columns].reshape(rows, columns))
            at += rows * columns
        inputs = jnp.asarray(coordinates(self.size).T, weights.dtype)
        return _colours(self.architecture, matrices, inputs).reshape(self.size, self.size, 3)
