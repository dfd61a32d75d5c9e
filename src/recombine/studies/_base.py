"""What studies of task families share: how a cell is put together, and how rows become figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from recombine._lazy import load
from recombine.encodings import REGISTRY as ENCODINGS
from recombine.encodings._encoding import Encoding
from recombine.errors import unknown
from recombine.families._family import Family
from recombine.families.hyperteacher import Hyperteacher
from recombine.instruments._instrument import Instrument
from recombine.instruments.generalization import Generalization
from recombine.lab.statistics import Interval, matched, mean_interval
from recombine.lab.study import SHARE, Cell, NotTested, Results, Row
from recombine.learners.supervised import Supervised
from recombine.models._model import Model
from recombine.models.mlp import MLP
from recombine.report.document import Table
from recombine.report.figures import Estimates, Series
from recombine.seeds import Seeds
from recombine.supports import SupportRule

SOURCE = "Redhardt, Akram and Schug, Scaling can lead to compositional generalization, 2025"

# The encodings of the paper, which every family with an even number of modules can be told in.
SIX_ENCODINGS = (
    "identity", "orthogonal", "tokens", "invertible-network", "interval-shuffle", "few-shot",
)  # fmt: skip

# A cell whose seen score is below this has not learnt its training tasks: it is undertrained and
# speaks neither for nor against generalization.
SEEN_FLOOR = 0.9
LEAST = 10.0  # steps between looks: what took fewer is not told apart


@dataclass(frozen=True)
class Training:
    """How long and how fast networks learn at a preset; shared by studies so they share cells."""

    steps: int
    learning_rate: float = 3e-4
    tasks: int = 128
    samples: int = 16
    evaluations: int = 10
    teacher: int = 16  # inputs, hidden units and outputs of the teacher
    matched: float = 0.95  # the seen score at which learning curves are compared
    weight_decay: float = 3e-3
    schedule: Literal["constant", "cosine"] = "constant"


# Small teachers, small steps at a higher rate: on two CPU cores the effect must show within two
# minutes.
SMOKE = Training(40, 3e-3, 16, 4, 2, 8)
QUICK = Training(2_000, 3e-3, 64, 8, 10, 8, 0.9)
STANDARD = Training(30_000, 3e-4, 128, 16, 30)
PAPER = Training(300_000, 3e-4, 128, 16, 300)
TRAINING = {"smoke": SMOKE, "quick": QUICK, "standard": STANDARD, "paper": PAPER}


def training_named(name: str) -> Training:
    """How long and how fast, by the name of a preset."""
    if name not in TRAINING:
        raise unknown("training", name, TRAINING)
    return TRAINING[name]


def cell(
    training: Training,
    *,
    modules: int = 16,
    active: int = 3,
    width: int = 256,
    depth: int = 4,
    rule: str = "random",
    held_out: float = 0.25,
    encoding: str = "identity",
    seed: int = 0,
    instruments: tuple[Instrument, ...] = (Generalization(),),
    **labels: Any,
) -> Cell:
    """A cell of the hyperteacher studies: everything is drawn anew for each seed."""
    teacher = Hyperteacher(
        modules=modules, active=active, input_units=training.teacher,
        hidden=(training.teacher,), output_units=training.teacher,
    )  # fmt: skip
    known = {
        "modules": modules, "active": active, "width": width, "depth": depth, "rule": rule,
        "held_out": held_out, "encoding": encoding, "seed": seed,
    }  # fmt: skip
    return family_cell(
        training, teacher, SupportRule(rule=rule, held_out=held_out),
        encoding_named(encoding), MLP(width=width, depth=depth), seed, instruments,
        {**known, **labels},
    )  # fmt: skip


def encoding_named(name: str) -> Encoding:
    """An encoding with its defaults."""
    if name not in ENCODINGS:
        raise unknown("encoding", name, ENCODINGS)
    return load(ENCODINGS[name])()


def family_cell(
    training: Training, family: Family, support: SupportRule, encoding: Encoding, model: Model,
    seed: int, instruments: tuple[Instrument, ...], labels: Mapping[str, Any],
) -> Cell:  # fmt: skip
    """A network learning any family; everything is drawn anew for each seed."""
    learner = Supervised(
        family=family,
        support=support,
        encoding=encoding,
        model=model,
        seeds=Seeds.all(seed),
        training_steps=training.steps,
        tasks=training.tasks,
        samples=training.samples if family.horizon == 1 else family.horizon,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        schedule=training.schedule,
        evaluation_every=max(10, training.steps // training.evaluations // 10 * 10),
    )
    sizes = (encoding.size(family), family.input_size, family.output_size)
    return Cell(learner, {**labels, "parameters": model.parameters(*sizes)}, instruments)


def seen(row: Row) -> float:
    return row.value("generalization", "seen")


def unseen(row: Row) -> float:
    return row.value("generalization", "unseen")


def gap(row: Row) -> float:
    return row.value("generalization", "gap")


def trained(results: Results) -> Results:
    """Rows that learnt their training tasks."""
    return Results([row for row in results if seen(row) >= SEEN_FLOOR])


def left_out(results: Results) -> str:
    """How many networks a claim leaves out, and why, for its note."""
    behind = sum(seen(row) < SEEN_FLOOR for row in results if not row.diverged)
    words = [f"{behind} undertrained"] if behind else []
    words += [f"{results.diverged} diverged"] if results.diverged else []
    return f"Left out: {', '.join(words)}." if words else ""


def at_third(row: Row, metric: str) -> float:
    """A score a third of the way through: the rate is constant, so this is a shorter run."""
    steps, values = row.curve(metric)
    return float(values[np.flatnonzero(steps <= steps[-1] / 3)[-1]])


def unseen_at_matched(row: Row, at: float) -> float:
    """Unseen score when the learning curve first reached a seen score of `at`, or NaN."""
    return matched(row.curve("seen")[1], row.curve("unseen")[1], at)


def steps_to(row: Row, name: str, bound: float, *, falling: bool) -> float:
    """The step, read off between looks, at which a curve first reaches a bound; NaN for never."""
    steps, values = row.curve(name)
    good = values <= bound if falling else values >= bound
    if not good.any():
        return float("nan")
    first = int(np.argmax(good))
    if first == 0:
        return float(steps[0])
    low, high = values[first - 1], values[first]
    if not (np.isfinite(low) and np.isfinite(high)):
        return float(steps[first])
    if falling:  # errors fall by factors
        low, high, bound = (float(np.log(max(x, 1e-12))) for x in (low, high, bound))
    share = (bound - low) / (high - low) if high != low else 1.0
    return float(steps[first - 1] + share * (steps[first] - steps[first - 1]))


def log_steps(row: Row, name: str, bound: float, *, falling: bool) -> tuple[float, bool]:
    """log2 of the steps, and whether the bound was reached; if not, all steps count."""
    found = steps_to(row, name, bound, falling=falling)
    reached = bool(np.isfinite(found)) and not row.diverged
    steps = found if reached else float(row.curve(name)[0][-1])
    return float(np.log2(max(steps, LEAST))), reached


def require(values: np.ndarray, what: str, least: int = 2, note: str = "") -> np.ndarray:
    """The values, or a polite refusal to test a claim on too little."""
    if len(values) < least:
        few = f"{what}: only {len(values)} usable at this size, {least} are needed."
        raise NotTested(f"{few} {note}".strip())
    return values


def require_labels(results: Results, **wanted: Any) -> Results:
    """The rows with these labels, or a refusal that says what is not there."""
    found = results.where(**wanted)
    if not found:
        missing = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise NotTested(f"No results of {missing}.")
    return found


def share_interval(values: np.ndarray) -> Interval:
    """The mean of shares: whatever Student's interval says, none is below 0 or above 1."""
    found = mean_interval(values)
    return found.within(*SHARE) if found.bounded else found


