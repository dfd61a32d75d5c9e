"""What an answer says, however it is dressed: after a marker, in JSON, in quotes, on the last line.

A model is asked to end with `ANSWER: ...`. Many do not, and a scorer that only marks the form would
measure obedience. Exactness is for what was said, tolerance for how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping

# Each pattern takes a time that goes with the length of the text: some models end in thousands of
# blanks, stars or digits. `*+` and `++` give nothing back, and what follows them is none of it.
_MARKER = re.compile(r"\banswer\b[\s*_`]*+(?:is[\s*_`]*+)?[:=]|\banswer is\b", re.IGNORECASE)
# What was asked for, alone on its line: a remark after it may speak of "the answer:", too.
_ASKED = re.compile(r"^[ \t*_`#>]*ANSWER[ \t*_`]*:[ \t*_`]*(\S.*)$", re.MULTILINE)
_FENCE = re.compile(r"^[^\S\n]*```.*$", re.MULTILINE)
_BOXED = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}")
_GROUPED = re.compile(r"(?<!\d)\d{1,3}([ '’_\u00a0\u2009\u202f])\d{3}(?:\1\d{3})*(?!\d)")
_BRACKETED = re.compile(r"\([^()]*\)")
_FACTORS = re.compile(r"(?<!\d)\d++\s*+(?:[*×x·]|\\times|\\cdot|times)\s*+\d++")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}


def final(text: str) -> str:
    """The part of an answer that is meant as the answer.

    >>> final("Let me think.\\n**Answer:** `RUN RUN`."), final('{"answer": [1, 2]}')
    ('RUN RUN', '[1, 2]')
    """
    text = _FENCE.sub("", text).strip()
    if (found := _in_json(text)) is not None:
        return found
    if boxed := _BOXED.findall(text):
        return bare(boxed[-1])
    if asked := [found for line in _ASKED.findall(text) if (found := bare(line))]:
        return asked[-1]
    markers = list(_MARKER.finditer(text))
    # What follows the last marker that is followed by anything: some write it as a heading.
    for marker in reversed(markers):
        after = bare(text[marker.end() :].strip(" \t\n*_`").split("\n")[0])
        if after:
            return after
    lines = [line for line in text.splitlines() if line.strip()]
    return bare(lines[-1]) if lines else ""


def bare(text: str) -> str:
    """Without the dress of a phrase: emphasis, a final full stop, one pair of quotes.

    >>> bare(' **"yes."** ')
    'yes'
    """
    before = None
    while before != text:
        before = text
        text = text.strip().strip("*_`").strip()
        text = text.rstrip(".")
        if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
            text = text[1:-1]
    return text


def _in_json(text: str) -> str | None:
    start = text.rfind("{")
    if start < 0 or not text.endswith("}"):
        return None
    try:
        found = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    for name, value in found.items():
        if name.lower() == "answer":
            return bare(value) if isinstance(value, str) else json.dumps(value)
    return None


def words(text: str) -> tuple[str, ...] | None:
    """The words of an answer in order, without case, commas, arrows or brackets."""
    found = re.findall(r"[^\W_]+", final(text).lower())
    return tuple(found) or None


def numbers(text: str) -> tuple[int, ...] | None:
    """The whole numbers of an answer: those of its last list in brackets, or all.

    >>> numbers("ANSWER: it becomes [3, -1]"), numbers("[]"), numbers("no idea")
    ((3, -1), (), None)
    """
    said = final(text).replace("\N{MINUS SIGN}", "-")
    lists = re.findall(r"\[([^\[\]]*)\]", said)
    inside = lists[-1] if lists else said
    if re.search(r"\d\.\d", inside):
        return None
    found = tuple(int(number) for number in re.findall(r"-?\d{1,18}", inside))
    return found if found or lists else None


def whole_number(text: str) -> int | None:
    """The one whole number that an answer gives, also in groups of digits or beside its factors.

    >>> whole_number("ANSWER: 247 200"), whole_number("247,200 (= 480*515)"), whole_number("many")
    (247200, 247200, None)
    """
    said = final(text.replace("{,}", ",").replace("\\,", " ")).replace("\N{MINUS SIGN}", "-")
    said = re.sub(r"(?<=\d),(?=\d)", "", said)
    said = _GROUPED.sub(lambda found: re.sub(r"\D", "", found[0]), said)
    for remark in (_BRACKETED, _FACTORS):
        rest = remark.sub(" ", said)
        said = rest if re.search(r"\d", rest) else said
    if re.search(r"\d\.\d", said):
        return None
    found = re.findall(r"(?<!\d)-?\d{1,18}(?!\d)", said)
    return int(found[-1]) if found else None


def yes_or_no(text: str) -> bool | None:
    """What a yes-or-no answer says; None if it says neither, or both.

    >>> yes_or_no("Answer: No, it is not."), yes_or_no("yes"), yes_or_no("maybe")
    (False, True, None)
    """
    found = [word for word in words(text) or () if word in ("yes", "no", "true", "false")]
    if not found or (len(set(found)) > 1 and (words(text) or ("",))[0] != found[0]):
        return None
    return found[0] in ("yes", "true")


KINDS: Mapping[str, Callable[[str], Hashable]] = {
    "words": words,
    "numbers": numbers,
    "yes or no": yes_or_no,
}


def marks(kind: str, gold: str, answer: str) -> dict[str, float]:
    """Whether an answer could be read as what was asked for, and whether it is right.

    >>> marks("numbers", "[1, 2]", "so we get 1, 2")
    {'correct': 1.0, 'parsed': 1.0}
    """
    read = KINDS[kind]
    said = read(answer)
    right = said is not None and said == read(gold)
    return {"correct": float(right), "parsed": float(said is not None)}
