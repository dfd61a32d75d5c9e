"""Tags for records: what each way finds in a text, and why a row has no tag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, unknown
from recombine.tags.callables import call_rows
from recombine.tags.endpoint import ask_about
from recombine.tags.patterns import Tag, finder_of, found_in, is_quick
from recombine.tags.spec import FactorSpec, TagSpec

if TYPE_CHECKING:
    from recombine.live.model import Model

Reading = Callable[[], Iterator[Mapping[str, Any]]]
LIMITS = (
    'Word lists and patterns do not handle negation ("not red" counts as red), irony or who is '
    "spoken of."
)


@dataclass
class Tagged:
    """A tag per factor and row, and why rows have none."""

    tags: dict[str, list[Tag]]
    troubles: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def trouble(self, why: str, row: int) -> None:
        """Counts a row (from 1) that has no tag because of something."""
        self.troubles[why] += 1
        self.first.setdefault(why, row)

    def notes(self) -> list[str]:
        """What went wrong, most frequent first."""
        return self.remarks + [
            f"{count} {'row is' if count == 1 else 'rows are'} (missing): {why} "
            f"(first: row {self.first[why]})"
            for why, count in self.troubles.most_common()
        ]


def tag_records(
    records: Reading,
    spec: TagSpec,
    column: str | None = None,
    *,
    model: Model | None = None,
    timeout: float = 10.0,
) -> Tagged:
    """Tags records, which are read once for each way of tagging that the spec uses.

    >>> from pathlib import Path
    >>> from recombine.tags.spec import parse_spec
    >>> words = {"red": ["red", "crimson"], "blue": ["blue"]}
    >>> spec = parse_spec({"factors": {"colour": {"with": "lexicon", "values": words}}}, Path())
    >>> rows = [{"text": "A Crimson hat."}, {"text": "bored"}]
    >>> tag_records(lambda: iter(rows), spec, "text").tags
    {'colour': ['red', None]}
    """
    column = column or spec.column
    needs_text = [f.name for f in spec.factors if f.way != "callable"]
    if needs_text and column is None:
        raise InvalidRequest(
            f"factor {needs_text[0]!r} is found in a text: name its column with --column NAME"
        )
    tagged = Tagged({factor.name: [] for factor in spec.factors})
    for factor in (*spec.by_way("lexicon"), *spec.by_way("regex")):
        assert column is not None
        if is_quick(factor):
            finder = finder_of(factor)
            tagged.tags[factor.name] = [finder(text) for text in texts(records(), column)]
        else:
            _match(factor, texts(records(), column), tagged, timeout)
    by_function: dict[str, list[FactorSpec]] = {}
    for factor in spec.by_way("callable"):
        assert factor.function is not None
        by_function.setdefault(factor.function, []).append(factor)
    for function, factors in by_function.items():
        _call(function, factors, records, spec, tagged, timeout)
    if asked := spec.by_way("endpoint"):
        if model is None:
            raise InvalidRequest(
                f"factor {asked[0].name!r} is asked of a model: give --endpoint URL --model NAME"
            )
        assert column is not None
        _ask(model, asked, list(texts(records(), column)), tagged)
    return tagged


def texts(records: Iterator[Mapping[str, Any]], column: str) -> Iterator[str]:
    """The text of each record, "" where it has none."""
    for number, record in enumerate(records, 1):
        if number == 1 and column not in record:
            raise unknown("column", column, map(str, record))
        said = record.get(column)
        yield "" if said is None else said if isinstance(said, str) else str(said)


def _match(factor: FactorSpec, said: Iterator[str], tagged: Tagged, timeout: float) -> None:
    """Patterns that may take for ever, in another process with a time for each text."""
    for row, (tag, trouble) in enumerate(found_in(factor, said, timeout), 1):
        if trouble:
            tagged.trouble(f"a pattern of {factor.name} {trouble}", row)
        tagged.tags[factor.name].append(tag)


def _call(
    function: str, factors: Sequence[FactorSpec], records: Reading, spec: TagSpec,
    tagged: Tagged, timeout: float,
) -> None:  # fmt: skip
    outcomes = call_rows(
        function, records(), folder=spec.folder, timeout=timeout,
        remark=lambda text: tagged.remarks.append(f"{function} {text}"),
    )  # fmt: skip
    row = faults = 0
    last = ""
    for row, outcome in enumerate(outcomes, 1):
        result, trouble = outcome.result, outcome.trouble
        if not trouble and not isinstance(result, dict):
            trouble = f"returned {_kind(result)}, expected a dict of factor to value"
        if trouble:
            tagged.trouble(f"{function} {trouble}", row)
        whys = [trouble] if trouble else []
        for factor in factors:
            tag, why = (None, "") if trouble else checked(result.get(factor.name), factor)
            if why:
                whys.append(f"gave {factor.name} {why}")
                tagged.trouble(f"{function} {whys[-1]}", row)
            tagged.tags[factor.name].append(tag)
        faults += bool(whys)
        last = whys[-1] if whys else ""
    if row and faults == row and not any(any(tagged.tags[factor.name]) for factor in factors):
        raise InvalidRequest(
            f"{function} {last}, as on all {row} rows: nothing is written; mend it, or take "
            "its factors out of the spec"
        )


def _ask(model: Model, factors: Sequence[FactorSpec], said: list[str], tagged: Tagged) -> None:
    asked = [text for text in said if text.strip()]
    answers = ask_about(model, asked, factors)
    for row, text in enumerate(said, 1):
        if not text.strip():
            tagged.trouble("the text is empty, so nothing was asked", row)
            found: dict[str, Any] = {}
            why = ""
        else:
            found, why = next(answers)
        if why:
            tagged.trouble(f"the model {why}", row)
        for factor in factors:
            tagged.tags[factor.name].append(found.get(factor.name))


def checked(value: Any, factor: FactorSpec) -> tuple[Tag, str]:
    """A value that somebody's code gave as a tag, or why it is none."""
    if value is None or value == "":
        return None, ""
    if isinstance(value, list | tuple):
        if factor.several != "list":
            return None, 'a list; say several = "list" if it holds lists'
        if not all(isinstance(item, str) for item in value):
            return None, "a list that does not hold text alone"
        found: Tag = tuple(sorted(set(value)))
        strange = [item for item in value if factor.values and item not in factor.values]
    else:
        if isinstance(value, float) and value != value:
            return None, "NaN"
        if not isinstance(value, str | int | float):
            return None, f"{_kind(value)}, expected text or a number"
        found = str(value)
        strange = [found] if factor.values and found not in factor.values else []
    if strange:
        return None, f"a value that is not allowed, such as {strange[0][:40]!r}"
    return found, ""


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
