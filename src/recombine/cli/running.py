"""The `run` command: signals, a time limit, progress, and what is printed at the end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recombine.cli.planning import cannot_exist
from recombine.cli.words import say, text_table
from recombine.errors import Interrupted
from recombine.lab.device import enable_compilation_cache
from recombine.lab.execute import Session
from recombine.lab.progress import Watch, duration
from recombine.lab.repeat import repeat
from recombine.lab.run import Outcome, Request, run
from recombine.lab.shards import Stop
from recombine.lab.store import Store
from recombine.lab.study import Results
from recombine.report.study import summary_of, write_report


def run_to_end(
    request: Request, place: str | Path, *, limit: float | None = None, quiet: bool = False,
    adopt: bool = False, as_json: bool = False,
) -> int:  # fmt: skip
    """Runs a study, writes its report, says what was found and where; 1 if a cell failed."""
    begun = time.monotonic()
    with session_on(place, limit, quiet=quiet, adopt=adopt, as_json=as_json) as session:
        outcome = run(request, session)
    page, numbers = write_report(session.store, outcome)
    if as_json:
        print(json.dumps({**summary_of(outcome), "page": str(page), "summary": str(numbers)}))
        return 1 if outcome.failed else 0
    print(text_table(*scores(outcome)))
    print()
    print(text_table(["claim", "criterion", "found", "verdict"], claims(outcome)))
    print()
    print(summary_of(outcome)["verdict"])
    _say_failed(outcome)
    print(f"took {duration(time.monotonic() - begun)}; report: {page}")
    return 1 if outcome.failed else 0


def repeat_to_end(
    request: Request, times: int, place: str | Path, *, limit: float | None = None,
    quiet: bool = False, as_json: bool = False,
) -> int:  # fmt: skip
    """Runs a study on several sets of seeds and says which verdicts hold; 1 if a cell failed."""
    from recombine.report.repeat import comparison, summary, write_repetition

    begun = time.monotonic()
    with session_on(place, limit, quiet=quiet, as_json=as_json) as session:
        outcomes = repeat(request, times, session)
    for outcome in outcomes:
        write_report(session.store, outcome)
    page, numbers = write_repetition(session.store, outcomes)
    failed = any(outcome.failed for outcome in outcomes)
    if as_json:
        print(json.dumps({**summary(outcomes), "page": str(page), "summary": str(numbers)}))
        return 1 if failed else 0
    table = comparison(outcomes)
    print(text_table(list(table.columns), [list(row) for row in table.rows]))
    print()
    print(summary(outcomes)["verdict"])
    for outcome in outcomes:
        _say_failed(outcome)
    print(f"took {duration(time.monotonic() - begun)}; report: {page}")
    return 1 if failed else 0


def _say_failed(outcome: Outcome) -> None:
    """A claim without its cells says only that they are not there; this says why."""
    for line in cannot_exist(Counter(reason for _, reason in outcome.infeasible)):
        print(line)
    for name, reason in outcome.failed[:5]:
        print(f"failed: {name}: {reason}")


@contextmanager
def session_on(
    place: str | Path, limit: float | None, *, quiet: bool, as_json: bool, adopt: bool = False
) -> Iterator[Session]:
    """A session on a store that listens to signals, and says how to go on where time is over."""
    begun = time.monotonic()
    store = Store.open(place)
    store.check_writable()
    enable_compilation_cache()
    stop = Stop(deadline=None if limit is None else begun + limit)
    _listen(stop)
    try:
        yield Session(store, stop, Watch(quiet=quiet or as_json), adopt)
    except Interrupted as end:
        if stop.signal is None:
            say(f"stopped after {duration(time.monotonic() - begun)} as asked; "
                "run the same command to continue")  # fmt: skip
            if as_json:
                print(json.dumps({"finished": False}))
            raise Interrupted("", 0) from end
        raise


def _listen(stop: Stop) -> None:
    def handle(number: int, _frame: Any) -> None:
        if stop.signal is not None:  # asked twice: go at once, the last checkpoint stands
            os._exit(128 + number)
        stop.signal = number
        # Not through print: what was interrupted may be in the middle of printing itself.
        os.write(2, "\nstopping at the next border …\n".encode())

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)


def scores(outcome: Outcome) -> tuple[list[str], list[list[Any]]]:
    """Seen, unseen and gap, or else the last evaluations, by what varies in the grid."""
    from recombine.studies._base import score_table

    rows = outcome.results
    labels = [name for name in (rows[0].labels if len(rows) else ())
              if name not in ("seed", "parameters") and len(rows.labels(name)) > 1]  # fmt: skip
    if not all("generalization" in row.readings for row in rows):
        return last_evaluations(rows, labels)
    table = score_table(rows, labels or ["width"])
    keep = [
        i for i, name in enumerate(table.columns) if name not in ("untrained unseen R²", "note")
    ]
    return [table.columns[i] for i in keep], [[row[i] for i in keep] for row in table.rows]


def last_evaluations(rows: Results, labels: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    """The mean over what was trained alike of each score at the end of training."""
    metrics = sorted({metric for row in rows for metric in row.summary["evaluations"]})
    table = []
    for setting in dict.fromkeys(tuple(row.labels.get(name) for name in labels) for row in rows):
        alike = rows.where(**dict(zip(labels, setting, strict=True)))
        ends = [[row.curve(metric)[1] for row in alike if not row.diverged] for metric in metrics]
        means = [[curve[-1] for curve in curves if curve.size] for curves in ends]
        shown = [f"{sum(found) / len(found):.3f}" if found else "–" for found in means]
        table.append([*setting, *shown, len(alike), alike.diverged])
    return [*labels, *metrics, "cells", "diverged"], table


def claims(outcome: Outcome) -> list[list[str]]:
    found = []
    for j in outcome.judgements:
        shown = "" if j.interval is None else (
            f"{j.interval.estimate:.3f} [{j.interval.low:.3f}, {j.interval.high:.3f}]"
        )  # fmt: skip
        found.append([j.claim.sentence, j.claim.criterion, shown, j.verdict])
    return found
