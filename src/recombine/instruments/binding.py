"""Whether a network knows which features belong together, or only which there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.objects import SEARCHES, Asked
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments._observers import (
    Mistakes,
    bag_answers,
    bag_report,
    first_reported,
    mistakes,
)
from recombine.instruments._seeing import SeeingSubject, seeing
from recombine.instruments.subject import Subject
from recombine.seeds import host_seed

BAG = "bag"
# Of two kinds of search: by colour, less by colour and shape together.
INTERACTIONS = {
    "interaction": ("disjunctive", "conjunctive"),
    "palette_interaction": ("palette", "conjunctive"),
    "published_interaction": ("disjunctive", "published"),
}


class Look(NamedTuple):
    """One kind of item: what it is called, how it is drawn, and the number of objects."""

    name: str
    unseen: bool
    sizes: tuple[int, ...]
    kind: int | None = None


@dataclass(frozen=True)
class Binding(Instrument):
    """Right answers about scenes whose features alone do not tell, seen pairs and unseen ones.

    `items` items of each kind, with any of `sizes` objects (empty: as in training). `seen` and
    `unseen` are shares of right answers; a report is right if it has every object and nothing else.
    Reports also give, per object, how many were right (`seen_objects`) and which errors were made:
    conjunctions of features that are there but not together, features that are not there,
    repetitions, and objects missed; `seen_conjunction_share` is the share of conjunctions among
    wrong things, beside what guessing both features would give on the same scenes
    (`..._conjunction_expected`). `unseen_pair` is how often the one held-out pair of an unseen
    scene, all others being trained ones, is among the things reported. Search gives the share right
    by kind and number of objects, the interaction at each number (disjunctive minus conjunctive;
    `seen_published_interaction_...`: disjunctive minus published), its slope by object, and its
    growth from the fewest objects to the most. Controls: the untrained twin; answers given to other
    items (shuffled: twice the share right, less one, since half is chance); and two scripted
    observers (planted): one that sees everything, and one that sees all features and no binding
    (`bag_...`).
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "binding"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    items: int = 1024
    sizes: tuple[int, ...] = ()

    def __post_init__(self):
        if not isinstance(self.items, int) or self.items < 2 or self.items % 2:
            raise InvalidRequest(f"items={self.items!r}: binding needs an even number, 2 or more")

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        trained, twin = seeing(subject, self.name), seeing(untrained, self.name)
        sizes = self._sizes(trained)
        read = self._reports if trained.learner.task == "report" else self._answers
        return read(trained, twin, sizes)

    def _sizes(self, subject: SeeingSubject) -> tuple[int, ...]:
        from recombine.learners.binding import check_objects

        sizes = self.sizes or subject.learner.objects
        try:
            check_objects(
                subject.learner.family, subject.learner.task, sizes,
                sets=subject.program.in_sets,
            )  # fmt: skip
        except InvalidRequest as error:
            raise NotApplicable(f"binding cannot show sizes={sizes!r}: {error}") from error
        return tuple(sorted(set(sizes)))

    def _looks(self, subject: SeeingSubject, sizes: tuple[int, ...]) -> Iterator[Look]:
        for unseen in (False, True)[: 1 + (subject.learner.family.withheld > 0)]:
            prefix = "unseen" if unseen else "seen"
            if subject.learner.task != "search":
                yield Look(prefix, unseen, sizes)
                continue
            for kind, word in enumerate(SEARCHES):
                for n in sizes:
                    yield Look(f"{prefix}_{word}_n{n}", unseen, (n,), kind)

    def _draw(self, subject: SeeingSubject, look: Look) -> Asked:
        return subject.draw(
            f"{self.name}/{look.name}", self.items, sizes=look.sizes, unseen=look.unseen,
            kind=look.kind,
        )  # fmt: skip

    def _rng(self, subject: SeeingSubject, look: Look) -> np.random.Generator:
        seed = host_seed(subject.learner.seeds.evaluation, f"{self.name}/{look.name}")
        return np.random.default_rng(seed)

    def _answers(
        self, subject: SeeingSubject, twin: SeeingSubject, sizes: tuple[int, ...]
    ) -> Reading:
        rights: dict[str, dict[str, float]] = {row: {} for row in ("", *self.controls, BAG)}
        table: dict[str, list[Any]] = {
            name: [] for name in ("look", "held_out", "kind", "objects", "right", "hits", "alarms")
        }
        for look in self._looks(subject, sizes):
            asked = self._draw(subject, look)
            truth = np.asarray(asked.answer)
            said = subject.answer(asked) > 0
            given = {
                "": said,
                "untrained": twin.answer(asked) > 0,
                "shuffled": said[self._rng(subject, look).permutation(len(said))],
                "planted": truth,
                BAG: bag_answers(asked, subject.learner.family.colours),
            }
            for row, answers in given.items():
                rights[row][look.name] = float(np.mean(answers == truth))
            _append(table, _row(look, said, truth))
        search = subject.learner.task == "search"
        summed = {row: summary(shares, sizes, search) for row, shares in rights.items()}
        controls = {name: summed[name] for name in self.controls}
        controls["planted"] |= {f"{BAG}_{name}": value for name, value in summed[BAG].items()}
        # Half is chance: a share of right answers is no signal, what it is above half is.
        controls["shuffled"] = {n: 2 * value - 1 for n, value in rights["shuffled"].items()}
        return Reading(summed[""], controls, {"looks": table})

    def _reports(
        self, subject: SeeingSubject, twin: SeeingSubject, sizes: tuple[int, ...]
    ) -> Reading:
        family = subject.learner.family
        values: dict[str, float] = {}
        controls: dict[str, dict[str, float]] = {name: {} for name in self.controls}
        table: dict[str, list[Any]] = {name: [] for name in ("look", "objects", *Mistakes._fields)}
        for look in self._looks(subject, sizes):
            asked, rng = self._draw(subject, look), self._rng(subject, look)
            reported = subject.things(subject.answer(asked))
            moved = rng.permutation(self.items)
            given = {
                "": reported,
                "untrained": twin.things(twin.answer(asked)),
                "shuffled": type(reported)(*(part[moved] for part in reported)),
                "planted": asked.scene,
                BAG: bag_report(asked.scene, rng),
            }
            found = {
                row: mistakes(things, asked.scene, family.colours, family.shapes)
                for row, things in given.items()
            }
            values |= rates(look.name, found[""])
            controls["untrained"] |= rates(look.name, found["untrained"])
            if look.unseen:
                pair = {row: first_reported(said, asked.scene) for row, said in given.items()}
                values["unseen_pair"] = pair[""]
                controls["untrained"]["unseen_pair"] = pair["untrained"]
                controls["planted"]["unseen_pair"] = pair["planted"]
                controls["planted"][f"{BAG}_unseen_pair"] = pair[BAG]
            # Single objects are often in other scenes too; a whole scene is not.
            controls["shuffled"][look.name] = rates(look.name, found["shuffled"])[look.name]
            controls["planted"] |= rates(look.name, found["planted"])
            controls["planted"] |= rates(f"{BAG}_{look.name}", found[BAG])
            for n in look.sizes:
                some = found[""].objects == n
                if some.any():
                    sums = {f: float(np.mean(v[some])) for f, v in found[""]._asdict().items()}
                    _append(table, {**sums, "look": look.name, "objects": n})
        for numbers in (values, controls["untrained"], controls["planted"]):
            if "unseen" in numbers:
                numbers["gap"] = numbers["seen"] - numbers["unseen"]
        return Reading(values, controls, {"looks": table})


