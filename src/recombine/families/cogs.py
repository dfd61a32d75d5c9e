"""COGS: English sentences, answered by their logical form; loaded from files, never bundled."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from recombine.errors import InvalidRequest
from recombine.families._cogs_grammar import logical_form
from recombine.families._sequence import (
    ALWAYS,
    TEST,
    TRAIN,
    VALIDATION,
    Corpus,
    Item,
    SequenceFamily,
    shares,
)

BEYOND = {"lexical": "gen_lexical.tsv", "structural": "gen_structural.tsv"}
DEEPEST_TRAINED = 2  # clauses within clauses, and phrases within phrases
MODIFIERS = re.compile(r"(?: (?:in|on|beside) (?:a|the) \w+)+")


@dataclass(frozen=True)
class Cogs(SequenceFamily):
    """Semantic parsing with new words in old places (lexical) and new structures (structural).

    The published files (Kim and Linzen, 2020) are read from `folder`, or from where
    `recombine data get cogs` puts them: `train.tsv`, `test.tsv`, `gen_lexical.tsv`,
    `gen_structural.tsv`, each line a sentence, its logical form and its case, parted by tabs. Of
    each of the 21 generalization cases, `validation_per_case` items are set aside as `validation`,
    the same whatever the seed.
    `train_items`, `test_items` and `items_per_case` draw fewer than there are; the words in
    isolation and the single examples that the cases build on always stay in training.

    The vocabulary is 871 words. A sentence and its form have at most 176 words together, 541 in
    `structural`, where clauses and phrases are nested up to 12 deep; `longest` leaves out whatever
    has more words than that. The published `dev.tsv` is not used. Four of five items of the two
    recursion cases need a number above 18, which training never shows: a network that reads
    numbers as words cannot write them, whatever it has understood.

    >>> Cogs().solve("The girl was given a cake .")
    '* girl ( x _ 1 ) ; give . recipient ( x _ 3 , x _ 1 ) AND give . theme ( x _ 3 , x _ 5 ) \
AND cake ( x _ 5 )'
    """

    version: ClassVar[int] = 2
    name: ClassVar[str] = "cogs"
    unit: ClassVar[str] = "levels of nesting beyond 2, or 1 for a new pairing of known pieces"
    instruction: ClassVar[str] = (
        "Translate each English sentence into its logical form, as in the examples: words and "
        "symbols parted by single spaces; the variable of a noun or a verb is x _ n, n its place "
        "in the sentence counted from 0; nouns with 'the' come first, each as '* noun ( x _ n ) ;'"
        ", the other facts follow by the place of their first variable, joined by AND. Answer with "
        "the logical form only."
    )

    folder: str | None = None
    train_items: int | None = None
    test_items: int | None = None
    items_per_case: int | None = None
    validation_per_case: int = 20
    longest: int | None = None

    def check(self) -> None:
        for field in ("train_items", "test_items", "items_per_case", "longest"):
            wanted = getattr(self, field)
            if wanted is not None and wanted < 1:
                raise InvalidRequest(f"{field}={wanted}: ask for 1 or more, or None for no limit")
        if self.validation_per_case < 0:
            raise InvalidRequest(
                f"validation_per_case={self.validation_per_case}: ask for 0 or more"
            )

    def corpus(self, seed: int) -> Corpus:
        self.check()
        folder = self._folder()
        train, test = (self._read(folder / f"{split}.tsv") for split in (TRAIN, TEST))
        if self.test_items is not None:
            test = _drawn(test, self.test_items, "test_items", self.rng(seed, "test"))
        splits = {TRAIN: self._drawn_train(train, seed), TEST: test, VALIDATION: []}
        for split, file in BEYOND.items():
            cases: dict[str, list[Item]] = defaultdict(list)
            for item in self._read(folder / file):
                cases[item.part].append(item._replace(novelty=_novelty(item)))
            splits[split] = []
            for case, items in cases.items():
                size = min(self.validation_per_case, len(items))
                chosen, rest = shares(items, self.rng(ALWAYS, f"validation/{case}"), size)
                if not rest:
                    raise InvalidRequest(
                        f"validation_per_case={self.validation_per_case}: {case} has {len(items)} "
                        f"items, ask for at most {len(items) - 1}"
                    )
                splits[VALIDATION] += chosen
                splits[split] += rest[: self.items_per_case]
        return Corpus(splits)

    def solve(self, source: str) -> str:
        return logical_form(source)

    def scores(self, item: Item, answer: str) -> dict[str, float]:
        """`exact`, and `renumbered`: right but for the numbers of the variables.

        Numbers may differ where one list of variables turns into the other one to one: equal
        numbers stay equal, different ones different. Words, names and the order of the facts must
        be as given.
        """
        same = renumbered(answer) == renumbered(item.target)
        return {"exact": float(answer == item.target), "renumbered": float(same)}

    def _folder(self) -> Path:
        if self.folder is not None:
            return Path(self.folder)
        from recombine.data import located

        return located("cogs")

    def _read(self, path: Path) -> list[Item]:
        if self.longest is None:
            return _read(path)
        return [item for item in _read(path) if _words(item) <= self.longest]

    def _drawn_train(self, items: list[Item], seed: int) -> list[Item]:
        if self.train_items is None:
            return items
        kept = [item for item in items if item.part != "in_distribution"]
        rest = [item for item in items if item.part == "in_distribution"]
        if self.train_items < len(kept):
            raise InvalidRequest(
                f"train_items={self.train_items}: {len(kept)} items carry the words that the cases "
                "build on and always stay, ask for more"
            )
        rng = self.rng(seed, "train")
        return kept + _drawn(rest, self.train_items - len(kept), "train_items", rng)


def renumbered(form: str) -> list[str]:
    """A logical form with its variables numbered in order of appearance.

    Two forms become equal exactly where a one-to-one renaming turns one into the other.

    >>> " ".join(renumbered("run . agent ( x _ 7 , x _ 3 ) AND dog ( x _ 3 )"))
    'run . agent ( x _ 0 , x _ 1 ) AND dog ( x _ 1 )'
    """
    words, numbers = form.split(" "), {}
    return [
        str(numbers.setdefault(word, len(numbers)))
        if words[max(i - 2, 0) : i] == ["x", "_"] and word.isdigit()
        else word
        for i, word in enumerate(words)
    ]


def _read(path: Path) -> list[Item]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidRequest(
            f"{path} cannot be read ({error.strerror}); it should be a file of COGS, "
            "fetched by `recombine data get cogs`"
        ) from error
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path} is not UTF-8 text: expected a file of COGS") from None
    items = []
    for number, line in enumerate(lines, 1):
        match line.split("\t"):
            case [sentence, form, part]:
                items.append(Item(sentence, form, part))
            case fields:
                raise InvalidRequest(
                    f"{path}, line {number}: {len(fields)} fields, expected 3 parted by tabs "
                    "(sentence, logical form, case)"
                )
    return items


def _drawn(items: Sequence[Item], size: int, field: str, rng: np.random.Generator) -> list[Item]:
    if size > len(items):
        raise InvalidRequest(f"{field} asks for {size} of {len(items)} items; None takes all")
    return shares(items, rng, size)[0]


def _words(item: Item) -> int:
    return len(item.source.split(" ")) + len(item.target.split(" "))


def _novelty(item: Item) -> int:
    if item.part == "cp_recursion":
        return item.source.split(" ").count("that") - DEEPEST_TRAINED
    if item.part == "pp_recursion":
        longest = max(MODIFIERS.findall(item.source), key=len).split(" ")
        return len(longest) // 3 - DEEPEST_TRAINED
    return 1
