"""The contract of a learner, as a battery anybody can run on a learner of their own."""

from __future__ import annotations

import dataclasses
import functools
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recombine.errors import NotApplicable
from recombine.families.check import TOLERANCE, check_spec, require, same
from recombine.instruments.subject import ABILITIES
from recombine.lab.answers import AnswerLog
from recombine.lab.engine import initial_state, over_members
from recombine.learners._learner import Arrays, Learner, Program, Tensors
from recombine.seeds import Seeds, key_at, stream
from recombine.trees import named, unnamed

STEPS = 3
PRECISION = "float32"


def check_learner(
    learner: Learner,
    given: Mapping[str, Tensors] | None = None,
    mate: Learner | None = None,
) -> None:
    """Raises `ContractBroken`, with a sentence that says what is wrong, unless a learner is sound.

    Use a small one: it is compiled a few times and takes a few steps. `given` is what `prepare`
    gets; by default materials are made and upstream learners stand in untrained. `mate` is a
    second learner that could share its shard; by default the same one with other seeds.

    >>> from recombine.learners import Supervised
    >>> from recombine.models import MLP
    >>> check_learner(Supervised(model=MLP(width=24, depth=1), tasks=8, evaluation_tasks=128))
    """
    check_spec(learner, "a learner")
    learner.check()
    _check_lengths(learner)
    given = stand_ins(learner) if given is None else given
    program = learner.program(PRECISION)
    alike = program == learner.program(PRECISION) and hash(program) == hash(learner.program())
    require(alike, "program() must return equal, hashable programs: cells share compilations by it")
    arrays = learner.prepare(given)
    require(
        same(_scopes(arrays), _scopes(learner.prepare(given))),
        "prepare must give the same arrays for the same request",
    )
    _check_streams(learner, arrays)
    if learner.host_driven:
        state = _check_host_steps(learner, arrays)
    else:
        state = _check_steps(learner, arrays)
        _check_padding(learner, given)
        _check_pair(learner, arrays, mate or _mate(learner), given)
    _check_weights(learner, state, given)


def _check_lengths(learner: Learner) -> None:
    """Lengths a run can have."""
    sound = min(learner.steps, learner.evaluate_every) >= 1
    require(
        sound and min(learner.snapshots, default=0) >= 0,
        f"steps and evaluate_every must be at least 1 and snapshots at least 0, got "
        f"{learner.steps}, {learner.evaluate_every} and {learner.snapshots}",
    )


def stand_ins(learner: Learner) -> dict[str, Tensors]:
    """What `prepare` needs, without training: materials as made, upstream weights as drawn."""
    given: dict[str, Tensors] = {
        name: material.make() for name, material in learner.materials().items()
    }
    for name, upstream in learner.upstream().items():
        arrays = upstream.prepare(stand_ins(upstream))
        given[name] = upstream.weights(_first_state(upstream, arrays))
    return given


def _first_state(learner: Learner, arrays: Arrays) -> Any:
    if not learner.host_driven:
        return initial_state(learner, arrays, PRECISION)
    with tempfile.TemporaryDirectory() as folder:
        merged = {**arrays.merged(), "log": AnswerLog(Path(folder) / "answers.jsonl")}
        return learner.program().init(merged, key_at(stream(learner.init_seed, "init"), 0))


def _check_streams(learner: Learner, arrays: Arrays) -> None:
    merged = arrays.merged()
    if "train" in merged and "evaluation" in merged:
        different = not np.array_equal(merged["train"], merged["evaluation"])
        require(different, "evaluation must draw from a stream of its own, not training's")


def _check_steps(learner: Learner, arrays: Arrays) -> Any:
    program, merged = learner.program(PRECISION), _on_device(arrays.merged())
    state = initial_state(learner, arrays, PRECISION)
    again = initial_state(learner, arrays, PRECISION)
    require(same(state, again), "the initial state must be the same for the same seed")
    _check_named(state)
    traced = _trace(program.step, merged, state, jnp.int32(0))
    require(
        traced == _trace(program.step, merged, state, jnp.int32(0)),
        "step must be pure: traced twice, it is not the same program",
    )
    first, metrics = _step(program, merged, state, jnp.int32(0))
    # The usual step is literally learn(draw), and need not be compiled once more to see that.
    if traced != _trace(functools.partial(_draw_and_learn, program), merged, state, jnp.int32(0)):
        apart, _ = jax.jit(_draw_and_learn, static_argnums=0)(program, merged, state, jnp.int32(0))
        equal = same(first, apart, TOLERANCE)
        require(equal, "step must equal learn with what draw drew for the same t")
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (state, first))
    require(shapes[0] == shapes[1], "step must return a state of the same shapes and dtypes")
    _check_metrics(metrics)
    require(not same(state, first), "a step must change the state")
    if "train" in merged:
        later, _ = _step(program, merged, state, jnp.int32(1))
        require(not same(first, later), "step must draw new data at each t of the training stream")
    _check_scalars(_evaluate(program, merged, first), "evaluate")
    return jax.device_get(first)


