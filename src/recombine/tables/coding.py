"""How the values of a file become the values of a factor: numbers, bins, rare, missing.

Everything here works on the different values of a column and how many rows hold each, never on
the rows; `FactorReader` in `columns.py` streams the rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from recombine.errors import InvalidRequest
from recombine.tables.bins import bin_names, bin_rule, edges_of_counts
from recombine.tables.pieces import number_of, numbers_of, plain_number
from recombine.tables.rows import MISSING, OTHER, Factor

MISSING_WORDS = frozenset(
    ["", "NA", "N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "NaT", MISSING]
)
# Among numbers these say that there is none; among words they may be a word like any other.
NO_NUMBER = frozenset(
    ["n/a", "na", "n.a.", "#n/a", "nan", "null", "none", "nil", "missing", "-", "--", "?", "."]
)
NEARLY = 0.9  # of the rows of a column of text hold a number: a slip, and worth saying
HELD = 2_000_000  # different values of a column that are held while rare ones are being found
_LONG, _KEPT = 200, 180


@dataclass(frozen=True)
class Coding:
    """How columns become factors; the defaults suit most tables.

    A column of numbers with more than 12 different ones (and more than twice `bins`) is cut into
    `bins` bins of equal counts. Values in fewer than `rare` rows are grouped as "(other)". An
    empty cell, NA, N/A, <NA>, NaN, nan, null, NULL, None and NaT are the value "(missing)"; where
    all else is a number, so are n/a, -, ? and the like (`NO_NUMBER`).

    `lists` names columns of text that hold lists, each with what separates the items; a cell with
    nothing in it is an empty list. Columns named in `text` are taken as written: no bins, and only
    an empty cell is missing (NA may be Namibia). Those named in `numeric` must hold numbers and
    are binned from `bins` + 1 different ones on. Codes beyond `memory` bytes go to a temporary
    file.

    >>> Coding(bins=3, lists={"tags": ";"}).most_values
    10000
    """

    bins: int = 5
    rare: int = 0
    most_values: int = 10_000
    lists: Mapping[str, str] = field(default_factory=dict)
    memory: int = 2 * 2**30
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("bins", 2), ("rare", 0), ("most_values", 2), ("memory", 0)):
            if getattr(self, name) < least:
                raise InvalidRequest(f"{name} is {getattr(self, name)}, expected {least} or more")
        if both := sorted(set(self.numeric) & set(self.text)):
            raise InvalidRequest(f"column {both[0]!r} is named in numeric and in text: choose one")
        if empty := [name for name, mark in self.lists.items() if not mark]:
            raise InvalidRequest(
                f"column {empty[0]!r}: the separator of a list is empty; give one, such as ';'"
            )

    @property
    def few(self) -> int:
        """So many different numbers stay values; more are binned."""
        return max(12, 2 * self.bins)


@dataclass(frozen=True, eq=False)
class Coded(Factor):
    """A factor that was read, with what it takes to read another table alike.

    `slip` says why it is text where nearly every row holds a number, and is empty elsewhere.
    """

    edges: tuple[float, ...] | None = None
    grouped: frozenset[str] = frozenset()
    slip: str = ""


@dataclass(frozen=True, eq=False)
class Settled:
    """What becomes of a column's different values: value `i` of the file is `table[i]` here."""

    values: tuple[str, ...]
    table: Int[np.ndarray, "raw"]
    rule: str
    edges: tuple[float, ...] | None = None
    grouped: frozenset[str] = frozenset()


