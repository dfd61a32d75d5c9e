"""Optimal power flow by a primal-dual interior point method, many instances of a grid at once.

Minimise f(x) subject to g(x) = 0 (the balances) and h(x) + z = 0, z > 0 (lines and bounds). Each
step solves, for all instances together, Newton's equations of the perturbed KKT conditions

    f' + Jg' lambda + Jh' mu = 0,   g = 0,   h + z = 0,   mu z = gamma,

and moves as far as keeps z and mu positive, while gamma goes to zero. Derivatives are closed
forms: the power entering a line's end is a function of four numbers only, the angles and voltages
at its two ends. A solution is certified by the KKT residual at the point itself. The problem is
not convex: what is certified is a local optimum.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Complex, Float, Int
from scipy.sparse import csr_matrix

from recombine.constraints.grids import Grid
from recombine.constraints.power_flow import split

CERTIFIED = 1e-7
"""The largest KKT residual of a certified solution."""

_TOGETHER = 256  # instances in one batch: enough to hide Python, few enough for the cache
_STEPS = 80
_SHRINK = 0.1  # gamma, relative to the mean of mu z
_STAY = 0.99995  # the share of the way to the border that a step may go
_SETTLED = 1e-11  # x moves no more and gamma is spent
_SPENT = 1e-16  # what still moves is flat: the cost does not depend on it
_STUCK = 1e-8  # steps as short as this lead nowhere: the instance has no solution


@dataclass(frozen=True, eq=False)
class Solutions:
    """The optimum of each instance, its cost in dollars an hour and its certificate."""

    x: Float[np.ndarray, "instance variable"]
    cost: Float[np.ndarray, "instance"]
    residual: Float[np.ndarray, "instance"]  # of the KKT conditions

    @property
    def certified(self) -> Bool[np.ndarray, "instance"]:
        return self.residual <= CERTIFIED


def solve(grid: Grid, loads: Complex[np.ndarray, "instance bus"]) -> Solutions:
    """The cheapest generation for each row of loads.

    >>> from recombine.constraints.grids import grid
    >>> round(float(solve(grid("case9"), grid("case9").load[None]).cost[0]), 2)
    5296.69
    """
    parts = [_solve(grid, loads[i : i + _TOGETHER]) for i in range(0, len(loads), _TOGETHER)]
    if not parts:
        none = np.zeros(0)
        return Solutions(np.zeros((0, _layout(grid).size)), none, none)
    x = np.concatenate([part.x for part in parts])
    active = split(grid, x)[2]
    square, linear, constant = grid.cost.T
    cost = np.sum(square * active**2 + linear * active + constant, axis=1)
    return Solutions(x, cost, np.concatenate([part.residual for part in parts]))


class _Layout(NamedTuple):
    """Where things are: the four variables of each line's end, the bounded ones, their bounds."""

    size: int
    ends: Int[np.ndarray, "end 4"]  # near angle, far angle, near voltage, far voltage
    bounded: Int[np.ndarray, "bound"]
    low: Float[np.ndarray, "bound"]
    high: Float[np.ndarray, "bound"]
    gather: csr_matrix  # of the ends' 4 x 4 blocks into the Hessian
    to_bus: Float[np.ndarray, "bus end"]
    dollar: float  # the unit of cost, so that gradients are about 1


class _Iterate(NamedTuple):
    x: Float[np.ndarray, "instance variable"]
    z: Float[np.ndarray, "instance limit"]
    lam: Float[np.ndarray, "instance balance"]
    mu: Float[np.ndarray, "instance limit"]


class _Local(NamedTuple):
    """Everything Newton's equations need at a point."""

    gradient: Float[np.ndarray, "instance variable"]
    g: Float[np.ndarray, "instance balance"]
    jac_g: Float[np.ndarray, "instance balance variable"]
    h: Float[np.ndarray, "instance limit"]  # lines, then upper bounds, then lower ones
    jac_lines: Float[np.ndarray, "instance line variable"]
    hessian: Float[np.ndarray, "instance variable variable"]  # of the Lagrangian


