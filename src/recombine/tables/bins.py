"""Bins of a column of numbers: as many rows in each as ties allow, with edges easy to read.

A cut between two neighbouring numbers of the data may lie anywhere between them, so it is put at
the shortest number there: the bins of the data do not change, and their names stay short. A
number equal to an edge belongs below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, Context
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from recombine.tables.pieces import number_text

Pieces = Callable[[], Iterable[Float[np.ndarray, "row"]]]


def edges_of_counts(
    numbers: Float[np.ndarray, "value"], counts: Int[np.ndarray, "value"], bins: int
) -> tuple[float, ...]:
    """The edges between bins of equal counts, of different numbers and how often each occurs.

    >>> edges_of_counts(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 5, 5, 5]), 2)
    (2.0,)
    """
    order = np.argsort(numbers)
    ascending, up_to = numbers[order], np.cumsum(counts[order])
    places = np.searchsorted(up_to, _ranks(int(up_to[-1]), bins) + 1)
    # A cut above the largest number would leave a bin empty, so it moves below it.
    places = np.minimum(places, len(ascending) - 2)
    cuts = dict.fromkeys(int(place) for place in places if place >= 0)
    return tuple(sorted({between(ascending[place], ascending[place + 1]) for place in cuts}))


def edges_of_numbers(pieces: Pieces, bins: int) -> tuple[float, ...]:
    """The same edges of a column of any length, read a few times and never held; NaN is skipped.

    >>> edges_of_numbers(lambda: [np.arange(10.0), np.arange(10.0, 20)], 2)
    (9.0,)
    """
    total = sum(int(np.count_nonzero(~np.isnan(piece))) for piece in pieces())
    if total == 0:
        return ()
    lower = ranked(pieces, _ranks(total, bins))
    largest = max(_most(piece) for piece in pieces())
    if largest in lower:
        under = max(_most(piece[piece < largest]) for piece in pieces())
        lower = [under if value == largest else value for value in lower]
    cuts = sorted({value for value in lower if np.isfinite(value)})
    above = [min(_least(piece[piece > cut]) for piece in pieces()) for cut in cuts]
    return tuple(between(a, b) for a, b in zip(cuts, above, strict=True))


def ranked(pieces: Pieces, ranks: Sequence[int] | np.ndarray) -> list[float]:
    """The numbers at these places of the sorted column (from 0), exactly, 16 bits a reading.

    >>> ranked(lambda: [np.array([3.0, -1.0]), np.array([2.0, np.nan])], [0, 2])
    [-1.0, 3.0]
    """
    prefixes = [0 for _ in ranks]
    left = [int(rank) for rank in ranks]
    for shift in (48, 32, 16, 0):
        counts: dict[int, np.ndarray] = {p: np.zeros(2**16, np.int64) for p in prefixes}
        for keys in _keys(pieces):
            for prefix, count in counts.items():
                same = keys if shift == 48 else keys[keys >> np.uint64(shift + 16) == prefix]
                digits = (same >> np.uint64(shift)) & np.uint64(2**16 - 1)
                count += np.bincount(digits.astype(np.int64), minlength=2**16)
        for i, prefix in enumerate(prefixes):
            up_to = np.cumsum(counts[prefix])
            digit = int(np.searchsorted(up_to, left[i] + 1))
            left[i] -= int(up_to[digit - 1]) if digit else 0
            prefixes[i] = (prefix << 16) | digit
    return [_number(prefix) for prefix in prefixes]


def between(a: float, b: float) -> float:
    """The shortest number that is at least `a` and below `b`.

    >>> between(0.1234, 0.1391), between(1.0, 7.5), between(-3.7, 2.2), between(99.5, 1000.0)
    (0.13, 1.0, 0.0, 100.0)
    """
    if a <= 0 < b:
        return 0.0
    if float(a).is_integer() and abs(a) < 1000:
        return float(a)
    for digits in range(1, 17):
        rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(a)))
        if a <= float(rounded) < b:
            return float(rounded)
    return float(a)


def bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    """What to call the bins between edges.

    >>> bin_names((1.5, 3.0))
    ('up to 1.5', '1.5 to 3', 'above 3')
    """
    if not edges:
        return ("any number",)
    texts = [number_text(edge) for edge in edges]
    middle = [f"{a} to {b}" for a, b in pairwise(texts)]
    return (f"up to {texts[0]}", *middle, f"above {texts[-1]}")


def bin_rule(edges: Sequence[float]) -> str:
    """How the bins were made, in words.

    >>> bin_rule((1.5, 3.0))
    '3 bins of equal counts, a number on an edge belongs below it: up to 1.5, 1.5 to 3, above 3'
    """
    names = bin_names(edges)
    if len(names) == 1:
        return "1 bin, as all numbers are the same"
    kind = f"{len(names)} bins of equal counts, a number on an edge belongs below it"
    return f"{kind}: {', '.join(names)}"


def _ranks(total: int, bins: int) -> np.ndarray:
    """The last place of each bin but the last, were all numbers different."""
    return np.array([-(-k * total // bins) - 1 for k in range(1, bins)], np.int64)


def _keys(pieces: Pieces) -> Iterator[np.ndarray]:
    """Numbers as unsigned integers in the same order: the bits, with negative ones turned over."""
    top = np.uint64(2**63)
    for piece in pieces():
        # Adding nought makes one of the two noughts.
        bits = (piece[~np.isnan(piece)] + 0.0).view(np.uint64)
        yield np.where(bits & top, ~bits, bits | top)


def _number(key: int) -> float:
    bits = key ^ 2**63 if key & 2**63 else key ^ (2**64 - 1)
    return float(np.array([bits], np.uint64).view(np.float64)[0])


def _most(piece: np.ndarray) -> float:
    piece = piece[~np.isnan(piece)]
    return float(piece.max()) if len(piece) else -np.inf


def _least(piece: np.ndarray) -> float:
    return float(piece.min()) if len(piece) else np.inf
