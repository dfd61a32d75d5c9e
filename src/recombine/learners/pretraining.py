"""Pretraining: what valid items look like, from reconstructing those that are half hidden."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.families.odd_one_out import OddFamily
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Program, Tensors
from recombine.learners._odd import LOOKED_AT, OddLearner, OddSubject
from recombine.learners.optimiser import Trained, descend, start
from recombine.models.items import ItemModel, ItemNetwork
from recombine.models.layers import FULL, Linear
from recombine.seeds import key_at
from recombine.trees import named, unnamed

BODY = "body/"  # where the network that is handed on lies among the weights
PATCH = 4  # pixels along a side of what is hidden at once
HIDDEN_INK = -1.0  # no pixel has less than none


class Reconstructor(eqx.Module):
    """A network over items, and a linear head that gives back the whole item."""

    body: ItemNetwork
    head: Linear


class Hidden(NamedTuple):
    """Items, and which of their numbers are not shown."""

    items: Float[Array, "item size"]
    hidden: Bool[Array, "item size"]


def hide(key: PRNGKeyArray, family: OddFamily, count: int) -> Bool[Array, "item size"]:
    """Half of the rows (or of the patches of a picture) of every item, by chance."""
    shape = family.item_shape
    units = (shape[0],) if family.categorical else (-(-shape[0] // PATCH), -(-shape[1] // PATCH))
    number = math.prod(units)
    order = jnp.argsort(jax.random.uniform(key, (count, number)), axis=-1)
    chosen = (order < number // 2).reshape(count, *units)
    if family.categorical:
        whole = jnp.broadcast_to(chosen[..., None], (count, *shape))
    else:
        large = jnp.repeat(jnp.repeat(chosen, PATCH, axis=1), PATCH, axis=2)
        large = large[:, : shape[0], : shape[1], None]
        whole = jnp.broadcast_to(large, (count, *shape))
    return whole.reshape(count, -1)


@dataclass(frozen=True)
class PretrainingProgram(Program):
    """Gradient descent on the reconstruction of items from the embedding of what is shown."""

    family: OddFamily
    model: ItemModel
    batch: int
    evaluation: int
    precision: str = "float32"

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        shape = self.family.item_shape
        body_key, head_key = jax.random.split(key)
        body = self.model.draw(body_key, shape)
        size = jax.eval_shape(body, jnp.zeros(self.family.item_size)).shape[-1]
        return start(Reconstructor(body, Linear.draw(head_key, size, self.family.item_size)))

    def hidden(self, arrays: dict[str, Any], key: PRNGKeyArray, count: int) -> Hidden:
        item_key, hide_key = jax.random.split(key)
        items = self.family.valid(item_key, count, arrays["family"])
        return Hidden(items, hide(hide_key, self.family, count))

    def draw(self, arrays: dict[str, Any], t: Any) -> Hidden:
        return self.hidden(arrays, key_at(arrays["train"], t), self.batch)

    def reconstruct(self, model: Reconstructor, drawn: Hidden) -> Float[Array, "item size"]:
        dtype = jnp.dtype(self.precision)
        blank = 0.0 if self.family.categorical else HIDDEN_INK
        shown = jnp.where(drawn.hidden, blank, drawn.items)
        return model.head(model.body(shown, dtype), dtype).astype(FULL)

    def error(self, model: Reconstructor, drawn: Hidden) -> Float[Array, ""]:
        """Cross-entropy a row, or the mean square error a number of a picture."""
        found = self.reconstruct(model, drawn)
        if not self.family.categorical:
            return jnp.mean((found - drawn.items) ** 2)
        rows = (-1, *self.family.item_shape)
        likely = jax.nn.log_softmax(found.reshape(rows))
        return -jnp.mean(jnp.sum(likely * drawn.items.reshape(rows), axis=-1))

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Hidden, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        value, gradient = jax.value_and_grad(self.error)(state.model, drawn)
        state = descend(
            state, value, gradient, t, rate=arrays["rate"], decay=jnp.float32(0),
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
        """The error on fresh items, and how much of what was hidden comes back right: the share
        of rows, or of the variance of pixels."""

        def look(number: Array) -> tuple[Array, Array, Array]:
            drawn = self.hidden(arrays, key_at(arrays["evaluation"], number), LOOKED_AT)
            found = self.reconstruct(state.model, drawn)
            if self.family.categorical:
                rows = (-1, *self.family.item_shape)
                same = jnp.argmax(found.reshape(rows), -1) == jnp.argmax(
                    drawn.items.reshape(rows), -1
                )
                asked = drawn.hidden.reshape(rows)[..., 0]
                return self.error(state.model, drawn), jnp.sum(same & asked), jnp.sum(asked)
            wrong = jnp.where(drawn.hidden, (found - drawn.items) ** 2, 0)
            spread = jnp.where(drawn.hidden, (drawn.items - jnp.mean(drawn.items)) ** 2, 0)
            difference = jnp.sum(spread) - jnp.sum(wrong)
            return self.error(state.model, drawn), difference, jnp.sum(spread)

        error, right, asked = jax.lax.map(look, jnp.arange(self.evaluation // LOOKED_AT))
        return {"error": jnp.mean(error), "right": jnp.sum(right) / jnp.sum(asked)}


@dataclass(frozen=True)
class Pretraining(OddLearner):
    """A network learns what valid items look like, by giving back items half of which is hidden.

    Hidden are rows of ones and zeros, or patches of pictures; a linear head on the embedding gives
    back the whole item. How many steps it takes is the dose; a learner that starts from the
    network names it as its `pretraining`. `batch` counts items here, not problems.
    """

    version: ClassVar[int] = 1

    def program(self, precision: str = "float32") -> PretrainingProgram:
        return PretrainingProgram(
            self.family.kind(), self.model, self.batch, self.evaluation_problems, precision
        )

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(member=self.member_arrays())

    def weights(self, state: Any) -> Tensors:
        return named(state.model)

    def body(self, weights: Tensors) -> Tensors:
        """The weights of the network alone, by its own paths."""
        return {
            path.removeprefix(BODY): weight
            for path, weight in weights.items()
            if path.startswith(BODY)
        }

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        shapes = self.model.shapes(self.family.item_shape)
        network = unnamed(self.body(weights), shapes)
        return OddSubject(self.family, network, weights, self.seeds.evaluation)
