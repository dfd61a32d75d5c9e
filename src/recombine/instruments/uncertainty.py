"""Which combinations a network is unsure of: where others, trained alike, answer otherwise."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, UInt32

from recombine.checks import at_least
from recombine.combinations import Space
from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.chains import Chains
from recombine.families.scenes import Scenes
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.composition import Composition, legible
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.instruments.subject import Subject
from recombine.instruments.supervised_subject import SupervisedSubject
from recombine.seeds import Seeds, host_seed
from recombine.supports import Collected, SupportRule

if TYPE_CHECKING:
    from recombine.learners._learner import Learner

OTHERS = 10_000  # seeds of the ensemble's other networks are counted from here
SHUFFLES = 20
STEPS = 12  # from noise to picture

PerRow = Float[np.ndarray, " row"]
Voice = tuple[Any, Any]  # who answers, and the answers


@dataclass(frozen=True)
class Uncertainty(Instrument):
    """How far the answers of several networks lie apart, for each combination one could collect.

    The others differ from the subject in first weights and in the order of training alone. Each of
    up to `combinations` combinations is asked for `draws` times. Numbers and pictures (drawn from
    the same noise) lie apart by their mean squared difference; texts by how little, in nats, each
    network expects what another one wrote. No right answer is used for that.

    `disagreement` is the mean. `warranted` asks whether it shows where a network errs: the rank
    correlation, over combinations, of how far the others lie apart among themselves with the
    subject's error, for which right answers are used. An error of the subject would by itself set
    it apart from the others, so it has no say there. Controls: the untrained twin in the subject's
    place, errors of other combinations (shuffled), and networks that were made to differ more on
    some combinations than on others (planted, against how much more).
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "uncertainty"
    needs: ClassVar[tuple[str, ...]] = ("answer",)
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    networks: int = 3
    draws: int = 4
    combinations: int = 1024

    def __post_init__(self):
        at_least(self, networks=3, draws=1, combinations=3)

    def cells(self, learner: Learner) -> dict[str, Learner]:
        """The other networks of the ensemble."""
        seeds = getattr(learner, "seeds", None)
        if not isinstance(seeds, Seeds):
            raise InvalidRequest(
                f"{self.name} trains a network again from other first weights; "
                f"{type(learner).__name__} has no seeds to change"
            )
        found = {}
        for n in range(1, self.networks):
            own = {"init": seeds.init + OTHERS * n, "train": seeds.train + OTHERS * n}
            changed: Any = {"seeds": dataclasses.replace(seeds, **own)}
            found[f"other{n}"] = dataclasses.replace(learner, **changed)
        return found

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        asked = _asked(subject, self)
        first, twin = (asked.voice(one) for one in (subject, untrained))
        rest = [asked.voice(others[name]) for name in sorted(others)]
        disagreement, among = asked.apart([first, *rest]), asked.apart(rest)
        error, its_error = (asked.over(asked.wrong(voice[1])) for voice in (first, twin))
        rng = np.random.default_rng(host_seed(_seeds(subject).evaluation, f"{self.name}/controls"))
        shuffled = [correlation(among, rng.permutation(error)) for _ in range(SHUFFLES)]
        unlike = rng.uniform(0, 1, len(asked.ranks))
        made = asked.planted(first[1], np.repeat(unlike, self.draws), self.networks, rng)
        without = asked.apart([twin, *rest])
        return Reading(
            {"disagreement": float(disagreement.mean()),
             "warranted": correlation(among, error)},
            {"untrained": {"disagreement": float(without.mean()),
                           "warranted": correlation(among, its_error)},
             "shuffled": {"warranted": float(np.mean(shuffled))},
             "planted": {"warranted": correlation(asked.apart(made), unlike)}},
            {"pool": {"rank": asked.ranks.tolist(), "disagreement": _rounded(disagreement),
                      "error": _rounded(error)}},
        )  # fmt: skip


