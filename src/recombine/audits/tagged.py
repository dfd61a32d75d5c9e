"""What wrong tags do to coverage: the measured error of tags carried into the curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recombine.audits.auditing import Audit
from recombine.audits.coverage import MIN_COUNTS
from recombine.errors import InvalidRequest
from recombine.report.document import Section
from recombine.report.figures import Series, curves
from recombine.tables.counting import count
from recombine.tags.correction import corrected_coverage, read_errors

DRAWS = 60


def tagged_section(audit: Audit, path: str, seed: int = 0) -> tuple[Section, dict[str, Any]]:
    """Coverage of values and pairs with intervals for wrong tags, as a section and as numbers."""
    errors = read_errors(path)
    factors = audit.train.factors
    known = [f.name for f in factors if f.name in errors["factors"] and not f.many]
    if not known:
        names = ", ".join(sorted(errors["factors"]))
        raise InvalidRequest(f"{path} is about {names}: none of these is a factor here")
    series, numbers = [], []
    for t, name in ((1, "values"), (2, "pairs")):
        covered = audit.covered(t)
        parts = [] if covered is None else [
            part for part in covered.parts
            if len(set(part.chosen)) == t and not any(factors[f].many for f in part.chosen)
        ]  # fmt: skip
        if not parts:
            continue
        lines = [_line(audit, [p.chosen for p in parts], least, errors, seed)
                 for least in MIN_COUNTS]  # fmt: skip
        shares, lows, highs = zip(*lines, strict=True)
        series.append(Series(name, list(MIN_COUNTS), shares, lows, highs))
        numbers += [
            {"t": t, "min_count": least, "share": share, "low": low, "high": high}
            for least, (share, low, high) in zip(MIN_COUNTS, lines, strict=True)
        ]
    figure = curves(
        "Coverage with the error of tags", "rows at least", "share", series, log_x=True,
        y_range=(0.0, 1.0),
        caption="Bands: what the share could be if tags were right, from the hand-checked sheet. "
        "Bands of several tables are averaged, as if all erred together, so they are wide rather "
        "than narrow.",
    )  # fmt: skip
    text = (
        f"Tags are not labels: {', '.join(known)} came from a tagger that was checked by hand. A "
        "wrong tag can hide that something was trained, and can pretend that it was."
    )
    return Section("If tags are wrong", text, [figure]), {"factors": known, "coverage": numbers}


def _line(
    audit: Audit, tables: list[tuple[int, ...]], least: int, errors: Mapping[str, Any], seed: int
) -> tuple[float, float, float]:
    """The covered share over several tables and its ends, weighted by what is possible."""
    total, sums = 0, [0.0, 0.0, 0.0]
    for chosen in tables:
        possible = audit.rules.possible_table(chosen)
        size = int(possible.sum())
        if not size:
            continue
        named = [audit.train.factors[f] for f in chosen]
        found = corrected_coverage(
            count(audit.train, chosen), [f.name for f in named], [f.values for f in named], errors,
            at_least=least, possible=possible, draws=DRAWS, seed=seed,
        )  # fmt: skip
        total += size
        for place, end in enumerate((found.estimate, found.low, found.high)):
            sums[place] += size * end
    share, low, high = (each / max(total, 1) for each in sums)
    return share, low, high
