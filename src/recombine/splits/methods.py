"""Ways to divide rows into training, test and validation, each with its own guarantee."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int
from scipy import sparse

from recombine.errors import InvalidRequest, unknown
from recombine.seeds import host_seed
from recombine.splits.divergence import compounds
from recombine.splits.pieces import (
    Labels,
    combination_labels,
    piece_label,
    pieces,
    stand_ins,
    together,
)
from recombine.splits.searching import TEST, UNUSED, Goal, search
from recombine.tables.rows import Rows

PARTS = ("train", "test", "validation", "unused")
TRAINED, TESTED, VALIDATED, LEFT_OUT = range(4)
NEARLY = 0.05  # a part within this share of its size is said to have been met
_MOST_OFF = 1.5  # pieces that would make the test larger than this times what was asked


@dataclass(frozen=True)
class SplitSpec:
    """What to divide by, how much to hold out, and the seed of all choices.

    `share` and `validation` are shares of the rows. `target_divergence`, `atom_limit`, `unused`
    (the share of rows that may be left out) and `triples` belong to the method "divergence";
    without a target the compound divergence is made as large as possible.
    """

    method: str = "random"
    share: float = 0.2
    validation: float = 0.0
    seed: int = 0
    target_divergence: float | None = None
    atom_limit: float = 0.02
    unused: float = 0.0
    triples: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        if not 0 < self.share < 1:
            raise InvalidRequest(f"share={self.share}: expected more than 0 and less than 1")
        if not 0 <= self.validation < 1:
            raise InvalidRequest(f"validation={self.validation}: expected 0 or more, less than 1")
        if self.method != "divergence" and (self.unused or self.target_divergence is not None):
            raise InvalidRequest(
                f"method={self.method!r} takes no target divergence and leaves no rows out: "
                "use the method divergence"
            )
        if not 0 <= self.unused < 1 or self.share + self.validation + self.unused >= 1:
            total = self.share + self.validation + self.unused
            raise InvalidRequest(
                f"test, validation and unused rows take {total:.0%} of the file, which leaves "
                "nothing to train on: ask for less"
            )
        if self.target_divergence is not None and not 0 <= self.target_divergence <= 1:
            raise InvalidRequest(
                f"target_divergence={self.target_divergence}: expected 0 to 1, such as .7"
            )
        if not 0 <= self.atom_limit <= 1:
            raise InvalidRequest(f"atom_limit={self.atom_limit}: expected 0 to 1, such as .02")


@dataclass(frozen=True, eq=False)
class Split:
    """The part of each row (a place in PARTS), what was withheld, and what could not be met.

    `withheld` holds the pieces that no training row may have, as value numbers.
    """

    spec: SplitSpec
    part: Int[np.ndarray, " row"]
    withheld: tuple[tuple[int, ...], ...] = ()
    unmet: tuple[str, ...] = ()

    def rows_of(self, part: str) -> Int[np.ndarray, " place"]:
        """The places of the rows of one part."""
        if part not in PARTS:
            raise unknown("part", part, PARTS)
        return np.flatnonzero(self.part == PARTS.index(part))


@dataclass(frozen=True, eq=False)
class _Held:
    """Rows to hold out of the rows given, before they get the name of a part."""

    rows: Bool[np.ndarray, " row"]
    withheld: tuple[tuple[int, ...], ...] = ()
    unmet: tuple[str, ...] = ()
    dropped: Bool[np.ndarray, " row"] | None = None


def split(rows: Rows, spec: SplitSpec, blocks: Labels | None = None) -> Split:
    """Divides rows; those with the same number in `blocks` (groups, duplicates) stay together.

    Validation rows are held out of what is left in the same way as test rows were, so they are as
    new to training as the test is.

    >>> from recombine.tables.rows import Factor
    >>> rows = Rows("toy", (Factor("a", ("p", "q"), np.arange(100) % 2),))
    >>> np.bincount(split(rows, SplitSpec("random", share=0.2)).part).tolist()
    [80, 20]
    """
    count = len(rows)
    if count < 2:
        raise InvalidRequest(f"{rows.source} has {count} rows: a split needs at least two")
    blocks = np.arange(count) if blocks is None else together(np.asarray(blocks))
    if len(blocks) != count:
        raise InvalidRequest(f"{len(blocks)} block numbers for {count} rows: give one each")
    if blocks.max() == 0:
        raise InvalidRequest(
            f"{rows.source}: groups and duplicates tie all rows together, so they cannot be "
            "divided: use a finer group column, a higher --near, or --allow-duplicates"
        )
    method = METHODS[spec.method]
    part = np.full(count, TRAINED)
    held = method(rows, blocks, spec, spec.share * count, "test")
    part[held.rows] = TESTED
    if held.dropped is not None:
        part[held.dropped] = LEFT_OUT
    withheld, unmet = list(held.withheld), list(held.unmet)
    if spec.validation:
        rest = np.flatnonzero(part == TRAINED)
        few = together(blocks[rest])
        if few.max() == 0:
            raise InvalidRequest("nothing is left to divide into training and validation rows")
        again = replace(spec, seed=host_seed(spec.seed, "validation"), unused=0.0)
        further = method(rows.take(rest), few, again, spec.validation * count, "validation")
        part[rest[further.rows]] = VALIDATED
        withheld += further.withheld
        unmet += further.unmet
    if not (part == TRAINED).any():
        raise InvalidRequest("nothing is left to train on: ask for a smaller test")
    return Split(spec, part, tuple(withheld), tuple(unmet))


def _at_random(rows: Rows, blocks: Labels, spec: SplitSpec, target: float, name: str) -> _Held:
    sizes = np.bincount(blocks)
    rng = np.random.default_rng(host_seed(spec.seed, f"split/random/{name}"))
    taken = _filled(rng.permutation(len(sizes)), sizes, target)
    if not taken.any():
        raise _too_large("block of rows that stay together", sizes, spec, target, name)
    return _Held(taken[blocks], unmet=_size_note(spec, name, sizes[taken].sum(), target))


def _filled(
    order: np.ndarray,
    sizes: np.ndarray,
    target: float,
    allowed: Callable[[int], bool] | None = None,
) -> Bool[np.ndarray, " unit"]:
    """Units in this order as long as they fit; one more where that comes closer to the target.

    `allowed` is asked last, and what it allows is taken.
    """
    taken, total = np.zeros(len(sizes), bool), 0
    spare = []
    for unit in order.tolist():
        size = int(sizes[unit])
        if total + size <= target:
            if allowed is None or allowed(unit):
                taken[unit] = True
                total += size
        elif total + size - target < target - total:
            spare.append(unit)
    # What did not fit may still come closer than stopping short.
    for unit in sorted(spare, key=lambda one: (sizes[one], one)):
        if total + sizes[unit] - target >= target - total or sizes[unit] == sizes.sum():
            break
        if allowed is None or allowed(unit):
            taken[unit] = True
            break
    return taken


def _by_combination(rows: Rows, blocks: Labels, spec: SplitSpec, target: float, name: str) -> _Held:
    units = together(combination_labels(rows)[0], blocks)
    sizes = np.bincount(units)
    if len(sizes) == 1:
        raise InvalidRequest(
            f"{rows.source}: one set of rows that stay together holds every combination, so none "
            "can be kept out of training: name more factors, or a finer group column"
        )
    rng = np.random.default_rng(host_seed(spec.seed, f"split/combination/{name}"))
    order = rng.permutation(len(sizes))
    values = pieces(rows, 1, units).holds
    left = np.asarray(values.sum(axis=0)).reshape(-1)

    def covers(unit: int) -> bool:
        """Whether training keeps every value without this unit; if so, lets the unit go."""
        at = slice(values.indptr[unit], values.indptr[unit + 1])
        if (left[values.indices[at]] <= values.data[at]).any():
            return False
        left[values.indices[at]] -= values.data[at]
        return True

    taken = _filled(order, sizes, target, covers)
    unmet: tuple[str, ...] = ()
    if not taken.any():
        taken = _filled(order, sizes, target)
        if not taken.any():
            raise _too_large("combination (with what stays with it)", sizes, spec, target, name)
        unmet = (f"no {name} combination can be held out with every value still in training",)
    unmet += _size_note(spec, name, sizes[taken].sum(), target)
    return _Held(taken[units], unmet=unmet)


def _by_piece(t: int) -> Callable[[Rows, Labels, SplitSpec, float, str], _Held]:
    """The method that withholds values (t=1) or pairs (t=2): no training row holds one."""
    what = {1: "value", 2: "pair"}[t]

    def method(rows: Rows, blocks: Labels, spec: SplitSpec, target: float, name: str) -> _Held:
        units = loose(rows, blocks)
        sizes = np.bincount(units)
        found, values = pieces(rows, t, units), pieces(rows, 1, units)
        if not len(found.members):
            raise InvalidRequest(f"{rows.source}: a {what} needs {t} factors; name more")
        own = ~stand_ins(rows)[found.members].any(axis=1)
        rng = np.random.default_rng(host_seed(spec.seed, f"split/{what}/{name}"))
        order = rng.permutation(np.flatnonzero(own))
        owners = found.holds.tocsc()
        weight = np.array([  # rows that would go: whole units, not only those with the piece
            sizes[owners.indices[owners.indptr[p] : owners.indptr[p + 1]]].sum() for p in order
        ])  # fmt: skip
        kept = _withheld(order, owners, values, sizes, target, t, found.members, weight)
        unmet: tuple[str, ...] = ()
        if not kept[1] and len(order):
            kept = _withheld(order, owners, values, sizes, target, 0, found.members, weight)
            if kept[1]:
                unmet = (f"no {what} can be withheld for {name} with every other value trained",)
        if not kept[1]:
            asked = _share(spec, name, target, target)
            least = f"{_share(spec, name, weight.min(), target):.3f}" if len(order) else "none"
            raise InvalidRequest(
                f"{rows.source}: no {what} is small enough for a {name} share of "
                f"{asked:.3f} (the smallest takes {least}): ask for a larger share, "
                "name a factor with more values, or use another method"
            )
        held = kept[0][units]
        unmet += _size_note(spec, name, int(held.sum()), target)
        return _Held(held, tuple(tuple(map(int, found.members[p])) for p in kept[1]), unmet)

    return method


def _withheld(
    order: np.ndarray, owners, values, sizes: np.ndarray, target: float, t: int,
    members: np.ndarray, weight: np.ndarray,
) -> tuple[Bool[np.ndarray, " unit"], list[int]]:  # fmt: skip
    """Pieces in this order whose units fit, and the units that go; t=0 does not mind coverage."""
    taken, chosen, total = np.zeros(len(sizes), bool), [], 0
    left = values.rows.astype(np.int64)
    number_of = {int(m[0]): place for place, m in enumerate(values.members)}
    gone: set[int] = set()
    spare: list[int] = []

    def fits(piece: int, limit: float) -> bool:
        nonlocal total, left
        its = owners.indices[owners.indptr[piece] : owners.indptr[piece + 1]]
        new = its[~taken[its]]
        size = int(sizes[new].sum())
        if total + size > limit or not size:
            return False
        after = left - np.asarray(values.holds[new].sum(axis=0)).reshape(-1)
        excused = gone | ({number_of[int(members[piece][0])]} if t == 1 else set())
        if t and any(place not in excused for place in np.flatnonzero((after == 0) & (left > 0))):
            return False
        if not after.any() or total + size >= sizes.sum():
            return False
        taken[new] = True
        total, left = total + size, after
        gone.update(excused)
        chosen.append(piece)
        return True

    for piece, rows in zip(order.tolist(), weight.tolist(), strict=True):
        if total >= (1 - NEARLY) * target:
            break
        if not fits(piece, target) and total + rows - target < target - total:
            spare.append(piece)
    if total < (1 - NEARLY) * target:
        for piece in spare:
            if fits(piece, min(target + (target - total), _MOST_OFF * target)):
                break
    if not chosen and len(order):
        fits(int(order[np.argmin(weight)]), _MOST_OFF * target)
    return taken, chosen


def _by_divergence(rows: Rows, blocks: Labels, spec: SplitSpec, target: float, name: str) -> _Held:
    places = sum(f.codes.shape[1] if f.many else 1 for f in rows.factors)
    if places < 2:
        raise InvalidRequest(f"{rows.source}: compounds need two factors or more; name another")
    units = loose(rows, blocks)
    sizes = np.bincount(units)
    if len(sizes) < 4:
        raise InvalidRequest(
            f"{rows.source}: {len(sizes)} sets of rows that stay together are too few to choose "
            "from: use a finer group column, or another method"
        )
    atoms = sparse.csr_array(pieces(rows, 1, units).holds, dtype=np.float64)
    pair = compounds(rows, units, spec.triples)
    train = len(rows) - target - spec.unused * len(rows)
    # A little less than the limit, so that rounding does not break it.
    goal = Goal(target, train, spec.target_divergence, 0.99 * spec.atom_limit)
    seed = host_seed(spec.seed, f"split/divergence/{name}")
    part = search(atoms, pair, sizes, goal, seed, most_left=spec.unused * len(rows))
    held = part[units] == TEST
    return _Held(
        held,
        unmet=_size_note(spec, name, int(held.sum()), target),
        dropped=part[units] == UNUSED,
    )


def loose(rows: Rows, blocks: Labels) -> Labels:
    """The blocks, with all those that hold one and the same combination made one."""
    combos = combination_labels(rows)[0]
    low, high = np.full(blocks.max() + 1, len(rows)), np.full(blocks.max() + 1, -1)
    np.minimum.at(low, blocks, combos)
    np.maximum.at(high, blocks, combos)
    alone = (low == high)[blocks]
    return np.unique(np.where(alone, combos, len(rows) + blocks), return_inverse=True)[1]


def withheld_labels(rows: Rows, made: Split) -> list[str]:
    """What no training row may hold, in words."""
    return [piece_label(rows, members) for members in made.withheld]


def _share(spec: SplitSpec, name: str, rows: float, target: float) -> float:
    """The share of the whole file that so many rows are, where `target` rows were asked for.

    Validation rows are drawn from what the test left, and yet asked for as a share of the file.
    """
    return rows / target * (spec.share if name == "test" else spec.validation)


def _size_note(spec: SplitSpec, name: str, got: int, target: float) -> tuple[str, ...]:
    if abs(got - target) <= max(1.0, NEARLY * target):
        return ()
    asked, found = (_share(spec, name, rows, target) for rows in (target, got))
    return (f"{name} was to be {asked:.1%} of the rows and is {found:.1%}",)


def _too_large(
    what: str, sizes: np.ndarray, spec: SplitSpec, target: float, name: str
) -> InvalidRequest:
    least = _share(spec, name, sizes.min(), target)
    return InvalidRequest(
        f"the smallest {what} takes {least:.1%} of the rows, too much for the {name} "
        f"part: ask for a share of about {least:.2g}, or divide by something finer "
        "(another --group, more factors)"
    )


METHODS: dict[str, Callable[[Rows, Labels, SplitSpec, float, str], _Held]] = {
    "random": _at_random,
    "combination": _by_combination,
    "pair": _by_piece(2),
    "value": _by_piece(1),
    "divergence": _by_divergence,
}
