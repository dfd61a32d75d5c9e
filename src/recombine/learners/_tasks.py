"""What learners of a family share: drawing its tasks, telling them, and scoring answers."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from recombine.checks import at_least
from recombine.encodings._encoding import Encoding
from recombine.encodings.linear import Identity
from recombine.errors import InvalidRequest
from recombine.families._family import Family, Inputs
from recombine.families.hyperteacher import Hyperteacher
from recombine.instruments.subject import Subject
from recombine.learners._learner import Program, StepLearner, Tensors
from recombine.models._model import Model
from recombine.seeds import Seeds, host_seed, key_at, stream
from recombine.supports import Collected, Support, SupportRule
from recombine.trees import next_bucket, pad_to, path_name

EVALUATION_BATCH = 128


class Batch(NamedTuple):
    """Tasks with their inputs and right answers."""

    latents: Float[Array, "task module"]
    codes: Float[Array, "task code"]
    inputs: Inputs
    targets: Float[Array, "task sample output"]


@dataclass(frozen=True)
class TaskProgram(Program):
    """The compiled part: sizes only; content, supports, keys and rates are arrays.

    Its state has a field `model`: what `answer` needs besides the arrays.
    """

    family: Family
    encoding: Encoding
    tasks: int
    samples: int
    evaluation_tasks: int
    precision: str = "float32"

    @abc.abstractmethod
    def answer(self, arrays: dict[str, Any], model: Any, batch: Batch) -> Array:
        """What it says to a batch."""

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(self.precision)

    def batch(
        self, arrays: dict[str, Any], ranks: UInt32[Array, "task"], key: Any, samples: int
    ) -> Batch:
        """Draws a task for each combination, and examples of it."""
        chosen = self.family.space.indicator_on_device(ranks, arrays["offsets"])
        latent_key, input_key, code_key = jax.random.split(key, 3)
        count = ranks.shape[0]
        latents = jax.vmap(self.family.latent)(jax.random.split(latent_key, count), chosen)
        inputs, targets = self.family.draw(arrays["family"], latents, input_key, samples)

        def encode(latent: Array, code_key: Any) -> Array:
            examples = functools.partial(
                self.family.demonstrations, arrays["family"], latent, code_key
            )
            return self.encoding.encode(arrays["encoding"], latent, examples)

        codes = jax.vmap(encode)(latents, jax.random.split(code_key, count))
        return Batch(latents, codes, inputs, targets)

    def pick(self, table: Array, count: Array, key: Any, tasks: int) -> UInt32[Array, "task"]:
        """Uniform draws from a padded table of ranks."""
        return table[jax.random.randint(key, (tasks,), 0, count)]

    def draw(self, arrays: dict[str, Any], t: Any) -> Batch:
        rank_key, batch_key = jax.random.split(key_at(arrays["train"], t))
        ranks = self.pick(arrays["seen"], arrays["seen_count"], rank_key, self.tasks)
        return self.batch(arrays, ranks, batch_key, self.samples)

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        found = {}
        for name in ("seen", "unseen"):
            key = key_at(arrays["evaluation"], {"seen": 0, "unseen": 1}[name])
            rank_key, batch_key = jax.random.split(key)
            ranks = self.pick(
                arrays[name], arrays[f"{name}_count"], rank_key, self.evaluation_tasks
            )
            batches = ranks.reshape(-1, EVALUATION_BATCH)

            def score(item: tuple[Array, Array], batch_key: Any = batch_key) -> dict[str, Array]:
                number, ranks = item
                batch = self.batch(
                    arrays, ranks, jax.random.fold_in(batch_key, number), self.samples
                )
                answers = self.answer(arrays, state.model, batch)
                return jax.vmap(self.family.score)(answers, batch.targets)

            scores = jax.lax.map(score, (jnp.arange(batches.shape[0]), batches))
            for kind, value in self.family.summary(scores).items():
                found[f"{name}_{kind}" if kind else name] = value
        return found


@dataclass(frozen=True)
class TaskLearner(StepLearner):
    """Learns a family from the combinations of a support, told by an encoding."""

    family: Family = field(default_factory=Hyperteacher)
    support: SupportRule | Collected = field(default_factory=SupportRule)
    encoding: Encoding = field(default_factory=Identity)
    seeds: Seeds = field(default_factory=Seeds)
    tasks: int = 128
    samples: int = 16
    evaluation_every: int = 1_000
    evaluation_tasks: int = 1_024

    @abc.abstractmethod
    def program(self, precision: str = "float32") -> TaskProgram: ...

    @property
    def network(self) -> Model | None:
        """The network that learns, where there is one to look into."""
        return None

    def check(self) -> None:
        self.family.check()
        self.encoding.check(self.family)
        self.support.check(self.family.space)
        episode = self.family.horizon
        if episode > 1 and self.samples != episode:
            raise InvalidRequest(
                f"a task of {type(self.family).__name__} is an episode of {episode} steps, got "
                f"samples={self.samples}: use samples={episode}"
            )
        at_least(self, tasks=1, samples=2, evaluation_every=1, evaluation_tasks=EVALUATION_BATCH)
        if self.evaluation_tasks % EVALUATION_BATCH:
            raise InvalidRequest(
                f"evaluation_tasks must be a multiple of {EVALUATION_BATCH}, got "
                f"{self.evaluation_tasks}"
            )

    def task_arrays(self) -> dict[str, Any]:
        """What every program of tasks is given: content, code, support tables and keys."""
        program = self.program()
        support = build_support(self.family, self.support, self.seeds.support)
        content, code = draw_content(
            self.family, self.encoding, self.seeds.content, self.seeds.encoding
        )
        shapes, code_shapes = content_shapes(program.family, self.encoding)
        return {
            "family": pad_to(content, shapes),
            "encoding": pad_to(code, code_shapes),
            "offsets": self.family.space.device_offsets(program.family.active),
            "seen": _table(support.drawn),
            "seen_count": np.int32(support.drawn.size),
            "unseen": _table(support.tested),
            "unseen_count": np.int32(support.tested.size),
            "train": stream(self.seeds.train, "train"),
            "evaluation": stream(self.seeds.evaluation, "evaluation"),
        }

    def shard(self) -> str:
        # Tables of one padded length stack; a table of millions never forces small ones to grow.
        support = build_support(self.family, self.support, self.seeds.support)
        return f"{_table_length(support.drawn.size)}/{_table_length(support.tested.size)}"

    def weights(self, state: Any) -> Tensors:
        natural = model_shapes(self.natural())
        leaves = jax.tree_util.tree_flatten_with_path(state.model)[0]
        sizes = jax.tree.leaves(natural)
        return {
            path_name(path): np.asarray(leaf)[tuple(slice(0, n) for n in size.shape)]
            for (path, leaf), size in zip(leaves, sizes, strict=True)
        }

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        from recombine.instruments.supervised_subject import SupervisedSubject

        return SupervisedSubject.of(self, weights)


def _table_length(count: int) -> int:
    return next_bucket(count, tuple(2**k for k in range(14, 33, 4)))


def _table(ranks: np.ndarray) -> np.ndarray:
    """Ranks padded to one of few lengths, so that supports of many sizes stack."""
    padded = np.full(_table_length(ranks.size), np.iinfo(np.uint32).max, np.uint32)
    padded[: ranks.size] = ranks
    return padded


@functools.lru_cache(maxsize=64)
def build_support(family: Family, rule: SupportRule | Collected, seed: int) -> Support:
    """The support of a cell; kept, because many cells and all their readings share it."""
    return rule.build(family.space, host_seed(seed, "support"))


def draw_content(
    family: Family, encoding: Encoding, content_seed: int, encoding_seed: int
) -> tuple[Tensors, Tensors]:
    """The modules of a cell's family and what its encoding draws once."""
    words = (stream(content_seed, "content"), stream(encoding_seed, "encoding"))
    return jax.tree.map(np.asarray, jax.device_get(_draw_content(family, encoding, *words)))


def _content(family: Family, encoding: Encoding, content: Array, code: Array) -> tuple[Any, Any]:
    return family.content(key_at(content, 0)), encoding.content(family, key_at(code, 0))


_draw_content = jax.jit(_content, static_argnums=(0, 1))


@functools.lru_cache(maxsize=256)
def content_shapes(family: Family, encoding: Encoding) -> Any:
    words = jax.ShapeDtypeStruct((2,), np.uint32)
    return jax.eval_shape(functools.partial(_content, family, encoding), words, words)


@functools.lru_cache(maxsize=256)
def model_shapes(program: Any) -> Any:
    """The shapes of a program's model, without drawing it."""
    content, code = content_shapes(program.family, program.encoding)
    arrays = {"family": content, "encoding": code}
    return jax.eval_shape(program.init, arrays, jax.random.key(0)).model
