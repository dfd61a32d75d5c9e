"""An audit of a dataset: what it covers, what it lacks, and where a model will fail for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from recombine.audits.association import Associations, associations
from recombine.audits.coverage import (
    MIN_COUNTS,
    STRENGTHS,
    Connected,
    Coverage,
    Exposure,
    connected_curve,
    coverage_curve,
    exposure,
)
from recombine.audits.echoes import Cell, cell_of, echoes
from recombine.audits.holes import (
    FALSE_ALARMS,
    SIZES,
    Assignment,
    Broken,
    Hole,
    Thin,
    holes,
    parts,
    seen_forbidden,
    thin_values,
)
from recombine.audits.holes import Risk as Risks
from recombine.audits.labels import LabelNoise, label_noise
from recombine.audits.nested import Nested, nested
from recombine.audits.overlap import Overlap
from recombine.audits.rates import mean_rate
from recombine.audits.risk import Risk, risk
from recombine.audits.slices import Slice, Worst, failure_table, slices
from recombine.audits.unsearched import unsearched
from recombine.lab.intervals import Interval
from recombine.seeds import host_seed
from recombine.splits.divergence import Divergences, divergences
from recombine.tables.coding import Coded
from recombine.tables.novelty import LEVELS, novelty
from recombine.tables.reading import left_out
from recombine.tables.rows import MISSING, OTHER, Rows, aligned
from recombine.tables.rules import Rules, rules_for

THIN = 10
"""Rows below which a value is called thin: too few to learn it from, or to tell."""

SUSPECTS = 100  # rows with a suspect label that an alarm names
WORST = 200  # failing combinations that are kept
COMPLETIONS = 16  # trained rows that part of a combination is put into, to tell its risk

Say = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """One alarm: what kind of defect, where (in words and codes), and the sentence.

    `rows` names the first rows of it, and `more_rows` says how many more there are.
    """

    kind: str
    where: str
    sentence: str
    rows: tuple[str, ...] = ()
    more_rows: int = 0


@dataclass(frozen=True)
class Level:
    """The score of evaluated rows at one level of novelty; each combination counts once."""

    name: str
    rows: int
    combinations: int
    score: Interval


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the outcomes of evaluated rows say; `rows` are those that have one."""

    rows: Rows
    outcome: Float[np.ndarray, " row"]
    levels: tuple[Level, ...]
    risk: Risk
    slices: tuple[Slice, ...]
    worst: tuple[Worst, ...]


