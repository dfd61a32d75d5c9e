"""How many combinations of preferences must an imitator see, and does a transformer need fewer?

`recombine run preference-law --preset standard` asks in the grid world of preferences what study
`law` asks of the hyperteacher, by the same search and with the same laws: N* is the number of
trained combinations at which the unseen all-actions accuracy reaches .85. Expected from the
literature: N* grows less than exponentially, a vanishing share of all combinations is enough, and
transformers need fewer than MLPs. Preset `paper` trains the published held-out shares, with four
objects in a room and a target of .8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recombine.errors import unknown
from recombine.families.preferences import Preferences
from recombine.studies import _law
from recombine.studies._base import Training
from recombine.studies._law import PUBLISHED, Published, Setting
from recombine.studies.law import BEYOND, BOTH, Law
from recombine.supports.drawing import left

# The rate falls, as in study `preferences`: with a constant one the same accuracy takes longer.
TRAINING = {
    "smoke": Training(40, 3e-3, 16, evaluations=2, weight_decay=1e-3, schedule="cosine"),
    "quick": Training(1_500, 5e-3, 64, evaluations=4, weight_decay=1e-3, schedule="cosine"),
    "standard": Training(8_000, 3e-3, 128, evaluations=8, weight_decay=1e-3, schedule="cosine"),
    "paper": Training(3_000_000, 1e-4, 128, evaluations=300, weight_decay=1e-3),
}
SWEEP = Published(tuple(range(8, 33, 4)), (4, 5, 6), (0.125, 0.25, 0.5, 0.75, *PUBLISHED.shares))
STARTS = ("spread", "published")


@dataclass(frozen=True)
class Grid(_law.Grid):
    """The same search where an agent acts for a sum of preferences over kinds of objects."""

    metric: ClassVar[str] = Preferences.metric
    lengths: ClassVar[Mapping[str, Training]] = TRAINING
    published: ClassVar[Published] = SWEEP

    features: int = 7  # kinds of objects
    objects: int = 1
    start: str = "spread"  # "spread": `first` sizes; "published": those of the published shares

    def __post_init__(self):
        if self.start not in STARTS:
            raise unknown("start", self.start, STARTS)

    def family(self, modules: int, active: int) -> Preferences:
        return Preferences(
            modules=modules, active=active, features=self.features, objects=self.objects
        )

    def first_sizes(self, setting: Setting) -> list[int]:
        if self.start == "spread":
            return super().first_sizes(setting)
        # What leaves too little to score is no size; what connects too little is told by the plan.
        sizes = [left(setting.space, share) for share in self.published.shares]
        return sorted(size for size in sizes if size <= setting.span[1])

    @property
    def first_count(self) -> int:
        return self.first if self.start == "spread" else len(self.published.shares)


class PreferenceLaw(Law):
    """How many combinations of preferences must be shown, as they grow in number and size."""

    name = "preference-law"
    question = (
        "How many combinations of preferences must an imitator be shown, as the preferences and "
        "the size of combinations grow, and does a transformer need fewer than an MLP?"
    )
    cost = "quick: 2 min on two CPU cores; standard: 4 min on one H200 (estimated)"
    not_shown = (
        *BEYOND,
        "Families other than the preferences, and supports that are not drawn at random.",
        "Other learning rates: one was chosen for both models in a pilot, not one for each.",
        "Whether a network acts well by itself: scores are taken along the expert's path.",
    )
    presets: ClassVar = {
        "smoke": Grid(
            "smoke", (6,), (3,), ("mlp",), 16, 2, 8, 1, 1, 0, 3e-3, 3e-3, 0.8, 5, 2, 1, 2,
        ),
        # The transformer alone: an MLP does not learn its tasks in minutes on a CPU.
        "quick": Grid(
            "quick", (5, 6, 7), (3,), ("transformer",), 64, 2, 32, 1, 2, 0, 5e-3, 5e-3, 0.85,
            3, 2, 3, 5, features=7,
        ),
        # Hidden units of the transformer are chosen for as many parameters as the MLP has.
        "standard": Grid(
            "standard", (6, 8, 10, 12, 16), (3, 4), BOTH, 192, 3, 64, 2, 2, 608, 3e-3, 3e-3, 0.85,
            3, 4, 1, 5, features=16,
        ),
        "paper": Grid(
            "paper", SWEEP.modules, SWEEP.active, BOTH, 1024, 2, 256, 4, 4, 0, 1e-4, 1e-4, 0.8,
            19, 2, 0, 3, features=32, objects=4, start="published",
        ),
    }  # fmt: skip
