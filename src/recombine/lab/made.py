"""`python -m recombine.lab.made FILE` makes a material, whose request it reads, and writes it down.

Imports little, so that an interpreter for each material costs little.
"""

from __future__ import annotations

import json
import sys

from safetensors.numpy import save_file

from recombine.lab.identity import revive

if __name__ == "__main__":
    save_file(revive(json.load(sys.stdin)).make(), sys.argv[1])
