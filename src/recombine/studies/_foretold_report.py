"""What the report of the foretold study shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.statistics import Interval, clustered_interval, mean_interval
from recombine.lab.study import Results, Row
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, dots
from recombine.studies import _base as base
from recombine.studies import _foretold as parts
from recombine.studies._foretold_transfer import text, transfer_section

ALL = "all families"
WHOLE = (-0.03, 1.03)  # markers at 0 and 1 stay whole


def sections(results: Results) -> list[Section]:
    found = [
        Section("In one sentence", quoted(results)),
        datasets_section(results),
        dataset_level(results),
        combination_level(results),
    ]
    transfer = transfer_section(results)
    return [*found, transfer] if transfer else found


def quoted(results: Results) -> str:
    """What the run found, in the words an audit may quote."""
    rows = parts.trained(results)
    families = list(dict.fromkeys(row.labels["family"] for row in rows))
    if not families:
        return "No network of this run learnt what it was shown, so that nothing can be said."
    shown = parts.by_dataset(
        [r for r in rows if parts.whole(r) and r.labels["pair_coverage"] == 1],
        lambda r: float(parts.kept(r) >= parts.KEPT),
    )
    datasets = len({parts.dataset(row) for row in rows})
    kinds = len({parts.kind(row) for row in rows})
    words = [
        f"Over {len(rows)} networks on {datasets} datasets of {_counted(len(families), 'family')} "
        f"({', '.join(families)}):"
    ]
    for name in ("covered, groups never linked", "a value never seen"):
        chosen = [row for row in rows if _STATES[name](row)]
        if broken := parts.by_dataset(chosen, parts.reaches, max):
            reach = int(sum(broken.values()))
            words.append(
                f"of {len(broken)} datasets with {name.removeprefix('covered, ')}, "
                f"{reach or 'none'} reached .9 of the seen score there;"
            )
    if shown:
        words.append(
            "where training covers and connects all values and shows every pair, "
            f"{100 * np.mean(list(shown.values())):.0f} % of networks reached .9 of the seen score "
            f"on unseen combinations ({len(shown)} datasets);"
        )
    areas = list(parts.by_kind(rows, parts.ranking("level")).values())
    if areas:
        alike = list(parts.by_kind(rows, parts.within_alike).values())
        words.append(
            "the novelty level ranks the combinations that fail with an AUROC of "
            f"{base.interval_text(np.asarray(areas))} ({len(areas)} kinds of dataset), among "
            f"those of one size that are equally rare {base.interval_text(np.asarray(alike))};"
        )
    if kinds > len(areas):
        words.append(f"{kinds - len(areas)} of {kinds} kinds of dataset had nothing to rank;")
    return " ".join([" ".join(words).rstrip(";:") + ".", parts.left_out(results)]).strip()


def _counted(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else one.removesuffix('y') + 'ies'}"


def _kinds(results: Results) -> list[tuple[str, float]]:
    """The rules and shares there are, those that leave nothing apart first."""
    found = {(r.labels["rule"], r.labels["held_out"]): parts.whole(r) for r in results}
    return sorted(found, key=lambda kind: (not found[kind], kind[0] != "random", kind))


def _missing(row: Row) -> bool:
    return row.labels["pair_coverage"] != 1


def _rule(row: Row) -> str:
    """A rule as the figure names it: what a random support leaves out depends on its share."""
    pairs = "pairs missing" if _missing(row) else "every pair shown"
    return f"random, {pairs}" if row.labels["rule"] == "random" else row.labels["rule"]


def _families(results: Results) -> list[str]:
    return list(dict.fromkeys(row.labels["family"] for row in results))


def datasets_section(results: Results) -> Section:
    """Every kind of dataset: what was known of it, and what its networks did."""
    rows = parts.trained(results)
    names = list(dict.fromkeys(
        _rule(row) for kind in _kinds(results)
        for row in sorted(results.where(rule=kind[0], held_out=kind[1]), key=_missing)
    ))  # fmt: skip
    names.sort(key=lambda name: not name.startswith("random, every"))
    drawn = []
    for family in _families(results):
        chosen = [[r for r in rows.where(family=family) if _rule(r) == name] for name in names]
        # A ratio far below 0 says no more than 0 does, and would squeeze all others.
        found = [parts.by_dataset(some, lambda row: max(parts.kept(row), 0.0)) for some in chosen]
        values = [list(one.values()) for one in found]
        drawn.append(
            Estimates(family, *(
                [float(end(v)) if v else None for v in values] for end in (np.mean, min, max)
            ))
        )  # fmt: skip
    figure = dots(
        "What is left on unseen combinations", names, drawn,
        value_label="unseen score / seen score", value_range=(-0.03, 1.05),
        references=[(parts.KEPT, ".9 of the seen score")],
        caption="Mean over datasets, and the range from the worst to the best; what is below 0 "
        "counts as 0.",
    )  # fmt: skip
    return Section(
        "Datasets",
        "Each rule decides which combinations training sees. Covered: every value is seen. "
        "Connected: values seen together link them all. The figure shows how much of the seen "
        "score is left on combinations that training held out; what lies left of the dashed line "
        "counts as failed.",
        (figure,),
        [_scores(results.where(family=family), family) for family in _families(results)],
    )


_METRICS = {
    "goals": "the share of episodes without a mistake",
    "scenes": "the share of pictures that show what was asked",
}


def _scores(results: Results, family: str) -> Table:
    table: list[list[Any]] = []
    for rule, share in _kinds(results):
        chosen = results.where(rule=rule, held_out=share)
        able = parts.trained(chosen)
        table.append([
            f"{rule}, {share:.2g}", *_facts(chosen),
            *(_mean(able, n) for n in (parts.seen, parts.unseen, parts.unlinked_score)),
            _mean(chosen, parts.untrained), f"{len(able)} of {len(chosen)}",
        ])  # fmt: skip
    columns = ["rule, held out", "covered", "connected", "pairs", "triples", "seen", "unseen",
               "unlinked", "twin", "trained"]  # fmt: skip
    return Table(
        f"Datasets of {family}", columns, table,
        "Pairs, triples: the share of them that training shows. Seen, unseen: "
        f"{_METRICS.get(family, 'R²')}, mean over trained networks. Unlinked: on combinations of a "
        "value never seen, or of values never linked. Twin: the untrained twin on unseen "
        f"combinations. Trained: networks with a seen score of at least {base.SEEN_FLOOR}; others "
        "are left out.",
    )  # fmt: skip


def _facts(rows: Results) -> list[Any]:
    labels = [row.labels for row in rows]
    yes = ["yes" if all(one[name] for one in labels) else "no" for name in ("covered", "connected")]
    shares = []
    for name in ("pair_coverage", "triple_coverage"):
        known = [one[name] for one in labels if one[name] is not None]
        shares.append(round(float(np.mean(known)), 2) if known else None)
    return [*yes, *shares]


def dataset_level(results: Results) -> Section:
    """How well what is known of a dataset tells whether its networks fail."""
    rows = parts.trained(results)
    measures: dict[str, Callable[[Row], float]] = {
        "covered": lambda row: float(row.labels["covered"]),
        "connected": lambda row: float(row.labels["connected"]),
        "share of pairs shown": lambda row: _known(row, "pair_coverage"),
        "share of triples shown": lambda row: _known(row, "triple_coverage"),
    }
    table: list[list[Any]] = []
    for name, measure in measures.items():
        cells: list[Any] = [name]
        for family in (ALL, *_families(results)):
            chosen = rows if family == ALL else rows.where(family=family)
            cells.append(_area(chosen, measure))
        table.append(cells)
    outcome: list[list[Any]] = []
    for words, test in _STATES.items():
        chosen = [row for row in rows if test(row)]
        reach = parts.by_dataset(chosen, lambda row: float(parts.kept(row) >= parts.KEPT))
        told: tuple[Any, Any] = (None, None)
        if reach:
            ends = parts.share_interval(list(reach.values()))(0.95)
            told = (round(ends.estimate, 3), f"[{ends.low:.2f}, {ends.high:.2f}]")
        outcome.append([words, len(reach), len(chosen), *told])
    return Section(
        "Which datasets fail",
        "A dataset fails with a network that keeps less than .9 of its seen score on unseen "
        "combinations. The first table counts them by what was known before training. The second "
        "asks how well each single fact ranks failing networks above others: .5 is chance, 1 is "
        "perfect.",
        (),
        (Table("Networks that keep .9 of their seen score",
               ["dataset", "datasets", "networks", "share that keeps it", "95 % interval"],
               outcome, "Exact intervals over datasets."),
         Table("AUROC of what is known of a dataset",
               ["known before training", ALL, *_families(results)], table,
               "With 95 % intervals over kinds of dataset where there are enough. A dash: all "
               "networks do the same, or the fact is the same for all.")),
    )  # fmt: skip


_STATES: dict[str, Callable[[Row], bool]] = {
    "a value never seen": lambda row: not row.labels["covered"],
    "covered, groups never linked": lambda row: row.labels["covered"] and not parts.whole(row),
    "connected, some pairs never shown": lambda row: (
        parts.whole(row) and row.labels["pair_coverage"] != 1
    ),
    "connected, every pair shown": lambda row: (
        parts.whole(row) and row.labels["pair_coverage"] == 1
    ),
}


def _known(row: Row, name: str) -> float:
    value = row.labels[name]
    return float("nan") if value is None else float(value)


def _area(rows: Results, measure: Callable[[Row], float]) -> str:
    """AUROC over networks, with an interval that resamples kinds of dataset."""
    groups: dict[parts.Kind, list[tuple[float, bool]]] = {}
    for row in rows:
        known = measure(row)
        if np.isfinite(known):
            groups.setdefault(parts.kind(row), []).append((-known, parts.kept(row) < parts.KEPT))

    def area(units: Sequence[list[tuple[float, bool]]]) -> float:
        newer, failed = zip(*(one for unit in units for one in unit), strict=True)
        return parts.auroc(np.asarray(newer), np.asarray(failed))

    units = list(groups.values())
    flat = [one for unit in units for one in unit]
    if len({one[0] for one in flat}) < 2 or len({one[1] for one in flat}) < 2:
        return "–"
    if len(units) < 10:
        return f"{area(units):.2f}"
    found = clustered_interval(area, units, resamples=500)
    low, high = max(found.low, 0.0), min(found.high, 1.0)
    if high - low > 0.9:  # it would say nothing
        return f"{found.estimate:.2f}"
    return f"{found.estimate:.2f} [{low:.2f}, {high:.2f}]"


def combination_level(results: Results) -> Section:
    """How well novelty ranks the unseen combinations of one network."""
    rows = parts.trained(results)
    shown = [*_families(results), ALL]
    series = {
        "novelty level": parts.ranking("level"),
        "novelty level, among combinations of one size": parts.ranking("level", same_size=True),
        "novelty level, among equally rare of one size": parts.within_alike,
        "usage of the rarest module": parts.ranking("rarest_usage"),
        "novelty level, shuffled among these": parts.shuffled_alike,
        "novelty level, shuffled": parts.shuffled,
    }
    drawn = []
    for name, number in series.items():
        chosen = (rows if family == ALL else rows.where(family=family) for family in shown)
        drawn.append(_estimates(name, [list(parts.by_kind(c, number).values()) for c in chosen]))
    figure = dots("How well novelty ranks what fails", shown, drawn, value_label="AUROC",
                  value_range=WHOLE, references=[(0.5, "chance (.5)"), (0.7, "claimed (.7)")],
                  caption="Mean over kinds of dataset, with 95 % intervals.")  # fmt: skip
    table = []
    for name, words in parts.PREDICTORS.items():
        cells: list[Any] = [words]
        for family in shown:
            chosen = rows if family == ALL else rows.where(family=family)
            cells.append(text(list(parts.by_kind(chosen, parts.ranking(name)).values())))
        table.append(cells)
    counts: list[Any] = ["kinds of dataset with something to rank"]
    for family in shown:
        chosen = rows if family == ALL else rows.where(family=family)
        counts.append(len(parts.by_kind(chosen, parts.ranking("level"))))
    failing: list[list[Any]] = []
    for family in _families(results):
        chosen = rows.where(family=family)
        failing.append([family, _mean(chosen, parts.failing), _mean(chosen, parts.failing_seen)])
    return Section(
        "Which combinations fail",
        "An unseen combination fails if its own score is below .9 of the network's seen score. "
        "AUROC is the chance that of a failing and a passing combination of one network the "
        "failing one was called newer. Larger combinations can hold more that is new; among "
        "combinations of one size that is no help. What holds a rare module is often new, too: "
        "among combinations of one size whose rarest module was seen equally often, neither helps; "
        "and if levels change places among these, what is left is what size and rarity say. "
        "Networks for which fewer than "
        f"{parts.FEWEST} combinations fail, or pass, or to which all are equally new, have nothing "
        "to rank.",
        (figure,),
        (Table("AUROC by what is known of a combination", ["known before training", *shown],
               [*table, counts], "Means over kinds of dataset with 95 % intervals."),
         Table("Combinations that fail", ["family", "unseen", "seen"], failing,
               "Shares, mean over trained networks. Seen: those that fail by the same rule though "
               "training had them; of goals, what the luck of a few draws makes fail at the seen "
               "score. A dash: not read.")),
    )  # fmt: skip


def _estimates(name: str, values: Sequence[Sequence[float]]) -> Estimates:
    found = [mean_interval(v) if len(v) else None for v in values]

    def end(interval: Interval | None, which: str) -> float | None:
        value = float("nan") if interval is None else getattr(interval, which)
        return float(np.clip(value, 0.0, 1.0)) if np.isfinite(value) else None

    return Estimates(name, [end(i, "estimate") for i in found], [end(i, "low") for i in found],
                     [end(i, "high") for i in found])  # fmt: skip


def _values(rows: Results, number: Callable[[Row], float]) -> np.ndarray:
    found = np.asarray([number(row) for row in rows], float)
    return found[np.isfinite(found)]


def _mean(rows: Results, number: Callable[[Row], float]) -> float | None:
    found = _values(rows, number)
    return round(float(found.mean()), 2) if found.size else None
