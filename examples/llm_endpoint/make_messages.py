"""Makes the messages of the example: customers who write about a device and a trouble.

    python make_messages.py FOLDER

messages.csv is to be routed to a team; tuned.csv is what the model was tuned on, where nobody
wanted money back for a watch. Both hold the text and the right team, and no factors: those are
found by `recombine tag` with factors.toml. truth.csv has the factors the texts were made of, to
fill in the sheet by which tags are checked (a person would read the texts instead).
"""

from __future__ import annotations

import csv
import itertools
import sys
from pathlib import Path

import numpy as np

DEVICES = {
    "phone": ("phone", "smartphone"), "laptop": ("laptop", "notebook"),
    "tablet": ("tablet",), "watch": ("watch", "smartwatch"),
}  # fmt: skip
TROUBLES = {
    "battery": ("the battery is empty after an hour", "it does not charge"),
    "screen": ("the screen has a crack", "the display stays dark"),
    "delivery": ("the parcel has not come", "the delivery is late"),
    "refund": ("I want my money back", "please refund me"),
}
TONES = {
    "calm": ("Hello, about my {0}: {1}. Thank you.", "Good day. My {0}, {1}. Kind regards."),
    "angry": ("MY {0}!! {1}!!! Unbelievable!", "{0}, AGAIN: {1}!!"),
    "brief": ("{0} - {1}", "{0}: {1}"),
}
TEAMS = {"battery": "repair", "screen": "repair", "delivery": "shipping", "refund": "billing"}


def team(device: str, trouble: str) -> str:
    """Who looks after it; watches are repaired in a shop of their own."""
    return "watch shop" if device == "watch" and TEAMS[trouble] == "repair" else TEAMS[trouble]


def draw(rows: int, seed: int, tuned: bool) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)
    every = list(itertools.product(DEVICES, TROUBLES, TONES))
    if tuned:
        every = [one for one in every if one[:2] != ("watch", "refund")]
    found = []
    for place in rng.integers(len(every), size=rows):
        device, trouble, tone = every[place]
        words = [rng.choice(names[key]) for names, key in ((DEVICES, device), (TROUBLES, trouble))]
        text = str(rng.choice(TONES[tone])).format(*words)
        row = {"text": text, "team": team(device, trouble)}
        found.append(row | {"device": device, "trouble": trouble, "tone": tone})
    return found


def write(path: Path, rows: list[dict[str, str]], columns: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def main(folder: str = ".") -> None:
    there = Path(folder)
    there.mkdir(parents=True, exist_ok=True)
    messages = draw(480, 0, tuned=False)
    write(there / "messages.csv", messages, ["text", "team"])
    write(there / "truth.csv", messages, ["text", "device", "trouble", "tone"])
    write(there / "tuned.csv", draw(600, 1, tuned=True), ["text", "team"])


if __name__ == "__main__":
    main(*sys.argv[1:])
