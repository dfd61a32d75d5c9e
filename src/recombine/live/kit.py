"""A kit: questions for a language model, how answers are scored, and what the page says of them.

A kit knows nothing of endpoints, keys, prices, files or threads, and a model nothing of kits.
`live/asking.py` brings the two together. A new kit is one class and a line in `live.REGISTRY`:

    @dataclass(frozen=True)
    class SumOptions(Options):            # what can be set: --items, --seed, --set largest=99
        largest: int = 9

    class Sums(Kit):
        \"\"\"Can it add two numbers?\"\"\"      # the title of the page

        name, question = "sums", "Can a language model add two numbers?"
        options, longest = SumOptions(), 64                   # tokens an answer may have
        not_shown = ("Nothing about subtraction.",)

        def questions(self, options):                         # the same options, the same list
            rng = random.Random(host_seed(options.seed, self.name))
            for number in range(options.items):
                a, b = rng.randint(0, options.largest), rng.randint(0, options.largest)
                yield Question(f"sum-{number}", f"What is {a}+{b}?", str(a + b), {"size": a + b})

        def score(self, question, answer):                    # only from its two arguments
            return {"correct": float(answer.strip() == question.gold)}

        def sections(self, answers):                          # only of questions answered so far
            return [Section("By size", tables=[rates_table(answers, ("size",))])]

`score` must give the same names every time, among them `Kit.main`, a number from 0 to 1. The gold
answer itself must score 1 on it (or what `solve` says, where that is overridden): a run checks
this first, and refuses a kit that would mark a perfect answerer down. A score named `parsed` says
whether an answer could be read; without it, only an empty one could not, nor one that was cut off
and is not right. Every page also shows the
same answers marked against the gold of other questions (`shuffled`), exchanged among those that
agree in the columns `Kit.within`; None leaves this control out, where gold is not what is scored.
`claims(answers)` are `recombine.lab.study.Claim`s whose `measure` ignores its argument and looks at
`answers`; they get verdicts and Holm-adjusted intervals. Put the measure in `if_readable`, so that
a model that says nothing of use is not judged. `prepared` may add columns that take a
model to compute, such as the log-probability of each gold answer. `questions_for` may put the same
in other words to a network trained here, which knows only the words of its family.
"""

from __future__ import annotations

import abc
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scipy import stats

from recombine.constraints.problem import READABLE
from recombine.errors import InvalidRequest, unknown
from recombine.lab.intervals import Interval
from recombine.lab.judge import Judgement, sentence
from recombine.lab.study import Claim, Evidence, NotTested, with_settings
from recombine.live.model import Answer, Model
from recombine.report.document import Cell, Section, Table
from recombine.seeds import host_seed

if TYPE_CHECKING:
    from recombine.live.comparing import Earlier

FEWEST = 5  # answers that a verdict is made of, as units of replication elsewhere


