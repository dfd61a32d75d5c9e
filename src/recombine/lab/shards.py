"""Running one shard: cells that share a program, with checkpoints, until they are committed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from recombine.errors import Interrupted, InvalidRequest, StoreError
from recombine.lab import engine
from recombine.lab.checkpoints import AnswerLog, Checkpoints
from recombine.lab.device import device, fingerprint, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.leases import Lease
from recombine.lab.store import Store
from recombine.learners._learner import Learner, Tensors
from recombine.models.layers import path_name

CHECKPOINT_SECONDS = 30.0
CHECKPOINT_SHARE = 0.05  # of the wall clock


class DoesNotFit(StoreError):
    """The population does not fit into the device's memory."""


@dataclass(frozen=True)
class Shard:
    """Cells that train together, and how; resumed exactly as the plan grouped them."""

    cells: tuple[str, ...]
    groups: int = 1
    precision: str = "float32"
    padding: int = 0  # members repeated at the end so that all stacks of a plan have one shape

    @property
    def id(self) -> str:
        text = f"{self.cells}/{self.groups}/{self.precision}/{self.padding}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def halves(self) -> tuple[Shard, Shard]:
        """The same cells as two shards, for when the whole does not fit."""
        if len(self.cells) < 2:
            raise DoesNotFit("a single member does not fit into memory: use a smaller model")
        if self.groups > 1:
            per, first = len(self.cells) // self.groups, self.groups // 2
            cut = per * first
            return (
                Shard(self.cells[:cut], first, self.precision),
                Shard(self.cells[cut:], self.groups - first, self.precision),
            )
        cut = (len(self.cells) + 1) // 2
        odd = len(self.cells) % 2
        return (
            Shard(self.cells[:cut], 1, self.precision),
            Shard(self.cells[cut:], 1, self.precision, odd),
        )


@dataclass
class Stop:
    """A request to stop at the next border: from a signal, or because the time is over."""

    deadline: float | None = None
    signal: int | None = None

    @property
    def wanted(self) -> bool:
        return self.signal is not None or (
            self.deadline is not None and time.monotonic() > self.deadline
        )


Progress = Callable[[str, int, int, str], None]


def ignore(shard: str, done: int, total: int, doing: str) -> None:
    """Progress that nobody watches."""


def gather(store: Store, learner: Learner) -> dict[str, Tensors]:
    """What a learner's `prepare` is given: upstream weights and materials, from the store."""
    given = {
        name: store.tensors("cell", node_id(upstream), "weights")
        for name, upstream in learner.upstream().items()
    }
    for name, material in learner.materials().items():
        given[name] = store.tensors("material", node_id(material), "data")
    return given


def check_borders(learner: Learner) -> None:
    """Steps come in blocks: everything that happens at a step must happen at a block's edge."""
    wanted = {"steps": learner.steps, "evaluate_every": learner.evaluate_every}
    wanted.update({f"snapshot {step}": step for step in learner.snapshots})
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
) -> None:
    """Trains a shard from its last checkpoint (or from the start) and commits its cells."""
    stop = stop or Stop()
    begun = time.monotonic()
    work = store.work(shard.id, [("cell", cell) for cell in shard.cells])
    progress(shard.id, 0, learners[0].steps, "preparing")
    population = _population(store, shard, learners, work)
    checkpoints = _Saver(Checkpoints(work / "state"))
    resumed = _resume(population, checkpoints, adopt_foreign)
    progress(shard.id, population.t, population.steps, "compiling")
    try:
        compiled = population.compile()
        if resumed is None:
            population.evaluate()
        _train(population, shard, work, checkpoints, stop, progress)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error):
            raise DoesNotFit(str(error).splitlines()[0]) from error
        raise
    checkpoints.wait()
    progress(shard.id, population.steps, population.steps, "committing")
    provenance = {
        "seconds": time.monotonic() - begun,
        "compile_seconds": compiled.seconds,
        "shard": {**asdict(shard), "id": shard.id},
        "resumed": resumed or [],
        "resume_is": "bit-identical" if not device().accelerated else "statistical",
    }
    _commit(store, shard, learners, population, work, provenance, lease)
    checkpoints.clear()


