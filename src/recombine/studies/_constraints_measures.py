"""What the claims of the study of constraints measure, for each seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.lab.statistics import Interval, mean_interval, p_value_against
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base
from recombine.studies import _constraints as parts

if TYPE_CHECKING:
    from recombine.studies.constraints import Grid

PUBLISHED = (0.50, 0.65)  # where the share of satisfied constraints is said to stay
QUARTER = 0.25


def models(results: Results, tasks: Sequence[str]) -> tuple[list[Row], str]:
    """Networks of all sizes, trained to the end, that may speak; and how many may not, by task."""
    rows = [r for r in results.where(length=1.0) if r.labels["task"] in tasks and not r.diverged]
    able = [row for row in rows if parts.learnt(row)]
    behind = Counter(row.labels["task"] for row in rows if not parts.learnt(row))
    if not behind:
        return able, ""
    which = ", ".join(f"{number} of {task}" for task, number in behind.most_common())
    return able, f"Left out: {behind.total()} of {len(rows)} below the floor ({which})."


def by_seed(
    tasks: Sequence[str], number: Callable[[list[Row]], float]
) -> Callable[[Results], Evidence]:
    """A number of all networks of a seed that learnt their task."""

    def measure(results: Results) -> Evidence:
        rows, note = models(results, tasks)
        values = [
            number([row for row in rows if row.labels["seed"] == seed])
            for seed in sorted({row.labels["seed"] for row in rows})
        ]
        found = np.asarray([value for value in values if np.isfinite(value)])
        return Evidence.of_values(base.require(found, "Seeds", note=note), note)

    return measure


def mean_of(metric: str) -> Callable[[list[Row]], float]:
    return lambda rows: float(np.mean([parts.seen(row, metric) for row in rows]))


def inside(rows: list[Row]) -> float:
    low, high = PUBLISHED
    return float(np.mean([low <= parts.seen(row, "micro") <= high for row in rows]))


def by_task(rows: list[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.labels["task"], []).append(row)
    return {task: some for task, some in found.items() if len(some) > 1}


def spread(rows: list[Row]) -> float:
    found = [np.ptp([parts.seen(row, "micro") for row in some]) for some in by_task(rows).values()]
    return float(max(found, default=np.nan))


def slope(rows: list[Row]) -> float:
    """Of the share of satisfied constraints on log10 of the parameters, within tasks."""
    x: list[float] = []
    y: list[float] = []
    for some in by_task(rows).values():
        size = np.log10([row.labels["parameters"] for row in some])
        share = np.asarray([parts.seen(row, "micro") for row in some])
        x += list(size - size.mean())
        y += list(share - share.mean())
    return float(np.dot(x, y) / np.dot(x, x)) if np.dot(x, x) > 0 else float("nan")


def null_over_network(rows: list[Row]) -> float:
    def above(row: Row) -> float:
        best = max(parts.seen(row, "micro", name) for name in ("guess", "noise"))
        return best - parts.seen(row, "micro")

    return float(np.mean([above(row) for row in rows]))


def no_competence(tasks: Sequence[str]) -> Callable[[Results], Evidence]:
    """What null answers satisfy on the instances of each seed, mean over tasks."""

    def measure(results: Results) -> Evidence:
        found: dict[int, dict[str, float]] = {}
        for row in results.where(length=1.0):
            if row.labels["task"] in tasks:
                # The same instances for networks of all sizes.
                best = max(parts.seen(row, "micro", name) for name in ("guess", "noise"))
                found.setdefault(row.labels["seed"], {})[row.labels["task"]] = best
        values = [float(np.mean(list(each.values()))) for each in found.values()]
        return Evidence.of_values(base.require(np.asarray(values), "Seeds"))

    return measure


def copied_over_network(rows: list[Row]) -> float:
    above = [parts.seen(row, "micro", "copied") - parts.seen(row, "micro") for row in rows]
    return float(np.mean(above))


def rises_with_size(grid: Grid, task: str) -> Callable[[Results], Evidence]:
    """The rise of feasibility from the smallest network to the largest, both of which learnt."""

    def measure(results: Results) -> Evidence:
        rows, note = models(results, (task,))
        first, second = {"width": min(grid.width)}, {"width": max(grid.width)}
        if first == second:
            raise NotTested("Needs two sizes.")
        return _risen(Results(rows), first, second, note)

    return measure


def rises_with_training(grid: Grid, task: str) -> Callable[[Results], Evidence]:
    """The same from the shortest training to the longest, of which only the latter must suffice."""

    def measure(results: Results) -> Evidence:
        pair = _lengths(grid, results, (task,), min(grid.length, default=1.0))
        if pair is None:
            raise NotTested("Needs two lengths of training.")
        first, second, rows = pair
        return _risen(rows, first, second, _left_out(grid, results, (task,)))

    return measure


def _risen(
    rows: Results, first: Mapping[str, Any], second: Mapping[str, Any], note: str
) -> Evidence:
    """Of one task, by seed: picking the task by its rise would flatter the interval."""
    rises = rows.paired("seed", first, second, parts.strict)
    return Evidence.of_values(
        base.require(rises, "Seeds with networks at both ends", note=note), note
    )


def thinking(results: Results) -> Evidence:
    """Thinking minus answering at once, instance by instance: no network here thinks."""
    raise NotTested(
        "Networks here write their answer at once. Needs a live model that answers the same "
        "instances with and without thinking first: recombine constraints --endpoint with "
        "--against."
    )


def _left_out(grid: Grid, results: Results, tasks: Sequence[str]) -> str:
    """How many networks of the middle size did not learn, and are left out at every length."""
    return models(results.where(width=grid.middle), tasks)[1]


def error_falls(grid: Grid, tasks: Sequence[str]) -> Callable[[Results], Evidence]:
    """How many times smaller the error becomes, the geometric mean over tasks for each seed."""

    def measure(results: Results) -> Evidence:
        def log_error(row: Row) -> float:
            readable = parts.seen(row, "parsed") >= parts.READABLE
            # Where all answers are right to the last digit, the error is that of rounding.
            error = max(parts.seen(row, "squared_error"), parts.LEAST_ERROR)
            return float(np.log(error)) if readable else float("nan")

        logs = -_over_tasks(grid, results, tasks, log_error)

        def interval(level: float) -> Interval:
            found = mean_interval(logs, level=level)
            times, low, high = np.exp([found.estimate, found.low, found.high])
            method = f"{found.method}, of logarithms"
            return Interval(float(times), float(low), float(high), found.units, method, level)

        against = lambda bound: p_value_against(logs, float(np.log(bound)))  # noqa: E731
        return Evidence(interval, against, _left_out(grid, results, tasks))

    return measure


def feasibility_follows(grid: Grid, tasks: Sequence[str]) -> Callable[[Results], Evidence]:
    return lambda results: Evidence.of_values(
        _over_tasks(grid, results, tasks, parts.strict), _left_out(grid, results, tasks)
    )


def _lengths(
    grid: Grid, results: Results, tasks: Sequence[str], short: float
) -> tuple[dict[str, Any], dict[str, Any], Results] | None:
    """The middle size at a short length and at the whole one, where the latter has learnt."""
    rows = results.where(width=grid.middle)
    able = {(r.labels["task"], r.labels["seed"]) for r in models(results, tasks)[0]
            if r.labels["width"] == grid.middle}  # fmt: skip
    kept = [r for r in rows if (r.labels["task"], r.labels["seed"]) in able]
    return ({"length": short}, {"length": 1.0}, Results(kept)) if short < 1 else None


def _over_tasks(
    grid: Grid, results: Results, tasks: Sequence[str], number: Callable[[Row], float]
) -> np.ndarray:
    """From a quarter of the training to all of it, for each seed, mean over tasks."""
    if QUARTER not in grid.length:
        raise NotTested(f"Needs networks trained for {QUARTER:g} of the steps.")
    pair = _lengths(grid, results, tasks, QUARTER)
    assert pair is not None
    first, second, rows = pair
    found = []
    for seed in rows.labels("seed"):
        each = [rows.where(seed=seed, task=task).paired("seed", first, second, number)
                for task in tasks]  # fmt: skip
        if len(joined := np.concatenate(each)):
            found.append(float(joined.mean()))
    note = _left_out(grid, results, tasks)
    return base.require(np.asarray(found), "Seeds with readable answers", note=note)
