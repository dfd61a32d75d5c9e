"""What every learner provides: the whole protocol between a way of learning and the laboratory."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recombine.seeds import Seeds

if TYPE_CHECKING:
    from recombine.instruments.subject import Subject

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Arrays:
    """What a learner's program is given, by scope: how widely each array is shared.

    `shard` arrays are held once (a dataset), `group` arrays once per upstream model, `member`
    arrays once per cell (keys, learning rate, support table). `first` is what only the first state
    is made from (weights to go on with): members that have it and members that have not train
    together, and no step sees it.
    """

    member: Any = field(default_factory=dict)
    group: Any = field(default_factory=dict)
    shard: Any = field(default_factory=dict)
    first: Any = field(default_factory=dict)

    def merged(self) -> dict[str, Any]:
        return {**self.shard, **self.group, **self.member}


class Program(abc.ABC):
    """The part of a learner that is compiled: pure functions of arrays, hashable by its sizes.

    Cells whose programs are equal share one compilation. Arrays are arguments, never captured.
    """

    @abc.abstractmethod
    def init(self, arrays: dict[str, Any], key: Any) -> Any:
        """The state before the first step: weights, optimiser, slots, everything.

        A field `diverged_at` in it (negative while all is well) says at which step a member
        failed: it is then left out of means, and a shard ends when all its members have failed.
        """

    @abc.abstractmethod
    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        """One step; `t` is the shard's counter. Metrics are scalars, `loss` among them."""

    def draw(self, arrays: dict[str, Any], t: Any) -> Any:
        """The data of step `t`, where it does not depend on the state.

        A learner that has it (and `learn`) lets the engine draw a block of steps at once, which
        saves an accelerator a swarm of small kernels in every step.
        """
        return ()

    def learn(
        self, arrays: dict[str, Any], state: Any, drawn: Any, t: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The rest of a step, given what `draw` drew for it."""
        return self.step(arrays, state, t)

    @abc.abstractmethod
    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        """Scalars measured on data that training never sees."""


@dataclass(frozen=True)
class Material(abc.ABC):
    """Prepared data, made once and committed under the hash of its recipe."""

    version: ClassVar[int] = 1

    @abc.abstractmethod
    def make(self) -> Tensors:
        """Builds the data; may need packages that are not there where it is trained on."""

    def needs(self) -> dict[str, Material]:
        """Materials it is made from, by the name under which `make_from` gets them."""
        return {}

    def make_from(self, given: Mapping[str, Tensors]) -> Tensors:
        """The same as `make`, from what it needs, which several share and is made once."""
        return self.make()


@dataclass(frozen=True)
class Learner(abc.ABC):
    """A model with a way to learn, as a frozen spec: the request of one cell.

    Subclasses are frozen dataclasses; every field is part of the cell's identity.
    """

    version: ClassVar[int] = 1
    # A host-driven learner's step is ordinary Python; its members run in turn, and its arrays
    # hold a durable `log` in which paid or slow outside answers are kept before they are used.
    host_driven: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def steps(self) -> int:
        """How long it learns."""

    @property
    def evaluate_every(self) -> int:
        return max(1, self.steps)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Steps at which the weights are kept besides the end; 0 is the untrained control."""
        return (0,)

    def check(self) -> None:  # noqa: B027, most learners cannot be asked for the impossible
        """Refuses an impossible request before anything compiles."""

    def upstream(self) -> dict[str, Learner]:
        """Cells that must be finished first, by the name under which `prepare` gets them."""
        return {}

    def materials(self) -> dict[str, Material]:
        """Data that must be prepared first, by the name under which `prepare` gets it."""
        return {}

    @abc.abstractmethod
    def program(self, precision: str = "float32") -> Program:
        """The functions to compile, at the padded sizes of this cell's bucket."""

    def natural(self, precision: str = "float32") -> Program:
        """The same at the cell's own sizes: the initial state is drawn there, then padded."""
        return self.program(precision)

    @abc.abstractmethod
    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        """Host-side work: arrays for the program, from upstream weights and materials."""

    def part_arrays(self) -> dict[str, Any]:
        """What the draws of its parts need, where its program has parts that masks can be for."""
        return {}

    @property
    def precision(self) -> str:
        """The dtype of its products: "auto" for the device's rule, "float32" to demand that."""
        return "auto"

    def group(self) -> str:
        """Cells with equal group keys share their group arrays."""
        return ""

    def shard(self) -> str:
        """Cells with equal shard keys share their shard arrays; others never share a shard."""
        return ""

    @property
    def size(self) -> int:
        """Numbers in one member's weights; how many members are stacked follows from it."""
        return 100_000

    @property
    def init_seed(self) -> int:
        return 0

    @abc.abstractmethod
    def weights(self, state: Any) -> Tensors:
        """What is committed of a member's final state, by path, at natural size."""

    @abc.abstractmethod
    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        """The door through which instruments look at the trained model."""


class StepLearner(Learner):
    """A learner that says in fields of its own how long it learns, and from which first weights.

    It is no dataclass: a subclass declares these fields in its own order, with its own defaults.
    """

    training_steps: int
    evaluation_every: int
    seeds: Seeds

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return self.evaluation_every

    @property
    def init_seed(self) -> int:
        return self.seeds.init
