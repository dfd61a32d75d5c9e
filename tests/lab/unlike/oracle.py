"""A host-driven learner that pays for its answers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.seeds import host_seed
from unlike.exam import Examined

CALLS = "UNLIKE_ORACLE_CALLS"  # where the bill is written, so that it survives a kill
SIZE = 4


def ask(question: str) -> float:
    """The world outside: slow, and every call is on the bill before it is answered."""
    with Path(os.environ[CALLS]).open("a") as bill:
        bill.write(question + "\n")
    time.sleep(0.002)
    return float(np.dot([float(x) for x in question.split()], [1.0, -2.0, 3.0, -4.0]))


class Pupil(NamedTuple):
    w: np.ndarray
    answers: np.ndarray


@dataclass(frozen=True)
class OracleProgram(Program):
    seed: int
    rate: float
    questions: int

    def init(self, arrays: dict[str, Any], key: Any) -> Pupil:
        return Pupil(np.zeros(SIZE), np.int64(0))

    def step(self, arrays: dict[str, Any], state: Pupil, t: Any) -> tuple[Pupil, dict]:
        rng = np.random.default_rng([host_seed(self.seed, "questions"), t % self.questions])
        x = np.round(rng.standard_normal(SIZE), 3)
        question = " ".join(map(str, x))
        if question not in arrays["log"]:
            arrays["log"].put(question, ask(question))
        wrong = float(x @ state.w) - arrays["log"].get(question)
        return Pupil(state.w - self.rate * wrong * x, state.answers + 1), {"loss": wrong**2}

    def evaluate(self, arrays: dict[str, Any], state: Pupil) -> dict[str, Any]:
        return {"error": float(np.mean((state.w - [1.0, -2.0, 3.0, -4.0]) ** 2))}


@dataclass(frozen=True)
class Apprentice(Learner):
    """Learns a linear rule from an oracle that must be paid for every new question."""

    host_driven: ClassVar[bool] = True

    seed: int = 0
    rate: float = 0.1
    questions: int = 80
    training_steps: int = 120

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return 40

    def program(self, precision: str = "float32") -> OracleProgram:
        return OracleProgram(self.seed, self.rate, self.questions)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays()

    def weights(self, state: Pupil) -> Tensors:
        return {"w": np.asarray(state.w)}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Apprenticed:
        return Apprenticed(weights)


class Apprenticed(Examined):
    def answer(self, inputs: Any, key: Any = None) -> np.ndarray:
        return inputs @ self.tensors["w"]

    def exam(self) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(SIZE), np.array([1.0, -2.0, 3.0, -4.0])

    def right(self, answers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return np.abs(answers - wanted) < 0.25
