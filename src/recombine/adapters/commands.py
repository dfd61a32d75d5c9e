"""A model that is a program: it reads a record as a line of JSON and writes its answer as one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recombine.adapters.models import ROW, OwnModel, Record
from recombine.children.talk import Talk, TalkFailed
from recombine.errors import InvalidRequest

FIRST, LAST = 0.3, 0.02  # seconds to wait for a line too many, after the first answer and the last


class CommandModel(OwnModel):
    """A program that reads records and writes answers, one line of JSON each.

    The program is kept running. `timeout` is for one record, `start` for the first one after the
    program has started. Where it dies, it is started again and the record is asked once more. It
    answers with a value such as "red", or with an object that holds it, {"answer": "red"}; an
    object that also repeats the record's `row` is held against it.

        model = CommandModel("python my_model.py --weights best.pt")
        print(model.answer([{"colour": "red", "shape": "cube"}]))
    """

    abilities = frozenset({"answer"})

    def __init__(
        self, command: str | Sequence[str], *, name: str | None = None, timeout: float = 60.0,
        start: float = 300.0, folder: str | Path | None = None,
    ):  # fmt: skip
        words = shlex.split(command) if isinstance(command, str) else [str(w) for w in command]
        if not words:
            raise InvalidRequest("the command is empty: expected a program and its arguments")
        for option, seconds in (("timeout", timeout), ("start", start)):
            if not seconds > 0:
                raise InvalidRequest(f"{option}={seconds}: expected more than 0 seconds")
        self.name = name or Path(words[0]).name
        self.timeout, self.start = timeout, max(start, timeout)
        self._talk = Talk(words, folder=folder)

    def answer(self, records: Sequence[Record]) -> list[Any]:
        answers = [self._one(number, record) for number, record in enumerate(records, 1)]
        if self._talk.running:
            self._talk.quiet(LAST)
        return answers

    def patience(self, records: int) -> float:
        return 2 * self.start + self.timeout * records

    def close(self) -> None:
        """Ends the program; the next question starts it again."""
        self._talk.close()

    def _one(self, number: int, record: Record) -> Any:
        try:
            try:
                said = self._asked(record)
            except TalkFailed as error:
                if error.kind != "died":
                    raise
                said = self._asked(record)
        except TalkFailed as error:
            about = json.dumps(dict(record), default=str)[:120]
            raise TalkFailed(error.kind, f"record {number}, {about}: {error}") from None
        if not isinstance(said, dict) or "answer" not in said:
            return said
        if ROW in said and ROW in record and said[ROW] != record[ROW]:
            self.close()
            raise TalkFailed(
                "garbled", f"the program answered row {said[ROW]} when asked about {record[ROW]}"
            )
        return said["answer"]

    def _asked(self, record: Record) -> Any:
        if self._talk.running:
            return self._talk.ask(dict(record), self.timeout)
        said = self._talk.ask(dict(record), self.start)
        # A program that writes two lines for each record would answer each with the one before.
        self._talk.quiet(FIRST)
        return said
