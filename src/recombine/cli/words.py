"""Small words of the command line: durations, settings, plain tables."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from recombine.errors import Interrupted, InvalidRequest
from recombine.report.document import readable

UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Seconds of a time such as 90s, 9m or 1h30m.

    >>> parse_duration("1h30m")
    5400.0
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise InvalidRequest(f"a time such as 90s, 9m or 1h30m is expected, got {text!r}")
    return float(sum(float(number) * UNITS[unit] for number, unit in parts))


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """`--set width=64,128 seeds=5` as a dictionary."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise InvalidRequest(f"--set takes NAME=VALUE, such as width=64,128, got {word!r}")
        found[name.replace("-", "_")] = value
    return found


def say(text: str) -> None:
    """A remark for people: on stderr, so that stdout holds results alone."""
    print(readable(text), file=sys.stderr, flush=True)


def show(lines: Sequence[str]) -> None:
    """Results for people: a value of theirs must not move the cursor or turn a line around."""
    print(readable("\n".join(lines)))


@contextmanager
def stopped(what: str, then: str = "run it again from the start") -> Iterator[None]:
    """What Ctrl-C leaves of a command, such as "nothing was written", and what to do then."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"stopped, and {what}: {then}") from None


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An aligned table; the widest column wraps to the terminal."""
    cells = [[str(c) for c in columns], *[[str(v) for v in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    room = max(60, shutil.get_terminal_size((100, 24)).columns) - 2 * (len(widths) - 1)
    wide = widths.index(max(widths))
    widths[wide] = max(20, min(widths[wide], room - sum(widths) + widths[wide]))
    lines = []
    for number, row in enumerate(cells):
        parts = [textwrap.wrap(v, w) or [""] for v, w in zip(row, widths, strict=True)]
        for i in range(max(len(p) for p in parts)):
            texts = [(p[i] if i < len(p) else "").ljust(w)
                     for p, w in zip(parts, widths, strict=True)]  # fmt: skip
            lines.append("  ".join(texts).rstrip())
        if number == 0:
            lines.append("  ".join("-" * w for w in widths))
    return "\n".join(lines)
