"""How much of the task can be read off a subject's activations by a linear probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recombine.instruments import ridge
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject, supervised
from recombine.seeds import host_seed


@dataclass(frozen=True)
class Decodability(Instrument):
    """R² of the task's weights from each layer, for combinations the probe never saw.

    The main protocol draws combinations from the whole space and cross-fits by combination, so
    that the probe's support does not depend on the model's; features are projected at random to
    one dimension for all widths, with at least ten rows a feature. `published` fits the released
    probe on seen combinations and scores it on unseen ones. Beside every value stand the
    untrained twin, shuffled targets, and planted features that carry the task by construction.
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "decodability"
    needs: ClassVar[tuple[str, ...]] = ("activations",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    rows: int = 2048
    features: int = 128
    published_rows: int = 512

    def __post_init__(self):
        from recombine.errors import InvalidRequest

        if self.rows < 10 * self.features:
            raise InvalidRequest(
                f"a probe needs at least 10 rows a feature: {self.features} features need "
                f"{10 * self.features} rows, got {self.rows}"
            )

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        space, support = subject.support.space, subject.support
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        ranks = rng.integers(0, space.size, self.rows).astype(np.uint32)
        batch = subject.draw(ranks, f"{self.name}/whole", samples=2)
        latents = subject.latents(batch)
        targets = {"true": latents, "shuffled": latents[rng.permutation(self.rows)]}
        unseen = np.isin(ranks, support.held_out)
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        pairs = {"subject": subject.activations(batch), "untrained": untrained.activations(batch)}
        for layer in pairs["subject"]:
            for who, activations in pairs.items():
                features = project(activations[layer], self.features)
                found = ridge.cross_fit(features, targets, ranks)
                where = values if who == "subject" else controls["untrained"]
                for name, fitted in found.items():
                    if name == "shuffled" and who == "untrained":
                        continue
                    into = where if name == "true" else controls["shuffled"]
                    truth, guess = targets[name], fitted.predictions
                    into[layer] = fitted.mean
                    into[f"{layer}/unseen"] = subset_r2(truth, guess, unseen)
                    into[f"{layer}/seen"] = subset_r2(truth, guess, ~unseen)
        mix = rng.standard_normal((latents.shape[1], self.features))
        planted = latents @ mix + 0.05 * rng.standard_normal((self.rows, self.features))
        controls["planted"]["features"] = ridge.cross_fit(planted, latents, ranks).mean
        self._published(subject, untrained, rng, values, controls)
        for name in list(values):
            values[f"{name}/gain"] = values[name] - controls["untrained"][name]
        return Reading(values, controls)

    def _published(
        self, subject: SupervisedSubject, untrained: SupervisedSubject, rng: np.random.Generator,
        values: dict[str, float], controls: dict[str, dict[str, float]],
    ) -> None:  # fmt: skip
        """The released protocol: fitted on seen combinations, features before the activation."""
        n = self.published_rows
        batches = {
            kind: subject.draw(rng.choice(pool, rows), f"{self.name}/published/{kind}", samples=2)
            for kind, pool, rows in (
                ("seen", subject.support.seen, 2 * n),
                ("unseen", subject.support.tested, 2 * n),
            )
        }
        truth = {kind: subject.latents(batch) for kind, batch in batches.items()}
        for who, where in ((subject, values), (untrained, controls["untrained"])):
            acts = {kind: who.activations(batch) for kind, batch in batches.items()}
            for layer in acts["seen"]:
                if layer.endswith("/after"):
                    continue
                fit_on, fit_to = acts["seen"][layer][:n], truth["seen"][:n]
                for kind, rows in (("seen", slice(n, None)), ("unseen", slice(None))):
                    score_on, score_to = acts[kind][layer][rows], truth[kind][rows]
                    name = f"published/{layer}/{kind}"
                    where[name] = ridge.published_probe(fit_on, fit_to, score_on, score_to).mean
                    if who is subject:
                        mixed = fit_to[rng.permutation(n)]
                        scored = ridge.published_probe(fit_on, mixed, score_on, score_to)
                        controls["shuffled"][name] = scored.mean


def project(features: np.ndarray, dimension: int) -> np.ndarray:
    """A fixed random projection to `dimension`, so that wide layers get no larger probe."""
    if features.shape[1] <= dimension:
        return features
    rng = np.random.default_rng(features.shape[1])
    directions = rng.standard_normal((features.shape[1], dimension)) / np.sqrt(dimension)
    return features @ directions


def subset_r2(truth: np.ndarray, guess: np.ndarray, rows: np.ndarray) -> float:
    """Mean R² over targets on some of the rows, around those rows' own mean; NaN when too few."""
    if rows.sum() < 20:
        return float("nan")
    centred = truth[rows] - truth[rows].mean(axis=0)
    total = (centred**2).sum(axis=0)
    error = ((truth[rows] - guess[rows]) ** 2).sum(axis=0)
    alive = total > 1e-9
    return float(np.mean(1 - error[alive] / total[alive])) if alive.any() else float("nan")


def last_hidden(values: Mapping[str, float]) -> str:
    """The deepest hidden layer after its activation, where the claims are judged."""
    numbers = [
        int(name.split("/")[0].removeprefix("layer"))
        for name in values
        if name.startswith("layer") and name.endswith("/after")
    ]
    return f"layer{max(numbers)}/after"
