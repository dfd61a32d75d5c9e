"""Evolution that is told which picture to draw, as a learner whose steps are its evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Learner, Material, Program, Tensors
from recombine.learners.picture_set import CURVE, PictureApproach, PictureSet


class Reached(NamedTuple):
    """How near it came, and the best picture of all."""

    error: Float[np.ndarray, ""]
    drawn: Float[np.ndarray, "row column 3"]


@dataclass(frozen=True)
class DirectedProgram(Program):
    """Walks along what an evolution found: each step is a hundredth of its evaluations."""

    def init(self, arrays: dict[str, Any], key: Any) -> Reached:
        return Reached(np.asarray(arrays["curve"][0]), np.asarray(arrays["drawn"]))

    def step(self, arrays: dict[str, Any], state: Reached, t: Any) -> tuple[Reached, dict]:
        state = state._replace(error=np.asarray(arrays["curve"][int(t) + 1]))
        return state, {"loss": state.error}

    def evaluate(self, arrays: dict[str, Any], state: Reached) -> dict[str, Any]:
        return {"error": state.error}


class Drawing(Subject):
    """A picture that was found: all there is to ask is what it looks like."""

    abilities = frozenset({"answer"})

    def __init__(self, drawn: Float[np.ndarray, "row column 3"]):
        self.drawn = drawn

    def answer(self, inputs: Any = None, key: Any = None) -> Float[np.ndarray, "row column 3"]:
        return self.drawn


@dataclass(frozen=True)
class DirectedPicture(Learner):
    """Evolution towards one picture of a set: the least squared error wins.

    Its curve of `error` is on the same scale as that of `PictureLearner`.
    """

    version: ClassVar[int] = 1
    host_driven: ClassVar[bool] = True

    pictures: PictureSet = field(default_factory=PictureSet)
    number: int = 0
    seed: int = 0
    evaluations: int = 2_000

    @property
    def steps(self) -> int:
        return CURVE

    @property
    def evaluate_every(self) -> int:
        return 10

    @property
    def init_seed(self) -> int:
        return self.seed

    def check(self) -> None:
        self.pictures.check()
        self.pictures.check_number(self.number)
        self.materials()  # refuses too few evaluations

    def materials(self) -> dict[str, Material]:
        return {
            "approach": PictureApproach(self.pictures, self.number, self.seed, self.evaluations)
        }

    def program(self, precision: str = "float32") -> DirectedProgram:
        return DirectedProgram()

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(member=dict(given["approach"]))

    def weights(self, state: Reached) -> Tensors:
        return {"drawn": np.asarray(state.drawn)}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        return Drawing(weights["drawn"])
