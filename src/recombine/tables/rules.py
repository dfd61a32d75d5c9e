"""Which combinations are possible at all: impossible is not missing.

Each rule becomes boxes of what it forbids. A box has a set of values for some factors, and whatever
lies inside it on all of them is impossible. For a column that holds lists, a factor lies inside a
box if the list contains one of the values.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from recombine.errors import InvalidRequest
from recombine.tables.rows import Rows
from recombine.tables.rule_boxes import Conjunction, Variable, boxes_of
from recombine.tables.rule_search import Clause, satisfiable
from recombine.tables.rule_syntax import parse_rule, split_rules

Assignment = Mapping[int, int | Sequence[int]]
"""Part of a combination: the code of each factor's value, or several codes for a list column."""

Literal = tuple[int, int, bool]
"""A further condition of a box: a list column, one of its values, whether the list holds it."""

CHUNK = 1 << 18


@dataclass(frozen=True)
class Rules:
    """What can and cannot be combined.

    A combination is impossible if it lies in one of the `boxes` and meets that box's `also`:
    conditions on list columns that one set of values cannot state (two values together, or the
    absence of one). `origin` has the place in `texts` of the rule each box comes from, and `many`
    the places of the columns that hold lists.

    >>> rules = parse_rules(["IF a=x THEN b<>y"], ["a", "b"], [("x", "z"), ("y", "w")])
    >>> rules.possible_table([0, 1]).tolist()
    [[False, True], [True, True]]
    """

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    boxes: tuple[Mapping[int, frozenset[int]], ...]
    texts: tuple[str, ...]
    many: frozenset[int] = frozenset()
    also: tuple[tuple[Literal, ...], ...] = ()
    origin: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.also:
            object.__setattr__(self, "also", ((),) * len(self.boxes))
        if not self.origin and len(self.boxes) == len(self.texts):
            object.__setattr__(self, "origin", tuple(range(len(self.boxes))))

    @classmethod
    def none(
        cls, names: Sequence[str], values: Sequence[Sequence[str]], many: Sequence[int] = ()
    ) -> Rules:
        """No rules: everything is possible."""
        return cls(tuple(names), tuple(map(tuple, values)), (), (), frozenset(many))

    def only(self, places: Sequence[int]) -> Rules:
        """Some of the rules (places in `texts`), over the same factors."""
        kept = [i for i, origin in enumerate(self.origin) if origin in places]
        return replace(
            self,
            boxes=tuple(self.boxes[i] for i in kept),
            also=tuple(self.also[i] for i in kept),
            origin=tuple(places.index(self.origin[i]) for i in kept),
            texts=tuple(self.texts[place] for place in places),
        )

    def factors_of(self, place: int) -> list[int]:
        """Which factors the rule at this place of `texts` forbids something of."""
        boxes = [i for i, origin in enumerate(self.origin) if origin == place]
        inside = {f for i in boxes for f in self.boxes[i]}
        return sorted(inside | {f for i in boxes for f, _, _ in self.also[i]})

    def forbidden(self, codes: Int[np.ndarray, "row factor"]) -> Bool[np.ndarray, " row"]:
        """Which lines are impossible; -1 is "not set yet", which no box forbids."""
        found = np.zeros(len(codes), bool)
        for box, also in zip(self.boxes, self.also, strict=True):
            if not also:  # one code a factor says nothing about the rest of a list
                found |= _inside(box, self.values, [codes[:, f] for f in box], len(codes))
        return found

    def forbidden_rows(self, rows: Rows) -> Bool[np.ndarray, " row"]:
        """Which rows are impossible, list columns included."""
        self._check_same(rows)
        found = np.zeros(len(rows), bool)
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            columns = [factor.codes[part] for factor in rows.factors]
            for box, also in zip(self.boxes, self.also, strict=True):
                inside = _inside(box, self.values, [columns[f] for f in box], len(columns[0]))
                for factor, value, held in also:
                    inside &= (columns[factor] == value).any(axis=1) == held
                found[part] |= inside
        return found

    def possible(self, partial: Assignment) -> bool:
        """Whether some complete combination contains this part and breaks no rule.

        >>> texts = ["IF a=x THEN b=y", "IF b=y THEN c=w"]
        >>> rules = parse_rules(texts, ["a", "b", "c"], [("x", "z"), ("y", "u"), ("w", "v")])
        >>> rules.possible({0: 0, 2: 1})  # x needs y, which needs w
        False
        """
        return satisfiable(self._clauses, self._domains(partial))

    def possible_table(self, chosen: Sequence[int]) -> Bool[np.ndarray, "..."]:
        """For every cell of the chosen factors, whether it is possible.

        A list column may be chosen several times: its cells are different values held together,
        and only those in ascending order can be True, as in `count`.
        """
        table = np.ones([len(self.values[f]) for f in chosen], bool)
        for axis, (a, b) in enumerate(itertools.pairwise(chosen)):
            if a == b:
                size = len(self.values[a])
                table &= _along(np.triu(np.ones((size, size), bool), 1), (axis, axis + 1), table)
        left = []
        for clause in self._clauses:
            if any(f in self.many or f not in chosen for f, _ in clause):
                left.append(clause)
                continue
            inside = np.ones((1,) * len(chosen), bool)
            for (f, _), mask in clause.items():
                bits = np.array([mask >> code & 1 for code in range(len(self.values[f]))], bool)
                inside = inside & _along(bits, (chosen.index(f),), table)
            table &= ~inside
        return table & self._implied(left, chosen) if left else table

    def _implied(self, left: list[Clause], chosen: Sequence[int]) -> Bool[np.ndarray, "..."]:
        """Which cells these boxes, which reach beyond the chosen factors, leave possible."""
        # Values that all of them treat alike share their answers, so few cells are worked out.
        classes = [self._classes(left, factor) for factor in chosen]
        answers = np.ones([len(first) for first, _ in classes], bool)
        for cell in np.ndindex(*answers.shape):
            partial: dict[int, list[int]] = {}
            for axis, (factor, place) in enumerate(zip(chosen, cell, strict=True)):
                partial.setdefault(factor, []).append(int(classes[axis][0][place]))
            answers[cell] = satisfiable(left, self._domains(partial))
        return answers[np.ix_(*(which for _, which in classes))]

    def check(self) -> list[str]:
        """Notes on values that can never occur and rules that forbid nothing.

        Rules that leave nothing possible at all are refused, with a smallest set in conflict.
        """
        if not self.possible({}):
            raise InvalidRequest(
                "these rules contradict one another, no combination at all is possible: "
                f"{self._conflict({})}; take one of them away"
            )
        notes = [
            f"the rule {text} forbids nothing"
            for place, text in enumerate(self.texts)
            if place not in self.origin
        ]
        for factor, (name, values) in enumerate(zip(self.names, self.values, strict=True)):
            for code in np.flatnonzero(~self.possible_table([factor])):
                why = self._conflict({factor: int(code)})
                notes.append(f"{name}={values[code]} can never occur because of {why}")
        return notes

    def _conflict(self, partial: Assignment) -> str:
        """A set of rules that make this impossible, none of which can be left out."""
        needed = list(range(len(self.texts)))
        for place in range(len(self.texts)):
            fewer = [other for other in needed if other != place]
            if not self.only(fewer).possible(partial):
                needed = fewer
        return "; ".join(self.texts[place] for place in needed)

    @cached_property
    def _clauses(self) -> list[Clause]:
        """The boxes as bit masks over variables: a factor, or whether a list holds a value."""
        clauses: list[Clause] = []
        for box, also in zip(self.boxes, self.also, strict=True):
            start = {(f, value): 1 + held for f, value, held in also}
            start |= {(f, -1): _bits(codes) for f, codes in box.items() if f not in self.many}
            parts = [start]
            for f in self.many & set(box):
                # One box per value: a list holds one of them if it holds this or that.
                parts = [p | {(f, v): p.get((f, v), 3) & 2} for p in parts for v in box[f]]
            clauses += parts
        return clauses

    @cached_property
    def _variables(self) -> dict[Variable, int]:
        """Every variable that some box names, with the bits of all it can be."""
        named = {variable for clause in self._clauses for variable in clause}
        return {(f, v): 3 if v >= 0 else (1 << len(self.values[f])) - 1 for f, v in named}

    def _domains(self, partial: Assignment) -> dict[Variable, int]:
        domains = dict(self._variables)
        for factor, given in partial.items():
            codes = [given] if isinstance(given, int | np.integer) else given
            for code in codes:
                variable = (factor, int(code) if factor in self.many else -1)
                if variable in domains:
                    domains[variable] &= 2 if factor in self.many else 1 << int(code)
        return domains

    def _classes(self, left: list[Clause], factor: int) -> tuple[np.ndarray, np.ndarray]:
        """One value of each class that the boxes do not tell apart, and the class of each value."""
        size = len(self.values[factor])
        if factor in self.many:  # values that no box names are alike, all others differ
            named = {v for clause in left for f, v in clause if f == factor}
            marks = [np.arange(size) == v for v in named]
        else:
            sets = {clause[factor, -1] for clause in left if (factor, -1) in clause}
            marks = [np.array([mask >> code & 1 for code in range(size)]) for mask in sets]
        if not marks or not size:
            return np.zeros(min(size, 1), int), np.zeros(size, int)
        _, first, which = np.unique(np.stack(marks), axis=1, return_index=True, return_inverse=True)
        return first, which.reshape(-1)

    def _check_same(self, rows: Rows) -> None:
        for name, values, factor in zip(self.names, self.values, rows.factors, strict=False):
            if (name, values) != (factor.name, factor.values):
                raise InvalidRequest(
                    f"the rules are about {name!r} with {len(values)} values, and {rows.source} "
                    f"has {factor.name!r} with {factor.size}: align the tables first, then parse "
                    "the rules with the names and values of the aligned rows"
                )


