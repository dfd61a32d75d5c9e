"""What grid worlds share: an expert acts, a network imitates, and both can be let loose."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.families._family import Content, Family, Inputs, mean, total

States = Any  # a tree of arrays whose first axis is the task


@dataclass(frozen=True)
class World(Family):
    """A family of sequential tasks: which action is right depends on the task and on the state.

    A state holds everything there is to know, so that states are the inputs and `observe` draws
    what a network sees of them. Every state has a field `running`: once an episode has ended its
    state stays as it is, and its targets are rows of zeros, which neither loss nor score counts.
    """

    metric: ClassVar[str] = "all-actions accuracy"
    # At the first step everything is still to be done; at the last most episodes are over.
    probed: ClassVar[int] = 0

    discount: float = 0.9

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """The steps of an episode."""

    @property
    def actions(self) -> int:
        return self.output_size

    @abc.abstractmethod
    def begin(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray
    ) -> States:
        """The first state of a fresh episode of each task."""

    @abc.abstractmethod
    def act(
        self, content: Content, latents: Float[Array, "task module"], states: States,
        actions: Int[Array, "task"],
    ) -> tuple[States, Float[Array, "task"]]:  # fmt: skip
        """The next states and the rewards; a state that is not running stays and earns nothing."""

    @abc.abstractmethod
    def plan(self, content: Content, latents: Float[Array, "task module"], states: States) -> Any:
        """Whatever the expert works out once per episode, at full precision."""

    @abc.abstractmethod
    def advise(self, plan: Any, states: States) -> Int[Array, "task"]:
        """What the expert does in these states."""

    def draw(
        self, content: Content, latents: Float[Array, "task module"], key: PRNGKeyArray,
        samples: int,
    ) -> tuple[States, Float[Array, "task sample output"]]:  # fmt: skip
        """An episode of each task as the expert plays it: the states before each action."""
        states = self.begin(content, latents, key)
        plan = self.plan(content, latents, states)

        def step(states: States, _: None) -> tuple[States, tuple[States, Array]]:
            action = self.advise(plan, states)
            return self.act(content, latents, states, action)[0], (states, action)

        # A loop, not unrolled: many episodes go through it at once, and it compiles in a tenth
        # of the time.
        _, (seen, actions) = jax.lax.scan(step, states, None, length=samples)
        seen, actions = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), (seen, actions))
        return seen, self._wanted(actions, seen.running)

    def targets(
        self, content: Content, latent: Float[Array, "module"], inputs: Inputs
    ) -> Float[Array, "sample output"]:
        count = inputs.running.shape[0]
        latents = jnp.broadcast_to(latent, (count, *latent.shape))
        actions = self.advise(self.plan(content, latents, inputs), inputs)
        return self._wanted(actions, inputs.running)

    def _wanted(
        self, actions: Int[Array, "*axes"], running: Bool[Array, "*axes"]
    ) -> Float[Array, "*axes output"]:
        return jnp.where(running[..., None], jax.nn.one_hot(actions, self.output_size), 0.0)

    def loss(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> Float[Array, ""]:
        """Cross-entropy, averaged over the steps that count."""
        missed = -jnp.sum(targets * jax.nn.log_softmax(answers), axis=-1)
        return jnp.sum(missed) / jnp.maximum(jnp.sum(targets), 1)

    def score(
        self, answers: Float[Array, "sample output"], targets: Float[Array, "sample output"]
    ) -> dict[str, Float[Array, ""]]:
        """Per episode: wrong steps (`error`), steps that count (`variance`), `whole` if none."""
        counted = jnp.sum(targets, axis=-1)
        right = jnp.take_along_axis(targets, jnp.argmax(answers, -1)[..., None], axis=-1)[..., 0]
        wrong = jnp.sum(counted - right)
        whole = (wrong == 0).astype(jnp.float32)
        return {"error": wrong, "variance": jnp.sum(counted), "whole": whole}

    def summary(self, scores: Mapping[str, Any]) -> dict[str, Any]:
        """The share of episodes with every action right, and of right actions."""
        accuracy = 1 - total(scores["error"]) / total(scores["variance"])
        return {"": mean(scores["whole"]), "accuracy": accuracy}

    def demonstrations(
        self, content: Content, latent: Float[Array, "module"], key: PRNGKeyArray, shots: int
    ) -> tuple[Float[Array, "shot seen"], Float[Array, "shot answered"]]:
        """The first observation and every action: the world is deterministic, so this is all."""
        repeated = jnp.broadcast_to(latent, (shots, *latent.shape))
        states, targets = self.draw(content, repeated, key, self.horizon)
        first = self.observe(content, jax.tree.map(lambda leaf: leaf[:, 0], states))
        return first, targets.reshape(shots, -1)

    @property
    def demonstration_size(self) -> int:
        return self.input_size + self.horizon * self.output_size
