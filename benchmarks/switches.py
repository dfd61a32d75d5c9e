"""What a compiler's switches cost and bring: seconds to compile and speed, one process each.

`python -m benchmarks.switches mlp:256 sequence:128 dit:64 --seconds 3 --ways plain,rewriter`
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from benchmarks import training

_REWRITER = "--xla_disable_hlo_passes=triton-softmax-rewriter"
# On a GPU, the search for tiles of a softmax takes most of the time that a transformer takes to
# compile (found by dumping every pass). Whether its kernels are worth it is measured here.
WAYS = {
    "plain": "",
    "rewriter": _REWRITER,
    "fusions": f"{_REWRITER} --xla_gpu_experimental_enable_fusion_autotuner=false",
    "unchecked": f"{_REWRITER} --xla_gpu_autotune_level=1",
    "untuned": f"{_REWRITER} --xla_gpu_autotune_level=0",
    "libraries": f"{_REWRITER} --xla_gpu_enable_triton_gemm=false",
}


def child(name: str, seconds: float) -> dict[str, float]:
    """Compiles and trains one population in this process."""
    from recombine.lab.device import device

    kind, _, width = name.partition(":")
    case = getattr(training, kind)(int(width))
    members = device().stack(case.learner.size)
    rate, compiling, _ = training.engine_speed(case, members, device().precision(), seconds)
    return {"compile_seconds": compiling, "steps_per_second": rate}


def run(names: list[str], ways: list[str], seconds: float = 3.0) -> list[dict[str, Any]]:
    """Every case in every way, without a compilation cache."""
    found = []
    for name in names:
        for way in ways:
            flags = f"{os.environ.get('XLA_FLAGS', '')} {WAYS[way]}".strip()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.switches", name, "--child", "--seconds",
                 str(seconds)],
                env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                print(f"{name:<16}{way:<12}failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            found.append({"case": name, "way": way, **json.loads(done.stdout.splitlines()[-1])})
            print(f"{name:<16}{way:<12}{found[-1]['compile_seconds']:>8.1f} s to compile"
                  f"{found[-1]['steps_per_second']:>14,.0f} model-steps/s", flush=True)  # fmt: skip
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--child", action="store_true")
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(child(chosen.names[0], chosen.seconds)))
    else:
        run(chosen.names, chosen.ways.split(","), chosen.seconds)
