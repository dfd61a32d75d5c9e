"""Einstein puzzles: who lives where, given just enough clues."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, cycle
from typing import ClassVar, NamedTuple

from recombine.errors import InvalidRequest, unknown
from recombine.families._draws import at_least, dice, distinct, spread
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily
from recombine.families._zebra_solver import (
    KINDS,
    Clue,
    Puzzle,
    anywhere,
    draw_puzzle,
    orbit,
    propagate,
    solutions,
)
from recombine.families._zebra_text import LARGEST, Text, english, parse, renamed
from recombine.seeds import host_seed

__all__ = ["Step", "Zebra", "english", "steps"]

MOST_TOGETHER = 9  # clues in one step of a scratchpad
STRUCTURE = "structure"
HELD_OUT = {STRUCTURE: 0.1, VALIDATION: 0.05}  # of the structures of the largest trained size
MET = 1_000  # puzzles of that size that are drawn to see which structures there are


class Step(NamedTuple):
    """Clues put to use together, and the (house, value) cells that are now certain."""

    clues: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Zebra(SequenceFamily):
    """Puzzles of up to `houses` houses with up to `attributes` attributes, each with one solution.

    "house 2 3 ; name ann bob ; pet cat dog ; cat at 2 ; bob left ann" lists the houses from left
    to right, the values of each attribute, and clues: "at" a house, "not" at a house, in the
    "same" house, directly "left" of, "beside". The answer is the table, house by house: "2 bob
    cat ; 3 ann dog". No clue can be left out. With `steps` the table is preceded by a scratchpad
    (see the function `steps`): "cat at 2 so 2 cat 3 dog ; bob left ann so 2 bob 3 ann = 2 bob ...".

    Houses are numbered from a number drawn for each puzzle, so that training knows all numbers.
    Training has all sizes from 2 x 2 up, in proportion to their cells, and test has fresh puzzles
    like them. What no renaming changes (other attributes and words, another order of clues, other
    numbers, the street seen from behind) is a puzzle's structure: which clues it has about which
    places. With the default clues there are 11 of 2 x 2 and 447 of 3 x 2. Each puzzle drawn for
    training appears there under up to `renamings` names. What a size cannot give, larger ones make
    up for.

    Beyond training are puzzles of the largest trained size whose `structure` it never has under
    any names (novelty 1; a hash holds one structure in ten out, and as many puzzles are drawn of
    each), and puzzles with more `houses`, more `attributes`, or `both`, by up to `further`
    (novelty: the sum of the two).

    At most about 80 words in a source and 100 with the answer at the default sizes, 200 with
    `steps`; under 60 different words.

    >>> Zebra().solve("house 2 3 ; name ann bob ; pet cat dog ; cat at 2 ; bob left ann")
    '2 bob cat ; 3 ann dog'
    """

    version: ClassVar[int] = 3
    name: ClassVar[str] = "zebra"
    unit: ClassVar[str] = "a new structure, or houses and attributes more than trained"
    instruction: ClassVar[str] = (
        "Solve the puzzle: houses stand in a row from left to right, and each has one value of each"
        " attribute. First come the houses and the values of each attribute, then clues: a value at"
        " a house, not at a house, in the same house as another, directly left of another, or"
        " beside another. Answer with the table as the examples do: each house with its values in"
        " the order of the attributes."
    )

    houses: int = 3  # most in training
    attributes: int = 3
    further: int = 1
    clues: tuple[str, ...] = ("at", "same", "left", "beside")
    steps: bool = False
    renamings: int = 4
    train_items: int = 20_000
    test_items: int = 500
    beyond_items: int = 300  # in each split
    validation_items: int = 300

    def check(self) -> None:
        at_least(2, houses=self.houses, attributes=self.attributes)
        at_least(1, further=self.further, renamings=self.renamings, train_items=self.train_items)
        at_least(1, test_items=self.test_items, beyond_items=self.beyond_items)
        at_least(4, validation_items=self.validation_items)
        if max(self.houses, self.attributes) + self.further > LARGEST:
            raise InvalidRequest(
                f"houses={self.houses} or attributes={self.attributes} with further={self.further} "
                f"exceed {LARGEST}, the most there are words for"
            )
        for kind in self.clues:
            if kind not in KINDS:
                raise unknown("kind of clue", kind, KINDS)
        if len(set(self.clues)) != len(self.clues) or not {"at", "left"} & set(self.clues):
            raise InvalidRequest(
                f"clues={self.clues} must be different kinds and have 'at' or 'left' among them: "
                "the others never tell a street from its mirror image"
            )

    def corpus(self, seed: int) -> Corpus:
        self.check()
        maker = _Maker(self, seed)
        train = maker.known("train_items", self.train_items, self.renamings)
        test = maker.known("test_items", self.test_items, 1)
        more, known = range(1, self.further + 1), range(2, self.houses + 1)
        ways = {
            "houses": [(self.houses + m, a) for m in more for a in range(2, self.attributes + 1)],
            "attributes": [(h, self.attributes + m) for m in more for h in known],
            "both": [(self.houses + m, self.attributes + n) for m in more for n in more],
        }
        (_, few), *shares = spread(self.validation_items, range(1 + len(ways)))
        validation = maker.structure(VALIDATION, few)
        for sizes, (_, share) in zip(ways.values(), shares, strict=True):
            validation += maker.beyond(sizes, share)
        splits = {STRUCTURE: maker.structure(STRUCTURE, self.beyond_items)}
        splits |= {way: maker.beyond(sizes, self.beyond_items) for way, sizes in ways.items()}
        return Corpus({TRAIN: train, TEST: test, VALIDATION: validation, **splits})

    def solve(self, source: str) -> str:
        return _answer(parse(source), self.steps)

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer`: the table is right, whatever the steps; `cells`: the share of it that is."""
        right, given = (_cells(text) for text in (item.target, answer))
        return {
            "exact": float(answer == item.target),
            "answer": float(right == given),
            "cells": sum(given.get(cell) == word for cell, word in right.items()) / len(right),
        }


