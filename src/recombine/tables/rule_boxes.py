"""What a rule forbids, as boxes: the meaning of the tree that `rule_syntax` reads."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import operator
import re
from collections.abc import Callable, Sequence

from recombine.errors import InvalidRequest, unknown
from recombine.tables.rule_syntax import And, If, Node, Not, Or, Term

Variable = tuple[int, int]
"""(factor, -1) is the value of a factor; (factor, value) whether a list holds the value (0, 1)."""

Conjunction = dict[Variable, frozenset[int]]
"""What each variable may be; all of it at once."""

MOST_BOXES = 20_000

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def boxes_of(
    rule: Node | If,
    text: str,
    names: Sequence[str],
    values: Sequence[Sequence[str]],
    many: Sequence[int] = (),
) -> list[Conjunction]:
    """The boxes of what a rule forbids; `text` is how the user wrote it."""
    if isinstance(rule, If):
        parts: list[Node] = [Or((Not(rule.condition), rule.then))]
        if rule.otherwise is not None:
            parts.append(Or((rule.condition, rule.otherwise)))
        rule = And(tuple(parts))
    return _Meaning(text, names, values, many).of(rule, False)


class _Meaning:
    """A tree as a union of boxes, over the factors of one table."""

    def __init__(
        self,
        text: str,
        names: Sequence[str],
        values: Sequence[Sequence[str]],
        many: Sequence[int],
    ):
        self.text, self.names, self.values, self.many = text.strip(), list(names), values, many

    def of(self, node: Node, holds: bool) -> list[Conjunction]:
        """Where a part holds, or where it does not."""
        if isinstance(node, Not):
            return self.of(node.part, not holds)
        if isinstance(node, Term):
            return self.term(node, holds)
        parts = [self.of(part, holds) for part in node.parts]
        if isinstance(node, Or) == holds:
            return self.merged([box for part in parts for box in part])
        boxes: list[Conjunction] = [{}]
        for part in parts:
            met = (self.both(a, b) for a, b in itertools.product(boxes, part))
            boxes = self.merged([box for box in met if box is not None])
        return boxes

    def both(self, a: Conjunction, b: Conjunction) -> Conjunction | None:
        met = dict(a)
        for variable, allowed in b.items():
            met[variable] = met[variable] & allowed if variable in met else allowed
            if not met[variable]:
                return None
        return met

    def merged(self, boxes: list[Conjunction]) -> list[Conjunction]:
        """The same union in fewer boxes: those that differ in one factor only become one."""
        if len(boxes) > MOST_BOXES:
            raise InvalidRequest(
                f"the rule {self.text!r} makes more than {MOST_BOXES} cases: split it into several"
            )
        for variable in sorted({v for box in boxes for v in box}):
            together: dict[frozenset, frozenset[int]] = {}
            rest: list[Conjunction] = []
            for box in boxes:
                if variable not in box:
                    rest.append(box)
                    continue
                others = frozenset(item for item in box.items() if item[0] != variable)
                together[others] = together.get(others, frozenset()) | box[variable]
            boxes = rest + [dict(others) | {variable: v} for others, v in together.items()]
            boxes = [self.trimmed(box, variable) for box in boxes]
        return boxes

    def trimmed(self, box: Conjunction, variable: Variable) -> Conjunction:
        """A box without a condition that everything meets."""
        size = 2 if variable[1] >= 0 else len(self.values[variable[0]])
        if len(box.get(variable, ())) < size:
            return box
        return {v: allowed for v, allowed in box.items() if v != variable}

    def term(self, term: Term, holds: bool) -> list[Conjunction]:
        factor = self.place(term.factor)
        other = self.other(term, factor)
        if other is not None:
            return self.between(factor, other, term.relation, holds)
        if term.relation == "<>":
            term, holds = Term(term.factor, "=", term.right, term.kind), not holds
        codes = self.codes(term, factor)
        if factor not in self.many:
            allowed = codes if holds else frozenset(range(len(self.values[factor]))) - codes
            return [self.trimmed({(factor, -1): allowed}, (factor, -1))] if allowed else []
        if holds:
            return [{(factor, code): frozenset([1])} for code in sorted(codes)]
        return [{(factor, code): frozenset([0]) for code in sorted(codes)}]

    def place(self, name: str) -> int:
        if name not in self.names:
            alike = [n for n in self.names if n.casefold() == name.casefold()]
            if len(alike) != 1:
                raise unknown(f"factor in the rule {self.text!r}:", name, self.names)
            name = alike[0]
        return self.names.index(name)

    def other(self, term: Term, factor: int) -> int | None:
        """The place of the factor on the right side, if there is one."""
        (word,) = term.right if len(term.right) == 1 else ("",)
        if term.kind == "value" or (term.kind == "bare" and word in self.values[factor]):
            return None
        if term.kind == "bare" and word not in self.names:
            return None
        other = self.place(word)
        if listed := [self.names[f] for f in (factor, other) if f in self.many]:
            raise InvalidRequest(
                f"the rule {self.text!r} compares {listed[0]!r}, which holds lists, with another "
                f'factor: compare it with a value, as in [{listed[0]}] = "..." (holds it)'
            )
        return other

    def codes(self, term: Term, factor: int) -> frozenset[int]:
        """Which values of a factor a term holds for."""
        values = self.values[factor]
        if term.relation in ("=", "IN"):
            return frozenset(self.code(word, factor) for word in term.right)
        if term.relation == "LIKE":
            # PICT's patterns: * and ? only, so brackets mean themselves.
            glob = re.sub(r"\[", "[[]", term.right[0]).casefold()
            return frozenset(
                code for code, v in enumerate(values) if fnmatch.fnmatchcase(v.casefold(), glob)
            )
        numbers, limit = self.numbers(factor), _number(term.right[0])
        if limit is None:
            raise InvalidRequest(
                f"the rule {self.text!r} compares {self.names[factor]!r} by {term.relation} with "
                f"{term.right[0]!r}, which is not a number: use = <> IN or LIKE for words"
            )
        compare = _COMPARE[term.relation]
        return frozenset(code for code, number in numbers.items() if compare(number, limit))

    def code(self, word: str, factor: int) -> int:
        values = list(self.values[factor])
        if word in values:
            return values.index(word)
        alike = [v for v in values if v.casefold() == word.casefold()]
        number = _number(word)
        if not alike and number is not None:
            alike = [v for v in values if _number(v) == number]
        if len(alike) != 1:
            some = difflib.get_close_matches(word, values, n=30, cutoff=0.0)
            raise unknown(f"value of {self.names[factor]!r} in the rule {self.text!r}:", word, some)
        return values.index(alike[0])

    def numbers(self, factor: int) -> dict[int, float]:
        found = {code: _number(value) for code, value in enumerate(self.values[factor])}
        numbers = {code: number for code, number in found.items() if number is not None}
        if not numbers:
            some = [repr(value) for value in self.values[factor][:5]]
            raise InvalidRequest(
                f"the rule {self.text!r} asks which values of {self.names[factor]!r} are greater "
                f"or less, but none of them is a number (they are {', '.join(some)}): use = <> IN "
                "or LIKE"
            )
        return numbers

    def between(self, factor: int, other: int, relation: str, holds: bool) -> list[Conjunction]:
        """Where two factors stand in a relation: one box for values with the same partners."""
        if factor == other:
            raise InvalidRequest(
                f"the rule {self.text!r} compares {self.names[factor]!r} with itself: "
                "name two factors"
            )
        everything = frozenset(range(len(self.values[other])))
        partners: dict[frozenset[int], set[int]] = {}
        if relation in ("=", "<>"):
            holds = holds == (relation == "=")
            keys = [_key(v) for v in self.values[other]]
            places: dict[str | float, set[int]] = {}
            for code, key in enumerate(keys):
                places.setdefault(key, set()).add(code)
            found = [frozenset(places.get(_key(v), ())) for v in self.values[factor]]
        else:
            left, right = self.numbers(factor), self.numbers(other)
            compare = _COMPARE[relation]
            found = [
                frozenset(b for b, y in right.items() if a in left and compare(left[a], y))
                for a in range(len(self.values[factor]))
            ]
        for code, codes in enumerate(found):
            partners.setdefault(codes if holds else everything - codes, set()).add(code)
        return self.merged(
            [
                {(factor, -1): frozenset(codes), (other, -1): allowed}
                for allowed, codes in partners.items()
                if allowed
            ]
        )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None


def _key(text: str) -> str | float:
    number = _number(text)
    return text if number is None else number
