"""The doors to networks that look at pictures: those that answer and those that draw again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.errors import NotApplicable
from recombine.families.objects import Asked, Pictured, Scene
from recombine.instruments.subject import Subject
from recombine.seeds import key_at, stream
from recombine.trees import unnamed

if TYPE_CHECKING:
    from recombine.learners.binding import Binding, BindingProgram
    from recombine.learners.segregation import Segregation, SegregationProgram

BATCH = 128  # pictures looked at together
DRAWN = 32  # pictures drawn again together: every part of each is as large as the picture


class SeeingSubject(Subject):
    """A network that was asked about scenes of objects, with the family it learnt from."""

    abilities = frozenset({"answer", "weights"})

    def __init__(self, learner: Binding, weights: dict[str, np.ndarray]):
        from recombine.learners.binding import first_network

        self.learner, self.stored = learner, weights
        self.program = learner.program()
        shapes = jax.eval_shape(lambda: first_network(self.program, jax.random.key(0)))
        self.network = jax.tree.map(jnp.asarray, unnamed(weights, shapes))
        self.trained = jnp.asarray(learner.family.trained(learner.seeds.content))

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    def draw(
        self, name: str, count: int, *, sizes: tuple[int, ...], unseen: bool,
        kind: int | None = None,
    ) -> Asked:  # fmt: skip
        """Fresh items of the task from a stream no training step ever uses."""
        words = stream(self.learner.seeds.evaluation, name)
        number = None if kind is None else jnp.int32(kind)  # one program serves every kind
        drawn = _items(
            self.program, count, unseen, number, self.trained, words, jnp.asarray(sizes, jnp.int32)
        )
        return jax.tree.map(np.asarray, drawn)

    def answer(self, inputs: Asked, key: Any = None) -> np.ndarray:
        """Log odds of yes for each question, or for reports the numbers of each slot."""
        words = stream(self.learner.seeds.evaluation, "first slots")
        key = key_at(words, 0) if key is None else key
        return in_parts(lambda part: _answer(self.program, self.network, part, key), inputs, BATCH)

    def things(self, reports: Float[np.ndarray, "item slot feature"]) -> Scene:
        """What each report says is there."""
        from recombine.learners._matching import decided

        return Scene(*(np.asarray(part) for part in decided(reports, self.learner.family.colours)))  # pyright: ignore[reportArgumentType]


class RedrawingSubject(Subject):
    """An autoencoder that shares the pixels of a picture out among its parts."""

    abilities = frozenset({"answer", "weights"})

    def __init__(self, learner: Segregation, weights: dict[str, np.ndarray]):
        self.learner, self.stored = learner, weights
        self.program = learner.program()
        shapes = jax.eval_shape(
            lambda: learner.model.draw(jax.random.key(0), side=learner.family.side)
        )
        self.network = jax.tree.map(jnp.asarray, unnamed(weights, shapes))

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    def draw(self, name: str, count: int) -> Pictured:
        """Fresh pictures with their true objects, which no training step ever used."""
        words = stream(self.learner.seeds.evaluation, name)
        return jax.tree.map(np.asarray, _pictures(self.program, count, words))

    def answer(
        self, inputs: Float[np.ndarray, "image side side 3"], key: Any = None
    ) -> tuple[Float[np.ndarray, "image side side 3"], Int[np.ndarray, "image side side"]]:
        """The pictures drawn again, and the part that claims each pixel most."""
        words = stream(self.learner.seeds.evaluation, "first slots")
        key = key_at(words, 0) if key is None else key
        return in_parts(lambda part: _redraw(self.program, self.network, part, key), inputs, DRAWN)


def seeing(subject: Subject, instrument: str) -> SeeingSubject:
    """The subject with the scenes it knows, or a refusal that says what is missing."""
    if not isinstance(subject, SeeingSubject):
        raise NotApplicable(
            f"{instrument} needs a network that is asked about scenes of objects, such as that of "
            f"a binding learner; {type(subject).__name__} is none"
        )
    return subject


def redrawing(subject: Subject, instrument: str) -> RedrawingSubject:
    """The subject with the pictures it knows, or a refusal that says what is missing."""
    if not isinstance(subject, RedrawingSubject):
        raise NotApplicable(
            f"{instrument} needs a network that draws pictures again part by part, such as that of "
            f"a segregation learner; {type(subject).__name__} is none"
        )
    return subject


def in_parts(function: Callable[[Any], Any], rows: Any, size: int) -> Any:
    """A function of rows applied to `size` of them at a time, the last part filled up by
    repetition, so that one compiled program serves any number."""
    rows = jax.tree.map(np.asarray, rows)
    total = len(jax.tree.leaves(rows)[0])
    parts = []
    for begin in range(0, total, size):
        index = np.minimum(np.arange(begin, begin + size), total - 1)
        found = function(jax.tree.map(lambda leaf, index=index: leaf[index], rows))
        left = min(size, total - begin)
        parts.append(jax.tree.map(lambda leaf, n=left: np.asarray(leaf)[:n], found))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _items(
    program: BindingProgram, count: int, unseen: bool, kind: Array | None, trained: Array,
    words: Array, sizes: Array,
) -> Asked:  # fmt: skip
    return program.family.draw(
        program.task, trained, key_at(words, 0), count, sizes=sizes, unseen=unseen, kind=kind
    )


@functools.partial(jax.jit, static_argnums=0)
def _answer(program: BindingProgram, network: Any, asked: Asked, key: Any) -> Array:
    return program.answer(network, asked, key)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pictures(program: SegregationProgram, count: int, words: Array) -> Pictured:
    return program.family.draw(key_at(words, 0), count)


@functools.partial(jax.jit, static_argnums=0)
def _redraw(
    program: SegregationProgram, network: Any, images: Array, key: Any
) -> tuple[Array, Array]:
    again = program.redraw(network, images, key)
    return again.image, jnp.argmax(again.masks, axis=-3)
