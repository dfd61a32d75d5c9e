"""What families share whose tasks say what to make, learned by flow matching."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.families._family import Content, Family, total


class Flow(NamedTuple):
    """An example, the noise it is mixed with, and how far the mixture is on its way to it."""

    image: Float[Array, "*axes pixel"]
    noise: Float[Array, "*axes pixel"]
    time: Float[Array, "*axes"]


@dataclass(frozen=True)
class Generator(Family):
    """A family whose tasks have examples rather than answers.

    A network sees a mixture of an example with noise, and the time, and answers with the velocity
    from noise to example. Times are logit-normal. Inputs hold the example itself, so that right
    answers follow from them alone: what a task changes is which examples there are.
    """

    metric: ClassVar[str] = "velocity R²"

    @property
    @abc.abstractmethod
    def pixels(self) -> int:
        """Numbers in one example."""

    @abc.abstractmethod
    def examples(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> Float[Array, "task pixel"]:
        """A fresh example of each task."""

    @property
    def input_size(self) -> int:
        return self.pixels + 1

    @property
    def output_size(self) -> int:
        return self.pixels

    def draw(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray,
        samples: int,
    ) -> tuple[Flow, Float[Array, "task sample output"]]:  # fmt: skip
        what, off, when = jax.random.split(key, 3)
        axes = (latents.shape[0], samples)
        image = self.examples(content, jnp.repeat(latents, samples, axis=0), what)
        image = image.reshape(*axes, self.pixels)
        noise = jax.random.normal(off, image.shape)
        time = jax.nn.sigmoid(jax.random.normal(when, axes))
        return Flow(image, noise, time), image - noise

    def targets(
        self, content: Content, latent: Float[Array, "module"], inputs: Flow
    ) -> Float[Array, "sample output"]:
        """The velocity from noise to example, whatever the task."""
        return inputs.image - inputs.noise

    def observe(self, content: Content, inputs: Flow) -> Float[Array, "*axes input"]:
        time = inputs.time[..., None]
        mixed = (1 - time) * inputs.noise + time * inputs.image
        return jnp.concatenate([mixed, time], axis=-1)

    def loss(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> Float[Array, ""]:
        """The mean squared error."""
        return jnp.mean((answers - targets) ** 2)

    def score(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> dict[str, Float[Array, ""]]:
        """The mean squared error, and that of answering 0 (`variance`)."""
        return {"error": jnp.mean((answers - targets) ** 2), "variance": jnp.mean(targets**2)}

    def summary(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        """How much of the velocity is explained. Even the best answer stays below 1: in a mixture
        near the noise nobody can tell which example it will become."""
        return {"": 1 - total(scores["error"]) / total(scores["variance"])}

    def demonstrations(
        self, content: Content, latent: Float[Array, "module"], key: PRNGKeyArray, shots: int
    ) -> tuple[Float[Array, "shot seen"], Float[Array, "shot answered"]]:
        """Other examples of the task. They say it all, so what was answered has no numbers."""
        repeated = jnp.broadcast_to(latent, (shots, *latent.shape))
        return self.examples(content, repeated, key), jnp.zeros((shots, 0))

    @property
    def demonstration_size(self) -> int:
        return self.pixels
