"""Networks that look at scenes of objects: a bag of features, a plain network, and slots."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.checks import at_least
from recombine.errors import InvalidRequest
from recombine.models._convolution import Conv
from recombine.models.layers import FULL, Linear, count_parameters
from recombine.models.slots import Encoder, SlotAttention

DARK = 0.5  # below, too little of a pixel is covered for its colour to count


class Seer(eqx.Module):
    """A drawn or trained network that answers questions about pictures, or reports what is there.

    Asked, it gives one number a picture: how much more likely yes is than no, as a logarithm.
    Not asked, it gives a row for each thing it reports: numbers for colours, for shapes, and
    whether there is such a thing at all.
    """

    @abc.abstractmethod
    def __call__(
        self,
        images: Float[Array, "image side side 3"],
        question: Float[Array, "image feature"] | None = None,
        *,
        dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "image *report"]:
        """Answers, in float32; `key` is for networks that begin with noise."""


@dataclass(frozen=True)
class SeerModel(abc.ABC):
    """A spec: the sizes of a network that looks at scenes, and how its first weights are drawn."""

    version: ClassVar[int] = 1

    def check(self, reports: int) -> None:
        """Refuses sizes that no network has, or that cannot report so many objects."""
        at_least(self, **dict.fromkeys(vars(self), 1))

    @abc.abstractmethod
    def draw(
        self, key: PRNGKeyArray, *, side: int, colours: int, shapes: int, reports: int
    ) -> Seer:
        """First weights of a network that is asked, or with `reports` reports so many objects."""

    def parameters(self, *, side: int, colours: int, shapes: int, reports: int) -> int:
        """How many numbers training may change."""
        self.check(reports)
        drawn = jax.eval_shape(
            lambda: self.draw(
                jax.random.key(0), side=side, colours=colours, shapes=shapes, reports=reports
            )
        )
        return count_parameters(drawn)


class Readout(eqx.Module):
    """From one vector a picture to answers: two hidden layers that are told the question."""

    first: Linear
    told: Linear | None
    second: Linear
    last: Linear
    reports: int = eqx.field(static=True)

    @staticmethod
    def draw(
        key: PRNGKeyArray, ins: int, hidden: int, colours: int, shapes: int, reports: int
    ) -> Readout:
        keys = jax.random.split(key, 4)
        outs = reports * (colours + shapes + 1) if reports else 1
        return Readout(
            first=Linear.draw(keys[0], ins, hidden),
            told=None if reports else Linear.draw(keys[1], colours + shapes, hidden, bias=False),
            second=Linear.draw(keys[2], hidden, hidden),
            last=Linear.draw(keys[3], hidden, outs),
            reports=reports,
        )

    def __call__(
        self, h: Float[Array, "*batch in"], question: Float[Array, "*batch feature"] | None,
        dtype: jnp.dtype,
    ) -> Float[Array, "*batch *report"]:  # fmt: skip
        h = self.first(h, dtype)
        if self.told is not None and question is not None:
            h = h + self.told(question, dtype)
        h = jax.nn.relu(self.second(jax.nn.relu(h), dtype))
        made = self.last(h, dtype).astype(FULL)
        if not self.reports:
            return made[..., 0]
        return made.reshape(*made.shape[:-1], self.reports, -1)


@dataclass(frozen=True)
class BagNet(SeerModel):
    """A spec: colours and shapes are looked at apart, pooled over the picture, and added.

    The colour of a pixel is its hue alone, so that pooling by the maximum tells which colours there
    are and nothing else; shapes are looked for where a pixel is covered, whatever its colour. What
    is added knows all features and no binding: between two scenes with the same features bound
    differently it answers by chance.
    """

    version: ClassVar[int] = 1

    width: int = 32

    def draw(
        self, key: PRNGKeyArray, *, side: int, colours: int, shapes: int, reports: int
    ) -> BagNetwork:
        w, keys = self.width, jax.random.split(key, 6)
        return BagNetwork(
            hue=Linear.draw(keys[0], 3, w),
            outline=(Conv.draw(keys[1], 5, 1, w, stride=2), Conv.draw(keys[2], 3, w, w)),
            colour=Linear.draw(keys[3], w, 2 * w),
            shape=Linear.draw(keys[4], w, 2 * w),
            readout=Readout.draw(keys[5], 2 * w, 4 * w, colours, shapes, reports),
        )


class BagNetwork(Seer):
    """A drawn or trained bag of features."""

    hue: Linear
    outline: tuple[Conv, ...]
    colour: Linear
    shape: Linear
    readout: Readout

    def __call__(
        self,
        images: Float[Array, "image side side 3"],
        question: Float[Array, "image feature"] | None = None,
        *,
        dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "image *report"]:
        covered = jnp.max(images, axis=-1, keepdims=True)
        hues = jax.nn.relu(self.hue(images / jnp.maximum(covered, DARK), dtype))
        hues = jnp.max(jnp.where(covered >= DARK, hues, 0), axis=(-3, -2))
        outlines = covered
        for conv in self.outline:
            outlines = jax.nn.relu(conv(outlines, dtype))
        # A sum, scaled down: the mean over a large picture of few objects is next to nothing.
        outlines = jnp.sum(outlines.astype(FULL), axis=(-3, -2)) / 8
        bag = self.colour(hues, dtype).astype(FULL) + self.shape(outlines, dtype).astype(FULL)
        return self.readout(bag, question, dtype)


@dataclass(frozen=True)
class ConvNet(SeerModel):
    """A spec: `depth` convolutions, the first two with stride 2, and one vector of all places."""

    version: ClassVar[int] = 1

    width: int = 32
    depth: int = 3

    def draw(
        self, key: PRNGKeyArray, *, side: int, colours: int, shapes: int, reports: int
    ) -> ConvNetwork:
        w, (read_key, *keys) = self.width, jax.random.split(key, self.depth + 1)
        convs = tuple(
            Conv.draw(k, 3 if n else 5, w if n else 3, w, stride=2 if n < 2 else 1)
            for n, k in enumerate(keys)
        )
        for _ in convs[:2]:
            side = -(-side // 2)
        return ConvNetwork(
            convs, Readout.draw(read_key, side**2 * w, 4 * w, colours, shapes, reports)
        )


class ConvNetwork(Seer):
    """A drawn or trained convolutional network."""

    convs: tuple[Conv, ...]
    readout: Readout

    def __call__(
        self,
        images: Float[Array, "image side side 3"],
        question: Float[Array, "image feature"] | None = None,
        *,
        dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "image *report"]:
        h = images
        for conv in self.convs:
            h = jax.nn.relu(conv(h, dtype))
        return self.readout(h.reshape(*h.shape[:-3], -1), question, dtype)


@dataclass(frozen=True)
class SlotNet(SeerModel):
    """A spec: slots compete for the places of a picture, and each is read out by itself.

    The answer to a question is yes as soon as one slot says so.
    """

    version: ClassVar[int] = 1

    width: int = 32
    depth: int = 3
    slots: int = 3
    iterations: int = 2

    def check(self, reports: int) -> None:
        super().check(reports)
        if self.slots < reports:
            raise InvalidRequest(
                f"slots={self.slots}: {reports} objects are to be reported, and each needs a slot; "
                f"use slots={reports} or more"
            )

    def draw(
        self, key: PRNGKeyArray, *, side: int, colours: int, shapes: int, reports: int
    ) -> SlotNetwork:
        w, keys = self.width, jax.random.split(key, 3)
        return SlotNetwork(
            encoder=Encoder.draw(keys[0], w, w, self.depth, stride=2),
            attention=SlotAttention.draw(keys[1], w, w, 2 * w, self.slots, self.iterations),
            readout=Readout.draw(keys[2], w, 2 * w, colours, shapes, min(reports, 1)),
        )


class SlotNetwork(Seer):
    """A drawn or trained network of slots."""

    encoder: Encoder
    attention: SlotAttention
    readout: Readout

    def __call__(
        self,
        images: Float[Array, "image side side 3"],
        question: Float[Array, "image feature"] | None = None,
        *,
        dtype: jnp.dtype = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "image *report"]:
        slots, _ = self.attention(self.encoder(images, dtype), dtype=dtype, key=key)
        told = None if question is None else question[..., None, :]
        read = self.readout(slots, told, dtype)
        if question is None:
            return read[..., 0, :]
        return jax.nn.logsumexp(read, axis=-1) - math.log(read.shape[-1])
