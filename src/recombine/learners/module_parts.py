"""The modules of a family as the parts of its task, for masks over a student of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from recombine.errors import NotApplicable
from recombine.learners._learner import Program
from recombine.learners._tasks import (
    Batch,
    TaskLearner,
    TaskProgram,
    build_support,
    model_shapes,
)
from recombine.learners.parts import Parts
from recombine.seeds import host_seed

MOST_LISTED = 4_096  # combinations of a module that tests are drawn from


@dataclass(frozen=True)
class ModuleParts(Program, Parts):
    """A student whose task has a part for every module.

    A mask for a module is learnt on the smallest seen combinations that have it, alone if training
    had it alone; tests are unseen combinations that have it, beside unseen ones that do not.
    """

    program: TaskProgram
    natural: Any  # the same without padding
    modules: int

    def shapes(self) -> tuple[Any, Any]:
        return model_shapes(self.natural), model_shapes(self.program)

    @property
    def parts(self) -> int:
        return self.modules

    @property
    def chance(self) -> float:
        return 0.0

    def init(self, arrays: dict[str, Any], key: Any) -> Any:
        return self.program.init(arrays, key)

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        return self.program.step(arrays, state, t)

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        return self.program.evaluate(arrays, state)

    def draw_part(self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray) -> Batch:
        return self._draw("alone", arrays, part, key)

    def draw_test(self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray) -> Batch:
        return self._draw("with", arrays, part, key)

    def draw_other(self, arrays: dict[str, Any], part: Int[Array, ""], key: PRNGKeyArray) -> Batch:
        return self._draw("without", arrays, part, key)

    def _draw(self, which: str, arrays: dict[str, Any], part: Array, key: PRNGKeyArray) -> Batch:
        table = arrays["listed"][which]
        rank_key, batch_key = jax.random.split(key)
        ranks = self.program.pick(
            table["ranks"][part], table["count"][part], rank_key, self.program.tasks
        )
        return self.program.batch(arrays, ranks, batch_key, self.program.samples)

    def part_loss(self, arrays: dict[str, Any], model: Any, drawn: Batch) -> Float[Array, ""]:
        answers = self.program.answer(arrays, model, drawn)
        return jnp.mean(jax.vmap(self.program.family.loss)(answers, drawn.targets))

    def part_score(self, arrays: dict[str, Any], model: Any, drawn: Batch) -> Float[Array, ""]:
        answers = self.program.answer(arrays, model, drawn)
        scores = jax.vmap(self.program.family.score)(answers, drawn.targets)
        return self.program.family.summary(scores)[""]


def module_parts(learner: TaskLearner, precision: str) -> ModuleParts:
    return ModuleParts(
        learner.program(precision), learner.natural(precision), learner.family.modules
    )


def module_arrays(learner: TaskLearner) -> dict[str, Any]:
    """What the student was given, and lists of combinations by module."""
    given = learner.prepare({})
    support = build_support(learner.family, learner.support, learner.seeds.support)
    rng = np.random.default_rng(host_seed(learner.seeds.evaluation, "modules"))
    listed: dict[str, list[np.ndarray]] = {"alone": [], "with": [], "without": []}
    seen, unseen = (_some(ranks, rng) for ranks in (support.seen, support.held_out))
    has_seen, has_unseen = (support.space.indicator(ranks) for ranks in (seen, unseen))
    sizes = support.space.sizes(seen)
    for module in range(learner.family.modules):
        mine = has_seen[:, module]
        if not mine.any():
            raise NotApplicable(f"module {module} is in no seen combination: nothing to learn from")
        smallest = sizes[mine].min()
        listed["alone"].append(seen[mine & (sizes == smallest)])
        listed["with"].append(unseen[has_unseen[:, module]])
        listed["without"].append(unseen[~has_unseen[:, module]])
        for which in ("with", "without"):
            if not listed[which][-1].size:
                raise NotApplicable(
                    f"no unseen combination {which} module {module}, on which masks are tested: "
                    "hold out more of them, or draw others with another seeds.support"
                )
    tables = {which: _table(lists, rng) for which, lists in listed.items()}
    return {**given.merged(), "listed": tables}


def _some(ranks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    most = 16 * MOST_LISTED
    return ranks if ranks.size <= most else np.sort(rng.choice(ranks, most, replace=False))


def _table(lists: list[np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Lists side by side; of one that is too long some by chance, as its order is not."""
    ranks = np.zeros((len(lists), MOST_LISTED), np.uint32)
    for row, found in zip(ranks, lists, strict=True):
        some = found.size > MOST_LISTED
        row[: found.size] = rng.choice(found, MOST_LISTED, replace=False) if some else found
    counts = np.asarray([min(found.size, MOST_LISTED) for found in lists], np.int32)
    return {"ranks": ranks, "count": counts}
