"""Draws the pictures of the example: one coloured shape on a noisy ground, 16 x 16 pixels.

    python make_images.py FOLDER

It writes pictures.npy, and train.csv and eval.csv with what is on each picture and its place in
that file. In training every colour has its usual shapes; four pairs of colour and shape do not
occur. Evaluation has them all.
"""

from __future__ import annotations

import csv
import itertools
import sys
from pathlib import Path

import numpy as np

SIZE = 16
COLOURS = {
    "red": (0.9, 0.2, 0.2), "green": (0.2, 0.8, 0.3), "blue": (0.2, 0.3, 0.9),
    "yellow": (0.9, 0.8, 0.2), "purple": (0.7, 0.2, 0.8),
}  # fmt: skip
SHAPES = ("square", "disc", "cross", "triangle")
SIDES = ("left", "middle", "right")
GROUNDS = ("dark", "light")
FACTORS = {"colour": tuple(COLOURS), "shape": SHAPES, "side": SIDES, "ground": GROUNDS}
NEVER = {("red", "disc"), ("red", "triangle"), ("green", "square"), ("blue", "cross")}


def mask(shape: str, x: float, y: float) -> np.ndarray:
    """Which pixels a shape at (x, y) covers."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    dx, dy = np.abs(columns - x), np.abs(rows - y)
    return {
        "square": (dx <= 3) & (dy <= 3),
        "disc": dx**2 + dy**2 <= 12,
        "cross": ((dx <= 1) & (dy <= 3.5)) | ((dy <= 1) & (dx <= 3.5)),
        "triangle": (rows - y <= 3) & (rows - y >= 2 * dx - 4),
    }[shape]


def picture(row: dict[str, str], rng: np.random.Generator) -> np.ndarray:
    """One picture, as 8-bit numbers."""
    ground = 0.25 if row["ground"] == "dark" else 0.6
    drawn = np.full((SIZE, SIZE, 3), ground) + rng.normal(0, 0.05, (SIZE, SIZE, 3))
    x = 4 + 3.5 * SIDES.index(row["side"]) + rng.uniform(-0.7, 0.7)
    there = mask(row["shape"], x, 7.5 + rng.uniform(-2, 2))
    drawn[there] = COLOURS[row["colour"]] + rng.normal(0, 0.05, (int(there.sum()), 3))
    return (drawn.clip(0, 1) * 255).astype(np.uint8)


def rows_of(rows: int, rng: np.random.Generator, history: bool) -> list[dict[str, str]]:
    every = [dict(zip(FACTORS, v, strict=True)) for v in itertools.product(*FACTORS.values())]
    weight = np.ones(len(every))
    if history:
        weight *= [(r["colour"], r["shape"]) not in NEVER for r in every]
        weight *= rng.random(len(every)) > 0.1
    return [every[c] for c in rng.choice(len(every), rows, p=weight / weight.sum())]


def main(folder: str = ".") -> None:
    there = Path(folder)
    there.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    parts = {"train.csv": rows_of(3000, rng, True), "eval.csv": rows_of(1200, rng, False)}
    place, pictures = 0, []
    for name, rows in parts.items():
        with (there / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["picture", *FACTORS])
            writer.writeheader()
            for row in rows:
                writer.writerow({"picture": place, **row})
                pictures.append(picture(row, rng))
                place += 1
    np.save(there / "pictures.npy", np.stack(pictures))


if __name__ == "__main__":
    main(*sys.argv[1:])
