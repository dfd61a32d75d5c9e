"""The request for a support: a rule by name, how much it holds out, and whether that can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recombine._lazy import load
from recombine.checks import at_least
from recombine.combinations import Slots, Space, Subsets, subset_count
from recombine.errors import InvalidRequest, unknown
from recombine.supports import REGISTRY
from recombine.supports.drawing import Rule
from recombine.supports.support import Support


def _reference(space: Space) -> int:
    """Three quarters of the combinations of 16 modules, the size that scaled counts start from."""
    return 3 * subset_count(16, min(space.active, 16)) // 4


LAWS: dict[str, Callable[[Space], int]] = {
    "constant": _reference,
    "linear": lambda space: _reference(space) * space.modules // 16,
    "quadratic": lambda space: _reference(space) * space.modules**2 // 256,
    "linear-pure": lambda space: space.modules,
    "linear-modules": lambda space: 8 * space.modules,
    "linear-modules-active": lambda space: 8 * space.modules * space.active,
    "quadratic-modules": lambda space: space.modules**2,
    "quadratic-modules-active": lambda space: space.modules**2 * space.active,
}
"""How many combinations are seen, as a function of the numbers of modules."""


def refusal(check: Callable[[Space], None], space: Space) -> str | None:
    """Why a check would refuse, or None if it would not."""
    try:
        check(space)
    except InvalidRequest as refused:
        return str(refused)
    return None


@dataclass(frozen=True)
class SupportRule:
    """Which combinations training sees: a rule by name, its held-out share, and its options.

    `count`, or `law` (a name in `LAWS`), fixes the number of seen combinations instead of the
    share; 'fixed-size' needs one of them, 'balanced' takes one. 'held-out-pairs' and 'few-changed'
    come as near to the share as whole pairs and whole numbers of changes can.

    >>> support = SupportRule("random", held_out=0.25).build(Subsets(16, 3), seed=0)
    >>> len(support.seen), len(support.held_out), support.connected
    (522, 174, True)
    """

    rule: str = "random"
    held_out: float = 0.25
    count: int | None = None
    law: str | None = None

    def seen_count(self, space: Space) -> int | None:
        """How many combinations training will see; None where the rule's own shape decides."""
        return self._asked(space) if self._rule(space).exact else None

    @property
    def version(self) -> int:
        """The version of the rule: another draw is another support."""
        return load(REGISTRY[self.rule]).version if self.rule in REGISTRY else 1

    def check(self, space: Space) -> None:
        """Refuses what cannot be, before any work, with the reason and the nearest that can."""
        rule = self._rule(space)
        self._check_options(rule, space)
        limits = rule.limits(space, self.held_out)
        count = self._asked(space)
        if count is None:
            return
        most = space.size - 1 if limits.most is None else limits.most
        if limits.least > most:
            slots = isinstance(space, Slots)
            raise InvalidRequest(
                f"rule {self.rule!r} leaves nothing held out of {space.size} combinations: "
                f"{limits.why_least}; use more "
                f"{'values, or more factors' if slots else 'modules, or more at a time'}"
            )
        if not limits.least <= count <= most:
            few = count < limits.least
            bound = limits.least if few else most
            given, instead = self._wording(space, count, bound, few)
            raise InvalidRequest(
                f"{given}; {limits.why_least if few else limits.why_most}: use {instead}"
            )

    def feasible(self, space: Space) -> str | None:
        """Why `check` would refuse, or None if it would not.

        >>> print(SupportRule(held_out=0.99).feasible(Subsets(16, 3)))
        held-out 0.99 of 696 combinations leaves 7; connecting 16 modules with at most 3 at a \
time needs at least 8: use held-out 0.989 or less
        """
        return refusal(self.check, space)

    def build(self, space: Space, seed: int) -> Support:
        """The support, the same for the same seed."""
        self.check(space)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InvalidRequest(f"seed={seed!r}: expected a whole number of 0 or more")
        rng = np.random.Generator(np.random.Philox(key=int(seed)))
        draw = self._rule(space).draw(space, self.held_out, self._asked(space) or 0, rng)
        return Support(space, np.sort(draw.seen), self.rule, draw.groups, draw.constructed)

    def _rule(self, space: Space) -> Rule:
        if self.rule not in REGISTRY:
            raise unknown("support rule", str(self.rule), REGISTRY)
        return load(REGISTRY[self.rule]).on(space)

    def _asked(self, space: Space) -> int | None:
        """How many combinations the request would let training see, where it says so."""
        rule = self._rule(space)
        if self.law is not None:
            return LAWS[self.law](space)
        if self.count is not None:
            return self.count
        return rule.count(space, self.held_out) if rule.by_share else None

    def _check_options(self, rule: Rule, space: Space) -> None:
        share = self.held_out
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise InvalidRequest(
                f"held_out={share!r}: expected the share of combinations to hold out, above 0 and "
                f"below 1, such as 0.25"
            )
        if self.count is None and self.law is None:
            if not rule.by_share and rule.by_count:
                raise InvalidRequest(
                    f"rule {self.rule!r} needs the number of seen combinations: give count=100 or "
                    f"law='linear-modules'"
                )
            return
        if not rule.by_count:
            name = "law" if self.count is None else "count"
            raise InvalidRequest(
                f"rule {self.rule!r} takes no {name}; use rule 'fixed-size' or 'balanced'"
            )
        if self.count is not None and self.law is not None:
            raise InvalidRequest(f"count={self.count} and law={self.law!r}: give only one of them")
        if self.law is not None:
            if self.law not in LAWS:
                raise unknown("law", self.law, LAWS)
            if self.law in ("constant", "linear", "quadratic") and not isinstance(space, Subsets):
                raise InvalidRequest(
                    f"law {self.law!r} counts subsets of 16 modules; for slots use "
                    f"'linear-modules' or give count"
                )
        else:
            at_least(self, count=1)

    def _wording(self, space: Space, count: int, bound: int, few: bool) -> tuple[str, str]:
        """What was asked, and the nearest that can be had, as a share or as a count."""
        size = space.size
        if self.count is not None or self.law is not None:
            asked = f"count={count}" if self.law is None else f"law {self.law!r} ({count} seen)"
            given = f"{asked} of {size} combinations leaves {max(size - count, 0)} held out"
            return given, f"count={bound} or {'more' if few else 'less'}"
        given = f"held-out {self.held_out} of {size} combinations leaves {count}"
        # With as many digits as the size has, some short share comes to exactly the bound.
        digits = max(3, len(str(size)))
        start = math.floor((size - bound) / size * 10**digits)
        shares = [round(start / 10**digits + n / 10**digits, digits) for n in range(4)]
        rule = self._rule(space)
        share = next((f for f in shares if rule.count(space, f) == bound), shares[0 if few else 1])
        return given, f"held-out {share} or {'less' if few else 'more'}"
