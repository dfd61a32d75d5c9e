"""Masks over a base model that was trained before: which weights does one task need?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.families.hyperteacher import Hyperteacher
from recombine.lab.identity import node_id
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.learners._tasks import draw_content, model_shapes
from recombine.learners.optimiser import Trained, descend, start
from recombine.learners.supervised import Supervised, SupervisedProgram
from recombine.models.layers import Mask, named_layers, wrap
from recombine.models.mlp import MLP, MLPModel
from recombine.seeds import Seeds, key_at, stream
from recombine.trees import path_name
from unlike.exam import Examined


def small_base(seed: int = 0) -> Supervised:
    return Supervised(
        family=Hyperteacher(modules=4, active=2),
        model=MLP(width=16, depth=1),
        seeds=Seeds.all(seed),
        training_steps=100,
        tasks=16,
        samples=4,
        learning_rate=3e-3,
        evaluation_every=100,
        evaluation_tasks=128,
    )


def build(program: SupervisedProgram, weights: Mapping[str, Any]) -> MLPModel:
    """A base model from its stored weights."""
    shapes = model_shapes(program)
    return jax.tree_util.tree_map_with_path(lambda path, _: weights[path_name(path)], shapes)


@dataclass(frozen=True)
class MaskProgram(Program):
    base: SupervisedProgram
    examples: int

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        layers = named_layers(build(self.base, arrays["base"]))
        keys = jax.random.split(key, len(layers))
        return start(
            {
                path: 1 + 0.1 * jax.random.normal(one, layer.weight.shape)
                for one, (path, layer) in zip(keys, layers.items(), strict=True)
            }
        )

    def error(self, arrays: dict[str, Any], keep: dict[str, Array], key: Any) -> Array:
        """Of the masked base, on the task of one module."""
        family, encoding = self.base.family, self.base.encoding
        model = wrap(build(self.base, arrays["base"]), {p: Mask(m) for p, m in keep.items()})
        latent = jax.nn.one_hot(arrays["module"], family.modules)
        inputs = family.inputs(key, self.examples)
        targets = family.targets(arrays["family"], latent, inputs)
        code = encoding.encode(arrays["encoding"], latent, lambda shots: (inputs, targets))
        return jnp.mean((cast(MLPModel, model)(code, inputs) - targets) ** 2)

    def step(self, arrays: dict[str, Any], state: Trained, t: Any) -> tuple[Trained, dict]:
        def loss(logits: dict[str, Array]) -> Array:
            keep = jax.tree.map(jax.nn.sigmoid, logits)
            kept = sum(jnp.mean(mask) for mask in keep.values()) / len(keep)
            return self.error(arrays, keep, key_at(arrays["train"], t)) + 0.01 * kept

        value, gradient = jax.value_and_grad(loss)(state.model)
        state = descend(state, value, gradient, t, rate=jnp.float32(0.01), decay=jnp.float32(0))
        return state, {"loss": value}

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
        keep = jax.tree.map(lambda logits: jnp.float32(logits > 0), state.model)
        return {"error": self.error(arrays, keep, key_at(arrays["evaluation"], 0))}


@dataclass(frozen=True)
class Masked(Learner):
    """Learns which weights of a base model the task of one module needs."""

    base: Supervised = field(default_factory=small_base)
    module: int = 0
    seed: int = 0
    training_steps: int = 200

    @property
    def steps(self) -> int:
        return self.training_steps

    @property
    def evaluate_every(self) -> int:
        return 100

    @property
    def init_seed(self) -> int:
        return self.seed

    def upstream(self) -> dict[str, Learner]:
        return {"base": self.base}

    def group(self) -> str:
        return node_id(self.base)

    def program(self, precision: str = "float32") -> MaskProgram:
        return MaskProgram(self.base.natural(), 32)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        seeds = self.base.seeds
        content, code = draw_content(
            self.base.family, self.base.encoding, seeds.content, seeds.encoding
        )
        return Arrays(
            member={
                "module": np.int32(self.module),
                "train": stream(self.seed, "train"),
                "evaluation": stream(self.seed, "evaluation"),
            },
            group={"base": given["base"], "family": content, "encoding": code},
        )

    def weights(self, state: Trained) -> Tensors:
        return {path: np.asarray(logits) for path, logits in state.model.items()}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> MaskSubject:
        return MaskSubject(self, weights, (given or {})["base"])


class MaskSubject(Examined):
    """The base model with the weights that the mask keeps."""

    def __init__(self, learner: Masked, tensors: Tensors, base: Tensors):
        super().__init__(tensors)
        self.learner = learner
        keep = {path: Mask(np.float32(logits > 0)) for path, logits in tensors.items()}
        self.model = cast(MLPModel, wrap(build(learner.base.natural(), base), keep))
        self.arrays = learner.prepare({"base": base}).merged()

    def answer(self, inputs: Any, key: Any = None) -> np.ndarray:
        code = np.eye(self.learner.base.family.modules, dtype=np.float32)[self.learner.module]
        return np.asarray(self.model(jnp.asarray(code), jnp.asarray(inputs)))

    def exam(self) -> tuple[np.ndarray, np.ndarray]:
        family = self.learner.base.family
        inputs = family.inputs(key_at(self.arrays["evaluation"], 1), 64)
        latent = np.eye(family.modules, dtype=np.float32)[self.learner.module]
        return np.asarray(inputs), np.asarray(
            family.targets(self.arrays["family"], jnp.asarray(latent), inputs)
        )

    def right(self, answers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return np.exp(-((answers - wanted) ** 2))
