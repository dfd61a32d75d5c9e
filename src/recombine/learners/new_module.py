"""Learning one new module with a network that knows the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from recombine.errors import InvalidRequest
from recombine.learners._learner import Arrays, Tensors
from recombine.learners._tasks import build_support, content_shapes, draw_content
from recombine.learners.continued import Continued
from recombine.learners.supervised import SupervisedProgram
from recombine.trees import pad_to


@dataclass(frozen=True)
class NewModule(Continued):
    """A finished network goes on learning after one module was exchanged for another.

    Only combinations with the new module are trained and tested, of those that `base` saw and of
    those it did not. How many steps it takes is told by the curves of `seen` and `unseen`.
    """

    version: ClassVar[int] = 1

    module: int = 0
    fresh: int = 1_000_000  # seed of the new module's content

    def check(self) -> None:
        super().check()
        if not 0 <= self.module < self.family.modules:
            raise InvalidRequest(f"module={self.module}: expected 0 to {self.family.modules - 1}")

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        known = super().prepare(given)
        plain = known.member
        member = {**plain, "family": self._exchanged(self.program()), **self._tables(plain)}
        return Arrays(member=member, first=known.first)

    def _exchanged(self, program: SupervisedProgram) -> Any:
        """The family's content with one module drawn anew."""
        old, new = (
            draw_content(self.family, self.encoding, seed, self.seeds.encoding)[0]
            for seed in (self.seeds.content, self.fresh + self.seeds.content)
        )
        one_more = self._one_more()
        content = {}
        for name, leaf in old.items():
            content[name] = leaf = np.array(leaf)
            # What grows with the number of modules belongs to them; a readout may happen to have
            # as many rows.
            if leaf.shape != one_more[name].shape:
                leaf[self.module] = new[name][self.module]
        return pad_to(content, content_shapes(program.family, self.encoding)[0])

    def _one_more(self) -> Any:
        """Shapes of the content of the same family with one module more."""
        modules, levels = self.family.modules + 1, getattr(self.family, "levels", ())
        changes: dict[str, Any] = {"modules": modules}
        if levels:
            changes["levels"] = (levels[0] + 1, *levels[1:])
        return content_shapes(replace(self.family, **changes), self.encoding)[0]

    def _tables(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Seen and unseen combinations that have the module."""
        support = build_support(self.family, self.support, self.seeds.support)
        found = {}
        for name, ranks in (("seen", support.seen), ("unseen", support.held_out)):
            mine = ranks[support.space.indicator(ranks)[:, self.module]]
            if not mine.size:
                raise InvalidRequest(f"no {name} combination has module {self.module}")
            table = np.full_like(plain[name], np.iinfo(np.uint32).max)
            table[: mine.size] = mine
            found |= {name: table, f"{name}_count": np.int32(mine.size)}
        return found
