"""Do networks that find their way in mazes compose goals they never saw together?

`recombine run goals --preset standard` trains networks on instructions of four factors (a quadrant,
an interaction, a maze, an object), by held-out share, width, support and encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from recombine.encodings._encoding import Encoding
from recombine.families.goals import Goals
from recombine.studies import _base as base
from recombine.studies._base import Training
from recombine.studies._worlds import Place, WorldGrid, Worlds

RULES = ("disconnected", "non-compositional", "held-out-pairs", "unpopular", "popular")


@dataclass(frozen=True)
class Grid(WorldGrid):
    """Goals; with two `copies` of each kind the quadrant must be heard, not only the object."""

    size: int = 7
    interactions: int = 5
    mazes: int = 5
    objects: int = 5
    copies: int = 2
    least_path: int = 7
    steps: int = 24


class GoalsStudy(Worlds):
    """Compositional goals: one value for each of four factors."""

    name = "goals"
    question = "Do networks in mazes follow instructions whose parts they never saw together?"
    source = "The released code of Redhardt, Akram and Schug (2025); not in the paper's results"
    cost = "quick: 1 min on two CPU cores; standard: 4 min on one H200 (estimated)"
    not_shown = (
        "Mazes never seen: the five mazes of a network are those it trained in.",
        "Language: instructions are one template with a word for each value.",
    )
    training: ClassVar = {
        "smoke": Training(40, 1e-3, 16, evaluations=2, weight_decay=1e-3, schedule="cosine"),
        "quick": Training(1_500, 3e-3, 64, evaluations=5, weight_decay=1e-3, schedule="cosine"),
        "standard": Training(
            24_000, 2e-3, 128, evaluations=8, weight_decay=1e-3, schedule="cosine"
        ),
        "paper": Training(200_000, 1e-3, 128, evaluations=100, weight_decay=3e-2),
    }
    harmful: ClassVar = {
        "disconnected": 0.05, "non-compositional": 0.05, "held-out-pairs": 0.02,
        "unpopular": 0.02, "popular": -0.02,
    }  # fmt: skip
    presets: ClassVar = {
        "smoke": Grid("smoke", (16,), (0.25, 0.65), (2,), ("disconnected",), 0.65,
                      ("identity",), 2),
        # A smaller world: mazes of 5 x 5 cells, 108 tasks, which two cores learn in two minutes.
        "quick": Grid(width=(64, 128), encoding=("identity", "sentence"), size=5, interactions=3,
                      mazes=3, objects=3, least_path=3, steps=9),
        "standard": Grid("standard", (128, 192, 256), (0.25, 0.75, 0.9), (3,), RULES, 0.65,
                         ("identity", "orthogonal", "tokens", "interval-shuffle", "sentence"), 5),
        "paper": Grid("paper", (128, 256, 512, 1024), (0.25, 0.5, 0.75, 0.9, 0.95), (2,), RULES,
                      0.65, ("identity", "orthogonal", "tokens", "interval-shuffle", "sentence"),
                      3, copies=1),
    }  # fmt: skip

    def family(self, grid: Any, place: Place) -> Goals:
        return Goals(
            size=grid.size, interactions=grid.interactions, mazes=grid.mazes, objects=grid.objects,
            copies=grid.copies, least_path=grid.least_path, steps=grid.steps,
        )  # fmt: skip

    def encoding(self, name: str) -> Encoding:
        return base.encoding_named(name)
