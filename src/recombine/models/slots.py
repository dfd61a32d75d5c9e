"""Slot attention: slots that compete for the places of a picture, and pictures made of slots."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.checks import at_least
from recombine.models._convolution import Conv, everywhere, grid, through
from recombine.models.layers import FULL, LayerNorm, Linear, count_parameters, xavier

LEAST_SHARE = 1e-8  # of a place that every slot gets


class Encoder(eqx.Module):
    """Convolutions, then where each place is, then a small network at each place by itself."""

    convs: tuple[Conv, ...]
    place: Linear
    norm: LayerNorm
    up: Linear
    down: Linear

    @staticmethod
    def draw(key: PRNGKeyArray, channels: int, width: int, depth: int, *, stride: int) -> Encoder:
        place, up, down, *keys = jax.random.split(key, depth + 3)
        # With a stride, later kernels span as much of the picture while they are smaller.
        sizes = [5 if n == 0 or stride == 1 else 3 for n in range(depth)]
        return Encoder(
            convs=tuple(
                Conv.draw(k, sizes[n], channels if n else 3, channels, stride=1 if n else stride)
                for n, k in enumerate(keys)
            ),
            place=Linear.draw(place, 4, channels),
            norm=LayerNorm.draw(channels, bias=True),
            up=Linear.draw(up, channels, width),
            down=Linear.draw(down, width, width),
        )

    def __call__(
        self, images: Float[Array, "*batch side side 3"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*batch place width"]:
        h = images
        for conv in self.convs:
            h = jax.nn.relu(conv(h, dtype))
        h = h.astype(FULL) + self.place(jnp.asarray(grid(h.shape[-2])), dtype).astype(FULL)
        h = h.reshape(*h.shape[:-3], -1, h.shape[-1])
        return self.down(jax.nn.relu(self.up(self.norm(h), dtype)), dtype).astype(FULL)


class SlotAttention(eqx.Module):
    """Slots that explain a picture together: each place is shared out among them.

    In each of T rounds, A = softmax over slots of k·q, with q = W_q LN(slots) D^-½ and k, v from
    LN(inputs); A is then divided by its sum over places, and u = Aᵀ v; slots ← GRU(u, slots), and
    a small network is added. First slots are μ + exp(log σ) ε, with μ and σ the same for all, so
    that slots differ by noise alone. Source: Locatello et al., "Object-centric learning with slot
    attention" (2020).
    """

    input_norm: LayerNorm
    slot_norm: LayerNorm
    unit_norm: LayerNorm
    query: Linear
    key: Linear
    value: Linear
    gates_in: Linear
    gates_back: Linear
    up: Linear
    down: Linear
    mean: Float[Array, "width"]
    log_deviation: Float[Array, "width"]
    slots: int = eqx.field(static=True)
    iterations: int = eqx.field(static=True)

    @staticmethod
    def draw(
        key: PRNGKeyArray, ins: int, width: int, hidden: int, slots: int, iterations: int
    ) -> SlotAttention:
        keys = jax.random.split(key, 9)
        return SlotAttention(
            input_norm=LayerNorm.draw(ins, bias=True),
            slot_norm=LayerNorm.draw(width, bias=True),
            unit_norm=LayerNorm.draw(width, bias=True),
            query=xavier(keys[0], width, width),
            key=xavier(keys[1], ins, width),
            value=xavier(keys[2], ins, width),
            gates_in=Linear.draw(keys[3], width, 3 * width),
            gates_back=Linear.draw(keys[4], width, 3 * width),
            up=Linear.draw(keys[5], width, hidden),
            down=Linear.draw(keys[6], hidden, width),
            mean=xavier(keys[7], 1, width).weight[0],
            log_deviation=xavier(keys[8], 1, width).weight[0],
            slots=slots,
            iterations=iterations,
        )

    def first(
        self, axes: tuple[int, ...], key: PRNGKeyArray | None
    ) -> Float[Array, "*batch slot width"]:
        """The slots before the first round; without a key, the same noise every time."""
        key = jax.random.key(0) if key is None else key
        noise = jax.random.normal(key, (*axes, self.slots, self.mean.shape[0]))
        return self.mean + jnp.exp(self.log_deviation) * noise

    def __call__(
        self, inputs: Float[Array, "*batch place in"], *, dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "*batch slot width"], Float[Array, "*batch place slot"]]:  # fmt: skip
        """The slots after the last round, and how they shared the places out in it."""
        inputs = self.input_norm(inputs)
        keys, values = self.key(inputs, dtype), self.value(inputs, dtype)
        slots = self.first(inputs.shape[:-2], key)
        shares = jnp.zeros((*inputs.shape[:-1], self.slots))
        for _ in range(self.iterations):
            slots, shares = self.round(slots, keys, values, dtype)
        return slots, shares

    def round(
        self, slots: Float[Array, "*batch slot width"], keys: Float[Array, "*batch place width"],
        values: Float[Array, "*batch place width"], dtype: jnp.dtype = FULL,
    ) -> tuple[Float[Array, "*batch slot width"], Float[Array, "*batch place slot"]]:  # fmt: skip
        exactly = "highest" if dtype == FULL else None
        query = self.query(self.slot_norm(slots), dtype) * slots.shape[-1] ** -0.5
        scores = jnp.einsum(
            "...pd,...sd->...ps", keys, query.astype(dtype), precision=exactly
        ).astype(FULL)
        shares = jax.nn.softmax(scores, axis=-1)
        weights = shares + LEAST_SHARE
        weights = weights / jnp.sum(weights, axis=-2, keepdims=True)
        update = jnp.einsum("...ps,...pd->...sd", weights.astype(dtype), values, precision=exactly)
        slots = self.gated(update.astype(FULL), slots, dtype)
        units = jax.nn.relu(self.up(self.unit_norm(slots), dtype))
        return slots + self.down(units, dtype).astype(FULL), shares

    def gated(
        self, update: Float[Array, "*batch slot width"], slots: Float[Array, "*batch slot width"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*batch slot width"]:  # fmt: skip
        """A gated recurrent unit, from the old slots and what they gathered."""
        new = jnp.split(self.gates_in(update, dtype).astype(FULL), 3, axis=-1)
        old = jnp.split(self.gates_back(slots, dtype).astype(FULL), 3, axis=-1)
        kept, reset = (jax.nn.sigmoid(new[n] + old[n]) for n in (0, 1))
        return kept * slots + (1 - kept) * jnp.tanh(new[2] + reset * old[2])


class Redrawn(NamedTuple):
    """A picture drawn again, and how its pixels are shared out among the parts."""

    image: Float[Array, "*batch side side 3"]
    masks: Float[Array, "*batch part side side"]


class Autoencoder(eqx.Module):
    """A drawn or trained network that draws again what it saw, part by part."""

    @abc.abstractmethod
    def __call__(
        self, images: Float[Array, "image side side 3"], *, dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Redrawn:  # fmt: skip
        """The picture and its masks, in float32."""


@dataclass(frozen=True)
class AutoencoderModel(abc.ABC):
    """A spec of a network that draws again what it saw; every field is a size."""

    version: ClassVar[int] = 1

    @property
    @abc.abstractmethod
    def parts(self) -> int:
        """Among how many parts the pixels are shared out."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, *, side: int) -> Any:
        """First weights, for pictures of this side."""

    def check(self) -> None:
        at_least(self, **dict.fromkeys(vars(self), 1))

    def parameters(self, side: int) -> int:
        """How many numbers training may change."""
        return count_parameters(jax.eval_shape(lambda: self.draw(jax.random.key(0), side=side)))


