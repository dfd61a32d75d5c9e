"""Training populations: many members of one program, on the device, a chunk at a time."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.errors import InvalidRequest
from recombine.lab.layout import ONE_DEVICE, DoesNotFit, Layout
from recombine.learners._learner import Arrays, Learner, Program
from recombine.seeds import key_at, stream
from recombine.trees import pad_to

BLOCK = 10  # steps whose metrics are averaged into one point of a curve
MOST_BLOCKS = 1_000  # points a chunk can return
CHUNK_SECONDS = 1.0

_compile_locks: dict[Any, threading.Lock] = {}
_compile_locks_lock = threading.Lock()


@dataclass(frozen=True)
class Compiled:
    """The two programs of a population, compiled ahead, and what that took."""

    advance: Any
    evaluate: Any
    seconds: float
    temporary_bytes: int


def over_members(function: Callable, groups: int, members: int, mapped: int = 0) -> Callable:
    """Maps a per-member function over a group x member rectangle, arrays by their scope.

    The result takes (Arrays, state, *rest): shard arrays are shared by all, group arrays by the
    members of a group; of `rest`, the first `mapped` have one entry a member and the others are
    shared. A single member is not mapped at all, so that one model runs as one model.
    """

    def one(member: Any, group: Any, shard: Any, state: Any, *rest: Any) -> Any:
        return function(Arrays(member, group, shard).merged(), state, *rest)

    def call(arrays: Arrays, state: Any, *rest: Any) -> Any:
        per_member, shared = (state, *rest[:mapped]), rest[mapped:]
        axes = (0,) * len(per_member) + (None,) * len(shared)
        if groups * members == 1:
            first = functools.partial(jax.tree.map, lambda leaf: leaf[0])
            result = one(
                first(arrays.member), first(arrays.group), arrays.shard, *first(per_member),
                *shared,
            )  # fmt: skip
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)
        inner = jax.vmap(one, in_axes=(0, None, None, *axes))
        if groups == 1:
            group = jax.tree.map(lambda leaf: leaf[0], arrays.group)
            return inner(arrays.member, group, arrays.shard, *per_member, *shared)
        outer = jax.vmap(inner, in_axes=(0, 0, None, *axes))
        split = functools.partial(
            jax.tree.map, lambda leaf: leaf.reshape(groups, members, *leaf.shape[1:])
        )
        result = outer(
            split(arrays.member), arrays.group, arrays.shard, *split(per_member), *shared
        )
        return jax.tree.map(lambda leaf: leaf.reshape(groups * members, *leaf.shape[2:]), result)

    return call


def advance_function(
    program: Program, groups: int, members: int, layout: Layout = ONE_DEVICE
) -> Callable:
    """Runs `blocks` blocks of steps from `t`: a traced number of fixed blocks.

    One compiled program serves every chunk length, and Python is entered once a chunk. Over
    several devices, data and state are told where to lie; on one, nothing is added.
    """
    draw = over_members(lambda arrays, _, t: program.draw(arrays, t), groups, members)
    learn = over_members(program.learn, groups, members, mapped=1)

    def step(arrays: Arrays, state: Any, drawn: Any, t: Array) -> tuple[Any, Any]:
        state, metrics = learn(arrays, state, drawn, t)
        return (state if layout.trivial else layout.settle_state(state)), metrics

    def advance(arrays: Arrays, state: Any, t: Array, blocks: Array) -> tuple[Any, Any]:
        def block(number: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, curves = carry
            steps = t + number * BLOCK + jnp.arange(BLOCK)
            drawn = jax.vmap(draw, in_axes=(None, None, 0))(arrays, nothing, steps)
            if not layout.trivial:
                drawn = layout.settle_drawn(drawn)
            state, metrics = jax.lax.scan(
                lambda state, one: step(arrays, state, one[0], one[1]), state, (drawn, steps)
            )
            points = jax.tree.map(
                lambda values: jnp.mean(values, axis=0, dtype=jnp.float32), metrics
            )
            curves = jax.tree.map(lambda curve, p: curve.at[number].set(p), curves, points)
            return state, curves

        nothing = jnp.zeros((groups * members, 0))
        shapes = jax.eval_shape(lambda: learn(arrays, state, draw(arrays, nothing, t), t)[1])
        # Float whatever the metric is: the mean of a count over a block is no whole number.
        curves = jax.tree.map(lambda s: jnp.zeros((MOST_BLOCKS, *s.shape), jnp.float32), shapes)
        return jax.lax.fori_loop(0, blocks, block, (state, curves))

    return advance


@functools.cache
def _traced(program: Program, groups: int, members: int) -> tuple[Any, Any]:
    jax_advance = jax.jit(advance_function(program, groups, members), donate_argnums=1)
    jax_evaluate = jax.jit(over_members(program.evaluate, groups, members))
    return jax_advance, jax_evaluate


def _traced_over(
    program: Program, groups: int, members: int, layout: Layout, state: Any
) -> tuple[Any, Any]:
    """The same over several devices: a state comes back lying as it went in."""
    jax_advance = jax.jit(
        advance_function(program, groups, members, layout), donate_argnums=1,
        out_shardings=(layout.of_state(state), layout.whole()),
    )  # fmt: skip
    jax_evaluate = jax.jit(
        over_members(program.evaluate, groups, members), out_shardings=layout.whole()
    )
    return jax_advance, jax_evaluate


_compiled: dict[Any, Compiled] = {}


def compile_population(
    program: Program, groups: int, members: int, arrays: Arrays, state: Any,
    layout: Layout = ONE_DEVICE,
) -> Compiled:  # fmt: skip
    """Compiles (or finds) the programs of a population of these shapes."""
    shapes = tuple(
        (leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves((to_tree(arrays), state))
    )
    key = (program, groups, members, layout, shapes, jax.tree.structure((arrays, state)))
    # Two threads that need the same program must not both compile it; different ones may.
    with _compile_locks_lock:
        lock = _compile_locks.setdefault(key, threading.Lock())
    with lock:
        if key not in _compiled:
            begun = time.perf_counter()
            advance, evaluate = (
                _traced(program, groups, members)
                if layout.trivial
                else _traced_over(program, groups, members, layout, state)
            )
            zero = jax.ShapeDtypeStruct((), jnp.int32)
            # Neither waits for the other: compiling leaves Python alone.
            with ThreadPoolExecutor(1) as beside:
                judged = beside.submit(evaluate.lower(arrays, state).compile)
                built = advance.lower(arrays, state, zero, zero).compile()
            memory = built.memory_analysis()
            _compiled[key] = Compiled(
                built, judged.result(), time.perf_counter() - begun,
                int(getattr(memory, "temp_size_in_bytes", 0) or 0),
            )  # fmt: skip
        return _compiled[key]


# What only the first state is made from never reaches a program.
jax.tree_util.register_dataclass(
    Arrays, data_fields=["member", "group", "shard"], meta_fields=[], drop_fields=["first"]
)


def to_tree(arrays: Arrays) -> Any:
    return (arrays.member, arrays.group, arrays.shard)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _init(program: Program, layout: Layout, arrays: dict[str, Any], words: Array) -> Any:
    state = program.init(arrays, key_at(words, 0))
    # What one device cannot hold must not be drawn on one either.
    return state if layout.parameters == 1 else layout.settle_weights(state)


def initial_state(
    learner: Learner, arrays: Arrays, precision: str, layout: Layout = ONE_DEVICE
) -> Any:
    """A member's state, drawn at its natural size from its own seed, then padded."""
    merged = {**arrays.merged(), **arrays.first}
    natural, padded = learner.natural(precision), learner.program(precision)
    state = jax.device_get(_init(natural, layout, merged, stream(learner.init_seed, "init")))
    if natural == padded:
        return state
    shapes = jax.eval_shape(padded.init, merged, jax.random.key(0))
    return pad_to(jax.tree.map(np.asarray, state), shapes)


