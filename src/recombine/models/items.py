"""Networks that turn an item into an embedding: of rows, of words, or of a picture."""

from __future__ import annotations

import abc
import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.checks import at_least
from recombine.errors import InvalidRequest
from recombine.models.attention import Attention, Gated, RMSNorm, View
from recombine.models.layers import EPSILON, FULL, Linear, count_parameters
from recombine.trees import truncated_normal

KERNEL = 3  # pixels along a side of what a convolution sees


class ItemNetwork(eqx.Module):
    """A drawn or trained network over items; items are flat, with any axes before."""

    # Paths of matrices that only look a word up: masks leave these out unless they are asked for.
    embeddings: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __call__(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*axes embedding"]:
        """The embeddings, in float32; products run in `dtype`."""

    @abc.abstractmethod
    def activations(
        self, items: Float[Array, "*axes item"]
    ) -> dict[str, Float[Array, "*axes width"]]:
        """One vector an item by layer (`layer1/after`, ..., `output`), at full precision."""


@dataclass(frozen=True)
class ItemModel(abc.ABC):
    """A spec: the sizes of a network over items, and how its first weights are drawn.

    `item_shape` has the axes behind an item's flat numbers: (rows, values) of ones and zeros, or
    (side, side, channels) of a picture.
    """

    version: ClassVar[int] = 1

    def check(self, item_shape: tuple[int, ...]) -> None:  # noqa: B027, most read all items
        """Refuses items that this network cannot read."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, item_shape: tuple[int, ...]) -> ItemNetwork:
        """First weights."""

    @functools.lru_cache(maxsize=256)  # noqa: B019, a spec is a value: equal ones share an entry
    def shapes(self, item_shape: tuple[int, ...]) -> ItemNetwork:
        """The shapes of its weights, without drawing them."""
        return jax.eval_shape(lambda: self.draw(jax.random.key(0), item_shape))

    def parameters(self, item_shape: tuple[int, ...]) -> int:
        return count_parameters(self.shapes(item_shape))


@dataclass(frozen=True)
class ItemMLP(ItemModel):
    """A spec: `depth` hidden layers of ReLU over all numbers of an item, and a linear embedding.

    >>> ItemMLP().parameters((6, 8))
    94784
    """

    width: int = 256
    depth: int = 2
    embedding: int = 64

    def __post_init__(self):
        at_least(self, width=1, depth=1, embedding=1)

    def draw(self, key: PRNGKeyArray, item_shape: tuple[int, ...]) -> ItemMLPNetwork:
        keys = jax.random.split(key, self.depth + 1)
        widths = [math.prod(item_shape), *(self.width,) * self.depth]
        hidden = tuple(
            Linear.draw(k, ins, outs)
            for k, ins, outs in zip(keys[:-1], widths[:-1], widths[1:], strict=True)
        )
        return ItemMLPNetwork(hidden, Linear.draw(keys[-1], self.width, self.embedding))


class ItemMLPNetwork(ItemNetwork):
    """A drawn, trained or assembled MLP over items."""

    hidden: tuple[Linear, ...]
    output: Linear

    def __call__(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*axes embedding"]:
        for layer in self.hidden:
            items = jax.nn.relu(layer(items, dtype))
        return self.output(items, dtype).astype(FULL)

    def activations(
        self, items: Float[Array, "*axes item"]
    ) -> dict[str, Float[Array, "*axes width"]]:
        seen = {}
        for number, layer in enumerate(self.hidden, start=1):
            items = seen[f"layer{number}/after"] = jax.nn.relu(layer(items))
        seen["output"] = self.output(items)
        return seen


@dataclass(frozen=True)
class ItemTransformer(ItemModel):
    """A spec: `depth` blocks of attention over the rows of an item and one learned first token.

    The final state of that token is the embedding, as wide as the network.

    >>> ItemTransformer(depth=2, width=32, heads=2).parameters((9, 61))
    27520
    """

    depth: int = 4
    width: int = 128
    heads: int = 4

    def __post_init__(self):
        at_least(self, depth=1, width=1, heads=1)
        if self.width % self.heads:
            nearest = -(-self.width // self.heads) * self.heads
            raise InvalidRequest(
                f"width={self.width} does not divide among {self.heads} heads: use width={nearest}"
            )

    def check(self, item_shape: tuple[int, ...]) -> None:
        if len(item_shape) != 2:
            raise InvalidRequest(
                f"a transformer over items reads rows of words or fields, and items of shape "
                f"{item_shape} are pictures: use ItemConv"
            )

    def draw(self, key: PRNGKeyArray, item_shape: tuple[int, ...]) -> ItemTransformerNetwork:
        rows, values = item_shape
        word_key, place_key, *block_keys = jax.random.split(key, self.depth + 2)
        # Words and places are of variance one half each: a row enters with one.
        words = truncated_normal(word_key, (values, self.width), 0.5)
        return ItemTransformerNetwork(
            words=Linear(words, None),
            places=truncated_normal(place_key, (rows + 1, self.width), 0.5),
            blocks=tuple(self._block(k) for k in block_keys),
            norm=RMSNorm(jnp.ones(self.width)),
        )

    def _block(self, key: PRNGKeyArray) -> ItemBlock:
        first, second = jax.random.split(key)
        units = -(-8 * self.width // 24) * 8  # as many numbers as four times the width ungated
        return ItemBlock(
            RMSNorm(jnp.ones(self.width)),
            Attention.draw(first, self.width, self.heads, relative=False),
            RMSNorm(jnp.ones(self.width)),
            Gated.draw(second, self.width, units),
        )


class ItemBlock(eqx.Module):
    """Attention among all tokens of an item, then gated units."""

    attention_norm: RMSNorm
    attention: Attention
    units_norm: RMSNorm
    units: Gated

    def __call__(
        self, h: Float[Array, "item token width"], view: View, dtype: jnp.dtype
    ) -> Float[Array, "item token width"]:
        h = h + self.attention(self.attention_norm(h), view, dtype)
        return h + self.units(self.units_norm(h), dtype)


class ItemTransformerNetwork(ItemNetwork):
    """A drawn or trained transformer over the rows of items."""

    embeddings: ClassVar[tuple[str, ...]] = ("words",)

    words: Linear
    places: Float[Array, "token width"]  # the first is the learned token
    blocks: tuple[ItemBlock, ...]
    norm: RMSNorm

    def stream(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype
    ) -> list[Float[Array, "item token width"]]:
        """The residual stream, as embedded and after each block."""
        values, tokens = self.words.weight.shape[0], self.places.shape[0]
        rows = self.words(items.reshape(-1, tokens - 1, values), dtype).astype(FULL)
        found = [jnp.pad(rows, ((0, 0), (1, 0), (0, 0))) + self.places]
        view = View(jnp.ones((tokens, tokens), bool))
        for block in self.blocks:
            found.append(block(found[-1], view, dtype))
        return found

    def __call__(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*axes embedding"]:
        first = self.stream(items, dtype)[-1][:, 0]
        return self.norm(first).reshape(*items.shape[:-1], -1)

    def activations(
        self, items: Float[Array, "*axes item"]
    ) -> dict[str, Float[Array, "*axes width"]]:
        """The state of the learned token after each block, and the `output`."""
        first = [h[:, 0].reshape(*items.shape[:-1], -1) for h in self.stream(items, FULL)]
        seen = {f"layer{number}/after": h for number, h in enumerate(first[1:], start=1)}
        return {**seen, "output": self.norm(first[-1])}


@dataclass(frozen=True)
class ItemConv(ItemModel):
    """A spec: a residual network over pictures, with instance norms that learn nothing.

    A first convolution at full size; then `stages`, each of which halves the picture and, but for
    the first, doubles the `width`; then the mean over places, a hidden layer and the embedding.

    >>> ItemConv(width=16, stages=2, hidden=64, embedding=32).parameters((32, 32, 3))
    23056
    """

    width: int = 32
    stages: int = 2
    hidden: int = 256
    embedding: int = 64

    def __post_init__(self):
        at_least(self, width=1, stages=1, hidden=1, embedding=1)

    def check(self, item_shape: tuple[int, ...]) -> None:
        if len(item_shape) != 3:
            raise InvalidRequest(
                f"convolutions read pictures, and items of shape {item_shape} are rows: use "
                "ItemMLP or ItemTransformer"
            )
        if item_shape[0] < 2**self.stages * 2:
            most = max(1, int(math.log2(item_shape[0])) - 1)
            raise InvalidRequest(
                f"{self.stages} stages leave nothing of a picture {item_shape[0]} pixels wide: "
                f"use stages={most} or less"
            )

    def draw(self, key: PRNGKeyArray, item_shape: tuple[int, ...]) -> ItemConvNetwork:
        stem_key, hidden_key, output_key, *keys = jax.random.split(key, 3 + 2 * self.stages)
        widths = [self.width, *(self.width * 2**n for n in range(self.stages))]
        area = KERNEL**2
        stages = []
        for n in range(self.stages):
            ins, outs = widths[n : n + 2]
            stages.append(
                Stage(
                    Linear.draw(keys[2 * n], area * ins, outs, bias=False),
                    Linear.draw(keys[2 * n + 1], area * outs, outs, bias=False),
                )
            )
        return ItemConvNetwork(
            Linear.draw(stem_key, area * item_shape[-1], self.width, bias=False),
            tuple(stages),
            Linear.draw(hidden_key, widths[-1], self.hidden),
            Linear.draw(output_key, self.hidden, self.embedding),
        )


class Stage(eqx.Module):
    """Halves a picture, then adds to it what its surroundings say."""

    halve: Linear
    refine: Linear

    def __call__(
        self, x: Float[Array, "item row column channel"], dtype: jnp.dtype
    ) -> Float[Array, "item row column channel"]:
        x = jax.nn.relu(instance_norm(convolve(self.halve, x, dtype, stride=2)))
        return jax.nn.relu(x + instance_norm(convolve(self.refine, x, dtype)))


class ItemConvNetwork(ItemNetwork):
    """A drawn or trained convolutional network over square pictures."""

    stem: Linear
    stages: tuple[Stage, ...]
    hidden: Linear
    output: Linear

    def pictures(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype
    ) -> list[Float[Array, "item row column channel"]]:
        """What the stem and each stage hand on."""
        channels = self.stem.weight.shape[0] // KERNEL**2
        side = math.isqrt(items.shape[-1] // channels)
        x = convolve(self.stem, items.reshape(-1, side, side, channels), dtype)
        found = [jax.nn.relu(instance_norm(x))]
        for stage in self.stages:
            found.append(stage(found[-1], dtype))
        return found

    def __call__(
        self, items: Float[Array, "*axes item"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*axes embedding"]:
        mean = jnp.mean(self.pictures(items, dtype)[-1], axis=(1, 2))
        found = self.output(jax.nn.relu(self.hidden(mean, dtype)), dtype)
        return found.astype(FULL).reshape(*items.shape[:-1], -1)

    def activations(
        self, items: Float[Array, "*axes item"]
    ) -> dict[str, Float[Array, "*axes width"]]:
        """Means over places of what the stem and the stages hand on, and the last two layers."""
        means = [jnp.mean(x, axis=(1, 2)) for x in self.pictures(items, FULL)]
        found = {f"layer{number}/after": mean for number, mean in enumerate(means, start=1)}
        last = found[f"layer{len(means) + 1}/after"] = jax.nn.relu(self.hidden(means[-1]))
        found["output"] = self.output(last)
        return {name: x.reshape(*items.shape[:-1], -1) for name, x in found.items()}


def convolve(
    layer: Linear, x: Float[Array, "item row column channel"], dtype: jnp.dtype, stride: int = 1
) -> Float[Array, "item row column out"]:
    """A convolution as one product over patches, which stays a product when members are stacked."""
    height, width = x.shape[1:3]
    reach = KERNEL // 2
    padded = jnp.pad(x.astype(dtype), ((0, 0), (reach, reach), (reach, reach), (0, 0)))
    shifted = [
        padded[:, i : i + height : stride, j : j + width : stride]
        for i in range(KERNEL)
        for j in range(KERNEL)
    ]
    return layer(jnp.concatenate(shifted, axis=-1), dtype)


def instance_norm(
    x: Float[Array, "item row column channel"],
) -> Float[Array, "item row column channel"]:
    """Every channel of every picture with mean 0 and variance 1 over its places, in float32."""
    x = x.astype(FULL)
    mean = jnp.mean(x, axis=(1, 2), keepdims=True)
    # About the mean, not from two moments: a channel that is nearly constant would come out wrong.
    variance = jnp.mean((x - mean) ** 2, axis=(1, 2), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON)
