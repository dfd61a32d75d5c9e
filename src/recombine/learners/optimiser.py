"""AdamW whose rates are arrays, and which drops the updates of a member that has failed."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)
NEVER = -1


class Trained(NamedTuple):
    """Weights on their way: the model, Adam's moments, and when (if ever) it diverged."""

    model: Any
    adam: Any
    diverged_at: Int[Array, ""]


def start(model: Any) -> Trained:
    return Trained(model, ADAM.init(model), jnp.int32(NEVER))


def risen(arrays: dict[str, Any], t: Int[Array, ""]) -> Float[Array, ""]:
    """The learning rate, reached in equal steps over `warmup`."""
    return arrays["rate"] * jnp.minimum(1.0, (t.astype(jnp.float32) + 1) / arrays["warmup"])


def risen_and_fallen(arrays: dict[str, Any], t: Int[Array, ""]) -> Float[Array, ""]:
    """The same, on its way to zero after all `steps` along half a cosine."""
    passed = jnp.minimum(t.astype(jnp.float32) / arrays["steps"].astype(jnp.float32), 1.0)
    return risen(arrays, t) * (0.5 * (1 + jnp.cos(jnp.pi * passed)))


def descend(
    state: Trained,
    loss: Float[Array, ""],
    gradient: Any,
    t: Int[Array, ""],
    *,
    rate: Float[Array, ""],
    decay: Float[Array, ""],
    running: Bool[Array, ""] | bool = True,
) -> Trained:
    """One step of AdamW with decoupled decay on matrices only.

    A member diverges at its first non-finite loss or update; from then on its updates are
    dropped here, entry by entry, where that is fused with the addition (selecting on the whole
    state would read and write all of it once more). In the step that fails, entries whose update
    is not finite stay as they were.
    """
    updates, adam = ADAM.update(gradient, state.adam, state.model)
    alive = (state.diverged_at == NEVER) & jnp.isfinite(loss) & running

    def apply(weight: Array, update: Array) -> Array:
        shrink = decay * weight if weight.ndim > 1 else 0.0
        change = rate * (update + shrink)
        return jnp.where(alive & jnp.isfinite(change), weight - change, weight)

    # A sum is finite only if every term is. Gradients, not updates: Adam's update is finite where
    # its gradient is, and summing updates would read both moments once more.
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(gradient))
    failed = ~(jnp.isfinite(loss) & jnp.isfinite(total)) & running
    return Trained(
        jax.tree.map(apply, state.model, updates),
        adam,
        jnp.where((state.diverged_at == NEVER) & failed, t, state.diverged_at).astype(jnp.int32),
    )
