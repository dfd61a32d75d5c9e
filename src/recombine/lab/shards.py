"""Running one shard: cells that share a program, with checkpoints, until they are committed."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from recombine.errors import Interrupted, InvalidRequest, StoreError
from recombine.lab import engine
from recombine.lab.answers import AnswerLog
from recombine.lab.checkpoints import Checkpoints
from recombine.lab.device import device, fingerprint, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.layout import Devices, DoesNotFit, Layout, spread
from recombine.lab.leases import Lease
from recombine.lab.store import Store
from recombine.learners._learner import Learner, Tensors
from recombine.trees import named, unnamed

CHECKPOINT_SECONDS = 30.0
CHECKPOINT_SHARE = 0.05  # of the wall clock


class Foreign(StoreError):
    """A checkpoint was written under other versions or on another machine."""


def checkpoint_seconds() -> float:
    """How often unfinished work is saved; RECOMBINE_CHECKPOINT_SECONDS sets it for one command.

    Saving never takes more than a twentieth of the time, however small this is.
    """
    text = os.environ.get("RECOMBINE_CHECKPOINT_SECONDS") or str(CHECKPOINT_SECONDS)
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < math.inf:
            return seconds
    raise InvalidRequest(
        f"RECOMBINE_CHECKPOINT_SECONDS={text!r}: expected a number of seconds, such as 30"
    )


@dataclass(frozen=True)
class Shard:
    """Cells that train together, and how; resumed exactly as the plan grouped them."""

    cells: tuple[str, ...]
    groups: int = 1
    precision: str = "float32"
    padding: int = 0  # members repeated at the end so that all stacks of a plan have one shape
    layout: tuple[int, int, int] = (1, 1, 1)  # members x data x parameters over devices

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Shard:
        """A shard of a plan file; those written before there were layouts lie on one device."""
        return Shard(
            tuple(document["cells"]), document["groups"], document["precision"],
            document["padding"], Layout(*document.get("layout", ())).axes,
        )  # fmt: skip

    @property
    def id(self) -> str:
        text = f"{self.cells}/{self.groups}/{self.precision}/{self.padding}"
        if not self.over.trivial:
            text += f"/{self.layout}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def over(self) -> Layout:
        return Layout(*self.layout)

    def halves(self) -> tuple[Shard, Shard]:
        """The same cells as two shards, for when the whole does not fit."""
        _, *within = self.layout
        if self.groups > 1:
            per, first = len(self.cells) // self.groups, self.groups // 2
            cut = per * first

            def rectangle(cells: tuple[str, ...], groups: int) -> Shard:
                members = spread(len(cells), self.over.members)
                return Shard(cells, groups, self.precision, 0, Layout(members, *within).axes)

            return (
                rectangle(self.cells[:cut], first),
                rectangle(self.cells[cut:], self.groups - first),
            )
        cut = (len(self.cells) + 1) // 2
        members = min(self.over.members, cut)
        width = -(-cut // members) * members

        def half(cells: tuple[str, ...]) -> Shard:
            layout = Layout(members, *within).axes
            return Shard(cells, 1, self.precision, width - len(cells), layout)

        return half(self.cells[:cut]), half(self.cells[cut:])


@dataclass
class Stop:
    """A request to stop at the next border: from a signal, or because the time is over."""

    deadline: float | None = None
    signal: int | None = None
    given_up: bool = False  # something else ended the command, such as a full disk

    @property
    def wanted(self) -> bool:
        late = self.deadline is not None and time.monotonic() > self.deadline
        return late or self.given_up or self.signal is not None


Progress = Callable[[str, int, int, str], None]


def ignore(shard: str, done: int, total: int, doing: str) -> None:
    """Progress that nobody watches."""


def gather(
    store: Store, learner: Learner, known: dict[str, Tensors] | None = None
) -> dict[str, Tensors]:
    """What a learner's `prepare` is given: upstream weights and materials, from the store.

    `known` keeps what was read for one learner, so that its mates are given the same arrays.
    """
    known = {} if known is None else known
    given = {}
    for kind, file, wanted in (
        ("cell", "weights", learner.upstream()),
        ("material", "data", learner.materials()),
    ):
        for name, request in wanted.items():
            node = node_id(request)
            if node not in known:
                known[node] = store.tensors(kind, node, file)
            given[name] = known[node]
    return given


def check_borders(learner: Learner) -> None:
    """Steps come in blocks: everything that happens at a step must happen at a block's edge."""
    wanted = {"steps": learner.steps, "evaluate_every": learner.evaluate_every}
    for name, value in wanted.items():
        if value < 1:
            raise InvalidRequest(f"{name} must be at least {engine.BLOCK}, got {value}")
    for step in learner.snapshots:
        wanted[f"snapshot {step}"] = step
        if not 0 <= step <= learner.steps:
            raise InvalidRequest(f"snapshot {step} lies outside the {learner.steps} steps")
    for name, value in wanted.items():
        if value % engine.BLOCK:
            near = max(engine.BLOCK, round(value / engine.BLOCK) * engine.BLOCK)
            raise InvalidRequest(
                f"{name} must be a multiple of {engine.BLOCK}, got {value}: use {near}"
            )


