"""Figures and tables of the study `construction`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.families._family import Regression
from recombine.lab.study import Results, Row
from recombine.models.constructed import constructed_for
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Series, curves
from recombine.studies import _base as base
from recombine.studies._base import interval_text, series_over
from recombine.studies._construction_measures import FIRST, PLAIN, bound, deepest, sup

FAMILIES = {
    "subsets": "any few of all modules",
    "slots": "one module of each slot",
    "additive": "sum of outputs",
}
NETWORKS = (
    ("written down", {**PLAIN}),
    ("written down, then trained", {**PLAIN, "trained": True}),
    ("its shape, from random weights", {**PLAIN, "trained": True, "start": "random"}),
    ("ordinary, as many parameters", {**PLAIN, "trained": True, "start": "ordinary"}),
)


def sections(grid: Any, results: Results, teacher: Regression) -> Sequence[Section]:
    few = grid.modules[0]
    at_few = Results([row for row in results if row.labels["modules"] == few])
    return [
        _errors(at_few),
        _sizes(results, at_few, teacher),
        _kept(at_few.where(segments=grid.compared)),
        _probed(at_few.where(segments=grid.compared), at_few.where(segments=grid.erased)),
        _decoded(at_few, at_few.where(segments=grid.compared)),
    ]


def _numbers(rows: Results, number: Callable[[Row], float]) -> np.ndarray:
    found = np.asarray([number(row) for row in rows if not row.diverged], float)
    return found[np.isfinite(found)]


def _text(rows: Results, number: Callable[[Row], float]) -> str:
    return interval_text(_numbers(rows, number))


def _mean(rows: Results, number: Callable[[Row], float]) -> float | None:
    """The mean over seeds to three digits, for columns that need no interval."""
    found = _numbers(rows, number)
    return float(f"{found.mean():.3g}") if found.size else None


def _squarings(segments: int) -> int:
    """The depth that takes squares as finely as so many segments, where one does exactly."""
    return max(1, int(math.log2(segments)) - 1)


def _of(instrument: str, name: str, control: str | None = None) -> Callable[[Row], float]:
    return lambda row: row.value(instrument, name, control)


def _errors(results: Results) -> Section:
    lines = [
        series_over(results.where(**{**PLAIN, "family": family}), "segments", sup, name)
        for family, name in FAMILIES.items()
    ]
    lines.append(series_over(results.where(**PLAIN), "segments", bound,
                             "promised for any few of all modules"))  # fmt: skip
    rows = []
    for family, name in FAMILIES.items():
        for n in results.where(**{**PLAIN, "family": family}).labels("segments"):
            chosen = results.where(**{**PLAIN, "family": family, "segments": n})
            rows.append([name, n, chosen[0].labels["units"], _mean(chosen, bound),
                         _text(chosen, sup), _mean(chosen, _of("exactness", "r2"))])  # fmt: skip
    return Section(
        "The error of written networks",
        "Each product of an input and a weight is the difference of two squares, and each square "
        "a broken line of so many segments: twice as many should leave a quarter of the error. "
        "Nothing is trained here, so the untrained twin of such a network is the network itself.",
        (curves("Largest error by segments", "segments", "largest error", lines, log_x=True,
                log_y=True, caption="Over random tasks and inputs; means over seeds."),),
        (Table("Errors", ["a task is", "segments", "hidden neurons", "promised error",
                          "largest error", "R²"], rows),),
    )  # fmt: skip


def _sizes(results: Results, at_few: Results, teacher: Regression) -> Section:
    written = at_few.where(**PLAIN)
    promised = {n: _mean(written.where(segments=n), bound) for n in written.labels("segments")}
    wide, deep = (
        [(p, constructed_for(teacher, method=method, segments=n, squarings=_squarings(n)).units)
         for n, p in promised.items() if method == "segments" or 2 ** (_squarings(n) + 1) == n]
        for method in ("segments", "depth")
    )  # fmt: skip
    lines = [
        Series(name, [float(f"{x:.2g}") for x, _ in found if x], [u for x, u in found if x])
        for name, found in (("squares in one layer", wide), ("squares in depth", deep))
    ]
    rows = []
    for encoding in ("identity", "interval-shuffle"):
        for modules in results.labels("modules"):
            told = results.where(**{**PLAIN, "encoding": encoding, "modules": modules})
            for n in told.labels("segments"):
                chosen = told.where(segments=n)
                if modules == min(results.labels("modules")) and not _beside(results, n, modules):
                    continue
                first = chosen[0].labels
                rows.append([encoding, modules, n, first["units"], first["parameters"],
                             _mean(chosen, bound), _text(chosen, sup)])  # fmt: skip
    return Section(
        "How large they are",
        "Neurons grow with one over the root of the tolerance. More modules cost none, as long as "
        "the task is told as its weights; a code that has to be looked up costs a few for each "
        "module. Taking squares in several layers saves neurons where the tolerance is small.",
        (curves("Hidden neurons by promised error", "promised error", "hidden neurons", lines,
                log_x=True, log_y=True),),
        (Table("Neurons by modules", ["encoding", "modules", "segments", "hidden neurons",
                                      "parameters", "promised error", "largest error"], rows),),
    )  # fmt: skip


def _beside(results: Results, segments: int, modules: int) -> bool:
    """Whether other numbers of modules were written down at this resolution."""
    rows = results.where(**PLAIN, segments=segments)
    return any(row.labels["modules"] != modules for row in rows)


def _kept(results: Results) -> Section:
    lines: list[Series] = []
    for name, where in NETWORKS[1:]:
        rows = [row for row in results.where(**where) if not row.diverged]
        if rows:
            steps = rows[0].curve("unseen")[0]
            values = np.mean([row.curve("unseen")[1] for row in rows], axis=0)
            lines.append(Series(name, steps.tolist(), values.tolist()))
    table = [
        [name, *[_text(results.where(**where), number)
                 for number in (base.seen, base.unseen, sup)],
         "undertrained" if _undertrained(results.where(**where)) else ""]
        for name, where in NETWORKS
    ]  # fmt: skip
    return Section(
        "Does training keep it?",
        "Gradient descent on the few combinations of the support: from the written network, from "
        "random weights of the same shape, and of an ordinary MLP of as many parameters. The shape "
        "suits the solution, not the search: its deepest layer is as narrow as the teacher's.",
        (curves("Unseen R² along training", "step", "unseen R²", lines, y_range=(-0.05, 1.05)),),
        (Table("Before and after", ["network", "seen R²", "unseen R²", "largest error", "note"],
               table, f"Undertrained: mean seen R² below {base.SEEN_FLOOR}."),),
    )  # fmt: skip


def _undertrained(rows: Results) -> bool:
    found = _numbers(rows, base.seen)
    return bool(found.size and found.mean() < base.SEEN_FLOOR)


def _probed(results: Results, erased: Results) -> Section:
    written, kept, random, ordinary = (results.where(**where) for _, where in NETWORKS)
    rows = [
        [name, _text(chosen, _of("decodability", FIRST, control)),
         _text(chosen, functools.partial(deepest, control=control))]
        for name, chosen, control in (
            ("written down", written, None),
            ("written down, then trained", kept, None),
            ("random weights", random, "untrained"),
            ("its shape, from random weights", random, None),
            ("ordinary, as many parameters", ordinary, None),
            ("written down, shuffled tasks", written, "shuffled"),
        )
    ]  # fmt: skip
    planted = _numbers(written, _of("decodability", "features", "planted"))
    told = f"Planted features give {planted.mean():.3f}." if planted.size else ""
    found = erased.where(**PLAIN)
    effects = [
        [name, *[_text(found, _of("erasure", what, control)) for what in ("own", "other")]]
        for name, control in (("the module's subspace", None), ("a random subspace", "random"),
                              ("planted directions", "planted"))
    ]  # fmt: skip
    return Section(
        "What probes see in it",
        "A written network is a positive control: where the task is, and that it is used, is "
        "known. Its first layer, which multiplies the code, shows the task; but so does that of a "
        "random network. What its deepest layer shows says whether a network that is right about "
        "every combination must have the task readable there.",
        (),
        (Table("R² of a linear probe for the task",
               ["network", "first hidden layer", "deepest hidden layer"], rows, told),
         Table("Erasure in the first hidden layer",
               ["erased", "tasks with the module", "tasks without"], effects,
               "Rise of the error as a share of the targets' variance. The network is written "
               "down, so it has no other untrained twin.")),
    )  # fmt: skip


def _decoded(results: Results, compared: Results) -> Section:
    name = "function-decoder"
    chosen = results.where(**PLAIN)

    figures: tuple[Figure, ...] = ()
    if len(chosen.labels("segments")) > 1:
        lines = [
            series_over(chosen, "segments", _of(name, "combination"), "constituents recovered"),
            series_over(chosen, "segments", _of(name, "task"), "weights recovered as well"),
            series_over(chosen, "segments", _of(name, "promised"), "promised: 1 - sqrt(delta)"),
        ]
        figures = (curves("What the answers of written networks give away", "segments",
                          "share of tasks", lines, log_x=True, y_range=(-0.05, 1.05)),)  # fmt: skip
    rows = [[f"written down, {n} segments", *_decoder_cells(chosen.where(segments=n))]
            for n in chosen.labels("segments")]  # fmt: skip
    rows += [[who, *_decoder_cells(compared.where(**where))] for who, where in NETWORKS[1:]]
    random = compared.where(**NETWORKS[2][1])
    rows.append(["random weights", *_decoder_cells(random, "untrained")])
    with_reading = [row for row in chosen if name in row.readings]
    note = ""
    if with_reading:
        values = with_reading[0].readings[name].values
        mixed = np.mean([row.value(name, "combination", "shuffled") for row in with_reading])
        right = np.mean([row.value(name, "combination", "planted") for row in with_reading])
        note = (
            f"One of {values['candidates']:,} tasks is picked by its answers. Answers to other "
            f"tasks recover {mixed:.3f} (chance {values['chance']:.3f}), right answers "
            f"{right:.3f}. Tolerance on average: "
            f"{np.mean([row.value(name, 'tolerance') for row in with_reading]):.3f}."
        )
    return Section(
        "Right answers give the constituents away",
        "A decoder compares the answers of a network with the right answers of every task there "
        "is, and picks the nearest. However a network works inside, it must recover at least a "
        "share 1 - sqrt(delta), where delta is the share of answers off by more than the "
        "tolerance: half of what parts a task from its nearest rival.",
        figures,
        (Table("The decoder", ["network", "delta", "promised", "constituents recovered",
                               "weights too"], rows, note),),
    )  # fmt: skip


def _decoder_cells(rows: Results, control: str | None = None) -> list[str]:
    return [
        _text(rows, _of("function-decoder", what, control))
        for what in ("wrong", "promised", "combination", "task")
    ]
