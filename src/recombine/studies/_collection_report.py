"""What the report of study `collection` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.statistics import mean_interval
from recombine.lab.study import Results, Row
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, curves, dots
from recombine.studies import _base as base
from recombine.studies import _collection as parts
from recombine.studies._collection import (
    COLLECT,
    KINDS,
    NOTHING,
    RANDOM,
    SAME,
    UNCERTAINTY,
    Grid,
)

ORDER = (
    NOTHING, SAME, "most frequent", "balanced", "pairwise", RANDOM, COLLECT, UNCERTAINTY
)  # fmt: skip
TITLES = {NOTHING: "nothing (the start alone)", UNCERTAINTY: "what networks disagree on"}
COVERED = 3  # seeds whose supports are counted again for the table


def sections(grid: Grid, results: Results) -> list[Section]:
    rows = parts.of_budget(grid, results)
    found = [_advantage(grid, rows)]
    found += [_scores(grid, rows, family) for family in grid.families if rows.where(family=family)]
    found.append(_coverage(grid, rows))
    if grid.budgets:
        found.append(_budgets(grid, results))
    if any("uncertainty" in row.readings for row in rows):
        found.append(_warranted(grid, rows))
    return found


def _advantage(grid: Grid, rows: Results) -> Section:
    """The one picture that answers the question."""
    series = []
    for family in grid.families:
        found = [
            _differences(rows.where(family=family, start=start), COLLECT, RANDOM)
            for start in grid.starts
        ]
        series.append(_estimates(f"{family} ({KINDS[family].metric})", found))
    return Section(
        "Does it pay to choose?",
        "Unseen score after collecting what 'collect' recommends (join what is apart, then show "
        "new pairs, then use what is rare) minus the score after collecting as many combinations "
        "at random, for each kind of start. To the right of zero choosing pays. Undertrained "
        "networks are left out.",
        (dots("What 'collect' gains over random", [f"{start} start" for start in grid.starts],
              series, value_label="unseen score gained", references=[(0.0, "no difference")]),),
    )  # fmt: skip


def _scores(grid: Grid, rows: Results, family: str) -> Section:
    here, metric = rows.where(family=family), KINDS[family].metric
    names = [name for name in ORDER if here.where(strategy=name)]
    series = [
        _estimates(
            f"{start} start",
            [_of(here.where(start=start, strategy=name), parts.unseen) for name in names],
        )
        for start in parts.starts(grid, family)
    ]
    count = parts.new(grid, family, grid.budget)
    size = parts.begun(grid, family)
    return Section(
        f"{family.capitalize()}: score by strategy",
        f"Each start has {size} of {parts.space(grid, family).size} combinations; every strategy "
        f"but '{NOTHING}' adds {count} more, each with as many rows as one of the start "
        f"('{SAME}' adds the rows without a new combination). All are asked the same combinations, "
        f"which could not be collected. Dots are means with 95 % intervals over seeds.",
        (dots(f"Unseen {metric} by what was collected", [TITLES.get(n, n) for n in names], series,
              value_label=f"unseen {metric}"),),
        (_score_table(here, names, parts.starts(grid, family), metric),),
    )  # fmt: skip


def _score_table(here: Results, names: Sequence[str], starts: Sequence[str], metric: str) -> Table:
    rows = []
    for start in starts:
        for name in names:
            chosen = here.where(start=start, strategy=name)
            if not chosen:
                continue
            instrument, unseen = KINDS[chosen[0].labels["family"]][:2]
            twin = chosen.values(instrument, unseen, "untrained")
            left = sum(not parts.trained(row) for row in chosen)
            rows.append([
                start, TITLES.get(name, name), base.interval_text(_of(chosen, parts.seen)),
                base.interval_text(_of(chosen, parts.unseen)),
                round(float(twin.mean()), 3) if twin.size else None, len(chosen), left or "",
            ])  # fmt: skip
    return Table(
        f"{metric.capitalize()} by start and strategy",
        ["start", "collected", f"seen {metric}", f"unseen {metric}", "untrained", "networks",
         "left out"],
        rows, "Left out of claims: networks that diverged or did not learn what they were shown "
        f"(seen score below {parts.LEAST_SEEN:g}; chains: training loss above "
        f"{parts.MOST_LOSS:g}). The means here are over all networks.",
    )  # fmt: skip


def _coverage(grid: Grid, rows: Results) -> Section:
    tables = []
    for family in grid.families:
        table = []
        here = rows.where(family=family)
        few = Results([row for row in here if row.labels["seed"] in grid.drawn(COVERED)])
        begun = {(family, row.labels["start"], row.labels["seed"]): row
                 for row in few.where(strategy=NOTHING)}  # fmt: skip
        for start in parts.starts(grid, family):
            for name in ORDER:
                chosen = [
                    row
                    for row in few.where(start=start, strategy=name)
                    if name != UNCERTAINTY or (family, start, row.labels["seed"]) in begun
                ]
                if chosen:
                    supports = [parts.covered(grid, row, begun) for row in chosen]
                    table.append([start, TITLES.get(name, name), *_about(supports)])
        tables.append(Table(
            f"{family.capitalize()}: what training saw",
            ["start", "collected", "combinations", "pairs", "pieces", "least used", "most used"],
            table, "Pairs: share of all pairs of modules that were shown together. Pieces: groups "
            "of modules that no combination joins; 1 is connected. Least and most used: in how "
            "many combinations the rarest and the commonest module are.",
        ))  # fmt: skip
    return Section(
        "What each strategy covered",
        f"Means over {min(COVERED, grid.seeds)} seeds. A strategy can only differ from another by "
        "what it shows: pairs of modules, links between groups of them, and how often the rarest "
        "is used.",
        (), tuple(tables),
    )  # fmt: skip


def _about(supports: Sequence[Any]) -> list[Any]:
    def mean(number: Callable[[Any], float]) -> float:
        return float(np.mean([number(support) for support in supports]))

    return [
        round(mean(lambda s: len(s.seen))), f"{100 * mean(lambda s: s.pair_coverage or 0):.0f} %",
        round(mean(lambda s: int(s.components.max()) + 1), 1),
        round(mean(lambda s: int(s.usage.min())), 1), round(mean(lambda s: int(s.usage.max())), 1),
    ]  # fmt: skip


def _budgets(grid: Grid, results: Results) -> Section:
    family, start = grid.families[0], grid.starts[0]
    here, metric = results.where(family=family, start=start), KINDS[family].metric
    begun = here.where(strategy=NOTHING)
    lines = []
    for name in (COLLECT, RANDOM):
        shown = Results([*begun, *here.where(strategy=name)])
        lines.append(base.series_over(shown, "budget", parts.unseen, name))
    count = parts.new(grid, family, grid.budget)
    return Section(
        "How much to collect",
        f"The {family} from a {start} start, with more and fewer combinations collected. The "
        f"claims are about {count}; what the two lines have in common is what any new combination "
        "brings.",
        (curves(f"Unseen {metric} by budget", "new combinations", f"unseen {metric}", lines),),
    )  # fmt: skip


def _warranted(grid: Grid, rows: Results) -> Section:
    table = []
    for family in grid.families:
        for start in parts.starts(grid, family):
            chosen = rows.where(family=family, start=start, strategy=NOTHING)
            values = chosen.values("uncertainty", "warranted")
            if not values.size:
                continue
            controls = [
                round(float(chosen.values("uncertainty", "warranted", name).mean()), 2)
                for name in ("untrained", "shuffled", "planted")
            ]
            table.append([family, start, base.interval_text(values), *controls])
    return Section(
        "Do networks know what they do not know?",
        "The rank correlation, over combinations that could be collected, of how far the answers "
        f"of {grid.networks - 1} networks lie apart with how wrong one more of them is, which has "
        "no say in the disagreement. Where it is high, networks know what they lack; whether that "
        "is what should be collected is another question, answered above. Untrained twin: the same "
        "with its errors, high where some combinations are hard for any network.",
        (), (Table("Disagreement and error", ["family", "start", "correlation", "untrained twin",
                                              "shuffled", "planted"], table),),
    )  # fmt: skip


def _of(rows: Results, number: Callable[[Row], float]) -> np.ndarray:
    found = np.asarray([number(row) for row in rows if not row.diverged])
    return found[np.isfinite(found)]


def _differences(rows: Results, better: str, worse: str) -> np.ndarray:
    kept = Results([row for row in rows if parts.trained(row)])
    return kept.paired("seed", {"strategy": worse}, {"strategy": better}, parts.unseen)


def _estimates(name: str, found: Sequence[np.ndarray]) -> Estimates:
    intervals = [mean_interval(v) if v.size else None for v in found]

    def ends(which: str) -> list[float | None]:
        values = [None if i is None else getattr(i, which) for i in intervals]
        return [v if v is not None and np.isfinite(v) else None for v in values]

    return Estimates(name, ends("estimate"), ends("low"), ends("high"))
