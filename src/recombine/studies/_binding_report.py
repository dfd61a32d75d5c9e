"""What the report of the study of binding shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recombine.lab.intervals import mean_interval
from recombine.lab.study import DIFFERENCE, SHARE, Results, Row
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Estimates, Panel, Series, curves, dots, panels
from recombine.studies import _base as base
from recombine.studies import _binding as parts
from recombine.studies._binding import CHANNELS, CONV, NAMES, SLOTS
from recombine.studies._binding_pictures import masks, questions

ARI = DIFFERENCE  # from -1 to 1, too
RIGHT = "share right"
HALF = (0.5, "chance")
WHOLE = (-0.03, 1.03)  # markers at 0 and 1 stay whole
FROM_CHANCE = (0.4, 1.03)


def sections(grid: Any, results: Results) -> list[Section]:
    if not any(row.readings for row in results):
        return [Section("Nothing to show yet")]
    makers = {"swap": swap_section, "report": report_section, "search": search_section}
    asked = [task for task in makers if results.where(task=task)]
    found = [questions(grid, asked)] if asked else []
    found += [makers[task](grid, results.where(task=task)) for task in asked]
    if results.where(model=CONV):
        found.append(limits(grid, results.where(model=CONV)))
    if results.where(task="segregation"):
        found.append(segregation_section(results.where(task="segregation")))
    return found


def estimate(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """A mean and its interval, as far as there is one."""
    numbers = np.asarray([v for v in values if np.isfinite(v)])
    if numbers.size < 2:
        return (float(numbers[0]) if numbers.size else None), None, None
    interval = mean_interval(numbers)
    return interval.estimate, interval.low, interval.high


def line(name: str, xs: Sequence[Any], values: Callable[[Any], Sequence[float]]) -> Series:
    columns = [estimate(values(x)) for x in xs]
    y, low, high = zip(*columns, strict=True)
    return Series(name, list(xs), y, low, high)


def there(results: Results) -> list[str]:
    """The models of some rows, in the usual order."""
    return [model for model in NAMES if results.where(model=model)]


def whole(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.diverged and row.readings]


def told(values: Sequence[float] | np.ndarray, within: tuple[float, float] | None = None) -> str:
    return base.interval_text(np.asarray(values, float), within=within)


# Swaps and held-out pairs


def swap_section(grid: Any, results: Results) -> Section:
    home = results.where(width=max(grid.width), held_out=min(grid.held_out))
    figures = [_widest(grid, home)] if home else []
    figures += _scaling(grid, results) if len(grid.width) > 1 else []
    return Section(
        "Which features belong together",
        "Is this colour on this shape? A network that knows all features and no binding is right "
        "in half of the cases. Held-out pairs are colours and shapes that training never showed "
        "together: there, a network that only knows the pairs it was shown says no to all.",
        figures, (_swap_table(results),),
    )  # fmt: skip


def _widest(grid: Any, home: Results) -> Figure:
    models = there(home)
    series = [
        Estimates(name, *zip(*(
            estimate([number(row) for row in whole(home.where(model=m))]) for m in models
        ), strict=True))
        for name, number in (("trained pairs", parts.seen), ("held-out pairs", parts.unseen))
    ]  # fmt: skip
    return dots(
        f"Swaps, width {max(grid.width)}, {min(grid.held_out):.3g} of the pairs held out",
        [NAMES[m] for m in models],
        series,
        value_label=RIGHT,
        references=[HALF],
    )


def _scaling(grid: Any, results: Results) -> list[Figure]:
    shown = []
    for model in there(results):
        lines = []
        for share in grid.held_out:
            for word, number in (("trained", parts.seen), ("held out", parts.unseen)):
                here = results.where(model=model, held_out=share)
                lines.append(line(
                    f"{word} ({share:.3g} held out)", grid.width,
                    lambda w, here=here, number=number: [
                        number(row) for row in whole(here.where(width=w))
                    ],
                ))  # fmt: skip
        shown.append(Panel(NAMES[model], lines))
    return [panels("Swaps by width: does scale close the gap?", "width", RIGHT, shown, log_x=True,
                   y_range=FROM_CHANCE, references=[HALF])]  # fmt: skip


def _swap_table(results: Results) -> Table:
    rows = []
    for model in there(results):
        for width in results.where(model=model).labels("width"):
            for share in results.where(model=model, width=width).labels("held_out"):
                here = results.where(model=model, width=width, held_out=share)
                good = whole(here)
                values = [told([number(row) for row in good if np.isfinite(number(row))],
                               DIFFERENCE if number is parts.gap else SHARE)
                          for number in (parts.seen, parts.unseen, parts.gap)]  # fmt: skip
                twins = here.values("binding", "seen", "untrained")
                behind = sum(not parts.learnt(row) for row in good)
                rows.append([NAMES[model], width, here[0].labels["parameters"], share, *values,
                             base.mean(twins), len(here), behind, here.diverged])  # fmt: skip
    return Table(
        "Swaps",
        ["network", "width", "parameters", "held out", "trained pairs", "held-out pairs", "gap",
         "untrained twin", "networks", "below .9", "diverged"], rows,
        "Means with 95 % intervals over seeds. A bag is never counted as below .9: it cannot bind, "
        "and a scripted observer of features is right in .5.",
    )  # fmt: skip


# Reports


def report_section(grid: Any, results: Results) -> Section:
    models = there(results)
    shown = [
        Panel(NAMES[m], [
            line(f"width {w}", grid.objects, lambda n, m=m, w=w: [
                parts.reported(n)(row) for row in whole(results.where(model=m, width=w))
            ]) for w in grid.width
        ]) for m in models
    ]  # fmt: skip
    return Section(
        "What is reported",
        "All objects of a scene, as a set. A conjunction error is an object whose colour and whose "
        "shape are both in the scene, but not together; a feature error has a colour or a shape "
        "that is nowhere. Who guesses both features makes conjunction errors too: how many is "
        "said beside.",
        (panels("Objects reported right, by how many there are", "objects in the scene",
                "share of objects", shown, y_range=WHOLE),),
        (_errors(results, models),),
    )  # fmt: skip


def _errors(results: Results, models: Sequence[str]) -> Table:
    names = ("seen", "seen_objects", "seen_conjunction_errors", "seen_feature_errors",
             "seen_repeated", "seen_missed", "seen_conjunction_share",
             "seen_conjunction_expected", "unseen_objects", "unseen_pair")  # fmt: skip
    rows: list[list[Any]] = []
    for here in by_width(results, models):
        values = [told(here.values("binding", name), SHARE) for name in names]
        rows.append([*sized(here), *values, len(here)])
    if models:
        control = results.where(model=models[0])
        for prefix, told_as in (
            ("bag_", "scripted: features without binding"),
            ("", "scripted: sees all"),
        ):
            values = [told(control.values("binding", f"{prefix}{name}", "planted"), SHARE)
                      for name in names]  # fmt: skip
            rows.append([told_as, None, None, *values, len(control)])
        rows.append(["untrained " + NAMES[models[0]], None, None,
                     *(told(control.values("binding", name, "untrained"), SHARE)
                       for name in names), len(control)])  # fmt: skip
    return Table(
        "Errors by kind",
        ["network", "width", "parameters", "whole scenes right", "objects right",
         "conjunction errors", "feature errors", "repeated", "missed",
         "conjunctions among wrong things", "by guessing", "objects right, with a held-out pair",
         "held-out pair reported", "networks"], rows,
        "Per object, trained pairs; means with 95 % intervals over seeds.",
    )  # fmt: skip


# Search


def search_section(grid: Any, results: Results) -> Section:
    models, home = there(results), results.where(width=max(grid.search_width))
    shown = [
        Panel(kind, [
            line(NAMES[m], grid.tested, lambda n, m=m, kind=kind: [
                parts.found(kind, n)(row) for row in whole(home.where(model=m))
            ]) for m in models
        ]) for kind in ("disjunctive", "palette", "published", "conjunctive")
    ]  # fmt: skip
    sizes = ", ".join(map(str, grid.set_size))
    return Section(
        "Search among many",
        "Is the target there? Disjunctive: all others are of one other colour. Palette: the "
        "others are of any colours but the target's, which repeat among many. Published: others "
        "have the target's colour or its shape, by lot, so that numbers of colours and shapes tell "
        "and tell less plainly among more. Conjunctive: others have the target's colour, its shape "
        "or neither, and a scene with the target has as many objects of each colour and of each "
        "shape as one without; who does not bind guesses there, among few objects as among many. "
        f"Training showed {sizes} objects; larger sets are new.",
        (panels(f"Targets found, by kind of search, width {max(grid.search_width)}",
                "objects in the scene", RIGHT, shown, y_range=FROM_CHANCE, references=[HALF]),),
        tuple(_interactions(grid, results, models, *kind) for kind in
              (("published", "published_interaction"), ("conjunctive", "interaction"))),
    )  # fmt: skip


def by_width(results: Results, models: Sequence[str]) -> list[Results]:
    """The networks of each model and width."""
    return [
        results.where(model=model, width=width) for model in models
        for width in results.where(model=model).labels("width")
    ]  # fmt: skip


def sized(here: Results) -> list[Any]:
    """A network's name, width and number of parameters."""
    labels = here[0].labels
    return [NAMES[labels["model"]], labels["width"], labels["parameters"]]


