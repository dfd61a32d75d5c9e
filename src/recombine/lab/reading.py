"""Taking readings: after training, and on an accelerator already while other cells train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from recombine.errors import Interrupted, StoreError
from recombine.instruments._instrument import check_controls
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.session import Session, has_needs, hopeless, is_whole, record_failure
from recombine.lab.shards import gather
from recombine.lab.study import Cell, ReadingRequest

Kind = tuple[Any, Any]  # an instrument and the program it looks at: they share compilations


class Wanted(NamedTuple):
    """A reading that is not in the store and can be taken: its name, its kind, and what of whom."""

    name: str
    kind: Kind
    cell: Cell
    request: ReadingRequest


Taker = Callable[[Wanted], None]


def possible(session: Session, cells: Sequence[Cell]) -> Iterator[Wanted]:
    """Every reading that is not in the store and can be taken."""
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
                yield Wanted(name, kind, cell, request)


def read(
    session: Session, cells: Sequence[Cell], taker: Taker | None = None, count: int | None = None
) -> None:
    """Takes every reading that is not in the store; by a `taker`, `count` at once, or on threads
    of this process."""
    taker = taker or here(session)
    jobs: dict[str, Callable[[], None]] = {}
    kinds: dict[str, Kind] = {}
    first: dict[Kind, str] = {}
    for wanted in possible(session, cells):
        name, kind = wanted.name, wanted.kind
        jobs[name], kinds[name] = lambda wanted=wanted: taker(wanted), kind
        first.setdefault(kind, name)
    # One of each kind first: eight that begin alike would all compile the same.
    early = {name: jobs.pop(name) for name in first.values()}
    for part in (early, jobs):
        if part:
            at_once = count or min(8, device().cores)
            session.carry_out("reading", part, dict.fromkeys(part, 1), at_once, kinds)


def here(session: Session) -> Taker:
    """Takes readings in the thread that asks."""
    return lambda wanted: take(session, wanted.cell, wanted.request)


class ReadingAhead:
    """Readings of finished cells while other cells still train.

    An accelerator trains one shard at a time and leaves the cores idle, and much of a reading is
    done on these. What is not taken by the end of training is left to `read`.
    """

    def __init__(self, session: Session, cells: Sequence[Cell], taker: Taker, count: int):
        self.session, self.cells, self.taker = session, cells, taker
        self._pool = ThreadPoolExecutor(count)
        self._lock = threading.Lock()
        self._begun: set[str] = set()
        self._known: dict[Kind, Future[None]] = {}
        self._over = False

    def __call__(self) -> None:
        """To be called when cells were finished: begins what can be read now."""
        with self._lock:
            for wanted in possible(self.session, self.cells):
                if wanted.name in self._begun:
                    continue
                self._begun.add(wanted.name)
                first = self._known.get(wanted.kind)
                if first is None:
                    self._known[wanted.kind] = self._pool.submit(self._try, wanted)
                else:
                    # After the first of its kind, which compiles for all.
                    first.add_done_callback(lambda _, wanted=wanted: self._submit(wanted))

    def _submit(self, wanted: Wanted) -> None:
        # After the end of training `read` takes it. Where that end cancels the first of a kind,
        # the pool is locked by the very thread that is here, and must not be asked.
        with suppress(RuntimeError):
            if not self._over:
                self._pool.submit(self._try, wanted)

    def _try(self, wanted: Wanted) -> None:
        # Whatever goes wrong: `read` tries again, where it is told.
        with suppress(Exception):
            if not self.session.stop.wanted:
                self.taker(wanted)

    def close(self) -> None:
        """Leaves what has not begun to `read`, which waits for what has."""
        self._over = True
        self._pool.shutdown(wait=False, cancel_futures=True)


def take(session: Session, cell: Cell, request: ReadingRequest) -> None:
    """Takes one reading and commits it, or writes down why it failed."""
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
