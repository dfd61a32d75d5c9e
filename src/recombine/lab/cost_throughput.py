"""How fast machines have been measured to train, shipped as a table, and hours from it."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Throughput:
    """One measurement: a model trained by the engine on a named machine."""

    model: str
    parameters: int
    members: int  # trained at once
    flops_per_second: float  # over all members, counted as `cost_of` counts
    measured_on: str


@functools.cache
def _table() -> dict[str, tuple[Throughput, ...]]:
    text = resources.files("recombine.lab").joinpath("throughput.json").read_text("utf-8")
    return {
        kind: tuple(Throughput(**entry) for entry in entries)
        for kind, entries in json.loads(text).items()
    }


def measured_devices() -> list[str]:
    """The kinds of device that have been measured.

    >>> "cpu" in measured_devices()
    True
    """
    return list(_table())


def measured(device_kind: str) -> tuple[Throughput, ...] | None:
    """What was measured on this kind of device, or None: then say so instead of guessing.

    >>> measured("an abacus") is None
    True
    """
    return _table().get(device_kind)


def estimate_seconds(flops: float, parameters: int, device_kind: str) -> float | None:
    """The time for `flops` operations with models of this size, or None where none was measured.

    Throughput is interpolated between measured sizes, log over log, and held beyond them.

    >>> estimate_seconds(1e15, 200_000, "an abacus") is None
    True
    """
    entries = measured(device_kind)
    if not entries:
        return None
    best: dict[int, float] = {}
    for entry in entries:
        best[entry.parameters] = max(best.get(entry.parameters, 0.0), entry.flops_per_second)
    sizes = sorted(best)
    size = min(max(parameters, sizes[0]), sizes[-1])
    below = max(s for s in sizes if s <= size)
    above = min(s for s in sizes if s >= size)
    if below == above:
        return flops / best[below]
    share = math.log(size / below) / math.log(above / below)
    return flops / (best[below] ** (1 - share) * best[above] ** share)
