"""What the report of the foretold study shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.statistics import Interval, clustered_interval, mean_interval
from recombine.lab.study import Results, Row
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, Points, dots, scatter
from recombine.studies import _base as base
from recombine.studies import _foretold as parts

ALL = "all families"
BINS = 8
WHOLE = (-0.03, 1.03)  # markers at 0 and 1 stay whole


def sections(results: Results) -> list[Section]:
    told = parts.foretold(results)
    found = [
        Section("In one sentence", quoted(results)),
        datasets_section(results),
        dataset_level(results),
        combination_level(results),
    ]
    if told:
        found.append(transfer_section(told))
    return found


def quoted(results: Results) -> str:
    """What the run found, in the words an audit may quote."""
    rows = parts.trained(results)
    families = list(dict.fromkeys(row.labels["family"] for row in rows))
    if not families:
        return "No network of this run learnt what it was shown, so that nothing can be said."
    broken = parts.by_dataset(
        [r for r in rows if not parts.whole(r)],
        lambda r: parts.unlinked_score(r) / parts.seen(r), max,
    )  # fmt: skip
    shown = parts.by_dataset(
        [r for r in rows if parts.whole(r) and r.labels["pair_coverage"] == 1],
        lambda r: float(parts.kept(r) >= parts.KEPT),
    )
    areas = list(parts.by_dataset(rows, parts.ranking("level")).values())
    datasets = len({parts.dataset(row) for row in rows})
    words = [
        f"Over {len(rows)} networks on {datasets} datasets of {_counted(len(families), 'family')} "
        f"({', '.join(families)}):"
    ]
    if broken:
        reach = sum(value >= parts.KEPT for value in broken.values())
        words.append(
            f"of {len(broken)} datasets with a value never seen or groups never linked, "
            f"{reach or 'none'} reached .9 of the seen score there;"
        )
    if shown:
        words.append(
            "where training covers and connects all values and shows every pair, "
            f"{100 * np.mean(list(shown.values())):.0f} % of networks reached .9 of the seen score "
            f"on unseen combinations ({len(shown)} datasets);"
        )
    if areas:
        words.append(
            "the novelty level ranks the combinations that fail with an AUROC of "
            f"{base.interval_text(np.asarray(areas))} ({len(areas)} datasets)."
        )
    return " ".join(words).rstrip(";").removesuffix(".") + "."


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
               "With 95 % intervals over datasets where there are enough of both kinds. A dash: "
               "all networks do the same, or the fact is the same for all.")),
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
    """AUROC over networks, with an interval that resamples datasets."""
    groups: dict[parts.Dataset, list[tuple[float, bool]]] = {}
    for row in rows:
        known = measure(row)
        if np.isfinite(known):
            groups.setdefault(parts.dataset(row), []).append((-known, parts.kept(row) < parts.KEPT))

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
        "usage of the rarest module": parts.ranking("rarest_usage"),
        "novelty level, shuffled": parts.shuffled,
    }
    drawn = []
    for name, number in series.items():
        chosen = (rows if family == ALL else rows.where(family=family) for family in shown)
        drawn.append(_estimates(name, [list(parts.by_dataset(c, number).values()) for c in chosen]))
    figure = dots("How well novelty ranks what fails", shown, drawn, value_label="AUROC",
                  value_range=WHOLE, references=[(0.5, "chance (.5)"), (0.7, "claimed (.7)")],
                  caption="Mean over datasets, with 95 % intervals.")  # fmt: skip
    table = []
    for name, words in parts.PREDICTORS.items():
        cells: list[Any] = [words]
        for family in shown:
            chosen = rows if family == ALL else rows.where(family=family)
            cells.append(_text(list(parts.by_dataset(chosen, parts.ranking(name)).values())))
        table.append(cells)
    counts: list[Any] = ["datasets with something to rank"]
    for family in shown:
        chosen = rows if family == ALL else rows.where(family=family)
        counts.append(len(parts.by_dataset(chosen, parts.ranking("level"))))
    return Section(
        "Which combinations fail",
        "An unseen combination fails if its own score is below .9 of the network's seen score. "
        "AUROC is the chance that of a failing and a passing combination of one network the "
        "failing one was called newer. Larger combinations can hold more that is new; among "
        "combinations of one size that is no help. Networks for which fewer than "
        f"{parts.FEWEST} combinations fail, or pass, or to which all are equally new, have nothing "
        "to rank.",
        (figure,),
        (Table("AUROC by what is known of a combination", ["known before training", *shown],
               [*table, counts], "Means over datasets with 95 % intervals."),),
    )  # fmt: skip


def transfer_section(told: dict[str, list[parts.Foretold]]) -> Section:
    """How well failures of one family are foretold from the others."""
    table = []
    for family, found in told.items():
        cells: list[Any] = [family, round(float(np.mean([o.failed.mean() for o in found])), 2)]
        losses = {
            model: _dataset_mean(found, lambda one, m=model: one.log_loss(m))
            for model in parts.MODELS
        }
        cells += [round(float(np.mean(losses[model])), 3) for model in parts.MODELS]
        cells += [_text(list(parts.gains(found, over))) for over in (parts.OVERALL, parts.USAGE)]
        table.append([*cells, len(losses[parts.NOVELTY])])
    columns = ["family", "fails", *parts.MODELS, "minus overall", "minus usage", "datasets"]
    figure = scatter(
        "Foretold and found", "foretold chance of failure", "share that fails",
        [_calibration(family, found) for family, found in told.items()], diagonal=True,
        caption="Each point is an eighth of a family's unseen combinations, by foretold chance; "
        "every network counts alike.",
    )  # fmt: skip
    return Section(
        "Foretold in a family never seen",
        "A logistic regression on what is new in a combination (its level, the shares of its pairs "
        "and triples never trained, the usage of its rarest module, its distance and its nearest "
        "neighbour) is fitted to all families but one, and foretells that one. Points on the "
        "diagonal mean that chances are right there, too; a lower log loss is better, and a "
        "negative difference means that novelty foretells more than the baseline does.",
        (figure,),
        (Table("Log loss in the family left out", columns, table,
               "Fails: the share of unseen combinations that fail. Then the log loss of three "
               "predictions, and what that of novelty is minus that of each baseline, with 95 % "
               "intervals over datasets."),),
    )  # fmt: skip


def _dataset_mean(
    found: Sequence[parts.Foretold], number: Callable[[parts.Foretold], float]
) -> list[float]:
    values = {id(one.row): number(one) for one in found}
    rows = [one.row for one in found]
    return list(parts.by_dataset(rows, lambda row: values[id(row)]).values())


def _calibration(family: str, found: Sequence[parts.Foretold]) -> Points:
    """Foretold chances against what was found, in bins of equal weight."""
    chance = np.concatenate([one.chances[parts.NOVELTY] for one in found])
    failed = np.concatenate([one.failed for one in found]).astype(float)
    weight = np.concatenate([np.full(len(one.failed), 1 / len(one.failed)) for one in found])
    order = np.argsort(chance, kind="stable")
    place = np.cumsum(weight[order]) - weight[order] / 2
    bins = np.minimum((place / weight.sum() * BINS).astype(int), BINS - 1)
    points = [
        tuple(float(np.average(v[order[bins == one]], weights=weight[order[bins == one]]))
              for v in (chance, failed))
        for one in np.unique(bins)
    ]  # fmt: skip
    return Points(family, [x for x, _ in points], [y for _, y in points])


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


def _text(values: Sequence[float]) -> str:
    """A mean with its interval, where there are enough datasets for one."""
    if not len(values):
        return "–"
    found = mean_interval(np.asarray(values))
    if not np.isfinite([found.low, found.high]).all():
        return f"{found.estimate:.2f}"
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
