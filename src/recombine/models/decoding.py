"""Writing answers token by token, greedily: keys and values are kept, lengths come in buckets."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from recombine.models.attention import Cache
from recombine.models.layers import FULL
from recombine.models.sequence import SequenceNetwork, View
from recombine.tokens import ANSWER, END, PAD
from recombine.trees import next_bucket

# Rows there is room for. Every size that occurs is compiled, and on an accelerator a batch that
# is not full costs hardly less than a full one.
BATCHES, WIDE_BATCHES = (64, 256), (256, 1_024)
SOURCES = tuple(4**k for k in range(2, 7))  # room to read in: 16 to 4,096 tokens
SLOTS = tuple(2**k for k in range(5, 14))  # room to read and write in
BLOCK = 16  # tokens between two looks at whether all answers have ended
FREE = -1  # no length is set: the network says itself where an answer ends

_TURN = threading.Lock()  # one batch at a time on an accelerator


class Carry(NamedTuple):
    """A batch on its way: what was read and written so far."""

    t: Int[Array, ""]
    token: Int[Array, "row"]
    done: Bool[Array, "row"]
    kept: tuple[Cache, ...]  # keys and values of what was read and written
    crossed: tuple[Cache | None, ...]  # those of the encoder, where there is one
    answers: Int[Array, "row slot"]


def decode(
    network: SequenceNetwork,
    source: Int[Array | np.ndarray, "row place"],
    lengths: Int[Array | np.ndarray, "row"],
    longest: Int[Array | np.ndarray, "row"],
    ends: Int[Array | np.ndarray, "row"],
    *,
    slots: int,
    dtype: jnp.dtype = FULL,
) -> Int[Array, "row slot"]:
    """The most likely next token, again and again, until END or `longest` tokens are written.

    `source` is padded at its end to `lengths`; `ends` may set how long each answer is (END cannot
    come before and must come then). What is written after END is PAD. Of `slots` a decoder needs
    as many as a row has tokens in its source and its answer, and an encoder's decoder those of
    the answer.

    A block of tokens at a time, and the host asks whether all are done: on a GPU, loops that ask
    on the device themselves have stood still for ever when several threads ran them at once.
    """
    with _TURN if jax.default_backend() != "cpu" else nullcontext():
        carry = _read(network, source, lengths, slots=slots, dtype=dtype)
        for _ in range(0, int(np.max(longest)), BLOCK):
            carry = _write(network, lengths, longest, ends, carry, dtype=dtype)
            if np.all(np.asarray(carry.done)):
                break
    return carry.answers


@functools.partial(jax.jit, static_argnames=("slots", "dtype"))
def _read(
    network: SequenceNetwork, source: Array, lengths: Array, *, slots: int, dtype: jnp.dtype
) -> Carry:
    """Keys and values of what is read before the first word is written."""
    rows, room = source.shape
    layers = network.layers(network.decoder)
    crossed: tuple[Cache | None, ...] = (None,) * len(layers)
    kept: list[Cache] = []
    if network.encoder:
        item = (jnp.arange(room) < lengths[:, None]).astype(jnp.int32)
        encoded = network.encode(source, item, dtype)
        looked_at = View(item > 0)
        crossed = tuple(b.cross and b.cross.keep(encoded, looked_at, dtype) for b in layers)
        empty = jnp.zeros((rows, network.spec.heads, 0, network.spec.width // network.spec.heads))
        kept = [(empty, empty) for _ in layers]
    else:
        places = jnp.broadcast_to(jnp.arange(room), source.shape)
        h = network.embed(source, places, dtype)
        view = network.view(jnp.tril(jnp.ones((room, room), bool)), places, places)
        for block in layers:
            h, new = block.go_on(h, None, None, view, dtype)
            kept.append(new)
    return Carry(
        jnp.int32(0), jnp.full(rows, ANSWER, jnp.int32), jnp.zeros(rows, bool),
        tuple((_widened(k, slots, dtype), _widened(v, slots, dtype)) for k, v in kept), crossed,
        jnp.full((rows, slots), PAD, jnp.int32),
    )  # fmt: skip


def _widened(cache: Array, slots: int, dtype: jnp.dtype) -> Array:
    return jnp.pad(cache.astype(dtype), ((0, 0), (0, 0), (0, slots - cache.shape[2]), (0, 0)))


@functools.partial(jax.jit, static_argnames=("dtype",), donate_argnames=("carry",))
def _write(
    network: SequenceNetwork, lengths: Array, longest: Array, ends: Array, carry: Carry, *,
    dtype: jnp.dtype,
) -> Carry:  # fmt: skip
    def write(carry: Carry, _: None) -> tuple[Carry, None]:
        t, done = carry.t, carry.done
        scores, kept = _next_scores(network, lengths, carry, dtype)
        bare = scores.at[:, END].set(-jnp.inf)
        free = jnp.argmax(scores, axis=-1)
        forced = jnp.where(t >= ends, END, jnp.argmax(bare, axis=-1))
        chosen = jnp.where(done, PAD, jnp.where(ends == FREE, free, forced)).astype(jnp.int32)
        answers = carry.answers.at[:, t].set(jnp.where(chosen == END, PAD, chosen))
        done = done | (chosen == END) | (t + 1 >= longest)
        return Carry(t + 1, chosen, done, kept, carry.crossed, answers), None

    return jax.lax.scan(write, carry, None, length=BLOCK)[0]


def _next_scores(
    network: SequenceNetwork, lengths: Array, carry: Carry, dtype: jnp.dtype
) -> tuple[Array, tuple[Cache, ...]]:
    # Each answer follows its own source, over whatever the padding left there: a slot is a place.
    slot = carry.t + lengths * (not network.encoder)
    here, slots = slot[:, None], jnp.arange(carry.answers.shape[1])
    seen = slots <= here
    view = network.view(seen[:, None, :], here, slots)
    view = view._replace(turned_keys=network.view(seen, here, here).turned_keys)
    h = network.embed(carry.token[:, None], here, dtype)
    layers, crossing, after = network.layers(network.decoder), None, []
    if network.encoder and carry.crossed[0] is not None:
        room = carry.crossed[0][0].shape[2]
        crossing = View((jnp.arange(room) < lengths[:, None])[:, None, :])
    for block, cache, cross in zip(layers, carry.kept, carry.crossed, strict=True):
        h, cache = block.go_on(h, cache, slot, view, dtype, cross, crossing)
        after.append(cache)
    return network.scores(h, dtype)[:, 0], tuple(after)


def answers(
    network: SequenceNetwork,
    sources: Sequence[Sequence[int]],
    longest: Sequence[int],
    ends: Sequence[int] | None = None,
    *,
    dtype: jnp.dtype = FULL,
    tick: Callable[[int], None] | None = None,
) -> list[list[int]]:
    """What a network answers to each source, at most `longest` tokens each.

    Items go in batches of like length. All have the same room to write in, so that one compiled
    program serves them.
    """
    if not sources:
        return []
    apart = bool(network.encoder)
    needed = [most if apart else most + len(s) for s, most in zip(sources, longest, strict=True)]
    slots = next_bucket(max(needed), SLOTS)
    sizes = BATCHES if jax.default_backend() == "cpu" else WIDE_BATCHES
    found: list[list[int]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for start in range(0, len(order), sizes[-1]):
        part = order[start : start + sizes[-1]]
        filled = part + part[-1:] * (next_bucket(len(part), sizes) - len(part))
        room = next_bucket(len(sources[part[-1]]), SOURCES)
        padded = np.full((len(filled), room if apart else min(room, slots)), PAD, np.int32)
        for row, number in enumerate(filled):
            padded[row, : len(sources[number])] = sources[number]
        lengths, most, stops = (
            np.asarray(values, np.int32)
            for values in (
                [len(sources[n]) for n in filled], [longest[n] for n in filled],
                [FREE if ends is None else ends[n] for n in filled],
            )
        )  # fmt: skip
        written = np.asarray(
            decode(network, padded, lengths, most, stops, slots=slots, dtype=dtype)
        )
        for number, row in zip(part, written, strict=False):
            found[number] = [int(token) for token in row[row != PAD]]
        if tick is not None:
            tick(len(part))
    return found
