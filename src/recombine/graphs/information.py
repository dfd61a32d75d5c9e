"""How much of an answer's symbol can be told from a few symbols of the question.

RelIG(X -> Y) = (H(Y) - H(Y | X)) / H(Y), over all questions alike: 1 when X settles Y, 0 when it
says nothing. Where it is high, a model can get Y right without doing the computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from recombine.errors import InvalidRequest, unknown
from recombine.graphs.choices import best_marks

MOST = 1_000_000  # questions that are enumerated rather than sampled
_DENSE = 1 << 24

Symbol = Int[np.ndarray, " question"]


@dataclass(frozen=True, eq=False)
class Symbols:
    """The symbols of many questions and of their answers, by name."""

    inputs: Mapping[str, Symbol]
    outputs: Mapping[str, Symbol]


def multiplication_symbols(
    width: int, height: int | None = None, *, samples: int | None = None, seed: int = 0
) -> Symbols:
    """Digits x1.. and y1.. of all pairs of numbers, and z1.. of their products, leftmost first.

    Numbers have no leading zero; a product has as many digits as both factors, zeros kept. With
    `samples`, so many pairs are drawn instead of taking all.
    """
    height = width if height is None else height
    if min(width, height) < 1:
        raise InvalidRequest(f"{width} and {height} digits: expected at least one each")
    ends = [(10 ** (n - 1), 10**n) for n in (width, height)]
    drawn = _chosen([high - low for low, high in ends], samples, seed)
    x, y = (one + low for one, (low, _) in zip(drawn, ends, strict=True))
    inputs = _digits("x", x, width) | _digits("y", y, height)
    return Symbols(inputs, _digits("z", x * y, width + height))


def subsequence_symbols(
    length: int, *, reach: int = 5, samples: int | None = None, seed: int = 0
) -> Symbols:
    """Numbers a1.. of all lists, from -reach to reach, and the marks m1.. of the best choice."""
    if length < 1 or reach < 1:
        raise InvalidRequest(f"length {length}, reach {reach}: expected at least 1")
    drawn = _chosen([2 * reach + 1] * length, samples, seed)
    values = np.stack(drawn, axis=1) - reach
    marks = best_marks(values)
    return Symbols(
        {f"a{i + 1}": values[:, i] for i in range(length)},
        {f"m{i + 1}": marks[:, i] for i in range(length)},
    )


def relative_information_gain(symbols: Symbols, given: Sequence[str], outcome: str) -> float:
    """RelIG of one symbol of the answer from some symbols of the question; nan if it never varies.

    >>> symbols = multiplication_symbols(2)
    >>> round(relative_information_gain(symbols, ["x2", "y2"], "z4"), 3)
    1.0
    >>> round(relative_information_gain(symbols, ["x2"], "z4"), 3)
    0.223
    """
    for name in given:
        if name not in symbols.inputs:
            raise unknown("symbol of the question", name, symbols.inputs)
    if outcome not in symbols.outputs:
        raise unknown("symbol of the answer", outcome, symbols.outputs)
    y = symbols.outputs[outcome]
    x = _joint([symbols.inputs[name] for name in given], len(y))
    whole = _entropy(_counts(y))
    if whole == 0:
        return float("nan")
    # H(Y | X) = H(X, Y) - H(X)
    return (whole - _entropy(_counts(_joint([x, y], len(y)))) + _entropy(_counts(x))) / whole


@dataclass(frozen=True)
class Clue:
    """Those symbols of the question that tell most about one symbol of the answer."""

    given: tuple[str, ...]
    gain: float


def strongest_clue(symbols: Symbols, outcome: str, size: int = 2) -> Clue:
    """Among all sets of so many symbols of the question, the one with the largest RelIG.

    >>> strongest_clue(multiplication_symbols(2), "z1").given
    ('x1', 'y1')
    """
    if not 1 <= size <= len(symbols.inputs):
        raise InvalidRequest(f"size {size}: expected 1 to {len(symbols.inputs)} symbols")
    found = [
        Clue(given, relative_information_gain(symbols, given, outcome))
        for given in combinations(symbols.inputs, size)
    ]
    return max(found, key=lambda clue: clue.gain)


def _chosen(sizes: Sequence[int], samples: int | None, seed: int) -> list[Symbol]:
    """One array for each factor: every combination of choices once, or so many drawn."""
    if samples is not None:
        if samples < 1:
            raise InvalidRequest(f"samples {samples}: expected at least one, such as {MOST}")
        rng = np.random.default_rng(seed)
        return [rng.integers(0, size, samples) for size in sizes]
    total = int(np.prod([float(size) for size in sizes]))
    if total > MOST:
        raise InvalidRequest(
            f"{total:,} questions are too many to enumerate: say samples={MOST:,}".replace(",", "_")
        )
    return [one.ravel() for one in np.indices(tuple(sizes)).reshape(len(sizes), -1)]


def _digits(letter: str, numbers: Symbol, width: int) -> dict[str, Symbol]:
    return {f"{letter}{i + 1}": numbers // 10 ** (width - 1 - i) % 10 for i in range(width)}


def _joint(columns: Sequence[Symbol], count: int) -> Symbol:
    """One code for each combination of symbols that occurs, small enough to be counted."""
    code = np.zeros(count, np.int64)
    for column in columns:
        shifted = column - column.min()
        code = code * (int(shifted.max()) + 1) + shifted
        if code.max() >= _DENSE:
            _, code = np.unique(code, return_inverse=True)
    return code


def _counts(codes: Symbol) -> Int[np.ndarray, " value"]:
    return np.bincount(codes)


def _entropy(counts: Int[np.ndarray, " value"]) -> float:
    share: Float[np.ndarray, " value"] = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())
