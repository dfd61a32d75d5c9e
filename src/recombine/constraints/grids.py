"""The IEEE test grids with 9, 14 and 30 buses, as compact tables of their published data."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Complex, Float, Int

from recombine.errors import unknown

BASE = 100.0
"""One unit of power in every grid: 100 MVA."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A network in per-unit quantities; every line appears as its two ends.

    The power that enters the line at one of its ends is a function of the voltages at the bus
    `near` that end and at the bus `far` from it:
    V_near conj(own V_near + mutual V_far).

    >>> grid("case9").buses
    9
    """

    name: str
    voltage: Float[np.ndarray, "bus 2"]  # lowest and highest
    load: Complex[np.ndarray, "bus"]
    shunt: Float[np.ndarray, "bus"]  # susceptance
    at: Int[np.ndarray, "generator"]  # the bus of each generator
    active: Float[np.ndarray, "generator 2"]  # lowest and highest
    reactive: Float[np.ndarray, "generator 2"]
    cost: Float[np.ndarray, "generator 3"]  # dollars an hour: square, linear, constant; in p.u.
    near: Int[np.ndarray, "end"]
    far: Int[np.ndarray, "end"]
    own: Complex[np.ndarray, "end"]
    mutual: Complex[np.ndarray, "end"]
    limit: Float[np.ndarray, "end"]  # of the apparent power; infinite where there is none

    @property
    def buses(self) -> int:
        return len(self.load)

    @property
    def generators(self) -> int:
        return len(self.at)

    @property
    def loaded(self) -> Int[np.ndarray, "load"]:
        """The buses that have a load."""
        return np.flatnonzero(self.load)

    @property
    def limited(self) -> Bool[np.ndarray, "end"]:
        return np.isfinite(self.limit)


# One record a semicolon, powers in MW, MVAr and MVA, all else per unit:
# buses      how many, lowest and highest voltage; bus 1 is the reference, its angle is 0
# voltage    bus, lowest, highest, where they differ from the above
# load       bus, active, reactive
# shunt      bus, reactive power given at a voltage of 1
# generator  bus, active from, to, reactive from, to, cost: square, linear, constant ($/h of MW)
# line       from, to, resistance, reactance, charging, limit (0: none), tap ratio (0: no tap)
_CASE9 = """
buses 9 0.9 1.1
load 5 90 30 ; 7 100 35 ; 9 125 50
generator 1 10 250 -300 300 0.11 5 150 ; 2 10 300 -300 300 0.085 1.2 600
generator 3 10 270 -300 300 0.1225 1 335
line 1 4 0 0.0576 0 250 0 ; 4 5 0.017 0.092 0.158 250 0 ; 5 6 0.039 0.17 0.358 150 0
line 3 6 0 0.0586 0 300 0 ; 6 7 0.0119 0.1008 0.209 150 0 ; 7 8 0.0085 0.072 0.149 250 0
line 8 2 0 0.0625 0 250 0 ; 8 9 0.032 0.161 0.306 250 0 ; 9 4 0.01 0.085 0.176 250 0
"""

_CASE14 = """
buses 14 0.94 1.06
load 2 21.7 12.7 ; 3 94.2 19 ; 4 47.8 -3.9 ; 5 7.6 1.6 ; 6 11.2 7.5 ; 9 29.5 16.6 ; 10 9 5.8
load 11 3.5 1.8 ; 12 6.1 1.6 ; 13 13.5 5.8 ; 14 14.9 5
shunt 9 19
generator 1 0 332.4 0 10 0.0430293 20 0 ; 2 0 140 -40 50 0.25 20 0 ; 3 0 100 0 40 0.01 40 0
generator 6 0 100 -6 24 0.01 40 0 ; 8 0 100 -6 24 0.01 40 0
line 1 2 0.01938 0.05917 0.0528 0 0 ; 1 5 0.05403 0.22304 0.0492 0 0
line 2 3 0.04699 0.19797 0.0438 0 0 ; 2 4 0.05811 0.17632 0.034 0 0
line 2 5 0.05695 0.17388 0.0346 0 0 ; 3 4 0.06701 0.17103 0.0128 0 0 ; 4 5 0.01335 0.04211 0 0 0
line 4 7 0 0.20912 0 0 0.978 ; 4 9 0 0.55618 0 0 0.969 ; 5 6 0 0.25202 0 0 0.932
line 6 11 0.09498 0.1989 0 0 0 ; 6 12 0.12291 0.25581 0 0 0 ; 6 13 0.06615 0.13027 0 0 0
line 7 8 0 0.17615 0 0 0 ; 7 9 0 0.11001 0 0 0 ; 9 10 0.03181 0.0845 0 0 0
line 9 14 0.12711 0.27038 0 0 0 ; 10 11 0.08205 0.19207 0 0 0 ; 12 13 0.22092 0.19988 0 0 0
line 13 14 0.17093 0.34802 0 0 0
"""

_CASE30 = """
buses 30 0.95 1.05
voltage 2 0.95 1.1 ; 13 0.95 1.1 ; 22 0.95 1.1 ; 23 0.95 1.1 ; 27 0.95 1.1
load 2 21.7 12.7 ; 3 2.4 1.2 ; 4 7.6 1.6 ; 7 22.8 10.9 ; 8 30 30 ; 10 5.8 2 ; 12 11.2 7.5
load 14 6.2 1.6 ; 15 8.2 2.5 ; 16 3.5 1.8 ; 17 9 5.8 ; 18 3.2 0.9 ; 19 9.5 3.4 ; 20 2.2 0.7
load 21 17.5 11.2 ; 23 3.2 1.6 ; 24 8.7 6.7 ; 26 3.5 2.3 ; 29 2.4 0.9 ; 30 10.6 1.9
shunt 5 0.19 ; 24 0.04
generator 1 0 80 -20 150 0.02 2 0 ; 2 0 80 -20 60 0.0175 1.75 0 ; 22 0 50 -15 62.5 0.0625 1 0
generator 27 0 55 -15 48.7 0.00834 3.25 0 ; 23 0 30 -10 40 0.025 3 0
generator 13 0 40 -15 44.7 0.025 3 0
line 1 2 0.02 0.06 0.03 130 0 ; 1 3 0.05 0.19 0.02 130 0 ; 2 4 0.06 0.17 0.02 65 0
line 3 4 0.01 0.04 0 130 0 ; 2 5 0.05 0.2 0.02 130 0 ; 2 6 0.06 0.18 0.02 65 0
line 4 6 0.01 0.04 0 90 0 ; 5 7 0.05 0.12 0.01 70 0 ; 6 7 0.03 0.08 0.01 130 0
line 6 8 0.01 0.04 0 32 0 ; 6 9 0 0.21 0 65 0 ; 6 10 0 0.56 0 32 0 ; 9 11 0 0.21 0 65 0
line 9 10 0 0.11 0 65 0 ; 4 12 0 0.26 0 65 0 ; 12 13 0 0.14 0 65 0 ; 12 14 0.12 0.26 0 32 0
line 12 15 0.07 0.13 0 32 0 ; 12 16 0.09 0.2 0 32 0 ; 14 15 0.22 0.2 0 16 0
line 16 17 0.08 0.19 0 16 0 ; 15 18 0.11 0.22 0 16 0 ; 18 19 0.06 0.13 0 16 0
line 19 20 0.03 0.07 0 32 0 ; 10 20 0.09 0.21 0 32 0 ; 10 17 0.03 0.08 0 32 0
line 10 21 0.03 0.07 0 32 0 ; 10 22 0.07 0.15 0 32 0 ; 21 22 0.01 0.02 0 32 0
line 15 23 0.1 0.2 0 16 0 ; 22 24 0.12 0.18 0 16 0 ; 23 24 0.13 0.27 0 16 0
line 24 25 0.19 0.33 0 16 0 ; 25 26 0.25 0.38 0 16 0 ; 25 27 0.11 0.21 0 16 0
line 28 27 0 0.4 0 65 0 ; 27 29 0.22 0.42 0 16 0 ; 27 30 0.32 0.6 0 16 0
line 29 30 0.24 0.45 0 16 0 ; 8 28 0.06 0.2 0.02 32 0 ; 6 28 0.02 0.06 0.01 32 0
"""

_TABLES = {"case9": _CASE9, "case14": _CASE14, "case30": _CASE30}

GRIDS = tuple(_TABLES)


@functools.cache
def grid(name: str) -> Grid:
    """The grid of that name.

    >>> grid("case30").generators
    6
    """
    if name not in _TABLES:
        raise unknown("grid", name, _TABLES)
    records: dict[str, list[list[float]]] = {}
    for row in _TABLES[name].strip().splitlines():
        kind, _, rest = row.partition(" ")
        found = ([float(number) for number in record.split()] for record in rest.split(";"))
        records.setdefault(kind, []).extend(found)
    ((buses, lowest, highest),) = records["buses"]
    voltage = np.tile([lowest, highest], (int(buses), 1))
    for bus, low, high in records.get("voltage", ()):
        voltage[int(bus) - 1] = low, high
    load = np.zeros(int(buses), complex)
    for bus, active, reactive in records["load"]:
        load[int(bus) - 1] = complex(active, reactive) / BASE
    shunt = np.zeros(int(buses))
    for bus, susceptance in records.get("shunt", ()):
        shunt[int(bus) - 1] = susceptance / BASE
    generators, lines = np.array(records["generator"]), np.array(records["line"])
    start, end, resistance, reactance, charging, limit, tap = lines.T
    tap = np.where(tap == 0, 1.0, tap)
    series = 1 / (resistance + 1j * reactance)
    own = series + 0.5j * charging
    return Grid(
        name=name,
        voltage=voltage,
        load=load,
        shunt=shunt,
        at=generators[:, 0].astype(int) - 1,
        active=generators[:, 1:3] / BASE,
        reactive=generators[:, 3:5] / BASE,
        cost=generators[:, 5:] * [BASE**2, BASE, 1],
        near=np.concatenate([start, end]).astype(int) - 1,
        far=np.concatenate([end, start]).astype(int) - 1,
        own=np.concatenate([own / tap**2, own]),
        mutual=np.tile(-series / tap, 2),
        limit=np.tile(np.where(limit == 0, np.inf, limit / BASE), 2),
    )
