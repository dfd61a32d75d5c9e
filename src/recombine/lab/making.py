"""Preparing data: every material that learners need, made once, in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from safetensors.numpy import load_file, save_file

from recombine.errors import Interrupted, StoreError
from recombine.lab import plan
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical, node_id
from recombine.lab.session import Session, hopeless, record_failure
from recombine.learners._learner import Learner, Material, Tensors

FEW = 3  # so many are made here, without another interpreter


def make_materials(session: Session, learners: Sequence[Learner]) -> None:
    """Prepares data that is not in the store yet."""
    _prepare(session, plan.materials(learners))


def _prepare(session: Session, materials: Mapping[str, Material]) -> None:
    """What is missing of these, after what that is made from."""
    todo = {
        name: material
        for name, material in materials.items()
        if not session.store.has("material", name) and not hopeless(session.store, "material", name)
    }
    if not todo:
        return
    needed = [need for material in todo.values() for need in material.needs().values()]
    _prepare(session, {node_id(need): need for need in needed})
    apart = len(todo) > FEW
    jobs = {
        name: lambda name=name, material=material: _make(session, name, material, apart)
        for name, material in todo.items()
    }
    workers = min(device().cores, len(todo)) if apart else 1
    session.carry_out("preparing data", jobs, dict.fromkeys(jobs, 1), workers)


def _made(material: Material, given: Mapping[str, Tensors], apart: bool) -> Tensors:
    if apart:
        # A child that was killed, a class that only this process knows, data that cannot be made:
        # it is made here, or fails here, where it is told.
        with suppress(OSError, subprocess.CalledProcessError):
            return _made_apart(material, given)
    return material.make_from(given)


def _made_apart(material: Material, given: Mapping[str, Tensors]) -> Tensors:
    """By another interpreter: the work is Python's own, and threads would take turns at it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.safetensors"
        inputs = {name: Path(folder) / f"given-{name}.safetensors" for name in given}
        for name, tensors in given.items():
            save_file(tensors, inputs[name])
        pairs = [f"{name}={path}" for name, path in inputs.items()]
        subprocess.run(
            [sys.executable, "-m", "recombine.lab.made", str(file), *pairs],
            input=json.dumps(canonical(material)), text=True, check=True, capture_output=True,
        )  # fmt: skip
        return load_file(file)


def _make(session: Session, name: str, material: Material, apart: bool) -> None:
    store = session.store
    with store.lease([name]) as lease:
        if store.has("material", name):
            return
        try:
            # One that failed is not there, and then this fails for the same reason.
            given = {
                name: store.tensors("material", node_id(need), "data")
                if store.has("material", node_id(need)) else need.make()
                for name, need in material.needs().items()
            }  # fmt: skip
            data = _made(material, given, apart)
        except (Interrupted, StoreError):
            raise
        except Exception as error:
            record_failure(session, "material", name, name, error)
            return
        store.commit(
            "material", name, request=canonical(material), tensors={"data": data},
            versions=versions(), lease=lease,
        )  # fmt: skip