def _interactions(
    grid: Any, results: Results, models: Sequence[str], kind: str, word: str
) -> Table:
    names = [f"seen_{word}_n{n}" for n in grid.tested]
    names += [f"seen_{word}_slope", f"seen_{word}_growth", f"seen_{kind}_n{min(grid.tested)}"]
    rows: list[list[Any]] = []
    for here in by_width(results, models):
        behind = sum(not parts.learnt(row) for row in whole(here))
        values = [told(here.values("binding", name)) for name in names]
        rows.append([*sized(here), *values, len(here), behind])
    if models:
        control = results.where(model=models[0])
        values = [told(control.values("binding", f"bag_{name}", "planted")) for name in names]
        rows.append(["scripted: features without binding", None, None, *values, len(control), None])
    return Table(
        f"Disjunctive minus {kind}",
        ["network", "width", "parameters", *(f"{n} objects" for n in grid.tested),
         "slope by object", "most minus fewest", f"{kind}, {min(grid.tested)} objects",
         "networks", "left out"], rows,
        "Means with 95 % intervals over seeds. Left out of claims: networks that find by colour, "
        "among the fewest objects, in less than .9 of the cases. Who guesses at conjunctions among "
        "the fewest objects (.5) has nothing to lose among more.",
    )  # fmt: skip


