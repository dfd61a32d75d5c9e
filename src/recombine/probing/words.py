"""A reading in words for people, and as plain values for machines."""

from __future__ import annotations

import math
from typing import Any

from recombine._version import __version__
from recombine.lab.intervals import Interval
from recombine.probing.pairs import PairReading
from recombine.probing.readings import ProbeReading, TargetReading
from recombine.probing.verdicts import READABLE, TOO_FEW

SCHEMA = "recombine/probe/1"
SHOWN = 5  # labels of a target in a terminal


def number(value: float | None) -> str:
    """A score with two decimals, without a leading zero that says nothing.

    >>> number(0.934), number(-0.02), number(1.0), number(None)
    ('.93', '-.02', '1.00', 'unknown')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    text = f"{value:.2f}".replace("-0.00", "0.00")
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def room(size: int) -> str:
    """So many bytes, in MB or GB.

    >>> room(3_100_000), room(2_240_000_000)
    ('4 MB', '2.2 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{-(-size // 10**6)} MB"


def spread(interval: Interval) -> str:
    """An estimate with its interval."""
    return f"{number(interval.estimate)} [{number(interval.low)}, {number(interval.high)}]"


def sentence(one: TargetReading) -> str:
    """The verdict on one target, with the numbers behind it."""
    verdict = one.verdict
    if verdict.answer == TOO_FEW:
        more = f"; about {verdict.more} more would settle it" if verdict.more else ""
        return f"Too few combinations to say whether {one.name} is readable: {verdict.why}{more}."
    first = one.scores[0]
    said = (
        f"{one.name} is {verdict.answer}: {first.metric} {spread(first.across)} on new combinations"
    )
    if len({label.verdict.answer for label in one.labels}) > 1:
        readable = sum(label.verdict.answer == READABLE for label in one.labels)
        said = (
            f"{one.name}: {readable} of {len(one.labels)} labels {_are(readable)} {READABLE}; mean "
            f"{first.metric} {spread(first.across)} on new combinations"
        )
    if first.within is not None:
        said += f", {number(first.within.estimate)} on new rows of those seen"
    where = f" (layer {one.layer})" if len(one.layers) > 1 else ""
    said += f"; chance is {number(first.chance)}, the control task {number(first.control)}{where}."
    return said


def remarks(one: TargetReading) -> list[str]:
    """What a reader of the verdict should know besides."""
    found = []
    gap = one.gap
    if one.verdict.answer == READABLE and gap is not None and gap.low > 0 and gap.estimate >= 0.05:
        found.append(
            f"{one.name}: part of it is memorised; rows of combinations seen score higher by "
            f"{spread(gap)}."
        )
    by_inputs = next((c.score for c in one.controls if c.name.endswith("of the inputs")), None)
    if one.verdict.answer == READABLE and by_inputs is not None:
        first = one.scores[0].across
        if by_inputs >= first.low:
            found.append(
                f"{one.name}: random projections of the inputs read it as well "
                f"({number(by_inputs)}), so this does not show that the model made it readable."
            )
    settled = one.verdict.answer != TOO_FEW
    if settled and one.scores and one.scores[0].across.high < one.scores[0].chance - 0.02:
        found.append(
            f"{one.name}: worse than chance is a sign of nothing to read, not of its opposite. "
            "Holding a combination out leaves its values rarer beside the others it came with, "
            "and a probe with nothing else to go by learns just that."
        )
    if one.unscored:
        found.append(
            f"{one.name}: {one.unscored} rows have a value that occurs in one fold only, so no "
            "probe could learn it without them; they are not scored."
        )
        if not settled and all(map(_is_number, one.values)):
            found.append(
                f"{one.name}: its values are numbers; where their size means something, read them "
                "as such with --kind numbers."
            )
    return found


def labels(one: TargetReading) -> list[str]:
    """The labels of a target with their scores, best first."""
    order = sorted(one.labels, key=lambda label: -_known(label.across.estimate))
    found = [
        f"{one.name}, {label.label}: AUROC {spread(label.across)}, {label.verdict.answer}."
        for label in order[:SHOWN]
    ]
    more = len(order) - SHOWN
    return [*found, f"{one.name}: {more} more labels (--json shows all)."] if more > 0 else found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _known(value: float) -> float:
    return value if math.isfinite(value) else -1.0


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def pair_sentence(one: PairReading) -> str:
    """What a pair probe found, with its numbers."""
    said = f"{one.factors[0]} with {one.factors[1]}: {one.answer}"
    if one.gain is None:
        return f"{said}."
    return (
        f"{said}; balanced accuracy {number(one.pair)} for the pair at once, "
        f"{number(one.singles)} for its two values apart, gain {spread(one.gain)}."
    )


def lines(reading: ProbeReading) -> list[str]:
    """The reading for a terminal, verdicts first."""
    found = [sentence(one) for one in reading.targets]
    found += [pair_sentence(one) for one in reading.pairs]
    for one in reading.targets:
        found += labels(one) + remarks(one)
        if one.curve is not None:
            found.append(f"{one.name}, curve: {one.curve.said}.")
        found.append(f"{one.name} is {one.said}.")
    found.append(
        f"{reading.rows} rows, {reading.combinations} combinations, {reading.folds} folds; "
        f"about {room(reading.memory)} of memory."
    )
    return [*found, *(f"{note}." for note in reading.notes)]


def document(reading: ProbeReading) -> dict[str, Any]:
    """The reading as plain values, ready for JSON; what is not finite is None."""
    return {
        "schema": SCHEMA,
        "recombine": __version__,
        "rows": reading.rows,
        "combinations": reading.combinations,
        "folds": reading.folds,
        "draws": reading.draws,
        "seed": reading.seed,
        "memory_bytes": reading.memory,
        "bars": {
            "least": reading.bars.least,
            "width": reading.bars.width,
            "per_fold": reading.bars.per_fold,
            "scored": reading.bars.scored,
        },
        "targets": [_target(one) for one in reading.targets],
        "pairs": [_pair(one) for one in reading.pairs],
        "notes": list(reading.notes),
    }


def _target(one: TargetReading) -> dict[str, Any]:
    curve = one.curve
    return {
        "name": one.name,
        "kind": one.kind,
        "kind_found": one.said,
        "values": list(one.values),
        "answer": one.verdict.answer,
        "why": one.verdict.why,
        "more_combinations": one.verdict.more,
        "sentence": sentence(one),
        "remarks": remarks(one),
        "skill": _interval(one.skill),
        "memorised_gap": _interval(one.gap),
        "layer": one.layer,
        "layer_by_fold": list(one.picks),
        "rows_not_scored": one.unscored,
        "labels": [
            {
                "label": label.label,
                "answer": label.verdict.answer,
                "why": label.verdict.why,
                "across": _interval(label.across),
                "within": _interval(label.within),
            }
            for label in one.labels
        ],
        "scores": [
            {
                "metric": score.metric,
                "across": _interval(score.across),
                "within": _interval(score.within),
                "chance": _finite(score.chance),
                "control": _finite(score.control),
                "selectivity": _finite(score.across.estimate - score.control),
            }
            for score in one.scores
        ],
        "layers": [
            {
                "layer": layer.layer,
                "features": layer.features,
                "across": _interval(layer.across),
                "within": _interval(layer.within),
                "control": _finite(layer.control),
                "validation": _finite(layer.validation),
            }
            for layer in one.layers
        ],
        "controls": [
            {"name": control.name, "score": _finite(control.score), "means": control.means}
            for control in one.controls
        ],
        "curve": None
        if curve is None
        else {
            "combinations": list(curve.combinations),
            "scores": [_interval(score) for score in curve.scores],
            "said": curve.said,
            "extrapolated": _finite(curve.extrapolated),
        },
    }


def _pair(one: PairReading) -> dict[str, Any]:
    return {
        "factors": list(one.factors),
        "answer": one.answer,
        "pair": _finite(one.pair),
        "singles": _finite(one.singles),
        "gain": _interval(one.gain),
        "chance": _finite(one.chance),
        "cells": [
            {"pair": name, "rows": rows, "as_pair": pair, "as_singles": singles}
            for name, rows, pair, singles in one.cells
        ],
    }


def _interval(one: Interval | None) -> dict[str, float | None] | None:
    if one is None:
        return None
    return {
        "estimate": _finite(one.estimate), "low": _finite(one.low), "high": _finite(one.high)
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
