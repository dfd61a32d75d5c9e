"""The smallest learner there is: a slope. It compiles at once and can be told to fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from recombine.errors import InvalidRequest
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.seeds import key_at, stream
from unlike.exam import Examined


class Slope(NamedTuple):
    w: Any
    diverged_at: Any


@dataclass(frozen=True)
class LineProgram(Program):
    width: int = 4

    def init(self, arrays: dict[str, Any], key: Any) -> Slope:
        return Slope(jax.random.normal(key, (self.width,)), jnp.int32(-1))

    def step(self, arrays: dict[str, Any], state: Slope, t: Any) -> tuple[Slope, dict[str, Any]]:
        x = jax.random.normal(key_at(arrays["train"], t), (8, self.width))

        def loss(w: Any) -> Any:
            return jnp.mean((x @ (w - arrays["wanted"])) ** 2)

        value, gradient = jax.value_and_grad(loss)(state.w)
        change = arrays["rate"] * gradient
        fine = jnp.isfinite(value) & jnp.all(jnp.isfinite(change)) & (state.diverged_at < 0)
        diverged = jnp.where(fine | (state.diverged_at >= 0), state.diverged_at, t)
        even = jnp.int32(t % 2 == 0)
        state = Slope(jnp.where(fine, state.w - change, state.w), diverged.astype(jnp.int32))
        return state, {"loss": value, "even": even}

    def evaluate(self, arrays: dict[str, Any], state: Slope) -> dict[str, Any]:
        return {"error": jnp.mean((state.w - arrays["wanted"]) ** 2)}


@dataclass(frozen=True)
class Line(Learner):
    """Finds a slope; `fault` names what is wrong with it."""

    seed: int = 0
    rate: float = 0.05
    training_steps: int = 200
    evaluation_every: int = 100
    marks: tuple[int, ...] = (0,)
    fault: str = ""

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return self.evaluation_every

    @property
    def snapshots(self) -> tuple[int, ...]:
        return self.marks

    @property
    def init_seed(self) -> int:
        return self.seed

    @property
    def size(self) -> int:
        return 4

    def check(self) -> None:
        if self.rate < 0:
            raise InvalidRequest(f"rate must not be negative, got {self.rate}")

    def program(self, precision: str = "float32") -> LineProgram:
        return LineProgram()

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        if self.fault == "bad input":
            raise InvalidRequest("this one can never be prepared")
        if self.fault == "silent":
            raise AssertionError
        if self.fault == "crash":
            raise RuntimeError("the disk of the world is full of elephants\nand turtles")
        return Arrays(
            member={
                "wanted": np.full(4, 2.0, np.float32),
                "train": stream(self.seed, "train"),
                "rate": np.float32(self.rate),
            }
        )

    def weights(self, state: Slope) -> Tensors:
        return {"w": np.asarray(state.w)}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> LineSubject:
        return LineSubject(weights)


class LineSubject(Examined):
    def answer(self, inputs: Any, key: Any = None) -> np.ndarray:
        return inputs @ self.tensors["w"]

    def exam(self) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(4, dtype=np.float32), np.full(4, 2.0, np.float32)

    def right(self, answers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return np.abs(answers - wanted) < 0.5
