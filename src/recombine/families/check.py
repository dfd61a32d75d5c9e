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
from recombine.families._flow import Generator
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
    family.check()
    content = _check_content(family)
    chosen = _combinations(family)
    latents = _check_latents(family, chosen)
    inputs, targets = _check_examples(family, content, latents)
    _check_targets(family, content, latents, inputs, targets)
    _check_compiled(family, content, chosen, latents, inputs, targets)
    _check_padding(family, content, latents, inputs, targets)
    _check_score(family, targets)
    _check_demonstrations(family, content, latents)


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


def _samples(family: Family) -> int:
    return SAMPLES if family.horizon == 1 else family.horizon


def _check_examples(
    family: Family, content: Content, latents: np.ndarray
) -> tuple[Any, np.ndarray]:
    samples, key = _samples(family), jax.random.key(1)
    drawn = family.draw(content, jnp.asarray(latents), key, samples)
    inputs, targets = drawn
    axes = (len(latents), samples)
    _check_array(targets, (*axes, family.output_size), "targets")
    shapes = {tuple(leaf.shape[:2]) for leaf in jax.tree.leaves(inputs)}
    require(shapes == {axes}, f"inputs must have (task, sample) = {axes} in front, got {shapes}")
    _check_array(family.observe(content, inputs), (*axes, family.input_size), "observations")
    again = family.draw(content, jnp.asarray(latents), key, samples)
    require(same(drawn, again), "examples must be the same for the same key")
    other = family.draw(content, jnp.asarray(latents), jax.random.key(2), samples)
    require(not same(inputs, other[0]), "inputs must differ from key to key")
    return inputs, np.asarray(targets)


def _check_targets(
    family: Family, content: Content, latents: np.ndarray, inputs: Any, targets: np.ndarray
) -> None:
    for number, latent in enumerate(latents):
        given = jax.tree.map(lambda leaf, n=number: leaf[n], inputs)
        found = family.targets(content, jnp.asarray(latent), given)
        _check_array(found, targets[number].shape, "targets")
        require(
            same(np.asarray(found), targets[number], TOLERANCE),
            "targets must give the answers that draw gave with the same inputs",
        )
    if isinstance(family, Generator):
        # What is to be made is among the inputs: tasks differ in them, not in the answers.
        turned = family.draw(
            content, jnp.asarray(latents[::-1]), jax.random.key(1), _samples(family)
        )
        require(
            not same(turned[0], inputs),
            "inputs of a family that generates must depend on the latent: all combinations gave "
            "the same examples",
        )
        return
    pool = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), inputs)
    answers = [np.asarray(family.targets(content, jnp.asarray(z), pool)) for z in latents]
    require(
        any(not np.allclose(a, answers[0], rtol=TOLERANCE, atol=TOLERANCE) for a in answers[1:]),
        "targets must depend on the latent: all combinations gave the same answers "
        f"(latents {_short(latents[0])} and {_short(latents[-1])} among them)",
    )


def _check_compiled(
    family: Family, content: Content, chosen: np.ndarray, latents: np.ndarray,
    inputs: Any, targets: np.ndarray,
) -> None:  # fmt: skip
    def one(key: Any, row: Any, given: Any) -> tuple[Any, Any]:
        latent = family.latent(key, row)
        return latent, family.targets(content, latent, given)

    keys = jax.vmap(jax.random.key)(np.arange(len(chosen)))
    try:
        drawn, answers = jax.jit(jax.vmap(one))(keys, jnp.asarray(chosen), inputs)
    except Exception as error:  # whatever a user's code raises, the sentence says where
        raise ContractBroken(
            "latent and targets must work inside jax.jit and jax.vmap: use jax.numpy and no "
            f"Python branch on an array ({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error
    require(same(drawn, latents, TOLERANCE), "a latent must be the same inside jit and vmap")
    alike = same(answers, targets, TOLERANCE)
    require(alike, "targets must be the same inside jit and vmap")


def _check_padding(
    family: Family, content: Content, latents: np.ndarray, inputs: Any, targets: np.ndarray
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
    for number, (latent, expected) in enumerate(zip(latents, targets, strict=True)):
        wide = np.pad(latent, (0, padded.modules - family.modules))
        given = jax.tree.map(lambda leaf, n=number: leaf[n], inputs)
        answers = padded.targets(grown, jnp.asarray(wide), given)
        require(
            same(np.asarray(answers), expected, TOLERANCE),
            "padding must be inert: content padded with zeros to the sizes of bucket() must give "
            "the same targets; keep what depends on the natural sizes in the content",
        )


def _check_score(family: Family, targets: np.ndarray) -> None:
    right = jnp.asarray(targets)
    score = jax.vmap(family.score)
    good, bad = (jax.tree.map(np.asarray, score(given, right)) for given in (right, -right))
    missing = sorted({"error", "variance"} - good.keys())
    require(not missing, f"score must give error and variance; {missing} are missing")
    numbers = {name: values.tolist() for name, values in good.items()}
    require(
        (good["error"] == 0).all() and (good["variance"] > 0).all()
        and all(float(value) == 1 for value in family.summary(good).values()),
        f"right answers must have error 0, variance above 0 and scores of 1, got {numbers}: an "
        "output that does not vary over the inputs of a task has no score",
    )  # fmt: skip
    worse = float(family.summary(bad)[""]) < 1 and (bad["error"] > 0).any()
    require(worse, "wrong answers must score below right ones")
    loss = jax.vmap(family.loss)
    lower = float(loss(right, right).mean()) < float(loss(-right, right).mean())
    require(lower, "the loss of right answers must be below that of wrong ones")


def _check_demonstrations(family: Family, content: Content, latents: np.ndarray) -> None:
    parts = family.demonstrations(content, jnp.asarray(latents[0]), jax.random.key(3), 5)
    shapes = [part.shape for part in parts]
    require(
        all(shape[0] == 5 for shape in shapes)
        and sum(shape[1] for shape in shapes) == family.demonstration_size,
        f"demonstrations must have a row a shot and {family.demonstration_size} numbers "
        f"(demonstration_size) in all, got shapes {shapes}",
    )


def _check_array(array: Any, shape: tuple[int, ...], what: str) -> None:
    given = (tuple(array.shape), str(array.dtype))
    require(
        given == (shape, "float32"),
        f"{what} must have shape {shape} and dtype float32, got {given[0]} and {given[1]}",
    )
    require(np.all(np.isfinite(np.asarray(array))), f"{what} must be finite")


def _short(latent: np.ndarray) -> dict[int, float]:
    return {int(m): round(float(latent[m]), 3) for m in np.flatnonzero(latent)}
