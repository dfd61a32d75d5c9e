"""A search for the split of largest (or wanted) compound divergence at bounded atom divergence.

As in the greedy construction of Keysers et al. 2020 both parts grow in turn by the best of some
units, or whole compounds are withheld one by one; then units change places as long as that helps.
A split that breaks a limit is mended at a price that no divergence is worth, and where none holds
after that, one by chance is the start, which seldom breaks any. All choices come from one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from recombine.splits.divergence import ATOMS, COMPOUNDS

TRAIN, TEST, UNUSED = 0, 1, 2
POOL = 96  # units looked at before one is chosen
WHOLE = 48  # compounds looked at before one is withheld
STEPS = 1500  # in which both parts grow: several units a step where there are many
STRICT = 100.0  # times the usual price of a broken limit: more than compounds can gain by it
DRAWS = 16  # splits by chance, of which the one with the most even atoms is a start
_SIZE_SLACK = 0.02  # the test share may be off by this part of itself at no price
_NEARLY = 0.05  # and by this part it is said to have been met


@dataclass(frozen=True)
class Goal:
    """What to aim at: rows of test and of training, and the two divergences."""

    test_rows: float
    train_rows: float
    target: float | None
    atom_limit: float


@dataclass(frozen=True, eq=False)
class _Lines:
    """Sparse lines of counts, one after the other."""

    at: Int[np.ndarray, " entry"]
    amount: Float[np.ndarray, " entry"]
    sizes: Int[np.ndarray, " line"]

    def summed(self, entries: Float[np.ndarray, " entry"]) -> Float[np.ndarray, " line"]:
        which = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return np.bincount(which, entries, minlength=len(self.sizes))


@dataclass(eq=False)
class _Side:
    """Counts of atoms or compounds on both sides, and their unnormalised coefficient."""

    holds: sparse.csr_array
    alpha: float
    counts: Float[np.ndarray, "side piece"] = field(init=False)
    terms: Float[np.ndarray, " piece"] = field(init=False)

    def __post_init__(self) -> None:
        count = _shape(self.holds)[1]
        self.counts, self.terms = np.zeros((2, count)), np.zeros(count)

    def lines(self, units: Int[np.ndarray, " unit"]) -> _Lines:
        """The counts of some units."""
        starts = self.holds.indptr[units]
        sizes = self.holds.indptr[units + 1] - starts
        ends = np.cumsum(sizes)
        at = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        return _Lines(self.holds.indices[at], self.holds.data[at], sizes)

    def sums(self, sets: list[np.ndarray]) -> _Lines:
        """The counts of some sets of units, each as if it were one unit."""
        which = np.repeat(np.arange(len(sets)), [len(units) for units in sets])
        spot = (which, np.concatenate(sets))
        several = sparse.csr_array((np.ones(len(which)), spot), (len(sets), _shape(self.holds)[0]))
        found = sparse.csr_array(several @ self.holds)
        return _Lines(found.indices, found.data, np.diff(found.indptr))

    def divergence(self, part: _Lines, old: int, new: int) -> np.ndarray:
        """The divergence after each line of counts alone went from one side to another."""
        to_train = float(new == TRAIN) - float(old == TRAIN)
        to_test = float(new == TEST) - float(old == TEST)
        p = self.counts[TRAIN, part.at] + part.amount * to_train
        q = self.counts[TEST, part.at] + part.amount * to_test
        change = _terms(p, q, self.alpha) - self.terms[part.at]
        train, test = self.counts.sum(axis=1)
        moved = part.summed(part.amount)
        total = self.terms.sum() + part.summed(change)
        return _scaled(total, train + moved * to_train, test + moved * to_test, self.alpha)

    def move(self, unit: int, old: int, new: int) -> None:
        span = slice(self.holds.indptr[unit], self.holds.indptr[unit + 1])
        at, amount = self.holds.indices[span], self.holds.data[span]
        if old < 2:
            self.counts[old, at] -= amount
        if new < 2:
            self.counts[new, at] += amount
        self.terms[at] = _terms(self.counts[0, at], self.counts[1, at], self.alpha)

    @property
    def now(self) -> float:
        train, test = self.counts.sum(axis=1)
        return float(_scaled(self.terms.sum(), train, test, self.alpha))


def _terms(p: np.ndarray, q: np.ndarray, alpha: float) -> np.ndarray:
    return np.maximum(p, 0.0) ** alpha * np.maximum(q, 0.0) ** (1 - alpha)


def _shape(table: sparse.csr_array | sparse.csc_array) -> tuple[int, int]:
    lines, columns = table.shape or (0, 0)
    return int(lines), int(columns)


def _scaled(total, train, test, alpha: float) -> np.ndarray:
    scale = np.maximum(train, 1e-12) ** alpha * np.maximum(test, 1e-12) ** (1 - alpha)
    return np.clip(1 - total / scale, 0.0, 1.0)


@dataclass(eq=False)
class _Search:
    sizes: Int[np.ndarray, " unit"]
    atoms: _Side
    pairs: _Side
    goal: Goal
    rng: np.random.Generator
    price: float = 1.0  # of broken limits
    part: Int[np.ndarray, " unit"] = field(init=False)
    rows: Float[np.ndarray, " side"] = field(init=False)

    def __post_init__(self) -> None:
        self.part = np.full(len(self.sizes), UNUSED)
        self.rows = np.array([0.0, 0.0, self.sizes.sum()])

    def value(self, atoms, pairs, test_rows, train_rows) -> np.ndarray:
        """How good a split is; larger is better."""
        goal = self.goal
        found = pairs if goal.target is None else -np.abs(pairs - goal.target)
        off = np.abs(test_rows - goal.test_rows) / goal.test_rows
        short = np.maximum(0.0, goal.train_rows - train_rows) / goal.train_rows
        return found - self.price * (
            10 * np.maximum(0.0, atoms - goal.atom_limit)
            + 2 * np.maximum(0.0, off - _SIZE_SLACK)
            + 2 * np.maximum(0.0, short - _SIZE_SLACK)
        )

    @property
    def holds(self) -> bool:
        """Whether the split keeps within its limits."""
        off = abs(self.rows_of(TEST) - self.goal.test_rows) / self.goal.test_rows
        return self.atoms.now <= self.goal.atom_limit + 1e-9 and off <= _NEARLY

    @property
    def best_possible(self) -> float:
        return 1.0 if self.goal.target is None else 0.0

    def rows_of(self, side: int) -> float:
        return float(self.rows[side])

    def after(self, units: np.ndarray, old: int, new: int) -> np.ndarray:
        """The value after each of these units alone moved."""
        atoms = self.atoms.divergence(self.atoms.lines(units), old, new)
        pairs = self.pairs.divergence(self.pairs.lines(units), old, new)
        size = self.sizes[units]
        rows = [
            self.rows_of(side) + size * ((new == side) - float(old == side))
            for side in (TEST, TRAIN)
        ]
        return self.value(atoms, pairs, *rows)

    def now(self) -> float:
        rows = self.rows_of(TEST), self.rows_of(TRAIN)
        return float(self.value(self.atoms.now, self.pairs.now, *rows))

    def move(self, unit: int, new: int) -> None:
        old = int(self.part[unit])
        self.atoms.move(unit, old, new)
        self.pairs.move(unit, old, new)
        self.part[unit] = new
        self.rows[old] -= self.sizes[unit]
        self.rows[new] += self.sizes[unit]

    def set(self, part: Int[np.ndarray, " unit"]) -> None:
        """All units at once."""
        self.part = part.copy()
        self.rows = np.bincount(part, self.sizes, minlength=3)
        for pieces in (self.atoms, self.pairs):
            for side in (TRAIN, TEST):
                pieces.counts[side] = (part == side).astype(float) @ pieces.holds
            pieces.terms = _terms(pieces.counts[TRAIN], pieces.counts[TEST], pieces.alpha)

    def draw(self) -> None:
        """Units by chance until the test is large enough: of some draws that with even atoms."""
        best = np.inf
        part = self.part
        for _ in range(DRAWS):
            order = self.rng.permutation(len(self.sizes))
            filled = np.cumsum(self.sizes[order])
            tested = order[filled <= max(self.goal.test_rows, self.sizes[order[0]])]
            drawn = np.full(len(self.sizes), TRAIN)
            drawn[tested] = TEST
            self.set(drawn)
            if self.atoms.now < best:
                best, part = self.atoms.now, drawn
        self.set(part)

    def some(self, side: int, most: int = POOL) -> np.ndarray:
        there = np.flatnonzero(self.part == side)
        if len(there) <= most:
            return there
        return self.rng.choice(there, most, replace=False)

    def early(self, atoms: np.ndarray, pairs: np.ndarray, filled: float) -> np.ndarray:
        """The value while parts still grow: sizes come by themselves, atoms are not alike yet."""
        goal = self.goal
        aim = pairs if goal.target is None else -np.abs(pairs - goal.target)
        filled = min(1.0, filled)
        slack = goal.atom_limit + 0.5 * (1 - filled) / (1 + 20 * filled)
        return aim - 10 * np.maximum(0.0, atoms - slack)

    def withhold(self) -> None:
        """All rows train, then whole compounds go to the test: the best of some at a time.

        Where a compound has many rows no single one of them changes much, and moving units alone
        would not find the way.
        """
        owners = sparse.csc_array(self.pairs.holds)
        self.set(np.full(len(self.sizes), TRAIN))
        goal, count = self.goal, _shape(owners)[1]
        while (filled := self.rows_of(TEST) / goal.test_rows) < 1:
            pool = self.rng.choice(count, min(WHOLE, count), replace=False)
            spans = [owners.indices[owners.indptr[p] : owners.indptr[p + 1]] for p in pool]
            moving = [span[self.part[span] == TRAIN] for span in spans]
            room = goal.test_rows * (1 + _SIZE_SLACK) - self.rows_of(TEST)
            moving = [units for units in moving if 0 < self.sizes[units].sum() <= room]
            if not moving:
                return
            score = self.early(
                self.atoms.divergence(self.atoms.sums(moving), TRAIN, TEST),
                self.pairs.divergence(self.pairs.sums(moving), TRAIN, TEST),
                filled,
            )
            for unit in moving[int(np.argmax(score))]:
                self.move(int(unit), TEST)

    def grow(self) -> None:
        """Both parts from nothing: the one further behind takes the best of some units."""
        wanted = (self.goal.train_rows, self.goal.test_rows)
        first = self.rng.permutation(len(self.sizes))
        self.move(int(first[0]), TRAIN)
        self.move(int(first[-1]), TEST)
        several = max(1, len(self.sizes) // STEPS)
        while True:
            filled = [self.rows_of(TRAIN) / wanted[0], self.rows_of(TEST) / wanted[1]]
            if min(filled) >= 1:
                return
            side = int(np.argmin(filled))
            units = self.some(UNUSED, max(POOL, 8 * several))
            if not len(units):
                return
            score = self.early(
                self.atoms.divergence(self.atoms.lines(units), UNUSED, side),
                self.pairs.divergence(self.pairs.lines(units), UNUSED, side),
                sum(filled) / 2,
            )
            for unit in units[np.argsort(-score, kind="stable")[:several]]:
                self.move(int(unit), side)

    def take_back(self, most_left: float) -> None:
        """Units left out go to training, those that harm least first, until few enough are out."""
        if not most_left:
            for unit in np.flatnonzero(self.part == UNUSED):
                self.move(int(unit), TRAIN)
        while self.rows_of(UNUSED) > most_left:
            units = self.some(UNUSED)
            self.move(int(units[np.argmax(self.after(units, UNUSED, TRAIN))]), TRAIN)

    def improve(self, rounds: int, may_leave: bool) -> None:
        """Units change places, one move and one answer to it, as long as the value rises."""
        current = self.now()
        idle = 0
        ways = [(TRAIN, TEST), (TEST, TRAIN)]
        if may_leave:
            ways += [(UNUSED, TRAIN), (UNUSED, TEST), (TRAIN, UNUSED), (TEST, UNUSED)]
        for round in range(rounds):
            old, new = ways[round % len(ways)]
            units = self.some(old)
            if len(units) < 2:
                continue
            values = self.after(units, old, new)
            # Not always the best: a move is judged by what its answer makes of it.
            best = int(units[np.argsort(-values)[min(len(units) - 1, int(self.rng.integers(3)))]])
            self.move(best, new)
            back = self.some(new)
            back = back[back != best]
            alone, answered = self.now(), -np.inf
            answer = -1
            if len(back):
                replies = self.after(back, new, old)
                answer = int(back[np.argmax(replies)])
                answered = float(replies.max())
            if max(alone, answered) > current + 1e-12:
                if answered > alone:
                    self.move(answer, old)
                current, idle = self.now(), 0
            else:
                self.move(best, old)
                idle += 1
            if idle > min(200, 10 + 2 * len(self.sizes)) or current >= self.best_possible - 1e-6:
                return


def search(
    atoms: sparse.csr_array,
    pairs: sparse.csr_array,
    sizes: Int[np.ndarray, " unit"],
    goal: Goal,
    seed: int,
    *,
    most_left: float = 0.0,
    restarts: int = 4,
) -> Int[np.ndarray, " unit"]:
    """For each unit 0 (training), 1 (test) or 2 (left out), the best of some restarts.

    At most `most_left` rows are left out.
    """
    best, part = (False, -np.inf), np.zeros(len(sizes), np.int64)
    rounds = int(min(2500, 400 + 20 * len(sizes)))
    for restart in range(restarts + 1):
        by_chance = restart == restarts
        if by_chance and best[0]:
            break  # one that holds is known
        rng = np.random.default_rng([seed, restart])
        one = _Search(sizes, _Side(atoms, ATOMS), _Side(pairs, COMPOUNDS), goal, rng)
        if by_chance:
            one.draw()
            one.price = STRICT
        elif restart % 2:
            one.grow()
        else:
            one.withhold()
        if most_left:
            one.improve(rounds, may_leave=True)
        one.take_back(most_left)
        one.improve(rounds, may_leave=False)
        if not one.holds:
            one.price = STRICT
            one.improve(rounds, may_leave=False)
            one.price = 1.0
        found = one.holds, one.now()
        if found > best:
            best, part = found, one.part.copy()
        if best[1] >= one.best_possible - 1e-6:
            break
    return part
