"""What a report says, as plain dataclasses: no drawing, no HTML, no knowledge of the lab."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import InvalidRequest, unknown

Verdict = Literal["supported", "refuted", "inconclusive", "not tested here"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Cell = str | float | int | None

# Embeddings, overrides and isolates: they reorder the text around them, so a name could make
# its neighbours read as something else.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def readable(text: str) -> str:
    """Text that shows what it holds: characters that act instead of being read become U+FFFD.

    >>> readable("safe\\x00 name\\u202e")
    'safe\ufffd name\ufffd'
    """
    return "".join("\ufffd" if _acts(character) else character for character in text)


def _acts(character: str) -> bool:
    if character in "\n\t":
        return False
    return (
        character in _BIDI_CONTROLS
        or unicodedata.category(character) in ("Cc", "Cs")
        or ord(character) & 0xFFFE == 0xFFFE  # noncharacters, which XML forbids
    )


def one_line(text: str) -> str:
    """Readable text on a single line, for names and labels.

    >>> one_line("two\\n  lines")
    'two lines'
    """
    return " ".join(readable(text).split())


@dataclass(frozen=True)
class Table:
    """Rows of values under named columns, with an optional note below."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise InvalidRequest(
                    f"table {self.title!r}: row {number} has {len(row)} values, expected "
                    f"{len(self.columns)}, one for each of {', '.join(map(repr, self.columns))}"
                )


@dataclass(frozen=True)
class Figure:
    """A drawing with its words: caption, alternative text and the numbers behind it."""

    title: str
    caption: str
    svg: str
    alt: str
    data: Table | None = None


@dataclass(frozen=True)
class Strip:
    """Pictures of one request, side by side in one PNG, and whether each shows what was asked.

    `told` says in words what a mark tells, for those who cannot see it. Where a yes or no would
    say too little, a `caption` stands in place of the marks.
    """

    asked: str
    png: bytes
    marks: Sequence[bool] = ()
    told: str = "right"
    caption: str = ""

    def __post_init__(self) -> None:
        judged = self.marks or self.caption
        if not self.png.startswith(b"\x89PNG\r\n\x1a\n") or not judged:
            raise InvalidRequest(
                f"strip {self.asked!r}: expected the bytes of a PNG, and marks or a caption"
            )

    @property
    def alt(self) -> str:
        """The strip in words."""
        if not self.marks:
            return f"Pictures of {self.asked}; {self.caption}"
        if len(self.marks) == 1:
            return f"A picture of {self.asked}; {self.told}: {'yes' if self.marks[0] else 'no'}"
        right = [str(n) for n, mark in enumerate(self.marks, start=1) if mark]
        count = len(self.marks)
        return f"{count} pictures of {self.asked}; {self.told}: {', '.join(right) or 'none'}"


@dataclass(frozen=True)
class Gallery:
    """Strips of pictures under one title."""

    title: str
    strips: Sequence[Strip]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A titled part of a report: paragraphs (parted by blank lines), then figures, pictures and
    tables.

    One that is `first` stands before the claims: what has to be seen to know what they are about.
    """

    title: str
    text: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    galleries: Sequence[Gallery] = ()
    first: bool = False


@dataclass(frozen=True)
class ClaimRow:
    """One claim against its numbers; `meets` is the range of estimates that meets the criterion.

    An open end of `meets` is None: ``(0.9, None)`` reads "at least 0.9".
    """

    name: str
    sentence: str
    criterion: str
    verdict: Verdict
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    adjusted_low: float | None = None
    adjusted_high: float | None = None
    units: int = 0
    unit_name: str = "seeds"
    note: str = ""
    meets: tuple[float | None, float | None] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise unknown("verdict", str(self.verdict), VERDICTS)


@dataclass(frozen=True)
class Report:
    """Everything one study has to say, in reading order."""

    study: str
    title: str
    question: str
    source: str
    preset: str
    verdict_sentence: str
    claims: Sequence[ClaimRow] = ()
    sections: Sequence[Section] = ()
    not_shown: Sequence[str] = ()
    repeat: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()


def overall(claims: Sequence[ClaimRow]) -> Verdict | Literal["mixed"]:
    """The verdict all tested claims share, "mixed" when they differ.

    >>> overall([])
    'not tested here'
    """
    tested: list[Verdict] = [
        claim.verdict for claim in claims if claim.verdict != "not tested here"
    ]
    if not tested:
        return "not tested here"
    return tested[0] if len(set(tested)) == 1 else "mixed"
