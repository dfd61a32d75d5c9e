"""What the reports of the two grid worlds show alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recombine.lab.study import SHARE, Results
from recombine.report.document import Section, Table
from recombine.report.figures import Panel, dots, panels
from recombine.studies import _base as base
from recombine.studies import boundary
from recombine.studies._base import seen, unseen

METRIC = "all-actions accuracy"


def rollout_table(results: Results, by: Sequence[str]) -> Table:
    """Closed-loop returns with their controls."""
    rows: list[list[Any]] = []
    for setting in sorted({tuple(row.labels[name] for name in by) for row in results}):
        chosen = results.where(**dict(zip(by, setting, strict=True)))
        cells: list[Any] = list(setting)
        for name in ("seen_return", "unseen_return"):
            cells.append(base.interval_text(chosen.values("rollout", name)))
        for control in ("untrained", "random", "planted"):
            values = chosen.values("rollout", "unseen_return", control)
            cells.append(round(float(values.mean()), 3) if values.size else None)
        rows.append(cells)
    columns = [*(name.replace("_", " ") for name in by), "seen", "unseen", "untrained twin",
               "random actions", "demonstrations replayed"]  # fmt: skip
    return Table("Closed-loop return as a share of the expert's", columns, rows,
                 "The three controls are on unseen combinations.")  # fmt: skip


def encodings_section(grid: Any, results: Results) -> Section:
    side = results.where(width=grid.large, held_out=grid.held_out[0], rule="random")
    series = [
        base.estimates_over(side, "encoding", grid.encoding, number, name)
        for name, number in (("seen", seen), ("unseen", unseen))
    ]
    rows = []
    for name in grid.encoding:
        chosen = side.where(encoding=name)
        if not chosen:
            continue
        deepest = f"layer{grid.depth[0]}/after/unseen"
        rows.append([
            name, *[base.interval_text(chosen.values("generalization", n), within=SHARE)
                    for n in ("seen", "unseen")],
            base.interval_text(chosen.values("rollout", "unseen_return")),
            base.interval_text(chosen.values("decodability", deepest)),
            base.interval_text(chosen.values("decodability", "code/unseen")),
        ])  # fmt: skip
    return Section(
        "Encodings",
        f"Width {grid.large}, held-out {grid.held_out[0]:g}. The task decoder is a linear probe on "
        "the deepest hidden layer at the first step of unseen combinations, the input decoder one "
        "on the code itself.",
        (dots(f"{METRIC.capitalize()} by encoding", list(grid.encoding), series,
              value_label=METRIC),),
        (Table("By encoding", ["encoding", f"seen {METRIC}", f"unseen {METRIC}",
                               "closed loop, unseen", "task decoder R²", "input decoder R²"],
               rows),),
    )  # fmt: skip


def novelty_section(grid: Any, main: Results) -> Section:
    drawn = [
        Panel(f"held-out {share:g}", [
            boundary.error_by(main.where(width=w, held_out=share), "unseen_pairs", f"width {w}")
            for w in grid.width
        ])
        for share in grid.held_out
    ]  # fmt: skip
    return Section(
        "Where it ends: error by novelty",
        "The share of wrong actions on unseen combinations, by how many of their pairs were "
        "never trained together.",
        (panels("Wrong actions by unseen pairs", "pairs never trained together",
                "share of wrong actions", drawn, log_y=True, y_range=(1e-3, 1.2)),),
        (boundary.level_table(main, grid.width, METRIC),),
    )  # fmt: skip