# Limits


def limits(grid: Any, results: Results) -> Section:
    """How far plain convolution goes along every way in which scenes become harder."""
    ways: list[tuple[str, str, int, Callable[[Row], dict[Any, float]]]] = [
        ("objects in a report", "report", max(grid.width), parts.reports),
        ("objects in conjunctive search", "search", max(grid.search_width),
         lambda row: parts.sizes(row, "conjunctive")),
    ]  # fmt: skip
    rows = []
    for name, task, width, scores in ways:
        rows_of = whole(results.where(task=task, width=width))
        here = [scores(row) for row in rows_of if parts.learnt(row)]
        levels = {level: float(np.mean([one[level] for one in here])) for level in
                  (here[0] if here else ())}  # fmt: skip
        rows += [_limit(name, levels)] if levels else []
    swaps = whole(results.where(task="swap", width=max(grid.width)))
    swaps = Results([row for row in swaps if parts.learnt(row)])
    shares = {0.0: [parts.seen(row) for row in swaps]}
    for share in grid.held_out:
        shares[share] = [parts.unseen(row) for row in swaps.where(held_out=share)]
    levels = {share: float(np.mean(values)) for share, values in shares.items() if values}
    rows += [_limit("share of pairs held out", levels)] if levels else []
    return Section(
        "How far plain convolution goes",
        "Scenes are made harder until plain convolution is right in less than .9 of the cases, or "
        "until the limit of what was tried. Where it is never below, a failure to bind is not "
        "shown for it at this scale.",
        tables=[Table(
            "Scores of plain convolution, from the easiest to the hardest",
            ["harder by", "scores", "first below .9 at", "hardest tried"], rows,
            "Means over seeds of the widest networks, of those that do at least .9 of the easiest. "
            "Share of pairs held out: right about held-out pairs; at 0, about trained ones.",
        )],
    )  # fmt: skip


def _limit(name: str, levels: dict[Any, float]) -> list[Any]:
    scores = ", ".join(f"{level:.3g}: {value:.2f}" for level, value in sorted(levels.items()))
    below = [level for level, value in sorted(levels.items()) if value < parts.LEARNT]
    return [name, scores, f"{below[0]:.3g}" if below else "never", f"{max(levels):.3g}"]


# Segregation


def segregation_section(results: Results) -> Section:
    models = there(results)
    rows: list[list[Any]] = []
    for model in models:
        here = results.where(model=model)
        values = [
            told(here.values("segregation", name), within)
            for name, within in (("fg_ari_median", ARI), ("fg_ari", ARI), ("mse", (0.0, np.inf)))
        ]
        controls = [base.mean(here.values("segregation", "fg_ari", c))
                    for c in ("untrained", "shuffled", "planted")]  # fmt: skip
        colour = base.mean(here.values("segregation", "colour_ari"))
        rows.append([NAMES[model], here[0].labels["parameters"], *values, colour, *controls,
                     len(here)])  # fmt: skip
    lines = [_along(NAMES[model], whole(results.where(model=model))) for model in models]
    return Section(
        "Objects without labels",
        "Autoencoders draw pictures of three tetrominoes again and are never told where one ends. "
        "Each pixel is given to one of four parts; foreground ARI is 1 where the parts of the "
        "pixels that are not background are the pieces, and 0 where they agree by chance. "
        "Colours may repeat, so that sorting by colour is not enough.",
        (curves("Foreground ARI along training", "training steps", "foreground ARI", lines,
                y_range=(-0.05, 1.03)),),
        (Table("Segregation",
               ["network", "parameters", "foreground ARI, median over pictures", "mean",
                "squared error", "by colour alone", "untrained twin", "parts of other pictures",
                "true objects", "networks"], rows,
               "Means with 95 % intervals over seeds."),),
        galleries=[g for m in (SLOTS, CHANNELS) if (g := masks(whole(results.where(model=m))))],
    )  # fmt: skip


def _along(name: str, rows: Sequence[Row]) -> Series:
    steps = rows[0].curve("fg_ari")[0] if rows else np.zeros(0)
    every = [row.curve("fg_ari")[1] for row in rows]
    every = [values for values in every if len(values) == len(steps)]
    return line(name, steps.tolist(), lambda s: [v[list(steps).index(s)] for v in every]) if (
        len(steps) and every) else Series(name, [], [])  # fmt: skip
