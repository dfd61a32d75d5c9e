"""What every family of tasks provides, and how its sizes are padded so that programs are shared."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.combinations import Space, Subsets

Content = dict[str, Array]
Inputs = Any  # a tree of arrays whose first axes are (task, sample): an array, or a world's states


@dataclass(frozen=True)
class Family(abc.ABC):
    """All tasks built from the same modules, as pure functions of (spec, key).

    A family draws its modules once (`content`), turns a combination into a task (`latent`), and
    draws examples of it. `modules` and `active` may be padded: module arrays get zero rows, which
    no latent uses.
    """

    version: ClassVar[int] = 1
    metric: ClassVar[str]  # what its score is called in figures
    # The sample at which probes look: the last one, unless a family says otherwise.
    probed: ClassVar[int] = -1

    modules: int = 16
    active: int = 3

    @property
    def space(self) -> Space:
        """Every combination the family has."""
        return Subsets(self.modules, self.active)

    def check(self) -> None:
        """Refuses sizes that cannot be, such as more modules at a time than there are."""
        _ = self.space

    @property
    def horizon(self) -> int:
        """How many samples belong together: the steps of an episode, or 1."""
        return 1

    @property
    @abc.abstractmethod
    def input_size(self) -> int:
        """Numbers a model sees of one sample."""

    @property
    @abc.abstractmethod
    def output_size(self) -> int:
        """Numbers in one target."""

    @abc.abstractmethod
    def content(self, key: PRNGKeyArray) -> Content:
        """Draws the modules. Arrays whose size depends on `modules` have it as first axis."""

    @abc.abstractmethod
    def latent(self, key: PRNGKeyArray, chosen: Bool[Array, "module"]) -> Float[Array, "module"]:
        """The task z of a combination: a weight for each chosen module, zero elsewhere."""

    @abc.abstractmethod
    def draw(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray,
        samples: int,
    ) -> tuple[Inputs, Float[Array, "task sample output"]]:  # fmt: skip
        """Fresh examples of a batch of tasks: inputs, as compact as they come, and targets."""

    @abc.abstractmethod
    def targets(
        self, content: Content, latent: Float[Array, "module"], inputs: Inputs
    ) -> Float[Array, "sample output"]:
        """The right answers of one task to given inputs."""

    @abc.abstractmethod
    def observe(self, content: Content, inputs: Inputs) -> Float[Array, "*axes input"]:
        """The numbers a model sees of inputs, whatever axes they have in front."""

    @abc.abstractmethod
    def loss(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> Float[Array, ""]:
        """What training lowers."""

    @abc.abstractmethod
    def score(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> dict[str, Float[Array, ""]]:
        """Per-task numbers: how much is wrong (`error`), of how much (`variance`), and others."""

    @abc.abstractmethod
    def summary(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        """Scores of many tasks as one number, named "" (the family's score), and further ones.

        Takes numpy or jax arrays. The score is 1 for right answers, and what claims are about.
        """

    @abc.abstractmethod
    def demonstrations(
        self, content: Content, latent: Float[Array, "module"], key: PRNGKeyArray, shots: int
    ) -> tuple[Float[Array, "shot seen"], Float[Array, "shot answered"]]:
        """Fresh examples as a few-shot encoding tells them: what was seen, and the answers."""

    @property
    @abc.abstractmethod
    def demonstration_size(self) -> int:
        """Numbers in one demonstration."""

    def symmetries(self) -> tuple[str, ...]:
        """Names of the changes of a task that leave it the same kind of task."""
        return ("permute modules",)

    def bucket(self) -> Family:
        """The same family at padded sizes: cells in one bucket share one compiled program."""
        return self


@dataclass(frozen=True)
class Regression(Family):
    """A family of functions from numbers to numbers, judged by R².

    Inputs do not depend on the task; `inputs` draws them and `targets` gives the answers.
    """

    metric: ClassVar[str] = "R²"

    @abc.abstractmethod
    def inputs(self, key: PRNGKeyArray, samples: int) -> Float[Array, "sample input"]:
        """Draws inputs."""

    def draw(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray,
        samples: int,
    ) -> tuple[Float[Array, "task sample input"], Float[Array, "task sample output"]]:  # fmt: skip
        # One draw for the whole batch: splitting keys per task costs more than the numbers do.
        inputs = self.inputs(key, latents.shape[0] * samples)
        inputs = inputs.reshape(latents.shape[0], samples, -1)
        return inputs, jax.vmap(lambda z, x: self.targets(content, z, x))(latents, inputs)

    def observe(self, content: Content, inputs: Inputs) -> Float[Array, "*axes input"]:
        return inputs

    def loss(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> Float[Array, ""]:
        """The mean squared error."""
        return jnp.mean((answers - targets) ** 2)

    def score(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> dict[str, Float[Array, ""]]:
        """Per-task `error`, `variance` and `r2`, the published mean of 1 - error/variance."""
        error = jnp.mean((answers - targets) ** 2, axis=0)
        variance = jnp.var(targets, axis=0)
        return {
            "error": jnp.mean(error),
            "variance": jnp.mean(variance),
            "r2": jnp.mean(1 - error / variance),
        }

    def summary(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        """R² as the ratio of means, which a nearly constant output cannot blow up, and as
        published: the mean of ratios."""
        error, variance = total(scores["error"]), total(scores["variance"])
        return {"": 1 - error / variance, "published": mean(scores["r2"])}

    def demonstrations(
        self, content: Content, latent: Float[Array, "module"], key: PRNGKeyArray, shots: int
    ) -> tuple[Float[Array, "shot seen"], Float[Array, "shot answered"]]:
        inputs = self.inputs(key, shots)
        return inputs, self.targets(content, latent, inputs)

    @property
    def demonstration_size(self) -> int:
        return self.input_size + self.output_size


def total(values: Any) -> Any:
    """The sum of scores: of readings in double precision on the host, of curves on the device."""
    return float(values.sum(dtype=np.float64)) if isinstance(values, np.ndarray) else values.sum()


def mean(values: Any) -> Any:
    """The mean of scores, in the same way."""
    return float(values.mean(dtype=np.float64)) if isinstance(values, np.ndarray) else values.mean()
