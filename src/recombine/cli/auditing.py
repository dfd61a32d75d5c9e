"""The `audit` command: what a dataset covers, what it lacks, and where a model fails for it."""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from recombine.cli.tables import (
    WEIGHT,
    coding_of,
    names_of,
    reading_arguments,
    rule_arguments,
    rules_of,
    typed,
    without_nan,
    write_all,
)
from recombine.cli.words import say, show, stopped, text_table
from recombine.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np

    from recombine.audits.auditing import Asked, Audit
    from recombine.audits.overlap import Overlap
    from recombine.report.document import Report
    from recombine.tables.rows import Rows

SHOWN = 12


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be typed after `recombine audit`."""
    made.add_argument("file", metavar="TRAIN",
                      help="training rows: CSV, TSV, JSON lines, Parquet, Arrow or a dataset "
                           "folder")  # fmt: skip
    reading_arguments(made)
    made.add_argument("--eval", dest="evaluation", default=None, metavar="FILE",
                      help="evaluated rows, with an outcome each")  # fmt: skip
    made.add_argument("--outcome", default=None, metavar="COLUMN",
                      help="of evaluated rows: 1 for right, 0 for wrong")  # fmt: skip
    made.add_argument("--split", default=None, metavar="COLUMN",
                      help="of one file that holds both: 'train' is training, all else is "
                           "evaluated")  # fmt: skip
    made.add_argument("--target", default=None, metavar="FILE",
                      help="rows as they will be met; a column `weight` counts them")  # fmt: skip
    made.add_argument("--label", default=None, metavar="COLUMN",
                      help="what is to be told from the factors")  # fmt: skip
    rule_arguments(made)
    made.add_argument("--min-count", type=int, default=1, metavar="N",
                      help="rows from which something is covered (1)")  # fmt: skip
    made.add_argument("--thin", type=int, default=10, metavar="N",
                      help="a value in fewer rows is called thin (10)")  # fmt: skip
    made.add_argument("--strength", type=int, default=4, metavar="T",
                      help="coverage of up to so many values together, 1 to 4 (4)")  # fmt: skip
    made.add_argument("--tag-errors", default=None, metavar="FILE",
                      help="measured errors of tags, from recombine tag --check")  # fmt: skip
    made.add_argument("--to", default=None, metavar="DIR", help="for the report and its tables")
    made.add_argument("--seed", type=int, default=0, help="of all draws (0)")
    made.add_argument("--quiet", action="store_true", help="no progress")


def run(chosen: Namespace) -> None:
    """Audits, prints what was found, and writes the report where asked."""
    if not 1 <= chosen.strength <= 4:
        raise InvalidRequest(f"--strength {chosen.strength}: expected 1 to 4")
    with stopped("nothing was written"), _enough_memory():
        found, document, report = _audited(chosen)
    with stopped("not every file was written"), _enough_memory():
        written, left = [], {}
        if chosen.to:
            from recombine.audits.page import tables_of

            tables = tables_of(found)
            document["files"] = {name: f"{name}.csv" for name in tables}
            if "risk" in tables and (cut := tables["risk"].note):  # a CSV has no room to say it
                left["risk.csv"] = document["why_not"]["risk.csv"] = cut
            written = write_all(chosen.to, "audit", report, document, list(tables.values()))
    if chosen.json:
        print(json.dumps(document | {"written": written}, indent=1))
    else:
        said = [*lines(found), *(f"{what}: {why}" for what, why in left.items())]
        show([*said, *(f"written: {path}" for path in written)])


@contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise InvalidRequest(
            "there is not enough memory for this audit: name fewer --factors, group rare values "
            "with --rare N, or lower --strength; nothing was written"
        ) from None


def _audited(chosen: Namespace) -> tuple[Audit, dict[str, Any], Report]:
    """What was found, as such, as a document and as a report."""
    from recombine.audits.auditing import audit
    from recombine.audits.page import document_of, report_of

    tell = (lambda text: None) if chosen.quiet or chosen.json else say
    train, asked = material(chosen, tell)
    found = audit(train, asked, tell)
    document = without_nan(document_of(found))
    sections = []
    if chosen.tag_errors:
        from recombine.audits.tagged import tagged_section

        section, numbers = tagged_section(found, chosen.tag_errors, chosen.seed)
        sections.append(section)
        document["tag_errors"] = without_nan(numbers)
    return found, document, report_of(found, typed(), sections)


def material(chosen: Namespace, tell) -> tuple[Rows, Asked]:
    """The rows of all files, coded alike, and what is asked of them."""
    import numpy as np

    from recombine.audits.auditing import Asked
    from recombine.audits.overlap import same_content
    from recombine.tables.reading import column_names, read_rows

    factors, coding = names_of(chosen.factors), coding_of(chosen)
    one_file = chosen.split is not None
    if one_file and chosen.evaluation:
        raise InvalidRequest("--split is for one file that holds both; leave out --eval or --split")
    if chosen.evaluation and not chosen.outcome:
        raise InvalidRequest("--eval needs --outcome COLUMN: which column says what was right?")
    if chosen.evaluation and same_content(chosen.file, chosen.evaluation):
        raise InvalidRequest(_trained_on(chosen))
    extra = [chosen.split] if one_file else []
    extra += [chosen.outcome] if one_file and chosen.outcome else []
    extra += [chosen.label] if chosen.label else []
    aside = [name for name in (chosen.outcome, chosen.label) if name and name not in extra]
    if factors is None:
        there = column_names(chosen.file)
        extra += [name for name in aside if name in there]
    read = {"id": chosen.id, "coding": coding, "say": tell}
    rows = read_rows(chosen.file, factors, columns=list(dict.fromkeys(extra)), **read)
    train, evaluation, outcome, overlap, why_not = rows, None, None, None, {}
    if one_file:
        training = np.asarray(
            [str(v).strip().lower() == "train" for v in rows.column(chosen.split)]
        )
        if training.all() or not training.any():
            side = "no row" if not training.any() else "every row"
            raise InvalidRequest(
                f"--split {chosen.split}: {side} says 'train'; rows for training must, others not"
            )
        train = rows.take(training)
        if chosen.outcome:
            evaluation = rows.take(~training)
            outcome = numbers(evaluation, chosen.outcome)
        overlap = _overlap(chosen, train, evaluation, training)
    elif chosen.evaluation:
        evaluation = read_rows(
            chosen.evaluation, list(train.names), columns=[chosen.outcome], like=train, **read
        )
        outcome = numbers(evaluation, chosen.outcome)
        overlap = _overlap(chosen, train, evaluation)
        if overlap is not None and overlap.rows == overlap.evaluated == len(train):
            raise InvalidRequest(_trained_on(chosen))
    elif chosen.outcome:
        why_not["risk"] = (
            f"outcomes ({chosen.outcome}) must come from rows that were not trained on: give "
            "--eval FILE, or --split COLUMN for one file that holds both"
        )
    target, traffic = None, None
    if chosen.target:
        weighed = WEIGHT in column_names(chosen.target)
        target = read_rows(
            chosen.target, list(train.names), columns=[WEIGHT] if weighed else [], like=train,
            coding=coding, say=tell,
        )  # fmt: skip
        traffic = numbers(target, WEIGHT, "how much traffic a row stands for") if weighed else None
    label = train.column(chosen.label) if chosen.label else None
    return train, Asked(
        evaluation=evaluation, outcome=outcome, target=target, traffic=traffic, label=label,
        forbid=rules_of(chosen), min_count=chosen.min_count, thin_rows=chosen.thin,
        strengths=tuple(range(1, chosen.strength + 1)), seed=chosen.seed, overlap=overlap,
        why_not=why_not,
    )  # fmt: skip


def _trained_on(chosen: Namespace) -> str:
    return (
        f"--eval {chosen.evaluation} holds the training rows themselves: how these are answered "
        "says nothing about risk; give rows that were kept out of training"
    )


def _overlap(
    chosen: Namespace, train: Rows, evaluation: Rows | None, training: np.ndarray | None = None
) -> Overlap | None:
    """How many evaluated rows were trained on: by their ids where these are named, or whole.

    `training` says which rows of one file are training, where one file holds both.
    """
    from recombine.audits.overlap import MOST, shared_ids, shared_parts, shared_rows

    if evaluation is None:
        return None
    if chosen.id and train.ids is not None and evaluation.ids is not None:
        return shared_ids(train.ids, evaluation.ids)
    if len(train) + len(evaluation) > MOST:
        return None
    if training is not None:
        return shared_parts(chosen.file, training, [chosen.split, chosen.outcome])
    return shared_rows(chosen.file, chosen.evaluation, [chosen.outcome])


def numbers(rows: Rows, name: str, meaning: str = "1 for right, 0 for wrong") -> np.ndarray:
    """A column that must hold numbers (or truth values), and what they mean."""
    from recombine.tables.pieces import number_of

    column = rows.column(name)
    if column.dtype.kind not in "fiub":
        texts = enumerate(map(str, column))
        wrong = ((n, t) for n, t in texts if t and number_of(t) is None and not _is_truth(t))
        place, text = next(wrong, (0, str(column[0])))
        raise InvalidRequest(
            f"{name} of {rows.source} must hold numbers ({meaning}), but has {text!r} in row "
            f"{rows.name_of([place])[0]}"
        )
    return column.astype(float)


def _is_truth(text: str) -> bool:
    return text.strip().lower() in ("true", "false")


def lines(found: Audit) -> list[str]:
    """What is printed: the sentence, the coverage, the alarms, what could not be told."""
    said = [found.sentence(), ""]
    rows = []
    for t in sorted({c.t for c in found.coverage}):
        covered = found.covered(t)
        if covered is not None and covered.share is not None:
            rows.append(
                (t, f"{covered.possible:,}", f"{covered.covered:,}", f"{covered.share:.1%}")
            )
    said += [text_table(("values together", "possible", "covered", "share"), rows), ""]
    alarms = found.findings
    if alarms:
        shown = [(f.kind, f.sentence) for f in alarms[:SHOWN]]
        said += [text_table(("alarm", "what"), shown)]
        if len(alarms) > SHOWN:
            said.append(f"... and {len(alarms) - SHOWN} more (--to DIR writes them all)")
        said.append("")
    if found.evaluation is not None:
        levels = [
            (n.name, n.combinations, n.rows, f"{n.score.estimate:.3f}",
             f"{n.score.low:.3f} to {n.score.high:.3f}")
            for n in found.evaluation.levels
        ]  # fmt: skip
        said += [
            text_table(("combination is", "combinations", "rows", "score", "95 %"), levels), "",
            found.evaluation.risk.sentence, "",
        ]  # fmt: skip
    said += [f"rules: {note}" for note in found.never_possible]
    said += [f"{what}: {why}" for what, why in found.why_not.items()]
    return said
