"""The constrained tasks that networks are trained on and live models are asked, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recombine._lazy import load
from recombine.constraints.family import ConstrainedFamily
from recombine.errors import unknown
from recombine.families import SEQUENCES

POWER_FLOW, WHOLE_NUMBERS = "power flow", "whole numbers"


@dataclass(frozen=True)
class Task:
    """A family with its fields, and the kind of problem it is."""

    kind: str
    family: str
    fields: tuple[tuple[str, Any], ...] = ()

    def made(self, **sizes: int) -> ConstrainedFamily[Any]:
        """The family with these numbers of items."""
        return load(SEQUENCES[self.family])(**dict(self.fields), **sizes)


TASKS: dict[str, Task] = {
    "case9": Task(POWER_FLOW, "power-flow", (("grid", "case9"),)),
    "case14": Task(POWER_FLOW, "power-flow", (("grid", "case14"),)),
    "case30": Task(POWER_FLOW, "power-flow", (("grid", "case30"),)),
    "portfolio": Task(WHOLE_NUMBERS, "portfolio"),
    "scheduling": Task(WHOLE_NUMBERS, "scheduling"),
    "knapsack": Task(WHOLE_NUMBERS, "knapsack"),
}


def task_named(name: str) -> Task:
    """
    >>> task_named("case14").made(train_items=9).grid
    'case14'
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
