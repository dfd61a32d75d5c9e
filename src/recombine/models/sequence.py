"""Transformers that read and write tokens: decoder-only, or an encoder and a decoder."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.errors import InvalidRequest, unknown
from recombine.models.attention import Attention, Cache, Gated, RMSNorm, View, angles
from recombine.models.layers import FULL, Linear, xavier
from recombine.tokens import ANSWER, PAD
from recombine.trees import truncated_normal

SHAPES = ("decoder", "encoder-decoder")
POSITIONS = ("rotary", "relative", "learned", "none")
SWITCHED = ("relative", "learned", "none")  # kinds of positions that share a program
EMBEDDINGS = ("up", "down")
NEVER_WRITTEN = np.asarray([PAD, ANSWER])


class Rows(NamedTuple):
    """Packed rows of tokens: several items a row, told apart by their number (0 is padding).

    A decoder reads `tokens`, question and answer in one; where there is an encoder it reads
    `source`, and `tokens` hold the answers alone.
    """

    tokens: Int[Array, "*row token"]
    item: Int[Array, "*row token"]
    source: Int[Array, "*row source"]
    source_item: Int[Array, "*row source"]


@dataclass(frozen=True)
class SequenceModel:
    """A spec: pre-normed blocks (RMS norm) of attention and gated units (SwiGLU), no biases.

    `embedding` is the scale at which tokens enter: "up" multiplies them to a variance of one, as
    is usual; "down" leaves them, and learned positions, at 1 / width, where what blocks add is
    large beside them. `tied` uses one block at every depth.

    >>> SequenceModel(depth=4, width=128).parameters(vocabulary=64, length=128)
    808064
    """

    version: ClassVar[int] = 2  # of the weights: switches and what they switch are among them

    shape: Literal["decoder", "encoder-decoder"] = "decoder"
    depth: int = 4
    width: int = 128
    heads: int = 4
    positions: Literal["rotary", "relative", "learned", "none"] = "rotary"
    embedding: Literal["up", "down"] = "up"
    tied: bool = False

    def __post_init__(self):
        for name, value, known in (
            ("shape", self.shape, SHAPES), ("positions", self.positions, POSITIONS),
            ("embedding", self.embedding, EMBEDDINGS),
        ):  # fmt: skip
            if value not in known:
                raise unknown(name, value, known)
        for name in ("depth", "width", "heads"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name}={getattr(self, name)}: expected at least 1")
        if self.width % (2 * self.heads):
            nearest = -(-self.width // (2 * self.heads)) * 2 * self.heads
            raise InvalidRequest(
                f"{self.heads} heads of an even size need a width that is a multiple of "
                f"{2 * self.heads}, got {self.width}: use width={nearest}"
            )
        if self.positions == "none" and self.shape == "encoder-decoder":
            raise InvalidRequest(
                "an encoder without positions reads a bag of words: use positions=rotary, or "
                "shape=decoder, which can tell places by what came before"
            )

    @property
    def hidden(self) -> int:
        """Gated units: 8/3 of the width, as many numbers as four times the width without gates."""
        return -(-8 * self.width // 24) * 8

    @property
    def kin(self) -> SequenceModel:
        """The model whose program this one shares: what differs between them is numbers.

        The scale of embeddings is one; learned places, distances or neither are parts of one
        network, of which all but one are switched off.
        """
        positions = "relative" if self.positions in SWITCHED else self.positions
        return replace(self, embedding="up", positions=positions)

    @functools.lru_cache(maxsize=256)  # noqa: B019, a spec is a value: equal ones share an entry
    def parameters(self, vocabulary: int, length: int) -> int:
        network = jax.eval_shape(
            lambda: self.draw(jax.random.key(0), vocabulary=vocabulary, length=length)
        )
        switched_off = []
        if self.positions != "learned":
            switched_off.append(network.places)
        if self.positions != "relative":
            switched_off += [b.own.nearness for b in (*network.encoder, *network.decoder)]
        # Scale and switches are set, not learnt.
        never = [*switched_off, network.scale, network.by_place, network.by_distance]
        sizes = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (network, never))
        return next(sizes) - next(sizes)

    def draw(self, key: PRNGKeyArray, *, vocabulary: int, length: int) -> SequenceNetwork:
        """First weights; `length` bounds learned positions."""
        keys = jax.random.split(key, 6)
        both = self.shape == "encoder-decoder"
        learned, variance = self.positions == "learned", 1 / self.width
        places = None
        if self.positions in SWITCHED:
            drawn = truncated_normal(keys[1], (length, self.width), variance)
            places = drawn if learned else jnp.zeros_like(drawn)
        return SequenceNetwork(
            tokens=truncated_normal(keys[0], (vocabulary, self.width), variance),
            places=places,
            encoder=self._blocks(keys[2], cross=False) if both else (),
            decoder=self._blocks(keys[3], cross=both),
            encoded=RMSNorm(jnp.ones(self.width)) if both else None,
            norm=RMSNorm(jnp.ones(self.width)),
            output=xavier(keys[4], self.width, vocabulary),
            scale=jnp.float32(self.width**0.5 if self.embedding == "up" else 1.0),
            by_place=jnp.float32(learned),
            by_distance=jnp.float32(self.positions == "relative"),
            spec=self.kin,
        )

    def _blocks(self, key: PRNGKeyArray, *, cross: bool) -> tuple[Block, ...]:
        count = 1 if self.tied else self.depth
        return tuple(self._block(k, cross) for k in jax.random.split(key, count))

    def _block(self, key: PRNGKeyArray, cross: bool) -> Block:
        first, second, third = jax.random.split(key, 3)
        relative, ones = self.positions in SWITCHED, jnp.ones(self.width)
        return Block(
            own_norm=RMSNorm(ones),
            own=Attention.draw(first, self.width, self.heads, relative=relative),
            cross_norm=RMSNorm(ones) if cross else None,
            cross=Attention.draw(third, self.width, self.heads, relative=False) if cross else None,
            hidden_norm=RMSNorm(ones),
            hidden=Gated.draw(second, self.width, self.hidden),
        )


class Block(eqx.Module):
    """Attention to one's own row, then (in a decoder with an encoder) to the source, then units."""

    own_norm: RMSNorm
    own: Attention
    cross_norm: RMSNorm | None
    cross: Attention | None
    hidden_norm: RMSNorm
    hidden: Gated

    def __call__(
        self, h: Array, view: View, dtype: jnp.dtype,
        source: Array | None = None, source_view: View | None = None,
    ) -> Array:  # fmt: skip
        h = h + self.own(self.own_norm(h), view, dtype)
        if self.cross is not None and self.cross_norm is not None:
            assert source is not None and source_view is not None
            kept = self.cross.keep(source, source_view, dtype)
            h = h + self.cross.look(self.cross_norm(h), kept, source_view, dtype)
        return h + self.hidden(self.hidden_norm(h), dtype)

    def go_on(
        self, h: Array, kept: Cache | None, slot: Int[Array, "row"] | None, view: View,
        dtype: jnp.dtype, source: Cache | None = None, source_view: View | None = None,
    ) -> tuple[Array, Cache]:  # fmt: skip
        """The same for tokens that come after others, or first: gives back all keys and values.

        Those of the one new token a row has are written at its `slot`.
        """
        x = self.own_norm(h)
        new = self.own.keep(x, view, dtype)
        if kept is not None:
            row = jnp.arange(h.shape[0])
            keys, values = (old.at[row, :, slot].set(add[:, :, 0].astype(old.dtype))
                            for old, add in zip(kept, new, strict=True))  # fmt: skip
            new = keys, values
        h = h + self.own.look(x, new, view, dtype)
        if self.cross is not None and self.cross_norm is not None:
            assert source is not None and source_view is not None
            h = h + self.cross.look(self.cross_norm(h), source, source_view, dtype)
        return h + self.hidden(self.hidden_norm(h), dtype), new


