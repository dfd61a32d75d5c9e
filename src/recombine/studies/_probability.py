"""How the probability study reads its rows, and what its report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recombine.errors import RecombineError
from recombine.families.strings import ORIGINAL, OTHER
from recombine.instruments.probability import PLANTED, PULL
from recombine.lab.logistic import Logistic
from recombine.lab.statistics import Interval, mean_interval
from recombine.lab.study import Evidence, NotTested, Results, Row
from recombine.probability import embers, mcnemar
from recombine.report.document import Figure, Section, Table
from recombine.report.figures import Estimates, Panel, Series, dots, heat_maps, panels
from recombine.report.figures import Grid as Heat
from recombine.studies import _base as base

LANGUAGE, PLACEBO = "language", "placebo"
HIGH, MEDIUM, LOW = (f"decode common {name}" for name in ("high", "medium", "low"))
ADVERSARIAL, RARE = "decode common adversarial", "decode rare high"
ENCODE_HIGH, ENCODE_LOW = "encode common high", "encode common low"
LOOKS = ("seen", HIGH, MEDIUM, LOW, ADVERSARIAL, RARE, ENCODE_HIGH, ENCODE_LOW, ORIGINAL, OTHER)
CONDITIONS = {
    "high": "likely sentence",
    "medium": "its words in any order",
    "low": "random letters",
    "adversarial": "one unlikely word",
}
THEIR_CONDITIONS = {  # the published ones differ a little
    "high": "likely sentence",
    "medium": "unlikely words",
    "low": "unlikely words in random order",
}
TASKS = ("decode common", "decode rare", "encode common", "encode rare")
WORLDS = {LANGUAGE: "trained in the language", PLACEBO: "placebo: random letters, shifts alike"}
EXACT = "share of exact answers"


def seen(row: Row) -> float:
    return row.value("probability", "seen")


def sections(grid: Any, results: Results) -> list[Section]:
    large = results.where(width=max(grid.width))
    found = _of_the_widest(grid, results, large) if large else []
    if len(grid.width) > 1:
        found.append(Section(
            "Size", "The lead of likely sentences over random letters, decoding the common shift.",
            figures=[_sizes(grid, results.where(world=LANGUAGE))],
        ))  # fmt: skip
    return [*found, published()]


def _of_the_widest(grid: Any, results: Results, large: Results) -> list[Section]:
    placebo = (
        " The placebo learnt the cipher on random letters with all shifts alike, so that none of "
        "this means anything to it."
    ) if large.where(world=PLACEBO) else ""  # fmt: skip
    return [
        Section(
            "What comes first",
            "Decoding with the common shift. All curves are about the same cipher, and only differ "
            "in how likely the right answer is; the last is the same likely sentences with a shift "
            f"that is a hundred times rarer.{placebo}",
            figures=[_along(grid, large)],
        ),
        Section(
            "What is right at the end",
            "Every sentence is asked in four conditions, to decode and to encode, with both "
            "shifts. When decoding, the sentence is the answer; when encoding, it is the question.",
            figures=[_heat(large)], tables=[_scores(grid, results)],
        ),
        Section(
            "What the probabilities of input and output do",
            "How much one standard deviation more of log-probability adds to the log-odds of a "
            "right answer, in one regression over all tasks and conditions. Answers dealt out anew "
            "must show nothing, and a scripted answerer whose odds follow the output's probability "
            f"must show {PLANTED:g} for the output and nothing for the input.",
            figures=[_coefficients(large)],
        ),
        Section(
            "Are wrong answers likely ones?",
            "Here one word of a likely sentence was swapped for a neighbour that nobody expects "
            "there. A network that undoes the swap gives a likely sentence, and is wrong. The "
            "sentence with some other neighbour of the word is as near, but nothing calls for it. "
            "Along training with the common shift; below, wrong answers at the end with both.",
            figures=[_mistaken(grid, large)], tables=_pull(grid, large),
        ),
    ]  # fmt: skip


def _worlds(rows: Results) -> list[tuple[str, str]]:
    """Those that were trained in, with their titles."""
    return [(world, title) for world, title in WORLDS.items() if rows.where(world=world)]


def _along(grid: Any, rows: Results) -> Figure:
    shown = []
    for world, title in _worlds(rows):
        here = [row for row in rows.where(world=world) if not row.diverged]
        names = {look: CONDITIONS[look.rpartition(" ")[2]] for look in (HIGH, MEDIUM, LOW)}
        names |= {ADVERSARIAL: CONDITIONS["adversarial"], RARE: "likely sentence, rare shift"}
        shown.append(Panel(title, [_curve(here, look, name) for look, name in names.items()]))
    return panels(
        f"Exact answers along training, at width {max(grid.width)}", "training steps", EXACT,
        shown, y_range=(0.0, 1.0), columns=2, references=[(grid.matched, "curves compared here")],
        caption="Means over seeds with 95 % intervals.",
    )  # fmt: skip


def _mistaken(grid: Any, rows: Results) -> Figure:
    shown = []
    for world, title in _worlds(rows):
        here = [row for row in rows.where(world=world) if not row.diverged]
        names = {ORIGINAL: "gives the likely sentence", OTHER: "gives one other neighbour"}
        shown.append(Panel(title, [_curve(here, look, name) for look, name in names.items()]))
    return panels(
        f"What sentences with one unlikely word are taken for, at width {max(grid.width)}",
        "training steps", "share of answers", shown, columns=2,
        caption="Means over seeds with 95 % intervals, of all answers to such sentences.",
    )  # fmt: skip


def _curve(rows: Sequence[Row], look: str, name: str) -> Series:
    if not rows:
        return Series(name, [], [])
    steps = rows[0].curve(look)[0]
    values = np.stack([row.curve(look)[1] for row in rows])
    found = [base.share_interval(values[:, n]) for n in range(len(steps))]
    return Series(name, steps.tolist(), [one.estimate for one in found],
                  *zip(*(_ends(one) for one in found), strict=True))  # fmt: skip


def _ends(interval: Interval) -> tuple[float | None, float | None]:
    return (interval.low, interval.high) if interval.bounded else (None, None)


def _heat(rows: Results) -> Figure:
    heats = []
    for world, title in _worlds(rows):
        here = rows.where(world=world)
        values = [[base.mean(here.values("probability", f"{task} {name}")) for name in CONDITIONS]
                  for task in TASKS]  # fmt: skip
        heats.append(Heat(title, [f"{task} shift" for task in TASKS],
                          list(CONDITIONS.values()), values))  # fmt: skip
    return heat_maps(
        "Exact answers by task and condition", heats, row_label="task", value_label=EXACT,
        column_label="condition", scale=(0.0, 1.0), missing="none",
        caption="Means over seeds, at the largest width.",
    )  # fmt: skip


def _scores(grid: Any, results: Results) -> Table:
    rows = []
    for world in WORLDS:
        for width in grid.width:
            here = results.where(world=world, width=width)
            if not here:
                continue
            shares = [base.mean(here.values("probability", name))
                      for name in ("seen", HIGH, MEDIUM, LOW, RARE)]  # fmt: skip
            behind = sum(not seen(row) >= base.SEEN_FLOOR for row in here)
            rows.append([world, width, *shares, len(here), behind])
    return Table(
        "Exact answers at the end of training",
        ["world", "width", "like training", "likely", "any order",
         "random letters", "rare shift", "networks", "below .9"],
        rows,
        "Means over seeds, decoding; the rare shift on likely sentences, the others with the "
        "common shift. Networks below .9 like training speak for or against no claim. The "
        "untrained twins answer nothing.",
    )  # fmt: skip


def _coefficients(rows: Results) -> Figure:
    names = {"output": "output's log-probability", "input": "input's log-probability"}
    ours, theirs = rows.where(world=LANGUAGE), rows.where(world=PLACEBO)
    groups = {
        "in the language": (ours, None), "placebo": (theirs, None),
        "answers dealt out anew": (ours, "shuffled"), "scripted answerer": (ours, "planted"),
    }  # fmt: skip
    series = []
    for title, (here, control) in groups.items():
        if not here:
            continue
        found = [_interval(here.values("probability", name, control)) for name in names]
        series.append(Estimates(title, *zip(*found, strict=True)))
    return dots(
        "Coefficients of log-probability", list(names.values()), series,
        value_label="log-odds for one standard deviation",
        references=[(0.0, "nothing")],
        caption="Means over seeds with 95 % intervals, at the largest width.",
    )  # fmt: skip


def _pull(grid: Any, rows: Results) -> list[Table]:
    told = []
    groups: list[tuple[str, Results, str | None]] = [
        *((title, rows.where(world=world), None) for world, title in _worlds(rows)),
        ("scripted answerer", rows.where(world=LANGUAGE), "planted"),
    ]
    for title, here, control in groups:
        cells: list[Any] = [title]
        for name in ("adversarial_wrong", "original", "other"):
            values = here.values("probability", name, control)
            cells.append(base.mean(values))
        ratios = here.values("probability", "ratio", control)
        cells.append(float(np.exp(np.log(ratios).mean())) if ratios.size else None)
        told.append(cells)
    found = [Table(
        "Wrong answers to sentences with one unlikely word",
        ["networks", "wrong answers", "give the likely sentence", "give one other neighbour",
         "ratio"],
        told,
        "Means over seeds (of the ratio, the geometric mean, with half an answer added to either "
        f"side). The scripted answerer prefers the likely sentence {PULL:g} to 1.",
    )]  # fmt: skip
    examples = [
        row for network in rows.where(world=LANGUAGE)
        for row in zip(*_columns(network, "drawn", ("asked", "right", "said")), strict=True)
    ][:8]  # fmt: skip
    if examples:
        found.append(Table(
            "Some of them", ["asked", "right answer", "what the network says"],
            [list(row) for row in examples],
            "-K asks to take off the cipher in which a was written as k.",
        ))  # fmt: skip
    return found


def _columns(row: Row, table: str, names: Sequence[str]) -> list[list[Any]]:
    reading = row.readings.get("probability")
    return [reading.tables[table][name] if reading else [] for name in names]


def _sizes(grid: Any, rows: Results) -> Figure:
    from recombine.studies.probability import at_end, gap

    shown = [
        Panel(title, [base.series_over(rows, "width", number, "likely less random letters")])
        for title, number in (
            (f"when likely sentences pass {grid.matched:g}", gap(grid, HIGH, LOW)),
            ("at the end of training", at_end(HIGH, LOW)),
        )
    ]
    return panels("The lead of the likely by size", "width", "difference of shares", shown,
                  log_x=True, columns=2, references=[(0.0, "none")])  # fmt: skip


class Published(NamedTuple):
    """GPT-4's published answers, scored again, and the published regression, fitted again."""

    logs: Mapping[str, embers.Log]
    fit: Logistic


