"""Small things done to arrays and trees of them everywhere: padding, naming, a first draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

# Standard deviation of a standard normal cut at +-2: dividing by it restores unit variance.
TRUNCATED_STD = 0.87962566103423978


def pad_to(tree: Any, shapes: Any) -> Any:
    """Grows every array to the shape of its counterpart.

    Zeros are inert in weights and content; ranks (unsigned) are filled with the largest number,
    which is no rank.
    """

    def grow(array: Any, like: Any) -> Any:
        extra = [(0, big - small) for small, big in zip(array.shape, like.shape, strict=True)]
        if not any(after for _, after in extra):
            return array
        numbers = np if isinstance(array, np.ndarray) else jnp
        fill = np.iinfo(np.uint32).max if array.dtype == np.uint32 else 0
        return numbers.pad(array, extra, constant_values=fill)

    return jax.tree.map(grow, tree, shapes)


def next_bucket(value: int, buckets: tuple[int, ...]) -> int:
    """The smallest bucket that holds `value`; beyond the last one, `value` itself."""
    return next((bucket for bucket in buckets if bucket >= value), value)


def path_name(path: tuple) -> str:
    """A pytree path as people write it: `hidden/0/weight`."""
    parts = []
    for entry in path:
        part = getattr(entry, "name", getattr(entry, "key", getattr(entry, "idx", entry)))
        parts.append(str(part))
    return "/".join(parts)


def named(state: Any) -> dict[str, np.ndarray]:
    """A state as named tensors."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {path_name(path): np.asarray(leaf) for path, leaf in leaves}


def unnamed(tensors: Mapping[str, np.ndarray], like: Any) -> Any:
    """The inverse of `named`, in the structure of `like`."""
    return jax.tree_util.tree_map_with_path(lambda path, _: tensors[path_name(path)], like)


def truncated_normal(
    key: PRNGKeyArray, shape: tuple[int, ...], variance: float
) -> Float[Array, "..."]:
    """A normal cut at two standard deviations, rescaled so that its variance is exact."""
    drawn = jax.random.truncated_normal(key, -2.0, 2.0, shape)
    return drawn * (math.sqrt(variance) / TRUNCATED_STD)
