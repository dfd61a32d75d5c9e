"""How many training computations a second are indexed, and in how much memory.

`python -m benchmarks.subgraphs`
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator

import numpy as np

from recombine.graphs.batches import multiplication_keys, subsequence_keys
from recombine.graphs.cooccurrence import CoOccurrence
from recombine.graphs.frequency import Keys, SubgraphIndex

GRAPHS = 1_000_000
BATCH = 32_768


def run(graphs: int = GRAPHS) -> list[dict]:
    """Both indexes over products of 3 x 2 and 3 x 3 digits and lists of 5 numbers."""
    rng = np.random.default_rng(0)

    def products(width: int, height: int) -> Callable[[int], Keys]:
        x, y = ((10 ** (n - 1), 10**n) for n in (width, height))
        return lambda n: multiplication_keys(rng.integers(*x, n), rng.integers(*y, n))

    kinds: dict[str, Callable[[int], Keys]] = {
        "multiplication 3x2": products(3, 2),
        "multiplication 3x3": products(3, 3),
        "subsequence of 5": lambda n: subsequence_keys(rng.integers(-5, 6, (n, 5))),
    }
    lines = []
    for kind, draw in kinds.items():
        begun = time.perf_counter()
        strict = SubgraphIndex.of(keys.strict for keys in _batches(draw, graphs))
        middle, peak = time.perf_counter(), _peak()
        together = CoOccurrence.of(keys.local for keys in _batches(draw, graphs))
        ended = time.perf_counter()
        for notion, took, size, most in (
            ("strict", middle - begun, strict.nbytes, peak),
            ("co-occurrence", ended - middle, together.nbytes, _peak()),
        ):
            rate = graphs / took
            lines.append(
                {
                    "kind": kind,
                    "notion": notion,
                    "graphs_per_second": rate,
                    "seconds_per_million": 1e6 / rate,
                    "index_bytes": size,
                    "peak_bytes": most,
                }
            )
            print(
                f"{kind}, {notion}: {rate:,.0f} graphs/s, {1e6 / rate:.1f} s a million, index "
                f"{size / 1e6:.1f} MB, process so far {most / 1e6:.0f} MB"
            )
    return lines


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _batches(draw: Callable[[int], Keys], graphs: int) -> Iterator[Keys]:
    for start in range(0, graphs, BATCH):
        yield draw(min(BATCH, graphs - start))


if __name__ == "__main__":
    run()
