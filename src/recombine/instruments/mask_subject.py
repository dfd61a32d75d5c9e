"""The door to a mask: the network it was learnt for, whole, masked or without what it keeps."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from recombine.instruments.subject import Subject

if TYPE_CHECKING:
    from recombine.learners.masks import MaskLearner, MasksProgram

Keep = dict[str, np.ndarray]


class MaskSubject(Subject):
    """Scores of a network under any masks, on the part this one was learnt for and on others."""

    abilities = frozenset({"weights"})

    def __init__(
        self, learner: MaskLearner, weights: Mapping[str, np.ndarray],
        given: Mapping[str, Mapping[str, np.ndarray]],
    ):  # fmt: skip
        self.learner, self.stored = learner, dict(weights)
        self.program: MasksProgram = learner.program()
        arrays = learner.prepare({k: dict(v) for k, v in given.items()}).merged()
        self.real: Keep = {p: np.asarray(arrays["real"][p]) > 0 for p in self.program.paths}
        self.arrays: Any = jax.tree.map(jnp.asarray, arrays)

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    @property
    def keep(self) -> Keep:
        """Which weights the mask keeps."""
        return {path: (self.stored[path] > 0) & real for path, real in self.real.items()}

    @property
    def chance(self) -> float:
        return self.program.base.chance

    def scores(self, keep: Keep, batches: int) -> tuple[float, float]:
        """(own part, others) of the network with only these weights, mean over batches."""
        own, other = jax.device_get(_scores(self.program, batches, self.arrays, _floats(keep)))
        return float(own), float(other)

    def learnt(self, keep: Keep, batches: int) -> float:
        """The same on items like those the mask was learnt from."""
        return float(_learnt(self.program, batches, self.arrays, _floats(keep)))


def _floats(keep: Keep) -> dict[str, np.ndarray]:
    return {path: mask.astype(np.float32) for path, mask in keep.items()}


def _over_batches(function: Any, batches: int) -> Any:
    """The mean over batches of fresh items; batch 0 is looked at along training."""
    found = jax.lax.map(function, jnp.arange(1, batches + 1))
    return jax.tree.map(lambda scores: jnp.mean(scores), found)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _scores(program: MasksProgram, batches: int, arrays: Any, keep: Any) -> Any:
    return _over_batches(lambda number: program.scores(arrays, keep, number), batches)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _learnt(program: MasksProgram, batches: int, arrays: Any, keep: Any) -> Any:
    return _over_batches(lambda number: program.learnt(arrays, keep, number), batches)
