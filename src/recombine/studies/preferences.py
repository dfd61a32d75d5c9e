"""Do networks that imitate an expert in a grid world compose preferences they never saw together?

`recombine run preferences --preset standard` trains networks to act for sums of preferences: by
held-out share, width, support and encoding, judged along the expert's path and in closed loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from recombine.encodings._encoding import Encoding
from recombine.encodings.nonlinear import FewShot
from recombine.families.preferences import Preferences
from recombine.studies import _base as base
from recombine.studies._base import Training
from recombine.studies._worlds import Place, WorldGrid, Worlds

RULES = ("popular", "unpopular", "disconnected", "non-compositional")
WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)
SHOTS = 16  # demonstrations told by the few-shot encoding


@dataclass(frozen=True)
class Grid(WorldGrid):
    """Preferences: modules M, at most `active` at a time, over `features` kinds of objects.

    The first of each is where everything is asked; the last of `features` is that of all others.
    """

    modules: tuple[int, ...] = (5,)
    active: tuple[int, ...] = (2,)
    features: tuple[int, ...] = (5,)
    objects: int = 1


class PreferencesStudy(Worlds):
    """Compositional preferences: imitation in a grid world."""

    name = "preferences"
    question = "Do networks that imitate an expert compose preferences never seen together?"
    source = base.SOURCE
    cost = "quick: 1 min on two CPU cores; standard: 9 min on one H200"
    not_shown = (
        "Whether longer training would change the picture: the published runs take 3 million "
        "steps of 128 episodes.",
        "Exploration or reward: the networks imitate an expert and never see a reward.",
    )
    training: ClassVar = {
        "smoke": Training(40, 1e-3, 16, evaluations=2, weight_decay=1e-3, schedule="cosine"),
        "quick": Training(2_000, 3e-3, 64, evaluations=5, weight_decay=1e-3, schedule="cosine"),
        "standard": Training(
            80_000, 1e-3, 128, evaluations=12, weight_decay=1e-3, schedule="cosine"
        ),
        "paper": Training(3_000_000, 1e-4, 128, evaluations=300, weight_decay=1e-3),
    }
    harmful: ClassVar = {
        "disconnected": 0.05, "non-compositional": 0.05, "unpopular": 0.02, "popular": -0.02,
    }  # fmt: skip
    presets: ClassVar = {
        "smoke": Grid("smoke", (16,), (0.25, 0.5), (2,), ("disconnected",), 0.5,
                      ("identity",), 2, (), (6,), (2,), (6,), 2),
        "quick": Grid(held_out=(0.25, 0.5), depth=(3,)),
        "standard": Grid("standard", (128, 256, 512), (0.25, 0.5, 0.75), (4,), RULES, 0.5,
                         base.SIX_ENCODINGS, 5, (), (8,), (3,), (8,), 4),
        "paper": Grid("paper", WIDTHS, (0.25, 0.125, 0.5, 0.75, 0.9, 0.95, 0.98), (2, 4), RULES,
                      0.25, base.SIX_ENCODINGS, 3, WIDTHS, (16, 8, 24, 32), (3, 2, 4, 5, 6, 7),
                      (16, 32), 4),
    }  # fmt: skip

    def family(self, grid: Any, place: Place) -> Preferences:
        return Preferences(**place, objects=grid.objects)

    def places(self, grid: Any) -> list[Place]:
        first = {"modules": grid.modules[0], "active": grid.active[0], "features": grid.features[0]}
        others = [{"modules": m, "active": k, "features": grid.features[-1]}
                  for m in grid.modules for k in grid.active]  # fmt: skip
        return [first, *(place for place in others if place != first)]

    def encoding(self, name: str) -> Encoding:
        return FewShot(shots=SHOTS) if name == "few-shot" else base.encoding_named(name)
