"""The page of a study that was run on several sets of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recombine.lab.files import canonical_json, write_bytes
from recombine.lab.judge import Judgement
from recombine.lab.repeat import APART, NOT_TWICE, compared, conclusion
from recombine.lab.run import Outcome
from recombine.lab.store import Store
from recombine.report.document import Figure, Report, Section, Table
from recombine.report.figures import Estimates, dots
from recombine.report.html import render
from recombine.report.study import report_of, summary_of, what_is_missing
from recombine.report.tables import interval as bounds

FAR = 4.0  # half intervals


def found(judgement: Judgement) -> str:
    """What one set of seeds says of a claim: the estimate, its interval and the verdict."""
    document = judgement.document()
    if document["interval"] is None:
        return judgement.verdict
    estimate, low, high = document["interval"]
    return f"{judgement.verdict}: {estimate:.3f} {bounds(low, high, 3)}"


def comparison(outcomes: Sequence[Outcome]) -> Table:
    """Every claim by what each set of seeds says of it."""
    times = [f"seeds from {outcome.request.grid.first_seed}" for outcome in outcomes]
    rows = [
        [claim.judgements[0].claim.name, claim.standing, *(found(one) for one in claim.judgements)]
        for claim in compared(outcomes)
    ]
    return Table(
        "Verdicts on several sets of seeds", ["claim", "its verdict", *times], rows,
        "Estimates with 95 % intervals. A verdict moves where one set of seeds leaves open what "
        "another settles; it is contradicted where one supports what another refutes.",
    )  # fmt: skip


def distance(judgement: Judgement) -> float | None:
    """How far the estimate is from meeting the criterion or from missing it, in half intervals.

    Beyond 1 the whole interval meets it, beyond -1 the whole interval misses it. Far is far: what
    lies beyond `FAR` is drawn there.
    """
    interval = judgement.interval
    if interval is None or not np.isfinite(interval.estimate):
        return None
    least, most = judgement.claim.meets
    found = [FAR]
    for bound, sign in ((least, 1), (most, -1)):
        if bound is not None:
            away = sign * (interval.estimate - bound)
            inner = interval.low if (away >= 0) == (sign > 0) else interval.high
            half = abs(interval.estimate - inner)
            found.append(away / half if half > 0 else FAR * float(np.sign(away) or 1))
    return float(np.clip(min(found), -FAR, FAR))


def picture(outcomes: Sequence[Outcome]) -> Figure:
    """Where every claim lies between refuted and supported, by the seeds it was judged on."""
    claims = [claim for claim in compared(outcomes) if claim.standing != NOT_TWICE]
    series = [
        Estimates(f"seeds from {outcome.request.grid.first_seed}",
                  [distance(claim.judgements[n]) for claim in claims])
        for n, outcome in enumerate(outcomes)
    ]  # fmt: skip
    return dots(
        "How far each claim is from its criterion",
        [claim.judgements[0].claim.name for claim in claims], series,
        value_label="half intervals beyond the criterion", value_range=(-FAR - 0.3, FAR + 0.3),
        references=[(-1.0, "refuted to the left"), (1.0, "supported to the right")],
        caption="One half is the way from the estimate to the end of its interval that faces the "
        "criterion: within one of these nothing is settled, and with fewer than five units neither "
        f"beyond. What is farther than {FAR:g} is drawn at the border.",
    )  # fmt: skip


def sentences(outcome: Outcome) -> Table:
    """What each claim says, and when it is met."""
    claims = [judgement.claim for judgement in outcome.judgements]
    rows = [[claim.name, claim.sentence, claim.criterion] for claim in claims]
    return Table("The claims in full", ["claim", "sentence", "criterion"], rows)


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same for machines, with the whole summary of each time."""
    claims = compared(outcomes)
    return {
        "study": outcomes[0].request.study.name,
        "preset": outcomes[0].request.preset,
        "verdict": conclusion(claims),
        "standing": {c.judgements[0].claim.name: c.standing for c in claims},
        "times": [summary_of(outcome) for outcome in outcomes],
    }


def command(outcomes: Sequence[Outcome]) -> str:
    """What to type for the same repetition."""
    once = summary_of(outcomes[0])["command"]
    return f"{once.replace('recombine run', 'recombine repeat', 1)} --times {len(outcomes)}"


def write_repetition(store: Store, outcomes: Sequence[Outcome]) -> tuple[Path, Path]:
    """Writes the page and the summary beside those of the study; returns both paths."""
    first = report_of(outcomes[0])
    twice = any(claim.standing != NOT_TWICE for claim in compared(outcomes))
    figures = (picture(outcomes),) if twice else ()
    page = Report(
        study=first.study,
        title=first.title,
        question=f"Do the verdicts survive other seeds? {first.question}",
        source=first.source,
        preset=first.preset,
        verdict_sentence=conclusion(compared(outcomes)),
        sections=(
            Section("What each set of seeds says", "", figures, (comparison(outcomes),)),
            Section("What is claimed", "", (), (sentences(outcomes[0]),)),
        ),
        not_shown=(
            f"More than {len(outcomes)} sets of seeds, each {APART} from the last; all are of one "
            "grid, so what a larger network or longer training would change is not asked.",
            *first.not_shown,
        ),
        repeat=tuple({**dict(first.repeat), "command": command(outcomes)}.items()),
        warnings=tuple(warning for o in outcomes for warning in what_is_missing(o)),
    )  # fmt: skip
    folder = store.path / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{outcomes[0].request.name}-repeated"
    files = folder / f"{name}.html", folder / f"{name}.json"
    write_bytes(files[0], render(page).encode())
    write_bytes(files[1], canonical_json(summary(outcomes)))
    return files
