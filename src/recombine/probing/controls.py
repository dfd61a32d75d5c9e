"""What a probe must beat: random labels per combination, and features that know nothing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Shaped

from recombine.errors import InvalidRequest

Columns = Float[np.ndarray, "row column"]
Codes = Int[np.ndarray, " row"]


def random_labels(columns: Columns, group: Codes, rng: np.random.Generator) -> Columns:
    """A control task: every combination takes the target of one row of a random combination.

    All rows of a combination get the same label, so a probe that can tell combinations apart can
    learn it, and nothing that holds across combinations can help. Labels stay as common as they
    are. Where a target is the same in all rows of a combination, combinations swap their targets.

    >>> given = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> random_labels(given, np.array([0, 0, 1]), np.random.default_rng(0)).shape
    (3, 2)
    """
    count = int(group.max()) + 1
    shuffled = rng.permutation(len(group))
    representative = np.zeros(count, np.int64)
    representative[group[shuffled]] = shuffled  # the last row written is a random one
    return columns[representative[rng.permutation(count)][group]]


def varies_within(columns: Columns, group: Codes) -> bool:
    """Whether rows of one combination differ in their target."""
    first = np.zeros(int(group.max()) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return bool((columns != columns[first[group]]).any())


def shuffled_within(columns: Columns, group: Codes, rng: np.random.Generator) -> Columns:
    """Targets dealt anew among the rows of each combination: what is left is the combination."""
    shuffled = rng.permutation(len(group))
    source = shuffled[np.argsort(group[shuffled], kind="stable")]
    target = np.argsort(group, kind="stable")
    found = np.empty_like(columns)
    found[target] = columns[source]
    return found


def gaussian(
    rows: int, features: int, rng: np.random.Generator
) -> Float[np.ndarray, "row feature"]:
    """Random features that know nothing of their row."""
    return rng.standard_normal((rows, features), dtype=np.float32)


def projected(
    inputs: Shaped[np.ndarray, "row ..."], features: int, rng: np.random.Generator
) -> Float[np.ndarray, "row feature"]:
    """Random projections of the inputs to as many features as the activations have."""
    flat = np.asarray(inputs).reshape(len(inputs), -1)
    if flat.dtype.kind in "USOV" and flat.dtype.name != "bfloat16":
        raise InvalidRequest(f"inputs are of type {flat.dtype}: give numbers, one row each")
    directions = rng.standard_normal((flat.shape[1], features), dtype=np.float32)
    return flat.astype(np.float32) @ (directions / np.sqrt(flat.shape[1], dtype=np.float32))
