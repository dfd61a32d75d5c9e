"""How the questions of a task become graphs and keys, and how written answers are read back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from recombine.errors import unknown
from recombine.graphs.arithmetic import multiplication_graph
from recombine.graphs.batches import multiplication_keys, subsequence_keys
from recombine.graphs.choices import subsequence_graph
from recombine.graphs.frequency import Keys
from recombine.graphs.graph import ComputationGraph, Written
from recombine.graphs.scratchpads import read_multiplication, read_subsequence

BATCH = 32_768


@dataclass(frozen=True)
class Workings:
    """What a task's questions are as computations, and what an answer says of each step.

    `read` takes a question and a scratchpad, `said` a question and an answer alone; both give
    values by the names of nodes, without those that were not written, or None for what cannot be
    read at all.
    """

    size: Callable[[str], str]
    graph: Callable[[str], ComputationGraph]
    keys: Callable[[Sequence[str]], Keys]  # of questions of one size
    read: Callable[[str, str], Written]
    said: Callable[[str, str], Written]

    def trained(self, sources: Sequence[str]) -> Iterator[Keys]:
        """The keys of many questions, those of one size together."""
        by_size: dict[str, list[str]] = {}
        for source in sources:
            by_size.setdefault(self.size(source), []).append(source)
        for same in by_size.values():
            for start in range(0, len(same), BATCH):
                yield self.keys(same[start : start + BATCH])


def workings_of(task: str) -> Workings:
    """The workings of a task, by the name of its family.

    >>> work = workings_of("subsequence")
    >>> work.size("3 -2 5"), work.graph("3 -2 5").answer, work.said("3 -2 5", "1 2 1")["mark[1]"]
    ('3 numbers', '121', 2)
    """
    if task not in WORKINGS:
        raise unknown("task with known workings", task, WORKINGS)
    return WORKINGS[task]


def _factors(source: str) -> tuple[int, int]:
    x, _, y = source.partition("*")
    return int(x), int(y)


def _digits(source: str) -> str:
    x, _, y = source.partition("*")
    return f"{len(x)}x{len(y)}"


def _product_keys(sources: Sequence[str]) -> Keys:
    x, y = np.asarray([_factors(source) for source in sources], np.int64).T
    return multiplication_keys(x, y, zeros=True)


def _product_said(source: str, answer: str) -> Written:
    return {"answer": int(answer)} if answer.isascii() and answer.isdecimal() else None


def _numbers(source: str) -> list[int]:
    return [int(word) for word in source.split(" ")]


def _list_keys(sources: Sequence[str]) -> Keys:
    return subsequence_keys(np.asarray([_numbers(source) for source in sources]))


def _marks_said(source: str, answer: str) -> Written:
    """Marks by their place: an answer that ends too early says what it says all the same."""
    words, count = answer.split(" "), len(source.split(" "))
    found: dict[str, Hashable] = {
        f"mark[{i}]": int(word) for i, word in enumerate(words[:count]) if word in ("1", "2")
    }
    if len(found) == count == len(words):
        found["answer"] = "".join(words)
    return found or None


WORKINGS = {
    "multiplication": Workings(
        _digits, lambda source: multiplication_graph(*_factors(source), zeros=True), _product_keys,
        lambda source, answer: read_multiplication(answer), _product_said,
    ),
    "subsequence": Workings(
        lambda source: f"{source.count(' ') + 1} numbers",
        lambda source: subsequence_graph(_numbers(source)), _list_keys,
        lambda source, answer: read_subsequence(answer, source.count(" ") + 1), _marks_said,
    ),
}  # fmt: skip