@dataclass
class Curves:
    """What was measured along a run: per-block means and evaluations, one row per member."""

    points: dict[str, list[np.ndarray]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    evaluations: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def tensors(self) -> dict[str, np.ndarray]:
        found = {f"points/{k}": np.concatenate(v) for k, v in self.points.items()}
        found["steps"] = np.asarray(self.steps, np.int32)
        found.update({f"evaluations/{k}": np.stack(v) for k, v in self.evaluations.items()})
        return found

    @staticmethod
    def from_tensors(tensors: dict[str, np.ndarray]) -> Curves:
        curves = Curves(steps=[int(step) for step in tensors["steps"]])
        for name, value in tensors.items():
            kind, _, metric = name.partition("/")
            if kind == "points":
                curves.points[metric] = [value]
            elif kind == "evaluations":
                curves.evaluations[metric] = list(value)
        return curves


def _stack(trees: Sequence[Any]) -> Any:
    """Stacked on the host and sent once from there: no program is compiled for it."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _shared(trees: Sequence[Any], scope: str) -> Any:
    """The arrays that all members of a scope brought, which must be the same for each of them."""
    first = jax.tree.leaves(trees[0])
    for tree in trees[1:]:
        leaves = jax.tree.leaves(tree)
        if len(leaves) != len(first) or not all(
            a is b or np.array_equal(a, b, equal_nan=True)
            for a, b in zip(first, leaves, strict=True)
        ):
            raise InvalidRequest(
                f"members of one {scope} brought different {scope} arrays: cells that do not "
                f"share them need different keys from {scope}()"
            )
    return trees[0]


class Population:
    """Members of one program in one state, which can advance, evaluate and be saved.

    On the device from first to last: only curves come to the host, and states when asked for.
    """

    def __init__(self, learners: Sequence[Learner], prepared: Sequence[Arrays], precision: str,
                 groups: int = 1, layout: Layout = ONE_DEVICE):  # fmt: skip
        self.learners = list(learners)
        self.layout = layout
        if len(self.learners) % layout.members:
            raise DoesNotFit(
                f"{len(self.learners)} members do not lie evenly over members={layout.members}"
            )
        self.members = len(self.learners) // groups
        self.groups = groups
        self.program = self.learners[0].program(precision)
        self.t = 0
        self.curves = Curves()
        states = [
            initial_state(learner, arrays, precision, layout)
            for learner, arrays in zip(learners, prepared, strict=True)
        ]
        # Kept as the untrained control of every member; a resumed run draws the same again.
        self.untrained = [
            learner.weights(state) for learner, state in zip(learners, states, strict=True)
        ]
        self.state = layout.send_state(_stack(states))
        rows = [prepared[i : i + self.members] for i in range(0, len(prepared), self.members)]
        self.arrays = Arrays(
            member=layout.send_members(_stack([arrays.member for arrays in prepared])),
            group=layout.send_whole(
                _stack([_shared([one.group for one in row], "group") for row in rows])
            ),
            shard=layout.send_whole(_shared([one.shard for one in prepared], "shard")),
        )
        self.steps = self.learners[0].steps
        self._blocks = 1

    def compile(self) -> Compiled:
        self.compiled = compile_population(
            self.program, self.groups, self.members, self.arrays, self.state, self.layout
        )
        return self.compiled

    @property
    def size(self) -> int:
        return len(self.learners)

    def chunk(self, border: int) -> None:
        """Advances by about a second, never past `border`."""
        left = -(-(min(border, self.steps) - self.t) // BLOCK)
        blocks = max(1, min(self._blocks, left, MOST_BLOCKS))
        begun = time.perf_counter()
        self.state, points = self.compiled.advance(
            self.arrays, self.state, jnp.int32(self.t), jnp.int32(blocks)
        )
        points = jax.tree.map(np.asarray, points)  # waits for the device
        seconds = time.perf_counter() - begun
        for name, values in points.items():
            self.curves.points.setdefault(name, []).append(values[:blocks])
        self.t += blocks * BLOCK
        self._blocks = max(1, min(2 * blocks, int(blocks * CHUNK_SECONDS / max(seconds, 1e-6))))

    def evaluate(self) -> None:
        found = jax.tree.map(np.asarray, self.compiled.evaluate(self.arrays, self.state))
        self.curves.steps.append(self.t)
        for name, values in found.items():
            self.curves.evaluations.setdefault(name, []).append(values)

    def host_state(self) -> Any:
        return jax.tree.map(np.asarray, jax.device_get(self.state))

    def restore(self, state: Any, t: int, curves: Curves) -> None:
        self.state = self.layout.send_state(state)
        self.t, self.curves = t, curves

    def running(self) -> bool:
        """Whether any member can still learn: not finished, and not all diverged."""
        if self.t >= self.steps:
            return False
        diverged = getattr(self.state, "diverged_at", None)
        return diverged is None or bool(np.any(np.asarray(diverged) < 0))


class HostPopulation:
    """The same for a host-driven learner: one member whose step is ordinary Python."""

    def __init__(self, learner: Learner, prepared: Arrays, log: Any):
        self.learners = [learner]
        self.program = learner.program()
        self.arrays = {**prepared.merged(), "log": log}
        self.state = self.program.init(self.arrays, key_at(stream(learner.init_seed, "init"), 0))
        self.untrained = [learner.weights(self.state)]
        self.steps = learner.steps
        self.t = 0
        self.curves = Curves()
        self.size = 1

    def compile(self) -> Compiled:
        return Compiled(None, None, 0.0, 0)

    def chunk(self, border: int) -> None:
        begun = time.perf_counter()
        while self.t < min(border, self.steps):
            rows = []
            for _ in range(BLOCK):
                self.state, metrics = self.program.step(self.arrays, self.state, self.t)
                rows.append(metrics)
                self.t += 1
            for name in rows[0]:
                mean = np.mean([row[name] for row in rows], dtype=np.float32)
                self.curves.points.setdefault(name, []).append(np.full((1, 1), mean))
            if time.perf_counter() - begun > CHUNK_SECONDS:
                break

    def evaluate(self) -> None:
        self.curves.steps.append(self.t)
        for name, value in self.program.evaluate(self.arrays, self.state).items():
            found = np.asarray([value], np.float32)
            self.curves.evaluations.setdefault(name, []).append(found)

    def host_state(self) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.state)

    def restore(self, state: Any, t: int, curves: Curves) -> None:
        self.state = jax.tree.map(lambda leaf: leaf[0], state)
        self.t, self.curves = t, curves

    def running(self) -> bool:
        return self.t < self.steps
