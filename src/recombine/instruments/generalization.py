"""How well a subject does on combinations it trained on, and on those it never saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject
from recombine.seeds import host_seed
from recombine.supports import LEVELS, novelty

Scores = dict[str, np.ndarray]


@dataclass(frozen=True)
class Generalization(Instrument):
    """Seen, unseen and their gap; by number of active modules; by novelty, combination by combination.

    Up to `combinations` combinations of each kind are drawn, each with `draws` fresh tasks.
    Controls: the untrained twin, the subject's answers against the targets of other tasks
    (shuffled), and the family's own right answers (planted, R² of 1).
    """  # noqa: E501

    version: ClassVar[int] = 1
    name: ClassVar[str] = "generalization"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    combinations: int = 1024
    draws: int = 8

    def read(
        self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]
    ) -> Reading:
        subject.need(self.name, *self.needs)
        assert isinstance(subject, SupervisedSubject)
        assert isinstance(untrained, SupervisedSubject)
        support = subject.support
        rng = np.random.default_rng(host_seed(subject.learner.seeds.evaluation, self.name))
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        tables: dict[str, list[dict[str, Any]]] = {}
        for kind, pool in (("seen", support.seen), ("unseen", support.held_out)):
            chosen = pool if pool.size <= self.combinations else np.sort(
                rng.choice(pool, self.combinations, replace=False)
            )  # fmt: skip
            ranks = np.repeat(chosen, self.draws)
            batch = subject.draw(ranks, f"{self.name}/{kind}")
            answers = subject.answer(batch)
            scores = subject.score(answers, batch.targets)
            values |= {f"{kind}_{k}": v for k, v in summary(scores).items()}
            sizes = support.space.sizes(ranks)
            for size in np.unique(sizes):
                part = {k: v[sizes == size] for k, v in scores.items()}
                values[f"{kind}_r2_of_{size}"] = summary(part)["r2"]
            twin = subject.score(untrained.answer(batch), batch.targets)
            apart = np.roll(np.arange(ranks.size), ranks.size // 2)
            shuffled = subject.score(answers[apart], batch.targets)
            planted = subject.score(batch.targets, batch.targets)
            named = {"untrained": twin, "shuffled": shuffled, "planted": planted}
            for control, found in named.items():
                controls[control] |= {f"{kind}_{k}": v for k, v in summary(found).items()}
            tables[kind] = per_combination(support, chosen, scores, self.draws)
        for level, name in enumerate(LEVELS):
            rows = [row for row in tables["unseen"] if row["level"] == level]
            if rows:
                values[f"unseen_r2_level{level}"] = _r2_of_rows(rows)
                values[f"unseen_count_level{level}"] = len(rows)
            del name
        for numbers in (values, *controls.values()):
            numbers["gap"] = numbers["seen_r2"] - numbers["unseen_r2"]
        return Reading(values, controls, tables)


def summary(scores: Scores) -> dict[str, float]:
    """R² as published (mean of ratios), and the robust ratio of means."""
    return {
        "r2": float(1 - scores["error"].sum(dtype=np.float64) / scores["variance"].sum(dtype=np.float64)),
        "r2_published": float(scores["r2"].mean(dtype=np.float64)),
    }  # fmt: skip


def per_combination(
    support: Any, chosen: np.ndarray, scores: Scores, draws: int
) -> list[dict[str, Any]]:
    """One row a combination: its error, and how new it is to the support."""
    error = scores["error"].reshape(-1, draws).mean(axis=1, dtype=np.float64)
    variance = scores["variance"].reshape(-1, draws).mean(axis=1, dtype=np.float64)
    new = novelty(support, chosen)
    sides = None if support.groups is None else np.asarray(support.groups)
    rows = []
    for i, rank in enumerate(chosen):
        modules = [int(m) for m in support.space.unrank(chosen[i : i + 1])[0] if m >= 0]
        row = {
            "rank": int(rank),
            "size": len(modules),
            "error": float(error[i]),
            "variance": float(variance[i]),
            "level": int(new.level[i]),
            "unseen_pairs": int(new.unseen_pairs[i]),
            "unseen_triples": int(new.unseen_triples[i]),
            "rarest_usage": int(new.rarest_usage[i]),
            "distance": int(new.distance[i]),
            "nearest": None if new.nearest is None else int(new.nearest[i]),
        }
        if sides is not None:
            row["across"] = len({bool(sides[m]) for m in modules}) > 1
        rows.append(row)
    return rows


def _r2_of_rows(rows: list[dict[str, Any]]) -> float:
    return 1 - sum(row["error"] for row in rows) / sum(row["variance"] for row in rows)