def steps(source: str) -> list[Step]:
    """How a puzzle can be worked out: the greedy scratchpad, which is its computation graph too.

    Each step takes the clue that makes most further cells certain, together with all clues used
    before; if none makes any, the first of the smallest sets of clues that does (the largest
    gain among those). Certain means: what follows from clues taken one by one and from each house
    having one value of each attribute. A puzzle that needs trying out (one in forty of 4 x 4) ends
    with a step that uses all clues about what is still open.

    >>> puzzle = "house 2 3 ; name ann bob ; pet cat dog ; cat at 2 ; bob left ann"
    >>> for clues, cells in steps(puzzle):
    ...     print(clues, cells)
    ('cat at 2',) (('2', 'cat'), ('3', 'dog'))
    ('bob left ann',) (('2', 'bob'), ('3', 'ann'))
    """
    return _steps(parse(source))


def _solution(text: Text) -> tuple[int, ...]:
    found = solutions(text.puzzle)
    if len(found) != 1:
        many = "several solutions" if found else "no solution"
        raise InvalidRequest(f"{text.source()!r} has {many}: a puzzle has exactly one")
    return found[0]


def _steps(text: Text) -> list[Step]:
    solution, puzzle = _solution(text), text.puzzle
    masks = anywhere(puzzle.houses, puzzle.attributes)
    used, unused, filled = list[Clue](), list(puzzle.clues), set[int]()
    found: list[Step] = []
    while len(filled) < len(masks):
        # Trying out, in case nothing else helps: all clues about something that is still open.
        chosen = tuple(c for c in puzzle.clues if not set(_things(c)) <= filled)
        after = [1 << house for house in solution]
        for size in range(1, min(len(unused), MOST_TOGETHER) + 1):
            best = 0
            for together in combinations(unused, size):
                trial = masks[:]
                propagate(trial, [*used, *together], puzzle.houses)
                gain = sum(not m & (m - 1) for m in trial) - len(filled)
                if gain > best:
                    best, chosen, after = gain, together, trial
            if best:
                break
        fresh = [i for i, m in enumerate(after) if not m & (m - 1) and i not in filled]
        cells = sorted((solution[i], i) for i in fresh)
        found.append(
            Step(
                tuple(map(text.clue, chosen)),
                tuple((text.numbers[house], text.words[i]) for house, i in cells),
            )
        )
        masks = after
        filled.update(fresh)
        used += chosen
        unused = [clue for clue in unused if clue not in chosen]
    return found


def _things(clue: Clue) -> tuple[int, ...]:
    return (clue.thing,) if clue.kind in ("at", "not") else (clue.thing, clue.other)


def _answer(text: Text, scratchpad: bool) -> str:
    table = text.table(_solution(text))
    if not scratchpad:
        return table
    lines = (
        f"{' , '.join(clues)} so {' '.join(f'{house} {word}' for house, word in cells)}"
        for clues, cells in _steps(text)
    )
    return f"{' ; '.join(lines)} = {table}"


def _cells(answer: str) -> dict[tuple[str, int], str]:
    """Each word of a table by its house and place."""
    rows = (row.split(" ") for row in answer.rpartition("= ")[2].split(" ; "))
    return {(number, i): word for number, *words in rows for i, word in enumerate(words)}


