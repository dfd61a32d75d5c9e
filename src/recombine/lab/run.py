"""Running a study from its first round to its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from recombine._lazy import load
from recombine.errors import InvalidRequest, unknown
from recombine.instruments._instrument import Reading
from recombine.lab import execute, reading
from recombine.lab.device import device
from recombine.lab.identity import canonical, node_id, revive
from recombine.lab.judge import Judgement, judge
from recombine.lab.layout import Devices
from recombine.lab.plan import part
from recombine.lab.readers import Readers, at_most, beside_training
from recombine.lab.store import Store
from recombine.lab.study import Cell, ReadingRequest, Results, Row, Study
from recombine.learners._learner import Learner
from recombine.studies import REGISTRY


def study_named(name: str) -> Study:
    """The study behind a name."""
    if name not in REGISTRY:
        raise unknown("study", name, REGISTRY)
    return load(REGISTRY[name])()


@dataclass(frozen=True)
class Request:
    """What a command asks for: a study at a preset with some values set by hand."""

    study: Study
    preset: str = "quick"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def grid(self) -> Any:
        return self.study.grid(self.preset, self.settings)

    def cells(self) -> list[Cell]:
        """The cells of the first round; values set by hand that no grid can have are refused."""
        try:
            return self.study.cells(self.grid)
        except (ArithmeticError, TypeError, ValueError) as error:
            if not self.settings:
                raise
            typed = " ".join(f"{name}={value}" for name, value in self.settings.items())
            reason = str(error).splitlines()[0]
            raise InvalidRequest(f"no grid can be laid out with {typed} ({reason})") from error

    @property
    def name(self) -> str:
        """A name for plans and reports: the preset, and a mark where values were set by hand."""
        mark = f"-{node_id(canonical(self.grid))[:8]}" if self.settings else ""
        return f"{self.study.name}-{self.preset}{mark}"


@dataclass(frozen=True)
class Outcome:
    """What is known of a study in a store: its rows, what is missing, and the verdicts."""

    request: Request
    results: Results
    judgements: list[Judgement]
    infeasible: list[tuple[Cell, str]]
    missing: int
    failed: list[tuple[str, str]]

    @property
    def finished(self) -> bool:
        return self.missing == 0


def run(request: Request, session: execute.Session) -> Outcome:
    """Trains, reads and judges; what the store has already is not done again."""
    for number, feasible in enumerate(rounds(request, session.store, write=True)):
        if number == 0 and not feasible.cells:
            reasons = [reason for _, reason in feasible.infeasible] or ["it is empty"]
            raise InvalidRequest(f"no cell of this grid can exist: {reasons[0]}")
        learners = execute.needed_cells(feasible.cells, session.store)
        name = f"{request.name}-round{number}"
        train_and_read(session, name, learners, feasible.cells)
    return collect(request, session.store)


def train_and_read(
    session: execute.Session, name: str, learners: Mapping[str, Learner], cells: Sequence[Cell]
) -> None:
    """On one accelerator cells are read by other processes, while others still train; elsewhere
    all cores train, and then read."""
    if not reads_ahead():
        execute.train(session, name, learners, with_weights=True)
        reading.read(session, cells)
        return
    with Readers(session, at_most()) as readers:
        ahead = reading.ReadingAhead(session, cells, readers, beside_training())
        try:
            execute.train(session, name, learners, with_weights=True, finished=ahead)
        finally:
            ahead.close()
        reading.read(session, cells, readers, readers.count)


def read(session: execute.Session, cells: Sequence[Cell]) -> None:
    """Takes the readings that can be taken of what is trained."""
    if not reads_ahead():
        reading.read(session, cells)
        return
    with Readers(session, at_most()) as readers:
        reading.read(session, cells, readers, readers.count)


def reads_ahead() -> bool:
    """Not over several devices: two programs that each wait for all can wait for one another."""
    return device().accelerated and Devices.here().count == 1


def collect(request: Request, store: Store) -> Outcome:
    """The state of a study, from the store alone."""
    cells: list[Cell] = []
    infeasible: list[tuple[Cell, str]] = []
    for feasible in rounds(request, store, write=False):
        cells += feasible.cells
        infeasible += feasible.infeasible
    rows, missing, failed = gather_rows(store, cells)
    results = Results(rows)
    judgements = judge(request.study.claims(request.grid), results)
    return Outcome(request, results, judgements, infeasible, missing, failed)


def rounds(request: Request, store: Store, *, write: bool):
    """Round after round; each later one is committed before its cells run."""
    grid = request.grid
    feasible = part(request.cells())
    yield feasible
    cells = list(feasible.cells)
    for number in range(1, 100):
        # What cannot be done here, for want of its data or at all, holds nobody up. Once the data
        # are there the round is another one, and what this one did is part of it.
        can = [cell for cell in cells if not execute.out_of_reach(store, cell)]
        rows, missing, _ = gather_rows(store, can)
        if missing or not can:
            return
        key = node_id(
            {"study": request.study.name, "grid": canonical(grid), "round": number,
             "after": [cell.id for cell in can]}
        )  # fmt: skip
        following = []
        if not store.has("round", key):
            following = request.study.next_cells(grid, Results(rows), number)
            if not following:
                return
            if write:
                document = [
                    {"learner": canonical(c.learner), "labels": dict(c.labels),
                     "instruments": canonical(c.instruments)}
                    for c in following
                ]  # fmt: skip
                store.commit(
                    "round", key, request={"study": request.study.name, "round": number},
                    documents={"cells": document},
                )  # fmt: skip
        if store.has("round", key):
            # As it was committed, so that a run that was stopped sees what this one sees.
            stored = store.document("round", key, "cells")
            following = [
                Cell(revive(c["learner"]), c["labels"], revive(c["instruments"])) for c in stored
            ]
        feasible = part(following)
        yield feasible
        cells += feasible.cells


def _losses(store: Store, cell: Cell) -> np.ndarray:
    return store.tensors("cell", cell.id, "curves").get("loss", np.empty(0))


def gather_rows(store: Store, cells: list[Cell]) -> tuple[list[Row], int, list[tuple[str, str]]]:
    """Finished cells as rows; how many are missing; which failed and why."""
    rows, missing, failed = [], 0, []
    for cell in cells:
        requests = {i.name: node_id(ReadingRequest(cell.id, i)) for i in cell.instruments}
        # A reading that cannot apply is a gap in its row, not work still to be done.
        taken = {name: node for name, node in requests.items() if store.has("reading", node)}
        inapplicable = [
            node for node in requests.values() if execute.hopeless(store, "reading", node)
        ]
        if store.has("cell", cell.id) and len(taken) + len(inapplicable) >= len(requests):
            readings = {
                name: Reading.from_document(store.document("reading", node, "reading"))
                for name, node in taken.items()
            }
            for node in inapplicable:
                failure = store.failure("reading", node) or {}
                failed.append((f"reading {node[:10]} ({execute.describe(cell.labels)})",
                               failure.get("reason", "")))  # fmt: skip
            summary = store.document("cell", cell.id, "summary")
            device = store.manifest("cell", cell.id)["device"]
            losses = partial(_losses, store, cell)
            rows.append(Row(cell.labels, cell.id, summary, readings, device, losses))
            continue
        missing += 1
        readings = [("reading", name) for name in requests.values()]
        for kind, node in [*execute.needed_nodes(cell), *readings]:
            failure = store.failure(kind, node)
            if failure is not None:
                failed.append((f"{kind} {node[:10]} ({execute.describe(cell.labels)})",
                               failure["reason"]))  # fmt: skip
    return rows, missing, failed
