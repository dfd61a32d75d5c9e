"""A network trained on a family, together with the world it was trained in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.errors import NotApplicable
from recombine.instruments.subject import Subject
from recombine.seeds import key_at, stream
from recombine.supports import Support
from recombine.trees import pad_to, path_name

if TYPE_CHECKING:
    from recombine.learners._tasks import Batch, TaskLearner, TaskProgram

BATCH = 512


@dataclass(frozen=True, eq=False)
class SupervisedSubject(Subject):
    """Answers, activations and weights of a supervised learner, at full precision.

    Its program is the padded one it was trained with, so that all cells of a bucket share the
    compiled readings; padding is cut off before anything is returned.
    """

    learner: TaskLearner
    program: TaskProgram
    arrays: dict[str, Any]
    model: Any
    support: Support
    stored: dict[str, np.ndarray]
    abilities: frozenset[str] = frozenset({"answer", "activations", "weights"})

    @staticmethod
    def of(learner: TaskLearner, weights: dict[str, np.ndarray]) -> SupervisedSubject:
        from recombine.learners._tasks import build_support, model_shapes

        program = learner.program()
        arrays = jax.tree.map(jnp.asarray, learner.prepare({}).merged())
        model = jax.tree_util.tree_map_with_path(
            lambda path, _: weights[path_name(path)], model_shapes(learner.natural())
        )
        padded = pad_to(model, model_shapes(program))
        support = build_support(learner.family, learner.support, learner.seeds.support)
        abilities = SupervisedSubject.abilities
        return SupervisedSubject(
            learner, program, arrays, jax.tree.map(jnp.asarray, padded), support, dict(weights),
            abilities if learner.network else abilities - {"activations"},
        )  # fmt: skip

    @functools.cached_property
    def widths(self) -> dict[str, int]:
        """How many numbers each layer has without padding."""
        family, encoding = self.learner.family, self.learner.encoding
        from recombine.learners._tasks import model_shapes

        code = jax.ShapeDtypeStruct((encoding.size(family),), jnp.float32)
        seen = jax.ShapeDtypeStruct((family.horizon, family.input_size), jnp.float32)
        found = jax.eval_shape(
            lambda model, code, seen: model.activations(code, seen),
            model_shapes(self.learner.natural()), code, seen,
        )  # fmt: skip
        return {name: shape.shape[-1] for name, shape in found.items()}

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    def draw(self, ranks: np.ndarray, stream_name: str, samples: int | None = None) -> Batch:
        """Fresh tasks of the given combinations from a stream no training step ever uses."""
        words = stream(self.learner.seeds.evaluation, stream_name)
        if self.program.family.horizon > 1 or samples is None:
            samples = self.program.samples  # an episode is as long as it is
        starts = iter(range(0, len(ranks), BATCH))
        return in_batches(
            lambda part: _draw(self.program, samples, self.arrays, part, words, next(starts)),
            np.asarray(ranks, np.uint32),
        )

    def latents(self, batch: Batch) -> np.ndarray:
        return np.asarray(batch.latents[:, : self.learner.family.modules])

    def codes(self, batch: Batch) -> np.ndarray:
        return np.asarray(batch.codes[:, : self.learner.encoding.size(self.learner.family)])

    def answer(self, inputs: Batch, key: Any = None) -> np.ndarray:
        return in_batches(lambda part: _answer(self.program, self.arrays, self.model, part), inputs)

    def score(self, answers: Any, targets: Any) -> dict[str, np.ndarray]:
        """Per-task numbers, as the family scores."""
        return in_batches(lambda part: _score(self.program, *part), (answers, targets))

    def activations(self, inputs: Batch) -> dict[str, np.ndarray]:
        """One row per task: the vectors at its probed input, by layer, and the `code` itself."""
        probed = self.program.family.probed
        if probed == -1 and not self.looks_back:  # the samples before it would be wasted work
            inputs = inputs._replace(inputs=jax.tree.map(lambda leaf: leaf[:, -1:], inputs.inputs))
        found = in_batches(
            lambda part: _activations(self.program, self.arrays, self.model, part), inputs
        )
        cut = {
            name: np.asarray(value[:, probed, : self.widths[name]]) for name, value in found.items()
        }
        return {"code": self.codes(inputs), **cut}

    @property
    def looks_back(self) -> bool:
        """Whether an answer may depend on the samples before it."""
        return self.learner.network is not None and self.learner.network.looks_back

    def hidden(self, inputs: Batch, layer: int) -> np.ndarray:
        """All that hidden layer `layer` hands on (padded width)."""
        return in_batches(
            lambda part: _hidden(self.program, layer, self.arrays, self.model, part), inputs
        )

    def answer_from(self, layer: int, hidden: np.ndarray) -> np.ndarray:
        """The answers if that layer had given `hidden`."""
        return in_batches(lambda part: _continue(layer, self.model, part), hidden)


def in_batches(function: Callable[[Any], Any], rows: Any) -> Any:
    """A function of rows applied in pieces of one size, the last one filled up by repetition.

    One compiled program then serves any number of rows; cutting and joining happen on the host,
    where a new length compiles nothing.
    """
    rows = jax.tree.map(np.asarray, rows)
    total = len(jax.tree.leaves(rows)[0])
    parts = []
    for start in range(0, total, BATCH):
        index = np.minimum(np.arange(start, start + BATCH), total - 1)
        part = jax.tree.map(lambda leaf, index=index: leaf[index], rows)
        left = min(BATCH, total - start)
        parts.append(jax.tree.map(lambda leaf, n=left: np.asarray(leaf)[:n], function(part)))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def supervised(subject: Subject, instrument: str) -> SupervisedSubject:
    """The subject with the world it was trained in, or a refusal that says what is missing."""
    if not isinstance(subject, SupervisedSubject):
        raise NotApplicable(
            f"{instrument} needs a subject that knows its family and support, such as that of a "
            f"supervised learner; {type(subject).__name__} does not"
        )
    return subject


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw(
    program: TaskProgram, samples: int, arrays: Any, ranks: Array, words: Array, start: int
) -> Batch:
    return program.batch(arrays, ranks, key_at(words, start), samples)


@functools.partial(jax.jit, static_argnums=0)
def _score(program: TaskProgram, answers: Array, targets: Array) -> dict[str, Array]:
    return jax.vmap(program.family.score)(answers, targets)


@functools.partial(jax.jit, static_argnums=0)
def _answer(program: TaskProgram, arrays: Any, model: Any, batch: Batch) -> Array:
    return program.answer(arrays, model, batch)


def _seen(program: TaskProgram, arrays: Any, batch: Batch) -> Array:
    return program.family.observe(arrays["family"], batch.inputs)


@functools.partial(jax.jit, static_argnums=0)
def _activations(program: TaskProgram, arrays: Any, model: Any, batch: Batch) -> dict[str, Array]:
    return model.activations(batch.codes, _seen(program, arrays, batch))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _hidden(program: TaskProgram, layer: int, arrays: Any, model: Any, batch: Batch) -> Array:
    return model.handed_on(layer, batch.codes, _seen(program, arrays, batch))


@functools.partial(jax.jit, static_argnums=0)
def _continue(layer: int, model: Any, hidden: Array) -> Array:
    return model.continue_from(layer, hidden)
