"""Preparing data: every material that learners need, made once, in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from safetensors.numpy import load_file

from recombine.errors import Interrupted, StoreError
from recombine.lab import plan
from recombine.lab.device import device, versions
from recombine.lab.identity import canonical
from recombine.lab.session import Session, hopeless, record_failure
from recombine.learners._learner import Learner, Material, Tensors

FEW = 3  # so many are made here, without another interpreter


def make_materials(session: Session, learners: Sequence[Learner]) -> None:
    """Prepares data that is not in the store yet."""
    todo = {
        name: material
        for name, material in plan.materials(learners).items()
        if not session.store.has("material", name) and not hopeless(session.store, "material", name)
    }
    if not todo:
        return
    apart = len(todo) > FEW
    jobs = {
        name: lambda name=name, material=material: _make(session, name, material, apart)
        for name, material in todo.items()
    }
    workers = min(device().cores, len(todo)) if apart else 1
    session.carry_out("preparing data", jobs, dict.fromkeys(jobs, 1), workers)


def _made(material: Material, apart: bool) -> Tensors:
    if apart:
        # A child that was killed, a class that only this process knows, data that cannot be made:
        # it is made here, or fails here, where it is told.
        with suppress(OSError, subprocess.CalledProcessError):
            return _made_apart(material)
    return material.make()


def _made_apart(material: Material) -> Tensors:
    """By another interpreter: the work is Python's own, and threads would take turns at it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.safetensors"
        subprocess.run(
            [sys.executable, "-m", "recombine.lab.made", str(file)],
            input=json.dumps(canonical(material)), text=True, check=True, capture_output=True,
        )  # fmt: skip
        return load_file(file)


def _make(session: Session, name: str, material: Material, apart: bool) -> None:
    store = session.store
    with store.lease([name]) as lease:
        if store.has("material", name):
            return
        try:
            data = _made(material, apart)
        except (Interrupted, StoreError):
            raise
        except Exception as error:
            record_failure(session, "material", name, name, error)
            return
        store.commit(
            "material", name, request=canonical(material), tensors={"data": data},
            versions=versions(), lease=lease,
        )  # fmt: skip