def summary(shares: Mapping[str, float], sizes: tuple[int, ...], search: bool) -> dict[str, float]:
    """Shares of right answers, their means, and in search the interactions behind them.

    >>> found = summary({"seen_disjunctive_n5": 1.0, "seen_conjunctive_n5": 0.75}, (5,), True)
    >>> found["seen_interaction_n5"]
    0.25
    """
    values = dict(shares)
    for prefix in ("seen", "unseen"):
        mine = [value for name, value in shares.items() if name.split("_")[0] == prefix]
        if mine:
            values[prefix] = float(np.mean(mine))
        if not (search and mine):
            continue
        for word, (easy, hard) in INTERACTIONS.items():
            both = {n: [f"{prefix}_{kind}_n{n}" for kind in (easy, hard)] for n in sizes}
            known = [n for n in sizes if all(name in shares for name in both[n])]
            apart = [shares[both[n][0]] - shares[both[n][1]] for n in known]
            values |= {f"{prefix}_{word}_n{n}": gap for n, gap in zip(known, apart, strict=True)}
            if len(known) > 1:
                values[f"{prefix}_{word}_slope"] = float(np.polyfit(known, apart, 1)[0])
                values[f"{prefix}_{word}_growth"] = apart[-1] - apart[0]
    if "unseen" in values:
        values["gap"] = values["seen"] - values["unseen"]
    return values


def rates(name: str, found: Mistakes) -> dict[str, float]:
    """Means over scenes and objects of what is right and wrong with reports."""
    objects = float(found.objects.sum())
    wrong = found.conjunction + found.feature
    exact = (found.missed + wrong + found.repeated) == 0
    values = {
        name: float(exact.mean()),
        f"{name}_objects": float(found.right.sum() / objects),
        f"{name}_conjunction_errors": float(found.conjunction.sum() / objects),
        f"{name}_feature_errors": float(found.feature.sum() / objects),
        f"{name}_repeated": float(found.repeated.sum() / objects),
        f"{name}_missed": float(found.missed.sum() / objects),
    }
    if wrong.any():  # where nothing is wrong, there is nothing to share
        values[f"{name}_conjunction_share"] = float(found.conjunction.sum() / wrong.sum())
        values[f"{name}_conjunction_expected"] = float(np.average(found.expected, weights=wrong))
    return values


def _row(
    look: Look, said: Bool[np.ndarray, "item"], truth: Bool[np.ndarray, "item"]
) -> dict[str, Any]:
    return {
        "look": look.name,
        "held_out": look.unseen,
        "kind": "" if look.kind is None else SEARCHES[look.kind],
        "objects": list(look.sizes),
        "right": float(np.mean(said == truth)),
        "hits": float(np.mean(said[truth])),
        "alarms": float(np.mean(said[~truth])),
    }


def _append(table: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    for column, values in table.items():
        values.append(row[column])
