"""What is asked: a study's grid, its cells and instruments, and claims fixed in advance."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np

from recombine.errors import InvalidRequest, unknown
from recombine.instruments._instrument import Instrument, Reading
from recombine.lab.identity import node_id
from recombine.lab.statistics import Interval, mean_interval, p_value_against

if TYPE_CHECKING:
    from recombine.lab.judge import Judgement
    from recombine.learners._learner import Learner
    from recombine.report.document import Section


@dataclass(frozen=True)
class Cell:
    """One learner's run as a study asks for it: what varies (`labels`) and what is read."""

    learner: Learner
    labels: Mapping[str, Any]
    instruments: tuple[Instrument, ...] = ()

    @cached_property
    def id(self) -> str:
        return node_id(self.learner)


@dataclass(frozen=True)
class ReadingRequest:
    """The identity of a reading: an instrument applied to a cell."""

    cell: str
    instrument: Instrument


@dataclass(frozen=True, eq=False)
class Row:
    """A finished cell with its readings, as claims and figures see it."""

    labels: Mapping[str, Any]
    cell: str
    summary: Mapping[str, Any]
    readings: Mapping[str, Reading]
    compute: Mapping[str, Any] = field(default_factory=dict)
    losses: Callable[[], np.ndarray] = lambda: np.empty(0)  # of training; read when asked for

    def value(self, instrument: str, name: str, control: str | None = None) -> float:
        """A number of a reading, or of one of its controls; NaN where the reading has none."""
        reading = self.readings.get(instrument)
        if reading is None:
            return float("nan")
        if control is not None and control not in reading.controls:
            raise unknown(f"control of {instrument}", control, reading.controls)
        numbers = reading.values if control is None else reading.controls[control]
        return numbers.get(name, float("nan"))

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of an evaluation along training."""
        found = self.summary["evaluations"].get(metric, [])
        return np.asarray(self.summary["evaluation_steps"]), np.asarray(found, dtype=float)

    @property
    def loss(self) -> float:
        """The mean training loss over the last twentieth; NaN where it has no curve."""
        losses = self.losses()
        return float(np.mean(losses[-max(1, len(losses) // 20) :])) if len(losses) else float("nan")

    @property
    def diverged(self) -> bool:
        return self.summary.get("diverged_at") is not None


class Results(Sequence[Row]):
    """Rows that can be narrowed by label.

    >>> Results([]).where(width=64).labels("width")
    []
    """

    def __init__(self, rows: Sequence[Row]):
        self._rows = tuple(rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def where(self, **labels: Any) -> Results:
        return Results(
            [r for r in self if all(r.labels.get(name) == value for name, value in labels.items())]
        )

    def labels(self, name: str) -> list[Any]:
        """The values a label takes, sorted."""
        return sorted({row.labels[name] for row in self if name in row.labels})

    def values(self, instrument: str, name: str, control: str | None = None) -> np.ndarray:
        """One number a row; diverged members are left out, and counted by `diverged`."""
        found = [row.value(instrument, name, control) for row in self if not row.diverged]
        return np.asarray([v for v in found if np.isfinite(v)])

    @property
    def diverged(self) -> int:
        return sum(row.diverged for row in self)

    def paired(
        self, by: str, first: Mapping[str, Any], second: Mapping[str, Any],
        number: Callable[[Row], float],
    ) -> np.ndarray:  # fmt: skip
        """second - first for each value of label `by` (a seed) that both have."""
        left = {row.labels[by]: number(row) for row in self.where(**first) if not row.diverged}
        right = {row.labels[by]: number(row) for row in self.where(**second) if not row.diverged}
        pairs = [right[key] - left[key] for key in sorted(left.keys() & right.keys())]
        return np.asarray([pair for pair in pairs if np.isfinite(pair)])


class NotTested(Exception):
    """Raised by a measure when this preset cannot carry the claim; says what it would take."""


@dataclass(frozen=True)
class Evidence:
    """What speaks for or against a claim: an interval at any level."""

    interval: Callable[[float], Interval]
    p: Callable[[float], float]
    note: str = ""

    @staticmethod
    def of_values(values: Sequence[float] | np.ndarray, note: str = "") -> Evidence:
        """One number for each unit of replication; without any, or with gaps, nothing is tested."""
        numbers = np.asarray(values, dtype=float)
        gaps = int(np.sum(~np.isfinite(numbers)))
        if gaps:
            raise NotTested(f"{gaps} of {numbers.size} units gave no number.")
        if not numbers.size:
            raise NotTested("No unit is finished.")
        return Evidence(
            lambda level: mean_interval(numbers, level=level),
            lambda threshold: p_value_against(numbers, threshold),
            note,
        )

    @staticmethod
    def of_interval(interval: Callable[[float], Interval], note: str = "") -> Evidence:
        """A statistic that brings its own interval, such as a regression's coefficient."""
        return Evidence(
            interval, lambda threshold: p_value_against(interval(0.95), threshold), note
        )


SHARE = (0.0, 1.0)
DIFFERENCE = (-1.0, 1.0)  # of two shares; also a correlation


