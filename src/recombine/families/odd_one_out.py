"""Odd-one-out problems, whose items obey "a and b": equal fields, pictures and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from recombine.errors import InvalidRequest
from recombine.families._factors import whole
from recombine.families._odd import BASE as BASE
from recombine.families._odd import ITEMS as ITEMS
from recombine.families._odd import SETS as SETS
from recombine.families._odd import SUB_A as SUB_A
from recombine.families._odd import SUB_B as SUB_B
from recombine.families._odd import TEST_A as TEST_A
from recombine.families._odd import TEST_B as TEST_B
from recombine.families._odd import OddFamily as OddFamily
from recombine.families._odd_pictures import PicturesOdd as PicturesOdd
from recombine.families._odd_sentences import SentencesOdd as SentencesOdd


@dataclass(frozen=True)
class FieldsOdd(OddFamily):
    """Items of a few fields: a, the first two are equal; b, the next two are; the rest is noise.

    >>> family = FieldsOdd()
    >>> items, odd = family.problems(TEST_A, jax.random.key(0), 2)
    >>> items.shape
    (2, 4, 48)
    """

    name: ClassVar[str] = "fields"

    fields: int = 6
    values: int = 8

    def check(self) -> None:
        for name, least in (("fields", 4), ("values", 2)):
            value = getattr(self, name)
            if not whole(value) or value < least:
                raise InvalidRequest(
                    f"{name}={value!r}: expected a whole number of at least {least}"
                )

    @property
    def rules(self) -> tuple[str, str]:
        return ("fields 1 and 2 are equal", "fields 3 and 4 are equal")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.fields, self.values)

    def items(
        self, key: PRNGKeyArray, a: Bool[Array, "problem item"], b: Bool[Array, "problem item"]
    ) -> Float[Array, "problem item size"]:
        value_key, change_key = jax.random.split(key)
        drawn = jax.random.randint(value_key, (*a.shape, self.fields), 0, self.values)
        # Any of the other values, all as likely.
        changes = jax.random.randint(change_key, (*a.shape, 2), 1, self.values)
        for number, truth in enumerate((a, b)):
            first = drawn[..., 2 * number]
            second = (first + jnp.where(truth, 0, changes[..., number])) % self.values
            drawn = drawn.at[..., 2 * number + 1].set(second)
        return jax.nn.one_hot(drawn, self.values).reshape(*a.shape, -1)

    def satisfied(
        self, items: Float[np.ndarray, "*problem item size"]
    ) -> tuple[Bool[np.ndarray, "*problem item"], Bool[np.ndarray, "*problem item"]]:
        items = np.asarray(items)
        values = items.reshape(*items.shape[:-1], *self.item_shape).argmax(axis=-1)
        return values[..., 0] == values[..., 1], values[..., 2] == values[..., 3]
