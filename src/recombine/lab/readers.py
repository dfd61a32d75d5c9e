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
from typing import Any, NoReturn

from recombine.children.serving import serve
from recombine.children.talk import Talk, python_child
from recombine.errors import RecombineError
from recombine.lab.device import device, enable_compilation_cache
from recombine.lab.identity import canonical, node_id, revive
from recombine.lab.leases import Busy
from recombine.lab.reading import Wanted, take
from recombine.lab.session import Session
from recombine.lab.store import Store
from recombine.lab.study import Cell, ReadingRequest

STARTS = 300.0  # seconds, with everything else that the machine does meanwhile
LONGEST = 3600.0  # seconds of one reading: who takes longer is ended


class Readers:
    """Some processes, each asked for one reading at a time.

    What they cannot read, such as a cell of a class that only this process knows, is read here.
    """

    def __init__(self, session: Session, count: int):
        self.session, self.count = session, count
        self._talks = [python_child(f"{__name__}:serve_readings", variables=around())
                       for _ in range(count)]  # fmt: skip
        self._idle: queue.SimpleQueue[Talk] = queue.SimpleQueue()
        for talk in self._talks:
            self._idle.put(talk)

    def __call__(self, wanted: Wanted) -> None:
        """Has a process take a reading; waits for one that is idle, and for the reading."""
        self.session.check()
        talk = self._idle.get()
        try:
            told = self._ask(talk, wanted)
        except RecombineError:
            told = {}  # it died or hung, and another is started with the next question
        finally:
            self._idle.put(talk)
        if "busy" in told:
            raise Busy(*told["busy"])
        if "failed" in told:
            self.session.watch.say(f"reading {wanted.name[:10]} failed: {told['failed'][:200]}")
        elif "taken" not in told:
            take(self.session, wanted.cell, wanted.request)

    def _ask(self, talk: Talk, wanted: Wanted) -> Mapping[str, Any]:
        stop = self.session.stop
        if not talk.running:
            first = {"path": sys.path, "place": str(self.session.store.path)}
            talk.ask(first, STARTS, lambda: stop.wanted)
        learner, instrument = wanted.cell.learner, wanted.request.instrument
        asked = {"name": wanted.name, "learner": canonical(learner),
                 "instrument": canonical(instrument)}  # fmt: skip
        return talk.ask(asked, LONGEST, lambda: stop.wanted)

    def close(self) -> None:
        """Ends them all; a reading that was being taken will be taken another time."""
        for talk in self._talks:
            talk.close()

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def enough() -> int:
    """Who trains comes first, and compiles on many cores."""
    return max(1, min(6, device().cores // 3))


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


def _begin(request: dict[str, Any]) -> tuple[Session, str]:
    os.nice(10)
    enable_compilation_cache()
    return Session(Store.open(request["place"])), "ready"


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
    failure = None if store.has("reading", name) else store.failure("reading", name)
    return json.dumps({"taken": name} if failure is None else {"failed": failure["reason"]})
