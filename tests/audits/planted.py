"""Datasets whose defects are known because they were planted, each with a clean twin.

Factors are a, b, c, ... with values a0, a1, ...; a list column is called m, a column of numbers n.
"a0 b2" is a pair of values, and "n4" the fifth of five bins of numbers. Nothing is removed from the
rows: a value that must not be there is redrawn, so that a twin has as many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from recombine.audits.auditing import Asked, Audit, audit
from recombine.tables.reading import read_rows
from recombine.tables.rows import Rows

BINS = 5
FAILS = 0.05  # of evaluated rows, whatever they hold


@dataclass(frozen=True)
class Plan:
    """What a dataset looks like, and what is wrong with it.

    - `skew`: how unequal the values of a factor are (0: equal). `follows`: how often a factor has
      the place of the one before it. `list_of`: (length, values) of a list column.
    - `missing`: the share of cells of b that are empty. `label`: what decides it; that of n changes
      in the middle of a bin, and one left to chance is the same for nine rows in ten.
    - `rules` hold, but for as many rows as `breaks` says. `holes` never occur, `thin` values in so
      many rows, `apart` sets the first so many values of each factor apart from the others.
    - `noise`: (share, where) of wrong labels. `failing`: what evaluated rows fail at which rate.
    - `lost`: how many whole combinations fail, drawn at random.
    """

    name: str
    rows: int
    sizes: tuple[int, ...]
    skew: float = 0.0
    follows: float = 0.0
    numbers: bool = False
    list_of: tuple[int, int] | None = None
    rules: tuple[str, ...] = ()
    missing: float = 0.0
    label: Literal["", "of a and b", "of n", "chance"] = ""
    evaluated: int = 0
    holes: tuple[str, ...] = ()
    thin: dict[str, int] = field(default_factory=dict)
    apart: tuple[int, ...] = ()
    breaks: dict[str, int] = field(default_factory=dict)
    noise: tuple[float, str] | None = None
    failing: dict[str, float] = field(default_factory=dict)
    lost: int = 0

    @property
    def clean(self) -> Plan:
        """The same without anything planted; the rules stay, and hold."""
        return replace(self, holes=(), thin={}, apart=(), breaks={}, noise=None, failing={}, lost=0)

    @property
    def names(self) -> tuple[str, ...]:
        words = tuple("abcdefgh"[: len(self.sizes)])
        return words + ("n",) * self.numbers + ("m",) * (self.list_of is not None)


PLANS = (
    Plan("one hole", 800, (4, 4, 3), holes=("a0 b1",)),
    Plan("three holes", 5_000, (5, 4, 4, 3), missing=0.1, holes=("a0 b1", "b2 c3", "c0 d2")),
    Plan("a hole of three values", 8_000, (4, 4, 4, 3), holes=("a1 b1 c2", "b0 d1")),
    Plan("holes among unequal values", 6_000, (5, 5, 4, 3, 3), skew=1.0,
         holes=("a0 b0", "b1 c1", "d0 e1")),
    Plan("holes among factors that follow one another", 12_000, (4, 4, 4, 3), follows=0.4,
         holes=("a0 b1", "a1 c3")),
    Plan("eight factors that follow one another", 20_000, (3, 4, 3, 3, 3, 4, 3, 2), follows=0.8,
         holes=("a1 b2", "c0 f1", "e2 h1")),
    Plan("holes in numbers", 3_000, (4, 3, 3), numbers=True, label="of n",
         holes=("a0 n4", "b1 n0")),
    Plan("holes in lists", 6_000, (3, 3), list_of=(3, 8), holes=("m1 m4", "a2 m0")),
    Plan("thin values", 1_500, (6, 4, 3), label="chance", thin={"a5": 4, "b0": 7, "a3": 1}),
    Plan("thin values in a long list of factors", 30_000, (8, 6, 5, 4, 3, 3, 2, 2), skew=0.4,
         thin={"a7": 9, "c1": 2, "e2": 5}, holes=("b0 d1",)),
    Plan("two parts that never meet", 4_000, (5, 4, 4), apart=(2, 1, 1)),
    Plan("a small part of six factors", 9_000, (6, 5, 4, 3, 3, 3), apart=(2, 1, 1, 1, 1, 1),
         holes=("a4 b2",)),
    Plan("rules that hold", 4_000, (4, 4, 3, 3), holes=("c1 d2",),
         rules=("IF a=a0 THEN b<>b1", "IF [b] = b2 THEN [c] IN {c0, c1}")),
    Plan("rules that are broken", 5_000, (4, 4, 4),
         rules=("IF a=a0 THEN b<>b1", "IF a=a1 THEN c<>c3", "IF b=b3 THEN c<>c0"),
         breaks={"a0 b1": 12, "b3 c0": 3}),
    Plan("wrong labels everywhere", 4_000, (4, 4, 3), label="of a and b", noise=(0.02, "")),
    Plan("wrong labels of one value", 8_000, (5, 4, 3, 2), label="of a and b", noise=(0.15, "c1"),
         holes=("a1 b0",)),
    Plan("a model that fails two pairs", 4_000, (4, 4, 3, 3), evaluated=3_000,
         holes=("a0 b1",), failing={"a0 b1": 0.7, "c1 d2": 0.4}),
    Plan("a model that fails values and triples", 6_000, (5, 4, 4, 3, 2), evaluated=6_000,
         failing={"a3": 0.3, "b1 c2 d0": 0.8}, thin={"a4": 6}),
    Plan("a model that loses whole combinations", 4_000, (4, 4, 3, 2), evaluated=5_000, lost=6),
    Plan("everything at once", 15_000, (6, 5, 4, 4), follows=0.3, numbers=True, list_of=(2, 7),
         label="of a and b", evaluated=3_000, rules=("IF a=a0 THEN b<>b0",), breaks={"a0 b0": 5},
         holes=("a1 c2", "m0 m3", "b1 n2"), thin={"d3": 8}, noise=(0.04, ""),
         failing={"a2 b3": 0.7, "m5": 0.3}),
)  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """Columns as a user has them, and the alarms that are right: (kind, where)."""

    train: dict[str, list]
    evaluation: dict[str, list] | None
    defects: frozenset[tuple[str, str]]


def audited(plan: Plan, seed: int) -> tuple[Audit, Dataset]:
    """The audit of the dataset of a plan, read as a user's columns are."""
    made = dataset(plan, seed)
    train = read_rows(made.train, plan.names, columns=["label"] if plan.label else ())
    evaluation, outcome = None, None
    if made.evaluation is not None:
        evaluation = read_rows(made.evaluation, plan.names, columns=["correct"], like=train)
        outcome = evaluation.column("correct")
    label = train.column("label") if plan.label else None
    asked = Asked(evaluation=evaluation, outcome=outcome, label=label, forbid=plan.rules)
    return audit(train, asked), replace(made, defects=_in_words(made.defects, train))