def series_over(
    results: Results, x: str, number: Callable[[Row], float], name: str, *, shares: bool = False
) -> Series:
    """The mean over seeds with its interval, for each value of label `x`."""
    xs, ys, lows, highs = [], [], [], []
    for value in results.labels(x):
        rows = [row for row in results.where(**{x: value}) if not row.diverged]
        numbers = np.asarray([number(row) for row in rows])
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size == 0:
            continue
        interval = (share_interval if shares else mean_interval)(numbers)
        xs.append(value)
        ys.append(interval.estimate)
        lows.append(interval.low if interval.bounded else None)
        highs.append(interval.high if interval.bounded else None)
    return Series(name, xs, ys, lows, highs)


def estimates_over(
    results: Results, x: str, values: Sequence[Any], number: Callable[[Row], float], name: str
) -> Estimates:
    """The same for the named values of a label, as dots; a value without rows is a gap."""
    found = [series_over(results.where(**{x: value}), x, number, name) for value in values]

    def first(column: Sequence[float | None] | None) -> float | None:
        return column[0] if column is not None and len(column) else None

    return Estimates(
        name, [first(s.y) for s in found], [first(s.low) for s in found],
        [first(s.high) for s in found],
    )  # fmt: skip


def score_table(
    results: Results, by: Sequence[str], title: str = "Scores", metric: str = "R²"
) -> Table:
    """Seen, unseen and gap for each setting, with intervals and the untrained twin."""
    rows: list[list[Any]] = []
    for setting in sorted({tuple(row.labels[name] for name in by) for row in results}):
        chosen = results.where(**dict(zip(by, setting, strict=True)))
        cells: list[Any] = list(setting)
        for name in ("seen", "unseen", "gap"):
            values = chosen.values("generalization", name)
            cells.append(interval_text(values))
        twin = chosen.values("generalization", "unseen", "untrained")
        cells.append(float(np.mean(twin)) if twin.size else None)
        cells += [len(chosen), chosen.diverged]
        fitted = chosen.values("generalization", "seen")
        notes = ["undertrained"] if fitted.size and fitted.mean() < SEEN_FLOOR else []
        if chosen.diverged:
            everyone = [unseen(row) for row in chosen if np.isfinite(unseen(row))]
            mean = f"{np.mean(everyone):.3g}" if everyone else "none finite"
            notes.append(f"mean unseen {metric} with diverged members: {mean}")
        cells.append("; ".join(notes))
        rows.append(cells)
    columns = [
        *(name.replace("_", " ") for name in by),
        f"seen {metric}",
        f"unseen {metric}",
        "gap",
        f"untrained unseen {metric}",
        "cells",
        "diverged",
        "note",
    ]
    return Table(
        title, columns, rows,
        "Means with 95 % intervals over seeds; diverged members are counted, not averaged. "
        f"Undertrained: mean seen {metric} below {SEEN_FLOOR}.",
    )  # fmt: skip


def mean(values: Sequence[float] | np.ndarray) -> float | None:
    """A cell of a table: the mean, or nothing where there is nothing."""
    return float(np.mean(values)) if len(values) else None


def interval_text(values: np.ndarray, *, within: tuple[float, float] | None = None) -> str:
    """A mean with its interval as people write it, which keeps `within` what can be."""
    if values.size == 0:
        return "–"
    found = mean_interval(values)
    if not found.bounded:
        return f"{found.estimate:.3f}"
    found = found.within(*within) if within else found
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"
