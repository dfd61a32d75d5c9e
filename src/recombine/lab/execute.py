"""Carrying out a plan: materials, cells and readings, in worker threads, each committed once."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import Any

from recombine.errors import Interrupted, InvalidRequest, NotApplicable, StoreError
from recombine.instruments._instrument import check_controls
from recombine.lab import plan
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.leases import Busy
from recombine.lab.progress import Watch
from recombine.lab.shards import DoesNotFit, Shard, Stop, gather, run_shard
from recombine.lab.store import Store
from recombine.lab.study import Cell, ReadingRequest
from recombine.learners._learner import Learner

POLL_SECONDS = 0.2
BUSY_SECONDS = 1.0


@dataclass
class Session:
    """One command's work on a store: how to stop it, who watches, what is allowed."""

    store: Store
    stop: Stop = field(default_factory=Stop)
    watch: Watch = field(default_factory=lambda: Watch(quiet=True))
    adopt: bool = False

    def check(self) -> None:
        if self.stop.wanted:
            code = 128 + self.stop.signal if self.stop.signal is not None else 0
            raise Interrupted("stopped at a border; run the same command to continue", code)

    def carry_out(
        self, title: str, jobs: Mapping[str, Callable[[], None]], weights: Mapping[str, int],
        workers: int,
    ) -> None:  # fmt: skip
        """Runs jobs on threads while this thread watches for signals and draws progress.

        A job that is being done by another process is left to it and looked at again later.
        """
        self.watch.start(title, dict(weights))
        waiting = dict(jobs)
        running: dict[Future[None], str] = {}
        pool = ThreadPoolExecutor(workers)
        failed: BaseException | None = None
        try:
            pause = 0.0
            while waiting or running:
                self.check()
                if failed is not None:
                    raise failed
                if time.monotonic() >= pause:
                    for name in list(waiting)[: workers - len(running)]:
                        running[pool.submit(waiting.pop(name))] = name
                ended, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                if not running:
                    time.sleep(POLL_SECONDS)
                for future in ended:
                    name = running.pop(future)
                    error = future.exception()
                    if isinstance(error, Busy):
                        waiting[name] = jobs[name]
                        pause = time.monotonic() + BUSY_SECONDS
                    elif error is not None:
                        failed = error
                    else:
                        self.watch.finish(name)
                self.watch.draw()
            if failed is not None:
                raise failed
        finally:
            # Threads end at their next border; a compilation cannot be stopped, but holds nothing.
            pool.shutdown(wait=False, cancel_futures=True)
            if self.stop.wanted and running:
                wait(running, 4.0)
        self.watch.draw(last=True)


def make_materials(session: Session, learners: Sequence[Learner]) -> None:
    """Prepares data that is not in the store yet."""
    for name, material in plan.materials(learners).items():
        if session.store.has("material", name):
            continue
        with session.store.lease([name]):
            session.store.commit(
                "material", name, request=canonical(material), tensors={"data": material.make()},
                versions=versions(),
            )  # fmt: skip


def train(session: Session, name: str, learners: Mapping[str, Learner]) -> None:
    """Trains every cell that is not in the store, upstream cells first."""
    layers = plan.upstream_first(learners.values())
    make_materials(session, [learner for layer in layers for learner in layer.values()])
    for depth, layer in enumerate(layers):
        _train_layer(session, f"{name}-{depth}", layer)


def _train_layer(session: Session, name: str, learners: Mapping[str, Learner]) -> None:
    store = session.store
    missing = {cell: learner for cell, learner in learners.items() if _wanted(store, cell, learner)}
    if not missing:
        return
    shards = _planned(store, name, missing)
    workers = 1 if device().accelerated else device().cores
    todo = {shard.id: shard for shard in shards if any(c in missing for c in shard.cells)}
    weights = {s.id: missing_steps(s, learners) for s in todo.values()}
    jobs = {
        shard.id: lambda shard=shard: _run(session, name, shard, learners)
        for shard in todo.values()
    }
    session.carry_out("training", jobs, weights, workers)


def missing_steps(shard: Shard, learners: Mapping[str, Learner]) -> int:
    return len(shard.cells) * learners[shard.cells[0]].steps


def _wanted(store: Store, cell: str, learner: Learner) -> bool:
    if store.has("cell", cell):
        return False
    failure = store.failure("cell", cell)
    if failure is not None and not failure.get("retry", True):
        return False
    return all(store.has("cell", node_id(up)) for up in learner.upstream().values())


