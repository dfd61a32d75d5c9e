"""Parts and grids of tasks to look for in a PyTorch module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recombine.adapters import Part

ROOT = Path(__file__).resolve().parents[2]
heavy = pytest.mark.heavy


def parts_of(torch, count=2, rows=32, **other) -> list[Part]:
    """Answer n should be the n-th input."""

    def draw(generator):
        return torch.randn(rows, 4, generator=generator)

    def part(n: int) -> Part:
        stated = {
            "draw": draw,
            "test": draw,
            "loss": lambda module, x: ((module(x)[:, n] - x[:, n]) ** 2).mean(),
            "score": lambda module, x: float(module(x)[:, n].mean()),
        }
        return Part(f"part {n}", **{**stated, **other})

    return [part(n) for n in range(count)]


def grid_of(tasks=40, modules=5, inputs=6, seed=0):
    """Two modules a task, all or nothing; the module is told which, beside an input."""
    rng = np.random.default_rng(seed)
    latents = np.zeros((tasks, modules))
    for row in latents:
        row[rng.choice(modules, 2, replace=False)] = 1
    shown = rng.normal(size=(inputs, 3))
    told = np.repeat(latents[:, None], inputs, axis=1)
    return latents, told, np.tile(shown, (tasks, 1, 1))
