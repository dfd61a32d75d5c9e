"""Odd-one-out problems, whose items obey "a and b": equal fields, pictures and sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.checks import at_least
from recombine.errors import InvalidRequest
from recombine.families._odd import BASE as BASE
from recombine.families._odd import ITEMS as ITEMS
from recombine.families._odd import SETS as SETS
from recombine.families._odd import SUB_A as SUB_A
from recombine.families._odd import SUB_B as SUB_B
from recombine.families._odd import TEST_A as TEST_A
from recombine.families._odd import TEST_B as TEST_B
from recombine.families._odd import Change as Change
from recombine.families._odd import OddFamily as OddFamily
from recombine.families._odd import Symmetric as Symmetric
from recombine.families._odd import Tables as Tables
from recombine.families._odd_pictures import PicturesOdd as PicturesOdd
from recombine.families._odd_sentences import SentencesOdd as SentencesOdd


@dataclass(frozen=True)
class FieldsOdd(OddFamily):
    """Items of a few fields, in pairs: a, those of one pair are equal; b, those of another.

    What is in no pair of `pairs` is noise. The first two fields are pair 0, the next two pair 1.

    >>> family = FieldsOdd()
    >>> items, odd = family.problems(TEST_A, jax.random.key(0), 2)
    >>> items.shape
    (2, 4, 48)
    """

    name: ClassVar[str] = "fields"

    fields: int = 6
    values: int = 8
    pairs: tuple[int, int] = (0, 1)  # of a, of b

    def check(self) -> None:
        at_least(self, fields=4, values=2)
        there = range(self.fields // 2)
        if len(self.pairs) != 2 or not {*self.pairs} <= {*there} or len({*self.pairs}) < 2:
            raise InvalidRequest(
                f"pairs={self.pairs!r}: expected two different numbers from 0 to {there[-1]}, "
                "such as (0, 1)"
            )

    @property
    def rules(self) -> tuple[str, str]:
        first, second = (
            f"fields {2 * pair + 1} and {2 * pair + 2} are equal" for pair in self.pairs
        )
        return first, second

    def kind(self) -> FieldsOdd:
        return replace(self, pairs=FieldsOdd.pairs)

    def tables(self) -> Tables:
        return {"pairs": np.array(self.pairs, np.int32)}

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.fields, self.values)

    def items(
        self, key: PRNGKeyArray, a: Bool[Array, "problem item"], b: Bool[Array, "problem item"],
        tables: Tables,
    ) -> Float[Array, "problem item size"]:  # fmt: skip
        value_key, change_key = jax.random.split(key)
        drawn = jax.random.randint(value_key, (*a.shape, self.fields), 0, self.values)
        # Any of the other values, all as likely.
        changes = jax.random.randint(change_key, (*a.shape, 2), 1, self.values)
        for number, truth in enumerate((a, b)):
            place = 2 * jnp.asarray(tables["pairs"])[number]
            first = jnp.take(drawn, place, axis=-1)
            second = (first + jnp.where(truth, 0, changes[..., number])) % self.values
            drawn = drawn.at[..., place + 1].set(second)
        return jax.nn.one_hot(drawn, self.values).reshape(*a.shape, -1)

    def symmetries(self, rng: np.random.Generator) -> dict[str, Symmetric]:
        """The two fields of a pair exchanged; all values renamed alike."""

        def taken(fields: np.ndarray, values: np.ndarray) -> Change:
            return lambda items: self._rows(items)[..., fields[:, None], values].reshape(
                items.shape
            )

        def elsewhere(fields: list[int]) -> Change:
            """These fields of other items."""

            def change(items: np.ndarray) -> np.ndarray:
                rows = self._rows(items).copy()
                rows[..., fields, :] = np.roll(rows[..., fields, :], 1, axis=0)
                return rows.reshape(items.shape)

            return change

        fields, values = np.arange(self.fields), np.arange(self.values)
        found = {}
        for rule, pair in zip(self.rules, self.pairs, strict=True):
            both, order = [2 * pair, 2 * pair + 1], fields.copy()
            order[both] = order[both[::-1]]
            name = f"exchanged: {rule.removesuffix(' are equal')}"
            found[name] = Symmetric(taken(order, values), elsewhere(both))
        renamed = taken(fields, rng.permutation(self.values))
        return {**found, "values renamed": Symmetric(renamed, elsewhere(fields.tolist()))}

    def _rows(self, items: np.ndarray) -> np.ndarray:
        return items.reshape(*items.shape[:-1], *self.item_shape)

    def satisfied(
        self, items: Float[np.ndarray, "*problem item size"]
    ) -> tuple[Bool[np.ndarray, "*problem item"], Bool[np.ndarray, "*problem item"]]:
        items = np.asarray(items)
        values = items.reshape(*items.shape[:-1], *self.item_shape).argmax(axis=-1)
        a, b = (values[..., 2 * pair] == values[..., 2 * pair + 1] for pair in self.pairs)
        return a, b
