"""Ranks of subsets inside compiled programs; `recombine.combinations` offers these names."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, UInt32

from recombine.errors import InvalidRequest

if TYPE_CHECKING:
    from jaxtyping import Array

NO_RANK = 2**32 - 1
"""The rank of nothing: no space is large enough to use it, so it marks padding."""


def pad_offsets(offsets: UInt32[np.ndarray, " n"], active_pad: int) -> UInt32[np.ndarray, " m"]:
    """The offsets of a space as the device functions want them, for a larger `active_pad`."""
    padding = active_pad + 1 - len(offsets)
    if padding < 0:
        raise InvalidRequest(f"active_pad={active_pad} is below active={len(offsets) - 1}")
    return np.pad(offsets, (0, padding), constant_values=NO_RANK)


def unrank_on_device(
    ranks: UInt32[Array, " n"],
    offsets: UInt32[Array, " active_pad+1"],
    modules_pad: int,
    active_pad: int,
) -> Bool[Array, "n modules_pad"]:
    """Indicator rows of `Subsets` ranks, inside jit or vmap.

    `offsets` (see `pad_offsets`) is data, so spaces of several sizes share one program; modules
    past the space's own stay False, and `NO_RANK` gives an empty row.
    """
    import jax.numpy as jnp

    table = binomials(modules_pad, active_pad)[:, :-1].astype(np.uint32)
    sizes = jnp.sum(offsets <= ranks[:, None], axis=1, dtype=jnp.int32)
    sizes = jnp.where(sizes > active_pad, 0, sizes)
    rest = ranks - offsets[jnp.maximum(sizes - 1, 0)]
    rows = jnp.zeros((ranks.shape[0], modules_pad), bool)
    for place in range(active_pad, 0, -1):
        # Binomials grow along the row, so the modules that fit are a prefix: its end is chosen.
        row = jnp.asarray(table[place])
        fits = (row <= rest[:, None]) & (sizes >= place)[:, None]
        chosen = fits & ~jnp.pad(fits[:, 1:], ((0, 0), (0, 1)))
        rest = rest - jnp.sum(jnp.where(chosen, row, jnp.uint32(0)), axis=1, dtype=jnp.uint32)
        rows = rows | chosen
    return rows


def rank_on_device(
    indicator: Bool[Array, "n modules_pad"], offsets: UInt32[Array, " active_pad+1"]
) -> UInt32[Array, " n"]:
    """The inverse of `unrank_on_device`; `NO_RANK` for rows with no or over active_pad members."""
    import jax.numpy as jnp

    active_pad = offsets.shape[0] - 1
    table = binomials(indicator.shape[1], active_pad)[:, :-1].astype(np.uint32)
    sizes = jnp.sum(indicator, axis=1, dtype=jnp.int32)
    places = jnp.cumsum(indicator, axis=1, dtype=jnp.int32)
    total = offsets[jnp.clip(sizes - 1, 0, active_pad - 1)]
    for place in range(1, active_pad + 1):
        chosen = indicator & (places == place)
        row = jnp.asarray(table[place])
        total = total + jnp.sum(jnp.where(chosen, row, jnp.uint32(0)), axis=1, dtype=jnp.uint32)
    return jnp.where((sizes < 1) | (sizes > active_pad), jnp.uint32(NO_RANK), total)


@functools.lru_cache(maxsize=64)
def binomials(modules: int, active: int) -> Int[np.ndarray, "active+1 modules+1"]:
    """C(m, j) at [j, m], saturated at NO_RANK; the last column is 0, for the padding index -1."""
    table = np.zeros((active + 1, modules + 1), np.int64)
    table[0, :-1] = 1
    for j in range(1, active + 1):
        table[j, 1:-1] = np.minimum(np.cumsum(table[j - 1, : modules - 1]), NO_RANK)
    table.flags.writeable = False
    return table