@functools.cache
def _layout(grid: Grid) -> _Layout:
    n, m = grid.buses, grid.generators
    # The reference's angle is given a place behind the variables, and cut off in the end.
    size = 2 * n - 1 + 2 * m
    angle = np.concatenate([[size], n + np.arange(n - 1)])
    ends = np.stack([angle[grid.near], angle[grid.far], grid.near, grid.far], axis=1)
    bounded = np.concatenate([np.arange(n), np.arange(2 * n - 1, size)])
    low, high = np.concatenate([grid.voltage, grid.active, grid.reactive]).T
    rows = (ends[:, :, None] * (size + 1) + ends[:, None, :]).ravel()
    columns = np.arange(rows.size)
    gather = csr_matrix((np.ones(rows.size), (rows, columns)), shape=((size + 1) ** 2, rows.size))
    to_bus = (np.arange(n)[:, None] == grid.near).astype(float)
    dollar = float(np.abs(2 * grid.cost[:, 0] * grid.active.mean(1) + grid.cost[:, 1]).max())
    return _Layout(size, ends, bounded, low, high, gather, to_bus, dollar)


def _local(grid: Grid, load: Complex[np.ndarray, "instance bus"], at: _Iterate) -> _Local:
    layout, count = _layout(grid), len(at.x)
    n, m, size, ends = grid.buses, grid.generators, layout.size, layout.ends
    voltage, angle, active, reactive = split(grid, at.x)
    vi, vk = voltage[:, grid.near], voltage[:, grid.far]
    apart = angle[:, grid.near] - angle[:, grid.far]
    cos, sin = np.cos(apart), np.sin(apart)
    mutual_g, mutual_b = np.real(grid.mutual), np.imag(grid.mutual)
    along = mutual_g * cos + mutual_b * sin
    across = mutual_g * sin - mutual_b * cos  # d along / d apart = -across
    gs, bs = np.real(grid.own), np.imag(grid.own)
    p, q = gs * vi**2 + vi * vk * along, -bs * vi**2 + vi * vk * across
    vva, vvc = vi * vk * along, vi * vk * across
    dp = np.stack([-vvc, vvc, 2 * gs * vi + vk * along, vi * along], axis=-1)
    dq = np.stack([vva, -vva, -2 * bs * vi + vk * across, vi * across], axis=-1)

    # Balances: power into lines and shunts, plus load, minus generation.
    at_bus, shunt = layout.to_bus.T, grid.shunt
    g_p, g_q = p @ at_bus + np.real(load), q @ at_bus - shunt * voltage**2 + np.imag(load)
    made = (np.arange(n)[:, None] == grid.at).astype(float)
    g = np.concatenate([g_p - active @ made.T, g_q - reactive @ made.T], axis=1)
    jac_p, jac_q = (_spread(d, ends, size) for d in (dp, dq))
    jac_g = np.concatenate([layout.to_bus @ jac_p, layout.to_bus @ jac_q], axis=1)
    buses = np.arange(n)
    jac_g[:, n + buses, buses] -= 2 * shunt * voltage
    jac_g[:, :n, 2 * n - 1 : 2 * n - 1 + m] = -made
    jac_g[:, n:, 2 * n - 1 + m :] = -made

    # Lines: squared apparent power, in units of the squared limit.
    lines = np.flatnonzero(grid.limited)
    unit = grid.limit[lines] ** 2
    h_lines = (p[:, lines] ** 2 + q[:, lines] ** 2) / unit - 1
    line_p, line_q = 2 * p[:, lines] / unit, 2 * q[:, lines] / unit
    jac_lines = line_p[..., None] * jac_p[:, lines] + line_q[..., None] * jac_q[:, lines]
    inside = at.x[:, layout.bounded]
    h = np.concatenate([h_lines, inside - layout.high, layout.low - inside], axis=1)

    # Second derivatives: each end's 4 x 4 block, weighted by what it is multiplied with.
    mu = at.mu[:, : len(lines)]
    weight_p, weight_q = at.lam[:, :n][:, grid.near], at.lam[:, n:][:, grid.near]
    weight_p[:, lines] += mu * line_p
    weight_q[:, lines] += mu * line_q
    block_p = _curvature(-vva, -across, along, vi, vk, 2 * gs)
    block_q = _curvature(-vvc, along, across, vi, vk, -2 * bs)
    blocks = weight_p[..., None, None] * block_p + weight_q[..., None, None] * block_q
    twice = (2 * mu / unit)[..., None, None]
    outer = (
        dp[:, lines, :, None] * dp[:, lines, None, :]
        + dq[:, lines, :, None] * dq[:, lines, None, :]
    )
    blocks[:, lines] += twice * outer
    hessian = (layout.gather @ blocks.reshape(count, -1).T).T
    hessian = np.ascontiguousarray(hessian.reshape(count, size + 1, size + 1)[:, :size, :size])
    hessian[:, buses, buses] -= 2 * at.lam[:, n:] * shunt
    powers = np.arange(2 * n - 1, 2 * n - 1 + m)
    hessian[:, powers, powers] += 2 * grid.cost[:, 0] / layout.dollar
    gradient = np.zeros((count, size))
    gradient[:, powers] = (2 * grid.cost[:, 0] * active + grid.cost[:, 1]) / layout.dollar
    return _Local(gradient, g, jac_g, h, jac_lines, hessian)


