"""How the fracture study reads its rows: pictures by ways, and the archive's genomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from recombine.lab.statistics import least_squares
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base

Measure = Callable[[Results], Evidence]
GAP = 0.35  # of concordance, from which on a pair of networks is whole and fractured
DRAWN = 1e-3  # mean squared error to which twins of an archive's picture have to draw it
WHOLE = 0.95  # mean concordance of a network that is whole
AWAKE = "awake"  # evolution's network with fresh weights into its idle neurons


def of_picture(row: Row, name: str, control: str | None = None) -> float:
    return row.value("picture-fracture", name, control)


def bound_of(grid: Any, part: str) -> float:
    """The error above which a network of this part does not draw its picture."""
    return DRAWN if part == "genome" else grid.error


def able(results: Results, grid: Any, part: str = "picture", **labels: Any) -> Results:
    """Networks that draw their picture."""
    rows, bound = results.where(part=part, **labels), bound_of(grid, part)
    return Results([r for r in rows if not r.diverged and of_picture(r, "error") <= bound])


def left_out(results: Results, grid: Any, part: str = "picture", **labels: Any) -> str:
    rows, bound = results.where(part=part, **labels), bound_of(grid, part)
    behind = len(rows) - len(able(results, grid, part, **labels))
    return f"Left out: {behind} of {len(rows)} above an error of {bound:g}." if behind else ""


def by_picture(rows: Results, number: Callable[[Row], float]) -> dict[int, float]:
    """The mean over a picture's twins."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if np.isfinite(value := number(row)):
            found.setdefault(row.labels["picture"], []).append(value)
    return {picture: float(np.mean(values)) for picture, values in sorted(found.items())}


def drawn(grid: Any) -> Measure:
    """For each picture, the share of its twins that draw it."""

    def measure(results: Results) -> Evidence:
        rows = results.where(part="picture", source="evolved", way="descent")
        shares = by_picture(
            rows, lambda r: float(not r.diverged and of_picture(r, "error") <= grid.error)
        )
        return Evidence.of_values(base.require(np.asarray(list(shares.values())), "Pictures"))

    return measure


def gaps(
    grid: Any, results: Results, name: str, first: str, second: str, source: str = "evolved",
    symmetric: float = 0.0,
) -> tuple[dict[int, float], str]:  # fmt: skip
    """second - first for each picture, of networks that draw it, and who was left out."""
    sides = []
    for way in (first, second):
        rows = able(results, grid, source=source, way=way)
        kept = [r for r in rows if of_picture(r, "target_symmetry") >= symmetric]
        sides.append(by_picture(Results(kept), lambda r: of_picture(r, name)))
    left, right = sides
    notes = [left_out(results, grid, source=source, way=way) for way in (first, second)]
    note = " ".join(dict.fromkeys(text for text in notes if text))
    return {n: right[n] - left[n] for n in sorted(left.keys() & right.keys())}, note


def between(grid: Any, name: str, first: str, second: str, source: str = "evolved") -> Measure:
    """second - first for each picture, of networks that draw it."""

    def measure(results: Results) -> Evidence:
        found, note = gaps(grid, results, name, first, second, source)
        values = np.asarray(list(found.values()))
        return Evidence.of_values(
            base.require(values, f"{note} Pictures that both draw".strip()), note
        )

    return measure


def at_one_error(grid: Any, name: str, first: str, second: str) -> Measure:
    """second - first where both draw the picture equally well.

    Both are below the bound, but not equally far. So of each picture the difference is taken and
    the difference of log errors beside it; what is told is the first where the second is 0.
    """

    def measure(results: Results) -> Evidence:
        found, note = gaps(grid, results, name, first, second)
        errors = {way: by_picture(able(results, grid, source="evolved", way=way),
                                  lambda r: float(np.log10(max(of_picture(r, "error"), 1e-12))))
                  for way in (first, second)}  # fmt: skip
        values = np.asarray(list(found.values()))
        apart = np.asarray([errors[second][n] - errors[first][n] for n in found])
        base.require(values, f"{note} Pictures that both draw".strip())
        if np.allclose(apart, 0):
            return Evidence.of_values(values, note)
        if len(values) < 4 or np.allclose(apart, apart[0]):
            raise NotTested(f"{note} Too few pictures to compare at one error.".strip())

        def interval(level: float) -> Any:
            return least_squares(values, apart[:, None], ["log error"], level=level)[
                "intercept"
            ].interval

        told = (
            f"As it is {values.mean():.2f}, at {10 ** apart.mean():.2g} times the error (geometric "
            "mean)."
        )
        return Evidence.of_interval(interval, f"{note} {told}".strip())

    return measure


def whole(grid: Any, symmetric: float = 0.0) -> Measure:
    """How much more concordant evolution's networks are than their twins.

    Not told where genomes that nobody selected differ from their twins as much: a network of few
    neurons is more symmetric than a full one whoever made it.
    """

    def measure(results: Results) -> Evidence:
        (found, note), (other, _) = (
            gaps(grid, results, "concordance", "descent", "evolved", source, symmetric)
            for source in ("evolved", "unselected")
        )
        kind = " so symmetric" if symmetric else ""
        values = np.asarray(list(found.values()))
        base.require(values, f"{note} Pictures{kind} that both draw".strip())
        chance = base.require(
            np.asarray(list(other.values())), f"Pictures{kind} that nobody selected"
        ).mean()
        if chance >= GAP:
            raise NotTested(
                f"{values.mean():.2f}; but genomes of like size that nobody selected differ from "
                f"their twins by {chance:.2f} too: the difference tells of size."
            )
        return Evidence.of_values(values, f"{note} Unselected genomes: {chance:.2f}.".strip())

    return measure