def dataset(plan: Plan, seed: int) -> Dataset:
    """Draws a dataset and plants what the plan says."""
    rng = np.random.default_rng([seed, *plan.name.encode()])
    train = _Drawn(plan, rng, plan.rows)
    train.plant()
    columns = train.columns()
    defects = {("hole", _places(hole)) for hole in plan.holes}
    defects |= {("thin value", value) for value in plan.thin}
    defects |= {("forbidden but seen", _places(pair)) for pair in plan.breaks}
    if plan.apart:
        part = [f"{f}{v}" for f, n in zip(plan.names, plan.apart, strict=True) for v in range(n)]
        defects |= {("disconnected part", " ".join(part))}
    if plan.label:
        label = _labels(plan, train, columns)
        if plan.noise is not None:
            share, where = plan.noise
            wrong = train.held(where) & (rng.random(plan.rows) < share)
            label = (label + wrong * rng.integers(1, 3, plan.rows)) % 3
            defects |= {("label noise", where)}
        columns["label"] = [f"kind {v}" for v in label]
    evaluation = None
    if plan.evaluated:
        met = _Drawn(replace(plan.clean, thin=plan.thin), rng, plan.evaluated)
        met.plant()
        chance = np.full(plan.evaluated, FAILS)
        for where, rate in plan.failing.items():
            chance[met.held(where)] = rate
            defects |= {("failing slice", _places(where))}
        for combination in met.some_combinations(plan.lost):
            chance[met.held(combination)] = 0.9
            defects |= {("failing combination", combination)}
        evaluation = met.columns()
        evaluation["correct"] = (rng.random(plan.evaluated) >= chance).astype(int).tolist()
    return Dataset(columns, evaluation, frozenset(defects))


def _labels(plan: Plan, train: _Drawn, columns: dict[str, list]) -> np.ndarray:
    if plan.label == "of n":
        return (np.array(columns["n"]) > 22.0).astype(int)  # bins are 10 apart, and 5 wide
    if plan.label == "chance":
        return (train.rng.random(plan.rows) < 0.1).astype(int)
    return (train.codes["a"] + train.codes["b"]) % 3


