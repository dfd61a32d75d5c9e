"""Which constraints a network's answers obey, beside what answers without competence obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from recombine.constraints.baselines import NULLS, moved, rated
from recombine.constraints.baselines import answers as baselines
from recombine.constraints.family import Answer, ConstrainedFamily
from recombine.constraints.problem import KINDS, Problem, judge
from recombine.errors import InvalidRequest, NotApplicable
from recombine.families._sequence import TEST, TRAIN, VALIDATION
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.exact_match import SEEN, in_text
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed

METRICS = (
    "parsed", "exact", "strict", "micro", "macro", *KINDS, "violation", "squared_error", "gap",
)  # fmt: skip
NETWORK = "network"


class Instances(NamedTuple):
    """Some items of a split: the problems, and their optima as they are written."""

    sources: list[np.ndarray]
    problems: list[Problem]
    optima: list[Answer]
    longest: int  # tokens of an answer

    @property
    def sizes(self) -> list[int]:
        return [len(x) for x in self.optima]


@dataclass(frozen=True)
class Constraints(Instrument):
    """Satisfied constraints by kind, strict feasibility, error and gap, beside null baselines.

    Up to `items` items like those of training (`seen`), and with `beyond` of each split that goes
    beyond it (`unseen_...`). A share of satisfied constraints says little by itself, so a reading
    without these rows on the same instances is refused: an answer that takes no thought (guess),
    the optimum of other data (copied), the optimum with 1 % noise, and the optimum with as many
    decimals as an answer has (rounded). The other controls: the untrained twin, the network's
    answers handed to other instances of the same size (shuffled: how many are feasible there), and
    the optimum, found anew by the solver (planted: every constraint holds).
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "constraints"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted", *NULLS, "rounded")

    items: int = 200
    beyond: bool = True
    decimals: tuple[int, ...] = (2, 3)  # further rows of the table: the optimum rounded more
    planted: int = 32  # instances that are solved anew

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        trained, twin = in_text(subject, self.name), in_text(untrained, self.name)
        family = constrained(trained, self.name)
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        table: dict[str, list[Any]] = {name: [] for name in ("split", "answer", *METRICS)}
        for split in trained.corpus.splits:
            if split in (TRAIN, VALIDATION) or (split != TEST and not self.beyond):
                continue
            name = SEEN if split == TEST else f"unseen_{split}"
            these = self.instances(trained, family, split)
            written = self.written(trained, family, these)
            rows = {NETWORK: written, "shuffled": moved(written, these.sizes)}
            if split == TEST:
                rows["untrained"] = self.written(twin, family, these)
            rows |= self.without_competence(trained, family, these, split)
            scored = {
                row: rated(these.problems, these.optima, given) for row, given in rows.items()
            }
            values |= _named(name, scored[NETWORK])
            for row in (*NULLS, "rounded", "untrained"):
                controls[row] |= _named(name, scored.get(row, {}))
            # Boxes hold whatever the instance: only being feasible elsewhere would be a signal.
            controls["shuffled"][f"{name}_strict"] = scored["shuffled"]["strict"]
            controls["planted"][f"{name}_strict"] = self.solved(family, these)
            for row, numbers in scored.items():
                _append(table, {"split": name, "answer": row, **numbers})
        return Reading(values, controls, {"rows": table})

    def instances(
        self, subject: SequenceSubject, family: ConstrainedFamily[Any], split: str
    ) -> Instances:
        part = subject.corpus.splits[split]
        rng = self._rng(subject, split)
        chosen = rng.choice(len(part.sources), min(self.items, len(part.sources)), replace=False)
        chosen.sort()
        problems = [family.read(subject.text(part.sources[n])) for n in chosen]
        optima = [
            family.read_answer(problem, subject.text(part.targets[n]))
            for problem, n in zip(problems, chosen, strict=True)
        ]
        longest = max(len(part.targets[n]) for n in chosen)
        return Instances([part.sources[n] for n in chosen], problems, optima, longest)

    def written(
        self, subject: SequenceSubject, family: ConstrainedFamily[Any], these: Instances
    ) -> list[Answer | None]:
        """What the network answers; None where that is no answer."""
        # One token more than any right answer has: what runs on cannot be read anyway.
        found = subject.written(these.sources, these.longest + 1)
        return [
            _read(family, problem, subject.text(numbers))
            for problem, numbers in zip(these.problems, found, strict=True)
        ]

    def without_competence(
        self, subject: SequenceSubject, family: ConstrainedFamily[Any], these: Instances, split: str
    ) -> dict[str, list[Answer]]:
        rng = self._rng(subject, f"noise/{split}")
        found = baselines(family, these.problems, these.optima, rng, self.decimals)
        found["rounded"] = found.pop("optimum")  # it was read off the text of the right answer
        return found

    def solved(self, family: ConstrainedFamily[Any], these: Instances) -> float:
        """The share of optima, found anew, that obey every constraint: all, or items are wrong."""
        problems = these.problems[: self.planted]
        found = family.optima(problems)
        return float(np.mean([judge(p, x).strict for p, x in zip(problems, found, strict=True)]))

    def _rng(self, subject: SequenceSubject, what: str) -> np.random.Generator:
        return np.random.default_rng(
            host_seed(subject.learner.seeds.evaluation, f"{self.name}/{what}")
        )


def constrained(subject: SequenceSubject, instrument: str) -> ConstrainedFamily[Any]:
    """The subject's family, or a refusal: only constrained problems have constraints to obey."""
    if not isinstance(subject.family, ConstrainedFamily):
        raise NotApplicable(
            f"{instrument} needs a family of constrained problems, such as power-flow or knapsack; "
            f"{subject.family.name} is none"
        )
    return subject.family


def _read(family: ConstrainedFamily[Any], problem: Problem, text: str) -> Answer | None:
    try:
        return family.read_answer(problem, text)
    except InvalidRequest:
        return None


def _named(split: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{split}_{name}": value for name, value in numbers.items()}


def _append(table: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    for column, values in table.items():
        values.append(row.get(column))
