"""Carrying out a plan: shards of cells, trained in worker threads, each committed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from recombine.errors import Interrupted, StoreError
from recombine.lab import plan
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.device import device
from recombine.lab.identity import node_id
from recombine.lab.layout import Devices
from recombine.lab.making import make_materials
from recombine.lab.session import Session, has_needs, hopeless, is_whole, record_failure
from recombine.lab.shards import Foreign, Shard, run_shard
from recombine.lab.store import Store
from recombine.lab.study import Cell, ReadingRequest
from recombine.learners._learner import Learner

# One trains while the next prepare and compile: a small network can be trained in less time than
# its program takes to compile, and with one ahead the accelerator waited for the third.
AHEAD = 3  # shards in hand on an accelerator


def train(
    session: Session, name: str, learners: Mapping[str, Learner], *, with_weights: bool = False,
    finished: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Trains every cell that is not in the store, upstream cells first.

    With `with_weights` also those that came in a bundle without their weights. `finished` is
    called, on any thread, whenever there are new cells.
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
            _train_layer(session, f"{name}-{depth}", layer, missing, finished)


def _train_layer(
    session: Session, name: str, learners: Mapping[str, Learner], missing: Mapping[str, Learner],
    finished: Callable[[], None],
) -> None:  # fmt: skip
    shards = _planned(session, name, learners, missing)
    # Two programs that each wait for all devices can wait for one another.
    together = any(not shard.over.trivial for shard in shards)
    workers = 1 if together else AHEAD if device().accelerated else device().cores
    todo = {shard.id: shard for shard in shards if any(c in missing for c in shard.cells)}
    weights = {s.id: work(s, learners) for s in todo.values()}
    kinds = {s.id: kind(s, learners) for s in todo.values()}

    def job(shard: Shard) -> None:
        _run(session, name, shard, learners)
        finished()

    jobs = {shard.id: lambda shard=shard: job(shard) for shard in todo.values()}
    session.carry_out("training", jobs, weights, workers, kinds)


def work(shard: Shard, learners: Mapping[str, Learner]) -> int:
    """How much there is to do, until the pace of its kind is measured.

    A step of a large network takes time by its size, steps of small ones take equally long: the
    root lies between.
    """
    learner = learners[shard.cells[0]]
    return len(shard.cells) * learner.steps * max(1, math.isqrt(learner.size))


def kind(shard: Shard, learners: Mapping[str, Learner]) -> Hashable:
    """What trains at one pace."""
    learner = learners[shard.cells[0]]
    if learner.host_driven:
        return type(learner)
    return learner.program(shard.precision), learner.size


def _planned(
    session: Session, name: str, learners: Mapping[str, Learner], missing: Mapping[str, Learner]
) -> list[Shard]:
    """The shards of the plan file that still hold, and new ones, written down, for the rest."""
    store = session.store
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
    shards = [*kept, *plan.shards(rest, device(), devices, session.stacked)]
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
            record_failure(session, "cell", shard.cells[0], shard.id, reason)
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


def out_of_reach(store: Store, cell: Cell) -> bool:
    """Whether a cell cannot be here: its data could not be made, or no second try can help."""
    return any(
        not store.has(kind, node)
        and (kind == "material" or hopeless(store, kind, node))
        and store.failure(kind, node) is not None
        for kind, node in needed_nodes(cell)
    )


def describe(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items())
