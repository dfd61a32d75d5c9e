"""Encodings from which the task can be read off linearly."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.encodings._encoding import Encoding, Examples
from recombine.families._family import Content, Family


def tenths(latent: Float[Array, "module"]) -> Float[Array, "module"]:
    """Which interval of a tenth each weight lies in; 0.7 is seven tenths despite rounding."""
    return jnp.floor(10 * latent + 1e-4)


@dataclass(frozen=True)
class Identity(Encoding):
    """The latent itself."""

    def size(self, family: Family) -> int:
        return family.modules

    def content(self, family: Family, key: PRNGKeyArray) -> Content:
        return {}

    def encode(
        self, content: Content, latent: Float[Array, "module"], examples: Examples
    ) -> Float[Array, "code"]:
        return latent


@dataclass(frozen=True)
class Orthogonal(Encoding):
    """Q z with Q a random rotation or reflection (Haar)."""

    def size(self, family: Family) -> int:
        return family.modules

    def content(self, family: Family, key: PRNGKeyArray) -> Content:
        return {"rotation": jax.random.orthogonal(key, family.modules)}

    def encode(
        self, content: Content, latent: Float[Array, "module"], examples: Examples
    ) -> Float[Array, "code"]:
        with jax.default_matmul_precision("highest"):
            return content["rotation"] @ latent


@dataclass(frozen=True)
class Tokens(Encoding):
    """A sentence of numbers: for each module its name, then its weight in tenths ("language")."""

    def size(self, family: Family) -> int:
        return 2 * family.modules

    def content(self, family: Family, key: PRNGKeyArray) -> Content:
        return {
            "names": 1.0 + jnp.arange(family.modules, dtype=jnp.float32),
            "zero_weight": jnp.full(family.modules, family.modules + 1, jnp.float32),
        }

    def encode(
        self, content: Content, latent: Float[Array, "module"], examples: Examples
    ) -> Float[Array, "code"]:
        weights = content["zero_weight"] + tenths(latent)
        return jnp.stack([content["names"], weights], axis=1).reshape(-1)