def run_shard(
    store: Store,
    shard: Shard,
    learners: Sequence[Learner],
    *,
    lease: Lease | None = None,
    stop: Stop | None = None,
    progress: Progress = ignore,
    adopt_foreign: bool = False,
    save_every: float = CHECKPOINT_SECONDS,
    turn: threading.Lock | None = None,
) -> None:
    """Trains a shard from its last checkpoint (or from the start) and commits its cells.

    Shards that share a `turn` prepare and compile side by side and train one after another.
    """
    stop = stop or Stop()
    begun = time.monotonic()
    work = store.work(shard.id, [("cell", cell) for cell in shard.cells])
    progress(shard.id, 0, learners[0].steps, "preparing")
    checkpoints = _Saver(Checkpoints(work / "state"), save_every)
    with _fitting(shard, learners[0]):
        population = _population(store, shard, learners, work)
        resumed = _resume(population, work, checkpoints, adopt_foreign)
        progress(shard.id, population.t, population.steps, "compiling")
        compiled = population.compile()
        with _taking(turn, shard, stop):
            trained = time.monotonic()
            if resumed is None:
                population.evaluate()
            _train(population, shard, work, checkpoints, stop, progress)
            trained = time.monotonic() - trained
    checkpoints.wait()
    progress(shard.id, population.steps, population.steps, "committing")
    provenance = {
        "seconds": time.monotonic() - begun,
        "compile_seconds": compiled.seconds,
        "training_seconds": trained,  # the rest is preparing, and waiting for a turn
        # Not which cells: the plan says it once, and every cell of a stack would list all others.
        "shard": {**asdict(shard), "cells": len(shard.cells), "id": shard.id},
        "resumed": resumed or [],
        "resume_is": "bit-identical" if not device().accelerated and shard.over.trivial
        and len(resumed or []) <= 1 else "statistical",
    }  # fmt: skip
    _commit(store, shard, learners, population, work, provenance, lease)
    for saved in (work / "state", *work.glob("snapshot-*")):
        Checkpoints(saved).clear()


@contextmanager
def _taking(turn: threading.Lock | None, shard: Shard, stop: Stop) -> Iterator[None]:
    """Waits for the device; whoever asks to stop meanwhile need not wait for it."""
    if turn is None:
        yield
        return
    while not turn.acquire(timeout=0.1):
        if stop.wanted:
            raise Interrupted(f"shard {shard.id} stopped before it began")
    try:
        yield
    finally:
        turn.release()


