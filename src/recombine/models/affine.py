"""The linear baseline: what can be had from the code and the input without any hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.errors import NotApplicable
from recombine.models._model import Model, Network, Setting
from recombine.models.layers import FULL, Linear


@dataclass(frozen=True)
class Affine(Model):
    """A spec: answers = A [code, input] + b.

    It can never make a task change how an answer depends on the input, so what it scores is what
    a family gives away without any composition.

    >>> Affine().parameters(code=16, inputs=16, outputs=16)
    528
    """

    version: ClassVar[int] = 1

    @property
    def layers(self) -> int:
        return 0

    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        return (code + inputs + 1) * outputs

    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> AffineNetwork:  # fmt: skip
        task_key, input_key = jax.random.split(key)
        fan_in = code + inputs
        return AffineNetwork(
            task=Linear.draw(task_key, code, outputs, bias=False, fan_in=fan_in),
            input=Linear.draw(input_key, inputs, outputs, fan_in=fan_in),
        )


class AffineNetwork(Network):
    """One matrix over [code, input], multiplied as two: the code once per task, not per sample."""

    task: Linear
    input: Linear

    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:
        return (self.input(x, dtype) + self.task(code, dtype)[..., None, :]).astype(FULL)

    def activations(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> dict[str, Float[Array, "*task sample width"]]:
        return {"output": self(code, x)}

    def handed_on(
        self, layer: int, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> Float[Array, "*task place width"]:
        raise NotApplicable("an affine model has no hidden layer to look at")

    def continue_from(
        self, layer: int, h: Float[Array, "*task place width"]
    ) -> Float[Array, "*task sample output"]:
        raise NotApplicable("an affine model has no hidden layer to continue from")