def _check_host_steps(learner: Learner, arrays: Arrays) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        merged = {**arrays.merged(), "log": AnswerLog(Path(folder) / "answers.jsonl")}
        key = key_at(stream(learner.init_seed, "init"), 0)
        state = learner.program().init(merged, key)
        require(same(state, learner.program().init(merged, key)), "init must follow its key")
        _check_named(state)
        kept = jax.tree.map(np.array, state)
        first, metrics = learner.program().step(merged, state, 0)
        require(same(jax.tree.map(np.array, state), kept), "step must not change the state it gets")
        second, _ = learner.program().step(merged, state, 0)
        require(same(first, second), "step must be pure: equal arguments gave different states")
        _check_metrics(metrics)
        _check_scalars(learner.program().evaluate(merged, first), "evaluate")
    return first


def _check_named(state: Any) -> None:
    """A state survives as named tensors: that is how checkpoints keep it."""
    leaves = jax.tree.leaves(state)
    arrays = all(hasattr(leaf, "dtype") and hasattr(leaf, "shape") for leaf in leaves)
    require(arrays and leaves, "every leaf of a state must be an array")
    tensors = named(state)
    require(len(tensors) == len(leaves), "two leaves of a state have the same name")
    require(same(unnamed(tensors, state), state), "a state must survive being saved by name")


def _check_metrics(metrics: dict[str, Any]) -> None:
    require("loss" in metrics, f"step must report `loss`, got {sorted(metrics)}")
    _check_scalars(metrics, "step")


def _check_scalars(found: dict[str, Any], what: str) -> None:
    for name, value in found.items():
        good = np.shape(value) == () and np.isfinite(value)
        require(good, f"{what} must report finite scalars, but {name!r} is {value}")


def _check_padding(learner: Learner, given: Mapping[str, Tensors]) -> None:
    """A member at its natural size learns what the padded one learns."""
    if learner.natural(PRECISION) == learner.program(PRECISION):
        return
    natural = unpadded(learner)
    arrays = natural.prepare(given)
    require(
        natural.program(PRECISION) == learner.natural(PRECISION),
        "natural() must not depend on program()",
    )
    small = _run(natural, arrays, initial_state(natural, arrays, PRECISION), STEPS)
    padded = learner.prepare(given)
    large = _run(learner, padded, initial_state(learner, padded, PRECISION), STEPS)
    first = {**arrays.merged(), **arrays.first}
    shapes = jax.eval_shape(learner.natural(PRECISION).init, first, jax.random.key(0))
    fits = jax.tree.map(lambda leaf, shape: leaf.shape == shape.shape, small.state, shapes)
    require(all(jax.tree.leaves(fits)), "the unpadded state must have its natural size")
    for what, one, two in (
        ("weights", natural.weights(small.state), learner.weights(large.state)),
        ("metrics", small.metrics, large.metrics),
        ("evaluations", small.evaluated, large.evaluated),
    ):
        require(
            same(one, two, TOLERANCE),
            f"padding must be inert: after {STEPS} steps the {what} of the padded member differ "
            f"from those of the same member at its natural size by {_apart(one, two):.1e}",
        )


def unpadded(learner: Learner) -> Learner:
    """The same request as a learner whose program is the natural one."""

    def program(self: Learner, precision: str = PRECISION) -> Any:
        return self.natural(precision)

    kind = type(f"Unpadded{type(learner).__name__}", (type(learner),), {"program": program})
    fields = {f.name: getattr(learner, f.name) for f in dataclasses.fields(learner) if f.init}
    return kind(**fields)


