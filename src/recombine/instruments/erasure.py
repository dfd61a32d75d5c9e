"""Whether what can be decoded is also used: erase one module's subspace and see what breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.errors import NotApplicable
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.subspaces import concept_erasures, random_subspace
from recombine.instruments.supervised_subject import SupervisedSubject, supervised
from recombine.seeds import host_seed


@dataclass(frozen=True)
class Erasure(Instrument):
    """The loss on tasks with a module against tasks without it, once the module is erased.

    In hidden layer `layer` the subspace from which a module's weight can be read linearly is
    removed in closed form; `own` and `other` are the rises of the error (as a share of what there
    is to get wrong) on tasks with and without that module. `selectivity` is own - other. The
    same for a random subspace of equal rank, for the untrained twin, and for a planted
    representation in which every module has its own direction and its own effect.
    """

    version: ClassVar[int] = 3
    name: ClassVar[str] = "erasure"
    needs: ClassVar[tuple[str, ...]] = ("activations", "answer")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "random", "planted")

    rows: int = 2048
    scored: int = 512
    layer: int = 1

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        layers = subject.learner.network.layers if subject.learner.network else 0
        if self.layer > layers:
            raise NotApplicable(
                f"erasure in hidden layer {self.layer}: the network has only {layers}"
            )
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        # The first `rows` tasks show where the modules are; the rest show what erasing does.
        ranks = rng.integers(0, subject.support.space.size, self.rows + self.scored).astype(
            np.uint32
        )
        batch = subject.draw(ranks, self.name, samples=4)
        own = self._rises(subject, batch, rng, random=False)
        numbers = {
            "untrained": self._rises(untrained, batch, rng, random=False),
            "random": self._rises(subject, batch, rng, random=True),
            "planted": self._planted(subject.latents(batch), rng),
        }
        table = {"own": [float(x) for x in own[0]], "other": [float(x) for x in own[1]]}
        controls = {name: _means(*found) for name, found in numbers.items()}
        values = _means(*own)
        values["beyond_random"] = values["selectivity"] - controls["random"]["selectivity"]
        return Reading(values, controls, {"modules": table})

    def _rises(
        self, subject: SupervisedSubject, batch, rng: np.random.Generator, *, random: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        latents = subject.latents(batch)
        width = subject.widths[f"layer{self.layer}/after"]
        hidden = subject.hidden(batch, self.layer)
        padding = hidden.shape[-1] - width
        features = hidden[..., :width].astype(np.float64)
        samples = batch.targets.shape[1]
        first = features.shape[1] - samples
        fit = features[: self.rows, first + subject.program.family.probed % samples]
        targets, rest = batch.targets[self.rows :], features[self.rows :]

        def scored(hidden: np.ndarray) -> dict[str, np.ndarray]:
            return subject.score(subject.answer_from(self.layer, hidden), targets)

        before = scored(hidden[self.rows :])
        whole = float(before["variance"].mean())
        rises = []
        for erase in concept_erasures(fit, latents[: self.rows]):
            chosen = random_subspace(rng, erase) if random else erase
            changed = rest - ((rest - chosen.mean) @ chosen.V.T) @ chosen.U.T
            changed = np.pad(changed, ((0, 0), (0, 0), (0, padding))).astype(np.float32)
            rises.append((scored(changed)["error"] - before["error"]) / whole)
        return _split(np.stack(rises), latents[self.rows :])

    def _planted(self, latents: np.ndarray, rng: np.random.Generator):
        modules = latents.shape[1]
        basis, _ = np.linalg.qr(rng.standard_normal((2 * modules, modules)))
        effects = rng.standard_normal((modules, 16))
        features, targets = latents @ basis.T, latents @ effects
        # Through the same erasure as the subject's: if that were broken, this would show it.
        rest = features[self.rows :]
        rises = [
            ((erase(rest) @ basis @ effects - targets[self.rows :]) ** 2).mean(axis=1)
            for erase in concept_erasures(features[: self.rows], latents[: self.rows])
        ]
        return _split(np.stack(rises) / targets.var(), latents[self.rows :])


def _split(rises: np.ndarray, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean rise per module on tasks with it, and on tasks without it."""
    has = (latents > 0).T
    own = np.array([r[h].mean() if h.any() else np.nan for r, h in zip(rises, has, strict=True)])
    other = np.array([r[~h].mean() for r, h in zip(rises, has, strict=True)])
    return own, other


def _means(own: np.ndarray, other: np.ndarray) -> dict[str, float]:
    return {
        "own": float(np.nanmean(own)),
        "other": float(np.nanmean(other)),
        "selectivity": float(np.nanmean(own - other)),
    }