def most_uncertain(reading: Reading, count: int) -> tuple[int, ...]:
    """The combinations of a reading that the networks disagree on most, ascending.

    >>> pool = {"rank": [3, 5, 8], "disagreement": [0.1, 0.9, 0.4], "error": [0.0, 0.0, 0.0]}
    >>> most_uncertain(Reading({}, {}, {"pool": pool}), 2)
    (5, 8)
    """
    pool = reading.tables["pool"]
    if len(pool["rank"]) < count:
        raise InvalidRequest(
            f"{count} combinations are to be collected, and {len(pool['rank'])} were looked at: "
            f"read with combinations={count} or more"
        )
    order = np.lexsort((pool["rank"], -np.asarray(pool["disagreement"])))
    return tuple(sorted(int(pool["rank"][n]) for n in order[:count]))


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where one of the two never changes, so tells nothing."""
    from scipy.stats import rankdata

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


@dataclass(frozen=True, eq=False)
class Asked(abc.ABC):
    """What is asked of every network: each combination so many times, a row each."""

    instrument: Uncertainty
    ranks: UInt32[np.ndarray, " combination"]

    @abc.abstractmethod
    def answers(self, subject: Any) -> Any:
        """One answer a row."""

    @abc.abstractmethod
    def distance(self, voice: Voice, other: Any) -> PerRow:
        """How far another's answers lie from what this network says."""

    @abc.abstractmethod
    def wrong(self, answers: Any) -> PerRow:
        """How wrong each answer is."""

    @abc.abstractmethod
    def planted(
        self, answers: Any, unlike: PerRow, networks: int, rng: np.random.Generator
    ) -> list[Voice]:
        """Networks that differ from one another as much as `unlike` says, from 0 to 1."""

    def voice(self, subject: Any) -> Voice:
        return subject, self.answers(subject)

    def apart(self, voices: Sequence[Voice]) -> Float[np.ndarray, " combination"]:
        """The mean distance over all ordered pairs of networks, for each combination."""
        pairs = [
            self.distance(voice, other[1])
            for n, voice in enumerate(voices)
            for m, other in enumerate(voices)
            if n != m
        ]
        return self.over(np.mean(pairs, axis=0))

    def over(self, rows: PerRow) -> Float[np.ndarray, " combination"]:
        """The mean over the draws of each combination."""
        return np.asarray(rows, np.float64).reshape(len(self.ranks), -1).mean(axis=1)


@dataclass(frozen=True, eq=False)
class Numbers(Asked):
    """Fresh tasks of each combination, answered in numbers."""

    subject: SupervisedSubject
    batch: Any

    @staticmethod
    def of(instrument: Uncertainty, ranks: np.ndarray, subject: SupervisedSubject) -> Numbers:
        rows = np.repeat(ranks, instrument.draws)
        return Numbers(instrument, ranks, subject, subject.draw(rows, instrument.name))

    def answers(self, subject: SupervisedSubject) -> np.ndarray:
        return np.asarray(subject.answer(self.batch), np.float64)

    def distance(self, voice: Voice, other: np.ndarray) -> PerRow:
        return ((voice[1] - other) ** 2).reshape(len(other), -1).mean(axis=1)

    def wrong(self, answers: np.ndarray) -> PerRow:
        return self.subject.score(answers.astype(np.float32), self.batch.targets)["error"]

    def planted(
        self, answers: np.ndarray, unlike: PerRow, networks: int, rng: np.random.Generator
    ) -> list[Voice]:
        size = unlike.reshape(-1, *[1] * (answers.ndim - 1))
        return [(None, answers + size * rng.standard_normal(answers.shape))
                for _ in range(networks)]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pictures(Numbers):
    """Pictures of each combination, drawn by every network from the same noise."""

    @staticmethod
    def of(instrument: Uncertainty, ranks: np.ndarray, subject: SupervisedSubject) -> Pictures:
        rows = np.repeat(ranks, instrument.draws)
        drawn = subject.draw(rows, instrument.name, samples=2)
        return Pictures(instrument, ranks, subject, drawn)

    def answers(self, subject: SupervisedSubject) -> np.ndarray:
        codes = np.asarray(self.batch.codes)
        how = Composition(steps=STEPS)
        return legible(how.pictures(subject, codes, self.instrument.name)).astype(np.float64)

    def wrong(self, answers: np.ndarray) -> PerRow:
        images = answers.astype(np.float32)
        return 1 - Composition.judged(self.subject, images, self.batch)["success"]


