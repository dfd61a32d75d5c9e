"""Einstein puzzles in words: the notation, sentences, and words drawn for a puzzle."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from recombine.errors import InvalidRequest
from recombine.families._zebra_solver import KINDS, Clue, Puzzle

WORDS = {
    "name": ("ann", "bob", "cara", "dan", "eva", "finn"),
    "colour": ("red", "blue", "green", "white", "black", "yellow"),
    "pet": ("cat", "dog", "fish", "horse", "bird", "snake"),
    "drink": ("tea", "milk", "water", "juice", "coffee", "beer"),
    "food": ("rice", "soup", "pizza", "bread", "cake", "curry"),
    "flower": ("rose", "lily", "tulip", "daisy", "iris", "poppy"),
}
LARGEST = 6


class Text(NamedTuple):
    """A puzzle with its words, and how it is written down."""

    puzzle: Puzzle
    numbers: tuple[str, ...]  # of the houses, from the left
    values: Mapping[str, tuple[str, ...]]  # of each attribute, in the order of the text

    @property
    def words(self) -> list[str]:
        return [word for words in self.values.values() for word in words]

    def clue(self, clue: Clue) -> str:
        place = self.numbers if clue.kind in ("at", "not") else self.words
        return f"{self.words[clue.thing]} {clue.kind} {place[clue.other]}"

    def source(self) -> str:
        head = [" ".join(["house", *self.numbers])]
        head += [" ".join([attribute, *words]) for attribute, words in self.values.items()]
        return " ; ".join(head + [self.clue(clue) for clue in self.puzzle.clues])

    def table(self, solution: tuple[int, ...]) -> str:
        """Things go attribute by attribute, so each house meets its own in the right order."""
        rows = [[number] for number in self.numbers]
        for word, house in zip(self.words, solution, strict=True):
            rows[house].append(word)
        return " ; ".join(map(" ".join, rows))


def parse(source: str) -> Text:
    """The puzzle that a source spells; it may have any number of solutions."""

    def wrong(why: str) -> InvalidRequest:
        return InvalidRequest(
            f"{source!r} is no puzzle, {why}: write 'house 1 2 ; name ann bob ; pet cat dog ; "
            "cat at 1 ; bob left ann'"
        )

    first, *parts = [part.split(" ") for part in source.split(" ; ")]
    numbers = tuple(first[1:])
    if first[0] != "house" or not 2 <= len(set(numbers)) == len(numbers) <= LARGEST:
        raise wrong(f"it does not begin with 2 to {LARGEST} different houses")
    values: dict[str, tuple[str, ...]] = {}
    while parts and parts[0][0] in WORDS and parts[0][0] not in values:
        attribute, *words = parts.pop(0)
        if len(words) != len(numbers):
            raise wrong(f"{attribute} has {len(words)} values for {len(numbers)} houses")
        values[attribute] = tuple(words)
    words = [word for each in values.values() for word in each]
    if not words or len(set(words)) != len(words):
        raise wrong("its attributes are missing or share a value")
    clues: list[Clue] = []
    for part in parts:
        if len(part) != 3 or part[1] not in KINDS:
            raise wrong(f"{' '.join(part)!r} is no clue")
        thing, kind, other = part
        place = numbers if kind in ("at", "not") else words
        if thing not in words or other not in place:
            raise wrong(f"{' '.join(part)!r} names something unknown")
        clues.append(Clue(kind, words.index(thing), place.index(other)))
    return Text(Puzzle(len(numbers), len(values), tuple(clues)), numbers, values)


def english(source: str) -> str:
    """The puzzle in sentences, for a reader who was not told the notation.

    >>> print(english("house 2 3 ; name ann bob ; pet cat dog ; cat at 2 ; bob left ann"))
    There are 2 houses in a row, numbered from left to right: 2, 3.
    Each house has one of each:
    - name: ann, bob
    - pet: cat, dog
    Clues:
    1. The house with pet cat is house 2.
    2. The house with name bob is directly left of the house with name ann.
    Write the table, house by house, as: 2 (name) (pet) ; 3 (name) (pet)
    """
    text = parse(source)
    puzzle = text.puzzle

    def house_of(thing: int) -> str:
        attribute = list(text.values)[thing // puzzle.houses]
        return f"the house with {attribute} {text.words[thing]}"

    phrases = {
        "at": "is house",
        "not": "is not house",
        "same": "is also",
        "left": "is directly left of",
        "beside": "is directly beside",
    }
    lines = [
        f"There are {puzzle.houses} houses in a row, numbered from left to right: "
        f"{', '.join(text.numbers)}.",
        "Each house has one of each:",
        *(f"- {attribute}: {', '.join(words)}" for attribute, words in text.values.items()),
        "Clues:",
    ]
    for i, (kind, thing, other) in enumerate(puzzle.clues, 1):
        second = text.numbers[other] if kind in ("at", "not") else house_of(other)
        lines.append(f"{i}. T{house_of(thing)[1:]} {phrases[kind]} {second}.")
    blanks = " ".join(f"({attribute})" for attribute in text.values)
    rows = " ; ".join(f"{number} {blanks}" for number in text.numbers)
    return "\n".join([*lines, f"Write the table, house by house, as: {rows}"])


def renamed(puzzle: Puzzle, roll: random.Random) -> Text:
    """The puzzle in words drawn at random; their order in the text tells nothing."""
    houses = puzzle.houses
    others = list(WORDS)[1:]
    chosen = {"name", *roll.sample(others, puzzle.attributes - 1)}
    values: dict[str, tuple[str, ...]] = {}
    for attribute, words in WORDS.items():
        if attribute in chosen:
            picked = roll.sample(words, houses)
            values[attribute] = tuple(word for word in words if word in picked)
    start = roll.randint(1, LARGEST - houses + 1)
    numbers = tuple(str(start + i) for i in range(houses))

    # Where thing i of the puzzle is found in the text: another attribute, another of its words.
    order = roll.sample(range(puzzle.attributes), puzzle.attributes)
    shuffled = [roll.sample(range(houses), houses) for _ in order]
    mirrored = roll.random() < 0.5

    def thing(i: int) -> int:
        attribute, value = divmod(i, houses)
        return order[attribute] * houses + shuffled[attribute][value]

    clues: list[Clue] = []
    for kind, a, b in puzzle.clues:
        if kind in ("at", "not"):
            clues.append(Clue(kind, thing(a), houses - 1 - b if mirrored else b))
        else:
            swap = mirrored if kind == "left" else roll.random() < 0.5
            first, second = (b, a) if swap else (a, b)
            clues.append(Clue(kind, thing(first), thing(second)))
    roll.shuffle(clues)
    return Text(Puzzle(houses, puzzle.attributes, tuple(clues)), numbers, values)
