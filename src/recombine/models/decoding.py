"""Writing answers token by token, greedily: keys and values are kept, lengths come in buckets."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
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

BATCH, WIDE_BATCH = 256, 1_024  # most rows written together on a CPU, on an accelerator
BATCHES = (64, BATCH, WIDE_BATCH)  # rows there is room for
# Room for sources and for answers: each pair that occurs is compiled. Answers are nearly always
# given what a row leaves, so finer steps cost no further compilation, and half the memory.
SOURCES = tuple(4**k for k in range(2, 7))  # 16 to 4,096
ANSWERS = tuple(2**k for k in range(4, 13))
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
    answers: Int[Array, "row token"]


def decode(
    network: SequenceNetwork,
    source: Int[Array | np.ndarray, "row place"],
    lengths: Int[Array | np.ndarray, "row"],
    ends: Int[Array | np.ndarray, "row"],
    *,
    longest: int,
    dtype: jnp.dtype = FULL,
) -> Int[Array, "row token"]:
    """The most likely next token, again and again, until END or `longest` tokens are written.

    `source` is padded at its end to `lengths`; `ends` may set how long each answer is (END cannot
    come before and must come then). What is written after END is PAD.

    A block of tokens at a time, and the host asks whether all are done: on a GPU, loops that ask
    on the device themselves have stood still for ever when several threads ran them at once.
    """
    with _TURN if jax.default_backend() != "cpu" else nullcontext():
        carry = _read(network, source, lengths, longest=longest, dtype=dtype)
        for _ in range(0, longest, BLOCK):
            carry = _write(network, source, lengths, ends, carry, longest=longest, dtype=dtype)
            if np.all(np.asarray(carry.done)):
                break
    return carry.answers


@functools.partial(jax.jit, static_argnames=("longest", "dtype"))
def _read(
    network: SequenceNetwork, source: Array, lengths: Array, *, longest: int, dtype: jnp.dtype
) -> Carry:
    rows = source.shape[0]
    kept, crossed = _Writing(network, source, lengths, longest, dtype).read()
    return Carry(
        jnp.int32(0), jnp.full(rows, ANSWER, jnp.int32), jnp.zeros(rows, bool), kept, crossed,
        jnp.full((rows, longest), PAD, jnp.int32),
    )  # fmt: skip


@functools.partial(jax.jit, static_argnames=("longest", "dtype"))
def _write(
    network: SequenceNetwork, source: Array, lengths: Array, ends: Array, carry: Carry, *,
    longest: int, dtype: jnp.dtype,
) -> Carry:  # fmt: skip
    words = _Writing(network, source, lengths, longest, dtype)

    def write(carry: Carry, _: None) -> tuple[Carry, None]:
        t, done = carry.t, carry.done
        scores, kept = words.next_scores(t, carry.token, carry.kept, carry.crossed)
        bare = scores.at[:, END].set(-jnp.inf)
        free = jnp.argmax(scores, axis=-1)
        forced = jnp.where(t >= ends, END, jnp.argmax(bare, axis=-1))
        chosen = jnp.where(done, PAD, jnp.where(ends == FREE, free, forced)).astype(jnp.int32)
        answers = carry.answers.at[:, t].set(jnp.where(chosen == END, PAD, chosen))
        done = done | (chosen == END)
        return Carry(t + 1, chosen, done, kept, carry.crossed, answers), None

    return jax.lax.scan(write, carry, None, length=min(BLOCK, longest))[0]


class _Writing:
    """One batch on its way: a decoder has read the source itself, or an encoder has for it."""

    def __init__(self, network, source, lengths, longest, dtype):
        self.network, self.dtype = network, dtype
        self.source, self.lengths = source, lengths
        self.known = jnp.arange(source.shape[1]) < lengths[:, None]  # [row, place]
        self.prompt = 0 if network.encoder else source.shape[1]  # slots before the answer
        self.slots = self.prompt + longest
        self.layers = network.layers(network.decoder)

    def read(self) -> tuple[tuple[Cache, ...], tuple[Cache | None, ...]]:
        """Keys and values of what is read before the first word is written, and the encoder's."""
        network, rows = self.network, self.source.shape[0]
        heads = network.spec.heads
        empty = jnp.zeros((rows, heads, self.slots, network.spec.width // heads), self.dtype)
        kept: list[Cache] = [(empty, empty) for _ in self.layers]
        crossed: list[Cache | None] = [None] * len(self.layers)
        item = self.known.astype(jnp.int32)
        if network.encoder:
            encoded = network.encode(self.source, item, self.dtype)
            for number, block in enumerate(self.layers):
                crossed[number] = block.cross.keep(encoded, View(item > 0), self.dtype)
        elif self.prompt:
            places = jnp.broadcast_to(jnp.arange(self.prompt), self.source.shape)
            h = network.embed(self.source, places, self.dtype)
            seen = jnp.tril(jnp.ones((self.prompt, self.slots), bool))
            known = jnp.pad(self.known, ((0, 0), (0, self.slots - self.prompt)))
            view = network.view(seen & known[:, None, :], places, self.places())
            # Only the prompt's own keys are turned and written; later slots are not seen yet.
            own = network.view(seen, places, places)
            view = view._replace(turned_keys=own.turned_keys)
            for number, block in enumerate(self.layers):
                h, kept[number] = block.go_on(h, kept[number], jnp.int32(0), view, self.dtype)
        return tuple(kept), tuple(crossed)

    def places(self) -> Int[Array, "row slot"]:
        """Where each slot stands: the answer follows the source, not its padding."""
        slots = jnp.arange(self.slots)
        after = self.lengths[:, None] * (self.prompt > 0) + slots - self.prompt
        return jnp.where(slots < self.prompt, slots, after)

    def next_scores(
        self, t: Array, token: Int[Array, "row"], kept: tuple[Cache, ...],
        crossed: tuple[Cache | None, ...],
    ) -> tuple[Array, tuple[Cache, ...]]:  # fmt: skip
        network, slots = self.network, jnp.arange(self.slots)
        places = self.places()
        slot = self.prompt + t
        here = jax.lax.dynamic_slice_in_dim(places, slot, 1, axis=1)
        known = jnp.pad(self.known[:, : self.prompt], ((0, 0), (0, self.slots - self.prompt)))
        seen = known | ((slots >= self.prompt) & (slots <= slot))
        view = network.view(seen[:, None, :], here, places)
        view = view._replace(turned_keys=network.view(seen, here, here).turned_keys)
        h = network.embed(token[:, None], here, self.dtype)
        after = []
        crossing = View(self.known[:, None, :])
        for block, cache, cross in zip(self.layers, kept, crossed, strict=True):
            h, cache = block.go_on(h, cache, slot, view, self.dtype, cross, crossing)
            after.append(cache)
        return network.scores(h, self.dtype)[:, 0], tuple(after)


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

    Items go in batches of like length; each bucket compiles once.
    """
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, source in enumerate(sources):
        most = longest[number] + 1  # END takes a place
        buckets[next_bucket(len(source), SOURCES), next_bucket(most, ANSWERS)].append(number)
    found: list[list[int]] = [[] for _ in sources]
    largest = BATCH if jax.default_backend() == "cpu" else WIDE_BATCH
    for (room, most), numbers in sorted(buckets.items()):
        for start in range(0, len(numbers), largest):
            part = numbers[start : start + largest]
            batch = next_bucket(len(part), BATCHES)
            filled = part + part[-1:] * (batch - len(part))
            padded = np.full((batch, room), PAD, np.int32)
            for row, number in enumerate(filled):
                padded[row, : len(sources[number])] = sources[number]
            lengths = np.asarray([len(sources[n]) for n in filled], np.int32)
            stops = np.asarray([FREE if ends is None else ends[n] for n in filled], np.int32)
            written = np.asarray(decode(network, padded, lengths, stops, longest=most, dtype=dtype))
            for number, row in zip(part, written, strict=False):
                found[number] = [int(token) for token in row[row != PAD]][: longest[number]]
            if tick is not None:
                tick(len(part))
    return found
