"""How many training combinations are needed, and does a transformer need fewer than an MLP?

`recombine run law --preset standard` finds N*, the number of trained combinations at which the
unseen R² reaches .95, for several numbers of modules M and combination sizes K. A few sizes are
trained first; further rounds narrow in on the crossing. Laws fitted to the smaller settings must
then predict the two largest. Expected from the literature: N* grows less than exponentially, a
vanishing share of all combinations is enough, and transformers need fewer than MLPs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from recombine.lab import growth
from recombine.lab.growth import Extrapolation, Point
from recombine.lab.statistics import Interval
from recombine.lab.study import Cell, Claim, Evidence, NotTested, Results, Study
from recombine.report.document import Section
from recombine.studies import _base as base
from recombine.studies import _law_report as report
from recombine.studies._law import (
    FEWEST_ACTIVE,
    FEWEST_MODULES,
    LEFT_OUT,
    NAMES,
    PUBLISHED,
    Grid,
    cell,
    check,
    fit_at_most,
    further_sizes,
    located,
    mean_curve,
    points,
    ranked,
    settings,
    size_ratio,
    undertrained,
)

BOTH = tuple(NAMES)

# What no study of this kind can show.
BEYOND = (
    "That growth stays as it is beyond the largest setting. With K fixed, the number of all "
    "combinations is itself a polynomial of M, so no growth in M can stay exponential: the "
    "laws describe the range that was measured, and the share of all combinations says more.",
    "How the need grows with K: two values of K tell no law from another.",
    "Networks of other sizes, or trained for longer: a larger one may need fewer combinations.",
)


class Law(Study):
    """How many combinations must be trained, as modules and combinations grow."""

    name = "law"
    question = (
        "How many training combinations are needed, as the modules and the size of combinations "
        "grow, and does a transformer need fewer than an MLP?"
    )
    source = base.SOURCE
    cost = "quick: 2 min on two CPU cores (estimated); standard: 5 min on one H200"
    not_shown = (
        *BEYOND,
        "Families other than the hyperteacher, and supports that are not drawn at random.",
        "Other learning rates: one was chosen for both models in a pilot, not one for each.",
    )
    presets: ClassVar = {
        "smoke": Grid(
            "smoke", (6,), (3,), ("mlp",), 16, 2, 8, 1, 1, 0, 3e-3, 3e-3, 0.9, 5, 2, 1, 2
        ),
        "quick": Grid(),
        # Hidden units of the transformer are chosen for as many parameters as the MLP has.
        "standard": Grid(
            "standard", (6, 8, 12, 16, 24), (3, 4), BOTH, 256, 4, 96, 2, 2, 336, 3e-3, 3e-3, 0.95,
            3, 4, 2, 5,
        ),
        "paper": Grid(
            "paper", PUBLISHED.modules, PUBLISHED.active, BOTH, 1024, 4, 256, 4, 4, 0, 3e-4, 3e-4,
            0.95, 3, 2, 4, 3,
        ),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        check(grid)
        return [
            cell(grid, setting, size, seed)
            for setting in settings(grid)
            for size in grid.first_sizes(setting)
            for seed in grid.drawn(grid.seeds)
        ]

    def next_cells(self, grid: Grid, results: Results, number: int) -> list[Cell]:
        if number > grid.rounds:
            return []
        return [
            cell(grid, setting, size, seed)
            for setting in settings(grid)
            for size in further_sizes(grid, setting, *mean_curve(grid, setting.of(results)))
            for seed in grid.drawn(grid.seeds)
        ]

    def most_further_cells(self, grid: Grid) -> int:
        return grid.seeds * sum(
            min(grid.rounds * (grid.parts - 1), max(0, high - low + 1 - grid.first_count))
            for low, high in (setting.span for setting in settings(grid))
        )

    def claims(self, grid: Grid) -> list[Claim]:
        largest = " and ".join(f"M={m}, K={k}" for m, k in ranked(grid)[-LEFT_OUT:])
        need = f"the number of combinations needed for an unseen {grid.metric} of {grid.target:g}"
        found = []
        for model, name in NAMES.items():
            found += [
                Claim(
                    f"less than exponential, {name}",
                    f"For the {name}, predicting {need} at the largest settings ({largest}) from "
                    "the others, the exponential law is further off than the polynomial one "
                    "(difference of root mean square errors in log2 units)",
                    compare(grid, model, exponential_excess), above=0.0,
                ),
                Claim(
                    f"a vanishing share, {name}",
                    f"For the {name}, {need} grows as the number of all combinations to a power "
                    "below 1",
                    share_exponent(grid, model), below=1.0,
                ),
                Claim(
                    f"the polynomial law predicts, {name}",
                    f"For the {name}, the polynomial law predicts {need} at the largest settings "
                    f"({largest}) from the others to within .5 log2 units, a factor of 1.4 (root "
                    "mean square error)",
                    compare(grid, model, lambda laws: laws["polynomial"].error), at_most=0.5,
                ),
            ]  # fmt: skip
        found.append(
            Claim(
                "the transformer needs fewer",
                f"{at_sizes(grid)}, {need} is smaller for the transformer than for the MLP (log2 "
                "of the ratio, mean over the settings where one of them reaches it)",
                needs_fewer(grid), above=0.0,
            )
        )  # fmt: skip
        return found

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        laws = {model: compared(grid, results, model) for model in grid.model}
        return report.sections(grid, results, laws)


def at_sizes(grid: Grid) -> str:
    """How large the networks are that a claim compares."""
    ratio = size_ratio(grid) if set(grid.model) == set(NAMES) else 1.0
    if 1 / 1.05 < ratio < 1.05:
        return "At about equal numbers of parameters"
    return f"With {ratio:.2g} times the parameters of the MLP"


def wanted(grid: Grid, model: str) -> None:
    if model not in grid.model:
        raise NotTested(f"Not tested at this size: the {NAMES[model]} is not part of it.")


def for_laws(grid: Grid, results: Results, model: str) -> list[Point]:
    """Points that can tell laws apart, or a refusal that says what it would take."""
    wanted(grid, model)
    if len(set(grid.modules)) < FEWEST_MODULES or len(set(grid.active)) < FEWEST_ACTIVE:
        raise NotTested(
            f"Not tested at this size: needs {FEWEST_MODULES} values of M at each of "
            f"{FEWEST_ACTIVE} values of K, as in preset standard."
        )
    found, order = points(grid, results, model), ranked(grid)
    lost = [s for s in order[-LEFT_OUT:] if not located(found, s)]
    if lost:
        where = " and ".join(f"M={m}, K={k}" for m, k in lost)
        raise NotTested(
            f"Fewer than half of the seeds cross the target at {where}, which the laws should "
            f"predict: needs larger networks or longer training. {setbacks(grid, results, model)}"
        )
    fitted = [s for s in order[:-LEFT_OUT] if located(found, s)]
    if len({m for m, _ in fitted}) < 3 or len(fitted) < FEWEST_MODULES:
        raise NotTested(
            f"Only {len(fitted)} of the smaller settings cross the target: fitting a law needs "
            f"{FEWEST_MODULES} of them with three values of M."
        )
    return found


def compare(
    grid: Grid, model: str, number: Callable[[dict[str, Extrapolation]], Interval]
) -> Callable[[Results], Evidence]:
    """A number of the laws' extrapolation to the largest settings."""

    def measure(results: Results) -> Evidence:
        found = for_laws(grid, results, model)
        return Evidence.of_interval(
            lambda level: number(growth.extrapolate(found, LEFT_OUT, level)),
            setbacks(grid, results, model),
        )

    return measure


