"""Columns read a piece at a time: factors into codes, other columns into numbers or text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from recombine.errors import InvalidRequest
from recombine.tables.bins import bin_names, bin_rule, edges_of_numbers
from recombine.tables.coding import (
    HELD,
    MISSING_WORDS,
    Coded,
    Coding,
    is_missing,
    no_number,
    not_numbers,
    settle,
    shortened,
    slip_of,
    too_many,
)
from recombine.tables.naming import names_rows, numbers_name_rows
from recombine.tables.pieces import (
    Lists,
    Numbers,
    Piece,
    Words,
    as_text,
    number_text,
    numbers_of,
    split,
)
from recombine.tables.rows import MISSING, NONE, Factor, smallest
from recombine.tables.spool import Room, Spool

_LONGEST = 1_000  # items of a list: the codes of a column take rows x longest


@dataclass(eq=False)
class Dictionary:
    """The different values of a column in the order they came, and how many rows hold each."""

    name: str
    coding: Coding
    rows: int = 0
    places: dict[str, int] = field(default_factory=dict)
    counts: np.ndarray = field(default_factory=lambda: np.zeros(64, np.int64))

    @property
    def full(self) -> bool:
        return len(self.places) > (HELD if self.coding.rare else self.coding.most_values)

    def look_up(self, texts: Sequence[str]) -> np.ndarray:
        """The places of different texts, and at the end of the empty one, for what is not there."""
        places = self.places
        found = [places.setdefault(shortened(text), len(places)) for text in texts]
        return np.array([*found, NONE], np.int64)

    def code(self, piece: Words | Numbers) -> np.ndarray:
        """The codes of a piece; what is not there counts as the empty text."""
        texts, codes = _different(piece)
        table = self.look_up(texts)
        if len(codes) and codes.min() < 0:
            table[-1] = self.places.setdefault("", len(self.places))
        return table[codes].astype(smallest(len(self.places)))

    def count(self, codes: np.ndarray) -> None:
        if len(self.places) > len(self.counts):
            grown = np.zeros(2 * len(self.places), np.int64)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
        new = np.bincount(codes, minlength=1)
        self.counts[: len(new)] += new

    def too_many(self, word: str | None = None) -> InvalidRequest:
        where = f" in its first {self.rows:,} rows"
        if word is not None:
            where += f" (and {shortened(word)!r} is not a number, so they cannot be binned)"
        return too_many(self.name, len(self.places), self.coding, where)


def _different(piece: Words | Numbers) -> tuple[Sequence[str], np.ndarray]:
    if isinstance(piece, Words):
        return piece.values, piece.codes
    array = piece.array
    if array.dtype.kind in "iu":
        low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
        if high - low < 2**16:  # much faster than sorting
            offsets = (array - array.dtype.type(low)).astype(np.int64)
            here = np.flatnonzero(np.bincount(offsets, minlength=1))
            table = np.zeros(high - low + 1, np.int64)
            table[here] = np.arange(len(here))
            return [str(low + int(value)) for value in here], table[offsets]
        values, codes = np.unique(array, return_inverse=True)
        return [str(value) for value in values.tolist()], codes
    values, codes = np.unique(array, return_inverse=True)  # all NaN are one, and the last
    codes = np.where(np.isnan(array), NONE, codes)
    return [number_text(value) for value in values if value == value], codes


@dataclass(eq=False)
class FactorReader:
    """Codes a column as it streams by.

    Its different values are collected. If they become too many and all are numbers, the numbers
    themselves are kept instead, to be binned at the end; if they are not, the column is refused
    at once. `again` says that it turned out otherwise than it began (words after many numbers,
    with `rare` in force) and must be read once more as text. A column that nobody named is `spare`:
    if it only names rows it is not refused for its many values, and `names_rows` says so.
    """

    name: str
    coding: Coding
    room: Room
    like: Factor | None = None
    again: bool = False
    as_text: bool = False
    spare: bool = False

    def __post_init__(self) -> None:
        self.seen = Dictionary(self.name, self.coding)
        self.codes = Spool(self.room)
        self.numbers: Spool | None = None
        self.lengths: Spool | None = Spool(self.room) if self.like and self.like.many else None
        self.cut = _cutter(self.coding.lists.get(self.name))
        self.undecided = self.cut is None and self.name not in self.coding.text
        self.longest = 1
        self.dropped = False

    @property
    def names_rows(self) -> bool:
        """Whether nobody named this column, and it has a different value in every row."""
        if not self.spare or self.lengths is not None or self.again:
            return False
        if self.dropped:
            return True
        if self.numbers is not None:
            return numbers_name_rows(self.numbers.pieces)
        there = [t for t in self.seen.places if not is_missing(t, self.name, self.coding)]
        return names_rows(there, self.seen.counts[[self.seen.places[t] for t in there]])

    @property
    def held(self) -> int:
        """How many different values are held in memory."""
        return len(self.seen.places)

    def forget(self) -> None:
        """Gives up what it holds."""
        self.seen.places.clear()

    def add(self, piece: Piece) -> None:
        self.seen.rows += len(piece)
        if self.again or self.dropped:
            return
        if self.undecided and isinstance(piece, Words):
            cells = [t for t in piece.values if not is_missing(t, self.name, self.coding)]
            self.undecided = not cells
            if cells and all(map(_is_json_list, cells)):
                self.cut = _cut_json
        if self.cut is not None and isinstance(piece, Words):
            piece = split(piece, self._cut_or_refuse)
        if isinstance(piece, Lists) or self.lengths is not None:
            self._add_lists(piece)
        elif self.numbers is not None:
            self._add_numbers(piece)
        elif isinstance(piece, Numbers) and self._binnable(piece):
            self._turn_to_numbers()
            self._add_numbers(piece)
        else:
            codes = self.seen.code(piece)
            self.seen.count(codes)
            self.codes.append(codes)
            if len(self.seen.places) > self.coding.most_values and not self._turn_to_numbers():
                self._refuse_if_full()

    def finish(self) -> Factor:
        if self.numbers is not None:
            return self._finish_numbers()
        raw = list(self.seen.places)
        done = settle(self.name, raw, self.seen.counts[: len(raw)], self.coding,
                      like=self.like, lists=self.lengths is not None)  # fmt: skip
        slip = ""
        if self.lengths is not None:
            codes = self._finish_lists(done.table, len(done.values))
        else:
            kind = smallest(len(done.values))
            table = done.table.astype(kind)
            slip = self._slip(raw) if self.like is None else ""
            codes = self._copied(self.codes, kind, lambda piece: table[piece])
        return Coded(self.name, done.values, codes, done.rule, done.edges, done.grouped, slip)

    def _slip(self, raw: Sequence[str]) -> str:
        """Why the column is text, where nearly every row holds a number."""
        words = slip_of(raw, self.seen.counts[: len(raw)], self.name, self.coding)
        if not words:
            return ""
        rows, before = int(self.seen.counts[words].sum()), 0
        for piece in self.codes.pieces():
            here = np.flatnonzero(np.isin(piece, words))
            if len(here):
                text, row = raw[int(piece[here[0]])], before + int(here[0]) + 1
                more = f" (nor are the words of {rows - 1:,} more row{'s'[: rows > 2]})"
                return (
                    f"read as text, since {text!r} in row {row:,} is no number"
                    f"{more if rows > 1 else ''}; nearly every other row holds one"
                )
            before += len(piece)
        return ""

    # --- numbers that are too many to be values -----------------------------------------------

    @property
    def _may_bin(self) -> bool:
        binned = self.like is None or (isinstance(self.like, Coded) and self.like.edges is not None)
        return binned and not self.as_text and self.name not in self.coding.text

    def _binnable(self, piece: Numbers) -> bool:
        """Whether a piece alone shows that the column will be binned, short of infinities."""
        if not self._may_bin or len(piece) <= self.coding.most_values:
            return False
        array = piece.array
        if len(np.unique(array)) <= self.coding.most_values or np.isinf(array).any():
            return False
        return self._parsed(list(self.seen.places)) is not None

    def _parsed(self, texts: Sequence[str]) -> np.ndarray | None:
        """Numbers that texts say (NaN where missing, and at the end), None if one is a word."""
        if MISSING_WORDS.isdisjoint(texts) and (quick := numbers_of(texts)) is not None:
            return np.append(quick, np.nan)
        there = [
            i
            for i, text in enumerate(texts)
            if not is_missing(text, self.name, self.coding) and not no_number(text)
        ]
        numbers = numbers_of([texts[i] for i in there])
        if numbers is None:
            return None
        found = np.full(len(texts) + 1, np.nan)
        found[there] = numbers
        return found

    def _turn_to_numbers(self) -> bool:
        if not self._may_bin:
            return False
        if (table := self._parsed(list(self.seen.places))) is None:
            self.as_text = True
            return False
        self.numbers = Spool(self.room)
        for codes in self.codes.pieces():
            self.numbers.append(table[codes])
        self.codes.clear()
        return True

    def _add_numbers(self, piece: Piece) -> None:
        assert self.numbers is not None
        if isinstance(piece, Words):
            table = self._parsed(piece.values)
            numbers = None if table is None else table[piece.codes]
        else:
            assert isinstance(piece, Numbers)
            numbers = piece.array.astype(np.float64)
            numbers = None if np.isinf(numbers).any() else numbers
        if numbers is not None:
            self.numbers.append(numbers)
            return
        texts = piece.values if isinstance(piece, Words) else ["inf"]
        word = next(text for text in texts if self._parsed([text]) is None)
        if self.name in self.coding.numeric:
            raise not_numbers(self.name, word)
        if not self.coding.rare:
            raise self.seen.too_many(word)
        self.numbers.clear()
        self.again = True

    def _finish_numbers(self) -> Factor:
        assert self.numbers is not None
        spool = self.numbers
        if isinstance(self.like, Coded) and self.like.edges is not None:
            edges, values, rule = self.like.edges, list(self.like.values), self.like.rule
        else:
            edges = edges_of_numbers(spool.pieces, self.coding.bins)
            values, rule = list(bin_names(edges)), bin_rule(edges)
        if MISSING not in values and any(np.isnan(piece).any() for piece in spool.pieces()):
            values.append(MISSING)
        # The bins are the first values, but where `like` met words among them in its own file.
        kind = smallest(len(values))
        place = [values.index(name) for name in bin_names(edges)]
        table = np.array([*place, values.index(MISSING) if MISSING in values else 0], kind)
        cuts = np.array(edges)

        def coded(numbers: np.ndarray) -> np.ndarray:
            bins = np.searchsorted(cuts, numbers)
            return table[np.where(np.isnan(numbers), len(place), bins)]

        codes = self._copied(spool, kind, coded)
        return Coded(self.name, tuple(values), codes, rule, edges)

    def _copied(
        self, spool: Spool, kind: type[np.generic], change: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        codes, start = self.room.array((spool.length,), kind), 0
        for piece in spool.pieces():
            codes[start : start + len(piece)] = change(piece)
            start += len(piece)
        spool.clear()
        return codes

    def _refuse_if_full(self) -> None:
        if self.seen.full:
            if self.names_rows:
                self.dropped = True
                self.forget()
                self.codes.clear()
                return
            if self.name in self.coding.numeric:
                there = (t for t in self.seen.places if self._parsed([t]) is None)
                raise not_numbers(self.name, next(there))
            raise self.seen.too_many()

    # --- lists --------------------------------------------------------------------------------

    def _cut_or_refuse(self, text: str) -> Sequence[str | None] | None:
        assert self.cut is not None
        # An empty cell of a column with a separator is an empty list; NA is no list.
        if is_missing(text, self.name, self.coding) and (text or self.cut is _cut_json):
            return None
        try:
            return self.cut(text)
        except ValueError as error:
            raise InvalidRequest(
                f"column {self.name!r} holds {shortened(text)!r} where earlier rows hold lists: "
                f"write a list there, or name the column in text to keep lists as written"
            ) from error

    def _add_lists(self, piece: Piece) -> None:
        if self.lengths is None:
            if self.seen.places.keys() - MISSING_WORDS or self.numbers is not None:
                raise InvalidRequest(
                    f"column {self.name!r} holds single values and, by row {self.seen.rows:,}, "
                    "lists: write every cell as a list"
                )
            # Rows until now held nothing: each is a list with a missing value.
            self.lengths = Spool(self.room)
            for codes in self.codes.pieces():
                self.lengths.append(np.ones(len(codes), np.uint16))
        if not isinstance(piece, Lists):
            piece = Lists(np.ones(len(piece), np.int64), piece)
        flat = self.seen.code(piece.items)
        empty, lengths = piece.lengths == NONE, np.maximum(piece.lengths, 0)
        if empty.any():
            nothing = self.seen.places.setdefault("", len(self.seen.places))
            flat = np.insert(flat.astype(np.int64), np.cumsum(lengths)[empty], nothing)
            lengths = np.where(empty, 1, lengths)
        longest = int(lengths.max(initial=0))
        if longest > _LONGEST:
            raise InvalidRequest(
                f"column {self.name!r} has a list of {longest:,} items, expected at most "
                f"{_LONGEST:,}: leave the column out, or shorten its lists"
            )
        self.longest = max(self.longest, longest)
        rows, once = _sets(lengths, flat, len(self.seen.places))
        self.seen.count(once)
        self._refuse_if_full()
        self.codes.append(once.astype(smallest(len(self.seen.places))))
        self.lengths.append(np.bincount(rows, minlength=len(lengths)).astype(np.uint16))

    def _finish_lists(self, table: np.ndarray, values: int) -> np.ndarray:
        assert self.lengths is not None
        kind = np.int16 if values < 2**15 else np.int32
        codes = self.room.array((self.lengths.length, self.longest), kind)
        start = 0
        for lengths, raw in zip(self.lengths.pieces(), self.codes.pieces(), strict=True):
            rows, once = _sets(lengths.astype(np.int64), table[raw], values)
            part = np.full((len(lengths), self.longest), NONE, kind)
            part[rows, _within(np.bincount(rows, minlength=len(lengths)))] = once
            codes[start : start + len(lengths)] = part
            start += len(lengths)
        self.codes.clear()
        self.lengths.clear()
        # Lists may be shorter than they were: spellings of one number, or rare values, are one.
        while codes.shape[1] > 1 and (codes[:, -1] == NONE).all():
            codes = codes[:, :-1]
        return codes


def _sets(lengths: np.ndarray, flat: np.ndarray, values: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and codes of lists, ascending within a row and each once."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    keys = np.unique(rows * max(values, 1) + flat)
    return keys // max(values, 1), keys % max(values, 1)


def _within(lengths: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... within each row."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _cutter(mark: str | None) -> Callable[[str], Sequence[str | None]] | None:
    if mark is None:
        return None
    return lambda text: [item.strip() for item in text.split(mark)] if text.strip() else []


def _cut_json(text: str) -> Sequence[str | None]:
    try:
        items = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(items, list):
        raise ValueError("not a list")
    return [as_text(item) for item in items]


def _is_json_list(text: str) -> bool:
    try:
        return text[:1] == "[" and _cut_json(text) is not None
    except ValueError:
        return False
