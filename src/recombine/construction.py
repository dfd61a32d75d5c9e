"""Write a teacher down as a network, to any tolerance, without training."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.encodings._encoding import Encoding
from recombine.encodings.linear import Identity
from recombine.errors import InvalidRequest, StoreError
from recombine.families._family import Regression
from recombine.lab.files import read_bytes
from recombine.lab.store_tensors import parse_tensors, put_tensors
from recombine.learners._tasks import draw_content
from recombine.learners.supervised import Supervised
from recombine.models._model import Setting
from recombine.models.constructed import Constructed, amplification, constructed_for, roundoff
from recombine.models.layers import Linear
from recombine.models.mlp import FirstLayer, MLPModel
from recombine.seeds import Seeds, host_seed, key_at, stream
from recombine.supports import SupportRule
from recombine.trees import named

Method = Literal["segments", "depth"]
BATCH_UNITS = 1 << 23  # activations held at a time while measuring


class Measured(NamedTuple):
    """What a construction does on random tasks and inputs."""

    worst: float  # the largest error of any output
    r2: float


@dataclass(frozen=True, eq=False)
class Construction:
    """A network whose weights were written down, with the teacher it computes."""

    family: Regression
    encoding: Encoding
    seeds: Seeds
    spec: Constructed
    setting: Setting = field(repr=False)
    network: MLPModel = field(repr=False)
    bound: float  # no answer to any task and input is off by more

    @property
    def units(self) -> int:
        """Hidden neurons."""
        return self.spec.units

    def measure(self, samples: int = 4000, seed: int = 0) -> Measured:
        """Compares the network with its teacher on random tasks, one random input each."""
        rng = np.random.default_rng(host_seed(seed, "construction"))
        ranks = rng.integers(self.family.space.size, size=samples)
        chosen = self.family.space.indicator(ranks.astype(np.uint32))
        batch = max(1, min(samples, BATCH_UNITS // max(self.spec.widths)))
        words = stream(seed, "construction")
        errors, targets = [], []
        for start in range(0, samples, batch):
            rows = np.resize(chosen[start : start + batch], (batch, chosen.shape[1]))
            kept = min(batch, samples - start)
            given, right = _compare(
                self.family, self.encoding, self.network, self.setting.content,
                self.setting.code, rows, key_at(words, start),
            )  # fmt: skip
            errors.append(np.asarray(given - right, np.float64)[:kept])
            targets.append(np.asarray(right, np.float64)[:kept])
        error, target = np.concatenate(errors), np.concatenate(targets)
        spread = np.sum((target - target.mean(axis=0)) ** 2)
        return Measured(float(np.abs(error).max()), float(1 - np.sum(error**2) / spread))

    def weights(self) -> dict[str, np.ndarray]:
        """The weights by path, as a learner of this model commits them."""
        return named(self.network)

    def save(self, path: str | Path) -> None:
        """Writes the weights to a new safetensors file."""
        put_tensors(Path(path), self.weights())

    def learner(self, training_steps: int = 10, support: SupportRule | None = None) -> Supervised:
        """A learner that starts from this network, to be read by instruments or trained on."""
        return Supervised(
            family=self.family, encoding=self.encoding, seeds=self.seeds, model=self.spec,
            support=support or SupportRule(), training_steps=training_steps,
        )  # fmt: skip


def construct(
    family: Regression,
    *,
    tolerance: float | None = None,
    segments: int | None = None,
    squarings: int | None = None,
    method: Method = "segments",
    encoding: Encoding | None = None,
    seeds: Seeds | None = None,
    memory_bytes: int | None = None,
) -> Construction:
    """The network that computes a family's teacher, with an error of `tolerance` at most.

    Method "segments" takes each square in one layer; "depth" takes it in several, with fewer
    units where the tolerance is small. `segments` or `squarings` choose the resolution directly.
    The teacher is the one a learner with the same seeds is taught by.

    >>> from recombine.families.hyperteacher import Hyperteacher
    >>> small = Hyperteacher(modules=8, active=2, input_units=4, hidden=(4,), output_units=2)
    >>> made = construct(small, tolerance=0.1)
    >>> made.units, made.measure(500).worst < made.bound <= 0.1
    (392, True)
    """
    encoding, seeds = encoding or Identity(), seeds or Seeds()
    memory = _memory() if memory_bytes is None else memory_bytes
    constructed_for(family, encoding, method=method)  # refuses what cannot be written down
    family.check()
    encoding.check(family)
    if sum(given is not None for given in (tolerance, segments, squarings)) > 1:
        raise InvalidRequest("give one of tolerance, segments and squarings, not several")
    content, code = draw_content(family, encoding, seeds.content, seeds.encoding)
    setting = Setting(family, encoding, *jax.tree.map(jnp.asarray, (content, code)))
    scale = float(_amplification(family, encoding, setting.content, setting.code))
    rounding = scale * roundoff(setting)
    if tolerance is not None:
        spec = _within(setting, scale, rounding, tolerance, method, memory)
    else:
        spec = _directly(setting, method, segments, squarings)
        needed = _bytes(spec, setting)
        if needed > memory:
            raise InvalidRequest(
                f"{spec.units} units need {_size(needed)} of weights, more than the "
                f"{_size(memory)} allowed: use fewer, or raise memory_bytes"
            )
    network = _draw(spec, family, encoding, setting.content, setting.code)
    bound = scale / spec.resolution**2 + rounding
    return Construction(family, encoding, seeds, spec, setting, network, bound)


def load_network(path: str | Path) -> MLPModel:
    """The network saved by `Construction.save`, or any MLP's weights under the same names."""
    buffer = np.frombuffer(read_bytes(Path(path)), np.uint8)
    stored = parse_tensors(buffer, str(path))

    def linear(name: str) -> Linear:
        if f"{name}/weight" not in stored:
            raise StoreError(f"{path} holds no MLP: it has no array {name + '/weight'!r}")
        bias = stored.get(f"{name}/bias")
        weight = jnp.asarray(stored[f"{name}/weight"])
        return Linear(weight, None if bias is None else jnp.asarray(bias))

    hidden = sum(name.startswith("hidden/") and name.endswith("/weight") for name in stored)
    return MLPModel(
        FirstLayer(linear("first/task"), linear("first/input")),
        tuple(linear(f"hidden/{number}") for number in range(hidden)),
        linear("output"),
    )


