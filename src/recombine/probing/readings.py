"""What was found: a reading per target, with its scores, controls and curve."""

from __future__ import annotations

from dataclasses import dataclass

from recombine.errors import InvalidRequest
from recombine.lab.intervals import Interval
from recombine.probing.curves import Curve
from recombine.probing.pairs import PairReading
from recombine.probing.targets import Kind
from recombine.probing.verdicts import Bars, Verdict


@dataclass(frozen=True)
class Score:
    """One metric: on unseen combinations, on unseen rows of seen ones, by chance, by control."""

    metric: str
    across: Interval
    within: Interval | None
    chance: float
    control: float


@dataclass(frozen=True)
class LayerReading:
    """One layer's main score across and within combinations, and that of its control task."""

    layer: str
    features: int
    across: Interval
    within: Interval | None
    control: float
    validation: float


@dataclass(frozen=True)
class LabelReading:
    """One label of a multi-label target: its own AUROC, and the verdict on it alone."""

    label: str
    across: Interval
    within: Interval | None
    verdict: Verdict


@dataclass(frozen=True)
class Control:
    """A control by name: its main score (None where it does not apply) and what it means."""

    name: str
    score: float | None
    means: str


@dataclass(frozen=True)
class TargetReading:
    """All that was found about one target; `scores` holds the main metric first.

    The verdict on a multi-label target is on the mean of its labels; `labels` has one for each.
    """

    name: str
    kind: Kind
    said: str
    values: tuple[str, ...]
    verdict: Verdict
    skill: Interval | None = None
    gap: Interval | None = None
    layer: str = ""
    picks: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()
    layers: tuple[LayerReading, ...] = ()
    controls: tuple[Control, ...] = ()
    curve: Curve | None = None
    unscored: int = 0
    labels: tuple[LabelReading, ...] = ()


@dataclass(frozen=True)
class ProbeReading:
    """What can be read off activations: a reading per target, pairs where asked, and remarks."""

    targets: tuple[TargetReading, ...]
    pairs: tuple[PairReading, ...]
    rows: int
    combinations: int
    folds: int
    draws: int
    seed: int
    bars: Bars
    memory: int
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> TargetReading:
        for one in self.targets:
            if one.name == name:
                return one
        names = ", ".join(repr(one.name) for one in self.targets)
        raise InvalidRequest(f"no target {name!r}: this reading has {names}")
