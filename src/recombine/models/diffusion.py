"""The diffusion transformer: attention over the patches of an image, told its task and the time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.errors import InvalidRequest, NotApplicable, unknown
from recombine.models._model import Model, Network, Setting
from recombine.models.layers import FULL, LayerNorm, Linear, normed, xavier

DRAWS = ("image", "velocity")
CHANNELS = 3
TIME_FEATURES = 64
FASTEST = 1_000.0  # radians that the quickest feature of the time turns through from noise to image
LATEST = 0.05  # what is left of the time when velocities stop growing
POSITION_BASE = 100.0  # how much slower the slowest feature of a place is than the quickest


@dataclass(frozen=True)
class DiT(Model):
    """A spec: `depth` blocks of attention over square patches of `patch` pixels a side.

    Its inputs are a noisy image, flattened by row, column and channel, and the time from 0 (noise)
    to 1 (image); its answer is a velocity for every pixel. Each sample is an image of its own, with
    its own time. Task and time enter every block as shifts, scales and gates of its two halves
    (AdaLN-zero); gates and the last layer start at zero, so that blocks at first hand on what they
    got. Inside, the network draws the image it expects, and the velocity is the way there from the
    noisy one, over the time that is left. Drawing the velocity itself (`draws="velocity"`) makes it
    pass on all noise: a patch holds 3 patch² numbers, and in a narrower network some cannot pass.
    `SIZES` has three that differ in width only. Sources: Peebles and Xie, "Scalable diffusion
    models with transformers" (2023); Li and He, "Back to basics: let denoising generative models
    denoise" (2025).

    >>> {name: m.parameters(code=16, inputs=3073, outputs=3072) for name, m in SIZES.items()}
    {'small': 473200, 'middle': 1863472, 'large': 7396528}
    """

    version: ClassVar[int] = 1

    depth: int = 6
    width: int = 128
    heads: int = 4
    patch: int = 4
    hidden: int | None = None
    draws: Literal["image", "velocity"] = "image"

    def __post_init__(self):
        sizes = {"depth": self.depth, "width": self.width, "heads": self.heads,
                 "patch": self.patch, "hidden": self.units}  # fmt: skip
        for name, size in sizes.items():
            if size < 1:
                raise InvalidRequest(f"a DiT needs {name} of at least 1, got {size}")
        if self.draws not in DRAWS:
            raise unknown("draws", str(self.draws), DRAWS)
        step = math.lcm(4, self.heads)  # places are sines and cosines of rows and of columns
        if self.width % step:
            raise InvalidRequest(
                f"a DiT with {self.heads} heads needs a width that is a multiple of {step}, got "
                f"{self.width}: use width={-(-self.width // step) * step}"
            )

    @property
    def layers(self) -> int:
        return self.depth

    @property
    def units(self) -> int:
        """Hidden units of each block's feed-forward layer."""
        return 4 * self.width if self.hidden is None else self.hidden

    def check(self, family: Any, encoding: Any) -> None:
        inputs, outputs = family.input_size, family.output_size
        side = image_side(outputs)
        if side is None or inputs != outputs + 1:
            raise InvalidRequest(
                f"a DiT draws images, from size x size x 3 noisy pixels and a time; "
                f"{type(family).__name__} has {inputs} inputs and {outputs} outputs: use a family "
                "of images such as scenes, or another model such as mlp"
            )
        if side % self.patch:
            fitting = ", ".join(str(p) for p in range(1, side + 1) if side % p == 0)
            raise InvalidRequest(
                f"images of {side} x {side} pixels do not divide into patches of "
                f"{self.patch} x {self.patch}: use a patch of {fitting}"
            )

    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        w, pixels = self.width, CHANNELS * self.patch**2
        block = (w + 1) * 6 * w + 4 * w * w + 2 * w * self.units + 2 * (w // self.heads)
        told = (TIME_FEATURES + 1 + code + 1 + 2 * (w + 1)) * w
        return (pixels + 1) * w + told + self.depth * block + (w + 1) * (2 * w + pixels)

    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> DiTNetwork:  # fmt: skip
        w, pixels = self.width, CHANNELS * self.patch**2
        patch_key, time_key, task_key, *block_keys = jax.random.split(key, self.depth + 3)
        return DiTNetwork(
            patches=Linear.draw(patch_key, pixels, w),
            time=Embedding.draw(time_key, TIME_FEATURES, w),
            task=Embedding.draw(task_key, code, w),
            blocks=tuple(self._block(block_key) for block_key in block_keys),
            modulate=zeros(w, 2 * w),
            output=zeros(w, pixels),
            draws=self.draws,
        )

    def _block(self, key: PRNGKeyArray) -> DiTBlock:
        w, keys = self.width, jax.random.split(key, 6)
        thirds = [xavier(one, w, w).weight for one in keys[:3]]
        return DiTBlock(
            modulate=zeros(w, 6 * w),
            mix=Linear(jnp.concatenate(thirds, axis=1), None),
            query_norm=LayerNorm.draw(w // self.heads),
            key_norm=LayerNorm.draw(w // self.heads),
            merge=xavier(keys[3], w, w),
            up=xavier(keys[4], w, self.units),
            down=xavier(keys[5], self.units, w),
        )


# For images of 32 x 32 pixels: about half a million, two million and seven million numbers.
SIZES: dict[str, DiT] = {
    "small": DiT(width=64, heads=2),
    "middle": DiT(width=128, heads=4),
    "large": DiT(width=256, heads=8),
}


def image_side(pixels: int) -> int | None:
    """The side of a square colour image of so many numbers; None where there is none.

    >>> image_side(3072), image_side(16)
    (32, None)
    """
    side = math.isqrt(max(0, pixels) // CHANNELS)
    return side if side and CHANNELS * side**2 == pixels else None


def zeros(ins: int, outs: int) -> Linear:
    return Linear(jnp.zeros((ins, outs)), jnp.zeros(outs))


def time_features(time: Float[Array, "*axes"]) -> Float[Array, "*axes feature"]:
    """Cosines and sines of the time, at speeds from 1 to `FASTEST` radians."""
    half = TIME_FEATURES // 2
    speeds = FASTEST ** (np.arange(half) / (half - 1))
    angles = time.astype(FULL)[..., None] * speeds.astype(FULL)
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def positions(side: int, width: int) -> Float[np.ndarray, "token width"]:
    """Where each of side x side patches is: sines and cosines of its row, then of its column."""
    quarter = width // 4
    speeds = POSITION_BASE ** (-np.arange(quarter) / quarter)
    angles = np.arange(side)[:, None] * speeds
    line = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    rows, columns = np.repeat(line, side, axis=0), np.tile(line, (side, 1))
    return np.concatenate([rows, columns], axis=-1).astype(FULL)


def modulated(
    x: Float[Array, "*axes token width"],
    shift: Float[Array, "*axes 1 width"],
    scale: Float[Array, "*axes 1 width"],
) -> Float[Array, "*axes token width"]:
    """Every token normed without parameters of its own, then scaled and shifted as its image is."""
    return normed(x) * (1 + scale) + shift


class Embedding(eqx.Module):
    """Two layers with SiLU between, from what is told to the width of the network."""

    first: Linear
    second: Linear

    @staticmethod
    def draw(key: PRNGKeyArray, ins: int, width: int) -> Embedding:
        first, second = jax.random.split(key)
        return Embedding(Linear.draw(first, ins, width), Linear.draw(second, width, width))

    def __call__(
        self, x: Float[Array, "*axes in"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*axes width"]:
        return self.second(jax.nn.silu(self.first(x, dtype)), dtype).astype(FULL)


class DiTBlock(eqx.Module):
    """One layer: attention among all patches of an image, then GELU units, both modulated.

    `told` has one row an image, and so do the shifts, scales and gates made of it: they meet the
    patches only inside the elementwise steps that the compiler fuses.
    """

    modulate: Linear
    mix: Linear  # queries, keys and values, side by side in one product
    query_norm: LayerNorm
    key_norm: LayerNorm
    merge: Linear
    up: Linear
    down: Linear

    def __call__(
        self, h: Float[Array, "*axes token width"], told: Float[Array, "*axes width"],
        dtype: jnp.dtype,
    ) -> Float[Array, "*axes token width"]:  # fmt: skip
        made = self.modulate(told, dtype).astype(FULL)[..., None, :]
        shift, scale, gate, next_shift, next_scale, next_gate = jnp.split(made, 6, axis=-1)
        h = h + gate * self.attend(modulated(h, shift, scale), dtype).astype(FULL)
        units = jax.nn.gelu(self.up(modulated(h, next_shift, next_scale), dtype))
        return h + next_gate * self.down(units, dtype).astype(FULL)

    def attend(
        self, x: Float[Array, "*axes token width"], dtype: jnp.dtype
    ) -> Float[Array, "*axes token width"]:
        tokens, size = x.shape[-2], self.query_norm.scale.shape[0]
        precision = "highest" if dtype == FULL else None
        mixed = self.mix(x, dtype).reshape(-1, tokens, 3, x.shape[-1] // size, size)
        query = (self.query_norm(mixed[:, :, 0]) * size**-0.5).astype(dtype)
        key = self.key_norm(mixed[:, :, 1]).astype(dtype)
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key, precision=precision)
        weights = jax.nn.softmax(scores.astype(FULL)).astype(dtype)
        found = jnp.einsum("bhqk,bkhd->bqhd", weights, mixed[:, :, 2], precision=precision)
        return self.merge(found.reshape(x.shape), dtype)


class DiTNetwork(Network):
    """A drawn or trained diffusion transformer.

    A code of zeros is the blank one: no task is told, only the time.
    """

    embeddings: ClassVar[tuple[str, ...]] = ("task/first",)

    patches: Linear
    time: Embedding
    task: Embedding
    blocks: tuple[DiTBlock, ...]
    modulate: Linear
    output: Linear
    draws: str = eqx.field(static=True, default="image")

    def __call__(
        self,
        code: Float[Array, "*task code"],
        x: Float[Array, "*task sample input"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:
        condition = self.condition(code, x[..., -1], dtype)
        return self.velocity(self.drawn_from(0, self.tokens(x, dtype), condition, dtype), x)

    def velocity(
        self, drawn: Float[Array, "*task sample output"], x: Float[Array, "*task sample input"]
    ) -> Float[Array, "*task sample output"]:
        """The way to what was drawn: at time t an image is x = (1 - t) noise + t image, so that
        image - noise = (image - x) / (1 - t)."""
        if self.draws == "velocity":
            return drawn
        return (drawn - x[..., :-1]) / jnp.maximum(1 - x[..., -1:], LATEST)

    def condition(
        self, code: Float[Array, "*task code"], time: Float[Array, "*task sample"],
        dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample width"]:  # fmt: skip
        """All that the blocks are told of the task and the time, one vector an image."""
        return self.time(time_features(time), dtype) + self.task(code, dtype)[..., None, :]

    def tokens(
        self, x: Float[Array, "*task sample input"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*task sample token width"]:
        """What the first block reads: the patches of each image, and where they are."""
        patch = math.isqrt(self.patches.weight.shape[0] // CHANNELS)
        side = math.isqrt((x.shape[-1] - 1) // CHANNELS) // patch
        cut = x[..., :-1].reshape(-1, side, patch, side, patch, CHANNELS)
        cut = jnp.swapaxes(cut, 2, 3).reshape(*x.shape[:-1], side * side, -1)
        return self.patches(cut, dtype).astype(FULL) + positions(side, self.output.weight.shape[0])

    def stream(
        self, layer: int, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> Float[Array, "*task sample token width"]:
        """The residual stream at every patch after block `layer`, at full precision."""
        told, h = jax.nn.silu(self.condition(code, x[..., -1])), self.tokens(x)
        for block in self.blocks[:layer]:
            h = block(h, told, FULL)
        return h

    def drawn_from(
        self, layer: int, h: Float[Array, "*task sample token width"],
        condition: Float[Array, "*task sample width"], dtype: jnp.dtype = FULL,
    ) -> Float[Array, "*task sample output"]:  # fmt: skip
        """What is drawn if block `layer` had handed on `h` and the rest were told `condition`."""
        told = jax.nn.silu(condition)
        for block in self.blocks[layer:]:
            h = block(h, told, dtype)
        shift, scale = jnp.split(self.modulate(told, dtype).astype(FULL)[..., None, :], 2, axis=-1)
        drawn = self.output(modulated(h, shift, scale), dtype)
        side, patch = (math.isqrt(n) for n in (h.shape[-2], drawn.shape[-1] // CHANNELS))
        whole = drawn.reshape(-1, side, side, patch, patch, CHANNELS)
        return jnp.swapaxes(whole, 2, 3).reshape(*h.shape[:-2], -1).astype(FULL)

    def activations(
        self, code: Float[Array, "*task code"], x: Float[Array, "*task sample input"]
    ) -> dict[str, Float[Array, "*task sample width"]]:
        """The `condition`, the mean over patches of the residual stream after each block, and the
        `output`."""
        condition, h = self.condition(code, x[..., -1]), self.tokens(x)
        told, seen = jax.nn.silu(condition), {"condition": condition}
        for number, block in enumerate(self.blocks, start=1):
            h = block(h, told, FULL)
            seen[f"layer{number}/after"] = jnp.mean(h, axis=-2)
        seen["output"] = self.velocity(self.drawn_from(len(self.blocks), h, condition), x)
        return seen

    def continue_from(
        self, layer: int, h: Float[Array, "*task place width"]
    ) -> Float[Array, "*task sample output"]:
        raise NotApplicable(
            "every block of a DiT is told the task and the time anew, so the mean of a hidden "
            "layer does not determine the answers: use stream and drawn_from of the network"
        )
