"""What the claims of the study `construction` measure, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.instruments.decodability import last_hidden
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base

# The square is cut into so few pieces below this that its error is not yet that of a parabola.
COARSE = 4
FIRST = "layer1/after"
COUNT = "A count, not an estimate."
WRITTEN = {"start": "written", "trained": False}
PLAIN = {"family": "subsets", "encoding": "identity", "method": "segments", **WRITTEN}


def sup(row: Row) -> float:
    return row.value("exactness", "sup")


def bound(row: Row) -> float:
    return row.value("exactness", "bound")


def deepest(row: Row, control: str | None = None) -> float:
    """Probe R² in the deepest hidden layer after its activation."""
    reading = row.readings.get("decodability")
    if reading is None:
        return float("nan")
    return row.value("decodability", last_hidden(reading.values), control)


def by_seed(results: Results, labels: dict[str, Any], number: Callable[[Row], float]) -> np.ndarray:
    """One number a seed of the networks with these labels."""
    rows = base.require_labels(results, **labels)
    return np.asarray([number(row) for row in rows if not row.diverged])


def score(labels: dict[str, Any], number: Callable[[Row], float]) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        return Evidence.of_values(by_seed(results, labels, number))

    return measure


def difference(
    second: dict[str, Any], first: dict[str, Any], number: Callable[[Row], float], *, trained: bool
) -> Callable[[Results], Evidence]:
    """second - first, paired by seed; if `trained`, of networks that learnt their tasks."""

    def measure(results: Results) -> Evidence:
        chosen = base.trained(results) if trained else results
        found = chosen.paired("seed", first, second, number)
        both = Results([*results.where(**first), *results.where(**second)])
        if trained:
            wanted, note = "Seeds where both learnt their tasks", base.left_out(both)
        else:
            behind = sum(base.seen(row) < base.SEEN_FLOOR for row in both)
            wanted, note = "Seeds with both", f"{behind} of {len(both)} undertrained, kept."
        return Evidence.of_values(base.require(found, wanted), note)

    return measure


def slope(points: Sequence[tuple[float, float]]) -> float:
    x, y = np.log2(np.asarray(points, float)).T
    return float(np.polyfit(x, y, 1)[0])


def slopes(
    results: Results, family: str, x: Callable[[Row], float], y: Callable[[Row], float]
) -> np.ndarray:
    """Per seed: the slope over the resolutions that are fine enough."""
    rows = [
        row for row in results.where(**{**PLAIN, "family": family})
        if row.labels["segments"] >= COARSE and row.labels["modules"] == _fewest(results)
    ]  # fmt: skip
    if len({row.labels["segments"] for row in rows}) < 2:
        raise NotTested(f"Needs two resolutions of at least {COARSE} segments.")
    seeds = sorted({row.labels["seed"] for row in rows})
    return np.asarray(
        [slope([(x(row), y(row)) for row in rows if row.labels["seed"] == s]) for s in seeds]
    )


def _fewest(results: Results) -> int:
    return min(results.labels("modules"))


def error_slope(family: str) -> Callable[[Results], Evidence]:
    return lambda results: Evidence.of_values(
        slopes(results, family, lambda row: row.labels["segments"], sup)
    )


def size_slope(results: Results) -> Evidence:
    return Evidence.of_values(slopes(results, "subsets", bound, lambda row: row.labels["units"]))


PROMISED = 0.2  # the least share that a promise must speak of


def within_bound(results: Results) -> Evidence:
    """Per seed: the share of written networks whose largest error their bound allows."""
    rows = base.require_labels(results, **WRITTEN)
    left = {s: [1 - sup(r) / bound(r) for r in rows.where(seed=s)] for s in rows.labels("seed")}
    return Evidence.of_values(
        [float(np.mean(np.asarray(own) >= 0)) for own in left.values()],
        f"{len(rows)} networks; the least share of a bound left over is "
        f"{min(map(min, left.values())):.2f}.",
    )


def error_ratio(above: dict[str, Any], below: dict[str, Any]) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        if above == below:
            raise NotTested("Needs two numbers of modules.")
        logs = results.paired("seed", below, above, lambda row: math.log(sup(row)))
        return Evidence.of_values(np.exp(base.require(logs, "Seeds with both")))

    return measure


def more_units(
    first: dict[str, Any], second: dict[str, Any], share: int
) -> Callable[[Results], Evidence]:
    """Neurons that the second needs more, shared out; a count, the same for every teacher."""

    def measure(results: Results) -> Evidence:
        if first == second:
            raise NotTested("Needs two numbers of modules.")
        found = results.paired("seed", first, second, lambda row: row.labels["units"])
        return Evidence.of_values(base.require(found, "Seeds with both") / share, COUNT)

    return measure


def depth_ratio(wide: dict[str, Any], squarings: int) -> Callable[[Results], Evidence]:
    """Neurons of the deep construction over those of the wide one, at equal resolution."""

    def measure(results: Results) -> Evidence:
        if 2 ** (squarings + 1) != wide["segments"] or squarings < 2:
            raise NotTested(
                f"Needs squarings of at least 2, and as many as 2^(squarings + 1) segments: "
                f"got {squarings} and {wide['segments']}."
            )
        deep = {**wide, "method": "depth"}
        units = [by_seed(results, where, lambda row: row.labels["units"]) for where in (deep, wide)]
        return Evidence.of_values(units[0] / units[1], COUNT)

    return measure


def probe_beyond_random(
    written: dict[str, Any], shaped: dict[str, Any]
) -> Callable[[Results], Evidence]:
    """Against random weights: the first ones of the network that is trained from them."""

    def first(row: Row) -> float:
        control = "untrained" if row.labels["trained"] else None
        return row.value("decodability", FIRST, control)

    def measure(results: Results) -> Evidence:
        found = results.paired("seed", shaped, written, first)
        return Evidence.of_values(base.require(found, "Seeds with both"))

    return measure


def promise_kept(*, trained: bool) -> Callable[[Results], Evidence]:
    """Per seed: the share of networks whose answers give away what the theorem says they must."""

    def measure(results: Results) -> Evidence:
        rows = [
            row for row in results.where(trained=trained)
            if "function-decoder" in row.readings and not row.diverged
        ]  # fmt: skip
        if not rows:
            raise NotTested("Needs a family whose tasks can be listed.")
        # A network that is mostly wrong is promised nothing, which anything would keep.
        rows = [row for row in rows if row.value("function-decoder", "promised") >= PROMISED]
        if not rows:
            raise NotTested(f"No network is right often enough to be promised {PROMISED:g}.")
        margins: dict[int, list[float]] = {}
        for row in rows:
            found = row.value("function-decoder", "margin")
            margins.setdefault(row.labels["seed"], []).append(found)
        least = min(map(min, margins.values()))
        return Evidence.of_values(
            [float(np.mean(np.asarray(own) >= 0)) for own in margins.values()],
            f"{len(rows)} networks are promised at least {PROMISED:g}; the least share recovered "
            f"beyond the promise is {least:.3f}.",
        )

    return measure