def places_in(item: Int[Array, "*row token"]) -> Int[Array, "*row token"]:
    """The place of every token in its own item, from 0."""
    number = jnp.broadcast_to(jnp.arange(item.shape[-1]), item.shape)
    before = jnp.concatenate([jnp.full_like(item[..., :1], -1), item[..., :-1]], axis=-1)
    start = jnp.where(item != before, number, 0)
    return number - jax.lax.cummax(start, axis=item.ndim - 1)


class SequenceNetwork(eqx.Module):
    """A drawn or trained transformer over tokens."""

    tokens: Float[Array, "vocabulary width"]
    places: Float[Array, "length width"] | None
    encoder: tuple[Block, ...]
    decoder: tuple[Block, ...]
    encoded: RMSNorm | None
    norm: RMSNorm
    output: Linear
    scale: Float[Array, ""]  # of embeddings
    by_place: Float[Array, ""]  # 1 where learned places are in use, else 0
    by_distance: Float[Array, ""]  # the same for distances
    spec: SequenceModel = eqx.field(static=True)

    def __call__(self, rows: Rows, dtype: jnp.dtype = FULL) -> Float[Array, "*row token word"]:
        """Scores of the token after each one, in float32."""
        return self.scores(self.hidden(rows, dtype)[-1], dtype)

    def hidden(self, rows: Rows, dtype: jnp.dtype = FULL) -> list[Float[Array, "*row token width"]]:
        """The residual stream of the decoder: as embedded, and after each block."""
        source, source_view = None, None
        if self.encoder:
            source = self.encode(rows.source, rows.source_item, dtype)
            source_view = View(_same_item(rows.item, rows.source_item))
        places = places_in(rows.item)
        stream = [self.embed(rows.tokens, places, dtype)]
        count = rows.tokens.shape[-1]
        causal = jnp.tril(jnp.ones((count, count), bool))
        view = self.view(_same_item(rows.item, rows.item) & causal, places, places, in_order=True)
        for block in self.layers(self.decoder):
            stream.append(block(stream[-1], view, dtype, source, source_view))
        return stream

    def scores(self, h: Array, dtype: jnp.dtype = FULL) -> Array:
        """Scores of every token; PAD and ANSWER are never written."""
        found = self.output(self.norm(h), dtype).astype(FULL)
        return jnp.where(jnp.isin(jnp.arange(found.shape[-1]), NEVER_WRITTEN), -1e9, found)

    def layers(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        return blocks * self.spec.depth if self.spec.tied else blocks

    def embed(self, tokens: Array, places: Array, dtype: jnp.dtype) -> Array:
        h = indicated(tokens, self.tokens, dtype)
        if self.places is not None:
            last = self.places.shape[0] - 1
            table = self.places * jax.lax.stop_gradient(self.by_place)
            h = h + indicated(jnp.minimum(places, last), table, dtype)
        return h * jax.lax.stop_gradient(self.scale)

    def encode(self, source: Array, item: Array, dtype: jnp.dtype) -> Array:
        """What the encoder hands on: every token of the source, having looked at all of its own."""
        assert self.encoded is not None
        places = places_in(item)
        h = self.embed(source, places, dtype)
        view = self.view(_same_item(item, item), places, places, in_order=True)
        for block in self.layers(self.encoder):
            h = block(h, view, dtype)
        return self.encoded(h)

    def view(
        self, allowed: Bool[Array, "*row query key"], queries: Array, keys: Array, *,
        in_order: bool = False,
    ) -> View:  # fmt: skip
        """What may be looked at from where, as this network's kind of positions needs it.

        `in_order`: places follow each other in every item, so that rows share their distances.
        """
        if self.spec.positions == "rotary":
            size = self.spec.width // self.spec.heads
            return View(allowed, angles(queries, size), angles(keys, size))
        if self.spec.positions == "relative":
            number = jnp.arange(keys.shape[-1])
            apart = queries[..., :, None] - keys[..., None, :]
            return View(
                allowed, apart=number[:, None] - number if in_order else apart,
                counts=jax.lax.stop_gradient(self.by_distance),
            )  # fmt: skip
        return View(allowed)


def indicated(rows: Int[Array, "*batch"], table: Float[Array, "row width"], dtype: jnp.dtype):
    """Rows of a table by a product with indicators: the gradient of a gather is a slow scatter."""
    chosen = jax.nn.one_hot(rows, table.shape[0], dtype=dtype)
    exactly = "highest" if dtype == FULL else None
    return jnp.dot(chosen, table.astype(dtype), precision=exactly).astype(FULL)


def _same_item(first: Array, second: Array) -> Bool[Array, "*row query key"]:
    same = first[..., :, None] == second[..., None, :]
    return same & (second > 0)[..., None, :]
