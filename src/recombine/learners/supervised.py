"""Supervised learning of a family of tasks from an endless stream of fresh examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.checks import at_least, rates
from recombine.errors import unknown
from recombine.learners._learner import Arrays, Tensors
from recombine.learners._tasks import Batch, TaskLearner, TaskProgram
from recombine.learners.optimiser import Trained, descend, start
from recombine.models._model import Model, Setting
from recombine.models.mlp import MLP

SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class SupervisedProgram(TaskProgram):
    """Gradient descent on the family's loss."""

    model: Model = field(default_factory=MLP)

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        if "known" in arrays:  # by a learner that goes on with another's network
            return start(arrays["known"])
        return start(
            self.model.draw(
                key,
                code=self.encoding.size(self.family),
                inputs=self.family.input_size,
                outputs=self.family.output_size,
                setting=Setting(self.family, self.encoding, arrays["family"], arrays["encoding"]),
            )
        )

    def answer(self, arrays: dict[str, Any], model: Any, batch: Batch) -> Array:
        """At the student's precision, from what it sees of the inputs."""
        seen = self.family.observe(arrays["family"], batch.inputs)
        return model(batch.codes, seen, self.dtype)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Batch, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        def loss(model: Any) -> Array:
            answers = self.answer(arrays, model, drawn)
            return jnp.mean(jax.vmap(self.family.loss)(answers, drawn.targets))

        value, gradient = jax.value_and_grad(loss)(state.model)
        # A half cosine from 1 to 0 for annealed members, 1 for the others.
        left = jnp.cos(jnp.pi * t.astype(jnp.float32) / arrays["steps"].astype(jnp.float32))
        slower = 1 - 0.5 * arrays["annealed"] * (1 - left)
        state = descend(
            state, value, gradient, t, rate=slower * arrays["rate"], decay=arrays["decay"],
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}


@dataclass(frozen=True)
class Supervised(TaskLearner):
    """A model learns a family from the combinations of a support, told by an encoding.

    Each step draws `tasks` fresh tasks of seen combinations with `samples` fresh inputs each. The
    learning rate is constant, so that a curve stopped early is a shorter run, or falls to zero
    along half a cosine.
    """

    version: ClassVar[int] = 1

    model: Model = field(default_factory=MLP)
    training_steps: int = 30_000
    learning_rate: float = 3e-4
    weight_decay: float = 3e-3
    schedule: Literal["constant", "cosine"] = "constant"

    @property
    def network(self) -> Model:
        return self.model

    @property
    def precision(self) -> str:
        return self.model.precision

    @property
    def size(self) -> int:
        return self.model.bucket().parameters(
            self.encoding.size(self.family), self.family.input_size, self.family.output_size
        )

    def check(self) -> None:
        super().check()
        self.model.check(self.family, self.encoding)
        at_least(self, training_steps=1)
        rates(self, "learning_rate", "weight_decay")
        if self.schedule not in SCHEDULES:
            raise unknown("schedule", self.schedule, SCHEDULES)

    def natural(self, precision: str = "float32") -> SupervisedProgram:
        return SupervisedProgram(
            self.family, self.encoding, self.tasks, self.samples, self.evaluation_tasks,
            precision, self.model,
        )  # fmt: skip

    def program(self, precision: str = "float32") -> SupervisedProgram:
        natural = self.natural(precision)
        pads = self.encoding.pads and self.model.pads
        family = self.family.bucket() if pads else self.family
        return replace(natural, family=family, model=self.model.bucket())

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        rates = {
            "rate": np.float32(self.learning_rate),
            "decay": np.float32(self.weight_decay),
            "annealed": np.float32(self.schedule == "cosine"),
            "steps": np.int32(self.steps),
        }
        return Arrays(member={**self.task_arrays(), **rates})