def exponential_excess(laws: dict[str, Extrapolation]) -> Interval:
    """How much further off the exponential law is; it excludes 0 only if the two laws' own
    intervals do not overlap."""
    one, other = laws["exponential"].error, laws["polynomial"].error
    return replace(one, estimate=one.estimate - other.estimate, low=one.low - other.high,
                   high=one.high - other.low)  # fmt: skip


def share_exponent(grid: Grid, model: str) -> Callable[[Results], Evidence]:
    """The power p of N* = c S^p, where S counts all combinations."""

    def measure(results: Results) -> Evidence:
        wanted(grid, model)
        found = points(grid, results, model)
        there = [s for s in ranked(grid) if located(found, s)]
        if len(there) < 3:
            raise NotTested(
                f"{len(there)} of {len(ranked(grid))} settings cross the target, a slope needs 3. "
                f"{setbacks(grid, results, model)}".strip()
            )
        return Evidence.of_interval(
            lambda level: growth.exponent(found, "power of the whole", level=level),
            setbacks(grid, results, model),
        )

    return measure


def needs_fewer(grid: Grid) -> Callable[[Results], Evidence]:
    """For each seed log2 N*(MLP) - log2 N*(transformer), mean over the settings one reaches."""

    def measure(results: Results) -> Evidence:
        for model in NAMES:
            wanted(grid, model)
        found = {
            model: {(p.setting, p.seed): p for p in points(grid, results, model)} for model in NAMES
        }
        # Where only one crosses, the other enters with the largest N it was tried at: a bound.
        pairs = {
            key: (found["mlp"][key], found["transformer"][key])
            for key in found["mlp"].keys() & found["transformer"].keys()
        }
        pairs = {
            key: pair for key, pair in pairs.items()
            if any(p.censored == "no" for p in pair) and all(p.censored != "below" for p in pair)
        }  # fmt: skip
        values = []
        for seed in grid.drawn(grid.seeds):
            off = [
                mlp.log2_size - transformer.log2_size
                for key, (mlp, transformer) in sorted(pairs.items())
                if key[1] == seed
            ]
            if 2 * len(off) >= len(ranked(grid)):
                values.append(np.mean(off))
        only = [
            sum(pair[number].censored == "above" for pair in pairs.values()) for number in (1, 0)
        ]
        note = (
            f"{len(pairs)} pairs of one setting and seed; in {only[0]} of them only the MLP "
            f"crosses the target, in {only[1]} only the transformer: there the bound counts."
        )
        behind = " ".join(filter(None, (setbacks(grid, results, model) for model in NAMES)))
        what = "Seeds with a pair in half of the settings"
        return Evidence.of_values(base.require(np.asarray(values), what), f"{note} {behind}")

    return measure


def setbacks(grid: Grid, results: Results, model: str) -> str:
    """What training, not data, may have limited, for a claim's note."""
    words, rows = [], results.where(model=model)
    counts = {"undertrained": undertrained(grid, rows), "diverged": rows.diverged}
    if aside := ", ".join(f"{count} {why}" for why, count in counts.items() if count):
        words.append(f"{NAMES[model]}: left out: {aside}.")
    mine = [s for s in settings(grid) if s.model == model]
    behind = [s for s in mine if fit_at_most(s, results) < grid.target]
    if behind:
        where = ", ".join(f"M={s.modules} K={s.active}" for s in behind)
        words.append(
            f"{NAMES[model]}: at the largest N the mean seen {grid.metric} is itself below "
            f"{grid.target:g} ({where}), so training limits it there."
        )
    return " ".join(words)


def compared(grid: Grid, results: Results, model: str) -> dict[str, Extrapolation] | str:
    """The laws' extrapolations, or why there are none."""
    try:
        return growth.extrapolate(for_laws(grid, results, model), LEFT_OUT)
    except NotTested as reason:
        return str(reason)
