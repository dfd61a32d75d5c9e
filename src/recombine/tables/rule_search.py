"""Whether anything is left that no box forbids."""

from __future__ import annotations

from collections.abc import Sequence

from recombine.errors import InvalidRequest
from recombine.tables.rule_boxes import Variable

Clause = dict[Variable, int]
"""A box as bit masks: it is escaped by a variable whose value is not among the bits."""

MOST_STEPS = 100_000


def satisfiable(clauses: Sequence[Clause], domains: dict[Variable, int]) -> bool:
    """Whether values can be chosen from the domains so that every box is escaped somewhere."""
    waiting, steps = [(list(clauses), domains)], 0
    while waiting:
        steps += 1
        if steps > MOST_STEPS:
            raise InvalidRequest(
                f"the rules are too tangled to tell what they imply ({len(clauses)} boxes, "
                f"{MOST_STEPS} steps): state fewer, or state what follows from them outright"
            )
        left = _propagated(*waiting.pop())
        if left is None:
            continue
        open_clauses, domains = left
        if not open_clauses:
            return True
        # Either the first factor of this box escapes it, or it does not and another one must.
        clause = min(open_clauses, key=len)
        variable, mask = next(iter(clause.items()))
        waiting.append((open_clauses, domains | {variable: domains[variable] & mask}))
        waiting.append((open_clauses, domains | {variable: domains[variable] & ~mask}))
    return False


def _propagated(
    clauses: list[Clause], domains: dict[Variable, int]
) -> tuple[list[Clause], dict[Variable, int]] | None:
    """The boxes still open, each with the factors that may escape it; None if one cannot be."""
    domains, changed = dict(domains), True
    if not all(domains.values()):
        return None
    while changed:
        changed, still = False, []
        for clause in clauses:
            if any(not domains[variable] & mask for variable, mask in clause.items()):
                continue
            escapes = {v: mask for v, mask in clause.items() if domains[v] & ~mask}
            if not escapes:
                return None
            if len(escapes) == 1:
                ((variable, mask),) = escapes.items()
                domains[variable] &= ~mask
                changed = True
            else:
                still.append(escapes)
        clauses = still
    return clauses, domains
