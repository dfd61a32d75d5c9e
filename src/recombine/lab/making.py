"""Preparing data: every material that learners need, made once, in processes of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from recombine.errors import Interrupted, StoreError
from recombine.lab import plan
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical, revive
from recombine.lab.session import Session, hopeless, record_failure
from recombine.learners._learner import Learner, Material, Tensors

FEW = 3  # so many are made here: a process takes half a second to begin


def make_materials(session: Session, learners: Sequence[Learner]) -> None:
    """Prepares data that is not in the store yet."""
    todo = {
        name: material
        for name, material in plan.materials(learners).items()
        if not session.store.has("material", name) and not hopeless(session.store, "material", name)
    }
    if not todo:
        return
    workers = min(device().cores, len(todo)) if len(todo) > FEW else 1
    with _processes(workers) if workers > 1 else nullcontext() as pool:
        jobs = {
            name: lambda name=name, material=material: _make(session, name, material, pool)
            for name, material in todo.items()
        }
        session.carry_out("preparing data", jobs, dict.fromkeys(jobs, 1), workers)


@contextmanager
def _processes(workers: int):
    """Processes that begin anew: one forked beside jax's threads may hang."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def made(document: Any) -> Tensors:
    """A material from its request, in a process of its own."""
    return revive(document).make()


def _made(material: Material, pool: Executor | None) -> Tensors:
    if pool is not None:
        # A child that was killed, a class that only this process knows, data that cannot be made:
        # it is made here, or fails here, where it is told.
        with suppress(Exception):
            return pool.submit(made, canonical(material)).result()
    return material.make()


def _make(session: Session, name: str, material: Material, pool: Executor | None) -> None:
    store = session.store
    with store.lease([name]) as lease:
        if store.has("material", name):
            return
        try:
            data = _made(material, pool)
        except (Interrupted, StoreError):
            raise
        except Exception as error:
            record_failure(session, "material", name, name, error)
            return
        store.commit(
            "material", name, request=canonical(material), tensors={"data": data},
            versions=versions(), lease=lease,
        )  # fmt: skip
