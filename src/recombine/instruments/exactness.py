"""How far off a network can be: its largest error on any of many random tasks and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.errors import NotApplicable
from recombine.families._family import Regression
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, supervised
from recombine.models._model import Setting
from recombine.models.constructed import Constructed
from recombine.seeds import host_seed

SPIKE = 0.5


@dataclass(frozen=True)
class Exactness(Instrument):
    """The worst error (`sup`) over random tasks of all combinations, and R², which hides it.

    Of a network that was written down, `bound` is what no answer of it can exceed, known before
    anything is measured. Controls: the untrained twin; answers against those of other tasks
    (shuffled); and right answers, one of which was moved by 0.5 (planted), which must be seen.
    """

    name: ClassVar[str] = "exactness"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    tasks: int = 2_048
    samples: int = 8

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        family = subject.learner.family
        if not isinstance(family, Regression):
            raise NotApplicable(
                f"{self.name} measures errors of numbers; answers to {type(family).__name__} "
                "are right or wrong"
            )
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        ranks = rng.integers(family.space.size, size=self.tasks).astype(np.uint32)
        batch = subject.draw(ranks, self.name, samples=self.samples)
        right = np.asarray(batch.targets, np.float64)
        answers = np.asarray(subject.answer(batch), np.float64)
        spiked = right.copy()
        spiked[rng.integers(self.tasks), rng.integers(right.shape[1]), -1] += SPIKE
        values = _numbers(answers, right)
        bound = _bound(subject)
        if bound is not None:
            values["bound"] = bound
        controls = {
            "untrained": _numbers(np.asarray(untrained.answer(batch), np.float64), right),
            "shuffled": {"r2": _numbers(np.roll(answers, self.tasks // 2, axis=0), right)["r2"]},
            "planted": _numbers(spiked, right),
        }
        return Reading(values, controls)


def _numbers(answers: np.ndarray, right: np.ndarray) -> dict[str, float]:
    error = answers - right
    spread = ((right - right.mean(axis=(0, 1))) ** 2).sum()
    return {
        "sup": float(np.abs(error).max()),
        "mean": float(np.abs(error).mean()),
        "r2": float(1 - (error**2).sum() / spread),
    }


def _bound(subject: SupervisedSubject) -> float | None:
    """What a network of this spec promises of its first weights."""
    learner = subject.learner
    spec = getattr(learner, "model", None)
    if not isinstance(spec, Constructed) or spec.random:
        return None
    setting = Setting(
        learner.family, learner.encoding, subject.arrays["family"], subject.arrays["encoding"]
    )
    return float(spec.bound(setting))
