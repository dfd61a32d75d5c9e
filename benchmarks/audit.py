"""How long an audit of ten million rows takes from file to page, and in how much memory.

`python -m benchmarks.audit`
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.tables import make_file
from recombine.audits.auditing import Asked, audit
from recombine.audits.page import document_of, report_of
from recombine.report.html import render
from recombine.tables.arrow import have_arrow
from recombine.tables.reading import read_rows
from recombine.tables.rows import Factor, Rows

ROWS, FACTORS = 10_000_000, 12
TRAINED, EVALUATED = 2_000_000, 200_000
SIZES = (3, 4, 5, 6, 8, 5, 10, 4, 3, 5, 2, 6)


def run(rows: int = ROWS, factors: int = FACTORS) -> list[dict]:
    return [*measure_files(rows, factors), measure_evaluated()]


def measure_files(rows: int = ROWS, factors: int = FACTORS) -> list[dict]:
    """From a file to a page: values to four values together, holes, parts, association."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for format in ("parquet", "csv") if have_arrow() else ("csv",):
            path = Path(folder) / f"rows.{format}"
            make_file(rows, factors, path, format)
            reader = "pyarrow" if have_arrow() else "standard library"
            what = f"{rows:,} rows x {factors} factors of {format} ({reader})"
            lines.append(_alone(what, _from_file, path))
            path.unlink()
    return lines


def measure_evaluated(trained: int = TRAINED, evaluated: int = EVALUATED) -> dict:
    """With evaluated rows: slices, and a risk that is validated on held-out combinations."""
    what = f"{trained:,} training rows and {evaluated:,} evaluated ones x {len(SIZES)} factors"
    return _alone(what, _from_memory, trained, evaluated)


def _from_file(path: Path) -> str:
    found = audit(read_rows(path, None))
    document_of(found)
    render(report_of(found))
    return found.sentence()


def _from_memory(trained: int, evaluated: int) -> str:
    train, others = _drawn(trained, 0), _drawn(evaluated, 1)
    first, second = (train.factors[f].codes for f in (0, 1))
    train = train.take((first != 0) | (second != 1))  # a hole, in which half of all rows fail
    first, second = (others.factors[f].codes for f in (0, 1))
    chance = np.where((first == 0) & (second == 1), 0.5, 0.05)
    right = (np.random.default_rng(2).random(evaluated) >= chance).astype(float)
    found = audit(train, Asked(evaluation=others, outcome=right))
    render(report_of(found))
    return found.sentence()


def _drawn(rows: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(
        "drawn",
        tuple(
            Factor(f"factor {i}", tuple(map(str, range(n))), rng.integers(0, n, rows, np.uint8))
            for i, n in enumerate(SIZES)
        ),
    )


def _alone(what: str, work: Callable[..., str], *given: object) -> dict:
    """Measured in a process of its own, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, busy, peak, sentence = pool.apply(_measured, (work, given))
    print(
        f"{what}: {seconds:.1f} s ({busy:.1f} s of work), process {peak / 1e6:,.0f} MB. {sentence}",
        flush=True,
    )
    return {"what": what, "seconds": seconds, "cpu_seconds": busy, "peak_bytes": peak}


def _measured(work: Callable[..., str], given: tuple) -> tuple[float, float, int, str]:
    """Seconds by the clock, seconds of work on all cores, the most memory held, the answer."""
    begun, worked = time.perf_counter(), time.process_time()
    sentence = work(*given)
    took, busy = time.perf_counter() - begun, time.process_time() - worked
    return took, busy, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, sentence


if __name__ == "__main__":
    run()
