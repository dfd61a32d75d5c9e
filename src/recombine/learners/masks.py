"""Learning which weights of a trained network do one part of its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.checks import at_least, is_whole, rates
from recombine.errors import InvalidRequest, NotApplicable, unknown
from recombine.instruments.subject import Subject
from recombine.lab.identity import node_id
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.learners._tasks import TaskLearner
from recombine.learners.as_drawn import taught
from recombine.learners.module_parts import module_arrays, module_parts
from recombine.learners.optimiser import Trained, descend, start
from recombine.learners.parts import Parts
from recombine.learners.supervised import Supervised
from recombine.models.layers import Mask, named_layers, wrap
from recombine.seeds import key_at, stream
from recombine.trees import pad_to, unnamed

METHODS = ("continuous", "hard-concrete", "magnitude")
STRETCH, TEMPERATURE = 0.1, 2 / 3  # of the hard-concrete law
Masks = dict[str, Float[Array, "in out"]]


@dataclass(frozen=True)
class Masking:
    """How masks are learnt. One setting serves every network: choosing it by what is then reported
    would find parts anywhere. The penalty was set on networks with planted parts, for about a
    thousand steps, as large as still finds these: a smaller one leaves so many weights in a mask
    that as many at random ruin a network too, and a larger one or more steps leave masks without
    which a part still works.

    `continuous` sparsification: keep = sigmoid(b s) with b rising geometrically from 1 to
    `sharpest`, and 1[s > 0] in the end. `hard-concrete`: keep is drawn from a stretched, clipped
    law with parameter s. `magnitude` learns nothing and keeps the `density` largest weights.
    `penalty` is what a mask that keeps all weights adds to the loss. `layers` are paths of
    matrices, or beginnings of them; all by default but those that look up words, or what a
    task is told to be: there the words of a rule, or a module's own row, would part it from others
    before the network has done anything.
    """

    method: Literal["continuous", "hard-concrete", "magnitude"] = "continuous"
    begin: float = 0.05
    sharpest: float = 200.0
    penalty: float = 0.3
    density: float = 0.2
    layers: tuple[str, ...] = ()

    def __post_init__(self):
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        for name, least in (("penalty", 0.0), ("sharpest", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value < 1e9:
                raise InvalidRequest(f"{name}={value!r}: expected a number of at least {least:g}")
        if not isinstance(self.begin, int | float) or not -1e9 < self.begin < 1e9:
            raise InvalidRequest(f"begin={self.begin!r}: expected a number, such as 0.05")
        given = [self.layers] if isinstance(self.layers, str) else self.layers
        paths = isinstance(given, tuple | list) and all(isinstance(one, str) for one in given)
        if not paths or isinstance(self.layers, str):
            example = tuple(given) if paths else ("hidden/0",)
            raise InvalidRequest(f"layers={self.layers!r}: expected paths, such as {example!r}")
        if not isinstance(self.density, int | float) or not 0 < self.density < 1:
            raise InvalidRequest(f"density={self.density!r}: expected a share between 0 and 1")

    def paths(self, model: Any) -> list[str]:
        """The matrices that are masked, or an error that lists those there are."""
        known = list(named_layers(model))
        for wanted in self.layers:
            if not any(path == wanted or path.startswith(f"{wanted}/") for path in known):
                raise unknown("layer", wanted, known)
        if not self.layers:
            return [path for path in known if path not in getattr(model, "embeddings", ())]
        return [
            path
            for path in known
            if any(path == w or path.startswith(f"{w}/") for w in self.layers)
        ]


def kept(scores: Masks) -> Masks:
    """The mask in use: every weight stays or goes."""
    return jax.tree.map(lambda s: (s > 0).astype(jnp.float32), scores)


def masked(model: Any, keep: Masks) -> Any:
    return wrap(model, {path: Mask(mask) for path, mask in keep.items()})


@dataclass(frozen=True)
class MasksProgram(Program):
    """Gradient descent on the scores of weights, which themselves never move."""

    base: Any  # a Program with Parts
    masking: Masking
    paths: tuple[str, ...]

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        weights = {path: named_layers(arrays["model"])[path].weight for path in self.paths}
        if self.masking.method == "magnitude":
            real = jnp.concatenate([arrays["real"][path].ravel() for path in self.paths])
            sizes = jnp.concatenate([jnp.abs(w).ravel() for w in weights.values()])
            cut = jnp.nanquantile(jnp.where(real > 0, sizes, jnp.nan), 1 - self.masking.density)
            return start(jax.tree.map(lambda w: jnp.abs(w) - cut, weights))
        return start(jax.tree.map(lambda w: jnp.full(w.shape, arrays["begin"]), weights))

    def draw(self, arrays: dict[str, Any], t: Any) -> Any:
        return self.base.draw_part(arrays, arrays["part"], key_at(arrays["train masks"], t))

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.learn(arrays, state, self.draw(arrays, t), t)

    def learn(
        self, arrays: dict[str, Any], state: Trained, drawn: Any, t: Any
    ) -> tuple[Trained, dict[str, Any]]:
        if self.masking.method == "magnitude":
            return state, {"loss": jnp.float32(0)}

        def loss(scores: Masks) -> Array:
            keep, density = self.soft(arrays, scores, t)
            task = self.base.part_loss(arrays, masked(arrays["model"], keep), drawn)
            return task + arrays["penalty"] * density

        value, gradient = jax.value_and_grad(loss)(state.model)
        state = descend(
            state, value, gradient, t, rate=arrays["mask rate"], decay=jnp.float32(0),
            running=t < arrays["mask steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def soft(self, arrays: dict[str, Any], scores: Masks, t: Any) -> tuple[Masks, Array]:
        """Masks that a gradient passes through, and the share of weights they are charged for."""
        share = t.astype(jnp.float32) / arrays["mask steps"].astype(jnp.float32)
        if self.masking.method == "continuous":
            sharpness = arrays["sharpest"] ** jnp.minimum(share, 1.0)
            keep = {path: jax.nn.sigmoid(sharpness * s) for path, s in scores.items()}
            return keep, density(keep, arrays["real"])
        key = key_at(arrays["noise"], t)
        keep, open_ = {}, {}
        for number, (path, s) in enumerate(scores.items()):
            u = jax.random.uniform(
                jax.random.fold_in(key, number), s.shape, minval=1e-6, maxval=1.0
            )
            drawn = jax.nn.sigmoid((jnp.log(u) - jnp.log1p(-u + 1e-6) + s) / TEMPERATURE)
            keep[path] = jnp.clip(drawn * (1 + 2 * STRETCH) - STRETCH, 0.0, 1.0)
            open_[path] = jax.nn.sigmoid(s - TEMPERATURE * jnp.log(STRETCH / (1 + STRETCH)))
        return keep, density(open_, arrays["real"])

    def evaluate(self, arrays: dict[str, Any], state: Trained) -> dict[str, Any]:
        """What the subnetwork and the rest can do of this part, and of the others."""
        keep = kept(state.model)
        rest = jax.tree.map(lambda mask: 1 - mask, keep)
        found = {"density": density(keep, arrays["real"])}
        for name, mask in (("sub", keep), ("abl", rest)):
            own, other = self.scores(arrays, mask, 0)
            found |= {f"{name}_own": own, f"{name}_other": other}
        return found

    def scores(self, arrays: dict[str, Any], keep: Masks, number: Any) -> tuple[Array, Array]:
        """(own part, others) on one batch of test items each."""
        model = masked(arrays["model"], keep)
        keys = jax.random.split(key_at(arrays["test masks"], number))
        draws = (self.base.draw_test, self.base.draw_other)
        own, other = (
            self.base.part_score(arrays, model, draw(arrays, arrays["part"], key))
            for draw, key in zip(draws, keys, strict=True)
        )
        return own, other

    def learnt(self, arrays: dict[str, Any], keep: Masks, number: Any) -> Array:
        """The score on items like those the mask was learnt from."""
        key = jax.random.fold_in(key_at(arrays["test masks"], number), 7)
        drawn = self.base.draw_part(arrays, arrays["part"], key)
        return self.base.part_score(arrays, masked(arrays["model"], keep), drawn)


def density(keep: Masks, real: Masks) -> Float[Array, ""]:
    """The share of weights that are kept; padding is none."""
    there = [jnp.sum(real[path]) for path in keep]
    stays = [jnp.sum(mask * real[path]) for path, mask in keep.items()]
    return jnp.sum(jnp.stack(stays)) / jnp.sum(jnp.stack(there))


@dataclass(frozen=True)
class MaskLearner(Learner):
    """Learns a mask over a finished network for one part of its task; the network stays as it is.

    Masks for all parts of all networks of one shape train together, each network held once.
    """

    version: ClassVar[int] = 2

    base: Learner = field(default_factory=Supervised)
    part: int = 0
    masking: Masking = field(default_factory=Masking)
    seed: int = 0
    mask_steps: int = 1_000
    learning_rate: float = 1e-2
    evaluation_every: int = 500

    @property
    def steps(self) -> int:
        return self.mask_steps

    @property
    def evaluate_every(self) -> int:
        return self.evaluation_every

    @property
    def init_seed(self) -> int:
        return self.seed

    @property
    def precision(self) -> str:
        # That of training, for untrained networks too: these are the control of the others.
        return self.trained.precision

    @property
    def size(self) -> int:
        return 2 * self.base.size

    def upstream(self) -> dict[str, Learner]:
        return {"base": self.base}

    @property
    def trained(self) -> Learner:
        """What the network learns by, or would, where its untrained twin is looked at."""
        return taught(self.base)

    def parted(self, precision: str = "float32") -> Any:
        """The base's program, which has parts."""
        trained = self.trained
        if isinstance(trained, TaskLearner):
            return module_parts(trained, precision)
        program = trained.program(precision)
        if not isinstance(program, Parts):
            raise NotApplicable(
                f"{type(trained).__name__} has no parts that masks could be learnt for: its "
                "program would have to be a recombine.learners.parts.Parts"
            )
        return program

    @property
    def parts(self) -> int:
        return self.parted().parts

    def check(self) -> None:
        self.base.check()
        at_least(self, mask_steps=1, evaluation_every=1)
        rates(self, "learning_rate")
        if not is_whole(self.seed):
            raise InvalidRequest(f"seed={self.seed!r}: expected a whole number")
        if not is_whole(self.part) or not 0 <= self.part < self.parts:
            raise InvalidRequest(
                f"part={self.part!r}: expected a whole number from 0 to {self.parts - 1}"
            )
        self.masking.paths(self.parted().shapes()[1])

    def program(self, precision: str = "float32") -> MasksProgram:
        paths = tuple(self.masking.paths(self.parted().shapes()[1]))
        # Numbers are arrays and paths are given: all settings of a method have one program.
        plain = Masking(self.masking.method, density=self.masking.density)
        return MasksProgram(self.parted(precision), plain, paths)

    def group(self) -> str:
        return node_id(self.base)

    def shard(self) -> str:
        # Only tasks have tables that must stack.
        return self.trained.shard() if isinstance(self.trained, TaskLearner) else ""

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        trained = self.trained
        if isinstance(trained, TaskLearner):
            world = module_arrays(trained)
        else:
            world = trained.part_arrays()
        natural, padded = self.parted().shapes()
        model = pad_to(unnamed(given["base"], natural), padded)
        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), natural)
        real = {path: layer.weight for path, layer in named_layers(pad_to(ones, padded)).items()}
        member = {
            "part": np.int32(self.part),
            "train masks": stream(self.seed, "masks"),
            "test masks": stream(self.seed, "mask tests"),
            "noise": stream(self.seed, "mask noise"),
            "mask rate": np.float32(self.learning_rate),
            "mask steps": np.int32(self.mask_steps),
            "penalty": np.float32(self.masking.penalty),
            "begin": np.float32(self.masking.begin),
            "sharpest": np.float32(self.masking.sharpest),
        }
        return Arrays(member=member, group={**world, "model": model, "real": real})

    def weights(self, state: Trained) -> Tensors:
        return {path: np.asarray(scores) for path, scores in state.model.items()}

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        from recombine.instruments.mask_subject import MaskSubject

        if given is None:
            raise NotApplicable("a mask is looked at beside the network it was learnt for")
        return MaskSubject(self, weights, given)
