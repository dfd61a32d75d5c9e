"""What to collect next: the whole way from rows and rules to a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from recombine.collecting import exact
from recombine.collecting.bounds import most_covered
from recombine.collecting.covering import WORK, fewest, shrunk
from recombine.collecting.goals import Goals, Space
from recombine.collecting.greedy import all_combinations, constructed, scanned
from recombine.collecting.needs import interactions, needs
from recombine.collecting.permits import Permits
from recombine.collecting.plans import Gain, Plan
from recombine.collecting.problem import Problem, State, value_graph
from recombine.errors import InvalidRequest
from recombine.seeds import host_seed
from recombine.tables.rows import Rows, aligned
from recombine.tables.rules import Rules

MOST_NEW = 20_000  # combinations in a plan without a budget
SLACK = 1.25  # how far past its budget a plan is followed, as it may shrink


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Combinations, and what is known about how good they are."""

    matrix: Int[np.ndarray, "row place"]
    exact: bool
    scanned: Int[np.ndarray, "row place"] | None


def collect(
    rows: Rows | None,
    space: Space,
    rules: Rules | None = None,
    budget: int | None = 50,
    *,
    strength: int = 2,
    groups: Mapping[tuple[str, ...], int] | None = None,
    per_combination: int = 1,
    min_count: int = 1,
    costs: Mapping[str, Mapping[str, float]] | None = None,
    target: Rows | None = None,
    target_weight: str | None = None,
    goals: Goals = Goals(),  # noqa: B008 (frozen)
    seed: int = 0,
    work: float = WORK,
) -> Plan:
    """New combinations that cover, connect and balance what `rows` hold.

    `budget` is what may be spent: an ordinary row costs 1, and `costs` adds to that for rows with
    certain values. Without a budget everything is covered. `groups` asks for another strength
    within some factors; each new combination gets `per_combination` rows (or a multiple, where an
    interaction needs more), and an interaction is covered from `min_count` rows on. With a
    `target` interactions count by their traffic there (rows weighted by the column
    `target_weight`).

    >>> space = Space(("a", "b", "c"), (("x", "y"),) * 3)
    >>> plan = collect(None, space, budget=10)
    >>> len(plan), plan.complete, plan.exact
    (4, True, True)
    """
    for name, value in (("rows per combination", per_combination), ("least count", min_count)):
        if value < 1:
            raise InvalidRequest(f"{name} is {value}: expected a number of at least 1")
    if budget is not None and budget < 1:
        raise InvalidRequest(f"a budget of {budget} buys nothing: expected at least 1")
    if rules is None:
        many = [space.names.index(name) for name in space.lists]
        rules = Rules.none(space.names, space.values, many)
    notes = list(rules.check())
    rows = _in_space(rows, space, "the file")
    target = _in_space(target, space, "the target")
    permits = Permits(space, rules)
    found = interactions(space, strength, groups)
    traffic = _traffic(target, target_weight)
    lacking = needs(
        found, permits, rows, min_count=min_count, target=target, target_weights=traffic
    )
    if target is not None and not lacking.possible:
        raise InvalidRequest(
            "no interaction of the target can occur under these rules and values: look at the "
            "rules, or leave the target out"
        )
    if min_count > per_combination:
        notes.append(
            f"An interaction needs {min_count} rows and a combination brings {per_combination}: "
            "values count as connected from one row on."
        )
    at_least = min_count if min_count <= per_combination else 1
    labels, usage = value_graph(space, permits, rows, at_least)
    problem = Problem(
        space, permits, lacking, labels, usage, space.node_costs(costs or {}), goals,
        np.inf if budget is None else float(budget), per_combination,
    )  # fmt: skip
    chosen = _chosen(problem, seed, work)
    matrix, gains = _in_order(problem, chosen.matrix)
    at_most = most_covered(problem, matrix, chosen.scanned, min_count)
    words = ", ".join([str(strength), *(f"{','.join(n)}={t}" for n, t in (groups or {}).items())])
    return Plan(
        space, matrix, tuple(gains), lacking.possible, words, per_combination, budget,
        chosen.exact, _bound(problem, chosen, gains, at_most), at_most, goals,
        tuple(rules.texts), tuple(notes), "" if rows is None else rows.source, target is not None,
    )  # fmt: skip


