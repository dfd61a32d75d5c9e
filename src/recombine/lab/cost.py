"""What a run costs before it is run: arithmetic, traffic, memory and time.

FLOPs and bytes come from walking the jaxpr with its loop counts, memory from following which
arrays are alive at once, time from a shipped table of measured throughput. Nothing is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from recombine.errors import NotApplicable
from recombine.lab import engine
from recombine.lab.cost_jaxpr import Flat, flatten, total_flops
from recombine.lab.cost_memory import ACCELERATOR, CPU, fuse, peak, starts, traffic
from recombine.lab.cost_throughput import Throughput, estimate_seconds, measured, measured_devices
from recombine.lab.device import device
from recombine.learners._learner import Arrays, Learner, Material, Program, Tensors

__all__ = [
    "Cost",
    "Memory",
    "Throughput",
    "arrays_of",
    "cost_of",
    "estimate_seconds",
    "measured",
    "measured_devices",
    "parameters_of",
    "predict_memory",
    "shapes_of",
    "step_cost",
]

COUNTER = jax.ShapeDtypeStruct((), "int32")


@dataclass(frozen=True)
class Cost:
    """What a computation does.

    `flops` counts a multiplication and an addition as two, and every other elementwise operation
    (integer ones too) as one; moving numbers is free. `bytes` is an estimate of memory traffic:
    what each kernel reads and writes once elementwise chains are fused into their consumers.
    `kernels` is how many of these are started, at most: by a stack as often as by one of its
    members; a compiler may make one of several that read the same.
    """

    flops: float
    bytes: float
    kernels: float = 0.0

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes * times, self.kernels * times)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes,
                    self.kernels + other.kernels)  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """Device bytes of a population's training program: data, state, and all that comes and goes."""

    arrays: int
    state: int
    temporary: int

    @property
    def total(self) -> int:
        return self.arrays + self.state + self.temporary


def cost_of(function: Callable, *args_shapes: Any) -> Cost:
    """The cost of calling `function` on arguments of these shapes (arrays or ShapeDtypeStructs).

    Scans count with their length and while loops with constant bounds likewise; a while loop
    whose bounds are data counts one trip. Of a conditional the dearest branch counts.

    >>> square = jax.ShapeDtypeStruct((8, 8), "float32")
    >>> cost_of(lambda a, b: a @ b, square, square).flops
    1024.0
    """
    return _cost(flatten(jax.make_jaxpr(function)(*args_shapes)))


def _cost(program: Flat) -> Cost:
    fused = fuse(program, ACCELERATOR)
    return Cost(total_flops(program), traffic(fused), starts(fused))


def step_cost(learner: Learner, precision: str = "float32", arrays: Arrays | None = None) -> Cost:
    """The cost of one step of one member; `arrays` saves preparing them if they are at hand."""
    program, shapes, state = _shapes(learner, precision, 1, arrays)
    return _cost(_step(program, *_frozen((shapes, state))))


def predict_memory(
    learner: Learner,
    members: int,
    precision: str = "float32",
    arrays: Arrays | None = None,
    platform: str | None = None,
) -> Memory:
    """Predicts what a population of `members` needs to advance, without compiling it.

    Arrays and state are exact. Temporaries are the intermediates alive at once, the carried
    arrays XLA cannot overwrite in place, and the curves. `platform` is that of the device at hand
    unless named ("cpu", "gpu").
    """
    rules = CPU if (platform or device().platform) == "cpu" else ACCELERATOR
    program, shapes, state = _shapes(learner, precision, members, arrays)
    flat = _advance(program, members, *_frozen((shapes, state)))
    # The state comes back where it was given; the curves, which follow it, are new.
    curves = flat.outputs[len(jax.tree.leaves(state)) :]
    temporary = peak(fuse(flat, rules), rules) + sum(value.bytes for value in curves)
    return Memory(_bytes(shapes), _bytes(state), temporary)


def parameters_of(learner: Learner, arrays: Arrays | None = None) -> int:
    """How many numbers are committed for a member: the size by which throughput is looked up."""
    return sum(weight.size for weight in _stand_in_weights(learner, arrays).values())


def arrays_of(learner: Learner) -> Arrays:
    """A member's arrays. Upstream weights are stood in for by zeros."""
    given: dict[str, Tensors] = {
        name: _stand_in_weights(up, None) for name, up in learner.upstream().items()
    }
    given.update({name: _made(material) for name, material in learner.materials().items()})
    return learner.prepare(given)


def shapes_of(learner: Learner, members: int = 1, arrays: Arrays | None = None) -> Arrays:
    """The shapes of a population's arrays."""
    arrays = arrays_of(learner) if arrays is None else arrays

    def stacked(leaf: Any, count: int | None) -> jax.ShapeDtypeStruct:
        shape = np.shape(leaf) if count is None else (count, *np.shape(leaf))
        return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

    return Arrays(
        member=jax.tree.map(lambda leaf: stacked(leaf, members), arrays.member),
        group=jax.tree.map(lambda leaf: stacked(leaf, 1), arrays.group),
        shard=jax.tree.map(lambda leaf: stacked(leaf, None), arrays.shard),
    )


@functools.lru_cache(maxsize=16)
def _made(material: Material) -> Tensors:
    return material.make_from({name: _made(need) for name, need in material.needs().items()})


def _shapes(
    learner: Learner, precision: str, members: int, arrays: Arrays | None
) -> tuple[Program, Arrays, Any]:
    """A population's program, and the shapes of its arrays and of its state."""
    program = learner.program(precision)
    shapes = shapes_of(learner, members, arrays)
    return program, shapes, _state(learner, program, shapes, members)


def _state(learner: Learner, program: Program, shapes: Arrays, members: int) -> Any:
    if learner.host_driven:
        raise NotApplicable(
            f"{type(learner).__name__} steps in ordinary Python, so its cost cannot be computed: "
            "time a few of its steps instead"
        )

    def init(arrays: Arrays, key: Any) -> Any:
        first = functools.partial(jax.tree.map, lambda leaf: leaf[0])
        one = Arrays(first(arrays.member), first(arrays.group), arrays.shard)
        return program.init(one.merged(), key)

    state = jax.eval_shape(init, shapes, jax.random.key(0))
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct((members, *s.shape), s.dtype), state)


def _stand_in_weights(learner: Learner, arrays: Arrays | None) -> Tensors:
    """Zeros in the shapes of what a learner commits; they take no memory."""
    shapes = shapes_of(learner, 1, arrays)
    state = _state(learner, learner.program(), shapes, 1)
    zero = jax.tree.map(lambda s: np.broadcast_to(np.zeros((), s.dtype), s.shape[1:]), state)
    return learner.weights(zero)


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _frozen(shapes: Any) -> tuple[tuple[tuple[Any, ...], ...], Any]:
    leaves, structure = jax.tree.flatten(shapes)
    return tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves), structure


@functools.lru_cache(maxsize=64)
def _step(program: Program, leaves: tuple, structure: Any) -> Flat:
    """One step of one member as a flat program; kept, as cells that share it are many."""
    arrays, state = structure.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in leaves)
    step = engine.over_members(program.step, 1, 1)
    return flatten(jax.make_jaxpr(step)(arrays, state, COUNTER))


@functools.lru_cache(maxsize=64)
def _advance(program: Program, members: int, leaves: tuple, structure: Any) -> Flat:
    """What the engine compiles for a population, as a flat program."""
    arrays, state = structure.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in leaves)
    advance = engine.advance_function(program, 1, members)
    return flatten(jax.make_jaxpr(advance)(arrays, state, COUNTER, COUNTER))
