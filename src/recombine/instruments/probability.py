"""What probability does to answers: shares by condition, coefficients, the pull of the likely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special

from recombine.errors import NotApplicable
from recombine.families._sequence import TEST, Item
from recombine.families.strings import Strings, Swap
from recombine.instruments._instrument import Instrument, Reading
from recombine.instruments.exact_match import SEEN, in_text
from recombine.instruments.sequence_subject import SequenceSubject
from recombine.instruments.subject import Subject
from recombine.probability.measures import (
    OUTPUT,
    Table,
    coefficients,
    regularisation,
    tabulated,
)
from recombine.seeds import host_seed

PLANTED = 1.0  # log-odds for a standard deviation of the output's log-probability
PULL = 6.0  # how much likelier the planted answerer gives the original than another neighbour
SHUFFLES = 5
TWIN = 100  # sentences the untrained twin is asked about: it knows none
EXAMPLES = 8


class Pull(NamedTuple):
    """Wrong answers to adversarial items: how many, and the shares that give which neighbour.

    `ratio` has half an answer added to either side, so that it is finite and few answers say
    little.
    """

    wrong: int
    original: float
    other: float
    ratio: float

    def numbers(self) -> dict[str, float]:
        return {"adversarial_wrong": float(self.wrong), "original": self.original,
                "other": self.other, "ratio": self.ratio}  # fmt: skip


@dataclass(frozen=True)
class Probability(Instrument):
    """Exact answers to `Strings` by task and condition, and what they owe to probability.

    `output` and `input` are the log-odds of a right answer for one standard deviation more of the
    log-probability of output and input, in one regression over all tasks and conditions with
    lengths and tasks beside them. Probabilities are those of the language, also for the placebo,
    which never met it. `original` and `other` are the shares of wrong answers to adversarial
    decoding items that give the likely sentence they were made from, and one other neighbour.

    Controls: the untrained twin; answers dealt out anew among the items of each task (shuffled);
    and a scripted answerer whose odds of being right are a known function of the output's
    probability, `PLANTED`, and who is drawn to the original `PULL` times as much as to any other
    neighbour (planted).
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "probability"
    needs: ClassVar[tuple[str, ...]] = ("answer", "log-probabilities")
    controls: ClassVar[tuple[str, ...]] = ("untrained", "shuffled", "planted")

    sentences: int = 1_000  # in each task and condition, and items like those of training

    def read(self, subject: Subject, untrained: Subject, others: Mapping[str, Subject]) -> Reading:
        subject.need(self.name, *self.needs)
        trained, twin = in_text(subject, self.name), in_text(untrained, self.name)
        if not isinstance(trained.family, Strings):
            raise NotApplicable(
                f"{self.name} needs a network trained on strings, whose probabilities are set; "
                f"this one was trained on {trained.family.name}"
            )
        rng = np.random.default_rng(host_seed(trained.learner.seeds.evaluation, self.name))
        swaps = trained.family.swaps(trained.learner.seeds.content)
        items, table = self._asked(trained, self.sentences)
        values = {SEEN: self._seen(trained)} | numbers(table)
        said = answers(trained, items, table, swaps)
        values |= pull(items, said, swaps).numbers()
        before, twin_table = self._asked(twin, min(TWIN, self.sentences))
        twin_said = answers(twin, before, twin_table, swaps)
        controls = {
            "untrained": numbers(twin_table) | pull(before, twin_said, swaps).numbers(),
            "shuffled": shuffled(table, rng),
            "planted": planted(items, table, swaps, rng),
        }
        return Reading(values, controls, {"parts": parts(table),
                                          "drawn": drawn(items, said, swaps)})  # fmt: skip

    def _seen(self, subject: SequenceSubject) -> float:
        part = subject.corpus.splits[TEST]
        judged = subject.judge(part.sources[: self.sentences], part.targets[: self.sentences])
        return float(judged.exact.mean())

    def _asked(self, subject: SequenceSubject, sentences: int) -> tuple[list[Item], Table]:
        """The items of all tasks and conditions, and which are answered exactly."""
        language = replace(_family(subject), uniform=False)
        items: list[Item] = []
        exact: list[np.ndarray] = []
        for split in language_splits(subject):
            part = subject.corpus.splits[split]
            sources, targets = part.sources[:sentences], part.targets[:sentences]
            exact.append(subject.judge(sources, targets).exact)
            items += [
                Item(subject.text(s), subject.text(t), split)
                for s, t in zip(sources, targets, strict=True)
            ]
        return items, tabulated(items, np.concatenate(exact), language.log_probabilities)


def language_splits(subject: SequenceSubject) -> list[str]:
    """The splits that go beyond training: a task and a condition each."""
    conditions = ("high", "medium", "low", "adversarial")
    return [s for s in subject.corpus.splits if s.rpartition(" ")[2] in conditions]


