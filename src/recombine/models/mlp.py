"""The multilayer perceptron, told its task through a code beside each input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.errors import InvalidRequest
from recombine.models._model import Model, Network, Setting
from recombine.models.layers import FULL, Linear
from recombine.trees import next_bucket

WIDTH_BUCKETS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


@dataclass(frozen=True)
class MLP(Model):
    """A spec: `depth` hidden layers of `width` units with ReLU, and a linear output.

    >>> MLP(width=1024, depth=4).parameters(code=16, inputs=16, outputs=16)
    3198992
    """

    version: ClassVar[int] = 1

    width: int = 256
    depth: int = 4

    def __post_init__(self):
        if self.width < 1 or self.depth < 1:
            raise InvalidRequest(
                f"an MLP needs width and depth of at least 1, got {self.width} and {self.depth}"
            )

    @property
    def layers(self) -> int:
        return self.depth

    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        w = self.width
        return (code + inputs + 1) * w + (self.depth - 1) * (w + 1) * w + (w + 1) * outputs

    def bucket(self) -> MLP:
        return replace(self, width=next_bucket(self.width, WIDTH_BUCKETS))

    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> MLPModel:  # fmt: skip
        keys = jax.random.split(key, self.depth + 2)
        fan_in = code + inputs
        first = FirstLayer(
            task=Linear.draw(keys[0], code, self.width, bias=False, fan_in=fan_in),
            input=Linear.draw(keys[1], inputs, self.width, fan_in=fan_in),
        )
        hidden = tuple(Linear.draw(k, self.width, self.width) for k in keys[2 : self.depth + 1])
        return MLPModel(first, hidden, Linear.draw(keys[-1], self.width, outputs))


class FirstLayer(eqx.Module):
    """One matrix over [code, input], multiplied as two: the code once per task, not per sample."""

    task: Linear
    input: Linear

    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype,
    ) -> Float[Array, "*task sample width"]:
        return self.input(x, dtype) + self.task(code, dtype)[..., None, :]


class MLPModel(Network):
    """A drawn, trained or written-down MLP; its layers may differ in width."""

    embeddings: ClassVar[tuple[str, ...]] = ("first/task",)

    first: FirstLayer
    hidden: tuple[Linear, ...]
    output: Linear

    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:
        h = jax.nn.relu(self.first(code, x, dtype))
        for layer in self.hidden:
            h = jax.nn.relu(layer(h, dtype))
        return self.output(h, dtype).astype(jnp.float32)

    def activations(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> dict[str, Float[Array, "*task sample width"]]:
        h = self.first(code, x, FULL)
        seen = {"layer1/before": h}
        h = seen["layer1/after"] = jax.nn.relu(h)
        for number, layer in enumerate(self.hidden, start=2):
            seen[f"layer{number}/before"] = layer(h, FULL)
            h = seen[f"layer{number}/after"] = jax.nn.relu(seen[f"layer{number}/before"])
        seen["output"] = self.output(h, FULL)
        return seen

    def continue_from(
        self, layer: int, h: Float[Array, "*task place width"]
    ) -> Float[Array, "*task sample output"]:
        for following in self.hidden[layer - 1 :]:
            h = jax.nn.relu(following(h, FULL))
        return self.output(h, FULL)