@dataclass(frozen=True, eq=False)
class Audit:
    """Everything an audit found.

    `why_not` says what was asked for and could not be told. `left_out` names the choices of factors
    (places) in which it was not looked for, since their tables are too large.
    """

    train: Rows
    rules: Rules
    min_count: int
    thin_rows: int
    coverage: tuple[Coverage, ...]
    connected: tuple[Connected, ...]
    holes: Mapping[int, Sequence[Hole]]
    thin: tuple[Thin, ...]
    parts: tuple[Mapping[int, Sequence[int]], ...]
    forbidden: tuple[Broken, ...]
    never_possible: tuple[str, ...]
    associations: Associations
    echoes: Mapping[Cell, Cell] = field(default_factory=dict)
    nested: tuple[Nested, ...] = ()
    target: Rows | None = None
    traffic: np.ndarray | None = None
    exposure: Exposure | None = None
    overlap: Overlap | None = None
    labels: LabelNoise | None = None
    evaluation: Evaluation | None = None
    divergences: Mapping[str, Divergences] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)

    @property
    def combines(self) -> bool:
        """Whether a row holds more than one value, so that there is something to combine."""
        return _longest(self.train) > 1

    def covered(self, t: int, min_count: int | None = None) -> Coverage | None:
        """The coverage of t values at a least count."""
        wanted = (t, min_count or self.min_count)
        return next((c for c in self.coverage if (c.t, c.min_count) == wanted), None)

    @property
    def findings(self) -> list[Finding]:
        """The alarms, one a defect: holes that are no chance, thin values, parts, broken rules.

        A hole between parts that never meet, between two factors of which one decides the other, of
        a thin value, or that follows from a clearer hole, is no defect of its own.
        """
        return [
            *self._missing(), *self._broken(), *self._mislabelled(), *self._failing(),
        ]  # fmt: skip

    def _missing(self) -> Iterator[Finding]:
        rows = self.train
        part_of = {
            (factor, value): number
            for number, part in enumerate(self.parts)
            for factor, values in part.items()
            for value in values
        }
        thin = {(each.factor, each.value) for each in self.thin}
        crossing, follow = 0, Counter(self.echoes.values())
        decided = {one.pair: one for one in self.nested}
        between: Counter[frozenset[int]] = Counter()
        for hole in (hole for several in self.holes.values() for hole in several if hole.alarm):
            values = set(zip(hole.chosen, hole.codes, strict=True))
            if len({part_of.get(value) for value in values}) > 1:
                crossing += 1
            elif frozenset(hole.chosen) in decided:
                between[frozenset(hole.chosen)] += 1
            elif not values & thin and cell_of(hole) not in self.echoes:
                others = follow[cell_of(hole)]
                more = f" ({others} more follow{'s'[: others == 1]} from it)" if others else ""
                yield Finding("hole", rows.label(hole.assignment), hole.sentence(rows) + more)
        for pair, several in between.items():
            one = decided[pair]
            yield Finding("nested factors", one.label(rows), one.sentence(rows, several))
        for each in self.thin:
            name = rows.label({each.factor: each.value})
            count = "no row" if not each.count else f"{each.count} row{'s'[: each.count > 1]} only"
            yield Finding("thin value", name, f"{name}: {count}")
        for part in self.parts[1:]:
            if all((factor, value) in thin for factor, values in part.items() for value in values):
                continue
            name = rows.label({f: tuple(values) for f, values in part.items()})
            more = f" ({crossing} holes lie between parts)" if crossing else ""
            yield Finding(
                "disconnected part", name, f"{name}: never together with anything else{more}"
            )

    def _broken(self) -> Iterator[Finding]:
        for broken in self.forbidden:
            name = self.train.label(broken.assignment)
            sentence = f"{name}: {broken.count} rows, though a rule says never ({broken.rule})"
            yield Finding("forbidden but seen", name, sentence)

    def _mislabelled(self) -> Iterator[Finding]:
        if self.labels is not None and self.labels.alarm:
            where = self.labels.gathers[0].label if self.labels.gathers else "everywhere"
            first = self.labels.suspects[:SUSPECTS]
            more = len(self.labels.suspects) - len(first)
            yield Finding("label noise", where, self.labels.sentence(), first, more)

    def _failing(self) -> Iterator[Finding]:
        if self.evaluation is None:
            return
        slices = self.evaluation.slices
        whole = set(range(len(self.train.factors)))
        for one in slices:
            kind = "combination" if set(one.assignment) == whole else "slice"
            more = one.failures - len(one.ids)
            yield Finding(f"failing {kind}", one.label, one.sentence, one.ids, more)
        for worst in self.evaluation.worst:
            told = any(worst.within(one.assignment) for one in slices)
            if worst.beyond_p <= FALSE_ALARMS and not told:
                more = worst.failures - len(worst.ids)
                yield Finding("failing combination", worst.label, worst.sentence, worst.ids, more)

    def sentence(self) -> str:
        """The audit in a sentence or two."""
        said = []
        pairs, state = self.covered(2), self.connected[0]
        if pairs is not None and pairs.share is not None:
            said.append(f"{pairs.share:.1%} of {pairs.possible:,} possible pairs are trained")
        covered = f"the values are {'covered' if state.covered else 'not covered'}"
        if self.combines:
            said.append(f"{covered} and {'connected' if state.connected else 'not connected'}")
        else:
            said.append(f"{covered}; with one factor there is nothing to combine")
        if self.exposure is not None:
            said.append(self.exposure.sentence())
        kinds: dict[str, int] = {}
        for finding in self.findings:
            kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
        alarms = ", ".join(f"{n} of kind '{kind}'" for kind, n in kinds.items()) or "none"
        return f"{'; '.join(said)[:1].upper()}{'; '.join(said)[1:]}. Alarms: {alarms}."


