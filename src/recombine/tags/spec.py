"""What to tag: the factors a TOML file declares, and how each is found."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown

WAYS = ("lexicon", "regex", "callable", "endpoint")
SEVERAL = ("first", "list", "missing")
_KEYS = {
    "lexicon": {"values", "case", "whole_words", "several"},
    "regex": {"values", "pattern", "case", "several"},
    "callable": {"values", "function", "several"},
    "endpoint": {"values", "question"},
}
_LOOK = (
    'a factor looks like [factors.colour] with = "lexicon" values = { red = ["red", "crimson"] }'
)
_INIT = "recombine tag --init prints a whole spec"
TEMPLATE = """\
# The column that holds the text. Paths below start from the folder of this file.
column = "text"

# A word list: whole words, in any case.
[factors.colour]
with = "lexicon"
values = { red = ["red", "crimson"], blue = ["blue", "navy"], green = ["green"] }
several = "first"  # or "list" for all that are found, "missing" for none if several are

# Regular expressions, any of which speaks for the value.
[factors.delivery]
with = "regex"
values = { late = ['late', 'delay\\w*'], fast = ['quick\\w*', 'on time'] }

# One regular expression whose group is the value.
[factors.size]
with = "regex"
pattern = 'size (\\w+)'

# A function of yours, called with the whole row as a dict; it returns {"tone": "good"}.
# [factors.tone]
# with = "callable"
# function = "my_tags.py:tone"
# values = ["good", "bad"]  # anything else it says is refused

# A question to a model (--endpoint URL --model NAME).
# [factors.politeness]
# with = "endpoint"
# question = "How does the writer treat the reader?"
# values = ["polite", "rude"]
"""


@dataclass(frozen=True)
class FactorSpec:
    """One factor: its name, the way it is found, its values and what speaks for each.

    `patterns` are word lists (lexicon) or regular expressions (regex) per value; a regex may have
    one `pattern` instead, whose group is the value. `several` says what to do where more than one
    value is found: the one that comes first in the text, all of them as a list, or none.
    """

    name: str
    way: str
    values: tuple[str, ...] = ()
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pattern: str | None = None
    case: bool = False
    whole_words: bool = True
    several: str = "first"
    function: str | None = None
    question: str = ""


@dataclass(frozen=True)
class TagSpec:
    """All factors of a file, and the folder that paths in it start from."""

    factors: tuple[FactorSpec, ...]
    column: str | None = None
    folder: Path = Path()

    def by_way(self, way: str) -> tuple[FactorSpec, ...]:
        """The factors found in one way."""
        return tuple(factor for factor in self.factors if factor.way == way)


def read_spec(path: str | Path) -> TagSpec:
    """Reads a TOML file that declares factors."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is not TOML: {error}") from error
    return parse_spec(document, path.parent, str(path))


def parse_spec(document: Mapping[str, Any], folder: Path, where: str = "the spec") -> TagSpec:
    """The factors of a parsed TOML file, once each of them is known to be well formed.

    >>> document = {"factors": {"colour": {"with": "lexicon", "values": {"red": ["crimson"]}}}}
    >>> parse_spec(document, Path()).factors[0].values
    ('red',)
    """
    if wrong := sorted(set(document) - {"column", "factors"}):
        raise _misplaced(wrong[0], document[wrong[0]], where)
    factors = document.get("factors")
    if not isinstance(factors, dict) or not factors:
        raise InvalidRequest(f"{where}: no factors; {_LOOK} ({_INIT})")
    column = document.get("column")
    if column is not None and not isinstance(column, str):
        raise InvalidRequest(f"{where}: column is {column!r}, expected the name of a column")
    made = tuple(_factor(name, one, where) for name, one in factors.items())
    return TagSpec(made, column, folder)


def _misplaced(key: str, held: Any, where: str) -> InvalidRequest:
    """The error for a key that no spec has: mostly a factor that lacks `factors.`"""
    if isinstance(held, dict):
        return InvalidRequest(
            f"{where} has a table [{key}]: a factor is a table [factors.{key}]; {_LOOK} ({_INIT})"
        )
    return InvalidRequest(
        f'unknown key of {where} {key!r}: beside column = "text" there are only tables of '
        f"factors; {_LOOK} ({_INIT})"
    )


def _factor(name: str, one: Any, where: str) -> FactorSpec:
    about = f"{where}, factor {name!r}"
    if not isinstance(one, dict) or "with" not in one:
        ways = ", ".join(f'"{way}"' for way in WAYS)
        raise InvalidRequest(f"{about}: say with = one of {ways}; {_LOOK} ({_INIT})")
    way = one["with"]
    if way not in WAYS:
        raise unknown(f"way to tag ({about})", str(way), WAYS)
    if wrong := sorted(set(one) - _KEYS[way] - {"with"}):
        raise unknown(f"key of {about}", wrong[0], _KEYS[way] | {"with"})
    several = one.get("several", "first")
    if several not in SEVERAL:
        raise unknown(f"several of {about}", str(several), SEVERAL)
    for key in ("case", "whole_words"):
        if not isinstance(one.get(key, True), bool):
            raise InvalidRequest(f"{about}: {key} is {one[key]!r}, expected true or false")
    given = one.get("values", {} if way in ("lexicon", "regex") else [])
    patterns = _patterns(given, way, about)
    pattern = one.get("pattern")
    if pattern is not None:
        _compiles(pattern, about, groups=True)
    if way in ("lexicon", "regex") and not patterns and pattern is None:
        raise InvalidRequest(
            f'{about}: values say what speaks for each, such as {{ red = ["red"] }}'
        )
    if way == "endpoint" and len(patterns) < 2:
        raise InvalidRequest(f'{about}: name at least two allowed values = ["yes", "no"]')
    function = one.get("function")
    if way == "callable" and not (isinstance(function, str) and ":" in function):
        raise InvalidRequest(f'{about}: function = "my_tags.py:name", got {function!r}')
    return FactorSpec(
        name=name,
        way=way,
        values=tuple(patterns),
        patterns=patterns,
        pattern=pattern,
        case=one.get("case", False),
        whole_words=one.get("whole_words", True),
        several=several,
        function=function,
        question=str(one.get("question", "")),
    )


def _patterns(given: Any, way: str, about: str) -> dict[str, tuple[str, ...]]:
    if way in ("lexicon", "regex"):
        if not isinstance(given, dict):
            raise InvalidRequest(f"{about}: values is {given!r}, expected a table of lists")
        lists = {v: [said] if isinstance(said, str) else said for v, said in given.items()}
    else:
        if not isinstance(given, list):
            raise InvalidRequest(f"{about}: values is {given!r}, expected a list of allowed values")
        lists = {str(value): [] for value in given}
    for value, said in lists.items():
        if not isinstance(said, list) or not all(isinstance(s, str) and s.strip() for s in said):
            raise InvalidRequest(f"{about}: {value!r} is {said!r}, expected a list of words")
        if way == "regex":
            for each in said:
                _compiles(each, about)
    return {value: tuple(said) for value, said in lists.items()}


def _compiles(pattern: Any, about: str, groups: bool = False) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidRequest(f"{about}: {pattern!r} is no regular expression: {error}") from error
    if groups and compiled.groups != 1:
        raise InvalidRequest(
            f"{about}: pattern {pattern!r} has {compiled.groups} groups, expected one: the value"
        )
