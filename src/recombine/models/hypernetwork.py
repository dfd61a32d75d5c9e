"""The linear hypernetwork: the code of a task is turned into the weights of a small network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.errors import InvalidRequest, NotApplicable
from recombine.models._model import Model, Network, Setting
from recombine.models.layers import FULL, LayerNorm, Linear


@dataclass(frozen=True)
class Hypernetwork(Model):
    """A spec: a normed code is mapped linearly to all weights of a ReLU network of `width` units.

    The generated matrices are divided by the root of their fan-in where they are used, so that
    the map itself may start at an ordinary scale.

    >>> Hypernetwork(width=1024).generated(inputs=16, outputs=16)
    33808
    >>> Hypernetwork(width=1024).parameters(code=16, inputs=16, outputs=16)
    574768
    """

    version: ClassVar[int] = 1
    pads: ClassVar[bool] = False  # the norm of a code counts its padding

    width: int = 1024

    def __post_init__(self):
        if self.width < 1:
            raise InvalidRequest(f"a hypernetwork needs a width of at least 1, got {self.width}")

    @property
    def layers(self) -> int:
        return 1

    def generated(self, inputs: int, outputs: int) -> int:
        """How many numbers a code is turned into."""
        return (inputs + 1) * self.width + (self.width + 1) * outputs

    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        return 2 * code + (code + 1) * self.generated(inputs, outputs)

    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> HypernetworkNetwork:  # fmt: skip
        w, keys = self.width, jax.random.split(key, 4)
        return HypernetworkNetwork(
            norm=LayerNorm.draw(code, bias=True),
            first=Linear.draw(keys[0], code, inputs * w),
            first_bias=Linear.draw(keys[1], code, w),
            second=Linear.draw(keys[2], code, w * outputs),
            second_bias=Linear.draw(keys[3], code, outputs),
        )


class Generated(NamedTuple):
    """The small network of each task."""

    first: Float[Array, "*task input width"]
    first_bias: Float[Array, "*task 1 width"]
    second: Float[Array, "*task width output"]
    second_bias: Float[Array, "*task 1 output"]


class HypernetworkNetwork(Network):
    """A drawn or trained hypernetwork: one matrix from codes to weights, kept in four parts."""

    norm: LayerNorm
    first: Linear
    first_bias: Linear
    second: Linear
    second_bias: Linear

    def generate(self, code: Float[Array, "*task code"], dtype: jnp.dtype = FULL) -> Generated:
        """The weights for each task, ready for use."""
        normed = self.norm(code).astype(dtype)
        width = self.first_bias.weight.shape[-1]
        tasks = code.shape[:-1]
        first = self.first(normed, dtype).reshape(*tasks, -1, width)
        second = self.second(normed, dtype).reshape(*tasks, width, -1)
        return Generated(
            first / math.sqrt(first.shape[-2]),
            self.first_bias(normed, dtype)[..., None, :],
            second / math.sqrt(width),
            self.second_bias(normed, dtype)[..., None, :],
        )

    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:
        made = self.generate(code, dtype)
        h = jax.nn.relu(_product(x.astype(dtype), made.first) + made.first_bias)
        return (_product(h, made.second) + made.second_bias).astype(FULL)

    def activations(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> dict[str, Float[Array, "*task sample width"]]:
        made = self.generate(code)
        before = _product(x, made.first) + made.first_bias
        after = jax.nn.relu(before)
        output = _product(after, made.second) + made.second_bias
        return {"layer1/before": before, "layer1/after": after, "output": output}

    def continue_from(
        self, layer: int, h: Float[Array, "*task place width"]
    ) -> Float[Array, "*task sample output"]:
        raise NotApplicable(
            "a hypernetwork generates its output layer from the code, so a hidden layer alone does "
            "not determine the answers"
        )


def _product(
    x: Float[Array, "*task sample in"], matrix: Float[Array, "*task in out"]
) -> Float[Array, "*task sample out"]:
    """One product per task, each with its own matrix."""
    precision = "highest" if matrix.dtype == FULL else None
    return jnp.einsum("...si,...io->...so", x, matrix, precision=precision)
