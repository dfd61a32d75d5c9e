"""Files larger than memory: read all the same, or refused in one line with nothing written."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from recombine.tables.arrow import have_arrow

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux bounds the memory of a process"
)

# A small audit first: it loads what is to be loaded and starts the threads that are to be started.
# Only what is needed beyond that is bounded.
BOUNDED = """
import contextlib, io, resource, sys
from pathlib import Path
from recombine.cli import main
from recombine.tables import reading

fast, room, large, *words = sys.argv[1:]
if fast == "no":
    reading.have_arrow = lambda: False
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["audit", "small.csv", "--json"])
with open("/proc/self/status") as status:
    taken = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
limit = taken * 1024 + int(room)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    Path(large).read_bytes()
    sys.exit("the file fits in memory, so nothing is shown")
except MemoryError:
    main(["audit", large, *words])
"""

NEEDS_ARROW = (
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(not have_arrow(), reason="needs pyarrow: pip install 'recombine[analysis]'"),
)


def bounded(folder: Path, fast: str, room: int, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "small.csv").write_text("colour,shape\n" + "red,cube\nblue,ball\n" * 30)
    typed = [sys.executable, "-c", BOUNDED, fast, str(room), *words]
    # Arrow's own pool takes a gigabyte when it starts, which would hide what is needed later.
    known = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "2"}
    return subprocess.run(typed, cwd=folder, env=known, capture_output=True, text=True, check=False)


def write(path: Path, lines: Iterable[str]) -> int:
    with path.open("w") as file:
        file.write("colour,shape\n")
        file.writelines(lines)
    return path.stat().st_size


@pytest.mark.parametrize(
    ("fast", "room", "times"),
    [("no", 16 * 2**20, 2_000), pytest.param("yes", 160 * 2**20, 11_000, marks=NEEDS_ARROW)],
)
def test_a_file_larger_than_the_memory_there_is_is_audited(tmp_path, fast, room, times):
    colours, shapes = ([f"{kind}{n}" * 100 for n in range(4)] for kind in ("colour", "shape"))
    pairs = [f"{c},{s}\n" for c in colours for s in shapes if (c, s) != (colours[1], shapes[2])]
    size = write(tmp_path / "large.csv", itertools.chain(*itertools.repeat(pairs, times)))
    assert size > 1.2 * room
    done = bounded(tmp_path, fast, room, "large.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == len(pairs) * times
    assert [f["kind"] for f in found["findings"]] == ["hole"]


@pytest.mark.parametrize("fast", ["no", pytest.param("yes", marks=NEEDS_ARROW)])
def test_a_column_that_memory_cannot_hold_ends_in_one_line_and_leaves_nothing(tmp_path, fast):
    room = {"no": 16, "yes": 128}[fast] * 2**20
    names = (f"red,{n:09d}{'x' * 170}\n" for n in range(room // 100))
    assert write(tmp_path / "names.csv", names) > 1.2 * room
    done = bounded(tmp_path, fast, room, "names.csv", "--rare", "2", "--quiet", "--to", "page")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("recombine: error: names.csv: there is not enough memory")
    assert done.stderr.count("\n") == 1 and "column 'shape'" in done.stderr
    assert not (tmp_path / "page").exists()
