"""Networks in rotated weights: the same function, written so that no weight belongs to a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.errors import InvalidRequest
from recombine.learners._learner import Tensors
from recombine.learners.odd_one_out import OddOneOut, OddOneOutProgram
from recombine.models.items import ItemMLP, ItemMLPNetwork, ItemNetwork
from recombine.models.layers import FULL, Linear
from recombine.seeds import host_seed
from recombine.trees import named


class MixedNetwork(ItemNetwork):
    """The same function as an MLP's, whose matrices are all seen through random rotations.

    Between two matrices lies a ReLU, which no rotation passes through: every matrix is turned on
    both sides, and fixed rotations around it, which are no layers, turn what goes in and turn back
    what comes out.
    """

    hidden: tuple[Linear, ...]
    output: Linear
    turns: tuple[Float[Array, "in in"], ...]  # before each matrix
    returns: tuple[Float[Array, "out out"], ...]  # after each matrix

    def __call__(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*axes embedding"]:
        return self._layers(items, dtype)["output"]

    def activations(
        self, items: Float[Array, "*axes item"]
    ) -> dict[str, Float[Array, "*axes width"]]:
        return self._layers(items, FULL)

    def _layers(self, x: Array, dtype: jnp.dtype) -> dict[str, Array]:
        seen = {}
        for number, layer in enumerate((*self.hidden, self.output)):
            # Rotations at full precision: they only change how a matrix is written down.
            turned = jnp.dot(x.astype(FULL), self.turns[number], precision="highest")
            y = jnp.dot(
                layer(turned, dtype).astype(FULL), self.returns[number], precision="highest"
            )
            last = number == len(self.hidden)
            x = seen["output" if last else f"layer{number + 1}/after"] = (
                y if last else jax.nn.relu(y)
            )
        return seen


def mixed(network: ItemMLPNetwork, seed: int) -> MixedNetwork:
    """A network with every matrix turned by random rotations on both sides."""
    rng = np.random.default_rng(seed)
    layers, turns, returns = [], [], []
    for layer in (*network.hidden, network.output):
        weight, bias = np.float64(layer.weight), np.float64(layer.bias)
        before, after = (rotation(rng, size) for size in weight.shape)
        layers.append(Linear(_single(before.T @ weight @ after), _single(bias @ after)))
        turns.append(_single(before))
        returns.append(_single(after.T))
    return MixedNetwork(tuple(layers[:-1]), layers[-1], tuple(turns), tuple(returns))


def rotation(rng: np.random.Generator, size: int) -> Float[np.ndarray, "size size"]:
    """An orthogonal matrix, all as likely."""
    turned, scale = np.linalg.qr(rng.normal(size=(size, size)))
    return turned * np.sign(np.diagonal(scale))


def _single(array: np.ndarray) -> Any:
    return array.astype(np.float32)


def mixed_shapes(network: ItemMLPNetwork) -> MixedNetwork:
    """The shapes of a network once it is mixed."""
    layers = (*network.hidden, network.output)
    ins, outs = zip(*(layer.weight.shape for layer in layers), strict=True)

    def square(size: int) -> Any:
        return jax.ShapeDtypeStruct((size, size), FULL)

    return MixedNetwork(
        network.hidden, network.output, tuple(map(square, ins)), tuple(map(square, outs))
    )


@dataclass(frozen=True)
class RotatedProgram(OddOneOutProgram):
    """Learns as any other; what is kept has other shapes."""

    def shapes(self) -> tuple[Any, Any]:
        found: Any = mixed_shapes(super().shapes()[0])
        return found, found


@dataclass(frozen=True)
class RotatedOdd(OddOneOut):
    """The twin of an `OddOneOut` with the same fields: it learns the same, and is then written down
    with every matrix turned by random rotations.

    What single weights of the one tell of its rules is a matter of how the function is written
    wherever those of the other tell it too.
    """

    version: ClassVar[int] = 1

    def check(self) -> None:
        super().check()
        if not isinstance(self.model, ItemMLP):
            raise InvalidRequest(
                f"an ItemMLP can be rotated, got {type(self.model).__name__}: use ItemMLP"
            )

    def program(self, precision: str = "float32") -> RotatedProgram:
        return RotatedProgram(
            self.family.kind(), self.model, self.batch, self.evaluation_problems, precision
        )

    def weights(self, state: Any) -> Tensors:
        return named(mixed(state.model, host_seed(self.seeds.content, "mixing")))
