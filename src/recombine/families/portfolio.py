"""Integer portfolios, told asset by asset and answered with the lots of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.constraints.portfolio import Portfolio, draw
from recombine.constraints.whole_numbers import WholeNumbers, Widths, clause, clauses, only
from recombine.errors import InvalidRequest

_WIDTHS: Widths = {
    "budget": (2,),
    "asset": (1, 1, 1, 1),
    "sector": (1, 2),
    "turnover": (2,),
    "names": (1,),
}


@dataclass(frozen=True)
class PortfolioFamily(WholeNumbers[Portfolio]):
    """Portfolios of 4 to 5 assets (7 beyond training) under sector, turnover and name limits.

    Trained: every rule, but never turnover and names together. The longest source has 45 words,
    the longest answer 7; a word is a digit or one of five names.

    >>> family = PortfolioFamily(train_items=9, test_items=2, validation_items=2, beyond_items=2)
    >>> item = family.corpus(0)["train"][0]
    >>> family.solve(item.source) == item.target
    True
    """

    name: ClassVar[str] = "portfolio"
    unit: ClassVar[str] = "assets more than trained, or pairs of rules never trained together"
    instruction: ClassVar[str] = (
        "Choose a portfolio. `budget` gives the lots to hold in all, in two digits; each `asset` "
        "has a return for each lot, the most lots allowed, a sector and the lots held before. "
        "`sector s c` allows at most c (two digits) lots in sector s; `turnover t` at most t (two "
        "digits) lots bought and sold in all; `names k` at most k different assets. Maximise the "
        "total return. Answer with the lots of each asset, parted by spaces; of equally good "
        "answers give the first in dictionary order."
    )

    @property
    def rules(self) -> tuple[str, str, str]:
        return ("turnover", "names", "sector")

    def instance(self, rng: np.random.Generator, size: int, rules: frozenset[str]) -> Portfolio:
        return draw(rng, size, rules)

    def write(self, problem: Portfolio) -> str:
        assets = zip(problem.returns, problem.limits, problem.sectors, problem.held, strict=True)
        told = [
            clause(_WIDTHS, "budget", problem.budget),
            *(clause(_WIDTHS, "asset", *asset) for asset in assets),
            *(clause(_WIDTHS, "sector", *cap) for cap in problem.caps),
        ]
        if problem.turnover is not None:
            told.append(clause(_WIDTHS, "turnover", problem.turnover))
        if problem.names is not None:
            told.append(clause(_WIDTHS, "names", problem.names))
        return " ".join(told)

    def read(self, source: str) -> Portfolio:
        found = clauses(_WIDTHS, source)
        (budget,) = only(found, "budget")
        if not found["asset"]:
            raise InvalidRequest(f"there is no `asset` in {source!r}")
        returns, limits, sectors, held = zip(*found["asset"], strict=True)
        return Portfolio(
            returns,
            limits,
            sectors,
            held,
            budget,
            caps=tuple((sector, cap) for sector, cap in found["sector"]),
            turnover=only(found, "turnover")[0] if found["turnover"] else None,
            names=only(found, "names")[0] if found["names"] else None,
        )
