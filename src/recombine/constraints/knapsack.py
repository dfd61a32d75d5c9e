"""The 0-1 knapsack with side constraints: pack the most valuable things that go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from recombine.constraints.integer import IntegerProblem, Program, Rows
from recombine.constraints.problem import Constraint, Variable, outside

RULES = ("conflict", "needs", "one")


@dataclass(frozen=True)
class Knapsack(IntegerProblem):
    """Items of a value, a weight and a volume; `x1`, `x2`, ... are 1 for what is packed, else 0.

    Items are numbered from 1. A pair of `conflicts` may not be packed together; of a pair of
    `needs` the first goes only with the second; of the items `one`, exactly one is packed.

    >>> from recombine.constraints.integer import optimum
    >>> optimum(Knapsack((6, 5, 4), (3, 2, 2), (1, 1, 1), capacity=4, room=3)).tolist()
    [0, 1, 1]
    """

    maximise: ClassVar[bool] = True
    statement: ClassVar[str] = (
        "Pack a knapsack: each variable is 1 for an item that is packed and 0 for one that is "
        "not. The total weight may not exceed the capacity, nor the total volume the room. Items "
        "of a pair under never_together may not both be packed; of a pair under "
        "first_only_with_second the first may be packed only if the second is; of the items under "
        "exactly_one_of, if there are any, exactly one is packed. Make the total value as large "
        "as possible."
    )

    values: tuple[int, ...]
    weights: tuple[int, ...]
    volumes: tuple[int, ...]
    capacity: int
    room: int
    conflicts: tuple[tuple[int, int], ...] = ()
    needs: tuple[tuple[int, int], ...] = ()
    one: tuple[int, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(Variable(f"x{i + 1}", 0, 1, 1.0, True) for i in range(len(self.values)))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return (
            *(Constraint(f"{v.name} is 0 or 1", "box") for v in self.variables),
            Constraint("weight", "inequality", scale=self.capacity),
            Constraint("volume", "inequality", scale=self.room),
            *(Constraint(f"{a} conflicts with {b}", "coupling") for a, b in self.conflicts),
            *(Constraint(f"{a} needs {b}", "coupling") for a, b in self.needs),
            *(Constraint(f"one of {' '.join(map(str, self.one))}", "equality"),) * bool(self.one),
        )

    def excess(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch rule"]:
        rules = [
            x @ np.array(self.weights, float) - self.capacity,
            x @ np.array(self.volumes, float) - self.room,
            *(x[..., a - 1] + x[..., b - 1] - 1 for a, b in self.conflicts),
            *(x[..., a - 1] - x[..., b - 1] for a, b in self.needs),
        ]
        if self.one:
            rules.append(np.abs(x[..., np.array(self.one) - 1].sum(-1) - 1))
        broken = np.maximum(np.stack(rules, axis=-1), 0.0)
        return np.concatenate([outside(x, self.variables), broken], axis=-1)

    def objective(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch"]:
        return x @ np.array(self.values, float)

    def guess(self) -> Float[np.ndarray, "variable"]:
        """Everything is packed."""
        return np.ones(len(self.values))

    def program(self) -> Program:
        n = len(self.values)
        rows = Rows(n)
        rows.add(list(range(n)), list(self.weights), high=self.capacity)
        rows.add(list(range(n)), list(self.volumes), high=self.room)
        for a, b in self.conflicts:
            rows.add([a - 1, b - 1], [1, 1], high=1)
        for a, b in self.needs:
            rows.add([a - 1, b - 1], [1, -1], high=0)
        if self.one:
            rows.add([i - 1 for i in self.one], [1] * len(self.one), low=1, high=1)
        return rows.program(-np.array(self.values), np.zeros(n), np.ones(n))

    def describe(self) -> dict[str, Any]:
        columns = zip(self.values, self.weights, self.volumes, strict=True)
        return {
            "capacity": self.capacity,
            "room": self.room,
            "items": [
                {"item": i, "value": value, "weight": weight, "volume": volume}
                for i, (value, weight, volume) in enumerate(columns, 1)
            ],
            "never_together": [list(pair) for pair in self.conflicts],
            "first_only_with_second": [list(pair) for pair in self.needs],
            "exactly_one_of": list(self.one),
        }


def draw(rng: np.random.Generator, size: int, rules: frozenset[str]) -> Knapsack:
    """A random knapsack that takes about half of what there is, under the side rules named."""
    values, weights, volumes = (tuple(map(int, rng.integers(1, 10, size))) for _ in range(3))
    order = [int(i) + 1 for i in rng.permutation(size)]
    conflict, needs = (order[0], order[1]), (order[2], order[3])
    share = rng.uniform(0.35, 0.65, 2)
    return Knapsack(
        values,
        weights,
        volumes,
        capacity=max(round(share[0] * sum(weights)), max(weights)),
        room=max(round(share[1] * sum(volumes)), max(volumes)),
        conflicts=(conflict,) if "conflict" in rules else (),
        needs=(needs,) if "needs" in rules else (),
        one=tuple(sorted([order[0], order[2], order[-1]])) if "one" in rules else (),
    )
