"""How long a person waits before anything happens: importing, and listing what there is."""

from __future__ import annotations

import subprocess
import sys
import time


def seconds(*command: str, repeats: int = 5) -> float:
    """The best of several runs of a fresh process."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - begun)
    return best


def run() -> dict[str, float]:
    bare = seconds(sys.executable, "-c", "pass")
    found = {
        "import recombine": seconds(sys.executable, "-c", "import recombine") - bare,
        "recombine list": seconds(sys.executable, "-m", "recombine", "list"),
    }
    for name, value in found.items():
        print(f"{name}: {value:.2f} s")
    return found
