"""Composition of named functions over a small set of symbols."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

from recombine.errors import InvalidRequest, unknown
from recombine.families._draws import at_least, dice, distinct, repeated, spread
from recombine.families._sequence import Corpus, Item, SequenceFamily

MAPS = ("permutations", "tables")


@dataclass(frozen=True)
class Functions(SequenceFamily):
    """A symbol sent through a chain of functions: "a5 f7 f1" asks for f1(f7(a5)).

    The symbol stands first, then the functions in the order in which they act (innermost first).
    What the functions do is drawn from `content` alone, so that it is the same for every split;
    they are distinct bijections (`permutations`) or any distinct maps (`tables`). With `steps`
    the answer is every intermediate result in turn, the last one being the answer proper.

    Which ordered pairs of neighbours are held out is drawn from the corpus's seed: as many for
    each function in either place. Training has each function on each symbol, each pair that is
    not held out, and chains of up to `depth` functions without a held-out pair, as many of each
    length, short ones more than once; test has fresh ones, from pairs on. Beyond it:
    `systematicity`, chains of trained lengths with at least one held-out pair (novelty: how
    many), and `depth`, chains longer than trained, without any (novelty: how much longer).

    At most depth + 1 words in a source in training, deepest + 1 beyond; 22 words in all.

    >>> Functions().solve("a5 f7 f1") == Functions().solve(Functions().solve("a5 f7") + " f1")
    True
    """

    name: ClassVar[str] = "functions"
    unit: ClassVar[str] = "new pairs of functions, or functions more than trained"
    instruction: ClassVar[str] = (
        "Functions f0, f1, ... send symbols a0, a1, ... to symbols; what each does is to be learned"
        " from the examples. A symbol is followed by the functions that act on it, in order. Answer"
        " with the resulting symbol alone; where the examples give the intermediate symbols too,"
        " give them as they do, parted by spaces."
    )

    maps: Literal["permutations", "tables"] = "permutations"
    functions: int = 12
    values: int = 10
    depth: int = 3  # the longest chain in training
    deepest: int = 6
    held_out: float = 0.2  # share of the ordered pairs of functions
    steps: bool = False
    content: int = 0
    train_items: int = 20_000
    test_items: int = 500
    beyond_items: int = 500  # in each split
    validation_items: int = 300

    @property
    def _held_each(self) -> int:
        return max(1, round(self.held_out * self.functions))

    def check(self) -> None:
        if self.maps not in MAPS:
            raise unknown("kind of maps", self.maps, MAPS)
        at_least(2, functions=self.functions, values=self.values, depth=self.depth)
        at_least(1, test_items=self.test_items, beyond_items=self.beyond_items)
        at_least(2, validation_items=self.validation_items)
        if self.deepest <= self.depth:
            raise InvalidRequest(
                f"deepest={self.deepest} must exceed depth={self.depth}, the depth of training"
            )
        if not 0 < self.held_out < 1 or self._held_each >= self.functions:
            raise InvalidRequest(
                f"held_out={self.held_out} of functions={self.functions} must leave each function "
                "some partners in training: a share between 0 and 1, such as 0.2"
            )
        there = _many(self.maps, self.values)
        if self.functions > there:
            raise InvalidRequest(
                f"functions={self.functions} distinct {self.maps} of values={self.values} are "
                f"wanted, and there are {there}"
            )
        least = self.functions * (self.values + self.functions - self._held_each)
        if self.train_items < least:
            raise InvalidRequest(
                f"train_items={self.train_items} cannot hold each function on each symbol and "
                f"each trained pair: at least {least}"
            )

    def held_pairs(self, seed: int) -> frozenset[tuple[int, int]]:
        """The ordered pairs (earlier, later) that no training item has as neighbours."""
        rng, n = self.rng(seed, "held out"), self.functions
        first, second = rng.permutation(n).tolist(), rng.permutation(n).tolist()
        shifts = range(self._held_each)
        return frozenset((first[i], second[(i + s) % n]) for i in range(n) for s in shifts)

    def corpus(self, seed: int) -> Corpus:
        self.check()
        held = self.held_pairs(seed)
        roll, taken, n = dice(seed, f"{self.name}/chains"), set[str](), self.functions
        partners = [[g for g in range(n) if (f, g) not in held] for f in range(n)]

        def item(value: int, chain: list[int]) -> Item:
            source = " ".join([f"a{value}", *(f"f{f}" for f in chain)])
            novelty = sum(pair in held for pair in pairwise(chain))
            novelty += max(0, len(chain) - self.depth)
            return Item(source, self.solve(source), f"depth {len(chain)}", novelty)

        def known(length: int) -> Item:
            chain = [roll.randrange(n)]
            while len(chain) < length:
                chain.append(roll.choice(partners[chain[-1]]))
            return item(roll.randrange(self.values), chain)

        def new(length: int) -> Item | None:
            drawn = item(roll.randrange(self.values), [roll.randrange(n) for _ in range(length)])
            return drawn if drawn.novelty else None

        singles = [item(v, [f]) for f in range(n) for v in range(self.values)]
        pairs = [item(roll.randrange(self.values), [f, g]) for f in range(n) for g in partners[f]]
        taken.update(i.source for i in singles + pairs)

        # Short chains are few and must be learned first: training repeats them, so that it has as
        # many of each length.
        train = repeated(singles, max(self.train_items // self.depth, len(singles)))
        test, trained = list[Item](), range(2, self.depth + 1)
        for length in trained:
            core, lengths = pairs if length == 2 else [], self.depth + 1 - length
            wanted = max((self.train_items - len(train)) // lengths, len(core))
            there = n * len(partners[0]) ** (length - 1) * self.values - len(core)
            fresh = min((self.test_items - len(test)) // lengths, there // 2)
            more = min(wanted - len(core), there - fresh)
            drawn = distinct(lambda k=length: known(k), fresh + more, taken, "train and test")
            test += drawn[:fresh]
            train += repeated(core + drawn[fresh:], wanted)
        if len(test) < self.test_items:
            raise InvalidRequest(
                f"test_items={self.test_items} are wanted, and chains of up to {self.depth} give "
                f"{len(test)} beside training: ask for fewer"
            )

        def systematic(count: int) -> list[Item]:
            found: list[Item] = []
            for length in trained:
                held_items = n * (n ** (length - 1) - len(partners[0]) ** (length - 1))
                # Both calls together take at most all of them.
                most = held_items * self.values // 2
                wanted = -(-(count - len(found)) // (self.depth + 1 - length))
                found += distinct(
                    lambda k=length: new(k), min(wanted, most), taken, "systematicity"
                )  # fmt: skip
            if len(found) < count:
                raise InvalidRequest(
                    f"{count} items are wanted for systematicity, and there are {len(found)}: "
                    "ask for fewer beyond_items or validation_items"
                )
            return found

        def deep(count: int) -> list[Item]:
            found: list[Item] = []
            for length, share in spread(count, range(self.depth + 1, self.deepest + 1)):
                found += distinct(lambda k=length: known(k), share, taken, "depth")
            return found

        half = self.validation_items // 2
        return Corpus(
            {
                "train": train,
                "test": test,
                "validation": systematic(half) + deep(self.validation_items - half),
                "systematicity": systematic(self.beyond_items),
                "depth": deep(self.beyond_items),
            }
        )

    def solve(self, source: str) -> str:
        first, *names = source.split(" ")
        value = _number(source, first, "a", self.values)
        if not names:
            raise InvalidRequest(f"{source!r} names no function: write 'a5 f7 f1'")
        tables = _content(self.maps, self.functions, self.values, self.content)
        results: list[str] = []
        for word in names:
            value = tables[_number(source, word, "f", self.functions)][value]
            results.append(f"a{value}")
        return " ".join(results) if self.steps else results[-1]

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer`: the last symbol is right, whatever the steps."""
        last = answer.split(" ")[-1] == item.target.split(" ")[-1]
        return {"exact": float(answer == item.target), "answer": float(last)}


def _number(source: str, word: str, letter: str, size: int) -> int:
    digits = word.removeprefix(letter)
    if word.startswith(letter) and digits.isascii() and digits.isdigit() and int(digits) < size:
        return int(digits)
    raise InvalidRequest(
        f"{source!r} is no chain of functions: {word!r} stands where one of "
        f"{letter}0 to {letter}{size - 1} should, as in 'a5 f7 f1'"
    )


def _many(maps: str, values: int) -> int:
    """How many functions of a kind there are, or a million if more."""
    there = 1
    for i in range(1, values + 1):
        there *= i if maps == "permutations" else values
        if there > 1_000_000:
            break
    return there


@functools.lru_cache(maxsize=64)
def _content(maps: str, functions: int, values: int, content: int) -> tuple[tuple[int, ...], ...]:
    roll = dice(content, f"functions/{maps}")
    tables: dict[tuple[int, ...], None] = {}
    while len(tables) < functions:
        if maps == "permutations":
            drawn = roll.sample(range(values), values)
        else:
            drawn = [roll.randrange(values) for _ in range(values)]
        tables[tuple(drawn)] = None
    return tuple(tables)