def parse_rules(
    texts: Sequence[str],
    names: Sequence[str],
    values: Sequence[Sequence[str]],
    many: Sequence[int] = (),
) -> Rules:
    """The rules that these texts state about these factors; `many` are the places of lists.

    A value is found as written, then without regard to capitals, then as a number ("10" is 10.0).

    >>> parse_rules(["[a] <> [b]"], ["a", "b"], [("x", "y"), ("y", "z")]).boxes
    ({0: frozenset({1}), 1: frozenset({0})},)
    """
    boxes, also, origin = [], [], []
    for place, text in enumerate(texts):
        for found in boxes_of(parse_rule(text), text, names, values, many):
            box, literals = _public(found)
            boxes.append(box)
            also.append(literals)
            origin.append(place)
    return Rules(
        tuple(names), tuple(map(tuple, values)), tuple(boxes), tuple(t.strip() for t in texts),
        frozenset(many), tuple(also), tuple(origin),
    )  # fmt: skip


def rules_for(rows: Rows, texts: Sequence[str] = ()) -> Rules:
    """The rules that these texts state about the factors of these rows."""
    many = [place for place, factor in enumerate(rows.factors) if factor.many]
    return parse_rules(texts, rows.names, [factor.values for factor in rows.factors], many)


def read_rules_file(path: str | Path) -> list[str]:
    """The rules in a file: one a line, or ended by semicolons as in a PICT model; # is a note."""
    try:
        return split_rules(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"the rules file {str(path)!r} cannot be read ({error}): give a text file with one "
            "rule a line, such as IF colour=red THEN shape<>cube"
        ) from error