def _spread(
    d: Float[np.ndarray, "instance end 4"], ends: Int[np.ndarray, "end 4"], size: int
) -> Float[np.ndarray, "instance end variable"]:
    full = np.zeros((*d.shape[:2], size + 1))
    full[:, np.arange(len(ends))[:, None], ends] = d
    return full[..., :size]


def _curvature(
    turn: Float[np.ndarray, "instance end"],
    slope: Float[np.ndarray, "instance end"],
    product: Float[np.ndarray, "instance end"],
    vi: Float[np.ndarray, "instance end"],
    vk: Float[np.ndarray, "instance end"],
    square: Float[np.ndarray, "end"],
) -> Float[np.ndarray, "instance end 4 4"]:
    """Second derivatives of vi vk r(apart) + square vi^2 / 2, with turn = vi vk r'' and slope = r'."""  # noqa: E501
    block = np.zeros((*turn.shape, 4, 4))
    block[..., 0, 0] = block[..., 1, 1] = turn
    block[..., 0, 1] = block[..., 1, 0] = -turn
    block[..., 0, 2] = block[..., 2, 0] = slope * vk
    block[..., 0, 3] = block[..., 3, 0] = slope * vi
    block[..., 1, 2] = block[..., 2, 1] = -slope * vk
    block[..., 1, 3] = block[..., 3, 1] = -slope * vi
    block[..., 2, 2] = square
    block[..., 2, 3] = block[..., 3, 2] = product
    return block


def _down(grid: Grid, local: _Local, v: np.ndarray) -> Float[np.ndarray, "instance variable"]:
    """Jh' v."""
    lines, bounds = local.jac_lines.shape[1], len(_layout(grid).bounded)
    out = np.matmul(v[:, None, :lines], local.jac_lines)[:, 0]
    out[:, _layout(grid).bounded] += v[:, lines : lines + bounds] - v[:, lines + bounds :]
    return out


def _up(grid: Grid, local: _Local, d: np.ndarray) -> Float[np.ndarray, "instance limit"]:
    """Jh d."""
    through = np.matmul(local.jac_lines, d[..., None])[..., 0]
    bounds = d[:, _layout(grid).bounded]
    return np.concatenate([through, bounds, -bounds], axis=1)


def _residual(grid: Grid, local: _Local, at: _Iterate) -> Float[np.ndarray, "instance"]:
    """The largest breach of the KKT conditions at the point, multipliers relative to their size."""
    size = 1 + np.maximum(np.abs(at.lam).max(1), np.abs(at.mu).max(1))
    pull = np.matmul(at.lam[:, None], local.jac_g)[:, 0]
    stationary = np.abs(local.gradient + pull + _down(grid, local, at.mu)).max(1) / size
    feasible = np.maximum(np.abs(local.g).max(1), np.maximum(local.h, 0).max(1))
    complementary = np.abs(at.mu * local.h).max(1) / size
    return np.maximum(np.maximum(stationary, feasible), complementary)


