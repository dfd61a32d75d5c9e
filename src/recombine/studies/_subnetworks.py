"""What the study of subnetworks measures, and when an ablation can speak."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from recombine.instruments.subnetworks import crowded
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.studies import _base as base

MODULES, PLANTED = "modules", "planted"
LEARNT = 0.9  # of the part's own items, under its mask
WHOLE = 0.98  # of test items, by the network without any mask
SPARED = 0.5  # of the way from chance to the whole network's score
SMALLEST = 1e-6  # error that is told from none
NAMES = {"planted": "planted halves", "mixed": "planted, rotated weights",
         "untrained": "never trained", "scratch": "from scratch",
         "rotated": "from scratch, rotated weights",
         "decayed": "from scratch, with decay",
         "decayed-rotated": "from scratch, with decay, rotated weights"}  # fmt: skip
Number = Callable[[Row], float]
Network = tuple[str, int]  # task and seed


def dosed(dose: float) -> str:
    return f"dose {dose:g}"


def dose_of(condition: str) -> float:
    return float(condition.removeprefix("dose ")) if condition.startswith("dose") else 0.0


def told(condition: str) -> str:
    return NAMES.get(condition, f"pretrained, {condition}")


def ablation(row: Row) -> float:
    return row.value("subnetworks", "ablation")


def chance(row: Row) -> float:
    """The score of a network that knows nothing: what a planted part falls to without its mask."""
    return row.value("subnetworks", "ablation_own", "planted")


def without(row: Row, which: str, control: str | None = None) -> float:
    """What is left of a part ("own" or "other") without the mask, or without a control's weights;
    scores below chance are raised to it."""
    return max(row.value("subnetworks", f"ablation_{which}", control), chance(row))


def harm_beyond_random(row: Row) -> float:
    """The own part's score without its mask, minus that without as many weights at random.

    Own minus other of weights at random is no control for two rules: what it is for one rule it is
    not for the other, and their mean is zero whatever the network. So each part is compared with
    what as many weights at random do to that part. As many that the mask does *not* keep are no
    fair measure: they spare what the part needs, so that any mask looks selective beside them.
    """
    return without(row, "own") - without(row, "own", "random")


def spared_beyond_random(row: Row) -> float:
    """The same for the other part: above zero, it is spared more than by weights at random."""
    return without(row, "other") - without(row, "other", "random")


def beyond_complement(row: Row) -> float:
    """Own minus other without the mask, less the same without as many that it does not keep.

    The published criterion asks for it, and it is the easier one: see `harm_beyond_random`.
    """
    return ablation(row) - row.value("subnetworks", "ablation", "complement")


def matched(row: Row) -> bool:
    """Whether as many weights of every layer as the mask keeps are there beside them."""
    return not crowded(row.readings["subnetworks"].tables["layers"])


def hurts_beyond_random(row: Row) -> float:
    """How many times more (log2) ablating a module's weights multiplies the error on tasks with it
    than on those without, beyond as many weights at random, under which the two differ also.

    Errors have no floor as scores raised to chance have: where an ablation ruins both kinds of
    task, their errors can still be told apart.
    """
    by_mask, by_chance = (
        error_ratio(*(row.value("subnetworks", f"ablation_{of}", control)
                      for of in ("own", "other")))
        for control in (None, "random")
    )  # fmt: skip
    return by_mask - by_chance


def error_ratio(own: float, other: float) -> float:
    """The ratio of two errors (1 - R²), as log2; what the whole network has cancels.

    >>> error_ratio(own=0.0, other=0.75)
    2.0
    """
    return math.log2(max(1 - own, SMALLEST) / max(1 - other, SMALLEST))


def knows(row: Row) -> bool:
    """Whether the network does both rules (or the module's student its task)."""
    least = min(row.value("subnetworks", f"whole_{which}") for which in ("own", "other"))
    return least >= (WHOLE if row.labels["kind"] != MODULES else 0.8)


def usable(results: Results, condition: str, **labels: Any) -> tuple[list[Row], str]:
    """Masks that learnt their part, over networks that know their task; and what is left out.

    Networks that were never trained know nothing: of them only the masks must have learnt. Of
    students no more is asked than that they know their task: masks learn single modules from few
    combinations, and their score is R²; how many learnt is said beside. Masks over a planted
    network must find its parts, so none of them is left out for not having learnt.
    """
    rows = [row for row in results.where(condition=condition, **labels)
            if not row.diverged and "subnetworks" in row.readings]  # fmt: skip
    able = [row for row in rows if condition == "untrained" or knows(row)]
    kept = [
        row for row in able
        if row.labels["kind"] == MODULES or condition == PLANTED
        or row.value("subnetworks", "learnt") >= LEARNT
    ]  # fmt: skip
    words = []
    if len(able) < len(rows):
        words.append(f"{len(rows) - len(able)} masks over networks that do not know their task")
    if len(kept) < len(able):
        words.append(f"{len(able) - len(kept)} masks that did not learn their part")
    both = of_both_rules(kept)
    if len(both) < len(kept):
        words.append(
            f"{len(kept) - len(both)} masks whose network has none left for its other rule"
        )
    return both, f"Left out: {', '.join(words)}." if words else ""


def of_both_rules(rows: Sequence[Row]) -> list[Row]:
    """Those of networks that still have masks for both their rules; modules stand alone.

    One rule may be lost more easily than the other, whatever is taken out. Own minus other has this
    with one sign for the one and with the other sign for the other: in the mean of both it is gone,
    and for one alone it would pass for a part. Modules are compared with weights at random, under
    which they differ as much.
    """
    rules: dict[Network, set[int]] = {}
    for row in rows:
        rules.setdefault(network(row), set()).add(row.labels["rule"])
    return [row for row in rows if row.labels["kind"] == MODULES or len(rules[network(row)]) > 1]


def network(row: Row) -> Network:
    """Which network a mask lies over, among those of one kind, width and condition."""
    return row.labels["task"], row.labels["seed"]


def by_network(rows: Sequence[Row], number: Number) -> dict[Network, float]:
    """The mean over parts and mask seeds, for each network."""
    found: dict[Network, list[float]] = {}
    for row in rows:
        found.setdefault(network(row), []).append(number(row))
    return {which: float(np.mean(values)) for which, values in found.items()}


def by_rule(rows: Sequence[Row], number: Number) -> dict[Network, list[float]]:
    """For each network its rules, each the mean over mask seeds."""
    found: dict[tuple[Network, int], list[float]] = {}
    for row in rows:
        found.setdefault((network(row), row.labels["rule"]), []).append(number(row))
    rules: dict[Network, list[float]] = {}
    for (which, _), values in found.items():
        rules.setdefault(which, []).append(float(np.mean(values)))
    return rules


def overall(rows: Sequence[Row], number: Number) -> float:
    """The mean over networks."""
    return float(np.mean(list(by_network(rows, number).values())))


def half_way(rows: Sequence[Row], which: str) -> float:
    """From chance to what the whole network can do of a part."""
    low = overall(rows, chance)
    return low + SPARED * (overall(rows, lambda row: row.value("subnetworks", f"whole_{which}"))
                           - low)  # fmt: skip


def left(rows: Sequence[Row], condition: str, note: str) -> str:
    """What is left without the masks and without as many weights at random, in words."""
    names = [("density", None), ("ablation_own", None), ("ablation_other", None),
             ("ablation_own", "random"), ("ablation_other", "random")]  # fmt: skip
    kept, own, other, own_random, other_random = (
        overall(rows, lambda row, pair=pair: row.value("subnetworks", *pair)) for pair in names
    )
    said = (
        f"{told(condition).capitalize()}: without the mask ({kept:.2f} of the weights) own "
        f"{own:.2f}, other {other:.2f}; without as many at random {own_random:.2f} and "
        f"{other_random:.2f}."
    )
    if rows[0].labels["kind"] == MODULES:  # none of these is left out for not having learnt
        said += f" {learnt(rows)} of {len(rows)} masks learnt their module (R² from {LEARNT:g})."
    return _joined([said, note])


def speaks(rows: Sequence[Row], condition: str, note: str) -> str:
    """What is left, for the note; or NotTested where the other part cannot be spared.

    Where a mask ruins both parts and as many weights at random ruin the other one too, too many
    were taken out. Where these spare it, the mask holds what both parts need, and that it does not
    part them is a finding. This is asked of all networks of a kind together: leaving out single
    masks that ruin both would select by what is then reported. Untrained networks know nothing
    that could be spared.
    """
    said, bar = left(rows, condition, note), half_way(rows, "other")
    scores = [overall(rows, lambda row, c=c: without(row, "other", c)) for c in (None, "random")]
    if condition != "untrained" and max(scores) < bar:
        raise NotTested(
            "Both ablations, of the mask and of as many weights at random, ruin the other part, so "
            f"that nothing can be parted: its score is below {bar:.3g}, half way from chance to "
            f"that of the whole network. {said}"
        )
    return said


def harm_speaks(rows: Sequence[Row], condition: str, note: str) -> str:
    """The same where the own part is compared with weights at random, which must spare it."""
    said, bar = speaks(rows, condition, note), half_way(rows, "own")
    if overall(rows, lambda row: without(row, "own", "random")) < bar:
        raise NotTested(
            "As many weights at random ruin the part too (its score is below "
            f"{bar:.3g}), so that its mask cannot do it more harm. {said}"
        )
    return said


def sparing_speaks(rows: Sequence[Row], condition: str, note: str) -> str:
    """The same for the other part: one of the two ablations must spare it, and one must harm it.

    A mask that ruins the other part, where weights at random do not, speaks against the claim.
    """
    said, bar = left(rows, condition, note), half_way(rows, "other")
    scores = [overall(rows, lambda row, c=c: without(row, "other", c)) for c in (None, "random")]
    if max(scores) < bar:
        raise NotTested(f"Both ablations ruin the other part (below {bar:.3g}). {said}")
    whole = overall(rows, lambda row: row.value("subnetworks", "whole_other"))
    if min(scores) >= WHOLE * whole:
        raise NotTested(f"Neither ablation harms the other part: no more can be spared. {said}")
    return said


Speaks = Callable[[Sequence[Row], str, str], str]


def _beside_rotated(results: Results, condition: str, kind: str) -> list[str]:
    """What rotated weights, of which none belongs to a part, give by the same measure."""
    twin = {"scratch": "rotated", PLANTED: "mixed", "decayed": "decayed-rotated"}.get(condition)
    rows, _ = usable(results, twin, kind=kind) if twin else ([], "")
    if not rows:
        return []
    return [f"In rotated weights, of which none belongs to a rule: {overall(rows, ablation):.2f}."]


def over_rules(
    condition: str, kind: str, combine: Callable[[list[float]], float], number: Number = ablation
) -> Callable[[Results], Evidence]:
    """One number for each network, from those of its rules: the worse one, or a share.

    Planted parts must be found: where they are not, for whatever reason, the control fails.
    """

    def measure(results: Results) -> Evidence:
        rows, note = usable(results, condition, kind=kind)
        values = [combine(rules) for rules in by_rule(rows, number).values()]
        base.require(np.asarray(values), "Networks", note=note)
        say = left if condition == PLANTED else speaks
        notes = [say(rows, condition, note)]
        return Evidence.of_values(
            values, _joined([*notes, *_beside_rotated(results, condition, kind)])
        )

    return measure


def mean(
    condition: str, kind: str, number: Number, can_speak: Speaks = speaks, **labels: Any
) -> Callable[[Results], Evidence]:
    """The mean over networks of one kind, where its ablations can speak."""

    def measure(results: Results) -> Evidence:
        rows, note = usable(results, condition, kind=kind, **labels)
        values = np.asarray(list(by_network(rows, number).values()))
        base.require(values, "Networks", note=note)
        notes = [can_speak(rows, condition, note)]
        if number is ablation:
            notes += _beside_rotated(results, condition, kind)
        return Evidence.of_values(values, _joined(notes))

    return measure


def than_complement(condition: str, kind: str) -> Callable[[Results], Evidence]:
    """The mean over networks of `beyond_complement`, by masks that have as many weights beside."""

    def measure(results: Results) -> Evidence:
        able, note = usable(results, condition, kind=kind)
        rows = of_both_rules([row for row in able if matched(row)])
        if len(rows) < len(able):
            fewer = (
                f"{len(able) - len(rows)} of {len(able)} masks are not used: they, or those for "
                "the other rule of their network, keep more than half of a layer, so that there "
                "are not as many others."
            )
            note = _joined([note, fewer])
        values = np.asarray(list(by_network(rows, beyond_complement).values()))
        base.require(values, "Networks", note=note)
        own, other = (
            overall(rows, lambda row, w=which: row.value("subnetworks", f"ablation_{w}",
                                                         "complement"))
            for which in ("own", "other")
        )  # fmt: skip
        beside = f"Without as many that the mask does not keep {own:.2f} and {other:.2f}."
        return Evidence.of_values(values, _joined([speaks(rows, condition, note), beside]))

    return measure


def difference(
    kind: str, first: str, second: str, number: Number, **labels: Any
) -> Callable[[Results], Evidence]:
    """One condition minus another, for each seed that has both."""

    def measure(results: Results) -> Evidence:
        kinds = [(c, *usable(results, c, kind=kind, **labels)) for c in (first, second)]
        one, two = (by_network(rows, number) for _, rows, _ in kinds)
        return Evidence.of_values(*_paired(kinds, one, two))

    return measure


def rise(
    kind: str, first: str, second: str, share: Callable[[list[float]], float], least: float
) -> Callable[[Results], Evidence]:
    """By how much a share of rules is higher in one condition than in another, for each seed.

    A share that has no room for a rise of `least` says nothing about one.
    """

    def measure(results: Results) -> Evidence:
        kinds = [(c, *usable(results, c, kind=kind)) for c in (first, second)]
        one, two = (
            {seed: share(rules) for seed, rules in by_rule(rows, ablation).items()}
            for _, rows, _ in kinds
        )
        values, note = _paired(kinds, one, two)
        before = float(np.mean([two[seed] for seed in one.keys() & two.keys()]))
        if before > 1 - least:
            raise NotTested(
                f"{told(second).capitalize()} the share is {before:.2f} already: it cannot rise by "
                f"{least:g}. {note}"
            )
        return Evidence.of_values(values, f"{told(second).capitalize()}: {before:.2f}. {note}")

    return measure


def _paired(
    kinds: Sequence[tuple[str, list[Row], str]],
    one: dict[Network, float],
    two: dict[Network, float],
) -> tuple[list[float], str]:
    """What one kind of network has more than the other, by seed, and what is left in each."""
    both = sorted(one.keys() & two.keys())
    if len(both) < 2:
        notes = [f"{told(c).capitalize()}: {note}" for c, _, note in kinds if note]
        raise NotTested(f"Needs two networks of both kinds. {_joined(notes)}")
    notes = [speaks(rows, condition, note) for condition, rows, note in kinds]
    return [one[seed] - two[seed] for seed in both], _joined(notes)


def wider(small: int, large: int) -> Callable[[Results], Evidence]:
    """Students of one width minus those of another, for each seed that has both."""

    def measure(results: Results) -> Evidence:
        kinds = [usable(results, "scratch", kind=MODULES, width=width) for width in (large, small)]
        high, low = (by_network(rows, hurts_beyond_random) for rows, _ in kinds)
        both = sorted(high.keys() & low.keys())
        if len(both) < 2:
            said = _joined([note for _, note in kinds])
            raise NotTested(f"Needs two seeds at both widths. {said}")
        notes = [speaks(rows, "scratch", note) for rows, note in kinds]
        return Evidence.of_values([high[s] - low[s] for s in both], _joined(notes))

    return measure


def learnt(rows: Sequence[Row]) -> int:
    return sum(row.value("subnetworks", "learnt") >= LEARNT for row in rows)


def _joined(notes: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(note for note in notes if note))


def by_dose(
    kind: str, conditions: Sequence[str], number: Number = ablation, **labels: Any
) -> Callable[[Results], Evidence]:
    """The rank correlation of ablation with the dose of pretraining, for each seed."""

    def measure(results: Results) -> Evidence:
        found: dict[Network, list[tuple[float, float]]] = {}
        notes, kinds = [], []
        for condition in conditions:
            rows, note = usable(results, condition, kind=kind, **labels)
            notes += [f"{told(condition).capitalize()}: {note}"] if note else []
            kinds += [(rows, condition, note)] if rows else []
            for seed, value in by_network(rows, number).items():
                found.setdefault(seed, []).append((dose_of(condition), value))
        whole = [np.asarray(pairs) for pairs in found.values() if len(pairs) > 2]
        values = [_rank_correlation(*pairs.T) for pairs in whole]
        base.require(np.asarray(values), "Networks", note=_joined(notes))
        return Evidence.of_values(values, _joined([speaks(*kind) for kind in kinds]))

    return measure


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")  # without differences there is no order
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])
