"""PICT's files: models read and written, plans written as PICT writes its output, and read back.

Sub-models are read as mixed strength: all interactions of their order within them, and of the
whole model's order elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recombine.collecting.goals import Space
from recombine.errors import InvalidRequest, StoreError, unknown
from recombine.tables.rows import Rows
from recombine.tables.rule_syntax import split_rules
from recombine.tables.rules import Rules, parse_rules

_GROUP = re.compile(r"\{(?P<names>[^{}]*)\}\s*(?:@\s*(?P<order>\d+)\s*)?;?")
_WEIGHT = re.compile(r"(?P<value>.*\S)\s*\(\s*(?P<weight>\d+)\s*\)")
_RULE = re.compile(r"\s*(IF\b|NOT\b|\[|\()", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class PictModel:
    """A PICT model: factors and values, rules, and a strength for some groups of factors.

    `invalid` holds values marked with ~, of which a combination has at most one (the rules say
    so), `weights` how much PICT should prefer a value, `aliases` other names of a value.
    """

    space: Space
    rules: Rules
    groups: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    invalid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    aliases: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def read_pict(path: str | Path, *, order: int = 2) -> PictModel:
    """The model in a file; `order` is that of sub-models which state none."""
    return parse_pict(_text(path), order=order, where=str(path))


def parse_pict(text: str, *, order: int = 2, where: str = "the model") -> PictModel:
    """A model from its text.

    >>> model = parse_pict('size: 1, 10\\nkind: a | b, ~c\\nIF [kind] = "a" THEN [size] = 10;')
    >>> model.space.values, model.invalid
    ((('1', '10'), ('a', 'c')), {'kind': ('c',)})
    """
    lines = text.splitlines()
    values: dict[str, tuple[str, ...]] = {}
    invalid: dict[str, tuple[str, ...]] = {}
    weights: dict[str, dict[str, int]] = {}
    aliases: dict[str, dict[str, tuple[str, ...]]] = {}
    groups: dict[tuple[str, ...], int] = {}
    rest: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("{"):
            groups.update([_group(line, values, order, f"{where}, line {number}")])
        elif _RULE.match(line) or ":" not in line:
            if not _RULE.match(line):
                raise InvalidRequest(
                    f"{where}, line {number}: {line.strip()!r} is no parameter, group or rule; "
                    "expected for example  colour: red, blue"
                )
            rest = lines[number - 1 :]
            break
        else:
            name, _, listed = line.partition(":")
            name = name.strip()
            if name in values:
                raise InvalidRequest(f"{where}, line {number}: {name!r} is named twice")
            parts = list(_values(listed, values, f"{where}, line {number}"))
            values[name] = tuple(value for value, *_ in parts)
            if wrong := tuple(value for value, bad, *_ in parts if bad):
                invalid[name] = wrong
            if heavy := {value: w for value, _, w, _ in parts if w is not None}:
                weights[name] = heavy
            if others := {value: a for value, *_, a in parts if a}:
                aliases[name] = others
    if not values:
        raise InvalidRequest(f"{where} has no parameters; expected lines such as colour: red, blue")
    space = Space(tuple(values), tuple(values.values()))
    texts = [*split_rules("\n".join(rest)), *_at_most_one(invalid)]
    rules = parse_rules(texts, space.names, space.values)
    return PictModel(space, rules, groups, invalid, weights, aliases)


def _group(
    line: str, values: Mapping[str, object], order: int, where: str
) -> tuple[tuple[str, ...], int]:
    found = _GROUP.fullmatch(line.strip())
    if found is None:
        raise InvalidRequest(f"{where}: {line.strip()!r} is no group; expected {{a, b, c}} @ 3")
    names = tuple(name.strip() for name in found["names"].split(","))
    for name in names:
        if name not in values:
            raise unknown(f"parameter ({where})", name, values)
    return names, min(int(found["order"] or order), len(names))


def _values(
    listed: str, known: Mapping[str, tuple[str, ...]], where: str
) -> Iterable[tuple[str, bool, int | None, tuple[str, ...]]]:
    """Each value with whether it is invalid, its weight and its other names."""
    for text in (part.strip() for part in listed.split(",")):
        if text.startswith("<") and text.endswith(">"):
            if text[1:-1].strip() not in known:
                raise unknown(f"parameter ({where})", text[1:-1].strip(), known)
            yield from ((value, False, None, ()) for value in known[text[1:-1].strip()])
            continue
        found = _WEIGHT.fullmatch(text)
        value, weight = (found["value"], int(found["weight"])) if found else (text, None)
        first, *others = [name.strip() for name in value.split("|")]
        bad = first.startswith("~")
        if not first.lstrip("~"):
            raise InvalidRequest(f"{where}: a value is empty; write for example  colour: red, blue")
        yield first.removeprefix("~"), bad, weight, tuple(o.removeprefix("~") for o in others)


def _at_most_one(invalid: Mapping[str, tuple[str, ...]]) -> list[str]:
    names = list(invalid)
    return [
        f"NOT ({_among(one, invalid[one])} AND {_among(two, invalid[two])})"
        for i, one in enumerate(names)
        for two in names[i + 1 :]
    ]


def _among(name: str, values: Sequence[str], numbers: bool = False) -> str:
    shown = list(values) if numbers else [f'"{value}"' for value in values]
    if len(shown) == 1:
        return f"[{name}] = {shown[0]}"
    return f"[{name}] IN {{{', '.join(shown)}}}"


def write_pict(
    space: Space,
    rules: Rules | None = None,
    groups: Mapping[tuple[str, ...], int] | None = None,
    *,
    model: PictModel | None = None,
) -> str:
    """The text of a PICT model; what each rule forbids is written in PICT's own syntax.

    Of a `model` that was read, what it says of its values is kept: ~, other names and weights.

    >>> print(write_pict(Space(("a", "b"), (("x", "y"), ("1", "2")))), end="")
    a: x, y
    b: 1, 2
    """
    if space.lists:
        raise InvalidRequest(
            f"the factor {next(iter(space.lists))!r} holds lists, which a PICT model cannot say: "
            "leave it out, or export a table"
        )
    if rules is not None:
        rules.check()  # a model in which nothing is possible is of no use to anybody
    lines, bad = [], model.invalid if model else {}
    for name, values in zip(space.names, space.values, strict=True):
        for text in (name, *values):
            _plain(text)
        lines.append(f"{name}: {', '.join(_marked(name, value, model) for value in values)}")
    lines += [f"{{{', '.join(names)}}} @ {order}" for names, order in (groups or {}).items()]
    told = set(_at_most_one({name: tuple(values) for name, values in bad.items()}))
    for box, origin in zip(rules.boxes, rules.origin, strict=True) if rules else ():
        assert rules is not None
        if rules.texts[origin] in told:  # ~ says it
            continue
        parts = []
        for factor, codes in sorted(box.items()):
            values = space.values[factor]
            numbers = all(_NUMBER.fullmatch(value) for value in values)
            chosen = [values[code] for code in sorted(codes)]
            parts.append(_among(space.names[factor], chosen, numbers))
        *conditions, last = parts
        lines.append(f"IF {' AND '.join(conditions)} THEN NOT {last};" if conditions
                     else f"NOT {last};")  # fmt: skip
    return "\n".join(lines) + "\n"


def _marked(name: str, value: str, model: PictModel | None) -> str:
    """A value as a model lists it: ~ before an invalid one, then other names and a weight."""
    if model is None:
        return value
    sign = "~" if value in model.invalid.get(name, ()) else ""
    names = " | ".join([sign + value, *model.aliases.get(name, {}).get(value, ())])
    weight = model.weights.get(name, {}).get(value)
    return names if weight is None else f"{names} ({weight})"


def _plain(text: str) -> None:
    if not text.strip() or text != text.strip() or re.search(r'[,:|~#<>{}\[\]"()\n\r\t]', text):
        raise InvalidRequest(
            f"{text!r} cannot be written in a PICT model, where , : | ~ # < > {{ }} [ ] ( ) and "
            "quotes have a meaning of their own: rename it, or export a table"
        )


def write_pict_output(space: Space, codes: np.ndarray, model: PictModel | None = None) -> str:
    """Combinations as PICT prints them: tab separated, names first, ~ before invalid values."""
    invalid = model.invalid if model is not None else {}
    lines = ["\t".join(space.names)]
    for row in (space.named(line) for line in codes):
        words = []
        for name, value in row.items():
            text = value if isinstance(value, str) else " and ".join(value)
            if "\t" in text or "\n" in text:
                raise InvalidRequest(f"{text!r} holds a tab or a line break: export a .csv instead")
            words.append(f"~{text}" if text in invalid.get(name, ()) else text)
        lines.append("\t".join(words))
    return "\n".join(lines) + "\n"


def read_pict_output(path: str | Path, model: PictModel | None = None) -> Rows:
    """Combinations that PICT printed, as rows: with the values of the model, or with their own."""
    lines = [line.split("\t") for line in _text(path).splitlines() if line.strip()]
    if not lines:
        raise InvalidRequest(f"{path} is empty; expected what PICT prints: names, then rows")
    names, rows = tuple(lines[0]), lines[1:]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise InvalidRequest(
                f"{path}, line {number}: {len(row)} values, expected {len(names)}, parted by tabs"
            )
    if model is not None and set(names) != set(model.space.names):
        raise InvalidRequest(
            f"{path} has the factors {', '.join(names)}, and the model "
            f"{', '.join(model.space.names)}: expected the same"
        )
    columns = {name: [row[i].removeprefix("~") for row in rows] for i, name in enumerate(names)}
    space = model.space if model else Space(
        names, tuple(tuple(dict.fromkeys(columns[name])) or ("",) for name in names)
    )  # fmt: skip
    codes = np.zeros((len(rows), len(space.names)), np.int64)
    for place, name in enumerate(space.names):
        other = (model.aliases if model else {}).get(name, {})
        first = {alias: value for value, several in other.items() for alias in several}
        codes[:, place] = [space.code(name, first.get(v, v))[1] for v in columns[name]]
    return space.as_rows(codes, str(path))


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not text in UTF-8: save it as that") from error
