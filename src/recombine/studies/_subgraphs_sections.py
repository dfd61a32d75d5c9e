"""What the report of the subgraphs study shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recombine.graphs.errors import LABELS
from recombine.instruments.subgraphs import SEEN, TOUCHED, UNTOUCHED
from recombine.lab.statistics import mean_interval
from recombine.lab.study import Results, Row
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, Panel, Points, Series, dots, panels, scatter
from recombine.studies import _subgraphs as parts
from recombine.studies._base import interval_text

NETWORK, MEMORY, BLIND = "network", "memorising executor", "frequency-blind executor"
CONTROLS = {NETWORK: None, MEMORY: "planted", BLIND: "blind"}


def sections(grid: Any, results: Results) -> list[Section]:
    """The experiment first, then the published diagnostics in their order."""
    results = Results([row for row in results if parts.READ in row.readings])
    found = [_experiment(results), _sizes(results)]
    products = results.where(task="multiplication", favours=0)
    if products:
        found.append(_digits(products))
    steps = Results(
        [r for r in results.where(favours=0) if r.labels["task"].endswith("steps")]
    )  # fmt: skip
    if steps:
        found += [_frequency(steps), _errors(steps), _compounding(steps)]
    return [section for section in found if section.figures or section.tables]


def _experiment(results: Results) -> Section:
    rows: list[list[Any]] = []
    categories: list[str] = []
    lines: dict[str, list[tuple[float | None, ...]]] = {name: [] for name in CONTROLS}
    for task in results.labels("task"):
        mine = Results([row for row in results.where(task=task) if not row.diverged])
        sets = [(w, s) for w in mine.labels("width") for s in mine.where(width=w).labels("share")]
        for width, share in sets:
            arms = mine.where(width=width, share=share)
            if not list(parts.pairs(arms)):
                continue
            splits = _splits(arms[0])
            for where, some in (("like training", [SEEN]), ("beyond", splits[1:])):
                categories.append(f"{task}, {share:g} of the lists, width {width}, {where}")
                numbers = {name: _values(parts.effects(arms, some, control=control))
                           for name, control in CONTROLS.items()}  # fmt: skip
                for name, values in numbers.items():
                    lines[name].append(_interval(values))
                untouched = _values(parts.effects(arms, some, UNTOUCHED))
                seen = np.asarray([parts.in_distribution(row) for row in arms if
                                   row.labels["favours"]])  # fmt: skip
                told = [interval_text(v) for v in (*numbers.values(), untouched, seen)]
                rows.append([task, share, width, where, *told])
    if not rows:
        return Section("What frequency does")
    estimates = [Estimates(name, *(list(column) for column in zip(*lines[name], strict=True)))
                 for name in CONTROLS]  # fmt: skip
    return Section(
        "What frequency does",
        "Two networks of a seed were trained on sets that differ in one thing: which half of all "
        "endings (the last three numbers of a list) is common. Both answer the same items. Shown "
        "is how many more of the nodes that are made from the ending are right where it was "
        "common. A network that computes shows 0; one that looks up what it saw often shows what "
        "the memorising executor shows.",
        figures=[dots("Right where frequent minus right where rare, same nodes of the same items",
                      categories, estimates, value_label="difference in share right",
                      references=[(0.0, "none")])],
        tables=[Table("What frequency does", ["task", "share of lists", "width", "where", *CONTROLS,
                                              "nodes without the ending", "exact like training"],
                      rows, "Means over seeds with 95 % intervals. Nodes without the ending cannot "
                      "have been made rarer. Exact like training: weighted as training was. "
                      "Networks below .9 there are shown, and speak for no claim.")],
    )  # fmt: skip


def _sizes(results: Results) -> Section:
    shown, rows = [], []
    for task in results.labels("task"):
        here = [r for r in results.where(task=task, favours=0) if not r.diverged]
        found: dict[tuple[str, str, str], list[float]] = {}
        shape: dict[tuple[str, str, str], tuple[int, int]] = {}
        items: dict[tuple[str, str, str], int] = {}
        for row in here:
            for line in parts.table(row, "sizes"):
                trained = not parts.beyond(line)
                key = (line["size"], "yes" if trained else "no", "" if trained else line["part"])
                found.setdefault(key, []).append(line["exact"])
                shape[key] = line["depth"], line["width"]
                items[key] = items.get(key, 0) + line["items"]
        for key in sorted(found, key=lambda k: (k[1] == "no", *shape[k], k[0])):
            new = key[2] if key[2] != key[0] else "longer"
            rows.append([task, key[0], key[1], new, *shape[key], items[key],
                         interval_text(np.asarray(found[key]))])  # fmt: skip
        lines = []
        for name, trained in (("trained sizes", "yes"), ("beyond", "no")):
            some: dict[int, list[float]] = {}
            for key, values in found.items():
                if key[1] == trained and items[key] >= parts.LEAST_ITEMS * len(here):
                    some.setdefault(shape[key][0], []).extend(values)
            if some:
                lines.append(_series(name, some))
        if lines:
            shown.append(Panel(task, lines))
    if not shown:
        return Section("Like training and beyond")
    return Section(
        "Like training and beyond",
        "Each size has a computation graph: its depth is how many steps must be done one after "
        "another, its width how many can be done at once. Sizes beyond training are deeper, wider "
        "or both.",
        figures=[panels("Exact answers by depth of the computation", "depth",
                        "share of exact answers", shown, y_range=(-0.03, 1.03))],
        tables=[Table("Exact answers by size", ["task", "size", "trained", "what is new", "depth",
                                                "width", "items", "exact"], rows,
                      "Means over seeds with 95 % intervals; largest networks. The figure leaves "
                      f"out sizes with fewer than {parts.LEAST_ITEMS} items a network.")],
    )  # fmt: skip


def _digits(products: Results) -> Section:
    points, rows = [], []
    for where, chosen in (("like training", parts.like_training), ("beyond", parts.beyond)):
        found: dict[str, list[list[float]]] = {}
        for row in products:
            for size, right in parts.digit_shares(row, chosen).items():
                found.setdefault(size, []).append(right)
        xs: list[float | None] = []
        ys: list[float | None] = []
        for size, several in found.items():
            means, gains = np.mean(several, axis=0), parts.gains(size)
            xs += list(gains)
            ys += [float(mean) for mean in means]
            rows += [
                [where, size, place + 1, gain, float(mean), len(several)]
                for place, (gain, mean) in enumerate(zip(gains, means, strict=True))
            ]
        if xs:
            points.append(Points(where, xs, ys))
    if not points:
        return Section("Digits of wrong products")
    return Section(
        "Digits of wrong products",
        "The last digit of a product follows from the last digits of both factors, and the first "
        "nearly so from the first ones; middle digits take the whole computation. RelIG says how "
        "much of a digit the best pair of input digits settles: 1 for all. A network that matches "
        "surfaces gets those digits right also where the product is wrong.",
        figures=[scatter("Digits of wrong products", "RelIG of the best pair of input digits",
                         "share right among wrong products", points)],
        tables=[Table("Digits of wrong products",
                      ["where", "size", "digit, from the left", "RelIG of the best pair",
                       "share right", "networks"], rows,
                      f"Sizes with at least {parts.LEAST_WRONG} wrong products.")],
    )  # fmt: skip


def _frequency(steps: Results) -> Section:
    tasks = steps.labels("task")
    estimates = []
    for name, control in CONTROLS.items():
        columns = []
        for task in tasks:
            rows = steps.where(task=task)
            if control is None:
                values = rows.values(parts.READ, "auroc")
            else:
                values = (1 + rows.values(parts.READ, "memory", control)) / 2
            columns.append(_interval(values))
        estimates.append(Estimates(name, *(list(c) for c in zip(*columns, strict=True))))
    rows = []
    for task in tasks:
        found: dict[int, list[tuple[float | None, float | None, int, int]]] = {}
        for row in steps.where(task=task):
            for line in parts.table(row, "layers"):
                right = line["correct"] + line["restoration"]
                wrong = parts.total(line) - right
                found.setdefault(line["layer"], []).append(
                    (line["frequency_right"], line["frequency_wrong"], right, wrong)
                )
        for layer in sorted(found):
            lines = found[layer]
            rows.append([task, layer, _weighted([(a, n) for a, _, n, _ in lines]),
                         _weighted([(b, n) for _, b, _, n in lines]),
                         sum(n for *_, n, _ in lines), sum(n for *_, n in lines)])  # fmt: skip
    return Section(
        "Frequent subgraphs",
        "For every step that was written, with right values before it: in how many training items "
        "does the whole computation that leads to it occur? The score is the chance that of a "
        "right and a wrong step of one size and layer the right one was more frequent; one half "
        "says that frequency tells nothing.",
        figures=[dots("Does frequency tell right steps from wrong ones?", tasks, estimates,
                      value_label="AUROC within size and layer", value_range=(0.0, 1.05),
                      references=[(0.5, "chance")])],
        tables=[Table("Training items that hold a node's subgraph, on average",
                      ["task", "layer", "of right nodes", "of wrong nodes", "right nodes",
                       "wrong nodes"], rows,
                      "All sizes together, so that rows mix common and rare kinds of node; the "
                      "score above does not.")],
    )  # fmt: skip


def _errors(steps: Results) -> Section:
    shown = []
    for task in steps.labels("task"):
        counts: dict[int, np.ndarray] = {}
        for row in steps.where(task=task):
            for line in parts.table(row, "layers"):
                if parts.beyond(line):
                    now = np.asarray([line[name] for name in LABELS])
                    counts[line["layer"]] = counts.get(line["layer"], np.zeros(len(LABELS))) + now
        layers = sorted(counts)
        lines = [
            Series(name, layers, [float(counts[n][i] / counts[n].sum()) for n in layers])
            for i, name in enumerate(LABELS)
            if any(counts[n][i] for n in layers)
        ]
        if lines:
            shown.append(Panel(task, lines))
    if not shown:
        return Section("Where errors begin, and how they spread")
    return Section(
        "Where errors begin, and how they spread",
        "Each node of a scratchpad beyond training is correct (right with all it is made of), a "
        "restoration (right though something before it is not), a propagation (wrong, but what "
        "follows from what was written before), a local error (wrong of itself), or missing. What "
        "could not be read at all is unparseable.",
        figures=[panels("Nodes by layer, beyond training", "layer", "share of nodes", shown,
                        y_range=(-0.03, 1.03))],
    )  # fmt: skip


def _compounding(steps: Results) -> Section:
    shown = []
    for task in steps.labels("task"):
        exact: dict[int, list[float]] = {}
        bound: dict[int, list[float]] = {}
        for row in steps.where(task=task):
            for line in parts.table(row, "sizes"):
                exact.setdefault(line["depth"], []).append(line["exact"])
                if line["bound"] is not None:
                    bound.setdefault(line["depth"], []).append(line["bound"])
        lines = [_series("exact answers", exact)]
        lines += [_series("bound from errors of steps", bound)] if bound else []
        shown.append(Panel(task, lines))
    return Section(
        "How errors compound",
        "If each step errs with some chance of its own and rarely mends what came before, the "
        "answer can be right at most so often after so many steps. The bound uses the rates "
        "measured in the same scratchpads.",
        figures=[panels("Exact answers against what errors of steps compound to", "depth",
                        "share of exact answers", shown, y_range=(-0.03, 1.03))],
    )  # fmt: skip


def _splits(row: Row) -> list[str]:
    """The splits with endings of both halves, like training first."""
    values = row.readings[parts.READ].values
    return [name.partition("/")[0] for name in values if name.endswith(f"/{TOUCHED}1")]


def _values(found: dict[Any, float]) -> np.ndarray:
    return np.asarray(list(found.values()))


def _interval(values: Sequence[float] | np.ndarray) -> tuple[float | None, ...]:
    """Estimate, low and high; None for what cannot be said."""
    if not len(values):
        return None, None, None
    found = mean_interval(values)
    if not np.isfinite([found.low, found.high]).all():
        return found.estimate, None, None
    return found.estimate, found.low, found.high


def _series(name: str, numbers: dict[int, list[float]]) -> Series:
    xs = sorted(numbers)
    ends = [_interval(numbers[x]) for x in xs]
    estimate, low, high = (list(column) for column in zip(*ends, strict=True))
    return Series(name, xs, estimate, low, high)


def _weighted(pairs: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, count) for value, count in pairs if value is not None and count]
    if not known:
        return None
    values, counts = zip(*known, strict=True)
    return float(np.average(values, weights=counts))
