"""Labels that disagree with others of the same combination: noise, and where it gathers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from recombine.audits.slices import Slice, slices, wilson
from recombine.lab.intervals import Interval
from recombine.tables.counting import Combinations, combinations
from recombine.tables.rows import Rows

LEAST_ROWS = 5  # of a combination, before one of its labels can be called the odd one out
DETERMINED = 0.8  # of the rows agree with their combination: the factors decide the label
CLEARLY = 0.98  # the confidence with which fewer than so many agree, for a part to be left out
EXPLAINED = 0.5  # of the labels that are not the commonest of all are explained by the factors


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """How many labels differ from the commonest one of their combination.

    Where the factors do not decide the label (`determined` is false), differing is no error, and
    nothing is suspected. They decide it if four rows in five agree with their combination, and if
    this explains half of the labels that differ from the commonest of all: a label that is the
    same for nine rows in ten agrees with anything. Values and combinations in which clearly fewer
    than four in five agree are `undecided` (their rows are counted) and left out: what parts their
    rows is in no column, or within a bin of numbers. One that may have more noise by chance stays
    in `share`, for a share of those with little noise would be too low; but its rows are no
    `suspects`. `gathers` are the slices in which labels disagree more than elsewhere.
    """

    share: Interval
    determined: bool
    suspects: tuple[str, ...]
    gathers: tuple[Slice, ...]
    rows: int
    undecided: int = 0

    @property
    def alarm(self) -> bool:
        """Whether labels are suspected of being wrong."""
        return self.determined and bool(self.suspects)

    def sentence(self) -> str:
        share = (
            f"{self.share.estimate:.1%} of labels ({self.share.low:.1%} to {self.share.high:.1%})"
        )
        if not self.rows:
            return f"No combination has {LEAST_ROWS} rows: labels cannot be compared."
        if not self.determined:
            return f"The factors do not decide the label ({share} differ within a combination)."
        aside = ""
        if self.undecided:
            aside = f" ({self.undecided:,} rows are left out: their factors do not decide it)"
        if not self.alarm:
            return f"Every label agrees with the others of its combination{aside}."
        where = f"; most of all where {self.gathers[0].label}" if self.gathers else ""
        return f"{share} disagree with the others of their combination{where}{aside}."


def label_noise(rows: Rows, labels: Sequence[object] | np.ndarray) -> LabelNoise:
    """Compares the label of each row with those of the other rows of its combination.

    >>> from recombine.tables.rows import Factor
    >>> rows = Rows("toy", (Factor("a", ("x", "y"), np.arange(40) % 2),))
    >>> label_noise(rows, ["odd" if n % 2 else "even" for n in range(40)]).sentence()
    'Every label agrees with the others of its combination.'
    """
    codes, kinds = _coded(labels)
    found = combinations(rows)
    # Only pairs of combination and label that occur: a label may have as many values as rows.
    pairs, counts = np.unique(found.inverse * kinds + codes, return_counts=True)
    line, kind = pairs // kinds, pairs % kinds
    order = np.lexsort((-kind, counts))  # the commonest comes last and stays, of equals the first
    agreeing, commonest = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
    agreeing[line[order]], commonest[line[order]] = counts[order], kind[order]
    enough = found.counts >= LEAST_ROWS
    total = int(found.counts[enough].sum())
    differing = total - int(agreeing[enough].sum())
    overall = np.bincount(kind, counts * enough[line], minlength=kinds)
    apart = total - int(overall.max(initial=0))  # from the commonest of all
    determined = bool(total) and (
        differing <= (1 - DETERMINED) * total and differing <= (1 - EXPLAINED) * apart
    )
    kept, clear = (
        enough & _decided(found, agreeing, enough, rule) if determined else enough
        for rule in (_may_agree, _agree)
    )
    told = int(found.counts[kept].sum())
    wrong = told - int(agreeing[kept].sum())
    low, high = (float(end) for end in wilson(wrong, told))
    compared = clear[found.inverse]
    odd: Bool[np.ndarray, " row"] = compared & (codes != commonest[found.inverse])
    gathers = slices(rows.take(compared), odd[compared]) if determined and odd.any() else []
    return LabelNoise(
        Interval(wrong / told if told else 0.0, low, high, told, "Wilson", 0.95),
        determined,
        tuple(rows.name_of(np.flatnonzero(odd))) if determined else (),
        tuple(gathers),
        told,
        total - told,
    )


def _agree(agreeing: np.ndarray, size: np.ndarray) -> Bool[np.ndarray, " part"]:
    return agreeing >= DETERMINED * size


def _may_agree(agreeing: np.ndarray, size: np.ndarray) -> Bool[np.ndarray, " part"]:
    """Whether noise alone may have taken so many labels: leaving those out would hide it."""
    return wilson(agreeing, size, CLEARLY)[1] >= DETERMINED


def _decided(
    found: Combinations,
    agreeing: Int[np.ndarray, " combination"],
    enough: np.ndarray,
    rule: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Bool[np.ndarray, " combination"]:
    """Which combinations have a label of their own, as do all combinations of each of their values.

    A small combination may agree by chance where the others of its value do not.
    """
    decided = rule(agreeing, found.counts)
    size, same = found.counts * enough, agreeing * enough
    for codes in found.codes.T:
        place = codes + 1  # of lists that end early, -1 becomes 0
        rows, agree = (np.bincount(place, weights=number) for number in (size, same))
        known = (rows == 0) | rule(agree, np.maximum(rows, 1))
        known[0] = True
        decided &= known[place]
    return decided


def _coded(labels: Sequence[object] | np.ndarray) -> tuple[Int[np.ndarray, " row"], int]:
    """The labels as numbers, and how many different ones there are."""
    given = labels if isinstance(labels, np.ndarray) else np.asarray(list(map(str, labels)), object)
    if given.dtype.kind in "OUST":  # text is told apart faster by looking it up than by sorting it
        place: dict[object, int] = {}
        codes = np.fromiter((place.setdefault(v, len(place)) for v in given), np.int64, len(given))
        return codes, len(place)
    found, codes = np.unique(given, return_inverse=True)
    return codes, len(found)
