"""Combinations one after another, each the best that can be found at its turn."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from recombine.collecting.problem import Problem, State
from recombine.tables.rows import NONE

MOST_SCANNED = 50_000  # combinations
MOST_SCANNED_CELLS = 4_000_000
ORDERS, EACH = 6, 12  # orders of places tried for a row, candidates made in each


def all_combinations(problem: Problem) -> Int[np.ndarray, "row place"] | None:
    """Every permitted combination, or None where there are too many to look at each."""
    space = problem.space
    most = min(MOST_SCANNED, MOST_SCANNED_CELLS // len(problem.needs.interactions.chosen))
    parts, total = [], 1
    for factor, (name, size) in enumerate(zip(space.names, space.sizes, strict=True)):
        start, longest = space.first_node[factor], space.lists.get(name, 1)
        codes = [c for c in range(size) if space.can_collect[start + c]]
        # A shorter list covers less, and is of use only where it costs less or breaks no rule.
        ruled = problem.permits.ruled[space.places == factor].any()
        free = not ruled and not problem.node_costs[start : start + size].any()
        lengths = [min(longest, len(codes))] if free else list(range(1, longest + 1))
        total *= sum(math.comb(len(codes), length) for length in lengths)
        if total > most:
            return None
        parts.append(
            [
                (*part, *[NONE] * (longest - length))
                for length in lengths
                for part in itertools.combinations(codes, length)
            ]
        )
    lines = [tuple(itertools.chain(*line)) for line in itertools.product(*parts)]
    matrix = np.array(lines, np.int64).reshape(-1, len(space.places))
    return matrix[problem.permits.rows(matrix)]


def scanned(
    problem: Problem, matrix: Int[np.ndarray, "row place"], generator: np.random.Generator
) -> Iterator[Int[np.ndarray, "place"]]:
    """The best of all combinations, again and again, for as long as one adds something."""
    state, spent = State(problem), 0.0
    times, repeats = np.zeros(len(matrix), np.int64), problem.repeats
    cells, costs = problem.needs.interactions.cells(matrix), problem.costs(matrix)
    while not state.done:
        may = (costs <= problem.budget - spent) & (times < repeats)
        gains = np.where(may, state.gains(matrix, cells), 0) / costs
        if not len(gains) or gains.max() <= 0:
            return
        best = np.flatnonzero(gains >= gains.max() * (1 - 1e-12))
        pick = int(generator.choice(best))
        spent += costs[pick]
        times[pick] += 1
        state.add(matrix[pick])
        yield matrix[pick]


def constructed(
    problem: Problem, generator: np.random.Generator, most_rows: int
) -> Iterator[Int[np.ndarray, "place"]]:
    """Combinations made place by place, the best of some dozens at each turn."""
    state, spent, rate = State(problem), 0.0, 0.0
    times, repeats = Counter[bytes](), problem.repeats
    for _ in range(most_rows):
        if state.done:
            return
        matrix = _candidates(state, generator, rate)
        costs = problem.costs(matrix)
        new = np.array([times[problem.key(line)] < repeats for line in matrix], bool)
        may = (costs <= problem.budget - spent) & new
        gains = np.where(may, state.gains(matrix), 0) / costs
        if not len(gains) or gains.max() <= 0:
            return
        rate, pick = float(gains.max()), int(gains.argmax())
        spent += costs[pick]
        times[problem.key(matrix[pick])] += 1
        state.add(matrix[pick])
        yield matrix[pick]


def _candidates(
    state: State, generator: np.random.Generator, rate: float
) -> Int[np.ndarray, "row place"]:
    problem = state.problem
    inter = problem.needs.interactions
    open_cells = np.flatnonzero(state.worth > 0)
    found = []
    for _ in range(ORDERS):
        start = np.full((EACH, len(problem.space.places)), NONE)
        order = generator.permutation(len(problem.space.places))
        if len(open_cells):
            choice = _choice_of(state, int(generator.choice(open_cells)), generator)
            first, start = _started(state, choice, start, generator)
            order = np.concatenate([first, order[~np.isin(order, first)]])
        made = _filled(state, start, order, generator, rate)
        found.append(made[problem.permits.rows(made) & _full(problem, made)])
    matrix = np.concatenate(found)
    if len(matrix):
        best = np.argsort(-state.gains(matrix))[: 2 * EACH]
        return np.concatenate([matrix[best], _climbed(state, matrix[best], generator, rate)])
    # Every candidate ran into a rule: go back and forth from one cell that is possible.
    for cell in generator.permutation(open_cells)[:50]:
        choice = _choice_of(state, int(cell), generator)
        line = np.full(len(problem.space.places), NONE)
        places = inter.chosen[choice][inter.chosen[choice] < len(line)]
        line[places] = inter.codes(choice, np.array([cell]))[0]
        done = problem.permits.complete(
            line, generator.permutation(len(line)), state.liking() + generator.random() * 1e-12
        )
        if done is not None:
            return done[None]
    return matrix


def _choice_of(state: State, cell: int, generator: np.random.Generator) -> int:
    """A choice of places whose table holds the cell."""
    inter = state.problem.needs.interactions
    table = np.searchsorted(np.array(inter.starts), cell, side="right") - 1
    return int(generator.choice(np.flatnonzero(inter.table_of == table)))


def _started(
    state: State, choice: int, start: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Candidates that begin with interactions, still to be covered, of one choice of places."""
    inter = state.problem.needs.interactions
    table = inter.table_of[choice]
    end = inter.starts[table + 1] if table + 1 < len(inter.starts) else inter.size - 1
    cells = inter.starts[table] + np.flatnonzero(state.worth[inter.starts[table] : end] > 0)
    places = inter.chosen[choice][inter.chosen[choice] < start.shape[1]]
    start[:, places] = inter.codes(choice, generator.choice(cells, len(start)))
    return places, start