@dataclass(frozen=True)
class SlotAutoencoder(AutoencoderModel):
    """A spec: pictures are taken apart into slots, and each slot draws its share of the pixels.

    >>> SlotAutoencoder().parameters(side=35)
    244132
    """

    version: ClassVar[int] = 1

    slots: int = 4
    channels: int = 32
    width: int = 64
    hidden: int = 128
    iterations: int = 3
    encoder_depth: int = 4
    decoder_depth: int = 3

    @property
    def parts(self) -> int:
        return self.slots

    def draw(self, key: PRNGKeyArray, *, side: int) -> SlotAutoencoderNetwork:
        encode, attend, decode = jax.random.split(key, 3)
        c, w = self.channels, self.width
        return SlotAutoencoderNetwork(
            Encoder.draw(encode, c, w, self.encoder_depth, stride=1),
            SlotAttention.draw(attend, w, w, self.hidden, self.slots, self.iterations),
            BroadcastDecoder.draw(decode, w, c, self.decoder_depth),
        )


class BroadcastDecoder(eqx.Module):
    """Every slot is put at every place, told where that is, and drawn by convolutions.

    A convolution of the same vector everywhere only depends on which of the kernel's places fall
    inside the picture: the first layer is computed so, which saves most of its work.
    """

    place: Linear
    convs: tuple[Conv, ...]

    @staticmethod
    def draw(key: PRNGKeyArray, width: int, channels: int, depth: int) -> BroadcastDecoder:
        place, last, *keys = jax.random.split(key, depth + 2)
        convs = [
            Conv.draw(k, 5, channels if n else width, channels) for n, k in enumerate(keys)
        ]  # fmt: skip
        return BroadcastDecoder(
            Linear.draw(place, 4, width), (*convs, Conv.draw(last, 3, channels, 4))
        )

    def __call__(
        self, slots: Float[Array, "*batch slot width"], side: int, dtype: jnp.dtype = FULL
    ) -> tuple[Float[Array, "*batch slot side side 3"], Float[Array, "*batch slot side side"]]:
        """Each slot's picture, and how strongly it claims each pixel."""
        first, *rest = self.convs
        h = first(self.place(jnp.asarray(grid(side)), dtype), dtype).astype(FULL)
        h = (h + everywhere(first, slots, side, dtype)).astype(dtype)
        for conv in rest:
            h = conv(jax.nn.relu(h), dtype)
        h = h.astype(FULL)
        return h[..., :3], h[..., 3]