def settle(
    name: str,
    raw: Sequence[str],
    counts: Int[np.ndarray, "raw"],
    coding: Coding,
    *,
    like: Factor | None = None,
    lists: bool = False,
) -> Settled:
    """Decides the values of a factor, of what the file holds and in how many rows.

    Numbers come in ascending order and words in alphabetical order (9 before 10), then "(other)"
    and "(missing)"; with `like`, first its values in its order.

    >>> settle("x", ["b", "a", "NA"], np.array([2, 2, 1]), Coding()).values
    ('a', 'b', '(missing)')
    """
    missing = [is_missing(text, name, coding) for text in raw]
    numberless: list[str] = []
    if name not in coding.text and _numeric(raw, missing, like):
        numberless = [t for t, gone in zip(raw, missing, strict=True) if not gone and no_number(t)]
        missing = [gone or text in numberless for text, gone in zip(raw, missing, strict=True)]
    texts = [text for text, gone in zip(raw, missing, strict=True) if not gone]
    held = counts[~np.array(missing, bool)]
    if like is not None:
        final, order, rule, edges, grouped = _as_before(texts, like)
    else:
        final, order, rule, edges, grouped = _afresh(name, texts, held, coding, lists)
        if numberless:
            rule += f"; {', '.join(map(repr, numberless))} read as missing"
    if any(missing):
        order = dict.fromkeys([*order, MISSING])
    if not order:
        raise InvalidRequest(f"column {name!r} holds empty lists only: leave it out")
    if len(order) > coding.most_values + 2:
        raise too_many(name, len(order), coding)
    place = {value: code for code, value in enumerate(order)}
    rest = iter(final)
    table = np.array([place[MISSING if gone else next(rest)] for gone in missing], np.int64)
    return Settled(tuple(order), table, rule, edges, grouped)


def _numeric(raw: Sequence[str], missing: Sequence[bool], like: Factor | None) -> bool:
    """Whether a column holds numbers, or words that say there is none; `like` has decided it."""
    if like is None:
        texts = [text for text, gone in zip(raw, missing, strict=True) if not gone]
    elif isinstance(like, Coded) and like.edges is not None:
        return True
    else:
        texts = [value for value in like.values if value not in (MISSING, OTHER)]
    there = [text for text in texts if not no_number(text)]
    return bool(there) and numbers_of(there) is not None


Decision = tuple[list[str], dict[str, None], str, tuple[float, ...] | None, frozenset[str]]


def _afresh(
    name: str, texts: list[str], counts: np.ndarray, coding: Coding, lists: bool
) -> Decision:
    numbers = None if name in coding.text or not texts else numbers_of(texts)
    if numbers is None and name in coding.numeric and texts:
        raise not_numbers(name, next(t for t in texts if number_of(t) is None))
    notes = []
    if numbers is not None:
        final = [plain_number(text) for text in texts]
        most = coding.bins if name in coding.numeric else coding.few
        if not lists and len(set(final)) > most:
            different, inverse = np.unique(numbers, return_inverse=True)
            rows = np.bincount(inverse, counts).astype(np.int64)
            edges = edges_of_counts(different, rows, coding.bins)
            names = bin_names(edges)
            bins = [names[place] for place in np.searchsorted(edges, numbers)]
            return bins, dict.fromkeys(names), bin_rule(edges), edges, frozenset()
        if len(set(final)) < len(texts):
            notes.append("numbers, equal ones joined (1 and 1.0)")
        ordered = sorted(zip(numbers, final, strict=True))
        order = dict.fromkeys(text for _, text in ordered)
    else:
        truth = texts and name not in coding.text and {t.lower() for t in texts} <= _TRUTHS
        final = [text.lower() for text in texts] if truth else list(texts)
        order = dict.fromkeys(sorted(final, key=_as_people_sort))
        if not truth and name not in coding.text and any(number_of(t) is not None for t in texts):
            notes.append("numbers and words mixed, kept as text")
    final, order, grouped = _without_rare(final, order, counts, coding.rare)
    if grouped:
        values = "value" if len(grouped) == 1 else "values"
        notes.append(f"{len(grouped)} {values} in fewer than {coding.rare} rows grouped as {OTHER}")
    if len(order) == 1:
        notes.append("one value only")
    if not order:
        notes.append("every cell is missing")
    if lists:
        notes.insert(0, "lists")
    return final, order, "; ".join(notes) or "as written", None, grouped


