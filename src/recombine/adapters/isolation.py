"""A user's adapter put to the test: whatever it does, one plain sentence comes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.adapters.functions import alike
from recombine.adapters.models import OwnModel, Record
from recombine.adapters.worker import AdapterFailed, Isolated, respond, succeeded, unlike, whole
from recombine.errors import InvalidRequest

HANGS = 3  # in a row, after which the rest of a batch is not asked
EMPTY = 3  # batches in a row without any answer, after which no further one is asked


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an adapter: a sentence that names the records (from 0)."""

    kind: str
    records: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Checked:
    """The answers (None where there is none), what is wrong, and how long answering took."""

    answers: list[Any]
    problems: tuple[Problem, ...]
    seconds: float = 0.0
    isolated: bool = True

    @property
    def answered(self) -> int:
        """How many records have an answer."""
        return sum(answer is not None for answer in self.answers)


class _Here:
    """A model that cannot be loaded elsewhere: asked here on a thread, with its input copied."""

    def __init__(self, model: OwnModel, timeout: float):
        self.model, self.timeout = model, timeout

    def replied(self, records: Sequence[Record]) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        request = {"do": "answer", "records": deepcopy([dict(r) for r in records])}
        thread = threading.Thread(
            target=lambda: found.append(respond(self.model, request)), daemon=True
        )
        limit = max(self.timeout, self.model.patience(len(records)))
        thread.start()
        thread.join(limit)
        if not found:
            raise AdapterFailed("hung", f"no answer within {limit:g} s")
        return succeeded(found[0])


def checked(
    model: str | Path | OwnModel, records: Sequence[Record], *, batch: int = 32,
    timeout: float = 60.0, again: int = 4, names: Sequence[str] | None = None,
    tolerance: float = 1e-4, say: Callable[[int, int], None] | None = None,
) -> Checked:  # fmt: skip
    """Every record answered as far as it can be, and everything that went wrong on the way.

    A model at FILE.py:NAME runs in a child process; a batch that raises, hangs or dies is asked
    again record by record, and the others go on. One batch is asked twice, and `again` records
    alone. `names` are what to call the records, by default their numbers from 1. Other objects
    are asked in this process, on a thread, where a crash cannot be caught.

        found = checked("my_adapter.py:model", records)
        for problem in found.problems:
            print(problem)
    """
    if batch < 1 or not timeout > 0:
        raise InvalidRequest(f"batch={batch}, timeout={timeout}: expected more than 0")
    if names is not None and len(names) != len(records):
        raise InvalidRequest(f"{len(names)} names for {len(records)} records: expected one each")
    called = [str(i + 1) for i in range(len(records))] if names is None else list(names)
    with _runner(model, timeout) as runner:
        checking = _Checking(runner, records, called, tolerance)
        try:
            good = checking.all(batch, say)
            checking.kinds()
            checking.twice(good)
            checking.alone(again)
        except AdapterFailed as error:  # one that concerns all records
            checking.tell("stopped", (), f"stopped: {error}")
    return Checked(
        checking.answers, tuple(checking.problems), checking.seconds, not isinstance(runner, _Here)
    )


@contextmanager
def _runner(model: str | Path | OwnModel, timeout: float) -> Iterator[Isolated | _Here]:
    if isinstance(model, Isolated):
        yield model
    elif isinstance(model, OwnModel) and model.place is None:
        yield _Here(model, timeout)
    else:
        place = model.place if isinstance(model, OwnModel) else model
        assert place is not None
        with Isolated(place, timeout=timeout) as child:
            yield child


