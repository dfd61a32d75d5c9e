"""Rules a card must meet, for continuous integration, and what changed since an older card."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown
from recombine.lab.files import read_json, sha256_bytes
from recombine.tables.rows import Rows

SCHEMA = 1
"""The version of a card's JSON; a card with a larger one is refused."""

ENDS = ("value", "low", "high")
ROUNDING = 1e-9  # what a number may change by on its way through a file


@dataclass(frozen=True)
class Gate:
    """One rule: a number of the card, and the least or most that it may be."""

    name: str
    at_least: float | None = None
    at_most: float | None = None

    def broken_by(self, value: float | None) -> str | None:
        """Why a value does not meet the rule, or None if it does."""
        if value is None or not math.isfinite(value):
            return f"{self.name} was not measured, and a rule asks for it"
        if self.at_least is not None and value < self.at_least:
            return f"{self.name} is {value:.4g}, below {self.at_least:g}"
        if self.at_most is not None and value > self.at_most:
            return f"{self.name} is {value:.4g}, above {self.at_most:g}"
        return None


def read_gates(path: str | Path, names: Sequence[str]) -> list[Gate]:
    """The rules of a TOML file, such as `unseen = {at_least = 0.8}`; unknown names are refused.

    Names of the card are either numbers ("unseen", "gap") or have parts ("slices.failing").
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"{path} is not a file of rules (TOML): {error}") from error
    gates = []
    for name, limits in _flat(tables).items():
        if name not in names:
            raise unknown(f"number in {path}", name, names)
        known = {"at_least", "at_most"}
        good = isinstance(limits, Mapping) and limits and set(limits) <= known
        if not good or not all(_number(value) for value in limits.values()):
            raise InvalidRequest(
                f"{path}: {name} = {limits!r}; expected {{at_least = 0.8}} or {{at_most = 0.05}}"
            )
        gates.append(Gate(name, **{key: float(value) for key, value in limits.items()}))
    if not gates:
        raise InvalidRequest(
            f"{path} holds no rule; write for instance: unseen = {{at_least = 0.8}}"
        )
    return gates


def broken(gates: Sequence[Gate], numbers: Mapping[str, float | None]) -> list[str]:
    """What does not hold, one sentence a rule.

    >>> broken([Gate("unseen", at_least=0.8)], {"unseen": 0.75})
    ['unseen is 0.75, below 0.8']
    """
    found = (gate.broken_by(numbers.get(gate.name)) for gate in gates)
    return [why for why in found if why]


@dataclass(frozen=True)
class Change:
    """A number then and now (None: no longer measured), and whether it is worse."""

    name: str
    then: float
    now: float | None
    worse: bool

    @property
    def sentence(self) -> str:
        """
        >>> Change("unseen", 0.9, None, True).sentence
        'unseen was 0.9, is not measured'
        """
        now = "not measured" if self.now is None else f"{self.now:.3g}"
        return f"{self.name} was {self.then:.3g}, is {now}"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What two cards say differently, the regressions first.

    A number with intervals is worse where the two do not touch. One without, such as the share of
    rows with an answer, was counted and not estimated: it is worse where it is worse at all. So is
    one that can no longer be measured.
    """
    found = []
    for name, entry in new["numbers"].items():
        before = old["numbers"].get(name)
        if before is None or before["value"] is None:
            continue
        found.append(Change(name, before["value"], entry["value"], _worse(before, entry)))
    return sorted(found, key=lambda change: not change.worse)


def read_card(path: str | Path) -> dict[str, Any]:
    """An older card's JSON, checked."""
    document = read_json(Path(path).expanduser())
    if not isinstance(document, dict) or document.get("kind") != "recombine card":
        raise InvalidRequest(f"{path} is not a card: expected the card.json of `recombine card`")
    schema, numbers = document.get("schema"), document.get("numbers")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise InvalidRequest(
            f"{path} has schema {schema!r}, expected a number from 1 to {SCHEMA}: make the card "
            "again"
        )
    if schema > SCHEMA:
        raise InvalidRequest(
            f"{path} has schema {schema}, this release knows up to {SCHEMA}: update recombine"
        )
    if not isinstance(numbers, dict):
        raise InvalidRequest(f"{path} holds no 'numbers' to compare with: make the card again")
    for name, entry in numbers.items():
        ends = [entry.get(end, "") for end in ENDS] if isinstance(entry, dict) else [""]
        if not all(end is None or _number(end) for end in ends):
            raise InvalidRequest(
                f"{path}: the number {name!r} is {entry!r}, expected value, low and high: make "
                "the card again"
            )
    return document


def check_comparable(
    path: str | Path, older: Mapping[str, Any], now: Mapping[str, Any]
) -> None:  # fmt: skip
    """Refuses an older card of other factors, labels or rows: their numbers mean other things.

    `now` has the fields of `subject_of`. What an older card does not state is not compared.
    """
    for field, words in (("factors", "factors"), ("label", "labels"), ("digest", "rows")):
        then, is_now = older.get(field), now[field]
        if then is None or then == is_now:
            continue
        if field == "digest":
            then, is_now = (f"{of.get('data')} ({of.get('rows')} rows)" for of in (older, now))
        raise InvalidRequest(
            f"{path} is a card of other {words}, {_listed(then)}, and this one is of "
            f"{_listed(is_now)}: they cannot be compared; make a card of the older model on these"
        )


def subject_of(
    rows: Rows, records: Sequence[Mapping[str, Any]], label: Sequence[str]
) -> dict[str, Any]:
    """What a card is about, as its JSON has it; `digest` is of the rows, wherever they lie."""
    text = "\n".join(repr(sorted((str(k), repr(v)) for k, v in r.items())) for r in records)
    return {
        "data": rows.source, "rows": len(rows), "factors": sorted(rows.names),
        "label": sorted(label), "digest": sha256_bytes(text.encode()),
    }  # fmt: skip


def _listed(value: Any) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _worse(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    better = now.get("better")
    if better is None or now["value"] is None:
        return better is not None
    ends = [before.get("low"), before.get("high"), now.get("low"), now.get("high")]
    if any(end is None for end in ends):
        off = now["value"] - before["value"]
        return off < -ROUNDING if better == "higher" else off > ROUNDING
    return now["high"] < before["low"] if better == "higher" else now["low"] > before["high"]


def _flat(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables by dotted names, down to those that hold limits."""
    found: dict[str, Any] = {}
    for name, value in tables.items():
        nested = isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values())
        found |= _flat(value, f"{before}{name}.") if nested else {before + name: value}
    return found


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
