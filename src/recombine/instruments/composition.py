"""How often a generator draws what it was asked for, by an exact judge."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recombine.checks import at_least
from recombine.errors import NotApplicable
from recombine.families.scene_judge import judge, right
from recombine.families.scenes import Scenes
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.generalization import per_combination
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, in_batches, supervised
from recombine.models.sampling import sample
from recombine.png import png, to_bytes
from recombine.seeds import host_seed, key_at, stream

if TYPE_CHECKING:
    from recombine.learners._tasks import Batch

SHOWN = 12  # combinations of each kind of which pictures are kept for the report
PICTURES = 5  # of each


@dataclass(frozen=True)
class Composition(Instrument):
    """The share of pictures that show exactly the combination asked for, seen and unseen.

    Up to `combinations` combinations of each kind, `draws` pictures each. `success` is all or
    nothing; `concepts` the share of a combination's own concepts that are right; `scenes` the
    share of pictures that show any combination at all. The reliability of a combination's success
    rate is the correlation of two halves of its pictures, stepped up to all of them (Spearman and
    Brown). The distance to the nearest of `training_images` training pictures tells copies from
    new pictures. Controls: the untrained twin, pictures of other combinations (shuffled), and
    rendered scenes (planted, a success of 1).
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "composition"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    combinations: int = 64
    draws: int = 32
    steps: int = 24
    method: Literal["euler", "heun"] = "euler"
    guidance: float = 2.0
    training_images: int = 2048

    def __post_init__(self):
        at_least(self, combinations=2, draws=2, steps=1, training_images=1)

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        scenes(subject, self.name)
        support = subject.support
        known = self._training_images(subject)
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        tables: dict[str, dict[str, list[Any]]] = {}
        for kind, chosen in asked_for(subject, self.combinations).items():
            ranks = np.repeat(chosen, self.draws)
            batch = subject.draw(ranks, f"{self.name}/{kind}", samples=2)
            drawn = legible(self.pictures(subject, np.asarray(batch.codes), f"{self.name}/{kind}"))
            found = self.judged(subject, drawn, batch)
            values |= summary(kind, found)
            values[f"{kind}_nearest"] = float(np.median(nearest(drawn[:: self.draws], known)))
            apart = np.roll(np.arange(ranks.size), ranks.size // 2)
            mixed = summary(kind, self.judged(subject, drawn[apart], batch))
            mixed.pop(f"{kind}_scenes")  # a scene is one whatever was asked for
            controls["shuffled"] |= mixed
            rendered = np.asarray(batch.inputs.image[:, 0])
            controls["planted"] |= summary(kind, self.judged(subject, rendered, batch))
            controls["planted"][f"{kind}_nearest"] = float(
                np.median(nearest(rendered[:: self.draws], known))
            )
            # One picture of each is enough of a network that draws noise.
            few = jax.tree.map(lambda leaf: leaf[:: self.draws], batch)
            noise = legible(self.pictures(untrained, np.asarray(few.codes), f"{self.name}/{kind}"))
            controls["untrained"] |= summary(kind, self.judged(subject, noise, few))
            tables[kind] = per_combination(support, chosen, found, self.draws)
            halves = found["success"].reshape(-1, self.draws)
            for part, name in enumerate(("first_half", "second_half")):
                tables[kind][name] = halves[:, part::2].mean(axis=1).round(6).tolist()
            halves = (np.asarray(tables[kind][name]) for name in ("first_half", "second_half"))
            stable = reliability(*halves)
            if np.isfinite(stable):  # where all succeed or all fail there is nothing to repeat
                values[f"{kind}_reliability"] = stable
            tables[f"{kind}_pictures"] = self._kept(subject, chosen, drawn, found["success"])
            if kind == "unseen":
                level = np.repeat(tables[kind]["level"], self.draws)
                for one in np.unique(level):
                    values[f"unseen_level{one}"] = float(found["success"][level == one].mean())
                    values[f"unseen_count_level{one}"] = int((level == one).sum() // self.draws)
        for numbers in (values, *controls.values()):
            numbers["gap"] = numbers["seen"] - numbers["unseen"]
        return Reading(values, controls, tables)

    def pictures(self, subject: SupervisedSubject, codes: np.ndarray, name: str) -> np.ndarray:
        """One picture for each code, from a stream of its own."""
        words = stream(subject.learner.seeds.evaluation, name)
        family, start = subject.program.family, iter(range(len(codes)))

        def draw(part: Array) -> Array:
            return sample(
                subject.model, jnp.asarray(part), key_at(words, next(start)), steps=self.steps,
                pixels=family.output_size, method=self.method, guidance=self.guidance,
            )  # fmt: skip

        return in_batches(draw, codes)

    @staticmethod
    def judged(subject: SupervisedSubject, images: np.ndarray, batch: Batch) -> dict[str, Any]:
        """For each picture: success, the share of its concepts that are right, and if a scene."""
        family, content = subject.program.family, subject.arrays["family"]
        return in_batches(
            lambda part: _judged(family, content, *part), (images, np.asarray(batch.latents))
        )

    def _training_images(self, subject: SupervisedSubject) -> np.ndarray:
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        ranks = rng.choice(subject.support.seen, self.training_images)
        return np.asarray(subject.draw(ranks, f"{self.name}/known", samples=2).inputs.image[:, 0])

    def _kept(
        self, subject: SupervisedSubject, chosen: np.ndarray, drawn: np.ndarray,
        success: np.ndarray,
    ) -> dict[str, list[Any]]:  # fmt: skip
        """A strip of pictures of some combinations, with what was asked and the judge's marks."""
        family = subject.learner.family
        assert isinstance(family, Scenes)
        drawn = drawn.reshape(len(chosen), self.draws, family.size, family.size, 3)
        success = success.reshape(len(chosen), self.draws)
        shown = np.linspace(0, len(chosen) - 1, min(SHOWN, len(chosen))).astype(int)
        # A light line parts each picture from the next.
        parted = np.pad(drawn, [(0, 0)] * 3 + [(0, 1), (0, 0)], constant_values=1.0)
        strips = [np.concatenate(list(parted[n, :PICTURES]), axis=1)[:, :-1] for n in shown]
        asked = family.space.indicator(chosen[shown])
        return {
            "rank": chosen[shown].tolist(),
            "asked": [family.caption(row, subject.arrays["family"]) for row in asked],
            "marks": ["".join(str(int(m)) for m in success[n, :PICTURES]) for n in shown],
            "png": [base64.b64encode(png(to_bytes(strip))).decode() for strip in strips],
        }


def scenes(subject: SupervisedSubject, instrument: str) -> Scenes:
    """The family of a generator, or a refusal."""
    family = subject.learner.family
    if not isinstance(family, Scenes):
        raise NotApplicable(
            f"{instrument} needs a network that draws scenes; {type(family).__name__} has none"
        )
    return family


def asked_for(subject: SupervisedSubject, count: int) -> dict[str, np.ndarray]:
    """All seen and all unseen combinations, or so many of each: the same for every instrument."""
    rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, "pictures"))
    pools = {"unseen": subject.support.tested, "seen": subject.support.seen}
    chosen = {
        kind: pool if pool.size <= count else np.sort(rng.permutation(pool)[:count])
        for kind, pool in pools.items()
    }
    return {kind: chosen[kind] for kind in ("seen", "unseen")}