def _in_space(table: Rows | None, space: Space, what: str) -> Rows | None:
    """The rows coded as the space is; a value the space lacks is refused."""
    if table is None or not len(table):
        return None
    empty = space.as_rows(np.zeros((0, len(space.places)), np.int64), "the space")
    found = aligned(empty, table)[1]
    for factor, values in zip(found.factors, space.values, strict=True):
        if len(factor.values) > len(values):
            raise InvalidRequest(
                f"{what} has the value {factor.values[len(values)]!r} of {factor.name}, which is "
                "not in the space: add it to the values"
            )
    return found


def _traffic(target: Rows | None, name: str | None) -> Float[np.ndarray, "row"] | None:
    if target is None or name is None:
        return None
    weights = target.column(name)
    if weights.dtype.kind not in "fiu" or not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InvalidRequest(
            f"the weights in column {name!r} of the target must be numbers of at least 0"
        )
    return weights.astype(float)


def _chosen(problem: Problem, seed: int, work: float) -> _Chosen:
    everything = all_combinations(problem)
    generator = np.random.default_rng(host_seed(seed, "collect"))
    plain = _greedy(problem, everything, generator, work)
    if _least(problem, plain):
        return _Chosen(plain, True, everything)
    if not exact.small(problem, everything):
        return _Chosen(plain, False, everything)
    assert everything is not None
    cheapest = float(problem.costs(everything).min())
    cap = len(plain) if _done(problem, plain) else max(1, int(problem.budget / cheapest + 1e-9))
    best = exact.best(problem, everything, cap)
    if best is None or not (best.proven or _better(problem, best.matrix, plain)):
        return _Chosen(plain, False, everything)
    return _Chosen(best.matrix, best.proven, everything)


def _greedy(
    problem: Problem, everything: np.ndarray | None, generator: np.random.Generator, work: float
) -> Int[np.ndarray, "row place"]:
    """The best of what the greedy ways find, in as few rows as they find."""
    found = []
    if everything is not None:
        found.append(_stacked(problem, scanned(problem, everything, generator)))
    if not (problem.node_costs > 0).any():
        found.append(_shortened(problem, generator, work))
    else:
        found.append(_stacked(problem, constructed(problem, generator, MOST_NEW)))
        # By gain per cost alone, a dear combination that is worth its price can be missed.
        if everything is not None and len(
            alone := everything[problem.costs(everything) <= problem.budget]
        ):
            found.append(alone[State(problem).gains(alone).argmax()][None])
    best = found[0]
    for other in found[1:]:
        best = other if _better(problem, other, best) else best
    return best


