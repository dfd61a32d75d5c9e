"""How long counting every choice of t factors takes, and in how much memory.

`python -m benchmarks.counting`
"""

from __future__ import annotations

import math
import resource
import time

import numpy as np

from recombine.tables.counting import combinations, count_all
from recombine.tables.rows import Factor, Rows

ROWS = 10_000_000
FACTORS, VALUES = 12, 5


def run(length: int = ROWS) -> list[dict]:
    """Twelve independent factors of five values, where hardly two rows are alike."""
    rng = np.random.default_rng(0)
    values = tuple(map(str, range(VALUES)))
    factors = tuple(
        Factor(f"factor {i}", values, rng.integers(0, VALUES, length, np.uint8))
        for i in range(FACTORS)
    )
    rows = Rows("drawn", factors)
    lines = []

    def measured(what: str, tables: int, begun: float) -> None:
        seconds, peak = time.perf_counter() - begun, _peak()
        lines.append({"what": what, "rows": length, "tables": tables, "seconds": seconds,
                      "peak_bytes": peak})  # fmt: skip
        print(
            f"{what}, {length:,} rows: {tables} tables in {seconds:.2f} s, "
            f"process so far {peak / 1e6:.0f} MB"
        )

    for t in (1, 2, 3, 4):
        begun = time.perf_counter()
        tables = sum(1 for _ in count_all(rows, t))
        assert tables == math.comb(FACTORS, t)
        measured(f"counting t = {t}", tables, begun)
    begun = time.perf_counter()
    combinations(rows)
    measured("different combinations", 1, begun)
    return lines


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    run()
