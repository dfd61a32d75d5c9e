"""The decoder-only transformer, told its task through a token before the samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.errors import InvalidRequest
from recombine.models._model import Model, Network, Setting
from recombine.models.layers import FULL, LayerNorm, Linear, xavier

ROPE_BASE = 10_000.0


@dataclass(frozen=True)
class Transformer(Model):
    """A spec: `depth` causal blocks of attention and a GELU layer of `hidden` (4 x width) units.

    The token of the task comes first, then one token a sample; answers are read at the samples.
    At the published size and codes, inputs and outputs of 16 numbers it has 3.16 million numbers.
    That figure would allow a bias here and there; we read "no biases" literally, in the head and
    the embeddings of the tokens too, and let the heads of a block share the scales of their
    queries and keys.

    >>> Transformer(depth=4, width=256, heads=4).parameters(code=16, inputs=16, outputs=16)
    3160832
    """

    version: ClassVar[int] = 1
    looks_back: ClassVar[bool] = True

    depth: int = 4
    width: int = 256
    heads: int = 4
    hidden: int | None = None

    def __post_init__(self):
        sizes = {"depth": self.depth, "width": self.width, "heads": self.heads,
                 "hidden": self.units}  # fmt: skip
        for name, size in sizes.items():
            if size < 1:
                raise InvalidRequest(f"a transformer needs {name} of at least 1, got {size}")
        pairs = 2 * self.heads  # rotary positions turn pairs of numbers in each head
        if self.width % pairs:
            nearest = -(-self.width // pairs) * pairs
            raise InvalidRequest(
                f"each of {self.heads} heads needs an even number of dimensions, and width "
                f"{self.width} is no multiple of {pairs}: use width={nearest}"
            )

    @property
    def layers(self) -> int:
        return self.depth

    @property
    def units(self) -> int:
        """Hidden units of each block's feed-forward layer."""
        return 4 * self.width if self.hidden is None else self.hidden

    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        w = self.width
        norms = 2 * w + 2 * (w // self.heads)
        block = 4 * w * w + 2 * w * self.units + norms
        return (code + inputs + outputs) * w + self.depth * block + w

    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> TransformerNetwork:  # fmt: skip
        task_key, input_key, output_key, *block_keys = jax.random.split(key, self.depth + 3)
        return TransformerNetwork(
            task=xavier(task_key, code, self.width),
            input=xavier(input_key, inputs, self.width),
            blocks=tuple(self._block(block_key) for block_key in block_keys),
            norm=LayerNorm.draw(self.width),
            output=xavier(output_key, self.width, outputs),
        )

    def _block(self, key: PRNGKeyArray) -> Block:
        w, head = self.width, self.width // self.heads
        keys = jax.random.split(key, 6)
        return Block(
            attention_norm=LayerNorm.draw(w),
            query=xavier(keys[0], w, w),
            key=xavier(keys[1], w, w),
            value=xavier(keys[2], w, w),
            query_norm=LayerNorm.draw(head),
            key_norm=LayerNorm.draw(head),
            merge=xavier(keys[3], w, w),
            hidden_norm=LayerNorm.draw(w),
            up=xavier(keys[4], w, self.units),
            down=xavier(keys[5], self.units, w),
        )


def rotate(x: Float[Array, "*batch token dim"]) -> Float[Array, "*batch token dim"]:
    """Rotary positions, in float32: each pair (i, i + dim/2) is turned by an angle that grows with
    the token's place, so that the product of two tokens depends on their distance only."""
    tokens, half = x.shape[-2], x.shape[-1] // 2
    speeds = ROPE_BASE ** (-np.arange(half) / half)
    angles = np.arange(tokens)[:, None] * speeds
    cos = np.concatenate([np.cos(angles), np.cos(angles)], axis=-1).astype(FULL)
    sin = np.concatenate([-np.sin(angles), np.sin(angles)], axis=-1).astype(FULL)
    partner = jnp.concatenate([x[..., half:], x[..., :half]], axis=-1)
    return x * cos + partner * sin


class Block(eqx.Module):
    """One layer: causal attention with normed queries and keys, then GELU units."""

    attention_norm: LayerNorm
    query: Linear
    key: Linear
    value: Linear
    query_norm: LayerNorm
    key_norm: LayerNorm
    merge: Linear
    hidden_norm: LayerNorm
    up: Linear
    down: Linear

    def __call__(
        self, h: Float[Array, "*task token width"], dtype: jnp.dtype
    ) -> Float[Array, "*task token width"]:
        h = h + self.attend(self.attention_norm(h), dtype).astype(FULL)
        # The usual approximation of GELU by a tanh.
        units = jax.nn.gelu(self.up(self.hidden_norm(h), dtype))
        return h + self.down(units, dtype).astype(FULL)

    def attend(
        self, x: Float[Array, "*task token width"], dtype: jnp.dtype
    ) -> Float[Array, "*task token width"]:
        tokens, size = x.shape[-2], self.query_norm.scale.shape[0]
        precision = "highest" if dtype == FULL else None

        def by_head(layer: Linear) -> Float[Array, "*task head token dim"]:
            return jnp.swapaxes(layer(x, dtype).reshape(*x.shape[:-1], -1, size), -3, -2)

        query = rotate(self.query_norm(by_head(self.query))) * size**-0.5
        key = rotate(self.key_norm(by_head(self.key)))
        scores = jnp.einsum(
            "...qd,...kd->...qk", query.astype(dtype), key.astype(dtype), precision=precision
        )
        earlier = np.tril(np.ones((tokens, tokens), bool))
        weights = jax.nn.softmax(jnp.where(earlier, scores.astype(FULL), -jnp.inf))
        mixed = jnp.einsum(
            "...qk,...kd->...qd", weights.astype(dtype), by_head(self.value), precision=precision
        )
        return self.merge(jnp.swapaxes(mixed, -3, -2).reshape(x.shape), dtype)


class TransformerNetwork(Network):
    """A drawn or trained transformer; labels are never fed, so it cannot learn in context."""

    embeddings: ClassVar[tuple[str, ...]] = ("task",)

    task: Linear
    input: Linear
    blocks: tuple[Block, ...]
    norm: LayerNorm
    output: Linear

    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:
        h = self.tokens(code, x, dtype)
        for block in self.blocks:
            h = block(h, dtype)
        return self.answers(h, dtype)

    def tokens(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task token width"]:  # fmt: skip
        """What the first block reads: the task, then the samples."""
        task, samples = self.task(code, dtype)[..., None, :], self.input(x, dtype)
        return jnp.concatenate([task, samples], axis=-2).astype(FULL)

    def answers(
        self, h: Float[Array, "*task token width"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*task sample output"]:
        """What the last block's samples say; the task's own token says nothing."""
        return self.output(self.norm(h[..., 1:, :]), dtype).astype(FULL)

    def activations(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> dict[str, Float[Array, "*task sample width"]]:
        """The residual stream after each block, the `final` normed one, and the `output`."""
        h, seen = self.tokens(code, x), {}
        for number, block in enumerate(self.blocks, start=1):
            h = block(h, FULL)
            seen[f"layer{number}/after"] = h[..., 1:, :]
        seen["final"] = self.norm(h[..., 1:, :])
        seen["output"] = self.output(seen["final"])
        return seen

    def handed_on(
        self, layer: int, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> Float[Array, "*task token width"]:
        """The residual stream after block `layer`, the task's token first: later blocks read it."""
        h = self.tokens(code, x)
        for block in self.blocks[:layer]:
            h = block(h, FULL)
        return h

    def continue_from(
        self, layer: int, h: Float[Array, "*task token width"]
    ) -> Float[Array, "*task sample output"]:
        for block in self.blocks[layer:]:
            h = block(h, FULL)
        return self.answers(h)
