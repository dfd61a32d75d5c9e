"""AC optimal power flow: what it asks for, and whether an answer obeys the power-flow equations."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Complex, Float

from recombine.constraints.grids import BASE, Grid
from recombine.constraints.problem import Constraint, Problem, Variable, outside
from recombine.errors import InvalidRequest

BALANCE = 1e-2
"""How far power in and power out of a bus may differ, per unit."""

BOUNDS = 1e-3
"""By how much a bound or a line's limit may be exceeded, per unit."""


@dataclass(frozen=True, eq=False)
class PowerFlow(Problem):
    """The cheapest generation that serves the loads of a grid, in per-unit quantities and radians.

    Variables: the voltage magnitudes `V1`, `V2`, ..., the angles `A2`, `A3`, ... (bus 1 is the
    reference, its angle is 0 and not asked for), the active powers `P1`, ... and the reactive
    powers `Q1`, ... of the generators, named by their bus. A variable's two bounds count as one
    constraint; active and reactive balance of a bus count as one each; so does the limit at either
    end of a line.

    >>> from recombine.constraints.grids import grid
    >>> len(PowerFlow.nominal(grid("case9")).constraints)
    51
    """

    statement: ClassVar[str] = (
        "Solve an AC optimal power flow. All data are per unit, angles in radians. Variables: the "
        "voltage magnitude V and angle A of each bus (the reference bus has angle 0, which is not "
        "asked for) and the active power P and reactive power Q of each generator, numbered by "
        "bus. At every bus the power generated minus the load equals the power flowing into its "
        "lines and shunt, active and reactive, to within 0.01; lines are pi models with series "
        "impedance r + jx, total charging susceptance b and a tap ratio at their `from` end. "
        "Voltages and powers stay within their bounds, and the apparent power at both ends of a "
        "line within S_max where there is one, to within 0.001. Make the cost as small as "
        "possible: the sum over generators of c0 P^2 + c1 P + c2, where cost is [c0, c1, c2]."
    )

    grid: Grid
    load: Complex[np.ndarray, "bus"]

    @staticmethod
    def nominal(grid: Grid) -> PowerFlow:
        """The problem with the grid's own loads."""
        return PowerFlow(grid, grid.load)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return _variables(self.grid)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return _constraints(self.grid)

    def excess(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch rule"]:
        grid = self.grid
        voltage, angle, active, reactive = split(grid, x)
        phasor = voltage * np.exp(1j * angle)
        near, far = phasor[..., grid.near], phasor[..., grid.far]
        into_lines = near * np.conj(grid.own * near + grid.mutual * far)
        buses = np.arange(grid.buses)
        generated = (active + 1j * reactive) @ (grid.at[:, None] == buses).astype(float)
        carried = into_lines @ (grid.near[:, None] == buses).astype(float)
        surplus = generated + 1j * grid.shunt * voltage**2 - self.load - carried
        over = np.abs(into_lines[..., grid.limited]) - grid.limit[grid.limited]
        unbounded = np.arange(grid.buses, 2 * grid.buses - 1)  # the angles
        boxes = np.delete(outside(x, self.variables), unbounded, axis=-1)
        balance = [np.abs(np.real(surplus)), np.abs(np.imag(surplus))]
        return np.concatenate([boxes, *balance, np.maximum(over, 0.0)], axis=-1)

    def objective(self, x: Float[np.ndarray, "*batch variable"]) -> Float[np.ndarray, "*batch"]:
        """Dollars an hour."""
        active = split(self.grid, x)[2]
        square, linear, constant = self.grid.cost.T
        return np.sum(square * active**2 + linear * active + constant, axis=-1)

    def guess(self) -> Float[np.ndarray, "variable"]:
        """Voltages of 1, no angles, generators in the middle of their range, no reactive power."""
        grid = self.grid
        flat = [np.ones(grid.buses), np.zeros(grid.buses - 1)]
        return np.concatenate([*flat, grid.active.mean(1), np.zeros(grid.generators)])

    def describe(self) -> dict[str, Any]:
        grid = self.grid
        return {
            "base_MVA": BASE,
            "reference_bus": 1,
            "buses": [
                {
                    "bus": i + 1,
                    "P_load": _number(self.load[i].real),
                    "Q_load": _number(self.load[i].imag),
                    "shunt_B": _number(grid.shunt[i]),
                    "V_min": _number(grid.voltage[i, 0]),
                    "V_max": _number(grid.voltage[i, 1]),
                }
                for i in range(grid.buses)
            ],
            "generators": [
                {
                    "bus": int(grid.at[g]) + 1,
                    "P_min": _number(grid.active[g, 0]),
                    "P_max": _number(grid.active[g, 1]),
                    "Q_min": _number(grid.reactive[g, 0]),
                    "Q_max": _number(grid.reactive[g, 1]),
                    "cost": [_number(c) for c in grid.cost[g]],
                }
                for g in range(grid.generators)
            ],
            "lines": [self._line(e) for e in range(len(grid.near) // 2)],
        }

    def _line(self, e: int) -> dict[str, float | int | None]:
        grid = self.grid
        back = e + len(grid.near) // 2  # the same line's other end
        series = -grid.mutual[e] * (tap := np.sqrt((grid.own[back] / grid.own[e]).real))
        return {
            "from": int(grid.near[e]) + 1,
            "to": int(grid.far[e]) + 1,
            "r": _number((1 / series).real),
            "x": _number((1 / series).imag),
            "b": _number(2 * (grid.own[back] - series).imag),
            "tap": _number(tap),
            "S_max": _number(grid.limit[e]) if grid.limited[e] else None,
        }


def split(
    grid: Grid, x: Float[np.ndarray, "*batch variable"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Voltages, angles (with the reference's 0), active and reactive powers of an answer."""
    if x.shape[-1] != 2 * grid.buses - 1 + 2 * grid.generators:
        raise InvalidRequest(
            f"{x.shape[-1]} values were given for {grid.name}: "
            f"it has {2 * grid.buses - 1 + 2 * grid.generators} variables"
        )
    borders = np.cumsum([grid.buses, grid.buses - 1, grid.generators])
    voltage, angle, active, reactive = np.split(x, borders, axis=-1)
    return voltage, np.insert(angle, 0, 0.0, axis=-1), active, reactive


@functools.cache
def _variables(grid: Grid) -> tuple[Variable, ...]:
    def named(letter: str, buses: Sequence[int], bounds: np.ndarray) -> list[Variable]:
        return [
            Variable(f"{letter}{bus + 1}", float(low), float(high), float(high - low))
            for bus, (low, high) in zip(buses, bounds, strict=True)
        ]

    at = [int(bus) for bus in grid.at]
    return (
        *named("V", range(grid.buses), grid.voltage),
        *(Variable(f"A{bus + 1}", -np.inf, np.inf, 1.0) for bus in range(1, grid.buses)),
        *named("P", at, grid.active),
        *named("Q", at, grid.reactive),
    )


@functools.cache
def _constraints(grid: Grid) -> tuple[Constraint, ...]:
    near, far = grid.near[grid.limited] + 1, grid.far[grid.limited] + 1
    return (
        *(
            Constraint(f"{v.name} within bounds", "box", BOUNDS, v.scale)
            for v in _variables(grid)
            if np.isfinite(v.low)
        ),
        *(
            Constraint(f"{what} balance at bus {bus + 1}", "equality", BALANCE)
            for what in ("active", "reactive")
            for bus in range(grid.buses)
        ),
        *(
            Constraint(f"power from {a} towards {b}", "coupling", BOUNDS, float(limit))
            for a, b, limit in zip(near, far, grid.limit[grid.limited], strict=True)
        ),
    )


def _number(value: float) -> float:
    return float(f"{value:.10g}") + 0.0
