"""The laboratory from Python: fit one learner, load a cell, run a study, write its report."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
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
from recombine.lab.repeat import Repeated, compared
from recombine.lab.repeat import repeat as repeat_request
from recombine.lab.run import Outcome, Request, collect, study_named
from recombine.lab.run import run as run_request
from recombine.lab.session import has_needs, is_whole
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
    store: Store = field(repr=False, compare=False)

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of an evaluation along training."""
        steps = np.asarray(self.summary["evaluation_steps"])
        return steps, np.asarray(self.summary["evaluations"][metric])

    def read(self, instrument: Instrument) -> Reading:
        """What an instrument says about it, with its controls.

        Some instruments look at further learners, such as the mask of another part. Those that are
        not in the store of this cell are trained there first, quietly, which may take as long as
        this cell took.

            fit(MaskLearner(base=network)).read(Subnetworks()).values["overlap"]
        """
        self.subject.need(instrument.name, *instrument.needs)  # before anything is trained for it
        wanted = instrument.cells(self.learner)
        _check(wanted.values())
        _train(self.store, f"read-{self.cell[:16]}", wanted.values(), quiet=True)
        others = {name: load(self.store, node_id(one)).subject for name, one in wanted.items()}
        return instrument.read(self.subject, self.untrained, others)


def fit(learner: Learner, store: str | Path | None = None, *, quiet: bool = True) -> Fitted:
    """Trains a learner (or finds it in the store, if it was trained before).

    Without a store the result lives as long as the returned object.
    """
    _check([learner])
    opened = _temporary() if store is None else Store.open(store)
    _train(opened, f"fit-{node_id(learner)[:16]}", [learner], quiet=quiet)
    return load(opened, node_id(learner))


def _check(learners: Iterable[Learner]) -> None:
    feasible = part(Cell(learner, {}) for learner in learners)
    if feasible.infeasible:
        raise InvalidRequest(feasible.infeasible[0][1])


def _train(store: Store, name: str, learners: Iterable[Learner], *, quiet: bool) -> None:
    """Trains what is not in the store with its weights; where all is, nothing is written."""
    missing = {
        node_id(one): one
        for one in learners
        if not (is_whole(store, node_id(one)) and has_needs(store, one))
    }
    if missing:
        train(Session(store, watch=Watch(quiet=quiet)), name, missing, with_weights=True)
    for cell in missing:
        failure = store.failure("cell", cell)
        if failure is not None:
            raise InvalidRequest(f"training failed: {failure['reason']}")


def _temporary() -> Store:
    """A store whose folder is removed when nobody holds it any more."""
    folder = tempfile.mkdtemp()
    try:
        store = Store.open(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    return store


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
        opened,
    )


def run(
    study: str, preset: str = "quick", *, store: str | Path = "runs",
    settings: dict[str, str] | None = None, quiet: bool = False,
) -> Outcome:  # fmt: skip
    """Runs a study to its verdict; what the store has already is not done again."""
    request = Request(study_named(study), preset, settings or {})
    return run_request(request, Session(Store.open(store), watch=Watch(quiet=quiet)))


def repeat(
    study: str, preset: str = "quick", *, times: int = 2, store: str | Path = "runs",
    settings: dict[str, str] | None = None, quiet: bool = False,
) -> list[Repeated]:  # fmt: skip
    """Runs a study on several sets of seeds; each claim with all its judgements."""
    request = Request(study_named(study), preset, settings or {})
    session = Session(Store.open(store), watch=Watch(quiet=quiet))
    return compared(repeat_request(request, times, session))


def write_report(
    study: str, preset: str = "quick", *, store: str | Path = "runs",
    settings: dict[str, str] | None = None,
) -> Path:  # fmt: skip
    """Writes a study's report from what a store holds, and returns its path."""
    from recombine.report.study import write_report as write

    opened = Store.open(store, create=False)
    request = Request(study_named(study), preset, settings or {})
    return write(opened, collect(request, opened))[0]
