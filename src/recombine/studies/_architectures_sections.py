"""The figures and tables of the study of architectures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recombine.lab.statistics import mean_interval
from recombine.lab.study import Results
from recombine.report.document import Figure, Table
from recombine.report.figures import Estimates, Panel, Series, dots, panels
from recombine.studies import _base as base

TITLES = {
    "transformer": "transformer", "mlp": "MLP", "hypernetwork": "hypernetwork",
    "affine": "linear baseline", "nearest": "nearest neighbour", "exact": "memoriser",
}  # fmt: skip
MODELS = ("transformer", "mlp", "hypernetwork", "affine")
TABLES = ("nearest", "exact")


def who_figure(rows: Results, models: Sequence[str], shares: Sequence[float]) -> Figure:
    """Every model with its size, but the memoriser, which would flatten the others."""
    names = [name for name in TITLES if name in (*models, "nearest")]
    categories = []
    for name in names:
        counts = rows.where(model=name).labels("parameters")
        what = "parameters" if name in MODELS else "numbers"
        categories.append(f"{TITLES[name]}, {counts[0]:,} {what}" if counts else TITLES[name])
    series = []
    for share in shares:
        points: list[tuple[float | None, ...]] = []
        for name in names:
            values = rows.where(model=name, held_out=share).values("generalization", "unseen")
            if not values.size:
                points.append((None, None, None))
                continue
            mean = mean_interval(values)
            ends = (mean.low, mean.high) if math.isfinite(mean.low) else (None, None)
            points.append((mean.estimate, *ends))
        series.append(Estimates(f"{share:g} held out", *map(list, zip(*points, strict=True))))
    return dots("Unseen R² by network", categories, series, value_label="unseen R²")


def score_table(rows: Results, entries: int) -> Table:
    named = Results([
        replace(row, labels={**row.labels, "model": TITLES[row.labels["model"]]}) for row in rows
    ])  # fmt: skip
    table = base.score_table(named, ("held_out", "model", "rate", "parameters"))
    note = (
        f"Parameters of a table: {entries} entries, each a code and the composed weights that "
        "it stands for."
    )
    return replace(table, note=f"{table.note} {note}")


def curve_figure(rows: Results, models: Sequence[str], shares: Sequence[float]) -> Figure:
    drawn = []
    for share in shares:
        lines = [along(rows.where(model=n, held_out=share), n) for n in models]
        drawn.append(Panel(f"{share:g} held out", lines))
    return panels("Unseen R² along training", "step", "unseen R²", drawn, y_range=(-0.1, 1.02))


def along(rows: Results, name: str) -> Series:
    """The mean learning curve over seeds, without the untrained network."""
    chosen = [row for row in rows if not row.diverged]
    if not chosen:
        return Series(TITLES[name], [], [])
    steps = chosen[0].curve("unseen")[0][1:]
    values = np.stack([row.curve("unseen")[1][1:] for row in chosen], axis=1)
    means = [mean_interval(one) for one in values]
    ends = [(i.low, i.high) if math.isfinite(i.low) else (None, None) for i in means]
    lows, highs = [low for low, _ in ends], [high for _, high in ends]
    return Series(TITLES[name], steps.tolist(), [i.estimate for i in means], lows, highs)
