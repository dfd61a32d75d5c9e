"""Records studies on one accelerator within a time limit, and keeps what there is every minute.

    python tools/record.py --minutes 25 sequences subgraphs binding

All studies go on at once, as `recombine run` would have each: one of them trains while others
prepare, compile and are read. Every minute the curves and readings of each are written to `--to`
as STUDY-PRESET.zip, for `recombine import`. What lies there already, or in results/, is imported
first: only what is missing is done. Stores are in `--runs`, one a study; a line goes to the
standard output whenever something ends. Hours of an accelerator are in these bundles: commit them
before anything is made of them. Where this package is not installed, put PYTHONPATH=src in front.

What trains together is kept together, at its end, and read only then: a stack that the time limit
cuts short is lost with the machine. `--stacked 24e6` makes stacks of at most so many weights: of a
minute or two where they are transformers, each of which reads thousands of tokens in a step and so
keeps a GPU busy among few. Leave it where networks are small: those need many beside them. In the
last part of the time nothing trains any more (`--reading 30` for 30 seconds; 15 % of the time, and
120 seconds at most, where nothing is said): a network that is not read by its end is lost, too.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from recombine.errors import Interrupted, RecombineError
from recombine.lab import execute
from recombine.lab.bundle import bundle, import_bundle
from recombine.lab.device import device, enable_compilation_cache
from recombine.lab.identity import node_id
from recombine.lab.progress import Watch
from recombine.lab.readers import FRACTIONS
from recombine.lab.run import Outcome, Request, collect, read, rounds, run, study_named
from recombine.lab.session import Session
from recombine.lab.shards import Stop
from recombine.lab.store import Store
from recombine.lab.study import ReadingRequest
from recombine.report.study import summary_of

ROOT = Path(__file__).resolve().parents[1]
PACK_SECONDS = 60.0
READING_SHARE, READING_SECONDS = 0.15, 120.0  # of the time, and at most: see --reading
SPARE = 15.0  # seconds before the end in which nothing begins, so that all of it is kept
LARGEST = 15 * 2**20  # bytes of a bundle's file
KEPT = ("cell", "reading", "round")


class Recording:
    """One study on its way: its store, and the bundle that is kept of it."""

    def __init__(self, study: str, told: argparse.Namespace, begun: float):
        self.study, self.told, self.begun = study, told, begun
        self.request = Request(study_named(study), told.preset, {})
        _ = self.request.grid  # a preset that is not known is told before anything begins
        self.failed = False
        self._kept: set[str] = set()
        self._keeping = threading.Lock()

    def say(self, *words: object) -> None:
        print(f"[{time.monotonic() - self.begun:6.0f} s]", self.study, *words, flush=True)

    @functools.cached_property
    def store(self) -> Store:
        return Store.open(self.told.runs / self.study)

    def go(self, training: Session, reading: Session) -> None:
        """Trains and reads as long as there is time to train, then reads what is trained."""
        try:
            for folder in (ROOT / "results", self.told.to):
                if known := sorted(folder.glob(f"{self.study}-{self.told.preset}*.zip")):
                    self.say("imported from", folder.name, import_bundle(self.store, known))
            try:
                found = run(self.request, training)
            except Interrupted as why:
                self.say("trains no more:", why)
                read(reading, [cell for part in rounds(self.request, self.store, write=False)
                               for cell in part.cells])  # fmt: skip
                found = collect(self.request, self.store)
            self.keep(whole=found.finished and not found.infeasible)
            self.tell(found)
        except Interrupted as why:
            self.say("stopped:", why)
        except Exception:  # the other studies have nothing to do with it
            traceback.print_exc()
            self.failed = True

    def tell(self, found: Outcome) -> None:
        self.say(f"missing {found.missing}, failed {len(found.failed)}")
        for name, reason in found.failed[:5]:
            self.say(f"failed: {name}: {reason}")
        if found.finished:
            self.say(summary_of(found)["verdict"])

    def keep(self, *, whole: bool = False) -> None:
        """Writes the bundle beside its place and moves it there, so that it is always whole.

        Of a whole study without what it no longer asks for: what it was recorded with before is
        imported, too. Of any other all is kept: a round that is not reached yet, or for want of
        data, may ask for it.
        """
        with self._keeping:
            there = {node for kind in KEPT for node in self.store.ids(kind)}
            if not there or (there == self._kept and not whole):
                return
            for file in self.told.to.glob(f".{self.study}-*.zip"):
                file.unlink()
            new = bundle(
                self.store, self.told.to / f".{self.study}-{self.told.preset}.zip",
                ids=there & asked_for(self.request, self.store) if whole else there,
                kinds=KEPT, max_bytes=LARGEST,
            )  # fmt: skip
            for file in new:
                file.rename(file.with_name(file.name.removeprefix(".")))
            self._kept = there


def asked_for(request: Request, store: Store) -> set[str]:
    """All that a study stands on."""
    asked = set(store.ids("round"))
    for feasible in rounds(request, store, write=False):
        for cell in feasible.cells:
            asked |= {node for _, node in execute.needed_nodes(cell)}
            asked |= {node_id(ReadingRequest(cell.id, one)) for one in cell.instruments}
    return asked


def record(studies: list[str], told: argparse.Namespace) -> int:
    """All studies beside each other, until they end or the time is over."""
    begun = time.monotonic()
    recordings = [Recording(study, told, begun) for study in dict.fromkeys(studies)]
    told.to.mkdir(parents=True, exist_ok=True)
    enable_compilation_cache()
    end = begun + 60 * told.minutes - SPARE
    last = told.reading or min(READING_SHARE * 60 * told.minutes, READING_SECONDS)
    training, reading = Stop(end - last), Stop(end)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _stop(number, training, reading))
    turn = threading.Lock()  # one trains at a time, whatever study it is of

    def session(recording: Recording, stop: Stop) -> Session:
        most = None if told.stacked is None else int(told.stacked)
        return Session(recording.store, stop, Watch(quiet=True), stacked=most, turn=turn)

    threads, watches = [], []
    for one in recordings:
        one.say("begins on", device().kind)
        sessions = session(one, training), session(one, reading)
        watches.append(sessions[0].watch)
        threads.append(threading.Thread(target=one.go, args=sessions, daemon=True))
        threads[-1].start()
    pack = begun + PACK_SECONDS
    # A compilation cannot be stopped; what does not end in time is left behind.
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end + SPARE / 2:
        time.sleep(0.2)
        if time.monotonic() > pack:
            for one, watch, thread in zip(recordings, watches, threads, strict=True):
                one.keep()
                if thread.is_alive():
                    one.say(watch.line())
            pack = time.monotonic() + PACK_SECONDS
        if reading.signal is not None:
            end = min(end, time.monotonic())
    for one, watch, thread in zip(recordings, watches, threads, strict=True):
        one.keep()
        if thread.is_alive():
            one.say("is left behind:", watch.line())
    if reading.signal is not None:
        return 128 + reading.signal
    return 1 if any(one.failed for one in recordings) else 0


def _stop(number: int, *stops: Stop) -> None:
    for stop in stops:
        stop.signal = number
    os.write(1, b"stopping, what there is is kept\n")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", metavar="STUDY")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--stacked", type=float, metavar="WEIGHTS")
    parser.add_argument("--reading", type=float, metavar="SECONDS")
    parser.add_argument("--preset", default="standard")
    parser.add_argument("--to", type=Path, default=Path("recorded"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    told = parser.parse_args(words)
    if told.stacked is not None and not 1 <= told.stacked < math.inf:
        parser.error(f"--stacked {told.stacked:g}: expected at least 1, such as 24e6")
    if not SPARE < 60 * told.minutes < math.inf:
        parser.error(f"--minutes {told.minutes:g}: expected more than {SPARE / 60:g}, such as 25")
    room = 60 * told.minutes - SPARE
    if told.reading is not None and not 0 < told.reading < room:
        parser.error(f"--reading {told.reading:g}: expected seconds, between 0 and {room:g}")
    # Data are made, and readings taken, by further interpreters, which must find this source.
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # Every study has interpreters of its own that read: half the memory is left to them.
    if not any(map(os.environ.get, FRACTIONS)):
        os.environ[FRACTIONS[1]] = "0.5"  # the old name, which every jax knows
    try:
        return record(told.studies, told)
    except RecombineError as error:
        parser.exit(2, f"record.py: error: {error}\n")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads that still compile would hold up the end
