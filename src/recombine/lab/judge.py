"""Claims against numbers: verdicts with raw and Holm-adjusted intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recombine.errors import RecombineError, UnknownName
from recombine.lab.statistics import Interval, holm_levels, verdict
from recombine.lab.study import Claim, Evidence, NotTested, Results

LEVEL = 0.95


@dataclass(frozen=True)
class Judgement:
    """A claim with what was found."""

    claim: Claim
    verdict: str
    interval: Interval | None = None
    adjusted: Interval | None = None
    note: str = ""

    def document(self) -> dict[str, Any]:
        def numbers(interval: Interval | None) -> Any:
            if interval is None:
                return None
            found = (interval.estimate, interval.low, interval.high)
            return [None if not math.isfinite(x) else x for x in found]

        return {
            "name": self.claim.name,
            "sentence": self.claim.sentence,
            "criterion": self.claim.criterion,
            "unit": self.claim.unit,
            "verdict": self.verdict,
            "interval": numbers(self.interval),
            "adjusted": numbers(self.adjusted),
            "units": 0 if self.interval is None else self.interval.units,
            "method": "" if self.interval is None else self.interval.method,
            "note": self.note,
        }


def judge(claims: Sequence[Claim], results: Results) -> list[Judgement]:
    """Every claim's verdict; intervals beside the raw ones are adjusted for the whole report."""
    found: list[Judgement] = []
    evidence: dict[int, Evidence] = {}
    for number, claim in enumerate(claims):
        try:
            shown = claim.measure(results)
            interval = shown.interval(LEVEL).within(*claim.within)
        except NotTested as reason:
            found.append(Judgement(claim, "not tested here", note=str(reason)))
            continue
        except UnknownName:
            raise  # a slip of whoever wrote the claim, which no other grid would mend
        except (RecombineError, ValueError, ArithmeticError, LookupError) as error:
            # A grid set by hand may leave a claim nothing to work on; the others still stand.
            told = f"Could not be measured on this grid: {error}"
            found.append(Judgement(claim, "not tested here", note=told))
            continue
        evidence[number] = shown
        word = verdict(
            interval, at_least=claim.at_least, at_most=claim.at_most, above=claim.above,
            below=claim.below,
        )  # fmt: skip
        note = shown.note
        if word == "inconclusive" and interval.units < 5:
            note = f"{note} Only {interval.units} {claim.unit}: five are needed.".strip()
        found.append(Judgement(claim, word, interval, note=note))
    p_values = [max(min(1.0, evidence[n].p(bound)) for bound in claims[n].bounds) for n in evidence]
    for number, level in zip(evidence, holm_levels(p_values), strict=True):
        adjusted = evidence[number].interval(level)
        found[number] = replace(found[number], adjusted=adjusted.within(*claims[number].within))
    return found


def sentence(judgements: Sequence[Judgement]) -> str:
    """The verdicts of a study in one plain sentence, what was asked before its preconditions."""
    asked = sorted(judgements, key=lambda j: j.claim.name.startswith("floor"))
    head = next((j for j in asked if j.verdict != "not tested here"), None)
    if head is None:
        return tally(judgements)
    return f"{head.claim.sentence.rstrip('.')}: {head.verdict}. {tally(judgements)}"


def tally(judgements: Sequence[Judgement]) -> str:
    """How many claims were tested, and what came out."""
    tested = [j.verdict for j in judgements if j.verdict != "not tested here"]
    if not tested:
        return "Nothing was tested at this size."
    counts = {word: tested.count(word) for word in ("supported", "refuted", "inconclusive")}
    rest = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    return f"Of {len(tested)} claims tested, {rest}."
