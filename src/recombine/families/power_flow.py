"""Optimal power flow as sequences: the loads of a grid in, voltages, angles and powers out."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from recombine.constraints.family import Answer, Case, ConstrainedFamily
from recombine.constraints.grids import GRIDS, Grid, grid
from recombine.constraints.interior_point import solve
from recombine.constraints.power_flow import PowerFlow
from recombine.errors import InvalidRequest, RecombineError, unknown

TRAINED = (0.9, 1.1)
"""Each load is the grid's own times a factor from this range."""

_BEYOND = {"light": (0.8, 0.9), "heavy": (1.1, 1.2)}

# Numbers closer than this to where they round the other way are not used: the solver's last bits
# must not decide an answer.
_MARGIN = 1e-7
_MOST_DECIMALS = 5  # of 6, hardly any optimum would be left by this margin, and of 7 none


@dataclass(frozen=True)
class PowerFlowFamily(ConstrainedFamily[PowerFlow]):
    """AC optimal power flow on an IEEE grid; each load is scaled by its own factor, .9 to 1.1.

    A source is the active and the reactive power of every load in bus order, an answer the
    voltages, angles, active and reactive powers of the optimum, per unit and in radians. A number
    is a word for its sign and whole part and one for every two decimals: -0.1234 is `-0 12 34`.
    Words of source and answer at four decimals: 18 and 69 on `case9`, 66 and 111 on `case14`, 120
    and 213 on `case30`. Beyond training every load is lighter (.8 to .9) or heavier (1.1 to 1.2).
    Four decimals are enough for a rounded optimum to be feasible (nine times in ten on `case30`),
    three are not. A third of the draws of `case30` have no solution and are not used, nor has any
    of its heavy ones: it has no such split.

    >>> PowerFlowFamily().write(PowerFlow.nominal(grid("case9")))[:24]
    '+0 90 00 +0 30 00 +1 00 '
    """

    grid: str = "case9"
    decimals: int = 4

    name: ClassVar[str] = "power_flow"
    unit: ClassVar[str] = "percent of load beyond the trained range, on average"
    instruction: ClassVar[str] = (
        "Solve an AC optimal power flow on an IEEE test grid. Given are the active and the "
        "reactive power of each load, in bus order, per unit; a number is its sign and whole part "
        "followed by its decimals two by two. Answer, in the same form, with the voltage of each "
        "bus, the angle of each bus but the first in radians, and the active and then the "
        "reactive power of each generator."
    )

    def check(self) -> None:
        super().check()
        if self.grid not in GRIDS:
            raise unknown("grid", self.grid, GRIDS)
        if not 1 <= self.decimals <= _MOST_DECIMALS:
            raise InvalidRequest(
                f"decimals is {self.decimals}: it must be from 1 to {_MOST_DECIMALS}, or the "
                "solver's last bits would decide what is right"
            )

    @property
    def ways(self) -> tuple[str, ...]:
        return ("light",) if self.grid == "case30" else tuple(_BEYOND)

    @property
    def network(self) -> Grid:
        return grid(self.grid)

    def draw(self, rng: np.random.Generator, way: str) -> Case[PowerFlow]:
        low, high = _BEYOND.get(way, TRAINED)
        network = self.network
        factor = rng.uniform(low, high, network.buses)
        load = network.load * factor
        rounded = np.round(load, self.decimals)
        away = np.maximum(TRAINED[0] - factor, factor - TRAINED[1])[network.loaded].mean()
        novelty = max(1, round(100 * away)) if way in _BEYOND else 0
        part = way if way in _BEYOND else "normal"
        return Case(PowerFlow(network, rounded), part, novelty)

    def optima(self, problems: Sequence[PowerFlow]) -> list[Answer | None]:
        if not problems:
            return []
        found = solve(self.network, np.stack([problem.load for problem in problems]))
        return [
            x if certified else None for x, certified in zip(found.x, found.certified, strict=True)
        ]

    def settled(self, x: Answer) -> bool:
        units = x * 10.0**self.decimals
        return bool((np.abs(units - np.floor(units) - 0.5) > _MARGIN * 10.0**self.decimals).all())

    def write(self, problem: PowerFlow) -> str:
        loads = problem.load[self.network.loaded]
        return _words(np.stack([np.real(loads), np.imag(loads)], axis=1).ravel(), self.decimals)

    def read(self, source: str) -> PowerFlow:
        loaded = self.network.loaded
        numbers = _numbers(source, 2 * len(loaded), self.decimals).reshape(-1, 2)
        load = np.zeros(self.network.buses, complex)
        load[loaded] = numbers[:, 0] + 1j * numbers[:, 1]
        return PowerFlow(self.network, load)

    def write_answer(self, x: Answer) -> str:
        return _words(x, self.decimals)

    def read_answer(self, problem: PowerFlow, answer: str) -> Answer:
        return _numbers(answer, len(problem.variables), self.decimals)

    def copied(self, problems: Sequence[PowerFlow], optima: Sequence[Answer]) -> list[Answer]:
        """The optimum of the grid's own loads, whatever the loads are."""
        return [_nominal(self.grid)] * len(problems)


@functools.cache
def _nominal(name: str) -> Answer:
    found = solve(grid(name), grid(name).load[None])
    if not found.certified[0]:
        raise RecombineError(f"the optimum of {name} could not be certified")
    return found.x[0]


def _words(values: Float[np.ndarray, "value"], decimals: int) -> str:
    words: list[str] = []
    for value in values:
        whole, _, digits = f"{value:+.{decimals}f}".partition(".")
        if not float(whole + "." + digits):
            whole = "+0"  # there is no negative zero
        words += [whole, *(digits[i : i + 2] for i in range(0, decimals, 2))]
    return " ".join(words)


def _numbers(text: str, count: int, decimals: int) -> Float[np.ndarray, "value"]:
    words, each = text.split(" "), 1 + math.ceil(decimals / 2)
    if len(words) != count * each:
        raise InvalidRequest(
            f"the text has {len(words)} words: {count} numbers of {each} words each are needed"
        )
    out = np.zeros(count)
    for i in range(count):
        whole, *pairs = words[i * each : (i + 1) * each]
        digits = "".join(pairs)
        signed = whole[:1] in ("+", "-") and whole[1:].isdecimal() and whole.isascii()
        widths = [min(2, decimals - k) for k in range(0, decimals, 2)]
        if not (
            signed and digits.isdecimal() and digits.isascii() and [len(p) for p in pairs] == widths
        ):
            given = " ".join([whole, *pairs])
            raise InvalidRequest(
                f"number {i + 1} is {given!r}: expected a sign and a whole part, then {decimals} "
                "decimals two by two, as in '-0 12 34'"
            )
        out[i] = float(f"{whole}.{digits}")
    return out