class _Checking:
    """One pass over the records: the answers and problems so far."""

    def __init__(
        self, runner: Isolated | _Here, records: Sequence[Record], names: Sequence[str],
        tolerance: float,
    ):  # fmt: skip
        self.runner, self.records, self.names = runner, records, names
        self.tolerance = tolerance
        self.answers: list[Any] = [None] * len(records)
        self.problems: list[Problem] = []
        self.seconds = 0.0

    def tell(self, kind: str, places: Sequence[int], text: str) -> None:
        self.problems.append(Problem(kind, tuple(places), text))

    def all(self, batch: int, say: Callable[[int, int], None] | None) -> list[int]:
        """Asks everything; gives the first batch that went through as a whole."""
        good: list[int] = []
        empty = 0
        for begin in range(0, len(self.records), batch):
            places = list(range(begin, min(begin + batch, len(self.records))))
            if self._batch(places):
                good = good or places
            empty = 0 if any(self.answers[p] is not None for p in places) else empty + 1
            if say:
                say(places[-1] + 1, len(self.records))
            rest = range(places[-1] + 1, len(self.records))
            if empty == EMPTY and rest:
                text = f"given up after {EMPTY} batches in a row without an answer"
                self.tell("not asked", rest, f"{self._called(rest)} not asked: {text}")
                break
        return good

    def kinds(self) -> None:
        """Answers of another kind than most."""
        kinds = [None if a is None else _kind(a) for a in self.answers]
        there = [kind for kind in kinds if kind is not None]
        if len(set(there)) < 2:
            return
        most = max(set(there), key=there.count)
        other = [p for p, kind in enumerate(kinds) if kind not in (None, most)]
        self.tell(
            "mixed", other, f"{self._called(other)} answered with {kinds[other[0]]}, where most "
            f"answers are {most}",
        )  # fmt: skip

    def twice(self, places: Sequence[int]) -> None:
        """The same batch once more: the same answers?"""
        if not places or (found := self._again(places, "asked a second time")) is None:
            return
        for place, (first, second) in self._unlike(places, found).items():
            self.tell(
                "not deterministic", [place], f"{self._called([place])} asked twice, it said "
                f"{first!r} and then {second!r}",
            )  # fmt: skip

    def alone(self, again: int) -> None:
        """A few records alone: the same answers as among others?"""
        random = {
            p for one in self.problems if one.kind == "not deterministic" for p in one.records
        }
        there = [p for p, a in enumerate(self.answers) if a is not None]
        steady = [] if random else there
        step = max(1, len(steady) // max(1, again))
        for place in steady[::step][:again]:
            found = self._again([place], "asked alone")
            if found is None:
                continue
            for first, second in self._unlike([place], found).values():
                self.tell(
                    "depends on its batch", [place], f"{self._called([place])} {first!r} in its "
                    f"batch and {second!r} alone: answers depend on the batch",
                )  # fmt: skip

    def _batch(self, places: Sequence[int]) -> bool:
        try:
            self._keep(places, self._asked(places))
            return True
        except AdapterFailed as error:
            if error.kind == "stopped":
                raise
            if len(places) == 1:
                self._failed(places[0], error)
                return False
            before, together = len(self.problems), error
        hangs = 0
        for number, place in enumerate(places):
            try:
                self._keep([place], self._asked([place]))
                hangs = 0
            except AdapterFailed as error:
                if error.kind == "stopped":
                    raise
                self._failed(place, error)
                hangs = hangs + 1 if error.kind == "hung" else 0
            rest = places[number + 1 :]
            if hangs == HANGS and rest:
                self.tell(
                    "not asked", rest, f"{self._called(rest)} not asked: {HANGS} hung in a row"
                )
                break
        if len(self.problems) == before:
            self.tell(
                together.kind, places, f"{self._called(places)} together, {together}; one by "
                "one they are answered",
            )  # fmt: skip
        return False

    def _asked(self, places: Sequence[int]) -> dict[str, Any]:
        begun = time.perf_counter()
        reply = self.runner.replied([self.records[p] for p in places])
        self.seconds += time.perf_counter() - begun
        return reply

    def _keep(self, places: Sequence[int], reply: dict[str, Any]) -> None:
        for at, what in reply["wrong"].items():
            self.tell("wrong", [places[int(at)]], f"{self._called([places[int(at)]])} "
                      f"{unlike(what)}")  # fmt: skip
        for at, why in reply["refused"].items():
            self.tell("refused", [places[int(at)]], f"{self._called([places[int(at)]])} {why}")
        for at, what in reply["changed"].items():
            self.tell("changed its input", [places[int(at)]], f"{self._called([places[int(at)]])} "
                      f"the adapter changed its input, {what}")  # fmt: skip
        for at, (place, answer) in enumerate(zip(places, reply["answers"], strict=True)):
            if str(at) not in reply["wrong"]:
                self.answers[place] = answer
        whole(reply)  # what was answered before a stop is kept

    def _again(self, places: Sequence[int], how: str) -> list[Any] | None:
        try:
            return whole(self.runner.replied([self.records[p] for p in places]))["answers"]
        except AdapterFailed as error:
            if error.kind == "stopped":
                raise
            self.tell(error.kind, places, f"{self._called(places)} {how}, {error}")
            return None

    def _unlike(self, places: Sequence[int], found: Sequence[Any]) -> dict[int, tuple[Any, Any]]:
        pairs = {p: (self.answers[p], b) for p, b in zip(places, found, strict=True)}
        there = {p: pair for p, pair in pairs.items() if pair[0] is not None}
        return {p: pair for p, pair in there.items() if not alike(*pair, self.tolerance)}

    def _failed(self, place: int, error: AdapterFailed) -> None:
        self.tell(error.kind, [place], f"{self._called([place])} {error}")

    def _called(self, places: Sequence[int]) -> str:
        if len(places) == 1:
            return f"record {self.names[places[0]]}:"
        return f"records {self.names[places[0]]} to {self.names[places[-1]]}:"


def _kind(answer: Any) -> str:
    names = {str: "text", bool: "yes or no", int: "numbers", float: "numbers", list: "lists",
             dict: "answers in parts"}  # fmt: skip
    return names[type(answer)]