@dataclass(frozen=True)
class Claim:
    """A sentence with a numeric criterion fixed before the run.

    `measure` turns results into evidence; the bounds are the criterion. `within` holds all that
    the number could be, such as `SHARE`: an interval ends there.
    """

    name: str
    sentence: str
    measure: Callable[[Results], Evidence]
    unit: str = "seeds"
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    within: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        least, most = self.within
        if not all(least < bound < most for bound in self.bounds):
            raise ValueError(
                f"claim {self.name!r}: {self.criterion} settles nothing of a number within "
                f"{least:g} to {most:g}"
            )

    @property
    def bounds(self) -> list[float]:
        """The numbers the criterion names."""
        named = (self.at_least, self.at_most, self.above, self.below)
        return [bound for bound in named if bound is not None]

    @property
    def criterion(self) -> str:
        words = {
            "at_least": "at least", "at_most": "at most", "above": "above", "below": "below"
        }  # fmt: skip
        parts = [
            f"{text} {getattr(self, name):g}"
            for name, text in words.items()
            if getattr(self, name) is not None
        ]
        return " and ".join(parts)

    @property
    def meets(self) -> tuple[float | None, float | None]:
        low = self.at_least if self.at_least is not None else self.above
        high = self.at_most if self.at_most is not None else self.below
        return (low, high)


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """A grid that can be asked of other seeds: the one that counting begins with.

    >>> list(Seeded(first_seed=100).drawn(3))
    [100, 101, 102]
    """

    first_seed: int = 0

    def drawn(self, count: int) -> range:
        """As many seeds, from the first on; two grids a hundred apart share none."""
        if self.first_seed < 0:
            raise InvalidRequest(f"first_seed={self.first_seed}: expected at least 0")
        return range(self.first_seed, self.first_seed + count)


class Study(abc.ABC):
    """A question, its source, its grid per preset, its instruments and its claims.

    Subclasses hold no state. `Grid` is a frozen dataclass (`Seeded`, so that verdicts can be
    repeated) whose fields can be set from the command line; `presets` gives one for each of the
    four sizes.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str]
    cost: ClassVar[str]
    not_shown: ClassVar[tuple[str, ...]] = ()
    presets: ClassVar[Mapping[str, Any]]

    @abc.abstractmethod
    def cells(self, grid: Any) -> list[Cell]:
        """The first (often the only) round."""

    def next_cells(self, grid: Any, results: Results, number: int) -> list[Cell]:
        """The cells of a further round, decided by earlier readings alone; none ends the study."""
        return []

    def most_further_cells(self, grid: Any) -> int:
        """A bound on the cells of all further rounds, for the plan."""
        return 0

    @abc.abstractmethod
    def claims(self, grid: Any) -> list[Claim]:
        """What is claimed, with criteria, whatever comes out."""

    @abc.abstractmethod
    def sections(self, grid: Any, results: Results) -> Sequence[Section]:
        """Figures and tables for the report."""

    def conclusion(self, judgements: Sequence[Judgement]) -> str:
        """The verdicts in one plain sentence; a study whose claims stand together says so."""
        from recombine.lab.judge import sentence

        return sentence(judgements)

    def grid(self, preset: str, settings: Mapping[str, str] | None = None) -> Any:
        """The grid of a preset with some of its values set by hand."""
        if preset not in self.presets:
            raise unknown("preset", preset, self.presets)
        return with_settings(self.presets[preset], settings or {})


def with_settings(grid: Any, settings: Mapping[str, str]) -> Any:
    """A grid with fields replaced by what was typed: `width=64,128` or `seeds=5`."""
    fields = {f.name: getattr(grid, f.name) for f in dataclasses.fields(grid)}
    changed = {}
    for name, text in settings.items():
        if name not in fields:
            raise unknown("grid value", name, fields)
        example = fields[name]
        if example == ():  # no value says of what type its values would be
            example = (get_args(get_type_hints(type(grid))[name])[0](),)
        changed[name] = parse_value(name, str(text), example)
        hint = get_type_hints(type(grid))[name]
        if get_origin(hint) is Literal and changed[name] not in get_args(hint):
            raise unknown(name, changed[name], get_args(hint))
    return dataclasses.replace(grid, **changed)


def parse_value(name: str, text: str, example: Any) -> Any:
    """Text as a value of the same type as `example`; tuples are typed with commas."""
    if isinstance(example, tuple):
        inner = example[0] if example else ""
        found = tuple(parse_value(name, p.strip(), inner) for p in text.split(",") if p.strip())
        if not found:
            raise InvalidRequest(f"{name}={text!r}: expected at least one value, such as {inner}")
        return found
    try:
        if isinstance(example, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(example)(text)
    except (ValueError, KeyError):
        kind = {"int": "a whole number", "float": "a number", "bool": "true or false"}
        wanted = kind.get(type(example).__name__, type(example).__name__)
        raise InvalidRequest(f"{name}={text!r}: expected {wanted}, such as {example}") from None
