"""`python -m benchmarks [--json FILE] [--widths 128,1024] [--seconds 8]`"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import compiling, convolving, drawing, memory, startup, subgraphs, training, writing
from recombine.lab.device import enable_compilation_cache


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--widths", default="")
    parser.add_argument("--seconds", type=float, default=None)
    chosen = parser.parse_args()
    enable_compilation_cache()
    widths = [int(w) for w in chosen.widths.split(",") if w] or None
    found = {
        "startup": startup.run(),
        "compiling": compiling.run(),
        "training": training.run(widths, chosen.seconds),
        "memory": memory.run(),
        "convolving": convolving.run(),
        "drawing": drawing.run(),
        "writing": writing.run(),
        "subgraphs": subgraphs.run(),
    }
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