class _Maker:
    """Draws puzzles and gives them words, each puzzle to one split."""

    def __init__(self, family: Zebra, seed: int):
        self.family, self.seed = family, seed
        self.roll = dice(seed, "zebra/puzzles")
        self.taken = set[str]()
        self.drawn = set[tuple[Clue, ...]]()  # beyond training
        self.sizes = [
            (k, m) for k in range(2, family.houses + 1) for m in range(2, family.attributes + 1)
        ]
        drawn = [self._puzzle(self.sizes[-1]) for _ in range(MET)]
        self.structures = list({orbit(puzzle): puzzle for puzzle in drawn}.values())
        self.held_up_to = self._borders()

    def _borders(self) -> dict[str, float]:
        """Up to which place a split has its structures: where there are few, at least one."""
        places = sorted(map(self._place, self.structures))
        found, border = dict[str, float](), 0.0
        for split, share in HELD_OUT.items():
            first, *more = [place for place in places if place > border] or [1.0]
            if not more:
                raise InvalidRequest(
                    f"{len(places)} puzzles of {self.sizes[-1][0]} houses with {self.sizes[-1][1]} "
                    "attributes differ in more than names, too few to hold some out: ask for "
                    "larger puzzles or more kinds of clues"
                )
            found[split] = border = max(border + share, first)
        return found

    def _place(self, puzzle: Puzzle) -> float:
        return host_seed(self.seed, f"zebra/{orbit(puzzle)}") / 2**64

    def split_of(self, puzzle: Puzzle) -> str:
        """The split that alone may have this structure; `train` stands for training and test."""
        if (puzzle.houses, puzzle.attributes) != self.sizes[-1]:
            return TRAIN
        place = self._place(puzzle)
        return next((split for split, to in self.held_up_to.items() if place <= to), TRAIN)

    def known(self, what: str, count: int, renamings: int) -> list[Item]:
        """Puzzles of trained sizes and structures, sizes in proportion to their cells."""
        found = list[Item]()
        cells = sum(k * m for k, m in self.sizes)
        # What a size cannot give, being small, the next ones make up for.
        for size in self.sizes:
            weight = size[0] * size[1] / cells
            cells -= size[0] * size[1]
            goal = len(found) + round(weight * (count - len(found)))
            misses = 0
            while misses < 1000 and len(found) < goal:
                puzzle = self._puzzle(size)
                times = min(renamings, goal - len(found)) if self.split_of(puzzle) == TRAIN else 0
                new = self._named(puzzle, times)
                found += new
                misses = 0 if new else misses + 1
        if len(found) < count:
            raise InvalidRequest(
                f"{what}={count} are wanted, and these sizes give {len(found)}: ask for fewer, or "
                "for larger puzzles"
            )
        return found

    def structure(self, split: str, count: int) -> list[Item]:
        """Puzzles of the structures that are this split's alone, as many of each."""
        turn = cycle([puzzle for puzzle in self.structures if self.split_of(puzzle) == split])
        return distinct(lambda: self._item(next(turn), new=1), count, self.taken, split)

    def beyond(self, sizes: list[tuple[int, int]], count: int) -> list[Item]:
        def draw() -> Item | None:
            puzzle = self._puzzle(self.roll.choice(sizes))
            key = orbit(puzzle)
            if key in self.drawn:
                return None
            self.drawn.add(key)
            return self._item(puzzle)

        return distinct(draw, count, self.taken, "puzzles beyond training")

    def _puzzle(self, size: tuple[int, int]) -> Puzzle:
        puzzle = draw_puzzle(self.roll, *size, self.family.clues)
        if puzzle is None:
            raise InvalidRequest(
                f"clues={self.family.clues} leave several solutions for {size[0]} houses with "
                f"{size[1]} attributes: add 'same'"
            )
        return puzzle

    def _named(self, puzzle: Puzzle, times: int) -> list[Item]:
        named = (self._item(puzzle) for _ in range(times))
        new = {item.source: item for item in named if item.source not in self.taken}
        self.taken.update(new)
        return list(new.values())

    def _item(self, puzzle: Puzzle, new: int = 0) -> Item:
        family, houses = self.family, puzzle.houses
        text = renamed(puzzle, self.roll)
        novelty = max(0, houses - family.houses) + max(0, puzzle.attributes - family.attributes)
        novelty = novelty or new
        part = f"{houses} x {puzzle.attributes}"
        return Item(text.source(), _answer(text, family.steps), part, novelty)
