"""Small programs over lists of digits, to be run or to be found from examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import ClassVar, Literal

import numpy as np

from recombine.errors import InvalidRequest, unknown
from recombine.families._draws import at_least, dice, distinct, spread
from recombine.families._list_programs import (
    HIDDEN,
    PRIMITIVES,
    Catalogue,
    Digits,
    Program,
    catalogue,
    execute,
    parse,
    read,
    shortest,
    show,
)
from recombine.families._sequence import Corpus, Item, SequenceFamily

ASKS = ("run", "write")
EMPTY_KEPT = 0.2  # of the runs that end with the empty list


@dataclass(frozen=True)
class Programs(SequenceFamily):
    """Chains of twelve primitives over lists of digits, the first one acting first.

    Asked to `run`, "sort tail : [ 3 1 4 ]" is answered by "[ 3 4 ]" (with `steps`, by the list
    after each primitive, parted by ";"). Asked to `write`, "[ 3 1 4 ] > [ 3 4 ] ; ..." with so
    many `examples` is answered by a program, and judged by running it: `works` is whether it does
    what the target does on the examples and on 32 hidden lists, `fits` on the examples alone. The
    target is the first of the shortest programs that fit, and examples are such that all equally
    short programs that fit do the same on every list (544 of them, hidden ones included).

    The seed draws which ordered pairs of neighbours are held out, `held_out` of those that no
    single primitive replaces, together with pairs that do the same. Training has programs of up
    to `depth` primitives without such a pair, and single primitives. Beyond it: `systematicity`,
    programs of trained lengths with at least one (novelty: how many), and `depth`, longer ones
    without any (novelty: how much longer). When writing, that holds of every equally short
    program that does the same, so no detour around a held-out pair exists at that length.

    Longest at the defaults: run 13 words and an answer of 8, write 53 and 4; 26 words in all.

    >>> Programs().solve("sort tail : [ 3 1 4 ]")
    '[ 3 4 ]'
    >>> Programs(asks="write").solve("[ 3 1 4 ] > [ 3 4 ] ; [ 5 9 2 6 ] > [ 5 6 9 ]")
    'sort tail'
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "programs"
    unit: ClassVar[str] = "new pairs of primitives, or primitives more than trained"
    instruction: ClassVar[str] = (
        "Programs are chains of primitives on lists of digits, the first acting first: increment,"
        " double and negate change each digit, modulo 10; evens, odds and large (5 or more) keep"
        " some digits; reverse and sort (ascending); tail drops the first, three keeps the first"
        " three, unique keeps first occurrences, maximum keeps the greatest digit, once."
        " If a program and a list are given, answer with the resulting list as the examples do; if"
        " lists before and after are given, answer with the shortest program that fits."
    )

    asks: Literal["run", "write"] = "run"
    depth: int = 2  # the longest program in training
    deepest: int = 4
    held_out: float = 0.2  # share of the pairs
    examples: int = 3  # shown, when writing
    shortest_list: int = 3
    longest_list: int = 6
    lists: int = 512  # that examples are taken from, when writing
    steps: bool = False
    train_items: int = 40_000
    test_items: int = 500
    beyond_items: int = 500  # in each split
    validation_items: int = 300

    def check(self) -> None:
        if self.asks not in ASKS:
            raise unknown("question", self.asks, ASKS)
        at_least(1, examples=self.examples, shortest_list=self.shortest_list, lists=self.lists)
        at_least(1, test_items=self.test_items, beyond_items=self.beyond_items)
        at_least(2, depth=self.depth, validation_items=self.validation_items)
        at_least(200, train_items=self.train_items)
        if self.longest_list < max(3, self.shortest_list) or 10**self.longest_list < 4 * self.lists:
            raise InvalidRequest(
                f"lists={self.lists} different lists of {self.shortest_list} to "
                f"{self.longest_list} digits are wanted: longest_list must be at least 3, at "
                "least shortest_list, and large enough for so many"
            )
        if self.examples > self.lists:
            raise InvalidRequest(f"examples={self.examples} exceed lists={self.lists}")
        if not self.depth < self.deepest <= (4 if self.asks == "write" else 20):
            raise InvalidRequest(
                f"deepest={self.deepest} must exceed depth={self.depth} and be at most 4 when "
                "writing (all programs of that length are tried), 20 when running"
            )
        if not 0 < self.held_out <= 0.5:
            raise InvalidRequest(f"held_out={self.held_out} must be a share up to 0.5")
        if self.steps and self.asks == "write":
            raise InvalidRequest("steps are for running programs: leave steps=False when writing")

    def catalogue(self, length: int) -> Catalogue:
        return catalogue(length, self.lists, self.shortest_list, self.longest_list)

    def held_pairs(self, seed: int) -> frozenset[Program]:
        """The pairs that no training program has as neighbours."""
        known = self.catalogue(2)
        pairs = known.programs[known.upto[1] : known.upto[2]]
        rng, held = self.rng(seed, "held out"), set[Program]()
        # As many in either place for each primitive as can be, so that none is left without pairs.
        firsts, seconds, wanted = Counter[str](), Counter[str](), round(self.held_out * len(pairs))
        most, chosen = -(-wanted // len(PRIMITIVES)) + 1, 0
        for i in rng.permutation(len(pairs)):
            first, second = pairs[i][0]
            if chosen < max(1, wanted) and firsts[first] < most and seconds[second] < most:
                held.update(pairs[i])
                firsts[first] += 1
                seconds[second] += 1
                chosen += 1
        return frozenset(held)

    def corpus(self, seed: int) -> Corpus:
        self.check()
        taken, half = set[str](), self.validation_items // 2
        # One of the two is used; they differ in what `item` is given.
        if self.asks == "write":
            source = writing = _Writing(self, seed)
            basic = [lambda row=row: writing.item(row) for row in writing.basic()]
        else:
            source = running = _Running(self, seed)
            basic = [lambda pair=pair: running.item(pair) for pair in running.basic()]

        def trained(count: int, what: str, new: bool = False) -> list[Item]:
            # Long programs are many and short ones few, so a length has its number as weight.
            lengths = range(2 if new else 1, self.depth + 1)

            def draw() -> Item | None:
                return source.draw(source.roll.choices(lengths, weights=lengths)[0], new)

            return distinct(draw, count, taken, what)

        def longer(count: int, what: str) -> list[Item]:
            found: list[Item] = []
            for length, share in spread(count, range(self.depth + 1, self.deepest + 1)):
                found += distinct(lambda k=length: source.draw(k, False), share, taken, what)
            return found

        train = [item for draw in basic if (item := _first(draw, taken))]
        train += trained(self.train_items - len(train), "train")
        return Corpus(
            {
                "train": train,
                "test": trained(self.test_items, "test"),
                "validation": trained(half, "validation", new=True)
                + longer(self.validation_items - half, "validation"),
                "systematicity": trained(self.beyond_items, "systematicity", new=True),
                "depth": longer(self.beyond_items, "depth"),
            }
        )

    def solve(self, source: str) -> str:
        if self.asks == "write":
            found = shortest(_examples(source), self.deepest)
            if found is None:
                raise InvalidRequest(
                    f"no program of at most deepest={self.deepest} primitives fits {source!r}"
                )
            return " ".join(found)
        text, colon, digits = source.partition(" : ")
        program = parse(text)
        if not colon or program is None:
            raise InvalidRequest(
                f"{source!r} is no program and list: write 'sort tail : [ 3 1 4 ]', with "
                f"primitives {', '.join(PRIMITIVES)}"
            )
        return self._run(program, read(digits))

    def _run(self, program: Program, digits: Digits) -> str:
        results = [digits]
        for name in program:
            results.append(PRIMITIVES[name](results[-1]))
        return " ; ".join(map(show, results[1:])) if self.steps else show(results[-1])

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer` when running: the last list is right. `works`, `fits` when writing."""
        exact = float(answer == item.target)
        if self.asks == "run":
            last = answer.split(" ; ")[-1] == item.target.split(" ; ")[-1]
            return {"exact": exact, "answer": float(last)}
        program, target = parse(answer), parse(item.target)
        if program is None or target is None:
            return {"exact": exact, "works": 0.0, "fits": 0.0}
        fits = all(execute(program, before) == after for before, after in _examples(item.source))
        hidden = self.catalogue(2).lists[-HIDDEN:]
        same = all(execute(program, digits) == execute(target, digits) for digits in hidden)
        return {"exact": exact, "works": float(fits and same), "fits": float(fits)}


class _Running:
    """Draws programs and lists to run them on."""

    def __init__(self, family: Programs, seed: int):
        self.family, self.held = family, family.held_pairs(seed)
        self.roll = dice(seed, "programs/run")

    def basic(self) -> list[Program]:
        """What training must not lack: single primitives and pairs that are not held out."""
        pairs = [*((a,) for a in PRIMITIVES), *product(PRIMITIVES, repeat=2)]
        return [pair for pair in pairs if pair not in self.held]

    def draw(self, length: int, new: bool) -> Item | None:
        program = tuple(self.roll.choices(tuple(PRIMITIVES), k=length))
        return self.item(program) if bool(_held(program, self.held)) == new else None

    def item(self, program: Program) -> Item | None:
        family, roll, length = self.family, self.roll, len(program)
        size = roll.randint(family.shortest_list, family.longest_list)
        digits = tuple(roll.randrange(10) for _ in range(size))
        # Filters after filters leave nothing; too much of that makes one answer a good guess.
        if not execute(program, digits) and roll.random() > EMPTY_KEPT:
            return None
        source = f"{' '.join(program)} : {show(digits)}"
        novelty = _held(program, self.held) + max(0, length - family.depth)
        return Item(source, family._run(program, digits), f"length {length}", novelty)


class _Writing:
    """Draws programs and lists that tell them from all others as short."""

    def __init__(self, family: Programs, seed: int):
        self.family, self.known = family, family.catalogue(family.deepest)
        self.roll = dice(seed, "programs/write")
        held = family.held_pairs(seed)
        counts = [[_held(program, held) for program in same] for same in self.known.programs]
        upto = self.known.upto

        def rows(length: int, new: bool) -> list[int]:
            between = range(upto[length - 1], upto[length])
            return [r for r in between if all((n > 0) == new for n in counts[r])]

        self.novelty = [c[0] for c in counts]
        self.rows = {(k, new): rows(k, new) for k in range(1, len(upto)) for new in (False, True)}
        self.by_list = np.ascontiguousarray(self.known.results.T)

    def basic(self) -> list[int]:
        return self.rows[1, False] + self.rows[2, False]

    def draw(self, length: int, new: bool) -> Item | None:
        rows = self.rows[length, new]
        return self.item(self.roll.choice(rows)) if rows else None

    def item(self, row: int) -> Item | None:
        family, known = self.family, self.known
        program = known.programs[row][0]
        shown = self.roll.sample(range(family.lists), family.examples)
        results = self.by_list[shown, : known.upto[len(program)]]
        if (results == results[:, row, None]).all(0).sum() > 1:
            return None
        before = [known.lists[i] for i in shown]
        source = " ; ".join(f"{show(b)} > {show(execute(program, b))}" for b in before)
        novelty = self.novelty[row] + max(0, len(program) - family.depth)
        return Item(source, " ".join(program), f"length {len(program)}", novelty)


def _first(draw: Callable[[], Item | None], taken: set[str]) -> Item | None:
    """An item if a few hundred draws give one: some programs no examples can tell from others."""
    for _ in range(500):
        if (item := draw()) and item.source not in taken:
            taken.add(item.source)
            return item
    return None


def _held(program: Program, held: frozenset[Program]) -> int:
    return sum(pair in held for pair in pairwise(program))


def _examples(source: str) -> list[tuple[Digits, Digits]]:
    found: list[tuple[Digits, Digits]] = []
    pairs: Iterable[tuple[str, str, str]] = (e.partition(" > ") for e in source.split(" ; "))
    for before, arrow, after in pairs:
        if not arrow:
            raise InvalidRequest(
                f"{source!r} is no list of examples: write '[ 3 1 ] > [ 1 3 ] ; [ 2 ] > [ 2 ]'"
            )
        found.append((read(before), read(after)))
    return found
