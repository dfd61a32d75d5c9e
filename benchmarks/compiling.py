"""How long compilation takes, and how long when the same shapes were compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time


def child(width: int, members: int) -> None:
    """Compiles one population in this process and prints the seconds it took."""
    from benchmarks.training import mlp
    from recombine.lab.device import device, enable_compilation_cache
    from recombine.lab.engine import Population

    enable_compilation_cache()
    learners = [mlp(width).member(seed) for seed in range(members)]
    population = Population(learners, [one.prepare({}) for one in learners], device().precision())
    begun = time.perf_counter()
    population.compile()
    print(time.perf_counter() - begun)


def run(width: int = 256, members: int = 1) -> dict[str, float]:
    """Two fresh processes that share one compilation cache, empty at first."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("first", "second"):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.compiling", str(width), str(members)],
                env={**os.environ, "RECOMBINE_CACHE": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            found[name] = float(done.stdout.split()[-1])
    print(f"compiling mlp 4x{width}, {members} member(s): {found['first']:.1f} s the first time, "
          f"{found['second']:.1f} s in a second process")  # fmt: skip
    return found


if __name__ == "__main__":
    child(int(sys.argv[1]), int(sys.argv[2]))
