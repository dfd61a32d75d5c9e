"""The page of a study that was run on several sets of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recombine.lab.files import canonical_json, write_bytes
from recombine.lab.judge import Judgement
from recombine.lab.repeat import APART, compared, conclusion
from recombine.lab.run import Outcome
from recombine.lab.store import Store
from recombine.report.document import Report, Section, Table
from recombine.report.html import render
from recombine.report.study import report_of, summary_of, what_is_missing
from recombine.report.tables import interval as bounds


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


def write_repetition(store: Store, outcomes: Sequence[Outcome]) -> tuple[Path, Path]:
    """Writes the page and the summary beside those of the study; returns both paths."""
    first = report_of(outcomes[0])
    page = Report(
        study=first.study,
        title=first.title,
        question=f"Do the verdicts survive other seeds? {first.question}",
        source=first.source,
        preset=first.preset,
        verdict_sentence=conclusion(compared(outcomes)),
        sections=(
            Section("What each set of seeds says", "", (), (comparison(outcomes),)),
            Section("What is claimed", "", (), (sentences(outcomes[0]),)),
        ),
        not_shown=(
            f"More than {len(outcomes)} sets of seeds, each {APART} from the last; all are of one "
            "grid, so what a larger network or longer training would change is not asked.",
            *first.not_shown,
        ),
        repeat=first.repeat,
        warnings=tuple(warning for o in outcomes for warning in what_is_missing(o)),
    )  # fmt: skip
    folder = store.path / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{outcomes[0].request.name}-repeated"
    files = folder / f"{name}.html", folder / f"{name}.json"
    write_bytes(files[0], render(page).encode())
    write_bytes(files[1], canonical_json(summary(outcomes)))
    return files
