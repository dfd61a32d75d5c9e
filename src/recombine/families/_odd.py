"""What families of odd-one-out problems share: which items break which rule, set by set."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

ITEMS = 4  # of a problem
# The sets of problems, by the number that asks for them.
BASE, SUB_A, SUB_B, TEST_A, TEST_B = range(5)
SETS = ("base", "sub-a", "sub-b", "test-a", "test-b")
Tables = Mapping[str, Array | np.ndarray]
Items = Float[np.ndarray, "*axes size"]
Change = Callable[[Items], Items]


class Symmetric(NamedTuple):
    """A change of items after which both rules say the same of them as before, and what it is
    compared with: the same parts of every item taken from others, or drawn anew."""

    kept: Change
    lost: Change


class Wanted(NamedTuple):
    """Which rules the items of each problem are to obey, and which item is the odd one."""

    a: Bool[Array, "problem item"]
    b: Bool[Array, "problem item"]
    odd: Int[Array, "problem"]


def wanted(which: Int[Array, ""] | int, key: PRNGKeyArray, count: int, *, mixtures: bool) -> Wanted:
    """Draws what is asked of every item; `which` is the number of a set and may be traced.

    | set    | three items     | the odd one                   | with `mixtures`    |
    |--------|-----------------|-------------------------------|--------------------|
    | base   | a and b         | breaks a, b or both           | breaks a or b      |
    | sub-a  | a, b by chance  | breaks a, b by chance         | breaks a, keeps b  |
    | sub-b  | b, a by chance  | breaks b, a by chance         | breaks b, keeps a  |
    | test-a | a and b         | breaks a, keeps b             | the same           |
    | test-b | a and b         | breaks b, keeps a             | the same           |

    The other three are drawn alike, so that an odd one at a random place is a random order.
    """
    place_key, break_key, a_key, b_key = jax.random.split(key, 4)
    odd = jax.random.randint(place_key, (count,), 0, ITEMS)
    broken = jax.random.randint(break_key, (count, 1), 0, 2 if mixtures else 3)
    by_chance = [jax.random.bernoulli(k, 0.5, (count, ITEMS)) for k in (a_key, b_key)]
    truths = []
    for chance, other_sub, own_test, kept in (
        (by_chance[0], SUB_B, TEST_B, broken == 1),
        (by_chance[1], SUB_A, TEST_A, broken == 0),
    ):
        regular = jnp.where(which == other_sub, chance, True)
        loose = jnp.ones_like(chance) if mixtures else chance
        breaker = jnp.where(which == other_sub, loose, which == own_test)
        breaker = jnp.where(which == BASE, kept, breaker)
        truths.append(jnp.where(jnp.arange(ITEMS) == odd[:, None], breaker, regular))
    return Wanted(truths[0], truths[1], odd)


@dataclass(frozen=True)
class OddFamily(abc.ABC):
    """Problems of four items, three of which obey "a and b"; one is odd.

    A subclass is a frozen dataclass that says what items are and how one that obeys given rules
    is drawn. Its problems have no modules, supports or encodings: what is composed is two rules.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str]
    # Whether an item that breaks both rules is in order again, as a sentence whose subject and
    # verb are both plural: then the odd one breaks exactly one.
    mixtures: ClassVar[bool] = False
    # Whether an item is rows that each have a single one (fields, words), not a picture.
    categorical: ClassVar[bool] = True

    def check(self) -> None:  # noqa: B027, most cannot be asked for the impossible
        """Refuses sizes that cannot be, with a sentence."""

    @property
    @abc.abstractmethod
    def rules(self) -> tuple[str, str]:
        """What a and b are, in a few words."""

    @property
    def in_company(self) -> tuple[str, ...]:
        """The rules that are true of an item among others of its problem, never of one alone."""
        return ()

    @property
    @abc.abstractmethod
    def item_shape(self) -> tuple[int, ...]:
        """The axes behind the flat numbers of an item: (rows, values) or (side, side, channels)."""

    @property
    def item_size(self) -> int:
        return math.prod(self.item_shape)

    @abc.abstractmethod
    def kind(self) -> OddFamily:
        """The one that stands for all families that differ from this one in their `tables` alone.

        Networks of one kind share a compiled program, which is given the tables as arrays.
        """

    @abc.abstractmethod
    def tables(self) -> Tables:
        """What tells this family from others of its kind, in arrays of the same shapes."""

    @abc.abstractmethod
    def items(
        self, key: PRNGKeyArray, a: Bool[Array, "problem item"], b: Bool[Array, "problem item"],
        tables: Tables,
    ) -> Float[Array, "problem item size"]:  # fmt: skip
        """Items that obey the rules of `tables` where told to, and break them elsewhere."""

    @abc.abstractmethod
    def satisfied(
        self, items: Float[np.ndarray, "*problem item size"]
    ) -> tuple[Bool[np.ndarray, "*problem item"], Bool[np.ndarray, "*problem item"]]:
        """Which items obey a, and which b, read off the items themselves on the host."""

    @abc.abstractmethod
    def symmetries(self, rng: np.random.Generator) -> dict[str, Symmetric]:
        """Changes of items, by name, after which both rules say the same of them as before."""

    def problems(
        self, which: Int[Array, ""] | int, key: PRNGKeyArray, count: int,
        tables: Tables | None = None,
    ) -> tuple[Float[Array, "problem item size"], Int[Array, "problem"]]:  # fmt: skip
        """Fresh problems of a set, and the place of the odd one in each; by its own tables, or
        by those of another family of its kind."""
        truth_key, item_key = jax.random.split(key)
        asked = wanted(which, truth_key, count, mixtures=self.mixtures)
        return self.items(item_key, asked.a, asked.b, tables or self.tables()), asked.odd

    def valid(
        self, key: PRNGKeyArray, count: int, tables: Tables | None = None
    ) -> Float[Array, "count size"]:
        """Items with nothing wrong: those that obey both rules (or, with `mixtures`, neither)."""
        truth_key, item_key = jax.random.split(key)
        truth = jnp.ones((count, 1), bool)
        if self.mixtures:
            truth = jax.random.bernoulli(truth_key, 0.5, (count, 1))
        return self.items(item_key, truth, truth, tables or self.tables())[:, 0]
