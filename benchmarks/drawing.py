"""How many pictures a second a trained generator draws."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

from recombine.families.scenes import Scenes
from recombine.lab.device import device
from recombine.models.diffusion import DiT
from recombine.models.sampling import sample

STEPS = 20
GUIDANCE = 2.0


def run(widths: list[int] | None = None, seconds: float = 3.0) -> list[dict]:
    """Scenes of 32 x 32 pixels, by Euler's method with guidance: two answers a step."""
    here, family = device(), Scenes()
    count = 2048 if here.accelerated else 64
    lines = []
    for width in widths or ([64, 128, 256] if here.accelerated else [64]):
        spec = DiT(width=width, heads=width // 32, patch=8)
        network = spec.draw(jax.random.key(0), code=family.modules, inputs=family.input_size,
                            outputs=family.output_size)  # fmt: skip
        codes = jnp.eye(count, family.modules)

        def draw(seed: int, network=network, codes=codes) -> jax.Array:
            return sample(network, codes, jax.random.key(seed), steps=STEPS,
                          pixels=family.pixels, guidance=GUIDANCE,
                          dtype=jnp.dtype(here.precision()))  # fmt: skip

        draw(0).block_until_ready()
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            draw(done + 1).block_until_ready()
            done += 1
        rate = done * count / (time.perf_counter() - begun)
        lines.append({"model": f"dit {spec.depth}x{width}", "pictures_per_second": rate,
                      "steps": STEPS, "batch": count, "precision": here.precision()})  # fmt: skip
        print(f"{lines[-1]['model']:<20}{rate:>12,.0f} pictures/s of {STEPS} steps", flush=True)
    return lines
