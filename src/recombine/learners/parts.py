"""Tasks made of parts: what a mask learner asks of the program whose networks it takes apart."""

from __future__ import annotations

import abc
from typing import Any

from jaxtyping import Array, Float, Int, PRNGKeyArray


class Parts(abc.ABC):
    """A program whose task has parts (two rules that must both hold, the modules of a teacher).

    `part` is a traced whole number, so that masks for different parts train in one population: a
    draw that depends on it must do so by arithmetic. Test items of a part tell whether the network
    can do that part where all others are in order.
    """

    @property
    @abc.abstractmethod
    def parts(self) -> int:
        """How many parts there are."""

    @property
    @abc.abstractmethod
    def chance(self) -> float:
        """The score of a network that knows nothing."""

    @abc.abstractmethod
    def shapes(self) -> tuple[Any, Any]:
        """The shapes of the network that masks lie over, as stored and as the program pads it."""

    @abc.abstractmethod
    def draw_part(self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray) -> Any:
        """Fresh items that only `part` decides, to learn a mask from."""

    @abc.abstractmethod
    def part_loss(self, arrays: dict[str, Any], model: Any, drawn: Any) -> Float[Array, ""]:
        """How badly a network does on items of `draw_part`."""

    @abc.abstractmethod
    def draw_test(self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray) -> Any:
        """Fresh items on which a network that lacks `part`, and nothing else, fails."""

    def draw_other(self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray) -> Any:
        """Fresh items on which such a network succeeds: those that test another part."""
        return self.draw_test(arrays, (part + 1) % self.parts, key)

    @abc.abstractmethod
    def part_score(self, arrays: dict[str, Any], model: Any, drawn: Any) -> Float[Array, ""]:
        """How well a network does on items of any of the draws: 1 is perfect."""
