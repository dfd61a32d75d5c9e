"""Whether a network that answers right must know which constituents it was given."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families._family import Family, Regression
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, supervised
from recombine.seeds import host_seed

WEIGHTS = {"discrete": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "khot": (1.0,)}
BLOCK = 8_192  # candidates whose answers are held at a time


class Candidates(NamedTuple):
    """Every task of a family: the rank of its combination, and its weights."""

    ranks: Int[np.ndarray, "candidate"]
    latents: Float[np.ndarray, "candidate module"]


@dataclass(frozen=True)
class FunctionDecoder(Instrument):
    """Reads the task off the answers: the candidate whose right answers lie nearest to them.

    `combination` is the share of tasks whose constituents are recovered exactly among all tasks
    of the family, `task` the share whose weights are too. `wrong` (delta) is the share of answers
    off by more than `tolerance` in some output, and `promised` = 1 - sqrt(delta) is what a decoder
    must at least recover of any network, composed or not (Redhardt, Akram and Schug, 2025).

    The tolerance depends on the teacher alone: half of what parts a task from its nearest rival,
    the candidate of another combination with the nearest answers, at the median input, for the
    task where that is least. An answer within it is nearer to right than to the rival's.

    Controls: the untrained twin; the answers to other tasks (shuffled), which recover next to
    nothing; and right answers (planted), all of which must be recovered.
    """

    name: ClassVar[str] = "function-decoder"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    tasks: int = 512
    inputs: int = 16
    most_candidates: int = 200_000

    def __post_init__(self):
        for name in ("tasks", "inputs"):
            if getattr(self, name) < 2:
                raise InvalidRequest(f"{name} must be at least 2, got {getattr(self, name)}")

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        family = subject.learner.family
        if not isinstance(family, Regression):
            raise NotApplicable(
                f"{self.name} compares functions from numbers to numbers; "
                f"{type(family).__name__} has none"
            )
        every = candidates(family, self.most_candidates)
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        ranks = rng.integers(family.space.size, size=self.tasks).astype(np.uint32)
        batch = subject.draw(ranks, self.name, samples=self.inputs)
        # The same inputs for all tasks, so that one table of candidates' answers serves them.
        shared = batch.inputs[0]
        batch = batch._replace(inputs=jnp.broadcast_to(shared, batch.inputs.shape))
        right = answers_of(subject, subject.latents(batch), shared)
        given = {
            "subject": np.asarray(subject.answer(batch)),
            "untrained": np.asarray(untrained.answer(batch)),
            "planted": right,
        }
        nearest, rivals = self._nearest(subject, every, shared, given, right, ranks)
        apart = answers_of(subject, every.latents[rivals], shared)
        tolerance = 0.5 * float(np.median(_off(apart, right), axis=1).min())

        def found(decoded: np.ndarray) -> dict[str, float]:
            same = every.ranks[decoded] == ranks
            exact = np.abs(every.latents[decoded] - subject.latents(batch)).max(axis=1) < 0.05
            return {"combination": float(same.mean()), "task": float((same & exact).mean())}

        def numbers(who: str) -> dict[str, float]:
            wrong = float((_off(given[who], right) > tolerance).mean())
            got, promised = found(nearest[who]), 1 - math.sqrt(wrong)
            return {**got, "wrong": wrong, "promised": promised,
                    "margin": got["combination"] - promised}  # fmt: skip

        apart_from_own = np.roll(np.arange(self.tasks), self.tasks // 2)
        controls = {
            "untrained": numbers("untrained"),
            "shuffled": found(nearest["subject"][apart_from_own]),
            "planted": numbers("planted"),
        }
        known = {
            "tolerance": tolerance,
            "candidates": len(every.ranks),
            "chance": 1 / family.space.size,
        }
        return Reading({**numbers("subject"), **known}, controls)

    def _nearest(
        self, subject: SupervisedSubject, every: Candidates, shared: Array,
        given: Mapping[str, np.ndarray], right: np.ndarray, ranks: np.ndarray,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:  # fmt: skip
        """For each task, the candidate nearest to each one's answers, and the nearest rival."""
        asked = jnp.asarray(
            np.stack([*given.values(), right]).reshape(len(given) + 1, self.tasks, -1)
        )
        best = np.full((len(given) + 1, self.tasks), np.inf)
        where = np.zeros(best.shape, np.int64)
        for start in range(0, len(every.ranks), BLOCK):
            rows = np.minimum(np.arange(start, start + BLOCK), len(every.ranks) - 1)
            there = _answers(
                subject.program.family, subject.arrays["family"],
                _padded(subject, every.latents[rows]), shared,
            )  # fmt: skip
            rival = every.ranks[rows][None, :] != ranks[:, None]
            distance, place = (np.asarray(a) for a in _closest(asked, there, jnp.asarray(rival)))
            closer = distance < best
            best = np.where(closer, distance, best)
            where = np.where(closer, rows[place], where)
        return dict(zip(given, where[:-1], strict=True)), where[-1]