def numbers(table: Table) -> dict[str, float]:
    """Shares of exact answers by task and condition, coefficients, and how many they rest on."""
    effects = coefficients(table)
    places = zip(table.task.tolist(), table.condition.tolist(), strict=True)
    found = {
        f"{task} {condition}": float(table.where(task=task, condition=condition).correct.mean())
        for task, condition in dict.fromkeys(places)
    }
    right = float(table.correct.sum())
    return found | {
        "output": effects.output, "input": effects.input, "output_p": effects.fit[OUTPUT].p,
        "right": right, "wrong": len(table) - right,
    }  # fmt: skip


def answers(
    subject: SequenceSubject, items: Sequence[Item], table: Table, swaps: Mapping[str, Swap]
) -> list[str]:
    """What is said to each adversarial item to decode, if it is one of the sentences in question;
    else nothing.

    Greedy writing gives a sentence if and only if the sentence is judged exact, so none is written.
    """
    said = ["" for _ in items]
    asked: list[tuple[int, str]] = []
    for n, item in enumerate(items):
        if not adversarial(item):
            continue
        if table.correct[n]:
            said[n] = item.target
            continue
        swap = swaps[item.source]
        asked += [(n, text) for text in (swap.original, *swap.others)]
    sources = [np.asarray(subject.numbers(items[n].source)) for n, _ in asked]
    targets = [np.asarray(subject.numbers(text)) for _, text in asked]
    for (n, text), given in zip(asked, subject.judge(sources, targets).exact, strict=True):
        if given:
            said[n] = text
    return said


def adversarial(item: Item) -> bool:
    """Whether the likely sentence would be a wrong answer to it."""
    return item.part.endswith("adversarial") and "decode" in item.part


def pull(items: Sequence[Item], said: Sequence[str], swaps: Mapping[str, Swap]) -> Pull:
    """How wrong answers to adversarial items are drawn to the likely original."""
    rows = [(a, i.target, swaps[i.source]) for i, a in zip(items, said, strict=True)
            if adversarial(i)]  # fmt: skip
    found = regularisation(
        [a for a, _, _ in rows], [t for _, t, _ in rows], [s.original for _, _, s in rows],
        [s.others for _, _, s in rows],
    )  # fmt: skip
    if not found.wrong:
        return Pull(0, 0.0, 0.0, 1.0)
    ratio = (found.original * found.wrong + 0.5) / (found.chance * found.wrong + 0.5)
    return Pull(found.wrong, found.original, found.chance, ratio)


def shuffled(table: Table, rng: np.random.Generator) -> dict[str, float]:
    """The same numbers where answers are dealt out anew among the conditions of each task."""
    found: dict[str, list[float]] = {"output": [], "input": []}
    for _ in range(SHUFFLES):
        correct = table.correct.copy()
        for task in np.unique(table.task):
            mine = np.flatnonzero(table.task == task)
            correct[mine] = correct[rng.permutation(mine)]
        effects = coefficients(replace(table, correct=correct))
        found["output"].append(effects.output)
        found["input"].append(effects.input)
    return {name: float(np.mean(values)) for name, values in found.items()}


def planted(
    items: Sequence[Item], table: Table, swaps: Mapping[str, Swap], rng: np.random.Generator
) -> dict[str, float]:
    """What is read off the scripted answerer: coefficients and ratio must be those it has."""
    likely = table.output_log_probability
    odds = PLANTED * (likely - likely.mean()) / likely.std(ddof=1)
    correct = (rng.random(len(table)) < special.expit(odds)).astype(np.float64)
    effects = coefficients(replace(table, correct=correct))
    said = ["" for _ in items]
    for n, item in enumerate(items):
        if adversarial(item):
            swap = swaps[item.source]
            weights = np.asarray([PULL, *[1.0] * len(swap.others)])
            chosen = rng.choice(len(weights), p=weights / weights.sum())
            said[n] = (swap.original, *swap.others)[chosen]
    return {"output": effects.output, "input": effects.input,
            "ratio": pull(items, said, swaps).ratio}  # fmt: skip


def parts(table: Table) -> dict[str, list[Any]]:
    """One row for each task and condition."""
    columns: dict[str, list[Any]] = {name: [] for name in (
        "task", "condition", "items", "exact", "input_log_probability", "output_log_probability",
    )}  # fmt: skip
    for task in np.unique(table.task):
        for condition in dict.fromkeys(table.condition.tolist()):
            rows = table.where(task=task, condition=condition)
            values = (str(task), condition, len(rows), float(rows.correct.mean()),
                      float(rows.input_log_probability.mean()),
                      float(rows.output_log_probability.mean()))  # fmt: skip
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns


def drawn(
    items: Sequence[Item], said: Sequence[str], swaps: Mapping[str, Swap]
) -> dict[str, list[Any]]:
    """A few wrong answers that give the likely sentence."""
    found = [(i.source, i.target, a) for i, a in zip(items, said, strict=True)
             if adversarial(i) and a == swaps[i.source].original][:EXAMPLES]  # fmt: skip
    return {name: [row[n] for row in found] for n, name in enumerate(("asked", "right", "said"))}


def _family(subject: SequenceSubject) -> Strings:
    assert isinstance(subject.family, Strings)
    return subject.family
