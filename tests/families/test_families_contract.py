"""Every registered family, and one written by a user, keeps the contract; broken ones are told why."""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from recombine._lazy import load
from recombine.errors import RecombineError
from recombine.families import REGISTRY, Family, Hyperteacher, Regression, check_family

pytestmark = pytest.mark.usefixtures("strict_types")


# A user's own family, complete: fewer than 30 lines.
@dataclass(frozen=True)
class Rescaling(Regression):
    """Each module is a vector; a task multiplies its input by the sum of its modules' vectors."""

    size: int = 4

    @property
    def input_size(self) -> int:
        return self.size

    @property
    def output_size(self) -> int:
        return self.size

    def content(self, key):
        return {"vectors": jax.random.normal(key, (self.modules, self.size))}

    def latent(self, key, chosen):
        return chosen.astype(jnp.float32)

    def inputs(self, key, samples):
        return jax.random.normal(key, (samples, self.size))

    def targets(self, content, latent, inputs):
        return inputs * (latent @ content["vectors"])


SLOW = ("goals", "preferences")  # they compile longest; make test-all runs them


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in sorted(REGISTRY)]
)
def test_a_registered_family_keeps_the_contract(name):
    check_family(load(REGISTRY[name])())


@pytest.mark.parametrize(
    "family",
    [
        Hyperteacher(modules=12, active=2, weights="continuous"),
        Hyperteacher(
            modules=5, active=3, weights="khot", input_units=3, hidden=(7,), output_units=2
        ),
        Hyperteacher(modules=20, active=5, hidden=(8, 6)),
        Hyperteacher(modules=9, active=3, levels=(2, 3, 4)),
    ],
    ids=lambda family: f"{family.modules}-{family.active}-{family.weights}",
)
def test_the_hyperteacher_keeps_it_at_other_sizes_and_laws(family):
    check_family(family)


def test_a_users_own_family_keeps_it():
    check_family(Rescaling(modules=6, active=2))


@dataclass(frozen=True)
class Grows(Rescaling):
    """Sums over all modules, so a padded module counts: the natural size is not in the content."""

    def targets(self, content, latent, inputs):
        return super().targets(content, latent, inputs) / self.modules

    def bucket(self):
        return replace(self, modules=16)


@dataclass(frozen=True)
class Deaf(Rescaling):
    def targets(self, content, latent, inputs):
        return inputs * content["vectors"][0]


@dataclass(frozen=True)
class Leaks(Rescaling):
    def latent(self, key, chosen):
        return jnp.where(chosen, 1.0, 0.1).astype(jnp.float32)


@dataclass(frozen=True)
class Branches(Rescaling):
    def latent(self, key, chosen):
        return chosen.astype(jnp.float32) * (2.0 if chosen[0] else 1.0)


@dataclass(frozen=True)
class Restless(Rescaling):
    draws: ClassVar[list[int]] = []

    def content(self, key):
        self.draws.append(1)
        return super().content(jax.random.key(len(self.draws)))


@dataclass(frozen=True)
class Flat(Rescaling):
    def targets(self, content, latent, inputs):
        return jnp.broadcast_to(latent @ content["vectors"], inputs.shape)


@dataclass(frozen=True)
class Whole(Rescaling):
    def observe(self, content, inputs):
        return inputs.astype(jnp.int32)


@dataclass(frozen=True)
class Listed(Rescaling):
    names: list[str] | None = None

    def __post_init__(self):
        object.__setattr__(self, "names", [])


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        (Grows(6, 2), "padding must be inert"),
        (Deaf(6, 2), "targets must depend on the latent"),
        (Leaks(6, 2), "zero outside the chosen modules"),
        (Branches(6, 2), "inside jax.jit and jax.vmap"),
        (Restless(6, 2), "same for the same key"),
        (Flat(6, 2), "does not vary over the inputs"),
        (Whole(6, 2), r"observations must have shape \(8, 16, 4\) and dtype float32"),
        (Listed(6, 2), "must be hashable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Family) else "",
)
def test_a_broken_family_is_told_what_is_wrong(family, sentence):
    with pytest.raises(RecombineError, match=sentence):
        check_family(family)
