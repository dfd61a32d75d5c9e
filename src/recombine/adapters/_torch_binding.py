"""Whether a PyTorch module knows which features belong together in a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from recombine.adapters._torch import Held, Module, Tensor, twins, without_control
from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.objects import Asked, Objects
from recombine.instruments._instrument import Reading
from recombine.instruments._seeing import BATCH, SeeingSubject, in_parts
from recombine.instruments.binding import Binding
from recombine.learners.binding import Binding as BindingLearner
from recombine.seeds import Seeds

ASKED = ("swap", "search")


def _asks(module: Module, images: Tensor, questions: Tensor) -> Tensor:
    return module(images, questions)


@dataclass(frozen=True)
class Scenes:
    """Pictures of objects, and questions about them that features alone do not answer.

    The module is called as `observe(module, images, questions)`: images (item, 3, side, side)
    from 0 to 1, and questions that name a colour and a shape, each one-hot. It answers with a log
    odds of yes for each item, or with one of no and one of yes. `family.trained(seeds.content)`
    are the pairs that training may have shown; `objects` how many objects scenes have. Of search,
    two kinds are about a colour alone, to compare with the one that needs the binding; in a fourth,
    as published, the numbers of colours and shapes are enough.
    """

    family: Objects = field(default_factory=lambda: Objects(side=24, most_objects=2))
    task: Literal["swap", "search"] = "swap"
    objects: tuple[int, ...] = (2,)
    items: int = 1024
    seeds: Seeds = field(default_factory=Seeds)
    observe: Callable[[Module, Tensor, Tensor], Tensor] = _asks


def read_binding(
    module: Module, scenes: Scenes, *, untrained: Module | None = None, seed: int = 0
) -> Reading:
    """Right answers about pairs that training may have shown, and about those held out.

    Numbers and controls are those of `recombine.instruments.Binding`. Where there is no untrained
    twin, the table `notes` says why.

        reading = read_binding(module, Scenes(task="swap"))
        print(reading.values["unseen"], reading.controls["planted"]["bag_unseen"])
    """
    if scenes.task not in ASKED:
        raise InvalidRequest(
            f"task={scenes.task!r}: a module that answers yes or no is asked {' or '.join(ASKED)}"
        )
    learner = BindingLearner(
        family=scenes.family, task=scenes.task, objects=scenes.objects, seeds=scenes.seeds
    )
    learner.check()
    instrument = Binding(items=scenes.items)
    with twins(module, untrained, seed) as (mine, twin, why):
        subject = SeeingModule(mine, learner, scenes.observe)
        other = SeeingModule(twin, learner, scenes.observe) if twin else subject
        reading = instrument.read(subject, other, {})
    return without_control(reading, "untrained", why) if why else reading


class SeeingModule(SeeingSubject):
    """A module that is asked about scenes drawn for it."""

    abilities = frozenset({"answer"})

    def __init__(
        self, holder: Held, learner: BindingLearner,
        observe: Callable[[Module, Tensor, Tensor], Tensor],
    ):  # fmt: skip
        self.holder, self.learner, self.observe = holder, learner, observe
        self.program = learner.program()
        self.trained: Any = learner.family.trained(learner.seeds.content)
        self.stored = {}

    def answer(self, inputs: Asked, key: Any = None) -> np.ndarray:
        return in_parts(self._answer, (inputs.images, inputs.question), BATCH)

    def _answer(self, given: tuple[np.ndarray, np.ndarray]) -> Float[np.ndarray, "item"]:
        images, questions = given
        what = f"{type(self.holder.module).__name__} on scenes"
        with self.holder.torch.no_grad():
            shown = self.holder.tensor(np.moveaxis(images, -1, 1))
            said = self.holder.call(what, self.observe, shown, self.holder.tensor(questions))
        if not hasattr(said, "detach"):
            raise NotApplicable(f"{what} answers with a {type(said).__name__}: expected a tensor")
        found: np.ndarray = said.detach().double().cpu().numpy()
        n = len(images)
        if found.shape not in ((n,), (n, 1), (n, 2)):
            raise NotApplicable(
                f"{what} answers with shape {found.shape} to {n} items: expected a log odds of yes "
                "for each, or one of no and one of yes"
            )
        if not np.isfinite(found).all():
            raise NotApplicable(f"{what} answers with numbers that are not finite")
        return found[:, 1] - found[:, 0] if found.shape[1:] == (2,) else found.reshape(-1)