class _Drawn:
    """Rows as codes by factor; lists as a table of which values they hold."""

    def __init__(self, plan: Plan, rng: np.random.Generator, rows: int):
        self.plan, self.rng, self.rows = plan, rng, rows
        self.codes: dict[str, np.ndarray] = {}
        before = np.zeros(rows, int)
        self.shares: dict[str, np.ndarray] = {}
        for name, size in zip(plan.names, plan.sizes, strict=False):
            self.shares[name] = (1.0 + np.arange(size)) ** -plan.skew
            self.shares[name] /= self.shares[name].sum()
            codes = rng.choice(size, rows, p=self.shares[name])
            if self.codes:
                codes = np.where(rng.random(rows) < plan.follows, before % size, codes)
            self.codes[name] = before = codes
        if plan.numbers:  # as many in each bin, so that the edges lie between them
            self.codes["n"] = rng.permutation(np.arange(rows) % BINS)
        if plan.list_of is not None:
            length, values = plan.list_of
            self.lists = rng.random((rows, values)).argsort(axis=1)[:, :length]

    def held(self, words: str) -> np.ndarray:
        """Which rows hold all of these values."""
        inside = np.ones(self.rows, bool)
        for word in words.split():
            name, code = word[0], int(word[1:])
            inside &= (self.lists == code).any(axis=1) if name == "m" else self.codes[name] == code
        return inside

    def plant(self) -> None:
        plan = self.plan
        if plan.apart:
            small = self.rng.random(self.rows) < 0.3
            for name, cut in zip(tuple(self.codes), plan.apart, strict=True):
                size = plan.sizes[plan.names.index(name)]
                low = self.rng.integers(0, cut, self.rows)
                high = self.rng.integers(cut, size, self.rows)
                self.codes[name] = np.where(small, low, high)
        for value, rows in plan.thin.items():
            there = np.flatnonzero(self.held(value))
            self._redraw(self.rng.permutation(there)[rows:], value, value)
        forbidden = [_forbidden(rule) for rule in plan.rules]
        unwanted = [*plan.holes, *(pair for rule in forbidden for pair in rule)]
        for _ in range(100):  # mending one may bring another back
            for words in unwanted:
                there = np.flatnonzero(self.held(words))
                self._redraw(there, words.split()[0], words)
            if not any(self.held(words).any() for words in unwanted):
                break
        for pair, rows in plan.breaks.items():
            chosen = self.rng.choice(self.rows, rows, replace=False)
            for word in pair.split():
                self.codes[word[0]][chosen] = int(word[1:])

    def _redraw(self, places: np.ndarray, value: str, unwanted: str) -> None:
        """Other values for some rows, until none is left that holds what is unwanted."""
        name, chosen = value[0], np.zeros(self.rows, bool)
        chosen[places] = True
        thin = [int(word[1:]) for word in self.plan.thin if word[0] == name]
        while (left := np.flatnonzero(chosen & self.held(unwanted))).size:
            if name == "m":
                values = self.plan.list_of[1] if self.plan.list_of else 0
                length = self.lists.shape[1]
                drawn = self.rng.random((len(left), values)).argsort(axis=1)[:, :length]
                self.lists[left] = drawn
                continue
            shares = self.shares[name].copy()
            shares[thin] = 0.0
            if self.plan.apart:  # a part keeps to itself
                shares[: self.plan.apart[self.plan.names.index(name)]] = 0.0
            self.codes[name][left] = self.rng.choice(
                len(shares), len(left), p=shares / shares.sum()
            )

    def some_combinations(self, most: int) -> list[str]:
        """Combinations with enough rows, no two of which share all values but one."""
        lines = np.stack(list(self.codes.values()), axis=1)
        found, counts = np.unique(lines, axis=0, return_counts=True)
        chosen: list[np.ndarray] = []
        for line in self.rng.permutation(found[counts >= 20]):
            if len(chosen) < most and all(np.sum(line != other) > 1 for other in chosen):
                chosen.append(line)
        return [" ".join(f"{f}{v}" for f, v in zip(self.codes, c, strict=True)) for c in chosen]

    def columns(self) -> dict[str, list]:
        made: dict[str, list] = {}
        for name, codes in self.codes.items():
            if name == "n":
                made[name] = (codes * 10 + self.rng.uniform(0, 5, self.rows)).tolist()
            else:
                made[name] = [f"{name}{code}" for code in codes]
        if self.plan.missing:
            empty = self.rng.random(self.rows) < self.plan.missing
            made["b"] = ["" if no else word for no, word in zip(empty, made["b"], strict=True)]
        if self.plan.list_of is not None:
            made["m"] = [[f"m{code}" for code in line] for line in self.lists]
        return made


def _forbidden(rule: str) -> list[str]:
    """The pairs that a rule of these plans forbids."""
    return {
        "IF a=a0 THEN b<>b1": ["a0 b1"],
        "IF [b] = b2 THEN [c] IN {c0, c1}": ["b2 c2"],
        "IF a=a1 THEN c<>c3": ["a1 c3"],
        "IF b=b3 THEN c<>c0": ["b3 c0"],
        "IF a=a0 THEN b<>b0": ["a0 b0"],
    }[rule]


def _places(words: str) -> str:
    """The same values in the order of the factors, as a finding names them."""
    order = "abcdefghnm"
    return " ".join(sorted(words.split(), key=lambda word: (order.index(word[0]), word)))


def _in_words(defects: frozenset[tuple[str, str]], rows: Rows) -> frozenset[tuple[str, str]]:
    """The defects as an audit names them."""
    return frozenset((kind, _label(where.split(), rows)) for kind, where in defects)


def _label(words: Sequence[str], rows: Rows) -> str:
    if not words:
        return "everywhere"
    held: dict[int, list[int]] = {}
    for word in words:
        place = rows.names.index(word[0])
        values = rows.factors[place].values
        code = int(word[1:]) if word[0] == "n" else values.index(word)
        held.setdefault(place, []).append(code)
    return rows.label({place: tuple(sorted(codes)) for place, codes in held.items()})
