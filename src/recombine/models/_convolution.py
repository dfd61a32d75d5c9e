"""Convolutions as products of matrices, so that they stay fast when many networks are stacked."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.models.layers import FULL, Linear


class Conv(eqx.Module):
    """A square convolution that keeps the size of its picture (or divides it by the stride).

    One product: the columns a kernel spans are put side by side before it, and its rows are added
    up after it. All patches at once would be as many times larger as a kernel has rows.
    """

    kernel: Linear  # of (column, in) by (row, out)
    bias: Float[Array, "out"]
    stride: int = eqx.field(static=True)

    @staticmethod
    def draw(key: PRNGKeyArray, size: int, ins: int, outs: int, *, stride: int = 1) -> Conv:
        fan = size * size * ins
        kernel = Linear.draw(key, size * ins, size * outs, bias=False, fan_in=fan)
        return Conv(kernel, jnp.zeros(outs), stride)

    def __call__(
        self, x: Float[Array, "*batch row column in"], dtype: jnp.dtype = FULL
    ) -> Float[Array, "*batch new_row new_column out"]:
        *axes, rows, columns, ins = x.shape
        size, step = self.kernel.weight.shape[0] // ins, self.stride
        margin = (size // 2, size // 2)
        wide = jnp.pad(x.astype(dtype), [(0, 0)] * (len(axes) + 1) + [margin, (0, 0)])
        beside = [wide[..., j : j + columns : step, :] for j in range(size)]
        made = self.kernel(jnp.concatenate(beside, axis=-1), dtype)
        made = jnp.pad(made, [(0, 0)] * len(axes) + [margin, (0, 0), (0, 0)])
        outs = self.bias.shape[0]
        total = sum(
            made[..., i : i + rows : step, :, i * outs : (i + 1) * outs].astype(FULL)
            for i in range(size)
        )
        return (total + self.bias).astype(dtype)


def grid(side: int) -> Float[np.ndarray, "side side 4"]:
    """Where every place is, from 0 to 1, by its distance from each of the four edges."""
    along = np.linspace(0, 1, side, dtype=np.float32)
    down, right = np.meshgrid(along, along, indexing="ij")
    return np.stack([down, right, 1 - down, 1 - right], axis=-1)


def through(convs: tuple[Conv, ...], h: Array, dtype: jnp.dtype) -> Array:
    """Convolutions with ReLU between them."""
    for n, conv in enumerate(convs):
        h = conv(jax.nn.relu(h) if n else h, dtype)
    return h


def everywhere(
    conv: Conv, vectors: Float[Array, "*batch in"], side: int, dtype: jnp.dtype = FULL
) -> Float[Array, "*batch side side out"]:
    """What a convolution without its bias makes of a picture with the same vector everywhere."""
    ins, outs = vectors.shape[-1], conv.bias.shape[0]
    size = conv.kernel.weight.shape[0] // ins
    place, tap = np.arange(side)[:, None], np.arange(size) - size // 2
    inside = ((place + tap >= 0) & (place + tap < side)).astype(np.float32)
    blocks = conv.kernel.matrix.reshape(size, ins, size * outs)
    exactly = "highest" if dtype == FULL else None
    # Columns first: what each column's part of the kernel makes, for all its rows.
    made = jnp.einsum(
        "...d,jdo->...jo", vectors.astype(dtype), blocks.astype(dtype), precision=exactly
    )
    made = made.reshape(*made.shape[:-1], size, outs)
    return jnp.einsum(
        "ri,cj,...jio->...rco", jnp.asarray(inside, dtype), jnp.asarray(inside, dtype), made,
        precision=exactly,
    ).astype(FULL)  # fmt: skip
