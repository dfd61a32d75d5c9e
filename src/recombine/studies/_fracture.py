"""How the fracture study reads its rows: pictures by ways, siblings, genomes and students."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from recombine.lab.statistics import within_group_correlation
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base

Measure = Callable[[Results], Evidence]
LEAST = 10.0  # steps between looks: what took fewer is not told apart


def of_picture(row: Row, name: str, control: str | None = None) -> float:
    return row.value("picture-fracture", name, control)


def able(results: Results, grid: Any, part: str = "picture", **labels: Any) -> Results:
    """Networks that draw their picture."""
    rows = results.where(part=part, **labels)
    good = [r for r in rows if not r.diverged and of_picture(r, "error") <= grid.error]
    return Results(good)


def left_out(results: Results, grid: Any, part: str = "picture", **labels: Any) -> str:
    rows = results.where(part=part, **labels)
    behind = len(rows) - len(able(results, grid, part, **labels))
    return f"Left out: {behind} of {len(rows)} above an error of {grid.error:g}." if behind else ""


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


def between(
    grid: Any, source: str = "evolved", symmetric: float = 0.0
) -> Callable[..., Measure]:  # fmt: skip
    """second - first (or their ratio) for each picture, of networks that draw it."""

    def named(name: str, first: str, second: str, ratio: bool = False) -> Measure:
        def measure(results: Results) -> Evidence:
            sides = []
            for way in (first, second):
                rows = able(results, grid, source=source, way=way)
                kept = [r for r in rows if of_picture(r, "target_symmetry") >= symmetric]
                sides.append(by_picture(Results(kept), lambda r: of_picture(r, name)))
            left, right = sides
            both = sorted(left.keys() & right.keys())
            values = [right[n] / left[n] if ratio else right[n] - left[n] for n in both]
            notes = [left_out(results, grid, source=source, way=way) for way in (first, second)]
            note = " ".join(dict.fromkeys(text for text in notes if text))
            found = base.require(np.asarray(values), f"{note} Pictures that both draw".strip())
            return Evidence.of_values(found, note)

        return measure

    return named


def over_untrained(grid: Any) -> Measure:
    def measure(results: Results) -> Evidence:
        rows = able(results, grid, source="evolved", way="descent")
        gained = by_picture(
            rows,
            lambda r: of_picture(r, "concordance") - of_picture(r, "concordance", "untrained"),
        )
        values = base.require(np.asarray(list(gained.values())), "Pictures")
        return Evidence.of_values(values, left_out(results, grid, source="evolved", way="descent"))

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


def steps_to(row: Row, name: str, bound: float, *, falling: bool) -> float:
    """The step, read off between looks, at which a curve first reaches a bound; NaN for never."""
    steps, values = row.curve(name)
    good = values <= bound if falling else values >= bound
    if not good.any():
        return float("nan")
    first = int(np.argmax(good))
    if first == 0:
        return float(steps[0])
    low, high = values[first - 1], values[first]
    if not (np.isfinite(low) and np.isfinite(high)):
        return float(steps[first])
    if falling:  # errors fall by factors
        low, high, bound = (float(np.log(max(x, 1e-12))) for x in (low, high, bound))
    share = (bound - low) / (high - low) if high != low else 1.0
    return float(steps[first - 1] + share * (steps[first] - steps[first - 1]))


def log_steps(row: Row, name: str, bound: float, *, falling: bool) -> tuple[float, bool]:
    """log2 of the steps, and whether the bound was reached; if not, all steps count."""
    found = steps_to(row, name, bound, falling=falling)
    reached = bool(np.isfinite(found)) and not row.diverged
    steps = found if reached else float(row.curve(name)[0][-1])
    return float(np.log2(max(steps, LEAST))), reached


def at_once(row: Row, grid: Any) -> bool:
    """Whether the sibling hardly differs from the picture, so that nothing is to be learnt."""
    return bool(row.curve("error")[1][0] <= grid.matched)


def slower(grid: Any, *siblings: str, whole: str = "evolved") -> Measure:
    """log2 of the steps of descent's networks over those of evolution's, for each picture."""

    def measure(results: Results) -> Evidence:
        rows, never, pairs = results.where(part="sibling"), 0, 0
        twins = {(r.labels["picture"], r.labels["twin"])
                 for r in able(results, grid, source="evolved", way="descent")}  # fmt: skip
        found: dict[int, list[float]] = {}
        for row in rows.where(way="descent"):
            mine = (row.labels["picture"], row.labels["twin"])
            same = {"picture": mine[0], "sibling": row.labels["sibling"]}
            for other in rows.where(way=whole, **same):
                if mine not in twins or same["sibling"] not in siblings:
                    continue
                if at_once(row, grid) and at_once(other, grid):
                    continue
                (steps, here), (others, there) = (
                    log_steps(r, "error", grid.matched, falling=True) for r in (row, other)
                )
                if here or there:
                    found.setdefault(mine[0], []).append(steps - others)
                    pairs, never = pairs + 1, never + (not here) + (not there)
        values = np.asarray([np.mean(v) for _, v in sorted(found.items())])
        notes = [left_out(results, grid, source="evolved", way="descent")]
        if never:
            notes.append(f"{never} of {2 * pairs} runs never got there and count with all steps.")
        note = " ".join(text for text in notes if text)
        return Evidence.of_values(base.require(values, f"{note} Pictures".strip()), note)

    return measure


def sibling_points(grid: Any, results: Results, ways: Sequence[str]) -> list[dict[str, Any]]:
    """Each run on a sibling, with what its network was like before."""
    before = {
        tuple(r.labels[k] for k in ("picture", "way", "twin")): r
        for r in able(results, grid, source="evolved")
    }
    found = []
    for row in results.where(part="sibling"):
        key = tuple(row.labels[k] for k in ("picture", "way", "twin"))
        if row.labels["way"] not in ways or key not in before or at_once(row, grid):
            continue
        steps, reached = log_steps(row, "error", grid.matched, falling=True)
        found.append({
            "picture": key[0], "sibling": row.labels["sibling"], "way": key[1], "steps": steps,
            "reached": reached, "concordance": of_picture(before[key], "concordance"),
            "error": of_picture(before[key], "error"),
        })  # fmt: skip
    return found


def foretold(grid: Any, trained: bool = False) -> Measure:
    """Rank correlation of concordance and steps within picture and sibling."""
    ways = ("descent", "curriculum") if trained else ("evolved", "descent", "curriculum")

    def measure(results: Results) -> Evidence:
        points = sibling_points(grid, results, ways)
        groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for point in points:
            groups.setdefault((point["picture"], point["sibling"]), []).append(point)
        kept = {key: g for key, g in groups.items() if len(g) > 1}
        pictures = {key[0] for key in kept}
        if len(pictures) < 2:
            raise NotTested("Needs two pictures with several networks that draw them.")
        columns: dict[str, list[float]] = {"concordance": [], "steps": [], "error": []}
        names: list[int] = []
        clusters: list[int] = []
        for number, (key, group) in enumerate(kept.items()):
            for name, column in columns.items():
                column += rankdata([point[name] for point in group]).tolist()
            names += [number] * len(group)
            clusters += [key[0]] * len(group)
        given = np.asarray(columns["error"])[:, None] if trained else None

        def interval(level: float) -> Any:
            return within_group_correlation(
                columns["concordance"], columns["steps"], names, given=given, cluster=clusters,
                level=level,
            )  # fmt: skip

        if not np.isfinite(interval(0.95).estimate):
            raise NotTested("Steps do not differ among the networks of any picture.")
        return Evidence.of_interval(interval, f"{len(names)} runs.")

    return measure


def archived(grid: Any, genome: str) -> Callable[..., Measure]:
    """A number of the twins of an archive's picture, or its ratio to the archive's network."""

    def named(name: str, ratio: bool = False) -> Measure:
        def measure(results: Results) -> Evidence:
            rows = _archive(grid, results, genome)
            twins = [r for r in rows.where(way="descent") if not r.diverged]
            values = np.asarray([of_picture(r, name) for r in twins])
            if ratio:
                values = values / of_picture(rows.where(way="evolved")[0], name)
            return Evidence.of_values(base.require(values, "Twins"))

        return measure

    return named


def archived_maps(grid: Any, genome: str) -> Measure:
    def measure(results: Results) -> Evidence:
        row = _archive(grid, results, genome).where(way="evolved")[0]
        return Evidence.of_values(row.readings["picture-fracture"].tables["maps"]["concordance"])

    return measure


def _archive(grid: Any, results: Results, genome: str) -> Results:
    if genome not in grid.genomes:
        raise NotTested(f"Not tested at this size: genomes={genome} is part of preset standard.")
    rows = results.where(part="genome", source=genome)
    if not rows.where(way="evolved"):
        raise NotTested(f"The genome of {genome} is not here: recombine data get picbreeder.")
    return rows


def module_steps(grid: Any, results: Results, seed: int, share: float) -> float:
    """log2 steps to a new module, mean over the modules that were exchanged."""
    rows = results.where(part="module", seed=seed, held_out=share)
    found = [log_steps(r, "seen", grid.learnt, falling=False)[0] for r in rows]
    return float(np.mean(found)) if found else float("nan")


def able_students(results: Results) -> Results:
    return base.trained(results.where(part="student"))


def from_scratch(grid: Any) -> Measure:
    def measure(results: Results) -> Evidence:
        rows, values = able_students(results), []
        for seed in rows.labels("seed"):
            known = [module_steps(grid, results, seed, r.labels["held_out"])
                     for r in rows.where(seed=seed)]  # fmt: skip
            values.append(module_steps(grid, results, seed, -1.0) - float(np.mean(known)))
        note = base.left_out(results.where(part="student"))
        found = base.require(np.asarray(values), f"{note} Seeds".strip())
        return Evidence.of_values(found, note)

    return measure


def new_module(grid: Any, measure_name: str, beyond: bool = False) -> Measure:
    """Correlation, within seeds, of a measure of fracture and log2 steps to a new module."""

    def measure(results: Results) -> Evidence:
        rows = able_students(results)
        note = base.left_out(results.where(part="student"))
        seeds = [s for s in rows.labels("seed") if len(rows.where(seed=s)) > 1 + beyond]
        if len(seeds) < 2:
            raise NotTested(f"Needs two seeds with several trained students. {note}".strip())
        x: list[float] = []
        y: list[float] = []
        given: list[float] = []
        groups: list[int] = []
        for seed in seeds:
            for row in rows.where(seed=seed):
                x.append(row.value("fracture", measure_name))
                y.append(module_steps(grid, results, seed, row.labels["held_out"]))
                given.append(base.unseen(row))
                groups.append(seed)

        def interval(level: float) -> Any:
            return within_group_correlation(
                x, y, groups, given=np.asarray(given)[:, None] if beyond else None,
                cluster=groups, level=level,
            )  # fmt: skip

        if not np.isfinite(interval(0.95).estimate):
            raise NotTested("Steps, or the measure, do not differ among the students of a seed.")
        return Evidence.of_interval(interval, note)

    return measure
