"""Rules a card must meet, for continuous integration, and what changed since an older card."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown
from recombine.lab.files import read_json

SCHEMA = 1
"""The version of a card's JSON; a card with a larger one is refused."""


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
    """A number then and now; `worse` where the change is larger than both intervals allow."""

    name: str
    then: float
    now: float
    worse: bool


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What two cards say differently, the regressions first.

    A number is worse only where the two intervals do not touch; a number without an interval is
    never called worse.
    """
    found = []
    for name, entry in new["numbers"].items():
        before = old["numbers"].get(name)
        if before is None or None in (before["value"], entry["value"]):
            continue
        found.append(Change(name, before["value"], entry["value"], _worse(before, entry)))
    return sorted(found, key=lambda change: not change.worse)


def read_card(path: str | Path) -> dict[str, Any]:
    """An older card's JSON, checked."""
    document = read_json(Path(path).expanduser())
    if not isinstance(document, dict) or document.get("kind") != "recombine card":
        raise InvalidRequest(f"{path} is not a card: expected the card.json of `recombine card`")
    if document.get("schema", 0) > SCHEMA:
        raise InvalidRequest(
            f"{path} has schema {document['schema']}, this release knows up to {SCHEMA}: update "
            "recombine"
        )
    return document


def _worse(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    better = now.get("better")
    ends = [before.get("low"), before.get("high"), now.get("low"), now.get("high")]
    if better is None or any(end is None for end in ends):
        return False
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
