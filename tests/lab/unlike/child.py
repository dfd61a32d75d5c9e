"""A process that is killed again and again, and the one that kills it.

`python -m unlike.child` imports jax once, without starting it, and forks for every job it reads
from its input, one JSON object a line; so a real process that can be killed at any moment costs
a fraction of a second. A job says what to do, and how it shall end.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax
from jax._src import xla_bridge

import recombine.cli
import recombine.cli.running
import recombine.studies.data_scaling
from recombine.lab import checkpoints, device, engine, execute, reading, shards
from recombine.lab.files import System
from recombine.lab.progress import Watch
from recombine.lab.run import Request, run
from recombine.lab.store import Store
from recombine.lab.study import Cell
from recombine.report.study import write_report
from unlike import slots
from unlike.adaptive import Adaptive
from unlike.exam import Exam
from unlike.masks import Masked, small_base
from unlike.oracle import Apprentice
from unlike.sequences import Backwards

LEARNERS = {
    "sequences": [Backwards(seed=0), Backwards(seed=1)],
    "masks": [Masked(small_base(b), module=m, seed=m) for b in range(2) for m in range(3)],
    "slots": [slots.SlotReader(seed=0), slots.SlotReader(seed=1)],
    "oracle": [Apprentice()],
}


def train_and_read(session: execute.Session, name: str) -> None:
    cells = [Cell(learner, {"n": n}, (Exam(),)) for n, learner in enumerate(LEARNERS[name])]
    execute.train(session, name, execute.needed_cells(cells, session.store), with_weights=True)
    reading.read(session, cells)


def work(job: dict[str, Any]) -> None:
    if "command" in job:
        recombine.cli.main(job["command"])
        return
    session = execute.Session(Store.open(job["store"]))
    if job["work"] == "study":
        outcome = run(Request(Adaptive(), "smoke"), session)
        write_report(session.store, outcome)
    else:
        train_and_read(session, job["work"])


def count_calls(deadly: int | None, told: int) -> None:
    """Counts writes, syncs and renames; at the deadly one the process kills itself.

    The fatal write gets half its bytes out first, as a real kill may.
    """
    numbers = itertools.count(1)  # two threads may write at once: each call has its own number

    def counted(name: str) -> Any:
        real = getattr(System, name)

        def call(*arguments: Any) -> Any:
            number = next(numbers)
            os.pwrite(told, b"%08d" % number, 0)
            if number == deadly:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)

        return staticmethod(call)

    for name in ("write", "fsync", "rename"):
        setattr(System, name, counted(name))


def tell_phases(folder: Path, slow: str) -> None:
    """Leaves a file for each thing it begins to do; what is named `slow` then takes very long."""
    progress, save = Watch.__call__, checkpoints.Checkpoints.save
    compile_population = engine.compile_population

    def watched(self: Watch, shard: str, done: int, total: int, doing: str) -> None:
        # The first steps come with the first chunk: only then is it training.
        if doing != "training" or done:
            (folder / doing).touch()
        progress(self, shard, done, total, doing)

    def slow_save(self: Any, *arguments: Any) -> None:
        (folder / "saving").touch()
        if slow == "saving":
            time.sleep(60)
        save(self, *arguments)

    def slow_compile(*arguments: Any) -> Any:
        if slow == "compiling":
            time.sleep(60)
        return compile_population(*arguments)

    Watch.__call__, checkpoints.Checkpoints.save = watched, slow_save
    engine.compile_population = slow_compile


def enable_compilation_cache() -> None:
    """As the program does, and small programs are kept too: there will be many children."""
    device.enable_compilation_cache()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def log_commits(path: Path) -> None:
    """Writes down every node that this process made appear."""
    commit = Store.commit

    def logged(self: Store, kind: str, id: str, **rest: Any) -> bool:
        appeared = commit(self, kind, id, **rest)
        with path.open("a") as log:
            log.write(f"{kind} {id} {appeared}\n")
        return appeared

    Store.commit = logged


def in_child(job: dict[str, Any], folder: Path) -> None:
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    told = os.open(folder / "calls", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.environ.update(job.get("env", {}))
    engine.CHUNK_SECONDS = 0.02
    shards.CHECKPOINT_SHARE = 1.0
    if job.get("steady"):  # a checkpoint after every block: the same calls in every run
        engine.CHUNK_SECONDS = 0.0
        shards._Saver.save_when_due = shards._Saver.save_now
    if "cores" in job:
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: job["cores"]]))
    if "commits" in job:
        log_commits(Path(job["commits"]))
    if job.get("phases"):
        tell_phases(folder, job.get("slow", ""))
    count_calls(job.get("deadly_call"), told)
    recombine.cli.running.enable_compilation_cache = enable_compilation_cache
    enable_compilation_cache()
    work(job)
    os._exit(0)


def begin(job: dict[str, Any], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            in_child(job, folder)
        except SystemExit as leaving:
            os._exit(leaving.code if isinstance(leaving.code, int) else 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)
    return pid


def end(pid: int, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Waits for a child, with what the job holds in store for it."""
    begun, sent = time.monotonic(), None
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if "kill_after" in job and sent is None and time.monotonic() - begun > job["kill_after"]:
            os.kill(pid, signal.SIGKILL)
            sent = time.monotonic()
        if "signal" in job and sent is None and (folder / job["signal_at"]).exists():
            os.kill(pid, job["signal"])
            sent = time.monotonic()
        time.sleep(0.002)
    calls = (folder / "calls").read_text() if (folder / "calls").exists() else ""
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - begun,
        "seconds_after_signal": None if sent is None else time.monotonic() - sent,
        "calls": int(calls or 0),
        "output": (folder / "output").read_text(),
    }


def main() -> None:
    assert not xla_bridge.backends_are_initialized(), "a started jax must not be forked"
    jax.config.update("jax_platforms", "cpu")
    for line in sys.stdin:
        jobs = json.loads(line)
        folders = [Path(job["folder"]) for job in jobs]
        pids = [begin(job, folder) for job, folder in zip(jobs, folders, strict=True)]
        ends = [end(*one) for one in zip(pids, jobs, folders, strict=True)]
        print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()
