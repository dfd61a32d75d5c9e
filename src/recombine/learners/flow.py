"""Flow matching: learning to draw, by telling images from the noise they are mixed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from recombine.errors import InvalidRequest
from recombine.families._family import Family
from recombine.families.scene_judge import judge, right
from recombine.families.scenes import Scenes
from recombine.learners._learner import Arrays, Tensors
from recombine.learners._tasks import Batch
from recombine.learners.optimiser import NEVER, Trained
from recombine.learners.supervised import Supervised, SupervisedProgram
from recombine.models._model import Model
from recombine.models.diffusion import DiT
from recombine.models.sampling import sample
from recombine.seeds import key_at, stream

# Pictures drawn at each evaluation along training: few, and in few steps, to see the trend.
LOOKED_AT = 128
LOOKED_STEPS = 12
LOOKED_GUIDANCE = 2.0


class Averaged(NamedTuple):
    """Weights on their way, and their moving average, which is what is evaluated and kept."""

    model: Any  # the average
    raw: Any
    adam: Any
    diverged_at: Int[Array, ""]


@dataclass(frozen=True)
class FlowProgram(SupervisedProgram):
    """Gradient descent that now and then hides the task, and averages its weights."""

    def init(self, arrays: dict[str, Any], key: Any) -> Any:
        first = super().init(arrays, key)
        return Averaged(first.model, *first)

    def draw(self, arrays: dict[str, Any], t: Any) -> Batch:
        drawn = super().draw(arrays, t)
        chance = jax.random.uniform(key_at(arrays["telling"], t), (self.tasks, 1))
        return drawn._replace(codes=jnp.where(chance < arrays["blank"], 0.0, drawn.codes))

    def learn(
        self, arrays: dict[str, Any], state: Any, drawn: Batch, t: Any
    ) -> tuple[Any, dict[str, Any]]:
        after, metrics = super().learn(arrays, Trained(*state[1:]), drawn, t)
        passed = t.astype(jnp.float32)
        # Early on a long average would mostly be the first draw.
        kept = jnp.minimum(arrays["average"], (1 + passed) / (10 + passed))
        moving = (after.diverged_at == NEVER) & (t < arrays["steps"])

        def follow(mean: Array, weight: Array) -> Array:
            return jnp.where(moving, kept * mean + (1 - kept) * weight, mean)

        return Averaged(jax.tree.map(follow, state.model, after.model), *after), metrics

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        """Besides the scores, how often a few quick pictures show what was asked for."""
        found = super().evaluate(arrays, state)
        if isinstance(self.family, Scenes):
            for number, name in enumerate(("seen", "unseen")):
                key = key_at(arrays["looking"], number)
                found[f"{name}_success"] = self._success(arrays, state.model, name, key)
        return found

    def _success(self, arrays: dict[str, Any], model: Any, name: str, key: Any) -> Array:
        family, content = self.family, arrays["family"]
        assert isinstance(family, Scenes)
        rank_key, batch_key, noise_key = jax.random.split(key, 3)
        ranks = self.pick(arrays[name], arrays[f"{name}_count"], rank_key, LOOKED_AT)
        batch = self.batch(arrays, ranks, batch_key, 1)
        images = sample(
            model, batch.codes, noise_key, steps=LOOKED_STEPS, pixels=family.pixels,
            guidance=LOOKED_GUIDANCE, dtype=self.dtype,
        )  # fmt: skip
        whole, _ = right(family, judge(family, content, images), batch.latents > 0)
        return jnp.mean(whole.astype(jnp.float32))


@dataclass(frozen=True)
class Flow(Supervised):
    """A network learns the velocity from noise to image, with its task and without.

    In every step a share `blank` of the tasks is told by a code of zeros, so that one network also
    learns what images look like in general; sampling can then be guided away from that
    (classifier-free guidance, Ho and Salimans 2022). A task has at least one module, and no
    encoding here tells that in zeros; one of your own must not either, or that task is blank. What
    is evaluated, stored and looked into is the moving average of the weights,
    m <- a m + (1 - a) w after each step with a = min(`average`, (1 + t) / (10 + t)). All else is
    as in supervised learning.
    """

    version: ClassVar[int] = 1

    family: Family = field(default_factory=Scenes)
    model: Model = field(default_factory=DiT)
    samples: int = 2
    blank: float = 0.1
    average: float = 0.999

    def check(self) -> None:
        super().check()
        for name in ("blank", "average"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise InvalidRequest(f"{name} must be a number from 0 to below 1, got {value!r}")

    def natural(self, precision: str = "float32") -> FlowProgram:
        return FlowProgram(
            self.family, self.encoding, self.tasks, self.samples, self.evaluation_tasks,
            precision, self.model,
        )  # fmt: skip

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        told = {
            "blank": np.float32(self.blank),
            "average": np.float32(self.average),
            "telling": stream(self.seeds.train, "telling"),
            "looking": stream(self.seeds.evaluation, "looking"),
        }
        return Arrays(member={**super().prepare(given).member, **told})