class SlotAutoencoderNetwork(Autoencoder):
    """A drawn or trained autoencoder of slots."""

    encoder: Encoder
    attention: SlotAttention
    decoder: BroadcastDecoder

    def __call__(
        self, images: Float[Array, "image side side 3"], *, dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Redrawn:  # fmt: skip
        slots, _ = self.attention(self.encoder(images, dtype), dtype=dtype, key=key)
        drawn, claims = self.decoder(slots, images.shape[-2], dtype)
        masks = jax.nn.softmax(claims, axis=-3)
        return Redrawn(jnp.sum(masks[..., None] * drawn, axis=-4), masks)


@dataclass(frozen=True)
class ChannelAutoencoder(AutoencoderModel):
    """A spec of the plain counterpart: a convolutional autoencoder whose channels stand for slots.

    At its narrowest it has `slots` channels, of which each place picks a mixture; that is its
    sharing out of the pixels.
    """

    version: ClassVar[int] = 1

    slots: int = 4
    channels: int = 32
    encoder_depth: int = 4
    decoder_depth: int = 3

    @property
    def parts(self) -> int:
        return self.slots

    def draw(self, key: PRNGKeyArray, *, side: int) -> ChannelAutoencoderNetwork:
        c, n = self.channels, self.slots
        keys = jax.random.split(key, self.encoder_depth + self.decoder_depth + 2)
        down = [Conv.draw(k, 5, c if i else 3, c) for i, k in enumerate(keys[: self.encoder_depth])]
        last, narrow, *others = keys[self.encoder_depth :]
        up = [Conv.draw(k, 5, c if i else n, c) for i, k in enumerate(others)]
        return ChannelAutoencoderNetwork(
            (*down, Conv.draw(narrow, 3, c, n)), (*up, Conv.draw(last, 3, c, 3))
        )


class ChannelAutoencoderNetwork(Autoencoder):
    """A drawn or trained convolutional autoencoder."""

    encoder: tuple[Conv, ...]
    decoder: tuple[Conv, ...]

    def __call__(
        self, images: Float[Array, "image side side 3"], *, dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Redrawn:  # fmt: skip
        claims = through(self.encoder, images, dtype).astype(FULL)
        shares = jax.nn.softmax(claims, axis=-1)
        drawn = through(self.decoder, shares, dtype).astype(FULL)
        return Redrawn(drawn, jnp.moveaxis(shares, -1, -3))
