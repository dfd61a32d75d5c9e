"""Einstein puzzles in numbers: a solver, and a generator of puzzles with one solution.

A thing is a value of an attribute, numbered attribute * houses + value; where it may be is a mask
with one bit for each house, counted from the left.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

KINDS = ("at", "not", "same", "left", "beside")


class Clue(NamedTuple):
    kind: str
    thing: int
    other: int  # the other thing, or the house for "at" and "not"


class Puzzle(NamedTuple):
    houses: int
    attributes: int
    clues: tuple[Clue, ...]


def anywhere(houses: int, attributes: int) -> list[int]:
    """Where things may be before any clue is read."""
    return [(1 << houses) - 1] * (houses * attributes)


def propagate(masks: list[int], clues: Iterable[Clue], houses: int) -> bool:
    """Strikes out places in `masks` until no clue strikes another; False if nothing is left.

    Each clue is looked at alone, and each attribute for houses with one candidate left.
    """
    clues = list(clues)
    while True:
        before = masks[:]
        for kind, a, b in clues:
            if kind == "at":
                masks[a] &= 1 << b
            elif kind == "not":
                masks[a] &= ~(1 << b)
            elif kind == "same":
                masks[a] = masks[b] = masks[a] & masks[b]
            elif kind == "left":
                masks[b] &= masks[a] << 1
                masks[a] &= masks[b] >> 1
            else:
                masks[b] &= masks[a] << 1 | masks[a] >> 1
                masks[a] &= masks[b] << 1 | masks[b] >> 1
        for start in range(0, len(masks), houses):
            once = twice = 0
            for i in range(start, start + houses):
                mask = masks[i]
                twice |= once & mask
                once |= mask
                if not mask:
                    return False
                if not mask & (mask - 1):  # at home: nobody else of its kind is there
                    for j in range(start, start + houses):
                        if j != i:
                            masks[j] &= ~mask
            if once != (1 << houses) - 1:
                return False
            if alone := once & ~twice:
                for i in range(start, start + houses):
                    if mine := masks[i] & alone:
                        masks[i] = mine & -mine
        if masks == before:
            return True


def solutions(puzzle: Puzzle, most: int = 2) -> list[tuple[int, ...]]:
    """The house of each thing, for up to `most` solutions.

    >>> solutions(Puzzle(2, 2, (Clue("at", 0, 0), Clue("left", 2, 1))))
    [(0, 1, 0, 1)]
    """
    found: list[tuple[int, ...]] = []

    def search(masks: list[int]) -> None:
        if not propagate(masks, puzzle.clues, puzzle.houses):
            return
        open_things = [i for i, mask in enumerate(masks) if mask & (mask - 1)]
        if not open_things:
            found.append(tuple(mask.bit_length() - 1 for mask in masks))
            return
        thing = min(open_things, key=lambda i: masks[i].bit_count())
        for house in range(puzzle.houses):
            if masks[thing] >> house & 1 and len(found) < most:
                search([1 << house if i == thing else m for i, m in enumerate(masks)])

    search(anywhere(puzzle.houses, puzzle.attributes))
    return found


def true_clues(houses: int, attributes: int, kind: str) -> list[Clue]:
    """All clues of a kind that hold where value v of every attribute is in house v."""
    things = range(houses * attributes)
    place = [thing % houses for thing in things]
    if kind == "at":
        return [Clue(kind, i, place[i]) for i in things]
    if kind == "not":
        return [Clue(kind, i, h) for i in things for h in range(houses) if h != place[i]]
    if kind == "same":
        return [Clue(kind, i, j) for i in things for j in things if i < j and place[i] == place[j]]
    return [Clue(kind, i, j) for i in things for j in things if place[j] == place[i] + 1]


def draw_puzzle(
    roll: random.Random, houses: int, attributes: int, kinds: Sequence[str]
) -> Puzzle | None:
    """A puzzle whose one solution has value v of every attribute in house v; no clue is idle.

    Clues of the kinds come in random order, each kind as often, until they leave one solution;
    then each is dropped that is not needed. None if all true clues together leave several.
    """
    decks = {kind: true_clues(houses, attributes, kind) for kind in kinds}
    for deck in decks.values():
        roll.shuffle(deck)
    order: list[Clue] = []
    while decks := {kind: deck for kind, deck in decks.items() if deck}:
        order.append(decks[roll.choice(list(decks))].pop())

    def settled(clues: Sequence[Clue]) -> bool:
        return len(solutions(Puzzle(houses, attributes, tuple(clues)))) == 1

    enough, few = len(order), 0
    if not settled(order):
        return None
    while enough - few > 1:
        middle = (enough + few) // 2
        if settled(order[:middle]):
            enough = middle
        else:
            few = middle
    kept = order[:enough]
    # The last one is needed, or fewer would have been enough.
    for clue in roll.sample(kept[:-1], enough - 1):
        fewer = [c for c in kept if c is not clue]
        if settled(fewer):
            kept = fewer
    return Puzzle(houses, attributes, tuple(kept))


def orbit(puzzle: Puzzle) -> tuple[Clue, ...]:
    """The same for a puzzle of `draw_puzzle` and all its images under renaming, and no others.

    Values are named by their house in the solution, so what remains to be tried is exchanging
    attributes and looking at the street from behind.
    """
    houses = puzzle.houses
    images: list[tuple[Clue, ...]] = []
    for order in permutations(range(puzzle.attributes)):
        for mirrored in (False, True):
            images.append(tuple(sorted(_image(c, houses, order, mirrored) for c in puzzle.clues)))
    return min(images)


def _image(clue: Clue, houses: int, order: Sequence[int], mirrored: bool) -> Clue:
    def thing(i: int) -> int:
        attribute, value = divmod(i, houses)
        return order[attribute] * houses + (houses - 1 - value if mirrored else value)

    kind, a, b = clue
    if kind in ("at", "not"):
        return Clue(kind, thing(a), houses - 1 - b if mirrored else b)
    a, b = thing(a), thing(b)
    if kind == "left":
        return Clue(kind, b, a) if mirrored else Clue(kind, a, b)
    return Clue(kind, min(a, b), max(a, b))
