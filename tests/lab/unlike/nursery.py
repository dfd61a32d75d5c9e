"""The tests' side of unlike/child.py: jobs go in, ends come out; and what a store then holds."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Nursery:
    """Runs jobs in children of a process that has imported everything; see child.py."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.numbers = itertools.count()
        before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths = [str(Path(__file__).parents[1]), *before]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unlike.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )  # fmt: skip

    def run(self, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
        """Runs the jobs at once and says how each of them ended."""
        assert self.process.stdin and self.process.stdout
        placed = [{**job, "folder": str(self.folder / str(next(self.numbers)))} for job in jobs]
        print(json.dumps(placed), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, "the nursery died"
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def committed(store: Path) -> dict[str, bytes]:
    """Every committed byte, without what is allowed to differ: dates, durations, hosts."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for top in ("nodes", "reports")
        for path in sorted((store / top).rglob("*"))
        if path.is_file() and path.name != "provenance.json"
    }
