"""One instrument for all of them: how many questions of its own exam a subject answers rightly."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject


class Examined(Subject):
    """A subject that brings questions with their right answers."""

    abilities: ClassVar[frozenset[str]] = frozenset({"answer", "weights"})

    def __init__(self, tensors: dict[str, np.ndarray]):
        self.tensors = tensors

    def weights(self) -> dict[str, np.ndarray]:
        return self.tensors

    @abc.abstractmethod
    def exam(self) -> tuple[Any, np.ndarray]:
        """Questions, and the right answer to each."""

    @abc.abstractmethod
    def right(self, answers: Any, wanted: np.ndarray) -> np.ndarray:
        """How right each answer is, from 0 to 1."""


@dataclass(frozen=True)
class Exam(Instrument):
    """The share of right answers, of the untrained twin's, and of the right answers themselves."""

    name: ClassVar[str] = "exam"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "planted")

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        assert isinstance(subject, Examined) and isinstance(untrained, Examined)
        questions, wanted = subject.exam()

        def share(answers: Any) -> dict[str, float]:
            return {"right": float(np.mean(subject.right(answers, wanted), dtype=np.float64))}

        return Reading(
            share(subject.answer(questions)),
            {"untrained": share(untrained.answer(questions)), "planted": share(wanted)},
        )
