"""Taking readings: after training, and on an accelerator already while other cells train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from recombine.errors import Interrupted, StoreError
from recombine.instruments._instrument import check_controls
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.session import Session, has_needs, hopeless, is_whole, record_failure
from recombine.lab.shards import gather
from recombine.lab.study import Cell, ReadingRequest

Kind = tuple[Any, Any]  # an instrument and the program it looks at: they share compilations
Job = tuple[str, Kind, Callable[[], None]]


def possible(session: Session, cells: Sequence[Cell]) -> Iterator[Job]:
    """Every reading that is not in the store and can be taken: its name, its kind, and how."""
    store = session.store
    for cell in cells:
        if not store.has("cell", cell.id):
            continue
        for instrument in cell.instruments:
            request = ReadingRequest(cell.id, instrument)
            name = node_id(request)
            if store.has("reading", name) or hopeless(store, "reading", name):
                continue
            subjects = [cell.learner, *instrument.cells(cell.learner).values()]
            if all(is_whole(store, node_id(s)) and has_needs(store, s) for s in subjects):
                kind = (instrument, cell.learner.program())
                yield name, kind, lambda c=cell, r=request: _read(session, c, r)


def read(session: Session, cells: Sequence[Cell]) -> None:
    """Takes every reading that is not in the store."""
    jobs: dict[str, Callable[[], None]] = {}
    kinds: dict[str, Kind] = {}
    first: dict[Kind, str] = {}
    for name, kind, job in possible(session, cells):
        jobs[name], kinds[name] = job, kind
        first.setdefault(kind, name)
    # One of each kind first: eight threads that begin alike would all compile the same.
    early = {name: jobs.pop(name) for name in first.values()}
    for part in (early, jobs):
        if part:
            session.carry_out("reading", part, dict.fromkeys(part, 1), workers(), kinds)


def workers() -> int:
    return min(8, device().cores)


class ReadingAhead:
    """Readings of finished cells while other cells still train.

    An accelerator trains one shard at a time and leaves the cores idle, and much of a reading is
    done on these. What is not taken by the end of training is left to `read`.
    """

    def __init__(self, session: Session, cells: Sequence[Cell]):
        self.session, self.cells = session, cells
        self._pool = ThreadPoolExecutor(max(1, workers() // 2))
        self._lock = threading.Lock()
        self._begun: set[str] = set()
        self._known: dict[Kind, Future[None]] = {}

    def __call__(self) -> None:
        """To be called when cells were finished: begins what can be read now."""
        with self._lock:
            for name, kind, job in possible(self.session, self.cells):
                if name in self._begun:
                    continue
                self._begun.add(name)
                first = self._known.get(kind)
                if first is None:
                    self._known[kind] = self._pool.submit(self._try, job)
                else:
                    # After the first of its kind, which compiles for all.
                    first.add_done_callback(lambda _, job=job: self._submit(job))

    def _submit(self, job: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # training has ended: `read` takes it
            self._pool.submit(self._try, job)

    def _try(self, job: Callable[[], None]) -> None:
        # Whatever goes wrong: `read` tries again, where it is told.
        with suppress(Exception):
            if not self.session.stop.wanted:
                job()

    def close(self) -> None:
        """Leaves what has not begun to `read`, which waits for what has."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _read(session: Session, cell: Cell, request: ReadingRequest) -> None:
    session.check()
    store, name = session.store, node_id(request)
    instrument = request.instrument
    with store.lease([name]) as lease:
        if store.has("reading", name):
            return
        try:
            given = gather(store, cell.learner)
            subject = cell.learner.subject(store.tensors("cell", cell.id, "weights"), given)
            untrained = cell.learner.subject(store.tensors("cell", cell.id, "weights-0"), given)
            others = {
                key: learner.subject(
                    store.tensors("cell", node_id(learner), "weights"), gather(store, learner)
                )
                for key, learner in instrument.cells(cell.learner).items()
            }
            reading = instrument.read(subject, untrained, others)
            check_controls(instrument, reading)
        except (Interrupted, StoreError):
            raise
        except Exception as error:
            record_failure(session, "reading", name, name, error)
            return
        store.commit(
            "reading", name, request=canonical(request), documents={"reading": reading.document()},
            versions=versions(), device=asdict(device()), lease=lease,
        )  # fmt: skip
