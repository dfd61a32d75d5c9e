"""How the fracture study reads what is learnt next: steps to a sibling beside what was before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from recombine.lab.statistics import within_group_correlation
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base
from recombine.studies._fracture import AWAKE, Measure, able, left_out, of_picture


def at_once(row: Row, grid: Any) -> bool:
    """Whether the sibling hardly differs from the picture, so that nothing is to be learnt."""
    return bool(row.curve("error")[1][0] <= grid.matched)


def slower(grid: Any, *siblings: str, whole: str = AWAKE) -> Measure:
    """log2 of the steps of descent's networks over those of evolution's, for each picture.

    Both begin with a network that draws the picture: what does not is left out, on either side.
    """

    def measure(results: Results) -> Evidence:
        found: dict[int, list[float]] = {}
        reached: dict[int, bool] = {}  # of every run once, whatever it is compared with
        left, right = (begun_well(results, grid, way) for way in ("descent", whole))
        for row in left:
            same = {name: row.labels[name] for name in ("picture", "sibling")}
            if same["sibling"] not in siblings:
                continue
            for other in right.where(**same):
                if at_once(row, grid) and at_once(other, grid):
                    continue
                (steps, here), (others, there) = (
                    base.log_steps(r, "error", grid.matched, falling=True) for r in (row, other)
                )
                if here or there:
                    found.setdefault(same["picture"], []).append(steps - others)
                    reached |= {id(row): here, id(other): there}
        values = np.asarray([np.mean(v) for _, v in sorted(found.items())])
        notes = [left_out(results, grid, source="evolved", way="descent")]
        if behind := left_out(results, grid, source="evolved", way=whole):
            notes.append(f"Of evolution's: {behind}")
        if never := len(reached) - sum(reached.values()):
            notes.append(
                f"{never} of {len(reached)} runs never got there and count with all steps."
            )
        note = " ".join(text for text in notes if text)
        return Evidence.of_values(base.require(values, f"{note} Pictures".strip()), note)

    return measure


def begun_well(results: Results, grid: Any, way: str) -> Results:
    """Runs on siblings that began with a network that draws its picture."""
    begun = {(r.labels["picture"], r.labels["twin"])
             for r in able(results, grid, source="evolved", way=way)}  # fmt: skip
    rows = results.where(part="sibling", way=way)
    return Results([r for r in rows if (r.labels["picture"], r.labels["twin"]) in begun])


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
        steps, reached = base.log_steps(row, "error", grid.matched, falling=True)
        found.append({
            "picture": key[0], "sibling": row.labels["sibling"], "way": key[1], "steps": steps,
            "reached": reached, "concordance": of_picture(before[key], "heard"),
            "error": of_picture(before[key], "error"),
        })  # fmt: skip
    return found


def foretold(grid: Any, trained: bool = False) -> Measure:
    """Rank correlation of concordance and steps within picture and sibling.

    Evolution's networks with their idle neurons awake: asleep they are late for a reason that has
    nothing to do with fracture.
    """
    ways = ("descent", "curriculum") if trained else (AWAKE, "descent", "curriculum")

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