def _population(store: Store, shard: Shard, learners: Sequence[Learner], work: Any) -> Any:
    prepared = [learner.prepare(gather(store, learner)) for learner in learners]
    if learners[0].host_driven:
        return engine.HostPopulation(learners[0], prepared[0], AnswerLog(work / "answers.jsonl"))
    repeats = list(range(len(learners))) + [len(learners) - 1] * shard.padding
    return engine.Population(
        [learners[i] for i in repeats], [prepared[i] for i in repeats], shard.precision,
        shard.groups,
    )  # fmt: skip


def _train(
    population: Any, shard: Shard, work: Any, checkpoints: _Saver, stop: Stop, progress: Progress
) -> None:
    learner = population.learners[0]
    snapshots = [step for step in learner.snapshots if step > 0]
    while population.running():
        if stop.wanted:
            checkpoints.save_now(population)
            raise Interrupted(f"shard {shard.id} stopped at step {population.t}")
        following = population.t + learner.evaluate_every
        borders = [following - following % learner.evaluate_every]
        borders += [step for step in snapshots if step > population.t]
        population.chunk(min(borders))
        if population.t % learner.evaluate_every == 0 or not population.running():
            population.evaluate()
        if population.t in snapshots:
            keep = Checkpoints(work / f"snapshot-{population.t}")
            keep.save(population.t, named(population.host_state()), {})
        checkpoints.save_when_due(population)
        progress(shard.id, population.t, population.steps, "training")


def named(state: Any) -> dict[str, np.ndarray]:
    """A state as named tensors."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {path_name(path): np.asarray(leaf) for path, leaf in leaves}


def unnamed(tensors: Mapping[str, np.ndarray], like: Any) -> Any:
    """The inverse of `named`, in the structure of `like`."""
    return jax.tree_util.tree_map_with_path(lambda path, _: tensors[path_name(path)], like)


class _Saver:
    """Checkpoints written off-thread, by time, for at most a share of the wall clock."""

    def __init__(self, checkpoints: Checkpoints):
        self.checkpoints = checkpoints
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._due = time.monotonic() + CHECKPOINT_SECONDS
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

    def clear(self) -> None:
        self.checkpoints.clear()

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
            self._due = time.monotonic() + max(CHECKPOINT_SECONDS, spent / CHECKPOINT_SHARE)

        self._thread = threading.Thread(target=write, daemon=True)
        self._thread.start()


def _resume(population: Any, saver: _Saver, adopt_foreign: bool) -> list[dict[str, Any]] | None:
    latest = saver.checkpoints.latest()
    if latest is None:
        return None
    step, tensors, document = latest
    history = document.get("fingerprints", [])
    here = fingerprint()
    if history and history[-1] != here and not adopt_foreign:
        changed = {k: (history[-1].get(k), v) for k, v in here.items() if history[-1].get(k) != v}
        what = ", ".join(f"{k} was {old}, is {new}" for k, (old, new) in changed.items())
        raise InvalidRequest(
            f"a checkpoint at step {step} was written elsewhere ({what}): add --adopt to continue "
            "it here all the same, or run it where it began"
        )
    state = {k.removeprefix("state/"): v for k, v in tensors.items() if k.startswith("state/")}
    curves = {k.removeprefix("curves/"): v for k, v in tensors.items() if k.startswith("curves/")}
    restored = unnamed(state, population.host_state())
    population.restore(restored, step, engine.Curves.from_tensors(curves))
    saver.history = history if history and history[-1] != here else history[:-1]
    return [*saver.history, here]


def _commit(
    store: Store, shard: Shard, learners: Sequence[Learner], population: Any, work: Any,
    provenance: dict[str, Any], lease: Lease | None,
) -> None:  # fmt: skip
    final = population.host_state()
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
        tensors = {"weights": learner.weights(state)}
        for step in learner.snapshots:
            if step == 0:
                tensors["weights-0"] = population.untrained[member]
            elif kept.get(step) is not None:
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
            versions=versions(), device={**asdict(device()), "precision": shard.precision},
            provenance=provenance, lease=lease,
        )  # fmt: skip
