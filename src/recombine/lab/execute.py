"""Carrying out a plan: materials, cells and readings, in worker threads, each committed once."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import Any

from recombine.errors import (
    Interrupted,
    InvalidRequest,
    NotApplicable,
    RecombineError,
    StoreError,
)
from recombine.instruments._instrument import check_controls
from recombine.lab import plan
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.layout import Devices
from recombine.lab.leases import Busy
from recombine.lab.progress import Watch
from recombine.lab.shards import Foreign, Shard, Stop, checkpoint_seconds, gather, run_shard
from recombine.lab.store import Store
from recombine.lab.study import Cell, ReadingRequest
from recombine.learners._learner import Learner, Material

POLL_SECONDS = 0.2
BUSY_SECONDS = 1.0
AHEAD = 3  # shards in hand on an accelerator: one trains, the others prepare and compile


@dataclass
class Session:
    """One command's work on a store: how to stop it, who watches, what is allowed."""

    store: Store
    stop: Stop = field(default_factory=Stop)
    watch: Watch = field(default_factory=lambda: Watch(quiet=True))
    adopt: bool = False
    save_every: float = field(default_factory=checkpoint_seconds)
    # Held while a shard trains on an accelerator; the next ones compile meanwhile.
    turn: threading.Lock = field(default_factory=threading.Lock)

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
            if isinstance(failed, Interrupted):
                self.check()  # knows who asked for the stop, which the job does not
            if failed is not None:
                raise failed
        except BaseException:
            self.stop.given_up = True
            self.watch.close()
            raise
        finally:
            # Threads end at their next border; a compilation cannot be stopped, but holds nothing.
            pool.shutdown(wait=False, cancel_futures=True)
            if self.stop.wanted and running:
                wait(running, 4.0)
        self.watch.draw(last=True)


def make_materials(session: Session, learners: Sequence[Learner]) -> None:
    """Prepares data that is not in the store yet."""
    jobs = {
        name: lambda name=name, material=material: _make(session, name, material)
        for name, material in plan.materials(learners).items()
        if not session.store.has("material", name) and not hopeless(session.store, "material", name)
    }
    if jobs:
        session.carry_out("preparing data", jobs, dict.fromkeys(jobs, 1), workers=1)


def _make(session: Session, name: str, material: Material) -> None:
    store = session.store
    with store.lease([name]) as lease:
        if store.has("material", name):
            return
        try:
            data = material.make()
        except (Interrupted, StoreError):
            raise
        except Exception as error:
            _record_failure(session, "material", name, name, error)
            return
        store.commit(
            "material", name, request=canonical(material), tensors={"data": data},
            versions=versions(), lease=lease,
        )  # fmt: skip


def train(
    session: Session, name: str, learners: Mapping[str, Learner], *, with_weights: bool = False
) -> None:
    """Trains every cell that is not in the store, upstream cells first.

    With `with_weights` also those that came in a bundle without their weights.
    """
    store = session.store

    def here(cell: str) -> bool:
        return is_whole(store, cell) if with_weights else store.has("cell", cell)

    layers = plan.upstream_first(learners.values(), lambda cell: is_whole(store, cell))
    make_materials(session, [learner for layer in layers for learner in layer.values()])
    for depth, layer in enumerate(layers):
        missing = {
            cell: learner
            for cell, learner in layer.items()
            if not here(cell) and not hopeless(store, "cell", cell) and has_needs(store, learner)
        }
        if missing:
            _train_layer(session, f"{name}-{depth}", layer, missing)


def _train_layer(
    session: Session, name: str, learners: Mapping[str, Learner], missing: Mapping[str, Learner]
) -> None:
    shards = _planned(session.store, name, learners, missing)
    # Two programs that each wait for all devices can wait for one another.
    together = any(not shard.over.trivial for shard in shards)
    workers = 1 if together else AHEAD if device().accelerated else device().cores
    todo = {shard.id: shard for shard in shards if any(c in missing for c in shard.cells)}
    weights = {s.id: missing_steps(s, learners) for s in todo.values()}
    jobs = {
        shard.id: lambda shard=shard: _run(session, name, shard, learners)
        for shard in todo.values()
    }
    session.carry_out("training", jobs, weights, workers)


def missing_steps(shard: Shard, learners: Mapping[str, Learner]) -> int:
    return len(shard.cells) * learners[shard.cells[0]].steps


def is_whole(store: Store, cell: str) -> bool:
    """Whether a cell is here with its weights; a damaged one is set aside, and so is not."""
    try:
        return store.has("cell", cell) and "weights.safetensors" not in store.absent("cell", cell)
    except StoreError:
        return False


def has_needs(store: Store, learner: Learner) -> bool:
    """Whether everything that a learner's `prepare` is given is here."""
    return all(is_whole(store, node_id(up)) for up in learner.upstream().values()) and all(
        store.has("material", node_id(material)) for material in learner.materials().values()
    )


def hopeless(store: Store, kind: str, name: str) -> bool:
    """Whether a node failed for a reason that trying again cannot change."""
    failure = store.failure(kind, name)
    return failure is not None and not failure.get("retry", True)


