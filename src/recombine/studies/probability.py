"""Do answers that have one right solution still lean towards what is likely?

`recombine run probability --preset standard` trains transformers on shift ciphers over a made-up
language in which the probability of every text, and of every shift, has been set. One shift is a
hundred times as common as another that is no harder. A right answer never depends on how likely it
is. Beside them, placebo networks learn the same ciphers on random letters, all shifts alike, and
are asked the very same questions. Expected after the published tests of language models: likely
answers and common shifts are right first, and wrong answers to unlikely sentences are likely ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from recombine.checks import at_least
from recombine.families.strings import Strings
from recombine.instruments.probability import Probability
from recombine.lab.statistics import Interval, mean_interval, p_value_against
from recombine.lab.study import (
    DIFFERENCE,
    SHARE,
    Cell,
    Claim,
    Evidence,
    NotTested,
    Results,
    Row,
    Seeded,
    Study,
)
from recombine.learners.next_token import NextToken
from recombine.models.sequence import SequenceModel
from recombine.probability.measures import area_between, gap_when
from recombine.report.document import Section
from recombine.seeds import Seeds
from recombine.studies import _base as base
from recombine.studies import _probability as parts
from recombine.studies._probability import (
    HIGH,
    LANGUAGE,
    LOOKS,
    LOW,
    MEDIUM,
    ORIGINAL,
    OTHER,
    PLACEBO,
    RARE,
)

FEWEST = 10  # right and wrong answers that a coefficient needs, and wrong ones that a ratio needs
Number = Callable[[Row], float]

# Why a network that knows its tasks may have no number.
NOT_REACHED = "whose curve never gets there"
ONE_SIDED = f"with fewer than {FEWEST} right or {FEWEST} wrong answers"
TOO_FEW_WRONG = f"with fewer than {FEWEST} wrong answers to such sentences"
TOO_FEW_NEAR = f"with fewer than {FEWEST} answers then that give the one or the other"


@dataclass(frozen=True)
class Grid(Seeded):
    """Sizes by seeds in the language, and the placebo at the largest size."""

    width: tuple[int, ...] = (64,)
    depth: int = 2
    head: int = 32
    words: int = 3
    letters: int = 3  # of every word
    lexicon: int = 40
    shifts: int = 8
    train_items: int = 20_000
    sentences: int = 100  # in each condition
    items: int = 100  # of each task and condition that are read at the end
    steps: int = 1_500
    rate: float = 4e-3
    batch: int = 8
    row: int = 128
    rows: int = 2**13
    evaluations: int = 15
    evaluation_rows: int = 25
    matched: float = 0.5  # the share of likely answers right at which curves are compared
    seeds: int = 5
    placebo_seeds: int = 0


class ProbabilityStudy(Study):
    """Ciphers with set probabilities, beside a placebo without any."""

    name = "probability"
    question = (
        "Is a network more often right when the right answer is likely, or the task common, though "
        "neither makes it easier?"
    )
    source = (
        "After McCoy, Yao, Friedman, Hardy and Griffiths, Embers of Autoregression, 2024; networks "
        "trained from scratch, so that probabilities are set and not estimated"
    )
    cost = "quick: 1.8 min on two CPU cores; standard: 3.4 min on one H200"
    not_shown = (
        "Language models: these networks are small, and so is their language. Published answers "
        "of one are scored again where the data are at hand.",
        "What more training would do: all networks stop at the same step.",
        "Random letters are not only unlikely but unlike the text of all tasks in training. Known "
        "words in an unlikely order are not; the claim about them is free of this.",
    )
    presets: ClassVar = {
        "smoke": Grid(width=(16,), depth=1, head=8, train_items=600, sentences=20, items=20,
                      steps=30, batch=4, rows=2**9, evaluations=3, evaluation_rows=8, seeds=2,
                      placebo_seeds=2),
        "quick": Grid(),
        "standard": Grid(width=(64, 128, 256), depth=4, head=32, words=4, letters=4, lexicon=200,
                         shifts=25, train_items=100_000, sentences=1_000, items=400,
                         steps=10_000, rate=1e-3, batch=24, row=176, rows=20_480,
                         evaluations=100, evaluation_rows=125, placebo_seeds=5),
        "paper": Grid(width=(128, 256, 512), depth=6, head=64, words=6, letters=4, lexicon=200,
                      shifts=25, train_items=1_000_000, sentences=2_000, items=1_000, steps=50_000,
                      rate=3e-4, batch=256, row=256, rows=2**18, evaluations=200,
                      evaluation_rows=250, seeds=10, placebo_seeds=10),
    }  # fmt: skip

    def cells(self, grid: Grid) -> list[Cell]:
        ours = [(LANGUAGE, width, seed) for width in grid.width for seed in grid.drawn(grid.seeds)]
        theirs = [(PLACEBO, max(grid.width), seed) for seed in grid.drawn(grid.placebo_seeds)]
        return [cell(grid, *chosen) for chosen in (*ours, *theirs)]

    def claims(self, grid: Grid) -> list[Claim]:
        small, large = min(grid.width), max(grid.width)
        first = f"at the first look where more than {grid.matched:g} of the likely ones are right"
        end = "at the end of training"
        likely, common = gap(grid, HIGH, LOW), gap(grid, HIGH, RARE)
        end_likely, end_common = at_end(HIGH, LOW), at_end(HIGH, RARE)
        ours, theirs = {"world": LANGUAGE, "width": large}, {"world": PLACEBO, "width": large}
        lead = "Decoding the common shift, likely sentences are right more often than random ones"
        ahead = "Decoding likely sentences, the common shift is right more often than the rare one"
        no_lead = "In the placebo, likely sentences and random letters are right equally often"
        no_ahead = "In the placebo, the same two shifts are right equally often"
        return [
            Claim("floor: knows its tasks",
                  f"At width {large}, at least .9 of the answers are exact on items like those of "
                  "training", floor(ours), at_least=base.SEEN_FLOOR, within=SHARE),
            Claim("likely answers come first", f"{lead}, by at least .15, {first}",
                  mean_of(ours, likely), at_least=0.15, within=DIFFERENCE),
            Claim("likely answers are ahead at the end", f"{lead}, by at least .15, {end}",
                  mean_of(ours, end_likely), at_least=0.15, within=DIFFERENCE),
            Claim("likely answers are ahead all the way",
                  f"{lead}, on average over training (the area between their curves)",
                  mean_of(ours, area), above=0.0),
            Claim("also where all words are known",
                  "Decoding the common shift, likely sentences are right more often than the same "
                  f"words in any order, {first}", mean_of(ours, gap(grid, HIGH, MEDIUM)),
                  above=0.0, within=DIFFERENCE),
            Claim("the output's probability counts",
                  "Over all tasks and conditions, answers are right more often the likelier the "
                  "right output (log-odds for one standard deviation)",
                  mean_of(ours, coefficient("output"), ONE_SIDED), above=0.0),
            Claim("more than the input's",
                  "The coefficient of the output's probability is larger than that of the input's",
                  mean_of(ours, difference, ONE_SIDED), above=0.0),
            Claim("common shifts come first", f"{ahead}, by at least .3, {first}",
                  mean_of(ours, common), at_least=0.3, within=DIFFERENCE),
            Claim("common shifts are ahead at the end", f"{ahead}, by at least .3, {end}",
                  mean_of(ours, end_common), at_least=0.3, within=DIFFERENCE),
            Claim("drawn to the likely",
                  "Asked to decode a sentence with an unlikely word, wrong answers give the likely "
                  "sentence at least 3 times as often as one with another neighbour of the word",
                  ratio_of(ours, at_end_drawn, TOO_FEW_WRONG), at_least=3.0),
            Claim("drawn to the likely on the way",
                  "Asked to decode the common shift of a sentence with an unlikely word, networks "
                  "give the likely sentence at least 3 times as often as one with another "
                  f"neighbour of the word, {first}",
                  ratio_of(ours, early_drawn(grid), TOO_FEW_NEAR), at_least=3.0),
            Claim("placebo: knows its tasks",
                  "At least .9 of the placebo's answers are exact on items like those of its "
                  "training", floor(theirs), at_least=base.SEEN_FLOOR, within=SHARE),
            Claim("placebo: no condition comes first", f"{no_lead}, within .05, {first}",
                  mean_of(theirs, likely), at_least=-0.05, at_most=0.05),
            Claim("placebo: no condition is ahead at the end", f"{no_lead}, within .05, {end}",
                  mean_of(theirs, end_likely), at_least=-0.05, at_most=0.05),
            Claim("placebo: no shift comes first",
                  f"{no_ahead}, within .05, at the first look where more than {grid.matched:g} of "
                  "the one called common are right", mean_of(theirs, common),
                  at_least=-0.05, at_most=0.05),
            Claim("placebo: no shift is ahead at the end", f"{no_ahead}, within .05, {end}",
                  mean_of(theirs, end_common), at_least=-0.05, at_most=0.05),
            Claim("the lead shrinks with size",
                  f"The lead of likely sentences over random letters is smaller at width {large} "
                  f"than at {small}, {first}", by_size(small, large, likely), below=0.0),
            Claim("the lead shrinks with size at the end",
                  f"The same lead is smaller at width {large} than at {small} {end}",
                  by_size(small, large, end_likely), below=0.0),
            Claim("published: accuracies come out again",
                  "GPT-4's published answers to rot-13, scored again, are right as often as "
                  "reported in every condition, to .01 (the largest difference)",
                  parts.accuracies_again, "items", at_most=0.01),
            Claim("published: the regression comes out again",
                  "Fitted again, the regression on its published table of items agrees with "
                  "statsmodels to two decimals (the largest difference among estimates, standard "
                  "errors and deviances)",
                  parts.regression_again, "items", at_most=0.005),
        ]  # fmt: skip

    def sections(self, grid: Grid, results: Results) -> Sequence[Section]:
        return parts.sections(grid, results)


def cell(grid: Grid, world: str, width: int, seed: int) -> Cell:
    """A network in a world of its own: language, shifts, items and weights follow the seed."""
    at_least(grid, items=1)  # or nothing could be read of what was trained
    family = Strings(
        content=seed, uniform=world == PLACEBO, tasks=("cipher",), text="free", words=grid.words,
        lengths=(grid.letters,), lexicon=grid.lexicon, shifts=grid.shifts,
        train_items=grid.train_items, test_items=max(100, grid.sentences),
        sentences=grid.sentences, validation_items=16, mistakes=True,
    )  # fmt: skip
    model = SequenceModel(depth=grid.depth, width=width, heads=max(1, width // grid.head))
    learner = NextToken(
        family=family, model=model, seeds=Seeds.all(seed), training_steps=grid.steps,
        batch=grid.batch, learning_rate=grid.rate, warmup=max(10, grid.steps // 20), row=grid.row,
        rows=grid.rows, vocabulary=64, evaluation_rows=grid.evaluation_rows, looks=LOOKS,
        evaluation_every=max(10, grid.steps // grid.evaluations // 10 * 10),
    )  # fmt: skip
    labels = {"world": world, "width": width, "seed": seed, "parameters": learner.size}
    return Cell(learner, labels, (Probability(sentences=grid.items),))


def gap(grid: Grid, upper: str, lower: str) -> Number:
    """The lead of one curve at the first look where it has passed the matched share, or NaN."""
    return lambda row: gap_when(row.curve(upper)[1], row.curve(lower)[1], grid.matched)


def at_end(upper: str, lower: str) -> Number:
    return lambda row: row.value("probability", upper) - row.value("probability", lower)


def area(row: Row) -> float:
    steps, upper = row.curve(HIGH)
    return area_between(steps, upper, row.curve(LOW)[1])


def coefficient(name: str) -> Number:
    """A coefficient, or NaN where almost all answers are right, or wrong."""

    def number(row: Row) -> float:
        fewest = min(row.value("probability", "right"), row.value("probability", "wrong"))
        return row.value("probability", name) if fewest >= FEWEST else math.nan

    return number


def difference(row: Row) -> float:
    return coefficient("output")(row) - coefficient("input")(row)


def floor(labels: dict[str, object]) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        rows = [row for row in base.require_labels(results, **labels) if not row.diverged]
        values = np.asarray([parts.seen(row) for row in rows])
        return Evidence.of_values(base.require(values, "Networks"))

    return measure


def numbers(
    results: Results, labels: dict[str, object], number: Number, lacking: str = NOT_REACHED
) -> tuple[dict[int, float], str]:
    """One number for each seed whose network knows its tasks, and a note on all that have none.

    `lacking` says why a network that knows its tasks may have no number.
    """
    rows = base.require_labels(results, **labels)
    able = [row for row in rows if not row.diverged and parts.seen(row) >= base.SEEN_FLOOR]
    found = {row.labels["seed"]: number(row) for row in able}
    told = {seed: value for seed, value in found.items() if math.isfinite(value)}
    words = [f"{len(rows) - len(able)} below .9 like training"] if len(able) < len(rows) else []
    if len(told) < len(found):
        words.append(f"{len(found) - len(told)} of {len(found)} that know their tasks, {lacking}")
    return told, f"Left out: {', '.join(words)}." if words else ""


def enough(told: dict[int, float], note: str) -> np.ndarray:
    if len(told) < 2:
        raise NotTested(f"Needs two networks, has {len(told)}. {note}".strip())
    return np.asarray(list(told.values()))


def mean_of(
    labels: dict[str, object], number: Number, lacking: str = NOT_REACHED
) -> Callable[[Results], Evidence]:
    def measure(results: Results) -> Evidence:
        told, note = numbers(results, labels, number, lacking)
        return Evidence.of_values(enough(told, note), note)

    return measure


def by_size(small: int, large: int, number: Number) -> Callable[[Results], Evidence]:
    """large - small for each seed that both have."""

    def measure(results: Results) -> Evidence:
        if small == large:
            raise NotTested("Needs two sizes.")
        (less, _), (more, _) = (
            numbers(results, {"world": LANGUAGE, "width": width}, number)
            for width in (small, large)
        )
        pairs = {seed: more[seed] - less[seed] for seed in less if seed in more}
        return Evidence.of_values(enough(pairs, "At both sizes."))

    return measure


def at_end_drawn(row: Row) -> float:
    """How much more often wrong answers give the likely sentence, at the end of training."""
    enough = row.value("probability", "adversarial_wrong") >= FEWEST
    return row.value("probability", "ratio") if enough else math.nan


def early_drawn(grid: Grid) -> Number:
    """The same at the first look where likely sentences have passed the matched share.

    By the end networks make too few mistakes. Half an answer is added to either side, as there.
    """

    def number(row: Row) -> float:
        above = np.flatnonzero(row.curve(HIGH)[1] > grid.matched)
        if not above.size:
            return math.nan
        original, other = (  # whole answers: a share in single precision falls short of them
            round(float(row.curve(look)[1][above[0]]) * looked_at(grid))
            for look in (ORIGINAL, OTHER)
        )
        return (original + 0.5) / (other + 0.5) if original + other >= FEWEST else math.nan

    return number


def looked_at(grid: Grid) -> int:
    """How many sentences a look along training has room for."""
    text = grid.words * (grid.letters + 1) - 1
    tokens = len("-N ") + 2 * text + 2  # question, answer, and a mark before and after it
    return min(grid.sentences, grid.evaluation_rows * (grid.row // tokens))


def ratio_of(
    labels: dict[str, object], number: Number, lacking: str
) -> Callable[[Results], Evidence]:
    """The geometric mean of a ratio over networks: a ratio has no zero to average around."""

    def measure(results: Results) -> Evidence:
        told, note = numbers(results, labels, number, lacking)
        logs = np.log(enough(told, note))

        def interval(level: float) -> Interval:
            found = mean_interval(logs, level=level)
            ends = {name: math.exp(getattr(found, name)) for name in ("estimate", "low", "high")}
            return replace(found, method=f"{found.method} of logarithms", **ends)

        return Evidence(interval, lambda bound: p_value_against(logs, math.log(bound)), note)

    return measure
