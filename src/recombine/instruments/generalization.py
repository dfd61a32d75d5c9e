"""How well a subject does on combinations it trained on, and on those it never saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import supervised
from recombine.seeds import host_seed
from recombine.supports import Support, novelty

Scores = dict[str, np.ndarray]


@dataclass(frozen=True)
class Generalization(Instrument):
    """Seen, unseen and their gap; by number of active modules; by novelty, combination by combination.

    Up to `combinations` combinations of each kind are drawn, each with `draws` fresh tasks.
    Controls: the untrained twin, the subject's answers against the targets of other tasks
    (shuffled), and the family's own right answers (planted, a score of 1).
    """  # noqa: E501

    version: ClassVar[int] = 2
    name: ClassVar[str] = "generalization"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    combinations: int = 1024
    draws: int = 8

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        subject, untrained = supervised(subject, self.name), supervised(untrained, self.name)
        support, summary = subject.support, subject.program.family.summary
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        tables: dict[str, dict[str, list[Any]]] = {}
        for kind, pool in (("seen", support.seen), ("unseen", support.tested)):
            chosen = pool if pool.size <= self.combinations else np.sort(
                rng.choice(pool, self.combinations, replace=False)
            )  # fmt: skip
            ranks = np.repeat(chosen, self.draws)
            batch = subject.draw(ranks, f"{self.name}/{kind}")
            answers = subject.answer(batch)
            scores = subject.score(answers, batch.targets)
            values |= named(kind, summary(scores))
            sizes = support.space.sizes(ranks)
            for size in np.unique(sizes):
                part = {k: v[sizes == size] for k, v in scores.items()}
                values[f"{kind}_of_{size}"] = summary(part)[""]
            twin = subject.score(untrained.answer(batch), batch.targets)
            apart = np.roll(np.arange(ranks.size), ranks.size // 2)
            shuffled = subject.score(answers[apart], batch.targets)
            planted = subject.score(batch.targets, batch.targets)
            besides = {"untrained": twin, "shuffled": shuffled, "planted": planted}
            for control, found in besides.items():
                controls[control] |= named(kind, summary(found))
            if kind == "unseen":
                tables[kind] = per_combination(support, chosen, scores, self.draws)
                level = np.asarray(tables[kind]["level"])[
                    np.repeat(np.arange(chosen.size), self.draws)
                ]
                for found in np.unique(level):
                    part = {k: v[level == found] for k, v in scores.items()}
                    values[f"unseen_level{found}"] = summary(part)[""]
                    values[f"unseen_count_level{found}"] = int((level == found).sum() // self.draws)
        for numbers in (values, *controls.values()):
            numbers["gap"] = numbers["seen"] - numbers["unseen"]
        return Reading(values, controls, tables)


def named(kind: str, summary: Mapping[str, float]) -> dict[str, float]:
    """Numbers of the seen or of the unseen: `seen` is the family's score, others have a name."""
    return {f"{kind}_{name}" if name else kind: value for name, value in summary.items()}


def per_combination(
    support: Support, chosen: np.ndarray, scores: Scores, draws: int
) -> dict[str, list[Any]]:
    """One entry a combination in every column: its error, and how new it is to the support."""
    new = novelty(support, chosen)
    columns = {
        "rank": chosen,
        "size": support.space.sizes(chosen),
        "level": new.level,
        "unseen_pairs": new.unseen_pairs,
        "unseen_triples": new.unseen_triples,
        "rarest_usage": new.rarest_usage,
        "distance": new.distance,
    }
    if new.nearest is not None:
        columns["nearest"] = new.nearest
    if support.groups is not None:
        side = np.asarray(support.groups)
        members = support.space.indicator(chosen)
        columns["across"] = (members[:, side].any(axis=1) & members[:, ~side].any(axis=1)).astype(
            int
        )
    table: dict[str, list[Any]] = {name: [int(x) for x in found] for name, found in columns.items()}
    for name, found in scores.items():
        means = found.reshape(-1, draws).mean(axis=1, dtype=np.float64)
        # Six digits are more than the sampling noise leaves, and keep the store small.
        table[name] = [float(f"{x:.6g}") for x in means]
    return table
