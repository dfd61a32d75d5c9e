"""How long a whole study takes, from an empty store and an empty compilation cache.

`python -m benchmarks.studies subnetworks --preset standard`

Beside the time to the verdict stands what its programs trained, which they do one after another on
an accelerator: whoever wants a study to be faster sees whether training holds it up, or compiling
before it and reading after it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

from recombine.errors import Interrupted, RecombineError
from recombine.lab.device import device, enable_compilation_cache
from recombine.lab.progress import Watch, duration
from recombine.lab.run import Request, collect, run, study_named
from recombine.lab.session import Session
from recombine.lab.shards import Stop
from recombine.lab.store import Store
from recombine.report.study import summary_of


def timed(study: str, preset: str, minutes: float, folder: Path) -> dict:
    """One study by itself; what is not done in time is missing."""
    enable_compilation_cache(str(folder / "compiled"))
    store, request = Store.open(folder / "runs"), Request(study_named(study), preset, {})
    begun = time.monotonic()
    interrupted = False
    try:
        found = run(request, Session(store, Stop(begun + 60 * minutes), Watch(quiet=True)))
    except Interrupted:
        found, interrupted = collect(request, store), True
    taken = time.monotonic() - begun
    told = [store.provenance("cell", cell) for cell in store.ids("cell")]
    stacks = {one["shard"]["id"]: one for one in told}  # cells of a stack tell the same of it
    training = [one["training_seconds"] for one in stacks.values() if "training_seconds" in one]
    return {"study": study, "preset": preset, "device": device().kind, "cells": len(told),
            "missing": found.missing, "interrupted": interrupted, "stacks": len(stacks),
            "seconds": round(taken, 1), "training_seconds": round(sum(training), 1),
            "verdict": summary_of(found)["verdict"],
            "longest": sorted((round(t, 1) for t in training), reverse=True)[:5]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__)
    parser.add_argument("study")
    parser.add_argument("--preset", default="standard")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--json", type=Path, default=None)
    chosen = parser.parse_args()
    if not 0 < chosen.minutes < math.inf:
        parser.error(f"--minutes {chosen.minutes:g}: expected more than 0, such as 10")
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = timed(chosen.study, chosen.preset, chosen.minutes, Path(folder))
        except RecombineError as error:
            parser.error(str(error))
    print(
        f"{found['study']} at {found['preset']} on {found['device']}: "
        f"{duration(found['seconds'])} for {found['cells']} cells; "
        f"{found['stacks']} stacks trained for {duration(found['training_seconds'])}"
    )
    if found["interrupted"]:
        print(f"The time was over before all was done: {found['missing']} missing in its round.")
    else:
        print(found["verdict"])
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":  # processes that read begin with this module
    main()
