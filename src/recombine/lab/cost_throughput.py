"""How fast machines have been measured to train, shipped as a table, and hours from it."""

from __future__ import annotations

import functools
import json
import math
import statistics
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
    bytes_per_second: float | None = None  # likewise, of models that reading and writing hold up
    seconds_per_kernel: float | None = None  # of a stack so small that starting kernels holds it up


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


def estimate_seconds(
    flops: float, parameters: int, device_kind: str, bytes: float = 0.0, kernels: float = 0.0
) -> float | None:
    """The time for so much work with models of this size, or None where none was measured.

    Throughput is interpolated between measured sizes, log over log, and held beyond them. Work
    that moves more than it computes takes as long as its bytes do, at the median measured rate:
    few large kernels come near what the memory gives, many small ones do not. However small they
    are, starting so many `kernels` takes its time, too (the median of what was measured).

    >>> estimate_seconds(1e15, 200_000, "an abacus") is None
    True
    """
    entries = measured(device_kind)
    if not entries:
        return None
    moved = [entry.bytes_per_second for entry in entries if entry.bytes_per_second]
    moving = bytes / statistics.median(moved) if moved else 0.0
    each = [entry.seconds_per_kernel for entry in entries if entry.seconds_per_kernel]
    starting = kernels * statistics.median(each) if each else 0.0
    return max(flops / _computed(entries, parameters), moving, starting)


def _computed(entries: tuple[Throughput, ...], parameters: int) -> float:
    """FLOP a second of models that products hold up, at this size."""
    best: dict[int, float] = {}
    for entry in entries:
        if entry.bytes_per_second is None and entry.seconds_per_kernel is None:
            best[entry.parameters] = max(best.get(entry.parameters, 0.0), entry.flops_per_second)
    sizes = sorted(best)
    size = min(max(parameters, sizes[0]), sizes[-1])
    below = max(s for s in sizes if s <= size)
    above = min(s for s in sizes if s >= size)
    if below == above:
        return best[below]
    share = math.log(size / below) / math.log(above / below)
    return best[below] ** (1 - share) * best[above] ** share
