"""Independent streams of randomness: one named seed for each thing that is drawn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jax import Array
    from jax.typing import ArrayLike
    from jaxtyping import UInt32


@dataclass(frozen=True)
class Seeds:
    """Which draw of each kind a cell uses; equal numbers still give unrelated streams.

    >>> Seeds.all(3).content
    3
    """

    content: int = 0
    support: int = 0
    encoding: int = 0
    init: int = 0
    train: int = 0
    evaluation: int = 0

    @staticmethod
    def all(seed: int) -> Seeds:
        """A fresh draw of everything: the usual unit of replication."""
        return Seeds(seed, seed, seed, seed, seed, seed)


def stream(seed: int, name: str) -> UInt32[np.ndarray, "2"]:
    """The raw key of the stream `name` under `seed`.

    Raw words, not a typed key: they can be stacked, padded and stored like any other array, and
    cost no compilation.
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.frombuffer(digest[:8], np.uint32).copy()


def host_seed(seed: int, name: str) -> int:
    """A seed for a numpy generator, unrelated to the streams of other names."""
    high, low = (int(word) for word in stream(seed, f"host/{name}"))
    return (high << 32) | low


def key_at(words: UInt32[ArrayLike, "2"], t: ArrayLike) -> Array:
    """The typed key of a stream at step `t`: data order is a stateless function of (key, t)."""
    import jax

    return jax.random.fold_in(jax.random.wrap_key_data(jax.numpy.asarray(words)), t)
