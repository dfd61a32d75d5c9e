"""ListOps: nested lists of digits under MAX, MIN, MED and SUM_MOD, answered by one digit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from random import Random
from typing import ClassVar

from recombine.errors import InvalidRequest
from recombine.families._draws import dice, distinct
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Corpus, Item, SequenceFamily

OPERATORS = ("MAX", "MIN", "MED", "SUM_MOD")
FEWEST_ARGUMENTS = 2
NESTED = 0.3  # how often an argument that need not be a list is one

Draw = Callable[[Random], "Item | None"]


@dataclass(frozen=True)
class ListOps(SequenceFamily):
    """Lists such as `[MAX 2 [SUM_MOD 4 9 ] 1 ]` (after Nangia and Bowman, 2018).

    SUM_MOD is the sum modulo 10, MED the median, rounded down for an even number of arguments.
    Training has lists within lists up to `depth` levels, each with 2 to `arguments` arguments.
    Beyond are `depth`, up to `deeper` levels more, and `arguments`, where at least one list has up
    to `more` arguments more.

    A constant answer, or one told by the outermost operator, is right one time in ten: the answer
    is drawn first, evenly, the operator whatever the answer, and then arguments evenly among those
    that give it; inner lists are made in the same way.

    A tenth of all lists (told by their hash) is kept for `test`, where each is asked once;
    training may repeat the short ones. A list has at most `longest` words; the vocabulary is 15.

    >>> ListOps().solve("[MAX 2 [SUM_MOD 4 9 ] 1 ]")
    '3'
    """

    name: ClassVar[str] = "listops"
    unit: ClassVar[str] = "levels deeper, or arguments more, than trained"
    instruction: ClassVar[str] = (
        "Evaluate each nested list of digits. MAX is the largest argument, MIN the smallest, MED "
        "the median (the mean of the two middle ones, rounded down, where their number is even), "
        "SUM_MOD the last digit of the sum. Answer with one digit only."
    )

    depth: int = 3
    arguments: int = 3
    deeper: int = 3
    more: int = 3
    train_items: int = 100_000
    test_items: int = 1_000
    validation_items: int = 500
    beyond_items: int = 1_000
    longest: int = 100

    def check(self) -> None:
        if self.depth < 1 or self.arguments < FEWEST_ARGUMENTS:
            raise InvalidRequest(
                f"depth={self.depth}, arguments={self.arguments}: lists have at least one level "
                f"and {FEWEST_ARGUMENTS} arguments"
            )
        if min(self.deeper, self.more) < 1:
            raise InvalidRequest(
                f"deeper={self.deeper}, more={self.more}: ask for 1 or more, or nothing is beyond "
                "training"
            )
        sizes = (self.train_items, self.test_items, self.validation_items, self.beyond_items)
        if min(sizes) < 1:
            raise InvalidRequest(
                "every split needs an item: train_items={}, test_items={}, validation_items={}, "
                "beyond_items={}".format(*sizes)
            )
        # The smallest list of n levels has two arguments each, of which one is a list.
        levels = self.depth + self.deeper
        shortest = max(3 * levels + 1, self.arguments + self.more + 3 * self.depth - 1)
        if self.longest < shortest:
            raise InvalidRequest(
                f"longest={self.longest}: {levels} levels and {self.arguments + self.more} "
                f"arguments need lists of at least {shortest} words"
            )

    def corpus(self, seed: int) -> Corpus:
        self.check()

        def known(depth: int, test: bool) -> Draw:
            def draw(rng: Random) -> Item | None:
                item = self._draw(rng, depth, self.arguments)
                return item if item and _kept(item.source, seed) == test else None

            return draw

        def deep(levels: int) -> Draw:
            def draw(rng: Random) -> Item | None:
                item = self._draw(rng, self.depth + levels, self.arguments)
                return item and item._replace(novelty=levels)

            return draw

        def wide(extra: int) -> Draw:
            most = self.arguments + extra

            def draw(rng: Random) -> Item | None:
                item = self._draw(rng, rng.randint(1, self.depth), most, exact=True)
                return item and item._replace(part=f"{most} arguments", novelty=extra)

            return draw

        taken: set[str] = set()

        def split(name: str, size: int, draws: Sequence[Draw]) -> list[Item]:
            return in_shares(dice(seed, f"{self.name}/{name}"), draws, size, taken, name)

        # Of two levels there are more lists than of one: a depth of d is drawn d times as often.
        depths = [depth for depth in range(1, self.depth + 1) for _ in range(depth)]
        deeper = [deep(levels) for levels in range(1, self.deeper + 1)]
        wider = [wide(extra) for extra in range(1, self.more + 1)]
        train, test = ([known(depth, test) for depth in depths] for test in (False, True))
        return Corpus(
            {
                TRAIN: _repeating(dice(seed, f"{self.name}/train"), train, self.train_items),
                TEST: split(TEST, self.test_items, test),
                VALIDATION: split(VALIDATION, self.validation_items, [*deeper, *wider]),
                "depth": split("depth", self.beyond_items, deeper),
                "arguments": split("arguments", self.beyond_items, wider),
            }
        )

    def solve(self, source: str) -> str:
        open_lists: list[tuple[str, list[int]]] = [("", [])]
        for word in source.split(" "):
            operator = word[1:] if word[:1] == "[" else None
            if operator in OPERATORS:
                open_lists.append((operator, []))
            elif word == "]" and len(open_lists) > 1 and open_lists[-1][1]:
                operator, values = open_lists.pop()
                open_lists[-1][1].append(_evaluate(operator, values))
            elif len(word) == 1 and word in "0123456789":
                open_lists[-1][1].append(int(word))
            else:
                raise _no_list(source, f"{word!r} is out of place")
        if len(open_lists) > 1 or len(open_lists[0][1]) != 1:
            raise _no_list(source, "it is not one list, opened and closed")
        return str(open_lists[0][1][0])

    def _draw(self, rng: Random, depth: int, arguments: int, exact: bool = False) -> Item | None:
        """A list of just this depth; None where it is too long, or has too few arguments."""
        answer = rng.randrange(10)
        words: list[str] = []
        widest = _write(rng, answer, depth, arguments, words)
        if len(words) > self.longest or (exact and widest < arguments):
            return None
        return Item(" ".join(words), str(answer), f"depth {depth}")


def _write(rng: Random, value: int, depth: int, most: int, words: list[str]) -> int:
    """Writes a list of this value and depth; the most arguments any list in it has."""
    operator = rng.choice(OPERATORS)
    values = _arguments(rng, operator, value, rng.randint(FEWEST_ARGUMENTS, most))
    deepest = rng.randrange(len(values))
    widest = len(values)
    words.append(f"[{operator}")
    for place, argument in enumerate(values):
        levels = depth - 1
        if place != deepest:
            levels = rng.randint(1, levels) if levels and rng.random() < NESTED else 0
        if levels:
            widest = max(widest, _write(rng, argument, levels, most, words))
        else:
            words.append(str(argument))
    words.append("]")
    return widest


def _arguments(rng: Random, operator: str, value: int, count: int) -> Sequence[int]:
    """Arguments that give the value, each such list of them as likely."""
    if operator == "SUM_MOD":
        values = [rng.randrange(10) for _ in range(count - 1)]
        return [*values, (value - sum(values)) % 10]
    if count <= 3:
        return rng.choice(_giving(operator, count)[value])
    low, high = {"MAX": (0, value), "MIN": (value, 9), "MED": (0, 9)}[operator]
    while True:
        values = [rng.randint(low, high) for _ in range(count)]
        if _evaluate(operator, values) == value:
            return values


@cache
def _giving(operator: str, count: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """All lists of so many digits, by what the operator makes of them."""
    found: list[list[tuple[int, ...]]] = [[] for _ in range(10)]
    for values in product(range(10), repeat=count):
        found[_evaluate(operator, values)].append(values)
    return tuple(map(tuple, found))


def _evaluate(operator: str, values: Sequence[int]) -> int:
    match operator:
        case "MAX":
            return max(values)
        case "MIN":
            return min(values)
        case "SUM_MOD":
            return sum(values) % 10
    ranked, half = sorted(values), len(values) // 2
    return ranked[half] if len(values) % 2 else (ranked[half - 1] + ranked[half]) // 2


def _kept(source: str, seed: int) -> bool:
    return hashlib.sha256(f"{seed}/{source}".encode()).digest()[0] % 10 == 0


def _no_list(source: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{source!r} is no list of ListOps: {why}; a list reads like '[MAX 2 [MIN 4 7 ] 0 ]'"
    )


def _repeating(rng: Random, draws: Sequence[Draw], size: int) -> list[Item]:
    """Items from several draws in turn, whether or not they were drawn before; shuffled."""
    items: list[Item] = []
    while len(items) < size:
        item = draws[len(items) % len(draws)](rng)
        if item is not None:
            items.append(item)
    rng.shuffle(items)
    return items


def in_shares(
    rng: Random, draws: Sequence[Draw], size: int, taken: set[str], what: str
) -> list[Item]:
    """Different items from several draws in equal shares, shuffled."""
    items: list[Item] = []
    for place, draw in enumerate(draws):
        share = len(range(place, size, len(draws)))
        items += distinct(partial(draw, rng), share, taken, what)
    rng.shuffle(items)
    return items
