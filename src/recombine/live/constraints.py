"""Which constraints a language model obeys, beside what answers without competence obey."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.constraints.ceiling import MODEL, concluded
from recombine.constraints.family import verdict_scores
from recombine.constraints.problem import KINDS, Problem, judge
from recombine.constraints.prompts import parse, prompt, stated
from recombine.constraints.tasks import POWER_FLOW, WHOLE_NUMBERS, task_named
from recombine.errors import InvalidRequest
from recombine.lab.judge import Judgement
from recombine.lab.study import Claim, Evidence, NotTested
from recombine.live.comparing import Earlier, difference
from recombine.live.constraints_page import family_of, null_shares, problem_of, sections, told
from recombine.live.differences import mean_within
from recombine.live.kit import Answers, Kit, Options, Question, enough, if_readable, verdicts
from recombine.report.document import Section

LOW, HIGH = 0.50, 0.65  # where the share of satisfied constraints is said to stay
APART = 0.05  # two runs that differ by no more satisfy the same share
SAME = f"the same within {APART:.2f}"
GUESS = "guess"  # the null answer that is not drawn
ALONE = "Use no tools. Answer with one JSON object and nothing else, no explanation"
THINKING = "Use no tools. Think as long as you need, then end with one JSON object"


@dataclass(frozen=True)
class ConstraintsOptions(Options):
    """Which tasks, how many instances of each, and whether the model may think aloud first."""

    tasks: tuple[str, ...] = ("case9", "portfolio", "scheduling", "knapsack")
    thinking: bool = False


class Constraints(Kit):
    """Which constraints a language model's answers obey."""

    name = "constraints"
    question = (
        "Which constraints do a language model's answers obey, and is that more than answers "
        "without competence obey?"
    )
    source = (
        "Bernier, Ghamizi, Dogoulis and Cordy, Can large language models reason and optimize under "
        "constraints?, 2026; instances, tolerances and baselines are this program's own"
    )
    options = ConstraintsOptions()
    main = "strict"
    longest = 4096
    # What is feasible depends on the instance, not on its optimum: gold is not what is scored.
    within = None
    paired = ("task", "instance")
    not_shown = (
        "How the published share weighs its constraints, or with which tolerances. Here balances "
        "hold to .01 and bounds to .001 per unit; whole numbers must be exact.",
        "What the model could do with tools, with other words for the same problem, or at another "
        "temperature than 0.",
        "Whether a feasible answer was reasoned out or guessed; the rows of answers without "
        "competence say how far guessing goes.",
    )

    def questions(self, options: ConstraintsOptions) -> Iterator[Question]:
        for task in dict.fromkeys(options.tasks):
            family = family_of(task)
            found = family.cases(family.rng(options.seed, "live"), "train", options.items)
            for number, (case, x) in enumerate(found):
                text = prompt(case.problem)
                if ALONE not in text:
                    raise InvalidRequest("the prompt of a problem no longer ends as this kit needs")
                columns = {
                    "task": task, "kind": task_named(task).kind, "part": case.part,
                    "variables": len(x), "instance": family.write(case.problem),
                }  # fmt: skip
                yield Question(
                    f"{task}-{number}",
                    text.replace(ALONE, THINKING) if options.thinking else text,
                    _solution(case.problem, x),
                    columns,
                )

    def score(self, question: Question, answer: str) -> dict[str, float]:
        problem = problem_of(question)
        x = said(problem, answer)
        verdict = judge(problem, x, parse(problem, question.gold))
        kinds = np.array([rule.kind for rule in problem.constraints])
        counts = {}
        for kind in KINDS:  # counts, as an instance may have none of a kind
            counts[f"{kind} held"] = float(verdict.satisfied[kinds == kind].sum())
            counts[f"{kind} asked"] = float((kinds == kind).sum())
        scores = verdict_scores(verdict)
        kept = ("strict", "parsed", "micro", "gap", "squared_error")
        return {**{name: scores[name] for name in kept}, **counts}

    def claims(self, answers: Answers) -> Sequence[Claim]:
        kinds = [k for k in (POWER_FLOW, WHOLE_NUMBERS) if len(answers.where(kind=k))]
        return [claim for kind in kinds for claim in _claims(kind, answers.where(kind=kind))]

    def compared(self, answers: Answers, other: Earlier) -> Sequence[Claim]:
        kinds = [k for k in (POWER_FLOW, WHOLE_NUMBERS) if len(answers.where(kind=k))]
        return [_same(kind, answers.where(kind=kind), other) for kind in kinds]

    def conclusion(self, answers: Answers, judgements: Sequence[Judgement]) -> str:
        each = [told(answers.where(task=task)) for task in answers.labels("task")]
        reasons = dict.fromkeys(one.note for one in judgements if one.interval is None)
        said = concluded([one for one in judgements if one.interval is not None], MODEL)
        head = " ".join([said, *reasons]) if said else verdicts(judgements)
        return f"{head} Satisfied: {'; '.join(each)}.{_beside(judgements)}"

    def sections(self, answers: Answers) -> Sequence[Section]:
        return sections(answers)


