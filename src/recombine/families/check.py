"""The contract of a family, as a battery anybody can run on a family of their own."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recombine.errors import RecombineError
from recombine.families._family import Content, Family
from recombine.lab.identity import canonical, revive
from recombine.trees import pad_to

TASKS = 8
SAMPLES = 16
TOLERANCE = 1e-5


class ContractBroken(RecombineError, AssertionError):
    """A family, learner or instrument does not do what every one of its kind must."""


def require(holds: object, sentence: str) -> None:
    """Raises `ContractBroken` with the sentence unless it holds."""
    if not holds:
        raise ContractBroken(sentence)


def same(first: Any, second: Any, tolerance: float = 0.0) -> bool:
    """Whether two trees have the same structure and equal arrays (NaN equals NaN)."""
    if jax.tree.structure(first) != jax.tree.structure(second):
        return False
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(_equal(np.asarray(a), np.asarray(b), tolerance) for a, b in pairs)


def _equal(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if tolerance and np.issubdtype(a.dtype, np.floating):
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
    return bool(np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.inexact)))


def check_spec(spec: Any, what: str) -> None:
    """A spec is a value: hashable, equal to its copy, and the same after storing and reviving."""
    kind: Any = type(spec)
    require(dataclasses.is_dataclass(kind), f"{what} must be a frozen dataclass, got {kind}")
    try:
        hash(spec)
    except TypeError as error:
        raise ContractBroken(
            f"{what} must be hashable: decorate it with @dataclass(frozen=True) and use tuples, "
            f"not lists ({error})"
        ) from error
    copy = dataclasses.replace(spec)
    alike = copy == spec and hash(copy) == hash(spec)
    require(alike, f"{what} must equal, and hash like, a copy with the same fields")
    stored = json.loads(json.dumps(canonical(spec), allow_nan=False))
    require(
        revive(stored) == spec,
        f"{what} must be the same after it is stored and read back: its fields must hold numbers, "
        "names, tuples and frozen dataclasses, and its class must be importable",
    )


def check_family(family: Family) -> None:
    """Raises `ContractBroken`, with a sentence that says what is wrong, unless a family is sound.

    Run it in the tests of a family of your own; it takes a second or two.

    >>> from recombine.families import Hyperteacher
    >>> check_family(Hyperteacher(modules=8, active=2))
    """
    check_spec(family, "a family")
    content = _check_content(family)
    chosen = _combinations(family)
    latents = _check_latents(family, chosen)
    inputs = _check_inputs(family)
    targets = _check_targets(family, content, latents, inputs)
    _check_compiled(family, content, chosen, latents, inputs, targets)
    _check_padding(family, content, latents, inputs, targets)
    _check_score(family, targets)


def _combinations(family: Family) -> np.ndarray:
    """Indicators from the first combination to the last, so that every size is among them."""
    require(family.space.size > 1, "a family must have more than one combination")
    ranks = np.unique(np.linspace(0, family.space.size - 1, TASKS).astype(np.uint32))
    return family.space.indicator(ranks)


def _check_content(family: Family) -> Content:
    content = family.content(jax.random.key(0))
    require(
        isinstance(content, dict) and all(hasattr(leaf, "shape") for leaf in content.values()),
        "content must be a dictionary of arrays by name",
    )
    again = family.content(jax.random.key(0))
    require(same(content, again), "content must be the same for the same key")
    for name, array in content.items():
        finite = bool(np.all(np.isfinite(np.asarray(array))))
        require(finite, f"content {name!r} holds numbers that are not finite")
    return content


def _check_latents(family: Family, chosen: np.ndarray) -> np.ndarray:
    latents = []
    for number, row in enumerate(chosen):
        key = jax.random.key(number)
        latent = family.latent(key, jnp.asarray(row))
        _check_array(latent, (family.modules,), "a latent")
        require(same(latent, family.latent(key, jnp.asarray(row))), "a latent must follow its key")
        outside = np.asarray(latent)[~row]
        require(not outside.any(), "a latent must be zero outside the chosen modules")
        require(np.asarray(latent)[row].all(), "a latent must not be zero in a chosen module")
        latents.append(np.asarray(latent))
    return np.stack(latents)


def _check_inputs(family: Family) -> np.ndarray:
    key = jax.random.key(1)
    inputs = family.inputs(key, SAMPLES)
    _check_array(inputs, (SAMPLES, family.input_size), "inputs")
    require(same(inputs, family.inputs(key, SAMPLES)), "inputs must be the same for the same key")
    other = family.inputs(jax.random.key(2), SAMPLES)
    require(not same(inputs, other), "inputs must differ from key to key")
    return np.asarray(inputs)


def _check_targets(
    family: Family, content: Content, latents: np.ndarray, inputs: np.ndarray
) -> np.ndarray:
    found = []
    for latent in latents:
        targets = family.targets(content, jnp.asarray(latent), jnp.asarray(inputs))
        _check_array(targets, (SAMPLES, family.output_size), "targets")
        found.append(np.asarray(targets))
    for number, targets in enumerate(found[1:], start=1):
        require(
            not np.allclose(targets, found[0], rtol=TOLERANCE, atol=TOLERANCE),
            "targets must depend on the latent: two combinations gave the same answers "
            f"(latents {_short(latents[0])} and {_short(latents[number])})",
        )
    return np.stack(found)


def _check_compiled(
    family: Family, content: Content, chosen: np.ndarray, latents: np.ndarray,
    inputs: np.ndarray, targets: np.ndarray,
) -> None:  # fmt: skip
    def one(key: Any, row: Any) -> tuple[Any, Any]:
        latent = family.latent(key, row)
        return latent, family.targets(content, latent, jnp.asarray(inputs))

    keys = jax.vmap(jax.random.key)(np.arange(len(chosen)))
    try:
        drawn, answers = jax.jit(jax.vmap(one))(keys, jnp.asarray(chosen))
    except Exception as error:  # whatever a user's code raises, the sentence says where
        raise ContractBroken(
            "latent and targets must work inside jax.jit and jax.vmap: use jax.numpy and no "
            f"Python branch on an array ({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error
    require(same(drawn, latents, TOLERANCE), "a latent must be the same inside jit and vmap")
    alike = same(answers, targets, TOLERANCE)
    require(alike, "targets must be the same inside jit and vmap")


def _check_padding(
    family: Family, content: Content, latents: np.ndarray, inputs: np.ndarray, targets: np.ndarray
) -> None:
    padded = family.bucket()
    require(
        padded.modules >= family.modules and padded.active >= family.active
        and padded.bucket() == padded,
        f"bucket() must return a family at least as large that is its own bucket, got {padded}",
    )  # fmt: skip
    shapes = jax.eval_shape(padded.content, jax.random.key(0))
    fits = content.keys() == shapes.keys() and all(
        array.ndim == shapes[name].ndim
        and all(a <= b for a, b in zip(array.shape, shapes[name].shape, strict=True))
        for name, array in content.items()
    )
    require(fits, "the content of bucket() must have the same names, and arrays at least as large")
    grown = pad_to(content, shapes)
    for latent, expected in zip(latents, targets, strict=True):
        wide = np.pad(latent, (0, padded.modules - family.modules))
        answers = padded.targets(grown, jnp.asarray(wide), jnp.asarray(inputs))
        require(
            same(np.asarray(answers), expected, TOLERANCE),
            "padding must be inert: content padded with zeros to the sizes of bucket() must give "
            "the same targets; keep what depends on the natural sizes in the content",
        )


def _check_score(family: Family, targets: np.ndarray) -> None:
    for right in targets:
        answers = jnp.asarray(right)
        require(float(family.loss(answers, answers)) == 0, "the loss of right answers must be 0")
        score = {name: float(value) for name, value in family.score(answers, answers).items()}
        missing = sorted({"error", "variance", "r2"} - score.keys())
        require(not missing, f"score must give error, variance and r2; {missing} are missing")
        require(
            score["error"] == 0 and score["variance"] > 0 and score["r2"] == 1,
            f"right answers must score error 0, variance above 0 and r2 1, got {score}: an output "
            "that does not vary over the inputs of a task has no r2",
        )
        wrong = family.score(answers + 1, answers)
        worse = float(wrong["r2"]) < 1 and float(wrong["error"]) > 0
        require(worse, "wrong answers must score below right ones")


def _check_array(array: Any, shape: tuple[int, ...], what: str) -> None:
    given = (tuple(array.shape), str(array.dtype))
    require(
        given == (shape, "float32"),
        f"{what} must have shape {shape} and dtype float32, got {given[0]} and {given[1]}",
    )
    require(np.all(np.isfinite(np.asarray(array))), f"{what} must be finite")


def _short(latent: np.ndarray) -> dict[int, float]:
    return {int(m): round(float(latent[m]), 3) for m in np.flatnonzero(latent)}