@dataclass(frozen=True)
class Question:
    """One prompt, its right answer, and columns to group and plot by."""

    id: str
    prompt: str
    gold: str
    columns: Mapping[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What every kit lets a user set; a kit's own options are further fields with defaults.

    `items` is how many questions each condition has, not how many there are in all.
    """

    items: int = 20
    seed: int = 0


@dataclass(frozen=True)
class Answered:
    """A question with what was said and how it scored."""

    question: Question
    answer: Answer
    scores: Mapping[str, float]

    def __getitem__(self, name: str) -> Any:
        """A column of the question, or a score."""
        columns = self.question.columns
        return columns[name] if name in columns else self.scores[name]

    @property
    def could_be_read(self) -> bool:
        """What the score `parsed` says."""
        return bool(self.scores["parsed"])


class Answers(Sequence[Answered]):
    """The answers so far, in the order of the questions; `asked` is how many there should be."""

    def __init__(self, rows: Iterable[Answered], asked: int):
        self.rows, self.asked = tuple(rows), asked

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Answered]:
        return iter(self.rows)

    @property
    def missing(self) -> int:
        """Questions that are not answered yet."""
        return self.asked - len(self.rows)

    def where(self, **columns: Any) -> Answers:
        """Those with these values in these columns."""
        rows = [r for r in self.rows if all(r[name] == v for name, v in columns.items())]
        return Answers(rows, len(rows))

    def labels(self, column: str) -> list[Any]:
        """The values that a column takes, in order of appearance."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def values(self, name: str) -> list[Any]:
        """One column or score of every answer."""
        return [row[name] for row in self.rows]

    def rate(self, score: str = "correct", level: float = 0.95) -> Interval:
        """The share of answers with this score at 1, with its exact interval."""
        values = self.values(score)
        return share(sum(value == 1 for value in values), len(values), level)

    def mean(self, score: str) -> float:
        """The mean of a score."""
        return math.fsum(self.values(score)) / len(self.rows)

    def table(self) -> Table:
        """Everything, one row an answer, for a spreadsheet."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row.question.columns))
        scores = list(dict.fromkeys(name for row in self.rows for name in row.scores))
        fixed = ("gold", "answer", "log_probability", "cut", "refusal", "prompt")
        rows = [
            (
                row.question.id,
                *(row.question.columns.get(name) for name in columns),
                *(row.scores.get(name) for name in scores),
                *(row.question.gold, row.answer.text, row.answer.log_probability),
                *(int(row.answer.cut), row.answer.refusal, row.question.prompt),
            )
            for row in self.rows
        ]
        return Table("answers", ("id", *columns, *scores, *fixed), rows)


class Kit(abc.ABC):
    """A named set of questions with scoring and a report; see the module for an example."""

    name: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str] = ""
    options: ClassVar[Options] = Options()
    main: ClassVar[str] = "correct"
    longest: ClassVar[int] = 1024
    within: ClassVar[tuple[str, ...] | None] = ()
    not_shown: ClassVar[tuple[str, ...]] = ()
    paired: ClassVar[tuple[str, ...]] = ()  # columns that say that two runs asked the same

    @abc.abstractmethod
    def questions(self, options: Any) -> Iterable[Question]:
        """All questions; ids are unique, and more items only add questions."""

    def questions_for(self, options: Any, model: Model) -> Iterable[Question]:
        """The questions for one model: the same for all, unless a kit has some that fit better."""
        return self.questions(options)

    @abc.abstractmethod
    def score(self, question: Question, answer: str) -> dict[str, float]:
        """Numbers for one answer, always under the same names."""

    @abc.abstractmethod
    def sections(self, answers: Answers) -> Sequence[Section]:
        """What the page shows; `answers` has at least one row, and may be incomplete."""

    def claims(self, answers: Answers) -> Sequence[Claim]:
        """Sentences with a criterion that was fixed before anything was asked."""
        return ()

    def compared(self, answers: Answers, other: Earlier) -> Sequence[Claim]:
        """Claims about an earlier run over the same instances, in a kit that has `paired`."""
        return ()

    def conclusion(self, answers: Answers, judgements: Sequence[Judgement]) -> str:
        """The whole in a sentence or two."""
        mean = f"Mean {self.main}: {answers.mean(self.main):.2f} over {len(answers)} answers."
        return f"{verdicts(judgements)} {mean}" if judgements else mean

    def solve(self, question: Question) -> str:
        """What a perfect answerer would say: the control that the scorer can be satisfied."""
        return question.gold

    def prepared(
        self, questions: Sequence[Question], options: Any, model: Model
    ) -> Sequence[Question]:
        """The same questions with columns that take a model to compute, and the same prompts."""
        return questions

    def chosen(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        items: int | None = None,
        seed: int | None = None,
    ) -> Any:
        """The kit's options with what a user set.

        >>> from recombine.live import kit_named
        >>> kit_named("battery").chosen({"depths": "1,2"}, items=5).depths
        (1, 2)
        """
        names = [one.name for one in fields(self.options)]
        for name in settings or {}:
            if name not in names:
                raise unknown(f"option of {self.name}", name, names)
        options = with_settings(self.options, settings or {})
        given = {"items": items, "seed": seed}
        options = replace(options, **{k: v for k, v in given.items() if v is not None})
        if options.items < 1:
            raise InvalidRequest(f"items={options.items}: expected at least 1")
        return options


def scored(kit: Kit, questions: Sequence[Question], answers: Mapping[str, Answer]) -> Answers:
    """The answers there are (by question id), scored; the others are missing."""
    rows = [
        Answered(question, answer, marked(kit, question, answer))
        for question in questions
        if (answer := answers.get(question.id)) is not None
    ]
    return Answers(rows, len(questions))


def marked(kit: Kit, question: Question, answer: Answer) -> dict[str, float]:
    """The scores of an answer, with `parsed` also in a kit that does not give it.

    One that was cut off before it was right could not be read, whatever stands at its end: nobody
    knows what it would have said, and a fall with the length of answers is none of what they say.
    """
    scores = {"parsed": float(bool(answer.said.strip())), **kit.score(question, answer.said)}
    return scores | {"parsed": 0.0} if answer.cut and scores[kit.main] != 1 else scores


def shuffled(kit: Kit, answers: Answers, seed: int = 0) -> Answers:
    """The control: the same answers, each marked against the gold of another question.

    Gold answers move among the questions that agree in the columns `kit.within`, in a random cycle,
    so that none keeps its own; an answer with no other to exchange with is left out. What still
    scores comes from the form of the answers alone.
    """
    within = kit.within or ()
    rng = random.Random(host_seed(seed, f"live/{kit.name}/shuffled"))
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(answers):
        groups.setdefault(tuple(row[name] for name in within), []).append(place)
    rows: dict[int, Answered] = {}
    for places in groups.values():
        rng.shuffle(places)
        if len(places) < 2:
            continue
        for place, other in zip(places, places[1:] + places[:1], strict=True):
            row = answers[place]
            question = replace(row.question, gold=answers[other].question.gold)
            rows[place] = replace(row, scores=marked(kit, question, row.answer))
    return Answers((rows[place] for place in sorted(rows)), len(rows))


def if_readable(
    answers: Answers, measure: Callable[[], Evidence], on: str = ""
) -> Callable[[Any], Evidence]:
    """A claim's measure, taken only where there are enough of these answers and most can be read.

    What cannot be read counts as wrong, but says nothing of what was asked: a model that refuses
    would otherwise fall with no depth and fail every equality. `on` says which answers they are.

    >>> Claim("able", "It can.", if_readable(Answers([], 0), lambda: Evidence.of_values([1.0])),
    ...       above=0.5).measure(None)
    Traceback (most recent call last):
    recombine.lab.study.NotTested: Only 0 answers: five are needed.
    """

    def measured(_: Any) -> Evidence:
        readable(answers, on)
        return measure()

    return measured


def readable(answers: Sequence[Answered], on: str = "") -> None:
    """Refuses a verdict made of too few answers, or of such as could mostly not be read.

    Where two sides are compared, each takes a look of its own: what cannot be read on one of them
    would count as a difference.
    """
    enough(len(answers), f"answers{on}")
    read = sum(row.could_be_read for row in answers) / len(answers)
    if read < READABLE:
        raise NotTested(
            f"Only {read:.2f} of the answers{on} could be read; it takes {READABLE:.2f}."
        )


def verdicts(judgements: Sequence[Judgement]) -> str:
    """What came of the claims in a sentence or two, with why some were not tested."""
    tested = [one for one in judgements if one.interval is not None]
    reasons = dict.fromkeys(one.note for one in judgements if one.interval is None)
    return " ".join([sentence(tested) if tested else "Nothing was tested.", *reasons])


def enough(count: int, what: str) -> None:
    """Refuses a verdict made of too few: some equal answers would have an interval of no width."""
    if count < FEWEST:
        raise NotTested(f"Only {count} {what}: five are needed.")


def share(successes: float, total: int, level: float = 0.95) -> Interval:
    """The interval of a proportion of independent items (Clopper and Pearson's).

    A bootstrap would give no width to 20 right answers of 20. An item that is right in one of two
    forms is half a success.

    >>> found = share(20, 20)
    >>> found.estimate, round(found.low, 3), found.high
    (1.0, 0.832, 1.0)
    """
    if not total:
        raise InvalidRequest("a proportion needs at least one answer, got none")
    failures, tail = total - successes, (1 - level) / 2
    low = float(stats.beta.ppf(tail, successes, failures + 1)) if successes else 0.0
    high = float(stats.beta.isf(tail, successes + 1, failures)) if failures else 1.0
    return Interval(successes / total, low, high, total, "Clopper-Pearson", level)


def rates_table(
    answers: Answers, by: Sequence[str], score: str = "correct", title: str = ""
) -> Table:
    """The rate of a score for each combination of columns, with its interval."""
    keys = list(dict.fromkeys(tuple(row[name] for name in by) for row in answers))
    rows: list[tuple[Cell, ...]] = []
    for key in keys:
        part = answers.where(**dict(zip(by, key, strict=True)))
        rate = part.rate(score)
        rows.append((*key, rate.estimate, rate.low, rate.high, len(part)))
    return Table(title or f"{score} by {', '.join(by)}", (*by, score, "low", "high", "items"), rows)
