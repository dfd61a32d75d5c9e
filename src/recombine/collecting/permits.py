"""Which combinations rules permit, asked of many half-made combinations at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.collecting.goals import Space
from recombine.errors import InvalidRequest
from recombine.tables.rows import NONE
from recombine.tables.rules import Rules

MOST_STEPS = 20_000  # of a search for a permitted completion


class Permits:
    """The conditions of all boxes side by side, so that one sum answers for many rows.

    A combination is forbidden if it meets every condition of a box. A condition is that a factor
    has one of some values, or, for a list, that it lacks a value.
    """

    def __init__(self, space: Space, rules: Rules):
        if rules.values != space.values:
            raise InvalidRequest(
                "the rules were read for other values than those of the plan: give both the same "
                "names and values"
            )
        self.space, self.rules = space, rules
        found: list[tuple[int, int, frozenset[int], bool]] = []
        for number, (box, also) in enumerate(zip(rules.boxes, rules.also, strict=True)):
            found += [(number, factor, codes, True) for factor, codes in box.items()]
            found += [(number, factor, frozenset({code}), held) for factor, code, held in also]
        self.box = np.array([number for number, *_ in found], np.int64)
        self.factor = np.array([factor for _, factor, *_ in found], np.int64)
        self.lacks = np.array([not held for *_, held in found], bool)
        self.inside = np.zeros((sum(space.sizes), len(found)), bool)
        for column, (_, factor, codes, _) in enumerate(found):
            self.inside[[space.first_node[factor] + code for code in codes], column] = True
        self.needed = np.bincount(self.box, minlength=len(rules.boxes))
        self.ruled = np.isin(space.places, self.factor)  # places a rule speaks of

    def _met(self, matrix: np.ndarray, final: bool) -> Bool[np.ndarray, "row condition"]:
        """Which conditions hold; that a list lacks something is known only at the end."""
        met = np.zeros((len(matrix), len(self.box)), bool)
        for factor in np.unique(self.factor):
            columns = matrix[:, self.space.places == factor]
            own = np.flatnonzero(self.factor == factor)
            within = self.inside[self.space.first_node[factor] + columns][:, :, own]
            met[:, own] = (within & (columns != NONE)[:, :, None]).any(1)
        met[:, self.lacks] = ~met[:, self.lacks] & final
        return met

    def _per_box(self, met: np.ndarray) -> Int[np.ndarray, "... box"]:
        """How many conditions of each box hold (conditions lie box by box)."""
        firsts = np.concatenate([[0], np.cumsum(self.needed)[:-1]])
        return np.add.reduceat(met, firsts, axis=-1, dtype=np.int64)

    def rows(
        self, matrix: Int[np.ndarray, "row place"], *, final: bool = True
    ) -> Bool[np.ndarray, "row"]:
        """Which rows no rule forbids; where they are not `final`, -1 is a place not set yet."""
        if not len(self.needed) or not len(matrix):
            return np.ones(len(matrix), bool)
        return ~(self._per_box(self._met(matrix, final)) == self.needed).any(1)

    def values(
        self, matrix: Int[np.ndarray, "row place"], place: int
    ) -> Bool[np.ndarray, "row value"]:
        """Which values the place may take next to what each row already holds."""
        space, factor = self.space, int(self.space.places[place])
        start, size = int(space.first_node[factor]), space.sizes[factor]
        free = np.broadcast_to(space.can_collect[start : start + size], (len(matrix), size)).copy()
        others = np.flatnonzero((space.places == factor) & (np.arange(len(space.places)) != place))
        for other in others:  # a list holds a value once
            held = np.flatnonzero(matrix[:, other] != NONE)
            free[held, matrix[held, other]] = False
        if not self.ruled[place]:
            return free
        emptied = matrix.copy()
        emptied[:, place] = NONE
        met = self._met(emptied, False)
        own = np.flatnonzero((self.factor == factor) & ~self.lacks)
        boxes, firsts = np.unique(self.box[own], return_index=True)
        if not len(boxes):
            return free
        short = self.needed[boxes] - self._per_box(met)[:, boxes]
        more = self.inside[start : start + size][None, :, own] & ~met[:, None, own]
        gained = np.add.reduceat(more, firsts, axis=-1, dtype=np.int64)
        return free & ~((gained == short[:, None, :]) & (gained > 0)).any(2)

    def complete(
        self,
        line: Int[np.ndarray, "place"],
        order: Iterable[int],
        liking: Float[np.ndarray, "node"],
    ) -> Int[np.ndarray, "place"] | None:
        """A permitted combination with what `line` holds, liked values first; None if none is.

        Goes back where a choice leads nowhere, so it finds one wherever there is one (up to a
        number of steps). A list may stay shorter where nothing else is permitted.
        """
        open_places = [int(p) for p in order if line[p] == NONE]
        # Rules bind few places: choosing those first finds dead ends before time is lost.
        open_places.sort(key=lambda place: not self.ruled[place])
        line = line.copy()
        if not self.rows(line[None], final=False)[0]:
            return None
        stack: list[list[int]] = []
        for _ in range(MOST_STEPS):
            if len(stack) < len(open_places):
                stack.append(self._choices(line, open_places[len(stack)], liking))
            elif self.rows(line[None])[0]:
                return line
            while stack and not stack[-1]:
                line[open_places[len(stack) - 1]] = NONE
                stack.pop()
            if not stack:
                return None
            line[open_places[len(stack) - 1]] = stack[-1].pop(0)
        return None

    def _choices(self, line: np.ndarray, place: int, liking: np.ndarray) -> list[int]:
        factor = int(self.space.places[place])
        free = np.flatnonzero(self.values(line[None], place)[0])
        best = free[np.argsort(-liking[self.space.first_node[factor] + free], kind="stable")]
        held = (line[self.space.places == factor] != NONE).any()
        return [*map(int, best), *([NONE] if held else [])]

    def possible(self, factors: Sequence[int]) -> Bool[np.ndarray, "..."]:
        """Which interactions of the factors can occur and be collected.

        A list may be named several times; of its interactions only those with ascending values
        are looked at.
        """
        space = self.space
        free = self.rules.possible_table([int(f) for f in factors])
        for axis, factor in enumerate(factors):
            start, size = int(space.first_node[factor]), space.sizes[factor]
            shape = [-1 if a == axis else 1 for a in range(len(factors))]
            free = free & space.can_collect[start : start + size].reshape(shape)
        return free