def _inside(
    box: Mapping[int, frozenset[int]],
    values: Sequence[Sequence[str]],
    columns: Sequence[np.ndarray],
    length: int,
) -> Bool[np.ndarray, " row"]:
    """Which rows lie in a box; `columns` are the codes of its factors."""
    inside = np.ones(length, bool)
    for (factor, codes), column in zip(box.items(), columns, strict=True):
        table = np.zeros(len(values[factor]) + 1, bool)  # the last entry serves -1
        table[list(codes)] = True
        within = table[column]
        inside &= within.any(axis=1) if column.ndim == 2 else within
    return inside


def _along(part: np.ndarray, axes: Sequence[int], table: np.ndarray) -> np.ndarray:
    """An array over some axes of a table, shaped to be combined with all of it."""
    return part.reshape([n if axis in axes else 1 for axis, n in enumerate(table.shape)])


def _public(found: Conjunction) -> tuple[dict[int, frozenset[int]], tuple[Literal, ...]]:
    """A box with one set of values a factor, and what does not fit into one."""
    box: dict[int, frozenset[int]] = {}
    also: list[Literal] = []
    for (factor, value), allowed in sorted(found.items(), key=lambda item: item[0]):
        if value < 0:
            box[factor] = allowed
        elif allowed == {1} and factor not in box:
            box[factor] = frozenset([value])
        else:
            also.append((factor, value, allowed == {1}))
    return box, tuple(also)


def _bits(codes: frozenset[int]) -> int:
    return sum(1 << code for code in codes)
