"""Weight sweeps: what changing one weight does to a picture, at a matched size of effect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recombine.cppn.measures import mirrored
from recombine.errors import InvalidRequest

SMALLEST, FACTOR, RUNGS = 2.0**-12, 4.0, 10  # changes tried, up to 64
HALVINGS = 8  # of the logarithm of one rung: the effect is matched to about one percent
CLOSE = 0.1  # how far from the effect a change may be and count as matched: some leap
STACKED = 64  # sweeps at once on an accelerator; a CPU does them faster in turn

Render = Callable[[Float[Array, "weight"]], Float[Array, "row column channel"]]


def sweep_symmetry(
    render: Render,
    weights: Float[Array, "weight"] | Float[np.ndarray, "weight"],
    which: Int[np.ndarray, "chosen"],
    *,
    symmetry: str = "left-right",
    effect: float = 0.005,
    batch: int | None = None,
) -> Float[np.ndarray, "sweep"]:
    """The symmetric share of the picture's change, per chosen weight made larger and smaller.

    Each weight is moved until the picture's mean squared change is `effect`; where no change of
    up to 64 does it to within a tenth, the share is NaN. A change without any symmetry has a share
    of one half. A renderer that can be hashed, such as `Renderer`, is compiled once for all its
    networks.
    """
    _, shares, matched = _swept(render, weights, which, symmetry, effect, batch)
    return np.where(matched, shares, np.nan)


def sweep_sizes(
    render: Render,
    weights: Float[Array, "weight"] | Float[np.ndarray, "weight"],
    which: Int[np.ndarray, "chosen"],
    *,
    effect: float = 0.005,
    batch: int | None = None,
) -> Float[np.ndarray, "sweep"]:
    """How far each chosen weight has to be moved, up and then down, to have the effect.

    NaN where `sweep_symmetry` leaves the weight out.

    >>> plain = lambda weights: weights[0] * jnp.ones((2, 2, 3))
    >>> sweep_sizes(plain, np.zeros(1, np.float32), np.array([0]), effect=0.01).round(2).tolist()
    [0.1, 0.1]
    """
    sizes, _, matched = _swept(render, weights, which, "left-right", effect, batch)
    return np.where(matched, sizes, np.nan)


def _swept(
    render: Render,
    weights: Float[Array, "weight"] | Float[np.ndarray, "weight"],
    which: Int[np.ndarray, "chosen"],
    symmetry: str,
    effect: float,
    batch: int | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, symmetric shares and whether the effect was matched, larger ones before smaller."""
    which = np.asarray(which, np.int32)
    if which.size and not (which.min() >= 0 and which.max() < len(weights)):
        raise InvalidRequest(
            f"weights {which.min()} to {which.max()} of {len(weights)}: expected places from 0"
        )
    if effect <= 0:
        raise InvalidRequest(f"an effect of {effect}: expected a mean squared change above 0")
    if not which.size:
        return np.zeros(0), np.zeros(0), np.zeros(0, bool)
    if batch is None:
        batch = 1 if jax.default_backend() == "cpu" else STACKED
    signs = jnp.repeat(jnp.array([1.0, -1.0]), len(which))
    sizes, shares, matched = _sweep(
        render, jnp.asarray(weights), jnp.tile(which, 2), signs, effect, symmetry, batch
    )
    return np.asarray(sizes, np.float64), np.asarray(shares, np.float64), np.asarray(matched)


@partial(jax.jit, static_argnames=("render", "symmetry", "batch"))
def _sweep(
    render: Render,
    weights: Float[Array, "weight"],
    which: Int[Array, "sweep"],
    signs: Float[Array, "sweep"],
    effect: float,
    symmetry: str,
    batch: int,
) -> tuple[Float[Array, "sweep"], Float[Array, "sweep"], Bool[Array, "sweep"]]:
    before = render(weights)
    start = jnp.asarray(SMALLEST, weights.dtype)

    def one(job: tuple[Int[Array, ""], Float[Array, ""]]) -> tuple[Array, Array, Array]:
        index, sign = job

        def change(size: Float[Array, ""]) -> Float[Array, "row column channel"]:
            return render(weights.at[index].add(sign * size)) - before

        size, matched = matched_size(
            lambda size: jnp.mean(change(size) ** 2), effect, start, in_turn=batch == 1
        )
        difference = jnp.moveaxis(change(size), -1, 0)
        symmetric = (difference + mirrored(difference, symmetry)) / 2
        return size, jnp.sum(symmetric**2) / jnp.sum(difference**2), matched

    return jax.lax.map(one, (which, signs), batch_size=batch if batch > 1 else None)


def matched_size(
    effect: Callable[[Float[Array, ""]], Float[Array, ""]],
    wanted: Float[Array, ""] | float,
    smallest: Float[Array, ""],
    *,
    in_turn: bool = True,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The smallest change with the effect that is wanted, and whether it has it.

    It may not: no change is large enough, or the effect leaps past what is wanted, as where a
    steep neuron tips over.
    """
    size, reached = least_size(lambda by: effect(by) < wanted, smallest, in_turn=in_turn)
    # An effect that is no number does not fall short either.
    return size, reached & (jnp.abs(effect(size) - wanted) <= CLOSE * wanted)


def least_size(
    falls_short: Callable[[Float[Array, ""]], Bool[Array, ""]],
    smallest: Float[Array, ""],
    *,
    in_turn: bool = True,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The smallest change that does not fall short, to about half a percent, and if there is one.

    Rung by rung first: the effect need not grow with the change, and the smallest change that
    reaches it is the one to look at.
    """

    def climbing(state: tuple[Array, Array]) -> Bool[Array, ""]:
        rung, short = state
        return short & (rung < RUNGS - 1)

    def climb(state: tuple[Array, Array]) -> tuple[Array, Array]:
        rung = state[0] + 1
        return rung, falls_short(smallest * FACTOR**rung)

    start = (jnp.int32(0), falls_short(smallest))
    if in_turn:
        rung, short = jax.lax.while_loop(climbing, climb, start)
    else:
        # Side by side the slowest decides anyway, and a loop whose end is known never has a GPU
        # wait for the host.
        rung, short = jax.lax.fori_loop(
            0, RUNGS - 1, lambda _, state: _where(state[1], climb(state), state), start
        )
    high = jnp.log(smallest) + rung * jnp.log(FACTOR)

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        below = falls_short(jnp.exp(middle))
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    _, high = jax.lax.fori_loop(0, HALVINGS, halve, (high - jnp.log(FACTOR), high))
    return jnp.exp(high), ~short


def _where(chosen: Bool[Array, ""], yes: tuple[Array, ...], no: tuple[Array, ...]) -> Any:
    return tuple(jnp.where(chosen, a, b) for a, b in zip(yes, no, strict=True))
