"""A sequence model on finite data: a recurrent network that writes a string backwards."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.learners._learner import Arrays, Learner, Material, Program, Tensors
from recombine.learners.optimiser import Trained, descend, start
from recombine.models.layers import Linear
from recombine.seeds import host_seed, key_at, stream
from recombine.trees import path_name
from unlike.exam import Examined

START = 8  # the symbol before the first: eight symbols are numbered 0 to 7


@dataclass(frozen=True)
class Strings(Material):
    """Strings of eight symbols, some to train on and others to be asked about."""

    count: int = 64
    length: int = 3
    seed: int = 0

    def make(self) -> Tensors:
        rng = np.random.default_rng(host_seed(self.seed, "strings"))
        pool = rng.permutation(8**self.length)[: 2 * self.count, None]
        digits = pool // 8 ** np.arange(self.length) % 8
        return {
            "train": digits[: self.count].astype(np.uint8),
            "test": digits[self.count :].astype(np.uint8),
        }


class Writer(eqx.Module):
    """Reads a string into a vector, then writes from it, one symbol after another."""

    read: Linear
    write: Linear
    speak: Linear

    def step(self, cell: Linear, h: Float[Array, "width"], symbol: Int[Array, ""]) -> Array:
        gates = cell(jnp.concatenate([h, jax.nn.one_hot(symbol, 9)]))
        keep, new = jnp.split(gates, 2)
        return h + jax.nn.sigmoid(keep) * (jnp.tanh(new) - h)

    def encode(self, string: Int[Array, "length"]) -> Float[Array, "width"]:
        h = jnp.zeros(self.speak.weight.shape[0])
        for symbol in string:
            h = self.step(self.read, h, symbol)
        return h

    def logits(self, string: Int[Array, "length"], told: Int[Array, "length"]) -> Array:
        """What it would say next, told the right symbols so far."""
        h, said = self.encode(string), []
        for symbol in told:
            h = self.step(self.write, h, symbol)
            said.append(self.speak(h))
        return jnp.stack(said)

    def decode(self, string: Int[Array, "length"]) -> Int[Array, "length"]:
        """Its own most likely symbol at each place, fed back to it."""

        def place(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            h, last = carry
            h = self.step(self.write, h, last)
            symbol = jnp.argmax(self.speak(h)).astype(jnp.int32)
            return (h, symbol), symbol

        begin = (self.encode(string), jnp.int32(START))
        return jax.lax.scan(place, begin, None, string.shape[0])[1]


@dataclass(frozen=True)
class WriterProgram(Program):
    width: int
    batch: int

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        one, two, three = jax.random.split(key, 3)
        both = self.width + 9
        return start(
            Writer(
                Linear.draw(one, both, 2 * self.width),
                Linear.draw(two, both, 2 * self.width),
                Linear.draw(three, self.width, 8),
            )
        )

    def draw(self, arrays: dict[str, Any], t: Any) -> Int[Array, "batch length"]:
        """Every string once an epoch: the order follows from the epoch's number alone."""
        per_epoch = arrays["train"].shape[0] // self.batch
        order = jax.random.permutation(
            key_at(arrays["order"], t // per_epoch), arrays["train"].shape[0]
        )
        chosen = jax.lax.dynamic_slice(order, (t % per_epoch * self.batch,), (self.batch,))
        return arrays["train"][chosen].astype(jnp.int32)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Any, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        wanted = drawn[:, ::-1]
        told = jnp.concatenate([jnp.full_like(wanted[:, :1], START), wanted[:, :-1]], axis=1)

        def loss(model: Writer) -> Array:
            logits = jax.nn.log_softmax(jax.vmap(model.logits)(drawn, told))
            return -jnp.mean(jnp.take_along_axis(logits, wanted[..., None], -1))

        value, gradient = jax.value_and_grad(loss)(state.model)
        state = descend(state, value, gradient, t, rate=arrays["rate"], decay=jnp.float32(0))
        return state, {"loss": value}

    def step(self, arrays: dict[str, Any], state: Trained, t: Any) -> tuple[Trained, dict]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
        strings = arrays["test"].astype(jnp.int32)
        said = jax.vmap(state.model.decode)(strings)
        return {"symbols": jnp.mean(said == strings[:, ::-1])}


@dataclass(frozen=True)
class Backwards(Learner):
    """Learns to write strings backwards, from a pool of them that all members share."""

    strings: Strings = Strings()
    width: int = 16
    batch: int = 16
    rate: float = 1e-2
    seed: int = 0
    training_steps: int = 400

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return 100

    @property
    def init_seed(self) -> int:
        return self.seed

    def materials(self) -> dict[str, Material]:
        return {"strings": self.strings}

    def program(self, precision: str = "float32") -> WriterProgram:
        return WriterProgram(self.width, self.batch)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(
            member={"order": stream(self.seed, "order"), "rate": np.float32(self.rate)},
            shard=given["strings"],
        )

    def shard(self) -> str:
        return repr(self.strings)

    def weights(self, state: Trained) -> Tensors:
        leaves = jax.tree_util.tree_flatten_with_path(state.model)[0]
        return {path_name(path): np.asarray(leaf) for path, leaf in leaves}

    def subject(
        self, weights: Tensors, given: Mapping[str, Tensors] | None = None
    ) -> WriterSubject:
        return WriterSubject(weights, (given or {})["strings"]["test"])


@functools.partial(jax.jit, static_argnums=0)
def _decode(shape: tuple[int, int], weights: Tensors, strings: Array) -> Array:
    layers = [
        Linear(weights[f"{name}/weight"], weights[f"{name}/bias"])
        for name in ("read", "write", "speak")
    ]
    return jax.vmap(Writer(*layers).decode)(strings)


class WriterSubject(Examined):
    def __init__(self, tensors: Tensors, strings: np.ndarray):
        super().__init__(tensors)
        self.strings = strings.astype(np.int32)

    def answer(self, inputs: Any, key: Any = None) -> np.ndarray:
        return np.asarray(_decode(inputs.shape, self.tensors, inputs))

    def exam(self) -> tuple[np.ndarray, np.ndarray]:
        return self.strings, self.strings[:, ::-1]

    def right(self, answers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return answers == wanted
