"""Chains of named functions, of which a support decides which ones training sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int

from recombine.combinations import Slots
from recombine.errors import InvalidRequest
from recombine.families._draws import at_least, repeated
from recombine.families._sequence import Corpus, Item, SequenceFamily
from recombine.families.functions import Functions
from recombine.seeds import host_seed
from recombine.supports._novelty import LEVELS, novelty
from recombine.supports.collected import Collected
from recombine.supports.rules import SupportRule
from recombine.supports.support import Support


@dataclass(frozen=True)
class Chains(SequenceFamily):
    """A symbol sent through `length` functions; a support says which chains training sees.

    "a5 f7 f1 f1" asks for f1(f1(f7(a5))). A chain is a combination: a factor for each place, a
    value for each function that may stand there (`space`). The support is drawn from the corpus's
    seed; what the functions do is drawn from `content` alone.

    Training has each function alone on each symbol, and each seen chain on all symbols but
    `fresh` of them; chains that a support lists again come again. Test has seen chains on the
    symbols kept back. Beyond it: `collected`, the chains that the support sets apart for testing,
    on every symbol. An eighth of these, at least one, are `validation` instead. Novelty is how
    many places of a chain must change to make it one of training.

    >>> family = Chains(SupportRule("random", 0.5), functions=4, length=3)
    >>> family.space.size, len(family.support_of(0).seen), family.chain(7)
    (64, 32, 'f0 f1 f3')
    """

    name: ClassVar[str] = "chains"
    unit: ClassVar[str] = "functions to change to make it a trained chain"
    instruction: ClassVar[str] = (
        "Functions f0, f1, ... send symbols a0, a1, ... to symbols; what each does is to be learned"
        " from the examples. A symbol is followed by the functions that act on it, in order. Answer"
        " with the resulting symbol alone; where the examples give the intermediate symbols too,"
        " give them as they do, parted by spaces."
    )

    support: SupportRule | Collected = field(default_factory=lambda: SupportRule("random", 0.7))
    maps: Literal["permutations", "tables"] = "permutations"
    functions: int = 6
    values: int = 8
    length: int = 3
    steps: bool = False
    fresh: int = 1  # symbols of a seen chain that are kept for the test
    content: int = 0

    @property
    def space(self) -> Slots:
        """All chains."""
        return Slots((self.functions,) * self.length)

    @property
    def alone(self) -> Functions:
        """The functions themselves, in chains of any length."""
        return Functions(
            maps=self.maps, functions=self.functions, values=self.values, steps=self.steps,
            content=self.content, depth=self.length, deepest=self.length + 1, train_items=10**9,
        )  # fmt: skip

    def check(self) -> None:
        at_least(2, functions=self.functions, values=self.values, length=self.length)
        self.alone.check()
        if not 1 <= self.fresh < self.values:
            raise InvalidRequest(
                f"fresh={self.fresh} of values={self.values}: a seen chain keeps at least one "
                f"symbol for the test and one for training; use fresh=1 to {self.values - 1}"
            )
        self.support.check(self.space)

    def chain(self, rank: int) -> str:
        """The functions of a chain, in the order in which they act."""
        return " ".join(f"f{f}" for f in self.space.values([rank])[0])

    def sources(self, rank: int) -> list[str]:
        """A chain on every symbol."""
        chain = self.chain(rank)
        return [f"a{value} {chain}" for value in range(self.values)]

    def support_of(self, seed: int) -> Support:
        """What training sees under a corpus's seed."""
        return self.support.build(self.space, self.support_seed(seed))

    @staticmethod
    def support_seed(seed: int) -> int:
        """The seed that a support is drawn from under a corpus's seed."""
        return host_seed(seed, "chains/support")

    def corpus(self, seed: int) -> Corpus:
        self.check()
        support, kept = self.support_of(seed), self._kept(seed)
        train = [
            item
            for rank in support.drawn.tolist()
            for value, item in enumerate(self._items(rank, "seen chain", 0))
            if value not in kept[rank]
        ]
        test = [
            item
            for rank in support.seen.tolist()
            for value, item in enumerate(self._items(rank, "seen chain", 0))
            if value in kept[rank]
        ]
        singles = [
            self._item(f"a{value} f{f}", "one function", 0)
            for f in range(self.functions)
            for value in range(self.values)
        ]
        # One function alone is a small part of what there is to see, and must be known first.
        train += repeated(singles, max(len(singles), len(train) // (2 * self.length)))
        beyond = self._beyond(support, seed)
        few = max(1, len(beyond) // 8)
        parts = {"validation": beyond[:few], "collected": beyond[few:]}
        return Corpus(
            {"train": train, "test": test}
            | {name: [item for items in part for item in items] for name, part in parts.items()}
        )

    def solve(self, source: str) -> str:
        return self.alone.solve(source)

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`answer`: the last symbol is right, whatever the steps."""
        return self.alone.scores(item, answer)

    def _beyond(self, support: Support, seed: int) -> list[list[Item]]:
        """The items of each chain that is tested, in an order that the seed decides."""
        tested = support.tested
        if len(tested) < 2:
            raise InvalidRequest(
                f"{len(tested)} of {self.space.size} chains are left to test, expected at least "
                "2: hold out more, or use more functions"
            )
        tested = tested[self.rng(seed, "tested").permutation(len(tested))]
        new = novelty(support, tested)
        assert new.nearest is not None
        return [
            self._items(rank, LEVELS[level], int(changes))
            for rank, level, changes in zip(tested.tolist(), new.level, new.nearest, strict=True)
        ]

    def _kept(self, seed: int) -> Int[np.ndarray, "chain fresh"]:
        """The symbols on which a chain is never trained: the same under every support."""
        first = self.rng(seed, "fresh").integers(self.values, size=(self.space.size, 1))
        return (first + np.arange(self.fresh)) % self.values

    def _items(self, rank: int, part: str, new: int) -> list[Item]:
        return [self._item(source, part, new) for source in self.sources(rank)]

    def _item(self, source: str, part: str, new: int) -> Item:
        return Item(source, self.solve(source), part, new)
