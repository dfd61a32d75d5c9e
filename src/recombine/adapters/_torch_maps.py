"""Whether a picture is kept together inside the PyTorch module that draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.adapters._torch import Held, Module, moved, twins, without_control
from recombine.adapters._torch_watch import Inputs, answer, as_array, as_inputs, watch
from recombine.checks import at_least
from recombine.cppn import SYMMETRIES, LayeredCPPN, fracture, layerise, stencil_genome
from recombine.cppn.sweeps import SMALLEST
from recombine.errors import InvalidRequest
from recombine.instruments._instrument import Reading
from recombine.instruments.fracture import matched_change
from recombine.instruments.picture_fracture import target_symmetry
from recombine.instruments.picture_walls import symmetric_share
from recombine.seeds import host_seed

EFFECT = 0.005  # mean squared change of a picture that a weight is moved for
Drawn = Float[np.ndarray, "row column channel"]


@dataclass(frozen=True, eq=False)
class Picture:
    """What a module is told of every pixel, and the picture it should draw, if there is one.

    The module is given `coordinates` as rows, one a pixel, and answers with the pixel's colour.
    `layers` are names of its parts; by default all layers with weights but the one that is run
    last. `sweeps` weights are moved one at a time, up and down; 0 leaves that out.
    """

    coordinates: Float[np.ndarray, "row column feature"]
    target: Drawn | None = None
    layers: tuple[str, ...] = ()
    sweeps: int = 60


def read_maps(
    module: Module, picture: Picture, *, untrained: Module | None = None, seed: int = 0
) -> Reading:
    """Symmetry of units, roughness, number and rank of distinct maps, symmetry of sweeps.

    Numbers and controls are those of `recombine.instruments.PictureFracture`: maps are compared
    with their mirror images under the symmetry that the picture has most of (the target, or what
    the module draws). Where there is no untrained twin, the table `notes` says why.
    """
    at_least(picture, sweeps=0)
    places = as_array(picture.coordinates, "coordinates")
    shape = places.shape
    if len(shape) != 3 or min(shape[:2]) < 2:
        raise InvalidRequest(
            f"coordinates of shape {shape}: expected (row, column, feature), two or more each way"
        )
    inputs = as_inputs(places, 2, "coordinates")
    rng = np.random.default_rng(host_seed(seed, "picture-fracture"))
    with twins(module, untrained, seed) as (mine, twin, why):
        drawn = _draw(mine, inputs, shape)
        target = drawn if picture.target is None else as_array(picture.target, "a target")
        target = target.astype(np.float64)
        if not np.isfinite(target).all():
            raise InvalidRequest("a target with numbers that are not finite: expected colours")
        if target.shape != drawn.shape:
            raise InvalidRequest(
                f"a target of shape {target.shape}: the module draws {drawn.shape}"
            )
        square = shape[0] == shape[1]
        found = {
            name: target_symmetry(target, name)
            for name in SYMMETRIES
            if square or name != "transposition"
        }
        symmetry = max(found, key=lambda name: found[name])
        values = _measured(mine, picture, inputs, shape, symmetry, rng, seed)
        control = _measured(twin, picture, inputs, shape, symmetry, rng, seed) if twin else {}
    rotated = values["rotated"]
    values["target_symmetry"] = found[symmetry]
    if picture.target is not None:
        values["error"] = float(np.mean((drawn - target) ** 2))
    architecture, matrices = layerise(stencil_genome(0, details=0))
    stencil = fracture(LayeredCPPN.of(architecture, matrices).maps(shape[0]), seed=seed)
    table: dict[str, list[Any]] = {
        "name": list(found), "share": list(found.values()),
        "used": [name == symmetry for name in found],
    }  # fmt: skip
    reading = Reading(
        values,
        {"untrained": control, "rotated": {"concordance": rotated},
         "planted": {"concordance": stencil.concordance,
                     "symmetric_share": stencil.symmetric_share}},
        {"symmetry": table},
    )  # fmt: skip
    return without_control(reading, "untrained", why) if why else reading


def _measured(
    holder: Held, picture: Picture, inputs: Inputs, shape: tuple[int, ...], symmetry: str,
    rng: np.random.Generator, seed: int,
) -> dict[str, float]:  # fmt: skip
    layers = watch(holder, inputs, picture.layers).layers.values()
    maps = [rows.T.reshape(-1, *shape[:2]).astype(np.float64) for rows in layers]
    swept = _swept(holder, inputs, shape, symmetry, picture.sweeps, rng) if picture.sweeps else None
    found = fracture(maps, symmetry=symmetry, seed=seed, sweeps=swept)
    values = {
        "concordance": found.concordance, "symmetric_share": found.symmetric_share,
        "rotated": found.rotated_concordance, "variation": found.variation,
        "distinct": float(found.distinct), "effective_rank": found.effective_rank,
    }  # fmt: skip
    if found.sweep_symmetry is not None:
        values["sweep_symmetry"] = found.sweep_symmetry
    if swept is not None:
        values["dropped"] = float(np.isnan(swept).sum())
    return values


def _swept(
    holder: Held, inputs: Inputs, shape: tuple[int, ...], symmetry: str, sweeps: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "sweep"]:  # fmt: skip
    """The symmetric share of the picture's change, for chosen weights made larger and smaller."""
    numbers = {name: holder.weight(name).float().cpu().numpy() for name in holder.chosen()}
    places = [(name, int(p)) for name, w in numbers.items() for p in np.flatnonzero(w)]
    chosen = rng.permutation(len(places))[:sweeps]
    before = _draw(holder, inputs, shape)
    found = []
    for name, place in (places[int(number)] for number in chosen):
        for sign in (1.0, -1.0):

            def change(size: float, layer: str = name, at: int = place, to: float = sign) -> Drawn:
                weights = {layer: moved(holder.weight(layer), at, to * size)}
                return answer(holder, inputs, weights).reshape(before.shape) - before

            found.append(_share(change, symmetry))
    return np.asarray(found, np.float64)


def _share(change: Callable[[float], Drawn], symmetry: str) -> float:
    """The symmetric share of the smallest change that has the effect; NaN where none has.

    A change that leaps past the effect, as where a module rounds, does not have it either.
    """
    found = matched_change(change, EFFECT, SMALLEST, effect=lambda drawn: np.mean(drawn**2))
    return float("nan") if found is None else symmetric_share(found, symmetry)


def _draw(holder: Held, inputs: Inputs, shape: tuple[int, ...]) -> Drawn:
    return answer(holder, inputs).reshape(*shape[:2], -1)