def _full(problem: Problem, matrix: np.ndarray) -> np.ndarray:
    """Which candidates have a value for every factor (a list may be short)."""
    held = [(matrix[:, problem.space.places == f] != NONE).any(1) for f in
            range(len(problem.space.names))]  # fmt: skip
    return np.all(held, axis=0)


def _value_gains(
    state: State, matrix: np.ndarray, place: int, which: np.ndarray
) -> Float[np.ndarray, "row value"]:
    """What each value at the place would cover in some choices of places."""
    inter = state.problem.needs.interactions
    size = state.problem.space.sizes[state.problem.space.places[place]]
    if not len(which):
        return np.zeros((len(matrix), size))
    padded = np.concatenate([matrix, np.zeros((len(matrix), 1), matrix.dtype)], axis=1)
    padded[:, place] = 0
    chosen, strides = inter.chosen[which], inter.strides[which]
    index = np.broadcast_to(inter.base[which], (len(matrix), len(which))).copy()
    empty = np.zeros(index.shape, bool)
    for i in range(chosen.shape[1]):
        codes = padded[:, chosen[:, i]]
        index += codes * strides[:, i]
        empty |= codes == NONE
    step = np.where(chosen == place, strides, 0).sum(1)
    cells = index[:, None, :] + np.arange(size)[None, :, None] * step[None, None, :]
    cells = np.where(empty[:, None, :], inter.size - 1, cells)
    if inter.canon is not None:
        cells = inter.canon[cells]
    return state.worth[cells].sum(2)


def _scores(
    state: State, matrix: np.ndarray, place: int, which: np.ndarray, rate: float
) -> Float[np.ndarray, "row value"]:
    """How good each permitted value at the place is; -inf for one that is not permitted."""
    problem, space = state.problem, state.problem.space
    factor = int(space.places[place])
    nodes = space.first_node[factor] + np.arange(space.sizes[factor])
    score = _value_gains(state, matrix, place, which) + state.liking()[nodes]
    if state.unit["connect"] and state.parts > 1:
        others = np.delete(matrix, place, axis=1)
        numbers = np.delete(space.first_node[space.places], place) + others
        held = np.where(others == NONE, NONE, state.labels[numbers])
        new = (held[:, :, None] != state.labels[nodes][None, None, :]).all(1)
        score += state.unit["connect"] * (new & (held != NONE).any(1)[:, None])
    score -= rate * problem.per_combination * problem.node_costs[nodes]
    return np.where(problem.permits.values(matrix, place), score, -np.inf)


def _pick(score: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The best value of each row, ties broken by lot; -1 where nothing is permitted."""
    top = score.max(1, keepdims=True)
    ties = (score >= top - 1e-12 * np.abs(top)) & np.isfinite(score)
    picked = (ties * generator.random(score.shape)).argmax(1)
    return np.where(np.isfinite(top[:, 0]), picked, NONE)


def _filled(
    state: State, matrix: np.ndarray, order: np.ndarray, generator: np.random.Generator, rate: float
) -> Int[np.ndarray, "row place"]:
    """Candidates filled place by place, each value the best next to those before it."""
    inter = state.problem.needs.interactions
    turn = np.empty(len(order) + 1, np.int64)
    turn[order] = np.arange(len(order))
    turn[-1] = -1
    last = turn[inter.chosen].max(1)
    for at, place in enumerate(order):
        if (matrix[:, place] != NONE).all():
            continue
        which = inter.holding[place][last[inter.holding[place]] == at]
        matrix[:, place] = _pick(_scores(state, matrix, int(place), which, rate), generator)
    return matrix


def _climbed(
    state: State, matrix: np.ndarray, generator: np.random.Generator, rate: float
) -> Int[np.ndarray, "row place"]:
    """Candidates with every value, in turn, replaced by the best next to all the others."""
    inter, matrix = state.problem.needs.interactions, matrix.copy()
    for place in generator.permutation(matrix.shape[1]):
        score = _scores(state, matrix, int(place), inter.holding[place], rate)
        picked = _pick(score, generator)
        matrix[:, place] = np.where(picked == NONE, matrix[:, place], picked)
    return matrix
