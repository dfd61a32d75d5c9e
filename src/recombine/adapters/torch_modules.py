"""The structural instruments on a PyTorch module: everything that applies, in one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from recombine.adapters._torch import Module, held, twins, without_control
from recombine.adapters._torch_binding import Scenes, read_binding
from recombine.adapters._torch_fracture import Grid, read_fracture
from recombine.adapters._torch_maps import Picture, read_maps
from recombine.adapters._torch_masks import Part, check_company, learn_masks, read_subnetworks
from recombine.errors import NotApplicable
from recombine.instruments._instrument import Reading
from recombine.learners.masks import Masking

Report = dict[str, Reading | str]


def inspect_module(
    module: Module,
    *,
    parts: Sequence[Part] = (),
    grid: Grid | None = None,
    picture: Picture | None = None,
    scenes: Scenes | None = None,
    untrained: Module | None = None,
    masking: Masking | None = None,
    steps: int = 1_000,
    learning_rate: float = 1e-2,
    chance: float = 0.0,
    seed: int = 0,
) -> Report:
    """A reading of everything that was stated, and for the rest a sentence that says why not.

    `parts` give "subnetworks/NAME" for each part, `grid` gives "fracture", `picture` "feature maps"
    and `scenes` "binding". `untrained` is the module before training; without it, a copy is drawn
    anew where all its parts have `reset_parameters`. Masks are learnt for the twin too: what they
    find in it is the control "untrained module". The module is left as it was.

        report = inspect_module(module, parts=[first, second], chance=0.5)
        print(report["subnetworks/first"].values["ablation"], report["fracture"])
    """
    with held(module):
        pass  # what is no module, or not ready, is refused before anything is learnt
    report: Report = {}
    if parts:
        check_company(parts)
        learnt = partial(
            _subnetworks, parts=parts, masking=masking, steps=steps, rate=learning_rate,
            chance=chance, seed=seed,
        )  # fmt: skip
        try:
            report |= _with_twin(module, untrained, learnt, seed)
        except NotApplicable as error:
            report["subnetworks"] = str(error)
    else:
        report["subnetworks"] = "no parts were stated: give parts=[Part(...), Part(...)]"
    stated: dict[str, tuple[Callable[[], Reading] | None, str]] = {
        "fracture": (
            grid and partial(read_fracture, module, grid, untrained=untrained, seed=seed),
            "no tasks were shown: give grid=Grid(inputs, latents)",
        ),
        "feature maps": (
            picture and partial(read_maps, module, picture, untrained=untrained, seed=seed),
            "no coordinates were given: give picture=Picture(coordinates) if the module draws",
        ),
        "binding": (
            scenes and partial(read_binding, module, scenes, untrained=untrained, seed=seed),
            "no scenes were stated: give scenes=Scenes() if the module answers about pictures",
        ),
    }
    for name, (read, why_not) in stated.items():
        try:
            report[name] = read() if read else why_not
        except NotApplicable as error:
            report[name] = str(error)
    return report


def _subnetworks(
    module: Module, *, parts: Sequence[Part], masking: Masking | None, steps: int, rate: float,
    chance: float, seed: int,
) -> dict[str, Reading]:  # fmt: skip
    masks = learn_masks(module, parts, masking=masking, steps=steps, learning_rate=rate, seed=seed)
    return read_subnetworks(module, parts, masks, chance=chance, seed=seed)


def _with_twin(
    module: Module,
    untrained: Module | None,
    read: Callable[[Module], dict[str, Reading]],
    seed: int,
) -> Report:
    with twins(module, untrained, seed) as (mine, twin, why):
        found, control = read(mine.module), read(twin.module) if twin else {}
    report: Report = {}
    for part, reading in found.items():
        controls = dict(reading.controls)
        if part in control:
            controls["untrained module"] = control[part].values
        full = Reading(reading.values, controls, reading.tables)
        name = f"subnetworks/{part}"
        report[name] = without_control(full, "untrained module", why) if why else full
    return report
