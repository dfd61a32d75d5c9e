"""The language of rules: which combinations are possible, written as in PICT models.

    IF [colour] = "red" AND [shape] IN {"cube", "ball"} THEN [size] <> "large"
    IF colour=red THEN shape<>cube
    NOT ([left] = [right]) OR [size] >= 10

This module turns text into a tree and back; `rules` gives the tree its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

from recombine.errors import InvalidRequest

RELATIONS = ("=", "<>", "<", "<=", ">", ">=")
KEYWORDS = ("IF", "THEN", "ELSE", "AND", "OR", "NOT", "IN", "LIKE")
DEEPEST = 50  # parentheses within parentheses: more is a slip, and would end in a traceback

_SAME = {"==": "=", "!=": "<>"}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<quoted>"(?:[^"\\]|\\.)*")
    | (?P<bracketed>\[(?:[^\]\\]|\\.)*\])
    | (?P<relation><>|<=|>=|!=|==|[=<>])
    | (?P<mark>[(){},;])
    | (?P<bare>(?:(?!!=)[^\s"\[\](){},;<>=])+)
    )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Term:
    """A factor compared with a value (or several), or with another factor.

    `kind` says what stands on the right: a quoted "value", a bracketed "factor", or a "bare" word,
    which is a value if the factor has one of that name, and otherwise a factor.
    """

    factor: str
    relation: str
    right: tuple[str, ...]
    kind: Literal["value", "factor", "bare"] = "value"


@dataclass(frozen=True)
class Not:
    part: Node


@dataclass(frozen=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class If:
    """A conditional rule; only ever the outermost part of one."""

    condition: Node
    then: Node
    otherwise: Node | None = None


Node = Term | Not | And | Or


def parse_rule(text: str) -> Node | If:
    """The tree of one rule.

    >>> parse_rule("IF a=x THEN b<>y").then
    Term(factor='b', relation='<>', right=('y',), kind='bare')
    """
    return _Parser(text).rule()


def written(rule: Node | If) -> str:
    """The text of a tree, which parses to the same tree.

    >>> written(parse_rule('if a=x then (not [b] in {"y","z"})'))
    'IF [a] = x THEN NOT [b] IN {"y", "z"}'
    """
    if isinstance(rule, If):
        end = "" if rule.otherwise is None else f" ELSE {written(rule.otherwise)}"
        return f"IF {written(rule.condition)} THEN {written(rule.then)}{end}"
    if isinstance(rule, Not):
        return f"NOT {_inner(rule.part)}"
    if isinstance(rule, And | Or):
        word = " AND " if isinstance(rule, And) else " OR "
        return word.join(_inner(part) for part in rule.parts)
    name = f"[{_escaped(rule.factor, ']')}]"
    quoted = [f'"{_escaped(text, chr(34))}"' for text in rule.right]
    if rule.relation == "IN":
        return f"{name} IN {{{', '.join(quoted)}}}"
    if rule.kind == "factor":
        return f"{name} {rule.relation} [{_escaped(rule.right[0], ']')}]"
    return f"{name} {rule.relation} {rule.right[0] if rule.kind == 'bare' else quoted[0]}"


def forbidding(text: str) -> str:
    """The rule that makes impossible what a text says, as the option `--forbid` is read.

    IF ... THEN ... is a rule as it stands. A line without IF states in a PICT model what must hold,
    but after "forbid" it names what must not. Where it says "not" itself, either may be meant, and
    it is refused.

    >>> forbidding("colour=red AND shape=cube")
    'NOT ([colour] = red AND [shape] = cube)'
    """
    tree = parse_rule(text)
    if isinstance(tree, If):
        return text
    if _denies(tree):
        raise InvalidRequest(
            f"--forbid {text.strip()!r} may mean two things: name what is impossible without <> "
            "and NOT (such as shape=cube), write IF ... THEN ..., or put the line into a --rules "
            "file, where it says what must hold"
        )
    return written(Not(tree))


def _denies(tree: Node) -> bool:
    if isinstance(tree, And | Or):
        return any(_denies(part) for part in tree.parts)
    return isinstance(tree, Not) or tree.relation == "<>"


def split_rules(text: str) -> list[str]:
    """The rules of a file: ended by semicolons, or one a line; lines that begin with # are notes.

    >>> split_rules("# sizes\\nIF a=x THEN b<>y\\n\\nc <> d")
    ['IF a=x THEN b<>y', 'c <> d']
    """
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    # Semicolons inside names and values do not end a rule.
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[^;])+|;', kept, re.DOTALL)
    rules = [part for part in parts if part != ";"] if ";" in parts else kept.splitlines()
    return [" ".join(rule.split("\n")).strip() for rule in rules if rule.strip()]


class _Parser:
    """A rule read from left to right, one token ahead."""

    def __init__(self, text: str):
        self.text, self.place, self.tokens = text, 0, []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                character = text[at:].lstrip()[0]
                kind = {'"': "a quote", "[": "a bracket"}.get(character, f"{character!r}")
                self.refuse(f"{kind} at character {at + 1} is never closed or has no place there")
            self.tokens.append((str(found.lastgroup), found.group(found.lastgroup or 0)))
            at = found.end()

    def refuse(self, why: str) -> NoReturn:
        raise InvalidRequest(
            f"the rule {self.text.strip()!r} cannot be read: {why}; write for example "
            'IF [colour] = "red" THEN [shape] <> "cube", or [a] IN {"x", "y"}'
        )

    def rule(self) -> Node | If:
        if self.takes("IF"):
            condition = self.either(0)
            if not self.takes("THEN"):
                self.refuse(f"THEN is expected where {self.here()} stands")
            then = self.either(0)
            tree: Node | If = If(condition, then, self.either(0) if self.takes("ELSE") else None)
        else:
            tree = self.either(0)
        self.takes(";")
        if self.place < len(self.tokens):
            self.refuse(f"{self.here()} comes after its end (one rule a line, or a semicolon)")
        return tree

    def either(self, depth: int) -> Node:
        return self.chain(depth, "OR", self.both, Or)

    def both(self, depth: int) -> Node:
        return self.chain(depth, "AND", self.one, And)

    def chain(
        self, depth: int, word: str, part: Callable[[int], Node], made: type[And] | type[Or]
    ) -> Node:
        parts = [part(depth)]
        while self.takes(word):
            parts.append(part(depth))
        return made(tuple(parts)) if len(parts) > 1 else parts[0]

    def one(self, depth: int) -> Node:
        if depth > DEEPEST:
            self.refuse(f"it has parts within parts more than {DEEPEST} deep")
        if self.takes("NOT"):
            return Not(self.one(depth + 1))
        if self.takes("("):
            inner = self.either(depth + 1)
            if not self.takes(")"):
                self.refuse(f"a closing parenthesis is expected where {self.here()} stands")
            return inner
        return self.term()

    def term(self) -> Node:
        kind, factor = self.next("the name of a factor")
        if kind not in ("bare", "bracketed"):
            self.refuse(f"the name of a factor is expected where {factor!r} stands")
        turned = self.takes("NOT")
        if self.takes("IN"):
            term = Term(factor, "IN", self.listed())
        elif self.takes("LIKE"):
            term = Term(factor, "LIKE", (self.value()[1],))
        else:
            relation = self.next("a relation")[1] if not turned else ""
            relation = _SAME.get(relation, relation)
            if relation not in RELATIONS:
                self.refuse(f"after {factor!r} comes one of {' '.join(RELATIONS)} IN LIKE")
            kind, right = self.value(factors=True)
            side = {"quoted": "value", "bracketed": "factor"}.get(kind, "bare")
            term = Term(factor, relation, (right,), side)  # pyright: ignore[reportArgumentType]
        return Not(term) if turned else term

    def listed(self) -> tuple[str, ...]:
        if not self.takes("{"):
            self.refuse(f"IN is followed by values in braces, not by {self.here()}")
        values = [self.value()[1]]
        while self.takes(","):
            values.append(self.value()[1])
        if not self.takes("}"):
            self.refuse(f"a comma or a closing brace is expected where {self.here()} stands")
        return tuple(values)

    def value(self, factors: bool = False) -> tuple[str, str]:
        kind, text = self.next("a value")
        if kind not in ("quoted", "bare", *(["bracketed"] if factors else [])):
            self.refuse(f"a value is expected where {text!r} stands")
        return kind, text

    def next(self, expected: str) -> tuple[str, str]:
        if self.place == len(self.tokens):
            self.refuse(f"it ends where {expected} is expected")
        kind, text = self.tokens[self.place]
        if kind == "bare" and text.upper() in KEYWORDS:
            self.refuse(f"{expected} is expected where {text} stands (quote it if it is a value)")
        self.place += 1
        if kind in ("quoted", "bracketed"):
            text = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
        return kind, text

    def takes(self, word: str) -> bool:
        """Whether this word or mark comes next; if so it is passed."""
        if self.place < len(self.tokens):
            kind, text = self.tokens[self.place]
            if kind in ("bare", "mark") and text.upper() == word:
                self.place += 1
                return True
        return False

    def here(self) -> str:
        return repr(self.tokens[self.place][1]) if self.place < len(self.tokens) else "the end"


def _inner(part: Node) -> str:
    return f"({written(part)})" if isinstance(part, And | Or) else written(part)


def _escaped(text: str, closing: str) -> str:
    return text.replace("\\", "\\\\").replace(closing, f"\\{closing}")
