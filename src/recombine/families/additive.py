"""The additive teacher: modules add their outputs, where the hyperteacher adds their weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.errors import InvalidRequest, unknown
from recombine.families._family import Content, Regression
from recombine.families.hyperteacher import WEIGHT_LAWS, bucket_sizes, weigh
from recombine.trees import truncated_normal


@dataclass(frozen=True)
class Additive(Regression):
    """A teacher that sums its modules' outputs: f_z(x) = sum_m z'_m Omega_m^T phi(x).

    phi(x) = relu(A^T x + b) are `features` that all modules share, and z' = z / sqrt(K) with K
    the family's `active`. Answers to a combination are weighted sums of answers to its modules,
    so this is the easy end of composition; the hyperteacher has a ReLU after its sum.

    >>> Additive(modules=16, active=3).space.size
    696
    """

    version: ClassVar[int] = 1

    input_units: int = 16
    features: int = 16
    output_units: int = 16
    weights: Literal["discrete", "khot", "continuous"] = "discrete"
    scale: float = math.sqrt(3)

    def __post_init__(self):
        if self.weights not in WEIGHT_LAWS:
            raise unknown("weight law", self.weights, WEIGHT_LAWS)
        if min(self.input_units, self.features, self.output_units) < 1:
            raise InvalidRequest(
                f"a teacher needs sizes of at least 1, got input_units={self.input_units}, "
                f"features={self.features}, output_units={self.output_units}"
            )

    @property
    def input_size(self) -> int:
        return self.input_units

    @property
    def output_size(self) -> int:
        return self.output_units

    def content(self, key: PRNGKeyArray) -> Content:
        feature_key, bias_key, omega_key = jax.random.split(key, 3)
        shape = (self.input_units, self.features)
        bank = (self.modules, self.features, self.output_units)
        return {
            "shrink": jnp.float32(1 / math.sqrt(self.active)),
            "features": truncated_normal(feature_key, shape, self.scale / self.input_units),
            "bias": jax.random.uniform(bias_key, (self.features,), maxval=0.5),
            "omega": truncated_normal(omega_key, bank, self.scale / self.features),
        }

    def latent(self, key: PRNGKeyArray, chosen: Bool[Array, "module"]) -> Float[Array, "module"]:
        return weigh(key, chosen, self.weights)

    def inputs(self, key: PRNGKeyArray, samples: int) -> Float[Array, "sample input"]:
        return jax.random.uniform(key, (samples, self.input_units), minval=-1.0)

    def targets(
        self, content: Content, latent: Float[Array, "module"], inputs: Float[Array, "sample input"]
    ) -> Float[Array, "sample output"]:
        # Full precision always, as the hyperteacher: a blurred teacher is not the one asked for.
        with jax.default_matmul_precision("highest"):
            features = jax.nn.relu(inputs @ content["features"] + content["bias"])
            return features @ jnp.tensordot(latent * content["shrink"], content["omega"], axes=1)

    def bucket(self) -> Additive:
        modules, active = bucket_sizes(self.modules, self.active)
        return replace(self, modules=modules, active=active)