def answers_of_gpt_4() -> Published:
    """What is published, read anew; an error with what to type where it is not here."""
    from recombine.data import located

    folder = located("embers")
    logs = {name: embers.log(name, folder=folder) for name in embers.ACCURACIES}
    return Published(logs, embers.regression(embers.item_table(folder=folder)))


def _read_anew() -> Published:
    try:
        return answers_of_gpt_4()
    except RecombineError:
        raise NotTested("The published answers are not here: recombine data get embers.") from None


def accuracies_again(results: Results) -> Evidence:
    """The largest difference between a share that is reported and the same scored again."""
    logs = _read_anew().logs
    shares = {name: float(log.correct.mean()) for name, log in logs.items()}
    away = [abs(shares[name] - told) for name, told in embers.ACCURACIES.items()]
    said = ", ".join(f"{THEIR_CONDITIONS[name]} {share:.2f}" for name, share in shares.items())
    items = sum(len(log.golds) for log in logs.values())
    return _without_sampling(max(away), items, f"Scored again: {said}.")


def regression_again(results: Results) -> Evidence:
    """The largest difference to statsmodels among estimates, standard errors and deviances."""
    fit = _read_anew().fit
    ours = [*((c.estimate, c.standard_error) for c in fit.coefficients),
            (fit.deviance, fit.null_deviance)]  # fmt: skip
    theirs = [*(embers.COEFFICIENTS[c.name] for c in fit.coefficients), embers.DEVIANCES]
    return _without_sampling(float(np.abs(np.subtract(ours, theirs)).max()), fit.rows, "")


