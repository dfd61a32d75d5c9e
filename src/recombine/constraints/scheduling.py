"""Scheduling with capacities and precedence: which job in which slot, urgent ones early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from recombine.constraints.integer import IntegerProblem, Program, Rows
from recombine.constraints.problem import Constraint, Variable, outside

RULES = ("before", "gap", "apart")


@dataclass(frozen=True)
class Scheduling(IntegerProblem):
    """Jobs that each need a slot; `slot1`, `slot2`, ... say which, from 1 on.

    The demands of the jobs in a slot stay within `capacity`; a job runs no earlier than its
    `release` and no later than its `due` slot. Of a pair `before` the first runs in an earlier
    slot; a `gaps` triple (a, b, d) wants b exactly d slots after a; a pair `apart` never shares a
    slot. The sum of urgency times slot is to be small.

    >>> from recombine.constraints.integer import optimum
    >>> optimum(Scheduling(3, 2, (2, 2), (1, 1), (3, 3), (1, 5))).tolist()
    [2, 1]
    """

    statement: ClassVar[str] = (
        "Schedule jobs: each variable is the slot of a job, a whole number from its `first` to "
        "its `last`. The demands of the jobs in a slot may not add up to more than its capacity. "
        "Where given: the first job of a pair under first_before_second runs in an earlier slot "
        "than the second; of [a, b, d] under second_exactly_so_many_slots_after_first, job b runs "
        "exactly d slots after job a; jobs of a pair under never_in_the_same_slot do not share a "
        "slot. Make the sum of urgency times slot as small as possible."
    )

    slots: int
    capacity: int
    demands: tuple[int, ...]
    release: tuple[int, ...]
    due: tuple[int, ...]
    urgency: tuple[int, ...]
    before: tuple[tuple[int, int], ...] = ()
    gaps: tuple[tuple[int, int, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        windows = zip(self.release, self.due, strict=True)
        return tuple(
            Variable(f"slot{j}", first, last, float(max(self.slots - 1, 1)), True)
            for j, (first, last) in enumerate(windows, 1)
        )

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        far = float(max(self.slots - 1, 1))
        return (
            *(Constraint(f"{v.name} in its window", "box", scale=v.scale) for v in self.variables),
            *(
                Constraint(f"capacity of slot {t}", "inequality", scale=self.capacity)
                for t in range(1, self.slots + 1)
            ),
            *(Constraint(f"{a} before {b}", "coupling", scale=far) for a, b in self.before),
            *(Constraint(f"{b} is {d} after {a}", "equality", scale=far) for a, b, d in self.gaps),
            *(Constraint(f"{a} apart from {b}", "coupling", scale=far) for a, b in self.apart),
        )

    def excess(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch rule"]:
        slots = np.arange(1, self.slots + 1)
        # A job between two slots weighs on the nearer one.
        used = np.einsum("...jt,j->...t", np.round(x)[..., None] == slots, np.array(self.demands))
        rules = [
            *(x[..., a - 1] + 1 - x[..., b - 1] for a, b in self.before),
            *(np.abs(x[..., b - 1] - x[..., a - 1] - d) for a, b, d in self.gaps),
            *(1 - np.abs(x[..., b - 1] - x[..., a - 1]) for a, b in self.apart),
        ]
        stacked = [np.stack(rules, axis=-1)] if rules else []
        broken = np.maximum(np.concatenate([used - float(self.capacity), *stacked], axis=-1), 0.0)
        return np.concatenate([outside(x, self.variables), broken], axis=-1)

    def objective(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch"]:
        return x @ np.array(self.urgency, float)

    def guess(self) -> Float[np.ndarray, "variable"]:
        """Each job as early as it may run."""
        return np.array(self.release, float)

    def program(self) -> Program:
        """Besides the slots: one column for each job in each slot."""
        n, slots = len(self.demands), self.slots
        rows = Rows(n + n * slots)

        def placed(job: int) -> list[int]:
            return list(range(n + job * slots, n + (job + 1) * slots))

        for job in range(n):
            rows.add(placed(job), [1] * slots, low=1, high=1)
            rows.add([job, *placed(job)], [-1, *range(1, slots + 1)], low=0, high=0)
        for t in range(slots):
            here = [placed(job)[t] for job in range(n)]
            rows.add(here, list(self.demands), high=self.capacity)
        for a, b in self.before:
            rows.add([b - 1, a - 1], [1, -1], low=1)
        for a, b, d in self.gaps:
            rows.add([b - 1, a - 1], [1, -1], low=d, high=d)
        for a, b in self.apart:
            for t in range(slots):
                rows.add([placed(a - 1)[t], placed(b - 1)[t]], [1, 1], high=1)
        cost = np.concatenate([self.urgency, np.zeros(n * slots)])
        least = np.concatenate([self.release, np.zeros(n * slots)])
        return rows.program(cost, least, np.concatenate([self.due, np.ones(n * slots)]))

    def describe(self) -> dict[str, Any]:
        columns = zip(self.demands, self.release, self.due, self.urgency, strict=True)
        return {
            "slots": self.slots,
            "capacity_of_a_slot": self.capacity,
            "jobs": [
                {"job": j, "demand": demand, "first": first, "last": last, "urgency": urgency}
                for j, (demand, first, last, urgency) in enumerate(columns, 1)
            ],
            "first_before_second": [list(pair) for pair in self.before],
            "second_exactly_so_many_slots_after_first": [list(gap) for gap in self.gaps],
            "never_in_the_same_slot": [list(pair) for pair in self.apart],
        }


def draw(rng: np.random.Generator, size: int, rules: frozenset[str], slots: int) -> Scheduling:
    """A random set of jobs that some schedule, drawn first, is known to obey."""
    witness = rng.integers(1, slots + 1, size)
    first, second = rng.choice(size, 2, replace=False)
    if witness[first] == witness[second]:
        witness[second] = witness[first] % slots + 1
    early, late = (first, second) if witness[first] < witness[second] else (second, first)
    a, b = rng.choice(size, 2, replace=False)
    if witness[a] > witness[b]:
        a, b = b, a
    c, d = rng.choice(size, 2, replace=False)
    if witness[c] == witness[d]:
        c, d = first, second
    demands = rng.integers(1, 6, size)
    used = np.bincount(witness, weights=demands, minlength=slots + 1)
    release = np.maximum(witness - rng.integers(0, slots, size), 1)
    due = np.minimum(witness + rng.integers(0, slots, size), slots)
    return Scheduling(
        slots,
        capacity=int(used.max()),
        demands=tuple(map(int, demands)),
        release=tuple(map(int, release)),
        due=tuple(map(int, due)),
        urgency=tuple(map(int, rng.integers(1, 10, size))),
        before=((int(early) + 1, int(late) + 1),) if "before" in rules else (),
        gaps=((int(a) + 1, int(b) + 1, int(witness[b] - witness[a])),) if "gap" in rules else (),
        apart=((int(c) + 1, int(d) + 1),) if "apart" in rules else (),
    )
