"""Would a verdict survive other seeds? The same study, with everything drawn anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from recombine.errors import InvalidRequest
from recombine.lab.judge import Judgement
from recombine.lab.run import Outcome, Request, run
from recombine.lab.session import Session
from recombine.lab.study import Seeded

APART = 100  # from the first seed of one time to that of the next
UNTESTED = "not tested here"
NOT_TWICE = "not tested twice"

Standing = Literal["holds", "moves", "is contradicted", "not tested twice"]


def again(request: Request, number: int) -> Request:
    """The request on seeds that no other number draws; number 0 is the request itself."""
    grid = request.grid
    if not isinstance(grid, Seeded):
        raise InvalidRequest(
            f"the grid of {request.study.name} cannot be asked of other seeds: derive it from "
            "recombine.lab.study.Seeded and count seeds with grid.drawn(grid.seeds)"
        )
    if number == 0:
        return request
    first = grid.first_seed + APART * number
    return replace(request, settings={**request.settings, "first_seed": str(first)})


def repeat(request: Request, times: int, session: Session) -> list[Outcome]:
    """Runs a study as often on seeds of their own; what the store has is not done again."""
    if times < 2:
        raise InvalidRequest(f"times={times}: expected at least 2, to have what to compare")
    outcomes = []
    for number in range(times):
        asked = again(request, number)
        session.watch.say(f"seeds from {asked.grid.first_seed} ({number + 1} of {times})")
        outcomes.append(run(asked, session))
    return outcomes


@dataclass(frozen=True)
class Repeated:
    """One claim, as often as it was judged."""

    judgements: tuple[Judgement, ...]

    @property
    def standing(self) -> Standing:
        """Supported once and refuted once contradicts; inconclusive beside either only moves."""
        tested = [one.verdict for one in self.judgements if one.verdict != UNTESTED]
        if len(tested) < 2:
            return NOT_TWICE
        if {"supported", "refuted"} <= set(tested):
            return "is contradicted"
        return "holds" if len(set(tested)) == 1 else "moves"


def compared(outcomes: Sequence[Outcome]) -> list[Repeated]:
    """Claim by claim, what each time found, first what was tested: seeds change no claims."""
    claims = [Repeated(each) for each in zip(*(o.judgements for o in outcomes), strict=True)]
    return sorted(claims, key=lambda claim: claim.standing == NOT_TWICE)


def conclusion(claims: Sequence[Repeated]) -> str:
    """How many verdicts hold, in a sentence.

    >>> conclusion([])
    'No claim was tested twice.'
    """
    count = {
        standing: sum(claim.standing == standing for claim in claims)
        for standing in ("holds", "moves", "is contradicted")
    }
    tested = sum(count.values())
    if not tested:
        return "No claim was tested twice."
    held, moved, against = count.values()
    said = [f"{held} {'has' if held == 1 else 'have'} the same verdict on all seeds"]
    if moved:
        said.append(f"{moved} {'moves' if moved == 1 else 'move'} to or from inconclusive")
    said.append(f"{against or 'none'} {'is' if against < 2 else 'are'} contradicted")
    return f"Of {tested} claims tested more than once, {', '.join(said)}."
