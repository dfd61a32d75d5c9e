"""How a task is told to a model: a code of z, drawn once per cell and shared by all its data."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from recombine.families._family import Content, Family

Examples = Callable[[int], tuple[Float[Array, "shot seen"], Float[Array, "shot answered"]]]


@dataclass(frozen=True)
class Encoding(abc.ABC):
    """Turns the latent z of one task into the numbers a model is given."""

    version: ClassVar[int] = 1
    # Whether the encoding is inert in padded modules, so that cells of several M share a program.
    pads: ClassVar[bool] = True

    def check(self, family: Family) -> None:  # noqa: B027, most encodings fit every family
        """Refuses a family whose tasks cannot be told in this way."""

    @abc.abstractmethod
    def size(self, family: Family) -> int:
        """Numbers in one code."""

    @abc.abstractmethod
    def content(self, family: Family, key: PRNGKeyArray) -> Content:
        """What is drawn once per cell; module-sized arrays are padded with zeros later."""

    @abc.abstractmethod
    def encode(
        self, content: Content, latent: Float[Array, "module"], examples: Examples
    ) -> Float[Array, "code"]:
        """The code of one task; `examples(n)` draws n demonstrations of it."""