@contextmanager
def _fitting(shard: Shard, learner: Learner) -> Iterator[None]:
    """Turns a device's lack of memory into one line that says what to do."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "Out of memory" not in str(error):
            raise
        members, where = len(shard.cells), device().kind
        who = f"{members} members do" if members > 1 else "a single member does"
        advice = "" if members > 1 else f": {Devices.here().advice(learner.size, shard.over)}"
        if not shard.over.trivial:
            where = f"{shard.over.devices} devices ({where}, {shard.over})"
        raise DoesNotFit(
            f"{who} not fit into the memory of {where} ({str(error).splitlines()[0]}){advice}"
        ) from error


def _population(store: Store, shard: Shard, learners: Sequence[Learner], work: Path) -> Any:
    known: dict[str, Tensors] = {}
    prepared = [learner.prepare(gather(store, learner, known)) for learner in learners]
    if learners[0].host_driven:
        return engine.HostPopulation(
            learners[0], prepared[0], AnswerLog(work / "answers.jsonl", sealed=True)
        )
    repeats = list(range(len(learners))) + [len(learners) - 1] * shard.padding
    return engine.Population(
        [learners[i] for i in repeats], [prepared[i] for i in repeats], shard.precision,
        shard.groups, shard.over,
    )  # fmt: skip


def _train(
    population: Any, shard: Shard, work: Path, checkpoints: _Saver, stop: Stop, progress: Progress
) -> None:
    learner = population.learners[0]
    snapshots = [step for step in learner.snapshots if step > 0]

    def unfinished() -> bool:
        # Members that have all diverged end the run only where it is evaluated: how far a chunk
        # reaches depends on the clock, and what is committed must not.
        between = population.t % learner.evaluate_every != 0 and population.t < population.steps
        return between or population.running()

    progress(shard.id, population.t, population.steps, "training")
    while unfinished():
        if stop.wanted:
            checkpoints.save_now(population)
            raise Interrupted(f"shard {shard.id} stopped at step {population.t}")
        following = population.t + learner.evaluate_every
        borders = [following - following % learner.evaluate_every]
        borders += [step for step in snapshots if step > population.t]
        population.chunk(min(borders))
        if population.t % learner.evaluate_every == 0 or not unfinished():
            population.evaluate()
        if population.t in snapshots:
            keep = Checkpoints(work / f"snapshot-{population.t}")
            keep.save(population.t, named(population.host_state()), {})
        checkpoints.save_when_due(population)
        progress(shard.id, population.t, population.steps, "training")


class _Saver:
    """Checkpoints written off-thread, by time, for at most a share of the wall clock."""

    def __init__(self, checkpoints: Checkpoints, every: float):
        self.checkpoints = checkpoints
        self._every = every
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._due = time.monotonic() + every
        self.history: list[dict[str, Any]] = []

    def save_when_due(self, population: Any) -> None:
        if time.monotonic() >= self._due and (self._thread is None or not self._thread.is_alive()):
            self.wait()
            self._begin(population)

    def save_now(self, population: Any) -> None:
        self.wait()
        self._begin(population)
        self.wait()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _begin(self, population: Any) -> None:
        begun = time.monotonic()
        state = {f"state/{k}": v for k, v in named(population.host_state()).items()}
        curves = {f"curves/{k}": v for k, v in population.curves.tensors().items()}
        step, document = population.t, {"fingerprints": [*self.history, fingerprint()]}

        def write() -> None:
            try:
                self.checkpoints.save(step, {**state, **curves}, document)
            except BaseException as error:  # handed to the thread that waits
                self._error = error
            spent = time.monotonic() - begun
            self._due = time.monotonic() + max(self._every, spent / CHECKPOINT_SHARE)

        self._thread = threading.Thread(target=write, daemon=True)
        self._thread.start()


def _resume(
    population: Any, work: Path, saver: _Saver, adopt_foreign: bool
) -> list[dict[str, Any]] | None:
    """Goes on from the last checkpoint; says under which fingerprints it was made, or None."""
    latest = saver.checkpoints.latest()
    if latest is None:
        return None
    step, tensors, document = latest
    passed = [s for s in population.learners[0].snapshots if 0 < s <= step]
    if any(Checkpoints(work / f"snapshot-{s}").latest() is None for s in passed):
        return None  # a snapshot was lost, and only the steps before it can make it again
    history = document.get("fingerprints", [])
    here = fingerprint()
    if history and history[-1] != here and not adopt_foreign:
        changed = {k: (history[-1].get(k), v) for k, v in here.items() if history[-1].get(k) != v}
        what = ", ".join(f"{k} was {old}, is {new}" for k, (old, new) in changed.items())
        raise Foreign(
            f"a checkpoint at step {step} was written elsewhere ({what}): add --adopt to continue "
            f"it here all the same, run it where it began, or delete {saver.checkpoints.folder} "
            "to begin anew"
        )
    state = {k.removeprefix("state/"): v for k, v in tensors.items() if k.startswith("state/")}
    curves = {k.removeprefix("curves/"): v for k, v in tensors.items() if k.startswith("curves/")}
    restored = unnamed(state, population.host_state())
    population.restore(restored, step, engine.Curves.from_tensors(curves))
    saver.history = history if history and history[-1] != here else history[:-1]
    return [*saver.history, here]


def _commit(
    store: Store, shard: Shard, learners: Sequence[Learner], population: Any, work: Path,
    provenance: dict[str, Any], lease: Lease | None,
) -> None:  # fmt: skip
    final = population.host_state()
    where: dict[str, Any] = {**asdict(device()), "precision": shard.precision}
    if not shard.over.trivial:
        where["layout"] = list(shard.layout)
    curves = population.curves.tensors()
    kept = {}
    for step in learners[0].snapshots:
        if step > 0:
            saved = Checkpoints(work / f"snapshot-{step}").latest()
            if saved is not None:
                kept[step] = unnamed(saved[1], final)
    for member, (cell, learner) in enumerate(zip(shard.cells, learners, strict=True)):
        if store.has("cell", cell) and not store.absent("cell", cell):
            continue
        pick = lambda tree, member=member: jax.tree.map(lambda leaf: leaf[member], tree)  # noqa: E731
        state = pick(final)
        # The untrained twin is the control of every reading, whether or not it was asked for.
        tensors = {"weights": learner.weights(state), "weights-0": population.untrained[member]}
        for step in kept:
            tensors[f"weights-{step}"] = learner.weights(pick(kept[step]))
        diverged = int(getattr(state, "diverged_at", -1))
        evaluations = {
            name.removeprefix("evaluations/"): values[:, member].tolist()
            for name, values in curves.items()
            if name.startswith("evaluations/")
        }
        points = {
            name.removeprefix("points/"): values[:, member]
            for name, values in curves.items()
            if name.startswith("points/")
        }
        store.commit(
            "cell", cell, request=canonical(learner), tensors={**tensors, "curves": points},
            documents={
                "summary": {
                    "steps": population.t,
                    "diverged_at": None if diverged < 0 else diverged,
                    "evaluation_steps": [int(step) for step in curves["steps"]],
                    "evaluations": evaluations,
                }
            },
            versions=versions(), device=where, provenance=provenance, lease=lease,
        )  # fmt: skip