def _planned(store: Store, name: str, missing: Mapping[str, Learner]) -> list[Shard]:
    """The shards of the plan file if it covers what is missing, else new ones, written down."""
    stored = store.read_plan(name)
    if stored is not None:
        known = [
            Shard(tuple(s["cells"]), s["groups"], s["precision"], s["padding"])
            for s in stored["shards"]
        ]
        if set(missing) <= {cell for shard in known for cell in shard.cells}:
            return known
    shards = plan.shards(missing, device())
    _write_plan(store, name, shards)
    return shards


def _write_plan(store: Store, name: str, shards: Sequence[Shard]) -> None:
    document = {"device": asdict(device()), "shards": [asdict(shard) for shard in shards]}
    store.write_plan(name, document)


def _run(session: Session, name: str, shard: Shard, learners: Mapping[str, Learner]) -> None:
    """One shard to its end; what cannot run together runs in halves, recorded in the plan."""
    store = session.store
    members = [learners[cell] for cell in shard.cells]
    with store.lease([shard.id, *shard.cells]) as lease:
        if all(store.has("cell", cell) for cell in shard.cells):
            return
        try:
            run_shard(
                store, shard, members, lease=lease, stop=session.stop, progress=session.watch,
                adopt_foreign=session.adopt,
            )  # fmt: skip
            return
        except Interrupted:
            raise
        except StoreError as error:
            if not isinstance(error, DoesNotFit):
                raise  # a full or damaged disk would fail every other shard too
            reason: Exception = error
        except Exception as error:
            reason = error
        log = store.log_path(shard.id)
        log.write_text("".join(traceback.format_exception(reason)), encoding="utf-8")
        if len(shard.cells) == 1:
            store.fail(
                "cell", shard.cells[0], reason=str(reason).splitlines()[0][:500],
                detail=f"the traceback is in {log.name}",
                retry=not isinstance(reason, InvalidRequest),
            )  # fmt: skip
            session.watch.say(f"cell {shard.cells[0][:10]} failed: {str(reason)[:200]}")
            return
    # Too large together, or one member is broken: halves find out, and the mates survive.
    halves = shard.halves()
    session.watch.say(
        f"shard {shard.id[:10]} of {len(shard.cells)} members failed ({str(reason)[:120]}); "
        f"running it again in halves from step 0"
    )
    recorded = store.read_plan(name)
    if recorded is not None:
        kept = [s for s in recorded["shards"] if tuple(s["cells"]) != shard.cells]
        document = {**recorded, "shards": [*kept, *[asdict(half) for half in halves]]}
        store.write_plan(name, document)
    for half in halves:
        _run(session, name, half, learners)


def read(session: Session, cells: Sequence[Cell]) -> None:
    """Takes every reading that is not in the store."""
    store = session.store
    jobs = {}
    for cell in cells:
        if not store.has("cell", cell.id):
            continue
        for instrument in cell.instruments:
            request = ReadingRequest(cell.id, instrument)
            name = node_id(request)
            failure = store.failure("reading", name)
            if not store.has("reading", name) and (failure is None or failure.get("retry", True)):
                jobs[name] = lambda cell=cell, request=request: _read(session, cell, request)
    if jobs:
        workers = min(8, device().cores)
        session.carry_out("reading", jobs, dict.fromkeys(jobs, 1), workers)


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
            log = store.log_path(name)
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            store.fail(
                "reading", name, reason=str(error).splitlines()[0][:500] if str(error) else
                type(error).__name__, detail=f"the traceback is in {log.name}",
                retry=not isinstance(error, NotApplicable),
            )  # fmt: skip
            return
        store.commit(
            "reading", name, request=canonical(request), documents={"reading": reading.document()},
            versions=versions(), device=asdict(device()), lease=lease,
        )  # fmt: skip


def needed_cells(cells: Sequence[Cell]) -> dict[str, Learner]:
    """The learners of a round, with those its instruments ask for."""
    found: dict[str, Learner] = {}
    for cell in cells:
        found[cell.id] = cell.learner
        for instrument in cell.instruments:
            for learner in instrument.cells(cell.learner).values():
                found[node_id(learner)] = learner
    return found


def describe(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items())
