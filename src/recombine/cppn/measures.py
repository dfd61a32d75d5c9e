"""How fractured a picture's insides are: the symmetry, smoothness and number of its maps.

A layer is an array of maps, one a neuron, over the rows and columns of the picture; any network
that answers pixel by pixel has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from recombine.errors import InvalidRequest, NotApplicable, unknown

CONSTANT = 1e-4  # a map with a smaller standard deviation says nothing
SAME = 0.99  # maps that correlate so strongly are copies of one another
SYMMETRIC = 0.95

# On the last two axes, of numpy's and of jax's arrays. Each undoes itself, so that any picture is
# the sum of a symmetric and an antisymmetric part.
SYMMETRIES: dict[str, Callable[[Any], Any]] = {
    "left-right": lambda maps: maps[..., :, ::-1],
    "up-down": lambda maps: maps[..., ::-1, :],
    "rotation": lambda maps: maps[..., ::-1, ::-1],
    "transposition": lambda maps: maps.swapaxes(-2, -1),
}

Maps = Float[np.ndarray, "map row column"]


@dataclass(frozen=True)
class Fracture:
    """The measures of one network."""

    symmetry: str
    maps: int
    """Maps that are not constant, copies among them."""
    concordance: float
    """Mean |correlation| of a distinct map with its mirror image."""
    symmetric_share: float
    """Share of distinct maps for which that is above 0.95."""
    rotated_concordance: float
    """The same after a random rotation of every layer: what does not depend on the basis."""
    rotated_share: float
    variation: float
    """Mean step between neighbouring pixels, of all maps (standardised), copies counted."""
    distinct_variation: float
    """The same of distinct maps."""
    distinct: int
    effective_rank: float
    sweep_symmetry: float | None = None
    """Mean symmetric share of what changing one weight does to the picture."""
    sweep_median: float | None = None
    sweeps: int = 0

    def document(self) -> dict[str, Any]:
        """The measures as JSON."""
        return asdict(self)


def mirrored(maps: Any, symmetry: str = "left-right") -> Any:
    """The mirror images of maps: `left-right`, `up-down`, `rotation` by 180 or `transposition`."""
    if symmetry not in SYMMETRIES:
        raise unknown("symmetry", symmetry, SYMMETRIES)
    if symmetry == "transposition" and maps.shape[-2] != maps.shape[-1]:
        raise InvalidRequest(
            f"transposition of maps with {maps.shape[-2]} rows and {maps.shape[-1]} columns: "
            "expected square ones"
        )
    return SYMMETRIES[symmetry](maps)


def standardised(maps: Maps) -> Maps:
    """Maps of mean 0 and deviation 1; constant ones are dropped."""
    maps = np.asarray(maps, np.float64)
    if maps.ndim != 3:
        raise InvalidRequest(f"maps of shape {maps.shape}: expected (map, row, column)")
    if not np.isfinite(maps).all():
        raise InvalidRequest("some maps hold values that are not finite")
    centred = maps - maps.mean(axis=(1, 2), keepdims=True)
    deviation = centred.std(axis=(1, 2), keepdims=True)
    varied = deviation[:, 0, 0] >= CONSTANT
    return centred[varied] / deviation[varied]


def concordance(maps: Maps, symmetry: str = "left-right") -> Float[np.ndarray, "map"]:
    """|correlation| of each standardised map with its mirror image."""
    return np.abs((maps * mirrored(maps, symmetry)).mean(axis=(1, 2)))


def variation(maps: Maps) -> float:
    """The mean step down plus the mean step to the right; it halves as the size doubles."""
    return float(np.abs(np.diff(maps, axis=1)).mean() + np.abs(np.diff(maps, axis=2)).mean())


def distinct(maps: Maps) -> Int[np.ndarray, "kept"]:
    """Places of the standardised maps that are no copy, up to sign, of one kept before."""
    return _distinct(_correlations(maps))


def effective_rank(maps: Maps) -> float:
    """exp of the entropy of the standardised maps' variance along their principal directions.

    >>> rows, columns = np.mgrid[-1:1:9j, -1:1:9j]
    >>> round(effective_rank(standardised(np.stack([rows, columns]))), 6)
    2.0
    """
    return _rank(_correlations(maps))


def rotated(layers: Sequence[Maps], seed: int = 0) -> list[Maps]:
    """The varied maps of each layer, standardised, then mixed by a random rotation."""
    found = []
    for place, layer in enumerate(layers):
        maps = standardised(layer)
        random = np.random.default_rng([seed, place]).normal(size=(len(maps), len(maps)))
        basis, upper = np.linalg.qr(random)
        basis = basis * np.sign(np.diag(upper))  # uniform among all rotations and reflections
        found.append(np.tensordot(basis, maps, axes=1))
    return found


def fracture(
    layers: Sequence[Maps],
    *,
    symmetry: str = "left-right",
    seed: int = 0,
    sweeps: Float[np.ndarray, "sweep"] | None = None,
) -> Fracture:
    """All measures of a network's hidden layers; `sweeps` are what `sweep_symmetry` found."""
    maps = _joined([standardised(layer) for layer in layers])
    correlations = _correlations(maps)
    kept = _distinct(correlations)
    single = maps[kept]
    raw = concordance(single, symmetry)
    turned = standardised(_joined(rotated(layers, seed)))
    spun = concordance(turned[distinct(turned)], symmetry)
    reached = np.zeros(0) if sweeps is None else sweeps[np.isfinite(sweeps)]
    return Fracture(
        symmetry=symmetry,
        maps=len(maps),
        concordance=float(raw.mean()),
        symmetric_share=float((raw > SYMMETRIC).mean()),
        rotated_concordance=float(spun.mean()),
        rotated_share=float((spun > SYMMETRIC).mean()),
        variation=variation(maps),
        distinct_variation=variation(single),
        distinct=len(kept),
        effective_rank=_rank(correlations[np.ix_(kept, kept)]),
        sweep_symmetry=float(reached.mean()) if reached.size else None,
        sweep_median=float(np.median(reached)) if reached.size else None,
        sweeps=reached.size,
    )


def _joined(layers: Sequence[Maps]) -> Maps:
    if not any(len(layer) for layer in layers):
        raise NotApplicable("every map is constant: there is nothing to measure")
    return np.concatenate(layers)


def _correlations(maps: Maps) -> Float[np.ndarray, "map map"]:
    flat = maps.reshape(len(maps), -1)
    return flat @ flat.T / flat.shape[1]


def _distinct(correlations: Float[np.ndarray, "map map"]) -> Int[np.ndarray, "kept"]:
    close = np.abs(correlations) >= SAME
    kept: list[int] = []
    for place in range(len(close)):
        if not close[place, kept].any():
            kept.append(place)
    return np.array(kept, int)


def _rank(correlations: Float[np.ndarray, "map map"]) -> float:
    # The eigenvalues of the correlations are the squared singular values of the maps.
    spectrum = np.clip(np.linalg.eigvalsh(correlations), 0, None)
    share = spectrum[spectrum > 0] / spectrum.sum()
    return float(np.exp(-(share * np.log(share)).sum()))
