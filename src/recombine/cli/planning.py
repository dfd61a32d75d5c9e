"""The `plan` command: cells, what cannot exist, and the cost, before anything runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from recombine.lab import cost
from recombine.lab.device import Device, device
from recombine.lab.execute import needed_cells
from recombine.lab.plan import part, upstream_first
from recombine.lab.plan import shards as shards_of
from recombine.lab.progress import Watch, duration
from recombine.lab.run import Request
from recombine.learners._learner import Arrays, Learner

PATIENCE = 2.0  # seconds that a plan may take without a word


class Counted:
    """What programs take: each is followed once, however many cells share it."""

    def __init__(self) -> None:
        self._steps: dict[Any, cost.Cost] = {}
        self._memories: dict[Any, int] = {}
        self._prepared: tuple[Learner | None, Arrays | None] = (None, None)

    def step(self, learner: Learner, precision: str) -> cost.Cost:
        """One step of one member."""
        key = (learner.program(precision), learner.shard())
        if key not in self._steps:
            self._steps[key] = cost.step_cost(learner, precision, self._arrays(learner))
        return self._steps[key]

    def memory(self, learner: Learner, members: int, precision: str) -> int:
        """Bytes of a population."""
        key = (learner.program(precision), learner.shard(), members)
        if key not in self._memories:
            found = cost.predict_memory(learner, members, precision, self._arrays(learner))
            self._memories[key] = found.total
        return self._memories[key]

    def _arrays(self, learner: Learner) -> Arrays | None:
        if self._prepared[0] is not learner:
            self._prepared = learner, cost.arrays_of(learner)
        return self._prepared[1]


def document(request: Request, watch: Watch | None = None) -> dict[str, Any]:
    """The first round exactly, and a bound for the rest."""
    here, watch = device(), watch or Watch(quiet=True)
    feasible = part(request.cells())
    layers = upstream_first(needed_cells(feasible.cells).values())
    learners = {cell: learner for layer in layers for cell, learner in layer.items()}
    stacks = shards_of(learners, here)
    # A GPU multiplies in another precision than a CPU, which halves what it has to move.
    machines = {
        name: here if name == here.kind else Device("cpu" if name == "cpu" else "gpu", name, 0)
        for name in cost.measured_devices()
    }
    flops, largest, hours = 0.0, 0, dict.fromkeys(machines, 0.0)
    counted = Counted()
    watch.start("counting", {"shards": len(stacks)})
    watch.begin("shards")
    begun = time.monotonic()
    for number, shard in enumerate(stacks):
        watch("shards", number, len(stacks), "")
        if time.monotonic() - begun > PATIENCE:
            watch.draw()
        learner = learners[shard.cells[0]]
        if learner.host_driven:
            continue  # what it costs is not the device's to say
        count = learner.steps * len(shard.cells)
        members = len(shard.cells) + shard.padding
        flops += count * counted.step(learner, shard.precision).flops
        largest = max(largest, counted.memory(learner, members, shard.precision))
        for machine in machines.values():  # its data are at hand now, for other stacks too
            counted.step(learner, machine.precision(learner.precision))
    for name, machine in machines.items():
        for shard in stacks if machine is here else shards_of(learners, machine):
            learner = learners[shard.cells[0]]
            if learner.host_driven:
                continue
            step = counted.step(learner, shard.precision)
            work = step * (learner.steps * (len(shard.cells) + shard.padding))
            seconds = cost.estimate_seconds(
                work.flops, learner.size, name, work.bytes, step.kernels * learner.steps
            )
            hours[name] += (seconds or 0.0) / 3600
    watch.close()
    return {
        "study": request.study.name,
        "preset": request.preset,
        "question": request.study.question,
        "cells": len(feasible.cells),
        "further_cells_needed": len(learners) - len(feasible.cells),
        "shards": len(stacks),
        "programs": len({learners[s.cells[0]].program(s.precision) for s in stacks}),
        "infeasible": dict(Counter(reason for _, reason in feasible.infeasible)),
        "further_cells_at_most": request.study.most_further_cells(request.grid),
        "flops": flops,
        "largest_shard_bytes": largest,
        "device": here.kind,
        "estimated_hours": hours,
        "claims": [
            {"name": c.name, "sentence": c.sentence, "criterion": c.criterion}
            for c in request.study.claims(request.grid)
        ],
    }


def cannot_exist(reasons: Mapping[str, int]) -> list[str]:
    """How many cells of a grid are impossible, and why; nothing where all can be."""
    if not reasons:
        return []
    several = [f"  {count} x {reason}" for reason, count in reasons.items()]
    return [f"{sum(reasons.values())} cells cannot exist:", *several]


def lines(found: dict[str, Any]) -> list[str]:
    told = [
        f"{found['study']} at preset {found['preset']}: {found['question']}",
        f"{found['cells']} cells in {found['shards']} shards of {found['programs']} programs "
        f"(on this device: {found['device']})",
    ]
    if found["further_cells_needed"]:
        told.append(f"{found['further_cells_needed']} more cells that these stand on")
    if found["further_cells_at_most"]:
        told.append(f"further rounds: at most {found['further_cells_at_most']} cells")
    told += cannot_exist(found["infeasible"])
    told.append(
        f"{found['flops']:.2e} FLOP; largest shard {found['largest_shard_bytes'] / 2**20:,.0f} MiB"
    )
    for name, hours in found["estimated_hours"].items():
        told.append(
            f"about {duration(3600 * hours)} of training on {name}, by its measured throughput "
            "(compilation and readings not counted)"
        )
    told.append("claims:")
    told += [f"  {c['sentence']} ({c['criterion']})" for c in found["claims"]]
    return told