@dataclass(frozen=True, eq=False)
class Texts(Asked):
    """A chain of functions on several symbols, answered in text."""

    subject: SequenceSubject
    family: Chains
    sources: list[str]

    @staticmethod
    def of(
        instrument: Uncertainty, ranks: np.ndarray, subject: SequenceSubject, family: Chains
    ) -> Texts:
        rng = np.random.default_rng(host_seed(_seeds(subject).evaluation, instrument.name))
        draws = min(instrument.draws, family.values)
        if draws < instrument.draws:
            raise InvalidRequest(
                f"draws={instrument.draws}: a chain can be asked on {family.values} symbols; use "
                f"draws={draws} or less"
            )
        sources = []
        for rank in ranks.tolist():
            chosen = np.sort(rng.permutation(family.values)[:draws])
            sources += [family.sources(rank)[n] for n in chosen]
        return Texts(instrument, ranks, subject, family, sources)

    def answers(self, subject: SequenceSubject) -> list[list[int]]:
        return subject.written(self._numbers, self._longest)

    def distance(self, voice: Voice, other: list[list[int]]) -> PerRow:
        who = voice[0]
        return -who.judge(self._numbers, [np.asarray(a, int) for a in other]).log_probability

    def wrong(self, answers: list[list[int]]) -> PerRow:
        right = [self.subject.numbers(self.family.solve(source)) for source in self.sources]
        return np.asarray([list(a) != list(b) for a, b in zip(answers, right, strict=True)], float)

    def planted(
        self, answers: list[list[int]], unlike: PerRow, networks: int, rng: np.random.Generator
    ) -> list[Voice]:
        words = [self.subject.numbers(f"a{value}")[0] for value in range(self.family.values)]
        right = [self.subject.numbers(self.family.solve(source)) for source in self.sources]
        found: list[Voice] = []
        for _ in range(networks):
            errs = rng.uniform(size=len(right)) < unlike
            said = [
                [*answer[:-1], int(rng.choice(words))] if err else list(answer)
                for answer, err in zip(right, errs, strict=True)
            ]
            found.append((Sure(said), said))
        return found

    @property
    def _numbers(self) -> list[np.ndarray]:
        return [np.asarray(self.subject.numbers(source), int) for source in self.sources]

    @property
    def _longest(self) -> int:
        """No right answer is longer; one token more shows an answer that does not end."""
        return (self.family.length if self.family.steps else 1) + 1


@dataclass(frozen=True, eq=False)
class Sure:
    """A scripted network that expects its own answers and hardly any other."""

    said: list[list[int]]

    def judge(self, sources: Sequence[Any], targets: Sequence[Any]) -> Any:
        same = [list(a) == list(b) for a, b in zip(self.said, targets, strict=True)]
        return _Scripted(np.where(same, np.log(0.99), np.log(0.01)))


@dataclass(frozen=True, eq=False)
class _Scripted:
    log_probability: PerRow


def _asked(subject: Subject, instrument: Uncertainty) -> Asked:
    """What to ask of a subject, by what it answers in."""
    if isinstance(subject, SupervisedSubject):
        learner = subject.learner
        seed = host_seed(learner.seeds.support, "support")
        pool = _pool(learner.support, subject.support.space, seed, subject.support.seen)
        kind = Pictures if isinstance(learner.family, Scenes) else Numbers
        return kind.of(instrument, _some(pool, instrument, subject), subject)
    family = subject.family if isinstance(subject, SequenceSubject) else None
    if not isinstance(subject, SequenceSubject) or not isinstance(family, Chains):
        name = type(subject).__name__ if family is None else f"a network that learns {family.name}"
        raise NotApplicable(
            f"{instrument.name} asks for combinations one by one: it needs a subject that knows "
            f"its family and support, or one that learnt chains; {name} does not do"
        )
    seed = subject.learner.seeds.content
    seen = family.support_of(seed).seen
    pool = _pool(family.support, family.space, family.support_seed(seed), seen)
    return Texts.of(instrument, _some(pool, instrument, subject), subject, family)


def _pool(rule: SupportRule | Collected, space: Space, seed: int, seen: np.ndarray) -> np.ndarray:
    """What may be collected: with a plain rule, all that is held out."""
    if isinstance(rule, Collected):
        return np.setdiff1d(rule.parts(space, seed)[1], seen)
    return rule.build(space, seed).held_out


def _some(pool: np.ndarray, instrument: Uncertainty, subject: Subject) -> np.ndarray:
    if len(pool) < 3:
        raise NotApplicable(f"{instrument.name} compares combinations, and {len(pool)} are left")
    if len(pool) <= instrument.combinations:
        return pool
    rng = np.random.default_rng(host_seed(_seeds(subject).evaluation, f"{instrument.name}/pool"))
    return np.sort(rng.choice(pool, instrument.combinations, replace=False))


def _seeds(subject: Any) -> Seeds:
    return subject.learner.seeds


def _rounded(numbers: np.ndarray) -> list[float]:
    """Nine digits tell apart what can be told apart, and keep the store small."""
    return [float(f"{x:.9g}") for x in numbers]
