"""What every family of tasks provides, and how its sizes are padded so that programs are shared."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.combinations import Subsets

Content = dict[str, Array]


@dataclass(frozen=True)
class Family(abc.ABC):
    """All tasks built from the same modules, as pure functions of (spec, key).

    A family draws its modules once (`content`), turns a combination into a task (`latent`), and
    draws inputs and targets for it. Everything works on one task; batching is `vmap` at the call
    site. `modules` and `active` may be padded: module arrays get zero rows, which no latent uses.
    """

    version: ClassVar[int] = 1

    modules: int = 16
    active: int = 3

    @property
    def space(self) -> Subsets:
        """Every combination the family has."""
        return Subsets(self.modules, self.active)

    def check(self) -> None:
        """Refuses sizes that cannot be, such as more modules at a time than there are."""
        _ = self.space

    @property
    @abc.abstractmethod
    def input_size(self) -> int:
        """Numbers in one input."""

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
    def inputs(self, key: PRNGKeyArray, samples: int) -> Float[Array, "sample input"]:
        """Draws inputs for one task."""

    @abc.abstractmethod
    def targets(
        self, content: Content, latent: Float[Array, "module"], inputs: Float[Array, "sample input"]
    ) -> Float[Array, "sample output"]:
        """The right answers."""

    def loss(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> Float[Array, ""]:
        """What training lowers: the mean squared error."""
        return jnp.mean((answers - targets) ** 2)

    def score(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> dict[str, Float[Array, ""]]:
        """Per-task numbers from which scores are formed: `error`, `variance` and `r2`.

        `r2` is the published mean over outputs of 1 - error/variance; `error` and `variance`
        give the robust ratio of means, which a nearly constant output cannot blow up.
        """
        error = jnp.mean((answers - targets) ** 2, axis=0)
        variance = jnp.var(targets, axis=0)
        return {
            "error": jnp.mean(error),
            "variance": jnp.mean(variance),
            "r2": jnp.mean(1 - error / variance),
        }

    def symmetries(self) -> tuple[str, ...]:
        """Names of the changes of a task that leave it the same kind of task."""
        return ("permute modules",)

    def bucket(self) -> Family:
        """The same family at padded sizes: cells in one bucket share one compiled program."""
        return self
