"""What learners of odd-one-out problems share: the readout, the fields, the door to a network."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.checks import at_least, rates
from recombine.errors import InvalidRequest
from recombine.families.odd_one_out import FieldsOdd, OddFamily, Tables
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import in_batches
from recombine.learners._learner import StepLearner, Tensors
from recombine.models.items import ItemMLP, ItemModel, ItemNetwork
from recombine.models.layers import FULL
from recombine.seeds import Seeds, key_at, stream

SMALLEST = 1e-8  # added to squared lengths, so that an embedding of zeros has a direction: none
LOOKED_AT = 128  # problems or items evaluated at once


def logits(embeddings: Float[Array, "*problem item size"]) -> Float[Array, "*problem item"]:
    """How unlike the others each item is: minus the sum of its cosines with all items."""
    length = jnp.sqrt(jnp.sum(embeddings**2, axis=-1, keepdims=True) + SMALLEST)
    directions = embeddings / length
    return -jnp.sum(directions * jnp.sum(directions, axis=-2, keepdims=True), axis=-1)


def surprise(
    embeddings: Float[Array, "problem item size"], odd: Int[Array, "problem"]
) -> Float[Array, ""]:
    """The mean cross-entropy of the odd item."""
    scores = jax.nn.log_softmax(logits(embeddings))
    chosen = odd[:, None] == jnp.arange(scores.shape[-1])
    return -jnp.mean(jnp.sum(jnp.where(chosen, scores, 0), axis=-1))


def accuracy(
    embeddings: Float[Array, "problem item size"], odd: Int[Array, "problem"]
) -> Float[Array, ""]:
    """The share of problems whose odd item is the most unlike."""
    return jnp.mean((jnp.argmax(logits(embeddings), axis=-1) == odd).astype(FULL))


@dataclass(frozen=True)
class OddLearner(StepLearner):
    """The fields and lengths of learners of items: AdamW at a constant rate."""

    family: OddFamily = field(default_factory=FieldsOdd)
    model: ItemModel = field(default_factory=ItemMLP)
    seeds: Seeds = field(default_factory=Seeds)
    training_steps: int = 3_000
    batch: int = 256
    learning_rate: float = 1e-3
    evaluation_every: int = 500
    evaluation_problems: int = 1_024
    decay: float = 0.0

    @property
    def size(self) -> int:
        return self.model.parameters(self.family.item_shape)

    def check(self) -> None:
        self.family.check()
        self.model.check(self.family.item_shape)
        at_least(self, training_steps=1, batch=1, evaluation_every=1, evaluation_problems=1)
        if self.evaluation_problems % LOOKED_AT:
            near = max(1, round(self.evaluation_problems / LOOKED_AT)) * LOOKED_AT
            raise InvalidRequest(
                f"evaluation_problems={self.evaluation_problems}: expected a multiple of "
                f"{LOOKED_AT}, such as {near}"
            )
        rates(self, "learning_rate", "decay")

    def member_arrays(self) -> dict[str, Any]:
        """Keys and rates of a cell."""
        return {
            "train": stream(self.seeds.train, "train"),
            "evaluation": stream(self.seeds.evaluation, "evaluation"),
            "rate": np.float32(self.learning_rate),
            "decay": np.float32(self.decay),
            "steps": np.int32(self.steps),
            **self.part_arrays(),
        }

    def part_arrays(self) -> dict[str, Any]:
        return {"family": self.family.tables()}

    def body(self, weights: Tensors) -> Tensors:
        """The weights of the network alone, by its own paths: what others can go on with."""
        return weights


class OddSubject(Subject):
    """A network over items, with the family whose problems it can be asked.

    Inputs are problems, [problem, item, size]; its answer is the place of the odd item in each.
    """

    abilities = frozenset({"answer", "activations", "weights"})

    def __init__(
        self, family: OddFamily, network: ItemNetwork, stored: Tensors, evaluation_seed: int
    ):
        self.family, self.stored, self.evaluation_seed = family, stored, evaluation_seed
        self.network: ItemNetwork = jax.tree.map(jnp.asarray, network)

    def weights(self) -> Tensors:
        return self.stored

    def draw(self, which: int, name: str, count: int = 1_024) -> tuple[np.ndarray, np.ndarray]:
        """Fresh problems of a set from a named stream no training step uses, and the answers."""
        words = stream(self.evaluation_seed, name)
        found = _problems(self.family.kind(), count, jnp.int32(which), words, self.family.tables())
        return np.asarray(found[0]), np.asarray(found[1])

    def draw_items(self, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Fresh items from a named stream, and of each which of the two rules it obeys.

        Either rule holds by chance, whatever the other does. Of a rule that the family knows
        `in_company` only, what is said of a single item says nothing.
        """
        words = stream(self.evaluation_seed, name)
        found = _items(self.family.kind(), count, words, self.family.tables())
        return np.asarray(found[0]), np.asarray(found[1])

    def answer(
        self, inputs: Float[np.ndarray, "problem item size"], key: Any = None
    ) -> Int[np.ndarray, "problem"]:
        return in_batches(lambda part: _answer(self.network, part), inputs)

    def activations(
        self, inputs: Float[np.ndarray, "problem item size"]
    ) -> dict[str, Float[np.ndarray, "problem item width"]]:
        """The vector of every item by layer."""
        return in_batches(lambda part: _activations(self.network, part), inputs)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _problems(
    kind: OddFamily, count: int, which: Array, words: Array, tables: Tables
) -> tuple[Array, Array]:
    return kind.problems(which, key_at(words, which), count, tables)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _items(kind: OddFamily, count: int, words: Array, tables: Tables) -> tuple[Array, Array]:
    rule_key, item_key = jax.random.split(key_at(words, 0))
    rules = jax.random.bernoulli(rule_key, 0.5, (2, count, 1))
    items = kind.items(item_key, rules[0], rules[1], tables)
    return items[:, 0], rules[:, :, 0].T


@jax.jit
def _answer(network: ItemNetwork, problems: Array) -> Array:
    return jnp.argmax(logits(network(problems)), axis=-1)


@jax.jit
def _activations(network: ItemNetwork, problems: Array) -> dict[str, Array]:
    return network.activations(problems)
