"""Word lists and patterns: what they find in a text, and which may take for ever to look.

Python's search cannot be interrupted. A pattern that repeats one kind of character at most is quick
on any text and runs here; every other one runs in another process, with a time for each text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest
from recombine.tags.callables import call_rows
from recombine.tags.spec import FactorSpec

Tag = str | tuple[str, ...] | None  # a list column has tuples; None is "(missing)"
OPTIONS = 4  # parts of a pattern that may be there or not: each doubles what is tried
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_ONE = ("LITERAL", "NOT_LITERAL", "IN", "ANY")
_FAST = (*_ONE, "AT")


def is_quick(factor: FactorSpec) -> bool:
    """Whether a factor's patterns cannot take long on any text.

    >>> quick = FactorSpec("a", "regex", ("x",), patterns={"x": (r"colou?r \\w+",)})
    >>> slow = FactorSpec("a", "regex", ("x",), patterns={"x": ("(a+)+$",)})
    >>> is_quick(quick), is_quick(slow)
    (True, False)
    """
    if factor.way == "lexicon":
        return True
    patterns = [p for several in factor.patterns.values() for p in several]
    return all(map(_quick, [*patterns, *([factor.pattern] if factor.pattern else [])]))


def _quick(pattern: str) -> bool:
    try:
        from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError:  # Python's own, and may go: then all patterns run in the other process
        return False
    repeats = options = 0
    waiting: list[Any] = [list(_parser.parse(pattern))]
    while waiting:
        for named, given in waiting.pop():
            kind = str(named)
            if kind in _REPEATS:
                _, most, inner = given
                alone = len(inner) == 1 and str(inner[0][0]) in _ONE
                options += most == 1
                repeats += most != 1
                if (most != 1 and not alone) or repeats > 1 or options > OPTIONS:
                    return False
                waiting.append(list(inner))
            elif kind == "SUBPATTERN":
                waiting.append(list(given[-1]))
            elif kind == "BRANCH":
                waiting += [list(one) for one in given[1]]
            elif kind not in _FAST:  # looking around or back, and what later versions bring
                return False
    return True


def found_in(factor: FactorSpec, texts: Iterator[str], timeout: float) -> Iterator[tuple[Tag, str]]:
    """What a factor's patterns find in each text, or why that was not found out in time."""
    given = json.dumps(asdict(factor))
    rows = ({"factor": given, "text": text} for text in texts)
    place = f"{__name__}:find_row"
    try:
        for called in call_rows(place, rows, folder=Path(), timeout=timeout):
            tag = called.result
            yield (tuple(tag) if isinstance(tag, list) else tag), called.trouble
    except InvalidRequest as error:
        said = str(error).replace(place, f"a pattern of {factor.name}")
        raise InvalidRequest(f"{said} (repeats within repeats, as in (a+)+, are slow)") from None


def find_row(row: dict[str, Any]) -> Tag:
    """Runs in the child: what the patterns find in one text."""
    return _finder(row["factor"])(row["text"])


@lru_cache
def _finder(given: str) -> Callable[[str], Tag]:
    return finder_of(FactorSpec(**json.loads(given)))


def finder_of(factor: FactorSpec) -> Callable[[str], Tag]:
    """The function that finds a factor's value in a text by its word lists or patterns."""
    flags = 0 if factor.case else re.IGNORECASE
    if factor.pattern is not None:
        compiled = re.compile(factor.pattern, flags)

        def captured(text: str) -> Tag:
            found = dict.fromkeys(
                match[1] if factor.case else match[1].lower()
                for match in compiled.finditer(text)
                if match[1]
            )
            return _settled([(i, v) for i, v in enumerate(found)], factor.several)

        return captured
    per_value = []
    for value, said in factor.patterns.items():
        whole = "|".join(f"(?:{_words(s, factor) if factor.way == 'lexicon' else s})" for s in said)
        per_value.append((value, re.compile(whole or re.escape(value), flags)))

    def find(text: str) -> Tag:
        matches = [(m.start(), value) for value, each in per_value if (m := each.search(text))]
        return _settled(matches, factor.several)

    return find


def _words(phrase: str, factor: FactorSpec) -> str:
    escaped = r"\s+".join(re.escape(word) for word in phrase.split())
    return rf"(?<!\w){escaped}(?!\w)" if factor.whole_words else escaped


def _settled(matches: list[tuple[int, str]], several: str) -> Tag:
    """One tag of what was found, by the factor's rule for several."""
    if several == "list":
        return tuple(sorted(value for _, value in matches)) if matches else None
    if not matches or (several == "missing" and len(matches) > 1):
        return None
    return min(matches, key=lambda match: match[0])[1]
