"""The keys of many graphs of one shape at once, without making the graphs.

Each function follows the graph of the same name step by step, with a column of words for every
node that any input could have; a test holds the two together.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, UInt64

from recombine.errors import InvalidRequest
from recombine.graphs.frequency import FIRST, GAMMA, SECOND, Keys, op_code
from recombine.graphs.graph import INPUT

_LONGEST_LIST = 18

Column = UInt64[np.ndarray, " graph"]
Numbers = Int[np.ndarray, " graph"]
Flags = Bool[np.ndarray, " graph"]


class _Node:
    """One node of every graph: its values, their codes and its strict keys."""

    __slots__ = ("code", "strict", "value")

    def __init__(self, value: np.ndarray, code: Column, strict: Column):
        self.value, self.code, self.strict = value, code, strict

    def or_else(self, there: Flags, other: _Node) -> _Node:
        """This node where it is there, another where it is not."""
        return _Node(
            *(
                np.where(there, getattr(self, of), getattr(other, of))
                for of in ("value", "code", "strict")
            )
        )


class _Columns:
    """Grows both tables of keys node by node."""

    def __init__(self) -> None:
        self._strict: list[Column] = []
        self._local: list[Column] = []

    def add(
        self,
        op: str,
        value: np.ndarray,
        *parents: _Node,
        code: np.ndarray | None = None,
        there: Flags | None = None,
    ) -> _Node:
        word = (value if code is None else code).astype(np.uint64)
        strict = local = _mixed(word ^ np.uint64(op_code(op)))
        for parent in parents:
            strict = _mixed(strict ^ parent.strict)
            local = _mixed(local ^ parent.code)
        for keys, new in ((self._strict, strict), (self._local, local)):
            new = np.where(new == 0, np.uint64(1), new)
            keys.append(new if there is None else np.where(there, new, np.uint64(0)))
        return _Node(value, word, strict)

    def keys(self) -> Keys:
        return Keys(np.stack(self._strict, axis=1), np.stack(self._local, axis=1))


def _mixed(word: Column) -> Column:
    word = word + np.uint64(GAMMA)
    word ^= word >> np.uint64(30)
    word *= np.uint64(FIRST)
    word ^= word >> np.uint64(27)
    word *= np.uint64(SECOND)
    word ^= word >> np.uint64(31)
    return word


def multiplication_keys(x: Numbers, y: Numbers, *, zeros: bool = False) -> Keys:
    """The keys of `multiplication_graph(x, y)`, for pairs of numbers of the same lengths.

    >>> multiplication_keys(np.array([35, 99]), np.array([9, 8])).strict.shape
    (2, 12)
    """
    columns = _Columns()
    xs = [columns.add(INPUT, digit) for digit in _digits("x", x)]
    ys = [columns.add(INPUT, digit) for digit in _digits("y", y)]
    partials = []
    for j, y_digit in enumerate(ys):
        row = _row(columns, xs, y_digit, zeros)
        partials.append(columns.add("shift", row.value * 10**j, row))
    columns.add("sum", sum((one.value for one in partials), np.zeros_like(x)), *partials)
    return columns.keys()


def _row(columns: _Columns, xs: list[_Node], y: _Node, zeros: bool) -> _Node:
    carry: tuple[_Node, Flags] | None = None
    output: _Node | None = None
    for i, x in enumerate(xs):
        result = columns.add("times", x.value * y.value, x, y)
        if carry is not None:
            node, there = carry
            added = columns.add("add", result.value + node.value, result, node, there=there)
            result = added.or_else(there, result)
        piece, last = result, i == len(xs) - 1
        if not last:
            there = np.ones(len(x.value), bool) if zeros else result.value >= 10
            # Where there is none it is 0, and adds nothing to the next value.
            carry = columns.add("carry", result.value // 10, result, there=there), there
            piece = columns.add("digit", result.value % 10, result, there=there)
            piece = piece.or_else(there, result)
        value = piece.value * 10**i + (0 if output is None else output.value)
        written = i + 1 + (last * (piece.value >= 10))
        before = () if output is None else (output,)
        output = columns.add("concat", value, piece, *before, code=_as_text(value, written))
    assert output is not None
    return output


def _as_text(value: np.ndarray, written: np.ndarray | int) -> np.ndarray:
    """The code of a string of digits: a 1 in front keeps its zeros."""
    return value + 10 ** np.asarray(written, np.int64)


def _digits(name: str, numbers: Numbers) -> list[Numbers]:
    """The digits of numbers of the same length, units first."""
    lowest, highest = (str(int(end)) for end in (numbers.min(), numbers.max()))
    if lowest.startswith("-") or len(lowest) != len(highest):
        raise InvalidRequest(
            f"{name} goes from {lowest} to {highest}: give numbers from 0, all of one length"
        )
    numbers = numbers.astype(np.int64)
    return [numbers // 10**i % 10 for i in range(len(highest))]


def subsequence_keys(values: Int[np.ndarray, "graph place"]) -> Keys:
    """The keys of `subsequence_graph(row)` for each row, all of one length.

    >>> subsequence_keys(np.array([[3, 2, 1], [0, -1, 5]])).local.shape
    (2, 18)
    """
    n = values.shape[1]
    if not 1 <= n <= _LONGEST_LIST:
        raise InvalidRequest(f"lists of {n} numbers: expected 1 to {_LONGEST_LIST}")
    columns = _Columns()
    a = [columns.add(INPUT, column.astype(np.int64)) for column in values.T]
    best, with_it = list(a), list(a)
    for i in reversed(range(n)):
        of = a[i:]
        if i + 2 < n:
            with_it[i] = columns.add("add", a[i].value + best[i + 2].value, a[i], best[i + 2])
            of = [best[i + 1], with_it[i]]
        highest = np.maximum(np.maximum(of[0].value, of[-1].value), 0)
        best[i] = columns.add("max", highest, *of)
    marks: list[_Node] = []
    free: _Node | None = None
    for i in range(n):
        equal = best[i].value == with_it[i].value
        chosen = columns.add("equal", equal, best[i], with_it[i])
        if free is not None:
            chosen = columns.add("and", chosen.value & free.value, chosen, free)
        marks.append(columns.add("mark", np.where(chosen.value, 1, 2), chosen))
        if i + 1 < n:
            free = columns.add("not", ~chosen.value, chosen)
    joined = np.zeros(len(values), np.int64)
    for mark in marks:
        joined = joined * 10 + mark.value
    columns.add("concat", joined, *marks, code=_as_text(joined, n))
    return columns.keys()
