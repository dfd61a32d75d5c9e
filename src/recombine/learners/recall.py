"""Learning by heart: a table of the tasks met in training, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recombine.checks import at_least
from recombine.errors import InvalidRequest
from recombine.learners._learner import Arrays, Tensors
from recombine.learners._tasks import Batch, TaskLearner, TaskProgram
from recombine.learners.optimiser import NEVER

FAR = 1e15  # every number of an empty row: farther than any task, and its square is still finite
SAME = 1e-6  # squared distance below which two codes tell the same task
TIED = 1e-5  # of the squared lengths of two codes: what a product may get wrong in their distance


class Table(NamedTuple):
    """Tasks by their codes; rows past the last one written are far from everything."""

    codes: Float[Array, "entry code"]
    latents: Float[Array, "entry module"]


class Remembered(NamedTuple):
    """The table so far, and how many rows are written."""

    model: Table
    written: Int[Array, ""]
    diverged_at: Int[Array, ""]


@dataclass(frozen=True)
class RecallProgram(TaskProgram):
    """Each step writes down the tasks of its batch that the table does not have yet."""

    entries: int = 4096

    def init(self, arrays: dict[str, Any], key: Any) -> Remembered:
        codes = jnp.full((self.entries, self.encoding.size(self.family)), FAR)
        latents = jnp.zeros((self.entries, self.family.modules))
        return Remembered(Table(codes, latents), jnp.int32(0), jnp.int32(NEVER))

    def look_up(
        self, table: Table, codes: Float[Array, "task code"]
    ) -> tuple[Int[Array, "task"], Bool[Array, "task"]]:
        """The entry nearest to each task, and whether it is that very task."""
        lengths = jnp.sum(table.codes**2, axis=1)
        own = jnp.sum(codes**2, axis=1)
        # |a - b|^2 as a product: differences of all pairs would not fit.
        with jax.default_matmul_precision("highest"):
            apart = own[:, None] + lengths - 2 * codes @ table.codes.T
        closest = jnp.argmin(apart, axis=1)
        # Exactly, for the one found: the product loses the last digits.
        known = jnp.sum((codes - table.codes[closest]) ** 2, axis=1) < SAME
        # Weights in tenths make many ties. The first entry wins, whatever the last digits say, or
        # padding and stacking would change the answers.
        slack = jnp.min(apart, axis=1) + TIED * (own + lengths[closest])
        first = jnp.argmax(apart <= slack[:, None], axis=1)
        return jnp.where(known, closest, first), known

    def learn(
        self, arrays: dict[str, Any], state: Remembered, drawn: Batch, t: Any
    ) -> tuple[Remembered, dict[str, Any]]:
        _, known = self.look_up(state.model, drawn.codes)
        pairs = jnp.sum((drawn.codes[:, None] - drawn.codes[None]) ** 2, axis=-1)
        earlier = jnp.tril(pairs < SAME, k=-1).any(axis=1)
        fresh = ~known & ~earlier & (t < arrays["steps"])
        place = state.written + jnp.cumsum(fresh, dtype=jnp.int32) - 1
        place = jnp.where(fresh, place, self.entries)  # past the end: dropped
        table = Table(
            state.model.codes.at[place].set(drawn.codes, mode="drop"),
            state.model.latents.at[place].set(drawn.latents, mode="drop"),
        )
        written = jnp.minimum(state.written + fresh.sum(dtype=jnp.int32), self.entries)
        loss = jnp.mean(fresh, dtype=jnp.float32)  # the share of tasks not met before
        return state._replace(model=table, written=written), {"loss": loss}

    def answer(self, arrays: dict[str, Any], model: Table, batch: Batch) -> Array:
        """As the nearest task of the table would be answered, without a mistake.

        A memoriser (`exact`) that does not have the task says nothing: zeros. An empty table
        answers as a task without modules would be.
        """
        nearest, known = self.look_up(model, batch.codes)
        answers = jax.vmap(lambda z, x: self.family.targets(arrays["family"], z, x))(
            model.latents[nearest], batch.inputs
        )
        return jnp.where((known | arrays["guesses"])[:, None, None], answers, 0.0)

    def evaluate(self, arrays: dict[str, Any], state: Remembered) -> dict[str, Any]:
        found = super().evaluate(arrays, state)
        return {**found, "entries": state.written.astype(jnp.float32)}


@dataclass(frozen=True)
class Recall(TaskLearner):
    """A baseline without a network: it keeps training tasks and answers as the nearest would be.

    `method` "nearest" is the nearest neighbour; "exact" is the memoriser, which knows the tasks
    in its table and no other. What a table needs to hold, against what a network needs, is the
    price of not composing. Each step meets `tasks` tasks; a full table takes no more.

    >>> Recall(method="exact", entries=512).size
    16384
    """

    version: ClassVar[int] = 1

    method: Literal["nearest", "exact"] = "nearest"
    entries: int = 4096
    training_steps: int = 100

    @property
    def precision(self) -> str:
        return "float32"

    @property
    def size(self) -> int:
        return self.entries * (self.encoding.size(self.family) + self.family.modules)

    def check(self) -> None:
        super().check()
        at_least(self, entries=1, training_steps=1)
        if self.method not in ("nearest", "exact"):
            raise InvalidRequest(f"method={self.method!r}: expected 'nearest' or 'exact'")

    def natural(self, precision: str = "float32") -> RecallProgram:
        return RecallProgram(
            self.family, self.encoding, self.tasks, self.samples, self.evaluation_tasks,
            precision, self.entries,
        )  # fmt: skip

    def program(self, precision: str = "float32") -> RecallProgram:
        natural = self.natural(precision)
        family = self.family.bucket() if self.encoding.pads else self.family
        return replace(natural, family=family)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        # An array, so that both methods share one program.
        own = {"steps": np.int32(self.steps), "guesses": np.bool_(self.method == "nearest")}
        return Arrays(member={**self.task_arrays(), **own})
