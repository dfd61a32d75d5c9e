"""A plan of what to collect: the combinations in order, what each adds, and how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from recombine.collecting.goals import Goals, Space
from recombine.tables.rows import Rows

if TYPE_CHECKING:
    from recombine.report.document import Report, Section, Table

FLAT = 0.1  # of what the best combination brings


@dataclass(frozen=True)
class Gain:
    """How things stand after so many combinations; 0 is before anything is collected."""

    combinations: int
    rows: int
    cost: float
    covered: int
    share: float  # of the weight of all interactions; of their number where no target is given
    parts: int
    balance: float


@dataclass(frozen=True, eq=False)
class Plan:
    """New combinations in the order of their use, with what they bring.

    `codes` has one line a combination, with as many places as the space has. `exact` means that
    no other plan does better; `bound` says in words what is known, and `at_most` is the share no
    plan of this budget can pass.
    """

    space: Space
    codes: Int[np.ndarray, "row place"]
    gains: tuple[Gain, ...]
    possible: int
    strength: str
    per_combination: int
    budget: float | None
    exact: bool
    bound: str
    at_most: float
    goals: Goals
    forbidden: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    weighted: bool = False

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def rows(self) -> list[dict[str, str | list[str]]]:
        """The combinations in words."""
        return [self.space.named(line) for line in self.codes]

    def table(self) -> Rows:
        """The combinations as a table of rows, each once."""
        return self.space.as_rows(self.codes, "the plan")

    @property
    def complete(self) -> bool:
        """Whether every possible interaction is covered at the end."""
        return self.gains[-1].covered == self.possible

    @property
    def met(self) -> bool:
        """Whether all that can be had of what was asked, to cover and to connect, is there."""
        last, asked = self.gains[-1], self.goals.asked
        covered = self.complete or "cover" not in asked
        # Where all that is possible is covered, rules keep apart what is still apart.
        connected = self.complete or last.parts <= 1 or "connect" not in asked
        return covered and connected and asked != ("balance",)

    @property
    def flattens(self) -> int | None:
        """After how many combinations each further one brings less than a tenth of the best.

        That holds for each goal: to cover, to connect, and to balance where nothing else was
        asked. None where the last one still brings more and something is lacking.
        """
        curves = {
            "cover": [gain.share for gain in self.gains],
            "connect": [-gain.parts for gain in self.gains],
            "balance": [gain.balance for gain in self.gains],
        }
        asked = [goal for goal in self.goals.asked if goal != "balance"] or ["balance"]
        last = max(_flat_after(curves[goal]) for goal in asked)
        return None if last == len(self) and not self.met else last

    @property
    def flattening(self) -> str:
        """Where the curve flattens, in words."""
        if not len(self):
            if self.met:
                return "Nothing is left to collect."
            return "The budget pays for no combination that adds anything: raise --budget."
        what = "covered" if "cover" in self.goals.asked else "connected"
        if self.met and self.flattens == len(self):
            after = _several(len(self), "combination")
            return f"Everything asked for is {what} after {after}, not before."
        if self.flattens is None:
            return "The curve has not flattened: more budget brings more."
        ending = f"; everything is {what} after {len(self)}" if self.met else ""
        after = _several(self.flattens, "combination")
        return (
            f"The curve flattens after {after}: each further one brings less "
            f"than a tenth of what the best one brings{ending}."
        )

    @property
    def summary(self) -> str:
        """The plan in one sentence."""
        first, last = self.gains[0], self.gains[-1]
        what = "of the traffic's interactions" if self.weighted else "of all interactions"
        count = f"({last.covered:,} of {self.possible:,})"
        if not len(self):
            return f"{last.share:.1%} {what} {count} are covered; nothing new is proposed."
        new = f"{_several(len(self), 'new combination')} ({_several(last.rows, 'row')})"
        one = len(self) == 1
        covered = f"from {first.share:.1%} to {last.share:.1%}"
        does = f"{'raises' if one else 'raise'} what is covered {covered}"
        if first.share == last.share:
            does = f"{'leaves' if one else 'leave'} what is covered at {last.share:.1%}"
        graph = (
            f"the value graph stays in {_several(last.parts, 'part')}"
            if first.parts == last.parts
            else f"the value graph goes from {first.parts} to {_several(last.parts, 'part')}"
        )
        if self.goals.asked == ("balance",):
            graph += f"; balance goes from {first.balance:.3f} to {last.balance:.3f}"
        return f"{new} {does} {what} {count}; {graph}."

    def combinations_table(self) -> Table:
        """The combinations as a table for people and spreadsheets."""
        from recombine.report.document import Table

        lines: list[tuple[str | int | float, ...]] = []
        for number, row in enumerate(self.rows, start=1):
            words = [v if isinstance(v, str) else " and ".join(v) for v in row.values()]
            before, after = self.gains[number - 1 : number + 1]
            lines.append((number, *words, after.rows - before.rows, after.covered - before.covered))
        columns = ("combination", *self.space.names, "rows to collect", "newly covered")
        return Table("What to collect", columns, lines)

    def gains_table(self) -> Table:
        """The gain by budget as a table."""
        from recombine.report.document import Table

        columns = ("combinations", "rows", "cost", "covered", "share covered", "parts", "balance")
        lines = [
            (g.combinations, g.rows, g.cost, g.covered, g.share, g.parts, g.balance)
            for g in self.gains
        ]
        return Table("Gain by budget", columns, lines)

    def sections(self) -> list[Section]:
        """The plan as parts of a report."""
        from recombine.report.document import Section
        from recombine.report.figures import Series, curves

        steps = [gain.cost for gain in self.gains]
        lines = [
            Series("covered", steps, [gain.share for gain in self.gains]),
            Series("balance of values", steps, [gain.balance for gain in self.gains]),
        ]
        figure = curves(
            "Gain by budget", "budget spent (an ordinary row costs 1)", "share", lines,
            y_range=(0.0, 1.02), references=[(self.at_most, "no plan can pass this")],
            caption=f"{self.flattening} Balance is entropy as a share of the most possible.",
        )  # fmt: skip
        notes = "\n\n".join([self.summary, f"{self.bound} Goals: {self.goals.words}.", *self.notes])
        return [
            Section("What to collect next", notes, (figure,), (self.combinations_table(),)),
            Section("Gain by budget", "", (), (self.gains_table(),)),
        ]

    def report(self) -> Report:
        """The plan as a report of its own."""
        from recombine.report.document import Report

        rules = "; ".join(self.forbidden)
        return Report(
            "collect", "What to collect next", "Which new combinations bring most?", self.source,
            f"strength {self.strength}", self.summary, sections=self.sections(),
            not_shown=[
                "Covered and connected are necessary conditions known from teachers that combine "
                "modules; they do not promise that a model will generalize.",
                *([f"Impossible by rule, and never proposed: {rules}."] if rules else []),
            ],
        )  # fmt: skip

    def document(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        return {
            "schema": "recombine/collect/1",
            "source": self.source,
            "factors": {n: list(v) for n, v in zip(self.space.names, self.space.values,
                                                   strict=True)},
            "strength": self.strength,
            "budget": self.budget,
            "rows_per_combination": self.per_combination,
            "goals": self.goals.words,
            "forbidden": list(self.forbidden),
            "combinations": self.rows,
            "gains": [vars(gain) for gain in self.gains],
            "possible": self.possible,
            "complete": self.complete,
            "flattens": self.flattens,
            "exact": self.exact,
            "at_most": self.at_most,
            "bound": self.bound,
            "summary": self.summary,
            "notes": list(self.notes),
        }  # fmt: skip


def _flat_after(curve: Sequence[float]) -> int:
    """The last step that rises by at least a tenth of the steepest.

    >>> _flat_after([0, 5, 9, 9.1]), _flat_after([3, 3])
    (2, 0)
    """
    steps = np.diff(curve)
    steepest = float(steps.max(initial=0.0))
    return int(np.flatnonzero(steps >= FLAT * steepest)[-1]) + 1 if steepest > 0 else 0


def _several(count: int, what: str) -> str:
    """A number with its word.

    >>> _several(1, "row"), _several(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
