"""Fewer combinations for the same coverage: rows are taken away and the rest is mended."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from recombine.collecting.problem import Problem
from recombine.tables.rows import NONE

WORK = 25_000_000  # cells looked at while mending: a number, not a time, so that plans repeat
MOVE = 5_000  # the cost of a move that looks at no cell, in the same unit
PATIENCE = 8  # moves for which a place that was just changed stays as it is, at most


def fewest(problem: Problem) -> int:
    """A number of combinations below which nothing covers all that is lacking."""
    inter, required = problem.needs.interactions, _required(problem)
    rows = 0
    choices = np.bincount(inter.table_of, minlength=len(inter.tables))
    ends = [*inter.starts[1:], inter.size - 1]
    for start, end, times in zip(inter.starts, ends, choices, strict=True):
        rows = max(rows, -(-int(required[start:end].sum()) // int(times)))
    return rows


def without_spare(
    problem: Problem, matrix: Int[np.ndarray, "row place"]
) -> Int[np.ndarray, "row place"]:
    """The combinations less those whose every interaction the others cover too."""
    cells = problem.needs.interactions.cells(matrix)
    required = _required(problem)
    counts = np.bincount(cells.ravel(), minlength=len(required))
    keep = np.ones(len(matrix), bool)
    for row in range(len(matrix) - 1, -1, -1):
        if (counts[cells[row]] > required[cells[row]]).all():
            keep[row] = False
            np.subtract.at(counts, cells[row], 1)
    return matrix[keep]


def shrunk(
    problem: Problem,
    matrix: Int[np.ndarray, "row place"],
    generator: np.random.Generator,
    work: float = WORK,
) -> Int[np.ndarray, "row place"]:
    """A smaller set of combinations that covers as much, where one is found.

    A row is taken away; then values are changed, one interaction at a time, until all that is
    lacking is covered again. A change that has just been made is not undone at once (tabu
    search), so the search leaves places where no single change helps.
    """
    best = without_spare(problem, matrix)
    least, left = fewest(problem), work
    while len(best) > least and left > 0:
        mended, left = _mended(problem, _one_less(problem, best), generator, left)
        if mended is None:
            break
        best = without_spare(problem, mended)
    return best


def _required(problem: Problem) -> Int[np.ndarray, "cell"]:
    """How many combinations each interaction still needs."""
    return -(-problem.needs.lack // problem.per_combination)


def _one_less(problem: Problem, matrix: np.ndarray) -> np.ndarray:
    """Without the row that fewest interactions depend on."""
    cells = problem.needs.interactions.cells(matrix)
    required = _required(problem)
    counts = np.bincount(cells.ravel(), minlength=len(required))
    needed = ((counts <= required) & (required > 0))[cells].sum(1)
    return np.delete(matrix, int(needed.argmin()), axis=0)


def _mended(
    problem: Problem, matrix: np.ndarray, generator: np.random.Generator, work: float
) -> tuple[np.ndarray | None, float]:
    """The rows with values changed until nothing is lacking; None once the work is spent."""
    inter, required = problem.needs.interactions, _required(problem)
    matrix, rows = matrix.copy(), np.arange(len(matrix))
    cells = inter.cells(matrix)
    # What nobody needs can be spared for ever.
    spare = np.bincount(cells.ravel(), minlength=inter.size) - required
    spare[required == 0] = 2**40
    missing = {int(c) for c in np.flatnonzero(spare < 0)}
    free_at = np.zeros(matrix.shape, np.int64)  # the move from which a place may change again
    near: dict[int, np.ndarray] = {}
    starts, move = np.array(inter.starts), 0
    by_table = [np.flatnonzero(inter.table_of == t) for t in range(len(inter.tables))]
    while missing:
        move += 1
        listed = list(missing)
        cell = listed[int(generator.integers(len(listed)))]
        table = int(np.searchsorted(starts, cell, side="right")) - 1
        choice = int(by_table[table][int(generator.integers(len(by_table[table])))])
        places = inter.chosen[choice][: len(inter.tables[table])]
        if choice not in near:
            near[choice] = np.unique(np.concatenate([inter.holding[p] for p in places]))
        which = near[choice]
        work -= MOVE + len(rows) * len(which)
        if work < 0:
            return None, 0.0
        changed = matrix.copy()
        changed[:, places] = inter.codes(choice, np.array([cell]))[0]
        before, after = cells[:, which], inter.cells(changed, which)
        differs = before != after
        gain = (differs & (spare[after] < 0)).sum(1)
        loss = (differs & (spare[before] <= 0)).sum(1)
        barred = ((free_at[:, places] > move) & (matrix[:, places] != changed[:, places])).any(1)
        barred |= ~problem.permits.rows(changed) | _twice(problem, changed)
        score = np.where(barred, -(10.0**9), gain - loss) + 0.5 * generator.random(len(rows))
        row = int(score.argmax())
        if score[row] < -(10**8):
            continue
        moved = places[matrix[row, places] != changed[row, places]]
        free_at[row, moved] = move + 1 + int(generator.integers(PATIENCE))
        touched = np.concatenate([before[row][differs[row]], after[row][differs[row]]])
        np.subtract.at(spare, before[row][differs[row]], 1)
        np.add.at(spare, after[row][differs[row]], 1)
        matrix[row], cells[row, which] = changed[row], after[row]
        short = spare[touched] < 0
        missing.update(int(c) for c in touched[short])
        missing.difference_update(int(c) for c in touched[~short])
    return matrix, work


def _twice(problem: Problem, matrix: np.ndarray) -> np.ndarray:
    """Rows whose lists hold a value twice."""
    space, found = problem.space, np.zeros(len(matrix), bool)
    for name in space.lists:
        codes = np.sort(matrix[:, space.places == space.names.index(name)], axis=1)
        found |= ((np.diff(codes, axis=1) == 0) & (codes[:, 1:] != NONE)).any(1)
    return found
