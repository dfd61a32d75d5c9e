"""How long ten million rows of twelve factors take, and how much memory.

`python -m benchmarks.tables`
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recombine.tables.arrow import have_arrow, pyarrow
from recombine.tables.reading import read_rows

ROWS, FACTORS = 10_000_000, 12
_BLOCK = 100_000
_SIZES = (3, 4, 5, 6, 8, 12, 20, 50, 1_000)


def run(rows: int = ROWS, factors: int = FACTORS) -> list[dict]:
    return measure_reading(rows, factors)


def measure_reading(rows: int = ROWS, factors: int = FACTORS) -> list[dict]:
    """Reading and coding, each in a process of its own so that its memory is its own."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for format in ("csv", "parquet") if have_arrow() else ("csv",):
            path = Path(folder) / f"rows.{format}"
            make_file(rows, factors, path, format)
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                seconds, work, peak = pool.apply(_read, (path,))
            line = {
                "format": format,
                "reader": "pyarrow" if have_arrow() else "standard library",
                "rows": rows,
                "factors": factors,
                "file_bytes": path.stat().st_size,
                "seconds": seconds,
                "cpu_seconds": work,
                "peak_bytes": peak,
            }
            lines.append(line)
            print(
                f"{rows:,} rows x {factors} factors of {format} ({line['file_bytes'] / 1e6:,.0f} "
                f"MB, {line['reader']}): {seconds:.1f} s ({work:.1f} s of work), "
                f"process {peak / 1e6:,.0f} MB",
                flush=True,
            )
            path.unlink()
    return lines


def make_file(rows: int, factors: int, path: Path, format: str) -> None:
    """A table of words (3 to 1,000 values), whole numbers and numbers with six decimals."""
    if format == "csv":
        with path.open("w") as file:
            file.write(",".join(_names(factors)) + "\n")
            for block in _blocks(rows, factors):
                columns = [map(str, column.tolist()) for column in block]
                file.writelines(",".join(cells) + "\n" for cells in zip(*columns, strict=True))
        return
    arrow, parquet, writer = pyarrow(), pyarrow("parquet"), None
    for block in _blocks(rows, factors):
        table = arrow.table([arrow.array(column) for column in block], names=_names(factors))
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=_BLOCK)
    if writer is not None:
        writer.close()


def _names(factors: int) -> list[str]:
    return [f"factor{i}" for i in range(factors)]


def _blocks(rows: int, factors: int) -> Iterator[list[np.ndarray]]:
    """Every third factor from the third on holds numbers, of 100 values or of as many as rows."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, _BLOCK):
        n = min(_BLOCK, rows - start)
        block = []
        for i in range(factors):
            if i == 2:
                block.append(np.round(rng.normal(size=n), 6))
            elif i % 3 == 2:
                block.append(rng.integers(0, 100, n))
            else:
                size = _SIZES[i % len(_SIZES)]
                block.append(
                    np.array([f"value {v}" for v in range(size)])[rng.integers(0, size, n)]
                )
        yield block


def _read(path: Path) -> tuple[float, float, int]:
    """Seconds by the clock, seconds of work on all cores, and the most memory held."""
    begun, worked = time.perf_counter(), time.process_time()
    read_rows(path, None, say=print)
    took, work = time.perf_counter() - begun, time.process_time() - worked
    return took, work, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    run()
