"""How the images study reads its rows, and what its report shows."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.families.scenes import Scenes
from recombine.lab.memberships import Crossed, partial
from recombine.lab.study import DIFFERENCE, SHARE, Results, Row
from recombine.report.document import Gallery, Section, Strip, Table
from recombine.report.figures import Panel, Points, Series, curves, panels, scatter
from recombine.studies import _base as base
from recombine.studies._base import series_over

CHANCE = 0.05  # R² of the probe of the noisy image below which it tells nothing
FLOOR = 0.5  # seen success below which a generator says nothing about unseen combinations
PLANTED = 0.95  # R² of planted features below which probes saw too few combinations
FEWEST = 20  # unseen combinations without which nothing is correlated
METRIC = "success"


def seen(row: Row) -> float:
    return row.value("composition", "seen")


def unseen(row: Row) -> float:
    return row.value("composition", "unseen")


def gap(row: Row) -> float:
    return row.value("composition", "gap")


def reliability(row: Row) -> float:
    return row.value("composition", "unseen_reliability")


def times(row: Row) -> list[str]:
    """The times at which hidden states were read, as they are named."""
    named = row.readings["foretelling"].values if "foretelling" in row.readings else {}
    return [name.split("/")[0] for name in named if name.endswith("/pixels")]


def noisy_times(*rows: Row) -> list[str]:
    """Those at which a probe of the image is at chance, in every one of some networks."""
    return [
        t for t in (times(rows[0]) if rows else [])
        if all(row.value("foretelling", f"{t}/pixels") <= CHANCE for row in rows)
    ]  # fmt: skip


def on_noise(rows: Sequence[Row]) -> Callable[[Row], float]:
    """R² of hidden states, mean over the times at which no image of these networks tells
    anything: the same times for all, so that they can be compared."""
    early = noisy_times(*(row for row in rows if not row.diverged))

    def number(row: Row) -> float:
        found = [row.value("foretelling", f"{t}/hidden") for t in early]
        return float(np.mean(found)) if found else float("nan")

    return number


def crossed(row: Row, concepts: bool) -> Crossed | None:
    """Skill and success of one network's unseen combinations; None where there is nothing to
    correlate."""
    early = noisy_times(row)
    planted = row.value("foretelling", "features", "planted")
    if row.diverged or not early or not seen(row) >= FLOOR or not planted >= PLANTED:
        return None
    drawn = row.readings["composition"].tables["unseen"]
    read = row.readings["foretelling"].tables["unseen"]
    success = dict(zip(drawn["rank"], drawn["success"], strict=True))
    ranks = [rank for rank in read["rank"] if rank in success]
    if len(ranks) < FEWEST:
        return None
    keep = [read["rank"].index(rank) for rank in ranks]

    def skill(label: str) -> np.ndarray:
        return np.mean([np.asarray(read[f"{label}_{t}"])[keep] for t in early], axis=0)

    members = np.asarray(read["members"], bool)[keep]
    # Larger sets are harder to draw and to read alike.
    controls = [skill("pixels"), skill("condition"), members.sum(axis=1).astype(float)]
    if concepts:
        controls += list(members.T.astype(float))
    return Crossed(
        skill("hidden"), np.asarray([success[r] for r in ranks]), np.stack(controls, axis=1),
        members, int(row.labels["seed"]),
    )  # fmt: skip


def halfway(along: Sequence[Row], number: Callable[[Row], float]) -> float:
    """The step, read off log steps, at which a number first comes halfway to its last value."""
    steps = np.asarray([row.labels["steps"] for row in along], float)
    values = np.asarray([number(row) for row in along])
    if len(along) < 3 or not np.isfinite(values).all() or values[-1] <= 0.02:
        return float("nan")
    half = values[-1] / 2
    first = int(np.argmax(values >= half))
    if first == 0:
        return float(steps[0])  # earlier than we looked: a bound, which pulls towards no difference
    low, high = values[first - 1], values[first]
    share = (half - low) / (high - low)
    return float(np.exp(np.log(steps[first - 1]) * (1 - share) + np.log(steps[first]) * share))


def sections(grid: Any, results: Results, family: Scenes) -> list[Section]:
    whole = results.where(length=1.0)
    sizes, shares = whole.where(held_out=grid.share), whole.where(width=grid.middle)
    found = [
        Section(
            "What was drawn",
            "Pictures of the largest generator's first seed, asked for combinations of its "
            "training and for others, and whether an exact judge found all that was asked, once, "
            "and nothing else.",
            galleries=galleries(sizes.where(width=max(grid.width))),
        ),
        Section(
            "Size and coverage",
            "The share of pictures that show exactly what was asked.",
            (
                curves(f"Success by width, {grid.share:g} held out", "width", METRIC,
                       _both(sizes, "width"), log_x=True, y_range=(-0.02, 1.02)),
                curves(f"Success by held-out share, width {grid.middle}", "held-out share", METRIC,
                       _both(shares, "held_out"), y_range=(-0.02, 1.02)),
            ),
            (success_table(whole), copies_table(whole)),
        ),
        reading_section(grid, sizes),
        foretelling_section(whole),
    ]  # fmt: skip
    if grid.length:
        along = results.where(width=grid.middle, held_out=grid.share)
        drawn = [series_over(along, "steps", number, name) for name, number in
                 (("seen success", seen), ("unseen success", unseen),
                  ("hidden states on noise, R²", on_noise(along)))]  # fmt: skip
        found.append(Section(
            "Which comes first",
            "Shorter runs of the same networks: the learning rate is constant, so a shorter run "
            "is a look at the longer one on its way.",
            (panels("Along training", "steps", "share or R²", [Panel("", drawn)], log_x=True),),
        ))  # fmt: skip
    return found


def _both(rows: Results, x: str) -> list[Series]:
    return [series_over(rows, x, seen, "seen"), series_over(rows, x, unseen, "unseen")]


def galleries(rows: Results) -> list[Gallery]:
    """Pictures of the first network there is."""
    for row in rows:
        if "composition" not in row.readings:
            continue
        tables = row.readings["composition"].tables
        return [
            Gallery(f"{kind.capitalize()} combinations, width {row.labels['width']}", [
                Strip(asked, base64.b64decode(png), [mark == "1" for mark in marks])
                for asked, png, marks in zip(shown["asked"], shown["png"], shown["marks"],
                                             strict=True)
            ])
            for kind in ("seen", "unseen")
            if (shown := tables[f"{kind}_pictures"])
        ]  # fmt: skip
    return []


def success_table(rows: Results) -> Table:
    """Success with its parts and controls, for each width and share."""
    names = ("seen", "unseen", "gap", "unseen_concepts", "unseen_scenes", "unseen_level1",
             "unseen_level2", "unseen_reliability")  # fmt: skip
    table: list[list[Any]] = []
    for place in _places(rows):
        chosen = rows.where(width=place[0], held_out=place[1])
        cells: list[Any] = [*place]
        for name in names:
            within = DIFFERENCE if name in ("gap", "unseen_reliability") else SHARE
            cells.append(base.interval_text(chosen.values("composition", name), within=within))
        for control in ("untrained", "shuffled", "planted"):
            values = chosen.values("composition", "unseen", control)
            cells.append(round(float(values.mean()), 3) if values.size else None)
        table.append([*cells, len(chosen)])
    columns = ["width", "held out", "seen", "unseen", "gap", "concepts right, unseen",
               "scenes, unseen", "unseen, a new triple", "unseen, a new pair",
               "split-half reliability", "untrained twin", "other requests", "rendered scenes",
               "networks"]  # fmt: skip
    return Table("Success", columns, table, "The three controls are on unseen combinations.")


def copies_table(rows: Results) -> Table:
    """How far pictures are from the nearest training picture, beside rendered ones."""
    table = []
    for place in _places(rows):
        chosen = rows.where(width=place[0], held_out=place[1])
        table.append([*place] + [
            base.interval_text(chosen.values("composition", f"{kind}_nearest", control))
            for kind in ("seen", "unseen") for control in (None, "planted")
        ])  # fmt: skip
    columns = ["width", "held out", "seen, drawn", "seen, rendered", "unseen, drawn",
               "unseen, rendered"]  # fmt: skip
    return Table("Distance to the nearest training picture", columns, table,
                 "Root mean square over pixels from -1 to 1, the median over combinations. A copy "
                 "of a training picture is at 0.")  # fmt: skip


def reading_section(grid: Any, rows: Results) -> Section:
    """R² along the way from noise to picture."""
    names = {"hidden": "hidden states", "pixels": "the image", "condition": "the condition"}
    drawn = []
    for width in grid.width:
        chosen = rows.where(width=width)
        lines = [_over_time(chosen, name, label) for name, label in names.items()]
        lines.append(_over_time(chosen, "hidden", "untrained twin", "untrained"))
        drawn.append(Panel(f"width {width}", lines))
    return Section(
        "What can be read on the way",
        "R² of a linear probe for the concepts of unseen combinations, fitted to seen ones, at "
        "times from noise (0) to picture (1). Early on the image tells nothing and late it tells "
        "all; the condition is handed to every block, so it can be read at any time.",
        (panels("Concepts read on the way from noise to picture", "time", "R²", drawn,
                y_range=(-0.2, 1.02)),),
    )  # fmt: skip


def _over_time(rows: Results, name: str, label: str, control: str | None = None) -> Series:
    xs, ys = [], []
    for time in times(rows[0]) if len(rows) else []:
        values = rows.values("foretelling", f"{time}/{name}", control)
        if values.size:
            xs.append(float(time[1:]))
            ys.append(float(values.mean()))
    return Series(label, xs, ys)


def foretelling_section(rows: Results) -> Section:
    """The correlation of each network, and the points behind one."""
    table, points = [], []
    for row in rows:
        group = crossed(row, False)
        if group is None:
            continue
        r = partial(group)
        table.append([
            row.labels["width"], row.labels["held_out"], row.labels["seed"], len(group.x),
            round(float(np.mean(group.y)), 3), _rounded(reliability(row)),
            ", ".join(t[1:] for t in noisy_times(row)),
            *(None if not np.isfinite(x) else round(x, 3) for x in
              (float(np.corrcoef(group.x, group.y)[0, 1]) if group.y.std() > 0 else np.nan, r,
               r / np.sqrt(reliability(row)) if reliability(row) > 0 else np.nan)),
        ])  # fmt: skip
        points.append((row, group))
    figures = ()
    if points:
        # The network whose combinations differ most in success shows most.
        row, group = max(points, key=lambda pair: pair[1].y.std())
        figures = (scatter(
            f"Unseen combinations of one network (width {row.labels['width']}, "
            f"{row.labels['held_out']:g} held out)",
            "R² of hidden states on noise", "success", [Points("combinations", group.x, group.y)],
        ),)  # fmt: skip
    columns = [
        "width",
        "held out",
        "seed",
        "combinations",
        "success",
        "reliability",
        "times on noise",
        "correlation",
        "partial correlation",
        "corrected for noise",
    ]
    return Section(
        "Does it foretell",
        "For each network: the correlation, over unseen combinations, of success with how well "
        "their concepts can be read off hidden states on noise; partial: beyond the probes of the "
        "image and of the condition. Success is measured on other pictures than those read; the "
        "last column divides by the root of its reliability.",
        figures, (Table("Networks", columns, table),),
    )  # fmt: skip


def _rounded(value: float) -> float | None:
    return round(value, 3) if np.isfinite(value) else None


def _places(rows: Results) -> list[tuple[int, float]]:
    return sorted({(row.labels["width"], row.labels["held_out"]) for row in rows})
