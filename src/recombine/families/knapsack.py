"""Knapsacks with side constraints, told item by item and answered with a row of bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.constraints.knapsack import Knapsack, draw
from recombine.constraints.whole_numbers import WholeNumbers, Widths, clause, clauses, only
from recombine.errors import InvalidRequest

_WIDTHS: Widths = {
    "capacity": (2, 2),
    "item": (1, 1, 1),
    "conflict": (1, 1),
    "needs": (1, 1),
    "one": (1, 1, 1),
}


@dataclass(frozen=True)
class KnapsackFamily(WholeNumbers[Knapsack]):
    """0-1 knapsacks of 4 to 5 items (7 beyond training) with conflicts, needs and choices.

    Trained: every rule, but never a conflict and a need together. The longest source has 40 words,
    the longest answer 7; a word is a digit or one of five names.

    >>> family = KnapsackFamily(train_items=9, test_items=2, validation_items=2, beyond_items=2)
    >>> item = family.corpus(0)["train"][0]
    >>> family.solve(item.source) == item.target
    True
    """

    name: ClassVar[str] = "knapsack"
    unit: ClassVar[str] = "items more than trained, or pairs of rules never trained together"
    instruction: ClassVar[str] = (
        "Pack a knapsack. `capacity` gives the most weight and the most volume, in two digits "
        "each; each `item` has a value, a weight and a volume; items are numbered from 1. "
        "`conflict a b`: not both; `needs a b`: a only with b; `one a b c`: exactly one of the "
        "three. Maximise the total value. Answer with 1 or 0 for each item, parted by spaces; of "
        "equally good answers give the first in dictionary order."
    )

    @property
    def rules(self) -> tuple[str, str, str]:
        return ("conflict", "needs", "one")

    def instance(self, rng: np.random.Generator, size: int, rules: frozenset[str]) -> Knapsack:
        return draw(rng, size, rules)

    def write(self, problem: Knapsack) -> str:
        items = zip(problem.values, problem.weights, problem.volumes, strict=True)
        return " ".join(
            [
                clause(_WIDTHS, "capacity", problem.capacity, problem.room),
                *(clause(_WIDTHS, "item", *item) for item in items),
                *(clause(_WIDTHS, "conflict", *pair) for pair in problem.conflicts),
                *(clause(_WIDTHS, "needs", *pair) for pair in problem.needs),
                *(clause(_WIDTHS, "one", *problem.one) for _ in range(bool(problem.one))),
            ]
        )

    def read(self, source: str) -> Knapsack:
        found = clauses(_WIDTHS, source)
        capacity, room = only(found, "capacity")
        if not found["item"]:
            raise InvalidRequest(f"there is no `item` in {source!r}")
        values, weights, volumes = zip(*found["item"], strict=True)
        mentioned = {i for word in ("conflict", "needs", "one") for c in found[word] for i in c}
        if not mentioned <= set(range(1, len(values) + 1)):
            raise InvalidRequest(f"a rule names an item beyond 1 to {len(values)} in {source!r}")
        return Knapsack(
            values,
            weights,
            volumes,
            capacity,
            room,
            conflicts=tuple((a, b) for a, b in found["conflict"]),
            needs=tuple((a, b) for a, b in found["needs"]),
            one=only(found, "one") if found["one"] else (),
        )
