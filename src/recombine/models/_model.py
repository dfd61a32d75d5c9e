"""What every model provides: a spec that can be drawn, and a network that shows its insides."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.models.layers import FULL


class Setting(NamedTuple):
    """The world a network is drawn into; only a network that is written down looks at it."""

    family: Any
    encoding: Any
    content: dict[str, Array]  # of the family
    code: dict[str, Array]  # of the encoding


class Network(eqx.Module):
    """A drawn or trained network: from the code of each task and its inputs to the answers.

    Takes one task or a batch of them: flattening all samples into the rows of one product is
    what makes it fast, and a `vmap` over tasks would hide that from the compiler.
    """

    # Paths of matrices that only look up what a task is told to be: a row of them acts where its
    # module is present and nowhere else. Masks leave these out unless they are asked for.
    embeddings: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:
        """The answers, in float32; products run in `dtype`."""

    @abc.abstractmethod
    def activations(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> dict[str, Float[Array, "*task sample width"]]:
        """The vectors at every sample by layer (`layer1/before`, `layer1/after`, ..., `output`),
        at full precision."""

    def handed_on(
        self, layer: int, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> Float[Array, "*task place width"]:
        """All that hidden layer `layer` (1 is the first) hands on; the samples are its last
        places."""
        return self.activations(code, x)[f"layer{layer}/after"]

    @abc.abstractmethod
    def continue_from(
        self, layer: int, h: Float[Array, "*task place width"]
    ) -> Float[Array, "*task sample output"]:
        """The answers if hidden layer `layer` had handed on `h`."""


@dataclass(frozen=True)
class Model(abc.ABC):
    """A spec: the sizes of a network, and how its first weights are drawn."""

    version: ClassVar[int] = 1
    # Whether zero rows for padded modules are inert in it, so that cells of several M share a
    # program.
    pads: ClassVar[bool] = True
    # Whether its answer to a sample may depend on the samples before it.
    looks_back: ClassVar[bool] = False
    # The dtype of its products: "auto" for the device's rule, "float32" to demand that.
    precision: ClassVar[str] = "auto"

    @property
    @abc.abstractmethod
    def layers(self) -> int:
        """How many hidden layers it has."""

    def check(self, family: Any, encoding: Any) -> None:  # noqa: B027, most fit every family
        """Refuses a family or an encoding that this network cannot be drawn for."""

    @abc.abstractmethod
    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        """How many numbers training may change."""

    def bucket(self) -> Model:
        """The same model at padded sizes."""
        return self

    @abc.abstractmethod
    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> Network:  # fmt: skip
        """First weights."""