def _without_rare(
    final: list[str], order: dict[str, None], counts: np.ndarray, rare: int
) -> tuple[list[str], dict[str, None], frozenset[str]]:
    total = dict.fromkeys(order, 0)
    for text, count in zip(final, counts.tolist(), strict=True):
        total[text] += count
    grouped = frozenset(text for text, count in total.items() if count < rare) - {OTHER}
    final = [OTHER if text in grouped else text for text in final]
    kept = [text for text in order if text not in grouped and text != OTHER]
    return final, dict.fromkeys(kept + ([OTHER] if OTHER in final else [])), grouped


def _as_before(texts: list[str], like: Factor) -> Decision:
    edges = like.edges if isinstance(like, Coded) else None
    grouped = like.grouped if isinstance(like, Coded) else frozenset()
    known = frozenset(like.values) - {MISSING}

    def named(text: str) -> str:
        number = number_of(text)
        if edges is not None and number is not None:
            return bin_names(edges)[np.searchsorted(edges, number)]
        spellings = (text, plain_number(text), text.lower() if text.lower() in _TRUTHS else text)
        for spelling in spellings:
            if spelling in known:
                return spelling
        return OTHER if grouped.intersection(spellings) else spellings[1]

    final = [named(text) for text in texts]
    order = dict.fromkeys([*like.values, *sorted(set(final) - known, key=_as_people_sort)])
    return final, order, like.rule, edges, grouped


_TRUTHS = frozenset(["true", "false"])
_DIGITS = re.compile(r"(\d+)")


def _as_people_sort(text: str) -> list[tuple[int, int, str]]:
    """A key that puts "room 9" before "room 10"."""
    parts = enumerate(_DIGITS.split(text))
    return [(1, int(part), part) if i % 2 else (0, 0, part) for i, part in parts]


def is_missing(text: str, name: str, coding: Coding) -> bool:
    """Whether a text says that there is no value."""
    if name in coding.text:
        return text in ("", MISSING)
    return text.strip() in MISSING_WORDS


def no_number(text: str) -> bool:
    """Whether a text among numbers says that there is none."""
    return text.strip().lower() in NO_NUMBER


def slip_of(
    raw: Sequence[str], counts: Int[np.ndarray, "raw"], name: str, coding: Coding
) -> list[int]:
    """The values that make text of a column in which nearly every row holds a number."""
    if name in coding.text:
        return []
    there = [i for i, text in enumerate(raw) if not is_missing(text, name, coding)]
    words = [i for i in there if number_of(raw[i]) is None and not no_number(raw[i])]
    rows = int(counts[there].sum())
    return words if 0 < counts[words].sum() <= (1 - NEARLY) * rows else []


def shortened(text: str) -> str:
    """A value's name of at most some 200 characters, still different for different values.

    >>> len(shortened("x" * 10_000_000)), shortened("x" * 300) == shortened("x" * 301)
    (190, False)
    """
    if not text.isascii():
        # Half a surrogate pair (JSON allows it) can be written to no file.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= _LONG:
        return text
    return f"{text[:_KEPT]}… {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def too_many(name: str, found: int, coding: Coding, where: str = "") -> InvalidRequest:
    """The error for a column with more values than a factor can have."""
    return InvalidRequest(
        f"column {name!r} has {found:,} different values{where}, expected at most "
        f"{coding.most_values:,} for a factor: leave it out, or group rare values with --rare N "
        f"(now {coding.rare})"
    )


def not_numbers(name: str, text: str) -> InvalidRequest:
    """The error for a word in a column that was said to hold numbers."""
    return InvalidRequest(
        f"column {name!r} is named as numeric but holds {shortened(text)!r}: mend the value, or "
        "leave the column out of the numeric ones"
    )
