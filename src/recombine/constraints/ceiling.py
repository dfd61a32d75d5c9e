"""What verdicts say together: is a share of satisfied constraints a ceiling, or an artefact?

The study of networks and the kit for live models make claims of the same names, so that the same
is concluded from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recombine.constraints.tasks import POWER_FLOW, WHOLE_NUMBERS
from recombine.lab.judge import Judgement


@dataclass(frozen=True)
class Answerer:
    """Who answered, in the words that a sentence about it needs."""

    who: str
    satisfy: str
    stay: str
    are: str
    their: str
    settled: str  # by or at what the rest is not settled


NETWORKS = Answerer("The networks", "satisfy", "stay", "are", "their", "at this size")
MODEL = Answerer("The model", "satisfies", "stays", "is", "its", "by these answers")


def concluded(judgements: Sequence[Judgement], by: Answerer) -> str:
    """What the claims say about the ceiling, for each kind of problem they are about."""
    found = {j.claim.name: j.verdict for j in judgements}
    told: dict[str, list[str]] = {}  # kinds of problems of which the same is to be said
    for kind in (POWER_FLOW, WHOLE_NUMBERS):
        if f"{kind}: artefact" in found:
            told.setdefault(_of_kind(kind, found, by), []).append(kind)
    return " ".join(f"On {' and on '.join(kinds)}: {text}" for text, kinds in told.items())


def _of_kind(kind: str, verdicts: Mapping[str, str], by: Answerer) -> str:
    supported = {name for name, verdict in verdicts.items() if verdict == "supported"}
    refuted = {name for name, verdict in verdicts.items() if verdict == "refuted"}

    def has(found: set[str], *names: str) -> bool:
        return all(f"{kind}: {name}" in found for name in names)

    told = []
    that = "a guess or the optimum with 1 % noise"
    if has(supported, "takes no competence"):
        told.append(
            "50 to 65 % of the constraints take no competence: a guess or the optimum with 1 % "
            "noise satisfies as many."
        )
        that = "that"
    # One model alone has no sizes over which its share could be flat.
    flat = ["flat in size"] if f"{kind}: flat in size" in verdicts else []
    if has(supported, "artefact"):
        told.append(
            f"{by.who} {by.satisfy} no more than {that}: {by.their} percentage is an artefact of "
            "the mix of constraints and of their tolerance, not a ceiling of reasoning."
        )
    elif has(refuted, "artefact") and has(supported, "ceiling", *flat):
        told.append(
            f"{by.who} {by.satisfy} more than {that} and {by.stay} below 65 %"
            f"{' at every size' if flat else ''}, as a ceiling of reasoning would have it."
        )
    elif has(refuted, "ceiling", "artefact"):
        told.append(
            f"{by.who} {by.satisfy} more than {that} and {by.are} not held at 50 to 65 %: there "
            "is no ceiling of reasoning at this height."
        )
    else:
        told.append(f"Whether {_lower(by.who)} {by.are} held there is not settled {by.settled}.")
    if has(supported, "closer yet no better"):
        told.append(
            "The optimum of other data is further from the right answer and satisfies more: the "
            "share is no measure of how good an answer is."
        )
    moved = [words for what in ("size", "training") if (words := _moved(kind, what, verdicts))]
    if moved:
        told.append(
            "The share of answers that satisfy every constraint rises by .20 or more with "
            f"{' and with '.join(moved)}."
        )
    elif has(supported, "hardly ever feasible"):
        told.append("Hardly any answer satisfies every constraint.")
    return " ".join(told)


def _moved(kind: str, what: str, verdicts: Mapping[str, str]) -> str:
    """By what feasibility is moved, and on which tasks, unless on all; nothing where on none."""
    start = f"{kind}: feasibility moves with {what} on "
    found = {n.removeprefix(start): v for n, v in verdicts.items() if n.startswith(start)}
    tasks = [task for task, verdict in found.items() if verdict == "supported"]
    if not tasks:
        return ""
    return what if len(tasks) == len(found) else f"{what} (on {', '.join(tasks)})"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
