"""A network trained in this laboratory, asked like any other model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest
from recombine.live.model import Answer, Progress

if TYPE_CHECKING:
    from recombine.families._sequence import Item, SequenceFamily
    from recombine.instruments.sequence_subject import SequenceSubject

BATCH = 64
NAMED = 8  # words that a refusal lists


@dataclass
class TrainedHere:
    """A cell of a store that learnt to answer in text, by its id or the first letters of it.

    It reads the words of its family and no others, so a kit must have questions in them: a prompt
    with other words is refused before anything is asked. `longest` is the most tokens of an answer
    (as many as fit in one of its rows).

        model = TrainedHere("runs", "3ac710")
        print(next(model.ask(["jump twice after walk left"])).text)
    """

    store: str | Path
    cell: str
    longest: int | None = None
    free: bool = True

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 1:
            raise InvalidRequest(f"longest={self.longest}: expected at least 1")

    @cached_property
    def _loaded(self) -> tuple[str, SequenceSubject]:
        from recombine.instruments.sequence_subject import SequenceSubject
        from recombine.lab.api import load
        from recombine.lab.store import Store

        opened = Store.open(self.store, create=False)
        try:
            name = opened.find("cell", self.cell)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error}; recombine show lists the cells of a store") from None
        found = load(opened, name)
        if not isinstance(found.subject, SequenceSubject):
            raise InvalidRequest(
                f"cell {found.cell[:16]} is a {type(found.learner).__name__}, which does not "
                "answer in text: expected one of a NextToken learner, such as those of the study "
                "sequences; recombine show lists the cells of a store"
            )
        return found.cell, found.subject

    @property
    def subject(self) -> SequenceSubject:
        """The door to the network."""
        return self._loaded[1]

    @property
    def family(self) -> SequenceFamily:
        """What it was taught."""
        return self.subject.family

    @property
    def identity(self) -> str:
        """The cell, what it learnt, and what changes answers."""
        longest = "" if self.longest is None else f" longest={self.longest}"
        return f"cell {self._loaded[0][:16]} ({self.family.name}){longest}"

    def items(self) -> Mapping[str, Sequence[Item]]:
        """What it was not trained on, by split of its corpus."""
        from recombine.families._sequence import TRAIN, Item

        text = self.subject.text
        return {
            split: [
                Item(text(source), text(target), part, int(novelty))
                for source, target, part, novelty in zip(
                    found.sources, found.targets, found.parts, found.novelty, strict=True
                )
            ]
            for split, found in self.subject.corpus.splits.items()
            if split != TRAIN
        }

    def check(self, prompts: Sequence[str]) -> None:
        """Refuses prompts with words it does not know, or too long for its rows."""
        from recombine.families._sequence import tokenize

        known = set(self.subject.corpus.vocabulary.listed)
        kind = self.family.tokens
        words = dict.fromkeys(word for prompt in prompts for word in tokenize(prompt, kind))
        if strange := [word for word in words if word not in known]:
            raise InvalidRequest(
                f"{self.identity} does not know {_listed(strange, kind)}; it reads "
                f"{_listed(sorted(known), kind)}. {self._instead()}"
            )
        for prompt in prompts:
            size = len(tokenize(prompt, kind))
            if self._room(size) < 1:
                raise InvalidRequest(
                    f"{self.identity} reads rows of {self.subject.learner.row} tokens: the "
                    f"question {prompt[:40]!r} of {size} leaves no room for an answer"
                )

    def ask(self, prompts: Sequence[str], progress: Progress | None = None) -> Iterator[Answer]:
        """Answers in order, each the likeliest token by token."""
        self.check(prompts)
        subject = self.subject
        for start in range(0, len(prompts), BATCH):
            sources = [subject.numbers(prompt) for prompt in prompts[start : start + BATCH]]
            written = subject.written(sources, self.longest)
            for number, (source, tokens) in enumerate(
                zip(sources, written, strict=True), start + 1
            ):
                if progress:
                    progress(number, len(prompts))
                yield Answer(subject.text(tokens), cut=len(tokens) >= self._most(len(source)))

    def _instead(self) -> str:
        """What does serve this network, where a kit has no questions in its words."""
        from recombine.constraints.family import ConstrainedFamily

        by_family = {"strings": "Probability", "multiplication": "Subgraphs",
                     "subsequence": "Subgraphs"}  # fmt: skip
        constrained = isinstance(self.family, ConstrainedFamily)
        name = "Constraints" if constrained else by_family.get(self.family.name, "ExactMatch")
        embers = "recombine embers --cell asks it in its own words, or read it from Python"
        return (
            f"{embers if name == 'Probability' else 'Read it from Python instead'}: "
            f"recombine.load({str(self.store)!r}, {self._loaded[0][:16]!r}).read({name}()), with "
            f"{name} of recombine.instruments; recombine report shows what its study found"
        )

    def _room(self, size: int) -> int:
        row, apart = self.subject.learner.row, self.subject.learner.model.shape == "encoder-decoder"
        if apart:
            return row - 2 if size <= row else 0
        return row - 2 - size

    def _most(self, size: int) -> int:
        room = self._room(size)
        return room if self.longest is None else min(room, self.longest)


def _listed(words: Sequence[str], kind: Any) -> str:
    """Some words for people: the first few and how many more there are."""
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    name = f"{kind}s" if len(words) > 1 else f"{kind}"
    return f"the {name} {', '.join(map(repr, words[:NAMED]))}{more}"
