"""Nested modular arithmetic: small expressions in brackets."""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from recombine.errors import InvalidRequest, unknown
from recombine.families._draws import at_least, dice, distinct, repeated, spread
from recombine.families._sequence import Corpus, Item, SequenceFamily

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}

Tree = int | tuple[str, "Tree", "Tree"]
Nesting = tuple[str, str]  # an operation, and the operation of one of its two sides


@dataclass(frozen=True)
class Arithmetic(SequenceFamily):
    """An expression and its value modulo `modulus`: "( ( 3 + 6 ) * 2 )" is 4 modulo 7.

    One side of an operation at depth d is an expression of depth d - 1, left or right by a coin;
    the other is a number or, for another coin, a single operation. With `steps` the answer is
    every operation in turn, from the inside out and from left to right, "3 + 6 = 2 ; 2 * 2 = 4",
    and its last word is the answer proper.

    A nesting is an operation with the operation of one of its sides. Of these, `held_out` are
    drawn by the seed, no two with the same outer or the same inner operation. Training has each
    single operation on all numbers, and expressions of up to `depth` without a held-out nesting,
    as many of each depth, single operations more than once; test has fresh ones, from depth 2 on.
    Beyond it: `systematicity`, expressions of trained depths with at least one (novelty: how
    many), and `depth`, deeper ones without any (novelty: how many levels deeper). Products are
    often 0, so from depth 2 on items are drawn until all values are equally frequent.

    At most 45 words in a source and, with `steps`, 65 in an answer at the default depths.

    >>> Arithmetic().solve("( ( 3 + 6 ) * 2 )")
    '4'
    """

    name: ClassVar[str] = "arithmetic"
    unit: ClassVar[str] = "new nestings, or levels deeper than trained"
    instruction: ClassVar[str] = (
        "Work out the expression; all numbers are taken modulo the same number, which the examples"
        " show. Answer with the value alone; where the examples give every operation in turn, from"
        " the inside out and from left to right, give them as they do."
    )

    modulus: int = 7
    depth: int = 3  # the deepest expressions in training
    deepest: int = 6
    operations: tuple[str, ...] = ("+", "-", "*")
    held_out: int = 2  # nestings
    steps: bool = False
    train_items: int = 60_000
    test_items: int = 500
    beyond_items: int = 500  # in each split
    validation_items: int = 300

    def check(self) -> None:
        at_least(2, modulus=self.modulus, depth=self.depth, validation_items=self.validation_items)
        at_least(1, test_items=self.test_items, beyond_items=self.beyond_items)
        for name in self.operations:
            if name not in OPERATIONS:
                raise unknown("operation", name, OPERATIONS)
        if len(set(self.operations)) != len(self.operations) or len(self.operations) < 2:
            raise InvalidRequest(
                f"operations={self.operations} must be two or three different ones of + - *"
            )
        if not 1 <= self.held_out <= len(self.operations):
            raise InvalidRequest(
                f"held_out={self.held_out} nestings must be at least 1 and at most one for each "
                f"operation: {len(self.operations)}"
            )
        if self.deepest <= self.depth:
            raise InvalidRequest(
                f"deepest={self.deepest} must exceed depth={self.depth}, the depth of training"
            )
        least = len(self.operations) * (self.modulus**2 + 20 * self.depth)
        if self.train_items < least:
            raise InvalidRequest(
                f"train_items={self.train_items} cannot hold each operation on all numbers and "
                f"enough nested ones: at least {least}"
            )

    def held_nestings(self, seed: int) -> frozenset[Nesting]:
        """The (outer, inner) operations that no training item nests."""
        rng, names = self.rng(seed, "held out"), self.operations
        outer, inner = (rng.permutation(len(names))[: self.held_out].tolist() for _ in range(2))
        return frozenset((names[o], names[i]) for o, i in zip(outer, inner, strict=True))

    def corpus(self, seed: int) -> Corpus:
        self.check()
        held, taken = self.held_nestings(seed), set[str]()
        roll = dice(seed, f"{self.name}/expressions")

        def item(tree: Tree, depth: int) -> Item:
            novelty = _count(tree, held) + max(0, depth - self.depth)
            return Item(_text(tree), self._answer(tree), f"depth {depth}", novelty)

        def balanced(depth: int, count: int, what: str, new: bool = False) -> list[Item]:
            quota, seen = -(-count // self.modulus), Counter[str]()
            barred = frozenset[Nesting]() if new else held

            def draw() -> Item | None:
                drawn = item(_tree(roll, depth, self.modulus, self.operations, barred), depth)
                value = drawn.target.rsplit(" ", 1)[-1]
                if (new and not drawn.novelty) or seen[value] >= quota or drawn.source in taken:
                    return None
                seen[value] += 1
                return drawn

            return distinct(draw, count, taken, what)

        def several(count: int, depths: range, what: str, new: bool = False) -> list[Item]:
            found: list[Item] = []
            for depth, share in spread(count, depths):
                found += balanced(depth, share, what, new)
            return found

        numbers, trained = range(self.modulus), range(2, self.depth + 1)
        singles = [item((o, a, b), 1) for o in self.operations for a in numbers for b in numbers]
        taken.update(i.source for i in singles)
        # Single operations are few and must be learned first: training repeats them, so that it
        # has as many of each depth.
        train = repeated(singles, max(self.train_items // self.depth, len(singles)))
        train += several(self.train_items - len(train), trained, "train")
        deeper, half = range(self.depth + 1, self.deepest + 1), self.validation_items // 2
        return Corpus(
            {
                "train": train,
                "test": several(self.test_items, trained, "test"),
                "validation": several(half, trained, "validation", new=True)
                + several(self.validation_items - half, deeper, "validation"),
                "systematicity": several(self.beyond_items, trained, "systematicity", new=True),
                "depth": several(self.beyond_items, deeper, "depth"),
            }
        )

    def _answer(self, tree: Tree) -> str:
        lines: list[str] = []

        def value(node: Tree) -> int:
            if isinstance(node, int):
                return node
            name, left, right = node
            a, b = value(left), value(right)
            result = OPERATIONS[name](a, b) % self.modulus
            lines.append(f"{a} {name} {b} = {result}")
            return result

        result = value(tree)
        return " ; ".join(lines) if self.steps else str(result)

    def solve(self, source: str) -> str:
        """Works on the text with a stack: a closing bracket is where an operation is done."""
        stack: list[str | int] = []
        lines: list[str] = []
        for word in source.split(" "):
            if word == ")":
                if len(stack) < 4:
                    raise self._wrong(source)
                start, a, name, b = stack[-4:]
                if not (isinstance(a, int) and isinstance(b, int) and start == "("):
                    raise self._wrong(source)
                if name not in self.operations:
                    raise self._wrong(source)
                result = OPERATIONS[str(name)](a, b) % self.modulus
                lines.append(f"{a} {name} {b} = {result}")
                stack[-4:] = [result]
            elif word.isascii() and word.isdigit() and int(word) < self.modulus:
                stack.append(int(word))
            elif word == "(" or word in self.operations:
                stack.append(word)
            else:
                raise self._wrong(source)
        if len(stack) != 1 or not lines:
            raise self._wrong(source)
        return " ; ".join(lines) if self.steps else str(stack[0])

    def _wrong(self, source: str) -> InvalidRequest:
        return InvalidRequest(
            f"{source!r} is no expression of numbers below {self.modulus} and "
            f"{' '.join(self.operations)}: write '( ( 1 + 0 ) + 1 )', each operation in brackets "
            "and a space between words"
        )

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer`: the value is right, whatever the steps."""
        last = answer.split(" ")[-1] == item.target.split(" ")[-1]
        return {"exact": float(answer == item.target), "answer": float(last)}


def _tree(
    roll: random.Random,
    depth: int,
    modulus: int,
    names: tuple[str, ...],
    held: frozenset[Nesting],
    outer: str = "",
) -> Tree:
    if depth == 0:
        return roll.randrange(modulus)
    name = roll.choice([n for n in names if (outer, n) not in held])
    deep = _tree(roll, depth - 1, modulus, names, held, name)
    side = _tree(roll, int(depth > 1 and roll.random() < 0.5), modulus, names, held, name)
    return (name, deep, side) if roll.random() < 0.5 else (name, side, deep)


def _text(tree: Tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    name, left, right = tree
    return f"( {_text(left)} {name} {_text(right)} )"


def _count(tree: Tree, held: frozenset[Nesting]) -> int:
    if isinstance(tree, int):
        return 0
    name, *sides = tree
    here = sum(not isinstance(side, int) and (name, side[0]) in held for side in sides)
    return here + sum(_count(side, held) for side in sides)
