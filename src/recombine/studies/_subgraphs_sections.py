"""What the report of the subgraphs study shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recombine.graphs.errors import LABELS
from recombine.instruments.subgraphs import SEEN, TOUCHED, UNTOUCHED
from recombine.lab.statistics import mean_interval
from recombine.lab.study import SHARE, Results, Row
from recombine.report.document import Section, Table
from recombine.report.figures import Estimates, Panel, Points, Series, dots, panels, scatter
from recombine.studies import _subgraphs as parts
from recombine.studies._base import interval_text, share_interval

NETWORK, MEMORY, BLIND = "network", "memorising executor", "frequency-blind executor"
CONTROLS = {NETWORK: None, MEMORY: "planted", BLIND: "blind"}


def sections(grid: Any, results: Results) -> list[Section]:
    """The experiment first, then the published diagnostics in their order."""
    results = Results([row for row in results if parts.READ in row.readings])
    whole = results.where(favours=0, share=max(grid.share))
    found = [_experiment(results), _sizes(whole)]
    products = whole.where(task="multiplication")
    if products:
        found.append(_digits(products))
    if any(row.labels["task"].startswith("subsequence") for row in whole):
        found.append(_marks(grid.length, grid.reach))
    steps = Results([row for row in whole if row.labels["task"].endswith("steps")])
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
                told = [interval_text(v) for v in (*numbers.values(), untouched)]
                told += [_placebo(arms.where(favours=0), some), interval_text(seen, within=SHARE)]
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
                                              "nodes without the ending", "placebo",
                                              "exact like training"],
                      rows, "Means over seeds with 95 % intervals. Nodes without the ending cannot "
                      "have been made rarer. Placebo: half 1 minus half 2 in networks that "
                      "favoured neither. Exact like training: weighted as training was. "
                      "Networks below .9 there are shown, and speak for no claim.")],
    )  # fmt: skip


def _placebo(rows: Results, splits: Sequence[str]) -> str:
    return interval_text(np.asarray([parts.halves(row, splits) for row in rows]))


ANSWERED = ("exact", "ended", "short", "long")  # shares of answers, by size


def _sizes(results: Results) -> Section:
    shown, rows = [], []
    for task in results.labels("task"):
        here = [r for r in results.where(task=task) if not r.diverged]
        found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for row in here:
            for line in parts.table(row, "sizes"):
                trained = not parts.beyond(line)
                key = (line["size"], "yes" if trained else "no", "" if trained else line["part"])
                found.setdefault(key, []).append(line)
        shape = {key: (lines[0]["depth"], lines[0]["width"]) for key, lines in found.items()}
        items = {key: sum(line["items"] for line in lines) for key, lines in found.items()}
        for key in sorted(found, key=lambda k: (k[1] == "no", *shape[k], k[0])):
            new = key[2] if key[2] != key[0] else "longer"
            told = [interval_text(np.asarray([line[name] for line in found[key]]), within=SHARE)
                    for name in ANSWERED]  # fmt: skip
            rows.append([task, key[0], key[1], new, *shape[key], items[key], *told])
        lines = []
        for name, trained, what in (
            ("trained sizes", "yes", "exact"), ("beyond", "no", "exact"),
            ("beyond, the end given", "no", "ended"),
        ):  # fmt: skip
            some: dict[int, list[float]] = {}
            for key, values in found.items():
                if key[1] == trained and items[key] >= parts.LEAST_ITEMS * len(here):
                    some.setdefault(shape[key][0], []).extend(line[what] for line in values)
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
        "or both. A network that never saw so long an answer may end it too early; so answers are "
        "also judged with their end given.",
        figures=[panels("Exact answers by depth of the computation", "depth",
                        "share of exact answers", shown, y_range=(-0.03, 1.03))],
        tables=[Table("Exact answers by size", ["task", "size", "trained", "what is new", "depth",
                                                "width", "items", "exact", "with the end given",
                                                "too short", "too long"], rows,
                      "Means over seeds with 95 % intervals; largest networks, largest share of "
                      "lists. Too short, too long: answers with fewer or more digits or marks than "
                      "the right one; all others have the right number. The figure leaves "
                      f"out sizes with fewer than {parts.LEAST_ITEMS} items a network.")],
    )  # fmt: skip


def _digits(products: Results) -> Section:
    points, rows, told = [], [], []
    for where, chosen in (("like training", parts.like_training), ("beyond", parts.beyond)):
        found: dict[parts.Written, list[list[parts.Digit]]] = {}
        for row in products:
            for written, digits in parts.digits_of(row, chosen).items():
                found.setdefault(written, []).append(digits)
        xs: list[float | None] = []
        ys: list[float | None] = []
        for (size, count), several in sorted(found.items()):
            gains = parts.gains(size, count)
            for place, gain in enumerate(gains):
                mine = [digits[place] for digits in several]
                beyond = parts.mean([digit.beyond for digit in mine])
                shares = [
                    parts.mean([getattr(d, name) for d in mine]) for name in ("right", "other")
                ]
                xs.append(gain)
                ys.append(_known(beyond))
                rows.append([where, size, count, place + 1, gain, *shares, _known(beyond),
                             len(several)])  # fmt: skip
        told += _lengths(products, where, chosen)
        if xs:
            points.append(Points(where, xs, ys))
    if not told:
        return Section("Digits of wrong products")
    figures = [scatter("Digits of wrong products", "RelIG of the best pair of input digits",
                       "share right beyond other answers", points)] if points else []  # fmt: skip
    return Section(
        "Digits of wrong products",
        "The last digit of a product follows from the last digits of both factors, and the first "
        "nearly so from the first ones; middle digits take the whole computation. RelIG says how "
        "much of a digit the best pair of input digits settles: 1 for all. A network that matches "
        "surfaces gets those digits right also where the product is wrong. Some digits are right "
        "by chance, the commoner in their place the more often: beside each stands what the same "
        "answers have right of other items, and the figure shows what goes beyond it, as a share "
        "of what is left. Answers with fewer or more digits than the product are counted apart.",
        figures=figures,
        tables=[Table("Digits of wrong products",
                      ["where", "size", "digits of the product", "digit, from the left",
                       "RelIG of the best pair", "share right", "of other items", "beyond that",
                       "networks"], rows,
                      f"Sizes with at least {parts.LEAST_WRONG} wrong products of the right "
                      "length. RelIG over all products of this size and length."),
                Table("How long wrong products are",
                      ["where", "size", "digits of the product", "wrong", "too short", "too long"],
                      told, "All networks together.")],
    )  # fmt: skip


def _marks(length: int, reach: int) -> Section:
    """Of the task alone, whatever networks do."""
    rows: list[list[Any]] = [
        [mark, " and ".join(name.removeprefix("a") for name in clue.given), clue.gain]
        for mark, clue in enumerate(parts.clues(length, reach), start=1)
    ]
    return Section(
        "Marks of lists",
        "As for digits of products: how much of each mark the best pair of numbers settles, 1 for "
        "all. The number itself and a neighbour tell most, and at the ends, where there is one "
        "neighbour, more than in the middle. A network can get so much right without the whole "
        "computation; it says nothing of what these networks do.",
        tables=[Table("What a pair of numbers tells of a mark",
                      ["mark, from the left", "best pair of numbers", "RelIG of the best pair"],
                      rows, f"Lists of {length} numbers from {-reach} to {reach}, the longest that "
                      f"training sees: all of them, or {parts.MOST:,} where there are more.")],
    )  # fmt: skip


def _lengths(products: Results, where: str, chosen: parts.Chosen) -> list[list[Any]]:
    """How many wrong products have fewer or more digits than the right one, by its length."""
    found: dict[parts.Written, list[dict[str, Any]]] = {}
    for row in products:
        for line in parts.table(row, "lengths"):
            if chosen(line):
                found.setdefault((line["size"], line["digits"]), []).append(line)
    rows: list[list[Any]] = []
    for written, lines in sorted(found.items()):
        shares = [_weighted([(line[name], line["wrong"]) for line in lines])
                  for name in ("short", "long")]  # fmt: skip
        rows.append([where, *written, sum(line["wrong"] for line in lines), *shares])
    return rows


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


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
            columns.append(_interval(values, shares=True))
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
        "right and a wrong step of one size, layer and operation the right one was more frequent; "
        "one half says that frequency tells nothing. Two that were equally frequent count one "
        "half: of long lists these can be half of all pairs, as much that leads to a late step was "
        "never seen at all. The executors are scored on errors of their own.",
        figures=[dots("Does frequency tell right steps from wrong ones?", tasks, estimates,
                      value_label="AUROC within size, layer and operation", value_range=(0.0, 1.05),
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


BOUNDS = {"depth": "bound", "at_once": "width_bound"}


def _compounding(steps: Results) -> Section:
    shown, rows = [], []
    for task in steps.labels("task"):
        sizes: dict[tuple[str, str], list[dict[str, Any]]] = {}
        exact: dict[int, list[float]] = {}
        bound: dict[int, list[float]] = {}
        for row in steps.where(task=task):
            for line in parts.table(row, "sizes"):
                sizes.setdefault((line["split"], line["size"]), []).append(line)
                exact.setdefault(line["depth"], []).append(line["exact"])
                if line["bound"] is not None:
                    bound.setdefault(line["depth"], []).append(line["bound"])
        lines = [_series("exact answers", exact)]
        lines += [_series("bound from errors of steps", bound)] if bound else []
        shown.append(Panel(task, lines))
        for (_, size), mine in sizes.items():
            told = [
                interval_text(np.asarray([x[name] for x in mine if x[name] is not None]),
                              within=SHARE)
                for name in ("exact", *BOUNDS.values())
            ]  # fmt: skip
            rows.append([task, size, *(mine[0][name] for name in BOUNDS), *told])
    return Section(
        "How errors compound",
        "If each step errs with some chance of its own and rarely mends what came before, the "
        "answer can be right at most so often after so many steps. The bound uses the rates "
        "measured in the same scratchpads. Another bound is for steps side by side: if all of the "
        "fullest layer must be right, and are wrong one by one, the answer is at most as often "
        "right as all of them are, or as errors are mended. It takes errors to be independent, "
        "which nothing here says, so it is shown and no claim rests on it.",
        figures=[panels("Exact answers against what errors of steps compound to", "depth",
                        "share of exact answers", shown, y_range=(-0.03, 1.03))],
        tables=[Table("Exact answers and both bounds",
                      ["task", "size", "steps one after another", "steps at once", "exact",
                       "bound from depth", "bound from width"], rows,
                      "Means over seeds with 95 % intervals. Rates are those of the steps that "
                      "were written: where most were not, the bounds say little.")],
    )  # fmt: skip


def _splits(row: Row) -> list[str]:
    """The splits with endings of both halves, like training first."""
    values = row.readings[parts.READ].values
    return [name.partition("/")[0] for name in values if name.endswith(f"/{TOUCHED}1")]


def _values(found: dict[Any, float]) -> np.ndarray:
    return np.asarray(list(found.values()))


def _interval(
    values: Sequence[float] | np.ndarray, shares: bool = False
) -> tuple[float | None, ...]:  # fmt: skip
    """Estimate, low and high; None for what cannot be said."""
    if not len(values):
        return None, None, None
    found = (share_interval if shares else mean_interval)(np.asarray(values))
    if not found.bounded:
        return found.estimate, None, None
    return found.estimate, found.low, found.high


def _series(name: str, numbers: dict[int, list[float]]) -> Series:
    """Shares by depth."""
    xs = sorted(numbers)
    ends = [_interval(numbers[x], shares=True) for x in xs]
    estimate, low, high = (list(column) for column in zip(*ends, strict=True))
    return Series(name, xs, estimate, low, high)


def _weighted(pairs: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, count) for value, count in pairs if value is not None and count]
    if not known:
        return None
    values, counts = zip(*known, strict=True)
    return float(np.average(values, weights=counts))
