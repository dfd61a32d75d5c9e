"""The laboratory from Python: fit one learner, load a cell, run a study, write its report."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recombine.errors import InvalidRequest
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.lab.execute import Session, train
from recombine.lab.identity import node_id, revive
from recombine.lab.plan import part
from recombine.lab.progress import Watch
from recombine.lab.run import Outcome, Request, collect, study_named
from recombine.lab.run import run as run_request
from recombine.lab.shards import gather
from recombine.lab.store import Store
from recombine.lab.study import Cell
from recombine.learners._learner import Learner


@dataclass(frozen=True)
class Fitted:
    """A trained cell: its subject, the untrained twin, and what was measured along the way."""

    learner: Learner
    cell: str
    subject: Subject
    untrained: Subject
    summary: dict[str, Any]

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of an evaluation along training."""
        steps = np.asarray(self.summary["evaluation_steps"])
        return steps, np.asarray(self.summary["evaluations"][metric])

    def read(self, instrument: Instrument) -> Reading:
        """What an instrument says about it, with its controls."""
        return instrument.read(self.subject, self.untrained, {})


def fit(learner: Learner, store: str | Path | None = None, *, quiet: bool = True) -> Fitted:
    """Trains a learner (or finds it in the store, if it was trained before).

    Without a store the result lives as long as the returned object.
    """
    feasible = part([Cell(learner, {})])
    if feasible.infeasible:
        raise InvalidRequest(feasible.infeasible[0][1])
    with tempfile.TemporaryDirectory() as folder:
        opened = Store.open(store or folder)
        train(Session(opened, watch=Watch(quiet=quiet)), f"fit-{node_id(learner)[:16]}",
              {node_id(learner): learner})  # fmt: skip
        failure = opened.failure("cell", node_id(learner))
        if failure is not None:
            raise InvalidRequest(f"training failed: {failure['reason']}")
        return load(opened, node_id(learner))


def load(store: str | Path | Store, cell: str) -> Fitted:
    """A cell of a store by its id, or the first letters of it."""
    opened = store if isinstance(store, Store) else Store.open(store, create=False)
    name = opened.find("cell", cell)
    learner = revive(opened.manifest("cell", name)["request"])
    given = gather(opened, learner)
    return Fitted(
        learner,
        name,
        learner.subject(opened.tensors("cell", name, "weights"), given),
        learner.subject(opened.tensors("cell", name, "weights-0"), given),
        opened.document("cell", name, "summary"),
    )


def run(
    study: str, preset: str = "quick", *, store: str | Path = "runs",
    settings: dict[str, str] | None = None, quiet: bool = False,
) -> Outcome:  # fmt: skip
    """Runs a study to its verdict; what the store has already is not done again."""
    request = Request(study_named(study), preset, settings or {})
    return run_request(request, Session(Store.open(store), watch=Watch(quiet=quiet)))


def write_report(
    study: str, preset: str = "quick", *, store: str | Path = "runs",
    settings: dict[str, str] | None = None,
) -> Path:  # fmt: skip
    """Writes a study's report from what a store holds, and returns its path."""
    from recombine.report.study import write_report as write

    opened = Store.open(store, create=False)
    request = Request(study_named(study), preset, settings or {})
    return write(opened, collect(request, opened))[0]
