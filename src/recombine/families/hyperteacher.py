"""The hyperteacher: a small network whose weights are a weighted sum of module weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.combinations import NO_RANK, Slots, Space, Subsets, subset_count
from recombine.errors import InvalidRequest, unknown
from recombine.families._family import Content, Regression
from recombine.trees import next_bucket, truncated_normal

WEIGHT_LAWS = ("discrete", "khot", "continuous")


@dataclass(frozen=True)
class Hyperteacher(Regression):
    """A teacher network composed from modules: f_z(x) = Omega^T relu(W(z)^T x + b(z)).

    W(z) = sum_m z'_m Theta_m and b(z) = sum_m z'_m beta_m with z' = z / sqrt(K), where K is the
    family's `active`, not the number of modules in this task. `hidden` may name several layers,
    each with its own bank of modules, all composed with the same z. With `levels` a task takes
    one module from each of several banks (one value per factor) instead of any few of all. Source:
    Redhardt, Akram and Schug, "Scaling can lead to compositional generalization" (2025).

    >>> Hyperteacher(modules=16, active=3).space.size
    696
    >>> Hyperteacher(modules=9, active=3, levels=(2, 3, 4)).space.size
    24
    """

    version: ClassVar[int] = 1

    input_units: int = 16
    hidden: tuple[int, ...] = (16,)
    output_units: int = 16
    weights: Literal["discrete", "khot", "continuous"] = "discrete"
    scale: float = math.sqrt(3)
    levels: tuple[int, ...] = ()

    def __post_init__(self):
        if self.levels and (sum(self.levels), len(self.levels)) != (self.modules, self.active):
            raise InvalidRequest(
                f"levels={self.levels} make {sum(self.levels)} modules, {len(self.levels)} at a "
                f"time, but modules={self.modules} and active={self.active} were given: use "
                f"modules={sum(self.levels)}, active={len(self.levels)}"
            )
        if self.weights not in WEIGHT_LAWS:
            raise unknown("weight law", self.weights, WEIGHT_LAWS)
        if not self.hidden or min(self.input_units, self.output_units, *self.hidden) < 1:
            raise InvalidRequest(
                f"a teacher needs sizes of at least 1, got input_units={self.input_units}, "
                f"hidden={self.hidden}, output_units={self.output_units}"
            )

    @property
    def space(self) -> Space:
        return Slots(self.levels) if self.levels else Subsets(self.modules, self.active)

    @property
    def input_size(self) -> int:
        return self.input_units

    @property
    def output_size(self) -> int:
        return self.output_units

    def content(self, key: PRNGKeyArray) -> Content:
        drawn: Content = {"shrink": jnp.float32(1 / math.sqrt(self.active))}
        fan_in = self.input_units
        for layer, width in enumerate(self.hidden):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, layer))
            shape = (self.modules, fan_in, width)
            drawn[f"theta{layer}"] = truncated_normal(weight_key, shape, self.scale / fan_in)
            drawn[f"beta{layer}"] = jax.random.uniform(bias_key, (self.modules, width), maxval=0.5)
            fan_in = width
        omega_key = jax.random.fold_in(key, len(self.hidden))
        drawn["omega"] = truncated_normal(
            omega_key, (fan_in, self.output_units), self.scale / fan_in
        )
        return drawn

    def latent(self, key: PRNGKeyArray, chosen: Bool[Array, "module"]) -> Float[Array, "module"]:
        return weigh(key, chosen, self.weights)

    def inputs(self, key: PRNGKeyArray, samples: int) -> Float[Array, "sample input"]:
        return jax.random.uniform(key, (samples, self.input_units), minval=-1.0)

    def targets(
        self, content: Content, latent: Float[Array, "module"], inputs: Float[Array, "sample input"]
    ) -> Float[Array, "sample output"]:
        # Full precision always: on a GPU a default "float32" product is rounded to TF32, and the
        # student would be measured against a blurred teacher.
        with jax.default_matmul_precision("highest"):
            shrunk = latent * content["shrink"]
            hidden = inputs
            for layer in range(len(self.hidden)):
                weight = jnp.tensordot(shrunk, content[f"theta{layer}"], axes=1)
                bias = shrunk @ content[f"beta{layer}"]
                hidden = jax.nn.relu(hidden @ weight + bias)
            return hidden @ content["omega"]

    def bucket(self) -> Hyperteacher:
        if self.levels:
            return self
        modules, active = bucket_sizes(self.modules, self.active)
        return replace(self, modules=modules, active=active)


def weigh(
    key: PRNGKeyArray, chosen: Bool[Array, "module"], law: str = "discrete"
) -> Float[Array, "module"]:
    """A weight for each chosen module by one of the `WEIGHT_LAWS`, zero elsewhere."""
    if law == "khot":
        values = jnp.ones(chosen.shape)
    elif law == "discrete":
        values = 0.5 + 0.1 * jax.random.randint(key, chosen.shape, 0, 6).astype(jnp.float32)
    else:
        share = jnp.where(chosen, jax.random.exponential(key, chosen.shape), 0)
        values = 0.5 + 0.5 * share / (share.sum() + 1)
    return jnp.where(chosen, values, 0.0).astype(jnp.float32)


def bucket_sizes(modules: int, active: int) -> tuple[int, int]:
    """Padded numbers of modules and of active ones, so that cells of many sizes share programs."""
    wide, deep = next_bucket(modules, (16, 32, 64)), next_bucket(active, (4, 8))
    # Ranks are uint32: where the padded space would have too many combinations, pad less.
    sizes = ((wide, deep), (wide, active))
    fitting = (size for size in sizes if subset_count(*size) < NO_RANK)
    return next(fitting, (modules, active))