def beyond_size(grid: Any, name: str) -> Measure:
    """evolved - descent, less the same for the unselected genome of like size."""

    def measure(results: Results) -> Evidence:
        (found, note), (other, more) = (
            gaps(grid, results, name, "descent", "evolved", source)
            for source in ("evolved", "unselected")
        )
        both = sorted(found.keys() & other.keys())
        values = np.asarray([found[n] - other[n] for n in both])
        note = f"{note} {f'Unselected: {more}' if more else ''}".strip()
        base.require(values, f"{note} Pairs of pictures that all draw".strip())
        means = (float(np.mean([side[n] for n in both])) for side in (found, other))
        told = "Evolved {:.2f}, unselected {:.2f}.".format(*means)
        return Evidence.of_values(values, f"{note} {told}".strip())

    return measure


def over_untrained(grid: Any, name: str = "concordance", ratio: bool = False) -> Measure:
    """Networks trained by descent beside their untrained twins, for each picture."""

    def change(row: Row) -> float:
        after, before = of_picture(row, name), of_picture(row, name, "untrained")
        return after / before if ratio else after - before

    def measure(results: Results) -> Evidence:
        rows = able(results, grid, source="evolved", way="descent")
        values = np.asarray(list(by_picture(rows, change).values()))
        notes = [left_out(results, grid, source="evolved", way="descent")]
        if ratio and len(values):
            ends = able(results, grid, source="evolved", way="evolved")
            means = [by_picture(side, lambda r: of_picture(r, name)) for side in (rows, ends)]
            both = [means[0][n] / means[1][n] for n in means[0].keys() & means[1].keys()]
            notes += [f"{np.mean(both):.1f} times those of evolution's networks."] if both else []
        note = " ".join(text for text in notes if text)
        return Evidence.of_values(base.require(values, f"{note} Pictures".strip()), note)

    return measure


def directed_error(grid: Any) -> Measure:
    """log10 of how many times the error of descent is."""

    def measure(results: Results) -> Evidence:
        rows = results.where(part="picture", source="evolved", way="descent")
        trained = by_picture(
            Results([r for r in rows if not r.diverged]),
            lambda r: float(np.log10(max(of_picture(r, "error"), 1e-12))),
        )
        told = {r.labels["picture"]: last_error(r) for r in results.where(part="directed")}
        both = sorted(trained.keys() & told.keys())
        values = np.asarray([np.log10(max(told[n], 1e-12)) - trained[n] for n in both])
        return Evidence.of_values(base.require(values, "Pictures"))

    return measure


def last_error(row: Row) -> float:
    return float(row.curve("error")[1][-1])


def archived(grid: Any, genome: str) -> Callable[..., Measure]:
    """A number of the twins of an archive's picture, as it is or as a ratio.

    The ratio is to the number of the archive's network, or to that of each twin before training.
    """

    def named(name: str, over: Literal["archive", "untrained"] | None = None) -> Measure:
        def measure(results: Results) -> Evidence:
            rows = _archive(grid, results, genome)
            if name == "error":
                twins = [r for r in rows.where(way="descent") if not r.diverged]
                values = np.asarray([of_picture(r, "error") for r in twins])
                return Evidence.of_values(base.require(values, "Twins"))
            own = rows.where(way="evolved")[0]
            note = f"{_symmetric_maps(own)} {left_out(rows, grid, 'genome', way='descent')}".strip()
            twins = able(rows, grid, "genome", way="descent")
            values = np.asarray([of_picture(r, name) for r in twins])
            base.require(values, f"{note} Twins that draw it")
            begun = np.asarray([of_picture(r, name, "untrained") for r in twins])
            if over == "untrained":
                times = float(np.mean(values)) / of_picture(own, name)
                told = f"{times:.1f} times that of the archive's network."
                return Evidence.of_values(values / begun, f"{note} {told}")
            if of_picture(own, "concordance") < WHOLE:
                raise NotTested(f"{note} That is not whole: nothing to be compared with.")
            if over is None:
                return Evidence.of_values(values, note)
            values, begun = (side / of_picture(own, name) for side in (values, begun))
            return Evidence.of_values(values, f"{note} Untrained twins: {begun.mean():.1f} times.")

        return measure

    return named


def _symmetric_maps(row: Row) -> str:
    """The archive has one network: its maps are counted, and no interval is over them."""
    maps = np.asarray(row.readings["picture-fracture"].tables["maps"]["concordance"])
    return (
        f"Of the {len(maps)} distinct maps of the archive's network {np.sum(maps > WHOLE)} are "
        f"symmetric (mean concordance {maps.mean():.2f})."
    )


def _archive(grid: Any, results: Results, genome: str) -> Results:
    if genome not in grid.genomes:
        raise NotTested(f"Not tested at this size: genomes={genome} is part of preset standard.")
    rows = results.where(part="genome", source=genome)
    if not rows.where(way="evolved"):
        raise NotTested(f"The genome of {genome} is not here: recombine data get picbreeder.")
    return rows