def candidates(family: Family, most: int) -> Candidates:
    """Every task of a family, or a refusal where they cannot be listed.

    >>> from recombine.families.hyperteacher import Hyperteacher
    >>> len(candidates(Hyperteacher(modules=8, active=2), 5_000).ranks)
    1056
    """
    law = getattr(family, "weights", None)
    if law not in WEIGHTS:
        raise NotApplicable(
            f"the tasks of {type(family).__name__} with weights={law!r} cannot be listed: use "
            "weights='discrete' or 'khot'"
        )
    values, space = np.asarray(WEIGHTS[law], np.float32), family.space
    fewest = space.size  # every combination has a task at least
    sizes = space.sizes(np.arange(space.size)) if fewest <= most else np.zeros(0, np.int64)
    total = int(np.sum(len(values) ** sizes.astype(np.int64))) or fewest
    if total > most:
        raise NotApplicable(
            f"{total} tasks or more to tell apart, at most {most} are compared: use fewer modules "
            "or fewer active ones"
        )
    ranks, latents = [], []
    for size in np.unique(sizes):
        own = np.flatnonzero(sizes == size)
        chosen = np.nonzero(space.indicator(own.astype(np.uint32)))[1].reshape(own.size, size)
        grid = np.asarray(list(itertools.product(values, repeat=int(size))), np.float32)
        made = np.zeros((own.size, len(grid), family.modules), np.float32)
        made[np.arange(own.size)[:, None, None], np.arange(len(grid))[:, None], chosen[:, None]] = (
            grid
        )
        ranks.append(np.repeat(own, len(grid)))
        latents.append(made.reshape(-1, family.modules))
    return Candidates(np.concatenate(ranks), np.concatenate(latents))


def answers_of(subject: SupervisedSubject, latents: np.ndarray, shared: Array) -> np.ndarray:
    """The right answers to each task at the same inputs."""
    family, content = subject.program.family, subject.arrays["family"]
    return np.asarray(_answers(family, content, _padded(subject, latents), shared))


def _padded(subject: SupervisedSubject, latents: np.ndarray) -> Array:
    more = subject.program.family.modules - latents.shape[1]
    return jnp.asarray(np.pad(latents, ((0, 0), (0, more))))


def _off(answers: np.ndarray, right: np.ndarray) -> Float[np.ndarray, "task sample"]:
    """How far off each answer is, in its worst output."""
    return np.abs(answers - right).max(axis=2)


@functools.partial(jax.jit, static_argnums=0)
def _answers(
    family: Family, content: Any, latents: Float[Array, "task module"], shared: Any
) -> Float[Array, "task sample output"]:
    return jax.vmap(lambda latent: family.targets(content, latent, shared))(latents)


@jax.jit
def _closest(
    asked: Float[Array, "who task number"],
    there: Float[Array, "candidate sample output"],
    rival: Any,
) -> tuple[Float[Array, "who task"], Int[Array, "who task"]]:
    """The nearest candidate of a block; for the last of those who ask, the nearest rival."""
    flat = there.reshape(there.shape[0], -1)
    products = jnp.einsum("wtn,cn->wtc", asked, flat, precision="highest")
    distance = jnp.sum(asked**2, axis=2)[..., None] - 2 * products + jnp.sum(flat**2, axis=1)
    allowed = jnp.ones((asked.shape[0], *rival.shape), bool).at[-1].set(rival)
    distance = jnp.where(allowed, distance, jnp.inf)
    place = jnp.argmin(distance, axis=2)
    return jnp.min(distance, axis=2), place
