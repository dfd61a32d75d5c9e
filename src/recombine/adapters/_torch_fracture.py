"""Whether the parts of a task are kept together inside a PyTorch module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.adapters._torch import Held, Module, moved, twins, without_control
from recombine.adapters._torch_watch import Inputs, Watched, answer, as_array, as_inputs, watch
from recombine.checks import at_least
from recombine.errors import InvalidRequest, NotApplicable
from recombine.instruments._instrument import Reading
from recombine.instruments.fracture import (
    EFFECT,
    SMALLEST,
    Changes,
    Seen,
    made_controls,
    matched_change,
    measured,
    selectivity,
    units,
)
from recombine.seeds import host_seed

ALIVE = 1e-6  # the least deviation of a unit that says anything


@dataclass(frozen=True, eq=False)
class Grid:
    """Every task with every one of a few inputs, and the modules that each task is made of.

    `inputs` is what the module is given: an array (or a tuple of arrays, one for each argument)
    whose first two axes are task and input. `latents[task, module]` is how much of each module a
    task has, 0 for none and never less. `layers` are names of its parts; by default all layers with
    weights but the one that is run last. `sweeps` weights are moved one at a time for selectivity;
    0 leaves that out.
    """

    inputs: Any
    latents: Float[np.ndarray, "task module"]
    layers: tuple[str, ...] = ()
    sweeps: int = 48


def read_fracture(
    module: Module, grid: Grid, *, untrained: Module | None = None, seed: int = 0
) -> Reading:
    """Concordance, disentanglement and completeness of units, and selectivity of weights.

    Numbers and controls are those of `recombine.instruments.Fracture`. The untrained twin is the
    one given, or a copy drawn anew; where there is none, the table `notes` says why.

        reading = read_fracture(module, Grid(inputs, latents, layers=("1", "3")))
        print(reading.values["concordance"], reading.controls["untrained"]["concordance"])
    """
    inputs, latents = _checked(grid)
    rng = np.random.default_rng(host_seed(seed, "fracture"))
    with twins(module, untrained, seed) as (mine, twin, why):
        found = watch(mine, inputs, grid.layers)
        layers = _seen(found, latents)
        changes = _changes(mine, inputs, found, grid.sweeps, rng)
        values = _values(layers, changes)
        control: dict[str, float] = {}
        if twin is not None:
            first = watch(twin, inputs, grid.layers)
            moved_twin = _changes(twin, inputs, first, grid.sweeps, rng)
            control = _values(_seen(first, latents), moved_twin)
    controls = made_controls(layers, len(inputs[0]) // len(latents), changes, rng)
    rows = [
        (name, measure, value)
        for name, layer in layers.items()
        for measure, value in measured(layer).items()
    ]
    columns = zip(("layer", "measure", "value"), zip(*rows, strict=True), strict=True)
    reading = Reading(
        values,
        {"untrained": control, **controls},
        {"layers": {name: list(column) for name, column in columns}},
    )
    return without_control(reading, "untrained", why) if why else reading


def _checked(grid: Grid) -> tuple[Inputs, Float[np.ndarray, "task module"]]:
    at_least(grid, sweeps=0)
    latents = as_array(grid.latents, "latents").astype(np.float64)
    inputs = as_inputs(grid.inputs, 2, "inputs")
    tasks = np.shape(grid.inputs[0] if isinstance(grid.inputs, tuple) else grid.inputs)[0]
    if latents.ndim != 2 or len(latents) != tasks or latents.shape[1] < 2:
        raise InvalidRequest(
            f"latents of shape {latents.shape}: expected a row for each of {tasks} tasks and a "
            "column for each of two modules or more"
        )
    wrong = ~(np.isfinite(latents) & (latents >= 0))
    if wrong.any():
        raise InvalidRequest(
            f"latents of {latents[wrong][0]:g}: expected finite numbers of 0 or more, how much of "
            "each module a task has"
        )
    return inputs, latents


def _seen(found: Watched, latents: Float[np.ndarray, "task module"]) -> dict[str, Seen]:
    """Units that change, as a grid."""
    layers = {}
    for name, rows in found.layers.items():
        units = np.asarray(rows, np.float64).reshape(len(latents), -1, rows.shape[1])
        alive = units.std(axis=(0, 1)) > ALIVE
        if alive.any():
            layers[name] = Seen(units[..., alive], latents)
    if not layers:
        raise NotApplicable("every unit of the layers shown is constant on this grid")
    return layers


def _values(layers: dict[str, Seen], changes: Changes) -> dict[str, float]:
    values = units(layers)
    if changes:
        values |= selectivity(changes, next(iter(layers.values())).latents)
        if "selectivity" not in values:
            raise NotApplicable(
                "no weight can be moved: all are 0, or no change of one has an effect"
            )
    return values


def _changes(
    holder: Held, inputs: Inputs, found: Watched, sweeps: int, rng: np.random.Generator
) -> Changes:
    """How answers change as weights are moved one at a time; none where no sweeps are asked for."""
    changes: list[Float[np.ndarray, "row"] | None] = []
    if not sweeps:
        return changes
    wanted = EFFECT * float(found.answers.var())
    if wanted == 0:
        raise NotApplicable("the answers are the same for every task and input of this grid")
    names = holder.chosen()
    for name in names:
        weight = holder.weight(name)
        numbers = weight.float().cpu().numpy()
        places = np.flatnonzero(numbers)
        if not places.size:
            continue
        count = min(max(1, sweeps // len(names)), places.size)
        for place in rng.choice(places, count, replace=False):

            def change(by: float, layer: str = name, at: int = int(place)) -> np.ndarray:
                return _change(holder, inputs, found, layer, at, by)

            changes.append(matched_change(change, wanted, SMALLEST * float(numbers.std())))
    if not changes:
        raise NotApplicable("no weight can be moved: all are 0, or no change of one has an effect")
    return changes


def _change(
    holder: Held, inputs: Inputs, found: Watched, name: str, place: int, by: float
) -> Float[np.ndarray, "row"]:
    """The squared change of every answer when one weight is moved."""
    weights = {name: moved(holder.weight(name), place, by)}
    return np.mean((answer(holder, inputs, weights) - found.answers) ** 2, axis=1)
