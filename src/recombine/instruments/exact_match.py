"""How many answers are exactly right: like training, and beyond it, by what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recombine.errors import NotApplicable
from recombine.families._sequence import TEST, TRAIN, VALIDATION, Item, SequenceFamily
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed

# Names of splits in readings: what is like training is `seen`, as everywhere.
SEEN = "seen"


@dataclass(frozen=True)
class ExactMatch(Instrument):
    """Shares of exact answers by split, part and novelty; also with the end of the answer given.

    Up to `items` items of each split. Families that can tell a good answer from an exact one (a
    program that works, a formula with other variables) have answers written and scored; so has
    any if `writes`. Controls: the untrained twin, its answers marked by those of other items
    (shuffled), and the family's own solver (planted).
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "exact-match"
    needs: ClassVar[tuple[str, ...]] = ("answer", "log-probabilities")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    items: int = 1_000
    writes: bool = False

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        trained, twin = in_text(subject, self.name), in_text(untrained, self.name)
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        tables: dict[str, dict[str, list[Any]]] = {"parts": {k: [] for k in PART_COLUMNS}}
        for split, part in trained.corpus.splits.items():
            if split == TRAIN or not part.sources:
                continue
            name = {TEST: SEEN, VALIDATION: VALIDATION}.get(split, f"unseen_{split}")
            chosen = self.chosen(trained, split, len(part.sources))
            sources = [part.sources[n] for n in chosen]
            targets = [part.targets[n] for n in chosen]
            judged = trained.judge(sources, targets)
            values[name] = float(judged.exact.mean())
            values[f"{name}_ended"] = float(judged.ended.mean())
            values[f"{name}_surprise"] = float(-judged.log_probability.sum() / judged.tokens.sum())
            controls["untrained"][name] = float(twin.judge(sources, targets).exact.mean())
            mixed = [targets[n] for n in np.roll(np.arange(len(targets)), len(targets) // 2)]
            # A network that always says the same is as often right about other items.
            controls["shuffled"][name] = float(trained.judge(sources, mixed).exact.mean())
            controls["planted"][name] = planted(trained, sources, targets)
            columns = {"split": [name] * len(chosen), "part": [part.parts[n] for n in chosen],
                       "novelty": [int(part.novelty[n]) for n in chosen]}  # fmt: skip
            more = self.scored(trained, columns, sources, targets, judged.exact)
            for score, found in more.items():
                values[f"{name}_{score}"] = float(np.mean(found))
            by_part(tables["parts"], columns, judged.exact, judged.ended)
        return Reading(values, controls, tables)

    def chosen(self, subject: SequenceSubject, split: str, count: int) -> np.ndarray:
        rng = np.random.default_rng(
            host_seed(subject.learner.seeds.evaluation, f"{self.name}/{split}")
        )
        return np.sort(rng.choice(count, min(self.items, count), replace=False))

    def scored(
        self, subject: SequenceSubject, columns: Mapping[str, Sequence[Any]],
        sources: Sequence[np.ndarray], targets: Sequence[np.ndarray],
        exact: np.ndarray,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Further scores of written answers, by name; none where exactness says it all.

        Only answers that are not exact need be written: the others are known.
        """
        family = subject.family
        if type(family).scores is SequenceFamily.scores and not self.writes:
            return {}
        written = [list(target) for target in targets]
        wrong = np.flatnonzero(~exact).tolist()
        for n, answer in zip(wrong, subject.written([sources[n] for n in wrong]), strict=True):
            written[n] = answer
        rows = [
            family.scores(Item(subject.text(s), subject.text(t), part, novelty), subject.text(w))
            for s, t, w, part, novelty in zip(
                sources, targets, written, columns["part"], columns["novelty"], strict=True
            )
        ]
        # An item may lack a score: a problem without a constraint of some class.
        names = dict.fromkeys(name for row in rows for name in row if name != "exact")
        return {name: np.asarray([row[name] for row in rows if name in row]) for name in names}


PART_COLUMNS = ("split", "part", "novelty", "items", "exact", "ended")


def by_part(
    table: dict[str, list[Any]], columns: Mapping[str, list[Any]], exact: np.ndarray,
    ended: np.ndarray,
) -> None:  # fmt: skip
    """One row for each part and novelty of a split."""
    keys = list(zip(columns["split"], columns["part"], columns["novelty"], strict=True))
    for key in sorted(set(keys)):
        mine = np.asarray([k == key for k in keys])
        row = (*key, int(mine.sum()), float(exact[mine].mean()), float(ended[mine].mean()))
        for column, value in zip(PART_COLUMNS, row, strict=True):
            table[column].append(value)


def planted(
    subject: SequenceSubject, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> float:
    """How many of a hundred items the symbolic solver gets right: all, or the items are wrong."""
    right = []
    for source, target in list(zip(sources, targets, strict=True))[:100]:
        item = Item(subject.text(source), subject.text(target))
        scores = subject.family.scores(item, subject.family.solve(item.source))
        right.append(max(scores.get("exact", 0.0), scores.get("works", 0.0)))
    return float(np.mean(right))


def in_text(subject: Subject, instrument: str) -> SequenceSubject:
    """The subject that answers in text, or a refusal that says what is missing."""
    if not isinstance(subject, SequenceSubject):
        raise NotApplicable(
            f"{instrument} needs a subject that answers in text and knows its corpus; "
            f"{type(subject).__name__} does not"
        )
    return subject
