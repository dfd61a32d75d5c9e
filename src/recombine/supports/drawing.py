"""Drawing combinations at random until they connect all modules, or building such a set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Int, UInt32

from recombine.combinations import Slots, Space, Subsets, blocks
from recombine.errors import InvalidRequest
from recombine.supports.support import co_occurrence, component_labels

REDRAWS = 1000

FOR_SLOTS = (
    "random",
    "fixed-size",
    "balanced",
    "popular",
    "unpopular",
    "disconnected",
    "non-compositional",
    "held-out-pairs",
    "correlated",
    "few-changed",
)
"""The rules that can split tasks of one value per factor; the others need subsets."""


@dataclass(frozen=True)
class Draw:
    """What a rule chose: seen ranks in any order, the side of each module, whether built up."""

    seen: UInt32[np.ndarray, " seen"]
    groups: Bool[np.ndarray, " modules"] | None = None
    constructed: bool = False


@dataclass(frozen=True)
class Limits:
    """How many combinations a rule can let training see, and why no fewer and no more."""

    least: int = 1
    most: int | None = None  # None: all but one
    why_least: str = "training must see something"
    why_most: str = "something must be held out"


class DrawRule(Protocol):
    def __call__(
        self, space: Space, held_out: float, count: int, rng: np.random.Generator
    ) -> Draw: ...


def left(space: Space, held_out: float) -> int:
    """How many combinations are seen when this share is held out."""
    return space.size - int(space.size * held_out)


@dataclass(frozen=True)
class Rule:
    """One way to split a space: how it draws, when it can, and what it promises.

    `count` says how many combinations a held-out share leaves; `draw` gets both. `limits` raises
    InvalidRequest where the rule does not apply to the space at all. `slots` is the rule for one
    value per factor, where that is another.
    """

    draw: DrawRule
    limits: Callable[[Space, float], Limits]
    connected: bool = True
    covered: bool = True
    random: bool = True  # two seeds differ
    by_share: bool = True  # the held-out share decides how many are seen
    by_count: bool = False  # `count` or `law` may decide it instead
    count: Callable[[Space, float], int] = left
    exact: bool = True  # False: the share is met as nearly as the rule's shape allows
    version: int = 1  # of what it draws; part of the identity of every cell that uses it
    slots: Rule | None = None

    def on(self, space: Space) -> Rule:
        """The rule for this kind of space."""
        return self if self.slots is None or not isinstance(space, Slots) else self.slots


def choose(total: int, count: int, rng: np.random.Generator) -> UInt32[np.ndarray, " count"]:
    """A uniform draw of `count` of the first `total` ranks, ascending."""
    if 2 * count <= total:
        return np.sort(rng.choice(total, count, replace=False, shuffle=False)).astype(np.uint32)
    kept = np.ones(total, bool)
    kept[rng.choice(total, total - count, replace=False, shuffle=False)] = False
    return np.flatnonzero(kept).astype(np.uint32)


def choose_besides(
    taken: UInt32[np.ndarray, " taken"], total: int, count: int, rng: np.random.Generator
) -> UInt32[np.ndarray, " count"]:
    """`taken` (without repeats), and others drawn uniformly up to `count` in all."""
    taken = np.sort(taken).astype(np.int64)
    free = choose(total - len(taken), count - len(taken), rng).astype(np.int64)
    # The n-th free rank is n plus the number of taken ranks at or before it.
    free += np.searchsorted(taken - np.arange(len(taken)), free, side="right")
    return np.concatenate([taken, free]).astype(np.uint32)


def connects(space: Space, ranks: UInt32[np.ndarray, " n"]) -> bool:
    """Whether these combinations use all modules and link them into one component."""
    return _holds(space, ranks, lambda met: bool(component_labels(met).max() == 0))


def covers(space: Space, ranks: UInt32[np.ndarray, " n"]) -> bool:
    """Whether these combinations use all modules."""
    return _holds(space, ranks, lambda met: True)


def redraw(
    draw: Callable[[], UInt32[np.ndarray, " n"]],
    good: Callable[[UInt32[np.ndarray, " n"]], bool],
    build: Callable[[], UInt32[np.ndarray, " n"]],
    tries: int = REDRAWS,
) -> tuple[UInt32[np.ndarray, " n"], bool]:
    """The first good draw and False, or after `tries` of them a built-up set and True."""
    for _ in range(tries):
        ranks = draw()
        if good(ranks):
            return ranks, False
    return build(), True


def draw_from(
    pool: UInt32[np.ndarray, " pool"],
    count: int,
    rng: np.random.Generator,
    good: Callable[[UInt32[np.ndarray, " count"]], bool],
    needed: Callable[[], UInt32[np.ndarray, " needed"]],
) -> tuple[UInt32[np.ndarray, " count"], bool]:
    """`count` of an ascending pool that are good, and whether they were built up.

    What is built up is `needed`, and others of the pool at random.
    """

    def build() -> UInt32[np.ndarray, " count"]:
        places = np.searchsorted(pool, needed()).astype(np.uint32)
        return pool[choose_besides(places, len(pool), count, rng)]

    return redraw(lambda: pool[choose(len(pool), count, rng)], good, build)


def connecting_limits(space: Space) -> Limits:
    """What every rule needs that promises a connected support."""
    fewest, slots = space.fewest_connected, isinstance(space, Slots)
    if fewest is None and slots:
        raise InvalidRequest(
            f"one factor alone cannot connect its {space.modules} values: use two factors or more"
        )
    if fewest is None:
        raise InvalidRequest(
            f"one module at a time cannot connect {space.modules} modules: use active=2 or more"
        )
    what = (
        f"{space.modules} values of {space.active} factors"
        if slots
        else f"{space.modules} modules with at most {space.active} at a time"
    )
    return Limits(fewest, why_least=f"connecting {what} needs at least {fewest}")


def subsets_only(space: Space, rule: str) -> Subsets:
    """The space as `Subsets`, for a rule that only makes sense there."""
    if not isinstance(space, Subsets):
        *names, last = (repr(name) for name in FOR_SLOTS)
        raise InvalidRequest(
            f"rule {rule!r} needs subsets of modules; for slots use {', '.join(names)} or {last}"
        )
    if space.active == 1:
        raise InvalidRequest(
            f"rule {rule!r} needs combinations of two modules or more; use active=2 or more"
        )
    return space


def among(
    space: Subsets, modules: Int[np.ndarray, " m"], besides: tuple[int, ...] = ()
) -> UInt32[np.ndarray, " n"]:
    """The ranks of all combinations of these modules, each joined by all of `besides`."""
    alone = [space.rank([besides])] if besides else []
    active = min(space.active - len(besides), len(modules))
    if active < 1:
        return np.concatenate([np.empty(0, np.uint32), *alone])
    inner = Subsets(len(modules), active)
    numbers = np.append(modules, -1).astype(np.int32)  # the padding -1 stays -1
    ranks = [*alone]
    for block in blocks(inner.size):
        chosen = numbers[inner.unrank(np.arange(block.start, block.stop))]
        joined = np.broadcast_to(np.asarray(besides, np.int32), (len(chosen), len(besides)))
        ranks.append(space.rank(np.concatenate([chosen, joined], axis=1)))
    return np.concatenate(ranks)


def random_blocks(
    modules: Int[np.ndarray, " m"], width: int, rng: np.random.Generator
) -> Int[np.ndarray, "blocks width"]:
    """The modules in random order, cut into rows of `width` padded with -1."""
    padding = -len(modules) % width
    return np.pad(rng.permutation(modules), (0, padding), constant_values=-1).reshape(-1, width)


def _draw_random(space: Space, held_out: float, count: int, rng: np.random.Generator) -> Draw:
    """Uniform among the connected sets, unless these are too rare to meet by drawing."""
    seen, constructed = redraw(
        lambda: choose(space.size, count, rng),
        lambda ranks: connects(space, ranks),
        lambda: choose_besides(space.spanning(rng), space.size, count, rng),
    )
    return Draw(seen, constructed=constructed)


def _holds(
    space: Space,
    ranks: UInt32[np.ndarray, " n"],
    test: Callable[[Bool[np.ndarray, "modules modules"]], bool],
) -> bool:
    """Whether all modules are used and `test` passes; more combinations never undo either.

    Looks at interleaved parts and stops as soon as it knows, which for millions of combinations
    is nearly always after the first.
    """
    met = np.zeros((space.modules, space.modules), bool)
    parts = max(1, len(ranks) // 4096)
    for start in range(parts):
        met |= co_occurrence(space, ranks[start::parts]) > 0
        if bool(np.all(np.diagonal(met))) and test(met):
            return True
    return False


def _limits(space: Space, held_out: float) -> Limits:
    return connecting_limits(space)


RANDOM = Rule(_draw_random, _limits)
FIXED_SIZE = Rule(_draw_random, _limits, by_share=False, by_count=True)