def _solve(grid: Grid, loads: Complex[np.ndarray, "instance bus"]) -> Solutions:
    """One batch; instances leave it as they settle, so each one's path is its own."""
    layout, count = _layout(grid), len(loads)
    limits = int(grid.limited.sum()) + 2 * len(layout.bounded)
    flat = np.zeros((count, layout.size))
    flat[:, layout.bounded] = (layout.low + layout.high) / 2
    at = _Iterate(
        flat, np.ones((count, limits)), np.zeros((count, 2 * grid.buses)), np.ones((count, limits))
    )
    h = _local(grid, loads, at).h
    z = np.maximum(-h, 1.0)
    at = at._replace(z=z, mu=1 / z)
    x, residual = at.x.copy(), np.full(count, np.inf)
    left, gamma = np.arange(count), np.ones(count)
    go = np.ones(count, bool)
    for _ in range(_STEPS):
        at, gamma, left = _Iterate(*(a[go] for a in at)), gamma[go], left[go]
        if not len(left):
            break
        local = _local(grid, loads[left], at)
        found = _residual(grid, local, at)
        better = found <= residual[left]
        x[left[better]], residual[left[better]] = at.x[better], found[better]
        at, gamma, moved, reached = _newton(grid, local, at, gamma)
        go = (gamma > _SPENT) & ((moved > _SETTLED) | (gamma > _SETTLED)) & (reached > _STUCK)
    return Solutions(x, np.zeros(count), residual)


def _newton(
    grid: Grid, local: _Local, at: _Iterate, gamma: Float[np.ndarray, "instance"]
) -> tuple[_Iterate, np.ndarray, np.ndarray, np.ndarray]:
    """The next point, its gamma, how far x moved and which share of the full step was possible."""
    layout, (count, size) = _layout(grid), at.x.shape
    balances = at.lam.shape[1]
    lines, bounds = local.jac_lines.shape[1], len(layout.bounded)
    stiff = at.mu / at.z
    system = np.zeros((count, size + balances, size + balances))
    weighted = stiff[:, :lines, None] * local.jac_lines
    system[:, :size, :size] = local.hessian + np.matmul(
        local.jac_lines.transpose(0, 2, 1), weighted
    )
    held = layout.bounded
    system[:, held, held] += stiff[:, lines : lines + bounds] + stiff[:, lines + bounds :]
    system[:, size:, :size] = local.jac_g
    system[:, :size, size:] = local.jac_g.transpose(0, 2, 1)
    pull = np.matmul(at.lam[:, None], local.jac_g)[:, 0]
    push = at.mu + (at.mu * local.h + gamma[:, None]) / at.z
    right = -np.concatenate([local.gradient + pull + _down(grid, local, push), local.g], axis=1)
    step = _steps(system, right)
    dx, dlam = step[:, :size], step[:, size:]
    dz = -local.h - at.z - _up(grid, local, dx)
    dmu = -at.mu + (gamma[:, None] - at.mu * dz) / at.z
    far_z, far_mu = _reach(at.z, dz), _reach(at.mu, dmu)
    solvable = step.any(1)
    new = _Iterate(
        at.x + far_z * dx, at.z + far_z * dz, at.lam + far_mu * dlam, at.mu + far_mu * dmu
    )
    reached = np.minimum(far_z, far_mu)[:, 0] * solvable
    return new, _SHRINK * (new.z * new.mu).mean(1), np.abs(far_z * dx).max(1), reached


def _reach(
    now: Float[np.ndarray, "instance limit"], change: Float[np.ndarray, "instance limit"]
) -> Float[np.ndarray, "instance 1"]:
    """How far to go so that what is positive stays so."""
    most = (-change / now).max(
        1, keepdims=True
    )  # how many times over the nearest border is crossed
    return np.where(most > _STAY, _STAY / np.maximum(most, _STAY), 1.0)


def _steps(
    system: Float[np.ndarray, "instance row row"], right: Float[np.ndarray, "instance row"]
) -> Float[np.ndarray, "instance row"]:
    """Newton's step of each instance; zero where its equations are singular."""
    try:
        return np.linalg.solve(system, right[..., None])[..., 0]
    except np.linalg.LinAlgError:  # one singular instance must not take its mates down
        if len(system) == 1:
            return np.zeros_like(right)
    half = len(system) // 2
    return np.concatenate(
        [_steps(system[:half], right[:half]), _steps(system[half:], right[half:])]
    )
