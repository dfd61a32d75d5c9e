"""The sheet for a check by hand: some rows with their tags, and room for what a person reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from recombine.errors import InvalidRequest
from recombine.report.document import Table
from recombine.report.tables import _guarded, to_csv
from recombine.seeds import host_seed
from recombine.tables.rows import MISSING

ROWS = 100
SHOWN = 2000  # characters of a text
SAME, NONE_WORDS = ("ok", "same"), ("none", "missing", MISSING)
_TAG, _TRUTH = " (tag)", " (yours)"


@dataclass(frozen=True, eq=False)
class Drawn:
    """Places of the rows on a sheet, and how many rows of the file each stands for."""

    places: Int[np.ndarray, " row"]
    weights: Float[np.ndarray, " row"]


@dataclass(frozen=True)
class Line:
    """One checked row: for each factor its tag, and what a person found (None: not checked)."""

    row: str
    weight: float
    tags: Mapping[str, str]
    truths: Mapping[str, str | None]


def draw_sheet(tags: Mapping[str, Sequence[str]], rows: int = ROWS, seed: int = 0) -> Drawn:
    """Draws rows so that every tag value, and the untagged, is looked at about equally often.

    Each value of each factor is a stratum with its own draw without replacement; a row is on the
    sheet if any of them took it. Its weight is one over the chance of that, so that shares of the
    sheet can be made shares of the file.

    >>> drawn = draw_sheet({"colour": ["red"] * 90 + ["blue"] * 10}, rows=10)
    >>> len(drawn.places), int(sum(drawn.places >= 90))
    (10, 5)
    """
    coded = [np.unique(np.asarray(line, str), return_inverse=True) for line in tags.values()]
    count = len(coded[0][1]) if coded else 0
    if not count:
        raise InvalidRequest("there are no rows to check by hand")
    if rows < 1:
        raise InvalidRequest(f"rows={rows}: a sheet has at least one")
    rng = np.random.default_rng(host_seed(seed, "tags/sheet"))
    ranks, sizes = [], []
    for values, codes in coded:  # each row's place in the queue of its stratum
        queue = rng.permutation(count)
        queue = queue[np.argsort(codes[queue], kind="stable")]
        size = np.bincount(codes, minlength=len(values))
        rank = np.empty(count, np.int64)
        rank[queue] = np.arange(count) - np.repeat(np.cumsum(size) - size, size)
        ranks.append(rank)
        sizes.append(size[codes])
    first = np.min(ranks, axis=0)
    quota = int(np.sort(first)[min(rows, count) - 1]) + 1  # the smallest that is enough
    taken = first < quota
    missed = np.prod([1 - np.minimum(1.0, quota / size) for size in sizes], axis=0)
    places = np.flatnonzero(taken)
    if len(places) > rows:
        places = np.sort(rng.choice(places, rows, replace=False))
    chance = (1 - missed[places]) * len(places) / taken.sum()
    return Drawn(places, 1 / chance)


def sheet_csv(
    drawn: Drawn, texts: Sequence[str], tags: Mapping[str, Sequence[str]], names: Sequence[str]
) -> str:
    """The sheet as CSV in which no text can become a formula; `texts` are of the drawn rows."""
    columns = ["row", "weight", "text"]
    for factor in tags:
        columns += [factor + _TAG, factor + _TRUTH]
    lines = []
    for number, place in enumerate(drawn.places):
        text = texts[number]
        shown = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
        line: list[str | float] = [names[number], float(drawn.weights[number]), shown]
        for factor in tags:
            line += [tags[factor][place], ""]
        lines.append(line)
    return to_csv(Table("", columns, lines))


def read_sheet(path: str | Path) -> list[Line]:
    """Reads a sheet that a person filled in: a value, `ok` for a right tag, `none`, or nothing."""
    path = Path(path)
    try:
        cells = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{path}: {error}; save it as CSV in UTF-8") from error
    header = cells[0] if cells else []
    factors = [name.removesuffix(_TAG) for name in map(unguarded, header) if name.endswith(_TAG)]
    lost = [f + _TRUTH for f in factors if f + _TRUTH not in map(unguarded, header)]
    if not factors or lost or "weight" not in header or "row" not in header:
        raise InvalidRequest(
            f"{path} is not a sheet that `recombine tag` wrote: expected the columns row, weight, "
            f'and for each factor "name{_TAG}" and "name{_TRUTH}"; it has {", ".join(header)[:200]}'
        )
    names = [unguarded(name) for name in header]
    known = {f: _known(cells[1:], names.index(f + _TAG)) for f in factors}
    return [_line(dict(zip(names, line, strict=False)), factors, known, path, number)
            for number, line in enumerate(cells[1:], 2) if any(line)]  # fmt: skip


def _known(lines: Sequence[Sequence[str]], place: int) -> dict[str, str]:
    """Tag values without regard to case, so that Red is red."""
    values = (unguarded(line[place]) for line in lines if len(line) > place)
    return {value.strip().lower(): value for value in values}


def _line(
    cells: Mapping[str, str], factors: Sequence[str], known: Mapping[str, Mapping[str, str]],
    path: Path, number: int,
) -> Line:  # fmt: skip
    try:
        weight = float(cells["weight"])
    except (KeyError, ValueError) as error:
        raise InvalidRequest(
            f"{path}, line {number}: the weight is {cells.get('weight')!r}, expected the number "
            "that was written there"
        ) from error
    tags = {f: unguarded(cells.get(f + _TAG, "")) or MISSING for f in factors}
    truths: dict[str, str | None] = {}
    for factor in factors:
        said = unguarded(cells.get(factor + _TRUTH, "")).strip()
        word = said.lower()
        if not said:
            truths[factor] = None
        elif word in SAME and word not in known[factor]:
            truths[factor] = tags[factor]
        elif word in NONE_WORDS and word not in known[factor]:
            truths[factor] = MISSING
        else:
            truths[factor] = known[factor].get(word, said)
    return Line(cells.get("row", ""), weight, tags, truths)


def unguarded(cell: str) -> str:
    """A cell without the apostrophe that kept it from being a formula.

    >>> unguarded("'=1+1"), unguarded("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _guarded(cell[1:]) == cell else cell
