"""Whether a language model does better where the answer is likely text, with nothing else changed.

After "Embers of Autoregression" (McCoy et al., 2024): to undo a cipher takes the same steps
whatever comes out, so an accuracy that follows the probability of the answer is a trace of what
the model was made for, to foretell text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recombine.errors import InvalidRequest
from recombine.lab.judge import Judgement
from recombine.lab.study import Claim, Evidence, NotTested
from recombine.live.embers_page import sections
from recombine.live.embers_pairs import Pairs, difference, frequent_and_rare, main_task, pairs
from recombine.live.embers_stimuli import (
    ADVERSARIAL,
    CONDITIONS,
    HIGH,
    LOW,
    asked,
    of_files,
    of_network,
    published,
    told_again,
)
from recombine.live.kit import Answers, Kit, Options, Question, enough, readable
from recombine.live.local import LocalModel
from recombine.live.model import Model, Taught
from recombine.probability.scoring import unquoted
from recombine.report.document import Section

SMALL = 0.05  # a difference that would not matter, and an accuracy too low to show one
PAIRS = "pairs of the same sentence"


@dataclass(frozen=True)
class EmbersOptions(Options):
    """Which tasks and conditions, about how many sentences; or stimuli of one's own.

    Without `tasks`, all of the set. `scorer` is the folder of a local causal language model, for
    the log-probabilities of the regression.
    """

    items: int = 100
    tasks: tuple[str, ...] = ()
    conditions: tuple[str, ...] = CONDITIONS
    stimuli: tuple[str, ...] = ()
    scorer: str = ""


class Embers(Kit):
    """Whether a language model does better where answers are probable."""

    name = "embers"
    question = (
        "Does a language model undo a cipher more often where the answer is likely text, though "
        "the steps are the same?"
    )
    source = (
        "McCoy, Yao, Friedman, Hardy and Griffiths, Embers of autoregression (PNAS 2024): its "
        "stimuli, its rule of scoring and its regression"
    )
    options = EmbersOptions()
    within = ("task", "condition")
    not_shown = (
        "That probability is the cause. Likely sentences differ from unlikely ones in other ways "
        "too; the regression holds lengths and the probability of the input fixed, no more.",
        "Anything about a model that is always right, or never: neither can show a difference "
        "here, and the first may show one in a harder task.",
        "Whether the published sentences were in the model's training text. They have been public "
        "since 2023.",
        "Other prompts than the published one, and sampling: one answer, at temperature 0.",
    )

    def questions(self, options: EmbersOptions) -> Iterable[Question]:
        return asked(_stimuli(options), options.items, options.seed)

    def questions_for(self, options: EmbersOptions, model: Model) -> Iterable[Question]:
        if not isinstance(model, Taught) or options.stimuli:
            return self.questions(options)
        own = of_network(model, options.tasks, options.conditions)
        return asked(own, options.items, options.seed)

    def score(self, question: Question, answer: str) -> dict[str, float]:
        # The rule of `probability.scoring.scored`, without counting edits: every answer is marked
        # several times, and a long one has thousands of letters.
        right, twin = unquoted(question.gold), unquoted(str(question.columns["twin"]))
        correct = right in answer
        return {
            "correct": float(correct),
            "exact": float(right == unquoted(answer)),
            "drawn": float(bool(twin) and not correct and twin in answer),
        }

    def prepared(
        self, questions: Sequence[Question], options: EmbersOptions, model: Model
    ) -> Sequence[Question]:
        if options.scorer:
            local = LocalModel(options.scorer, quiet=True)
            return told_again(questions, local, local.identity)
        if hasattr(model, "log_probability"):
            return told_again(questions, model, "the model itself")
        return questions

    def chosen(self, settings: Any = None, *, items: Any = None, seed: Any = None) -> Any:
        options = super().chosen(settings, items=items, seed=seed)
        if options.stimuli and (options.tasks or options.conditions != CONDITIONS):
            raise InvalidRequest(
                "stimuli of your own bring their tasks and conditions: leave out "
                f"{'tasks' if options.tasks else 'conditions'}"
            )
        if options.scorer:
            LocalModel(options.scorer)  # refused now rather than after the last question
        return options

    def claims(self, answers: Answers) -> Sequence[Claim]:
        return (
            Claim(
                "ember",
                "Likely answers are found more often than unlikely ones, by at least 0.05.",
                lambda _: _ember(answers),
                unit="sentences",
                at_least=SMALL,
            ),
            Claim(
                "frequent",
                "The frequent cipher is undone more often than the rare one, by at least 0.05, in "
                "likely sentences.",
                lambda _: _frequent(answers),
                unit="sentences",
                at_least=SMALL,
            ),
            Claim(
                "drawn",
                "An unlikely sentence is mistaken for its likely twin more often than the other "
                "way round.",
                lambda _: _drawn(answers),
                unit="sentences",
                above=0.0,
            ),
        )

    def conclusion(self, answers: Answers, judgements: Sequence[Judgement]) -> str:
        ember = judgements[0]
        if ember.interval is None:
            return (
                f"Whether there is an ember was not tested. {ember.note} Right: {_rates(answers)}."
            )
        found = ember.interval
        words = {"supported": "An ember", "refuted": "No ember"}
        told = (
            f"{words.get(ember.verdict, 'It cannot be told whether there is an ember')}: likely "
            f"answers are right more often than unlikely ones by {found.estimate:.2f} "
            f"[{found.low:.2f}, {found.high:.2f}], over {found.units} sentences."
        )
        return f"{told} Right: {_rates(answers)}."

    def sections(self, answers: Answers) -> Sequence[Section]:
        return sections(answers)


def _stimuli(options: EmbersOptions) -> list[Any]:
    if options.stimuli:
        return of_files(options.stimuli)
    return published(options.tasks, options.conditions)


def _rates(answers: Answers) -> str:
    """Every accuracy in a line."""
    told = []
    for task in answers.labels("task"):
        part = answers.where(task=task)
        rates = [
            f"{condition} {part.where(condition=condition).rate().estimate:.2f}"
            for condition in part.labels("condition")
        ]
        told.append(f"{task} {', '.join(rates)}")
    return "; ".join(told)


def _ember(answers: Answers) -> Evidence:
    task = main_task(answers)
    sides = {"task": task, "condition": HIGH}, {"task": task, "condition": LOW}
    return _more(answers, sides, "It takes the same sentences in the conditions high and low.")


def _frequent(answers: Answers) -> Evidence:
    both = frequent_and_rare(answers)
    if both is None:
        raise NotTested("It takes a frequent and a rare cipher.")
    sides = {"task": both[0], "condition": HIGH}, {"task": both[1], "condition": HIGH}
    return _more(answers, sides, "It takes the same likely sentences in both ciphers.")


def _drawn(answers: Answers) -> Evidence:
    task = main_task(answers)
    sides = {"task": task, "condition": ADVERSARIAL}, {"task": task, "condition": HIGH}
    found = pairs(answers, *sides, "drawn")
    if not found or all(row["correct"] == 1 for row in answers.where(**sides[0])):
        raise NotTested("It takes adversarial items, with their twins, that are answered wrong.")
    _judged(answers, sides, found)
    return Evidence.of_interval(lambda level: difference(found, level))


Sides = tuple[dict[str, str], dict[str, str]]


def _more(answers: Answers, sides: Sides, otherwise: str) -> Evidence:
    """How much more often the first side is right than the second."""
    found = pairs(answers, *sides)
    if not found:
        raise NotTested(otherwise)
    _judged(answers, sides, found)
    best = max(math.fsum(side) for side in zip(*found, strict=True)) / len(found)
    if best < SMALL:  # no difference can be seen where there is nothing to lose
        raise NotTested(f"At most {best:.2f} of these answers are right: nothing to tell apart.")
    return Evidence.of_interval(lambda level: difference(found, level))


def _judged(answers: Answers, sides: Sides, found: Pairs) -> None:
    """Refuses too few pairs, and sides of which one was refused, cut off or left empty."""
    enough(len(found), PAIRS)
    for side in sides:
        readable(answers.where(**side), f" to {side['task']} {side['condition']}")
