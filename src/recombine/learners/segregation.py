"""Learning to take pictures apart without being told how: drawing them again from slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.checks import at_least, rates
from recombine.errors import InvalidRequest
from recombine.families.objects import Pictured, Tetrominoes, foreground_ari
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Program, StepLearner, Tensors
from recombine.learners.optimiser import Trained, descend, risen, start
from recombine.models.slots import Autoencoder, AutoencoderModel, Redrawn, SlotAutoencoder
from recombine.seeds import Seeds, key_at, stream
from recombine.trees import named


@dataclass(frozen=True)
class SegregationProgram(Program):
    """Gradient descent on the squared error of pixels."""

    family: Tetrominoes
    model: AutoencoderModel
    batch: int
    evaluation_images: int
    precision: str = "float32"

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(self.precision)

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        return start(self.model.draw(key, side=self.family.side))

    def draw(self, arrays: dict[str, Any], t: Any) -> Array:
        return self.family.draw(key_at(arrays["train"], t), self.batch).images

    def redraw(self, model: Autoencoder, images: Array, key: Any) -> Redrawn:
        return model(images, dtype=self.dtype, key=key)

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Array, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        noise = key_at(arrays["noise"], t)

        def loss(model: Autoencoder) -> Array:
            return jnp.mean((self.redraw(model, drawn, noise).image - drawn) ** 2)

        value, gradient = jax.value_and_grad(loss)(state.model)
        falling = 0.5 ** (t.astype(jnp.float32) / arrays["halved"])
        state = descend(
            state, value, gradient, t, rate=risen(arrays, t) * falling,
            decay=jnp.float32(0), running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        """The squared error, and how well the parts are the objects, on fresh pictures."""
        draw_key, noise_key = jax.random.split(key_at(arrays["evaluation"], 0))
        drawn: Pictured = self.family.draw(draw_key, self.evaluation_images)
        again = self.redraw(state.model, drawn.images, noise_key)
        found = jnp.argmax(again.masks, axis=-3)
        return {
            "mse": jnp.mean((again.image - drawn.images) ** 2),
            "fg_ari": jnp.mean(foreground_ari(drawn.objects, found, self.model.parts)),
        }


@dataclass(frozen=True)
class Segregation(StepLearner):
    """An autoencoder learns to draw pictures of tetrominoes again, and is never told the pieces.

    Which pixels it gives to which of its parts shows whether it found them. The learning rate
    rises over `warmup` steps and halves every `halved_every` steps, smoothly.
    """

    version: ClassVar[int] = 1

    family: Tetrominoes = field(default_factory=Tetrominoes)
    model: AutoencoderModel = field(default_factory=SlotAutoencoder)
    seeds: Seeds = field(default_factory=Seeds)
    training_steps: int = 30_000
    batch: int = 16
    learning_rate: float = 4e-4
    warmup: int = 1_000
    halved_every: int = 100_000
    evaluation_every: int = 1_000
    evaluation_images: int = 32

    @property
    def size(self) -> int:
        return self.model.parameters(self.family.side)

    def check(self) -> None:
        self.family.check()
        self.model.check()
        if self.model.parts < 2:
            raise InvalidRequest("slots=1: a picture is taken apart into 2 slots or more")
        at_least(self, training_steps=1, batch=1, warmup=1, halved_every=1, evaluation_every=1,
                 evaluation_images=1)  # fmt: skip
        rates(self, "learning_rate")

    def program(self, precision: str = "float32") -> SegregationProgram:
        return SegregationProgram(
            self.family, self.model, self.batch, self.evaluation_images, precision
        )

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(
            member={
                "train": stream(self.seeds.train, "train"),
                "noise": stream(self.seeds.train, "noise"),
                "evaluation": stream(self.seeds.evaluation, "evaluation"),
                "rate": np.float32(self.learning_rate),
                "warmup": np.float32(self.warmup),
                "halved": np.float32(self.halved_every),
                "steps": np.int32(self.steps),
            }
        )

    def weights(self, state: Any) -> Tensors:
        return named(state.model)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        from recombine.instruments._seeing import RedrawingSubject

        return RedrawingSubject(self, weights)