def _without_sampling(value: float, units: int, note: str) -> Evidence:
    """Of the published items there are no others: the number is what it is."""
    return Evidence.of_interval(
        lambda level: Interval(value, value, value, units, "no spread", level), note
    )


def published() -> Section:
    """GPT-4's published answers scored again, or how to get them."""
    title = "A language model, for comparison"
    try:
        logs, fit = answers_of_gpt_4()
    except RecombineError as error:
        return Section(title, f"The published answers of GPT-4 are scored here again where the "
                              f"data are at hand. {error}.")  # fmt: skip
    shares = [[THEIR_CONDITIONS[name], len(log.golds), float(log.correct.mean()),
               float(np.mean([one.exact for one in log.scores]))]
              for name, log in logs.items()]  # fmt: skip
    p = mcnemar(logs["high"].correct, logs["low"].correct).p
    effects = [[title, fit[name].estimate, fit[name].standard_error, fit[name].p]
               for name, title in (("output_logprob", "output's log-probability"),
                                   ("input_logprob", "input's log-probability"))]  # fmt: skip
    return Section(
        title,
        f"{embers.MODEL} asked to decode rot-13, which is common on the web: answers published by "
        "McCoy and others (2024), scored again from what was said. The conditions differ a little "
        "from ours: words are replaced by unlikely ones, then put in random order. Likely "
        f"sentences are right more often than the least likely (exact McNemar p = {p:.1g}).",
        tables=[
            Table("Published answers, scored again",
                  ["condition", "items", "right answer contained", "exactly"],
                  shares),
            Table("Published regression, fitted again",
                  ["predictor", "log-odds for one standard deviation", "standard error", "p"],
                  effects, "Lengths in tokens and characters are beside them in the regression."),
        ],
    )  # fmt: skip


def _interval(values: np.ndarray) -> tuple[float | None, float | None, float | None]:
    if not values.size:
        return None, None, None
    found = mean_interval(values)
    if not found.bounded:
        return found.estimate, None, None
    return found.estimate, found.low, found.high
