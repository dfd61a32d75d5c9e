"""Learning with a network that has learnt something else before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from recombine.errors import InvalidRequest
from recombine.learners._learner import Arrays, Learner, Tensors
from recombine.learners._tasks import model_shapes
from recombine.learners.as_drawn import AsDrawn, taught
from recombine.learners.supervised import Supervised
from recombine.trees import pad_to, unnamed


@dataclass(frozen=True)
class Continued(Supervised):
    """Begins with the network that `base` ends with, which must have the same shape.

    `base` is where it was pretrained: on another teacher, if its content seed is another. With
    `AsDrawn` as its base it starts from scratch.

    >>> pretrained = Supervised(training_steps=1_000)
    >>> sorted(Continued.after(pretrained, training_steps=500).upstream())
    ['base']
    """

    version: ClassVar[int] = 1

    base: Learner = field(default_factory=Supervised)

    @classmethod
    def after(cls, base: Supervised | AsDrawn, **changes: Any) -> Self:
        """The learner that goes on where `base` ends, with all its settings but the changes."""
        settings = {one.name: getattr(taught(base), one.name) for one in fields(Supervised)}
        return cls(**{**settings, "base": base, **changes})

    def upstream(self) -> dict[str, Learner]:
        return {"base": self.base}

    def check(self) -> None:
        super().check()
        self.base.check()
        before = taught(self.base)
        for what in ("family", "encoding", "model"):
            own, other = getattr(self, what), getattr(before, what, None)
            if own != other:
                raise InvalidRequest(
                    f"the base has {what} {other}, and this learner {own}: a network can only go "
                    "on as what it is"
                )

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        plain = super().prepare({}).member
        if not given:  # tasks can still be drawn
            return Arrays(member=plain)
        model = unnamed(given["base"], model_shapes(self.natural()))
        return Arrays(member=plain, first={"known": pad_to(model, model_shapes(self.program()))})
