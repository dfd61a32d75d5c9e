"""Makes the tables of the example: parcels, and how each is to be sent.

    python make_data.py FOLDER

How a parcel is sent depends on what is in it and where it goes, together. History is not even: a
carrier has its own regions, nobody has yet sent medicine to the islands or glass to the mountains,
and the orders that are coming in (orders.csv) hold both.
"""

from __future__ import annotations

import csv
import itertools
import sys
from pathlib import Path

import numpy as np

VALUES = {
    "goods": ("books", "food", "glass", "medicine", "tools"),
    "region": ("city", "coast", "islands", "mountains"),
    "carrier": ("blue", "green", "grey"),
    "season": ("spring", "summer", "autumn", "winter"),
}
NEVER = {("medicine", "islands"), ("glass", "mountains")}


def way(goods: str, region: str) -> str:
    """How the parcel is sent."""
    if region == "islands":
        return {"food": "cooled ship", "medicine": "plane"}.get(goods, "ship")
    if region == "mountains" and goods == "glass":
        return "train"
    return {"food": "cooled van", "medicine": "cooled van"}.get(goods, "van")


def draw(rows: int, seed: int, history: bool) -> list[dict[str, str]]:
    """Rows as they come; `history` has its habits and its gaps."""
    rng = np.random.default_rng(seed)
    every = [dict(zip(VALUES, v, strict=True)) for v in itertools.product(*VALUES.values())]
    weight = np.ones(len(every))
    if history:
        own = {"blue": "city", "green": "coast", "grey": "mountains"}
        weight = np.array([3.0 if own[r["carrier"]] == r["region"] else 1.0 for r in every])
        weight *= [(r["goods"], r["region"]) not in NEVER for r in every]
        weight *= rng.random(len(every)) > 0.15  # some combinations just did not occur
    chosen = rng.choice(len(every), rows, p=weight / weight.sum())
    return [{**every[c], "way": way(every[c]["goods"], every[c]["region"])} for c in chosen]


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["parcel", *rows[0]])
        writer.writeheader()
        writer.writerows({"parcel": f"p{n:04d}", **row} for n, row in enumerate(rows, 1))


def main(folder: str = ".") -> None:
    there = Path(folder)
    there.mkdir(parents=True, exist_ok=True)
    write(there / "history.csv", draw(4000, 0, history=True))
    write(there / "orders.csv", draw(1500, 1, history=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
