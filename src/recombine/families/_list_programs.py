"""Programs over short lists of digits: what the primitives do, and which programs do the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest
from recombine.families._draws import dice

Digits = tuple[int, ...]
Program = tuple[str, ...]

# Arithmetic is modulo ten, so that every list is made of the same ten words. Each primitive is one
# that a small network learns by itself: a sum of all digits modulo ten is not, and every program
# that held one would fail for that, whatever the network makes of compositions.
PRIMITIVES: dict[str, Callable[[Digits], Digits]] = {
    "increment": lambda xs: tuple((x + 1) % 10 for x in xs),
    "double": lambda xs: tuple(2 * x % 10 for x in xs),
    "negate": lambda xs: tuple(-x % 10 for x in xs),
    "evens": lambda xs: tuple(x for x in xs if x % 2 == 0),
    "odds": lambda xs: tuple(x for x in xs if x % 2 == 1),
    "large": lambda xs: tuple(x for x in xs if x >= 5),
    "reverse": lambda xs: xs[::-1],
    "sort": lambda xs: tuple(sorted(xs)),
    "tail": lambda xs: xs[1:],
    "three": lambda xs: xs[:3],
    "unique": lambda xs: tuple(dict.fromkeys(xs)),
    "maximum": lambda xs: (max(xs),) if xs else (),
}

DIGITS = tuple("0123456789")
HIDDEN = 32


def execute(program: Sequence[str], digits: Digits) -> Digits:
    """
    >>> execute(("evens", "reverse"), (2, 3, 4))
    (4, 2)
    """
    for name in program:
        digits = PRIMITIVES[name](digits)
    return digits


def show(digits: Digits) -> str:
    return " ".join(["[", *map(str, digits), "]"])


def read(text: str) -> Digits:
    words = text.split(" ")
    digits = words[1:-1]
    if words[0] != "[" or words[-1] != "]" or not all(w in DIGITS for w in digits):
        raise InvalidRequest(f"{text!r} is no list of digits: write '[ 3 1 4 ]'")
    return tuple(map(int, digits))


def parse(text: str) -> Program | None:
    """The program a text spells, or None if it spells none."""
    words = tuple(text.split(" "))
    return words if all(word in PRIMITIVES for word in words) else None


def shortest(examples: Sequence[tuple[Digits, Digits]], longest: int) -> Program | None:
    """The first of the shortest programs that fit the examples, by trying all.

    Programs that agree so far on all examples go on agreeing: only the first of them is extended.
    """
    goal = tuple(after for _, after in examples)
    level: dict[tuple[Digits, ...], Program] = {tuple(before for before, _ in examples): ()}
    seen = set(level)
    for _ in range(longest):
        following: dict[tuple[Digits, ...], Program] = {}
        for state, program in level.items():
            for name, primitive in PRIMITIVES.items():
                reached = tuple(map(primitive, state))
                if reached == goal:
                    return (*program, name)
                if reached not in seen:
                    seen.add(reached)
                    following[reached] = (*program, name)
        level = following
    return None


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All programs up to a length, those that do the same on all `lists` taken together.

    Row 0 is the empty program; rows go from short to long, and programs of one length are in the
    order of PRIMITIVES. `programs[row]` are all the equally short ones, the first in order first.
    """

    lists: tuple[Digits, ...]  # the last HIDDEN of them are never shown
    programs: tuple[tuple[Program, ...], ...]
    results: Int[np.ndarray, "row list"]  # equal numbers for equal lists
    upto: tuple[int, ...]  # how many rows have programs of at most this length


@functools.lru_cache(maxsize=4)
def catalogue(length: int, lists: int, least: int, most: int) -> Catalogue:
    """The catalogue on so many drawn lists of `least` to `most` digits, always the same ones."""
    roll = dice(0, "programs/lists")
    drawn: dict[Digits, None] = {}
    while len(drawn) < lists + HIDDEN:
        drawn[tuple(roll.randrange(10) for _ in range(roll.randint(least, most)))] = None

    known: list[Digits] = list(drawn)
    number = {digits: i for i, digits in enumerate(known)}

    def numbered(digits: Digits) -> int:
        if digits not in number:
            number[digits] = len(known)
            known.append(digits)
        return number[digits]

    level = np.arange(len(known), dtype=np.int32)[None]
    rows, seen = [level], {level.tobytes(): 0}
    programs: list[list[Program]] = [[()]]
    upto, start = [1], 0
    for _ in range(length):
        # The same list is reached again and again: each primitive is applied once to each.
        reached, where = np.unique(level, return_inverse=True)
        after = [
            np.array([numbered(f(known[i])) for i in reached], np.int32)[where.reshape(level.shape)]
            for f in PRIMITIVES.values()
        ]
        following: list[np.ndarray] = []
        for i in range(len(level)):
            for name, result in zip(PRIMITIVES, after, strict=True):
                row = seen.setdefault(result[i].tobytes(), len(programs))
                if row == len(programs):
                    programs.append([])
                    following.append(result[i])
                if row >= upto[-1]:  # not something a shorter program does
                    programs[row] += [(*before, name) for before in programs[start + i]]
        level, start = np.stack(following), upto[-1]
        rows.append(level)
        upto.append(len(programs))
    return Catalogue(
        lists=tuple(drawn),
        programs=tuple(tuple(sorted(p, key=_order)) for p in programs),
        results=np.concatenate(rows),
        upto=tuple(upto),
    )


_PLACE = {name: i for i, name in enumerate(PRIMITIVES)}


def _order(program: Program) -> list[int]:
    return [_PLACE[name] for name in program]