def _record_failure(
    session: Session, kind: str, name: str, log_name: str, error: BaseException
) -> None:
    """Says why in one line, and where the traceback is; only a wrong request is not retried."""
    log = session.store.log_path(log_name)
    log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if not isinstance(error, RecombineError):
        reason = f"{type(error).__name__}: {reason}"
    session.store.fail(
        kind, name, reason=reason[:500], detail=f"the traceback is in {log.name}",
        retry=not isinstance(error, InvalidRequest | NotApplicable),
    )  # fmt: skip
    session.watch.say(f"{kind} {name[:10]} failed: {reason[:200]}")


def _planned(
    store: Store, name: str, learners: Mapping[str, Learner], missing: Mapping[str, Learner]
) -> list[Shard]:
    """The shards of the plan file that still hold, and new ones, written down, for the rest."""
    stored = store.read_plan(name) or {"device": None, "shards": []}
    here, devices = asdict(device()), Devices.here()
    kept = []
    for known in stored["shards"]:
        shard = Shard.from_document(known)
        # What began elsewhere goes on as it was grouped there; what did not is grouped for here.
        holds = stored["device"] == here and devices.suit(shard.over)
        if not holds and not Checkpoints(store.work(shard.id) / "state"):
            continue
        if learners.keys() >= set(shard.cells):
            if any(cell in missing for cell in shard.cells):
                _check_devices(store, shard, devices)
            kept.append(shard)
    rest = {c: m for c, m in missing.items() if not any(c in shard.cells for shard in kept)}
    if not rest:
        return kept
    shards = [*kept, *plan.shards(rest, device(), devices)]
    store.write_plan(name, {"device": here, "shards": [asdict(shard) for shard in shards]})
    return shards


def _check_devices(store: Store, shard: Shard, devices: Devices) -> None:
    if shard.over.devices > devices.count:
        raise Foreign(
            f"shard {shard.id} began on {shard.over.devices} devices ({shard.over}), and "
            f"{devices.count} can be used here: make {shard.over.devices} visible, or delete "
            f"{store.work(shard.id)} to begin anew"
        )


def _run(session: Session, name: str, shard: Shard, learners: Mapping[str, Learner]) -> None:
    """One shard to its end; what cannot run together runs in halves, recorded in the plan."""
    store = session.store
    members = [learners[cell] for cell in shard.cells]
    with store.lease([shard.id, *shard.cells]) as lease:
        if all(is_whole(store, cell) for cell in shard.cells):
            return
        try:
            run_shard(
                store, shard, members, lease=lease, stop=session.stop, progress=session.watch,
                adopt_foreign=session.adopt, save_every=session.save_every,
                turn=session.turn if device().accelerated else None,
            )  # fmt: skip
            return
        except (Interrupted, StoreError):
            raise  # a full or damaged disk would fail every other shard too
        except Exception as error:
            reason = error
        if len(shard.cells) == 1:
            _record_failure(session, "cell", shard.cells[0], shard.id, reason)
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
    jobs: dict[str, Callable[[], None]] = {}
    first: dict[Any, str] = {}
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
                jobs[name] = lambda cell=cell, request=request: _read(session, cell, request)
                first.setdefault((instrument, cell.learner.program()), name)
    # One of each kind first: eight threads that begin alike would all compile the same.
    early = {name: jobs.pop(name) for name in first.values()}
    for part in (early, jobs):
        if part:
            workers = min(8, device().cores)
            session.carry_out("reading", part, dict.fromkeys(part, 1), workers)


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
            _record_failure(session, "reading", name, name, error)
            return
        store.commit(
            "reading", name, request=canonical(request), documents={"reading": reading.document()},
            versions=versions(), device=asdict(device()), lease=lease,
        )  # fmt: skip


def needed_cells(cells: Sequence[Cell], store: Store | None = None) -> dict[str, Learner]:
    """The learners of a round, with those its instruments ask for.

    Given a `store`, a cell that is in it with all its readings needs nothing any more.
    """
    found: dict[str, Learner] = {}
    for cell in cells:
        unread = [
            instrument
            for instrument in cell.instruments
            if store is None
            or not store.has("reading", node_id(ReadingRequest(cell.id, instrument)))
        ]
        if store is None or unread or not store.has("cell", cell.id):
            found[cell.id] = cell.learner
        for instrument in unread:
            for learner in instrument.cells(cell.learner).values():
                found[node_id(learner)] = learner
    return found


def needed_nodes(cell: Cell) -> list[tuple[str, str]]:
    """Everything a finished cell stands on, itself included, as (kind, id)."""
    found: dict[tuple[str, str], None] = {}

    def visit(learner: Learner) -> None:
        found["cell", node_id(learner)] = None
        for material in learner.materials().values():
            found["material", node_id(material)] = None
        for upstream in learner.upstream().values():
            visit(upstream)

    for learner in (cell.learner, *plan.others(cell)):
        visit(learner)
    return list(found)


def describe(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items())
