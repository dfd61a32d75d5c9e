"""Schedules with capacities and precedence, told job by job and answered with a slot for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.constraints.scheduling import Scheduling, draw
from recombine.constraints.whole_numbers import WholeNumbers, Widths, clause, clauses, only
from recombine.errors import InvalidRequest

_WIDTHS: Widths = {
    "slots": (1,),
    "capacity": (2,),
    "job": (1, 1, 1, 1),
    "before": (1, 1),
    "gap": (1, 1, 1),
    "apart": (1, 1),
}


@dataclass(frozen=True)
class SchedulingFamily(WholeNumbers[Scheduling]):
    """Schedules of 4 to 5 jobs (7 beyond training) in four slots, with order, gaps and distance.

    Trained: every rule, but never an order and a gap together. The longest source has 47 words,
    the longest answer 7; a word is a digit or one of six names.

    >>> family = SchedulingFamily(train_items=9, test_items=2, validation_items=2, beyond_items=2)
    >>> item = family.corpus(0)["train"][0]
    >>> family.solve(item.source) == item.target
    True
    """

    slots: int = 4

    name: ClassVar[str] = "scheduling"
    unit: ClassVar[str] = "jobs more than trained, or pairs of rules never trained together"
    instruction: ClassVar[str] = (
        "Schedule jobs. `slots` gives how many slots there are, `capacity` the demand a slot can "
        "take, in two digits; each `job` has a demand, its first and its last possible slot and "
        "its urgency; jobs and slots are numbered from 1. `before a b`: a in an earlier slot than "
        "b; `gap a b d`: b exactly d slots after a; `apart a b`: never in the same slot. Minimise "
        "the sum of urgency times slot. Answer with the slot of each job, parted by spaces; of "
        "equally good answers give the first in dictionary order."
    )

    @property
    def rules(self) -> tuple[str, str, str]:
        return ("before", "gap", "apart")

    def check(self) -> None:
        super().check()
        if not 2 <= self.slots <= 9:
            raise InvalidRequest(f"slots is {self.slots}: it must be from 2 to 9")

    def instance(self, rng: np.random.Generator, size: int, rules: frozenset[str]) -> Scheduling:
        return draw(rng, size, rules, self.slots)

    def write(self, problem: Scheduling) -> str:
        jobs = zip(problem.demands, problem.release, problem.due, problem.urgency, strict=True)
        return " ".join(
            [
                clause(_WIDTHS, "slots", problem.slots),
                clause(_WIDTHS, "capacity", problem.capacity),
                *(clause(_WIDTHS, "job", *job) for job in jobs),
                *(clause(_WIDTHS, "before", *pair) for pair in problem.before),
                *(clause(_WIDTHS, "gap", *gap) for gap in problem.gaps),
                *(clause(_WIDTHS, "apart", *pair) for pair in problem.apart),
            ]
        )

    def read(self, source: str) -> Scheduling:
        found = clauses(_WIDTHS, source)
        (slots,), (capacity,) = only(found, "slots"), only(found, "capacity")
        if not found["job"]:
            raise InvalidRequest(f"there is no `job` in {source!r}")
        demands, release, due, urgency = zip(*found["job"], strict=True)
        pairs = {i for word in ("before", "apart") for c in found[word] for i in c}
        if not (pairs | {i for a, b, _ in found["gap"] for i in (a, b)}) <= set(
            range(1, len(demands) + 1)
        ):
            raise InvalidRequest(f"a rule names a job beyond 1 to {len(demands)} in {source!r}")
        return Scheduling(
            slots,
            capacity,
            demands,
            release,
            due,
            urgency,
            before=tuple((a, b) for a, b in found["before"]),
            gaps=tuple((a, b, d) for a, b, d in found["gap"]),
            apart=tuple((a, b) for a, b in found["apart"]),
        )
