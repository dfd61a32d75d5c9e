"""Processes that take readings while this one trains.

Much of an instrument is Python. In a thread it would take turns with the Python that keeps an
accelerator busy, and on many cores only one would read.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

from recombine.children.serving import serve
from recombine.children.talk import Talk, TalkFailed, python_child
from recombine.errors import InvalidRequest, RecombineError
from recombine.lab.device import (
    compilation_cache,
    device,
    device_memory,
    enable_compilation_cache,
    fingerprint,
)
from recombine.lab.identity import canonical, node_id, revive
from recombine.lab.leases import Busy
from recombine.lab.reading import Wanted, take
from recombine.lab.session import Session, hopeless, record_failure
from recombine.lab.store import Store
from recombine.lab.study import Cell, ReadingRequest

STARTS = 300.0  # seconds, with everything else that the machine does meanwhile
READS_IN = 4 * 2**30  # bytes, generously
TAKEN = 0.75  # of an accelerator's memory, which jax takes at once unless told otherwise:
FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # the new name, the old
LONGEST = 3600.0  # seconds of one reading: who takes longer is ended


class Readers:
    """Some processes, each asked for one reading at a time.

    What they cannot read is read here, or fails here: a cell of a class that only this process
    knows, or one for which an accelerator that this process uses has no memory left.
    """

    def __init__(self, session: Session, count: int):
        self.session, self.count = session, count
        self._talks = [python_child(f"{__name__}:serve_readings", variables=around())
                       for _ in range(count)]  # fmt: skip
        # The last to be idle is asked first: no more are started than are needed at once.
        self._idle: queue.LifoQueue[Talk] = queue.LifoQueue()
        for talk in self._talks:
            self._idle.put(talk)
        self._unfit = False  # where they cannot read at all, they are not asked again

    def __call__(self, wanted: Wanted) -> None:
        """Has a process take a reading; waits for one that is idle, and for the reading."""
        talk = self._idle.get()
        try:
            self.session.check()
            told = self._ask(talk, wanted) if self._fit(talk) else {}
        except RecombineError:
            self.session.check()
            told = {}  # it died, and another is started with the next question
        finally:
            self._idle.put(talk)
        if "busy" in told:
            raise Busy(*told["busy"])
        if "failed" in told:
            self.session.watch.say(f"reading {wanted.name[:10]} failed: {told['failed'][:200]}")
        elif "taken" not in told:
            take(self.session, wanted.cell, wanted.request)

    def _fit(self, talk: Talk) -> bool:
        """Whether a process reads as this one would; starts it."""
        if not self._unfit and not talk.running:
            first = {"path": sys.path, "place": str(self.session.store.path), "as": fingerprint(),
                     "compiled": compilation_cache()}  # fmt: skip
            try:
                hello = talk.ask(first, STARTS, lambda: self.session.stop.wanted)
            except RecombineError as error:
                self.session.check()
                hello = {"failed": str(error)}
            if "failed" in hello and not self._unfit:
                self._unfit = True
                self.session.watch.say(f"no process reads beside this one: {hello['failed'][:300]}")
        return not self._unfit

    def _ask(self, talk: Talk, wanted: Wanted) -> Mapping[str, Any]:
        learner, instrument = wanted.cell.learner, wanted.request.instrument
        asked = {"name": wanted.name, "learner": canonical(learner),
                 "instrument": canonical(instrument)}  # fmt: skip
        try:
            return talk.ask(asked, LONGEST, lambda: self.session.stop.wanted)
        except TalkFailed as error:
            self.session.check()
            if error.kind != "hung":
                raise
            # Here nothing could end it.
            record_failure(self.session, "reading", wanted.name, wanted.name, error)
            return {"taken": wanted.name}

    def close(self) -> None:
        """Ends them all; a reading that was being taken will be taken another time."""
        with ThreadPoolExecutor(self.count) as pool:  # each takes a moment to leave an accelerator
            for talk in self._talks:
                pool.submit(talk.close)

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.session.stop.given_up = True  # or threads would read on here
        self.close()


def beside_training() -> int:
    """How many read while others train, who come first, and compile on many cores."""
    return max(1, min(6, device().cores // 3))


def at_most() -> int:
    """How many read after training; they share what this process left of an accelerator."""
    memory = device_memory()
    told = filter(None, map(os.environ.get, FRACTIONS))
    taken = float(next(told, TAKEN))
    room = 8 if memory is None else int(memory * (1 / taken - 1)) // READS_IN
    return max(1, min(8, device().cores, room))


def around() -> dict[str, str]:
    """What a process that reads is told of the machine.

    Two processes that each take the whole memory of an accelerator cannot both run; trying kernels
    for the programs of a reading takes longer than these run; and as many threads as cores in each
    of several processes stand in each other's way.
    """
    flags = "--xla_gpu_autotune_level=0 --xla_gpu_force_compilation_parallelism=1"
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **alone,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
    }


def serve_readings() -> NoReturn:
    """The process's own side: takes what it is asked for, one reading after another."""
    serve(_begin, _respond)


def _begin(request: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    with suppress(OSError):  # some containers forbid it
        os.nice(10)
    enable_compilation_cache(request["compiled"])
    # An accelerator that lets in no second process leaves jax the CPU, without an error.
    here, there = fingerprint(), request["as"]
    if unlike := [f"{what} is {here.get(what)}, not {there[what]}"
                  for what in there if here.get(what) != there[what]]:  # fmt: skip
        raise InvalidRequest(", ".join(unlike))
    return Session(Store.open(request["place"], create=False)), {}


def _respond(session: Session, asked: dict[str, Any]) -> str:
    store, name = session.store, asked["name"]
    try:
        cell = Cell(revive(asked["learner"]), {})
        request = ReadingRequest(cell.id, revive(asked["instrument"]))
        if node_id(request) != name:
            return json.dumps({"left": "it is another reading here"})
        take(session, cell, request)
    except Busy as error:
        return json.dumps({"busy": [error.name, error.holder]})
    except Exception as error:
        return json.dumps({"left": str(error)})
    if store.has("reading", name):
        return json.dumps({"taken": name})
    # What another try may change may succeed in the process that asks.
    reason = (store.failure("reading", name) or {}).get("reason", "it was not taken")
    return json.dumps({"failed" if hopeless(store, "reading", name) else "left": reason})