@dataclass(frozen=True)
class Asked:
    """What an audit is to look at; everything but the training rows is optional.

    `evaluation` rows have an `outcome` each: 1 for right, 0 for wrong. `target` is what the model
    will meet, with the traffic each row stands for. Tables need not be aligned. `overlap` is how
    many evaluated rows were trained on, where that is known.
    """

    evaluation: Rows | None = None
    outcome: np.ndarray | None = None
    target: Rows | None = None
    traffic: np.ndarray | None = None
    label: np.ndarray | None = None
    forbid: Sequence[str] = ()
    min_count: int = 1
    thin_rows: int = THIN
    strengths: Sequence[int] = STRENGTHS
    most_holes: int = 200
    seed: int = 0
    overlap: Overlap | None = None
    why_not: Mapping[str, str] = field(default_factory=dict)


def audit(train: Rows, asked: Asked | None = None, say: Say | None = None) -> Audit:
    """Audits training rows.

    >>> from recombine.tables import read_rows
    >>> table = {"colour": ["red", "blue"] * 30, "shape": ["cube", "ball"] * 30}
    >>> [finding.kind for finding in audit(read_rows(table, None)).findings]
    ['disconnected part']
    """
    asked, say = asked or Asked(), say or (lambda text: None)
    others = [rows for rows in (asked.evaluation, asked.target) if rows is not None]
    train, *others = aligned(train, *others)
    evaluation = others.pop(0) if asked.evaluation is not None else None
    target = others.pop(0) if asked.target is not None else None
    rules = rules_for(train, asked.forbid)
    never = tuple(rules.check())
    why_not = _alone(train) | _slips(train) | dict(asked.why_not)
    if train.left_out:
        why_not["left out"] = f"{left_out(train.left_out)}; name it in --factors to keep it"
    judged = None
    if evaluation is not None and asked.outcome is not None:
        say("what evaluated rows tell")
        judged = _judged(train, evaluation, asked.outcome, rules, asked.seed)
        if silent := len(evaluation) - len(judged.rows):
            why_not["outcomes"] = (
                f"{silent:,} of {len(evaluation):,} evaluated rows have none, and are left out"
            )
    if asked.overlap is not None and asked.overlap.rows:
        why_not["overlap"] = asked.overlap.sentence
    counts = sorted({asked.min_count, *MIN_COUNTS})
    say("coverage")
    covered = coverage_curve(train, rules, asked.strengths, counts)
    connection = connected_curve(train, rules, sorted({asked.min_count, *MIN_COUNTS}))
    at = [c for c in connection if c.min_count == asked.min_count]
    say("holes")
    chances = _chances_of(train, judged, asked.seed) if judged is not None else None
    found = {
        t: holes(
            train, rules, t, target=target, weights=asked.traffic, risk=chances,
            min_count=asked.min_count, most=asked.most_holes,
        )
        for t in SIZES
        if t in asked.strengths and t <= max(2, _longest(train))
    }  # fmt: skip
    too_large = unsearched(train, asked.strengths, None if judged is None else judged.rows)
    say("association")
    return Audit(
        train=train, rules=rules, min_count=asked.min_count, thin_rows=asked.thin_rows,
        coverage=covered, connected=(*at, *(c for c in connection if c not in at)),
        holes=found,
        thin=tuple(_named_only(train, thin_values(train, rules, asked.thin_rows))),
        parts=tuple(parts(train, asked.min_count)) if _longest(train) > 1 else (),
        forbidden=tuple(seen_forbidden(train, rules)),
        never_possible=never,
        associations=associations(train, label=asked.label),
        echoes=echoes(train, [hole for several in found.values() for hole in several]),
        nested=nested(train),
        target=target, traffic=asked.traffic, overlap=asked.overlap,
        exposure=None if target is None else exposure(train, target, asked.traffic),
        labels=None if asked.label is None else label_noise(train, asked.label),
        evaluation=judged,
        divergences={
            name: divergences(train, rows, weights=weights)
            for name, rows, weights in (
                ("evaluation", evaluation, None), ("target", target, asked.traffic),
            )
            if rows is not None and len(rows) and len(train)
        },
        left_out={kind: each.chosen for kind, each in too_large.items()},
        why_not=why_not | {kind: each.sentence(train) for kind, each in too_large.items()},
    )  # fmt: skip