def _check_pair(
    learner: Learner, arrays: Arrays, mate: Learner, given: Mapping[str, Tensors]
) -> None:
    """Two members stacked learn what each learns alone."""
    members = (learner, mate)
    require(
        mate.program(PRECISION) == learner.program(PRECISION)
        and (mate.group(), mate.shard()) == (learner.group(), learner.shard()),
        "a mate must have the learner's program, group and shard: give one that could be stacked",
    )
    prepared = (arrays, mate.prepare(given))
    states = [initial_state(m, a, PRECISION) for m, a in zip(members, prepared, strict=True)]
    stack = lambda *trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)  # noqa: E731
    together = Arrays(
        member=stack(*(_on_device(a.member) for a in prepared)),
        group=stack(_on_device(arrays.group)),
        shard=_on_device(arrays.shard),
    )
    step = jax.jit(over_members(learner.program(PRECISION).step, 1, 2))
    both: Any = stack(*states)
    for t in range(STEPS):
        both, _ = step(together, both, jnp.int32(t))
    for i, (member, own) in enumerate(zip(members, prepared, strict=True)):
        alone = member.weights(_run(member, own, states[i], STEPS).state)
        stacked = member.weights(jax.device_get(jax.tree.map(lambda leaf: leaf[i], both)))  # noqa: B023
        require(
            same(alone, stacked, TOLERANCE),
            f"a stacked member must learn what it learns alone: after {STEPS} steps the weights "
            f"differ by {_apart(alone, stacked):.1e}; does step mix members, or draw from "
            "something other than its own keys?",
        )


def _mate(learner: Learner) -> Learner:
    seeds = getattr(learner, "seeds", None)
    if isinstance(seeds, Seeds):
        other: Any = dataclasses.replace(learner, seeds=Seeds.all(1_234))  # pyright: ignore[reportCallIssue]
        if (other.group(), other.shard()) == (learner.group(), learner.shard()):
            return other
    return learner


@functools.partial(jax.jit, static_argnums=0)
def _step(program: Program, arrays: Any, state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
    return program.step(arrays, state, t)


def _draw_and_learn(
    program: Program, arrays: Any, state: Any, t: Any
) -> tuple[Any, dict[str, Any]]:
    return program.learn(arrays, state, program.draw(arrays, t), t)


def _trace(step: Callable[..., Any], *arguments: Any) -> tuple[str, list[bytes]]:
    """A step as text, with the constants it captured: both follow from its arguments alone."""
    # A function of its own each time, or jax would remember the first trace.
    found = jax.make_jaxpr(lambda *given: step(*given))(*arguments)
    text = re.sub(r"0x[0-9a-f]+", "", str(found))
    return text, [np.asarray(const).tobytes() for const in found.consts]


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(program: Program, arrays: Any, state: Any) -> dict[str, Any]:
    return program.evaluate(arrays, state)


@dataclasses.dataclass(frozen=True)
class _Ran:
    state: Any
    metrics: dict[str, Any]
    evaluated: dict[str, Any]


def _run(learner: Learner, arrays: Arrays, state: Any, steps: int) -> _Ran:
    program, merged = learner.program(PRECISION), _on_device(arrays.merged())
    metrics: dict[str, Any] = {}
    for t in range(steps):
        state, metrics = _step(program, merged, state, jnp.int32(t))
    evaluated = _evaluate(program, merged, state)
    return _Ran(jax.device_get(state), jax.device_get(metrics), jax.device_get(evaluated))


def _check_weights(learner: Learner, state: Any, given: Mapping[str, Tensors]) -> None:
    weights = learner.weights(state)
    require(
        weights and all(
            isinstance(w, np.ndarray) and np.issubdtype(w.dtype, np.floating)
            for w in weights.values()
        ),
        "weights() must give numpy arrays of floats by path",
    )  # fmt: skip
    subject = learner.subject(weights, given)
    strange = sorted(subject.abilities - set(ABILITIES))
    require(
        subject.abilities and not strange,
        f"subject() must state its abilities, some of {', '.join(ABILITIES)}; got "
        f"{sorted(subject.abilities)}",
    )
    for ability in set(ABILITIES) - subject.abilities:
        try:
            subject.need("check_learner", ability)
        except NotApplicable:
            continue
        require(False, f"a subject without {ability!r} must refuse it with NotApplicable")
    if "weights" in subject.abilities:
        require(same(subject.weights(), weights), "a subject must show the weights it was given")


def _scopes(arrays: Arrays) -> tuple[Any, Any, Any, Any]:
    return arrays.member, arrays.group, arrays.shard, arrays.first


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _apart(first: Any, second: Any) -> float:
    """The largest difference of two trees of arrays."""
    largest = 0.0
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        if np.shape(a) != np.shape(b):
            return float("inf")
        largest = max(largest, float(np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0)))
    return largest