def legible(images: np.ndarray) -> np.ndarray:
    """Pictures without numbers that ran away: grey is nothing that a judge could read."""
    return np.where(np.isfinite(images), images, 0.0)


def summary(kind: str, found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Means over pictures: `seen` is the success on seen combinations, others have a name."""
    means = {name: float(np.mean(value)) for name, value in found.items()}
    return {kind: means["success"], **{f"{kind}_{n}": means[n] for n in ("concepts", "scenes")}}


def reliability(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of two halves, stepped up to the whole; NaN where one does not vary."""
    if first.size < 3 or first.std() < 1e-9 or second.std() < 1e-9:
        return float("nan")
    r = float(np.corrcoef(first, second)[0, 1])
    return 2 * r / (1 + r) if r > -1 else float("nan")


def nearest(images: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The distance of each image to the nearest known one: root mean square over pixels."""
    squares = (images**2).sum(1)[:, None] + (known**2).sum(1) - 2 * images @ known.T
    return np.sqrt(np.maximum(squares.min(axis=1), 0) / images.shape[1])


@functools.partial(jax.jit, static_argnums=0)
def _judged(family: Scenes, content: Any, images: Array, latents: Array) -> dict[str, Array]:
    verdicts = judge(family, content, images)
    asked = latents > 0
    whole, concepts = right(family, verdicts, asked)
    share = jnp.sum(concepts & asked, axis=1) / jnp.sum(asked, axis=1)
    return {
        "success": whole.astype(jnp.float32),
        "concepts": share,
        "scenes": verdicts.scene.astype(jnp.float32),
    }
