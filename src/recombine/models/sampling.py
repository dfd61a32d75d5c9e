"""Images out of noise: the flow that a network learnt, followed from time 0 to time 1."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.errors import InvalidRequest, unknown
from recombine.models._model import Network
from recombine.models.layers import FULL

METHODS = ("euler", "heun")
Method = Literal["euler", "heun"]


def sample(
    network: Network,
    codes: Float[Array, "image code"],
    key: PRNGKeyArray,
    *,
    steps: int,
    pixels: int,
    method: Method = "euler",
    guidance: float = 1.0,
    dtype: jnp.dtype = FULL,
) -> Float[Array, "image pixel"]:
    """Draws an image for each code.

    The network answers velocities; noise of unit variance at time 0 follows them to time 1 in
    `steps` equal steps. Heun's method asks twice a step, and its error falls with the square of
    the step where Euler's falls with the step. With guidance g the velocity is
    v(blank) + g (v(code) - v(blank)), where the blank code is all zeros; a guidance of 1 (or 0)
    needs one of the two only and costs half.

    >>> from recombine.models.diffusion import DiT
    >>> spec = DiT(depth=1, width=8, heads=1, patch=2)
    >>> network = spec.draw(jax.random.key(0), code=5, inputs=49, outputs=48)
    >>> sample(network, jnp.eye(3, 5), jax.random.key(1), steps=2, pixels=48).shape
    (3, 48)
    """
    return sample_path(
        network, codes, key, steps=steps, pixels=pixels, times=(1.0,), method=method,
        guidance=guidance, dtype=dtype,
    )[0]  # fmt: skip


def sample_path(
    network: Network,
    codes: Float[Array, "image code"],
    key: PRNGKeyArray,
    *,
    steps: int,
    pixels: int,
    times: Sequence[float],
    method: Method = "euler",
    guidance: float = 1.0,
    dtype: jnp.dtype = FULL,
) -> Float[Array, "time image pixel"]:
    """The same images on their way, at the steps nearest to the given `times`.

    0 gives the noise that an image began as, 1 the image itself.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if steps < 1:
        raise InvalidRequest(f"sampling needs steps of at least 1, got {steps}")
    if not times or not all(0 <= time <= 1 for time in times):
        raise InvalidRequest(
            f"times must be numbers from 0 (noise) to 1 (image), got {tuple(times)}"
        )
    kept = tuple(round(time * steps) for time in times)
    asked = {0.0: "blank", 1.0: "code"}.get(float(guidance), "both")
    strength = np.asarray(guidance, FULL)
    return _follow(network, codes, key, strength, steps, pixels, kept, method, asked, dtype)


@functools.partial(jax.jit, static_argnums=(4, 5, 6, 7, 8, 9))
def _follow(
    network: Network, codes: Array, key: PRNGKeyArray, guidance: Array, steps: int, pixels: int,
    kept: tuple[int, ...], method: str, asked: str, dtype: jnp.dtype,
) -> Array:  # fmt: skip
    count, blank = codes.shape[0], jnp.zeros_like(codes)
    told = {"code": codes, "blank": blank, "both": jnp.concatenate([codes, blank])}[asked]
    wanted = np.asarray(kept)[:, None, None]

    def velocity(image: Array, time: Array) -> Array:
        seen = jnp.concatenate([image, jnp.full((count, 1), time)], axis=-1)
        seen = jnp.concatenate([seen, seen]) if asked == "both" else seen
        found = network(told, seen[:, None], dtype)[:, 0]
        if asked != "both":
            return found
        with_code, without = jnp.split(found, 2)
        return without + guidance * (with_code - without)

    def step(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        image, path = carry
        now, later = (n.astype(FULL) / steps for n in (number, number + 1))
        ahead = velocity(image, now)
        if method == "heun":
            ahead = 0.5 * (ahead + velocity(image + ahead / steps, later))
        image = image + ahead / steps
        return image, jnp.where(wanted == number + 1, image, path)

    noise = jax.random.normal(key, (count, pixels))
    path = jnp.broadcast_to(noise, (len(kept), *noise.shape))
    return jax.lax.fori_loop(0, steps, step, (noise, path))[1]