def _solution(problem: Problem, x: Float[np.ndarray, "variable"]) -> str:
    named = zip(problem.variables, x, strict=True)
    return json.dumps({v.name: round(value) if v.whole else float(value) for v, value in named})


def said(problem: Problem, text: str) -> Float[np.ndarray, "variable"] | None:
    """The values an answer states, whatever is said around them; None if it states none.

    >>> from recombine.constraints.knapsack import Knapsack
    >>> said(Knapsack((6,), (3,), (1,), 4, 3), 'It fits: {"x1": 1}').tolist()
    [1.0]
    """
    try:
        return stated(problem, text)
    except InvalidRequest:
        return None


def _claims(kind: str, answers: Answers) -> list[Claim]:
    """The published claims, and the one that would unmask them, for one kind of problem."""
    on = f"On {kind}"

    def read(measure: Callable[[], Evidence]) -> Callable[[Any], Evidence]:
        return if_readable(answers, measure, f" on {kind}")

    def share(kind_of: str) -> Evidence:
        rows = [row for row in answers if row[f"{kind_of} asked"]]
        if not rows:
            raise NotTested(f"No instance has a constraint of kind {kind_of}.")
        enough(len(rows), f"instances with a constraint of kind {kind_of}")
        return mean_within([r[f"{kind_of} held"] / r[f"{kind_of} asked"] for r in rows], 0, 1)

    return [
        Claim(f"{kind}: takes no competence",
              f"{on}, an answer that takes no thought, or the optimum with 1 % noise, satisfies at "
              f"least {LOW:.2f} of all constraints, where the ceiling is said to begin",
              read(lambda: _null(answers)), "items", at_least=LOW),
        Claim(f"{kind}: ceiling",
              f"{on}, the model satisfies between {LOW:.2f} and {HIGH:.2f} of the constraints",
              read(lambda: mean_within(answers.values("micro"), 0, 1)), "items",
              at_least=LOW, at_most=HIGH),
        Claim(f"{kind}: boxes hold", f"{on}, it satisfies at least .85 of the box constraints",
              read(lambda: share("box")), "items", at_least=0.85),
        Claim(f"{kind}: equalities fail", f"{on}, it satisfies at most .25 of the equalities",
              read(lambda: share("equality")), "items", at_most=0.25),
        Claim(f"{kind}: hardly ever feasible",
              f"{on}, at most .05 of its answers satisfy every constraint",
              read(lambda: Evidence.of_interval(lambda level: answers.rate("strict", level))),
              "items", at_most=0.05),
        Claim(f"{kind}: artefact",
              f"{on}, an answer that takes no thought, or the optimum with 1 % noise, satisfies at "
              f"least as large a share of the constraints as the model does, to {APART:.2f}",
              read(lambda: _null_over_model(answers)), "items", at_least=-APART),
    ]  # fmt: skip


def _same(kind: str, answers: Answers, other: Earlier) -> Claim:
    """The published claim that to reason changes nothing, or any other two runs side by side."""
    return Claim(
        f"{kind}: {SAME}",
        f"On {kind}, the share of satisfied constraints differs by at most {APART:.2f} from that "
        "of the earlier run on the same instances",
        if_readable(answers, lambda: difference(answers, other, "micro", f" on {kind}"),
                    f" on {kind}"),
        "items", at_least=-APART, at_most=APART,
    )  # fmt: skip


def _beside(judgements: Sequence[Judgement]) -> str:
    """How this run differs from an earlier one, where it was put against one."""
    told = [
        f"{one.claim.name.partition(':')[0]} {one.interval.estimate:+.3f} "
        f"[{one.interval.low:+.3f}, {one.interval.high:+.3f}], {SAME}: {one.verdict}"
        for one in judgements
        if one.claim.name.endswith(f": {SAME}") and one.interval is not None
    ]
    return f" More than the earlier run: {'; '.join(told)}." if told else ""


def _null(answers: Answers) -> Evidence:
    name, shares = _better_null(answers)
    told = f"The {name}, the better of the two."
    # Nothing of a guess is drawn, and on a grid it breaks the same balances whatever the loads:
    # equal shares are then how the problem is made, not a sample of what might differ.
    return Evidence.of_values(shares, told) if name == GUESS else mean_within(shares, 0, 1, told)


def _null_over_model(answers: Answers) -> Evidence:
    name, shares = _better_null(answers)
    own = np.asarray(answers.values("micro"))
    return mean_within(shares - own, -1, 1, f"Against the {name}, the better of the two.")


def _better_null(answers: Answers) -> tuple[str, Float[np.ndarray, "item"]]:
    """Which of a guess and the optimum with noise satisfies more, and its share item by item."""
    shares = null_shares(answers)
    best = max((GUESS, "noise"), key=lambda name: float(np.mean(shares[name])))
    return best, shares[best]
