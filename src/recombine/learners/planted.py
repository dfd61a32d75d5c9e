"""The planted positive: a network of two halves that are known to do one rule each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recombine.errors import InvalidRequest
from recombine.families.odd_one_out import SUB_A, SUB_B
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Tensors
from recombine.learners._odd import OddLearner, OddSubject, surprise
from recombine.learners.odd_one_out import OddOneOutProgram
from recombine.learners.optimiser import Trained, start
from recombine.learners.rotated import mixed, mixed_shapes
from recombine.models.items import ItemMLP, ItemMLPNetwork, ItemNetwork
from recombine.models.layers import Linear
from recombine.seeds import host_seed, key_at
from recombine.trees import named


class Halves(NamedTuple):
    """Two networks that never meet while they learn."""

    a: ItemMLPNetwork
    b: ItemMLPNetwork


def joined(halves: Halves) -> ItemMLPNetwork:
    """Both side by side in one network: block-diagonal matrices, embeddings end to end.

    Both halves read the whole item, so the first matrix has no blocks.
    """
    first, *hidden = (
        _beside(one, two, blocks=number > 0)
        for number, (one, two) in enumerate(zip(halves.a.hidden, halves.b.hidden, strict=True))
    )
    return ItemMLPNetwork((first, *hidden), _beside(halves.a.output, halves.b.output, blocks=True))


def _beside(one: Linear, two: Linear, *, blocks: bool) -> Linear:
    assert one.bias is not None and two.bias is not None
    upper, lower = one.weight, two.weight
    if blocks:
        upper = jnp.concatenate([upper, jnp.zeros((upper.shape[0], lower.shape[1]))], axis=1)
        lower = jnp.concatenate([jnp.zeros((lower.shape[0], one.weight.shape[1])), lower], axis=1)
    weight = jnp.concatenate([upper, lower], axis=0 if blocks else 1)
    return Linear(weight, jnp.concatenate([one.bias, two.bias]))


@dataclass(frozen=True)
class PlantedProgram(OddOneOutProgram):
    """Two halves learn at once, each from problems of its own rule alone."""

    mixed: bool = False

    @property
    def half(self) -> ItemMLP:
        assert isinstance(self.model, ItemMLP)
        return replace(self.model, width=self.model.width // 2, embedding=self.model.embedding // 2)

    def shapes(self) -> tuple[Any, Any]:
        found: Any = self.model.shapes(self.family.item_shape)
        found = mixed_shapes(found) if self.mixed else found
        return found, found

    def network(self, model: Halves) -> ItemNetwork:
        return joined(model)

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        keys = jax.random.split(key)
        shape = self.family.item_shape
        return start(Halves(*(self.half.draw(k, shape) for k in keys)))

    def draw(self, arrays: dict[str, Any], t: Any) -> Any:
        keys = jax.random.split(key_at(arrays["train"], t))
        which = jnp.array([SUB_A, SUB_B])
        return jax.vmap(lambda w, k: self.problems(arrays, w, k))(which, keys)

    def loss(self, model: Halves, drawn: Any) -> Float[Array, ""]:
        items, odd = drawn
        return sum(
            (surprise(half(items[i], self.dtype), odd[i]) for i, half in enumerate(model)),
            jnp.float32(0),
        )


@dataclass(frozen=True)
class PlantedOdd(OddLearner):
    """Two halves of a network learn one rule each, apart, and are joined: modular by making.

    What tells modules apart must find them here. With `mixed` the very same function is written
    down with matrices that random rotations have mixed, so that no entry belongs to a half: what
    looks at single weights must then find less. Weights decay, so that those a half does not need
    are gone: what is left of them when a mask is taken out would disturb the other half.
    """

    version: ClassVar[int] = 1

    mixed: bool = False
    decay: float = 1.0

    def check(self) -> None:
        super().check()
        if not isinstance(self.model, ItemMLP):
            raise InvalidRequest(
                f"halves are planted in an ItemMLP, got {type(self.model).__name__}: use ItemMLP"
            )
        for name in ("width", "embedding"):
            value = getattr(self.model, name)
            if value % 2:
                raise InvalidRequest(f"{name}={value} has no two halves: use {name}={value + 1}")

    def program(self, precision: str = "float32") -> PlantedProgram:
        return PlantedProgram(
            self.family.kind(), self.model, self.batch, self.evaluation_problems, precision,
            mixed=self.mixed,
        )  # fmt: skip

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        return Arrays(member=self.member_arrays())

    def weights(self, state: Any) -> Tensors:
        network = joined(state.model)
        if self.mixed:
            return named(mixed(network, host_seed(self.seeds.content, "mixing")))
        return named(network)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        network = self.program().body(weights)
        return OddSubject(self.family, network, weights, self.seeds.evaluation)
