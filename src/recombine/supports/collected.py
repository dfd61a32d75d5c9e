"""A support that grew: what training began with, and what somebody chose to collect after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt32

from recombine.combinations import Space
from recombine.errors import InvalidRequest, unknown
from recombine.seeds import host_seed
from recombine.supports.rules import SupportRule, refusal
from recombine.supports.support import Support

Ranks = UInt32[np.ndarray, " n"]
Indicator = Bool[np.ndarray, "n modules"]


@dataclass(frozen=True)
class Collected:
    """A start by a rule, and `budget` combinations collected by a strategy.

    A share of all combinations is set apart for testing before anything is collected, the same
    under every strategy, so that what is collected can never be what is asked. `chosen` names the
    ranks where a network was asked which it is unsure of; the strategy is then only a name.

    >>> from recombine.combinations import Slots
    >>> rule = Collected(SupportRule("disconnected", 0.8), "random", budget=10)
    >>> support = rule.build(Slots((5, 5, 5)), seed=0)
    >>> len(support.seen), len(support.tested)
    (35, 37)
    """

    start: SupportRule = field(default_factory=SupportRule)
    strategy: str = "random"
    budget: int = 10
    tested: float = 0.3
    chosen: tuple[int, ...] | None = None

    @property
    def version(self) -> int:
        """The version of the start's rule."""
        return self.start.version

    @property
    def rule(self) -> str:
        return f"{self.start.rule}, then {self.strategy}"

    @property
    def held_out(self) -> float:
        return self.start.held_out

    def check(self, space: Space) -> None:
        """Refuses what cannot be: an unknown strategy, or more than there is to collect."""
        self.start.check(space)
        if self.chosen is None and self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if not 0 < self.tested < 1:
            raise InvalidRequest(f"tested={self.tested}: expected a share above 0 and below 1")
        left = space.size - (self.start.seen_count(space) or 1) - self._asked(space)
        if not 0 <= self.budget <= left:
            raise InvalidRequest(
                f"budget={self.budget}: {left} combinations are neither in the start nor set "
                f"apart for testing; use budget={max(left, 0)} or less"
            )
        if self.chosen is not None and len(set(self.chosen)) != self.budget:
            raise InvalidRequest(
                f"chosen names {len(set(self.chosen))} combinations, expected {self.budget}"
            )

    def feasible(self, space: Space) -> str | None:
        """Why `check` would refuse, or None if it would not."""
        return refusal(self.check, space)

    def build(self, space: Space, seed: int) -> Support:
        """The support, the same for the same seed."""
        self.check(space)
        start, pool, tested = self.parts(space, seed)
        rng = np.random.default_rng(host_seed(seed, f"collected/{self.strategy}"))
        if self.chosen is not None:
            new = np.asarray(self.chosen, np.uint32)
            if strange := np.setdiff1d(new, pool).tolist():
                raise InvalidRequest(f"chosen: {strange[0]} is not among what may be collected")
        else:
            new = STRATEGIES[self.strategy](space, start, pool, self.budget, rng)
        known = np.isin(new, start.seen)
        return Support(
            space, np.union1d(start.seen, new[~known]), self.rule, start.groups,
            start.constructed, tuple(int(rank) for rank in new[known]), tested,
        )  # fmt: skip

    def parts(self, space: Space, seed: int) -> tuple[Support, Ranks, Ranks]:
        """The start, what may be collected, and what is set apart for testing."""
        start = self.start.build(space, seed)
        others = start.held_out
        order = np.random.default_rng(host_seed(seed, "collected/tested")).permutation(len(others))
        asked = min(self._asked(space), len(others) - self.budget)
        return start, np.sort(others[order[asked:]]), np.sort(others[order[:asked]])

    def _asked(self, space: Space) -> int:
        return int(self.tested * space.size)


def new_at_random(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator
) -> Ranks:
    """Any combinations."""
    return rng.choice(pool, budget, replace=False)


def more_of_the_same(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator
) -> Ranks:
    """As many rows as the others buy, all of combinations that are there already."""
    return rng.choice(start.seen, budget, replace=budget > len(start.seen))


def most_frequent(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator
) -> Ranks:
    """New combinations of what is common: the logarithms of their modules' usage are largest."""
    members = space.indicator(pool)
    common = np.log(np.maximum(start.usage, 0.5))
    score = members @ common / np.maximum(members.sum(axis=1), 1)
    return pool[np.lexsort((rng.random(len(pool)), -score))[:budget]]


def balanced(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator
) -> Ranks:
    """One after another the combination whose modules were used least so far."""

    def score(members: Indicator, usage: np.ndarray, met: np.ndarray) -> np.ndarray:
        return members @ (1.0 / (1.0 + usage)) / np.maximum(members.sum(axis=1), 1)

    return _greedy(space, start, pool, budget, rng, score)


def pairwise(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator
) -> Ranks:
    """One after another the combination that shows most pairs never shown."""

    def score(members: Indicator, usage: np.ndarray, met: np.ndarray) -> np.ndarray:
        return _new_pairs(members, met)

    return _greedy(space, start, pool, budget, rng, score)


def cover_connect_balance(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator
) -> Ranks:
    """The goals of `recombine collect` in order: join what is apart, new pairs, rare modules.

    Each decides only where those before it leave a tie. It scans the pool, from which alone a study
    may collect; the command plans over all that the rules allow, and weighs its goals.
    """

    def score(members: Indicator, usage: np.ndarray, met: np.ndarray) -> np.ndarray:
        from recombine.supports.support import component_labels

        labels = component_labels(met)
        apart = np.stack([members[:, labels == n].any(axis=1) for n in range(labels.max() + 1)])
        rare = members @ (1.0 / (1.0 + usage)) / np.maximum(members.sum(axis=1), 1)
        most = members.shape[1] ** 2
        return most * apart.sum(axis=0) + _new_pairs(members, met) + 0.5 * rare

    return _greedy(space, start, pool, budget, rng, score)


def _new_pairs(members: Indicator, met: np.ndarray) -> np.ndarray:
    ones = members.astype(np.float64)
    never = np.triu(~met, 1).astype(np.float64)
    return np.einsum("nm,nm->n", ones @ never, ones)


Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _greedy(
    space: Space, start: Support, pool: Ranks, budget: int, rng: np.random.Generator, score: Score
) -> Ranks:
    """The best of the pool under a score that changes with what was taken; ties are drawn."""
    order = rng.permutation(len(pool))
    members, left = space.indicator(pool[order]), np.ones(len(pool), bool)
    usage, met = start.usage.astype(float), start.together > 0
    taken = []
    for _ in range(budget):
        found = np.where(left, score(members, usage, met), -np.inf)
        best = int(np.argmax(found))
        taken.append(best)
        left[best] = False
        usage = usage + members[best]
        met = met | np.outer(members[best], members[best])
    return pool[order[taken]]


STRATEGIES: dict[str, Callable[..., Ranks]] = {
    "random": new_at_random,
    "more of the same": more_of_the_same,
    "most frequent": most_frequent,
    "balanced": balanced,
    "pairwise": pairwise,
    "collect": cover_connect_balance,
}
"""Ways to choose what to collect; a network's uncertainty is another, chosen after it trained."""
