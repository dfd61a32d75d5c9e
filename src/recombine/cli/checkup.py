"""The doctor: what this machine has, and how fast it multiplies."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from recombine.lab.device import device, versions


def document() -> dict[str, Any]:
    import jax

    here = device()
    precision = here.precision()
    return {
        "python": __import__("platform").python_version(),
        "versions": versions(),
        "device": asdict(here),
        "devices": [str(one) for one in jax.devices()],
        "precision": precision,
        "members_per_stack": {f"4x{w}": here.stack(w * w * 3) for w in (128, 256, 1024)},
        "matmul_ceiling_flops": ceiling(precision, 4096 if here.accelerated else 1536),
    }


def ceiling(precision: str, size: int) -> float:
    """The best rate of a plain product, in FLOP/s."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (size, size), jnp.dtype(precision))
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best = 0.0
    for _ in range(3):
        begun = time.perf_counter()
        jax.block_until_ready([product(a) for _ in range(3)])
        best = max(best, 3 * 2 * size**3 / (time.perf_counter() - begun))
    return best


def lines(found: dict[str, Any]) -> list[str]:
    return [
        f"python {found['python']}, "
        + ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        f"device: {found['device']['kind']} ({found['device']['platform']}), "
        f"{found['device']['cores']} cores visible, {len(found['devices'])} device(s)",
        f"students' products run in {found['precision']}",
        "members trained at once: "
        + ", ".join(f"{n} of {name}" for name, n in found["members_per_stack"].items()),
        f"matmul ceiling: {found['matmul_ceiling_flops'] / 1e12:.3f} TFLOP/s",
    ]