def _directly(
    setting: Setting, method: Method, segments: int | None, squarings: int | None
) -> Constructed:
    if (segments is not None and method == "depth") or (
        squarings is not None and method == "segments"
    ):
        raise InvalidRequest(
            "method='segments' takes segments and method='depth' takes squarings, got "
            f"method={method!r} with segments={segments} and squarings={squarings}"
        )
    return constructed_for(
        setting.family, setting.encoding, method=method,
        segments=16 if segments is None else segments,
        squarings=3 if squarings is None else squarings,
    )  # fmt: skip


def _within(
    setting: Setting, scale: float, rounding: float, tolerance: float, method: Method, memory: int
) -> Constructed:
    finest = 1.25 * rounding
    if not tolerance >= finest:
        raise InvalidRequest(
            f"tolerance={tolerance:g}: in float32 this teacher can be computed to "
            f"{_upwards(finest)} at best; use tolerance={_upwards(finest)} or more"
        )
    wanted = max(2, math.ceil(math.sqrt(scale / (tolerance - rounding))))
    spec = _at(setting, wanted, method)
    needed = _bytes(spec, setting)
    if needed <= memory:
        return spec
    coarser = [n for n in range(2, wanted) if _bytes(_at(setting, n, method), setting) <= memory]
    said = [f"tolerance={_upwards(scale / coarser[-1] ** 2 + rounding)}"] if coarser else []
    other: Method = "depth" if method == "segments" else "segments"
    if _bytes(_at(setting, wanted, other), setting) <= memory:
        said.append(f"method={other!r}")
    raise InvalidRequest(
        f"tolerance={tolerance:g} by method={method!r} needs {spec.units} units and "
        f"{_size(needed)} of weights, more than the {_size(memory)} allowed: "
        f"use {' or '.join([*said, f'memory_bytes={needed}'])}"
    )


def _at(setting: Setting, resolution: int, method: Method) -> Constructed:
    """The spec that cuts the square into at least so many pieces."""
    squarings = max(1, math.ceil(math.log2(resolution)) - 1)
    return constructed_for(
        setting.family, setting.encoding, method=method, segments=resolution, squarings=squarings
    )


def _bytes(spec: Constructed, setting: Setting) -> int:
    family = setting.family
    code = setting.encoding.size(family)
    return 4 * spec.parameters(code, family.input_size, family.output_size)


def _memory() -> int:
    """A quarter of the memory that is free: building needs a few copies of the largest layer."""
    try:
        pages = os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not every system says
        return 1 << 30
    return pages * os.sysconf("SC_PAGE_SIZE") // 4


def _upwards(value: float) -> str:
    """Three digits, rounded up, so that the number shown is one that works."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step) * step:.3g}"


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


@functools.partial(jax.jit, static_argnums=(0, 1))
def _amplification(family: Regression, encoding: Encoding, content: Any, code: Any) -> Array:
    return amplification(Setting(family, encoding, content, code))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _draw(
    spec: Constructed, family: Regression, encoding: Encoding, content: Any, code: Any
) -> MLPModel:
    return spec.draw(
        jax.random.key(0), code=encoding.size(family), inputs=family.input_size,
        outputs=family.output_size, setting=Setting(family, encoding, content, code),
    )  # fmt: skip


@functools.partial(jax.jit, static_argnums=(0, 1))
def _compare(
    family: Regression, encoding: Encoding, network: MLPModel, content: Any, code: Any,
    chosen: Array, key: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """What the network answers to a random task of each combination, and what is right."""
    latent_key, input_key = jax.random.split(key)
    latents = jax.vmap(family.latent)(jax.random.split(latent_key, chosen.shape[0]), chosen)
    inputs, right = family.draw(content, latents, input_key, 1)

    def examples(shots: int) -> tuple[Array, Array]:
        raise InvalidRequest("a task told by examples cannot be looked up")

    codes = jax.vmap(lambda latent: encoding.encode(code, latent, examples))(latents)
    return network(codes, inputs)[:, 0], right[:, 0]
