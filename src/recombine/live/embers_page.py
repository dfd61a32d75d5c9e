"""What the page of `embers` shows: conditions beside published models, pairs, the regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from recombine.errors import InvalidRequest
from recombine.lab.logistic import Logistic, independent_columns, logistic, variance_inflation
from recombine.live.embers_pairs import difference, frequent_and_rare, main_task, pairs
from recombine.live.embers_stimuli import (
    ADVERSARIAL,
    HIGH,
    LIKELIHOODS,
    LOW,
    MEDIUM,
    PREDICTORS,
)
from recombine.live.kit import Answers, share
from recombine.probability.scoring import mcnemar, scored
from recombine.report.document import Cell, Figure, Section, Table
from recombine.report.figures import Estimates, dots

# Accuracy in decoding rot-13 of likely, middling and unlikely sentences, 100 of each, scored again
# from the published answers.
PUBLISHED: Mapping[str, tuple[float, float, float]] = {
    "GPT-3.5 (0613)": (0.21, 0.07, 0.04),
    "GPT-4 (0613)": (0.51, 0.22, 0.13),
    "Claude 3 Opus": (0.98, 0.92, 0.86),
    "Llama 3 70B": (0.05, 0.01, 0.00),
    "Gemini 1.0 Pro": (0.00, 0.00, 0.00),
}
COMPARED = (HIGH, MEDIUM, LOW)
SHOWN = 6
LONGEST = 160


def sections(answers: Answers) -> list[Section]:
    """The parts of the page, those for which there are answers."""
    task = main_task(answers)
    beside = task == "rot13dec"
    found = [
        Section(
            "Accuracy by condition",
            "The steps are the same in every condition; what differs is how likely the right "
            "answer is as text. Right means, by the published rule, that the right answer stands "
            "in what was said; exact, that nothing else does. Intervals are exact (Clopper and "
            "Pearson), over sentences."
            + (" Published models were asked about all 100 sentences." if beside else ""),
            figures=[_figure(answers, task, beside)],
            tables=[_accuracy(answers), *([_published(answers, task)] if beside else [])],
        ),
        *_pairs_section(answers, task),
        *_drawn_section(answers, task),
        regression_section(answers, task),
    ]
    if wrong := _wrong(answers):
        found.append(Section("Some wrong answers", tables=[wrong]))
    return found


def _figure(answers: Answers, task: str, beside: bool) -> Figure:
    asked = answers.where(task=task).labels("condition")
    shown = [c for c in COMPARED if c in asked] if beside else asked
    shown = shown or asked
    rates = [answers.where(task=task, condition=c).rate() for c in shown]
    series = [
        Estimates("this model", [r.estimate for r in rates], [r.low for r in rates],
                  [r.high for r in rates])
    ]  # fmt: skip
    for name, values in PUBLISHED.items() if beside else ():
        known = dict(zip(COMPARED, values, strict=True))
        series.append(Estimates(name, [known.get(c) for c in shown]))
    return dots(
        f"Accuracy by condition, {task}", shown, series, value_label="share right",
        value_range=(-0.03, 1.03),
    )  # fmt: skip


def _accuracy(answers: Answers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in answers.labels("task"):
        for condition in answers.where(task=task).labels("condition"):
            part = answers.where(task=task, condition=condition)
            rate = part.rate()
            rows.append(
                (task, condition, rate.estimate, rate.low, rate.high, part.mean("exact"), len(part))
            )
    columns = ("task", "condition", "right", "low", "high", "exact", "items")
    return Table("Accuracy by task and condition", columns, rows)


def _published(answers: Answers, task: str) -> Table:
    def row(name: str, rates: Sequence[float | None]) -> tuple[Cell, ...]:
        first, last = rates[0], rates[-1]
        fall = None if first is None or last is None else round(first - last, 10)
        return (name, *rates, fall)

    own: list[float | None] = []
    for condition in COMPARED:
        part = answers.where(task=task, condition=condition)
        own.append(part.rate().estimate if len(part) else None)
    rows = [row("this model", own), *(row(name, rates) for name, rates in PUBLISHED.items())]
    note = "Published models were asked in 2023 and 2024; their answers were scored again."
    return Table("Beside published models, rot-13", ("model", *COMPARED, "high - low"), rows, note)


def _pairs_section(answers: Answers, task: str) -> list[Section]:
    compared = [
        (f"{task}: {HIGH} - {other}", {"task": task, "condition": HIGH},
         {"task": task, "condition": other})
        for other in (LOW, MEDIUM, ADVERSARIAL)
    ]  # fmt: skip
    if both := frequent_and_rare(answers):
        compared += [
            (f"{both[0]} - {both[1]}: {c}", {"task": both[0], "condition": c},
             {"task": both[1], "condition": c})
            for c in COMPARED
        ]  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for name, first, second in compared:
        if found := pairs(answers, first, second):
            test = mcnemar([a for a, _ in found], [b for _, b in found])
            gap = difference(found)
            rows.append(
                (name, gap.estimate, gap.low, gap.high, test.first_only, test.second_only, test.p,
                 len(found))
            )  # fmt: skip
    if not rows:
        return []
    columns = ("compared", "difference", "low", "high", "first only", "second only", "McNemar p",
               "pairs")  # fmt: skip
    text = (
        "The same sentence, or one made from it, in two conditions or two ciphers: how much more "
        "often the first is right (by resampling pairs, or Bonett and Price's interval where fewer "
        "than five pairs differ), and McNemar's exact test. There is no ember if the whole "
        "interval of high - low lies below 0.05."
    )
    return [Section("The same sentences compared", text, tables=[Table("Pairs", columns, rows)])]


def _drawn_section(answers: Answers, task: str) -> list[Section]:
    rows: list[tuple[Cell, ...]] = []
    counts = []
    for name, condition in (
        ("an unlikely sentence mistaken for its likely twin", ADVERSARIAL),
        ("a likely sentence mistaken for its unlikely twin", HIGH),
    ):
        part = answers.where(task=task, condition=condition)
        wrong = [row for row in part if row["correct"] != 1 and row["twin"]]
        drawn = int(sum(row["drawn"] for row in wrong))
        counts.append((drawn, len(wrong) - drawn))
        rate = share(drawn, len(wrong)) if wrong else None
        shown = (None, None, None) if rate is None else (rate.estimate, rate.low, rate.high)
        rows.append((name, len(part), len(wrong), drawn, *shown))
    if not answers.where(task=task, condition=ADVERSARIAL):
        return []
    columns = ("mistake", "items", "wrong", "the twin", "share of wrong", "low", "high")
    p = float(stats.fisher_exact(counts).pvalue)  # type: ignore[attr-defined]
    text = (
        "An adversarial sentence differs from a likely one in a letter or two. Of the wrong "
        "answers to it, the share that gives the likely sentence instead is the rate of "
        "regularisation. The other way round is the control: mere slips go both ways alike."
    )
    note = f"Fisher's exact p that both shares are the same: {p:.3g}."
    table = Table("Wrong answers that give the twin", columns, rows, note)
    return [Section("Drawn to the likely", text, tables=[table])]


def regression_section(answers: Answers, task: str) -> Section:
    """The published regression on what is known of these items, or why there is none."""
    title = "What the probability of the answer does"
    try:
        fit, dropped, inflation, told_by = regression(answers, task)
    except InvalidRequest as reason:
        return Section(title, f"There is no regression here: {str(reason).rstrip('.')}.")
    text = (
        f"Logistic regression of right and wrong on properties of {fit.rows} items of {task}, each "
        "in standard deviations, after the published one. Log-probabilities are those of "
        f"{told_by}."
        + (f" Left out, because the others make them up: {', '.join(dropped)}." if dropped else "")
        + (" The answers are separable, so that coefficients have Cauchy priors (scale 2.5)."
           if fit.separated else "")
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (one.name, one.estimate, one.interval.low, one.interval.high, one.p,
         inflation.get(one.name))
        for one in fit.coefficients
    ]  # fmt: skip
    columns = ("predictor", "log-odds", "low", "high", "Wald p", "variance inflation")
    note = "Above about 10, the inflation says that predictors can hardly be told apart."
    return Section(title, text, tables=[Table("Logistic regression", columns, rows, note)])


def regression(
    answers: Answers, task: str
) -> tuple[Logistic, tuple[str, ...], dict[str, float], str]:
    """The fit, columns left out, variance inflation, and who told the log-probabilities."""
    rows = [
        row for row in answers.where(task=task)
        if row["condition"] != ADVERSARIAL and row["output_logprob"] is not None
    ]  # fmt: skip
    if not rows:
        raise InvalidRequest(
            "nobody told how likely the texts are; --set scorer=FOLDER has a local language model "
            "tell it"
        )
    if len({row["correct"] for row in rows}) == 1:
        raise InvalidRequest("all answers are right, or all are wrong.")
    names = [name for name in PREDICTORS if all(row[name] is not None for row in rows)]
    columns = np.array([[float(row[name]) for name in names] for row in rows])
    kept = independent_columns(columns)
    chosen = [name for name, keep in zip(names, kept, strict=True) if keep]
    if not set(chosen) & set(LIKELIHOODS):
        raise InvalidRequest("all texts are equally likely.")
    fit = logistic([row["correct"] for row in rows], columns[:, kept], chosen)
    inflation = variance_inflation(columns[:, kept]).tolist()
    dropped = tuple(name for name, keep in zip(names, kept, strict=True) if not keep)
    told_by = " and ".join(dict.fromkeys(str(row["told_by"]) for row in rows))
    return fit, dropped, dict(zip(chosen, inflation, strict=True)), told_by


def _wrong(answers: Answers) -> Table | None:
    wrong = [row for row in answers if row["correct"] != 1]
    by_cell: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(wrong):
        by_cell.setdefault((row["task"], row["condition"]), []).append(place)
    # The first of each condition, then the second of each: a few of different kinds say more.
    order = sorted((nth, p) for places in by_cell.values() for nth, p in enumerate(places))
    if not order:
        return None
    rows = [
        (row.question.id, _short(row.question.gold), said := _short(row.answer.text),
         scored(row.question.gold, said).distance)
        for row in (wrong[place] for _, place in order[:SHOWN])
    ]  # fmt: skip
    note = "All answers, with their prompts, are in table.csv."
    return Table("Some wrong answers", ("question", "right", "said", "edits off"), rows, note)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"
