"""The `plan` command: cells, what cannot exist, and the cost, before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from recombine.lab import cost
from recombine.lab.device import device
from recombine.lab.execute import needed_cells
from recombine.lab.plan import part, upstream_first
from recombine.lab.plan import shards as shards_of
from recombine.lab.progress import duration
from recombine.lab.run import Request


def document(request: Request) -> dict[str, Any]:
    """The first round exactly, and a bound for the rest."""
    here = device()
    feasible = part(request.cells())
    layers = upstream_first(needed_cells(feasible.cells).values())
    learners = {cell: learner for layer in layers for cell, learner in layer.items()}
    stacks = shards_of(learners, here)
    flops, largest, hours = 0.0, 0, dict.fromkeys(cost.measured_devices(), 0.0)
    costs: dict[Any, Any] = {}
    for shard in stacks:
        learner = learners[shard.cells[0]]
        if learner.host_driven:
            continue  # what it costs is not the device's to say
        key = (learner.program(shard.precision), learner.shard(), len(shard.cells))
        if key not in costs:
            costs[key] = (
                cost.step_cost(learner, shard.precision),
                cost.predict_memory(learner, len(shard.cells) + shard.padding, shard.precision),
            )
        step, memory = costs[key]
        work = step * (learner.steps * len(shard.cells))
        flops += work.flops
        largest = max(largest, memory.total)
        for name in hours:
            seconds = cost.estimate_seconds(work.flops, learner.size, name, work.bytes)
            hours[name] += (seconds or 0.0) / 3600
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
