"""How many tokens a second a network writes, with its keys and values kept and without."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

from recombine.lab.device import device
from recombine.models.decoding import decode
from recombine.models.sequence import Rows, SequenceModel, SequenceNetwork
from recombine.tokens import ANSWER, FIRST

VOCABULARY = 64


def run(widths: list[int] | None = None, seconds: float = 3.0) -> list[dict]:
    """Answers of a set length to sources as long, one batch after another."""
    here = device()
    count, length = (256, 128) if here.accelerated else (32, 32)
    lines = []
    for width in widths or ([128, 256] if here.accelerated else [64]):
        spec = SequenceModel(depth=4, width=width, heads=max(1, width // 32))
        network = spec.draw(jax.random.key(0), vocabulary=VOCABULARY, length=2 * length)
        rng = np.random.default_rng(0)
        source = jnp.asarray(rng.integers(FIRST, VOCABULARY, (count, length)), jnp.int32)
        full, dtype = jnp.full(count, length), jnp.dtype(here.precision())

        def kept(network=network, source=source, full=full, dtype=dtype) -> jax.Array:
            return decode(network, source, full, full, full, slots=2 * length, dtype=dtype)

        def again(network=network, source=source) -> jax.Array:
            return _plain(network, source, length, jnp.dtype(here.precision()))

        line = {"model": f"sequence 4x{width}", "batch": count, "length": length,
                "precision": here.precision()}  # fmt: skip
        for name, write in (("kept", kept), ("read again", again)):
            write().block_until_ready()
            done, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < seconds:
                write().block_until_ready()
                done += 1
            line[f"tokens_per_second, {name}"] = (
                done * count * length / (time.perf_counter() - begun)
            )
        lines.append(line)
        print(
            f"{line['model']:<20}{line['tokens_per_second, kept']:>12,.0f} tokens/s written, "
            f"{line['tokens_per_second, read again']:,.0f} where all is read again for each",
            flush=True,
        )
    return lines


def _plain(network: SequenceNetwork, source: jax.Array, length: int, dtype: jnp.dtype) -> jax.Array:
    """The usual loop without a cache: the whole row is read for every token."""
    rows, before = source.shape
    tokens = jnp.pad(source, ((0, 0), (0, length + 1))).at[:, before].set(ANSWER)
    none = jnp.zeros((rows, 0), jnp.int32)
    item = jnp.ones_like(tokens)
    for place in range(before, before + length):
        tokens = _next(network, Rows(tokens, item, none, none), place, dtype)
    return tokens


def _next_token(
    network: SequenceNetwork, rows: Rows, place: jax.Array, dtype: jnp.dtype
) -> jax.Array:
    chosen = jnp.argmax(network(rows, dtype)[:, place], axis=-1)
    return rows.tokens.at[:, place + 1].set(chosen.astype(rows.tokens.dtype))


_next = jax.jit(_next_token, static_argnums=3)
