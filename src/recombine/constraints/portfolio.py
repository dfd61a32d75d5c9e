"""An integer portfolio: which lots to hold, given a budget, sectors, turnover and cardinality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from recombine.constraints.integer import IntegerProblem, Program, Rows
from recombine.constraints.problem import EXACT, Constraint, Variable, outside

RULES = ("sector", "turnover", "names")


@dataclass(frozen=True)
class Portfolio(IntegerProblem):
    """Assets with a return for each lot; `lots1`, `lots2`, ... are how many lots to hold.

    Exactly `budget` lots are held. `caps` limits the lots in each sector (sectors are numbered
    from 1), `turnover` the lots bought and sold since `held`, `names` how many assets are held.

    >>> from recombine.constraints.integer import optimum
    >>> optimum(Portfolio((3, 5), (4, 4), (1, 2), (2, 2), budget=4, turnover=2)).tolist()
    [1, 3]
    """

    maximise: ClassVar[bool] = True
    statement: ClassVar[str] = (
        "Choose a portfolio: each variable is the whole number of lots held of an asset, from 0 "
        "to its `most`. The lots of all assets add up to the budget exactly. Where given, a "
        "sector's cap limits the lots of its assets together, most_turnover limits the sum over "
        "assets of the difference between the lots and those held before, and most_assets_held "
        "limits how many assets have any lots. Make the sum of return times lots as large as "
        "possible."
    )

    returns: tuple[int, ...]
    limits: tuple[int, ...]
    sectors: tuple[int, ...]
    held: tuple[int, ...]
    budget: int
    caps: tuple[tuple[int, int], ...] = ()  # sector, most lots
    turnover: int | None = None
    names: int | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(
            Variable(f"lots{i}", 0, limit, float(max(limit, 1)), True)
            for i, limit in enumerate(self.limits, 1)
        )

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return (
            *(Constraint(f"{v.name} within bounds", "box", scale=v.scale) for v in self.variables),
            Constraint("budget", "equality", scale=self.budget),
            *(Constraint(f"sector {s}", "inequality", scale=max(c, 1)) for s, c in self.caps),
            *(Constraint("turnover", "coupling", scale=max(self.turnover or 1, 1)),)
            * (self.turnover is not None),
            *(Constraint("names", "coupling", scale=self.names or 1),) * (self.names is not None),
        )

    def excess(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch rule"]:
        rules = [np.abs(x.sum(-1) - self.budget)]
        sectors = np.array(self.sectors)
        rules += [x[..., sectors == sector].sum(-1) - cap for sector, cap in self.caps]
        if self.turnover is not None:
            rules.append(np.abs(x - np.array(self.held)).sum(-1) - self.turnover)
        if self.names is not None:
            rules.append((np.abs(x) > EXACT).sum(-1) - float(self.names))
        broken = np.maximum(np.stack(rules, axis=-1), 0.0)
        return np.concatenate([outside(x, self.variables), broken], axis=-1)

    def objective(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch"]:
        return x @ np.array(self.returns, float)

    def guess(self) -> Float[np.ndarray, "variable"]:
        """The same number of lots of everything, rounded down."""
        return np.full(len(self.returns), float(self.budget // len(self.returns)))

    def program(self) -> Program:
        """Besides the lots: how far each is from what was held, and whether any is held."""
        n = len(self.returns)
        rows = Rows(3 * n)
        rows.add(list(range(n)), [1] * n, low=self.budget, high=self.budget)
        for sector, cap in self.caps:
            members = [i for i in range(n) if self.sectors[i] == sector]
            rows.add(members, [1] * len(members), high=cap)
        for i in range(n):
            rows.add([n + i, i], [1, -1], low=-self.held[i])
            rows.add([n + i, i], [1, 1], low=self.held[i])
            rows.add([i, 2 * n + i], [1, -self.limits[i]], high=0)
        if self.turnover is not None:
            rows.add(list(range(n, 2 * n)), [1] * n, high=self.turnover)
        if self.names is not None:
            rows.add(list(range(2 * n, 3 * n)), [1] * n, high=self.names)
        limits, far = np.array(self.limits), np.array(self.limits) + np.array(self.held)
        cost = np.concatenate([-np.array(self.returns), np.zeros(2 * n)])
        return rows.program(cost, np.zeros(3 * n), np.concatenate([limits, far, np.ones(n)]))

    def describe(self) -> dict[str, Any]:
        columns = zip(self.returns, self.limits, self.sectors, self.held, strict=True)
        return {
            "budget": self.budget,
            "assets": [
                {"asset": i, "return": gain, "most": most, "sector": sector, "held": held}
                for i, (gain, most, sector, held) in enumerate(columns, 1)
            ],
            "sector_caps": {str(sector): cap for sector, cap in self.caps},
            "most_turnover": self.turnover,
            "most_assets_held": self.names,
        }


def draw(rng: np.random.Generator, size: int, rules: frozenset[str]) -> Portfolio:
    """A random portfolio that some holding, drawn first, is known to obey."""
    witness = rng.integers(0, 4, size)
    witness[rng.integers(size)] = rng.integers(1, 4)
    limits = np.maximum(witness, rng.integers(2, 5, size))
    sectors = rng.integers(1, 3, size)
    held = np.clip(witness + rng.integers(-1, 2, size), 0, 4)
    moved = int(np.abs(witness - held).sum())
    caps = [(s, int(witness[sectors == s].sum())) for s in (1, 2)]
    return Portfolio(
        returns=tuple(map(int, rng.integers(1, 10, size))),
        limits=tuple(map(int, limits)),
        sectors=tuple(map(int, sectors)),
        held=tuple(map(int, held)),
        budget=int(witness.sum()),
        caps=(caps[rng.integers(2)],) if "sector" in rules else (),
        turnover=moved + int(rng.integers(0, 3)) if "turnover" in rules else None,
        names=int((witness > 0).sum()) if "names" in rules else None,
    )