def _shortened(
    problem: Problem, generator: np.random.Generator, work: float
) -> Int[np.ndarray, "row place"]:
    """A plan made value by value; if it brings everything, as few of its rows as do."""
    # Past the budget, in case what covers everything there can be made to fit.
    wide = replace(problem, budget=SLACK * problem.budget)
    found = _stacked(problem, constructed(wide, generator, MOST_NEW))
    if _done(problem, found):
        short = shrunk(problem, found, generator, work)
        found = short if _done(problem, short) else found
    if np.isfinite(problem.budget):
        found = found[: int(problem.budget // problem.per_combination)]
    return found


def _stacked(problem: Problem, lines: Iterable[np.ndarray]) -> Int[np.ndarray, "row place"]:
    return np.array(list(lines), np.int64).reshape(-1, len(problem.space.places))


def _played(problem: Problem, matrix: np.ndarray) -> tuple[float, bool]:
    """What a plan is worth, all goals together, and whether nothing is left of them."""
    state, total = State(problem), 0.0
    for line in matrix:
        total += float(state.gains(line[None])[0])
        state.add(line)
    return total, state.done


def _done(problem: Problem, matrix: np.ndarray) -> bool:
    return _played(problem, matrix)[1]


def _better(problem: Problem, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the first plan beats the second: worth more, or everything for less."""
    (worth, done), (worth_other, done_other) = _played(problem, one), _played(problem, other)
    if done and done_other:
        return float(problem.costs(one).sum()) < float(problem.costs(other).sum()) - 1e-9
    return done or (not done_other and worth > worth_other + 1e-12)


def _least(problem: Problem, matrix: np.ndarray) -> bool:
    """Whether a plan brings everything in a number of rows below which nothing does."""
    if (problem.node_costs > 0).any() or not problem.weights()["cover"]:
        return False
    return _done(problem, matrix) and len(matrix) == fewest(problem)


def _in_order(problem: Problem, matrix: np.ndarray) -> tuple[np.ndarray, list[Gain]]:
    """The combinations with those that bring most first, and how things stand after each.

    One that is taken several times stands there once, with all its rows. Those at the end that
    would only balance are left out, as after everything is covered, unless balance alone is asked.
    """
    taken = Counter(problem.key(line) for line in matrix)
    first = {problem.key(line): n for n, line in reversed(list(enumerate(matrix)))}
    matrix = matrix[sorted(first.values())]
    times = [min(problem.repeats, taken[problem.key(line)]) for line in matrix]
    state, left, order = State(problem), list(range(len(matrix))), []
    costs = problem.costs(matrix) if len(matrix) else np.zeros(0)
    cells = problem.needs.interactions.cells(matrix)

    def now(spent: float) -> Gain:
        rows = sum(times[n] for n in order) * problem.per_combination
        return Gain(len(order), rows, spent, state.covered, state.share, state.parts,
                    state.balance)  # fmt: skip

    gains, spent, needed = [now(0.0)], 0.0, 0
    while left:
        worth = state.gains(matrix[left], cells[left]) / costs[left]
        pick = left.pop(int(worth.argmax()))
        order.append(pick)
        if problem.goals.asked == ("balance",) or state.news(matrix[[pick]], cells[[pick]])[0] > 0:
            needed = len(order)
        spent += float(costs[pick]) * times[pick]
        for _ in range(times[pick]):
            state.add(matrix[pick])
        gains.append(now(spent))
    order, gains = order[:needed], gains[: needed + 1]
    return problem.space.as_rows(matrix[order], "the plan").matrix(), gains


def _bound(problem: Problem, chosen: _Chosen, gains: list[Gain], at_most: float) -> str:
    """What is known about how good the plan is, in words."""
    if chosen.exact:
        cheaper = "at a lower cost" if (problem.node_costs > 0).any() else "in fewer rows"
        if _done(problem, chosen.matrix):
            return f"This is exact: no plan brings all of it {cheaper}."
        left_out = gains[-1].combinations < len({problem.key(line) for line in chosen.matrix})
        apart = "; what would only balance is left out" if left_out else ""
        return f"This is exact: no plan within the budget is worth more{apart}."
    if _done(problem, chosen.matrix):
        return (
            f"Everything asked for is covered. At least {fewest(problem)} combinations are needed "
            f"for that; this plan has {gains[-1].rows // problem.per_combination}."
        )
    text = f"No plan within the budget covers more than {at_most:.1%}; this one covers "
    text += f"{gains[-1].share:.1%}."
    if chosen.scanned is None:
        return (
            "Combinations were made value by value, not all looked at, so no share of the best is "
            f"guaranteed. {text}"
        )
    share = (1 - np.exp(-1)) / (2 if (problem.node_costs > 0).any() else 1)
    return (
        "Every combination was looked at for each row: what the goals gain is at least "
        f"{share:.0%} of the most possible. {text}"
    )
