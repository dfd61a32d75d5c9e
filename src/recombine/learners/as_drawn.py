"""The network that training would begin with: drawn or written down, looked at, never trained."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax

from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.learners._tasks import TaskLearner, draw_content
from recombine.learners.supervised import Supervised


class Drawn(NamedTuple):
    """First weights, which nothing moves."""

    model: Any


@dataclass(frozen=True)
class AsDrawnProgram(Program):
    """Draws the network; its steps do nothing."""

    program: Program

    def init(self, arrays: dict[str, Any], key: Any) -> Drawn:
        given = {name: array for name, array in arrays.items() if name != "log"}
        return Drawn(_first(self.program, given, key))

    def step(self, arrays: dict[str, Any], state: Drawn, t: Any) -> tuple[Drawn, dict[str, Any]]:
        return state, {"loss": 0.0}

    def evaluate(self, arrays: dict[str, Any], state: Drawn) -> dict[str, Any]:
        return {}


def taught(network: Learner) -> Learner:
    """What a network learns by, or would, where its untrained twin is looked at."""
    return network.learner if isinstance(network, AsDrawn) else network


@dataclass(frozen=True)
class AsDrawn(Learner):
    """What a learner of one network starts from, as a cell of its own that compiles no training.

    The same as training at a rate of zero. Of a constructed model it is the written network; of
    any other, what random weights can do. Its untrained twin is itself.
    """

    host_driven: ClassVar[bool] = True

    learner: Learner = field(default_factory=Supervised)

    @property
    def steps(self) -> int:
        return 10  # a block, in which nothing happens

    @property
    def precision(self) -> str:
        return "float32"

    @property
    def size(self) -> int:
        return self.learner.size

    @property
    def init_seed(self) -> int:
        return self.learner.init_seed

    def check(self) -> None:
        self.learner.check()

    def program(self, precision: str = "float32") -> AsDrawnProgram:
        return AsDrawnProgram(self.learner.natural(precision))

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        learner = self.learner
        if not isinstance(learner, TaskLearner):
            return learner.prepare(given)
        content, code = draw_content(
            learner.family, learner.encoding, learner.seeds.content, learner.seeds.encoding
        )
        return Arrays(member={"family": content, "encoding": code})

    def weights(self, state: Drawn) -> Tensors:
        return self.learner.weights(state)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        return self.learner.subject(weights, given)


@functools.partial(jax.jit, static_argnums=0)
def _first(program: Program, content: dict[str, Any], key: Any) -> Any:
    return program.init(content, key).model  # pyright: ignore[reportAttributeAccessIssue]
