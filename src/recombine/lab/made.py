"""`python -m recombine.lab.made FILE` makes a material, whose request it reads, and writes it down.

What it is made from follows as `NAME=FILE`. Imports little, so that an interpreter for each
material costs little.
"""

from __future__ import annotations

import json
import sys

from safetensors.numpy import load_file, save_file

from recombine.lab.identity import revive

if __name__ == "__main__":
    pairs = (pair.split("=", 1) for pair in sys.argv[2:])
    given = {name: load_file(file) for name, file in pairs}
    save_file(revive(json.load(sys.stdin)).make_from(given), sys.argv[1])
