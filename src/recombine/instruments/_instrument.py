"""What every instrument provides: a reading of a subject, with its controls."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from recombine.errors import RecombineError
from recombine.instruments.subject import Subject

if TYPE_CHECKING:
    from recombine.learners._learner import Learner


@dataclass(frozen=True)
class Reading:
    """Numbers read off a subject, those of its controls, and the tables behind, by column."""

    values: dict[str, float]
    controls: dict[str, dict[str, float]]
    tables: dict[str, dict[str, list[Any]]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {"values": self.values, "controls": self.controls, "tables": self.tables}

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Reading:
        return Reading(document["values"], document["controls"], document["tables"])


@dataclass(frozen=True)
class Instrument(abc.ABC):
    """Asks a subject for the abilities it needs and returns a reading with its controls.

    Subclasses are frozen dataclasses; every field is part of the reading's identity.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    # A reading without these is refused by the judge.
    controls: ClassVar[tuple[str, ...]]

    def cells(self, learner: Learner) -> dict[str, Learner]:
        """Further cells this instrument must look at; the plan makes them."""
        return {}

    @abc.abstractmethod
    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        """The reading of one subject beside its untrained twin of the same shape and support."""


def check_controls(instrument: Instrument, reading: Reading) -> None:
    """Refuses a reading that lacks a control: without it the numbers cannot carry a claim."""
    missing = [name for name in instrument.controls if not reading.controls.get(name)]
    if missing:
        raise RecombineError(
            f"a reading of {instrument.name} lacks its control {', '.join(missing)}: "
            "a report without controls is refused"
        )
