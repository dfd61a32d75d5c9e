"""Slots that are refilled as they halt, over a large table of which a step touches a few rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.seeds import host_seed, key_at, stream
from unlike.exam import Examined

LONGEST = 5


class Slots(NamedTuple):
    """Examples on their way: each with its own tokens, how far it is, and what it carries."""

    tokens: Int[Array, "slot longest"]
    length: Int[Array, "slot"]
    taken: Int[Array, "slot"]
    carry: Float[Array, "slot width"]


class Reader(NamedTuple):
    table: Float[Array, "token width"]
    first: Float[Array, "token width"]  # Adam's moments, kept and updated by row
    second: Float[Array, "token width"]
    visits: Int[Array, "token"]
    slots: Slots
    halted: Int[Array, ""]


@dataclass(frozen=True)
class SlotProgram(Program):
    tokens: int
    width: int
    slots: int

    def fresh(self, key: Any) -> Slots:
        """New examples for every slot: a few tokens each, of different lengths."""
        one, two = jax.random.split(key)
        return Slots(
            jax.random.randint(one, (self.slots, LONGEST), 0, self.tokens),
            jax.random.randint(two, (self.slots,), 1, LONGEST + 1),
            jnp.zeros(self.slots, jnp.int32),
            jnp.zeros((self.slots, self.width)),
        )

    def init(self, arrays: dict[str, Any], key: Any) -> Reader:
        one, two = jax.random.split(key)
        empty = jnp.zeros((self.tokens, self.width))
        return Reader(
            0.1 * jax.random.normal(one, (self.tokens, self.width)), empty, empty,
            jnp.zeros(self.tokens, jnp.int32), self.fresh(two), jnp.int32(0),
        )  # fmt: skip

    def step(self, arrays: dict[str, Any], state: Reader, t: Any) -> tuple[Reader, dict]:
        slots = state.slots
        token = jnp.take_along_axis(slots.tokens, slots.taken[:, None], 1)[:, 0]
        wanted = arrays["values"][token]

        def loss(rows: Float[Array, "slot width"]) -> tuple[Array, Array]:
            carry = 0.5 * slots.carry + rows
            return jnp.mean((jnp.sum(rows, axis=1) - wanted) ** 2), carry

        (value, carry), gradient = jax.value_and_grad(loss, has_aux=True)(state.table[token])
        state = self.update(state, token, gradient)
        taken = slots.taken + 1
        halts = taken >= slots.length
        fresh = self.fresh(key_at(arrays["train"], t))
        going = Slots(slots.tokens, slots.length, taken, carry)
        slots = jax.tree.map(
            lambda new, old: jnp.where(halts.reshape(-1, *[1] * (old.ndim - 1)), new, old),
            fresh, going,
        )  # fmt: skip
        count = jnp.sum(halts, dtype=jnp.int32)
        return state._replace(slots=slots, halted=state.halted + count), {
            "loss": value,
            "halts": count,
        }

    def update(self, state: Reader, token: Array, gradient: Array) -> Reader:
        """Adam on the rows that were touched; a row touched twice is updated once."""
        rows, place = jnp.unique(
            token, return_inverse=True, size=self.slots, fill_value=self.tokens
        )
        total = jax.ops.segment_sum(gradient, place, self.slots)
        visits = state.visits[rows] + 1
        first = 0.9 * state.first[rows] + 0.1 * total
        second = 0.99 * state.second[rows] + 0.01 * total**2
        power = visits[:, None].astype(jnp.float32)
        change = 0.02 * (first / (1 - 0.9**power)) / (
            jnp.sqrt(second / (1 - 0.99**power)) + 1e-8
        )  # fmt: skip
        return state._replace(
            table=state.table.at[rows].add(-change, mode="drop"),
            first=state.first.at[rows].set(first, mode="drop"),
            second=state.second.at[rows].set(second, mode="drop"),
            visits=state.visits.at[rows].set(visits, mode="drop"),
        )

    def evaluate(self, arrays: dict[str, Any], state: Reader) -> dict[str, Any]:
        said = jnp.sum(state.table, axis=1)
        return {"error": jnp.mean((said - arrays["values"]) ** 2), "halted": state.halted}


@dataclass(frozen=True)
class SlotReader(Learner):
    """Learns what each of many tokens is worth, from slots of examples that come and go."""

    tokens: int = 512
    width: int = 8
    slots: int = 16
    seed: int = 0
    training_steps: int = 600

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return 200

    @property
    def init_seed(self) -> int:
        return self.seed

    def program(self, precision: str = "float32") -> SlotProgram:
        return SlotProgram(self.tokens, self.width, self.slots)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(
            member={"train": stream(self.seed, "train"), "values": worths(self.seed, self.tokens)}
        )

    def weights(self, state: Reader) -> Tensors:
        return {"table": np.asarray(state.table), "visits": np.float32(state.visits)}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> SlotSubject:
        return SlotSubject(weights, worths(self.seed, self.tokens))


def worths(seed: int, tokens: int) -> np.ndarray:
    rng = np.random.default_rng(host_seed(seed, "values"))
    return rng.standard_normal(tokens).astype(np.float32)


class SlotSubject(Examined):
    def __init__(self, tensors: Tensors, values: np.ndarray):
        super().__init__(tensors)
        self.values = values

    def answer(self, inputs: Any, key: Any = None) -> np.ndarray:
        return self.tensors["table"][inputs].sum(axis=1)

    def exam(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.values.size), self.values

    def right(self, answers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return np.abs(answers - wanted) < 0.25