def _judged(
    train: Rows, evaluation: Rows, outcome: np.ndarray, rules: Rules, seed: int
) -> Evaluation:
    right = np.asarray(outcome, float)
    told = ~np.isnan(right)
    rows, right = evaluation.take(told), right[told]
    failed = right < 0.5
    return Evaluation(
        rows, right, by_level(train, rows, right), risk(train, rows, right, rules, seed),
        tuple(slices(rows, failed)), tuple(failure_table(rows, failed, most=WORST)),
    )  # fmt: skip


def by_level(
    train: Rows, rows: Rows, outcome: Float[np.ndarray, " row"]
) -> tuple[Level, ...]:  # fmt: skip
    """The score at each level of novelty that occurs, over combinations."""
    new = novelty(train, rows, nearest=False)
    place, size = new.combinations.inverse, new.combinations.counts
    score = np.bincount(place, outcome, len(size)) / np.maximum(size, 1)
    found = []
    for level, name in enumerate(LEVELS):
        here = new.level == level
        if here.any():
            rows_here = int(size[here].sum())
            found.append(Level(name, rows_here, int(here.sum()), mean_rate(score[here])))
    return tuple(found)


def _chances_of(train: Rows, judged: Evaluation, seed: int) -> Risks:
    """The risk of parts of combinations: each is put into a few trained rows, and averaged."""
    rng = np.random.default_rng(host_seed(seed, "audit/completions"))
    some = train.take(rng.choice(len(train), min(len(train), COMPLETIONS), replace=False))

    def chances(assignments: Sequence[Assignment]) -> list[float | None]:
        if not assignments:
            return []
        factors = []
        for place, factor in enumerate(some.factors):
            codes = np.tile(factor.codes, (len(assignments), *[1] * (factor.codes.ndim - 1)))
            codes = codes.reshape(len(assignments), len(some), *factor.codes.shape[1:])
            for line, assignment in zip(codes, assignments, strict=True):
                if place in assignment and not factor.many:
                    line[:] = assignment[place]
            factors.append(replace(factor, codes=codes.reshape(-1, *factor.codes.shape[1:])))
        told = judged.risk.predict(Rows(some.source, tuple(factors))).probability
        told = told.reshape(len(assignments), len(some))
        known = ~np.isnan(told).all(axis=1)
        # A list cannot be completed by putting one value in: its risk stays unknown.
        single = [not any(train.factors[p].many for p in each) for each in assignments]
        known = known & np.asarray(single)
        return [float(np.nanmean(t)) if k else None for t, k in zip(told, known, strict=True)]

    return chances


def _named_only(train: Rows, found: Sequence[Thin]) -> list[Thin]:
    """Thin values that somebody could collect: neither missing ones nor what was grouped."""
    return [
        thin
        for thin in found
        if train.factors[thin.factor].values[thin.value] not in (MISSING, OTHER)
    ]


def _alone(train: Rows) -> dict[str, str]:
    """What to say of a single factor, and of factors with one value: they combine with nothing."""
    single = {
        "factors": f"{train.names[0]} only, so there is nothing to combine; name more in --factors"
    }
    return (single if _longest(train) < 2 else {}) | {
        f"factor {factor.name}": f"one value only ({factor.values[0]}): there is nothing to combine"
        for factor in train.factors
        if factor.size == 1 and not factor.many
    }


def _slips(train: Rows) -> dict[str, str]:
    """What to say of factors that a few words among numbers made text of."""
    return {
        f"factor {factor.name}": factor.slip
        for factor in train.factors
        if isinstance(factor, Coded) and factor.slip
    }


def _longest(train: Rows) -> int:
    """How many values a combination has at most."""
    return sum(f.codes.shape[1] if f.many else 1 for f in train.factors)
