"""Supervised learning of a family of tasks from an endless stream of fresh examples."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from recombine.combinations import Subsets, pad_offsets, unrank_on_device
from recombine.encodings._encoding import Encoding
from recombine.encodings.linear import Identity
from recombine.errors import InvalidRequest
from recombine.families._family import Family
from recombine.families.hyperteacher import Hyperteacher
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.learners.optimiser import Trained, descend, start
from recombine.models.mlp import MLP
from recombine.seeds import Seeds, host_seed, key_at, stream
from recombine.supports import Support, SupportRule
from recombine.trees import next_bucket, pad_to, path_name

EVALUATION_BATCH = 128


class Batch(NamedTuple):
    """Tasks with their inputs and right answers."""

    latents: Float[Array, "task module"]
    codes: Float[Array, "task code"]
    inputs: Float[Array, "task sample input"]
    targets: Float[Array, "task sample output"]


@dataclass(frozen=True)
class SupervisedProgram(Program):
    """The compiled part: sizes only; teachers, supports, keys and rates are arrays."""

    family: Family
    encoding: Encoding
    model: MLP
    tasks: int
    samples: int
    evaluation_tasks: int
    precision: str = "float32"

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(self.precision)

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        return start(
            self.model.draw(
                key,
                code=self.encoding.size(self.family),
                inputs=self.family.input_size,
                outputs=self.family.output_size,
            )
        )

    def batch(
        self, arrays: dict[str, Any], ranks: UInt32[Array, "task"], key: Any, samples: int
    ) -> Batch:
        """Draws a task for each combination, and examples of it."""
        chosen = unrank_on_device(ranks, arrays["offsets"], self.family.modules, self.family.active)
        latent_key, input_key, code_key = jax.random.split(key, 3)
        count = ranks.shape[0]
        latents = jax.vmap(self.family.latent)(jax.random.split(latent_key, count), chosen)
        # One draw for the whole batch: splitting keys per task costs more than the numbers do.
        flat = self.family.inputs(input_key, count * samples)
        inputs = flat.reshape(count, samples, -1)
        answer = functools.partial(self.family.targets, arrays["family"])

        def encode(latent: Array, code_key: Any) -> Array:
            def examples(shots: int) -> tuple[Array, Array]:
                drawn = self.family.inputs(code_key, shots)
                return drawn, answer(latent, drawn)

            return self.encoding.encode(arrays["encoding"], latent, examples)

        codes = jax.vmap(encode)(latents, jax.random.split(code_key, count))
        return Batch(latents, codes, inputs, jax.vmap(answer)(latents, inputs))

    def pick(self, table: Array, count: Array, key: Any, tasks: int) -> UInt32[Array, "task"]:
        """Uniform draws from a padded table of ranks."""
        return table[jax.random.randint(key, (tasks,), 0, count)]

    def draw(self, arrays: dict[str, Any], t: Any) -> Batch:
        rank_key, batch_key = jax.random.split(key_at(arrays["train"], t))
        ranks = self.pick(arrays["seen"], arrays["seen_count"], rank_key, self.tasks)
        return self.batch(arrays, ranks, batch_key, self.samples)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Batch, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        def loss(model: Any) -> Array:
            answers = model(drawn.codes, drawn.inputs, self.dtype)
            return jnp.mean(jax.vmap(self.family.loss)(answers, drawn.targets))

        value, gradient = jax.value_and_grad(loss)(state.model)
        state = descend(
            state, value, gradient, t, rate=arrays["rate"], decay=arrays["decay"],
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def step(
        self, arrays: dict[str, Any], state: Trained, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
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
                answers = state.model(batch.codes, batch.inputs, self.dtype)
                return jax.vmap(self.family.score)(answers, batch.targets)

            scores = jax.lax.map(score, (jnp.arange(batches.shape[0]), batches))
            found[f"{name}_r2_published"] = jnp.mean(scores["r2"])
            found[f"{name}_r2"] = 1 - jnp.sum(scores["error"]) / jnp.sum(scores["variance"])
        return found


@dataclass(frozen=True)
class Supervised(Learner):
    """A model learns a family from the combinations of a support, told by an encoding.

    Each step draws `tasks` fresh tasks of seen combinations with `samples` fresh inputs each.
    """

    version: ClassVar[int] = 1

    family: Family = field(default_factory=Hyperteacher)
    support: SupportRule = field(default_factory=SupportRule)
    encoding: Encoding = field(default_factory=Identity)
    model: MLP = field(default_factory=MLP)
    seeds: Seeds = field(default_factory=Seeds)
    training_steps: int = 30_000
    tasks: int = 128
    samples: int = 16
    learning_rate: float = 3e-4
    weight_decay: float = 3e-3
    evaluation_every: int = 1_000
    evaluation_tasks: int = 1_024

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return self.evaluation_every

    @property
    def size(self) -> int:
        return self.model.bucket().parameters(
            self.encoding.size(self.family), self.family.input_size, self.family.output_size
        )

    @property
    def init_seed(self) -> int:
        return self.seeds.init

    def check(self) -> None:
        self.family.check()
        self.encoding.check(self.family)
        if not isinstance(self.family.space, Subsets):
            raise InvalidRequest(
                f"supervised learning draws subsets of modules on the device; the combinations of "
                f"{type(self.family).__name__} are {type(self.family.space).__name__}"
            )
        self.support.check(self.family.space)
        least = {"training_steps": 1, "tasks": 1, "samples": 2, "evaluation_every": 1,
                 "evaluation_tasks": EVALUATION_BATCH}  # fmt: skip
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < bound:
                raise InvalidRequest(
                    f"{name} must be a whole number of at least {bound}, got {value!r}"
                )
        if self.evaluation_tasks % EVALUATION_BATCH:
            raise InvalidRequest(
                f"evaluation_tasks must be a multiple of {EVALUATION_BATCH}, got "
                f"{self.evaluation_tasks}"
            )
        largest = float(np.finfo(np.float32).max)
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= largest:
                raise InvalidRequest(
                    f"{name} must be a number from 0 to {largest:.3g}, got {value!r}"
                )

    def natural(self, precision: str = "float32") -> SupervisedProgram:
        return SupervisedProgram(
            self.family, self.encoding, self.model, self.tasks, self.samples,
            self.evaluation_tasks, precision,
        )  # fmt: skip

    def program(self, precision: str = "float32") -> SupervisedProgram:
        natural = self.natural(precision)
        family = self.family.bucket() if self.encoding.pads else self.family
        return replace(natural, family=family, model=self.model.bucket())

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        program = self.program()
        support = build_support(self.family, self.support, self.seeds.support)
        content, code = draw_content(
            self.family, self.encoding, self.seeds.content, self.seeds.encoding
        )
        shapes, code_shapes = content_shapes(program.family, self.encoding)
        return Arrays(
            member={
                "family": pad_to(content, shapes),
                "encoding": pad_to(code, code_shapes),
                "offsets": pad_offsets(self.family.space.offsets, program.family.active),
                "seen": _table(support.seen),
                "seen_count": np.int32(support.seen.size),
                "unseen": _table(support.held_out),
                "unseen_count": np.int32(support.held_out.size),
                "train": stream(self.seeds.train, "train"),
                "evaluation": stream(self.seeds.evaluation, "evaluation"),
                "rate": np.float32(self.learning_rate),
                "decay": np.float32(self.weight_decay),
                "steps": np.int32(self.steps),
            }
        )

    def shard(self) -> str:
        # Tables of one padded length stack; a table of millions never forces small ones to grow.
        support = build_support(self.family, self.support, self.seeds.support)
        return f"{_table(support.seen).size}/{_table(support.held_out).size}"

    def weights(self, state: Trained) -> Tensors:
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


def _table(ranks: np.ndarray) -> np.ndarray:
    """Ranks padded to one of few lengths, so that supports of many sizes stack."""
    length = next_bucket(ranks.size, tuple(2**k for k in range(14, 33, 4)))
    padded = np.full(length, np.iinfo(np.uint32).max, np.uint32)
    padded[: ranks.size] = ranks
    return padded


@functools.lru_cache(maxsize=64)
def build_support(family: Family, rule: SupportRule, seed: int) -> Support:
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
def model_shapes(program: SupervisedProgram) -> Any:
    """The shapes of a program's model, without drawing it."""
    return jax.eval_shape(program.init, {}, jax.random.key(0)).model
