"""From cells to shards: which cells share a program and run together, by fixed rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recombine.errors import InvalidRequest, UnknownName
from recombine.lab.device import Device
from recombine.lab.identity import node_id
from recombine.lab.layout import Devices, Layout, spread
from recombine.lab.shards import Shard, check_borders
from recombine.lab.study import Cell
from recombine.learners._learner import Learner, Material


@dataclass(frozen=True)
class Feasible:
    """A study's cells, parted into those that can exist and those that cannot, with reasons."""

    cells: list[Cell]
    infeasible: list[tuple[Cell, str]]


def part(cells: Iterable[Cell]) -> Feasible:
    """Checks every cell before anything compiles; equal requests are kept once.

    A combination of values that cannot be is a gap in the grid; a name that nobody knows is an
    error of whoever typed it.
    """
    good: dict[str, Cell] = {}
    bad: list[tuple[Cell, str]] = []
    for cell in cells:
        try:
            for learner in (cell.learner, *others(cell)):
                _check(learner)
        except UnknownName:
            raise
        except InvalidRequest as reason:
            bad.append((cell, str(reason)))
        else:
            good.setdefault(cell.id, cell)
    return Feasible(list(good.values()), bad)


def others(cell: Cell) -> list[Learner]:
    """The further learners that a cell's instruments look at."""
    return [other for i in cell.instruments for other in i.cells(cell.learner).values()]


def _check(learner: Learner) -> None:
    learner.check()
    check_borders(learner)
    for upstream in learner.upstream().values():
        _check(upstream)


def upstream_first(
    learners: Iterable[Learner], done: Callable[[str], bool] = lambda cell: False
) -> list[dict[str, Learner]]:
    """Learners in layers: each layer needs only the ones before it.

    What a `done` upstream cell was made from is not asked for again.
    """
    depth: dict[str, int] = {}
    known: dict[str, Learner] = {}

    def visit(learner: Learner) -> int:
        name = node_id(learner)
        if name not in depth:
            known[name] = learner
            below = () if name not in wanted and done(name) else learner.upstream().values()
            depth[name] = 1 + max([visit(up) for up in below], default=-1)
        return depth[name]

    wanted = {node_id(learner): learner for learner in learners}
    for learner in wanted.values():
        visit(learner)
    layers: list[dict[str, Learner]] = [{} for _ in range(1 + max(depth.values(), default=-1))]
    for name, level in depth.items():
        layers[level][name] = known[name]
    return layers


def materials(learners: Iterable[Learner]) -> dict[str, Material]:
    """Every material the learners need, by id."""
    return {node_id(m): m for learner in learners for m in learner.materials().values()}


ONE = Devices()


def shards(
    learners: Mapping[str, Learner], device: Device, devices: Devices = ONE,
    stacked: int | None = None,
) -> list[Shard]:  # fmt: skip
    """Groups cells that share a program; widths of stacks follow from sizes and device alone.

    Over several devices a stack is as much wider as its members lie on more of them. Where
    `stacked` is given, no device holds more weights of a stack than that, or one member.
    """
    alike: dict[Any, list[str]] = defaultdict(list)
    for cell, learner in learners.items():
        if learner.host_driven:
            alike[("host", cell)].append(cell)
            continue
        precision = device.precision(learner.precision)
        key = (learner.program(precision), learner.shard(), learner.steps,
               learner.evaluate_every, learner.snapshots, precision)  # fmt: skip
        alike[key].append(cell)
    found: list[Shard] = []
    for key, cells in alike.items():
        if key[0] == "host":
            found += [Shard((cell,)) for cell in cells]
            continue
        size = learners[cells[0]].size
        layout = devices.layout(size, len(cells), device.accelerated)
        limit = device.stack(size)
        if stacked is not None:
            limit = max(1, min(limit, stacked // max(1, size)))
        found += _stacks(cells, learners, limit, layout, key[-1])
    return found


def _stacks(
    cells: Sequence[str], learners: Mapping[str, Learner], limit: int, layout: Layout,
    precision: str,
) -> list[Shard]:  # fmt: skip
    """Stacks of one shape: rectangles of groups by members, the last one filled up if need be.

    No device holds more than `limit` members of a stack, and all hold the same number.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        groups[learners[cell].group()].append(cell)
    if len(groups) == 1:
        layout = replace(layout, members=min(layout.members, len(cells)))
        count = -(-len(cells) // (limit * layout.members))
        size = -(-len(cells) // (count * layout.members)) * layout.members
        parts = [cells[i : i + size] for i in range(0, len(cells), size)]
        return [Shard(tuple(p), 1, precision, size - len(p), layout.axes) for p in parts]

    def fit(members: int) -> bool:
        return members <= limit * spread(members, layout.members)

    # Groups of one size form rectangles; each group fits whole or is parted by itself.
    found: list[Shard] = []
    by_size: dict[int, list[list[str]]] = defaultdict(list)
    for members in groups.values():
        if fit(len(members)):
            by_size[len(members)].append(members)
        else:
            found += _stacks(members, learners, limit, layout, precision)
    for size, same in by_size.items():
        while same:
            most = min(len(same), limit * layout.members // size)
            rows = max(n for n in range(1, most + 1) if fit(n * size))
            even = -(-len(same) // -(-len(same) // rows))  # stacks of one shape compile once
            rows = even if fit(even * size) else rows
            block, same = same[:rows], same[rows:]
            flat = tuple(cell for members in block for cell in members)
            over = replace(layout, members=spread(len(flat), layout.members))
            found.append(Shard(flat, len(block), precision, 0, over.axes))
    return found
