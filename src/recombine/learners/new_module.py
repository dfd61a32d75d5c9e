"""Learning one new module with a network that knows the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from recombine.errors import InvalidRequest
from recombine.learners._learner import Arrays, Learner, Tensors
from recombine.learners._tasks import build_support, content_shapes, draw_content, model_shapes
from recombine.learners.as_drawn import AsDrawn
from recombine.learners.optimiser import Trained, start
from recombine.learners.supervised import Supervised, SupervisedProgram
from recombine.trees import pad_to, unnamed


@dataclass(frozen=True)
class NewModuleProgram(SupervisedProgram):
    """Begins with weights that are given."""

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        return start(arrays["known"]) if "known" in arrays else super().init(arrays, key)


@dataclass(frozen=True)
class NewModule(Supervised):
    """A finished network goes on learning after one module was exchanged for another.

    Only combinations with the new module are trained and tested, of those that `base` saw and of
    those it did not. How many steps it takes is told by the curves of `seen` and `unseen`. With
    `AsDrawn` as its base it starts from scratch.
    """

    version: ClassVar[int] = 1

    base: Learner = field(default_factory=Supervised)
    module: int = 0
    fresh: int = 1_000_000  # seed of the new module's content

    @staticmethod
    def after(base: Supervised | AsDrawn, module: int = 0, **changes: Any) -> NewModule:
        """The learner that goes on where `base` ends, with all its settings but the changes."""
        trained = base.learner if isinstance(base, AsDrawn) else base
        settings = {one.name: getattr(trained, one.name) for one in fields(Supervised)}
        return NewModule(**{**settings, "base": base, "module": module, **changes})

    def upstream(self) -> dict[str, Learner]:
        return {"base": self.base}

    def check(self) -> None:
        super().check()
        if not 0 <= self.module < self.family.modules:
            raise InvalidRequest(f"module={self.module}: expected 0 to {self.family.modules - 1}")

    def natural(self, precision: str = "float32") -> NewModuleProgram:
        return NewModuleProgram(**_fields(super().natural(precision)))

    def program(self, precision: str = "float32") -> NewModuleProgram:
        return NewModuleProgram(**_fields(super().program(precision)))

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        plain = super().prepare({}).member
        program, natural = self.program(), self.natural()
        model = unnamed(given["base"], model_shapes(natural)) if given else None
        member = {**plain, "family": self._exchanged(program), **self._tables(plain)}
        known = {} if model is None else {"known": pad_to(model, model_shapes(program))}
        return Arrays(member=member, first=known)

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


def _fields(program: SupervisedProgram) -> dict[str, Any]:
    return {one.name: getattr(program, one.name) for one in fields(program)}
