"""What a network earns when it acts by itself, instead of answering along the expert's path."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.errors import NotApplicable
from recombine.families._world import World
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, in_batches, supervised
from recombine.seeds import host_seed, key_at, stream

if TYPE_CHECKING:
    from recombine.learners._tasks import Batch, TaskProgram


@dataclass(frozen=True)
class Rollout(Instrument):
    """The discounted return of a closed loop, as a share of the expert's in the same episodes.

    A network that is right on the expert's states may still lose its way in states of its own.
    Up to `combinations` combinations of each kind, each with `episodes` fresh episodes. Controls:
    the untrained twin, actions at random, and the demonstrations played back (planted, 1).
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "rollout"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "random", "planted")

    combinations: int = 512
    episodes: int = 2

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        family = subject.program.family
        if not isinstance(family, World):
            raise NotApplicable(
                f"a rollout needs a family one can act in, such as preferences or goals; "
                f"{type(family).__name__} is none"
            )
        evaluation = subject.learner.seeds.evaluation
        rng = np.random.default_rng(host_seed(evaluation, self.name))
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        for kind, pool in (("seen", subject.support.seen), ("unseen", subject.support.tested)):
            count = min(pool.size, self.combinations)
            chosen = np.sort(rng.choice(pool, count, replace=False))
            batch = subject.draw(np.repeat(chosen, self.episodes), f"{self.name}/{kind}")
            words = stream(evaluation, f"{self.name}/{kind}/random")
            expert, chance, replayed = self._guides(subject, batch, words)
            mean = float(expert.mean())
            for who, into in ((subject, values), (untrained, controls["untrained"])):
                earned = self._play(who, batch)
                into[f"{kind}_return"] = float(earned.mean()) / mean
            values[f"{kind}_expert"] = mean
            controls["random"][f"{kind}_return"] = float(chance.mean()) / mean
            controls["planted"][f"{kind}_return"] = float(replayed.mean()) / mean
        return Reading(values, controls)

    @staticmethod
    def _play(subject: SupervisedSubject, batch: Batch) -> np.ndarray:
        program, looks_back = subject.program, subject.looks_back
        return in_batches(
            lambda part: _earned(program, looks_back, subject.arrays, subject.model, part), batch
        )

    @staticmethod
    def _guides(subject: SupervisedSubject, batch: Batch, words: Any) -> np.ndarray:
        content, family = subject.arrays["family"], subject.program.family

        def play(part: Batch) -> Array:
            first = first_states(part.inputs)
            return _guided(family, content, part.latents, first, part.targets, words)

        return in_batches(play, batch).T


def first_states(states: Any) -> Any:
    """The beginnings of episodes."""
    return jax.tree.map(lambda leaf: leaf[:, 0], states)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _earned(
    program: TaskProgram, looks_back: bool, arrays: Any, model: Any, batch: Batch
) -> Float[Array, "task"]:
    """The return of a network that acts on what it sees (and, if it can, on what it saw)."""
    family, content = program.family, arrays["family"]
    assert isinstance(family, World)
    length = family.horizon if looks_back else 1

    def step(carry: tuple[Any, Any, Array], t: Array) -> tuple[tuple[Any, Any, Array], None]:
        states, history, earned = carry
        place = t if looks_back else 0
        history = jax.tree.map(
            lambda past, now: jax.lax.dynamic_update_index_in_dim(past, now, place, axis=1),
            history, states,
        )  # fmt: skip
        answers = program.answer(arrays, model, batch._replace(inputs=history))
        action = jnp.argmax(answers, axis=-1)
        action = jax.lax.dynamic_index_in_dim(action, place, axis=1, keepdims=False)
        states, reward = family.act(content, batch.latents, states, action)
        return (states, history, earned + family.discount**t * reward), None

    first = first_states(batch.inputs)
    history = jax.tree.map(lambda leaf: jnp.stack([leaf] * length, axis=1), first)
    start = (first, history, jnp.zeros(batch.codes.shape[0]))
    (_, _, earned), _ = jax.lax.scan(step, start, jnp.arange(family.horizon))
    return earned


@functools.partial(jax.jit, static_argnums=0)
def _guided(
    family: World, content: Any, latents: Array, states: Any, targets: Array, words: Array
) -> Float[Array, "task 3"]:
    """The returns of the expert, of actions at random, and of the recorded actions."""
    plan = family.plan(content, latents, states)

    def run(choose: Any) -> Array:
        def step(carry: tuple[Any, Array], t: Array) -> tuple[tuple[Any, Array], None]:
            states, earned = carry
            states, reward = family.act(content, latents, states, choose(states, t))
            return (states, earned + family.discount**t * reward), None

        start = (states, jnp.zeros(latents.shape[0]))
        return jax.lax.scan(step, start, jnp.arange(family.horizon))[0][1]

    def at_random(states: Any, t: Array) -> Array:
        return jax.random.randint(key_at(words, t), (latents.shape[0],), 0, family.actions)

    expert = run(lambda states, t: family.advise(plan, states))
    recorded = jnp.argmax(targets, axis=-1)
    replayed = run(lambda states, t: recorded[:, t])
    return jnp.stack([expert, run(at_random), replayed], axis=1)
