"""The model of the example: a small network that names the colour and the shape in a picture.

    python adapter.py FOLDER

trains it on the pictures of train.csv in FOLDER and writes weights.npz there (some seconds on one
core). `model` is what recombine asks; it looks for the folder in PICTURES, by default here.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from recombine.adapters import TorchModel

COLOURS = ("red", "green", "blue", "yellow", "purple")
SHAPES = ("square", "disc", "cross", "triangle")


class Network(nn.Module):
    """Two convolutions, a hidden layer, and the pair of colour and shape as one of twenty."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.late = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(512, 64), nn.ReLU())
        self.pair = nn.Linear(64, len(COLOURS) * len(SHAPES))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.pair(self.hidden(self.late(self.early(pictures))))


def prepared(pictures: np.ndarray) -> torch.Tensor:
    return torch.tensor(pictures.transpose(0, 3, 1, 2) / 255 - 0.5, dtype=torch.float32)


def train(folder: Path, steps: int = 1200) -> Network:
    """A network that knows the training pictures."""
    torch.manual_seed(0)
    with (folder / "train.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    pictures = np.load(folder / "pictures.npy")[[int(row["picture"]) for row in rows]]
    inputs = prepared(pictures)
    pairs = [COLOURS.index(r["colour"]) * len(SHAPES) + SHAPES.index(r["shape"]) for r in rows]
    wanted, net = torch.tensor(pairs), Network()
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(steps):
        some = torch.randint(len(rows), (64,))
        loss = nn.functional.cross_entropy(net(inputs[some]), wanted[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net


def decode(outputs: torch.Tensor) -> list[dict[str, str]]:
    """The answer in parts: each is about one factor."""
    best = outputs.argmax(dim=1).tolist()
    return [{"colour": COLOURS[b // 4], "shape": SHAPES[b % 4]} for b in best]


def model() -> TorchModel:
    folder = Path(os.environ.get("PICTURES", "."))
    net = Network()
    weights = np.load(folder / "weights.npz", allow_pickle=False)
    net.load_state_dict({name: torch.tensor(weights[name]) for name in weights.files})
    pictures = np.load(folder / "pictures.npy", mmap_mode="r")

    def encode(records):
        return prepared(np.stack([pictures[int(record["picture"])] for record in records]))

    return TorchModel(net, encode, decode, layers=["early", "late", "hidden"], name="pair network")


def main(folder: str = ".") -> None:
    net = train(Path(folder))
    np.savez(Path(folder) / "weights.npz", **{k: v.numpy() for k, v in net.state_dict().items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
