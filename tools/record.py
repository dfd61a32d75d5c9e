"""Records studies on one accelerator within a time limit, and keeps what there is every minute.

    python tools/record.py --minutes 25 --readers 5 sequences foretold,collection,anatomy

Each word is a lane: a process that trains its studies one after another, and goes on with the
next while one waits for its readings. Readers, processes too, take readings of whatever is trained
meanwhile, as the Python of an instrument would hold training up. Every minute the curves and
readings of each study are written to `--to` as STUDY-PRESET.zip, for `recombine import`. What lies
there already, or in results/, is imported first: only what is missing is done. Stores are in
`--runs`, one a study; a line goes to the standard output whenever something ends. Hours of an
accelerator are in these bundles: commit them before anything is made of them.

What trains together is kept together, at its end, and read only then: a stack that the time limit
cuts short is lost with the machine. `--stacked 24e6` makes stacks of at most so many weights: of a
minute or two where they are transformers, each of which reads thousands of tokens in a step and so
keeps a GPU busy among few. Leave it where networks are small: those need many beside them.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from recombine.errors import Interrupted, InvalidRequest, RecombineError
from recombine.lab import execute, readers, reading
from recombine.lab.bundle import bundle, import_bundle
from recombine.lab.device import device, enable_compilation_cache
from recombine.lab.identity import node_id
from recombine.lab.leases import Busy
from recombine.lab.progress import Watch
from recombine.lab.run import Request, collect, gather_rows, rounds, study_named
from recombine.lab.session import Session
from recombine.lab.shards import Stop
from recombine.lab.store import Store
from recombine.lab.study import ReadingRequest
from recombine.report.study import summary_of

ROOT = Path(__file__).resolve().parents[1]
PACK_SECONDS = 60.0
LOOK_SECONDS = 5.0  # between two looks for something to do: each is seconds of work itself
TURN_SECONDS = 30.0  # that a reader stays with one study
SPARE = 20.0  # seconds before the end in which nothing begins
LARGEST = 15 * 2**20  # bytes of a bundle's file
KEPT = ("cell", "reading", "round")


class Sitting:
    """What all processes of one recording share: the clock, and where things are."""

    def __init__(self, told: argparse.Namespace):
        self.told = told
        self.studies = [study for lane in told.lanes for study in lane.split(",")]
        self.left = told.begun + 60 * told.minutes - time.time()
        self.stop = Stop(deadline=time.monotonic() + self.left - SPARE)

    def say(self, *words: object) -> None:
        print(f"[{time.time() - self.told.begun:6.0f} s]", *words, flush=True)

    def store(self, study: str) -> Store:
        return Store.open(self.told.runs / study)

    def request(self, study: str) -> Request:
        return Request(study_named(study), self.told.preset, {})

    def session(self, store: Store) -> Session:
        most = self.told.stacked and int(self.told.stacked)
        return Session(store, self.stop, Watch(quiet=True), stacked=most)

    def done(self, study: str) -> Path:
        return self.told.runs / f"{study}.done"

    def keep(self, study: str, *, whole: bool = False) -> None:
        """Writes the bundle beside its place and moves it there, so that it is always whole.

        Of a whole study without what it no longer asks for: what it was recorded with before is
        imported, too. Of any other all is kept: a round that is not reached yet, or for want of
        data, may ask for it.
        """
        for file in self.told.to.glob(f".{study}-*.zip"):
            file.unlink()
        store = self.store(study)
        try:
            new = bundle(
                store, self.told.to / f".{study}-{self.told.preset}.zip", kinds=KEPT,
                ids=asked_for(self.request(study), store) if whole else None, max_bytes=LARGEST,
            )  # fmt: skip
        except InvalidRequest:
            return  # nothing is there yet
        for file in new:
            file.rename(file.with_name(file.name.removeprefix(".")))


def asked_for(request: Request, store: Store) -> set[str]:
    """What is in a store of all that a study stands on."""
    asked = set(store.ids("round"))
    for feasible in rounds(request, store, write=False):
        for cell in feasible.cells:
            asked |= {node for _, node in execute.needed_nodes(cell)}
            asked |= {node_id(ReadingRequest(cell.id, one)) for one in cell.instruments}
    return asked & {node for kind in KEPT for node in store.ids(kind)}


def lane(sitting: Sitting, study: str) -> Iterator[None]:
    """Trains a study round after round; yields as long as readings are due."""
    store, request = sitting.store(study), sitting.request(study)
    for folder in (ROOT / "results", sitting.told.to):
        if known := sorted(folder.glob(f"{study}-{request.preset}*.zip")):
            sitting.say(study, "imported from", folder.name, import_bundle(store, known))
    over = threading.Event()

    def packing() -> None:
        while not over.wait(PACK_SECONDS):
            sitting.keep(study)

    packer = threading.Thread(target=packing, daemon=True)
    packer.start()
    session, whole = sitting.session(store), False
    try:
        for number, feasible in enumerate(rounds(request, store, write=True)):
            learners = execute.needed_cells(feasible.cells, store)
            sitting.say(study, f"round {number}: {len(learners)} cells to train")
            execute.train(session, f"{request.name}-round{number}", learners, with_weights=True)
            sitting.say(study, f"round {number} is trained")
            while not sitting.stop.wanted:
                _, missing, failed = gather_rows(store, feasible.cells)
                if missing <= len(failed):
                    break
                yield
        found = collect(request, store)
        sitting.say(study, f"missing {found.missing}, failed {len(found.failed)}")
        whole = found.finished and not found.infeasible
        if found.finished:
            sitting.say(study, summary_of(found)["verdict"])
    except Interrupted as why:
        sitting.say(study, "stopped:", why)
    finally:
        over.set()
        packer.join()
        sitting.keep(study, whole=whole)
        sitting.done(study).touch()
        sitting.say(study, "ends")


def in_turn(sitting: Sitting) -> bool:
    """Trains the studies of a lane, each whenever it can go on; whether all went well."""
    going = {study: lane(sitting, study) for study in sitting.studies}
    well = True
    while going:
        for study, work in list(going.items()):
            try:
                next(work)
            except StopIteration:
                del going[study]
            except Exception:  # the other studies have nothing to do with it
                traceback.print_exc()
                del going[study]
                well = False
        if going:
            time.sleep(LOOK_SECONDS)
    return well


def reader(sitting: Sitting, number: int) -> None:
    """Takes readings of any study until all have ended."""
    taken = 0
    while not sitting.stop.wanted:
        before = taken
        open_ones = [study for study in sitting.studies if not sitting.done(study).exists()]
        if not open_ones:
            break
        for study in open_ones:
            if (sitting.told.runs / study).is_dir():
                taken += read_some(sitting, study, number)
        if taken == before:
            time.sleep(LOOK_SECONDS)
    sitting.say(f"reader {number} took {taken} readings")


def read_some(sitting: Sitting, study: str, number: int) -> int:
    """Takes what can be read now, for a while: finding out what that is takes seconds itself."""
    store, request = sitting.store(study), sitting.request(study)
    cells = [cell for feasible in rounds(request, store, write=False) for cell in feasible.cells]
    session = sitting.session(store)
    jobs = list(reading.possible(session, cells))
    kinds = list(dict.fromkeys(job.kind for job in jobs))
    # Each reader begins with kinds of its own, so that not all compile the same.
    turn = {kind: (place - number) % len(kinds) for place, kind in enumerate(kinds)}
    taken, until = 0, time.monotonic() + TURN_SECONDS
    for job in sorted(jobs, key=lambda job: turn[job.kind]):
        if sitting.stop.wanted or time.monotonic() > until:
            break
        if store.has("reading", job.name):
            continue  # another reader was here first
        try:
            reading.take(session, job.cell, job.request)
            taken += 1
        except Busy:
            pass  # another reader has it
        except Interrupted:
            break
    return taken


def start(told: argparse.Namespace) -> int:
    """All lanes and readers as processes, until they end or the time is over."""
    sitting = Sitting(told)
    for study in sitting.studies:
        _ = sitting.request(study).grid  # a name that is not known is told before anything begins
    told.to.mkdir(parents=True, exist_ok=True)
    told.runs.mkdir(parents=True, exist_ok=True)
    for study in sitting.studies:
        sitting.done(study).unlink(missing_ok=True)
    command = [sys.executable, __file__, "--minutes", str(told.minutes), "--begun",
               str(told.begun), "--preset", told.preset, "--to", str(told.to), "--runs",
               str(told.runs)]  # fmt: skip
    if told.stacked is not None:
        command += ["--stacked", str(told.stacked)]
    # Two processes that each take the whole memory of an accelerator cannot both run; and data
    # are made by further interpreters, which must find this source.
    source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    around = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, "PYTHONPATH": source}
    # Cores are what a recording runs short of, and those that train come first.
    modest = {**around, **readers.around()}
    wanted = [(around, ["--role", "lane", lane]) for lane in told.lanes]
    wanted += [(modest, ["--role", "reader", "--number", str(number), *told.lanes])
               for number in range(told.readers)]  # fmt: skip
    # In sessions of their own: Ctrl-C reaches this process only, which asks them to end.
    children = [subprocess.Popen([*command, *more], env=env, start_new_session=True)
                for env, more in wanted]  # fmt: skip
    code = 0
    try:
        for child in children:
            child.wait(timeout=max(1.0, told.begun + 60 * told.minutes - time.time()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
        by_hand = isinstance(why, KeyboardInterrupt)
        sitting.say("stopping, what there is is kept" if by_hand else "the time is over")
        code = 130 if by_hand else 0
    failed = any(child.poll() for child in children)
    wait_or_kill(children)
    return 1 if failed else code


def wait_or_kill(children: list[subprocess.Popen]) -> None:
    """Asks all that still run to end, and gives them a moment to keep what they have."""
    for child in children:
        child.terminate()
    late = time.monotonic() + SPARE
    for child in children:
        try:
            child.wait(timeout=max(0.1, late - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
            child.wait()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lanes", nargs="+", metavar="STUDY,...")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--stacked", type=float, metavar="WEIGHTS")
    parser.add_argument("--preset", default="standard")
    parser.add_argument("--to", type=Path, default=Path("recorded"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--role", choices=("lane", "reader"), help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, default=time.time(), help=argparse.SUPPRESS)
    told = parser.parse_args(words)
    if told.stacked is not None and not 1 <= told.stacked < math.inf:
        parser.error(f"--stacked {told.stacked:g}: expected at least 1, such as 24e6")
    if told.readers < 1:
        parser.error(f"--readers {told.readers}: expected at least 1, or nothing is read")
    if told.role is None:
        try:
            return start(told)
        except RecombineError as error:
            parser.exit(2, f"record.py: error: {error}\n")
    sitting = Sitting(told)

    def asked_to_stop(number: int, _: object) -> None:
        sitting.stop.signal = number

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked_to_stop)
    enable_compilation_cache()
    if told.role == "reader":
        os.nice(10)
        reader(sitting, told.number)
        return 0
    sitting.say("lane", *sitting.studies, "on", device().kind)
    return 0 if in_turn(sitting) else 1


if __name__ == "__main__":
    sys.exit(main())
