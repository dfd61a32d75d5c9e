"""A network trained on a family, together with the world it was trained in."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
    from recombine.learners.supervised import Batch, Supervised, SupervisedProgram

BATCH = 512


@dataclass(frozen=True, eq=False)
class SupervisedSubject(Subject):
    """Answers, activations and weights of a supervised learner, at full precision.

    Its program is the padded one it was trained with, so that all cells of a bucket share the
    compiled readings; padding is cut off before anything is returned.
    """

    abilities: ClassVar[frozenset[str]] = frozenset({"answer", "activations", "weights"})

    learner: Supervised
    program: SupervisedProgram
    arrays: dict[str, Any]
    model: Any
    support: Support
    stored: dict[str, np.ndarray]

    @staticmethod
    def of(learner: Supervised, weights: dict[str, np.ndarray]) -> SupervisedSubject:
        from recombine.learners.supervised import build_support, model_shapes

        program = learner.program()
        arrays = jax.tree.map(jnp.asarray, learner.prepare({}).merged())
        model = jax.tree_util.tree_map_with_path(
            lambda path, _: weights[path_name(path)], model_shapes(learner.natural())
        )
        padded = pad_to(model, model_shapes(program))
        support = build_support(learner.family, learner.support, learner.seeds.support)
        return SupervisedSubject(
            learner, program, arrays, jax.tree.map(jnp.asarray, padded), support, dict(weights)
        )

    def weights(self) -> dict[str, np.ndarray]:
        return self.stored

    def draw(self, ranks: np.ndarray, stream_name: str, samples: int | None = None) -> Batch:
        """Fresh tasks of the given combinations from a stream no training step ever uses."""
        words = stream(self.learner.seeds.evaluation, stream_name)
        parts = []
        for start in range(0, len(ranks), BATCH):
            part = np.asarray(ranks[start : start + BATCH], np.uint32)
            full = np.resize(part, BATCH)  # the tail is repeated up to a whole batch, then cut
            drawn = _draw(
                self.program, samples or self.program.samples, self.arrays, full, words, start
            )
            parts.append(jax.tree.map(lambda array, n=part.size: array[:n], drawn))
        return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)

    def latents(self, batch: Batch) -> np.ndarray:
        return np.asarray(batch.latents[:, : self.learner.family.modules])

    def codes(self, batch: Batch) -> np.ndarray:
        return np.asarray(batch.codes[:, : self.learner.encoding.size(self.learner.family)])

    def answer(self, inputs: Batch, key: Any = None) -> Array:
        return self._in_batches(_answer, inputs.codes, inputs.inputs)

    def score(self, answers: Array, targets: Array) -> dict[str, np.ndarray]:
        """Per-task error, variance and published R²."""
        return jax.tree.map(np.asarray, jax.vmap(self.program.family.score)(answers, targets))

    def activations(self, inputs: Batch) -> dict[str, np.ndarray]:
        """One row per task: the vectors at its last input, by layer, and the `code` itself."""
        found = self._in_batches(_activations, inputs.codes, inputs.inputs[:, -1:])
        width = self.learner.model.width
        cut = {name: np.asarray(value[:, 0, :width]) for name, value in found.items()}
        cut["output"] = np.asarray(found["output"][:, 0])
        return {"code": self.codes(inputs), **cut}

    def hidden(self, inputs: Batch, layer: int) -> Array:
        """Hidden layer `layer` after its ReLU, for every sample (padded width)."""
        found = self._in_batches(_activations, inputs.codes, inputs.inputs)
        return found[f"layer{layer}/after"]

    def answer_from(self, layer: int, hidden: Array) -> Array:
        """The answers if that layer had given `hidden`."""
        return _continue(layer, self.model, hidden)

    def _in_batches(self, function: Any, codes: Array, inputs: Array) -> Any:
        parts = []
        for start in range(0, codes.shape[0], BATCH):
            code, x = codes[start : start + BATCH], inputs[start : start + BATCH]
            missing = BATCH - code.shape[0]
            code = jnp.pad(code, ((0, missing), (0, 0)))
            x = jnp.pad(x, ((0, missing), (0, 0), (0, 0)))
            parts.append(
                jax.tree.map(lambda a, n=BATCH - missing: a[:n], function(self.model, code, x))
            )
        return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)


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
    program: SupervisedProgram, samples: int, arrays: Any, ranks: Array, words: Array, start: int
) -> Batch:
    return program.batch(arrays, ranks, key_at(words, start), samples)


@jax.jit
def _answer(model: Any, codes: Array, inputs: Array) -> Array:
    return model(codes, inputs)


@jax.jit
def _activations(model: Any, codes: Array, inputs: Array) -> dict[str, Array]:
    return model.activations(codes, inputs)


@functools.partial(jax.jit, static_argnums=0)
def _continue(layer: int, model: Any, hidden: Array) -> Array:
    return model.continue_from(layer, hidden)
